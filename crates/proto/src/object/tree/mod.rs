//! Objects over TRAM: the ends of a transfer whose receivers repair for each other.
//!
//! Below is a TRAM session, which brings all packets to all in order. Above it the packets are those of one
//! object, and each receiver tells the source of itself as it does over PGM, so that the source can name who has
//! it. What crosses the wire is described in `docs/tram.md`.

mod receiver;
mod source;
mod stream;

use alloc::vec::Vec;

use faircast_base::Bitrate;

use super::MemberLoad;
use super::wire::{MemberMessage, decode_limit, decode_load, encode_limit, encode_load};
use crate::fields::Fields;

pub use receiver::TramObjectReceiver;
pub use source::TramObjectSource;
pub use stream::KIND_BYTES as TRAM_KIND_BYTES;

/// What a receiver tells the source of itself.
struct Word {
    message: MemberMessage,
    load: Option<MemberLoad>,
    limit: Option<Bitrate>,
}

/// The flags before a word: what follows it.
const LOAD: u8 = 1;
const LIMIT: u8 = 2;

impl Word {
    fn encode(&self) -> Vec<u8> {
        let flag = |set: bool, flag| if set { flag } else { 0 };
        let mut out = alloc::vec![
            flag(self.load.is_some(), LOAD) | flag(self.limit.is_some(), LIMIT),
            0,
            0,
            0
        ];
        out.extend(self.load.iter().flat_map(encode_load));
        out.extend(self.limit.into_iter().flat_map(encode_limit));
        self.message.encode(&mut out);
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let [flags, 0, 0, 0] = fields.array()? else { return None };
        let load = match flags & LOAD {
            0 => None,
            _ => Some(decode_load(fields.bytes(LOAD_BYTES)?)?),
        };
        let limit = match flags & LIMIT {
            0 => None,
            _ => Some(decode_limit(fields.bytes(LIMIT_BYTES)?)?),
        };
        let message = MemberMessage::decode(fields.0)?;
        (flags & !(LOAD | LIMIT) == 0).then_some(Self { message, load, limit })
    }
}

const LOAD_BYTES: usize = 24;
const LIMIT_BYTES: usize = 12;
