//! The content of a sender: bytes by position, and the packets that they are cut into.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faircast_base::Time;

/// The object that a sender sends: an unlimited stream, so many bytes, or real bytes. A repair may
/// ask for any part of it again, so it is read by position and never consumed.
pub trait Content: Send {
    /// Bytes in the object; `None` where it never ends.
    fn len(&self) -> Option<u64>;

    /// Whether there is nothing to send.
    fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Appends bytes `offset .. offset + len` to `out`, and returns how many zero bytes stand for
    /// the rest: either all of the range is appended and 0 returned, or none of it and `len`.
    fn read(&mut self, offset: u64, len: u32, out: &mut Vec<u8>) -> u32;
}

/// Payload that is kept until its turn has come, or for those who lack it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) bytes: Vec<u8>,
    /// Number of zero bytes that follow.
    pub(crate) zeros: u32,
}

/// Zero bytes, so many or without end. They take no memory.
#[derive(Clone, Copy, Debug)]
pub struct Zeros {
    /// Number of bytes; `None` for no end.
    pub len: Option<u64>,
}

/// Whether all bytes are zero. Written so that compilers make vector instructions of it.
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

/// Bytes in memory, shared between all who read them.
#[derive(Clone, Debug)]
pub struct InMemory(pub Arc<[u8]>);

impl Content for InMemory {
    fn len(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }

    /// Panics where the range is not within the object: senders ask for what they announced.
    fn read(&mut self, offset: u64, len: u32, out: &mut Vec<u8>) -> u32 {
        let start = usize::try_from(offset).expect("an object in memory has offsets that fit");
        out.extend_from_slice(&self.0[start..start + len as usize]);
        0
    }
}

/// What a PGM source sends, as packets: their number may be open, their lengths may differ, and
/// the next one may not be there yet. Packets are counted from 0 in the order in which they leave.
pub trait Packets {
    /// Number of all packets, where that is known.
    fn end(&self) -> Option<u64>;

    /// Bytes of payload of the new packet `index`, at most 65535; `None` where there is none now.
    /// Asked before the permit, and perhaps several times until [`read`](Self::read) takes it.
    fn ready(&mut self, now: Time, index: u64) -> Option<u32>;

    /// Bytes of payload of packet `index`, which was sent before.
    fn len(&self, index: u64) -> u32;

    /// Appends the payload of packet `index` to `out`, as [`Content::read`] does: it was sent
    /// before, or is the new one that is [`ready`](Self::ready) and leaves now.
    fn read(&mut self, now: Time, index: u64, out: &mut Vec<u8>) -> u32;

    /// Bytes that the application has got through when `count` packets were sent, no more will be,
    /// and all repairs have been; `None` where that does not say that it is complete.
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

/// Content cut into packets of one length; the last may be shorter.
pub struct ByOffset {
    content: Box<dyn Content>,
    payload: u32,
}

impl ByOffset {
    /// Packets with `payload` bytes of `content` each; `payload` is 1 to 65535.
    pub fn new(content: Box<dyn Content>, payload: u32) -> Self {
        assert!((1..=0xffff).contains(&payload), "a payload has 1 to 65535 bytes");
        Self { content, payload }
    }

    /// Where packet `index` begins, and its bytes.
    fn extent(&self, index: u64) -> (u64, u32) {
        let offset = index * u64::from(self.payload);
        let left = self.content.len().map_or(u64::MAX, |len| len.saturating_sub(offset));
        // Not above the payload, which is below 2^32.
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
