//! Authenticated encryption of every datagram of a session, feedback included, under one key that
//! all members of a group share.
//!
//! A group has a [`GroupKey`], kept in a file that [`GroupKey::create`] makes. Every end of a
//! session, sender or receiver, has a [`Seal`], which seals what leaves and opens what comes. What
//! is on the wire, what it protects against and what it does not is in `docs/security.md`.

mod budget;
mod file;
mod header;
mod key;
mod peers;
mod refusal;
mod seal;
mod traffic;
mod window;

pub use file::{Exposure, open_private};
pub use header::{KeyHint, OVERHEAD, Role, Salt, key_hint};
pub use key::{GroupKey, KeyError, KeyId, NoRandomness, RelaySecret};
pub use peers::PEERS_MAX;
pub use refusal::{Refusal, Refusals};
pub use seal::{Opened, Seal};
pub use traffic::PACKETS_PER_KEY;
pub use window::WINDOW_PACKETS;
