//! Reordering tolerance: a time learnt from packets that arrive after they were missed. On a path
//! that reorders, a packet is lost once it is later than reordered packets usually are
//! (src: RFC 8985 s6.2, RACK). RACK learns that time from duplicates; here each end measures
//! lateness.

use alloc::collections::VecDeque;

use faircast_base::{Duration, Time};

/// Lateness of packets that were missed and came, by periods of losses.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)] // Hot fields first: see the receiver's session of PGM.
pub(crate) struct Lateness {
    /// Maximum of this and the previous period; `None` if all packets came in order.
    longest: Option<Duration>,
    recent: Option<Duration>,
    losses: u32,
    lost_at: Option<Time>,
}

/// Losses that end a period, whose lateness is forgotten (src: RFC 8985 s6.2: 16 recoveries).
const PERIOD_LOSSES: u32 = 16;

/// Tolerance in maximum latenesses, and the least: within a batch no packet seems late; chosen.
const MARGIN: f64 = 1.5;
const TOLERANCE_MIN: Duration = Duration::from_millis(1);

/// Bounds of the tolerance, at most one round trip within them; chosen.
pub(crate) const BOUND_MIN: Duration = Duration::from_millis(50);
pub(crate) const BOUND_MAX: Duration = Duration::from_millis(250);

/// Returns the maximum tolerance for this round trip, which no forged packet can widen.
pub(crate) fn bound(round_trip: Option<Duration>) -> Duration {
    round_trip.unwrap_or_default().clamp(BOUND_MIN, BOUND_MAX)
}

impl Lateness {
    /// Notes a packet that came `late`, unless beyond the `bound`.
    pub(crate) fn came(&mut self, late: Duration, bound: Duration) {
        if late <= bound {
            (self.longest, self.recent) =
                (self.longest.max(Some(late)), self.recent.max(Some(late)));
        }
    }

    pub(crate) fn lost(&mut self, now: Time) {
        if self.longest.is_none() || self.lost_at.is_some_and(|at| now.since(at) < BOUND_MIN) {
            return;
        }
        (self.losses, self.lost_at) = (self.losses + 1, Some(now));
        if self.losses >= PERIOD_LOSSES {
            (self.longest, self.losses) = (self.recent.take(), 0);
        }
    }

    /// Returns the time to wait for a missing packet; `None` if later packets show a loss.
    pub(crate) fn tolerance(&self, bound: Duration) -> Option<Duration> {
        let longest = self.longest?.mul_f64(MARGIN);
        Some(longest.max(TOLERANCE_MIN).min(bound))
    }
}

/// Missing packets with the times at which they were missed, ascending.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gaps(VecDeque<Gap>);

#[derive(Clone, Copy, Debug)]
struct Gap {
    first: u64,
    end: u64,
    noticed: Time,
}

/// Most gaps remembered. The oldest is dropped, and its packets teach no lateness.
const GAPS_MAX: usize = 1024;

impl Gaps {
    pub(crate) fn notice(&mut self, now: Time, first: u64, end: u64) {
        while self.0.front().is_some_and(|gap| now.since(gap.noticed) > BOUND_MAX)
            || self.0.len() >= GAPS_MAX
        {
            self.0.pop_front();
        }
        if first < end && self.0.back().is_none_or(|last| last.end <= first) {
            self.0.push_back(Gap { first, end, noticed: now });
        }
    }

    /// Removes a packet that came. Returns the time for which it was missing.
    pub(crate) fn came(&mut self, now: Time, index: u64) -> Option<Duration> {
        let slot = self.0.partition_point(|gap| gap.end <= index);
        let gap = self.0.get_mut(slot).filter(|gap| gap.first <= index)?;
        let Gap { first, end, noticed } = *gap;
        match (first < index, index + 1 < end) {
            (false, false) => _ = self.0.remove(slot),
            (false, true) => gap.first = index + 1,
            (true, false) => gap.end = index,
            (true, true) => {
                gap.end = index;
                self.0.insert(slot + 1, Gap { first: index + 1, end, noticed });
            }
        }
        Some(now.since(noticed))
    }

    /// Returns one past the last packet that was missed at least `tolerance` ago.
    pub(crate) fn overdue(&self, now: Time, tolerance: Duration) -> Option<u64> {
        let due = self.0.partition_point(|gap| gap.noticed + tolerance <= now);
        Some(self.0.get(due.checked_sub(1)?)?.end)
    }

    pub(crate) fn first_from(&self, from: u64) -> Option<u64> {
        let gap = self.0.get(self.0.partition_point(|gap| gap.end <= from))?;
        Some(gap.first.max(from))
    }

    /// Returns the time at which the first gap after `from` was noticed, and the gap's end.
    pub(crate) fn next(&self, from: u64) -> Option<(Time, u64)> {
        let gap = self.0.get(self.0.partition_point(|gap| gap.end <= from))?;
        Some((gap.noticed, gap.end))
    }

    pub(crate) fn rewind(&mut self, to: u64) {
        self.0.retain_mut(|gap| {
            gap.end = gap.end.min(to);
            gap.first < gap.end
        });
    }
}

#[derive(Clone, Debug, Default)]
#[repr(C)] // Hot fields first: see the receiver's session of PGM.
pub(crate) struct Disorder {
    pub(crate) lateness: Lateness,
    pub(crate) gaps: Gaps,
    bound: Duration,
}

impl Disorder {
    pub(crate) fn notice(
        &mut self,
        now: Time,
        (first, end): (u64, u64),
        round_trip: Option<Duration>,
    ) {
        self.bound = bound(round_trip);
        self.gaps.notice(now, first, end);
    }

    pub(crate) fn came(&mut self, now: Time, index: u64) {
        if let Some(late) = self.gaps.came(now, index) {
            self.lateness.came(late, self.bound);
        }
    }

    pub(crate) fn tolerance(&self) -> Option<Duration> {
        self.lateness.tolerance(self.bound)
    }

    pub(crate) fn overdue(&self, now: Time) -> Option<u64> {
        self.gaps.overdue(now, self.tolerance()?)
    }

    /// Returns the end of the first gap after `from`, and the time when the gap is lost.
    pub(crate) fn next(&self, from: u64) -> Option<(Time, u64)> {
        let tolerance = self.tolerance()?;
        let (noticed, end) = self.gaps.next(from)?;
        Some((noticed + tolerance, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::at;
    use alloc::collections::BTreeMap;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn what_was_late_is_waited_for_half_as_long_again_and_no_longer_than_the_bound() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.tolerance(bound(None)), None, "later packets tell");
        lateness.came(Duration::ZERO, bound(None));
        assert_eq!(lateness.tolerance(bound(None)), Some(ms(1)));
        lateness.came(ms(10), bound(None));
        lateness.came(ms(4), bound(None));
        assert_eq!(lateness.tolerance(bound(None)), Some(ms(15)));
        lateness.came(ms(51), bound(None));
        assert_eq!(lateness.tolerance(bound(None)), Some(ms(15)), "no order of this path");
        lateness.came(ms(49), bound(None));
        assert_eq!(lateness.tolerance(bound(None)), Some(ms(50)));
        assert_eq!(lateness.tolerance(bound(Some(ms(60)))), Some(ms(60)));
        for (round_trip, want) in [(ms(1), 50), (ms(90), 90), (Duration::from_secs(3600), 250)] {
            assert_eq!(bound(Some(round_trip)), ms(want));
        }
    }

    #[test]
    fn what_no_packet_confirms_is_forgotten_after_sixteen_losses_or_twice_as_many() {
        let mut lateness = Lateness::default();
        let mut now = at(0);
        let mut lose = |lateness: &mut Lateness, losses: u32| {
            for _ in 0..losses {
                now += BOUND_MIN;
                (0..9).for_each(|_| lateness.lost(now));
            }
            lateness.tolerance(bound(None))
        };
        lateness.came(ms(20), bound(None));
        assert_eq!(lose(&mut lateness, 16), Some(ms(30)), "it was late in this period");
        lateness.came(ms(4), bound(None));
        assert_eq!(lose(&mut lateness, 15), Some(ms(30)));
        assert_eq!(lose(&mut lateness, 1), Some(ms(6)));
        assert_eq!(lose(&mut lateness, 15), Some(ms(6)));
        assert_eq!(lose(&mut lateness, 1), None);
    }

    #[test]
    fn gaps_tell_how_late_their_packets_come_and_which_do_not() {
        let mut gaps = Gaps::default();
        gaps.notice(at(10), 5, 8);
        gaps.notice(at(12), 9, 10);
        assert_eq!(gaps.next(0), Some((at(10), 8)));
        assert_eq!(gaps.came(at(15), 6), Some(ms(5)));
        assert_eq!((gaps.came(at(15), 6), gaps.came(at(15), 8)), (None, None), "nobody missed it");
        assert_eq!((gaps.overdue(at(14), ms(5)), gaps.overdue(at(15), ms(5))), (None, Some(8)));
        assert_eq!(gaps.overdue(at(17), ms(5)), Some(10));
        assert_eq!((gaps.came(at(20), 5), gaps.came(at(20), 7)), (Some(ms(10)), Some(ms(10))));
        assert_eq!(gaps.next(0), Some((at(12), 10)));
        gaps.rewind(9);
        assert_eq!(gaps.next(0), None);
    }

    proptest::proptest! {
        #[test]
        fn they_are_the_packets_that_were_noticed_and_have_not_come(
            steps in proptest::collection::vec((0u64..8, 0u64..60, 0u64..20), 1..400),
        ) {
            let (mut gaps, mut table, mut now, mut end) =
                (Gaps::default(), BTreeMap::new(), 0, 0u64);
            for (ahead, back, wait) in steps {
                now += wait;
                if ahead > 0 {
                    gaps.notice(at(now), end, end + ahead - 1);
                    (end..end + ahead - 1).for_each(|index| _ = table.insert(index, now));
                    end += ahead;
                } else if let Some(index) = end.checked_sub(back) {
                    let late = gaps.came(at(now), index);
                    let want = table.remove(&index).map(|noticed| ms(now - noticed));
                    let forgotten = want.is_some_and(|late| late > BOUND_MAX) && late.is_none();
                    proptest::prop_assert!(late == want || forgotten, "{late:?} {want:?}");
                }
                proptest::prop_assert!(gaps.0.len() <= GAPS_MAX);
                let sorted = gaps.0.iter().is_sorted_by(|a, b| a.end <= b.first && a.noticed <= b.noticed);
                proptest::prop_assert!(sorted, "{gaps:?}");
            }
        }
    }
}
