//! Loss measurement of pgmcc's receiver. Each sequence number gives one sample, in order: lost or
//! received. Repairs give no sample, since the original packets *were* lost by congestion.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use faircast_base::{Duration, Seq, Time};

use super::config::PgmccConfig;
use crate::congestion::common::average::MovingAverage;
use crate::congestion::common::equation::{WEIGHTS, weighted_mean};
use crate::congestion::common::lateness::BOUND_MAX;
use crate::congestion::common::reorder::{AT_ONCE, Evidence, Reorder, Settled};

/// Most losses in a row that are counted one by one; more change no estimate visibly.
const RUN_MAX: u32 = 8192;

#[derive(Clone, Debug, Default)]
pub(super) struct LossMeter {
    pub(super) estimate: Estimate,
    loss_threshold: u32,
    reordering: Option<Duration>,
    /// Packets whose fate is open, each with true if the network marked it.
    order: Reorder<bool>,
    long_run: Option<Box<LongRun>>,
    /// Time of the first recent loss, and the estimate before it.
    before_loss: Option<Box<(Time, Estimate)>>,
}

#[derive(Clone, Debug)]
struct LongRun {
    first: Seq,
    end: Seq,
    estimate: Estimate,
    late: u32,
}

/// Minimum length of a run that can be withdrawn, and the late packets that withdraw it.
const LONG_RUN: u32 = 16;
const LATE_MAX: u32 = 3;

#[derive(Clone, Debug)]
pub(super) enum Estimate {
    /// `p <- p + a (x - p)`, in floating point: with 16 bits p would stay at 0.1 % for ever.
    Ewma(MovingAverage),
    Intervals(Intervals),
}

/// Weight in the low-pass filter: 500/65536, without the misprint (src: pgmcc-draft s2.6).
const LOSS_GAIN: f64 = 500.0 / 65536.0;

/// Span in which losses form one event: short, since it hides losses at high packet rates.
const LOSS_EVENT_TIME: Duration = Duration::from_millis(10);

#[derive(Clone, Debug, Default)]
pub(super) struct Intervals {
    open: f64,
    /// Closed intervals, newest first; at most 8.
    closed: VecDeque<f64>,
    /// Stand-in for each interval that does not exist yet.
    prior: f64,
    event_at: Option<Time>,
}

impl LossMeter {
    pub(super) fn new(config: &PgmccConfig) -> Self {
        Self {
            estimate: Estimate::new(config),
            loss_threshold: config.profile.loss_threshold(),
            ..Self::default()
        }
    }

    /// Notes an original. A `marked` packet counts as lost (src: pgmcc-draft s2.9).
    pub(super) fn received(
        &mut self,
        now: Time,
        (seq, marked): (Seq, bool),
        reordering: Option<Duration>,
    ) {
        if self.reordering.is_none()
            && reordering.is_some()
            && let Some(latest) = self.before_loss.take()
            && now.since(latest.0) <= BOUND_MAX
        {
            // Recent losses on a path found to reorder are withdrawn.
            self.estimate = latest.1;
        }
        self.reordering = reordering;
        if self.order.next.is_some_and(|next| seq.before(next))
            && let Some(run) = &mut self.long_run
            && !seq.before(run.first)
            && seq.before(run.end)
        {
            run.late += 1;
            if run.late >= LATE_MAX {
                self.rewind(seq - 1);
            }
        }
        if self.order.passes(seq) {
            self.estimate.sample(now, marked);
        } else if self.order.arrived(now, seq, marked) {
            self.advance(now, Evidence::of(self.loss_threshold, reordering));
        }
    }

    pub(super) fn rewind(&mut self, newest: Seq) {
        if self.order.rewind(newest)
            && let Some(run) = self.long_run.take().filter(|run| run.end.after(newest.next()))
        {
            self.estimate = run.estimate;
        }
    }

    pub(super) fn give_up(&mut self, now: Time, last: Seq) {
        if self.order.next.is_none_or(|next| last.before(next)) {
            return;
        }
        if self.reordering.is_none() {
            self.advance(now, AT_ONCE);
        }
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

    /// Returns the loss in 0..=1 for a NAK: holes count, unless their packets may only be late.
    pub(super) fn loss_with_holes(&self, now: Time) -> f64 {
        let mut estimate = self.estimate.clone();
        self.order
            .preview(now, Evidence::of(1, self.reordering), |settled| estimate.take(now, settled));
        estimate.loss()
    }

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

    fn lost(&mut self, now: Time, first: Seq, end: Seq) {
        if self.reordering.is_none()
            && self.before_loss.as_ref().is_none_or(|latest| now.since(latest.0) > BOUND_MAX)
        {
            self.before_loss = Some(Box::new((now, self.estimate.clone())));
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
        Self::Ewma(MovingAverage::of(0.0))
    }
}

impl Estimate {
    pub(super) fn new(config: &PgmccConfig) -> Self {
        match config.loss_intervals {
            false => Self::default(),
            true => Self::Intervals(Intervals {
                // As the low-pass filter: one lost packet of three predicts little.
                prior: 1.0 / LOSS_GAIN,
                ..Intervals::default()
            }),
        }
    }

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
            Self::Ewma(p) => p.add(if lost { 1.0 } else { 0.0 }, LOSS_GAIN),
            Self::Intervals(intervals) => intervals.sample(now, lost),
        }
    }

    pub(super) fn loss(&self) -> f64 {
        match self {
            Self::Ewma(p) => p.get().unwrap_or(0.0),
            Self::Intervals(intervals) => intervals.loss(),
        }
    }
}

impl Intervals {
    fn sample(&mut self, now: Time, lost: bool) {
        // deviates: RFC 4654 has a round trip, which pgmcc's receivers do not know.
        let starts_event =
            lost && self.event_at.is_none_or(|event| now.since(event) > LOSS_EVENT_TIME);
        if starts_event {
            self.closed.push_front(self.open.max(1.0));
            self.closed.truncate(WEIGHTS.len());
            (self.open, self.event_at) = (0.0, Some(now));
        }
        self.open += 1.0;
    }

    /// Returns 1 / the larger mean with or without the open interval (src: RFC 5348 s5.4).
    /// deviates: RFC 5348 computes the first interval from the rate; pgmcc has none.
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
        LossMeter { loss_threshold: tolerance, ..LossMeter::default() }
    }

    fn feed(meter: &mut LossMeter, seqs: impl IntoIterator<Item = u32>) {
        for seq in seqs {
            meter.received(Time::ZERO, (Seq::new(seq), false), None);
        }
    }

    /// Rounds to 16 fractional bits after each step, as the fact sheet's vector does.
    #[test]
    fn samples_move_the_filter_as_in_sixteen_bit_arithmetic() {
        let samples = [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1];
        let vector =
            [500.0, 496.0, 492.0, 488.0, 484.0, 480.0, 976.0, 969.0, 962.0, 955.0, 1448.0, 1937.0];
        let mut estimate = Estimate::default();
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
        // At the 200th loss the filter would jump by 0.76 %, having decayed. The mean is 0.1 %.
        assert!(meter.estimate.loss() < 0.0001, "{}", meter.estimate.loss());
        feed(&mut meter, 200_000..210_000);
        assert!(meter.estimate.loss() < 1e-20);
    }

    #[test]
    fn even_loss_of_one_percent_swings_between_the_computed_bounds() {
        let mut meter = meter(1);
        let (mut low, mut high) = (1.0f64, 0.0f64);
        for seq in (0..20_000).filter(|seq| seq % 100 != 99) {
            feed(&mut meter, [seq]);
            if seq > 10_000 {
                low = low.min(meter.estimate.loss());
                high = high.max(meter.estimate.loss());
            }
        }
        // The filter's upper bound; a loss shows one sample later.
        assert!((low - 0.0067).abs() < 0.0001 && (high - 0.0142).abs() < 0.0001, "{low} {high}");
    }

    #[test]
    fn a_late_original_is_no_loss_within_the_tolerance_and_is_one_beyond_it() {
        let mut meter = meter(3);
        feed(&mut meter, [0, 1, 3, 4, 2, 5, 6, 7]);
        assert_eq!(meter.estimate.loss(), 0.0);
        feed(&mut meter, [9, 10, 11, 8, 12]);
        assert!(meter.estimate.loss() > 0.007, "8 came after three later ones");
        let before = meter.estimate.loss();
        feed(&mut meter, [8, 9, 12]);
        assert_eq!(meter.estimate.loss(), before, "what is settled stays settled");
    }

    #[test]
    fn a_nak_reports_the_loss_that_it_is_about() {
        let mut meter = meter(3);
        feed(&mut meter, [0, 1, 3]);
        assert_eq!(meter.estimate.loss(), 0.0);
        assert!(meter.loss_with_holes(Time::ZERO) > 0.007);
        assert_eq!(meter.estimate.loss(), 0.0, "asking changes nothing");
    }

    proptest::proptest! {
        #[test]
        fn a_nak_reports_what_a_copy_of_the_meter_would(
            packets in proptest::collection::vec((0u32..60, 0u64..40, proptest::bool::weighted(0.1)), 1..150),
            tolerance in 1u32..5,
            (reordering, intervals) in (proptest::option::of(0u64..200), proptest::bool::ANY),
        ) {
            let config = PgmccConfig { loss_intervals: intervals, ..PgmccConfig::default() };
            let mut meter = LossMeter { loss_threshold: tolerance, ..LossMeter::new(&config) };
            let (mut now, mut from) = (Time::ZERO, 0);
            for (i, (ahead, wait, marked)) in packets.into_iter().enumerate() {
                now += Duration::from_millis(wait);
                from += u32::from(i % 3 == 0);
                let reordering = reordering.filter(|_| i > 20).map(Duration::from_millis);
                meter.received(now, (Seq::new(u32::MAX - 50) + from + ahead % 12, marked), reordering);
                let mut copy = meter.clone();
                copy.advance(now, Evidence::of(1, copy.reordering));
                proptest::prop_assert_eq!(meter.loss_with_holes(now), copy.estimate.loss());
            }
        }
    }

    #[test]
    fn losses_at_the_tail_count_once_given_up() {
        let mut meter = meter(3);
        feed(&mut meter, [0, 1, 2, 4]);
        meter.give_up(Time::ZERO, Seq::new(6));
        let three_of_seven = meter.estimate.loss();
        assert!((three_of_seven - 3.0 * 500.0 / 65536.0).abs() < 0.0005);
        feed(&mut meter, [5, 6]);
        assert_eq!(meter.estimate.loss(), three_of_seven);
    }

    #[test]
    fn a_long_run_of_losses_is_taken_back_where_its_packets_come_after_all() {
        let mut meter = meter(3);
        feed(&mut meter, 0..10);
        meter.give_up(Time::ZERO, Seq::new(60));
        assert!(meter.estimate.loss() > 0.3);
        feed(&mut meter, 10..30);
        assert_eq!(meter.estimate.loss(), 0.0);
        feed(&mut meter, [60, 61, 62]);
        assert!(meter.estimate.loss() > 0.2);
        meter.rewind(Seq::new(29));
        feed(&mut meter, 30..63);
        assert_eq!(meter.estimate.loss(), 0.0);
    }

    #[test]
    fn a_congestion_mark_counts_as_a_loss() {
        let mut meter = meter(3);
        feed(&mut meter, [0, 1]);
        meter.received(Time::ZERO, (Seq::new(2), true), None);
        assert!((meter.estimate.loss() - 500.0 / 65536.0).abs() < 1e-12);
    }

    #[test]
    fn any_jump_of_sequence_numbers_is_cheap_and_means_heavy_loss() {
        let mut meter = meter(1);
        feed(&mut meter, [0, 0x7fff_ffff]);
        assert!(meter.estimate.loss() > 0.99 && meter.estimate.loss() <= 1.0);
    }

    #[test]
    fn loss_intervals_give_one_over_the_mean_interval() {
        let config = PgmccConfig::default();
        let mut meter = LossMeter { loss_threshold: 1, ..LossMeter::new(&config) };
        for seq in (0..5000u32).filter(|seq| seq % 100 != 99) {
            let now = Time::ZERO + Duration::from_millis(u64::from(seq) * 10);
            meter.received(now, (Seq::new(seq), false), None);
        }
        assert!((meter.estimate.loss() - 0.01).abs() < 1e-9, "{}", meter.estimate.loss());
        let now = Time::ZERO + Duration::from_secs(60);
        for seq in [5000, 5002, 5004, 5006] {
            meter.received(now, (Seq::new(seq), false), None);
        }
        assert!(meter.estimate.loss() < 0.0125, "{}", meter.estimate.loss());
    }
}
