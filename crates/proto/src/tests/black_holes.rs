//! Tests of streams on paths that drop long packets, and with forged data ahead of the source.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Rng, Seq, Time};

use crate::black_hole::Watch;
use crate::catalog::{SCHEMES, SchemeEntry, over_pgm};
use crate::content::Packets;
use crate::options::{OptionValue, Options};
use crate::pgm::wire::{Body, Data};
use crate::pgm::{PgmReceiver, PgmSource, ReceiverConfig, SourceConfig};
use crate::world::{
    DELAY, FIRST_RECEIVER, Fate, GROUP, Hop, Host, SOURCE, TSI, World, at, forge, s,
};
use crate::{BlackHole, StreamEvent};

struct Endless(Option<u64>);

const BYTES: u32 = 1000;

impl Packets for Endless {
    fn end(&self) -> Option<u64> {
        None
    }

    fn ready(&mut self, _: Time, index: u64) -> Option<u32> {
        self.0.is_none_or(|count| index < count).then_some(BYTES)
    }

    fn len(&self, _: u64) -> u32 {
        BYTES
    }

    fn read(&mut self, _: Time, _: u64, _: &mut Vec<u8>) -> u32 {
        BYTES
    }

    fn completed(&self, _: u64) -> Option<u64> {
        None
    }
}

const FIRST: NodeId = NodeId(FIRST_RECEIVER);

fn stream(
    entry: &'static SchemeEntry,
    (count, seed): (Option<u64>, u64),
    mut network: impl FnMut(&Hop<'_>, &mut Rng) -> Fate + 'static,
) -> World<PgmSource, PgmReceiver> {
    let announce = ("announce_scheme".to_string(), OptionValue::Bool(true));
    let options = Options::checked([announce], &over_pgm(entry).options()).unwrap();
    let config = SourceConfig::from_options(SOURCE, GROUP, TSI, &options);
    let mut config = SourceConfig { payload: BYTES, ..config };
    config.settings.spm_interval = Duration::from_secs(1);
    let source = entry.stream_source(config, Box::new(Endless(count)), &options);
    let mut world = World::of(Host::new(SOURCE, source, seed), false, seed);
    for node in [FIRST, NodeId(FIRST.0 + 1)] {
        let config = ReceiverConfig::from_options(GROUP, &Options::default());
        let receiver = entry.stream_receiver(node, config, &Options::default());
        world.receivers.push(Host::new(node, receiver, seed));
    }
    // A bottleneck of 1.6 Mbit/s with a queue of 200 ms before each receiver.
    let mut free_at = BTreeMap::new();
    world.network = Box::new(move |hop, rng| {
        let free_at = free_at.entry(hop.to).or_insert(Time::ZERO);
        let begins = hop.now.max(*free_at);
        let fate = network(hop, rng);
        if fate.delays.is_empty() || begins.since(hop.now) > Duration::from_millis(200) {
            return Fate::drop();
        }
        *free_at = begins + Duration::from_micros(5 * hop.len as u64);
        Fate { delays: [DELAY + free_at.since(hop.now)].to_vec(), ..fate }
    });
    world
}

fn holes<M>(host: &Host<M>) -> Vec<(Time, NodeId, BlackHole)> {
    let hole = |(at, event): &(Time, StreamEvent)| match event {
        StreamEvent::BlackHole { node, hole } => Some((*at, *node, *hole)),
        _ => None,
    };
    host.app.iter().filter_map(hole).collect()
}

#[test]
fn both_ends_name_a_black_hole_within_ten_seconds_once() {
    for entry in SCHEMES {
        let mut world = stream(entry, (None, 1), |hop, _| {
            let long = hop.to == FIRST && hop.len > 300 && hop.now < s(20);
            if long { Fate::drop() } else { Fate::pass() }
        });
        world.run_until(s(10));
        let told = holes(&world.receivers[0]);
        assert_eq!(told.len(), 1, "{}", entry.name);
        let (at, node, hole) = told[0];
        assert!(at > s(5) && node == SOURCE && hole.arrives < 300, "{}: {hole:?}", entry.name);
        assert!(hole.sent.is_some_and(|sent| (BYTES..BYTES + 100).contains(&sent)), "{hole:?}");
        let told = holes(&world.source);
        assert_eq!(told.len(), 1, "{}", entry.name);
        assert_eq!((told[0].1, told[0].2.sent), (FIRST, hole.sent), "{}", entry.name);
        world.run_until(s(60));
        let ends = [holes(&world.receivers[0]), holes(&world.receivers[1]), holes(&world.source)];
        assert_eq!(ends.map(|told| told.len()), [1, 0, 1], "{}", entry.name);
        assert!(!world.receivers[0].payload.is_empty(), "{}", entry.name);
    }
}

#[test]
fn losses_and_outages_are_no_black_holes() {
    let mut told_all = Vec::new();
    for entry in SCHEMES {
        for (seed, loss) in (1..).zip([0.3, 0.5, 0.7, 0.0]) {
            let mut world = stream(entry, (None, seed), move |hop, rng| {
                let out = loss == 0.0 && hop.now.as_nanos() / 10_000_000_000 % 2 == 1;
                if out || rng.chance(loss) { Fate::drop() } else { Fate::pass() }
            });
            world.run_until(s(300));
            let told = world.receivers.iter().map(holes).chain([holes(&world.source)]);
            told_all.extend(told.flatten().map(|it| (entry.name, loss, it)));
        }
    }
    assert!(told_all.is_empty(), "{told_all:?}");
}

#[test]
fn a_stream_that_was_sent_while_its_data_was_lost_is_named_too() {
    for entry in SCHEMES {
        let mut world = stream(entry, (None, 1), |hop, _| {
            let lost = matches!(hop.packet.body, Body::Odata(_) | Body::Rdata(_)) && hop.now > s(3);
            if lost { Fate::drop() } else { Fate::pass() }
        });
        world.run_until(s(13));
        for host in &world.receivers {
            assert_eq!(holes(host).len(), 1, "{}", entry.name);
        }
        assert_eq!(holes(&world.source).len(), 2, "{}", entry.name);
    }
}

#[test]
fn a_few_long_messages_that_do_not_arrive_are_named_within_ten_seconds() {
    let mut late = Vec::new();
    for entry in SCHEMES {
        for count in [1, 2, 20] {
            let mut world = stream(entry, (Some(count), 1), |hop, _| {
                if hop.to == FIRST && hop.len > 300 { Fate::drop() } else { Fate::pass() }
            });
            world.run_until(s(30));
            let at = |told: Vec<(Time, NodeId, BlackHole)>| told.first().map(|it| it.0);
            let times = (at(holes(&world.receivers[0])), at(holes(&world.source)));
            if times.1.is_none_or(|at| at > s(10)) {
                late.push((entry.name, count, times));
            }
        }
    }
    assert!(late.is_empty(), "{late:?}");
}

#[test]
fn packets_that_a_pausing_source_has_not_sent_are_forgotten() {
    const SENT: u32 = 50;
    for entry in SCHEMES {
        let mut world = stream(entry, (Some(SENT.into()), 1), |_, _| Fate::pass());
        world.run_until(s(10));
        assert_eq!(world.receivers[0].payload.len(), (SENT * BYTES) as usize, "{}", entry.name);
        let data = Data { sequence: Seq::new(SENT + 5), trail: Seq::new(0) };
        let forged = forge(&Body::Odata(data), &[], &[1; BYTES as usize]);
        world.multicast(NodeId(66), FIRST, &forged);
        for (ms, missing) in [(10_500, 5), (14_000, 0)] {
            world.run_until(at(ms));
            let counted = world.receivers[0].machine.missing_packets();
            assert_eq!(counted, missing, "{}", entry.name);
        }
        world.run_until(s(60));
        assert_eq!(world.receivers[0].lost(), 0, "{}", entry.name);
    }
}

#[test]
fn numbers_of_forged_announcements_hide_no_black_hole() {
    // Single numbers and two successive ones, before and after the watch has begun.
    for forged in [&[1][..], &[2], &[6], &[6, 7], &[5, 9], &[6, 7, 8]] {
        let mut watch = Watch::default();
        let told = (1..=12).find(|&second: &u32| {
            if forged.contains(&second) {
                watch.on_spm(s(second.into()), Seq::new(second + (1 << 30)), 0);
            }
            watch.on_spm(s(second.into()), Seq::new(second), u64::from(second))
        });
        assert!(told.is_some_and(|second| second <= 10), "{forged:?}: {told:?}");
    }
    let mut watch = Watch::default();
    let number = |second| Seq::new(if second > 3 { 1000 + second } else { second });
    assert!((1..=9).any(|second| watch.on_spm(s(second.into()), number(second), second.into())));
}
