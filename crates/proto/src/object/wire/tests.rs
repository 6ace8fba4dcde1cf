//! Tests of the wire format of transfers: encoding and decoding, forged fields, arbitrary bytes.

use super::*;
use crate::object::PathLimit;
use crate::object::tests::world::message;
use crate::tests::formats::Snapshot;
use alloc::string::ToString;
use proptest::prelude::*;

fn block_ids() -> impl Strategy<Value = BlockId> {
    (0..3u8, any::<u32>()).prop_map(|(number, block)| block_id(part(number).unwrap(), block))
}

fn entries() -> impl Strategy<Value = Entry> {
    let run = (block_ids(), 1..1000u32)
        .prop_filter_map("a run stays in its part", |(first, count)| {
            block_of(first).checked_add(count).map(|_| Entry::Run { first, count })
        });
    let block = (block_ids(), 1..=u64::MAX, any::<bool>())
        .prop_map(|(block_id, missing, any)| Entry::Block { block_id, missing, any });
    prop_oneof![run, block]
}

fn notices() -> impl Strategy<Value = Notice> {
    let announcement = (any::<[u64; 3]>(), any::<u16>(), any::<[u8; 32]>(), any::<[u8; 32]>());
    let flags = any::<[bool; 5]>();
    (announcement, flags, any::<u32>(), proptest::option::of(block_ids()), 0..1u32 << 24).prop_map(
        |((lens, symbol_bytes, object, digests), flags, ms, position, epoch)| Notice {
            announcement: Announcement {
                lens,
                growing: flags[4],
                symbol_bytes,
                object,
                digests: flags[1].then_some(digests),
            },
            parity: flags[0],
            begun: flags[2],
            exhausted: flags[3],
            status_interval: Duration::from_millis(u64::from(ms)),
            position,
            epoch,
        },
    )
}

fn messages() -> impl Strategy<Value = MemberMessage> {
    let numbers = (any::<u16>(), any::<u32>(), any::<u64>(), any::<u32>(), any::<u64>());
    (0..5usize, any::<bool>(), numbers, "[ -~é]{0,32}", "[ -~é]{0,60}").prop_map(
        |(claim, ask, (loss, number, id, reporter, bytes), name, reason)| MemberMessage {
            claim: CLAIMS[claim],
            ask,
            loss,
            number,
            id,
            reporter: NodeId(reporter),
            bytes,
            name,
            reason,
            identity: ask.then_some(id ^ bytes),
        },
    )
}

#[test]
fn each_format_of_a_transfer_is_the_golden_one() {
    let mut snapshot = Snapshot::new("object");
    snapshot.add(
        &SymbolName { block_id: block_id(Part::Digests, 1 << 20), symbol: 127, repair: true }
            .encode(),
    );
    let mut list = Vec::new();
    Entry::Run { first: block_id(Part::Content, 9), count: 300 }.encode(&mut list);
    Entry::Block { block_id: block_id(Part::Manifest, 0), missing: 1 << 63 | 5, any: true }
        .encode(&mut list);
    snapshot.add(&list);
    for flag in [false, true] {
        let announcement = Announcement {
            lens: [300, 64, 1 << 40],
            growing: flag,
            symbol_bytes: 1300,
            object: [0xaa; 32],
            digests: flag.then_some([0xbb; 32]),
        };
        let notice = Notice {
            announcement,
            parity: flag,
            begun: !flag,
            exhausted: flag,
            status_interval: Duration::from_millis(2500),
            position: flag.then_some(block_id(Part::Content, 77)),
            epoch: 0x12_3456,
        };
        snapshot.add(&notice.encode());
    }
    for (claim, identity) in CLAIMS.into_iter().zip([None, Some(1 << 60)].into_iter().cycle()) {
        let message = MemberMessage {
            claim,
            ask: identity.is_some(),
            loss: 600,
            number: 5,
            id: 1 << 50,
            reporter: NodeId(0x0a01_0203),
            bytes: 1 << 33,
            name: "hall é".into(),
            reason: "disk full".into(),
            identity,
        };
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        snapshot.add(&bytes);
    }
    for status in STATUSES {
        snapshot.add(&Answer { status, number: 3, id: 1 << 40 }.encode());
    }
    snapshot.add(&encode_load(&MemberLoad::default()));
    snapshot.add(&encode_limit(Bitrate::from_bits_per_s(10_000_000)));
    for word in [
        PathMessage::Ask { low: 576, high: 1472 },
        PathMessage::Limit(PathLimit { arrives: 1252, sent: 1472 }),
    ] {
        snapshot.add(&word.encode());
    }
    snapshot.add(&Probe { size: 100, sent: 1472, range: (576, 1472) }.encode());
    snapshot.check();
}

#[test]
fn a_limit_is_twelve_bytes() {
    let bytes = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0x98, 0x96, 0x80];
    assert_eq!(encode_limit(Bitrate::from_bits_per_s(10_000_000)), bytes);
    for rate in [0, 1, u64::MAX].map(Bitrate::from_bits_per_s) {
        assert_eq!(decode_limit(&encode_limit(rate)), Some(rate));
    }
    let other_version = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    for wrong in [&bytes[..11], &other_version, &[&bytes[..], &[0]].concat()] {
        assert_eq!(decode_limit(wrong), None);
    }
}

proptest! {
    #[test]
    fn everything_comes_back_as_it_was(
        block_id in block_ids(),
        symbol in 0..128u32,
        repair in any::<bool>(),
        list in proptest::collection::vec(entries(), 0..20),
        notice in notices(),
        message in messages(),
        answer in (0..5usize, any::<u32>(), any::<u64>()),
    ) {
        let name = SymbolName { block_id, symbol, repair };
        let bytes = name.encode();
        prop_assert_eq!(SymbolName::decode(&bytes), Some((name, &[][..])));
        let mut bytes = Vec::new();
        list.iter().for_each(|entry| entry.encode(&mut bytes));
        prop_assert_eq!(Entry::decode_all(&bytes).unwrap().collect::<Vec<_>>(), list);
        prop_assert_eq!(Notice::decode(&notice.encode()), Some(notice));
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        prop_assert!(bytes.len() <= 251, "it fits into an option");
        prop_assert_eq!(MemberMessage::decode(&bytes), Some(message));
        let answer = Answer { status: STATUSES[answer.0], number: answer.1, id: answer.2 };
        prop_assert_eq!(Answer::decode(&answer.encode()), Some(answer));
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..260)) {
        for version in [None, Some(1)] {
            if let (Some(version), Some(first)) = (version, bytes.first_mut()) {
                *first = version;
            }
            let _ = SymbolName::decode(&bytes);
            let _ = Entry::decode_all(&bytes).map(Iterator::count);
            let _ = Notice::decode(&bytes);
            let _ = MemberMessage::decode(&bytes);
            let _ = Answer::decode(&bytes);
        }
    }
}

#[test]
fn forged_fields_are_refused() {
    let name =
        SymbolName { block_id: block_id(Part::Content, 5), symbol: 7, repair: true }.encode();
    for (at, value) in [(0, 0), (0, 2), (1, 3), (1, 4), (2, 1), (3, 128)] {
        let mut forged = name;
        forged[at] = value;
        assert_eq!(SymbolName::decode(&forged), None, "byte {at} = {value}");
    }
    let mut run = Vec::new();
    Entry::Run { first: block_id(Part::Digests, 9), count: 3 }.encode(&mut run);
    for (at, value) in [(0, 0x83), (0, 0xc2), (0, 0x92), (8, 0), (9, 1), (5, 0xff)] {
        let mut forged = run.clone();
        forged[at] = value;
        let overflows = at == 5;
        if overflows {
            forged[1..5].copy_from_slice(&[0xff; 4]);
        }
        assert!(Entry::decode_all(&forged).is_none(), "byte {at} = {value}");
    }
    assert!(Entry::decode_all(&run[1..]).is_none());
    let mut empty = Vec::new();
    Entry::Block { block_id: 4, missing: 0, any: false }.encode(&mut empty);
    assert!(Entry::decode_all(&empty).is_none(), "a request for nothing");
}

#[test]
fn a_load_comes_as_it_was_told_and_nothing_else_is_one() {
    let ms = Duration::from_millis;
    let load = MemberLoad { span: ms(9), disk: ms(8), busy: ms(7), overflowed: 6, lost: u32::MAX };
    let bytes = encode_load(&load);
    assert_eq!(decode_load(&bytes), Some(load));
    for at in 0..4 {
        let mut forged = bytes.clone();
        forged[at] ^= 4;
        assert_eq!(decode_load(&forged), None, "byte {at}");
    }
    assert_eq!(decode_load(&bytes[1..]), None);
    let long = MemberLoad { span: Duration::MAX, ..load };
    assert_eq!(decode_load(&encode_load(&long)).unwrap().span, ms(u64::from(u32::MAX)));
}

#[test]
fn of_a_long_reason_the_end_is_told() {
    assert_eq!(end_of("short", 5), "short");
    let reason = alloc::format!("/a/{}/f: differs; use --overwrite", "é".repeat(100));
    for max in [40, 41] {
        let told = end_of(&reason, max);
        assert!(told.len() <= max && told.starts_with("...é"), "{told}");
        assert!(told.ends_with("/f: differs; use --overwrite"), "{told}");
    }
}

#[test]
fn names_cannot_play_with_terminals() {
    let mut bytes = Vec::new();
    let (name, reason) = ("a\u{1b}[2J\u{202e}b".to_string(), "é".repeat(100));
    MemberMessage { name, reason, ..message(2, Claim::Failed) }.encode(&mut bytes);
    let got = MemberMessage::decode(&bytes).unwrap();
    assert_eq!(got.name, "a?[2J?b");
    assert_eq!(got.reason, "é".repeat(60), "cut between characters");
    let at = bytes.len() - 1;
    bytes[at] = 0xff;
    assert_eq!(MemberMessage::decode(&bytes), None, "not UTF-8");
}

#[test]
fn words_of_lengths_come_as_they_were_told_and_nothing_else_is_one() {
    let limit = PathLimit { arrives: 1252, sent: 1472 };
    for word in [PathMessage::Ask { low: 0, high: 0 }, PathMessage::Limit(limit)] {
        let bytes = word.encode();
        assert_eq!(PathMessage::decode(&bytes), Some(word));
        for at in [0, 1, 2, 4, 8] {
            let mut wrong = bytes.clone();
            wrong[at] = 0xff;
            assert_eq!(PathMessage::decode(&wrong), None, "{at}");
        }
        assert_eq!(PathMessage::decode(&bytes[1..]), None);
    }
    let probe = Probe { size: 1280, sent: 1472, range: (576, 0) };
    assert_eq!(Probe::decode(&probe.encode()), Some(probe));
    for at in [4, 8, 12, 16] {
        let mut bytes = probe.encode();
        bytes[at] = 1;
        assert_eq!(Probe::decode(&bytes), None, "longer than any packet: {at}");
    }
}

#[test]
fn byte_tables_of_the_documents_have_the_lengths_of_the_format() {
    let lengths =
        crate::tests::tables::lengths(include_str!("../../../../../docs/wire/transfer.md"));
    let [notice, entry, member, answer, load, limit, path, probe] = lengths[..] else {
        panic!("{lengths:?}");
    };
    assert_eq!(entry, ENTRY_LEN);
    // Zeros are valid values of all other fields. A member's reason is a length more.
    type Decodes = fn(&[u8]) -> bool;
    let decoders: [(usize, Decodes); 7] = [
        (notice, |bytes| Notice::decode(bytes).is_some()),
        (member + 1, |bytes| MemberMessage::decode(bytes).is_some()),
        (answer, |bytes| Answer::decode(bytes).is_some()),
        (load, |bytes| decode_load(bytes).is_some()),
        (limit, |bytes| decode_limit(bytes).is_some()),
        (path, |bytes| PathMessage::decode(bytes).is_some()),
        (probe, |bytes| Probe::decode(bytes).is_some()),
    ];
    for (length, decodes) in decoders {
        let mut bytes = alloc::vec![0; length];
        bytes[0] = VERSION;
        assert!(decodes(&bytes) && !decodes(&bytes[1..]), "{length} bytes");
        assert!(!decodes(&bytes[..length - 1]), "{length} bytes");
    }
}
