//! Source and receivers back to back.

mod control;
mod faults;
mod hostile;
mod protocol;
mod world;
