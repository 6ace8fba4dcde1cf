//! Tests of sealing and opening: replays, other keys and sessions, floods, damage.

use proptest::prelude::*;

use super::*;
use crate::header::OVERHEAD;
use crate::peers::{BURST, PER_SECOND, WINDOW_PACKETS};

fn key(number: u8) -> GroupKey {
    GroupKey::from_bytes([number; 32])
}

fn source() -> Seal {
    Seal::source(key(1)).unwrap()
}

fn receiver() -> Seal {
    Seal::receiver(key(1)).unwrap()
}

fn sealed(from: &mut Seal, session: Salt, plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    from.seal(session, plain, &mut out);
    out
}

fn refused(at: &mut Seal, datagram: &[u8]) -> Refusal {
    let before = (at.peers.len(), at.refusals().total());
    let refusal = at.open(&mut datagram.to_vec()).unwrap_err();
    assert_eq!((at.peers.len(), at.refusals().total()), (before.0, before.1 + 1));
    refusal
}

#[test]
fn both_ways_arrive_and_say_whose_they_are() {
    let (mut source, mut receiver, mut other) = (source(), receiver(), receiver());
    let session = source.session().unwrap();
    for number in 1..4u8 {
        let mut down = sealed(&mut source, session, &[number; 100]);
        assert_eq!(down.len(), 100 + OVERHEAD);
        assert!(!down.windows(8).any(|part| part == [number; 8]));
        let opened = receiver.open(&mut down).unwrap();
        assert_eq!(opened.plain, [number; 100]);
        assert_eq!((opened.session, opened.role), (session, Role::Source));
        let mut up = sealed(&mut receiver, session, b"nak");
        let mut copy = up.clone();
        let opened = source.open(&mut copy).unwrap();
        assert_eq!((opened.plain, opened.role), (&b"nak"[..], Role::Receiver));
        // Neighbours may receive the packets of a receiver to the group.
        assert_eq!(other.open(&mut up).unwrap().plain, b"nak");
    }
    assert_eq!((source.peers.len(), receiver.peers.len(), other.peers.len()), (1, 1, 1));
}

#[test]
fn equal_plain_lengths_have_equal_sealed_lengths() {
    let mut source = source();
    let session = source.session().unwrap();
    let mut out = vec![7; 5];
    for len in [0, 1, 15, 16, 1400, 65_000] {
        out.truncate(5);
        source.seal(session, &vec![0; len], &mut out);
        assert_eq!(out.len(), 5 + len + OVERHEAD);
        assert_eq!(out[..5], [7; 5]);
    }
}

#[test]
fn a_repeated_datagram_is_refused_and_reordered_ones_are_not() {
    let (mut source, mut receiver) = (source(), receiver());
    let session = source.session().unwrap();
    let all: Vec<_> =
        (0..3 * WINDOW_PACKETS).map(|n| sealed(&mut source, session, &n.to_be_bytes())).collect();
    // Reversed batches, as a receiver with several queues may get.
    for batch in all.chunks(WINDOW_PACKETS as usize / 2) {
        for datagram in batch.iter().rev() {
            assert!(receiver.open(&mut datagram.clone()).is_ok());
        }
    }
    assert_eq!(refused(&mut receiver, &all[0]), Refusal::Old);
    let last = all.last().unwrap();
    assert_eq!(refused(&mut receiver, last), Refusal::Repeated);
    assert_eq!(
        refused(&mut receiver, &all[all.len() - WINDOW_PACKETS as usize]),
        Refusal::Repeated
    );
}

#[test]
fn disagreement_about_keys_is_told_apart() {
    let (mut source, mut receiver) = (source(), receiver());
    let mut foreign = Seal::source(key(2)).unwrap();
    let session = foreign.session().unwrap();
    let datagram = sealed(&mut foreign, session, b"x");
    assert_eq!(refused(&mut receiver, &datagram), Refusal::OtherKey(foreign.hint()));
    assert_eq!(crate::key_hint(&datagram), Some(foreign.hint()));
    let plain = [0x1d, 0x4c, 0x1d, 0x4c, 0x04, 0, 0, 0].repeat(10);
    assert_eq!(refused(&mut receiver, &plain), Refusal::Plain);
    assert_eq!(crate::key_hint(&plain), None);
    assert_eq!(refused(&mut source, &[]), Refusal::Plain);
}

#[test]
fn a_key_with_the_same_hint_is_no_way_in() {
    let mut foreign = Seal::source(key(2)).unwrap();
    let mut receiver = receiver();
    foreign.hint = receiver.hint;
    let session = foreign.session().unwrap();
    let datagram = sealed(&mut foreign, session, b"x");
    assert_eq!(refused(&mut receiver, &datagram), Refusal::Forged);
}

#[test]
fn other_sessions_roles_and_echoes_are_refused() {
    let (mut first, mut second, mut receiver) = (source(), source(), receiver());
    let (session, other) = (first.session().unwrap(), second.session().unwrap());
    let up = sealed(&mut receiver, other, b"nak");
    assert_eq!(refused(&mut first, &up), Refusal::OtherSession);
    let down = sealed(&mut first, session, b"data");
    assert_eq!(refused(&mut second, &down), Refusal::OtherSession);
    assert_eq!(refused(&mut first, &down), Refusal::WrongRole);
    let own = sealed(&mut receiver, session, b"nak");
    assert_eq!(refused(&mut receiver, &own), Refusal::Own);
    let mut turned = down.clone();
    turned[4] ^= 1;
    assert_eq!(refused(&mut receiver, &turned), Refusal::Forged);
    let mut moved = up.clone();
    moved[8..24].copy_from_slice(&session.0);
    assert_eq!(refused(&mut first, &moved), Refusal::Forged);
}

#[test]
fn a_restarted_receiver_is_another_party_and_is_heard() {
    let mut source = source();
    let session = source.session().unwrap();
    for run in 1..=3 {
        let mut receiver = receiver();
        let mut up = sealed(&mut receiver, session, b"join");
        assert!(source.open(&mut up).is_ok());
        assert_eq!(source.peers.len(), run);
    }
}

#[test]
fn a_flood_of_unknown_parties_takes_no_memory_and_leaves_the_known_alone() {
    let (mut source, mut receiver) = (source(), receiver());
    let session = source.session().unwrap();
    let first = sealed(&mut source, session, b"first");
    receiver.open(&mut first.clone()).unwrap();
    let mut forged = first;
    let (started, mut derived) = (Instant::now(), 0);
    for number in 0..100_000u64 {
        forged[24..32].copy_from_slice(&number.to_be_bytes());
        forged[8] = if number % 2 == 0 { session.0[0] } else { !session.0[0] };
        match receiver.open(&mut forged.clone()) {
            Err(Refusal::Busy) => {}
            other => {
                assert_eq!(other, Err(Refusal::Forged));
                derived += 1;
            }
        }
    }
    assert_eq!(receiver.peers.len(), 1);
    // One budget for each half: parties of the known session, and of an unknown one.
    let most = 2.0 * (BURST + PER_SECOND * started.elapsed().as_secs_f64());
    assert!(f64::from(derived) <= most, "{derived} of 100 000 had a key derived, not {most}");
    let mut second = sealed(&mut source, session, b"second");
    assert!(receiver.open(&mut second).is_ok());
}

#[test]
fn the_table_of_peers_has_its_limit_and_forgets_who_was_silent_longest() {
    let mut source = source();
    source.peers = Peers::new(3);
    let session = source.session().unwrap();
    let mut all: Vec<_> = (0..4).map(|_| receiver()).collect();
    let first = sealed(&mut all[0], session, b"first");
    source.open(&mut first.clone()).unwrap();
    for receiver in &mut all[1..] {
        let mut up = sealed(receiver, session, b"x");
        source.open(&mut up).unwrap();
    }
    assert_eq!(source.peers.len(), 3);
    // The peer is known again, but not its window: see PEERS_MAX.
    assert!(source.open(&mut first.clone()).is_ok());
    assert_eq!(refused(&mut source, &first), Refusal::Repeated);
}

#[test]
fn a_party_goes_on_to_its_next_key_and_late_ones_of_the_last_still_arrive() {
    let (mut source, mut receiver) = (source(), receiver());
    let session = source.session().unwrap();
    source.counter = PACKETS_PER_KEY - 2;
    let all: Vec<_> = (0..4u8).map(|n| sealed(&mut source, session, &[n])).collect();
    assert_eq!(source.counter, PACKETS_PER_KEY + 2);
    for number in [0, 2, 3, 1] {
        assert_eq!(receiver.open(&mut all[number].clone()).unwrap().plain, [number as u8]);
    }
    for datagram in &all {
        assert_eq!(refused(&mut receiver, datagram), Refusal::Repeated);
    }
    assert_eq!(receiver.peers.len(), 2);
}

proptest! {
    #[test]
    fn any_changed_bit_is_refused(
        plain in prop::collection::vec(any::<u8>(), 0..100),
        at in any::<prop::sample::Index>(),
        bit in 0..8u8,
        known in any::<bool>(),
    ) {
        let (mut source, mut receiver) = (source(), receiver());
        let session = source.session().unwrap();
        if known {
            let mut first = sealed(&mut source, session, b"first");
            receiver.open(&mut first).unwrap();
        }
        let good = sealed(&mut source, session, &plain);
        let mut bad = good.clone();
        bad[at.index(good.len())] ^= 1 << bit;
        refused(&mut receiver, &bad);
        let mut again = good;
        let opened = receiver.open(&mut again).map(|opened| opened.plain.to_vec());
        prop_assert_eq!(opened, Ok(plain));
    }

    #[test]
    fn any_cut_or_growth_is_refused(cut in 0..150usize, grown in 1..40usize) {
        let (mut source, mut receiver) = (source(), receiver());
        let session = source.session().unwrap();
        let good = sealed(&mut source, session, &[7; 100]);
        let cut = cut.min(good.len() - 1);
        refused(&mut receiver, &good[..cut]);
        let mut long = good.clone();
        long.resize(good.len() + grown, 0);
        refused(&mut receiver, &long);
        prop_assert!(receiver.open(&mut good.clone()).is_ok());
    }

    #[test]
    fn whatever_comes_is_refused_without_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        like in any::<bool>(),
    ) {
        let (mut source, mut receiver) = (source(), receiver());
        if like && bytes.len() > 8 {
            bytes[..5].copy_from_slice(b"fcs\x01\xc1");
            bytes[5..8].copy_from_slice(&source.hint().0);
        }
        refused(&mut source, &bytes);
        refused(&mut receiver, &bytes);
    }
}
