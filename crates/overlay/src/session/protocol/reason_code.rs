//! Numbers of the reasons for which a daemon closes, refuses or waits.

use core::fmt;

use faircast_proto::fields::Fields;

use super::{HANDSHAKE_TIMEOUT, IDLE_TIMEOUT, VERSION};
use crate::cell::{GROUP_BYTES_MAX, GROUPS_MAX};
use crate::client::SendError;
use crate::daemon::{CLIENT_BYTES_MAX, MESSAGE_BYTES_MAX};

/// Reason of an error, a refusal or a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReasonCode {
    /// Bytes are no frame, or a frame is not allowed at this point.
    Malformed = 1,
    /// The protocol versions differ.
    VersionMismatch,
    /// The client's name is empty, too long or taken.
    NameUnavailable,
    /// The session has ended and cannot be resumed.
    SessionOver,
    /// Another connection continues the session, or a later run of the program has begun.
    Replaced,
    /// The client was too slow and has lost events.
    ClientTooSlow,
    /// No frame arrived for 30 s.
    IdleTimeout,
    /// No hello arrived for 5 s.
    HandshakeTimeout,
    /// The daemon stops.
    Shutdown,
    /// A group's name is empty or longer than 64 bytes, or the number of groups is 0 or above 100.
    GroupsNotAllowed,
    /// The message is longer than 16 MB.
    MessageTooLong,
    /// The members of the view change.
    ViewChanging,
    /// Not all daemons have the earlier messages of this daemon's clients.
    EarlierMissing,
    /// The daemon has too many clients.
    TooManyClients,
    /// A member of a group is slow, and the group asks senders to wait.
    MemberSlow,
    /// The view to which the message was restricted has ended.
    ViewOver,
    /// The client has no certificate, and its token is missing or wrong.
    NotAuthenticated,
    /// The message is too expensive at present.
    TooExpensive,
}

impl ReasonCode {
    /// All codes, in the order of their numbers from 1.
    pub const ALL: [Self; 18] = [
        Self::Malformed,
        Self::VersionMismatch,
        Self::NameUnavailable,
        Self::SessionOver,
        Self::Replaced,
        Self::ClientTooSlow,
        Self::IdleTimeout,
        Self::HandshakeTimeout,
        Self::Shutdown,
        Self::GroupsNotAllowed,
        Self::MessageTooLong,
        Self::ViewChanging,
        Self::EarlierMissing,
        Self::TooManyClients,
        Self::MemberSlow,
        Self::ViewOver,
        Self::NotAuthenticated,
        Self::TooExpensive,
    ];

    pub(super) fn take(fields: &mut Fields<'_>) -> Option<Self> {
        let number: u8 = fields.read()?;
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

impl From<SendError> for ReasonCode {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Name => Self::SessionOver,
            SendError::Group => Self::GroupsNotAllowed,
            SendError::Length => Self::MessageTooLong,
            SendError::Changing => Self::ViewChanging,
            SendError::Retention => Self::EarlierMissing,
            SendError::Held => Self::MemberSlow,
            SendError::Price => Self::TooExpensive,
            SendError::View => Self::ViewOver,
        }
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the bytes are no frame of the protocol",
            Self::VersionMismatch => {
                return write!(f, "the daemon speaks version {VERSION} of the protocol");
            }
            Self::NameUnavailable => {
                let max = CLIENT_BYTES_MAX;
                return write!(f, "the client's name is taken, empty or longer than {max} bytes");
            }
            Self::SessionOver => "the session is over",
            Self::Replaced => "another connection or a later run of the client took over",
            Self::ClientTooSlow => "the client was too slow and has lost events",
            Self::IdleTimeout => {
                return write!(f, "no frame has come for {} s", IDLE_TIMEOUT.as_secs());
            }
            Self::HandshakeTimeout => {
                return write!(f, "no hello has come for {} s", HANDSHAKE_TIMEOUT.as_secs());
            }
            Self::Shutdown => "the daemon stops",
            Self::GroupsNotAllowed => {
                return write!(
                    f,
                    "a request has 1 to {GROUPS_MAX} groups, with names of 1 to {GROUP_BYTES_MAX} \
                     bytes of UTF-8"
                );
            }
            Self::MessageTooLong => {
                return write!(f, "the message is longer than {} MB", MESSAGE_BYTES_MAX >> 20);
            }
            Self::ViewChanging => "the members of the view change",
            Self::EarlierMissing => "not all daemons have the earlier messages yet",
            Self::TooManyClients => "there are too many clients",
            Self::MemberSlow => "a member of the group is slow, and the group asks senders to wait",
            Self::ViewOver => "the view in which the message was to be delivered is over",
            Self::NotAuthenticated => "the token is missing or wrong",
            Self::TooExpensive => "the message is too expensive now",
        })
    }
}
