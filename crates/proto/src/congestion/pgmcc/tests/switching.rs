//! Seada and Helmy's section 4.4: near and far ackers alternate behind one bottleneck.

use std::collections::BTreeMap;
use std::vec::Vec;

use faircast_base::{Cx, Duration, Event, NodeId, Seq, SwitchReason, Time};

use super::harness::{Bench, LEN, Listener, ms, original, plain};
use crate::congestion::pgmcc::{PgmccAnnounce, PgmccConfig, PgmccReceiver, PgmccReport, Profile};
use crate::congestion::{AckVector, Audience, Carrier, ReceiverFeedback, SenderControl};

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
