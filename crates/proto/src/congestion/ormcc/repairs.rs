//! Detection of lost repairs.

use alloc::collections::VecDeque;

use faircast_base::{Duration, Seq, Time};

/// Most repairs remembered, and for at most 4 s: repeated requests come within seconds.
const REPAIRS_MAX: usize = 1024;
const REMEMBERED: Duration = Duration::from_secs(4);

/// Recent repairs. A repeated request that cannot have crossed its repair shows the repair's loss.
/// Routers forward repairs only to receivers that lack them, so numbers would show nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Repairs(VecDeque<(Seq, Time)>);

impl Repairs {
    pub(super) fn sent(&mut self, seq: Seq, now: Time) {
        let old = |at: Time| now.since(at) >= REMEMBERED;
        while self.0.len() >= REPAIRS_MAX || self.0.front().is_some_and(|&(_, at)| old(at)) {
            self.0.pop_front();
        }
        self.0.push_back((seq, now));
    }

    pub(super) fn was_lost(&self, seq: Seq, now: Time, rtt: Duration) -> bool {
        // The queue may have grown since the round trip was measured.
        let crossing = rtt + rtt / 8;
        let latest = self.0.iter().rev().find(|(other, _)| *other == seq);
        latest.is_some_and(|&(_, at)| (crossing..REMEMBERED).contains(&now.since(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::at;

    #[test]
    fn a_repair_that_is_asked_for_again_after_a_round_trip_was_lost() {
        let rtt = Duration::from_millis(80);
        let mut repairs = Repairs::default();
        repairs.sent(Seq::new(5), at(0));
        repairs.sent(Seq::new(6), at(10));
        for (seq, ms, want) in
            [(5, 89, false), (5, 90, true), (6, 99, false), (6, 100, true), (7, 100, false)]
        {
            assert_eq!(repairs.was_lost(Seq::new(seq), at(ms), rtt), want, "{seq} at {ms} ms");
        }
        repairs.sent(Seq::new(5), at(100));
        assert!(!repairs.was_lost(Seq::new(5), at(150), rtt), "the request crossed this one");
        assert!(repairs.was_lost(Seq::new(5), at(190), rtt));
        assert!(!repairs.was_lost(Seq::new(5), at(4100), rtt), "somebody may have come since");
    }

    #[test]
    fn any_number_of_repairs_takes_little_memory() {
        let mut repairs = Repairs::default();
        for n in 0..10_000 {
            repairs.sent(Seq::new(n), at(1));
            assert!(repairs.0.len() <= REPAIRS_MAX);
        }
        repairs.sent(Seq::new(0), at(5000));
        assert_eq!(repairs.0.len(), 1);
    }
}
