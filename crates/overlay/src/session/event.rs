//! Events for a client of groups.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

use bytes::Bytes;

use crate::cell::Service;
use crate::client::{ClientEvent, Reason, SendError};
use crate::group::MemberId;
use crate::ids::ViewId;

/// Name of a group or a client.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(Bytes);

impl Deref for GroupName {
    type Target = str;

    fn deref(&self) -> &str {
        // The decoder accepts only UTF-8.
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

/// Client that is a member of a group or the sender of a message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupMember {
    /// Name of the client at its daemon.
    pub name: GroupName,
    /// Identifier of the client's daemon.
    pub daemon: u64,
    /// Number of the run of the client's program.
    pub incarnation: u64,
}

impl fmt::Display for GroupMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)
    }
}

impl From<MemberId> for GroupMember {
    fn from(member: MemberId) -> Self {
        let MemberId { daemon, name, incarnation } = member;
        Self { name: GroupName(name), daemon: daemon.0, incarnation }
    }
}

/// Message to a group of which the client is a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMessage {
    /// Sender.
    pub from: GroupMember,
    /// Service of the message.
    pub service: Service,
    /// Groups of the message.
    pub groups: Vec<GroupName>,
    /// Payload.
    pub payload: Bytes,
    /// View in which the message is delivered.
    pub view: ViewId,
}

/// Event for a client of groups.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupEvent {
    /// Message to a group.
    Message(GroupMessage),
    /// Membership change of a group.
    Group {
        /// Name of the group.
        group: GroupName,
        /// Members, in the same order at all of them.
        members: Vec<GroupMember>,
        /// Reason of the change.
        reason: Reason,
        /// Client that joined or left; `None` for a change of daemons.
        subject: Option<GroupMember>,
        /// View of the change.
        view: ViewId,
    },
    /// Start of the end of a view: only the daemons `members` know the events up to the next view.
    Transitional {
        /// View that ends.
        closes: ViewId,
        /// Identifiers of the daemons that move to the next view together.
        members: Vec<u64>,
    },
    /// Start of a view.
    View {
        /// Identifier of the view.
        id: ViewId,
        /// Identifiers and names of the daemons.
        members: Vec<(u64, String)>,
        /// Identifiers of the daemons that come from the same view.
        together: Vec<u64>,
        /// View from which the daemons in `together` come; `None` for the first view of a client.
        previous: Option<ViewId>,
    },
    /// Receipt for a message: the message has its place in the common order and is delivered.
    Receipt {
        /// Number of the request.
        request: u64,
        /// Number of members that get the message, or whose daemons fail; a safe one has arrived.
        members: u32,
        /// View of the message.
        view: ViewId,
    },
    /// No group of a message has members. Not repeated until a message has found members.
    NoMembers {
        /// Number of the request.
        request: u64,
        /// Groups of the message.
        groups: Vec<GroupName>,
    },
    /// Loss of events: the client was slow or away. The last lost [`View`](Self::View),
    /// [`Transitional`](Self::Transitional) and [`Group`](Self::Group)s precede this event.
    Cut {
        /// Numbers of the first and the last lost event.
        lost: (u64, u64),
    },
    /// Loss of the connection. The client tries to reconnect until it is closed.
    Disconnected {
        /// Reason of the loss.
        reason: String,
    },
    /// Reconnection: the session continues.
    Resumed,
    /// New session: the daemon lost the old one. Events may be missing; groups are joined again.
    Restarted {
        /// Number of messages that may not have been sent.
        unsure: usize,
    },
    /// Refusal of a request by the daemon.
    Refused {
        /// Number of the request.
        request: u64,
        /// Reason of the refusal.
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
