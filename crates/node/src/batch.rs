//! Frames on their way to a socket, many in one system call.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf as _, Bytes};

use crate::server::ClientSocket;
use faircast_overlay::protocol::Frame;

/// Longest payload in bytes that is copied: a copy is cheaper than another slice.
const COPIED_BYTES_MAX: usize = 1024;
const HEADS_BYTES: usize = 32 << 10;
const SLICES_MAX: usize = 128;

/// Bytes that wait for a socket. Long payloads are shared, not copied.
#[derive(Debug, Default)]
pub struct Batch {
    heads: Vec<u8>,
    chunks: VecDeque<Bytes>,
}

impl Batch {
    /// Appends a frame.
    pub fn push(&mut self, frame: &Frame) {
        if self.heads.capacity() == 0 {
            self.heads.reserve(HEADS_BYTES);
        }
        for part in frame.put(&mut self.heads) {
            if part.len() <= COPIED_BYTES_MAX {
                self.heads.extend_from_slice(part);
            } else {
                self.seal();
                self.chunks.push_back(part.clone());
            }
        }
    }

    fn seal(&mut self) {
        if !self.heads.is_empty() {
            self.chunks.push_back(std::mem::take(&mut self.heads).into());
        }
    }

    /// True if all bytes are written.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty() && self.chunks.is_empty()
    }

    /// Writes what the socket accepts; true if all is written. Fails on a broken connection.
    pub fn try_write(&mut self, socket: &ClientSocket) -> io::Result<bool> {
        self.seal();
        while !self.chunks.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = self.chunks.len().min(SLICES_MAX);
            for (slice, chunk) in slices.iter_mut().zip(&self.chunks) {
                *slice = IoSlice::new(chunk);
            }
            let Some(mut written) = socket.try_write(&slices[..count])? else { return Ok(false) };
            while let Some(chunk) = self.chunks.front_mut().filter(|_| written > 0) {
                let part = written.min(chunk.len());
                chunk.advance(part);
                written -= part;
                if chunk.is_empty() {
                    self.chunks.pop_front();
                }
            }
        }
        socket.try_flush()
    }

    /// Writes all bytes; fails on a broken connection.
    pub async fn write(&mut self, socket: &ClientSocket) -> io::Result<()> {
        while !self.try_write(socket)? {
            socket.writable().await?;
        }
        Ok(())
    }
}
