//! Tests of the search for a head.

use std::vec;

use super::*;
use crate::tram::settings::HeadRole;
use crate::tram::wire::HeadState;
use crate::world::{at, ms};

fn advertisement(state: HeadState, level: u8) -> Advertisement {
    let (members, members_max, low) = (0, 5, 1);
    let lan = false;
    Advertisement { state, role: HeadRole::Eager, level, members, members_max, low, lan, name: 0 }
}

fn heard(parent: &mut Parent, now: u64, node: u32, ttl: u8, level: u8) {
    let advertisement = advertisement(HeadState::Accepting, level);
    parent.on_advertisement(
        at(now),
        ((NodeId(node), node.into(), ttl), false),
        &advertisement,
        HEAD,
    );
}

const HEAD: Seeker =
    Seeker { may_be_head: true, below: None, wants: 1, place: (2, 60), waits: false };

fn parent() -> Parent {
    Parent::new(&TramSettings::default(), None)
}

#[test]
fn after_three_rounds_the_nearest_head_is_asked() {
    let mut parent = parent();
    parent.on_session(at(0), ms(2000));
    for (now, node, ttl, level) in
        [(10, 1, 4, 1), (20, 2, 3, 3), (30, 3, 3, 2), (40, 4, 3, 2), (50, 1, 6, 1)]
    {
        heard(&mut parent, now, node, ttl, level);
    }
    for now in [2000, 4000] {
        assert_eq!(parent.next_timeout(), Some(at(now)));
        parent.on_timeout(at(now), HEAD);
        assert_eq!(parent.poll(), None);
    }
    parent.on_timeout(at(6000), HEAD);
    assert_eq!(parent.poll(), None, "it backs off");
    assert!(parent.next_timeout() <= Some(at(9000)));
    parent.on_timeout(at(9000), HEAD);
    assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(3), distance: 3 }));
    assert_eq!(parent.on_accept(at(9001), NodeId(2), 3), News::Nothing, "it was not asked");
    assert_eq!(parent.on_accept(at(9001), NodeId(3), 2), News::Joined { before: None });
    assert_eq!(parent.bound.map(|bound| (bound.node, bound.level)), Some((NodeId(3), 2)));
}

#[test]
fn a_head_than_which_none_can_be_nearer_is_asked_after_one_round() {
    let mut parent = parent();
    parent.on_session(at(0), ms(2000));
    heard(&mut parent, 10, 1, 2, 1);
    parent.on_timeout(at(2000), HEAD);
    assert_eq!(parent.poll(), None, "it backs off");
    parent.on_timeout(at(5000), HEAD);
    assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(1), distance: 2 }));
}

#[test]
fn whoever_has_members_goes_by_levels_and_to_nobody_below_it() {
    let mut parent = parent();
    parent.on_session(at(0), ms(1000));
    let busy = Seeker { below: Some(4), ..HEAD };
    for (node, ttl, level) in [(1, 9, 1), (2, 1, 3), (3, 1, 4)] {
        let heard = advertisement(HeadState::Accepting, level);
        parent.on_advertisement(at(1), ((NodeId(node), 1, ttl), false), &heard, busy);
    }
    for now in [1000, 2000, 3000, 4500] {
        parent.on_timeout(at(now), busy);
    }
    assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(1), distance: 9 }));
    assert!(parent.candidates.known.iter().all(|candidate| candidate.node != NodeId(3)));
}

#[test]
fn where_nobody_advertises_rings_grow_until_somebody_answers() {
    let mut parent = parent();
    parent.on_session(at(0), Duration::ZERO);
    let mut rings = std::vec::Vec::new();
    for _ in 0..4 {
        let Some(Step::Solicit { ttl, .. }) = parent.poll() else { panic!("{parent:?}") };
        rings.push(ttl);
        let now = parent.next_timeout().unwrap();
        parent.on_timeout(now, HEAD);
    }
    assert!(rings.is_sorted() && rings[0] < rings[3], "{rings:?}");
    parent.poll();
    heard(&mut parent, 2001, 8, 3, 2);
    let now = parent.next_timeout().unwrap();
    parent.on_timeout(now, HEAD);
    assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(8), distance: 3 }));
}

#[test]
fn a_head_that_does_not_answer_or_refuses_is_left_for_the_next() {
    let mut parent = parent();
    parent.on_session(at(0), Duration::ZERO);
    parent.poll();
    for node in [1, 2, 3] {
        heard(&mut parent, 1, node, node as u8, 1);
    }
    let mut asked = std::vec::Vec::new();
    for _ in 0..BIND_TRIES {
        let now = parent.next_timeout().unwrap();
        parent.on_timeout(now, HEAD);
        asked.push(parent.poll());
    }
    assert!(asked.iter().all(|step| *step == Some(Step::Bind { to: NodeId(1), distance: 1 })));
    let now = parent.next_timeout().unwrap();
    parent.on_timeout(now, HEAD);
    assert!(matches!(parent.poll(), Some(Step::Solicit { .. })), "are the others there?");
    for node in [2, 3] {
        heard(&mut parent, now.as_nanos() / 1_000_000, node, node as u8, 1);
    }
    let now = parent.next_timeout().unwrap();
    parent.on_timeout(now, HEAD);
    assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(2), distance: 2 }));
    assert_eq!(parent.on_reject(now, NodeId(2), HEAD), News::Nothing);
    assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(3), distance: 3 }));
    assert_eq!(parent.on_reject(now, NodeId(3), HEAD), News::Nothing);
    assert!(matches!(parent.poll(), Some(Step::Solicit { .. })), "nobody is left");
}

#[test]
fn a_head_that_advertises_itself_and_does_not_answer_comes_after_all_others() {
    let mut parent = parent();
    parent.on_session(at(0), ms(500));
    let farther = Step::Bind { to: NodeId(2), distance: 2 };
    let mut asked = std::vec::Vec::new();
    let mut now = at(0);
    while asked.last() != Some(&farther) && asked.len() < 10 {
        now = parent.next_timeout().unwrap();
        for (node, distance) in [(1, 1), (2, 2)] {
            heard(&mut parent, now.as_nanos() / 1_000_000, node, distance, 2);
        }
        parent.on_timeout(now, HEAD);
        asked.extend(parent.poll());
    }
    let nearer = Step::Bind { to: NodeId(1), distance: 1 };
    let tries = BIND_TRIES as usize;
    assert_eq!(asked, [vec![nearer; tries], vec![farther]].concat());
    let silent_at = now.as_nanos().div_ceil(1_000_000);
    parent.on_accept(at(silent_at), NodeId(2), 2);
    heard(&mut parent, silent_at + 1000, 1, 1, 2);
    assert_eq!(parent.search, Search::Idle, "nor does it attract whoever has a head");
    heard(&mut parent, silent_at + 60_000, 1, 1, 2);
    assert_ne!(parent.search, Search::Idle, "after a while it is asked again");
}

#[test]
fn a_head_that_falls_silent_is_asked_and_then_given_up() {
    let mut parent = parent();
    parent.on_session(at(0), Duration::ZERO);
    heard(&mut parent, 1, 1, 1, 1);
    let now = parent.next_timeout().unwrap();
    parent.on_timeout(now, HEAD);
    parent.on_accept(now, NodeId(1), 1);
    parent.on_heard(at(5000), NodeId(1), None);
    heard(&mut parent, 5001, 2, 1, 1);
    let mut asked = 0;
    let lost_at = loop {
        let now = parent.next_timeout().unwrap();
        match parent.on_timeout(now, HEAD) {
            News::Lost => break now,
            _ => asked += u32::from(parent.poll() == Some(Step::AskHello)),
        }
    };
    let settings = TramSettings::default();
    assert_eq!(parent.bound, None);
    assert_eq!(asked, settings.hellos_missed_max);
    let silence = settings.hello_interval * u64::from(2 + settings.hellos_missed_max);
    assert!(lost_at.since(at(5000)) >= silence, "{lost_at:?}");
    assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(2), distance: 1 }));
}
#[test]
fn a_nearer_head_is_joined_before_the_other_is_left() {
    let mut parent = parent();
    parent.on_session(at(0), ms(1000));
    heard(&mut parent, 1, 1, 6, 1);
    while parent.bound.is_none() {
        let now = parent.next_timeout().unwrap();
        parent.on_timeout(now, HEAD);
        if matches!(parent.poll(), Some(Step::Bind { .. })) {
            parent.on_accept(now, NodeId(1), 1);
        }
    }
    heard(&mut parent, 4000, 2, 6, 2);
    let late = Advertisement { low: 50, ..advertisement(HeadState::Accepting, 2) };
    parent.on_advertisement(at(4000), ((NodeId(3), 3, 2), false), &late, HEAD);
    heard(&mut parent, 4000, 70, 2, 2);
    assert_eq!(parent.search, Search::Idle);
    heard(&mut parent, 4001, 4, 4, 2);
    heard(&mut parent, 4500, 5, 3, 2);
    for node in [3, 70] {
        parent.candidates.forget(NodeId(node));
    }
    let now = parent.timers.next().unwrap();
    parent.on_timeout(at(5001), HEAD);
    assert!(now <= at(5001));
    parent.on_timeout(at(6501), HEAD);
    assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(5), distance: 3 }));
    assert_eq!(parent.bound.map(|bound| bound.node), Some(NodeId(1)), "until then it stays");
    let joined = parent.on_accept(at(6510), NodeId(5), 2);
    assert_eq!(joined, News::Joined { before: Some(NodeId(1)) });
}

#[test]
fn a_head_that_was_given_is_asked_first_and_kept_until_it_is_lost() {
    let mut parent = Parent::new(&TramSettings::default(), Some(GivenHead::Node(NodeId(5))));
    parent.on_session(at(0), ms(500));
    let asks = Some(Step::Bind { to: NodeId(5), distance: 32 });
    assert_eq!(parent.poll(), asks);
    heard(&mut parent, 1, 1, 2, 1);
    parent.on_reject(at(10), NodeId(5), HEAD);
    assert_eq!(parent.poll(), None, "it has no head itself yet");
    let now = parent.next_timeout().unwrap();
    parent.on_timeout(now, HEAD);
    assert_eq!(parent.poll(), asks);
    assert_eq!(parent.on_accept(now, NodeId(5), 2), News::Joined { before: None });
    heard(&mut parent, 2000, 2, 1, 1);
    assert_eq!(parent.search, Search::Idle, "a nearer one changes nothing");
    assert_eq!(parent.on_reject(at(3000), NodeId(5), HEAD), News::Lost);
    assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(2), distance: 1 }));
}

#[test]
fn a_head_that_was_given_and_never_answers_is_left_for_others() {
    let mut parent = Parent::new(&TramSettings::default(), Some(GivenHead::Node(NodeId(5))));
    parent.on_session(at(0), ms(500));
    let mut asked = std::collections::BTreeSet::new();
    for _ in 0..2 * given::TRIES + 10 {
        let now = parent.next_timeout().unwrap();
        heard(&mut parent, now.as_nanos() / 1_000_000, 1, 2, 1);
        parent.on_timeout(now, HEAD);
        if let Some(Step::Bind { to, .. }) = parent.poll() {
            asked.insert(to);
        }
    }
    assert_eq!(asked, [NodeId(1), NodeId(5)].into());
}

#[test]
fn a_head_that_served_nothing_comes_after_all_others_for_a_minute() {
    let mut parent = parent();
    parent.on_session(at(0), Duration::ZERO);
    heard(&mut parent, 1, 1, 1, 1);
    parent.on_timeout(parent.next_timeout().unwrap(), HEAD);
    parent.on_accept(at(600), NodeId(1), 1);
    assert_eq!(parent.on_bad_head(at(9000), HEAD, true), News::Lost);
    let best = |parent: &Parent| parent.best(HEAD).map(|best| best.node);
    assert_eq!(best(&parent), None);
    heard(&mut parent, 9001, 1, 1, 1);
    assert_eq!(best(&parent), Some(NodeId(1)), "it is the only one");
    heard(&mut parent, 9002, 2, 4, 1);
    assert_eq!(best(&parent), Some(NodeId(2)), "though it is further away");
    heard(&mut parent, 70_000, 1, 1, 1);
    assert_eq!(best(&parent), Some(NodeId(1)));
}

#[test]
fn after_a_head_that_does_not_answer_one_that_still_advertises_is_asked() {
    let mut parent = parent();
    parent.on_session(at(0), ms(500));
    // Forged packets in the names of near heads, and one head that goes on.
    (10..18).for_each(|node| heard(&mut parent, 1, node, 1, 1));
    let mut asked = vec![];
    for round in 1..60 {
        heard(&mut parent, 500 * round - 1, 1, 8, 1);
        parent.on_timeout(at(500 * round), HEAD);
        if let Some(Step::Bind { to, .. }) = parent.poll() {
            asked.push(to);
        }
        if asked.last() == Some(&NodeId(1)) {
            break;
        }
    }
    assert_eq!(asked, [NodeId(10), NodeId(1)], "one request is enough");
}

#[test]
fn after_a_head_that_does_not_answer_silent_ones_are_called_before_they_are_asked() {
    for is_there in [true, false] {
        let mut parent = parent();
        parent.on_session(at(0), ms(500));
        (10..18).for_each(|node| heard(&mut parent, 1, node, 1, 1));
        let (mut asked, mut calls) = (vec![], 0);
        while asked.len() < 4 && asked.last() != Some(&NodeId(1)) {
            let now = parent.next_timeout().unwrap();
            parent.on_timeout(now, HEAD);
            match parent.poll() {
                Some(Step::Bind { to, .. }) => asked.push(to),
                Some(Step::Solicit { .. }) => {
                    calls += 1;
                    if is_there {
                        heard(&mut parent, now.as_nanos() / 1_000_000 + 20, 1, 8, 1);
                    }
                }
                _ => {}
            }
        }
        let first = [NodeId(10); 3];
        match is_there {
            true => assert_eq!((&asked[..3], asked[3], calls), (&first[..], NodeId(1), 1)),
            false => assert_eq!((&asked[..3], asked[3], calls), (&first[..], NodeId(11), 3)),
        }
    }
}

#[test]
fn of_equals_an_eager_head_is_asked_first() {
    let mut parent = parent();
    parent.on_session(at(0), ms(500));
    for (node, role, ttl, level) in
        [(1, HeadRole::Reluctant, 4, 2), (2, HeadRole::Eager, 4, 3), (3, HeadRole::Eager, 6, 2)]
    {
        let said = Advertisement { role, ..advertisement(HeadState::Accepting, level) };
        parent.on_advertisement(at(1), ((NodeId(node), 1, ttl), false), &said, HEAD);
    }
    for now in [500, 1000, 1500, 2250] {
        parent.on_timeout(at(now), HEAD);
    }
    assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(2), distance: 4 }));
}

#[test]
fn who_waits_for_its_lan_asks_nobody_else() {
    let mut parent = parent();
    parent.on_session(at(0), ms(500));
    let waiting = Seeker { waits: true, ..HEAD };
    for round in 1..=6 {
        heard(&mut parent, 500 * round - 1, 1, 4, 1);
        parent.on_timeout(at(500 * round), waiting);
        assert!(!matches!(parent.poll(), Some(Step::Bind { .. })));
    }
    for _ in ["it chooses", "it has backed off"] {
        parent.on_timeout(parent.next_timeout().unwrap(), HEAD);
    }
    assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(1), distance: 4 }));
}

fn by_round_trip() -> Parent {
    let distance = Distance::RoundTrip;
    Parent::new(&TramSettings { distance, ..TramSettings::default() }, None)
}

fn answers(parent: &mut Parent, now: u64, node: u32, level: u8) {
    let said = advertisement(HeadState::Accepting, level);
    let heard = (NodeId(node), node.into(), u8::MAX);
    parent.on_advertisement(at(now), (heard, true), &said, HEAD);
}

fn probed(parent: &mut Parent) -> std::vec::Vec<u32> {
    let all = std::iter::from_fn(|| parent.poll());
    all.map(|step| match step {
        Step::Probe { to } => to.0,
        other => panic!("{other:?}"),
    })
    .collect()
}

#[test]
fn where_multicast_has_no_scope_the_head_of_the_shortest_round_trip_is_asked() {
    let mut parent = by_round_trip();
    parent.on_session(at(0), ms(500));
    for node in 1..=3 {
        heard(&mut parent, u64::from(node), node, 2, 2);
    }
    for round in 1..=3 {
        parent.on_timeout(at(500 * round), HEAD);
    }
    assert_eq!(probed(&mut parent), [1, 2, 3]);
    answers(&mut parent, 1502, 2, 2);
    answers(&mut parent, 1540, 1, 1);
    heard(&mut parent, 1600, 2, 9, 2);
    for now in [2000, 2750] {
        parent.on_timeout(at(now), HEAD);
    }
    assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(2), distance: 32 }));
    parent.on_accept(at(2752), NodeId(2), 2);
    heard(&mut parent, 3000, 4, 2, 1);
    heard(&mut parent, 3001, 4, 2, 1);
    assert_eq!(probed(&mut parent), [4]);
    answers(&mut parent, 3000, 4, 1);
    for _ in ["it chooses", "it has backed off"] {
        parent.on_timeout(parent.timers.next().unwrap(), HEAD);
    }
    assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(4), distance: 32 }));
}

#[test]
fn where_heads_only_answer_round_trips_are_known_at_once() {
    let mut parent = by_round_trip();
    parent.on_session(at(0), Duration::ZERO);
    assert_eq!(parent.poll(), Some(Step::Solicit { ttl: 1, name: 0 }));
    for (now, node, level) in [(3, 1, 2), (30, 2, 1)] {
        let said = advertisement(HeadState::Accepting, level);
        parent.on_advertisement(at(now), ((NodeId(node), 1, 1), true), &said, HEAD);
    }
    parent.on_timeout(parent.next_timeout().unwrap(), HEAD);
    assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(1), distance: 32 }));
}

fn named() -> Parent {
    Parent::new(&TramSettings::default(), Some(GivenHead::Named(5)))
}

fn says_its_name(parent: &mut Parent, now: u64, node: u32, name: u64) {
    let said = Advertisement { name, ..advertisement(HeadState::NotAccepting, 0) };
    parent.on_advertisement(at(now), ((NodeId(node), node.into(), 32), true), &said, HEAD);
}

#[test]
fn a_head_that_is_given_by_name_is_called_and_asked_as_soon_as_it_is_heard() {
    let mut parent = named();
    parent.on_session(at(0), ms(500));
    let call = Some(Step::Solicit { ttl: 32, name: 5 });
    let ask = |node| Some(Step::Bind { to: NodeId(node), distance: 32 });
    assert_eq!(parent.poll(), call);
    heard(&mut parent, 10, 1, 1, 1);
    says_its_name(&mut parent, 20, 2, 6);
    parent.on_timeout(at(499), HEAD);
    assert_eq!(parent.poll(), None);
    parent.on_timeout(at(500), HEAD);
    assert_eq!(parent.poll(), call);
    says_its_name(&mut parent, 510, 3, 5);
    assert_eq!(parent.next_timeout(), Some(at(510)));
    parent.on_timeout(at(510), HEAD);
    assert_eq!(parent.poll(), ask(3));
    assert_eq!(parent.on_reject(at(520), NodeId(3), HEAD), News::Nothing);
    parent.on_timeout(at(1020), HEAD);
    assert_eq!(parent.poll(), ask(3));
    says_its_name(&mut parent, 1030, 4, 5);
    parent.on_timeout(at(3020), HEAD);
    parent.on_timeout(at(3520), HEAD);
    assert_eq!(parent.poll(), call);
    says_its_name(&mut parent, 3530, 4, 5);
    parent.on_timeout(at(3530), HEAD);
    assert_eq!(parent.poll(), ask(4));
    assert_eq!(parent.on_accept(at(3540), NodeId(4), 2), News::Joined { before: None });
}

#[test]
fn whose_head_is_never_heard_or_lacks_what_is_wanted_finds_another() {
    let mut parent = named();
    parent.on_session(at(0), ms(500));
    let mut calls = 0;
    let mut now = 0;
    while parent.poll() == Some(Step::Solicit { ttl: 32, name: 5 }) {
        (calls, now) = (calls + 1, now + 500);
        assert!(now < 60_000, "for ever");
        parent.on_timeout(at(now), HEAD);
    }
    assert!((30..=60).contains(&calls), "{calls}");
    heard(&mut parent, now, 1, 4, 1);
    let mut asked = None;
    while asked.is_none() && now < 60_000 {
        now += 500;
        parent.on_timeout(at(now), HEAD);
        asked = parent.poll();
    }
    assert_eq!(asked, Some(Step::Bind { to: NodeId(1), distance: 4 }));

    let mut parent = named();
    parent.on_session(at(0), ms(500));
    says_its_name(&mut parent, 10, 3, 5);
    parent.on_timeout(at(10), HEAD);
    assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(3), distance: 32 }));
    parent.on_lacking();
    assert_eq!(parent.on_reject(at(20), NodeId(3), HEAD), News::Nothing);
    heard(&mut parent, 30, 1, 4, 1);
    let asked = (1..60).find_map(|round| {
        parent.on_timeout(at(20 + 500 * round), HEAD);
        parent.poll()
    });
    assert_eq!(asked, Some(Step::Bind { to: NodeId(1), distance: 4 }));
}
