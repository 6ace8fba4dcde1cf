//! Shared harness of the tests of pgmcc's sender and receiver.

use faircast_base::{CutReason, Duration, NodeId, Seq, Time};

pub(super) use crate::congestion::common::bench::{ReceiverBench, SenderBench, ms, original};
use crate::congestion::pgmcc::{PgmccConfig, PgmccReceiver, PgmccReport, PgmccSender, Profile};
use crate::congestion::{AckVector, Carrier, SenderControl};

pub(super) const LEN: u32 = 1400;

pub(super) fn plain_of(profile: Profile) -> PgmccConfig {
    PgmccConfig { spread: false, slow_start_open: false, ..PgmccConfig::profile(profile) }
}

pub(super) fn plain() -> PgmccConfig {
    plain_of(Profile::Improved)
}

pub(super) type Bench = SenderBench<PgmccSender>;

impl Bench {
    pub(super) fn new(config: PgmccConfig) -> Self {
        Self::of(PgmccSender::new(config), LEN)
    }

    pub(super) fn running(config: PgmccConfig, rounds: u32, loss: f64) -> Self {
        let mut bench = Self::new(config);
        bench.pump(1);
        for _ in 0..rounds {
            bench.round(1, loss);
        }
        bench
    }

    pub(super) fn report(&self, from: u32, loss: f64, rtt: Duration) -> PgmccReport {
        let echo_ms = (self.now.since(Time::ZERO).as_millis()).wrapping_sub(rtt.as_millis()) as u32;
        PgmccReport { echo_ms, loss: (loss * 65535.0) as u16, receiver: Some(NodeId(from)) }
    }

    pub(super) fn ack(&mut self, from: u32, highest: u32, bitmap: u32, loss: f64) {
        let sent_at = self.sent[highest as usize].0;
        let report = self.report(from, loss, self.now.since(sent_at));
        let vector = AckVector { highest: Seq::new(highest), bitmap };
        self.take_on(Carrier::Ack(vector), &report);
    }

    pub(super) fn ack_from(&mut self, from: u32, first: u32, loss: f64) {
        for seq in first..self.next() {
            self.ack(from, seq, u32::MAX, loss);
        }
    }

    pub(super) fn nak(&mut self, from: u32, first: u32, loss: f64, rtt: Duration) {
        let report = self.report(from, loss, rtt);
        self.take_on(Carrier::Nak { first: Seq::new(first) }, &report);
    }

    pub(super) fn round(&mut self, from: u32, loss: f64) {
        self.advance(ms(100));
        for seq in self.acked..self.next() {
            self.ack(from, seq, u32::MAX, loss);
            self.pump(u32::MAX);
            self.acked = seq + 1;
        }
    }

    pub(super) fn due(&self) -> Duration {
        self.sender.next_timeout().expect("a timer is armed").since(self.now)
    }

    pub(super) fn window(&self) -> f64 {
        self.sender.gauges().window.expect("pgmcc has a window")
    }

    pub(super) fn flight(&self) -> u32 {
        self.sender.gauges().flight.expect("pgmcc counts what is in flight")
    }

    pub(super) fn loss_cuts(&self) -> usize {
        self.cuts(CutReason::Loss)
    }

    pub(super) fn named(&self) -> Option<u32> {
        self.sent.last().expect("one was sent").1.acker.map(|node| node.0)
    }
}

pub(super) type Listener = ReceiverBench<PgmccReceiver>;

impl Listener {
    pub(super) fn new(config: PgmccConfig) -> Self {
        Self::of(PgmccReceiver::new(config, NodeId(4)), NodeId(4))
    }
}
