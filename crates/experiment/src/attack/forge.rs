//! Forged packets in the name of a session's source or of invented receivers.

use std::net::{Ipv4Addr, SocketAddrV4};

use faircast_proto::pgm::wire::{
    Body, Encoder, Header, Nak, Nla, OptionType, Packet, Spm, Tsi, checksum,
};

use super::tree::{Tree, is_tram};

#[derive(Clone, Debug, Default)]
pub(super) struct Captured {
    pub(super) source: Option<SocketAddrV4>,
    /// Last packet of each kind; empty before the first.
    pub(super) spm: Vec<u8>,
    pub(super) data: Vec<u8>,
    pub(super) sealed: Vec<u8>,
    pub(super) tree: Tree,
}

impl Captured {
    pub(super) fn note(&mut self, from: SocketAddrV4, datagram: &[u8]) {
        if is_tram(datagram) {
            if self.tree.note(from, datagram) {
                self.source = Some(from);
            }
            return;
        }
        let kept = match Packet::decode(datagram, 0).map(|packet| packet.body) {
            Ok(Body::Spm(_)) => &mut self.spm,
            Ok(Body::Odata(_)) => &mut self.data,
            _ if datagram.starts_with(SEALED) => &mut self.sealed,
            _ => return,
        };
        *kept = datagram.to_vec();
        self.source = Some(from);
    }

    pub(super) fn spm_with(
        &self,
        change: impl FnOnce(&mut Spm),
        option: Option<u8>,
        scheme: Option<&[u8]>,
    ) -> Vec<u8> {
        let mut bytes = Vec::new();
        let Ok(packet) = Packet::decode(&self.spm, 0) else { return bytes };
        let Body::Spm(mut spm) = packet.body else { return bytes };
        spm.sequence += 1;
        change(&mut spm);
        let mut encoder = Encoder::new(&mut bytes, &packet.header, &Body::Spm(spm));
        for known in packet.options.iter() {
            let value = scheme.filter(|_| known.kind == OptionType::SCHEME);
            encoder.raw_option(known.kind, known.specific, value.unwrap_or(known.value));
        }
        if let Some(option) = option {
            encoder.option(option, &[]);
        }
        encoder.finish();
        bytes
    }

    /// Returns the latest data packet or SPM, damaged, with a correct checksum.
    pub(super) fn damaged(&self, number: u32) -> Vec<u8> {
        let real = if number.is_multiple_of(2) { &self.data } else { &self.spm };
        let places = (real.len().min(64) / 2).saturating_sub(2).max(1);
        with_word(real, 2 * (number as usize * 7919 % places), number.wrapping_mul(2_654_435_761))
    }

    pub(super) fn data_ahead(&self, packets: u32) -> Vec<u8> {
        with_word(&self.data, 16, packets)
    }

    pub(super) fn other_session(&self, number: u32) -> Vec<u8> {
        with_word(&self.spm, 8, number + 1)
    }

    pub(super) fn sealed_damaged(&self) -> Vec<u8> {
        let mut bytes = self.sealed.clone();
        if let Some(byte) = bytes.get_mut(5) {
            *byte ^= 0x10;
        }
        bytes
    }

    /// Returns a message of an invented member to the source, with the fields of docs/transfer.md.
    pub(super) fn member(&self, member: u32, claim: Claim, number: u32) -> Vec<u8> {
        let name = format!("invented-{member}");
        // Version, claim with the bit that asks for an answer, no loss.
        let mut value = vec![1, claim as u8 | 0x80, 0, 0];
        value.extend_from_slice(&number.to_be_bytes());
        value.extend_from_slice(&(u64::from(member) | 0xfeed << 32).to_be_bytes());
        value.extend_from_slice(&0u64.to_be_bytes());
        value.extend_from_slice(&(0xf900_0000 | member).to_be_bytes());
        value.push(name.len() as u8);
        value.extend_from_slice(name.as_bytes());
        value.push(0);
        self.upstream(&Body::Spmr, OptionType::MEMBER, &value)
    }

    pub(super) fn want(&self, group: Ipv4Addr, block: u32) -> Vec<u8> {
        let Ok(Body::Spm(spm)) = Packet::decode(&self.spm, 0).map(|packet| packet.body) else {
            return Vec::new();
        };
        let nak = Nak { first: spm.lead, source: spm.path, group: Nla::V4(group.octets()) };
        let mut value = vec![CONTENT];
        value.extend_from_slice(&block.to_be_bytes());
        value.extend_from_slice(&u64::MAX.to_be_bytes());
        self.upstream(&Body::Nnak(nak), OptionType::WANT, &value)
    }

    fn upstream(&self, body: &Body, option: u8, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let Ok(packet) = Packet::decode(&self.spm, 0) else { return bytes };
        let (tsi, port): (Tsi, u16) = (packet.tsi(), packet.header.data_port(packet.kind()));
        let mut encoder = Encoder::new(&mut bytes, &Header::upstream(tsi, port), body);
        encoder.raw_option(option, 0, value);
        encoder.finish();
        bytes
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Claim {
    Joined = 0,
    Receiving = 1,
}

const SEALED: &[u8] = b"fcs";

const CONTENT: u8 = 1;

/// Returns the packet with the 32-bit number at `place` increased by `more`, and its checksum.
fn with_word(packet: &[u8], place: usize, more: u32) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    if let Some(word) = bytes.get_mut(place..).and_then(|rest| rest.first_chunk_mut()) {
        *word = u32::from_be_bytes(*word).wrapping_add(more).to_be_bytes();
    }
    if let Some(place) = bytes.get_mut(6..8) {
        place.fill(0);
        let sum = checksum(&bytes);
        bytes[6..8].copy_from_slice(&sum.to_be_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use faircast_base::Seq;
    use faircast_proto::pgm::wire::{Data, Gsi};

    const SOURCE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 1), 7500);

    fn captured() -> Captured {
        let header = Header::downstream(Tsi { gsi: Gsi([7; 6]), port: 3 }, 7500);
        let numbers = [5, 100, 200].map(Seq::new);
        let [sequence, trail, lead] = numbers;
        let path = Nla::V4(SOURCE.ip().octets());
        let mut captured = Captured::default();
        let mut bytes = Vec::new();
        let mut encoder =
            Encoder::new(&mut bytes, &header, &Body::Spm(Spm { sequence, trail, lead, path }));
        encoder.raw_option(OptionType::SCHEME, 0, b"\x01\x05pgmcc");
        encoder.finish();
        captured.note(SOURCE, &bytes);
        let mut bytes = Vec::new();
        Encoder::new(&mut bytes, &header, &Body::Odata(Data { sequence: lead, trail })).finish();
        captured.note(SOURCE, &bytes);
        captured.note(SOURCE, b"fcs\x01\xc0\x01\x02\x03");
        captured
    }

    fn spm(bytes: &[u8]) -> Spm {
        match Packet::decode(bytes, 0).unwrap().body {
            Body::Spm(spm) => spm,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn forged_packets_are_what_they_are_called_and_pass_their_checksums() {
        let captured = captured();
        assert_eq!(captured.source, Some(SOURCE));
        let lead = spm(&captured.spm_with(|spm| spm.lead += 1000, None, None));
        assert_eq!((lead.sequence, lead.lead), (Seq::new(6), Seq::new(1200)));
        let bytes = captured.spm_with(|_| {}, Some(OptionType::FIN), Some(b"\x01\x07another"));
        let packet = Packet::decode(&bytes, 0).unwrap();
        assert!(packet.options.has(OptionType::FIN));
        assert_eq!(packet.options.find(OptionType::SCHEME).unwrap().value, b"\x01\x07another");
        let bytes = captured.data_ahead(1000);
        let data = Packet::decode(&bytes, 0).unwrap();
        assert!(matches!(data.body, Body::Odata(data) if data.sequence == Seq::new(1200)));
        let bytes = captured.other_session(9);
        assert_ne!(Packet::decode(&bytes, 0).unwrap().tsi().gsi, Gsi([7; 6]));
        assert_eq!(captured.sealed_damaged().len(), 8);
        for number in 0..1000 {
            assert!(!captured.damaged(number).is_empty());
        }
    }

    #[test]
    fn invented_members_speak_to_the_session() {
        let captured = captured();
        for bytes in [
            captured.member(3, Claim::Joined, 1),
            captured.member(3, Claim::Receiving, 2),
            captured.want(Ipv4Addr::new(239, 1, 2, 3), 4),
        ] {
            let packet = Packet::decode(&bytes, 0).unwrap();
            assert!(packet.kind().is_upstream());
            assert_eq!(packet.tsi(), Tsi { gsi: Gsi([7; 6]), port: 3 });
            let nak = Nak {
                first: Seq::new(200),
                source: Nla::V4(SOURCE.ip().octets()),
                group: Nla::V4([239, 1, 2, 3]),
            };
            assert!(matches!(packet.body, Body::Spmr) || packet.body == Body::Nnak(nak));
        }
    }
}
