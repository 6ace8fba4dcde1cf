//! Programs of sessions in WebAssembly: read, checked, and run at a relay within limits.
//!
//! A program is a [`Policy`](faircast_relay_sdk::Policy) that was built for `wasm32-unknown-unknown` with
//! `faircast_relay_sdk::program!`. A program sees what [`View`](faircast_relay_sdk::View) shows and nothing else: no
//! clock, no randomness, no files, no network. The size of a program is bounded before it is compiled, and each
//! question to it by [`Limits`] of instructions and memory. A program that takes more has failed. Limits count
//! instructions, so that a program does the same on every machine. A [`LiveHost`] bounds processor time too, for
//! costs that no instruction shows.

mod bounds;
mod clock;
mod host;
mod live;
mod signature;

pub use host::{Limits, ProgramInfo, WasmHost};
pub use live::LiveHost;
pub use signature::{ProgramError, Signers, SigningKey, VerifyingKey, sign, signer};
