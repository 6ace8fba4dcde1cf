//! Frames from a byte stream.

use bytes::{Buf as _, BytesMut};

use super::{Frame, FrameError};

/// Free space for each read of a stream: four TLS records, so that few reads take a large message
/// while an idle connection costs little memory.
const ROOM_BYTES: usize = 64 * 1024;

/// Decoder of frames from a byte stream.
#[derive(Debug)]
pub struct Decoder {
    /// Bytes that have arrived and belong to no frame returned yet.
    bytes: BytesMut,
    /// Maximum length of the next frame in bytes.
    max: usize,
}

impl Decoder {
    /// Creates a decoder of frames of at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { bytes: BytesMut::new(), max }
    }

    /// Changes the limit of frames.
    pub fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    /// Returns the buffer with room for the next bytes.
    pub fn room(&mut self) -> &mut BytesMut {
        self.bytes.reserve(ROOM_BYTES);
        &mut self.bytes
    }

    /// Frees the buffer if it is empty.
    pub fn shrink(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
        }
    }

    /// Returns the next complete frame, if any; fails on bytes that are no frame.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some(len) = self.bytes.first_chunk() else { return Ok(None) };
        let (len, max) = (u32::from_be_bytes(*len) as usize, self.max);
        if !(1..=max).contains(&len) {
            return Err(FrameError::Length { len, max });
        }
        if self.bytes.len() < 4 + len {
            return Ok(None);
        }
        self.bytes.advance(4);
        Frame::decode(&self.bytes.split_to(len).freeze()).map(Some)
    }
}
