//! Events of a client of groups.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

use bytes::Bytes;

use crate::cell::Service;
use crate::client::{ClientEvent, Reason, SendError};
use crate::group::Mate;
use crate::ids::ViewId;

/// Name of a group or a client.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(Bytes);

impl Deref for GroupName {
    type Target = str;

    fn deref(&self) -> &str {
        // The decoder takes UTF-8 alone.
        core::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// Client that is a member of a group, or the sender of a message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupMember {
    /// Name at its daemon.
    pub name: GroupName,
    /// Identifier of its daemon.
    pub daemon: u64,
    /// Number of the run of its program.
    pub incarnation: u64,
}

impl fmt::Display for GroupMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)
    }
}

impl From<Mate> for GroupMember {
    fn from(mate: Mate) -> Self {
        let Mate { daemon, name, incarnation } = mate;
        Self { name: GroupName(name), daemon: daemon.0, incarnation }
    }
}

/// Message to a group of which the client is a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMessage {
    /// Sender.
    pub from: GroupMember,
    /// Service.
    pub service: Service,
    /// Groups of the message.
    pub groups: Vec<GroupName>,
    /// Payload.
    pub payload: Bytes,
    /// View of the message.
    pub view: ViewId,
}

/// Event of a client of groups.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupEvent {
    /// A message.
    Message(GroupMessage),
    /// The members of a group have changed.
    Group {
        /// Name.
        group: GroupName,
        /// Members, in the same order at all of them.
        members: Vec<GroupMember>,
        /// Reason of the change.
        reason: Reason,
        /// The client that has come or gone; `None` if daemons have.
        subject: Option<GroupMember>,
        /// View of the change.
        view: ViewId,
    },
    /// The view is about to end: what follows is known to these daemons alone.
    Transitional {
        /// The view that ends.
        closes: ViewId,
        /// Identifiers of the daemons that move on together.
        members: Vec<u64>,
    },
    /// A view begins.
    View {
        /// Identifier.
        id: ViewId,
        /// Identifiers and names of the daemons.
        members: Vec<(u64, String)>,
        /// Identifiers of the daemons that have come from the same view.
        together: Vec<u64>,
        /// That view; `None` for the first view of a client.
        previous: Option<ViewId>,
    },
    /// A message that asked for a receipt has its place in the common order and is delivered.
    Receipt {
        /// Number of the request.
        request: u64,
        /// Members that the message has reached: for safe messages all of them have it, for
        /// agreed and causal ones they get it at the same place unless their daemons fail.
        members: u32,
        /// View of the message.
        view: ViewId,
    },
    /// Groups of a message have no members: nobody gets the message. Comes once, and again after
    /// a message has found members.
    NoMembers {
        /// Number of the request.
        request: u64,
        /// The groups.
        groups: Vec<GroupName>,
    },
    /// Events are lost since the client was too slow, or away for too long. The last view and the
    /// last members of each group among them have come before: as a [`View`](Self::View), a
    /// [`Transitional`](Self::Transitional) and [`Group`](Self::Group)s.
    Cut {
        /// Numbers of the first and the last lost event.
        lost: (u64, u64),
    },
    /// The connection is lost. The client tries to open another one until it is closed.
    Disconnected {
        /// Reason.
        reason: String,
    },
    /// The connection was lost and the session goes on.
    Resumed,
    /// The daemon had no session any more, and a new one has begun: events may be missing, and the
    /// client joins its groups again.
    Restarted {
        /// Messages that may not have been sent.
        unsure: usize,
    },
    /// The daemon refuses a request.
    Refused {
        /// Number of the request.
        request: u64,
        /// Reason.
        reason: SendError,
    },
}

impl From<ClientEvent> for GroupEvent {
    fn from(event: ClientEvent) -> Self {
        match event {
            ClientEvent::Message { from, service, groups, parts, view, .. } => {
                let groups = groups.shares().map(GroupName).collect();
                let payload = match &*parts {
                    [payload] => payload.clone(),
                    parts => parts.concat().into(),
                };
                Self::Message(GroupMessage { from: from.into(), service, groups, payload, view })
            }
            ClientEvent::Group { group, members, reason, subject, view, .. } => Self::Group {
                group: GroupName(group),
                members: members.iter().cloned().map(GroupMember::from).collect(),
                reason,
                subject: subject.map(GroupMember::from),
                view,
            },
            ClientEvent::Transitional { closes, members } => Self::Transitional {
                closes,
                members: members.into_iter().map(|run| run.id.0).collect(),
            },
            ClientEvent::View { id, members, names, together, previous } => Self::View {
                id,
                members: members.into_iter().map(|run| run.id.0).zip(names).collect(),
                together: together.into_iter().map(|run| run.id.0).collect(),
                previous,
            },
            ClientEvent::Receipt { request, members, view } => {
                Self::Receipt { request, members, view }
            }
            ClientEvent::NoMembers { request, groups } => {
                let groups = groups.copies().map(GroupName).collect();
                Self::NoMembers { request, groups }
            }
            ClientEvent::Refused { request, reason } => Self::Refused { request, reason },
            ClientEvent::Cut { lost, .. } => Self::Cut { lost },
        }
    }
}
