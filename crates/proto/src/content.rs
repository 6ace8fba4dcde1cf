//! Content of a sender: bytes by position, and the packets that carry them.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faircast_base::Time;

/// Object of a sender: unlimited, zeros, or real bytes. Read by position, for repairs of any part.
pub trait Content: Send {
    /// Length in bytes; `None` if unlimited.
    fn len(&self) -> Option<u64>;

    /// True if the length is 0.
    fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Appends bytes `offset .. offset + len` to `out` and returns 0, or `len` if all are zero.
    fn read(&mut self, offset: u64, len: u32, out: &mut Vec<u8>) -> u32;
}

#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) bytes: Vec<u8>,
    pub(crate) zeros: u32,
}

/// Zero bytes, limited in number or unlimited. They take no memory.
#[derive(Clone, Copy, Debug)]
pub struct Zeros {
    /// Number of bytes; `None` if unlimited.
    pub len: Option<u64>,
}

/// True if all bytes are zero. Compilers turn this form into vector instructions.
pub fn only_zeros(bytes: &[u8]) -> bool {
    let (blocks, rest) = bytes.as_chunks::<64>();
    let any = |bytes: &[u8]| bytes.iter().fold(0, |any, byte| any | byte) != 0;
    !blocks.iter().any(|block| any(block)) && !any(rest)
}

impl Content for Zeros {
    fn len(&self) -> Option<u64> {
        self.len
    }

    fn read(&mut self, _offset: u64, len: u32, _out: &mut Vec<u8>) -> u32 {
        len
    }
}

/// Bytes in memory, shared by all readers.
#[derive(Clone, Debug)]
pub struct InMemory(pub Arc<[u8]>);

impl Content for InMemory {
    fn len(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }

    /// Panics if the range is not within the object: senders read only what they announced.
    fn read(&mut self, offset: u64, len: u32, out: &mut Vec<u8>) -> u32 {
        let start = usize::try_from(offset).expect("an object in memory has offsets that fit");
        out.extend_from_slice(&self.0[start..start + len as usize]);
        0
    }
}

/// Packets of a PGM source, from 0 in send order. Their number may be open, lengths may differ.
pub trait Packets {
    /// Number of packets; `None` if open.
    fn end(&self) -> Option<u64>;

    /// Payload length of the new packet `index`, at most 65535 bytes; `None` if not available yet.
    /// Called before the permit, and again until [`read`](Self::read) takes the packet.
    fn ready(&mut self, now: Time, index: u64) -> Option<u32>;

    /// Payload length of packet `index`, which was sent before, in bytes.
    fn len(&self, index: u64) -> u32;

    /// Appends the payload of a sent or [`ready`](Self::ready) packet, as [`Content::read`] does.
    fn read(&mut self, now: Time, index: u64, out: &mut Vec<u8>) -> u32;

    /// Bytes of data that are complete after `count` packets; `None` if the object is not.
    fn completed(&self, count: u64) -> Option<u64>;
}

impl<P: Packets + ?Sized> Packets for Box<P> {
    passes! {
        boxed:
        fn end(&self) -> Option<u64>;
        fn ready(&mut self, now: Time, index: u64) -> Option<u32>;
        fn len(&self, index: u64) -> u32;
        fn read(&mut self, now: Time, index: u64, out: &mut Vec<u8>) -> u32;
        fn completed(&self, count: u64) -> Option<u64>;
    }
}

/// Content cut into packets of equal length; the last may be shorter.
pub struct ByOffset {
    content: Box<dyn Content>,
    payload: u32,
}

impl ByOffset {
    /// Cuts `content` into packets with `payload` bytes each; `payload` is 1 to 65535.
    pub fn new(content: Box<dyn Content>, payload: u32) -> Self {
        assert!((1..=0xffff).contains(&payload), "a payload has 1 to 65535 bytes");
        Self { content, payload }
    }

    fn extent(&self, index: u64) -> (u64, u32) {
        let offset = index * u64::from(self.payload);
        let left = self.content.len().map_or(u64::MAX, |len| len.saturating_sub(offset));
        (offset, left.min(u64::from(self.payload)) as u32)
    }
}

impl Packets for ByOffset {
    fn end(&self) -> Option<u64> {
        self.content.len().map(|len| len.div_ceil(u64::from(self.payload)))
    }

    fn ready(&mut self, _now: Time, index: u64) -> Option<u32> {
        Some(self.len(index))
    }

    fn len(&self, index: u64) -> u32 {
        self.extent(index).1
    }

    fn read(&mut self, _now: Time, index: u64, out: &mut Vec<u8>) -> u32 {
        let (offset, len) = self.extent(index);
        self.content.read(offset, len, out)
    }

    fn completed(&self, count: u64) -> Option<u64> {
        Some(self.content.len().unwrap_or(u64::MAX).min(count * u64::from(self.payload)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_that_is_no_zero_is_found_wherever_it_is() {
        for len in [0, 1, 63, 64, 65, 200] {
            let mut bytes = alloc::vec![0; len];
            assert!(only_zeros(&bytes), "{len}");
            for place in 0..len {
                bytes[place] = 1;
                assert!(!only_zeros(&bytes), "{place} of {len}");
                bytes[place] = 0;
            }
        }
    }
}
