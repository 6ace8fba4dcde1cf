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
pub(crate) struct Packets {
    places: Vec<(u32, Option<Parcel>)>,
    free: Vec<u32>,
}

impl Packets {
    pub(crate) fn next_key(&self) -> PacketKey {
        let place = self.free.last().copied().unwrap_or(self.places.len() as u32);
        let times = self.places.get(place as usize).map_or(0, |(times, _)| *times);
        PacketKey(u64::from(times) << 32 | u64::from(place))
    }

    pub(crate) fn hold(&mut self, parcel: Parcel) {
        match self.free.pop() {
            Some(place) => self.places[place as usize].1 = Some(parcel),
            None => self.places.push((0, Some(parcel))),
        }
    }

    pub(crate) fn get(&self, key: PacketKey) -> Option<&Parcel> {
        let (times, held) = self.places.get(key.0 as u32 as usize)?;
        held.as_ref().filter(|_| u64::from(*times) == key.0 >> 32)
    }

    pub(crate) fn release(&mut self, key: PacketKey) {
        if self.get(key).is_some() {
            let place = key.0 as u32;
            let (times, held) = &mut self.places[place as usize];
            (*times, *held) = (times.wrapping_add(1), None);
            self.free.push(place);
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use faircast_base::{GroupId, NodeId};
    use faircast_proto::Destination;

    use super::*;

    #[test]
    fn a_key_is_of_one_packet_though_its_place_is_taken_again() {
        let mut packets = Packets::default();
        let parcel = |byte: u8| {
            let to = Destination::Group(GroupId::SESSION);
            let head = ParcelHead { hops: 1, origin: NodeId(1), to };
            Parcel { group: 0, head, body: Bytes::from(vec![byte]) }
        };
        let hold = |packets: &mut Packets, byte| {
            let key = packets.next_key();
            packets.hold(parcel(byte));
            key
        };
        let [one, two] = [1, 2].map(|byte| hold(&mut packets, byte));
        packets.release(one);
        packets.release(one);
        let three = hold(&mut packets, 3);
        assert_eq!((packets.len(), packets.places.len()), (2, 2));
        assert!(packets.get(one).is_none());
        assert_eq!([two, three].map(|key| packets.get(key).unwrap().body[0]), [2, 3]);
    }
}
