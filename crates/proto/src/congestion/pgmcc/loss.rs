//! The loss measurement of pgmcc's receiver.
//!
//! Each sequence number gives one sample, in order: lost or received. A hole counts as lost after some later packets
//! or, on a path that reorders, after the time by which packets are late: reordered packets are no losses. Repairs
//! never reach this filter, since the packets that they replace *were* lost by congestion.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use faircast_base::{Duration, Seq, Time};

use super::config::PgmccConfig;
use crate::congestion::common::intervals::{WEIGHTS, weighted_mean};
use crate::congestion::common::lateness::BOUND_MAX;
use crate::congestion::common::reorder::{AT_ONCE, Evidence, Reorder, Settled};

/// More losses in a row than this change no estimate visibly, and are not counted one by one.
const RUN_MAX: u32 = 8192;

#[derive(Clone, Debug, Default)]
pub(super) struct LossMeter {
    estimate: Estimate,
    tolerance: u32,
    /// Time for which the endpoint waits for a missing packet, as it said last.
    reordering: Option<Duration>,
    /// Packets, and whether they were marked.
    order: Reorder<bool>,
    long_run: Option<Box<LongRun>>,
    /// Time of the first of the latest losses, and the estimate before it.
    latest: Option<Box<(Time, Estimate)>>,
}

/// A long run of losses, which may be taken back.
#[derive(Clone, Debug)]
struct LongRun {
    first: Seq,
    /// One past the last.
    end: Seq,
    /// What was there before it.
    estimate: Estimate,
    /// How many of it have come after all.
    late: u32,
}

/// A run of so many losses is taken back where so many of it come late: it was never sent when it
/// was missed.
const LONG_RUN: u32 = 16;
const LATE_MAX: u32 = 3;

/// The estimate alone, fed with one sample for each packet in order.
#[derive(Clone, Debug)]
pub(super) enum Estimate {
    /// `p <- p + a (x - p)` (src: pgmcc-draft s2.6, with the misprint mended: the constant weighs
    /// the new sample). Floating point has the resolution that 16 fractional bits lack: there,
    /// rounding would hold p at 0.1 % for ever.
    Ewma {
        p: f64,
    },
    Intervals(Intervals),
}

/// Weight of one packet in the low-pass filter: 500/65536, the misprint of the draft read right
/// (src: pgmcc-draft s2.6).
const LOSS_GAIN: f64 = 500.0 / 65536.0;

/// Losses within this span are one event. Receivers do not know their round trip, which would be
/// the span; a long one hides how much they lose where packets are many, and this one joins bursts
/// only.
const LOSS_EVENT_TIME: Duration = Duration::from_millis(10);

#[derive(Clone, Debug, Default)]
pub(super) struct Intervals {
    /// Packets since the first loss of the latest event.
    open: f64,
    /// Closed intervals, newest first; at most 8.
    closed: VecDeque<f64>,
    /// Stands for each interval that is not there yet.
    prior: f64,
    event: Option<Time>,
}

impl LossMeter {
    pub(super) fn new(config: &PgmccConfig) -> Self {
        Self {
            estimate: Estimate::new(config),
            tolerance: config.reorder_tolerance,
            ..Self::default()
        }
    }

    /// Original data has arrived; `marked` where the network marked congestion on it, which counts
    /// as a loss (src: pgmcc-draft s2.9).
    pub(super) fn received(
        &mut self,
        now: Time,
        (seq, marked): (Seq, bool),
        reordering: Option<Duration>,
    ) {
        if self.reordering.is_none() && reordering.is_some() {
            self.take_back(now);
        }
        self.reordering = reordering;
        let settled = self.order.next.is_some_and(|next| seq.before(next));
        if settled && self.comes_late(seq) {
            self.rewind(seq - 1);
        }
        if self.order.passes(seq) {
            self.estimate.sample(now, marked);
        } else if self.order.arrived(now, seq, marked) {
            self.advance(now, Evidence::of(self.tolerance, reordering));
        }
    }

    /// Whether `seq` is the last of some packets of a long run of losses that come after all.
    fn comes_late(&mut self, seq: Seq) -> bool {
        let Some(run) = &mut self.long_run else { return false };
        let of_run = !seq.before(run.first) && seq.before(run.end);
        run.late += u32::from(of_run);
        of_run && run.late >= LATE_MAX
    }

    /// Nothing after `newest` was sent: a run of losses that ends there is taken back.
    pub(super) fn rewind(&mut self, newest: Seq) {
        if self.order.rewind(newest)
            && let Some(run) = self.long_run.take().filter(|run| run.end.after(newest.next()))
        {
            self.estimate = run.estimate;
        }
    }

    /// Everything up to `last` has been sent, and what is missing of it will not come any more.
    pub(super) fn give_up(&mut self, now: Time, last: Seq) {
        if self.order.next.is_none_or(|next| last.before(next)) {
            return;
        }
        if self.reordering.is_none() {
            self.advance(now, AT_ONCE);
        }
        // Later gaps have their own time.
        while self.order.first_gap().is_some_and(|(first, _)| !last.before(first))
            && let Some(settled) = self.order.settle(now, AT_ONCE)
        {
            self.take(now, settled);
        }
        if let Some(next) = self.order.next.filter(|next| !last.before(*next)) {
            self.lost(now, next, last.next());
            self.order.skip_to(last.next());
        }
    }

    /// Loss in 0..=1.
    pub(super) fn loss(&self) -> f64 {
        self.estimate.loss()
    }

    /// Loss in 0..=1 as a NAK reports it: present holes count as lost, unless their packets may only be late.
    pub(super) fn loss_with_holes(&self, now: Time) -> f64 {
        let mut estimate = self.estimate.clone();
        self.order
            .preview(now, Evidence::of(1, self.reordering), |settled| estimate.take(now, settled));
        estimate.loss()
    }

    /// Settles packets as far as this evidence shows their fate.
    fn advance(&mut self, now: Time, evidence: Evidence) {
        while let Some(settled) = self.order.settle(now, evidence) {
            self.take(now, settled);
        }
    }

    fn take(&mut self, now: Time, settled: Settled<bool>) {
        match settled {
            Settled::Came(marked) => self.estimate.sample(now, marked),
            Settled::Lost { first, end, .. } => self.lost(now, first, end),
        }
    }

    /// Packets are reordered, as was not known: what was counted a moment ago because later packets
    /// had come was no loss.
    fn take_back(&mut self, now: Time) {
        if let Some(latest) = self.latest.take().filter(|latest| now.since(latest.0) <= BOUND_MAX) {
            self.estimate = latest.1;
        }
    }

    fn lost(&mut self, now: Time, first: Seq, end: Seq) {
        if self.reordering.is_none()
            && self.latest.as_ref().is_none_or(|latest| now.since(latest.0) > BOUND_MAX)
        {
            self.latest = Some(Box::new((now, self.estimate.clone())));
        }
        let count = end.distance(first) as u32;
        if count >= LONG_RUN {
            let estimate = self.estimate.clone();
            self.long_run = Some(Box::new(LongRun { first, end, estimate, late: 0 }));
        }
        self.estimate.lost(now, count);
    }
}

impl Default for Estimate {
    fn default() -> Self {
        Self::Ewma { p: 0.0 }
    }
}

impl Estimate {
    pub(super) fn new(config: &PgmccConfig) -> Self {
        match config.loss_intervals {
            false => Self::default(),
            true => Self::Intervals(Intervals {
                // The memory of the low-pass filter, so that a first loss weighs as much here as
                // there: one lost packet of three says little about the next thousand.
                prior: 1.0 / LOSS_GAIN,
                ..Intervals::default()
            }),
        }
    }

    /// The fate of the next packets is known.
    fn take(&mut self, now: Time, settled: Settled<bool>) {
        match settled {
            Settled::Came(marked) => self.sample(now, marked),
            Settled::Lost { first, end, .. } => self.lost(now, end.distance(first) as u32),
        }
    }

    fn lost(&mut self, now: Time, count: u32) {
        for _ in 0..count.min(RUN_MAX) {
            self.sample(now, true);
        }
    }

    pub(super) fn sample(&mut self, now: Time, lost: bool) {
        match self {
            Self::Ewma { p } => *p += LOSS_GAIN * (if lost { 1.0 } else { 0.0 } - *p),
            Self::Intervals(intervals) => intervals.sample(now, lost),
        }
    }

    pub(super) fn loss(&self) -> f64 {
        match self {
            Self::Ewma { p } => *p,
            Self::Intervals(intervals) => intervals.loss(),
        }
    }
}

impl Intervals {
    fn sample(&mut self, now: Time, lost: bool) {
        // deviates: RFC 4654 makes a new event one round trip after the last. pgmcc's receivers do
        // not know their round trip, so a fixed span stands for it.
        let starts_event =
            lost && self.event.is_none_or(|event| now.since(event) > LOSS_EVENT_TIME);
        if starts_event {
            self.closed.push_front(self.open.max(1.0));
            self.closed.truncate(WEIGHTS.len());
            (self.open, self.event) = (0.0, Some(now));
        }
        self.open += 1.0;
    }

    /// 1 / the larger of the mean with and without the open interval (src: RFC 5348 s5.4).
    ///
    /// deviates: RFC 5348 makes up one first interval from the rate at which the first loss came;
    /// pgmcc has no rate to make it from.
    fn loss(&self) -> f64 {
        if self.closed.is_empty() {
            return 0.0;
        }
        let mean = |intervals: &mut dyn Iterator<Item = f64>| {
            weighted_mean(intervals.chain(core::iter::repeat(self.prior)))
        };
        let closed = mean(&mut self.closed.iter().copied());
        let with_open = mean(&mut core::iter::once(self.open).chain(self.closed.iter().copied()));
        1.0 / closed.max(with_open).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faircast_base::Duration;

    fn meter(tolerance: u32) -> LossMeter {
        let (loss_intervals, reorder_tolerance) = (false, tolerance);
        LossMeter::new(&PgmccConfig { loss_intervals, reorder_tolerance, ..PgmccConfig::default() })
    }

    fn feed(meter: &mut LossMeter, seqs: impl IntoIterator<Item = u32>) {
        for seq in seqs {
            meter.received(Time::ZERO, (Seq::new(seq), false), None);
        }
    }

    /// Sixteen fractional bits rounded after each step, as the fact sheet computed its vector.
    #[test]
    fn samples_move_the_filter_as_in_sixteen_bit_arithmetic() {
        let samples = [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1];
        let vector =
            [500.0, 496.0, 492.0, 488.0, 484.0, 480.0, 976.0, 969.0, 962.0, 955.0, 1448.0, 1937.0];
        let mut estimate = Estimate::Ewma { p: 0.0 };
        for (sample, want) in samples.into_iter().zip(vector) {
            estimate.sample(Time::ZERO, sample == 1);
            let got = estimate.loss() * 65536.0;
            // The vector rounds at each of 12 steps by at most one half.
            assert!((got - want).abs() < 3.0, "{got} for {want}");
        }
    }

    #[test]
    fn a_tiny_loss_is_measured_without_a_floor() {
        let mut meter = meter(1);
        feed(&mut meter, (0..200_000).filter(|seq| seq % 1000 != 999));
        // Just after 199999, the 200th lost packet, would come 0.76 %; before it the filter has
        // decayed over 998 packets. The mean over a period is 0.1 %.
        assert!(meter.loss() < 0.0001, "{}", meter.loss());
        feed(&mut meter, 200_000..210_000);
        assert!(meter.loss() < 1e-20);
    }

    #[test]
    fn even_loss_of_one_percent_swings_between_the_computed_bounds() {
        let mut meter = meter(1);
        let (mut low, mut high) = (1.0f64, 0.0f64);
        for seq in (0..20_000).filter(|seq| seq % 100 != 99) {
            feed(&mut meter, [seq]);
            if seq > 10_000 {
                low = low.min(meter.loss());
                high = high.max(meter.loss());
            }
        }
        // The upper bound is that of the filter; the one after a loss is seen one sample later.
        assert!((low - 0.0067).abs() < 0.0001 && (high - 0.0142).abs() < 0.0001, "{low} {high}");
    }

    #[test]
    fn a_late_original_is_no_loss_within_the_tolerance_and_is_one_beyond_it() {
        let mut meter = meter(3);
        feed(&mut meter, [0, 1, 3, 4, 2, 5, 6, 7]);
        assert_eq!(meter.loss(), 0.0);
        feed(&mut meter, [9, 10, 11, 8, 12]);
        assert!(meter.loss() > 0.007, "8 came after three later ones");
        let before = meter.loss();
        feed(&mut meter, [8, 9, 12]);
        assert_eq!(meter.loss(), before, "what is settled stays settled");
    }

    #[test]
    fn a_nak_reports_the_loss_that_it_is_about() {
        let mut meter = meter(3);
        feed(&mut meter, [0, 1, 3]);
        assert_eq!(meter.loss(), 0.0);
        assert!(meter.loss_with_holes(Time::ZERO) > 0.007);
        assert_eq!(meter.loss(), 0.0, "asking changes nothing");
    }

    proptest::proptest! {
        #[test]
        fn a_nak_reports_what_a_copy_of_the_meter_would(
            packets in proptest::collection::vec((0u32..60, 0u64..40, proptest::bool::weighted(0.1)), 1..150),
            tolerance in 1u32..5,
            (reordering, intervals) in (proptest::option::of(0u64..200), proptest::bool::ANY),
        ) {
            let config = PgmccConfig { loss_intervals: intervals, reorder_tolerance: tolerance, ..PgmccConfig::default() };
            let mut meter = LossMeter::new(&config);
            let (mut now, mut from) = (Time::ZERO, 0);
            for (i, (ahead, wait, marked)) in packets.into_iter().enumerate() {
                now += Duration::from_millis(wait);
                from += u32::from(i % 3 == 0);
                // The endpoint learns in the middle of a session that packets are reordered.
                let reordering = reordering.filter(|_| i > 20).map(Duration::from_millis);
                meter.received(now, (Seq::new(u32::MAX - 50) + from + ahead % 12, marked), reordering);
                let mut copy = meter.clone();
                copy.advance(now, Evidence::of(1, copy.reordering));
                proptest::prop_assert_eq!(meter.loss_with_holes(now), copy.loss());
            }
        }
    }

    #[test]
    fn losses_at_the_tail_count_once_given_up() {
        let mut meter = meter(3);
        feed(&mut meter, [0, 1, 2, 4]);
        meter.give_up(Time::ZERO, Seq::new(6));
        let three_of_seven = meter.loss();
        assert!((three_of_seven - 3.0 * 500.0 / 65536.0).abs() < 0.0005);
        feed(&mut meter, [5, 6]);
        assert_eq!(meter.loss(), three_of_seven);
    }

    #[test]
    fn a_long_run_of_losses_is_taken_back_where_its_packets_come_after_all() {
        let mut meter = meter(3);
        feed(&mut meter, 0..10);
        meter.give_up(Time::ZERO, Seq::new(60));
        assert!(meter.loss() > 0.3);
        feed(&mut meter, 10..30);
        assert_eq!(meter.loss(), 0.0);
        feed(&mut meter, [60, 61, 62]);
        assert!(meter.loss() > 0.2);
        meter.rewind(Seq::new(29));
        feed(&mut meter, 30..63);
        assert_eq!(meter.loss(), 0.0);
    }

    #[test]
    fn a_congestion_mark_counts_as_a_loss() {
        let mut meter = meter(3);
        feed(&mut meter, [0, 1]);
        meter.received(Time::ZERO, (Seq::new(2), true), None);
        assert!((meter.loss() - 500.0 / 65536.0).abs() < 1e-12);
    }

    #[test]
    fn any_jump_of_sequence_numbers_is_cheap_and_means_heavy_loss() {
        let mut meter = meter(1);
        feed(&mut meter, [0, 0x7fff_ffff]);
        assert!(meter.loss() > 0.99 && meter.loss() <= 1.0);
    }

    #[test]
    fn loss_intervals_give_one_over_the_mean_interval() {
        let config = PgmccConfig { reorder_tolerance: 1, ..PgmccConfig::default() };
        let mut meter = LossMeter::new(&config);
        for seq in (0..5000u32).filter(|seq| seq % 100 != 99) {
            let now = Time::ZERO + Duration::from_millis(u64::from(seq) * 10);
            meter.received(now, (Seq::new(seq), false), None);
        }
        assert!((meter.loss() - 0.01).abs() < 1e-9, "{}", meter.loss());
        // Losses within one span are one event.
        let now = Time::ZERO + Duration::from_secs(60);
        for seq in [5000, 5002, 5004, 5006] {
            meter.received(now, (Seq::new(seq), false), None);
        }
        assert!(meter.loss() < 0.0125, "{}", meter.loss());
    }
}
