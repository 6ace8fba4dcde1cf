//! Tests of each half of the scheme alone.

mod sender;

use faircast_base::{BadInput, CutReason, Duration, Event, NodeId, SwitchReason, Time};

use super::*;
use crate::congestion::common::bench::{ReceiverBench, SenderBench, ms, original};
use crate::congestion::common::stamp::microseconds;
use crate::congestion::{Arrival, Audience, ReceiverFeedback, Regime, SenderControl};

const HEADER_BYTES: u32 = 80;

const PAYLOAD: u32 = 1000 - HEADER_BYTES;

type Bench = SenderBench<TfmccSender>;

impl Bench {
    fn new() -> Self {
        let mut sender = TfmccSender::new();
        sender.set_header(HEADER_BYTES);
        Self::of(sender, PAYLOAD)
    }

    fn running() -> Self {
        let mut bench = Self::new();
        bench.pass(ms(1000));
        for _ in 0..200 {
            bench.report(1, 1e6, 40, false);
            bench.pass(ms(40));
        }
        bench.report(1, 1e6, 40, true);
        assert!(!bench.in_slow_start());
        assert!((bench.rate() - 1e6).abs() < 1.0, "{}", bench.rate());
        bench
    }

    fn rate(&self) -> f64 {
        self.sender.rate
    }

    fn in_slow_start(&self) -> bool {
        self.sender.gauges().regime == Regime::Start
    }
}

impl<C: SenderControl<Announce = TfmccAnnounce, Report = TfmccReport>> SenderBench<C> {
    fn report_of(&self, node: u32, rate: f64, rtt_ms: u64, have_loss: bool) -> TfmccReport {
        let round = self.sent.last().map_or(0, |(_, announce)| announce.round);
        TfmccReport {
            receiver: Some(NodeId(node)),
            have_rtt: true,
            have_loss,
            round,
            sent_us: 77,
            echo_us: microseconds(self.now).wrapping_sub(rtt_ms as u32 * 1000),
            bits_per_s: rate as f32,
            ..TfmccReport::default()
        }
    }

    fn report(&mut self, node: u32, rate: f64, rtt_ms: u64, have_loss: bool) {
        self.take(&self.report_of(node, rate, rtt_ms, have_loss));
    }
}
