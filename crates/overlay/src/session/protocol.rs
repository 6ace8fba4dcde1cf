//! Protocol between a daemon and its clients: frames over a byte stream.
//!
//! `docs/wire/overlay-clients.md` has the tables and test vectors. Integers are in network byte
//! order.

mod codec;
mod decoder;
mod frame;
mod reason_code;

use core::time::Duration;

pub use self::codec::FrameError;
pub use self::decoder::Decoder;
pub use self::frame::{Frame, Welcome};
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

/// Checks the groups of a request; fails on a name or a number of groups that is not allowed.
pub fn check_groups<T: AsRef<[u8]>>(groups: &[T]) -> Result<(), SendError> {
    let fits = |name: &T| (1..=GROUP_BYTES_MAX).contains(&name.as_ref().len());
    let is_allowed = (1..=GROUPS_MAX).contains(&groups.len()) && groups.iter().all(fits);
    is_allowed.then_some(()).ok_or(SendError::Group)
}

#[cfg(test)]
mod tests;
