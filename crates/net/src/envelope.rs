//! The envelope around every datagram: encryption.

use std::net::SocketAddr;

use faircast_base::Time;

/// What may be wrapped around every datagram: encryption.
///
/// Packets of one length must have one length when sealed, so that they can leave in one system
/// call.
pub trait Envelope: Send {
    /// Whether what it opens is known to be what was sealed: then protocols need not compute checksums.
    /// An envelope that may leave datagrams as they come does not authenticate.
    fn authenticates(&self) -> bool;

    /// How many bytes longer a sealed packet is, the same for all.
    fn overhead(&self) -> usize;

    /// Appends the sealed form of `plain` to `out`, and leaves what is in `out` alone.
    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>);

    /// Opens a datagram that came at `now`, in place; `None` where it is not for us, not intact, or not
    /// fresh. Whoever sealed it is not to be trusted.
    fn open<'a>(&mut self, now: Time, from: SocketAddr, datagram: &'a mut [u8])
    -> Option<&'a [u8]>;

    /// Returns the sealed answer to the last datagram, if that was not for a protocol: a probe.
    fn answer(&mut self) -> Option<Vec<u8>> {
        None
    }
}
