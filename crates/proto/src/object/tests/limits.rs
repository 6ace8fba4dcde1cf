//! Tests of the causes that limit a transfer's rate: each cause is produced, and must be reported.

use alloc::vec::Vec;

use faircast_base::{Bitrate, Duration, Time};

use super::world::*;
use crate::object::{Cause, HostLoad, Limit, SlowPolicy};
use crate::object::{ObjectReceiverInput, ObjectSourceInput};

const LEN: usize = 400_000;

fn limits(mut world: World, receiver: Share, source: Share) -> Vec<Limit> {
    for step in 1..600 {
        world.run_until(at(100 * step));
        let now = world.now;
        let input = ObjectReceiverInput::Host(receiver.after(now));
        world.receivers[0].act(now, |machine, cx| machine.handle_input(cx, input));
        let input = ObjectSourceInput::Host(source.after(now));
        world.source.act(now, |machine, cx| machine.handle_input(cx, input));
    }
    world.assert_all_complete();
    world.source.machine.status().limits
}

/// Thousandths of a thread's time, and packets that its socket drops in a second.
#[derive(Clone, Copy, Default)]
struct Share {
    busy: u64,
    disk: u64,
    overflowed: u64,
}

impl Share {
    fn after(self, now: Time) -> HostLoad {
        let span = now.since(Time::ZERO);
        HostLoad {
            span,
            busy: span * self.busy / 1000,
            disk: span * self.disk / 1000,
            link: Duration::ZERO,
            overflowed: span.as_millis() * self.overflowed / 1000,
        }
    }
}

fn lossy() -> World {
    let mut world = World::new(LEN, 1, &Choices::default(), 5).with_network(losing_data(0.02));
    world.spacing = ms(2);
    world
}

#[test]
fn the_cause_is_the_one_that_was_made() {
    let idle = Share { busy: 100, ..Share::default() };
    let busy = Share { busy: 980, ..Share::default() };
    for (case, receiver, source, want) in [
        ("the way", idle, idle, Cause::Path),
        ("its disk", Share { busy: 900, disk: 700, ..idle }, idle, Cause::ReceiverDisk),
        ("its processor", busy, idle, Cause::ReceiverProcessor),
        ("its buffer", Share { overflowed: 100, ..idle }, idle, Cause::ReceiverBuffer),
        ("our processor", idle, busy, Cause::SenderProcessor),
    ] {
        let world = lossy();
        let id = world.receivers[0].id();
        let limits = limits(world, receiver, source);
        assert_eq!(limits[0].cause, want, "{case}: {limits:?}");
        let about = (want != Cause::SenderProcessor).then_some(id);
        assert_eq!(limits[0].member, about, "{case}");
    }
}

#[test]
fn the_operators_bound_is_the_cause_where_the_scheme_would_be_faster() {
    let choices = Choices::default().with(&[("rate_max", "400 kbit/s")]);
    let world = World::new(LEN, 1, &choices, 5);
    let limits = limits(world, Share::default(), Share::default());
    assert_eq!((limits[0].cause, limits[0].member), (Cause::RateMax, None), "{limits:?}");
    // 4000 symbols of 108 bytes with their headers, at 50 kB/s, are 8.64 s.
    let seconds = limits[0].time.as_secs_f64();
    assert!((8.3..9.0).contains(&seconds), "{limits:?}");
}

fn limited(limit: u64, receivers: usize, bounds: &[(&str, &str)], slow: SlowPolicy) -> World {
    let limit = Some(Bitrate::from_bits_per_s(limit));
    let choices = Choices { slow, limit, wait_for: receivers as u32, ..Choices::default() };
    let mut world = World::new(LEN, receivers, &choices.with(bounds), 5);
    world.complete_by(s(400));
    world
}

#[test]
fn a_receivers_own_limit_holds_for_the_group_and_is_told() {
    let world = limited(800_000, 2, &[], SlowPolicy::Wait);
    let status = world.source.machine.status();
    let (limits, members) = (&status.limits, &status.members);
    let who = Some(world.receivers[0].id());
    assert_eq!((limits[0].cause, limits[0].member), (Cause::ReceiverLimit, who), "{limits:?}");
    // 4000 symbols of 108 bytes with their headers, at 100 kB/s, are 4.32 s.
    let seconds = limits[0].time.as_secs_f64();
    assert!((4.1..4.6).contains(&seconds), "{limits:?}");
    let limit = members.iter().find(|member| Some(member.id) == who).unwrap().limit;
    assert_eq!(limit, Some(Bitrate::from_bits_per_s(800_000)));
    let world = limited(800_000, 1, &[("rate_max", "400 kbit/s")], SlowPolicy::Wait);
    assert_eq!(world.source.machine.status().limits[0].cause, Cause::RateMax);
}

#[test]
fn an_absurd_limit_brings_nobody_below_the_floor() {
    for limit in [0, 1, 1000] {
        // The operator's floor: 4.32 s.
        let world = limited(limit, 1, &[("rate_min", "800 kbit/s")], SlowPolicy::Wait);
        let status = world.source.machine.status();
        let seconds = status.limits[0].time.as_secs_f64();
        assert_eq!(status.limits[0].cause, Cause::ReceiverLimit, "{:?}", status.limits);
        assert!((4.1..4.6).contains(&seconds), "{limit}: {:?}", status.limits);
        // Without a floor, 16 kbit/s: 216 s, and the time for SPMs and answers.
        let world = limited(limit, 1, &[], SlowPolicy::Wait);
        let seconds = world.source.machine.status().limits[0].time.as_secs_f64();
        assert!((210.0..280.0).contains(&seconds), "{limit}: {seconds}");
    }
    let world = limited(u64::MAX, 1, &[], SlowPolicy::Wait);
    let limits = world.source.machine.status().limits;
    assert!(limits.iter().all(|limit| limit.cause != Cause::ReceiverLimit), "{limits:?}");
}

#[test]
fn who_asks_for_less_than_the_floor_holds_up_nobody() {
    let world = limited(160_000, 3, &[], floor(800_000));
    let done = world.receivers[1..].iter().map(|it| it.completed_at().unwrap());
    // At 160 kbit/s the transfer takes 21 s.
    assert!(done.max() < Some(s(5)));
}

#[test]
fn a_limit_ends_with_the_member_that_asked_for_it() {
    let limit = Some(Bitrate::from_bits_per_s(400_000));
    let choices = Choices { wait_for: 2, limit, ..Choices::default() };
    let mut world = World::new(LEN, 2, &choices, 5);
    // At 400 kbit/s the transfer takes 8 s.
    world.run_until(s(3));
    let now = world.now;
    world.receivers[0].act(now, Machine::handle_close);
    world.run_until(s(20));
    assert!(world.receivers[1].completed_at() < Some(s(7)));
    let limits = world.source.machine.status().limits;
    assert_eq!(limits[0].cause, Cause::ReceiverLimit, "{limits:?}");
    assert!(limits.iter().all(|limit| limit.cause != Cause::RateMax), "{limits:?}");
}

#[test]
fn who_has_met_no_limit_has_only_begun() {
    let mut world = World::new(40_000, 1, &Choices::default(), 5);
    world.spacing = Duration::ZERO;
    let limits = limits(world, Share::default(), Share::default());
    assert_eq!(limits[0].cause, Cause::Start, "{limits:?}");
}

#[test]
fn who_compares_for_long_is_waited_for() {
    for (told, want) in [(false, Cause::Receivers), (true, Cause::ReceiverDisk)] {
        let mut world = World::new(20_000, 0, &Choices::default(), 5);
        // The store is polled every 20 ms: 3 s for its search, and 3 s to compare.
        world.add(Disk { slowness: 150, ..Disk::default() }, Time::ZERO);
        let limits = match told {
            true => limits(world, Share { busy: 50, ..Share::default() }, Share::default()),
            false => {
                world.complete_by(s(60));
                world.source.machine.status().limits
            }
        };
        assert_eq!(limits[0].cause, want, "{limits:?}");
        assert!(limits[0].time >= s(2).since(Time::ZERO), "{limits:?}");
    }
}
