//! Tests of the scheme: sender and receiver, alone and together.

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
