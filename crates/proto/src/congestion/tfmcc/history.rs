//! Loss events and the loss event rate.

use alloc::collections::VecDeque;

use faircast_base::Time;

use crate::congestion::common::equation::WEIGHTS;

/// Loss events remembered: one more than weights, since an interval lies between two events.
const EVENTS_MAX: usize = WEIGHTS.len() + 1;

/// Most lost packets that a late arrival can undo. Older ones stay lost.
const LOST_MAX: usize = 256;

/// Lowest discount of the history (src: RFC 4654 s5.5; RFC 5348 s5.5 has 0.25).
const DISCOUNT_MIN: f64 = 0.5;

/// Minimum interval before the first loss, in the equation for half a packet per round trip (src:
/// RFC 5348 s6.3.1). deviates: RFC 4654 s5.6 has none, and early losses would count for ever.
const FIRST_INTERVAL_MIN: f64 = 4.86;

#[derive(Clone, Debug, Default)]
pub(super) struct History {
    events: VecDeque<LossEvent>,
    /// Interval before the oldest event, computed from the first loss; dropped with that event.
    synthetic: Option<FirstInterval>,
    lost: VecDeque<u64>,
    pub(super) end: u64,
    /// True if a long interval without losses discounts the history (src: RFC 4654 s5.5).
    pub(super) discounting: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct LossEvent {
    first: u64,
    at: Time,
    /// Discount of the interval before this event (DF_i).
    discount: f64,
    /// True if late packets cannot undo the event, because not all its packets are remembered.
    settled: bool,
}

/// Interval before a receiver's first loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FirstInterval {
    /// Length in packets.
    pub packets: f64,
    /// Guessed round trip of the computation, in seconds; `None` if the round trip was measured.
    pub guessed_rtt_s: Option<f64>,
}

impl FirstInterval {
    /// Inverts the equation without timeouts for the rate at the first loss (src: RFC 4654 s5.6).
    pub fn of(bits_per_s: f64, packet_bytes: f64, rtt_s: f64, guessed: bool) -> Self {
        let packets_per_rtt = bits_per_s * rtt_s / (8.0 * packet_bytes);
        Self {
            packets: packets_per_rtt * packets_per_rtt / 1.5,
            guessed_rtt_s: guessed.then_some(rtt_s),
        }
    }
}

impl History {
    pub(super) fn new(discounting: bool) -> Self {
        Self { discounting, ..Self::default() }
    }

    pub(super) fn has_loss(&self) -> bool {
        !self.events.is_empty()
    }

    pub(super) fn latest_event(&self) -> Option<Time> {
        self.events.front().map(|event| event.at)
    }

    pub(super) fn begin_event(&mut self, index: u64, at: Time, undoable: bool) {
        let discount = self.discount();
        self.events.iter_mut().for_each(|event| event.discount *= discount);
        self.events.push_front(LossEvent { first: index, at, discount: 1.0, settled: !undoable });
        if self.events.len() > EVENTS_MAX {
            self.events.pop_back();
            self.synthetic = None;
        }
        self.end = self.end.max(index + 1);
    }

    pub(super) fn lose(&mut self, index: u64) {
        self.end = self.end.max(index + 1);
        if self.lost.len() == LOST_MAX
            && let Some(oldest) = self.lost.pop_front()
            && let Some(event) = self.events.iter_mut().find(|event| event.first <= oldest)
        {
            event.settled = true;
        }
        self.lost.push_back(index);
    }

    pub(super) fn lose_run(&mut self, end: u64) {
        self.end = self.end.max(end);
        if let Some(event) = self.events.front_mut() {
            event.settled = true;
        }
    }

    /// Undoes the loss of a late packet, and its event if that has no other (src: RFC 4654 s5.1).
    pub(super) fn found(&mut self, index: u64) {
        let Ok(slot) = self.lost.binary_search(&index) else { return };
        self.lost.remove(slot);
        let Some(which) = self.events.iter().position(|event| event.first <= index) else { return };
        let next_first = which.checked_sub(1).map_or(u64::MAX, |newer| self.events[newer].first);
        let event = self.events[which];
        if event.settled {
            return;
        }
        let remaining = self.lost.partition_point(|lost| *lost < event.first);
        match self.lost.get(remaining).copied().filter(|lost| *lost < next_first) {
            Some(first) => self.events[which].first = first,
            None => {
                self.events.remove(which);
                if self.events.is_empty() {
                    self.synthetic = None;
                }
            }
        }
    }

    pub(super) fn rewind(&mut self, end: u64) {
        self.events.retain(|event| event.first < end);
        self.lost.retain(|lost| *lost < end);
        self.end = self.end.min(end);
        if self.events.is_empty() {
            self.synthetic = None;
        }
    }

    pub(super) fn set_first_interval(&mut self, first: FirstInterval) {
        let packets = first.packets.max(FIRST_INTERVAL_MIN);
        self.synthetic = Some(FirstInterval { packets, ..first });
    }

    /// Replaces a guessed round trip by the first measured one (src: RFC 4654 s5.6).
    pub(super) fn correct_first_interval(&mut self, rtt_s: f64) {
        if let Some(synthetic) = &mut self.synthetic
            && let Some(guess) = synthetic.guessed_rtt_s.take()
        {
            let ratio = rtt_s / guess;
            synthetic.packets = (synthetic.packets * ratio * ratio).max(FIRST_INTERVAL_MIN);
        }
    }

    fn closed(&self) -> impl Iterator<Item = (f64, f64)> {
        let between = self
            .events
            .iter()
            .zip(self.events.iter().skip(1))
            .map(|(newer, older)| ((newer.first - older.first) as f64, newer.discount));
        let oldest = self.events.back().zip(self.synthetic);
        between
            .chain(oldest.map(|(event, synthetic)| (synthetic.packets, event.discount)))
            .take(WEIGHTS.len())
    }

    fn open(&self) -> f64 {
        self.events.front().map_or(0.0, |event| (self.end - event.first) as f64)
    }

    /// Returns the discount of closed intervals for a long open one (DF).
    fn discount(&self) -> f64 {
        if !self.discounting {
            return 1.0;
        }
        let (mut total, mut weights) = (0.0, 0.0);
        for ((interval, discount), weight) in self.closed().zip(WEIGHTS) {
            total += interval * weight * discount;
            weights += weight * discount;
        }
        let open = self.open();
        if weights > 0.0 && open > 2.0 * total / weights {
            (2.0 * total / weights / open).max(DISCOUNT_MIN)
        } else {
            1.0
        }
    }

    /// Returns loss events per packet, 0..=1. deviates: RFC 4654 s5.5 assigns the weights' sum.
    pub(super) fn loss(&self) -> f64 {
        if self.events.is_empty() {
            return 0.0;
        }
        let (general, intervals) = (self.discount(), self.closed().count());
        let (mut total0, mut weights0) = (self.open() * WEIGHTS[0], WEIGHTS[0]);
        let (mut total1, mut weights1) = (0.0, 0.0);
        for (i, (interval, discount)) in self.closed().enumerate() {
            if i + 1 < intervals {
                total0 += interval * WEIGHTS[i + 1] * discount * general;
                weights0 += WEIGHTS[i + 1] * discount * general;
            }
            total1 += interval * WEIGHTS[i] * discount;
            weights1 += WEIGHTS[i] * discount;
        }
        let with_open = total0 / weights0;
        let closed = if weights1 > 0.0 { total1 / weights1 } else { 0.0 };
        1.0 / with_open.max(closed).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn history(discounting: bool, events: &[u64], end: u64) -> History {
        let mut history = History::new(discounting);
        for &first in events {
            history.begin_event(first, Time::ZERO, true);
            history.lose(first);
        }
        history.end = end;
        history
    }

    #[test]
    fn eight_equal_intervals_give_their_length() {
        let events: Vec<u64> = (0..9).map(|k| 1000 + 100 * k).collect();
        let got = history(false, &events, 1810).loss();
        assert!((got - 0.01).abs() < 1e-12, "{got}");
    }

    #[test]
    fn intervals_are_weighed_as_the_rfc_says() {
        // Closed, newest first: 10 20 30 40 50 60 70 80, weights 1 1 1 1 .8 .6 .4 .2:
        // 10+20+30+40+40+36+28+16 = 220, over 6 = 36.667. Open 5: 5+10+20+30+32+30+24+14 = 165.
        let mut events = alloc::vec![1000];
        for step in [80, 70, 60, 50, 40, 30, 20, 10] {
            events.push(events.last().unwrap() + step);
        }
        let last = *events.last().unwrap();
        let closed = 6.0 / 220.0;
        assert!((history(false, &events, last + 5).loss() - closed).abs() < 1e-12);
        // Open 100: 260 / 6. Open 60 equals the closed mean.
        assert!((history(false, &events, last + 100).loss() - 6.0 / 260.0).abs() < 1e-12);
        assert!((history(false, &events, last + 60).loss() - closed).abs() < 1e-12);
        assert!((history(false, &events, last + 61).loss() - 6.0 / 221.0).abs() < 1e-12);
    }

    #[test]
    fn fewer_intervals_are_weighed_by_the_weights_in_use() {
        // Closed 100 and 300, weights 1 and 1. Open 50 instead of the oldest is less.
        let got = history(false, &[1000, 1300, 1400], 1450).loss();
        assert!((got - 2.0 / 400.0).abs() < 1e-12, "{got}");
        let got = history(false, &[1000, 1300, 1400], 2400).loss();
        assert!((got - 2.0 / 1100.0).abs() < 1e-12, "{got}");
    }

    #[test]
    fn a_long_interval_without_loss_discounts_the_past_by_half_at_most() {
        let events: Vec<u64> = (0..9).map(|k| 1000 + 100 * k).collect();
        let loss = |discounting, open: u64| history(discounting, &events, 1800 + open).loss();
        assert_eq!(loss(true, 200), loss(false, 200), "not beyond twice the mean: no discount");
        // DF = 2*100/250 = 0.8: (250 + 100*5*0.8) / (1 + 5*0.8) = 650 / 5.
        assert!((loss(true, 250) - 5.0 / 650.0).abs() < 1e-12);
        // At most one half: (1000 + 100*5*0.5) / (1 + 5*0.5) = 1250 / 3.5.
        assert!((loss(true, 1000) - 3.5 / 1250.0).abs() < 1e-12);
        assert!((loss(false, 1000) - 6.0 / 1500.0).abs() < 1e-12);
    }

    #[test]
    fn a_discount_stays_with_the_intervals_that_it_was_for() {
        let events: Vec<u64> = (0..9).map(|k| 1000 + 100 * k).collect();
        let mut history = history(true, &events, 2800);
        history.begin_event(2800, Time::ZERO, true);
        // Closed: 1000 with DF 1, seven of 100 with DF 0.5; open 1. (1000 + 100*0.5*(3 +
        // 0.8+0.6+0.4+0.2)) / (1 + 0.5*5) = 1250 / 3.5.
        assert!((history.loss() - 3.5 / 1250.0).abs() < 1e-12, "{}", history.loss());
    }

    #[test]
    fn a_late_packet_undoes_its_loss_and_moves_the_start_of_a_larger_event() {
        let mut history = history(false, &[1000, 1200], 1300);
        let before = history.loss();
        history.lose(1201);
        history.lose(1205);
        history.found(1200);
        assert!((history.loss() - 1.0 / 201.0).abs() < 1e-12);
        history.found(1205);
        history.found(1201);
        assert!((history.loss() - 1.0 / 300.0).abs() < 1e-12, "{} {before}", history.loss());
        history.found(1000);
        assert!(!history.has_loss());
        assert_eq!(history.loss(), 0.0);
        history.found(1000);
    }

    #[test]
    fn a_guessed_first_interval_is_put_right_by_the_first_round_trip() {
        let mut history = history(false, &[1000], 1001);
        let guessed_rtt_s = Some(0.5);
        history.set_first_interval(FirstInterval { packets: 400.0, guessed_rtt_s });
        assert!((history.loss() - 1.0 / 400.0).abs() < 1e-12);
        history.correct_first_interval(0.1);
        assert!((history.loss() - 1.0 / 16.0).abs() < 1e-12, "{}", history.loss());
        history.correct_first_interval(0.01);
        assert!((history.loss() - 1.0 / 16.0).abs() < 1e-12, "only once");
        for k in 1..=9 {
            history.begin_event(1000 + 10 * k, Time::ZERO, true);
        }
        assert!((history.loss() - 0.1).abs() < 1e-12, "it has left the history");
    }

    proptest::proptest! {
        #[test]
        fn any_history_has_bounded_memory_and_a_loss_rate(
            steps in proptest::collection::vec((0u8..4, 1u64..2000), 1..600), discounting: bool,
        ) {
            let (mut history, mut next) = (History::new(discounting), 1u64 << 32);
            for (what, step) in steps {
                next += step;
                match what {
                    0 => history.end = next + 1,
                    1 => {
                        history.begin_event(next, Time::ZERO, true);
                        history.lose(next);
                    }
                    2 if history.has_loss() => history.lose(next),
                    _ => history.found(next - step.min(20)),
                }
                let loss = history.loss();
                proptest::prop_assert!((0.0..=1.0).contains(&loss), "{}", loss);
                proptest::prop_assert_eq!(loss > 0.0, history.has_loss());
                proptest::prop_assert!(history.events.len() <= EVENTS_MAX);
                proptest::prop_assert!(history.lost.len() <= LOST_MAX);
            }
        }
    }
}
