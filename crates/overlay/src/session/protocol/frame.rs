//! Frames of the protocol.

use alloc::string::String;
use alloc::sync::Arc;

use bytes::Bytes;

use super::ReasonCode;
use crate::cell::{Names, Service};
use crate::client::ClientEvent;
use crate::ids::{DaemonRun, ViewId};
use crate::price::Benefit;
use crate::session::remote::WaitReason;

/// Frame of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// First frame of a client.
    Hello {
        /// Version of the protocol.
        version: u8,
        /// Number of the run of the client's program; grows with each start.
        incarnation: u64,
        /// Number of the next event of a session to resume; 0 for a new session.
        next: u64,
        /// Name of 1 to 56 bytes of UTF-8.
        name: Bytes,
        /// Token at an address with TLS, at most 128 bytes of UTF-8; otherwise empty.
        token: Bytes,
    },
    /// First frame of the daemon.
    Welcome(Welcome),
    /// Request for a [`Pong`](Self::Pong) with the same number.
    Ping(u64),
    /// Answer to a [`Ping`](Self::Ping).
    Pong(u64),
    /// Last frame of a client, which ends the session.
    Goodbye,
    /// Last frame before a connection is closed.
    Error(ReasonCode, String),
    /// Request to join a group.
    Join {
        /// Number of the request.
        request: u64,
        /// Name of the group.
        group: Bytes,
        /// True if the group's senders shall wait while this member is slow.
        holds_senders: bool,
    },
    /// Request to leave a group.
    Leave {
        /// Number of the request.
        request: u64,
        /// Name of the group.
        group: Bytes,
    },
    /// Request to send a message.
    Send {
        /// Number of the request.
        request: u64,
        /// Service of the message.
        service: Service,
        /// True if the client wants a receipt.
        wants_receipt: bool,
        /// View to which the message is restricted; `None` for any view.
        view: Option<ViewId>,
        /// Benefit under flow control; `None` for the daemon's default.
        benefit: Option<Benefit>,
        /// Groups, 1 to 100.
        groups: Names,
        /// Payload.
        payload: Bytes,
    },
    /// Report that all requests up to this number are accepted or refused.
    Sent(u64),
    /// Report that requests of the client wait at the daemon; `None`: they no longer wait.
    Waiting(Option<WaitReason>),
    /// Event with its number in the session.
    Event(u64, Arc<ClientEvent>),
    /// Report that the session resumes.
    Resumed,
}

/// Answer of a daemon to a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Run of the daemon.
    pub daemon: DaemonRun,
    /// Current view.
    pub view: ViewId,
    /// Number of the client's last request that the daemon has handled.
    pub taken: u64,
    /// Maximum length of a message in bytes.
    pub message_bytes: u32,
    /// Maximum number of groups of a message.
    pub groups: u8,
    /// Maximum length of a group's name in bytes.
    pub group_bytes: u8,
    /// Name of the client in the overlay: `name@daemon`.
    pub full_name: Bytes,
}
