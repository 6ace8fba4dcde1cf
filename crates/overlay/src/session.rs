//! Sessions of clients over a stream of bytes: frames, and the client's end.

mod event;
pub mod protocol;
mod remote;
mod trace;

pub use event::{GroupEvent, GroupMember, GroupMessage, GroupName};
pub use remote::{RemoteSession, SessionError, WaitReason};
