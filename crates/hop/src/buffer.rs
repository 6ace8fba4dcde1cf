//! Packets that a relay buffers, each stored once for all branches that wait for it.

use bytes::Bytes;
use faircast_proto::relay::PacketKey;

use crate::message::ParcelHead;

#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    pub(crate) group: u64,
    pub(crate) head: ParcelHead,
    pub(crate) body: Bytes,
}

/// Buffered packets by slot. A key is the slot and its number of former uses.
#[derive(Debug, Default)]
pub(crate) struct PacketBuffer {
    slots: Vec<(u32, Option<Parcel>)>,
    free: Vec<u32>,
}

impl PacketBuffer {
    pub(crate) fn next_key(&self) -> PacketKey {
        let slot = self.free.last().copied().unwrap_or(self.slots.len() as u32);
        let uses = self.slots.get(slot as usize).map_or(0, |(uses, _)| *uses);
        PacketKey(u64::from(uses) << 32 | u64::from(slot))
    }

    pub(crate) fn insert(&mut self, parcel: Parcel) {
        match self.free.pop() {
            Some(slot) => self.slots[slot as usize].1 = Some(parcel),
            None => self.slots.push((0, Some(parcel))),
        }
    }

    pub(crate) fn get(&self, key: PacketKey) -> Option<&Parcel> {
        let (uses, parcel) = self.slots.get(key.0 as u32 as usize)?;
        parcel.as_ref().filter(|_| u64::from(*uses) == key.0 >> 32)
    }

    pub(crate) fn release(&mut self, key: PacketKey) {
        if self.get(key).is_some() {
            let slot = key.0 as u32;
            let (uses, parcel) = &mut self.slots[slot as usize];
            (*uses, *parcel) = (uses.wrapping_add(1), None);
            self.free.push(slot);
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use faircast_base::{GroupId, NodeId};
    use faircast_proto::Destination;

    use super::*;

    #[test]
    fn a_key_is_of_one_packet_though_its_place_is_taken_again() {
        let mut packets = PacketBuffer::default();
        let parcel = |byte: u8| {
            let to = Destination::Group(GroupId::SESSION);
            let head = ParcelHead { hops: 1, origin: NodeId(1), to };
            Parcel { group: 0, head, body: Bytes::from(vec![byte]) }
        };
        let hold = |packets: &mut PacketBuffer, byte| {
            let key = packets.next_key();
            packets.insert(parcel(byte));
            key
        };
        let [one, two] = [1, 2].map(|byte| hold(&mut packets, byte));
        packets.release(one);
        packets.release(one);
        let three = hold(&mut packets, 3);
        assert_eq!((packets.len(), packets.slots.len()), (2, 2));
        assert!(packets.get(one).is_none());
        assert_eq!([two, three].map(|key| packets.get(key).unwrap().body[0]), [2, 3]);
    }
}
