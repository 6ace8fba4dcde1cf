//! Protocol between a daemon and its clients: frames over a byte stream.
//!
//! `docs/wire/overlay-clients.md` has the tables and test vectors. Integers are in network byte
//! order.

mod frame;
mod reason_code;

use core::time::Duration;

use bytes::{Buf as _, BytesMut};

pub use self::frame::{Frame, FrameError, Welcome};
pub use self::reason_code::ReasonCode;
use crate::cell::{GROUP_BYTES_MAX, GROUPS_MAX};
use crate::client::SendError;
use crate::daemon::MESSAGE_BYTES_MAX;

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

#[cfg(test)]
mod tests;
