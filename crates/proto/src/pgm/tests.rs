//! Tests of a source and its receivers.

mod bounded;
mod control;
mod hostile;
mod protocol;
mod repair;
