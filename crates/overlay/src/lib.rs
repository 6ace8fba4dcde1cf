//! Overlay of daemons as a pure state machine: views, groups, ordered delivery.
//!
//! Reading order: `ids`, `topology` (components and trees), `stream` (cells along trees, the common
//! order), [`Daemon`] and its parts, `client`, `session` (clients over a byte stream).

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod cell;
mod client;
mod daemon;
mod group;
mod ids;
mod mutant;
mod neighbor;
mod price;
mod session;
mod stream;
#[cfg(test)]
mod tests;
mod topology;
mod trace;
mod wire;

pub use cell::{GROUP_BYTES_MAX, GROUPS_MAX, Names, Service};
pub use client::{ClientEvent, Parts, Reason, SendError};
pub use daemon::{
    CLIENT_BYTES_MAX, Daemon, DaemonEvent, DaemonSettings, LinkPrice, MESSAGE_BYTES_MAX, Outgoing,
    ViewLink,
};
pub use group::MemberId;
pub use ids::{ClientId, DaemonId, DaemonRun, LinkId, ViewId};
pub use price::{Benefit, FlowControl, PriceProfile};
pub use session::protocol;
pub use session::{
    GroupEvent, GroupMember, GroupMessage, GroupName, RemoteSession, SessionError, WaitReason,
};
pub use topology::NAME_BYTES_MAX;
pub use trace::ClientTrace;
