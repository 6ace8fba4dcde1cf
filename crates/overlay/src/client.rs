//! Clients of a daemon: what waits for them, and what they are told.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use bytes::Bytes;

use crate::cell::Service;
use crate::group::Mate;
use crate::ids::{Ballot, DaemonRun, ViewId};

/// Reason of a change of a group's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A client has joined.
    Join,
    /// A client has left.
    Leave,
    /// A client is gone.
    Disconnect,
    /// Daemons came or went.
    Network,
}

/// Refusal of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The client is unknown, or its name is taken, empty or too long.
    Name,
    /// A group's name is empty or too long, or there are no groups or too many.
    Group,
    /// The message is too long.
    Length,
    /// The members of the view change; the request can be repeated soon.
    Changing,
    /// Not all daemons have earlier messages yet; the request can be repeated soon.
    Retention,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "the client's name is unknown, taken, empty or longer than 64 bytes",
            Self::Group => "a message has 1 to 100 groups, with names of 1 to 64 bytes",
            Self::Length => "the message is longer than 16 MB",
            Self::Changing => "the members of the view change; try again",
            Self::Retention => "not all daemons have the earlier messages yet; try again",
        })
    }
}

impl core::error::Error for SendError {}

/// Event for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// A message to a group of which the client is a member.
    Message {
        /// Sender.
        from: Mate,
        /// Service.
        service: Service,
        /// All groups of the message.
        groups: Vec<Bytes>,
        /// Payload, in parts.
        parts: Vec<Bytes>,
        /// View of the message.
        view: ViewId,
        /// Number of the message at its daemon in this configuration.
        sequence: u64,
    },
    /// The members of a group have changed.
    Group {
        /// Name.
        group: Bytes,
        /// Members, in the same order at all of them.
        members: Vec<Mate>,
        /// Reason.
        reason: Reason,
        /// The client that has come or gone; `None` if daemons have.
        subject: Option<Mate>,
        /// Place in the common order.
        position: (u64, u64, u64),
        /// View of the change.
        view: ViewId,
    },
    /// The view is about to end: what follows is known to these daemons alone.
    Transitional {
        /// The view that ends.
        closes: ViewId,
        /// Daemons that move on together.
        members: Vec<DaemonRun>,
    },
    /// A view begins.
    View {
        /// Identifier.
        id: ViewId,
        /// Daemons.
        members: Vec<DaemonRun>,
        /// Names of the daemons.
        names: Vec<String>,
        /// Daemons that have come from the same view as the client's.
        together: Vec<DaemonRun>,
        /// That view; `None` for the first view of a client.
        previous: Option<ViewId>,
    },
    /// The client was too slow: nothing follows.
    Cut {
        /// Events that were lost.
        lost: u64,
    },
}

impl ClientEvent {
    fn bytes(&self) -> usize {
        64 + match self {
            Self::Message { parts, .. } => parts.iter().map(Bytes::len).sum(),
            Self::Group { members, .. } => 64 * members.len(),
            _ => 0,
        }
    }
}

/// A group that a client is to be a member of.
#[derive(Debug)]
pub(crate) struct Joining {
    pub(crate) group: Bytes,
    /// Configuration and number of the announcement.
    pub(crate) announced: Option<(Ballot, u64)>,
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) name: Bytes,
    pub(crate) joining: Vec<Joining>,
    waiting: VecDeque<ClientEvent>,
    bytes: usize,
    lost: u64,
}

impl Client {
    pub(crate) fn new(name: Bytes) -> Self {
        Self { name, joining: Vec::new(), waiting: VecDeque::new(), bytes: 0, lost: 0 }
    }

    /// Queues an event. Beyond `max` bytes the client is cut off.
    pub(crate) fn push(&mut self, event: ClientEvent, max: usize) {
        if self.lost > 0 || self.bytes + event.bytes() > max {
            self.lost += 1;
            return;
        }
        self.bytes += event.bytes();
        self.waiting.push_back(event);
    }

    pub(crate) fn pop(&mut self) -> Option<ClientEvent> {
        let Some(event) = self.waiting.pop_front() else {
            return (self.lost > 0).then_some(ClientEvent::Cut { lost: self.lost });
        };
        self.bytes -= event.bytes();
        Some(event)
    }
}
