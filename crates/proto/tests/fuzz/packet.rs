//! Fuzz targets of the decoders of PGM and TRAM; the corpus test runs the same.

use faircast_proto::pgm::wire::Packet;
use faircast_proto::tram;

use super::endpoints::dress_for_tree;

/// Decodes bytes; an accepted packet survives encoding. Returns true if the bytes are a packet.
pub(crate) fn packet(data: &[u8]) -> bool {
    let Ok(packet) = Packet::decode(data, 0) else { return false };
    let mut again = Vec::new();
    packet.encode(&mut again);
    assert_eq!(Packet::decode(&again, 0).as_ref(), Ok(&packet));
    true
}

/// Decodes bytes as a packet of TRAM, unchanged and dressed. Returns true if unchanged is valid.
pub(crate) fn tram_packet(data: &[u8]) -> bool {
    let dressed = dress_for_tree(data.to_vec());
    let [is_one, _] = [data, &dressed].map(|bytes| {
        let Some(again) = tram::written_again(bytes) else { return false };
        assert_eq!(tram::written_again(&again).as_ref(), Some(&again));
        true
    });
    is_one
}
