//! Tests of each half of the scheme alone.

mod choice;
mod harness;
mod properties;
mod rate;
mod receiver;
mod sender;
mod silence;
