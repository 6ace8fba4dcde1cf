//! Tests of each half of the scheme alone.

use alloc::vec::Vec;

use super::*;

#[test]
fn it_begins_with_one_packet_in_the_guessed_round_trip() {
    let mut bench = Bench::new();
    bench.pass(ms(2900));
    let times: Vec<u64> =
        bench.sent.iter().map(|(at, _)| at.since(Time::ZERO).as_millis()).collect();
    assert_eq!(times, [0, 500, 1000, 1500, 2000, 2500]);
    assert_eq!(bench.sent[0].1.rtt_max_us, 510_000, "half a second between packets, and clocks");
    assert_eq!(bench.sent[0].1.echo, None);
}

#[test]
fn full_packets_after_a_tiny_first_one_do_not_wait_longer() {
    let mut bench = Bench::new();
    bench.len = 60;
    bench.pass(ms(400));
    bench.len = PAYLOAD;
    bench.pass(ms(2500));
    let times: Vec<u64> =
        bench.sent.iter().map(|(at, _)| at.since(Time::ZERO).as_millis()).collect();
    assert_eq!(times, [0, 500, 1000, 1500, 2000, 2500]);
    bench.report(1, 1e4, 40, true);
    bench.len = 60;
    bench.pass(ms(5000));
    let for_payload = bench.sender.gauges().rate_bits_per_s.unwrap() / bench.rate();
    let bytes = f64::from(HEADER_BYTES) / (1.0 - for_payload);
    assert!((100.0..900.0).contains(&bytes), "{bytes}");
}

#[test]
fn slow_start_climbs_over_one_round_trip_and_at_most_doubles() {
    let mut bench = Bench::new();
    bench.pass(ms(1000));
    let first = bench.rate();
    assert!((first - 16_000.0).abs() < 1e-6);
    bench.report(1, 1e9, 40, false);
    bench.pass(ms(20));
    bench.permit();
    assert!((bench.rate() / first - 1.5).abs() < 0.02, "{}", bench.rate());
    bench.pass(ms(30));
    assert!((bench.rate() / first - 2.0).abs() < 0.01, "a lie of a gigabit changes nothing");
    bench.report(1, 20_000.0, 40, true);
    assert!(!bench.in_slow_start());
    assert!((bench.rate() - 20_000.0).abs() < 0.01);
}

#[test]
fn the_clr_is_followed_down_at_once_and_up_by_a_packet_per_largest_round_trip_each() {
    let mut bench = Bench::running();
    bench.report(1, 4e5, 40, true);
    assert!((bench.rate() - 4e5).abs() < 1.0);
    assert_eq!(bench.cuts(CutReason::Report), 1);
    let largest = f64::from(bench.sent.last().unwrap().1.rtt_max_us) / 1e6;
    bench.pass(ms(20));
    bench.report(1, 1e6, 40, true);
    let want = 4e5 + 8000.0 / largest * (0.020 / largest).min(1.0);
    assert!((bench.rate() - want).abs() < 500.0, "{} {want}", bench.rate());
    for _ in 0..40 {
        bench.pass(Duration::from_secs_f64(largest));
        let before = bench.rate();
        bench.report(1, 5e5, 40, true);
        assert!(bench.rate() - before <= 8000.0 / 0.04 + 1.0);
    }
    assert!((bench.rate() - 5e5).abs() < 1.0, "and no higher than it can take: {}", bench.rate());
}

#[test]
fn a_clr_whose_queue_has_drained_is_not_silent_before_it_reports_again() {
    let mut bench = Bench::running();
    for _ in 0..40 {
        bench.report(1, 1e6, 460, true);
        bench.pass(ms(460));
    }
    // The queue drains at once, but the receiver's smoothed round trip stays above 400 ms.
    bench.report(1, 1e6, 30, true);
    let before = bench.rate();
    bench.pass(ms(420));
    assert_eq!(bench.rate(), before);
    assert_eq!(bench.stalls(), 0);
    bench.pass(ms(1500));
    assert!((bench.rate() / before - 0.5).abs() < 1e-9);
}

#[test]
fn a_receiver_that_can_take_less_than_the_rate_becomes_the_clr() {
    let mut bench = Bench::running();
    bench.report(2, 2e6, 40, true);
    assert_eq!(bench.representative(), Some(1), "it can take more");
    bench.report(3, 6e5, 80, true);
    assert_eq!(bench.representative(), Some(3));
    assert!((bench.rate() - 6e5).abs() < 1.0);
    bench.pass(ms(20));
    // A receiver without a measured round trip assumes R_max, which the sender corrects.
    let report = TfmccReport { have_rtt: false, ..bench.report_of(4, 5e5, 1, true) };
    bench.take(&report);
    assert_eq!(bench.representative(), Some(3), "a near receiver is not slow");
    let largest = bench.sent.last().unwrap().1.rtt_max_us;
    let report =
        TfmccReport { have_rtt: false, ..bench.report_of(5, 5e5, u64::from(largest) / 1000, true) };
    bench.take(&report);
    assert_eq!(bench.representative(), Some(5));
    let switches = bench.switches();
    assert_eq!(switches[0], (Some(1), SwitchReason::First));
    assert_eq!(switches[1..], [(Some(3), SwitchReason::Slower), (Some(5), SwitchReason::Slower)]);
}

#[test]
fn after_the_clr_has_left_the_rate_is_held_for_a_round() {
    let mut bench = Bench::running();
    let rate = bench.rate();
    let round = bench.sent.last().unwrap().1.round;
    let report = TfmccReport { leaving: true, ..bench.report_of(1, 1e6, 40, true) };
    bench.take(&report);
    assert_eq!(bench.representative(), None);
    bench.pass(ms(10));
    let announce = bench.sent.last().unwrap().1;
    assert_eq!((announce.echo, announce.round), (None, round.wrapping_add(1)), "a round begins");
    bench.report(2, 3e6, 40, true);
    assert_eq!(bench.representative(), Some(2));
    let span = Duration::from_micros(u64::from(announce.rtt_max_us)) * 6;
    for _ in 0..4 {
        bench.pass(span / 5);
        bench.report(2, 3e6, 40, true);
        assert_eq!(bench.rate(), rate);
    }
    bench.pass(span / 4);
    bench.report(2, 3e6, 40, true);
    assert!(bench.rate() > rate);
}

#[test]
fn silence_of_the_clr_halves_the_rate_and_then_it_counts_as_gone() {
    let mut bench = Bench::running();
    // The next packet leaves within 8 ms; then four round trips of 40 ms, then ten.
    bench.pass(ms(150));
    assert!((bench.rate() - 1e6).abs() < 1.0);
    bench.pass(ms(30));
    assert!((bench.rate() - 5e5).abs() < 1.0);
    assert_eq!(bench.representative(), Some(1));
    bench.pass(ms(240));
    assert_eq!(bench.representative(), None);
    assert_eq!(bench.switches().last(), Some(&(None, SwitchReason::Silent)));
    // Data still names the CLR, so that the next packet that arrives is answered.
    let echo = bench.sent.last().unwrap().1.echo.unwrap();
    assert_eq!((echo.receiver, echo.is_clr), (NodeId(1), true));
    bench.report(1, 1e6, 40, true);
    assert_eq!(bench.representative(), Some(1));
}

#[test]
fn silence_of_all_leads_to_one_packet_in_eight_seconds_and_back() {
    let mut bench = Bench::running();
    bench.pass(Duration::from_secs(300));
    assert!((bench.rate() - 1000.0).abs() < 1e-6, "{}", bench.rate());
    let before = bench.sent.len();
    bench.pass(Duration::from_secs(80));
    assert_eq!(bench.sent.len() - before, 10);
    bench.report(1, 1e6, 40, true);
    let start = 8000.0 / 0.04;
    assert!((bench.rate() / start - 1.0).abs() < 0.05, "as it would begin: {}", bench.rate());
}

#[test]
fn a_receiver_heard_without_a_report_wakes_a_sender_that_nobody_answered() {
    let mut bench = Bench::new();
    bench.pass(Duration::from_secs(300));
    assert!((bench.rate() - 1000.0).abs() < 1e-6, "{}", bench.rate());
    bench.with(SenderControl::on_unreached_receiver);
    assert!((bench.rate() - 16_000.0).abs() < 1e-6);
    bench.pass(ms(5500));
    let slower = bench.rate();
    assert!(slower < 16_000.0);
    bench.with(SenderControl::on_unreached_receiver);
    bench.with(SenderControl::on_unreached_receiver);
    assert!((bench.rate() - 16_000.0).abs() < 1e-6);
}

#[test]
fn absurd_reports_change_nothing_and_are_counted() {
    type Spoil = fn(&mut TfmccReport);
    let cases: [(&str, Spoil); 9] = [
        ("no rate", |report| report.bits_per_s = 0.0),
        ("a negative rate", |report| report.bits_per_s = -1e6),
        ("no number", |report| report.bits_per_s = f32::NAN),
        ("infinity", |report| report.bits_per_s = f32::INFINITY),
        ("minus infinity", |report| report.bits_per_s = f32::NEG_INFINITY),
        ("an echo from the future", |report| report.echo_us = report.echo_us.wrapping_add(90_000)),
        ("an echo from before the start", |report| {
            report.echo_us = report.echo_us.wrapping_sub(20_000_000);
        }),
        ("an echo from long ago", |report| report.echo_us = report.echo_us.wrapping_sub(1 << 30)),
        ("a round to come", |report| report.round = report.round.wrapping_add(1)),
    ];
    for (name, spoil) in cases {
        let mut bench = Bench::running();
        let (rate, said) = (bench.rate(), bench.log.events.len());
        let mut report = bench.report_of(1, 1e3, 40, true);
        spoil(&mut report);
        bench.take(&report);
        assert_eq!(bench.rate(), rate, "{name}");
        assert_eq!(bench.representative(), Some(1), "{name}");
        let absurd = Event::BadInput { reason: BadInput::Absurd };
        assert_eq!(bench.log.events[said..], [(bench.now, absurd)], "{name}");
        assert_eq!(bench.sender.round_trip(bench.now, &report).is_none(), name.contains("echo"));
    }
}

#[test]
fn a_report_on_a_nak_tells_its_round_trip_alone() {
    let mut bench = Bench::running();
    let report = TfmccReport { on_nak: true, ..bench.report_of(2, 1e4, 90, true) };
    bench.take(&report);
    assert_eq!((bench.rate(), bench.representative()), (1e6, Some(1)));
    assert_eq!(bench.sender.round_trip(bench.now, &report), Some(ms(90)));
    bench.pass(ms(20));
    assert!(bench.sent.last().unwrap().1.rtt_max_us >= 90_000);
}

/// Checks that only the operator's floor, outside the control, prevents this.
#[test]
fn one_receiver_that_claims_next_to_nothing_takes_the_group_down_with_it() {
    let mut bench = Bench::new();
    bench.pass(ms(1000));
    bench.report(1, 1e6, 40, false);
    let mut sent = 0;
    for _ in 0..100 {
        bench.report(7, 1e-20, 40, true);
        sent += bench.pass(ms(100));
    }
    assert!(sent <= 3, "{sent} packets in 10 s");
}

#[test]
fn timestamps_go_back_by_their_urgency_and_the_clr_has_every_other_packet() {
    let mut bench = Bench::running();
    bench.pass(ms(20));
    for (node, have_rtt, rate) in [(2, true, 3e6), (3, false, 2e6), (4, true, 2e6)] {
        let report = TfmccReport { have_rtt, ..bench.report_of(node, rate, 40, false) };
        bench.take(&report);
    }
    let before = bench.sent.len();
    bench.pass(ms(40));
    let echoes: Vec<_> = bench.sent[before..]
        .iter()
        .filter_map(|(_, announce)| announce.echo.map(|echo| (echo.receiver.0, echo.is_clr)))
        .collect();
    assert_eq!(echoes[..4], [(3, false), (4, false), (2, false), (1, true)], "{echoes:?}");
    let held = bench.sent[before].1.echo.unwrap().held_us;
    assert_eq!(u64::from(held), bench.sent[before].0.since(bench.now - ms(40)).as_nanos() / 1000);
}

#[test]
fn the_rate_stands_still_while_the_application_does_not_use_it() {
    let mut bench = Bench::running();
    bench.report(1, 5e5, 40, true);
    bench.with(SenderControl::on_idle);
    for _ in 0..3 {
        bench.now += ms(100);
        bench.with(|sender, cx| {
            if sender.next_timeout().is_some_and(|at| at <= cx.now) {
                sender.on_timeout(cx);
            }
        });
        bench.report(1, 1e6, 40, true);
    }
    assert!((bench.rate() - 5e5).abs() < 1.0);
    bench.pass(ms(100));
    bench.report(1, 1e6, 40, true);
    assert!(bench.rate() > 5e5);
}

#[test]
fn after_a_long_pause_it_begins_anew_and_returns_in_slow_start() {
    for (pause_ms, halvings) in [(300, 0), (1000, 2), (60_000, 3)] {
        let mut bench = Bench::running();
        bench.with(SenderControl::on_idle);
        bench.now += ms(pause_ms);
        bench.pass(ms(20));
        let want = (1e6 / f64::from(1 << halvings)).max(200_000.0);
        assert!((bench.rate() / want - 1.0).abs() < 0.05, "{pause_ms}: {}", bench.rate());
        bench.pass(ms(40));
        assert_eq!(bench.stalls(), 0);
        if halvings == 0 {
            continue;
        }
        assert!(bench.in_slow_start());
        bench.report(1, 3e4, 40, false);
        assert!((bench.rate() / want - 1.0).abs() < 0.05, "{}", bench.rate());
        let mut reports = 0;
        while bench.in_slow_start() {
            bench.pass(ms(40));
            let rate = 2.0 * bench.rate();
            bench.report(1, rate, 40, false);
            reports += 1;
            assert!(reports <= 4, "doubling leads back to the rate before");
        }
        bench.pass(ms(50));
        assert!((0.95e6..1.3e6).contains(&bench.rate()), "{}", bench.rate());
    }
}

#[test]
fn after_a_long_pause_losses_before_it_bound_slow_start_and_do_not_end_it() {
    let paused = || {
        let mut bench = Bench::running();
        bench.with(SenderControl::on_idle);
        bench.now += ms(1000);
        bench.pass(ms(20));
        assert!((bench.rate() / 2.5e5 - 1.0).abs() < 0.05, "{}", bench.rate());
        bench
    };
    for (can_take, want) in [(2e6, 1e6), (6e5, 6e5)] {
        let mut bench = paused();
        for _ in 0..2 {
            bench.report(1, can_take, 40, true);
            bench.pass(ms(40));
            assert!(bench.rate() <= can_take, "{}", bench.rate());
        }
        assert!((bench.rate() / want - 1.0).abs() < 0.3, "{can_take}: {}", bench.rate());
    }
    let mut bench = paused();
    bench.report(1, 2e5, 40, true);
    assert!(!bench.in_slow_start());
}

#[test]
fn small_messages_now_and_then_do_not_hold_back_full_packets() {
    let mut bench = Bench::new();
    bench.pass(ms(1000));
    bench.len = 20;
    for _ in 0..20 {
        bench.with(SenderControl::on_idle);
        bench.pass(ms(1));
        bench.with(SenderControl::on_idle);
        bench.now += ms(40);
        bench.report(1, 2e3, 40, false);
        bench.now += ms(959);
    }
    assert!(bench.rate() >= 0.9 * 8000.0 / 0.04, "{}", bench.rate());
}

#[test]
fn repairs_ask_for_reports_and_nobody_answering_them_is_silence() {
    let mut bench = Bench::running();
    let before = bench.rate();
    let repairs = bench.pass_repairs(ms(2000));
    let announced = repairs.iter().filter_map(|(at, said)| Some((*at, (*said)?)));
    let announced: Vec<_> = announced.collect();
    let count = announced.len();
    assert!(count > 10 && count * 2 < repairs.len(), "{count}");
    assert!(announced.iter().all(|(at, said)| said.sent_us == microseconds(*at)));
    assert!(bench.rate() < before / 4.0 && bench.representative().is_none(), "{}", bench.rate());
}

#[test]
fn no_rate_makes_a_moment_without_end() {
    let mut bench = Bench::new();
    for _ in 0..10_000 {
        bench.report(1, 4e11, 0, false);
        bench.permit();
        bench.now += ms(1);
    }
    assert_eq!(bench.pump(1000), 256);
}

proptest::proptest! {
    #[test]
    fn no_sequence_of_reports_takes_the_rate_out_of_its_bounds(
        steps in proptest::collection::vec(
            (0u32..6, proptest::num::f32::ANY, 0u32.., 0u64..400, 0u8..16, 0u8..), 1..200,
        ),
    ) {
        let mut bench = Bench::new();
        bench.pass(ms(100));
        for (node, rate, echo, wait, flags, round) in steps {
            let report = TfmccReport {
                receiver: Some(NodeId(node)),
                have_rtt: flags & 1 != 0,
                have_loss: flags & 2 != 0,
                leaving: flags == 4,
                on_nak: flags == 8,
                round: if flags == 5 { round } else { bench.sent.last().unwrap().1.round },
                sent_us: echo,
                echo_us: if flags < 2 { echo } else { microseconds(bench.now) - echo % 60_000 },
                bits_per_s: rate.min(1e8),
            };
            bench.take(&report);
            let bounds = 999.9..=4e11;
            proptest::prop_assert!(bounds.contains(&bench.rate()), "{}", bench.rate());
            bench.pass(ms(wait.min(40)));
            let later = bench.sender.next_timeout().is_none_or(|at| at > bench.now);
            proptest::prop_assert!(later);
        }
    }
}

struct Listener {
    bench: ReceiverBench<TfmccReceiver>,
    seq: u32,
    suppress_above: f32,
}

impl Listener {
    fn new() -> Self {
        let mut receiver = TfmccReceiver::new(NodeId(3));
        receiver.set_header(HEADER_BYTES);
        let bench = ReceiverBench::of(receiver, NodeId(3));
        Self { bench, seq: 0, suppress_above: f32::MAX }
    }

    fn announce(&self, round: u8) -> TfmccAnnounce {
        let sent_us = microseconds(self.bench.now).wrapping_sub(20_000);
        let suppress_above = self.suppress_above;
        TfmccAnnounce { sent_us, echo: None, round, rtt_max_us: 100_000, suppress_above }
    }

    fn named(&self, stamp_us: u32) -> TfmccAnnounce {
        let echo = Echo { receiver: NodeId(3), is_clr: true, stamp_us, held_us: 0 };
        TfmccAnnounce { echo: Some(echo), ..self.announce(1) }
    }

    fn data(&mut self, announce: &TfmccAnnounce) -> Option<TfmccReport> {
        self.bench.arrive(&original(self.seq, PAYLOAD), Some(announce));
        self.seq += 1;
        self.due()
    }

    fn due(&mut self) -> Option<TfmccReport> {
        let mut reports = self.bench.reports();
        assert!(reports.len() <= 1, "{reports:?}");
        let (audience, report) = reports.pop()?;
        assert_eq!(audience, Audience::SenderNak);
        Some(report)
    }

    fn run(&mut self, round: u8, span: Duration) -> Option<TfmccReport> {
        let end = self.bench.now + span;
        while self.bench.now < end {
            let announce = self.announce(round);
            assert!(self.data(&announce).is_none(), "it waits for its timer");
            self.bench.pass(ms(5));
            if let Some(report) = self.due() {
                return Some(report);
            }
        }
        None
    }
}

#[test]
fn a_receiver_answers_repairs_and_what_they_overtake_says_nothing_new() {
    let mut listener = Listener::new();
    let older = listener.named(900_000);
    listener.bench.pass(ms(5));
    let repair = Arrival { repair: true, ..original(70, PAYLOAD) };
    listener.bench.arrive(&repair, Some(&listener.named(960_000)));
    assert!(listener.bench.receiver.is_clr);
    assert!(listener.due().is_some());
    let rtt = listener.bench.receiver.round_trip.seconds().unwrap();
    listener.data(&older);
    assert_eq!(listener.bench.receiver.round_trip.seconds(), Some(rtt));
    assert_eq!(listener.bench.receiver.arrivals.loss(), 0.0, "the repair's number is no hole");
}

#[test]
fn a_pause_forgets_losses_unless_packets_of_it_are_missing() {
    for (missing, forgotten) in [(0, true), (1, false)] {
        let mut listener = Listener::new();
        for k in 0..100 {
            // The third packet from the end is lost too, but not detected.
            listener.seq += u32::from(k == 50 || k == 98);
            listener.data(&listener.announce(1));
            listener.bench.now += ms(5);
        }
        assert!(listener.bench.receiver.arrivals.loss() > 0.0);
        listener.bench.now += Duration::from_secs(20);
        listener.seq += missing;
        for _ in 0..5 {
            listener.data(&listener.announce(2));
            listener.bench.now += ms(5);
        }
        assert_eq!(listener.bench.receiver.arrivals.loss() == 0.0, forgotten, "{missing} missing");
    }
}

#[test]
fn a_receiver_answers_each_round_once() {
    let mut listener = Listener::new();
    for round in [254, 255, 0, 1] {
        let report = listener.run(round, ms(610)).unwrap();
        assert_eq!((report.round, report.have_rtt, report.have_loss), (round, false, false));
        if round == 1 {
            assert!((f64::from(report.bits_per_s) / 3.2e6 - 1.0).abs() < 1e-6);
        }
        assert_eq!(listener.run(round, ms(700)), None, "once");
        assert_eq!(listener.run(round.wrapping_sub(1), ms(700)), None, "an older round");
    }
}

#[test]
fn lower_rates_of_others_silence_a_receiver_that_the_sender_knows_the_distance_of() {
    let reports = |suppressed: bool, rtt_ms: u32| {
        let mut listener = Listener::new();
        let stamp_us = microseconds(listener.bench.now).wrapping_sub(1000 * rtt_ms);
        let echo = Echo { receiver: NodeId(3), is_clr: false, stamp_us, held_us: 0 };
        let first = TfmccAnnounce { echo: Some(echo), ..listener.announce(0) };
        listener.data(&first);
        listener.suppress_above = if suppressed { 1.0 } else { f32::MAX };
        listener.run(1, ms(700)).is_some()
    };
    assert!(reports(false, 40));
    assert!(!reports(true, 40));
    // R_max is 100 ms. A more distant receiver must report (src: RFC 4654 s4.5).
    assert!(reports(true, 140));
}

#[test]
fn the_clr_reports_once_a_round_trip_and_at_each_loss_event() {
    let mut listener = Listener::new();
    let (mut reports, mut stamps) = (Vec::new(), alloc::vec![(0, 960_000)]);
    for k in 0..200u64 {
        if k == 100 {
            listener.seq += 1;
        }
        let back = stamps.iter().rev().find(|(sent, _)| sent + 8 <= k || *sent == 0).unwrap();
        let announce = listener.named(back.1);
        if let Some(report) = listener.data(&announce) {
            stamps.push((k, report.sent_us));
            reports.push((k, report));
        }
        listener.bench.now += ms(5);
    }
    assert!(listener.bench.receiver.is_clr);
    let losses = reports.iter().filter(|(_, report)| report.have_loss).count();
    assert!(losses > 0 && reports.iter().all(|(_, report)| report.have_rtt));
    let first_loss = reports.iter().find(|(_, report)| report.have_loss).unwrap();
    assert_eq!(first_loss.0, 102);
    let before: Vec<u64> = reports.iter().map(|(k, _)| *k).filter(|k| *k < 100).collect();
    assert!(before.len() > 8 && before.windows(2).all(|pair| pair[1] - pair[0] >= 8), "{before:?}");
    let lost = first_loss.1;
    assert!(lost.bits_per_s > 0.0 && lost.bits_per_s.is_finite());
}

#[test]
fn only_a_clr_must_say_that_it_leaves() {
    let mut listener = Listener::new();
    listener.data(&listener.announce(1));
    assert!(!listener.bench.receiver.on_leaving());
    listener.data(&listener.named(960_000));
    assert!(listener.bench.receiver.on_leaving());
    let report = listener.bench.on_nak().unwrap();
    assert!(report.leaving && !report.on_nak);
}
