//! Programs of sessions in WebAssembly: read, checked, and run at a relay within limits.
//!
//! A program is a [`Policy`](faircast_relay_sdk::Policy) that was built for `wasm32-unknown-unknown` with
//! `faircast_relay_sdk::program!`. It sees of the relay what [`View`](faircast_relay_sdk::View) shows and nothing else: no
//! clock, no randomness, no files, no network. Each question to it may take [`Limits`] of instructions and memory; whoever
//! takes more has failed. What it may take is counted in instructions and not in time, so that it does the same everywhere.

mod host;
mod signature;

pub use host::{Limits, ProgramInfo, WasmHost};
pub use signature::{ProgramError, Signers, SigningKey, VerifyingKey, sign, signer};
