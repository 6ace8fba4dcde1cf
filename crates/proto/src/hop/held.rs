//! Packets that a relay holds while they wait for their turn, each once however many branches wait for it.

use alloc::collections::BTreeMap;

use super::link::HopPacket;
use crate::relay::PacketKey;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Packets {
    held: BTreeMap<PacketKey, HopPacket>,
    next: u64,
}

impl Packets {
    /// The key of the next one.
    pub(super) const fn next_key(&self) -> PacketKey {
        PacketKey(self.next)
    }

    /// Keeps one under that key.
    pub(super) fn hold(&mut self, parcel: HopPacket) {
        self.held.insert(PacketKey(self.next), parcel);
        self.next += 1;
    }

    pub(super) fn get(&self, key: PacketKey) -> Option<&HopPacket> {
        self.held.get(&key)
    }

    pub(super) fn release(&mut self, key: PacketKey) {
        self.held.remove(&key);
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
}
