//! Tests of the source's members: joins, names, silence, and floods of forged joins.

use alloc::collections::BTreeSet;
use alloc::string::ToString;

use super::progress::SPARE_MAX;
use super::*;
use crate::object::PathLimit;
use crate::object::tests::world::message;
use crate::object::wire::LEAD_MAX;
use crate::world::s as at;

/// Hands over a message from the node whose number is the member's id.
fn say(members: &mut Members, now_s: u64, message: MemberMessage) {
    let node = NodeId(message.id as u32);
    members.take_message(at(now_s), node, false, message).unwrap();
}

#[test]
fn only_who_joined_is_heard_and_only_in_its_own_name() {
    let mut members = Members::default();
    let (node, reporter) = (NodeId(1), Some(NodeId(101)));
    assert_eq!(members.standing_of(at(0), node, reporter, false), Standing::Unknown);
    for id in [1, 2] {
        let joined =
            members.take_message(at(0), NodeId(id as u32), false, message(id, Claim::Joined));
        assert_eq!(joined, Ok(None), "joined is where it begins");
    }
    for (case, from, reporter, element, want) in [
        ("itself", 1, Some(101), false, Standing::Member),
        ("without a report", 1, None, false, Standing::Member),
        ("in another's name", 1, Some(102), false, Standing::Unknown),
        ("in nobody's name", 1, Some(9), false, Standing::Unknown),
        ("another node in its name", 7, Some(101), false, Standing::Unknown),
        ("through an element", 7, Some(101), true, Standing::Member),
        ("an unknown node", 7, None, true, Standing::Unknown),
    ] {
        let got = members.standing_of(at(1), NodeId(from), reporter.map(NodeId), element);
        assert_eq!(got, want, "{case}");
    }
    members.defer(NodeId(101));
    assert_eq!(members.standing_of(at(1), node, reporter, false), Standing::Unserved);
    assert!(members.recall());
    say(&mut members, 2, message(1, Claim::Leaving));
    assert_eq!(members.standing_of(at(2), node, reporter, false), Standing::Unknown);
}

#[test]
fn a_member_is_where_it_joined_until_it_is_silent() {
    let numbered = |claim, number| MemberMessage { number, ..message(1, claim) };
    let (home, other) = (NodeId(1), NodeId(7));
    let foreign = Err(BadInput::Foreign);
    for (case, last, said, from, after_s, want) in [
        ("repeated", Claim::Receiving, numbered(Claim::Receiving, 2), home, 1, Ok(())),
        ("replayed", Claim::Receiving, numbered(Claim::Receiving, 2), other, 1, foreign),
        ("replayed bye", Claim::Receiving, numbered(Claim::Leaving, 3), other, 1, foreign),
        ("forged end", Claim::Receiving, numbered(Claim::Done, 3), other, 4, foreign),
        ("repeated by another", Claim::Receiving, numbered(Claim::Receiving, 2), other, 5, Ok(())),
        ("moved, new", Claim::Receiving, numbered(Claim::Receiving, 3), other, 5, Ok(())),
        ("old, moved", Claim::Receiving, numbered(Claim::Joined, 1), other, 5, foreign),
        ("old", Claim::Done, numbered(Claim::Joined, 1), home, 1, Err(BadInput::Duplicate)),
        ("done, replayed", Claim::Done, numbered(Claim::Done, 2), other, 50, foreign),
        ("done, moved, new", Claim::Done, numbered(Claim::Joined, 3), other, 50, Ok(())),
    ] {
        let mut members = Members::default();
        members.take_message(at(0), home, false, numbered(last, 2)).unwrap();
        let taken = members.take_message(at(after_s), from, false, said);
        assert_eq!(taken.map(|_| ()), want, "{case}");
        let node = members.statuses()[0].node;
        assert_eq!(node, if want.is_ok() { from } else { home }, "{case}");
        let MemberStatus { home: lives_at, home_heard, .. } = members.statuses()[0].clone();
        let moved = case.ends_with("new");
        let heard = at(if want.is_ok() && (moved || from == home) { after_s } else { 0 });
        assert_eq!((lives_at, home_heard), (if moved { other } else { home }, heard), "{case}");
        if case == "repeated by another" {
            let answer = core::iter::from_fn(|| members.answers.pop_front()).last().unwrap();
            assert_eq!((answer.0, answer.1.number), (other, 3));
            members.take_message(at(after_s), other, false, numbered(Claim::Receiving, 4)).unwrap();
            assert_eq!(members.statuses()[0].home, other);
        }
    }
}

#[test]
fn nobody_takes_the_name_of_another_in_reports() {
    let mut members = Members::default();
    let mut claims = |id, s| {
        let thief = MemberMessage { reporter: NodeId(101), ..message(id, Claim::Joined) };
        members.take_message(at(s), NodeId(id as u32), false, thief).unwrap();
        members.standing_of(at(s), NodeId(1), Some(NodeId(101)), false)
    };
    assert_eq!(claims(1, 0), Standing::Member);
    assert_eq!(claims(2, 1), Standing::Member);
    assert_eq!(members.remove(1), Some(NodeId(101)));
    assert_eq!((members.all.len(), members.counts.iter().sum::<usize>()), (1, 1));
    let again = MemberMessage { reporter: NodeId(101), ..message(2, Claim::Joined) };
    members.take_message(at(2), NodeId(2), false, again).unwrap();
    let standing = members.standing_of(at(2), NodeId(2), Some(NodeId(101)), false);
    assert_eq!(standing, Standing::Member);
}

#[test]
fn who_is_silent_is_lost_and_who_is_done_may_be_silent() {
    let mut members = Members::default();
    for (id, claim) in [(1, Claim::Joined), (2, Claim::Done), (3, Claim::Receiving)] {
        say(&mut members, 0, message(id, claim));
    }
    members.standing_of(at(9), NodeId(3), None, false);
    assert_eq!(members.lose_silent(at(5)), [NodeId(101)]);
    assert_eq!(members.count(&[MemberState::Lost, MemberState::Done]), 2);
    assert_eq!(members.active(), 1);
}

#[test]
fn who_came_later_holds_the_end_while_it_gets_on_and_with_names_nobody_else_does() {
    let give_up = Duration::from_secs(30);
    let mut members = Members::default();
    let progress = |members: &mut Members, s: u64, id: u64, bytes: u64| {
        let name = if id == 1 { "one" } else { "other" }.to_string();
        let said = MemberMessage { bytes, name, ..message(id, Claim::Receiving) };
        say(members, s, said);
    };
    progress(&mut members, 0, 1, 0);
    members.all.values_mut().for_each(|member| member.is_awaited = true);
    let (named, nobody) = (BTreeSet::from(["one".to_string()]), BTreeSet::new());
    assert!(members.hold_the_end(at(500), give_up, &nobody), "it was there");
    assert!(members.hold_the_end(at(500), give_up, &named));
    say(&mut members, 1, message(1, Claim::Done));
    for s in 1..100 {
        progress(&mut members, s, 2, 0);
        assert_eq!(members.hold_the_end(at(s), give_up, &nobody), s < 31, "{s}");
        assert!(!members.hold_the_end(at(s), give_up, &named));
    }
    progress(&mut members, 100, 2, 70);
    assert!(members.hold_the_end(at(129), give_up, &nobody));
    assert!(!members.hold_the_end(at(130), give_up, &nobody));
}

#[test]
fn who_was_killed_and_has_come_back_under_its_name_holds_the_end_until_it_is_lost() {
    let give_up = Duration::from_secs(4);
    let names = BTreeSet::from(["one".to_string()]);
    let said =
        |id, claim, bytes| MemberMessage { bytes, name: "one".to_string(), ..message(id, claim) };
    for (last_word_s, held_until_s) in [(2, 6), (3, 5)] {
        let mut members = Members::default();
        members.take_message(at(0), NodeId(1), false, said(1, Claim::Receiving, 0)).unwrap();
        members.take_message(at(1), NodeId(1), false, said(1, Claim::Receiving, 9)).unwrap();
        for s in 2..=last_word_s {
            members.standing_of(at(s), NodeId(1), None, false);
        }
        members.take_message(at(4), NodeId(2), false, said(2, Claim::Done, 9)).unwrap();
        assert!(members.hold_the_end(at(held_until_s - 1), give_up, &names));
        assert!(!members.hold_the_end(at(held_until_s), give_up, &names));
        let lost = members.lose_silent(at(held_until_s - 4));
        assert_eq!(lost.len(), usize::from(last_word_s == 2));
    }
}

/// Guards the running time: pairwise searches would take a hundred times as long.
#[test]
fn all_may_bear_one_name_of_which_one_is_done() {
    let mut members = Members::default();
    let last = MEMBERS_MAX as u64 - 1;
    for id in 0..=last {
        let claim = if id == last { Claim::Done } else { Claim::Receiving };
        let said = MemberMessage { name: "one".to_string(), ..message(id, claim) };
        members.take_message(at(0), NodeId(id as u32), false, said).unwrap();
    }
    let [one, both] = [&["one"][..], &["one", "two"]]
        .map(|names| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>());
    for _ in 0..10 {
        for names in [&one, &both] {
            // The complete member may be a restart.
            assert!(members.hold_the_end(at(29), Duration::from_secs(30), names));
            assert!(!members.hold_the_end(at(30), Duration::from_secs(30), names));
        }
    }
}

#[test]
fn members_that_were_invented_get_a_share_of_what_is_sent() {
    let mut members = Members::default();
    for id in 0..10_000 {
        say(&mut members, 0, message(id, Claim::Receiving));
    }
    assert!(!members.is_unproven(NodeId(7)), "nobody has got on yet");
    let got = MemberMessage { bytes: 1000, ..message(7, Claim::Receiving) };
    members.take_message(at(1), NodeId(7), false, got).unwrap();
    assert!(!members.is_unproven(NodeId(7)) && members.is_unproven(NodeId(8)));
    let mut sent = 10_000;
    let mut repaired = |members: &mut Members, more: u64| {
        sent += more;
        let blocks = (0..1000).take_while(|_| {
            let may = members.has_spare(sent);
            if may {
                members.spend_spare(64);
            }
            may
        });
        64 * blocks.count()
    };
    assert_eq!(repaired(&mut members, 0), SPARE_MAX as usize);
    assert_eq!(repaired(&mut members, 0), 0);
    let later: usize = (0..100).map(|_| repaired(&mut members, 1000)).sum();
    assert!(later.abs_diff(25_000) <= 64, "{later}");
}

#[test]
fn a_flood_of_joins_is_refused_when_the_table_is_full() {
    let mut members = Members::default();
    for id in 0..MEMBERS_MAX as u64 {
        say(&mut members, 0, message(id, Claim::Joined));
    }
    let late = message(1 << 40, Claim::Joined);
    let refused = members.take_message(at(0), NodeId(1 << 20), false, late.clone());
    assert_eq!(refused, Err(BadInput::TableFull));
    assert_eq!((members.all.len(), members.answers.len()), (MEMBERS_MAX, ANSWERS_MAX));
    say(&mut members, 1, message(5, Claim::Leaving));
    let taken = members.take_message(at(1), NodeId(1 << 20), false, late);
    assert!(taken.is_ok(), "in the place of one who left");
    assert_eq!(members.all.len(), MEMBERS_MAX);
    assert_eq!(members.counts.iter().sum::<usize>(), MEMBERS_MAX);
}

#[test]
fn an_authentic_message_says_at_once_where_a_member_is() {
    let mut members = Members::default();
    let numbered = |number| MemberMessage { number, ..message(1, Claim::Receiving) };
    members.take_message(at(0), NodeId(1), true, numbered(3)).unwrap();
    let old = members.take_message(at(1), NodeId(7), true, numbered(2));
    assert_eq!(old, Err(BadInput::Foreign), "an old one that was held back");
    members.take_message(at(1), NodeId(7), true, numbered(4)).unwrap();
    assert!(members.by_node.contains_key(&NodeId(7)) && !members.by_node.contains_key(&NodeId(1)));
}

#[test]
fn who_gets_no_further_is_given_up_with_the_reason() {
    let limit = Duration::from_secs(30);
    let got = |id, bytes| MemberMessage { bytes, ..message(id, Claim::Receiving) };
    let short = Some(PathLimit { arrives: 1252, sent: 1472 });
    let disk = MemberLoad {
        span: Duration::from_secs(10),
        disk: Duration::from_secs(9),
        ..MemberLoad::default()
    };
    use Claim::{Joined, Receiving};
    let none = MemberLoad::default();
    for (moving, flows, path, load, claim, bytes, want) in [
        (true, true, short, none, Receiving, 0, Some("--mtu 1280")),
        (false, true, short, none, Receiving, 0, Some("--mtu 1280")),
        (false, false, short, none, Receiving, 0, Some("--mtu 1280")),
        (true, true, None, none, Receiving, 0, None),
        (false, true, None, none, Receiving, 0, Some("does not arrive")),
        (false, false, None, none, Receiving, 0, None),
        (false, true, None, disk, Receiving, 0, Some("its disk")),
        (false, true, None, none, Receiving, 1000, None),
        // The manifest comes before content, and a member with the manifest may compare slowly.
        (true, false, short, none, Joined, 0, Some("--mtu 1280")),
        (true, false, None, none, Joined, 0, None),
        (false, false, None, none, Joined, 100, Some("does not arrive")),
        (false, true, None, none, Joined, 199, Some("does not arrive")),
        (false, true, None, none, Joined, 200, None),
    ] {
        let mut members = Members::default();
        let first = |bytes| MemberMessage { bytes, ..message(1, claim) };
        members.take_message(at(0), NodeId(1), false, first(0)).unwrap();
        members.take_message(at(0), NodeId(1), false, first(bytes)).unwrap();
        say(&mut members, 0, got(2, 0));
        members.note_reports(1, load, None, None);
        members.note_path(at(0), 1, path);
        for s in 1..60 {
            if moving {
                say(&mut members, s, got(2, s));
            }
            let sent = Sent { manifest: 200, content: 1000, flows };
            members.stall(at(s), Duration::from_secs(1), limit, sent, 28);
        }
        let all = members.statuses();
        let reason = all.iter().find(|it| it.id == 1 && it.state == MemberState::Failed);
        let reason = reason.map(|it| it.reason.as_str());
        assert_eq!(reason.is_some(), want.is_some(), "{want:?}: {all:?}");
        assert!(want.is_none_or(|want| reason.unwrap().contains(want)), "{reason:?}");
        if want.is_some() {
            while members.answers.pop_front().is_some() {}
            assert!(!members.all[&1].is_settled, "it may ask whether that is true");
            say(&mut members, 61, got(1, 0));
            assert_eq!(members.answers.pop_front().unwrap().1.status, Status::Stalled);
            let failed = MemberMessage { ask: false, ..message(1, Claim::Failed) };
            members.take_message(at(62), NodeId(1), false, failed).unwrap();
            assert!(members.all[&1].is_settled);
        }
    }
}

#[test]
fn who_has_taken_all_that_was_sent_waits_for_who_lacks_some() {
    for (probing, first_s) in [(false, 30), (true, 60)] {
        let mut members = Members::default();
        let got = |id, bytes| MemberMessage { bytes, ..message(id, Claim::Receiving) };
        let mut ends = Vec::new();
        for s in 0..200 {
            for (id, bytes, taken) in [(1, 500, 64), (2, 0, 1)] {
                members.take_message(at(s), NodeId(id), false, got(id.into(), bytes)).unwrap();
                members.note_taken(id.into(), taken, 64);
            }
            if probing {
                members.may_probe(at(s), 2);
            }
            let sent = Sent { manifest: 10, content: 1000, flows: true };
            members.stall(at(s), Duration::from_secs(1), Duration::from_secs(30), sent, 28);
            let failed =
                members.statuses().into_iter().filter(|it| it.state == MemberState::Failed);
            if failed.count() > ends.len() {
                ends.push(s);
            }
        }
        assert_eq!(ends, [first_s, first_s + 30], "the one behind, and later the other");
    }
}

#[test]
fn time_without_a_manifest_is_no_time_without_content() {
    let mut members = Members::default();
    let mut failed_at = None;
    for s in 0..100 {
        let claim = if s < 25 { Claim::Joined } else { Claim::Receiving };
        say(&mut members, s, message(1, claim));
        let sent = Sent { manifest: 10, content: 1000, flows: s >= 25 };
        let limit = Duration::from_secs(30);
        let failed = members.stall(at(s), Duration::from_secs(1), limit, sent, 28);
        failed_at = failed_at.or((!failed.is_empty()).then_some(s));
    }
    assert_eq!(failed_at, Some(25 + 30));
}

#[test]
fn a_manifest_that_comes_slowly_is_waited_for() {
    let mut members = Members::default();
    let limit = Duration::from_secs(30);
    for s in 0..200 {
        let bytes = (s / 20).min(5);
        let joined = MemberMessage { bytes, ..message(1, Claim::Joined) };
        members.take_message(at(s), NodeId(1), false, joined).unwrap();
        let sent = Sent { manifest: 10, content: 1000, flows: false };
        let given_up = !members.stall(at(s), Duration::from_secs(1), limit, sent, 28).is_empty();
        assert_eq!(given_up, s == 130, "{s} s");
        assert_eq!(members.statuses()[0].bytes, 0, "no content");
    }
}

#[test]
fn a_number_that_another_host_made_up_mutes_no_member() {
    let home = NodeId(1);
    let numbered = |number| MemberMessage { number, ..message(1, Claim::Receiving) };
    for ahead in [LEAD_MAX as u32 + 1, 1 << 30, i32::MAX as u32, 1 << 31] {
        let mut members = Members::default();
        members.take_message(at(0), home, false, numbered(2)).unwrap();
        let forged = members.take_message(at(1), home, false, numbered(2 + ahead));
        assert_eq!(forged, Err(BadInput::Duplicate), "{ahead}");
        assert!(members.take_message(at(1), home, false, numbered(3)).is_ok(), "{ahead}");
    }
    let mut members = Members::default();
    members.take_message(at(0), home, false, numbered(2)).unwrap();
    members.take_message(at(1), home, false, numbered(2 + LEAD_MAX as u32)).unwrap();
    while members.answers.pop_front().is_some() {}
    assert_eq!(members.take_message(at(1), home, false, numbered(3)), Err(BadInput::Duplicate));
    assert_eq!(members.answers.pop_front().unwrap().1.number, 2 + LEAD_MAX as u32);
    for s in 2..6 {
        members.standing_of(at(s), home, None, false);
        assert!(members.take_message(at(s), home, false, numbered(3)).is_err(), "{s} s");
    }
    members.standing_of(at(6), home, None, false);
    assert!(members.take_message(at(6), home, false, numbered(3)).is_ok());
}

#[test]
fn a_member_that_long_packets_do_not_reach_is_served_when_the_others_are_done() {
    let short = Some(PathLimit { arrives: 1252, sent: 1472 });
    for end in [Claim::Done, Claim::Leaving, Claim::Failed] {
        let mut members = Members::default();
        for id in [1, 2] {
            say(&mut members, 0, message(id, Claim::Receiving));
        }
        members.note_path(at(1), 1, short);
        let standing = |members: &mut Members| members.standing_of(at(1), NodeId(1), None, false);
        assert_eq!(standing(&mut members), Standing::Unserved);
        say(&mut members, 1, message(2, end));
        assert_eq!(standing(&mut members), Standing::Member, "{end:?}");
        say(&mut members, 1, message(3, Claim::Joined));
        assert_eq!(standing(&mut members), Standing::Unserved);
        members.defer(NodeId(103));
        assert_eq!(standing(&mut members), Standing::Member);
        members.recall();
        assert_eq!(standing(&mut members), Standing::Unserved);
        members.remove(3);
        assert_eq!(standing(&mut members), Standing::Member);
        members.note_path(at(1), 1, None);
        assert_eq!((standing(&mut members), members.reached), (Standing::Member, 1));
    }
}

#[test]
fn packets_that_leave_together_are_lost_where_a_member_says_so_for_some_time() {
    let whole = Some(PathLimit { arrives: 1472, sent: 1472 });
    let joined = || {
        let mut members = Members::default();
        say(&mut members, 0, message(1, Claim::Receiving));
        members
    };
    // Many messages at one moment come from one host.
    let mut members = joined();
    for _ in 0..100 {
        members.note_path(at(1), 1, whole);
    }
    assert!(!members.is_whole_lost());
    let mut members = joined();
    for s in 1..100 {
        members.note_path(at(s), 1, whole);
        members.note_path(at(s), 1, None);
        assert!(!members.is_whole_lost(), "{s} s");
    }
    for end in [Claim::Done, Claim::Leaving] {
        let mut members = joined();
        for s in 1..=3 {
            assert!(!members.is_whole_lost(), "{s} s");
            members.note_path(at(s), 1, whole);
        }
        members.note_path(at(4), 1, None);
        assert!(members.is_whole_lost());
        say(&mut members, 5, message(1, end));
        assert!(!members.is_whole_lost(), "{end:?}");
    }
}

#[test]
fn each_of_many_members_is_told_that_the_object_is_given_up() {
    let mut members = Members::default();
    let count = 2 * ANSWERS_MAX as u64 + 500;
    for id in 0..count {
        say(&mut members, 0, message(id, Claim::Leaving));
        say(&mut members, 0, message(id, Claim::Receiving));
    }
    while members.answers.pop_front().is_some() {}
    let mut told = BTreeMap::new();
    for _ in 0..6 {
        members.give_up();
        while let Some((_, answer)) = members.answers.pop_front() {
            assert_eq!(answer.status, Status::GivenUp);
            *told.entry(answer.id).or_insert(0) += 1;
        }
    }
    assert_eq!(told.len() as u64, count);
    assert!(told.values().all(|times| [2, 3].contains(times)), "in turn");
}

#[test]
fn a_member_asks_for_probes_once_in_half_a_round_while_it_is_served() {
    let mut members = Members::default();
    assert!(!members.may_probe(at(0), 1), "nobody knows it");
    say(&mut members, 0, message(1, Claim::Receiving));
    let ms = |ms| at(0) + Duration::from_millis(ms);
    let accepted = (0..7000).filter(|at| members.may_probe(ms(*at), 1)).count();
    assert_eq!(accepted, 20);
    say(&mut members, 8, message(1, Claim::Done));
    assert!(!members.may_probe(at(9), 1));
}
