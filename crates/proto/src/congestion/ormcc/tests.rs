//! Tests of each half of the scheme alone.

mod harness;
mod properties;
mod rate;
mod receiver;
mod sender;
