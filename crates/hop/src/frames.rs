//! Frames in a byte stream: a two-byte length, and the content.

use bytes::Bytes;

#[derive(Default)]
pub(crate) struct Incomplete {
    pub(crate) chunk: Bytes,
    /// First part of a frame, with its length, that spans several chunks.
    begun: Vec<u8>,
}

const LENGTH_BYTES: usize = 2;

impl Incomplete {
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        if self.begun.is_empty()
            && let Some(length) = self.chunk.first_chunk::<LENGTH_BYTES>()
        {
            let end = LENGTH_BYTES + usize::from(u16::from_be_bytes(*length));
            if self.chunk.len() >= end {
                return Some(self.chunk.split_to(end).slice(LENGTH_BYTES..));
            }
        }
        while !self.chunk.is_empty() {
            let end = match self.begun.first_chunk::<LENGTH_BYTES>() {
                Some(length) => LENGTH_BYTES + usize::from(u16::from_be_bytes(*length)),
                None => LENGTH_BYTES,
            };
            let more = (end - self.begun.len()).min(self.chunk.len());
            self.begun.extend_from_slice(&self.chunk.split_to(more));
            if self.begun.len() == end && end > LENGTH_BYTES {
                return Some(Bytes::from(std::mem::take(&mut self.begun)).slice(LENGTH_BYTES..));
            }
        }
        None
    }
}
