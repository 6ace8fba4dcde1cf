//! Tests of the scheme as a whole: sender and receiver together.

mod bitmap;
mod election;
mod harness;
mod late;
mod networks;
mod properties;
mod receiver;
mod repairs;
mod switching;
mod timers;
mod traces;
