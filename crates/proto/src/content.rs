//! What a sender sends.

use alloc::sync::Arc;
use alloc::vec::Vec;

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

/// Zero bytes, so many or without end. They take no memory.
#[derive(Clone, Copy, Debug)]
pub struct Zeros {
    /// How many; `None` for no end.
    pub len: Option<u64>,
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
