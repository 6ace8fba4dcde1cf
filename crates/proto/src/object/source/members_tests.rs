//! Tests of the source's members: joins, names, silence, and floods of forged joins.

use super::*;
use crate::world::s as at;
use alloc::string::ToString;

fn message(id: u64, claim: Claim) -> MemberMessage {
    MemberMessage {
        claim,
        ask: true,
        loss: 0,
        number: 1,
        id,
        reporter: NodeId(id as u32 + 100),
        bytes: 0,
        name: "n".to_string(),
        reason: String::new(),
        identity: None,
    }
}

#[test]
fn only_who_joined_is_heard_and_only_in_its_own_name() {
    let mut members = Members::default();
    let (node, reporter) = (NodeId(1), Some(NodeId(101)));
    assert_eq!(members.hear(at(0), node, reporter, false), Standing::Unknown);
    for id in [1, 2] {
        let joined = members.take(at(0), NodeId(id as u32), message(id, Claim::Joined));
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
        let got = members.hear(at(1), NodeId(from), reporter.map(NodeId), element);
        assert_eq!(got, want, "{case}");
    }
    members.defer(NodeId(101));
    assert_eq!(members.hear(at(1), node, reporter, false), Standing::Unserved);
    assert!(members.recall());
    members.take(at(2), node, message(1, Claim::Leaving)).unwrap();
    assert_eq!(members.hear(at(2), node, reporter, false), Standing::Unknown);
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
        ("moved", Claim::Receiving, numbered(Claim::Receiving, 2), other, 5, Ok(())),
        ("old, moved", Claim::Receiving, numbered(Claim::Joined, 1), other, 5, foreign),
        ("old", Claim::Done, numbered(Claim::Joined, 1), home, 1, Err(BadInput::Duplicate)),
        ("done, replayed", Claim::Done, numbered(Claim::Done, 2), other, 50, foreign),
        ("done, moved, new", Claim::Done, numbered(Claim::Joined, 3), other, 50, Ok(())),
    ] {
        let mut members = Members::default();
        members.take(at(0), home, numbered(last, 2)).unwrap();
        let taken = members.take(at(after_s), from, said);
        assert_eq!(taken.map(|_| ()), want, "{case}");
        let node = members.statuses()[0].node;
        assert_eq!(node, if want.is_ok() { from } else { home }, "{case}");
        let MemberStatus { home: joined_at, home_heard, .. } = members.statuses()[0].clone();
        let spoke = want.is_ok() && from == home;
        let heard = at(if spoke { after_s } else { 0 });
        assert_eq!((joined_at, home_heard), (home, heard), "{case}");
    }
}

#[test]
fn nobody_takes_the_name_of_another_in_reports() {
    let mut members = Members::default();
    let mut claims = |id, s| {
        let thief = MemberMessage { reporter: NodeId(101), ..message(id, Claim::Joined) };
        members.take(at(s), NodeId(id as u32), thief).unwrap();
        members.hear(at(s), NodeId(1), Some(NodeId(101)), false)
    };
    assert_eq!(claims(1, 0), Standing::Member);
    assert_eq!(claims(2, 1), Standing::Member);
    // Who was started again in its place has it once the first is silent.
    assert_eq!(members.remove(1), Some(NodeId(101)));
    assert_eq!((members.len(), members.counts.iter().sum::<usize>()), (1, 1));
    let again = MemberMessage { reporter: NodeId(101), ..message(2, Claim::Joined) };
    members.take(at(2), NodeId(2), again).unwrap();
    let standing = members.hear(at(2), NodeId(2), Some(NodeId(101)), false);
    assert_eq!(standing, Standing::Member);
}

#[test]
fn who_is_silent_is_lost_and_who_is_done_may_be_silent() {
    let mut members = Members::default();
    for (id, claim) in [(1, Claim::Joined), (2, Claim::Done), (3, Claim::Receiving)] {
        members.take(at(0), NodeId(id as u32), message(id, claim)).unwrap();
    }
    members.hear(at(9), NodeId(3), None, false);
    assert_eq!(members.lose_silent(at(5)), [NodeId(101)]);
    assert_eq!(members.count(&[MemberState::Lost, MemberState::Done]), 2);
    assert_eq!(members.active(), 1);
}

#[test]
fn who_came_later_holds_the_end_while_it_gets_on_and_with_names_nobody_else_does() {
    let give_up = Duration::from_secs(30);
    let mut members = Members::default();
    let say = |members: &mut Members, s: u64, id: u64, bytes: u64| {
        let name = if id == 1 { "one" } else { "other" }.to_string();
        let said = MemberMessage { bytes, name, ..message(id, Claim::Receiving) };
        members.take(at(s), NodeId(id as u32), said).unwrap();
    };
    say(&mut members, 0, 1, 0);
    members.begin();
    let (named, nobody) = (BTreeSet::from(["one".to_string()]), BTreeSet::new());
    assert!(members.hold_the_end(at(500), give_up, &nobody), "it was there");
    assert!(members.hold_the_end(at(500), give_up, &named));
    members.take(at(1), NodeId(1), message(1, Claim::Done)).unwrap();
    for s in 1..100 {
        say(&mut members, s, 2, 0);
        assert_eq!(members.hold_the_end(at(s), give_up, &nobody), s < 31, "{s}");
        assert!(!members.hold_the_end(at(s), give_up, &named));
    }
    say(&mut members, 100, 2, 70);
    assert!(members.hold_the_end(at(129), give_up, &nobody));
    assert!(!members.hold_the_end(at(130), give_up, &nobody));
}

/// Were each looked up among all others, this would take a hundred times as long as all other tests
/// of this file.
#[test]
fn all_may_bear_one_name_of_which_one_is_done() {
    let mut members = Members::default();
    let last = MEMBERS_MAX as u64 - 1;
    for id in 0..=last {
        let claim = if id == last { Claim::Done } else { Claim::Receiving };
        let said = MemberMessage { name: "one".to_string(), ..message(id, claim) };
        members.take(at(0), NodeId(id as u32), said).unwrap();
    }
    let [one, both] = [&["one"][..], &["one", "two"]]
        .map(|names| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>());
    for _ in 0..10 {
        for names in [&one, &both] {
            // A member may be another one, started again: which shows once it is lost.
            assert!(members.hold_the_end(at(29), Duration::from_secs(30), names));
            assert!(members.hold_the_end(at(30), Duration::from_secs(30), names));
        }
    }
    members.lose_silent(at(1));
    for names in [&one, &both] {
        assert!(!members.hold_the_end(at(31), Duration::from_secs(30), names));
    }
}

#[test]
fn members_that_were_invented_get_a_share_of_what_is_sent() {
    let mut members = Members::default();
    for id in 0..10_000 {
        members.take(at(0), NodeId(id as u32), message(id, Claim::Receiving)).unwrap();
    }
    assert!(!members.is_unproven(NodeId(7)), "nobody has got on yet");
    let got = MemberMessage { bytes: 1000, ..message(7, Claim::Receiving) };
    members.take(at(1), NodeId(7), got).unwrap();
    assert!(!members.is_unproven(NodeId(7)) && members.is_unproven(NodeId(8)));
    // They ask for a block each time, and are sent what they get.
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
        members.take(at(0), NodeId(id as u32), message(id, Claim::Joined)).unwrap();
    }
    let late = message(1 << 40, Claim::Joined);
    assert_eq!(members.take(at(0), NodeId(1 << 20), late.clone()), Err(BadInput::TableFull));
    assert_eq!((members.len(), members.answers.len()), (MEMBERS_MAX, ANSWERS_MAX));
    members.take(at(1), NodeId(5), message(5, Claim::Leaving)).unwrap();
    assert!(members.take(at(1), NodeId(1 << 20), late).is_ok(), "in the place of one who left");
    assert_eq!(members.len(), MEMBERS_MAX);
    assert_eq!(members.counts.iter().sum::<usize>(), MEMBERS_MAX);
}
