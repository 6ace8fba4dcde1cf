//! Encryption of datagrams.

use std::net::SocketAddr;

use faircast_base::Time;

/// Encryption of every datagram. Packets of equal length stay equally long, to be sent together.
pub trait Envelope: Send {
    /// True if an opened datagram is known to be the sealed one, so that protocols need no
    /// checksums. False for an envelope that may pass datagrams unopened.
    fn authenticates(&self) -> bool;

    /// Returns the constant number of bytes that sealing adds to a packet.
    fn overhead(&self) -> usize;

    /// Appends the sealed form of `plain` to `out`.
    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>);

    /// Opens a datagram in place; `from` is untrusted. `None` if damaged, stale or for another key.
    fn open<'a>(&mut self, now: Time, from: SocketAddr, datagram: &'a mut [u8])
    -> Option<&'a [u8]>;

    /// Returns the sealed answer to the last datagram, if that datagram was a probe.
    fn answer(&mut self) -> Option<Vec<u8>> {
        None
    }
}
