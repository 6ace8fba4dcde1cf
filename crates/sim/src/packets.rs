//! The packets under way: one entry a packet, however many copies of it are in the network.

use faircast_base::{FlowId, NodeId};
use smallvec::SmallVec;

/// Bytes that a packet holds in place: headers of every protocol fit, so that only packets with
/// real payload need memory of their own, and a hop touches neighbouring cache lines only.
const INLINE_BYTES: usize = 64;

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Along the multicast tree with this index.
    Tree(u32),
    /// To one node, for this agent there, or for the program in that router.
    Node { node: NodeId, agent: Option<u32> },
}

/// A packet under way.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    /// Its bytes; [`Packet::zeros`] zero bytes follow.
    pub(crate) bytes: SmallVec<[u8; INLINE_BYTES]>,
    pub(crate) zeros: u32,
    /// Bytes on the wire.
    pub(crate) wire_len: u32,
    /// Bytes of payload; 0 for control packets.
    pub(crate) payload_len: u32,
    pub(crate) flow: FlowId,
    /// Whom the network says it is from.
    pub(crate) from: NodeId,
    pub(crate) route: Route,
    /// Hops that it may travel in all.
    pub(crate) time_to_live: u8,
    pub(crate) router_alert: bool,
    /// Copies in the network.
    copies: u32,
}

/// All packets under way. Entries are used again, so that a simulation in its steady state
/// allocates nothing but what real payload needs.
#[derive(Default)]
pub(crate) struct Packets {
    entries: Vec<Packet>,
    free: Vec<u32>,
}

impl Packets {
    /// Stores a packet with one copy held by the caller.
    #[inline]
    pub(crate) fn insert(&mut self, packet: NewPacket<'_>) -> u32 {
        let packet = Packet {
            bytes: SmallVec::from_slice(packet.bytes),
            zeros: packet.zeros,
            wire_len: packet.wire_len,
            payload_len: packet.payload_len,
            flow: packet.flow,
            from: packet.from,
            route: packet.route,
            time_to_live: packet.time_to_live,
            router_alert: packet.router_alert,
            copies: 1,
        };
        match self.free.pop() {
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

    /// How many packets are held.
    pub(crate) fn held(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Packet {
        &self.entries[index as usize]
    }

    /// One copy more.
    #[inline]
    pub(crate) fn copy(&mut self, index: u32) {
        self.entries[index as usize].copies += 1;
    }

    /// One copy less; the last one frees the entry.
    #[inline]
    pub(crate) fn release(&mut self, index: u32) {
        let packet = &mut self.entries[index as usize];
        packet.copies -= 1;
        if packet.copies == 0 {
            if packet.bytes.spilled() {
                packet.bytes = SmallVec::new();
            }
            self.free.push(index);
        }
    }
}

/// What a packet is made of.
pub(crate) struct NewPacket<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) zeros: u32,
    pub(crate) wire_len: u32,
    pub(crate) payload_len: u32,
    pub(crate) flow: FlowId,
    pub(crate) from: NodeId,
    pub(crate) route: Route,
    pub(crate) time_to_live: u8,
    pub(crate) router_alert: bool,
}
