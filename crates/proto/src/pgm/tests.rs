//! Tests of a source and its receivers.

mod bounded;
mod control;
mod faults;
mod hostile;
mod protocol;
mod repair;
mod world;
