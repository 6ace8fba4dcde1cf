//! Tests of repairs in the window.

use faircast_base::Event;

use super::harness::{Bench, LEN, ms, plain, plain_of};
use crate::congestion::pgmcc::{PgmccConfig, Profile};
use crate::congestion::{Permit, SenderControl};

fn running(config: PgmccConfig) -> Bench {
    let mut bench = Bench::running(config, 20, 0.0);
    bench.advance(ms(100));
    bench.ack_from(1, bench.acked, 0.0);
    assert_eq!(bench.flight(), 0);
    bench
}

fn repair(bench: &mut Bench) -> bool {
    let free = bench.with(|s, cx| s.permit(cx, LEN, true)) == Permit::Now;
    if free {
        assert_eq!(bench.send_repair(1), None, "nobody is to acknowledge a repair");
    }
    free
}

#[test]
fn a_repair_takes_the_room_of_one_packet_for_one_round_trip() {
    let mut bench = running(plain());
    let room = bench.window() as u32;
    assert!(repair(&mut bench));
    assert!(repair(&mut bench));
    assert_eq!(bench.pump(u32::MAX), room - 2);
    assert_eq!(bench.permit(), Permit::Blocked);
    assert!(bench.due() <= ms(101), "{}", bench.due());
    bench.advance(ms(101));
    assert_eq!(bench.pump(u32::MAX), 2);
}

#[test]
fn no_round_trip_is_longer_than_the_time_since_the_packet_that_a_report_names() {
    let mut bench = running(plain());
    let first = bench.next();
    bench.pump(8);
    bench.advance(ms(50));
    // Honest echoes, and a forged packet's timestamp, for which repairs would take room too long.
    for (echoed, want) in [(40, 40), (51, 51), (1500, 50)] {
        bench.nak(2, first, 0.5, ms(echoed));
        let taken = ms(want).as_nanos();
        let is_it =
            |event: &Event| matches!(event, Event::RttSample { rtt_ns, .. } if *rtt_ns == taken);
        assert_eq!(bench.count(is_it), 1, "{echoed} ms");
    }
}

#[test]
fn repairs_alone_cannot_stall_the_session() {
    let mut bench = running(plain());
    while repair(&mut bench) {}
    assert_eq!(bench.permit(), Permit::Blocked);
    bench.advance(ms(101));
    assert_eq!(bench.permit(), Permit::Now);
    bench.advance(ms(10_000));
    assert_eq!(bench.stalls(), 0);
}

#[test]
fn uncharged_repairs_are_free() {
    let mut bench = running(PgmccConfig { charge_repairs: false, ..plain() });
    for _ in 0..100 {
        assert!(repair(&mut bench));
    }
    assert_eq!(bench.flight(), 0);
}

#[test]
fn repairs_name_the_acker_only_where_they_are_to_be_acknowledged() {
    for (profile, named) in [(Profile::Improved, false), (Profile::Paper, true)] {
        let mut bench = running(plain_of(profile));
        let announce = bench.send_repair(1);
        assert_eq!(announce.is_some_and(|announce| announce.acker.is_some()), named);
    }
}
