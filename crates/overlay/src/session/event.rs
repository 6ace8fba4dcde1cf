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
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct GroupMember {
    pub name: GroupName,
    /// Identifier of the client's daemon.
    pub daemon: u64,
    /// Number of the run of the client's program.
    pub incarnation: u64,
}

impl fmt::Display for GroupMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
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
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct GroupMessage {
    pub from: GroupMember,
    pub service: Service,
    pub groups: Vec<GroupName>,
    pub payload: Bytes,
    /// View in which the message is delivered.
    pub view: ViewId,
}

/// Event for a client of groups. Daemons have their identifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub enum GroupEvent {
    /// Message to a group.
    Message(GroupMessage),
    /// Membership change of a group, whose members all members list in the same order. `subject`:
    /// client that joined or left; `None` for a change of daemons.
    Group {
        group: GroupName,
        members: Vec<GroupMember>,
        reason: Reason,
        subject: Option<GroupMember>,
        view: ViewId,
    },
    /// Start of the end of a view: only the daemons `members` know the events up to the next view.
    Transitional { closes: ViewId, members: Vec<u64> },
    /// Start of a view with these daemons and their names. The daemons `together` come from the
    /// view `previous`, which is `None` for the first view of a client.
    View { id: ViewId, members: Vec<(u64, String)>, together: Vec<u64>, previous: Option<ViewId> },
    /// Receipt: the message has its place in the agreed order and is delivered. `members` counts
    /// those that get the message, or whose daemons fail; a safe one has arrived.
    Receipt { request: u64, members: u32, view: ViewId },
    /// No group of a message has members. Not repeated until a message has found members.
    NoMembers { request: u64, groups: Vec<GroupName> },
    /// Loss of the events with these first and last numbers: the client was slow or away. The last
    /// lost [`View`](Self::View), [`Transitional`](Self::Transitional) and [`Group`](Self::Group)s
    /// precede this event.
    Cut { lost: (u64, u64) },
    /// Loss of the connection. The client tries to reconnect until it is closed.
    Disconnected { reason: String },
    /// Reconnection: the session continues.
    Resumed,
    /// New session: the daemon lost the old one, and maybe `unsure` messages. Events may be
    /// missing; groups are joined again.
    Restarted { unsure: usize },
    /// Refusal of a request by the daemon.
    Refused { request: u64, reason: SendError },
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
                Self::NoMembers { request, groups: groups.copies().map(GroupName).collect() }
            }
            ClientEvent::Refused { request, reason } => Self::Refused { request, reason },
            ClientEvent::Cut { lost, .. } => Self::Cut { lost },
        }
    }
}
