//! The authentication of frames: a tag behind each, under a key that relays and hosts share, and counters against those that
//! are repeated.

use alloc::vec::Vec;

use faircast_base::{BadInput, NodeId};

use super::frame::Frame;

/// Bytes behind a frame where there is a key.
pub const TAG_BYTES: usize = 16;
/// How far a frame may come behind later ones of its sender.
const WINDOW: u64 = 1024;
const WORDS: usize = WINDOW as usize / 64;

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
    /// That of a node whose frames have greater counters than `counter`: where it may have run before, the time since some
    /// day, in nanoseconds.
    pub const fn new(node: NodeId, key: Option<[u8; 32]>, counter: u64) -> Self {
        Self { node, key, counter }
    }

    /// Whose it is.
    pub const fn node(&self) -> NodeId {
        self.node
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

/// Which counters of a neighbour have been seen.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// One more than the greatest.
    end: u64,
    seen: [u64; WORDS],
}

impl Window {
    pub(super) const fn new() -> Self {
        Self { end: 0, seen: [0; WORDS] }
    }

    /// Notes a counter. Returns whether it is new.
    pub(super) fn take(&mut self, counter: u64) -> bool {
        let place = |counter: u64| ((counter % WINDOW / 64) as usize, 1 << (counter % 64));
        if counter == u64::MAX || counter + WINDOW < self.end {
            return false;
        }
        if counter >= self.end {
            let new = (counter - self.end).min(WINDOW - 1);
            for between in counter - new..=counter {
                let (word, bit) = place(between);
                self.seen[word] &= !bit;
            }
            self.end = counter + 1;
        }
        let (word, bit) = place(counter);
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_window_takes_each_counter_once(steps in proptest::collection::vec(0u64..3000, 1..400)) {
            let (mut window, mut taken) = (Window::new(), BTreeSet::new());
            let mut greatest = 0;
            for step in steps {
                let counter = (greatest + step).saturating_sub(1500);
                let was = taken.contains(&counter);
                let takes = window.take(counter);
                prop_assert!(!(takes && was), "{counter} twice");
                if !was && counter + WINDOW > greatest {
                    prop_assert!(takes, "{counter} of {greatest} is new");
                }
                if takes {
                    taken.insert(counter);
                }
                greatest = greatest.max(if takes { counter } else { greatest });
            }
        }
    }
}
