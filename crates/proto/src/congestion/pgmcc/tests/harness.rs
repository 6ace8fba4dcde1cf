//! A sender under test with a clock, a trace that keeps everything, and shorthands.

use std::vec::Vec;

use faircast_base::{
    CutReason, Cx, Duration, Event, NodeId, Purpose, Rng, Seq, SwitchReason, Time, Trace,
};

use crate::congestion::pgmcc::{
    PgmccAnnounce, PgmccConfig, PgmccReport, PgmccSender, Profile, SlowStart,
};
use crate::congestion::{AckVector, Carrier, Permit, SenderControl};

#[derive(Default)]
pub(super) struct Log(pub(super) Vec<(Time, Event)>);

impl Trace for Log {
    fn emit(&mut self, at: Time, event: Event) {
        self.0.push((at, event));
    }
}

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A profile whose window opens as the draft says and whose packets are not spread, so that both can be
/// computed by hand.
pub(super) fn plain_of(profile: Profile) -> PgmccConfig {
    let slow_start = SlowStart::Limited;
    PgmccConfig { spread: false, slow_start, ..PgmccConfig::profile(profile) }
}

/// The profile `improved` in that way.
pub(super) fn plain() -> PgmccConfig {
    plain_of(Profile::Improved)
}

pub(super) struct Bench {
    pub(super) now: Time,
    pub(super) rng: Rng,
    pub(super) log: Log,
    pub(super) sender: PgmccSender,
    pub(super) next: Seq,
    pub(super) sent: Vec<(Seq, Time, PgmccAnnounce)>,
    acked: u32,
}

impl Bench {
    pub(super) fn new(config: PgmccConfig) -> Self {
        Self {
            now: Time::ZERO,
            rng: Rng::new(1, NodeId(0), Purpose::Machine(0)),
            log: Log::default(),
            sender: PgmccSender::new(config),
            next: Seq::new(0),
            sent: Vec::new(),
            acked: 0,
        }
    }

    pub(super) fn with<R>(&mut self, f: impl FnOnce(&mut PgmccSender, &mut Cx<'_>) -> R) -> R {
        let mut cx = Cx { now: self.now, rng: &mut self.rng, trace: &mut self.log };
        f(&mut self.sender, &mut cx)
    }

    pub(super) fn advance(&mut self, span: Duration) {
        self.now += span;
        self.with(|sender, cx| sender.on_timeout(cx));
    }

    pub(super) fn permit(&mut self) -> Permit {
        self.with(|sender, cx| sender.permit(cx, 1400, false))
    }

    /// Sends all that may be sent, at most `most`; returns how many.
    pub(super) fn pump(&mut self, most: u32) -> u32 {
        let mut count = 0;
        while count < most && self.permit() == Permit::Now {
            let seq = self.next;
            let announce = self.with(|sender, cx| sender.on_sent(cx, seq, 1400));
            self.sent.push((seq, self.now, announce));
            self.next = seq.next();
            count += 1;
        }
        count
    }

    /// A report that measures exactly `rtt` where its carrier is no acknowledgement.
    pub(super) fn report(&self, from: u32, loss: f64, rtt: Duration) -> PgmccReport {
        let echo_ms = (self.now.since(Time::ZERO).as_millis()).wrapping_sub(rtt.as_millis()) as u32;
        PgmccReport { echo_ms, loss: (loss * 65535.0) as u16, receiver: Some(NodeId(from)) }
    }

    pub(super) fn ack(&mut self, from: u32, highest: u32, bitmap: u32, loss: f64) {
        let sent_at = self.sent[highest as usize].1;
        let report = self.report(from, loss, self.now.since(sent_at));
        let vector = AckVector { highest: Seq::new(highest), bitmap };
        self.with(|s, cx| s.on_report(cx, NodeId(from), Carrier::Ack(vector), &report));
    }

    pub(super) fn nak(&mut self, from: u32, first: u32, loss: f64, rtt: Duration) {
        let report = self.report(from, loss, rtt);
        let carrier = Carrier::Nak { first: Seq::new(first) };
        self.with(|s, cx| s.on_report(cx, NodeId(from), carrier, &report));
    }

    /// A round trip of 100 ms: `from` acknowledges all that is out, and the window is filled again.
    pub(super) fn round(&mut self, from: u32, loss: f64) {
        self.advance(ms(100));
        for seq in self.acked..self.next.value() {
            self.ack(from, seq, u32::MAX, loss);
            self.pump(u32::MAX);
            self.acked = seq + 1;
        }
    }

    /// Packets below this one were acknowledged by rounds.
    pub(super) fn acked(&self) -> u32 {
        self.acked
    }

    pub(super) fn window(&self) -> f64 {
        self.sender.gauges().window.expect("pgmcc has a window")
    }

    pub(super) fn flight(&self) -> u32 {
        self.sender.gauges().flight.expect("pgmcc counts what is in flight")
    }

    pub(super) fn acker(&self) -> Option<u32> {
        self.sender.gauges().representative.map(|node| node.0)
    }

    pub(super) fn count(&self, which: impl Fn(&Event) -> bool) -> usize {
        self.log.0.iter().filter(|(_, event)| which(event)).count()
    }

    pub(super) fn loss_cuts(&self) -> usize {
        self.count(|event| matches!(event, Event::Cut { reason: CutReason::Loss, .. }))
    }

    pub(super) fn stalls(&self) -> usize {
        self.count(|event| matches!(event, Event::Timeout { .. }))
    }

    pub(super) fn bad_inputs(&self) -> usize {
        self.count(|event| matches!(event, Event::BadInput { .. }))
    }

    pub(super) fn switches(&self) -> Vec<(Option<u32>, SwitchReason)> {
        let switch = |event: &Event| match *event {
            Event::Representative { node, reason } => Some((node.map(|node| node.0), reason)),
            _ => None,
        };
        self.log.0.iter().filter_map(|(_, event)| switch(event)).collect()
    }
}
