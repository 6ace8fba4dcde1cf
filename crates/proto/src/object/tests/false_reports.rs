//! Tests of a member with false reports: the time for which it delays the others.

use alloc::vec;
use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Seq, Time};

use super::hostile::{nak, report, reporting, wanting};
use super::world::*;
use crate::congestion::AckVector;
use crate::congestion::pgmcc::PgmccReport;
use crate::object::Part;
use crate::object::layout::block_id;
use crate::object::wire::Entry;
use crate::pgm::wire::{Body, PacketType};

/// Packets that such a member sends every 20 ms, given the number of packets sent so far.
type Reports = fn(Time, u32) -> Vec<Vec<u8>>;

const MEMBER: NodeId = NodeId(10);

fn worst(now: Time) -> PgmccReport {
    report(now, MEMBER, u16::MAX, Duration::from_secs(9))
}

fn crawling_ack(now: Time, highest: u32) -> Vec<u8> {
    let vector = AckVector { highest: Seq::new(highest), bitmap: 1 };
    reporting(&Body::Ack(vector), &worst(now))
}

fn bad_nak(now: Time, first: u32) -> Vec<u8> {
    reporting(&Body::Nak(nak(first)), &worst(now))
}

const FALSE_REPORTS: [(&str, Reports); 5] = [
    ("says that it loses all", |now, sent| vec![bad_nak(now, sent.saturating_sub(1))]),
    ("acknowledges one packet each second", |now, sent| {
        let first = now.since(Time::ZERO).as_millis() % 1000 < 20;
        let mut said = vec![bad_nak(now, sent.saturating_sub(1))];
        said.extend(first.then(|| crawling_ack(now, sent.saturating_sub(1))));
        said
    }),
    ("acknowledges the newest packet alone", |now, sent| {
        vec![crawling_ack(now, sent.saturating_sub(1))]
    }),
    ("acknowledges the same packet again and again", |now, _| vec![crawling_ack(now, 5)]),
    ("floods with all of it, and asks for everything", |now, sent| {
        let all = (0..10).flat_map(|i| {
            [bad_nak(now, sent.saturating_sub(i)), crawling_ack(now, sent.saturating_sub(i))]
        });
        let everything = [Entry::Run { first: block_id(Part::Content, 0), count: 62 }];
        all.chain([wanting(sent, &everything)]).collect()
    }),
];

/// Returns the seconds in which the other members get 400 kB; `None` after 100 s.
fn time_beside_it(choices: &Choices, reports: Reports) -> Option<f64> {
    let mut world = World::new(400_000, 3, choices, 2)
        .with_network(losing_if(|hop, _| hop.from == MEMBER && hop.kind != PacketType::Spmr));
    for step in 0..5000u64 {
        world.run_until(at(20 * step));
        let done = |i: usize| world.receivers[i].completed_at();
        if let (Some(one), Some(other)) = (done(1), done(2)) {
            assert!(world.is_intact(1) && world.is_intact(2));
            return Some(one.max(other).as_secs_f64());
        }
        let sent = world.source.data_sent as u32;
        for bytes in reports(world.now, sent) {
            world.unicast(MEMBER, SOURCE, &bytes);
        }
    }
    None
}

#[test]
fn false_reports_hold_the_group_neither_with_a_floor_nor_without() {
    // 400 kB in symbols of 100 bytes with a header of 8 and repairs take 18 s at the floor.
    let wait = Choices { give_up: Duration::from_secs(600), ..Choices::default() };
    let floors = [
        // Claimed round trips do not lengthen the stall timer.
        ("none", wait.clone(), 20.0),
        ("rate_min", wait.clone().with(&[("rate_min", "200 kbit/s")]), 20.0),
        // Detection takes five seconds, and the return to full speed a moment.
        ("drop-below", Choices { slow: floor(200_000), ..wait }, 20.0),
    ];
    for (case, reports) in FALSE_REPORTS {
        for (which, choices, most) in &floors {
            let time = time_beside_it(choices, reports);
            assert!(time.is_some_and(|time| time < *most), "{case}, {which}: {time:?} s");
        }
    }
}
