//! Peers that violate the protocol.

use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::{Cx, NodeId, Purpose, Rng, Time};
use proptest::prelude::*;

use super::{Connection, Event, World, full, ms, secs};
use crate::ids::{DAEMONS_MAX, ViewId};
use crate::topology::{Advert, Graph};
use crate::wire::{Control, Hello, MemberState};
use crate::{Daemon, DaemonEvent, DaemonId, DaemonRun, DaemonSettings, LinkId};

/// Returns three daemons of one view with their recorded frames, and a host without a daemon.
fn settled() -> World {
    let mut world = World::new(4, &full(3), 1);
    world.kill_noticed(3, 1.0);
    world.recorded = Some(Vec::new());
    world.settle(secs(10));
    world.join_all("g0");
    world.act_for(secs(1));
    world.run(secs(1));
    world.check_settled();
    world
}

impl World {
    fn open_unknown(&mut self) -> LinkId {
        self.next_link += 1;
        let link = LinkId(self.next_link);
        self.connections.insert(link, Connection::new((0, 3), self.now));
        self.hosts[0].links.insert(link);
        self.call(0, |daemon, cx| daemon.link_up(cx, link, false));
        link
    }

    fn hand(&mut self, link: LinkId, control: bool, frame: &[u8]) {
        self.call(0, |daemon, cx| match control {
            true => daemon.handle_control(cx, link, frame),
            false => daemon.handle_data(cx, link, Bytes::copy_from_slice(frame)),
        });
    }
}

/// Numbers at which counters could overflow.
const LIMITS: [u64; 6] = [0, 1, 1 << 61, (1 << 62) - 1, u64::MAX - 1, u64::MAX];

fn damage(frame: &Bytes, kind: u8, place: u16, limit: usize) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let at = usize::from(place) % frame.len().max(1);
    match kind {
        0 => frame.truncate(at),
        1 => frame.iter_mut().skip(at).take(1).for_each(|it| *it ^= 1 << (limit % 8)),
        2 => {
            let number = LIMITS[limit].to_be_bytes();
            frame.iter_mut().skip(at).zip(number).for_each(|(it, byte)| *it = byte);
        }
        3 => frame.extend_from_within(at..),
        _ => {}
    }
    frame
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn random_bytes_of_an_unknown_peer_change_no_view(
        frames in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..100)), 1..60),
    ) {
        let mut world = settled();
        let (since, before) = (world.now, world.state());
        for (control, frame) in frames {
            let link = world.open_unknown();
            world.hand(link, control, &frame);
            world.run(ms(20));
        }
        world.run(secs(5));
        world.finish();
        prop_assert_eq!(world.views_since(0, since), 0);
        prop_assert!(world.state() < before + 2000, "{} after {}", world.state(), before);
        prop_assert_eq!(world.hosts[0].links.len(), 2, "connections of unknown peers are closed");
    }

    #[test]
    fn frames_of_others_that_an_unknown_peer_repeats_break_no_rule(
        picks in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..60),
    ) {
        let mut world = settled();
        let recorded = world.recorded.take().unwrap();
        let mut link = world.open_unknown();
        for (pick, again) in picks {
            if again || !world.hosts[0].links.contains(&link) {
                link = world.open_unknown();
            }
            let (control, frame) = pick.get(&recorded);
            world.hand(link, *control, frame);
            world.act();
            world.run(ms(20));
        }
        world.run(secs(90));
        world.finish();
    }

    #[test]
    fn damaged_frames_of_a_neighbour_end_nothing(
        damages in prop::collection::vec(
            (any::<prop::sample::Index>(), 0..5u8, any::<u16>(), 0..LIMITS.len(), any::<bool>()),
            1..100,
        ),
    ) {
        let mut world = settled();
        for (pick, kind, place, limit, own) in damages {
            let recorded = world.recorded.as_ref().unwrap();
            let recent = &recorded[recorded.len() - recorded.len().min(200)..];
            let (control, frame) = pick.get(recent).clone();
            let first = world.hosts[0].links.first().copied();
            let link = match first.filter(|_| own) {
                Some(link) => link,
                None => world.open_unknown(),
            };
            world.hand(link, control, &damage(&frame, kind, place, limit));
            world.act();
            world.run(ms(20));
        }
        world.run(secs(30));
        let control = world.traffic.control_frames;
        world.run(secs(10));
        prop_assert!(world.traffic.control_frames - control < 2000, "daemons go on for ever");
        prop_assert!(world.state() < 5_000_000, "{}", world.state());
    }
}

#[test]
fn numbers_at_their_limits_end_nothing() {
    let me = |id| DaemonRun { id: DaemonId(id), incarnation: 1 };
    for number in LIMITS {
        for id in [0, 1, 3] {
            let origin = me(id);
            let advert = Advert { origin, number, name: "x".into(), links: Vec::new() };
            let config = ViewId { round: number, coordinator: origin };
            let graph = Graph { members: [me(0)].to_vec(), edges: Vec::new() };
            let own = ViewId { round: 1 << 40, coordinator: me(0) };
            let state = MemberState { time: number, ..MemberState::default() };
            let two = Graph { members: [me(0), me(1)].to_vec(), edges: [(0, 1, 1, 1)].to_vec() };
            for frames in [
                &[Control::Advert(advert)][..],
                &[Control::Propose(config, graph)],
                &[Control::Round(number)],
                &[Control::Propose(own, two), Control::State(own, 1, state)],
            ] {
                let mut world = settled();
                let link = world.open_unknown();
                for frame in frames {
                    world.hand(link, true, &frame.encode());
                }
                for _ in 0..20 {
                    world.act();
                    world.run(ms(20));
                }
                world.run(secs(10));
                assert!(world.now > Time::ZERO + secs(10));
            }
        }
    }
}

fn greeting(id: u64) -> Bytes {
    let member = DaemonRun { id: DaemonId(id), incarnation: 1 };
    let (number, echo, echo_age_us, opened) = (1, 1, 0, true);
    Control::Hello(Hello { member, number, echo, echo_age_us, opened, name: "x".into() }).encode()
}

#[test]
fn a_peer_with_ten_thousand_names_leaves_no_memory_behind() {
    let mut world = settled();
    world.recorded = None;
    let before = world.state();
    for id in 100..10_100 {
        let link = world.open_unknown();
        world.hand(link, true, &greeting(id));
        world.handle(Event::Down { to: 0, link });
    }
    world.run(secs(5));
    world.finish();
    assert!(world.state() < before + 100_000, "{} after {before}", world.state());
}

#[test]
fn a_peer_with_two_hundred_names_at_once_changes_no_view() {
    let mut world = settled();
    let since = world.now;
    for id in 100..300 {
        let link = world.open_unknown();
        world.hand(link, true, &greeting(id));
    }
    world.run(secs(10));
    world.finish();
    assert_eq!((0..3).map(|at| world.views_since(at, since)).sum::<usize>(), 0);
}

#[test]
fn a_link_that_greets_and_reads_nothing_is_closed() {
    let mut random = Rng::new(1, NodeId(1), Purpose::Fault);
    let mut cx = Cx::untraced(Time::ZERO + secs(1), &mut random);
    let me = DaemonRun { id: DaemonId(0), incarnation: 1 };
    let mut daemon = Daemon::new(cx.now, me, "d0", DaemonSettings::default());
    let (deaf, other) = (LinkId(1), LinkId(2));
    for (link, id) in [(deaf, 1), (other, 2)] {
        daemon.link_up(&mut cx, link, false);
        daemon.handle_control(&mut cx, link, &greeting(id));
    }
    let end = |id| (DaemonRun { id: DaemonId(id), incarnation: 1 }, 1, 1);
    let links: Vec<_> = (10..9 + DAEMONS_MAX as u64).map(end).collect();
    let (mut closed, mut bytes) = (Vec::new(), 0);
    while closed.is_empty() && bytes < 32 << 20 {
        let (number, links) = (bytes as u64 + 1, links.clone());
        let advert = Advert { origin: end(2).0, number, name: "x".into(), links };
        let frame = Control::Advert(advert).encode();
        bytes += frame.len();
        daemon.handle_control(&mut cx, other, &frame);
        while daemon.poll_control(other).is_some() {}
        while let Some(event) = daemon.poll_event() {
            closed.extend(matches!(event, DaemonEvent::Close(_)).then_some(event));
        }
    }
    assert_eq!(closed, [DaemonEvent::Close(deaf)], "after {bytes} bytes");
    assert_eq!(daemon.poll_control(deaf), None);
}
