//! Sessions of clients over a byte stream: frames, and the client's side.

mod event;
pub mod protocol;
mod remote;

pub use event::{GroupEvent, GroupMember, GroupMessage, GroupName};
pub use remote::{RemoteSession, SessionError, WaitReason};
