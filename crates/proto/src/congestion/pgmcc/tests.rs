//! Tests of the scheme: sender and receiver, alone and together.

mod bitmap;
mod harness;
mod properties;
mod receiver;
mod switching;
mod timers;
