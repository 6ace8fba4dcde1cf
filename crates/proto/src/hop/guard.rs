//! The authentication of frames: a tag behind each, under a key that relays and hosts share, and counters against those that
//! are repeated.

use alloc::vec::Vec;

use faircast_base::{BadInput, NodeId};

use super::frame::Frame;

/// Bytes behind a frame where there is a key.
pub const TAG_BYTES: usize = 16;

/// Writes frames of one node, and reads those of others.
#[derive(Clone)]
pub struct Guard {
    node: NodeId,
    key: Option<[u8; 32]>,
    counter: u64,
}

impl core::fmt::Debug for Guard {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Guard").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Guard {
    /// That of a node, which is another one each time that its program is started: its frames are counted from 1.
    pub const fn new(node: NodeId, key: Option<[u8; 32]>) -> Self {
        Self { node, key, counter: 0 }
    }

    /// Node that signs with this guard.
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Counter of the frame that was written last; 0 before the first.
    pub const fn counter(&self) -> u64 {
        self.counter
    }

    /// Whether frames are authenticated.
    pub const fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// Bytes of each frame beside what it carries.
    pub const fn overhead(&self) -> usize {
        super::FRAME_BYTES + if self.has_key() { TAG_BYTES } else { 0 }
    }

    /// Writes a frame of this node behind what is in `out`, with what `body` appends as its body.
    pub fn write(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        self.counter += 1;
        let frame = Frame { sender: self.node, counter: self.counter, ..*frame };
        frame.encode(out);
        body(out);
        if let Some(key) = &self.key {
            let tag = blake3::keyed_hash(key, &out[start..]);
            out.extend_from_slice(&tag.as_bytes()[..TAG_BYTES]);
        }
    }

    /// Reads a frame of somebody else.
    ///
    /// # Errors
    /// It is none, it is this node's own, or its tag is not that of the key.
    pub fn read<'a>(&self, bytes: &'a [u8]) -> Result<Frame<'a>, BadInput> {
        let bytes = match &self.key {
            None => bytes,
            Some(key) => {
                let split = bytes.len().checked_sub(TAG_BYTES).ok_or(BadInput::Truncated)?;
                let (frame, tag) = bytes.split_at(split);
                // In constant time.
                let right = blake3::keyed_hash(key, frame).as_bytes()[..TAG_BYTES]
                    .iter()
                    .zip(tag)
                    .fold(0, |differs, (a, b)| differs | (a ^ b));
                if core::hint::black_box(right) != 0 {
                    return Err(BadInput::Checksum);
                }
                frame
            }
        };
        let frame = Frame::decode(bytes)?;
        if frame.sender == self.node { Err(BadInput::Foreign) } else { Ok(frame) }
    }
}
