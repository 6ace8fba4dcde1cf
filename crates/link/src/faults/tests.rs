//! Tests of faults through the interface of the link.

use alloc::vec;
use alloc::vec::Vec;

use faircast_base::Rng;
use proptest::prelude::*;

use super::*;
use crate::{FaultChange, Link, LinkChange, Outcome, QueueConfig};

const MS: u64 = 1_000_000;

fn config(faults: Faults) -> LinkConfig {
    let queue = QueueConfig::DropTail { packets_max: 10 };
    LinkConfig { faults, ..crate::link::tests::config(8_000_000, queue) }
}

fn change(at: u64, faults: FaultChange) -> LinkChange {
    LinkChange { at: ms(at), faults: Some(faults), ..LinkChange::default() }
}

fn ms(ms: u64) -> Time {
    Time::from_nanos(ms * MS)
}

/// Offers `count` packets of 1000 B, one every 2 ms; transmission takes 1 ms each.
fn outcomes(config: &LinkConfig, seed: u64, count: u64) -> Vec<Outcome> {
    let streams = Streams { seed, node: NodeId(1), link: 2 };
    let mut link = Link::new(config, streams);
    let mut rng = Rng::new(seed, NodeId(1), Purpose::Link(2));
    let outcomes = (0..count).map(|i| link.offer(ms(2 * i), 1000, true, &mut rng)).collect();
    let dropped = |o: &&Outcome| matches!(o, Outcome::Dropped(_));
    let all: &Vec<Outcome> = &outcomes;
    let counters = link.sample(Time::MAX);
    assert_eq!(counters.dropped_packets, all.iter().filter(dropped).count() as u64);
    outcomes
}

#[test]
fn packets_longer_than_the_mtu_vanish_while_it_holds() {
    let change = |at, mtu| change(at, FaultChange { mtu: Some(mtu), ..FaultChange::default() });
    let faults = Faults { mtu: Some(999), ..Faults::default() };
    let config = LinkConfig { changes: vec![change(10, 1000), change(20, 68)], ..config(faults) };
    // Each packet's transmission ends 1 ms after it is offered.
    let want: Vec<bool> = (0..20).map(|i| !(10..20).contains(&(2 * i + 1))).collect();
    assert_eq!(lost(&outcomes(&config, 1, 20), DropReason::TooLong), want);
}

fn lost(outcomes: &[Outcome], reason: DropReason) -> Vec<bool> {
    outcomes.iter().map(|outcome| *outcome == Outcome::Dropped(reason)).collect()
}

fn bursts(lost: &[bool]) -> Vec<usize> {
    lost.split(|lost| !lost).map(<[bool]>::len).filter(|len| *len > 0).collect()
}

#[test]
fn bursts_have_the_mean_loss_and_the_mean_length_that_were_asked_for() {
    const COUNT: u64 = 400_000;
    for (loss, packets) in [(0.02, 5.0), (0.3, 3.0), (0.1, 1.0), (0.5, 1.0), (0.05, 40.0)] {
        let faults = Faults { burst_loss: BurstLoss { loss, packets }, ..Faults::default() };
        let lost = lost(&outcomes(&config(faults), 1, COUNT), DropReason::Burst);
        let share = lost.iter().filter(|lost| **lost).count() as f64 / COUNT as f64;
        let bursts = bursts(&lost);
        let mean = bursts.iter().sum::<usize>() as f64 / bursts.len() as f64;
        // Four standard errors by the number of bursts; geometric lengths deviate by their mean.
        let errors = 4.0 / (bursts.len() as f64).sqrt();
        assert!((share / loss - 1.0).abs() < 1.5 * errors, "{loss} {packets}: {share}");
        assert!((mean / packets - 1.0).abs() < errors, "{loss} {packets}: {mean}");
    }
}

#[test]
fn all_is_lost_where_the_mean_loss_is_one() {
    let faults = Faults { burst_loss: BurstLoss { loss: 1.0, packets: 5.0 }, ..Faults::default() };
    assert_eq!(lost(&outcomes(&config(faults), 1, 100), DropReason::Burst), [true; 100]);
}

#[test]
fn shares_of_packets_are_delayed_doubled_and_corrupted() {
    const COUNT: u64 = 100_000;
    let faults = Faults {
        reorder: Reorder { share: 0.02, delay: Duration::from_millis(5) },
        duplicate: 0.05,
        corrupt: 0.01,
        ..Faults::default()
    };
    let (mut delayed, mut doubled, mut corrupted, mut copies) = (0, 0, 0, 0);
    let mut places = [0u32; 10];
    for (i, outcome) in (0..).zip(outcomes(&config(faults), 1, COUNT)) {
        let due = ms(2 * i + 51);
        let (first, second) = match outcome {
            Outcome::Arrives(at) => (FaultyCopy { at, extra: Duration::ZERO, flip: None }, None),
            Outcome::Altered { first, second } => (first, second),
            Outcome::Dropped(_) => panic!("nothing is lost"),
        };
        doubled += u32::from(second.is_some());
        for copy in [Some(first), second].into_iter().flatten() {
            copies += 1;
            assert_eq!(copy.at, due + copy.extra);
            assert!([0, 5].contains(&(copy.extra.as_nanos() / MS)), "{copy:?}");
            delayed += u32::from(copy.extra > Duration::ZERO);
            if let Some(bit) = copy.bit(1000) {
                corrupted += 1;
                places[(bit / 800) as usize] += 1;
            }
            assert_eq!(copy.bit(0), None, "a packet without bytes has none to flip");
        }
    }
    // Standard deviations: 69 for the doubled, 45 for the delayed, 32 for the corrupted.
    assert!((4_700..5_300).contains(&doubled), "{doubled}");
    assert_eq!(copies, COUNT as u32 + doubled);
    assert!((1_900..2_300).contains(&delayed), "{delayed}");
    assert!((920..1_180).contains(&corrupted), "{corrupted}");
    assert!(places.iter().all(|hits| (60..150).contains(hits)), "all bits alike: {places:?}");
}

#[test]
fn an_outage_loses_what_is_offered_and_what_is_transmitted_meanwhile() {
    let outages = alloc::vec![
        Outage { from: ms(10), to: ms(20) },
        Outage { from: ms(20), to: ms(21) },
        Outage { from: ms(40), to: ms(42) },
    ];
    let config = config(Faults { outages, ..Faults::default() });
    let down = lost(&outcomes(&config, 1, 30), DropReason::Outage);
    // Offered at 8 ms is sent at 9 ms; at 18 and 20 the link is down; 38 is sent at 39, 40 not.
    let want: Vec<bool> = (0..30).map(|i| (5..=10).contains(&i) || i == 20).collect();
    assert_eq!(down, want);

    // Five packets offered at 8 ms are sent at 9, 10, 11, 12 and 13 ms.
    let mut link = Link::new(&config, Streams { seed: 1, node: NodeId(0), link: 0 });
    let mut rng = Rng::new(1, NodeId(0), Purpose::Link(0));
    let mut offer = |at| link.offer(ms(at), 1000, true, &mut rng);
    let burst = [offer(8), offer(8), offer(8), offer(8), offer(8)];
    let gone = Outcome::Dropped(DropReason::Outage);
    assert_eq!(burst, [Outcome::Arrives(ms(59)), gone, gone, gone, gone]);
    // A packet that is offered during the outage takes no time, so the next one finds an idle link.
    assert_eq!([offer(20), offer(21)], [gone, Outcome::Arrives(ms(72))]);
    // A queue that outlasts the outage continues: sent at 40 and 41 ms, both lost, and at 42 ms.
    let burst = [offer(39), offer(39), offer(39)];
    assert_eq!(burst, [gone, gone, Outcome::Arrives(ms(92))]);
}

#[test]
fn a_change_turns_faults_on_and_off() {
    let mut config = config(Faults { duplicate: 1.0, ..Faults::default() });
    let burst = |loss| Some(BurstLoss { loss, packets: 1.0 });
    config.changes = alloc::vec![
        change(20, FaultChange { burst_loss: burst(1.0), ..FaultChange::default() }),
        change(
            40,
            FaultChange { burst_loss: burst(0.0), duplicate: Some(0.0), ..FaultChange::default() }
        ),
    ];
    let outcomes = outcomes(&config, 1, 30);
    let doubled = |o: &Outcome| matches!(o, Outcome::Altered { second: Some(_), .. });
    assert!(outcomes[..9].iter().all(doubled));
    assert_eq!(lost(&outcomes[10..19], DropReason::Burst), [true; 9]);
    assert!(outcomes[20..].iter().all(|outcome| matches!(outcome, Outcome::Arrives(_))));
}

fn faults() -> impl Strategy<Value = Faults> {
    let share = || prop_oneof![Just(0.0), 0.0..0.6f64];
    let spans = prop::collection::vec((1u64..60, 1u64..40), 0..4);
    let burst = (share(), 1.5..20.0f64);
    (burst, share(), 1u64..20, share(), share(), spans).prop_map(
        |((loss, packets), reorder, late, duplicate, corrupt, spans)| {
            let mut at = 0;
            let outage = |(gap, len): (u64, u64)| {
                let from = at + gap;
                at = from + len;
                Outage { from: ms(from), to: ms(at) }
            };
            Faults {
                outages: spans.into_iter().map(outage).collect(),
                burst_loss: BurstLoss { loss, packets },
                reorder: Reorder { share: reorder, delay: Duration::from_millis(late) },
                duplicate,
                corrupt,
                mtu: Some(1000),
            }
        },
    )
}

proptest! {
    #[test]
    fn a_fault_more_moves_no_other(faults in faults(), seed in 0u64..1000) {
        let with = |faults: Faults| LinkConfig { loss: 0.1, ..config(faults) };
        let plain = outcomes(&with(Faults::default()), seed, 200);
        let all = outcomes(&with(faults.clone()), seed, 200);
        let losses = lost(&plain, DropReason::Loss);
        let moved = lost(&all, DropReason::Loss);
        let down = lost(&all, DropReason::Outage);
        // A packet that is refused at the entrance draws no independent loss.
        let same = losses.iter().zip(&moved).take_while(|(a, b)| a == b).count();
        let first_down = down.iter().position(|down| *down).unwrap_or(200);
        prop_assert!(same >= first_down, "{same} of {first_down}");
        let alone = |faults| outcomes(&with(faults), seed, 200);
        let bursts = alone(Faults { burst_loss: faults.burst_loss, ..Faults::default() });
        if first_down == 200 {
            prop_assert_eq!(lost(&bursts, DropReason::Burst), lost(&all, DropReason::Burst));
        }
    }

    #[test]
    fn packets_are_conserved_whatever_goes_wrong(
        faults in faults(),
        gaps in prop::collection::vec(0u64..3 * MS, 1..200),
        seed in any::<u64>(),
    ) {
        let config = config(faults.clone());
        let mut link = Link::new(&config, Streams { seed, node: NodeId(0), link: 0 });
        let mut plain = Link::new(
            &LinkConfig { faults: Faults::default(), ..config },
            Streams { seed, node: NodeId(0), link: 0 },
        );
        let mut rng = Rng::new(seed, NodeId(0), Purpose::Link(0));
        let (mut now, mut arrived, mut dropped, mut doubled) = (0, 0, 0, 0);
        for gap in &gaps {
            now += gap;
            let at = Time::from_nanos(now);
            let outcome = link.offer(at, 1000, true, &mut rng);
            let without = plain.offer(at, 1000, true, &mut rng);
            let copies = match outcome {
                Outcome::Dropped(_) => { dropped += 1; Vec::new() }
                Outcome::Arrives(at) => {
                    alloc::vec![FaultyCopy { at, extra: Duration::ZERO, flip: None }]
                }
                Outcome::Altered { first, second } => {
                    doubled += u64::from(second.is_some());
                    [Some(first), second].into_iter().flatten().collect()
                }
            };
            for copy in copies {
                arrived += 1;
                if let (true, Outcome::Arrives(want)) = (faults.outages.is_empty(), without) {
                    prop_assert_eq!(copy.at, want + copy.extra);
                }
                prop_assert!(copy.bit(1000).is_none_or(|bit| bit < 8000));
            }
        }
        let counters = link.sample(Time::MAX);
        prop_assert_eq!(counters.offered_packets, gaps.len() as u64);
        prop_assert_eq!(counters.dropped_packets, dropped);
        prop_assert_eq!(counters.offered_packets + doubled, arrived + dropped);
    }
}
