//! Programs of sessions in WebAssembly: read, checked, and run at a relay within limits.
//!
//! A program is a [`Policy`](faircast_relay_sdk::Policy) that was built for `wasm32-unknown-unknown` with
//! `faircast_relay_sdk::program!`. It sees of the relay what [`View`](faircast_relay_sdk::View) shows and nothing else: no
//! clock, no randomness, no files, no network. Its size is bounded before it is compiled, and each question to it by
//! [`Limits`] of instructions and memory; a program that takes more has failed. Limits are instructions and not time, so that a
//! program does the same everywhere. A [`LiveHost`] bounds processor time, too, for what instructions do not show.

mod bounds;
mod clock;
mod host;
mod live;
mod signature;

pub use host::{Limits, ProgramInfo, WasmHost};
pub use live::LiveHost;
pub use signature::{ProgramError, Signers, SigningKey, VerifyingKey, sign, signer};
