//! Tests of the scheme's two halves, each alone with a clock and a trace.

use alloc::vec::Vec;

use faircast_base::{
    BadInput, Bitrate, CutReason, Cx, Duration, Event, NodeId, Purpose, Rng, Seq, SwitchReason,
    Time, Trace,
};

use super::*;
use crate::control::{Arrival, Audience, Carrier, Permit, ReceiverFeedback, SenderControl};
use crate::endpoint::{Bounded, Bounds};
use crate::schemes::common::stamp::microseconds;

#[derive(Default)]
struct Log(Vec<Event>);

impl Trace for Log {
    fn emit(&mut self, _at: Time, event: Event) {
        self.0.push(event);
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Payload of all packets: 1000 bytes with headers.
const PAYLOAD: u32 = 1000 - HEADER_BYTES;

/// A sender and the packets that it sent.
struct Bench<C> {
    now: Time,
    rng: Rng,
    log: Log,
    payload: u32,
    sender: C,
    next: Seq,
    sent: Vec<(Time, TfmccAnnounce)>,
}

impl Bench<TfmccSender> {
    fn new(config: TfmccConfig) -> Self {
        Bench::of(TfmccSender::new(config))
    }

    /// A sender that has left slow start at the CLR 1, at 1 Mbit/s and 40 ms.
    fn running() -> Self {
        let mut bench = Self::new(TfmccConfig::default());
        bench.pass(ms(1000));
        // Long enough for the guessed round trip to be forgotten.
        for _ in 0..200 {
            bench.report(1, 1e6, 40, false);
            bench.pass(ms(40));
        }
        bench.report(1, 1e6, 40, true);
        assert!(!bench.sender.in_slow_start());
        assert!((bench.rate() - 1e6).abs() < 1.0, "{}", bench.rate());
        bench
    }

    fn rate(&self) -> f64 {
        self.sender.bits_per_s()
    }

    fn clr(&self) -> Option<u32> {
        self.sender.gauges().representative.map(|node| node.0)
    }
}

impl<C: SenderControl<Announce = TfmccAnnounce, Report = TfmccReport>> Bench<C> {
    fn of(sender: C) -> Self {
        Bench {
            now: Time::ZERO,
            rng: Rng::new(1, NodeId(0), Purpose::Machine(0)),
            log: Log::default(),
            payload: PAYLOAD,
            sender,
            next: Seq::new(0),
            sent: Vec::new(),
        }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut C, &mut Cx<'_>) -> T) -> T {
        let mut cx = Cx { now: self.now, rng: &mut self.rng, trace: &mut self.log };
        act(&mut self.sender, &mut cx)
    }

    /// Sends as the sender permits, with its timers on time, for so long.
    fn pass(&mut self, span: Duration) {
        let (end, payload) = (self.now + span, self.payload);
        loop {
            let permit = self.with(|sender, cx| sender.permit(cx, payload, false));
            let ready = match permit {
                Permit::Now => {
                    let seq = self.next;
                    self.next = seq.next();
                    let announce = self.with(|sender, cx| sender.on_sent(cx, seq, payload));
                    self.sent.push((self.now, announce));
                    continue;
                }
                Permit::At(at) => at,
                Permit::Blocked => panic!("a rate never blocks"),
            };
            let timer = self.sender.next_timeout().unwrap_or(Time::MAX);
            let next = ready.min(timer);
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            if timer <= self.now {
                self.with(SenderControl::on_timeout);
            }
        }
    }

    fn report_of(&self, node: u32, rate: f64, rtt_ms: u64, have_loss: bool) -> TfmccReport {
        let round = self.sent.last().map_or(0, |(_, announce)| announce.round);
        TfmccReport {
            receiver: Some(NodeId(node)),
            have_rtt: true,
            have_loss,
            leaving: false,
            rides: false,
            round,
            sent_us: 77,
            echo_us: microseconds(self.now).wrapping_sub(rtt_ms as u32 * 1000),
            bits_per_s: rate as f32,
        }
    }

    fn take(&mut self, report: &TfmccReport) {
        self.with(|sender, cx| {
            let first = Seq::new(0);
            sender.on_report(cx, NodeId(9999), Carrier::Nak { first }, report);
        });
    }

    fn report(&mut self, node: u32, rate: f64, rtt_ms: u64, have_loss: bool) {
        let report = self.report_of(node, rate, rtt_ms, have_loss);
        self.take(&report);
    }

    fn switches(&self) -> Vec<(Option<u32>, SwitchReason)> {
        let switch = |event: &Event| match event {
            Event::Representative { node, reason } => Some((node.map(|node| node.0), *reason)),
            _ => None,
        };
        self.log.0.iter().filter_map(switch).collect()
    }
}

#[test]
fn it_begins_with_one_packet_in_the_guessed_round_trip() {
    let mut bench = Bench::new(TfmccConfig::default());
    bench.pass(ms(2900));
    let times: Vec<u64> =
        bench.sent.iter().map(|(at, _)| at.since(Time::ZERO).as_millis()).collect();
    assert_eq!(times, [0, 500, 1000, 1500, 2000, 2500]);
    assert_eq!(bench.sent[0].1.rtt_max_us, 510_000, "half a second between packets, and clocks");
    assert_eq!(bench.sent[0].1.echo, None);
}

#[test]
fn full_packets_after_a_tiny_first_one_do_not_wait_longer() {
    let mut bench = Bench::new(TfmccConfig::default());
    bench.payload = 60;
    bench.pass(ms(400));
    bench.payload = PAYLOAD;
    bench.pass(ms(2500));
    let times: Vec<u64> =
        bench.sent.iter().map(|(at, _)| at.since(Time::ZERO).as_millis()).collect();
    assert_eq!(times, [0, 500, 1000, 1500, 2000, 2500]);
    // From the first report on it is their mean.
    bench.report(1, 1e4, 40, true);
    bench.payload = 60;
    bench.pass(ms(5000));
    let for_payload = bench.sender.gauges().rate_bits_per_s.unwrap() / bench.rate();
    let bytes = f64::from(HEADER_BYTES) / (1.0 - for_payload);
    assert!((100.0..900.0).contains(&bytes), "{bytes}");
}

#[test]
fn slow_start_climbs_over_one_round_trip_and_at_most_doubles() {
    let mut bench = Bench::new(TfmccConfig::default());
    bench.pass(ms(1000));
    let first = bench.rate();
    assert!((first - 16_000.0).abs() < 1e-6);
    bench.report(1, 1e9, 40, false);
    bench.pass(ms(20));
    bench.with(|sender, cx| sender.permit(cx, PAYLOAD, false));
    assert!((bench.rate() / first - 1.5).abs() < 0.02, "{}", bench.rate());
    bench.pass(ms(30));
    assert!((bench.rate() / first - 2.0).abs() < 0.01, "a lie of a gigabit changes nothing");
    bench.report(1, 20_000.0, 40, true);
    assert!(!bench.sender.in_slow_start());
    assert!((bench.rate() - 20_000.0).abs() < 0.01);
}

#[test]
fn the_clr_is_followed_down_at_once_and_up_by_a_packet_per_largest_round_trip_each() {
    let mut bench = Bench::running();
    bench.report(1, 4e5, 40, true);
    assert!((bench.rate() - 4e5).abs() < 1.0);
    assert!(bench.log.0.contains(&Event::Cut { reason: CutReason::Report, window_milli: 0 }));
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
    // The queue is empty at once, and the receiver's smoothed round trip still above 400 ms.
    bench.report(1, 1e6, 30, true);
    let before = bench.rate();
    bench.pass(ms(420));
    assert_eq!(bench.rate(), before);
    assert!(!bench.log.0.iter().any(|event| matches!(event, Event::Timeout { .. })));
    // Longer than four of those it is.
    bench.pass(ms(1500));
    assert!((bench.rate() / before - 0.5).abs() < 1e-9);
}

#[test]
fn whoever_can_take_less_than_the_rate_becomes_the_clr() {
    let mut bench = Bench::running();
    bench.report(2, 2e6, 40, true);
    assert_eq!(bench.clr(), Some(1), "it can take more");
    bench.report(3, 6e5, 80, true);
    assert_eq!(bench.clr(), Some(3));
    assert!((bench.rate() - 6e5).abs() < 1.0);
    bench.pass(ms(20));
    // Without a round trip of its own a receiver takes R_max for it; the sender knows better.
    let report = TfmccReport { have_rtt: false, ..bench.report_of(4, 5e5, 1, true) };
    bench.take(&report);
    assert_eq!(bench.clr(), Some(3), "a near receiver is not slow");
    let largest = bench.sent.last().unwrap().1.rtt_max_us;
    let report =
        TfmccReport { have_rtt: false, ..bench.report_of(5, 5e5, u64::from(largest) / 1000, true) };
    bench.take(&report);
    assert_eq!(bench.clr(), Some(5));
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
    assert_eq!(bench.clr(), None);
    bench.pass(ms(10));
    let announce = bench.sent.last().unwrap().1;
    assert_eq!((announce.echo, announce.round), (None, round.wrapping_add(1)), "a round begins");
    bench.report(2, 3e6, 40, true);
    assert_eq!(bench.clr(), Some(2));
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
fn silence_of_the_clr_halves_the_rate_and_then_ends_its_office() {
    let mut bench = Bench::running();
    // The next packet leaves within 8 ms; four round trips of 40 ms, then ten.
    bench.pass(ms(150));
    assert!((bench.rate() - 1e6).abs() < 1.0);
    bench.pass(ms(30));
    assert!((bench.rate() - 5e5).abs() < 1.0);
    assert_eq!(bench.clr(), Some(1));
    bench.pass(ms(240));
    assert_eq!(bench.clr(), None);
    assert_eq!(bench.switches().last(), Some(&(None, SwitchReason::Silent)));
    // It is still told that it is the one, so that it answers the next packet that comes through.
    let echo = bench.sent.last().unwrap().1.echo.unwrap();
    assert_eq!((echo.receiver, echo.is_clr), (NodeId(1), true));
    bench.report(1, 1e6, 40, true);
    assert_eq!(bench.clr(), Some(1));
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
fn whoever_is_heard_without_a_report_wakes_a_sender_that_nobody_answered() {
    let mut bench = Bench::new(TfmccConfig::default());
    bench.pass(Duration::from_secs(300));
    assert!((bench.rate() - 1000.0).abs() < 1e-6, "{}", bench.rate());
    bench.with(SenderControl::on_heard);
    assert!((bench.rate() - 16_000.0).abs() < 1e-6);
    bench.pass(ms(5500));
    let slower = bench.rate();
    assert!(slower < 16_000.0);
    bench.with(SenderControl::on_heard);
    bench.with(SenderControl::on_heard);
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
        let (rate, said) = (bench.rate(), bench.log.0.len());
        let mut report = bench.report_of(1, 1e3, 40, true);
        spoil(&mut report);
        bench.take(&report);
        assert_eq!(bench.rate(), rate, "{name}");
        assert_eq!(bench.clr(), Some(1), "{name}");
        assert_eq!(bench.log.0[said..], [Event::BadInput { reason: BadInput::Absurd }], "{name}");
        assert_eq!(bench.sender.round_trip(bench.now, &report).is_none(), name.contains("echo"));
    }
}

#[test]
fn a_report_on_a_nak_tells_its_round_trip_alone() {
    let mut bench = Bench::running();
    let report = TfmccReport { rides: true, ..bench.report_of(2, 1e4, 90, true) };
    bench.take(&report);
    assert_eq!((bench.rate(), bench.clr()), (1e6, Some(1)));
    assert_eq!(bench.sender.round_trip(bench.now, &report), Some(ms(90)));
    bench.pass(ms(20));
    assert!(bench.sent.last().unwrap().1.rtt_max_us >= 90_000);
}

/// One receiver claims next to nothing: without a floor the group goes down with it, with the
/// operator's floor it does not.
#[test]
fn the_operators_floor_holds_against_a_liar() {
    for (min, least, most) in [(None, 0, 3), (Some(Bitrate::from_bits_per_s(200_000)), 270, 280)] {
        let bounds = Bounds { min, max: None };
        let mut bench = Bench::of(Bounded::new(TfmccSender::new(TfmccConfig::default()), &bounds));
        bench.pass(ms(1000));
        bench.report(1, 1e6, 40, false);
        let before = bench.sent.len();
        for _ in 0..100 {
            bench.report(7, 1e-20, 40, true);
            bench.pass(ms(100));
        }
        let sent = bench.sent.len() - before;
        assert!((least..=most).contains(&sent), "{min:?}: {sent} packets in 10 s");
    }
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
    // R_max is 40 ms: a second is two and a half times ten of them.
    for (pause_ms, halvings) in [(300, 0), (1000, 2), (60_000, 3)] {
        let mut bench = Bench::running();
        bench.with(SenderControl::on_idle);
        bench.now += ms(pause_ms);
        bench.pass(ms(20));
        // No lower than one packet in R_max.
        let want = (1e6 / f64::from(1 << halvings)).max(200_000.0);
        assert!((bench.rate() / want - 1.0).abs() < 0.05, "{pause_ms}: {}", bench.rate());
        // Nobody could answer meanwhile: that is no silence of theirs.
        bench.pass(ms(40));
        assert!(!bench.log.0.iter().any(|event| matches!(event, Event::Timeout { .. })));
        if halvings == 0 {
            continue;
        }
        assert!(bench.sender.in_slow_start());
        // Who has forgotten its losses tells twice what it got, which was next to nothing at first.
        bench.report(1, 3e4, 40, false);
        assert!((bench.rate() / want - 1.0).abs() < 0.05, "{}", bench.rate());
        let mut reports = 0;
        while bench.sender.in_slow_start() {
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
fn small_messages_now_and_then_do_not_hold_back_full_packets() {
    let mut bench = Bench::new(TfmccConfig::default());
    bench.pass(ms(1000));
    bench.payload = 20;
    for _ in 0..20 {
        bench.with(SenderControl::on_idle);
        bench.pass(ms(1));
        bench.with(SenderControl::on_idle);
        bench.now += ms(40);
        bench.report(1, 2e3, 40, false);
        bench.now += ms(959);
    }
    // One full packet in R_max.
    assert!(bench.rate() >= 0.9 * 8000.0 / 0.04, "{}", bench.rate());
}

#[test]
fn repairs_ask_for_reports_and_nobody_answering_them_is_silence() {
    let mut bench = Bench::running();
    let before = bench.rate();
    let end = bench.now + ms(2000);
    let (mut repairs, mut announced) = (0, 0);
    while bench.now < end {
        match bench.with(|sender, cx| sender.permit(cx, PAYLOAD, true)) {
            Permit::Now => {
                repairs += 1;
                let said = bench.with(|sender, cx| sender.on_repair_sent(cx, Seq::new(0), PAYLOAD));
                if let Some(said) = said {
                    assert_eq!(said.sent_us, microseconds(bench.now));
                    announced += 1;
                }
            }
            Permit::At(at) => {
                let timer = bench.sender.next_timeout().unwrap_or(Time::MAX);
                bench.now = at.min(timer).max(bench.now);
                if timer <= bench.now {
                    bench.with(SenderControl::on_timeout);
                }
            }
            Permit::Blocked => panic!("a rate never blocks"),
        }
    }
    // One in R_max.
    assert!(announced > 10 && announced * 2 < repairs, "{announced} {repairs}");
    assert!(bench.rate() < before / 4.0 && bench.clr().is_none(), "{}", bench.rate());
}

#[test]
fn a_receiver_answers_repairs_and_what_they_overtake_says_nothing_new() {
    let mut group = Group::new(3);
    let echo = |stamp_us| Some(Echo { receiver: NodeId(3), is_clr: true, stamp_us, held_us: 0 });
    let older = TfmccAnnounce { echo: echo(900_000), ..group.announce(1) };
    group.now += ms(5);
    let mut cx = Cx { now: group.now, rng: &mut group.rng, trace: &mut group.log };
    let repair = Arrival {
        seq: Seq::new(70),
        len: PAYLOAD,
        repair: true,
        duplicate: false,
        congestion_experienced: false,
    };
    let sent_us = microseconds(group.now).wrapping_sub(20_000);
    let announce = TfmccAnnounce { sent_us, echo: echo(960_000), ..older };
    group.receiver.on_data(&mut cx, &repair, Some(&announce));
    assert!(group.receiver.is_clr());
    assert!(group.receiver.poll_report(&mut cx).is_some());
    let rtt = group.receiver.rtt().unwrap();
    // The original left before it, and its echo with it.
    group.data(&older);
    assert_eq!(group.receiver.rtt(), Some(rtt));
    assert_eq!(group.receiver.loss(), 0.0, "the repair's number is no hole");
}

#[test]
fn a_pause_forgets_losses_unless_packets_of_it_are_missing() {
    for (missing, forgotten) in [(0, true), (1, false)] {
        let mut group = Group::new(3);
        for k in 0..100 {
            // The third packet from the end is lost too, and not known to be.
            group.seq += u32::from(k == 50 || k == 98);
            let announce = group.announce(1);
            group.data(&announce);
            group.now += ms(5);
        }
        assert!(group.receiver.loss() > 0.0);
        group.now += Duration::from_secs(20);
        group.seq += missing;
        for _ in 0..5 {
            let announce = group.announce(2);
            group.data(&announce);
            group.now += ms(5);
        }
        assert_eq!(group.receiver.loss() == 0.0, forgotten, "{missing} missing");
    }
}

#[test]
fn no_rate_makes_a_moment_without_end() {
    let mut bench = Bench::new(TfmccConfig::default());
    for _ in 0..10_000 {
        bench.report(1, 4e11, 0, false);
        bench.with(|sender, cx| sender.permit(cx, PAYLOAD, false));
        bench.now += ms(1);
    }
    let mut packets = 0;
    while bench.with(|sender, cx| sender.permit(cx, PAYLOAD, false)) == Permit::Now {
        let seq = bench.next;
        bench.next = seq.next();
        bench.with(|sender, cx| sender.on_sent(cx, seq, PAYLOAD));
        packets += 1;
        assert!(packets <= 256);
    }
    assert_eq!(packets, 256);
}

/// A receiver with a clock of its own.
struct Group {
    now: Time,
    rng: Rng,
    log: Log,
    receiver: TfmccReceiver,
    seq: u32,
    suppress_above: f32,
}

impl Group {
    fn new(node: u32) -> Self {
        Self {
            now: Time::ZERO + ms(1000),
            rng: Rng::new(u64::from(node), NodeId(node), Purpose::Machine(0)),
            log: Log::default(),
            receiver: TfmccReceiver::new(TfmccConfig::default(), NodeId(node)),
            seq: 0,
            suppress_above: f32::MAX,
        }
    }

    fn announce(&self, round: u8) -> TfmccAnnounce {
        let sent_us = microseconds(self.now).wrapping_sub(20_000);
        let suppress_above = self.suppress_above;
        TfmccAnnounce { sent_us, echo: None, round, rtt_max_us: 100_000, suppress_above }
    }

    /// Data comes; returns the report that it caused.
    fn data(&mut self, announce: &TfmccAnnounce) -> Option<(Audience, TfmccReport)> {
        let mut cx = Cx { now: self.now, rng: &mut self.rng, trace: &mut self.log };
        let arrival = Arrival {
            seq: Seq::new(self.seq),
            len: PAYLOAD,
            repair: false,
            duplicate: false,
            congestion_experienced: false,
        };
        self.seq += 1;
        self.receiver.on_data(&mut cx, &arrival, Some(announce));
        self.receiver.poll_report(&mut cx)
    }

    /// Data each 5 ms of one round until a report or this long.
    fn run(&mut self, round: u8, span: Duration) -> Option<TfmccReport> {
        let end = self.now + span;
        while self.now < end {
            let announce = self.announce(round);
            assert!(self.data(&announce).is_none(), "it waits for its timer");
            self.now += ms(5);
            let mut cx = Cx { now: self.now, rng: &mut self.rng, trace: &mut self.log };
            self.receiver.on_timeout(&mut cx);
            if let Some((audience, report)) = self.receiver.poll_report(&mut cx) {
                assert_eq!(audience, Audience::SenderNak);
                return Some(report);
            }
        }
        None
    }
}

#[test]
fn a_receiver_answers_each_round_once() {
    let mut group = Group::new(3);
    for round in [254, 255, 0, 1] {
        let report = group.run(round, ms(610)).unwrap();
        assert_eq!((report.round, report.have_rtt, report.have_loss), (round, false, false));
        if round == 1 {
            // Twice the receive rate: a packet of 1000 bytes each 5 ms.
            assert!((f64::from(report.bits_per_s) / 3.2e6 - 1.0).abs() < 1e-6);
        }
        assert_eq!(group.run(round, ms(700)), None, "once");
        assert_eq!(group.run(round.wrapping_sub(1), ms(700)), None, "an older round");
    }
}

#[test]
fn lower_rates_of_others_silence_a_receiver_that_the_sender_knows_the_distance_of() {
    // Whether it reports in a round whose data says that somebody can take next to nothing.
    let reports = |suppressed: bool, rtt_ms: u32| {
        let mut group = Group::new(3);
        let stamp_us = microseconds(group.now).wrapping_sub(1000 * rtt_ms);
        let echo = Echo { receiver: NodeId(3), is_clr: false, stamp_us, held_us: 0 };
        let first = TfmccAnnounce { echo: Some(echo), ..group.announce(0) };
        group.data(&first);
        group.suppress_above = if suppressed { 1.0 } else { f32::MAX };
        group.run(1, ms(700)).is_some()
    };
    assert!(reports(false, 40));
    assert!(!reports(true, 40));
    // R_max is 100 ms. Who is farther must say so (src: RFC 4654 s4.5).
    assert!(reports(true, 140));
}

#[test]
fn the_clr_reports_once_a_round_trip_and_at_each_loss_event() {
    let mut group = Group::new(3);
    let named = |group: &Group, stamp_us: u32| {
        let echo = Echo { receiver: NodeId(3), is_clr: true, stamp_us, held_us: 0 };
        TfmccAnnounce { echo: Some(echo), ..group.announce(1) }
    };
    // Its timestamps come back 40 ms after they left.
    let (mut reports, mut stamps) = (Vec::new(), alloc::vec![(0, 960_000)]);
    for k in 0..200u64 {
        if k == 100 {
            group.seq += 1;
        }
        let back = stamps.iter().rev().find(|(sent, _)| sent + 8 <= k || *sent == 0).unwrap();
        let announce = named(&group, back.1);
        if let Some((_, report)) = group.data(&announce) {
            stamps.push((k, report.sent_us));
            reports.push((k, report));
        }
        group.now += ms(5);
    }
    assert!(group.receiver.is_clr());
    let losses = reports.iter().filter(|(_, report)| report.have_loss).count();
    assert!(losses > 0 && reports.iter().all(|(_, report)| report.have_rtt));
    // Three later packets show the loss, and it is told at once.
    let first_loss = reports.iter().find(|(_, report)| report.have_loss).unwrap();
    assert_eq!(first_loss.0, 102);
    let before: Vec<u64> = reports.iter().map(|(k, _)| *k).filter(|k| *k < 100).collect();
    assert!(before.len() > 8 && before.windows(2).all(|pair| pair[1] - pair[0] >= 8), "{before:?}");
    let lost = first_loss.1;
    assert!(lost.bits_per_s > 0.0 && lost.bits_per_s.is_finite());
}

#[test]
fn only_a_clr_must_say_that_it_leaves() {
    let mut group = Group::new(3);
    let announce = group.announce(1);
    group.data(&announce);
    assert!(!group.receiver.on_leaving());
    let echo = Echo { receiver: NodeId(3), is_clr: true, stamp_us: 960_000, held_us: 0 };
    let announce = TfmccAnnounce { echo: Some(echo), ..group.announce(1) };
    group.data(&announce);
    assert!(group.receiver.on_leaving());
    let mut cx = Cx { now: group.now, rng: &mut group.rng, trace: &mut group.log };
    let report = group.receiver.report_for_nak(&mut cx).unwrap();
    assert!(report.leaving && !report.rides);
}

proptest::proptest! {
    /// Any reports at any times: the rate stays within its bounds, every wait ends.
    #[test]
    fn no_sequence_of_reports_takes_the_rate_out_of_its_bounds(
        steps in proptest::collection::vec(
            (0u32..6, proptest::num::f32::ANY, 0u32.., 0u64..400, 0u8..16, 0u8..), 1..200,
        ),
    ) {
        let mut bench = Bench::new(TfmccConfig::default());
        bench.pass(ms(100));
        for (node, rate, echo, wait, flags, round) in steps {
            let report = TfmccReport {
                receiver: Some(NodeId(node)),
                have_rtt: flags & 1 != 0,
                have_loss: flags & 2 != 0,
                leaving: flags == 4,
                rides: flags == 8,
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
