//! Loss detection of TFMCC's receiver: lost packets and their loss events (RFC 4654 s5.1, s5.2).

use faircast_base::{Duration, Seq, Time};

use super::history::{FirstInterval, History};
use crate::congestion::common::reorder::{Evidence, Reorder, Settled};

/// Most losses in a row processed one by one; their events fill the history many times over.
const RUN_MAX: u64 = 4096;

/// First number without wrap. The room below serves late packets from before the first one.
const FIRST_INDEX: u64 = 1 << 32;

/// Loss events of one receiver, detected from originals. Memory is bounded.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    pub(super) history: History,
    threshold: u32,
    /// Packets whose fate is open, with their arrivals and true if the network marked them.
    order: Reorder<(Time, bool)>,
    next: u64,
    /// Latest packet that arrived before `next`, for the interpolation of times.
    before: (u64, Time),
}

impl Arrivals {
    /// Creates a detector that counts a packet as lost after `threshold` later ones.
    pub fn new(threshold: u32, discounting: bool) -> Self {
        Self {
            history: History::new(discounting),
            threshold,
            order: Reorder::default(),
            next: FIRST_INDEX,
            before: (FIRST_INDEX, Time::ZERO),
        }
    }

    /// Notes an original. A packet that the network `marked` is lost at once (src: RFC 4654 s5.1),
    /// a missing one after `reordering`. Losses within `rtt` of an event's first loss belong to it.
    pub fn received(
        &mut self,
        now: Time,
        (seq, marked): (Seq, bool),
        reordering: Option<Duration>,
        rtt: Duration,
        first: &dyn Fn() -> FirstInterval,
    ) {
        let behind = self.order.next.map_or(0, |next| next.distance(seq));
        if behind > 0 {
            return self.history.found(self.next.saturating_sub(behind as u64));
        }
        if self.order.arrived(now, seq, (now, marked)) {
            self.settle(now, Evidence::of(self.threshold, reordering), rtt, first);
        }
    }

    /// Corrects the first interval by the measured round trip, if the round trip was a guess.
    pub fn correct_first_interval(&mut self, rtt_s: f64) {
        self.history.correct_first_interval(rtt_s);
    }

    /// Returns the loss events per packet, in 0..=1.
    pub fn loss(&self) -> f64 {
        self.history.loss()
    }

    /// Withdraws losses after `newest`, the last packet that was sent.
    pub fn rewind(&mut self, now: Time, newest: Seq) {
        let Some(next) = self.order.next else { return };
        let ahead = i64::from(newest.distance(next)) + 1;
        let Some(end) = self.next.checked_add_signed(ahead).filter(|end| *end > 0) else { return };
        if self.order.rewind(newest) {
            self.next = end;
            self.before = (end - 1, now);
            self.history.rewind(end);
        }
    }

    /// Forgets earlier losses at `seq` after a long silence, unless packets are missing.
    pub(super) fn forget(&mut self, seq: Seq) {
        if self.order.end() == Some(seq) {
            *self = Self::new(self.threshold, self.history.discounting);
        }
    }

    fn settle(
        &mut self,
        now: Time,
        evidence: Evidence,
        rtt: Duration,
        first: &dyn Fn() -> FirstInterval,
    ) {
        while let Some(settled) = self.order.settle(now, evidence) {
            let index = self.next;
            match settled {
                Settled::Came((at, marked)) => {
                    self.history.end = self.history.end.max(index + 1);
                    if marked {
                        self.lost_at(index, at, rtt, first, false);
                    }
                    self.before = (index, at);
                    self.next += 1;
                }
                Settled::Lost { first: lost, end, instead: (at, _) } => {
                    self.next += end.distance(lost) as u64;
                    self.lose(index, (self.next, at), rtt, first);
                }
            }
        }
    }

    /// Marks packets `from..after.0` as lost, at interpolated times (src: RFC 4654 s5.2).
    fn lose(
        &mut self,
        from: u64,
        after: (u64, Time),
        rtt: Duration,
        first: &dyn Fn() -> FirstInterval,
    ) {
        let (index_before, time_before) = self.before;
        let span = after.1.since(time_before).as_nanos() as f64;
        let step = span / (after.0 - index_before) as f64;
        let time_of = |index: u64| {
            time_before + Duration::from_nanos((step * (index - index_before) as f64) as u64)
        };
        let mut next = from;
        if after.0 - from > RUN_MAX {
            self.lost_at(from, time_of(from), rtt, first, true);
            next = after.0 - RUN_MAX;
            self.history.lose_run(next);
        }
        for index in next..after.0 {
            self.lost_at(index, time_of(index), rtt, first, true);
            self.history.lose(index);
        }
    }

    /// Begins a new event if the last began more than a round trip ago (src: RFC 4654 s5.2).
    fn lost_at(
        &mut self,
        index: u64,
        at: Time,
        rtt: Duration,
        first: &dyn Fn() -> FirstInterval,
        undoable: bool,
    ) {
        match self.history.latest_event() {
            None => {
                self.history.begin_event(index, at, undoable);
                self.history.set_first_interval(first());
            }
            Some(latest) if latest + rtt < at => self.history.begin_event(index, at, undoable),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::at;

    const RTT: Duration = Duration::from_millis(50);

    fn first() -> FirstInterval {
        FirstInterval { packets: 100.0, guessed_rtt_s: None }
    }

    fn feed(arrivals: &mut Arrivals, start_ms: u64, seqs: impl IntoIterator<Item = u32>) {
        for (i, seq) in seqs.into_iter().enumerate() {
            arrivals.received(
                at(start_ms + 10 * i as u64),
                (Seq::new(seq), false),
                None,
                RTT,
                &first,
            );
        }
    }

    #[test]
    fn three_later_packets_make_a_loss_and_two_do_not() {
        let mut arrivals = Arrivals::new(3, false);
        feed(&mut arrivals, 0, [0, 1, 3, 4]);
        assert!(!arrivals.history.has_loss());
        feed(&mut arrivals, 40, [2, 5, 7, 8]);
        assert!(!arrivals.history.has_loss(), "2 came before three later ones");
        feed(&mut arrivals, 80, [9]);
        assert!((arrivals.loss() - 0.01).abs() < 1e-12, "{}", arrivals.loss());
        feed(&mut arrivals, 90, [6]);
        assert!(!arrivals.history.has_loss(), "it came late, and fills its hole");
    }

    #[test]
    fn losses_within_a_round_trip_are_one_event_by_interpolated_times() {
        // At 10 ms a packet, 10 and 15 are a round trip of 50 ms apart: one event. 16 is another.
        for (second, loss) in [(15, 1.0 / 100.0), (16, 2.0 / 106.0)] {
            let mut arrivals = Arrivals::new(3, false);
            let seqs = (0..=30).filter(|seq| *seq != 10 && *seq != second);
            for seq in seqs {
                let now = at(10 * u64::from(seq));
                arrivals.received(now, (Seq::new(seq), false), None, RTT, &first);
            }
            assert!((arrivals.loss() - loss).abs() < 1e-12, "{second}: {}", arrivals.loss());
        }
    }

    #[test]
    fn an_outage_has_an_event_for_each_round_trip() {
        let mut arrivals = Arrivals::new(3, false);
        feed(&mut arrivals, 0, 0..=9);
        // Lost in one second: 10 to 109, with an event every 6. Open 14; seven closed weigh 5.
        feed(&mut arrivals, 1100, 110..120);
        assert!((arrivals.loss() - 6.0 / 44.0).abs() < 1e-12, "{}", arrivals.loss());
    }

    #[test]
    fn a_mark_is_a_loss_at_once() {
        let mut arrivals = Arrivals::new(3, false);
        feed(&mut arrivals, 0, 0..5);
        arrivals.received(at(50), (Seq::new(5), true), None, RTT, &first);
        assert!(arrivals.history.has_loss());
        feed(&mut arrivals, 60, [5]);
        assert!(arrivals.history.has_loss(), "it cannot be undone");
    }

    #[test]
    fn any_jump_is_cheap_and_numbers_may_wrap() {
        let mut arrivals = Arrivals::new(1, true);
        feed(&mut arrivals, 0, [u32::MAX - 1, u32::MAX, 0, 1]);
        assert!(!arrivals.history.has_loss());
        feed(&mut arrivals, 40, [0x7fff_fff0, 0x7fff_fff1]);
        assert!(arrivals.history.has_loss() && arrivals.loss() <= 1.0);
    }

    proptest::proptest! {
        #[test]
        fn any_order_of_arrivals_is_survived(
            steps in proptest::collection::vec((0u32.., 0u64..100_000, 0u8..8), 1..300),
        ) {
            let (mut arrivals, mut now, mut next) = (Arrivals::new(3, true), Time::ZERO, 0u32);
            for (jump, wait_us, way) in steps {
                now += Duration::from_micros(wait_us);
                next = match way {
                    0 => jump,
                    1 => next.wrapping_sub(jump % 40),
                    2 => next.wrapping_add(jump % 40),
                    _ => next.wrapping_add(1),
                };
                match way {
                    3 if jump % 4 == 0 => arrivals.rewind(now, Seq::new(next)),
                    _ => arrivals.received(now, (Seq::new(next), way == 7), None, RTT, &first),
                }
                proptest::prop_assert!((0.0..=1.0).contains(&arrivals.loss()));
                proptest::prop_assert!(arrivals.order.early.len() < 3);
            }
        }
    }
}
