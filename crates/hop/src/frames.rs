//! Frames in the bytes of a stream: a length of two bytes, and the content.

use bytes::Bytes;

/// Bytes of a stream that are not yet a frame.
#[derive(Default)]
pub(crate) struct Incomplete {
    /// Bytes that were read and not yet parsed.
    pub(crate) chunk: Bytes,
    /// The beginning of a frame, with its length, that crosses chunks.
    begun: Vec<u8>,
}

/// Bytes of a frame's length.
const LENGTH_BYTES: usize = 2;

impl Incomplete {
    /// Returns the next frame; `None` until more bytes come.
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
