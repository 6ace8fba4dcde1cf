//! Tests of the acker's election.

use faircast_base::{NodeId, Seq, SwitchReason};

use super::harness::{Bench, ms, plain, plain_of};
use crate::congestion::pgmcc::{Model, PgmccConfig, PgmccReport, Profile};
use crate::congestion::{AckVector, Carrier, Permit, SenderControl};

#[test]
fn the_first_report_makes_the_acker_whatever_carries_it() {
    let mut by_nak = Bench::new(plain());
    assert_eq!(by_nak.pump(10), 1, "one packet calls for an election");
    assert_eq!(by_nak.sent[0].1.acker, None);
    assert_eq!(by_nak.permit(), Permit::Blocked);
    by_nak.now += ms(80);
    by_nak.nak(3, 0, 0.0, ms(80));
    assert_eq!(by_nak.switches(), [(Some(3), SwitchReason::First)]);
    assert_eq!((by_nak.window(), by_nak.flight()), (1.0, 0));
    assert_eq!(by_nak.pump(10), 1);
    assert_eq!(by_nak.sent[1].1.acker, Some(NodeId(3)));

    let mut by_ack = Bench::new(plain());
    by_ack.pump(10);
    by_ack.now += ms(80);
    by_ack.ack(3, 0, 0x1, 0.0);
    assert_eq!(by_ack.switches(), [(Some(3), SwitchReason::First)]);
    assert_eq!((by_ack.window(), by_ack.flight()), (2.0, 0), "it acknowledges as well");
}

fn with_acker(config: PgmccConfig) -> Bench {
    Bench::running(config, 20, 0.01)
}

fn at_once() -> PgmccConfig {
    PgmccConfig { compare_alike: false, ..plain() }
}

#[test]
fn another_replaces_the_acker_only_beyond_the_bias() {
    for (model, bias) in [(Model::Simple, 2.0 / 3.0), (Model::Full, 0.75)] {
        let config = PgmccConfig { model, acker_bias: bias, ..at_once() };
        // With equal loss, throughput is as 1 / RTT: the limit is 100 ms / bias.
        let mut bench = with_acker(config);
        bench.nak(2, 1, 0.01, ms((100.0 / bias) as u64 - 2));
        assert_eq!(bench.representative(), Some(1), "{model:?}");
        let mut bench = with_acker(config);
        bench.nak(2, 1, 0.01, ms((100.0 / bias) as u64 + 2));
        assert_eq!(bench.representative(), Some(2), "{model:?}");
        assert_eq!(bench.switches().last(), Some(&(Some(2), SwitchReason::Slower)));
    }
}

#[test]
fn loss_weighs_more_in_the_full_model() {
    // Receivers of the paper's figure 11: equal in the simple model, 1.58 apart in the full one.
    for (model, winner) in [(Model::Simple, 1), (Model::Full, 2)] {
        let mut bench = Bench::new(PgmccConfig { model, ..at_once() });
        bench.pump(1);
        bench.advance(ms(400));
        bench.nak(1, 0, 0.02, ms(400));
        bench.pump(1);
        bench.advance(ms(400));
        bench.nak(1, 0, 0.02, ms(400));
        bench.nak(2, 0, 0.08, ms(200));
        assert_eq!(bench.representative(), Some(winner), "{model:?}");
    }
}

#[test]
fn of_two_without_loss_the_acker_stays() {
    let mut bench = Bench::new(plain());
    bench.pump(1);
    bench.advance(ms(10));
    bench.ack(1, 0, 1, 0.0);
    bench.pump(2);
    bench.advance(ms(900));
    bench.nak(2, 1, 0.0, ms(900));
    assert_eq!(bench.representative(), Some(1));
}

#[test]
fn a_new_acker_is_held_for_a_round_trip_unless_another_is_far_slower() {
    let mut bench = with_acker(at_once());
    bench.nak(2, 1, 0.01, ms(200));
    assert_eq!(bench.representative(), Some(2));
    bench.advance(ms(100));
    bench.nak(3, 1, 0.01, ms(500));
    assert_eq!(bench.representative(), Some(2), "2.5 times slower within the holding time");
    bench.nak(4, 1, 0.01, ms(1200));
    assert_eq!(bench.representative(), Some(4), "6 times slower");
    let mut bench = with_acker(at_once());
    bench.nak(2, 1, 0.01, ms(200));
    bench.ack_from(1, bench.next() - 1, 0.0);
    assert!(bench.pump(10) > 0);
    bench.advance(ms(201));
    bench.ack(2, bench.next() - 1, u32::MAX, 0.01);
    bench.nak(3, 1, 0.01, ms(500));
    assert_eq!(bench.representative(), Some(3), "after the holding time");
    let mut free = with_acker(PgmccConfig { holding_time: 0, ..at_once() });
    free.nak(2, 1, 0.01, ms(200));
    free.nak(3, 1, 0.01, ms(500));
    assert_eq!(free.representative(), Some(3), "without the rule");
}

#[test]
fn by_the_letter_of_the_draft_a_switch_without_tokens_stalls() {
    for (profile, stalls) in
        [(Profile::Draft, true), (Profile::Paper, false), (Profile::Improved, false)]
    {
        let mut bench = with_acker(plain_of(profile));
        assert_eq!(bench.permit(), Permit::Blocked);
        bench.nak(2, 1, 0.2, ms(300));
        assert_eq!(bench.representative(), Some(2), "{profile:?}");
        bench.advance(ms(100));
        bench.ack_from(1, bench.acked, 0.01);
        assert_eq!(bench.permit() == Permit::Blocked, stalls, "{profile:?}");
    }
}

#[test]
fn when_the_acker_leaves_the_next_packet_calls_for_another() {
    let mut bench = with_acker(at_once());
    bench.pump(u32::MAX);
    bench.with(|s, cx| s.on_leave(cx, NodeId(7)));
    assert_eq!(bench.representative(), Some(1));
    bench.with(|s, cx| s.on_leave(cx, NodeId(1)));
    assert_eq!(bench.switches().last(), Some(&(None, SwitchReason::Left)));
    assert_eq!(bench.pump(10), 1, "the call does not wait for the window");
    assert_eq!(bench.named(), None);
    bench.advance(ms(60));
    let window = bench.window();
    bench.nak(5, 1, 0.01, ms(60));
    assert_eq!(bench.representative(), Some(5));
    assert_eq!(bench.window(), window, "the window outlives its acker");
}

#[test]
fn absurd_reports_are_refused_and_counted() {
    let mut bench = with_acker(at_once());
    let (window, flight) = (bench.window(), bench.flight());
    let good = bench.report(2, 1.0, ms(900));
    let mut send = |carrier, report: PgmccReport| bench.take_on(carrier, &report);
    let ack =
        |highest: u32| Carrier::Ack(AckVector { highest: Seq::new(highest), bitmap: u32::MAX });
    send(ack(5000), good); // Never sent.
    send(Carrier::Nak { first: Seq::new(5000) }, good); // Lost before it was sent.
    send(ack(u32::MAX), good); // Before the first packet.
    let future = PgmccReport { echo_ms: good.echo_ms.wrapping_add(60_000), ..good };
    send(Carrier::Nak { first: Seq::new(3) }, future);
    let ancient = PgmccReport { echo_ms: good.echo_ms.wrapping_sub(3_000_000), ..good };
    send(Carrier::Nak { first: Seq::new(3) }, ancient);
    assert_eq!(bench.refused(), 5);
    assert_eq!(bench.representative(), Some(1));
    assert_eq!((bench.window(), bench.flight()), (window, flight));
}

#[test]
fn an_acker_that_claims_losses_it_does_not_show_is_dropped() {
    let mut bench = Bench::new(PgmccConfig { window_max: 20.0, ..at_once() });
    bench.pump(1);
    bench.advance(ms(100));
    let mut seq = 0;
    while bench.representative().is_some() || seq == 0 {
        bench.ack(1, seq, u32::MAX, 0.4);
        bench.pump(u32::MAX);
        bench.advance(ms(5));
        seq += 1;
        assert!(seq < 4000, "it was never dropped");
    }
    assert_eq!(bench.switches().last(), Some(&(None, SwitchReason::Lied)));
    bench.nak(1, 1, 0.9, ms(100));
    assert_eq!(bench.representative(), None, "it may not come back");
    bench.nak(2, 1, 0.0, ms(100));
    assert_eq!(bench.representative(), Some(2));
}

#[test]
fn a_candidate_waits_until_the_acker_has_reported_on_the_same_packets() {
    let mut bench = with_acker(plain());
    bench.pump(u32::MAX);
    let lost = bench.next() - 1;
    bench.advance(ms(50));
    bench.nak(2, lost, 0.3, ms(50));
    assert_eq!(bench.representative(), Some(1));
    for _ in 0..6 {
        bench.round(1, 0.01);
    }
    assert_eq!(bench.representative(), Some(2));
    assert_eq!(bench.switches().last(), Some(&(Some(2), SwitchReason::Slower)));
    let mut bench = with_acker(plain());
    bench.pump(u32::MAX);
    let lost = bench.next() - 1;
    bench.advance(ms(90));
    bench.nak(2, lost, 0.05, ms(90));
    for _ in 0..6 {
        bench.round(1, 0.05);
    }
    assert_eq!(bench.representative(), Some(1));
}
