//! Packets under way: one entry for each packet, shared by all of its copies in the network.

use std::collections::VecDeque;
use std::ops::Deref;

use faircast_base::{FlowId, GroupId, NodeId};
use faircast_proto::Parsed;
use smallvec::SmallVec;

/// Bytes stored without allocation: every protocol's headers fit, so a hop touches few cache lines.
const INLINE_BYTES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Tree(u32),
    /// Over each link of the sender, one hop, to the group members there.
    Neighbours(GroupId),
    /// To one node: to `agent`, or to the router's relay without an agent.
    Node {
        node: NodeId,
        agent: Option<u32>,
    },
}

#[derive(Debug)]
pub(crate) struct Packet {
    /// Header and real payload; [`About::zeros`] zero bytes follow.
    pub(crate) bytes: SmallVec<[u8; INLINE_BYTES]>,
    about: About,
    copies: u32,
    pub(crate) parsed: Parsed,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) zeros: u32,
    pub(crate) wire_len: u32,
    /// Payload in bytes; 0 for control packets.
    pub(crate) payload_len: u32,
    pub(crate) flow: FlowId,
    pub(crate) from: NodeId,
    pub(crate) route: Route,
    pub(crate) time_to_live: u8,
    pub(crate) router_alert: bool,
    pub(crate) tag: u32,
    pub(crate) flipped: bool,
}

impl Deref for Packet {
    type Target = About;
    fn deref(&self) -> &About {
        &self.about
    }
}

impl Packet {
    pub(crate) fn own_len(&self) -> u32 {
        self.bytes.len() as u32 + self.about.zeros
    }
}

/// Store of packets under way. Reuses entries: allocates for real payload and parsed headers only.
#[derive(Default)]
pub(crate) struct Packets {
    entries: Vec<Packet>,
    /// Free entries, first in, first out: queued packets lie in memory in order, for the cache.
    free: VecDeque<u32>,
}

impl Packets {
    #[inline]
    pub(crate) fn insert(&mut self, bytes: &[u8], about: About) -> u32 {
        let packet = Packet {
            bytes: SmallVec::from_slice(bytes),
            about,
            copies: 1,
            parsed: Parsed::default(),
        };
        match self.free.pop_front() {
            Some(index) => {
                self.entries[index as usize] = packet;
                index
            }
            None => {
                self.entries.push(packet);
                (self.entries.len() - 1) as u32
            }
        }
    }

    pub(crate) fn held(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Packet {
        &self.entries[index as usize]
    }

    /// Stores a packet with one bit flipped. Zeros up to a hit bit become bytes, so that every bit
    /// is equally likely to be hit and only a hit packet needs memory for its zeros.
    #[cold]
    pub(crate) fn insert_flipped(&mut self, index: u32, bit: u64) -> u32 {
        let Packet { bytes, about, .. } = self.get(index);
        let (mut bytes, mut about) = (bytes.clone(), *about);
        let byte = (bit / 8) as usize;
        if byte >= bytes.len() {
            about.zeros -= (byte + 1 - bytes.len()) as u32;
            bytes.resize(byte + 1, 0);
        }
        bytes[byte] ^= 0x80 >> (bit % 8);
        about.flipped = true;
        self.insert(&bytes, about)
    }

    pub(crate) fn insert_altered(&mut self, index: u32, bytes: &[u8]) -> u32 {
        let Packet { bytes: before, about, .. } = self.get(index);
        let mut about = *about;
        about.wire_len = (about.wire_len + bytes.len() as u32).saturating_sub(before.len() as u32);
        self.insert(bytes, about)
    }

    pub(crate) fn insert_begun(&mut self, index: u32, beginning: &[u8]) -> u32 {
        let Packet { bytes, about, .. } = self.get(index);
        let (mut bytes, about) = (bytes.clone(), *about);
        let len = beginning.len().min(bytes.len());
        bytes[..len].copy_from_slice(&beginning[..len]);
        self.insert(&bytes, about)
    }

    #[inline]
    pub(crate) fn copy(&mut self, index: u32) {
        self.entries[index as usize].copies += 1;
    }

    #[inline]
    pub(crate) fn release(&mut self, index: u32) {
        let packet = &mut self.entries[index as usize];
        packet.copies -= 1;
        if packet.copies == 0 {
            if packet.bytes.spilled() {
                packet.bytes = SmallVec::new();
            }
            self.free.push_back(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bit_of_a_packet_can_be_flipped_and_its_length_stays() {
        let about = About {
            zeros: 5,
            wire_len: 100,
            payload_len: 5,
            flow: FlowId(0),
            from: NodeId(0),
            route: Route::Tree(0),
            time_to_live: 1,
            router_alert: false,
            tag: 0,
            flipped: false,
        };
        let mut packets = Packets::default();
        let whole = packets.insert(&[0xff, 0x00, 0xff], about);
        for bit in 0..64u64 {
            let flipped = packets.insert_flipped(whole, bit);
            let packet = packets.get(flipped);
            assert!(packet.flipped);
            let mut bytes = packet.bytes.to_vec();
            bytes.resize(bytes.len() + packet.zeros as usize, 0);
            let mut want = [0xff, 0x00, 0xff, 0, 0, 0, 0, 0];
            want[bit as usize / 8] ^= 0x80 >> (bit % 8);
            assert_eq!(bytes, want, "bit {bit}");
            packets.release(flipped);
        }
        assert_eq!(packets.get(whole).bytes[..], [0xff, 0x00, 0xff]);
        assert_eq!(packets.held(), 1);
    }
}
