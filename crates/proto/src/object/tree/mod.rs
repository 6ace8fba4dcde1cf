//! Objects over TRAM: the ends of a transfer whose receivers repair for each other.
//!
//! Below is a TRAM session, which brings all packets to all in order. Above it the packets are those of one
//! object that somebody lacks, and each receiver tells the source of itself as it does over PGM, so that the source
//! can name who has it. What crosses the wire is described in `docs/tram.md`.

mod log;
mod receiver;
mod source;
mod stream;
mod words;

use super::Part;
use super::layout::{BLOCK_SYMBOLS, Key, Layout};

pub use receiver::TramObjectReceiver;
pub use source::TramObjectSource;

/// A symbol of an object as one number: that of its block, and behind it that within the block.
type Place = u64;

/// The first symbol of a block.
const fn place_of(key: Key) -> Place {
    key * BLOCK_SYMBOLS as u64
}

const fn symbol_at(place: Place) -> (Key, u32) {
    (place / BLOCK_SYMBOLS as u64, (place % BLOCK_SYMBOLS as u64) as u32)
}

fn places(layout: &Layout, part: Part) -> core::ops::Range<Place> {
    let first = place_of(layout.keys(part).start);
    first..first + layout.len(part).div_ceil(layout.symbol_bytes().into())
}
