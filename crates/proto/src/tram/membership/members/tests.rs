//! Tests of a head's table of members.

use alloc::vec;

use faircast_base::{GroupId, Shortfall};
use proptest::prelude::*;

use super::removal::INEFFECTIVE_MAX;
use super::*;
use crate::Destination;
use crate::tram::settings::RightEdge;
use crate::tram::window::JUMP_MAX;
use crate::tram::wire::Departed;
use crate::world::{at, s};

/// Heads have four members, two of them member-only at most; windows are 10 to 20 packets.
fn settings() -> TramSettings {
    TramSettings {
        ack_window: 10,
        lossless_multiple: 0,
        members_max: 4,
        source_members_max: 1,
        right_edge: RightEdge::Plain,
        ..TramSettings::default()
    }
}

fn span(first_kept: u64, end: u64) -> PacketSpan {
    PacketSpan { first_kept, end, unknown_max: 0 }
}

fn members() -> Members {
    Members::new(&settings())
}

fn request(id: u64, role: HeadRole, distance: u8) -> (u64, Bind) {
    (id, Bind { role, distance, joins: 0, first_missing: 0, name: 0 })
}

fn admit(members: &mut Members, node: u32, role: HeadRole, start: u64) -> Result<(), RejectReason> {
    members.admit(at(0), NodeId(node), request(node.into(), role, 1), (start, start), false)
}

#[test]
fn the_source_takes_few_and_who_never_becomes_a_head() {
    use HeadRole::{Never, Reluctant};
    use HeadState::{Accepting, AcceptingHeads, AcceptingMembers, NotAccepting};
    let mut members = members();
    members.be_source(&settings());
    assert_eq!(members.state(), Accepting);
    admit(&mut members, 1, Reluctant, 1).unwrap();
    assert_eq!(members.state(), AcceptingMembers);
    assert_eq!(admit(&mut members, 2, Reluctant, 1), Err(RejectReason::Full));
    for node in [3, 4] {
        admit(&mut members, node, Never, 1).unwrap();
    }
    assert_eq!(members.state(), NotAccepting);
    members.prune(NodeId(1));
    assert_eq!(members.state(), AcceptingHeads);
}

fn ack(first_missing: u64, allowed: u64) -> Ack<'static> {
    Ack { first_missing, allowed, ..Ack::default() }
}

fn two() -> Members {
    let mut members = members();
    for (node, first_missing) in [(1, 100), (2, 95)] {
        admit(&mut members, node, HeadRole::Reluctant, 90).unwrap();
        let told = ack(first_missing, first_missing + 15);
        for _ in 0..2 {
            members.acknowledge(at(0), NodeId(node), &told, span(1, 100)).unwrap();
        }
    }
    members
}

#[test]
fn members_are_taken_until_the_head_is_full_of_their_kind() {
    use HeadRole::{Eager, Never, Reluctant};
    use RejectReason::{Full, HeadsOnly};
    let mut members = members();
    for (node, role, want) in [
        (1, Never, Ok(())),
        (2, Never, Ok(())),
        (2, Never, Ok(())),
        (3, Never, Err(HeadsOnly)),
        (4, Reluctant, Ok(())),
        (5, Eager, Ok(())),
        (6, Eager, Err(Full)),
        (3, Never, Err(Full)),
        (1, Never, Ok(())),
    ] {
        assert_eq!(admit(&mut members, node, role, 1), want, "{node}");
    }
    assert_eq!((members.by_node.len(), members.state()), (4, HeadState::NotAccepting));
    // Members that need the source alone have as many places again.
    let rescue = |members: &mut Members, node| {
        members.admit(at(0), NodeId(node), request(node.into(), Reluctant, 1), (1, 500), true)
    };
    assert!((10..14).all(|node| rescue(&mut members, node).is_ok()));
    assert_eq!(rescue(&mut members, 14), Err(Full));
    members.prune(NodeId(1));
    assert_eq!(admit(&mut members, 3, Never, 1), Err(Full), "the rescued have places too");
}

#[test]
fn who_comes_back_under_another_number_begins_anew() {
    let mut members = two();
    members.admit(at(5), NodeId(1), request(77, HeadRole::Never, 3), (60, 100), false).unwrap();
    assert_eq!(members.first_missing(), Some(60));
    assert_eq!(members.reach(), 3);
    assert_eq!(members.allowed(), Some(110), "it has not spoken, so nobody waits for it");
}

#[test]
fn acknowledgements_that_cannot_be_true_change_nothing() {
    // Packets from 90 on were promised, and 99 is the last one sent.
    let below = |members, indirect, heads| Ack { members, indirect, heads, ..ack(100, 110) };
    for (case, told) in [
        ("it has all that there ever may be", ack((1 << 62) - 1, (1 << 62) - 1)),
        ("it allows more than a window", ack(100, 121)),
        ("it allows everything", ack(95, (1 << 62) - 1)),
        ("it allows less than it has", ack(100, 98)),
        ("it allows nothing", ack(100, 0)),
        ("it lacks what is far away", Ack { mask: &[0x80], ..ack(101 + JUMP_MAX, 110) }),
        ("there is somebody below nobody", below(0, 3, 0)),
        ("more than there can be are below", below(1, u32::MAX, 2)),
        ("there are more heads than receivers", below(2, 5, 9)),
    ] {
        let mut members = two();
        let before = std::format!("{members:?}");
        let refused = members.acknowledge(at(9), NodeId(1), &told, span(1, 100));
        assert_eq!(refused, Err(BadInput::Absurd), "{case}");
        assert_eq!(std::format!("{members:?}"), before, "{case}");
    }
    let refused = two().acknowledge(at(9), NodeId(3), &ack(95, 110), span(1, 100));
    assert_eq!(refused, Err(BadInput::Foreign));
    for told in [
        ack(100, 119),
        ack(91, 100),
        Ack { mask: &[0x80, 0x40], ..ack(90, 100) },
        Ack { leaves: true, ..ack(100, 0) },
        below(3, 1000, 1004),
        Ack { members: 2, ..ack(100, 92) },
    ] {
        let taken = two().acknowledge(at(9), NodeId(1), &told, span(1, 100));
        assert!(taken.is_ok(), "{told:?}");
    }
}

#[test]
fn of_what_a_member_says_of_packets_that_there_are_not_yet_what_there_is_holds() {
    for (first_missing, allowed, unknown_max, want) in
        [(101, 118, 0, (118, 100)), (101, 118, 20, (118, 101)), (112, 130, 0, (120, 100))]
    {
        let ahead = Ack { mask: &[0, 0x80], ..ack(first_missing, allowed) };
        let (mut members, span) = (two(), PacketSpan { unknown_max, ..span(1, 100) });
        members.acknowledge(at(9), NodeId(1), &ahead, span).unwrap();
        let progress = &members.by_node[&NodeId(1)].progress;
        assert_eq!((progress.allowed, progress.first_missing), want, "{first_missing}");
    }
}

#[test]
fn the_slowest_decides_and_old_words_take_nothing_back() {
    let mut members = two();
    assert_eq!((members.allowed(), members.first_missing()), (Some(110), Some(95)));
    members.acknowledge(at(1), NodeId(2), &ack(92, 105), span(1, 100)).unwrap();
    assert_eq!((members.allowed(), members.first_missing()), (Some(110), Some(95)));
    members.acknowledge(at(2), NodeId(2), &ack(100, 118), span(1, 100)).unwrap();
    assert_eq!((members.allowed(), members.first_missing()), (Some(115), Some(100)));
    let leaves = Ack { leaves: true, ..ack(100, 0) };
    members.acknowledge(at(3), NodeId(1), &leaves, span(1, 100)).unwrap();
    assert_eq!((members.allowed(), members.first_missing()), (Some(118), Some(100)));
    members.prune(NodeId(2));
    assert_eq!((members.allowed(), members.first_missing()), (None, None));
}

#[test]
fn a_member_that_goes_on_reporting_has_not_said_goodbye() {
    let mut members = two();
    let (it, says) = ((NodeId(1), 1), ack(100, 115));
    let leaves = Ack { leaves: true, short: true, ..ack(100, 0) };
    members.acknowledge(at(1000), it.0, &leaves, span(1, 100)).unwrap();
    assert_eq!(members.shortfall().0.len(), 2, "it has left, and the other lacks something");
    assert!(!members.recognise(at(1050), it, &says), "that was sent before the goodbye");
    assert_eq!(members.leaves.ask(at(1050)), (Some(at(1100)), vec![]));
    assert_eq!(members.leaves.ask(at(1100)), (None, vec![it]));
    assert!(!members.recognise(at(1200), (it.0, 9), &says), "another number");
    assert!(!members.recognise(at(1200), it, &leaves), "it does say so");
    assert!(members.recognise(at(1200), it, &says) && members.by_node.contains_key(&it.0));
    assert_eq!(members.allowed(), Some(110));
    let named = members.shortfall().0;
    assert!(named.iter().all(|it| it.reason == Shortfall::Silent), "{named:?}");
    members.acknowledge(at(2000), it.0, &leaves, span(1, 100)).unwrap();
    assert!(!members.recognise(s(13), it, &says));
}

#[test]
fn who_joins_in_the_place_of_another_that_speaks_is_none() {
    let mut members = two();
    members.admit(at(5), NodeId(1), request(77, HeadRole::Never, 3), (60, 100), false).unwrap();
    assert!(members.recognise(at(5), (NodeId(1), 77), &ack(60, 80)));
    assert!(members.recognise(at(500), (NodeId(1), 1), &ack(100, 115)));
    assert_eq!(members.first_missing(), Some(95));
    assert!(!members.recognise(at(500), (NodeId(1), 77), &ack(60, 80)));
}

#[test]
fn a_member_that_goes_on_saying_that_it_has_less_never_had_more() {
    let mut members = two();
    members.acknowledge(at(1), NodeId(2), &ack(100, 115), span(1, 100)).unwrap();
    for (ms, want) in [(500, 100), (1000, 100), (1500, 96), (2000, 96)] {
        members.acknowledge(at(ms), NodeId(2), &ack(96, 111), span(1, 100)).unwrap();
        assert_eq!(members.first_missing(), Some(want), "{ms}");
    }
    assert_eq!(members.allowed(), Some(111));
}

#[test]
fn nothing_is_kept_for_who_asked_for_a_place_and_never_spoke() {
    let mut members = two();
    admit(&mut members, 3, HeadRole::Reluctant, 60).unwrap();
    let check_silence = |members: &mut Members, ms| {
        members.check_silence(at(ms), Duration::from_secs(60), 3);
        members.first_missing()
    };
    assert_eq!(check_silence(&mut members, 900), Some(60), "it may be about to speak");
    assert_eq!(check_silence(&mut members, 1000), Some(95));
    members.acknowledge(at(1200), NodeId(3), &ack(60, 80), span(1, 100)).unwrap();
    assert_eq!(members.first_missing(), Some(60));
}

#[test]
fn nobody_waits_for_those_who_joined_late_until_they_have_caught_up() {
    let mut members = two();
    // 99 is the last packet sent, and windows are 30 at most.
    let late = request(3, HeadRole::Never, 1);
    members.admit(at(1), NodeId(3), late, (20, 100), false).unwrap();
    members.acknowledge(at(2), NodeId(3), &ack(20, 39), span(1, 100)).unwrap();
    assert_eq!(members.allowed(), Some(110));
    assert_eq!(members.first_missing(), Some(20), "but what it lacks is kept");
    members.acknowledge(at(3), NodeId(3), &ack(80, 100), span(1, 100)).unwrap();
    assert_eq!(members.allowed(), Some(100), "it has caught up");
    members.admit(at(4), NodeId(4), request(4, HeadRole::Never, 1), (85, 120), false).unwrap();
    members.acknowledge(at(5), NodeId(4), &ack(85, 101), span(1, 120)).unwrap();
    members.acknowledge(at(6), NodeId(3), &ack(119, 134), span(1, 120)).unwrap();
    assert_eq!(members.allowed(), Some(110), "one of the first two");
    members.acknowledge(at(7), NodeId(1), &ack(119, 134), span(1, 120)).unwrap();
    members.acknowledge(at(7), NodeId(2), &ack(119, 134), span(1, 120)).unwrap();
    assert_eq!(members.allowed(), Some(134));
    members.acknowledge(at(8), NodeId(4), &ack(120, 130), span(1, 140)).unwrap();
    assert_eq!(members.allowed(), Some(130));
    let mut members = self::members();
    for (node, first_missing) in [(1, 20), (2, 40)] {
        let late = request(node.into(), HeadRole::Never, 1);
        members.admit(at(1), NodeId(node), late, (20, 100), false).unwrap();
        let told = ack(first_missing, first_missing + 10);
        members.acknowledge(at(2), NodeId(node), &told, span(1, 100)).unwrap();
    }
    assert_eq!((members.allowed(), members.allowed_by_any()), (None, Some(50)));
    members.admit(at(3), NodeId(3), request(3, HeadRole::Never, 1), (1, 100), true).unwrap();
    assert_eq!(members.first_missing(), Some(20));
    members.acknowledge(at(4), NodeId(3), &ack(30, 40), span(25, 100)).unwrap();
    assert_eq!(members.first_missing(), Some(20), "it is among those who are repaired as others");
}

#[test]
fn who_is_silent_is_asked_and_then_gone() {
    let (silence, times) = (Duration::from_secs(2), 3);
    let mut members = two();
    members.acknowledge(s(3), NodeId(1), &ack(100, 115), span(1, 100)).unwrap();
    for second in 2..5 {
        assert_eq!(members.check_silence(s(second), silence, times), (Vec::from([2]), Vec::new()));
    }
    let (asked, gone) = members.check_silence(s(5), silence, times);
    assert_eq!((asked, gone), (vec![1], vec![NodeId(2)]));
    assert_eq!(members.allowed(), Some(115), "it had nobody below it");
    assert_eq!(admit(&mut members, 2, HeadRole::Never, 95), Ok(()), "it may come back");
}

#[test]
fn members_of_a_silent_head_are_waited_for_until_all_have_another_head() {
    let mut members = two();
    let below = Ack { members: 1, indirect: 1, ..ack(95, 96) };
    members.acknowledge(s(1), NodeId(2), &below, span(1, 100)).unwrap();
    let back = |id| {
        let (node, fate) = (Some(NodeId(id)), Fate::Back);
        Departed { id: id.into(), node, fate, joins: 1, below: 0, came_from: 2 }
    };
    let mut told = Vec::new();
    let mut tell = |members: &mut Members, second, departed: &[Departed]| {
        let ack =
            Ack { departed: DepartureList::new(departed.iter(), 0, &mut told), ..ack(100, 115) };
        members.acknowledge(s(second), NodeId(1), &ack, span(1, 100)).unwrap();
    };
    tell(&mut members, 4, &[back(7)]);
    members.check_silence(s(4), Duration::from_secs(2), 1);
    tell(&mut members, 5, &[back(7)]);
    let (_, gone) = members.check_silence(s(5), Duration::from_secs(2), 1);
    assert_eq!((gone, members.allowed()), (Vec::from([NodeId(2)]), Some(110)), "one is missed");
    tell(&mut members, 6, &[back(7), back(8)]);
    assert_eq!((members.allowed(), members.first_missing()), (Some(115), Some(100)));
    // The head is back with its members: earlier reports say nothing about the next loss.
    admit(&mut members, 2, HeadRole::Reluctant, 95).unwrap();
    for _ in 0..2 {
        members.acknowledge(s(7), NodeId(2), &below, span(1, 100)).unwrap();
    }
    members.check_silence(s(9), Duration::from_secs(2), 1);
    let (_, gone) = members.check_silence(s(10), Duration::from_secs(2), 1);
    assert!(gone.contains(&NodeId(2)));
    assert_eq!(members.allowed(), Some(114), "as at first");
    let again = |members: &mut Members, id: u64| {
        let request = (id, Bind { joins: 1, ..request(id, HeadRole::Reluctant, 1).1 });
        members.admit(s(11), NodeId(id as u32), request, (95, 95), false).unwrap();
    };
    again(&mut members, 1);
    tell(&mut members, 11, &[Departed { came_from: 0, ..back(2) }]);
    assert_eq!(members.allowed(), Some(115));
    again(&mut members, 2);
    for _ in 0..2 {
        members.acknowledge(s(12), NodeId(2), &below, span(1, 100)).unwrap();
    }
    members.check_silence(s(14), Duration::from_secs(2), 1);
    members.check_silence(s(15), Duration::from_secs(2), 1);
    assert_eq!(members.allowed(), Some(114), "lost again");
}

#[test]
fn who_never_says_anything_is_not_taken_again_at_once() {
    let (silence, times) = (Duration::from_secs(2), 1);
    let mut members = members();
    admit(&mut members, 1, HeadRole::Never, 1).unwrap();
    assert_eq!(members.check_silence(s(2), silence, times).1, []);
    assert_eq!(members.check_silence(s(3), silence, times).1, [NodeId(1)]);
    let asks = request(1, HeadRole::Never, 1);
    for (second, want) in [(3, Err(RejectReason::Full)), (6, Err(RejectReason::Full)), (7, Ok(()))]
    {
        assert_eq!(members.admit(s(second), NodeId(1), asks, (1, 1), false), want, "{second} s");
    }
}

fn shortfall(does: impl FnOnce(&mut Members)) -> (Vec<(u64, Shortfall)>, u64) {
    let mut members = two();
    members.acknowledge(at(1), NodeId(1), &has_all(), span(1, 100)).unwrap();
    does(&mut members);
    let (named, unnamed) = members.shortfall();
    (named.iter().map(|it| (it.id, it.reason)).collect(), unnamed)
}

fn has_all() -> Ack<'static> {
    Ack { complete: true, ..ack(100, 115) }
}

#[test]
fn a_member_that_leaves_without_everything_is_named() {
    use Shortfall::{Gaps, Left, Pruned, Silent};
    let leaves = |ack: Ack<'static>| Ack { leaves: true, ..ack };
    let lacks = |ack: Ack<'static>| Ack { short: true, ..ack };
    let heads = |ack: Ack<'static>| Ack { members: 1, indirect: 2, ..ack };
    for (case, says, want, unnamed) in [
        ("it is still there", ack(95, 110), Some(Silent), 0),
        ("with three below it", heads(ack(95, 110)), Some(Silent), 3),
        ("it has everything", has_all(), None, 0),
        ("it has all that can be had", lacks(has_all()), Some(Gaps), 0),
        ("it has everything, those below it may not", heads(has_all()), None, 3),
        ("it changes heads", leaves(ack(95, 0)), None, 0),
        ("it has everything and goes", leaves(has_all()), None, 0),
        ("it goes before the end", lacks(leaves(ack(95, 0))), Some(Left), 0),
        ("it goes with gaps", lacks(leaves(has_all())), Some(Gaps), 0),
    ] {
        let says = |members: &mut Members| {
            members.acknowledge(at(2), NodeId(2), &says, span(1, 100)).unwrap();
        };
        let want = (Vec::from_iter(want.map(|reason| (2, reason))), unnamed);
        assert_eq!(shortfall(says), want, "{case}");
        if case.contains("goes") || case.contains("changes") {
            continue;
        }
        let silent = |members: &mut Members| {
            says(members);
            members.acknowledge(s(3), NodeId(1), &has_all(), span(1, 100)).unwrap();
            assert_eq!(members.check_silence(s(4), Duration::from_secs(2), 0).1, [NodeId(2)]);
        };
        assert_eq!(shortfall(silent), want, "{case}, and then falls silent");
    }
    let pruned = |members: &mut Members| assert!(members.prune(NodeId(2)).is_some());
    assert_eq!(shortfall(pruned), (vec![(2, Pruned)], 0));
    let restarts = |members: &mut Members| {
        let again = request(77, HeadRole::Never, 1);
        members.admit(at(2), NodeId(2), again, (90, 100), false).unwrap();
    };
    assert_eq!(shortfall(restarts), (vec![(2, Silent)], 0), "that is another one");
    let mute = |members: &mut Members| admit(members, 3, HeadRole::Never, 90).unwrap();
    let (named, _) = shortfall(mute);
    assert_eq!(named, [(2, Silent)], "3 may never have heard that it is a member");
}

fn tells<'a>(departed: &[Departed], unnamed: u32, buf: &'a mut Vec<u8>) -> Ack<'a> {
    Ack { departed: DepartureList::new(departed.iter(), unnamed, buf), ..has_all() }
}

#[test]
fn what_members_tell_is_believed_of_those_who_are_not_here() {
    let (node, fate, below, came_from) = (Some(NodeId(50)), Fate::Silent, 1, 0);
    let silent = |id, joins| Departed { id, node, fate, joins, below, came_from };
    for (case, told, want) in [
        ("somebody else", silent(9, 0), Some(9)),
        ("a member of this head, before", silent(2, 0), None),
        ("a member of this head, with another", silent(2, 4), None),
    ] {
        let heard = |members: &mut Members| {
            members.acknowledge(at(2), NodeId(2), &has_all(), span(1, 100)).unwrap();
            for _ in 0..3 {
                let mut buf = Vec::new();
                let told = tells(&[told], 4, &mut buf);
                members.acknowledge(at(2), NodeId(1), &told, span(1, 100)).unwrap();
            }
        };
        let (named, unnamed) = shortfall(heard);
        let named: Vec<u64> = named.iter().map(|it| it.0).collect();
        assert_eq!(named, Vec::from_iter(want), "{case}");
        assert_eq!(unnamed, 4 + want.map_or(0, |_| 1), "{case}");
    }
    let ends = |members: &mut Members| {
        members.acknowledge(at(2), NodeId(2), &has_all(), span(1, 100)).unwrap();
        let mut buf = Vec::new();
        let told = Ack { leaves: true, ..tells(&[], 4, &mut buf) };
        members.acknowledge(at(2), NodeId(1), &told, span(1, 100)).unwrap();
        assert!(members.acknowledge(at(3), NodeId(1), &told, span(1, 100)).is_err());
    };
    assert_eq!(shortfall(ends), (vec![], 4));
    let unknown = |members: &mut Members| {
        let mut buf = Vec::new();
        let told = tells(&[silent(9, 0)], 4, &mut buf);
        let heard = members.acknowledge(at(2), NodeId(7), &told, span(1, 100));
        assert_eq!(heard, Err(BadInput::Foreign));
    };
    assert_eq!(shortfall(unknown), (vec![(2, Shortfall::Silent)], 0));
}

#[test]
fn the_members_of_a_lost_head_are_waited_for_a_while() {
    let (silence, times) = (Duration::from_secs(2), 0);
    let mut members = two();
    let head = Ack { members: 1, ..ack(95, 110) };
    members.acknowledge(at(1), NodeId(2), &head, span(1, 100)).unwrap();
    members.acknowledge(s(3), NodeId(1), &ack(100, 115), span(1, 100)).unwrap();
    assert_eq!(members.check_silence(s(4), silence, times).1, [NodeId(2)]);
    assert_eq!((members.allowed(), members.first_missing()), (Some(110), Some(95)));
    members.acknowledge(s(7), NodeId(1), &ack(100, 115), span(1, 100)).unwrap();
    members.check_silence(s(8), silence, times);
    assert_eq!((members.allowed(), members.first_missing()), (Some(115), Some(100)));
}

#[test]
fn who_stands_still_and_holds_others_up_is_removed_and_not_taken_again_soon() {
    let stall = settings().ack_interval_max * STALL_INTERVALS;
    let removed = |first_missing, allowed, filling| {
        let mut members = two();
        let told = ack(first_missing, allowed);
        members.acknowledge(at(1), NodeId(2), &told, span(1, 100)).unwrap();
        let later = at(2) + stall;
        members.acknowledge(later, NodeId(2), &told, span(1, 100)).unwrap();
        let gone = members.remove_stalled(later, (95, 112), filling, |_, _| false);
        (gone.contains(&NodeId(2)), members, later)
    };
    let (gone, mut members, later) = removed(95, 110, false);
    assert!(gone, "111 may not be sent for its sake");
    let back = |members: &mut Members, now| {
        members.admit(now, NodeId(2), request(2, HeadRole::Never, 1), (95, 112), false)
    };
    assert_eq!(back(&mut members, later + Duration::from_secs(59)), Err(RejectReason::Full));
    assert_eq!(back(&mut members, later + Duration::from_secs(60)), Ok(()));
    assert!(!removed(95, 114, false).0, "it holds nobody up");
    assert!(removed(95, 114, true).0, "it fills the cache");
    assert!(!removed(100, 110, false).0, "it has everything, and perhaps a disk that is slow");
    let removed_by = |waits: bool, times: &[Time]| {
        let mut members = two();
        let waits = |node, sequence| waits && (node, sequence) == (NodeId(2), 95);
        let mut removed = |now: &Time| members.remove_stalled(*now, (95, 112), true, waits);
        times.iter().any(|now| !removed(now).is_empty())
    };
    let late = [at(2) + stall, at(1002) + stall];
    assert!(removed_by(false, &late));
    assert!(!removed_by(true, &late), "the repair that it asked for has not been sent");
    assert!(!removed_by(false, &[at(2) + stall / 2]), "it has some time");
}

#[test]
fn who_is_sent_what_it_lacks_again_and_again_and_gets_no_further_is_removed_soon() {
    let to = Destination::Node(NodeId(2));
    let removed = |repaired, repairs: u32, asks: u32, after: Duration| {
        let mut members = two();
        (0..repairs).for_each(|_| members.on_repair(repaired, to));
        for _ in 0..asks {
            members.acknowledge(at(1), NodeId(2), &ack(95, 110), span(1, 100)).unwrap();
        }
        members.remove_stalled(at(0) + after, (95, 112), false, |_, _| false) == [NodeId(2)]
    };
    let soon = EARLY_STALL;
    assert!(removed(95, INEFFECTIVE_MAX, 0, soon), "it speaks, and takes nothing");
    assert!(!removed(95, INEFFECTIVE_MAX - 2, 0, soon), "it was not sent enough");
    assert!(!removed(96, INEFFECTIVE_MAX, 0, soon), "it lacks something before");
    assert!(!removed(95, INEFFECTIVE_MAX, 0, soon / 2));
    assert!(!removed(95, 0, INEFFECTIVE_MAX, soon), "nothing was sent to it");
}

#[test]
fn repairs_that_do_not_reach_a_member_go_as_far_as_control_packets() {
    let mut members = Members::new(&TramSettings { ttl: 8, ..settings() });
    admit(&mut members, 1, HeadRole::Never, 1).unwrap();
    (0..INEFFECTIVE_MAX).for_each(|_| members.on_repair(1, Destination::Group(GroupId(1))));
    assert_eq!(members.reach(), 8);
}

#[test]
fn a_member_that_acknowledged_once_is_removed_after_three_intervals() {
    let is_removed = |settings: &TramSettings, after: Duration, again: bool| {
        let mut members = Members::new(settings);
        admit(&mut members, 2, HeadRole::Reluctant, 90).unwrap();
        let lacking = ack(95, 110);
        members.acknowledge(at(0), NodeId(2), &lacking, span(1, 100)).unwrap();
        if again {
            members.acknowledge(at(0) + after, NodeId(2), &lacking, span(1, 100)).unwrap();
        }
        !members.remove_stalled(at(0) + after, (95, 112), false, |_, _| false).is_empty()
    };
    let seconds = Duration::from_secs;
    let (soon, rare) = (settings(), TramSettings { ack_interval: seconds(3), ..settings() });
    let quiet = TramSettings { hello_interval: seconds(4), ..settings() };
    let barely = Duration::from_millis(1);
    for (settings, limit) in [(&soon, seconds(3)), (&rare, seconds(9)), (&quiet, seconds(12))] {
        let settings = &TramSettings { ack_interval_max: seconds(60), ..*settings };
        assert!(!is_removed(settings, limit.saturating_sub(barely), false), "{limit:?}");
        assert!(is_removed(settings, limit, false), "{limit:?}");
        assert!(!is_removed(settings, limit, true), "it is there");
    }
}

#[test]
fn a_member_that_acknowledges_rarely_is_not_removed_for_repairs_that_others_asked_for() {
    let settings = TramSettings {
        ack_interval: Duration::from_secs(3),
        ack_interval_max: Duration::from_secs(60),
        ..settings()
    };
    let mut members = Members::new(&settings);
    admit(&mut members, 2, HeadRole::Reluctant, 90).unwrap();
    for _ in 0..2 {
        members.acknowledge(at(0), NodeId(2), &ack(95, 110), span(1, 100)).unwrap();
    }
    (0..INEFFECTIVE_MAX).for_each(|_| members.on_repair(95, Destination::Group(GroupId(0))));
    let mut removed = |second| members.remove_stalled(s(second), (95, 112), false, |_, _| false);
    assert!(removed(8).is_empty(), "its next acknowledgement is due after 3 s");
    assert_eq!(removed(9), [NodeId(2)]);
}

proptest! {
    /// Progress goes back only by the member's own acknowledgement. The window of all shrinks only
    /// if a member has joined, caught up, or gone back.
    #[test]
    fn nothing_goes_back_and_nothing_grows_without_bound(
        // Kind of the step, member, packets that it is behind, its window, receivers below it, a
        // flag, and numbers that cannot be.
        steps in proptest::collection::vec((
            0u8..7, 1u32..10, 0u64..60, 0u64..30, 0u32..3, any::<bool>(),
            (1..1u64 << 62, 0..1u64 << 62, any::<u32>()),
        ), 1..120),
    ) {
        let mut members = members();
        let (mut now, mut next) = (at(0), 50u64);
        for step in steps {
            now += Duration::from_millis(700);
            let before: BTreeMap<NodeId, (u64, u64, u64, bool)> = members
                .iter()
                .map(|(node, it)| (node, (it.id, it.progress.first_missing, it.progress.allowed, it.catches_up())))
                .collect();
            let (allowed, waited_for) = (members.allowed(), members.confirmed().count());
            let caught_up = |members: &Members| {
                members.iter().any(|(node, it)| {
                    !it.catches_up() && before.get(&node).is_none_or(|it| it.3)
                })
            };
            let front = next.saturating_sub(100).max(1);
            let mut said = None;
            let (kind, node, behind, window, below, flag, absurd) = step;
            let (node, id, start) = (NodeId(node), node.into(), next.saturating_sub(behind).max(1));
            match kind {
                0 => {
                    let role = if flag { HeadRole::Never } else { HeadRole::Reluctant };
                    let _ = members.admit(now, node, request(id, role, 1), (start, next), below == 0);
                }
                1 => {
                    said = Some((node, start));
                    let (count, indirect, leaves) = (below as u16, below * 2, flag && below == 0);
                    let ack = Ack { members: count, indirect, leaves, ..ack(start, start + window) };
                    let _ = members.acknowledge(now, node, &ack, span(front, next));
                }
                2 => {
                    let (first_missing, allowed, indirect) = absurd;
                    said = Some((node, first_missing));
                    let ack = Ack { indirect, ..ack(first_missing, allowed) };
                    let _ = members.acknowledge(now, node, &ack, span(front, next));
                }
                3 => _ = members.check_silence(now, Duration::from_secs(2), 3),
                4 => _ = members.remove_stalled(now, (front, next), flag, |_, _| false),
                5 => _ = members.prune(node),
                _ => next += window,
            }
            prop_assert!(members.by_node.len() <= 8 && members.orphans.len() <= 4);
            prop_assert!(members.refused.len() <= REFUSED_MAX);
            let mut went_back = false;
            for (node, member) in members.iter() {
                if let Some((id, first_missing, allowed, _)) = before.get(&node)
                    && *id == member.id
                {
                    let back = member.progress.first_missing < *first_missing;
                    went_back |= back;
                    prop_assert!(!back || said == Some((node, member.progress.first_missing)), "{step:?}");
                    prop_assert!(back || member.progress.allowed >= *allowed, "{step:?}");
                }
                prop_assert!(member.progress.first_missing <= next && member.progress.allowed < next + 30);
            }
            if let (Some(before), Some(after)) = (allowed, members.allowed()) {
                let joined = members.confirmed().count() > waited_for || caught_up(&members);
                let less = joined || went_back;
                prop_assert!(after >= before || less, "{step:?}: {before} to {after}");
            }
        }
    }
}
