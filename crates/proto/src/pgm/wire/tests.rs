//! Tests of the codec against captures of other implementations, against itself and against noise.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use faircast_base::{BadInput, NodeId, Seq};
use proptest::prelude::*;

use super::*;
use crate::congestion::common::bench::encoded;
use crate::congestion::{AckVector, Wire};

/// Captured from OpenPGM and ZeroMQ.
const SPM_EMPTY: &str = "ad711d4c000077f065b48019cd3400000000000000000000ffffffff000100000a4d0001";
const ACK_LIVE: &str = "1d4cad710d0191ae65b48019cd34000000000000ffffffff0004001493107800ff79ce9b\
                        000100000a4d0003";
const NAK_1: &str = "1d4cad710800802c65b48019cd34000000000001000100000a4d000100010000efc00001";
const NCF_1: &str = "ad711d4c0a007e2c65b48019cd34000000000001000100000a4d000100010000efc00001";
const ODATA_ZMQ: &str = "ef2215b304002041b7c6d1bc038a000900000000000000000000060068656c6c6f";
/// Composed after OpenPGM's formats; an independent decoder verified the checksums.
const NAK_LIST: &str = "1d4c13880803414e01020304050600000000001a000100000a4d000100010000efc00001\
                        00040018821400000000001b0000001c0000001d0000001e";
const ODATA_PGMCC: &str = "13881d4c0401559b01020304050600050000000d0000000a0004001492100000\
                           00018c1a000100000a4d000368656c6c6f";
const ACK_PGMCC: &str = "1d4c13880d018cae010203040506000000000011fffffffd0004001493100000\
                         00018c570001028f0a4d0003";

const SOURCE: Nla = Nla::V4([10, 77, 0, 1]);
const GROUP: Nla = Nla::V4([239, 192, 0, 1]);

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.bytes().filter_map(|b| char::from(b).to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn decode(bytes: &[u8]) -> Packet<'_> {
    Packet::decode(bytes, 0).unwrap()
}

fn encode(packet: &Packet<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    assert_eq!(packet.encode(&mut out), packet.payload.zeros);
    out
}

const LIVE_TSI: Tsi = Tsi { gsi: Gsi([0x65, 0xb4, 0x80, 0x19, 0xcd, 0x34]), port: 0xad71 };
const OUR_TSI: Tsi = Tsi { gsi: Gsi([1, 2, 3, 4, 5, 6]), port: 5000 };

#[test]
fn captured_spm_of_an_empty_window_is_read() {
    let bytes = unhex(SPM_EMPTY);
    let packet = decode(&bytes);
    assert_eq!(packet.tsi(), LIVE_TSI);
    assert_eq!(packet.header.data_port(packet.kind()), 7500);
    let [sequence, trail, lead] = [0, 0, 0xffff_ffff].map(Seq::new);
    let spm = Spm { sequence, trail, lead, path: SOURCE };
    assert_eq!(packet.body, Body::Spm(spm));
    assert_eq!(spm.window(), Some((Seq::new(0), Seq::new(0xffff_ffff))));
    assert!(packet.options.is_empty());
}

#[test]
fn captured_ack_is_read_though_a_reserved_byte_is_garbage() {
    let bytes = unhex(ACK_LIVE);
    let packet = decode(&bytes);
    assert_eq!(packet.tsi(), LIVE_TSI);
    let vector = AckVector { highest: Seq::new(0), bitmap: u32::MAX };
    assert_eq!(packet.body, Body::Ack(vector));
    let report = packet.options.find(OptionType::PGMCC_FEEDBACK).unwrap();
    assert_eq!(report.value, unhex("ff79ce9b000100000a4d0003"));
    let mut want = bytes.clone();
    want[30] = 0;
    let mut again = encode(&packet);
    assert_eq!(checksum(&again), 0);
    want[6..8].fill(0);
    again[6..8].fill(0);
    assert_eq!(again, want);
}

#[test]
fn captured_nak_and_its_confirmation_are_read() {
    for (hex, kind) in [(NAK_1, PacketType::Nak), (NCF_1, PacketType::Ncf)] {
        let bytes = unhex(hex);
        let packet = decode(&bytes);
        assert_eq!((packet.kind(), packet.tsi()), (kind, LIVE_TSI));
        let (Body::Nak(nak) | Body::Ncf(nak)) = packet.body else { panic!("{packet:?}") };
        assert_eq!(nak, Nak { first: Seq::new(1), source: SOURCE, group: GROUP });
        assert_eq!(packet.nak_sequence().collect::<Vec<_>>(), [Seq::new(1)]);
    }
}

#[test]
fn captured_zeromq_data_is_read() {
    let bytes = unhex(ODATA_ZMQ);
    let packet = decode(&bytes);
    assert_eq!(packet.header.source_port, 0xef22);
    assert_eq!(packet.header.destination_port, 5555);
    let data = Data { sequence: Seq::new(0), trail: Seq::new(0) };
    assert_eq!(packet.body, Body::Odata(data));
    assert_eq!(packet.payload.bytes, b"\x00\x00\x06\x00hello");
}

#[test]
fn every_vector_without_garbage_is_encoded_to_the_same_bytes() {
    for hex in [SPM_EMPTY, NAK_1, NCF_1, ODATA_ZMQ, NAK_LIST, ODATA_PGMCC, ACK_PGMCC] {
        let bytes = unhex(hex);
        assert_eq!(encode(&decode(&bytes)), bytes, "{hex}");
    }
}

#[test]
fn nak_with_a_list_is_composed_byte_for_byte() {
    let list: Vec<_> = (27..31).map(Seq::new).collect();
    let nak = Body::Nak(Nak { first: Seq::new(26), source: SOURCE, group: GROUP });
    let mut out = Vec::new();
    let mut encoder = Encoder::new(&mut out, &Header::upstream(OUR_TSI, 7500), &nak);
    encoder.nak_list(list.iter().copied());
    assert_eq!(encoder.finish(), 0);
    assert_eq!(out, unhex(NAK_LIST));
    let all: Vec<_> = decode(&out).nak_sequence().map(Seq::value).collect();
    assert_eq!(all, [26, 27, 28, 29, 30]);
}

#[test]
fn data_with_a_scheme_option_is_composed_byte_for_byte() {
    let body = Body::Odata(Data { sequence: Seq::new(13), trail: Seq::new(10) });
    let mut out = vec![7];
    let mut encoder = Encoder::new(&mut out, &Header::downstream(OUR_TSI, 7500), &body);
    encoder.option(OptionType::PGMCC_DATA, &unhex("00018c1a000100000a4d0003"));
    encoder.payload(|out| {
        out.extend_from_slice(b"hello");
        0
    });
    encoder.finish();
    assert_eq!(out[0], 7);
    assert_eq!(out[1..], unhex(ODATA_PGMCC));
}

#[test]
fn ack_is_composed_byte_for_byte_and_the_old_type_is_read_too() {
    let vector = AckVector { highest: Seq::new(17), bitmap: 0xffff_fffd };
    let body = Body::Ack(vector);
    let mut out = Vec::new();
    let mut encoder = Encoder::new(&mut out, &Header::upstream(OUR_TSI, 7500), &body);
    encoder.raw_option(OptionType::PGMCC_FEEDBACK, 0, &unhex("00018c570001028f0a4d0003"));
    encoder.finish();
    assert_eq!(out, unhex(ACK_PGMCC));
    out[4] = 0x0b;
    assert_eq!(Packet::decode(&out, 0), Err(BadInput::Checksum));
    out[6..8].fill(0);
    assert_eq!(decode(&out).body, body);
}

#[test]
fn a_tail_of_zeros_is_the_same_packet_as_its_bytes() {
    for (head, zeros) in [(0, 1400), (3, 1400), (4, 1), (0, 0), (5, 65530)] {
        let body = Body::Odata(Data { sequence: Seq::new(1), trail: Seq::new(1) });
        let write = |out: &mut Vec<u8>, spelled: bool| {
            let mut encoder = Encoder::new(out, &Header::downstream(OUR_TSI, 1), &body);
            encoder.payload(|out| {
                out.extend_from_slice(&b"fairc"[..head]);
                if spelled {
                    out.resize(out.len() + zeros, 0);
                }
                if spelled { 0 } else { zeros as u32 }
            });
            encoder.finish()
        };
        let (mut short, mut long) = (Vec::new(), Vec::new());
        assert_eq!((write(&mut short, false), write(&mut long, true)), (zeros as u32, 0));
        let mut padded = short.clone();
        padded.resize(short.len() + zeros, 0);
        assert_eq!(padded, long);
        let packet = Packet::decode(&short, zeros as u32).unwrap();
        assert_eq!(packet.payload, Payload { bytes: &b"fairc"[..head], zeros: zeros as u32 });
        assert_eq!(packet.payload.len(), decode(&long).payload.len());
        assert_eq!(Packet::decode(&short, zeros as u32 + 1), Err(BadInput::Malformed));
    }
}

fn spoilt(hex: &str, at: usize, with: &[u8]) -> Vec<u8> {
    let mut bytes = unhex(hex);
    bytes[at..at + with.len()].copy_from_slice(with);
    bytes[6..8].fill(0);
    if bytes[4] & 0x0c == 4 {
        let sum = checksum(&bytes);
        bytes[6..8].copy_from_slice(&sum.to_be_bytes());
    }
    bytes
}

#[test]
fn broken_packets_are_refused_with_their_reason() {
    use BadInput::{Checksum, Malformed, Truncated};
    let cut = |hex: &str, len: usize| {
        let mut bytes = spoilt(hex, 0, &[]);
        bytes.truncate(len);
        bytes
    };
    let mut no_checksum = unhex(ODATA_ZMQ);
    no_checksum[6..8].fill(0);
    let mut wrong_checksum = unhex(SPM_EMPTY);
    wrong_checksum[20] ^= 1;
    let mut extra = unhex(ODATA_ZMQ);
    extra.push(0);
    for (case, bytes, want) in [
        ("nothing", vec![], Truncated),
        ("half a header", unhex("ad711d4c0000"), Truncated),
        ("half a body", cut(SPM_EMPTY, 30), Truncated),
        ("half its options", cut(NAK_LIST, 50), Truncated),
        ("version 1", spoilt(SPM_EMPTY, 4, &[0x40]), Malformed),
        ("type 15", spoilt(SPM_EMPTY, 4, &[0x0f]), Malformed),
        ("wrong checksum", wrong_checksum, Checksum),
        ("data without checksum", no_checksum, Checksum),
        ("a byte too many", extra, Malformed),
        ("family 9", spoilt(SPM_EMPTY, 29, &[9]), Malformed),
        ("no length first", spoilt(NAK_LIST, 36, &[5]), Malformed),
        ("total too short", spoilt(NAK_LIST, 39, &[3]), Malformed),
        ("no last option", spoilt(NAK_LIST, 40, &[2]), Malformed),
        ("option of 0", spoilt(NAK_LIST, 41, &[0]), Malformed),
        ("option too long", spoilt(NAK_LIST, 41, &[24]), Malformed),
        ("SYN of 20", spoilt(NAK_LIST, 40, &[0x8d]), Malformed),
    ] {
        assert_eq!(Packet::decode(&bytes, 0), Err(want), "{case}");
    }
}

#[test]
fn limits_of_the_format_hold() {
    // 17 options, and a list of 63, assembled by hand, since the encoder writes neither.
    let head = &unhex(NAK_1)[..36];
    let packet = |options: &[u8]| {
        let mut bytes = head.to_vec();
        bytes[5] = 1;
        bytes[6..8].fill(0);
        bytes.extend_from_slice(&[0, 4]);
        bytes.extend_from_slice(&(options.len() as u16 + 4).to_be_bytes());
        bytes.extend_from_slice(options);
        bytes
    };
    let options = |n: usize| {
        let mut bytes = [0x7e, 4, 0, 0].repeat(n);
        bytes[4 * n - 4] |= 0x80;
        bytes
    };
    assert_eq!(decode(&packet(&options(16))).options.iter().count(), 16);
    assert_eq!(Packet::decode(&packet(&options(17)), 0), Err(BadInput::Malformed));
    // An option's length of 8 bits leaves room for 62 numbers of four bytes.
    let mut list = vec![0x82, 252, 0, 0];
    list.resize(252, 1);
    assert_eq!(decode(&packet(&list)).options.nak_list().count(), 62);
    assert_eq!(Packet::decode(&packet(&[0x82, 5, 0, 0, 9]), 0), Err(BadInput::Malformed));
}

#[test]
fn an_spm_may_say_nothing_of_its_window() {
    let spm =
        Spm { sequence: Seq::new(9), trail: Seq::new(0), lead: NO_WINDOW_LEAD, path: Nla::NULL };
    assert_eq!(spm.window(), None);
}

#[test]
fn node_ids_travel_as_ipv4_addresses() {
    let nla = Nla::from_node(NodeId(0x0a4d_0003));
    assert_eq!(nla, Nla::V4([10, 77, 0, 3]));
    assert_eq!(nla.node(), Some(NodeId(0x0a4d_0003)));
    assert_eq!(Nla::V6([1; 16]).node(), None);
    assert!(Nla::V6([0; 16]).is_null() && Nla::NULL.is_null() && !nla.is_null());
}

/// Known options with permitted lengths, options for elements first.
const KNOWN: [(u8, &[usize]); 16] = [
    (OptionType::NAK_BO_IVL, &[8]),
    (OptionType::NAK_BO_RNG, &[8]),
    (OptionType::REDIRECT, &[8, 20]),
    (OptionType::PARITY_PRM, &[4]),
    (OptionType::NBR_UNREACH, &[0]),
    (OptionType::PATH_NLA, &[4, 16]),
    (OptionType::CR, &[20, 32]),
    (OptionType::CRQST, &[0]),
    (OptionType::FRAGMENT, &[12]),
    (OptionType::JOIN, &[4]),
    (OptionType::PARITY_GRP, &[4]),
    (OptionType::CURR_TGSIZE, &[4]),
    (OptionType::SYN, &[0]),
    (OptionType::FIN, &[0]),
    (OptionType::RST, &[0]),
    (OptionType::ACKER_LEAVING, &[0]),
];

fn value_of(kind: u8, len: usize) -> Vec<u8> {
    let mut value = vec![9; len];
    let at = if kind == OptionType::CR { 12 } else { 0 };
    if [OptionType::REDIRECT, OptionType::CR].contains(&kind) && len >= at + 4 {
        let family = if len == at + 20 { 2 } else { 1 };
        value[at..at + 4].copy_from_slice(&[0, family, 0, 0]);
    }
    value
}

#[test]
fn a_known_option_has_a_value_of_its_length_and_no_other() {
    for (place, (kind, lens)) in KNOWN.into_iter().enumerate() {
        assert_eq!(OptionType::is_network_significant(kind, true), place < 8, "option {kind}");
        for len in 0..40 {
            let mut bytes = Vec::new();
            let header = Header::downstream(OUR_TSI, 7500);
            let mut encoder = Encoder::new(&mut bytes, &header, &Body::Spmr);
            encoder.option(kind, &value_of(kind, len));
            encoder.finish();
            let read = Packet::decode(&bytes, 0).map(drop);
            let want = if lens.contains(&len) { Ok(()) } else { Err(BadInput::Malformed) };
            assert_eq!(read, want, "option {kind} of {len} bytes");
        }
    }
}

fn options() -> impl Strategy<Value = Vec<(u8, u8, Vec<u8>)>> {
    let known = |from: usize, to: usize| {
        let any = (from..to, any::<prop::sample::Index>(), any::<u8>());
        any.prop_map(|(which, len, specific)| {
            let (kind, lens) = KNOWN[which];
            (kind, specific, value_of(kind, *len.get(lens)))
        })
    };
    let unknown = (0x15u8..0x7f, any::<u8>(), prop::collection::vec(any::<u8>(), 0..60));
    let ordinary = prop_oneof![7 => known(8, KNOWN.len()), 1 => unknown];
    let lists = (prop::collection::vec(known(0, 8), 0..8), prop::collection::vec(ordinary, 0..8));
    lists.prop_map(|(significant, ordinary)| [significant, ordinary].concat())
}

fn vectors() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![
        SPM_EMPTY,
        ACK_LIVE,
        NAK_1,
        NCF_1,
        ODATA_ZMQ,
        NAK_LIST,
        ODATA_PGMCC,
        ACK_PGMCC,
    ])
    .prop_map(unhex)
}

fn exercise(bytes: &[u8], zeros: u32) {
    if let Ok(packet) = Packet::decode(bytes, zeros) {
        let mut again = Vec::new();
        packet.encode(&mut again);
        assert_eq!(checksum(&again), 0);
        assert!(packet.options.iter().count() <= OPTIONS_MAX);
        assert!(packet.nak_sequence().count() <= NAK_LIST_MAX + 1);
        let reread = Packet::decode(&again, packet.payload.zeros).unwrap();
        assert_eq!(reread, packet);
        let _: String = format!("{packet:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(bytes: Vec<u8>, zeros in 0u32..4) {
        exercise(&bytes, zeros);
    }

    #[test]
    fn no_damage_to_a_packet_makes_the_decoder_panic(
        packet in vectors(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
        checksum_kept: bool,
    ) {
        let mut bytes = packet;
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if !checksum_kept && bytes.len() >= HEADER_LEN {
            // The checksum would reject nearly all damage at once.
            bytes[6..8].fill(0);
            let sum = checksum(&bytes);
            bytes[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        exercise(&bytes, 0);
    }

    #[test]
    fn one_changed_bit_is_noticed(packet in vectors(), at: prop::sample::Index, bit in 0u32..8) {
        let mut bytes = packet;
        let at = at.index(bytes.len());
        prop_assume!(at != 6 && at != 7);
        bytes[at] ^= 1 << bit;
        prop_assert!(Packet::decode(&bytes, 0).is_err());
    }

    #[test]
    fn every_packet_survives_the_wire(
        header in header(),
        body in bodies(any::<u32>(), nla(), nla()),
        options in options(),
        list in prop::collection::btree_set(0u32..1000, 0..=NAK_LIST_MAX),
        payload in prop::collection::vec(any::<u8>(), 0..40),
        zeros in 0u32..2000,
    ) {
        let mut out = Vec::new();
        let mut encoder = Encoder::new(&mut out, &header, &body);
        let list: Vec<_> = list.into_iter().map(Seq::new).collect();
        encoder.nak_list(list.iter().copied());
        for (kind, specific, value) in &options {
            encoder.raw_option(*kind, *specific, value);
        }
        let is_data = body.kind().is_data();
        if is_data {
            encoder.payload(|out| {
                out.extend_from_slice(&payload);
                zeros
            });
        }
        let tail = encoder.finish();
        prop_assert_eq!(tail, if is_data { zeros } else { 0 });

        let packet = Packet::decode(&out, tail).unwrap();
        prop_assert_eq!(packet.header, header);
        prop_assert_eq!(packet.body, body);
        prop_assert!(packet.options.nak_list().eq(list));
        let read = packet.options.iter().filter(|option| option.kind != OptionType::NAK_LIST);
        let read: Vec<_> = read.map(|it| (it.kind, it.specific, it.value.to_vec())).collect();
        prop_assert_eq!(read, options);
        for kind in 0..=u8::MAX {
            let by_walk = packet.options.iter().find(|option| option.kind == kind);
            prop_assert_eq!(packet.options.find(kind), by_walk);
        }
        if is_data {
            prop_assert_eq!(packet.payload, Payload { bytes: &payload, zeros });
        }
        prop_assert_eq!(encode(&packet), out);
    }
}

#[test]
fn a_checksum_is_computed_unless_the_packet_was_authenticated_and_what_is_found_is_shared() {
    use crate::{Datagram, Destination, Parsed};
    let mut bytes = unhex(ODATA_PGMCC);
    *bytes.last_mut().unwrap() ^= 1;
    let datagram = Datagram::new(NodeId(1), Destination::Node(NodeId(2)), &bytes);
    let read = |datagram| Received::decode(&datagram).map(|packet| packet.payload.bytes.to_vec());
    assert_eq!(read(datagram), Err(BadInput::Checksum));
    assert_eq!(read(Datagram { authenticated: true, ..datagram }), Ok(b"helln".to_vec()));
    let parsed = Parsed::default();
    let shared = Datagram { authenticated: true, parsed: Some(&parsed), ..datagram };
    assert_eq!(read(shared), Ok(b"helln".to_vec()));
    assert_eq!(read(Datagram { authenticated: false, ..shared }), Ok(b"helln".to_vec()));
    let other = Parsed::default();
    assert_eq!(other.get_or_parse(|| 7u32), Some(&7));
    assert_eq!(read(Datagram { parsed: Some(&other), ..shared }), Ok(b"helln".to_vec()));
}

impl Encoder<'_> {
    pub(crate) fn scheme_option<W: Wire>(&mut self, scheme: &W) {
        self.option(W::OPTION, &encoded(scheme));
    }
}

pub(super) fn nla() -> impl Strategy<Value = Nla> + Clone {
    prop_oneof![any::<[u8; 4]>().prop_map(Nla::V4), any::<[u8; 16]>().prop_map(Nla::V6)]
}

pub(crate) fn bodies(
    number: impl Strategy<Value = u32> + Clone,
    nla: impl Strategy<Value = Nla> + Clone,
    group: impl Strategy<Value = Nla> + Clone,
) -> impl Strategy<Value = Body> {
    let seq = number.prop_map(Seq::new);
    let nak = (seq.clone(), nla.clone(), group).prop_map(|(first, source, group)| Nak {
        first,
        source,
        group,
    });
    let data = (seq.clone(), seq.clone()).prop_map(|(sequence, trail)| Data { sequence, trail });
    let spm = (seq.clone(), seq.clone(), seq.clone(), nla.clone())
        .prop_map(|(sequence, trail, lead, path)| Body::Spm(Spm { sequence, trail, lead, path }));
    let ack = (seq.clone(), any::<u32>())
        .prop_map(|(highest, bitmap)| Body::Ack(AckVector { highest, bitmap }));
    prop_oneof![
        spm,
        data.clone().prop_map(Body::Odata),
        data.prop_map(Body::Rdata),
        nak.clone().prop_map(Body::Nak),
        nak.clone().prop_map(Body::Nnak),
        nak.prop_map(Body::Ncf),
        Just(Body::Spmr),
        ack,
    ]
}

pub(super) fn header() -> impl Strategy<Value = Header> {
    any::<(u16, u16, [u8; 6], bool, bool)>().prop_map(
        |(source_port, destination_port, gsi, parity, variable_length)| Header {
            source_port,
            destination_port,
            gsi: Gsi(gsi),
            parity,
            variable_length,
        },
    )
}
