//! Tests of a stream's repair by NAK, one guarantee each, and with random faults that stop.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use faircast_base::{Duration, Event, NodeId};
use proptest::prelude::*;

use super::control::{
    DELAY, Fate, From, GROUP, Hop, SOURCE, Window, World, at, in_memory, losing, losing_data,
    object, seq, source_config,
};
use super::protocol::{delivered, is_delivered};
use crate::congestion::{Wire as _, boxed_control};
use crate::pgm::wire::{Body, Nak, Nla, PacketType};
use crate::pgm::{PgmSource, ReceiverConfig};
use crate::world::forge;
use crate::{Destination, FlowEvent, StreamEvent};

#[test]
fn any_one_lost_packet_is_made_good() {
    type Lost = fn(&Hop<'_>) -> bool;
    let cases: [(&str, Lost); 9] = [
        ("the first SPM", |hop| hop.kind == PacketType::Spm && hop.nth == 0),
        ("the first data", |hop| hop.is_data() && hop.seq() == Some(0)),
        ("data in the middle", |hop| hop.is_data() && hop.seq() == Some(50)),
        ("the last data", |hop| hop.is_data() && hop.seq() == Some(99)),
        ("the tail", |hop| hop.is_data() && hop.seq() >= Some(90)),
        ("its NAK too", |hop| {
            hop.seq() == Some(50) && hop.is_data() || hop.kind == PacketType::Nak && hop.nth == 0
        }),
        ("its confirmation too", |hop| {
            hop.seq() == Some(50) && hop.is_data() || hop.kind == PacketType::Ncf && hop.nth == 0
        }),
        ("its repair too", |hop| {
            hop.seq() == Some(50) && hop.is_data() || hop.kind == PacketType::Rdata && hop.nth == 0
        }),
        ("ten in a row", |hop| hop.is_data() && hop.seq().is_some_and(|n| (40..50).contains(&n))),
    ];
    for (case, lost) in cases {
        let mut world = World::simple(1, 10_000).with_network(losing(lost));
        world.run_until(at(4_000));
        assert!(world.receivers[0].completed(), "{case}: {:?}", world.receivers[0].last_word());
        world.assert_all_delivered(&object(10_000));
        assert_eq!(world.receivers[0].lost(), 0, "{case}");
    }
}

#[test]
fn a_lost_start_is_asked_for_where_the_source_lets_receivers() {
    for (lost, begin) in [(1, 0), (60, 0), (70, 7_000)] {
        let mut world =
            World::new(source_config(), in_memory(10_000), [ReceiverConfig::new(GROUP)], 1)
                .with_network(losing(move |hop| {
                    let early = hop.kind == PacketType::Spm && hop.now < at(1_500);
                    early || hop.is_data() && hop.seq().is_some_and(|seq| seq < lost)
                }));
        world.run_until(at(4_000));
        let host = &world.receivers[0];
        assert_eq!(host.payload, object(10_000)[begin..], "{lost}");
        assert_eq!(host.completed(), begin == 0, "{lost}: else it has not got everything");
    }
}

#[test]
fn a_burst_of_losses_is_asked_for_in_one_nak_and_repaired_once_each() {
    let burst = losing_data(|n| (30..36).contains(&n));
    let mut world = World::simple(1, 10_000).with_network(burst);
    world.deliver_by(at(20_000), 10_000);
    assert_eq!(world.sent_of(PacketType::Nak), 1);
    assert_eq!(world.sent_of(PacketType::Ncf), 1);
    assert_eq!(world.repaired(), (30..36).collect::<Vec<_>>());
    let of = |kind| world.sent.iter().find(|sent| sent.packet().kind() == kind).unwrap();
    let (nak, ncf) = (of(PacketType::Nak), of(PacketType::Ncf));
    assert!(nak.packet().nak_sequence().eq(ncf.packet().nak_sequence()), "identical");
    assert_eq!(nak.transmit.to, Destination::Node(SOURCE));
    assert_eq!(ncf.at, nak.at + DELAY, "confirmed at once");
    assert!(ncf.transmit.router_alert);
    let host = &world.receivers[0];
    assert_eq!(host.machine.window_feedback().missing, [(30, 35)]);
    assert_eq!(host.log.count(|e| matches!(e, Event::LossDetected { seq: 30, count: 6 })), 1);
    let naks =
        world.source.log.count(|e| matches!(e, Event::NakReceived { seq: 30, count: 6, .. }));
    assert_eq!(naks, 1);
    assert_eq!(world.source.machine.window().naks, 1, "its report was handed on");
}

#[test]
fn packets_that_only_overtake_each_other_cause_no_nak() {
    let mut world = World::new(source_config(), in_memory(5_000), [ReceiverConfig::new(GROUP)], 1);
    world.network = Box::new(move |hop, _| {
        let late = hop.is_data() && hop.seq() == Some(20);
        let slot = Duration::from_micros(10 * u64::from(hop.seq().unwrap_or(0)));
        let extra = if late { Duration::from_micros(15) } else { Duration::ZERO };
        Fate { delays: vec![DELAY + slot + extra], damage: false }
    });
    world.deliver_by(at(5_000), 5_000);
    assert!(world.receivers[0].machine.window_feedback().missing.is_empty());
}

#[test]
fn confirmations_suppress_the_naks_of_other_receivers() {
    let mut receiver = ReceiverConfig::new(GROUP);
    receiver.settings.nak_backoff = Duration::from_millis(500);
    let mut world = World::new(source_config(), in_memory(5_000), vec![receiver; 100], 1)
        .with_network(losing_data(|n| n == 20));
    world.deliver_by(at(5_000), 5_000);
    let naks = world.source.log.count(|e| matches!(e, Event::NakReceived { .. }));
    // Some of 100 receivers with back-offs over 500 ms draw less than the first one and the 20 ms
    // until its confirmation: 5 on average, 14 with probability below 1e-3.
    assert!((1..=14).contains(&naks), "{naks} NAKs");
    assert_eq!(world.repaired(), [20]);
}

#[test]
fn a_neighbour_s_multicast_nak_is_overheard_with_its_report() {
    // Other implementations may send a copy of each NAK to their neighbours (RFC 3208 s6.3).
    let mut world = World::simple(1, 5_000).with_network(losing_data(|n| n == 20));
    world.run_until(at(20));
    let nak = Nak { first: seq(20), source: Nla::from_node(SOURCE), group: GROUP };
    let report = 77u32.to_be_bytes();
    world.multicast(
        NodeId(77),
        NodeId(10),
        &forge(&Body::Nak(nak), &[(From::OPTION, &report)], &[]),
    );
    world.deliver_by(at(5_000), 5_000);
    assert_eq!(world.receivers[0].machine.window_feedback().overheard, 1);
}

#[test]
fn thousands_of_naks_for_one_packet_cost_few_confirmations() {
    let mut world = World::simple(1000, 3_000).with_network(losing_data(|n| n == 20));
    world.deliver_by(at(3_000), 3_000);
    let naks = world.source.log.count(|e| matches!(e, Event::NakReceived { .. }));
    assert!(naks > 300, "{naks} NAKs");
    // 20 ms of round trip and packets in flight, one confirmation in 10 ms.
    assert!(world.sent_of(PacketType::Ncf) <= 8, "{}", world.sent_of(PacketType::Ncf));
    assert!(world.repaired().len() <= 4, "{:?}", world.repaired());
}

#[test]
fn what_falls_out_of_the_window_is_lost_and_the_rest_goes_on() {
    let mut config = source_config();
    config.transmit_window = 10;
    let receivers = vec![ReceiverConfig::new(GROUP); 2];
    let mut world = World::new(config.clone(), in_memory(50_000), receivers, 1)
        .with_network(losing(|hop| hop.to == NodeId(10) && hop.now > at(100) && hop.now < at(400)));
    let mut control = Window::new(4);
    control.named = 11;
    world.source.machine = PgmSource::new(config, in_memory(50_000), boxed_control(control));
    world.run_until(at(30_000));
    let (cut, whole) = (&world.receivers[0], &world.receivers[1]);
    assert!(whole.completed() && whole.payload == object(50_000));
    let lost = cut.lost();
    assert!(lost > 20, "{lost}");
    let abandoned = cut.log.events.iter().map(|(_, event)| match event {
        Event::Abandoned { count, .. } => *count,
        _ => 0,
    });
    assert_eq!(abandoned.sum::<u64>(), u64::from(lost));
    assert_eq!(cut.log.count(is_delivered) as u32, 500 - lost);
    assert_eq!(cut.last_word(), Some(&FlowEvent::Gone));
    let gaps = cut
        .app
        .iter()
        .filter(|(_, event)| matches!(event, StreamEvent::Flow(FlowEvent::Lost { .. })))
        .count();
    assert!(gaps >= 1);
    let object = object(50_000);
    let seqs = delivered(cut);
    assert!(seqs.is_sorted_by(|a, b| a < b));
    let packets = seqs.into_iter().map(|seq| &object[100 * seq as usize..][..100]);
    let want: Vec<u8> = packets.flatten().copied().collect();
    assert!(cut.payload == want);
}

#[test]
fn a_nak_for_the_oldest_packet_holds_the_window_until_its_repair() {
    // Four receivers lose packet 0; the window of one packet would drop it with the next.
    let mut config = source_config();
    config.transmit_window = 1;
    config.settings.heartbeat_min = Duration::from_millis(5);
    let receivers = vec![ReceiverConfig::new(GROUP); 4];
    let mut world = World::new(config, in_memory(1_000), receivers, 1)
        .with_network(losing(|hop| hop.is_data() && hop.nth == 0));
    world.run_until(at(20_000));
    assert!(world.source.completed());
    let delivered: usize = world.receivers.iter().map(|host| host.log.count(is_delivered)).sum();
    assert!(delivered >= 36, "{delivered}");
}

#[test]
fn where_nothing_is_repaired_holes_are_skipped_and_reports_are_few() {
    let mut config = source_config();
    config.settings.reliable = false;
    let mut receiver = ReceiverConfig::new(GROUP);
    receiver.settings.reliable = false;
    let mut world = World::new(config, in_memory(100_000), [receiver], 1)
        .with_network(losing_data(|n| n % 10 == 5));
    world.run_until(at(30_000));
    let host = &world.receivers[0];
    assert_eq!(world.repaired(), []);
    assert_eq!((host.log.count(is_delivered), host.lost()), (900, 100));
    assert_eq!(host.machine.window_feedback().missing.len(), 100);
    let naks = world.times_of(PacketType::Nak);
    assert!(naks.len() >= 3, "{naks:?}");
    assert!(naks.windows(2).all(|pair| pair[1] - pair[0] >= 200), "{naks:?}");
    assert_eq!(world.sent_of(PacketType::Ncf), naks.len(), "each is confirmed");
    assert_eq!(world.source.machine.window().naks as usize, naks.len());
}

#[test]
fn a_repair_and_data_that_both_wait_take_turns() {
    let lost = losing_data(|n| (200..300).contains(&n));
    let mut world = World::simple(1, 100_000).with_network(lost);
    let mut control = Window::new(1000);
    control.pace = Duration::from_millis(1);
    world.source.machine =
        PgmSource::new(source_config(), in_memory(100_000), boxed_control(control));
    world.deliver_by(at(10_000), 100_000);
    let mut run = 0;
    let mut longest = 0;
    let mut data_left = 1000;
    for sent in &world.sent {
        match sent.packet().kind() {
            PacketType::Rdata => run += 1,
            PacketType::Odata => {
                data_left -= 1;
                run = 0;
            }
            _ => {}
        }
        if data_left > 0 {
            longest = longest.max(run);
        }
    }
    assert!(world.repaired().len() >= 100);
    assert_eq!(longest, 1, "repairs in a row while data waited");
}

#[derive(Clone, Copy, Debug)]
struct Faults {
    loss: f64,
    duplication: f64,
    damage: f64,
    jitter_ms: u64,
    receivers: usize,
    packets: usize,
    seed: u64,
}

fn faults() -> impl Strategy<Value = Faults> {
    let network = (0.0..0.5, 0.0..0.3, 0.0..0.3, 0u64..100);
    let session = (1usize..5, 0usize..300, any::<u64>());
    (network, session).prop_map(|((loss, duplication, damage, jitter_ms), session)| {
        let (receivers, packets, seed) = session;
        Faults { loss, duplication, damage, jitter_ms, receivers, packets, seed }
    })
}

fn world(faults: Faults) -> World {
    let receiver = ReceiverConfig::new(GROUP);
    let mut source = source_config();
    // No receiver may miss the first SPM or data, or the session would begin later for it.
    source.settings.linger = Duration::from_secs(20);
    let content = in_memory(faults.packets * 100);
    let mut world = World::new(source, content, vec![receiver; faults.receivers], faults.seed);
    world.network = Box::new(move |hop, rng| {
        let calm = hop.now >= at(3_000) || hop.now == at(0);
        if calm {
            return Fate::pass();
        }
        if rng.chance(faults.loss) {
            return Fate::drop();
        }
        let mut delay = || DELAY + Duration::from_micros(rng.below(1 + faults.jitter_ms * 1000));
        let mut delays = vec![delay()];
        let second = delay();
        if rng.chance(faults.duplication) {
            delays.push(second);
        }
        Fate { delays, damage: rng.chance(faults.damage) }
    });
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn after_the_faults_stop_everything_arrives(faults in faults()) {
        let mut world = world(faults);
        world.run_until(at(120_000));
        let want = object(faults.packets * 100);
        for host in &world.receivers {
            prop_assert!(host.completed(), "{:?}", host.last_word());
            prop_assert!(host.payload == want);
            prop_assert_eq!(host.lost(), 0);
            let delivered = host.log.count(|e| matches!(e, Event::Delivered { .. }));
            prop_assert_eq!(delivered, faults.packets);
        }
        prop_assert!(world.source.completed());
    }
}

#[test]
fn the_same_seed_gives_the_same_packets_at_the_same_times() {
    let run = |seed| {
        let faults = Faults {
            loss: 0.2,
            duplication: 0.1,
            damage: 0.1,
            jitter_ms: 30,
            receivers: 3,
            packets: 200,
            seed,
        };
        let mut world = world(faults);
        world.run_until(at(60_000));
        let sent = world.sent.iter().map(|sent| (sent.at, sent.bytes.clone()));
        sent.collect::<Vec<_>>()
    };
    let first = run(7);
    assert!(first.len() > 300);
    assert!(first == run(7) && first != run(8));
}
