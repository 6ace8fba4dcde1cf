//! Tests of the acker's election, and Seada and Helmy's section 4.4: near and far ackers alternate.

use std::collections::BTreeMap;
use std::vec::Vec;

use faircast_base::{Cx, Duration, Event, NodeId, Seq, SwitchReason, Time};

use super::harness::{Bench, LEN, Listener, ms, original, plain, plain_of};
use crate::congestion::pgmcc::{
    Model, PgmccAnnounce, PgmccConfig, PgmccReceiver, PgmccReport, Profile,
};
use crate::congestion::{AckVector, Audience, Carrier, Permit, ReceiverFeedback, SenderControl};

const QUEUE: u64 = 30;

/// Transmission time of 1400 bytes at 500 kbit/s.
const SERVICE: Duration = Duration::from_micros(22_400);

enum What {
    Data { to: usize, seq: u32, announce: PgmccAnnounce },
    Nak { from: usize, seq: u32 },
    Report { from: usize, carrier: Carrier, report: PgmccReport },
}

struct Host {
    listener: Listener,
    delay: Duration,
    highest: Option<u32>,
    bitmap: u32,
}

struct Net {
    bench: Bench,
    hosts: Vec<Host>,
    events: BTreeMap<(Time, u64), What>,
    order: u64,
    free_at: Time,
    drops: Vec<Time>,
}

impl Net {
    fn new(config: PgmccConfig, delays: [Duration; 2]) -> Self {
        let hosts = delays.into_iter().zip(1..).map(|(delay, node)| {
            let listener = Listener::of(PgmccReceiver::new(config, NodeId(node)), NodeId(node));
            Host { listener, delay, highest: None, bitmap: 0 }
        });
        Self {
            bench: Bench::new(config),
            hosts: hosts.collect(),
            events: BTreeMap::new(),
            order: 0,
            free_at: Time::ZERO,
            drops: Vec::new(),
        }
    }

    fn at(&mut self, at: Time, what: What) {
        self.order += 1;
        self.events.insert((at, self.order), what);
    }

    fn run(&mut self, end: Time) {
        self.after_sender();
        while self.bench.now < end {
            let timers = self.hosts.iter().map(|host| host.listener.receiver.next_timeout());
            let timer = timers.chain([self.bench.sender.next_timeout()]).flatten().min();
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let next = timer.into_iter().chain(event).min().expect("it never ends");
            self.bench.now = next.max(self.bench.now);
            if event.is_some_and(|at| at <= next) {
                let (_, what) = self.events.pop_first().expect("it was looked at");
                self.handle(what);
                continue;
            }
            self.bench.with(SenderControl::on_timeout);
            self.after_sender();
            for index in 0..self.hosts.len() {
                self.feedback(index, ReceiverFeedback::on_timeout);
                self.after_receiver(index);
            }
        }
    }

    fn handle(&mut self, what: What) {
        match what {
            What::Data { to, seq, announce } => self.data(to, seq, &announce),
            What::Nak { from, seq } => {
                let report = self.feedback(from, ReceiverFeedback::report_for_nak);
                let carrier = Carrier::Nak { first: Seq::new(seq) };
                if let Some(report) = report {
                    let at = self.bench.now + self.hosts[from].delay;
                    self.at(at, What::Report { from, carrier, report });
                }
            }
            What::Report { from, carrier, report } => {
                let node = NodeId(from as u32 + 1);
                self.bench.with(|s, cx| s.on_report(cx, node, carrier, &report));
                self.after_sender();
            }
        }
    }

    fn feedback<R>(
        &mut self,
        index: usize,
        f: impl FnOnce(&mut PgmccReceiver, &mut Cx<'_>) -> R,
    ) -> R {
        let listener = &mut self.hosts[index].listener;
        listener.now = self.bench.now;
        listener.with(f)
    }

    fn data(&mut self, to: usize, seq: u32, announce: &PgmccAnnounce) {
        let host = &mut self.hosts[to];
        let gap = host.highest.map_or(32, |highest| seq - highest);
        host.bitmap = host.bitmap.checked_shl(gap).unwrap_or(0) | 1;
        let first = host.highest.map_or(seq, |highest| highest + 1);
        host.highest = Some(seq);
        if first < seq {
            let backoff = host.listener.rng.up_to(ms(30));
            self.at(self.bench.now + backoff, What::Nak { from: to, seq: first });
        }
        self.feedback(to, |r, cx| r.on_data(cx, &original(seq, LEN), Some(announce)));
        self.after_receiver(to);
    }

    fn after_receiver(&mut self, index: usize) {
        while let Some((audience, report)) = self.feedback(index, ReceiverFeedback::poll_report) {
            assert_eq!(audience, Audience::SenderAck);
            let host = &self.hosts[index];
            let highest = Seq::new(host.highest.expect("reports follow data"));
            let carrier = Carrier::Ack(AckVector { highest, bitmap: host.bitmap });
            let at = self.bench.now + host.delay;
            self.at(at, What::Report { from: index, carrier, report });
        }
    }

    fn after_sender(&mut self) {
        let before = self.bench.sent.len();
        self.bench.pump(u32::MAX);
        for index in before..self.bench.sent.len() {
            let (at, announce) = self.bench.sent[index];
            if self.free_at.since(at.min(self.free_at)) > SERVICE * QUEUE {
                self.drops.push(at);
                continue;
            }
            self.free_at = self.free_at.max(at) + SERVICE;
            for to in 0..self.hosts.len() {
                let at = self.free_at + self.hosts[to].delay;
                self.at(at, What::Data { to, seq: index as u32, announce });
            }
        }
    }

    /// Returns the number of drops more than 2 s apart, each of which TCP would answer by one cut.
    fn loss_events(&self) -> usize {
        let mut events = 0;
        let mut last = None;
        for &at in &self.drops {
            if last.is_none_or(|last: Time| at.since(last) > ms(2000)) {
                events += 1;
            }
            last = Some(at);
        }
        events
    }

    fn slower_switches(&self) -> usize {
        let slower = |(_, reason): &&(Option<u32>, SwitchReason)| *reason == SwitchReason::Slower;
        self.bench.switches().iter().filter(slower).count()
    }
}

fn run(config: PgmccConfig, far: Duration) -> Net {
    let mut net = Net::new(config, [ms(52), far]);
    net.run(Time::ZERO + Duration::from_secs(600));
    net
}

const CAPACITY: usize = 26_785;

#[test]
fn near_and_far_ackers_alternate_and_the_paper_profile_cuts_for_losses_that_are_none() {
    let net = run(PgmccConfig::profile(Profile::Paper), ms(250));
    let events = net.loss_events();
    assert!(events > 10, "{events}");
    assert!(net.slower_switches() > events, "there and back again: {}", net.slower_switches());
    let (cuts, drops) = (net.bench.loss_cuts(), net.drops.len());
    assert!(cuts * 10 > drops * 15, "{cuts} for {drops}");
    // The two switches are within a round trip (fig. 18).
    let switches: Vec<Time> = net
        .bench
        .log
        .events
        .iter()
        .filter_map(|(at, event)| match event {
            Event::Representative { reason: SwitchReason::Slower, .. } => Some(*at),
            _ => None,
        })
        .collect();
    let close = switches.windows(2).filter(|pair| pair[1].since(pair[0]) < ms(1000)).count();
    assert!(close * 10 > events * 8, "{close} pairs for {events}");
}

#[test]
fn the_improved_profile_cuts_once_for_each_loss_and_keeps_the_bottleneck_busy() {
    for compare_alike in [false, true] {
        // The low-pass filter: with loss intervals the two receivers hardly differ.
        let net = run(PgmccConfig { compare_alike, loss_intervals: false, ..plain() }, ms(250));
        let (events, switches) = (net.loss_events(), net.slower_switches());
        assert!(events > 10, "{events}");
        if compare_alike {
            assert!(switches <= 2, "the far one stays acker: {switches} for {events}");
        } else {
            assert!(switches > events / 2, "ackers do switch: {switches} for {events}");
        }
        assert!(net.bench.loss_cuts() <= events, "{} for {events}", net.bench.loss_cuts());
        assert_eq!(net.bench.stalls(), 0);
        assert!(net.bench.sent.len() > CAPACITY * 98 / 100, "{}", net.bench.sent.len());
    }
}

#[test]
fn the_improved_profile_answers_losses_while_ackers_take_turns() {
    let at_will = PgmccConfig { holding_time: 0, acker_bias: 1.0, compare_alike: false, ..plain() };
    let net = run(at_will, ms(60));
    let events = net.loss_events();
    assert!(net.slower_switches() > events, "{} for {events}", net.slower_switches());
    assert!(net.bench.loss_cuts() * 10 >= events * 9, "{} for {events}", net.bench.loss_cuts());
}

#[test]
fn without_a_difference_in_delay_the_paper_profile_cuts_for_real_losses_only() {
    let net = run(PgmccConfig::profile(Profile::Paper), ms(52));
    let (cuts, drops) = (net.bench.loss_cuts(), net.drops.len());
    assert!(drops > 10 && cuts <= drops, "{cuts} for {drops}");
    assert_eq!(net.bench.stalls(), 0);
    assert!(net.bench.sent.len() > CAPACITY * 98 / 100, "{}", net.bench.sent.len());
}

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
