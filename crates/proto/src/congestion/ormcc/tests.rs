//! Tests of the scheme's two halves, each on its own.

mod choice;
mod harness;
mod properties;
mod rate;
mod receiver;
mod sender;
mod silence;
