//! Protocol between a daemon and its clients: frames over a byte stream.
//!
//! `docs/wire/overlay-clients.md` has the tables and test vectors. Integers are in network byte
//! order.

mod frame;

use core::time::Duration;

use bytes::{Buf as _, BytesMut};
use faircast_proto::fields::Fields;

pub use self::frame::{Frame, FrameError, Welcome};
use crate::cell::{GROUP_BYTES_MAX, GROUPS_MAX};
use crate::client::SendError;
use crate::daemon::{CLIENT_BYTES_MAX, MESSAGE_BYTES_MAX};

/// Version of the protocol.
pub const VERSION: u8 = 1;
/// Maximum frame from a client in bytes, without the length field: a message with 100 groups.
pub const REQUEST_BYTES_MAX: usize = MESSAGE_BYTES_MAX + 64 * 1024;
/// Maximum length of a client's first frame in bytes.
pub const HELLO_BYTES_MAX: usize = 256;
/// Maximum length of a token in bytes.
pub const TOKEN_BYTES_MAX: usize = 128;
/// Maximum length of a frame from a daemon in bytes, without the length field. Half of it holds the
/// longest message with its groups; the other half leaves room for group events, which list all
/// members of a group.
pub const EVENT_BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;
/// Time without a frame of the client after which the daemon closes the connection.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time for TLS and the hello together.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Free space for each read of a stream: four TLS records, so that few reads take a large message
/// while an idle connection costs little memory.
const ROOM_BYTES: usize = 64 * 1024;

/// First two bytes of a TLS alert (RFC 8446 s5.1).
const TLS_ALERT: usize = 0x1503;

/// Decoder of frames from a byte stream.
#[derive(Debug)]
pub struct Decoder {
    bytes: BytesMut,
    /// Maximum length of the next frame in bytes.
    max: usize,
}

impl Decoder {
    /// Creates a decoder of frames of at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { bytes: BytesMut::new(), max }
    }

    /// Changes the limit of frames.
    pub fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    /// Returns the buffer with room for the next bytes.
    pub fn room(&mut self) -> &mut BytesMut {
        self.bytes.reserve(ROOM_BYTES);
        &mut self.bytes
    }

    /// Frees the buffer if it is empty.
    pub fn shrink(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
        }
    }

    /// Returns the next complete frame, if any; fails on bytes that are no frame.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some(len) = self.bytes.first_chunk() else { return Ok(None) };
        let (len, max) = (u32::from_be_bytes(*len) as usize, self.max);
        if !(1..=max).contains(&len) {
            let is_tls = len >> 16 == TLS_ALERT;
            return Err(if is_tls { FrameError::Tls } else { FrameError::Length { len, max } });
        }
        if self.bytes.len() < 4 + len {
            return Ok(None);
        }
        self.bytes.advance(4);
        Frame::decode(&self.bytes.split_to(len).freeze()).map(Some)
    }
}

/// Checks the groups of a request; fails on a name or a number of groups that is not allowed.
pub fn check_groups<T: AsRef<[u8]>>(groups: &[T]) -> Result<(), SendError> {
    let fits = |name: &T| (1..=GROUP_BYTES_MAX).contains(&name.as_ref().len());
    let is_allowed = (1..=GROUPS_MAX).contains(&groups.len()) && groups.iter().all(fits);
    is_allowed.then_some(()).ok_or(SendError::Group)
}

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

    fn take(fields: &mut Fields<'_>) -> Option<Self> {
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

#[cfg(test)]
mod tests;
