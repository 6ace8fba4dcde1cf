//! Fuzz target of the PGM decoder; the corpus test runs the same.

use faircast_proto::pgm::wire::Packet;

/// Bytes as a packet: refused, or written again they are the same packet. Returns whether they are one.
pub(crate) fn packet(data: &[u8]) -> bool {
    let Ok(packet) = Packet::decode(data, 0) else { return false };
    let mut again = Vec::new();
    packet.encode(&mut again);
    assert_eq!(Packet::decode(&again, 0).as_ref(), Ok(&packet));
    true
}
