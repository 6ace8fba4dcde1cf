//! Receiver half of TFMCC.

use alloc::collections::VecDeque;

use faircast_base::{BadInput, Cx, Duration, Event, NodeId, Rng, Seq, Time, math};

use super::arrivals::Arrivals;
use super::history::FirstInterval;
use super::round_trip::RoundTrip;
use super::{
    FEEDBACK_ROUND, RTT_MAX_INITIAL, SIZE_GAIN, SLOWEST_INTERVAL_S, TfmccAnnounce, TfmccReport,
    USUAL_BYTES,
};
use crate::congestion::common::average::MovingAverage;
use crate::congestion::common::equation::throughput_bits_per_s;
use crate::congestion::common::stamp::microseconds;
use crate::congestion::{Arrival, Audience, ReceiverFeedback};
use crate::keep_last;

/// Silence that ends the history of losses, in longest round trips.
const FORGET_AFTER: f64 = 10.0;

/// Silence after which any packet counts as later: 600 s. The sender's clock may have wrapped.
const ORDER_FOR: Duration = Duration::from_secs(600);

/// Limit for the silence after a repair, or before one: 2 s. Repairs do not come later.
const REPAIR_ORDER_FOR: Duration = Duration::from_secs(2);

/// Later packets after which a missing one counts as lost (src: RFC 4654 s5.1).
const LOSS_THRESHOLD: u32 = 3;

/// Group size for feedback timers (N; src: RFC 4654 s4.5).
const GROUP_SIZE: u32 = 10_000;

const REPORT_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Highest reported rate, in bits per second (src: RFC 4654 s2.2.1: 400 Gb/s).
const RATE_MAX: f64 = 4e11;

/// TFMCC receiver: the CLR reports once a round trip, others when their feedback timer expires.
#[derive(Debug, Default)]
pub struct TfmccReceiver {
    node: NodeId,
    /// Bytes of a data packet beside its payload, part of all rates (src: RFC 4654 s4.3.4).
    header_bytes: u32,
    pub(super) arrivals: Arrivals,
    receive_rate: ReceiveRate,
    pub(super) round_trip: RoundTrip,
    /// Mean size of originals with headers, in bytes (s).
    packet_bytes: MovingAverage,
    latest: Option<Latest>,
    pub(super) is_clr: bool,
    timer: FeedbackTimer,
    report_due: bool,
    reported_at: Option<Time>,
    leaving: bool,
}

#[derive(Clone, Copy, Debug)]
struct Latest {
    at: Time,
    /// Latest original, and true if a repair carried the announcement.
    seq: Seq,
    by_repair: bool,
    sent_us: u32,
    round: u8,
    rtt_max_s: f64,
}

impl TfmccReceiver {
    /// Creates the receiver at `node`.
    pub fn new(node: NodeId) -> Self {
        Self { arrivals: Arrivals::new(LOSS_THRESHOLD, true), node, ..Self::default() }
    }

    /// Returns the acceptable rate in bits per second, with headers (X_r).
    pub fn bits_per_s(&self) -> f64 {
        let size = self.packet_bytes.get().unwrap_or(USUAL_BYTES);
        let rate = if self.arrivals.history.has_loss() {
            throughput_bits_per_s(size, self.rtt_s(), self.arrivals.loss())
        } else {
            // src: RFC 4654 s4.4, s3.6: the rate may double in a round trip.
            2.0 * arriving_bits_per_s(&self.receive_rate, size, self.rtt_max_s())
        };
        rate.clamp(size * 8.0 / SLOWEST_INTERVAL_S, RATE_MAX)
    }

    /// Returns the round trip in seconds: the measured one, or else R_max (src: RFC 4654 s4.4).
    fn rtt_s(&self) -> f64 {
        self.round_trip.seconds().unwrap_or_else(|| self.rtt_max_s())
    }

    fn rtt_max_s(&self) -> f64 {
        self.latest.map_or(RTT_MAX_INITIAL.as_secs_f64(), |latest| latest.rtt_max_s)
    }

    /// True if the packet is not older than any received one. Timestamps may be forged.
    fn is_later(&self, now: Time, arrival: &Arrival, announce: &TfmccAnnounce) -> bool {
        self.latest.is_none_or(|latest| {
            let age = now.since(latest.at);
            if !arrival.repair && !latest.by_repair {
                return !arrival.seq.before(latest.seq) || age > ORDER_FOR;
            }
            announce.sent_us.wrapping_sub(latest.sent_us) as i32 >= 0 || age > REPAIR_ORDER_FOR
        })
    }

    fn on_bytes(&mut self, now: Time, arrival: &Arrival) {
        let bytes = arrival.len + self.header_bytes;
        if !arrival.repair {
            self.packet_bytes.add(f64::from(bytes), SIZE_GAIN);
        }
        let rtt = Duration::from_secs_f64(self.rtt_s());
        let quiet = now.since(self.receive_rate.last).as_secs_f64();
        if quiet > FORGET_AFTER * self.rtt_s().max(self.rtt_max_s()) {
            // src: RFC 4654 s4.3.1: old losses expire, unless packets of this silence are missing.
            if !arrival.repair {
                self.arrivals.forget(arrival.seq);
            }
            self.receive_rate = ReceiveRate::default();
        }
        self.receive_rate.arrived(now, bytes, rtt);
    }

    fn on_announce(&mut self, cx: &mut Cx<'_>, arrival: &Arrival, announce: &TfmccAnnounce) {
        let previous = self.latest;
        let rtt_max_s = f64::from(announce.rtt_max_us) / 1e6;
        let seq = previous.filter(|_| arrival.repair).map_or(arrival.seq, |latest| latest.seq);
        self.latest = Some(Latest {
            at: cx.now,
            seq,
            by_repair: arrival.repair,
            sent_us: announce.sent_us,
            round: announce.round,
            rtt_max_s,
        });
        if let Some(echo) = announce.echo {
            let ours = echo.receiver == self.node;
            if echo.is_clr {
                self.is_clr = ours;
            }
            if ours {
                let (sent_us, is_clr) = (announce.sent_us, echo.is_clr);
                match self.round_trip.measure(cx.now, echo, sent_us, is_clr) {
                    Ok(true) => self.arrivals.correct_first_interval(self.rtt_s()),
                    Ok(false) => {}
                    Err(()) => cx.emit(Event::BadInput { reason: BadInput::Absurd }),
                }
            }
        }
        self.round_trip.follow(cx.now, announce.sent_us);
        if let Some(previous) = previous {
            self.timer.on_data(cx.now, previous.at, rtt_max_s);
        }
        self.plan(cx, previous.map(|previous| previous.round), announce);
    }

    fn plan(&mut self, cx: &mut Cx<'_>, previous_round: Option<u8>, announce: &TfmccAnnounce) {
        if self.is_clr {
            self.timer.0 = None;
            // src: RFC 4654 s4.5: once a round trip, never suppressed.
            let every = Duration::from_secs_f64(self.rtt_s()).max(REPORT_INTERVAL_MIN);
            self.report_due |= self.reported_at.is_none_or(|at| cx.now.since(at) >= every);
            return;
        }
        let rtt_max_s = self.rtt_max_s();
        // Serial comparison: numbers wrap at 256.
        let newer = |last: u8| (announce.round.wrapping_sub(last) as i8) > 0;
        if previous_round.is_none_or(newer) {
            let round_s = FEEDBACK_ROUND as f64 * rtt_max_s;
            let rate = self.bits_per_s();
            self.timer.start(cx.now, cx.rng, round_s, rtt_max_s, GROUP_SIZE, rate);
        }
        if let Some(at_start) = self.timer.0.map(|pending| pending.rate) {
            let limit = f64::from(announce.suppress_above);
            // A round trip above R_max must be reported (src: RFC 4654 s4.5).
            let known = self.round_trip.seconds().is_none_or(|rtt_s| rtt_s <= rtt_max_s);
            // The present rate comes last, because its computation reads the whole history.
            let silenced = || limit < at_start || (limit < RATE_MAX && limit < self.bits_per_s());
            if known && silenced() {
                self.timer.0 = None;
            }
        }
    }

    fn report(&mut self, now: Time, on_nak: bool) -> Option<TfmccReport> {
        let latest = self.latest?;
        let held_us = (now.since(latest.at).as_nanos() / 1000) as u32;
        if !on_nak {
            self.timer.0 = None;
            (self.report_due, self.reported_at) = (false, Some(now));
        }
        Some(TfmccReport {
            receiver: Some(self.node),
            have_rtt: self.round_trip.seconds().is_some(),
            have_loss: self.arrivals.history.has_loss(),
            leaving: self.leaving,
            on_nak,
            round: latest.round,
            sent_us: microseconds(now),
            echo_us: latest.sent_us.wrapping_add(held_us),
            bits_per_s: self.bits_per_s() as f32,
        })
    }
}

/// Returns the receive rate, or after a single packet the sender's first rate.
fn arriving_bits_per_s(rate: &ReceiveRate, size: f64, rtt_max_s: f64) -> f64 {
    rate.bits_per_s().unwrap_or(size * 8.0 / rtt_max_s)
}

impl ReceiverFeedback for TfmccReceiver {
    type Announce = TfmccAnnounce;
    type Report = TfmccReport;

    fn set_header(&mut self, bytes: u32) {
        self.header_bytes = bytes;
    }

    #[inline]
    fn on_data(&mut self, cx: &mut Cx<'_>, arrival: &Arrival, announce: Option<&TfmccAnnounce>) {
        self.on_bytes(cx.now, arrival);
        let later = |announce: &&TfmccAnnounce| self.is_later(cx.now, arrival, announce);
        if let Some(announce) = announce.filter(later) {
            self.on_announce(cx, arrival, announce);
        }
        if arrival.repair {
            // The repaired loss counted as congestion already, and a repair's number is not new.
            return;
        }
        // For the history, an original after its repair is no duplicate.
        let (rtt_s, rtt_max_s) = (self.rtt_s(), self.rtt_max_s());
        let rtt = Duration::from_secs_f64(rtt_s);
        let size = self.packet_bytes.get().unwrap_or(USUAL_BYTES);
        let (rate, guessed) = (&self.receive_rate, self.round_trip.seconds().is_none());
        let first =
            || FirstInterval::of(arriving_bits_per_s(rate, size, rtt_max_s), size, rtt_s, guessed);
        // Only the CLR compares loss events: other receivers need no look at their history.
        let before = if self.is_clr { self.arrivals.history.latest_event() } else { None };
        let packet = (arrival.seq, arrival.congestion_experienced);
        self.arrivals.received(cx.now, packet, arrival.reordering, rtt, &first);
        // A full queue loses packets until the sender knows (src: RFC 5348 s6.1).
        self.report_due |= self.is_clr && self.arrivals.history.latest_event() > before;
    }

    fn on_rewind(&mut self, cx: &mut Cx<'_>, newest: Seq) {
        self.latest = self.latest.filter(|latest| !latest.seq.after(newest));
        self.arrivals.rewind(cx.now, newest);
    }

    fn reports_directly(&self) -> bool {
        // Timers suppress reports that are not worse, and detours lengthen round trips.
        true
    }

    fn on_leaving(&mut self) -> bool {
        self.leaving = true;
        self.is_clr
    }

    #[inline]
    fn poll_report(&mut self, cx: &mut Cx<'_>) -> Option<(Audience, TfmccReport)> {
        let report = if self.report_due { self.report(cx.now, false) } else { None };
        Some((Audience::SenderNak, report?))
    }

    fn report_for_nak(&mut self, cx: &mut Cx<'_>) -> Option<TfmccReport> {
        self.report(cx.now, !self.leaving)
    }

    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.next_timeout().is_some_and(|at| at <= cx.now) {
            self.timer.0 = None;
            self.report_due = true;
        }
    }

    #[inline]
    fn next_timeout(&self) -> Option<Time> {
        self.timer.expiry(self.latest?.at)
    }
}

/// Marks kept, which span at least two round trips (src: RFC 4654 s4.3.4: two to four).
const MARKS: usize = 5;

/// Received bytes over time. Marks are at least half a round trip and one packet apart.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceiveRate {
    marks: VecDeque<(Time, u64)>,
    total: u64,
    pub(super) last: Time,
}

impl ReceiveRate {
    pub(super) fn arrived(&mut self, now: Time, bytes: u32, rtt: Duration) {
        self.total += u64::from(bytes);
        self.last = now;
        if self.marks.back().is_none_or(|(at, _)| now.since(*at) >= rtt / 2) {
            keep_last(&mut self.marks, MARKS, (now, self.total));
        }
    }

    pub(super) fn bits_per_s(&self) -> Option<f64> {
        let (at, total) = *self.marks.front()?;
        let seconds = self.last.since(at).as_secs_f64();
        (seconds > 0.0).then(|| (self.total - total) as f64 * 8.0 / seconds)
    }
}

/// Timer of a feedback round. A few early reports suppress the rest (src: RFC 4654 s4.5).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FeedbackTimer(pub(super) Option<Pending>);

#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    started: Time,
    wait_s: f64,
    rtt_max_s: f64,
    /// Sender's silence beyond R_max, which does not count: no report could be suppressed then.
    silence: Duration,
    /// Receiver's rate at the start of the round (X_fbr).
    pub(super) rate: f64,
}

impl FeedbackTimer {
    /// Starts a round of `round_s` seconds: t = T (1 + ln x / ln N), x uniform in (0, 1].
    pub(super) fn start(
        &mut self,
        now: Time,
        rng: &mut Rng,
        round_s: f64,
        rtt_max_s: f64,
        group_size: u32,
        rate: f64,
    ) {
        let x = 1.0 - rng.unit();
        let share = 1.0 + math::ln(x) / math::ln(f64::from(group_size.max(2)));
        let wait_s = (round_s * share).max(0.0);
        self.0 = Some(Pending { started: now, wait_s, rtt_max_s, silence: Duration::ZERO, rate });
    }

    pub(super) fn on_data(&mut self, now: Time, previous: Time, rtt_max_s: f64) {
        let Some(pending) = &mut self.0 else { return };
        let since = previous.max(pending.started);
        let excess = now.since(since).saturating_sub(Duration::from_secs_f64(pending.rtt_max_s));
        pending.silence += excess;
        if rtt_max_s != pending.rtt_max_s {
            pending.wait_s *= rtt_max_s / pending.rtt_max_s;
            pending.rtt_max_s = rtt_max_s;
        }
    }

    pub(super) fn expiry(&self, last_data: Time) -> Option<Time> {
        let pending = self.0?;
        let at = pending.started + Duration::from_secs_f64(pending.wait_s) + pending.silence;
        (at <= last_data + Duration::from_secs_f64(pending.rtt_max_s)).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::at;
    use alloc::vec::Vec;
    use faircast_base::{NodeId, Purpose};

    #[test]
    fn the_rate_is_that_of_the_last_round_trips() {
        let mut rate = ReceiveRate::default();
        let rtt = Duration::from_millis(40);
        assert_eq!(rate.bits_per_s(), None);
        let mut now = Time::ZERO;
        for (packets, gap_ms, want) in [(50, 10, 800_000.0), (200, 1, 8_000_000.0)] {
            for _ in 0..packets {
                now += Duration::from_millis(gap_ms);
                rate.arrived(now, 1000, rtt);
            }
            let got = rate.bits_per_s().unwrap();
            assert!((got / want - 1.0).abs() < 1e-9, "{got} for {want}");
        }
    }

    #[test]
    fn packets_rarer_than_round_trips_are_measured_over_some_of_them() {
        let mut rate = ReceiveRate::default();
        for k in 0..8u64 {
            rate.arrived(
                Time::ZERO + Duration::from_millis(500 * k),
                1000,
                Duration::from_millis(1),
            );
        }
        assert_eq!(rate.bits_per_s(), Some(16_000.0));
        assert!(rate.marks.len() <= MARKS);
    }

    #[test]
    fn draws_are_biased_so_that_few_of_a_large_group_are_early() {
        let mut rng = Rng::new(1, NodeId(0), Purpose::Machine(0));
        let draws: Vec<f64> = (0..100_000)
            .map(|_| {
                let mut timer = FeedbackTimer::default();
                timer.start(at(0), &mut rng, 6.0, 1.0, 10_000, 1.0);
                let at = timer.expiry(Time::ZERO + Duration::from_secs(100)).unwrap();
                at.since(Time::ZERO).as_secs_f64()
            })
            .collect();
        // P(t <= u T) = N^(u - 1).
        for (share, want) in [(0.0, 1e-4), (0.5, 0.01), (0.75, 0.1), (1.0, 1.0)] {
            let got = draws.iter().filter(|t| **t <= 6.0 * share + 1e-9).count() as f64 / 1e5;
            assert!((got - want).abs() < 0.3 * want, "{share}: {got} for {want}");
        }
    }

    fn half() -> FeedbackTimer {
        let rtt_max_s = 0.1;
        FeedbackTimer(Some(Pending {
            started: at(0),
            wait_s: 0.3,
            rtt_max_s,
            silence: Duration::ZERO,
            rate: 1.0,
        }))
    }

    #[test]
    fn it_scales_with_the_largest_round_trip() {
        let mut timer = half();
        timer.on_data(at(50), at(0), 0.2);
        assert_eq!(timer.expiry(at(500)), Some(at(600)));
        timer.on_data(at(100), at(50), 0.05);
        assert_eq!(timer.expiry(at(500)), Some(at(150)));
    }

    #[test]
    fn silence_of_the_sender_does_not_count() {
        let mut timer = half();
        assert_eq!(timer.expiry(at(150)), None, "data must come before it can run out");
        assert_eq!(timer.expiry(at(200)), Some(at(300)));
        timer.on_data(at(180), at(0), 0.1);
        assert_eq!(timer.expiry(at(300)), Some(at(380)));
        timer.0 = None;
        assert_eq!(timer.expiry(at(300)), None);
    }
}
