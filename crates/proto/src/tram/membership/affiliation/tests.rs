//! Tests of the search for a head.

use std::vec;

use super::*;
use crate::tram::settings::HeadRole;
use crate::tram::wire::HeadState;
use crate::world::{at, ms};

const ACCEPTING: Advertisement = Advertisement {
    state: HeadState::Accepting,
    role: HeadRole::Eager,
    level: 1,
    members: 0,
    members_max: 5,
    low: 1,
    lan: false,
    name: 0,
};

const HEAD: Seeker = Seeker {
    may_be_head: true,
    level_with_members: None,
    first_missing: 1,
    level_and_id: (2, 60),
    awaits_lan_head: false,
};

fn hear(affiliation: &mut Affiliation, now: u64, (node, ttl): (u32, u8), said: &Advertisement) {
    affiliation.on_advertisement(at(now), ((NodeId(node), node.into(), ttl), false), said, HEAD);
}

fn advertise(affiliation: &mut Affiliation, now: u64, node: u32, ttl: u8, level: u8) {
    hear(affiliation, now, (node, ttl), &Advertisement { level, ..ACCEPTING });
}

/// Affiliation in a session whose heads advertise at an interval in milliseconds; 0 for none.
fn begun(interval: u64) -> Affiliation {
    begun_with(&TramSettings::default(), None, interval)
}

fn begun_with(settings: &TramSettings, head: Option<GivenHead>, interval: u64) -> Affiliation {
    let mut affiliation = Affiliation::new(settings, head);
    affiliation.on_session(at(0), ms(interval));
    affiliation
}

/// Waits for the next timeout. Returns its time.
fn wait(affiliation: &mut Affiliation) -> Time {
    let now = affiliation.next_timeout().unwrap();
    affiliation.on_timeout(now, HEAD);
    now
}

fn millis(time: Time) -> u64 {
    time.as_nanos() / 1_000_000
}

fn bind(node: u32, distance: u8) -> Option<Request> {
    Some(Request::Bind { to: NodeId(node), distance })
}

#[test]
fn after_three_rounds_the_nearest_head_is_asked() {
    let mut affiliation = begun(2000);
    for (now, node, ttl, level) in
        [(10, 1, 4, 1), (20, 2, 3, 3), (30, 3, 3, 2), (40, 4, 3, 2), (50, 1, 6, 1)]
    {
        advertise(&mut affiliation, now, node, ttl, level);
    }
    for now in [2000, 4000] {
        assert_eq!(affiliation.next_timeout(), Some(at(now)));
        affiliation.on_timeout(at(now), HEAD);
        assert_eq!(affiliation.poll(), None);
    }
    affiliation.on_timeout(at(6000), HEAD);
    assert_eq!(affiliation.poll(), None, "it backs off");
    assert!(affiliation.next_timeout() <= Some(at(9000)));
    affiliation.on_timeout(at(9000), HEAD);
    assert_eq!(affiliation.poll(), bind(3, 3));
    let unasked = affiliation.on_accept(at(9001), NodeId(2), 3);
    assert_eq!(unasked, ParentChange::Nothing, "it was not asked");
    let joined = affiliation.on_accept(at(9001), NodeId(3), 2);
    assert_eq!(joined, ParentChange::Joined { previous: None });
    assert_eq!(affiliation.parent.map(|parent| (parent.node, parent.level)), Some((NodeId(3), 2)));
}

#[test]
fn a_head_than_which_none_can_be_nearer_is_asked_after_one_round() {
    let mut affiliation = begun(2000);
    advertise(&mut affiliation, 10, 1, 2, 1);
    affiliation.on_timeout(at(2000), HEAD);
    assert_eq!(affiliation.poll(), None, "it backs off");
    affiliation.on_timeout(at(5000), HEAD);
    assert_eq!(affiliation.poll(), bind(1, 2));
}

#[test]
fn a_receiver_with_members_goes_by_levels_and_to_nobody_below_it() {
    let mut affiliation = begun(1000);
    let busy = Seeker { level_with_members: Some(4), ..HEAD };
    for (node, ttl, level) in [(1, 9, 1), (2, 1, 3), (3, 1, 4)] {
        let heard = Advertisement { level, ..ACCEPTING };
        affiliation.on_advertisement(at(1), ((NodeId(node), 1, ttl), false), &heard, busy);
    }
    for now in [1000, 2000, 3000, 4500] {
        affiliation.on_timeout(at(now), busy);
    }
    assert_eq!(affiliation.poll(), bind(1, 9));
    assert!(affiliation.candidates.known.iter().all(|candidate| candidate.node != NodeId(3)));
}

#[test]
fn where_nobody_advertises_rings_grow_until_somebody_answers() {
    let mut affiliation = begun(0);
    let mut rings = std::vec::Vec::new();
    for _ in 0..4 {
        let Some(Request::Solicit { ttl, .. }) = affiliation.poll() else {
            panic!("{affiliation:?}")
        };
        rings.push(ttl);
        wait(&mut affiliation);
    }
    assert!(rings.is_sorted() && rings[0] < rings[3], "{rings:?}");
    affiliation.poll();
    advertise(&mut affiliation, 2001, 8, 3, 2);
    wait(&mut affiliation);
    assert_eq!(affiliation.poll(), bind(8, 3));
}

#[test]
fn a_head_that_does_not_answer_or_refuses_is_left_for_the_next() {
    let mut affiliation = begun(0);
    affiliation.poll();
    for node in [1, 2, 3] {
        advertise(&mut affiliation, 1, node, node as u8, 1);
    }
    let mut asked = std::vec::Vec::new();
    for _ in 0..BIND_TRIES {
        wait(&mut affiliation);
        asked.push(affiliation.poll());
    }
    assert!(asked.iter().all(|step| *step == bind(1, 1)));
    let now = wait(&mut affiliation);
    assert!(matches!(affiliation.poll(), Some(Request::Solicit { .. })), "are the others there?");
    for node in [2, 3] {
        advertise(&mut affiliation, millis(now), node, node as u8, 1);
    }
    wait(&mut affiliation);
    assert_eq!(affiliation.poll(), bind(2, 2));
    assert_eq!(affiliation.on_reject(now, NodeId(2), HEAD), ParentChange::Nothing);
    assert_eq!(affiliation.poll(), bind(3, 3));
    assert_eq!(affiliation.on_reject(now, NodeId(3), HEAD), ParentChange::Nothing);
    assert!(matches!(affiliation.poll(), Some(Request::Solicit { .. })), "nobody is left");
}

#[test]
fn a_head_that_advertises_itself_and_does_not_answer_comes_after_all_others() {
    let mut affiliation = begun(500);
    let farther = Request::Bind { to: NodeId(2), distance: 2 };
    let mut asked = std::vec::Vec::new();
    let mut now = at(0);
    while asked.last() != Some(&farther) && asked.len() < 10 {
        now = affiliation.next_timeout().unwrap();
        for (node, distance) in [(1, 1), (2, 2)] {
            advertise(&mut affiliation, millis(now), node, distance, 2);
        }
        affiliation.on_timeout(now, HEAD);
        asked.extend(affiliation.poll());
    }
    let nearer = Request::Bind { to: NodeId(1), distance: 1 };
    let tries = BIND_TRIES as usize;
    assert_eq!(asked, [vec![nearer; tries], vec![farther]].concat());
    let silent_at = now.as_nanos().div_ceil(1_000_000);
    affiliation.on_accept(at(silent_at), NodeId(2), 2);
    advertise(&mut affiliation, silent_at + 1000, 1, 1, 2);
    assert_eq!(affiliation.search, Search::Idle, "nor does it attract a receiver that has a head");
    advertise(&mut affiliation, silent_at + 60_000, 1, 1, 2);
    assert_ne!(affiliation.search, Search::Idle, "after a while it is asked again");
}

#[test]
fn a_head_that_falls_silent_is_asked_and_then_given_up() {
    let mut affiliation = begun(0);
    advertise(&mut affiliation, 1, 1, 1, 1);
    let now = wait(&mut affiliation);
    affiliation.on_accept(now, NodeId(1), 1);
    affiliation.on_packet(at(5000), NodeId(1), None);
    advertise(&mut affiliation, 5001, 2, 1, 1);
    let mut asked = 0;
    let lost_at = loop {
        let now = affiliation.next_timeout().unwrap();
        match affiliation.on_timeout(now, HEAD) {
            ParentChange::Lost => break now,
            _ => asked += u32::from(affiliation.poll() == Some(Request::Hello)),
        }
    };
    let settings = TramSettings::default();
    assert_eq!(affiliation.parent, None);
    assert_eq!(asked, settings.hellos_missed_max);
    let silence = settings.hello_interval * u64::from(2 + settings.hellos_missed_max);
    assert!(lost_at.since(at(5000)) >= silence, "{lost_at:?}");
    assert_eq!(affiliation.poll(), bind(2, 1));
}
#[test]
fn a_nearer_head_is_joined_before_the_other_is_left() {
    let mut affiliation = begun(1000);
    advertise(&mut affiliation, 1, 1, 6, 1);
    while affiliation.parent.is_none() {
        let now = wait(&mut affiliation);
        if matches!(affiliation.poll(), Some(Request::Bind { .. })) {
            affiliation.on_accept(now, NodeId(1), 1);
        }
    }
    advertise(&mut affiliation, 4000, 2, 6, 2);
    hear(&mut affiliation, 4000, (3, 2), &Advertisement { low: 50, level: 2, ..ACCEPTING });
    advertise(&mut affiliation, 4000, 70, 2, 2);
    assert_eq!(affiliation.search, Search::Idle);
    advertise(&mut affiliation, 4001, 4, 4, 2);
    advertise(&mut affiliation, 4500, 5, 3, 2);
    for node in [3, 70] {
        affiliation.candidates.forget(NodeId(node));
    }
    let now = affiliation.timers.next().unwrap();
    affiliation.on_timeout(at(5001), HEAD);
    assert!(now <= at(5001));
    affiliation.on_timeout(at(6501), HEAD);
    assert_eq!(affiliation.poll(), bind(5, 3));
    assert!(affiliation.is_parent(NodeId(1)), "until then it stays");
    let joined = affiliation.on_accept(at(6510), NodeId(5), 2);
    assert_eq!(joined, ParentChange::Joined { previous: Some(NodeId(1)) });
}

#[test]
fn a_head_that_was_given_is_asked_first_and_kept_until_it_is_lost() {
    let given = Some(GivenHead::Node(NodeId(5)));
    let mut affiliation = begun_with(&TramSettings::default(), given, 500);
    let asks = bind(5, 32);
    assert_eq!(affiliation.poll(), asks);
    advertise(&mut affiliation, 1, 1, 2, 1);
    affiliation.on_reject(at(10), NodeId(5), HEAD);
    assert_eq!(affiliation.poll(), None, "it has no head itself yet");
    let now = wait(&mut affiliation);
    assert_eq!(affiliation.poll(), asks);
    assert_eq!(affiliation.on_accept(now, NodeId(5), 2), ParentChange::Joined { previous: None });
    advertise(&mut affiliation, 2000, 2, 1, 1);
    assert_eq!(affiliation.search, Search::Idle, "a nearer one changes nothing");
    assert_eq!(affiliation.on_reject(at(3000), NodeId(5), HEAD), ParentChange::Lost);
    assert_eq!(affiliation.poll(), bind(2, 1));
}

#[test]
fn a_head_that_was_given_and_never_answers_is_left_for_others() {
    let given = Some(GivenHead::Node(NodeId(5)));
    let mut affiliation = begun_with(&TramSettings::default(), given, 500);
    let mut asked = std::collections::BTreeSet::new();
    for _ in 0..2 * ASSIGNED_TRIES + 10 {
        let now = affiliation.next_timeout().unwrap();
        advertise(&mut affiliation, millis(now), 1, 2, 1);
        affiliation.on_timeout(now, HEAD);
        if let Some(Request::Bind { to, .. }) = affiliation.poll() {
            asked.insert(to);
        }
    }
    assert_eq!(asked, [NodeId(1), NodeId(5)].into());
}

#[test]
fn a_head_that_served_nothing_comes_after_all_others_for_a_minute() {
    let mut affiliation = begun(0);
    advertise(&mut affiliation, 1, 1, 1, 1);
    wait(&mut affiliation);
    affiliation.on_accept(at(600), NodeId(1), 1);
    assert_eq!(affiliation.on_head_failure(at(9000), HEAD, true), ParentChange::Lost);
    let best = |affiliation: &Affiliation| affiliation.best(HEAD).map(|best| best.node);
    assert_eq!(best(&affiliation), None);
    advertise(&mut affiliation, 9001, 1, 1, 1);
    assert_eq!(best(&affiliation), Some(NodeId(1)), "it is the only one");
    advertise(&mut affiliation, 9002, 2, 4, 1);
    assert_eq!(best(&affiliation), Some(NodeId(2)), "though it is further away");
    advertise(&mut affiliation, 70_000, 1, 1, 1);
    assert_eq!(best(&affiliation), Some(NodeId(1)));
}

#[test]
fn after_a_head_that_does_not_answer_one_that_still_advertises_is_asked() {
    let mut affiliation = begun(500);
    // Forged packets in the names of near heads, and one head that goes on.
    (10..18).for_each(|node| advertise(&mut affiliation, 1, node, 1, 1));
    let mut asked = vec![];
    for round in 1..60 {
        advertise(&mut affiliation, 500 * round - 1, 1, 8, 1);
        affiliation.on_timeout(at(500 * round), HEAD);
        if let Some(Request::Bind { to, .. }) = affiliation.poll() {
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
        let mut affiliation = begun(500);
        (10..18).for_each(|node| advertise(&mut affiliation, 1, node, 1, 1));
        let (mut asked, mut calls) = (vec![], 0);
        while asked.len() < 4 && asked.last() != Some(&NodeId(1)) {
            let now = wait(&mut affiliation);
            match affiliation.poll() {
                Some(Request::Bind { to, .. }) => asked.push(to),
                Some(Request::Solicit { .. }) => {
                    calls += 1;
                    if is_there {
                        advertise(&mut affiliation, millis(now) + 20, 1, 8, 1);
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
    let mut affiliation = begun(500);
    for (node, role, ttl, level) in
        [(1, HeadRole::Reluctant, 4, 2), (2, HeadRole::Eager, 4, 3), (3, HeadRole::Eager, 6, 2)]
    {
        hear(&mut affiliation, 1, (node, ttl), &Advertisement { role, level, ..ACCEPTING });
    }
    for now in [500, 1000, 1500, 2250] {
        affiliation.on_timeout(at(now), HEAD);
    }
    assert_eq!(affiliation.poll(), bind(2, 4));
}

#[test]
fn who_waits_for_its_lan_asks_nobody_else() {
    let mut affiliation = begun(500);
    let waiting = Seeker { awaits_lan_head: true, ..HEAD };
    for round in 1..=6 {
        advertise(&mut affiliation, 500 * round - 1, 1, 4, 1);
        affiliation.on_timeout(at(500 * round), waiting);
        assert!(!matches!(affiliation.poll(), Some(Request::Bind { .. })));
    }
    for _ in ["it chooses", "it has backed off"] {
        wait(&mut affiliation);
    }
    assert_eq!(affiliation.poll(), bind(1, 4));
}

fn by_round_trip(interval: u64) -> Affiliation {
    let distance = Distance::RoundTrip;
    begun_with(&TramSettings { distance, ..TramSettings::default() }, None, interval)
}

fn answers(affiliation: &mut Affiliation, now: u64, (node, ttl): (u32, u8), said: &Advertisement) {
    affiliation.on_advertisement(at(now), ((NodeId(node), node.into(), ttl), true), said, HEAD);
}

fn probed(affiliation: &mut Affiliation) -> std::vec::Vec<u32> {
    let all = std::iter::from_fn(|| affiliation.poll());
    all.map(|step| match step {
        Request::Probe { to } => to.0,
        other => panic!("{other:?}"),
    })
    .collect()
}

#[test]
fn where_multicast_has_no_scope_the_head_of_the_shortest_round_trip_is_asked() {
    let mut affiliation = by_round_trip(500);
    for node in 1..=3 {
        advertise(&mut affiliation, u64::from(node), node, 2, 2);
    }
    for round in 1..=3 {
        affiliation.on_timeout(at(500 * round), HEAD);
    }
    assert_eq!(probed(&mut affiliation), [1, 2, 3]);
    answers(&mut affiliation, 1502, (2, u8::MAX), &Advertisement { level: 2, ..ACCEPTING });
    answers(&mut affiliation, 1540, (1, u8::MAX), &Advertisement { level: 1, ..ACCEPTING });
    advertise(&mut affiliation, 1600, 2, 9, 2);
    for now in [2000, 2750] {
        affiliation.on_timeout(at(now), HEAD);
    }
    assert_eq!(affiliation.poll(), bind(2, 32));
    affiliation.on_accept(at(2752), NodeId(2), 2);
    advertise(&mut affiliation, 3000, 4, 2, 1);
    advertise(&mut affiliation, 3001, 4, 2, 1);
    assert_eq!(probed(&mut affiliation), [4]);
    answers(&mut affiliation, 3000, (4, u8::MAX), &Advertisement { level: 1, ..ACCEPTING });
    for _ in ["it chooses", "it has backed off"] {
        wait(&mut affiliation);
    }
    assert_eq!(affiliation.poll(), bind(4, 32));
}

#[test]
fn where_heads_only_answer_round_trips_are_known_at_once() {
    let mut affiliation = by_round_trip(0);
    assert_eq!(affiliation.poll(), Some(Request::Solicit { ttl: 1, name: 0 }));
    for (now, node, level) in [(3, 1, 2), (30, 2, 1)] {
        answers(&mut affiliation, now, (node, 1), &Advertisement { level, ..ACCEPTING });
    }
    wait(&mut affiliation);
    assert_eq!(affiliation.poll(), bind(1, 32));
}

fn named() -> Affiliation {
    begun_with(&TramSettings::default(), Some(GivenHead::Named(5)), 500)
}

fn says_its_name(affiliation: &mut Affiliation, now: u64, node: u32, name: u64) {
    let said = Advertisement { name, state: HeadState::NotAccepting, level: 0, ..ACCEPTING };
    answers(affiliation, now, (node, 32), &said);
}

#[test]
fn a_head_that_is_given_by_name_is_called_and_asked_as_soon_as_it_is_heard() {
    let mut affiliation = named();
    let call = Some(Request::Solicit { ttl: 32, name: 5 });
    assert_eq!(affiliation.poll(), call);
    advertise(&mut affiliation, 10, 1, 1, 1);
    says_its_name(&mut affiliation, 20, 2, 6);
    affiliation.on_timeout(at(499), HEAD);
    assert_eq!(affiliation.poll(), None);
    affiliation.on_timeout(at(500), HEAD);
    assert_eq!(affiliation.poll(), call);
    says_its_name(&mut affiliation, 510, 3, 5);
    assert_eq!(affiliation.next_timeout(), Some(at(510)));
    affiliation.on_timeout(at(510), HEAD);
    assert_eq!(affiliation.poll(), bind(3, 32));
    assert_eq!(affiliation.on_reject(at(520), NodeId(3), HEAD), ParentChange::Nothing);
    affiliation.on_timeout(at(1020), HEAD);
    assert_eq!(affiliation.poll(), bind(3, 32));
    says_its_name(&mut affiliation, 1030, 4, 5);
    affiliation.on_timeout(at(3020), HEAD);
    affiliation.on_timeout(at(3520), HEAD);
    assert_eq!(affiliation.poll(), call);
    says_its_name(&mut affiliation, 3530, 4, 5);
    affiliation.on_timeout(at(3530), HEAD);
    assert_eq!(affiliation.poll(), bind(4, 32));
    let joined = affiliation.on_accept(at(3540), NodeId(4), 2);
    assert_eq!(joined, ParentChange::Joined { previous: None });
}

#[test]
fn whose_head_is_never_heard_or_lacks_what_is_wanted_finds_another() {
    let mut affiliation = named();
    let mut calls = 0;
    let mut now = 0;
    while affiliation.poll() == Some(Request::Solicit { ttl: 32, name: 5 }) {
        (calls, now) = (calls + 1, now + 500);
        assert!(now < 60_000, "for ever");
        affiliation.on_timeout(at(now), HEAD);
    }
    assert!((30..=60).contains(&calls), "{calls}");
    advertise(&mut affiliation, now, 1, 4, 1);
    let mut asked = None;
    while asked.is_none() && now < 60_000 {
        now += 500;
        affiliation.on_timeout(at(now), HEAD);
        asked = affiliation.poll();
    }
    assert_eq!(asked, bind(1, 4));

    let mut affiliation = named();
    says_its_name(&mut affiliation, 10, 3, 5);
    affiliation.on_timeout(at(10), HEAD);
    assert_eq!(affiliation.poll(), bind(3, 32));
    affiliation.assigned = None;
    assert_eq!(affiliation.on_reject(at(20), NodeId(3), HEAD), ParentChange::Nothing);
    advertise(&mut affiliation, 30, 1, 4, 1);
    let asked = (1..60).find_map(|round| {
        affiliation.on_timeout(at(20 + 500 * round), HEAD);
        affiliation.poll()
    });
    assert_eq!(asked, bind(1, 4));
}
