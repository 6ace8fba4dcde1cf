//! Any bytes into the PGM decoder: no panic, and what is a packet survives being written again.
//! `tests/fuzz_corpus.rs` of faircast-proto replays this target's corpus on stable Rust.

#![no_main]

use faircast_proto::wire::pgm::Packet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(packet) = Packet::decode(data, 0) else { return };
    let mut again = Vec::new();
    packet.encode(&mut again);
    assert_eq!(Packet::decode(&again, 0), Ok(packet));
});
