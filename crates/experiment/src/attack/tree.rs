//! Forged TRAM packets in the name of a session's source, of its receivers, or of invented nodes.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use faircast_proto::forgery::{Change, TRAM, Value};
use faircast_proto::tram;

use super::hostile::Sends;

/// Packet kinds, flags and offsets, as in docs/tram.md.
const BEACON: u8 = 1;
const DATA: u8 = 2;
const BIND: u8 = 5;
const REJECT: u8 = 7;
const ACK: u8 = 9;
const SETTINGS: u8 = 13;
const REPAIR: u8 = 1;
const DONE: u8 = 2;
const LEAVES: u8 = 4;
const FLAGS: usize = 4;
const FIRST_FIELD: usize = 24;
const ALLOWED: usize = 32;
const MASK: usize = 60;
const PRUNED: u8 = 4;

/// Packets that an invented member allows beyond its own, and bytes of its mask.
const ALLOWED_AHEAD: u64 = 400;
const MASK_BYTES: usize = 256;

const INVENTED: [u8; 8] = [7; 8];

/// Distance of forged data from the newest packet, in packets.
const AHEAD: i64 = 50;

/// Step between forged packets of the catalogue, whose neighbours are of one kind.
const STRIDE: usize = 7919;

#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    /// Last new data of the source, and last packet; empty before the first.
    data: Vec<u8>,
    any: Vec<u8>,
    /// Address with port, and node identifier, by host.
    nodes: BTreeMap<Ipv4Addr, (SocketAddrV4, [u8; 8])>,
}

impl Tree {
    /// Records a datagram of TRAM. Returns true if it is data of the source.
    pub(super) fn note(&mut self, from: SocketAddrV4, datagram: &[u8]) -> bool {
        let Some(id) = TRAM.sender().and_then(|at| datagram.get(at)?.try_into().ok()) else {
            return false;
        };
        self.nodes.insert(*from.ip(), (from, id));
        self.any = datagram.to_vec();
        let is_data = TRAM.kind(datagram) == DATA && datagram[FLAGS] & REPAIR == 0;
        if is_data {
            self.data = datagram.to_vec();
        }
        is_data
    }

    pub(super) fn has_data_and(&self, hosts: &[Ipv4Addr]) -> bool {
        !self.data.is_empty() && hosts.iter().all(|host| self.endpoint(*host).is_some())
    }

    pub(super) fn endpoint(&self, host: Ipv4Addr) -> Option<SocketAddrV4> {
        self.nodes.get(&host).map(|(at, _)| *at)
    }

    fn forge(&self, kind: u8, host: Option<Ipv4Addr>, change: Change) -> Vec<u8> {
        let like = if self.data.is_empty() { &self.any } else { &self.data };
        let mut all = TRAM.specimens(like, 0).into_iter();
        let mut packet = all.find(|it| TRAM.kind(it) == kind).unwrap_or_default();
        self.sign(host, &mut packet);
        TRAM.apply(change, &mut packet);
        packet
    }

    fn sign(&self, host: Option<Ipv4Addr>, packet: &mut [u8]) {
        let id = host.and_then(|host| self.nodes.get(&host)).map_or(INVENTED, |it| it.1);
        if let Some(place) = TRAM.sender().and_then(|at| packet.get_mut(at)) {
            place.copy_from_slice(&id);
        }
    }

    /// Returns the packet of an attack by single packets, in the name of a host.
    pub(super) fn packet(&self, sends: Sends, host: Ipv4Addr) -> Vec<u8> {
        let (kind, change) = match sends {
            Sends::End => (BEACON, Change::Flags(DONE)),
            Sends::Ahead => (DATA, Change::Number(FIRST_FIELD, Value::Add(AHEAD))),
            Sends::Removal => (REJECT, Change::Byte(FIRST_FIELD, PRUNED)),
            Sends::Goodbye => (ACK, Change::Flags(LEAVES)),
            _ => (SETTINGS, Change::Nothing),
        };
        self.forge(kind, Some(host), change)
    }

    /// Returns an invented member's join request, and its acknowledgement with a full mask.
    pub(super) fn member(&self) -> [Vec<u8>; 2] {
        let bind = self.forge(BIND, None, Change::Nothing);
        let mut ack = self.forge(ACK, None, Change::Nothing);
        ack.resize(MASK, 0);
        let number =
            |at: usize| ack[at..at + 8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let allowed = number(FIRST_FIELD) + ALLOWED_AHEAD;
        ack[ALLOWED..ALLOWED + 8].copy_from_slice(&allowed.to_be_bytes());
        ack.resize(MASK + MASK_BYTES, u8::MAX);
        TRAM.apply(Change::Nothing, &mut ack);
        [bind, ack]
    }

    /// Returns packet `number` of the catalogue, and its host; `None` for an invented node.
    pub(super) fn any(&self, hosts: &[Ipv4Addr], number: usize) -> (Option<Ipv4Addr>, Vec<u8>) {
        let specimens = TRAM.specimens(&self.data, 0);
        let all = specimens
            .iter()
            .flat_map(|it| TRAM.changes(it).into_iter().map(move |change| (it, change)));
        let all: Vec<_> = all.collect();
        let names = hosts.len() + 1;
        let host = hosts.get(number % names).copied();
        let Some((packet, change)) = all.get(number / names * STRIDE % all.len().max(1)) else {
            return (host, Vec::new());
        };
        let mut packet = packet.to_vec();
        self.sign(host, &mut packet);
        TRAM.apply(*change, &mut packet);
        (host, packet)
    }
}

pub(super) fn is_tram(datagram: &[u8]) -> bool {
    tram::peek(datagram).is_some()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
    const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

    fn tree() -> Tree {
        let mut tree = Tree::default();
        for packet in tram::specimens(5, 6, 100) {
            let is_data = TRAM.kind(&packet) == DATA;
            assert_eq!(tree.note(SocketAddrV4::new(SOURCE, 7500), &packet), is_data);
        }
        tree.note(SocketAddrV4::new(RECEIVER, 999), &tram::specimens(5, 9, 100)[2]);
        tree
    }

    #[test]
    fn settings_are_forged_in_the_session_of_a_single_beacon() {
        let beacon = tram::specimens(5, 6, 100)
            .into_iter()
            .find(|it| TRAM.kind(it) == BEACON)
            .expect("there is one of each kind");
        let mut tree = Tree::default();
        tree.note(SocketAddrV4::new(RECEIVER, 7500), &beacon);
        assert_eq!(tree.endpoint(SOURCE), None);
        tree.note(SocketAddrV4::new(SOURCE, 7500), &beacon);
        assert!(tree.endpoint(SOURCE).is_some() && !tree.has_data_and(&[]));
        let settings = tree.packet(Sends::Settings, SOURCE);
        assert_eq!(TRAM.kind(&settings), SETTINGS);
        assert_eq!(settings[8..24], beacon[8..24], "session and sender");
    }

    #[test]
    fn forged_packets_are_what_they_are_called_and_in_the_right_name() {
        let tree = tree();
        assert!(
            tree.has_data_and(&[SOURCE, RECEIVER]) && !tree.has_data_and(&[Ipv4Addr::LOCALHOST])
        );
        assert_eq!(tree.endpoint(RECEIVER).map(|at| at.port()), Some(999));
        let id = |packet: &[u8]| packet[23];
        for (sends, host, kind, (at, value), name) in [
            (Sends::End, SOURCE, BEACON, (FLAGS, DONE), 6),
            (Sends::Removal, SOURCE, REJECT, (FIRST_FIELD, PRUNED), 6),
            (Sends::Goodbye, RECEIVER, ACK, (FLAGS, LEAVES), 9),
            (Sends::Settings, SOURCE, SETTINGS, (FLAGS, 0), 6),
        ] {
            let packet = tree.packet(sends, host);
            assert_eq!((TRAM.kind(&packet), packet[at], id(&packet)), (kind, value, name));
        }
        let [bind, ack] = tree.member();
        assert_eq!((TRAM.kind(&bind), id(&bind), ack.len()), (BIND, 7, MASK + MASK_BYTES));
        assert_ne!(tree.packet(Sends::Ahead, SOURCE), tree.data);
        let kinds: BTreeSet<u8> =
            (0..400).map(|i| TRAM.kind(&tree.any(&[SOURCE, RECEIVER], i).1)).collect();
        assert_eq!(kinds.len(), tram::specimens(5, 6, 100).len(), "{kinds:?}");
    }
}
