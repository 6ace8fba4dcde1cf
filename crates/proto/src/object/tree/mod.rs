//! Objects over TRAM: ends of a transfer whose receivers repair for each other.
//!
//! The TRAM session below delivers all packets in order. Receivers report to the source as over
//! PGM. Wire format: `docs/tram.md`.

mod log;
mod receiver;
mod source;
mod stream;
mod words;

use super::Part;
use super::layout::{BLOCK_SYMBOLS, Key, Layout};

pub use receiver::TramObjectReceiver;
pub use source::TramObjectSource;

/// Symbol of an object as one number: the key of its block times 64, plus its number in the block.
type Place = u64;

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
