//! Source and receivers back to back.

mod bounded;
mod control;
mod faults;
mod hostile;
mod protocol;
mod repair;
mod world;
