//! Numbers of the reasons for which a daemon closes, refuses or waits.

use faircast_proto::fields::Fields;

use super::{HANDSHAKE_TIMEOUT, IDLE_TIMEOUT, VERSION};
use crate::cell::{GROUP_BYTES_MAX, GROUPS_MAX};
use crate::client::SendError;
use crate::daemon::{CLIENT_BYTES_MAX, MESSAGE_BYTES_MAX};

/// Reason of an error, a refusal or a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[expect(missing_docs, reason = "the text of a reason describes the variant")]
pub enum ReasonCode {
    #[error("the bytes are no frame of the protocol")]
    Malformed = 1,
    #[error("the daemon speaks version {VERSION} of the protocol")]
    VersionMismatch,
    #[error("the client's name is taken, empty or longer than {CLIENT_BYTES_MAX} bytes")]
    NameUnavailable,
    #[error("the session is over")]
    SessionOver,
    #[error("another connection or a later run of the client took over")]
    Replaced,
    #[error("the client was too slow and has lost events")]
    ClientTooSlow,
    #[error("no frame has come for {} s", IDLE_TIMEOUT.as_secs())]
    IdleTimeout,
    #[error("no hello has come for {} s", HANDSHAKE_TIMEOUT.as_secs())]
    HandshakeTimeout,
    #[error("the daemon stops")]
    Shutdown,
    #[error(
        "a request has 1 to {GROUPS_MAX} groups, with names of 1 to {GROUP_BYTES_MAX} bytes of UTF-8"
    )]
    GroupsNotAllowed,
    #[error("the message is longer than {} MB", MESSAGE_BYTES_MAX >> 20)]
    MessageTooLong,
    #[error("the members of the view change")]
    ViewChanging,
    #[error("not all daemons have the earlier messages yet")]
    EarlierMissing,
    #[error("there are too many clients")]
    TooManyClients,
    #[error("a member of the group is slow, and the group asks senders to wait")]
    MemberSlow,
    #[error("the view in which the message was to be delivered is over")]
    ViewOver,
    #[error("the token is missing or wrong")]
    NotAuthenticated,
    #[error("the message is too expensive now")]
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
