//! Shared harness of the tests of ORMCC's sender and receiver.

use std::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use crate::congestion::common::average::MovingAverage;
pub(super) use crate::congestion::common::bench::{ReceiverBench, SenderBench, ms, original};
use crate::congestion::common::stamp::microseconds;
use crate::congestion::ormcc::{
    OrmccAnnounce, OrmccConfig, OrmccReceiver, OrmccReport, OrmccSender, Profile,
};
use crate::congestion::{Arrival, Audience, SenderControl};

pub(super) fn paper() -> OrmccConfig {
    OrmccConfig::profile(Profile::Paper)
}

pub(super) fn improved() -> OrmccConfig {
    OrmccConfig::profile(Profile::Improved)
}

pub(super) const LEN: u32 = 1000;

pub(super) type Bench = SenderBench<OrmccSender>;

impl Bench {
    pub(super) fn new(config: OrmccConfig) -> Self {
        // Echoes must not predate the clock's beginning.
        Self { now: Time::ZERO + ms(100_000), ..Self::of(OrmccSender::new(config), LEN) }
    }

    pub(super) fn report(&self, from: u32, rate: Option<f64>, rtt: Duration) -> OrmccReport {
        OrmccReport {
            echo_us: microseconds(self.now).wrapping_sub((rtt.as_nanos() / 1000) as u32),
            rate: rate.map(|rate| rate as f32),
            receiver: Some(NodeId(from)),
            congestion: true,
            withdraws: false,
        }
    }

    pub(super) fn indicate(&mut self, from: u32, rate: f64) {
        self.take(&self.report(from, Some(rate), ms(100)));
    }

    pub(super) fn alive(&mut self, from: u32, rate: Option<f64>) {
        let report = OrmccReport { congestion: false, ..self.report(from, rate, ms(100)) };
        self.take(&report);
    }

    pub(super) fn at_100_ms(config: OrmccConfig) -> Self {
        let mut bench = Self::new(config);
        bench.sender.rtt_s = MovingAverage::of(0.1);
        bench
    }

    pub(super) fn rate(&self) -> f64 {
        self.sender.gauges().rate_bits_per_s.expect("it has sent") / 8.0
    }
}

pub(super) fn settled(rates: &[f64]) -> Bench {
    let mut bench = Bench::at_100_ms(paper());
    bench.pass(ms(1000));
    for &rate in rates {
        bench.pass(ms(200));
        bench.indicate(1, rate);
    }
    bench
}

pub(super) fn guarded() -> Bench {
    let mut bench = Bench::new(improved());
    bench.send();
    for _ in 0..10 {
        bench.pass(ms(100));
        bench.alive(1, Some(1e6));
    }
    bench
}

pub(super) struct Listener {
    pub(super) bench: ReceiverBench<OrmccReceiver>,
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
            alive: config.is_improved(),
            pauses: 0,
        };
        let receiver = OrmccReceiver::new(config, NodeId(7));
        Self { bench: ReceiverBench::of(receiver, NodeId(7)), announce }
    }

    pub(super) fn arrive(&mut self, arrival: &Arrival) {
        let sent_us = microseconds(self.bench.now).wrapping_sub(20_000);
        let announce = OrmccAnnounce { sent_us, ..self.announce };
        self.bench.arrive(arrival, (!arrival.repair).then_some(&announce));
    }

    pub(super) fn stream(&mut self, numbers: impl IntoIterator<Item = u32>) -> Vec<OrmccReport> {
        let mut reports = Vec::new();
        for seq in numbers {
            self.pass(ms(10));
            self.arrive(&original(seq, LEN));
            reports.extend(self.reports().into_iter().map(|(_, report)| report));
        }
        reports
    }

    pub(super) fn pass(&mut self, span: Duration) {
        self.bench.pass(span);
    }

    pub(super) fn reports(&mut self) -> Vec<(Audience, OrmccReport)> {
        self.bench.reports()
    }
}
