//! Tests of the receiver's NAK timers and states.

use super::*;
use crate::world::{at, ms, s};
use faircast_base::{NodeId, Purpose};

struct Bench {
    naks: Naks,
    rng: Rng,
}

impl Bench {
    fn new() -> Self {
        let rng = Rng::new(1, NodeId(1), Purpose::Machine(0));
        Self { naks: Naks { retries: 2, ..Naks::new(&PgmFlowSettings::default()) }, rng }
    }

    fn expire(&mut self, ms: u64, can_ask: bool) -> Expired {
        let mut cx = Cx::untraced(at(ms), &mut self.rng);
        self.naks.expire(&mut cx, can_ask)
    }

    fn state(&self) -> (NakState, Time) {
        let missing = &self.naks.missing[&7];
        assert_eq!(self.naks.next_timeout(), Some(missing.deadline));
        (missing.state, missing.deadline)
    }
}

#[test]
fn each_event_in_each_state_leads_where_the_rfc_says() {
    use NakState::{AwaitConfirmation, AwaitRepair, BackOff};
    type Event = fn(&mut Bench);
    let confirmed: Event = |b| assert!(b.naks.confirmed(7, at(10)));
    let other_nak: Event = |b| assert!(b.naks.suppress(7, at(10)));
    let cases = [
        (BackOff, confirmed, AwaitRepair, 210),
        (BackOff, other_nak, AwaitConfirmation, 210),
        (AwaitConfirmation, confirmed, AwaitRepair, 210),
        (AwaitConfirmation, other_nak, AwaitConfirmation, 210),
        (AwaitRepair, confirmed, AwaitRepair, 210),
        (AwaitRepair, other_nak, AwaitRepair, 210),
    ];
    for (from, event, to, deadline) in cases {
        let mut bench = Bench::new();
        bench.naks.insert(7, from, at(40));
        event(&mut bench);
        assert_eq!(bench.state(), (to, at(deadline)), "from {from:?}");
    }
}

#[test]
fn what_has_not_come_is_asked_for_again_once_the_source_has_sent_all() {
    use NakState::{AwaitConfirmation, AwaitRepair, BackOff};
    // Earlier answers took seconds, so the waits for this one are long.
    let slow = || {
        let mut bench = Bench::new();
        for seq in [1, 2] {
            bench.naks.insert(seq, BackOff, at(0));
            bench.expire(0, true);
            bench.naks.confirmed(seq, at(seq));
            bench.naks.repaired(seq, at(3000));
        }
        bench.naks.insert(7, BackOff, at(4000));
        bench
    };
    let cases = [
        (AwaitRepair, 4010, 4200, "not before the shortest wait"),
        (AwaitRepair, 4500, 4520, "what may be behind it in the network has come by then"),
        (AwaitConfirmation, 4010, 4200, "the round trip is not over"),
        (AwaitConfirmation, 4190, 4200, "it would be asked for again anyway"),
    ];
    for (state, said, again, why) in cases {
        let mut bench = slow();
        bench.expire(4000, true);
        if state == AwaitRepair {
            bench.naks.confirmed(7, at(4002));
            assert!(bench.state().1 > at(6000), "{:?}", bench.state());
        }
        bench.naks.on_all_repairs_sent(at(said + 20));
        let (now, deadline) = bench.state();
        assert!(now == state && deadline.since(at(again)) < ms(11), "{why}: {deadline:?}");
    }
    let mut bench = slow();
    bench.naks.on_all_repairs_sent(at(100));
    assert_eq!(bench.state(), (BackOff, at(4000)), "it has not been asked for yet");
}

#[test]
fn a_silent_network_is_asked_until_retries_run_out() {
    let mut bench = Bench::new();
    bench.naks.insert(7, NakState::BackOff, at(40));
    let mut asked = 0;
    let mut now = 0;
    loop {
        now += 1;
        assert!(now < 5000);
        let expired = bench.expire(now, true);
        let due = bench.naks.take_due(63);
        asked += due.len();
        if !due.is_empty() {
            assert_eq!(
                bench.state(),
                (NakState::AwaitConfirmation, at(now + (200 << (asked - 1))))
            );
        }
        if expired.give_up == [7] {
            break;
        }
    }
    assert_eq!(asked, 3);
    assert!(bench.naks.is_empty() && bench.naks.next_timeout().is_none());
    assert!(now > 40 + 7 * 200 && now <= 40 + 7 * 200 + 2 * 50 + 4, "{now}");
}

#[test]
fn confirmed_but_unrepaired_packets_are_asked_for_again_and_given_up() {
    let mut bench = Bench::new();
    bench.naks.insert(7, NakState::AwaitRepair, at(0));
    let mut now = 0;
    let mut asked = 0;
    while !bench.naks.is_empty() {
        now += 1;
        bench.expire(now, true);
        if !bench.naks.take_due(63).is_empty() {
            asked += 1;
            bench.naks.confirmed(7, at(now));
        }
    }
    assert_eq!(asked, 2);
}

#[test]
fn without_a_path_back_off_goes_on_and_counts_nothing() {
    let mut bench = Bench::new();
    bench.naks.insert(7, NakState::BackOff, at(1));
    for ms in 1..1000 {
        bench.expire(ms, false);
        assert_eq!(bench.state().0, NakState::BackOff);
        assert!(bench.naks.take_due(63).is_empty());
    }
    bench.expire(1100, true);
    assert_eq!(bench.naks.take_due(63), [7]);
}

#[test]
fn thousands_of_missing_packets_are_asked_for_in_full_lists() {
    let mut bench = Bench::new();
    let mut backoff = Backoff::new(at(0));
    for index in 0..6300 {
        let deadline = bench.naks.draw_backoff(&mut backoff, &mut bench.rng);
        bench.naks.insert(index, NakState::BackOff, deadline);
    }
    bench.naks.end(5);
    bench.expire(60, true);
    let first = bench.naks.take_due(63);
    assert_eq!((first[0], first[5], first.len()), (0, 6, 63));
    let mut lists = 1;
    while !bench.naks.take_due(63).is_empty() {
        lists += 1;
    }
    assert_eq!(lists, 100);
}

proptest::proptest! {
    /// Compares the next timeout with its definition: the least deadline of missing packets.
    #[test]
    fn the_next_timeout_is_the_earliest_deadline_and_old_ones_do_not_pile_up(
        steps in proptest::collection::vec((0u8..6, 0u64..12, 0u64..60), 1..300),
    ) {
        let mut bench = Bench::new();
        let mut now = 1;
        for (what, index, ms) in steps {
            match what {
                0 => bench.naks.insert(index, NakState::BackOff, at(now + ms)),
                1 => bench.naks.end(index),
                2 => bench.naks.repaired(index, at(now)),
                3 => drop(bench.naks.confirmed(index, at(now))),
                4 => drop(bench.naks.suppress(index, at(now))),
                _ => {
                    now += ms;
                    bench.expire(now, true);
                    bench.naks.take_due(2);
                }
            }
            let naks = &bench.naks;
            let earliest = naks.missing.values().map(|missing| missing.deadline).min();
            proptest::prop_assert_eq!(naks.next_timeout(), earliest);
            proptest::prop_assert!(naks.timers.len() <= 2 * 12 + TIMERS_SPARE);
        }
    }
}

const RTT: Duration = Duration::from_millis(400);

fn crowd() -> Crowd {
    Crowd::new(&PgmFlowSettings::default())
}

fn naks(crowd: &Crowd, members: u32, rng: &mut Rng) -> (usize, Duration) {
    let draws: Vec<_> = (0..members).map(|_| crowd.draw(rng)).collect();
    let first = *draws.iter().min().unwrap();
    (draws.iter().filter(|&&draw| draw < first + RTT).count(), first)
}

#[test]
fn a_crowd_learns_to_let_few_speak_for_all() {
    let mut rng = Rng::new(1, NodeId(1), Purpose::Machine(0));
    for members in [1, 3, 10, 100, 1000, 10_000] {
        let mut crowd = crowd();
        let (mut late, mut spoke) = (Duration::ZERO, 0);
        for second in 0..400 {
            let (naks, first) = naks(&crowd, members, &mut rng);
            crowd.note(s(10 * second), (naks as u32).min(9), Some(RTT));
            if second >= 200 {
                spoke += naks;
                late += first;
            }
        }
        assert!(spoke <= 8 * 200, "{members}: {spoke} NAKs for 200 losses");
        assert!(late <= RTT * 300, "{members}: {late} for 200 losses");
        if members <= 3 {
            assert_eq!(crowd.doublings, 0);
        }
    }
}

#[test]
fn a_crowd_that_has_shrunk_is_not_taken_for_a_large_one_for_ever() {
    let mut rng = Rng::new(1, NodeId(1), Purpose::Machine(0));
    let mut crowd = crowd();
    for second in 0..400 {
        let members = if second < 100 { 3000 } else { 10 };
        let (naks, _) = naks(&crowd, members, &mut rng);
        crowd.note(s(10 * second), (naks as u32).min(9), Some(RTT));
    }
    assert!(crowd.doublings <= 4, "{}", crowd.doublings);
}

#[test]
fn who_loses_alone_again_waits_no_longer_than_before() {
    let mut crowd = crowd();
    (0..60).for_each(|i| crowd.note(s(10 * i), 9, Some(RTT)));
    assert!(crowd.doublings > 5);
    (60..200).for_each(|i| crowd.note(s(10 * i), 1, Some(RTT)));
    assert_eq!(crowd.doublings, 0);
}
