//! Why a transfer was no faster: each cause is made, and must be the one that is told.

use alloc::string::ToString;
use alloc::vec::Vec;

use faircast_base::{Duration, Time};

use super::world::*;
use crate::object::{Cause, HostLoad, Limit};
use crate::options::{OptionValue, Options};

const LEN: usize = 400_000;

/// What the source says in the end of a transfer to one receiver, both of whose hosts tell each tenth
/// of a second how their threads spend their time, of which so many thousandths each.
fn limits(mut world: World, receiver: Share, source: Share) -> Vec<Limit> {
    for step in 1..600 {
        world.run_until(Time::ZERO + ms(100 * step));
        let now = world.now;
        world.receivers[0].act(now, |machine, _| machine.note_host(receiver.after(now)));
        world.source.act(now, |machine, _| machine.note_host(source.after(now)));
    }
    world.assert_all_complete();
    world.source.machine.status().limits
}

/// Thousandths of a thread's time, and packets that its socket dropped in a second.
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

/// One receiver behind a bottleneck that loses one packet in fifty.
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
    let bound = [("rate_max".to_string(), OptionValue::Text("400 kbit/s".to_string()))];
    let choices = Choices::default();
    let options = Options::checked(bound, choices.scheme.options).unwrap();
    let world = World::new(LEN, 1, &Choices { options, ..choices }, 5);
    let limits = limits(world, Share::default(), Share::default());
    assert_eq!((limits[0].cause, limits[0].member), (Cause::RateMax, None), "{limits:?}");
    // 4000 symbols of 108 bytes with their headers, at 50 kB/s, are 8.64 s.
    let seconds = limits[0].time.as_secs_f64();
    assert!((8.3..9.0).contains(&seconds), "{limits:?}");
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
        // It is asked each 20 ms: 3 s until it has looked what is there, and 3 s to compare.
        world.add(Disk { slowness: 150, ..Disk::default() }, Time::ZERO);
        let limits = match told {
            true => limits(world, Share { busy: 50, ..Share::default() }, Share::default()),
            false => {
                world.run_until(s(60));
                world.assert_all_complete();
                world.source.machine.status().limits
            }
        };
        assert_eq!(limits[0].cause, want, "{limits:?}");
        assert!(limits[0].time >= s(2).since(Time::ZERO), "{limits:?}");
    }
}
