//! Packets that a relay holds while they wait for their turn, each once however many branches wait for it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use faircast_base::NodeId;

use crate::Destination;
use crate::relay::PacketKey;

/// A packet with what its frames say.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) hops: u8,
    pub(super) group: u64,
    pub(super) origin: NodeId,
    pub(super) to: Destination,
    pub(super) body: Vec<u8>,
}

/// All of them, and buffers of those that have gone, which are used again.
#[derive(Debug, Default)]
pub(super) struct Packets {
    held: BTreeMap<PacketKey, Held>,
    next: u64,
    spare: Vec<Vec<u8>>,
}

const SPARE_MAX: usize = 256;

impl Packets {
    /// The key of the next one.
    pub(super) const fn next_key(&self) -> PacketKey {
        PacketKey(self.next)
    }

    /// Keeps one under that key.
    pub(super) fn hold(&mut self, held: Held, bytes: &[u8]) {
        let mut body = self.spare.pop().unwrap_or_default();
        body.clear();
        body.extend_from_slice(bytes);
        self.held.insert(PacketKey(self.next), Held { body, ..held });
        self.next += 1;
    }

    pub(super) fn get(&self, key: PacketKey) -> Option<&Held> {
        self.held.get(&key)
    }

    pub(super) fn release(&mut self, key: PacketKey) {
        if let Some(held) = self.held.remove(&key)
            && self.spare.len() < SPARE_MAX
        {
            self.spare.push(held.body);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
}
