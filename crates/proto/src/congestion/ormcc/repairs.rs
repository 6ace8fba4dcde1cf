//! Repairs at the sender: detection of lost ones, and the time in which only repairs leave.

use alloc::collections::VecDeque;

use faircast_base::{Duration, Seq, Time};

/// Most repairs remembered, and for at most 4 s: repeated requests come within seconds.
const REPAIRS_MAX: usize = 1024;
const REMEMBERED: Duration = Duration::from_secs(4);

/// Recent repairs. A repeated request that cannot have crossed its repair shows the repair's loss.
/// Routers forward repairs only to receivers that lack them, so numbers would show nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Repairs {
    /// Latest repairs with their departures, in their order.
    sent: VecDeque<(Seq, Time)>,
    /// Start of the time in which only repairs leave; `None` while originals leave.
    alone_since: Option<Time>,
    /// True once the rate was lowered because only repairs leave. It must not grow then.
    pub(super) has_lowered_rate: bool,
}

impl Repairs {
    pub(super) fn on_original(&mut self) {
        (self.alone_since, self.has_lowered_rate) = (None, false);
    }

    /// Notes a repair that waited for the rate. Returns true if the rate must fall: once, after a
    /// round trip in which only repairs left, because losses of repairs are reported rarely.
    pub(super) fn on_repair(&mut self, now: Time, rtt: Duration) -> bool {
        let since = *self.alone_since.get_or_insert(now);
        let falls = !self.has_lowered_rate && now.since(since) >= rtt;
        self.has_lowered_rate |= falls;
        falls
    }

    pub(super) fn sent(&mut self, seq: Seq, now: Time) {
        let old = |at: Time| now.since(at) >= REMEMBERED;
        while self.sent.len() >= REPAIRS_MAX || self.sent.front().is_some_and(|&(_, at)| old(at)) {
            self.sent.pop_front();
        }
        self.sent.push_back((seq, now));
    }

    pub(super) fn was_lost(&self, seq: Seq, now: Time, rtt: Duration) -> bool {
        // The queue may have grown since the round trip was measured.
        let crossing = rtt + rtt / 8;
        let latest = self.sent.iter().rev().find(|(other, _)| *other == seq);
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
            assert!(repairs.sent.len() <= REPAIRS_MAX);
        }
        repairs.sent(Seq::new(0), at(5000));
        assert_eq!(repairs.sent.len(), 1);
    }
}
