//! Programs of sessions in WebAssembly: parsed, checked, and run at a relay within limits.
//!
//! A program is a [`Policy`](faircast_relay_sdk::Policy), built for `wasm32-unknown-unknown` with
//! `faircast_relay_sdk::program!`. It has access to the [`View`](faircast_relay_sdk::View) only.
//! [`Limits`] of instructions and memory apply to each call, alike on every machine. A [`LiveHost`]
//! also limits processor time, for costs that the instruction count does not show.

mod bounds;
mod clock;
mod host;
mod live;
mod signature;

pub use host::{Limits, WasmHost};
pub use live::LiveHost;
pub use signature::{ProgramError, Signers, SigningKey, VerifyingKey, sign, signer};
