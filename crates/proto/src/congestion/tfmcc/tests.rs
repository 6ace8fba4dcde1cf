//! Tests of the scheme's two halves, each alone with a clock and a trace.

mod receiver;
mod sender;

use alloc::vec::Vec;

use faircast_base::{
    BadInput, Bitrate, CutReason, Cx, Duration, Event, NodeId, Purpose, Rng, Seq, SwitchReason,
    Time, Trace,
};

use super::*;
use crate::congestion::common::stamp::microseconds;
use crate::congestion::{Arrival, Audience, Carrier, Permit, ReceiverFeedback, SenderControl};
use crate::congestion::{Bounded, Bounds};

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
