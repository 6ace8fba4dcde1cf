//! Fuzz targets of decoders: packets of PGM and of TRAM; the corpus test runs the same.

use faircast_proto::pgm::wire::Packet;
use faircast_proto::tram;

use super::endpoints::dress_for_tree;

/// Bytes as a packet: refused, or written again they are the same packet. Returns whether they are one.
pub(crate) fn packet(data: &[u8]) -> bool {
    let Ok(packet) = Packet::decode(data, 0) else { return false };
    let mut again = Vec::new();
    packet.encode(&mut again);
    assert_eq!(Packet::decode(&again, 0).as_ref(), Ok(&packet));
    true
}

/// Reads bytes as a packet of TRAM, as they are and with a correct header and checksum. Every accepted packet is the
/// same once it is written again. Returns true if the bytes are a packet as they are.
pub(crate) fn tram_packet(data: &[u8]) -> bool {
    let dressed = dress_for_tree(data.to_vec());
    let [is_one, _] = [data, &dressed].map(|bytes| {
        let Some(again) = tram::written_again(bytes) else { return false };
        assert_eq!(tram::written_again(&again).as_ref(), Some(&again));
        true
    });
    is_one
}
