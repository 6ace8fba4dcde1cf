//! A sender and a receiver under test, each with a clock, a trace that keeps everything, and
//! shorthands.

use std::vec::Vec;

use faircast_base::{
    BadInput, CutReason, Cx, Duration, Event, NodeId, Purpose, Rng, Seq, SwitchReason, Time, Trace,
};

use crate::congestion::ormcc::{
    OrmccAnnounce, OrmccConfig, OrmccReceiver, OrmccReport, OrmccSender, Profile,
};
use crate::congestion::{Arrival, Audience, Carrier, Permit, ReceiverFeedback, SenderControl};

#[derive(Default)]
pub(super) struct Log(pub(super) Vec<Event>);

impl Trace for Log {
    fn emit(&mut self, _: Time, event: Event) {
        self.0.push(event);
    }
}

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(super) fn paper() -> OrmccConfig {
    OrmccConfig::profile(Profile::Paper)
}

pub(super) fn improved() -> OrmccConfig {
    OrmccConfig::profile(Profile::Improved)
}

/// Bytes of a packet.
pub(super) const LEN: u32 = 1000;

pub(super) struct Bench {
    pub(super) now: Time,
    pub(super) rng: Rng,
    pub(super) log: Log,
    pub(super) sender: OrmccSender,
    pub(super) next: Seq,
    /// Bytes of the packets to come.
    pub(super) len: u32,
    pub(super) last: Option<OrmccAnnounce>,
}

impl Bench {
    pub(super) fn new(config: OrmccConfig) -> Self {
        Self {
            // An echo must not be from before the clock began.
            now: Time::ZERO + ms(100_000),
            rng: Rng::new(1, NodeId(0), Purpose::Machine(0)),
            log: Log::default(),
            sender: OrmccSender::new(config),
            next: Seq::new(0),
            len: LEN,
            last: None,
        }
    }

    pub(super) fn with<R>(&mut self, f: impl FnOnce(&mut OrmccSender, &mut Cx<'_>) -> R) -> R {
        let mut cx = Cx { now: self.now, rng: &mut self.rng, trace: &mut self.log };
        f(&mut self.sender, &mut cx)
    }

    pub(super) fn permit(&mut self) -> Permit {
        let len = self.len;
        self.with(|sender, cx| sender.permit(cx, len, false))
    }

    pub(super) fn send(&mut self) -> OrmccAnnounce {
        let seq = self.next;
        self.next = seq.next();
        let len = self.len;
        let announce = self.with(|sender, cx| sender.on_sent(cx, seq, len));
        self.last = Some(announce);
        announce
    }

    /// Sends all that may be sent within `span`, each packet at its moment. Returns how many.
    pub(super) fn run(&mut self, span: Duration) -> u32 {
        let end = self.now + span;
        let mut count = 0;
        loop {
            match self.permit() {
                Permit::Now => {
                    self.send();
                    count += 1;
                }
                Permit::At(at) if at < end => self.now = at,
                Permit::At(_) => break,
                Permit::Blocked => panic!("a rate never blocks"),
            }
        }
        self.now = end;
        count
    }

    /// Sends repairs alone for `span`, as many as the rate lets leave.
    pub(super) fn repair(&mut self, span: Duration) {
        let (end, len) = (self.now + span, self.len);
        while self.now < end {
            match self.with(|sender, cx| sender.permit(cx, len, true)) {
                Permit::Now => {
                    self.with(|sender, cx| sender.on_repair_sent(cx, Seq::new(0), len));
                }
                Permit::At(at) => self.now = at.min(end),
                Permit::Blocked => panic!("a rate never blocks"),
            }
        }
    }

    pub(super) fn report(&self, from: u32, rate: Option<f64>, rtt: Duration) -> OrmccReport {
        let sent = self.now.since(Time::ZERO).saturating_sub(rtt);
        OrmccReport {
            echo_us: (sent.as_nanos() / 1000) as u32,
            rate: rate.map(|rate| rate as f32),
            receiver: Some(NodeId(from)),
            congestion: true,
        }
    }

    pub(super) fn take(&mut self, report: &OrmccReport) {
        let null = Carrier::NullNak { latest: Seq::new(0) };
        self.with(|s, cx| s.on_report(cx, NodeId(99), null, report));
    }

    /// A congestion indication over a round trip of 100 ms.
    pub(super) fn indicate(&mut self, from: u32, rate: f64) {
        self.take(&self.report(from, Some(rate), ms(100)));
    }

    /// A sign of life over a round trip of 100 ms.
    pub(super) fn alive(&mut self, from: u32, rate: Option<f64>) {
        let report = OrmccReport { congestion: false, ..self.report(from, rate, ms(100)) };
        self.take(&report);
    }

    /// Bytes per second.
    pub(super) fn rate(&self) -> f64 {
        self.sender.gauges().rate_bits_per_s.expect("it has sent") / 8.0
    }

    pub(super) fn representative(&self) -> Option<u32> {
        self.sender.gauges().representative.map(|node| node.0)
    }

    pub(super) fn switches(&self) -> Vec<(Option<u32>, SwitchReason)> {
        let switch = |event: &Event| match event {
            Event::Representative { node, reason } => Some((node.map(|node| node.0), *reason)),
            _ => None,
        };
        self.log.0.iter().filter_map(switch).collect()
    }

    pub(super) fn cuts(&self, why: CutReason) -> usize {
        let is = |event: &&Event| matches!(event, Event::Cut { reason, .. } if *reason == why);
        self.log.0.iter().filter(is).count()
    }

    pub(super) fn absurd(&self) -> usize {
        let absurd = Event::BadInput { reason: BadInput::Absurd };
        self.log.0.iter().filter(|event| **event == absurd).count()
    }
}

pub(super) struct Listener {
    pub(super) now: Time,
    rng: Rng,
    log: Log,
    pub(super) receiver: OrmccReceiver,
    pub(super) announce: OrmccAnnounce,
}

impl Listener {
    pub(super) fn new(config: OrmccConfig) -> Self {
        let announce = OrmccAnnounce {
            sent_us: 0,
            rtt_us: 100_000,
            representative: Some(NodeId(7)),
            rate: None,
            feedback: config.feedback,
            alive: config.guard,
            pauses: 0,
        };
        Self {
            now: Time::ZERO + ms(1000),
            rng: Rng::new(1, NodeId(7), Purpose::Machine(0)),
            log: Log::default(),
            receiver: OrmccReceiver::new(config, NodeId(7)),
            announce,
        }
    }

    pub(super) fn with<R>(&mut self, f: impl FnOnce(&mut OrmccReceiver, &mut Cx<'_>) -> R) -> R {
        let mut cx = Cx { now: self.now, rng: &mut self.rng, trace: &mut self.log };
        f(&mut self.receiver, &mut cx)
    }

    /// A packet comes now, after 20 ms on its way.
    pub(super) fn arrive(&mut self, seq: u32) {
        self.arrive_as(Arrival {
            seq: Seq::new(seq),
            len: LEN,
            repair: false,
            duplicate: false,
            congestion_experienced: false,
        });
    }

    pub(super) fn arrive_as(&mut self, arrival: Arrival) {
        let sent = self.now.since(Time::ZERO).saturating_sub(ms(20));
        let announce = OrmccAnnounce { sent_us: (sent.as_nanos() / 1000) as u32, ..self.announce };
        let announce = (!arrival.repair).then_some(&announce);
        self.with(|receiver, cx| receiver.on_data(cx, &arrival, announce));
    }

    /// Packets of these numbers, one each 10 ms; the reports that follow from each.
    pub(super) fn stream(&mut self, numbers: impl IntoIterator<Item = u32>) -> Vec<OrmccReport> {
        let mut reports = Vec::new();
        for seq in numbers {
            self.pass(ms(10));
            self.arrive(seq);
            reports.extend(self.reports().into_iter().map(|(_, report)| report));
        }
        reports
    }

    /// Time passes, with all timers at their moments.
    pub(super) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.receiver.next_timeout().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            self.with(|receiver, cx| receiver.on_timeout(cx));
        }
        self.now = end;
    }

    pub(super) fn reports(&mut self) -> Vec<(Audience, OrmccReport)> {
        let mut all = Vec::new();
        while let Some(report) = self.with(|receiver, cx| receiver.poll_report(cx)) {
            all.push(report);
        }
        all
    }
}
