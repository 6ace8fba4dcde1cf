//! Tests of the wire format: every kind decodes to its original, and nothing panics.

use faircast_base::NodeId;
use proptest::prelude::*;

use super::*;
use crate::tests::formats::Snapshot;
use crate::tram::wire::Fate;

fn encoded(packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.write(&mut bytes);
    bytes
}

fn of(body: Body<'_>) -> Packet<'_> {
    Packet { session: 0x0102_0304_0506_0708, sender: 7, ttl: 9, body }
}

fn departed(fate: Fate) -> Departed {
    let (id, came_from) = (77, u64::from(fate == Fate::Back));
    Departed { id, node: Some(NodeId(9)), fate, joins: 3, below: BELOW_MAX, came_from }
}

#[test]
fn every_kind_comes_back_as_it_went() {
    let source = SourceState {
        sequence: 3,
        forget_before: 1,
        rate: Bitrate::from_bits_per_s(800_000),
        ack_window: 32,
        advertise_interval: Duration::from_millis(500),
        worst_loss: 77,
        status_interval: Duration::from_millis(60_000),
        repair: true,
        done: false,
        prune: true,
    };
    let announce = Some(Announcement { option: 0x12, value: b"acker" });
    let (state, role) = (HeadState::AcceptingHeads, HeadRole::Eager);
    let (level, members, members_max, low, lan, name) = (2, 3, 5, 8, true, 0);
    let advertisement = Advertisement { state, role, level, members, members_max, low, lan, name };
    let state = SourceState { repair: false, ..source };
    let (level, members, low, lan, name) = (0, 0, 1, false, 1 << 63);
    let other = Advertisement { level, members, low, lan, name, ..advertisement };
    let ids = [1u64, 0xffff_0000].map(u64::to_be_bytes).concat();
    let missing = mask(10, [10..12, 20..21].into_iter());
    let ack =
        Ack { first_missing: 10, highest: 30, leaves: true, mask: &missing, ..Ack::default() };
    let (kind, sequence) = (ReportKind::Ack { bitmap: 0x8000_0001 }, 1 << 40);
    let report = Report { kind, sequence, leaves: true, option: 0x13, value: b"loss" };
    let (mut nobody, mut told) = (Vec::new(), Vec::new());
    let some = Fate::ALL.map(departed);
    let departed = DepartureList::new(some.iter(), 0, &mut told);
    let mut snapshot = Snapshot::new("tram");
    for body in [
        Body::Beacon(SourceState { sequence: 0, done: true, ..source }),
        Body::Data(Data { state: source, announce: None, payload: b"payload" }),
        Body::Data(Data { state, announce, payload: b"payload" }),
        Body::Advertisement(advertisement),
        Body::Advertisement(other),
        Body::Solicitation(Solicitation { role: HeadRole::Never, name: 0 }),
        Body::Solicitation(Solicitation { role, name: 5 }),
        Body::Solicitation(Solicitation { role, name: 5 }),
        Body::Bind(Bind { role, distance: 4, joins: 2, first_missing: 0, name: 0 }),
        Body::Bind(Bind { role, distance: 4, joins: 2, first_missing: 9, name: 5 }),
        Body::Accept(Accept { start: 1, level: 200 }),
        Body::Reject(RejectReason::Pruned),
        Body::Hello(Hello { level: 2, low: 5, high: 900, done: true, asked: &ids, resigns: false }),
        Body::Ack(ack),
        Body::Ack(Ack { departed: DepartureList::new([].into_iter(), 3, &mut nobody), ..ack }),
        Body::Ack(Ack { departed, short: true, ..ack }),
        Body::Status(b"all of it is here"),
        Body::StatusReply(b"noted"),
        Body::Settings(b"as usual"),
        Body::Report(report),
        Body::Report(Report { kind: ReportKind::Nak, sequence: 7, value: b"", ..report }),
    ] {
        let bytes = encoded(&of(body));
        assert!(is_sound(&bytes));
        assert_eq!(Packet::decode(&bytes), Ok(of(body)));
        snapshot.add(&bytes);
    }
    snapshot.check();
    assert_eq!(ack.missing().collect::<Vec<_>>(), [10, 11, 20]);
    let hello = Hello { asked: &ids, ..Hello::default() };
    assert!(hello.asks(0xffff_0000) && !hello.asks(4));
}

#[test]
fn what_is_no_packet_is_refused() {
    let accept = encoded(&of(Body::Accept(Accept { start: 1, level: 1 })));
    for (place, value) in [(0, b'x'), (2, 2), (3, 0), (3, 99), (4, 1), (HEADER + 11, 0)] {
        let mut bytes = accept.clone();
        bytes[place] = value;
        assert_eq!(Packet::decode(&bytes), Err(BadInput::Malformed), "byte {place}");
        assert!(!is_sound(&bytes));
    }
    assert_eq!(Packet::decode(&accept[..HEADER - 1]), Err(BadInput::Truncated));
    assert_eq!(Packet::decode(&accept[..HEADER + 1]), Err(BadInput::Malformed));
    let long = Ack { first_missing: 1, mask: &[0; MASK_MAX + 1], ..Ack::default() };
    assert_eq!(Packet::decode(&encoded(&of(Body::Ack(long)))), Err(BadInput::Malformed));
}

#[test]
fn numbers_with_which_nothing_can_be_computed_are_refused() {
    let far = SEQUENCES;
    let source = SourceState { sequence: far, ..SourceState::default() };
    let (kind, role) = (ReportKind::NullNak, HeadRole::Eager);
    for body in [
        Body::Beacon(source),
        Body::Data(Data { state: source, announce: None, payload: b"payload" }),
        Body::Bind(Bind { role, distance: 4, joins: 0, first_missing: far, name: 0 }),
        Body::Accept(Accept { start: far, level: 1 }),
        Body::Hello(Hello { low: far, ..Hello::default() }),
        Body::Hello(Hello { high: far, ..Hello::default() }),
        Body::Ack(Ack { first_missing: far, ..Ack::default() }),
        Body::Ack(Ack { first_missing: 1, allowed: far, ..Ack::default() }),
        Body::Report(Report { kind, sequence: far, leaves: true, option: 0x13, value: b"" }),
        Body::Report(Report { kind, sequence: 7, leaves: false, option: 0x13, value: b"" }),
    ] {
        assert_eq!(Packet::decode(&encoded(&of(body))), Err(BadInput::Malformed), "{body:?}");
    }
}

#[test]
fn those_who_went_are_few_and_make_sense() {
    let some = departed(Fate::Silent);
    let with = |departed: &Departed, unnamed| {
        let mut buf = Vec::new();
        let departed = DepartureList::new([*departed].iter(), unnamed, &mut buf);
        let ack = Ack { first_missing: 1, departed, mask: &[0; MASK_MAX], ..Ack::default() };
        encoded(&of(Body::Ack(ack)))
    };
    let taken = |bytes: &[u8]| match Packet::decode(bytes).map(|packet| packet.body) {
        Ok(Body::Ack(ack)) => ack.departed.iter().next(),
        _ => None,
    };
    assert_eq!(taken(&with(&some, 0)), Some(some));
    // Private numbers of an end mean nothing to others.
    for (node, want) in [(0, Some(0)), (0xefff_ffff, Some(0xefff_ffff)), (0xf000_0000, None)] {
        let told = Departed { node: Some(NodeId(node)), ..some };
        let want = Departed { node: want.map(NodeId), ..some };
        assert_eq!(taken(&with(&told, 0)), Some(want), "{node:#x}");
    }
    for bad in [Departed { id: 0, ..some }, Departed { below: BELOW_MAX + 1, ..some }] {
        assert_eq!(Packet::decode(&with(&bad, 0)), Err(BadInput::Malformed), "{bad:?}");
    }
    let start = HEADER + 36;
    for (case, place, value) in [
        ("no fate", start + 8 + 26, 6),
        ("more than there are", start, 33),
        ("far more than there are", start, 255),
        ("a million more", start + 4, 1),
    ] {
        let mut bytes = with(&some, 0);
        bytes[place] = value;
        assert_eq!(Packet::decode(&bytes), Err(BadInput::Malformed), "{case}");
    }
    let mut nobody = with(&some, 0);
    nobody[start] = 0;
    assert_eq!(Packet::decode(&nobody), Err(BadInput::Malformed), "told of nobody");
    let (mut buf, all) = (Vec::new(), [some; 40]);
    let departed = DepartureList::new(all.iter(), u32::MAX, &mut buf);
    let ack = Ack { first_missing: 1, departed, mask: &[0; MASK_MAX], ..Ack::default() };
    let bytes = encoded(&of(Body::Ack(ack)));
    assert!(bytes.len() <= 1280 - 40 - 8 - 12, "{}", bytes.len());
    let Ok(Packet { body: Body::Ack(ack), .. }) = Packet::decode(&bytes) else { panic!() };
    assert_eq!((ack.departed.iter().count(), ack.departed.unnamed), (DEPARTURES_MAX, BELOW_MAX));
}

proptest! {
    #[test]
    fn acknowledgements_tell_of_no_more_than_there_may_be(
        count in 0u8..40, unnamed: u32, body in proptest::collection::vec(any::<u8>(), 0..1400),
    ) {
        let mut bytes = encoded(&of(Body::Ack(Ack { first_missing: 1, ..Ack::default() })));
        bytes[4] = 1 << 6;
        bytes.extend_from_slice(&[count, 0, 0, 0]);
        bytes.extend_from_slice(&unnamed.to_be_bytes());
        bytes.extend_from_slice(&body);
        if let Ok(Packet { body: Body::Ack(ack), .. }) = Packet::decode(&bytes) {
            prop_assert_eq!(ack.departed.iter().count(), usize::from(count));
            prop_assert!(usize::from(count) <= DEPARTURES_MAX && unnamed <= BELOW_MAX);
            prop_assert!(ack.mask.len() <= MASK_MAX);
        }
    }

    #[test]
    fn no_bytes_panic_and_what_is_read_is_written_alike(
        kind in 0u8..14, flags in 0u8..=127, body: Vec<u8>,
    ) {
        let mut bytes = encoded(&of(Body::Solicitation(Solicitation { role: HeadRole::Never, name: 0 })));
        bytes.truncate(HEADER);
        (bytes[3], bytes[4]) = (kind, flags);
        bytes.extend_from_slice(&body);
        if let Ok(packet) = Packet::decode(&bytes) {
            let again = encoded(&packet);
            prop_assert_eq!(Packet::decode(&again), Ok(packet));
            if let Body::Ack(ack) = packet.body {
                prop_assert!(ack.missing().count() <= 8 * MASK_MAX);
                let departed: Vec<Departed> = ack.departed.iter().collect();
                prop_assert!(departed.len() <= DEPARTURES_MAX && ack.departed.unnamed <= BELOW_MAX);
                prop_assert!(departed.iter().all(|it| it.id != 0 && it.below <= BELOW_MAX));
            }
        }
    }

    #[test]
    fn a_mask_has_the_packets_that_are_missing(gaps: Vec<(u8, u8)>) {
        let mut missing = crate::ranges::RangeSet::default();
        for (start, len) in gaps {
            let start = 100 + u64::from(start) * 16;
            missing.insert(start..start + 1 + u64::from(len));
        }
        if let Some(first) = missing.iter().next().map(|run| run.start) {
            let bytes = mask(first, missing.iter());
            let ack = Ack { first_missing: first, mask: &bytes, ..Ack::default() };
            let end = first + 8 * MASK_MAX as u64;
            let want: Vec<u64> = missing.iter().flatten().filter(|it| *it < end).collect();
            prop_assert_eq!(ack.missing().collect::<Vec<_>>(), want);
        }
    }
}

#[test]
fn byte_tables_of_the_documents_have_the_lengths_of_the_format() {
    let page = include_str!("../../../../../docs/wire/tram.md");
    assert_eq!(crate::tests::tables::lengths(page), [HEADER, departed::DEPARTED]);
}
