//! Authenticated encryption of all datagrams of a session under a key that a group shares.
//!
//! Each end of a session has a [`Seal`] with the group's [`GroupKey`]. `docs/security.md` describes
//! the wire format and the protection.

mod file;
mod header;
mod key;
mod peers;
mod refusal;
mod seal;
mod traffic;

pub use file::{Exposure, open_private};
pub use header::{KeyHint, OVERHEAD, Role, Salt, key_hint};
pub use key::{GroupKey, KeyError, KeyId, NoRandomness, RelaySecret};
pub use peers::PEERS_MAX;
pub use refusal::{Refusal, Refusals};
pub use seal::{Opened, Seal};
