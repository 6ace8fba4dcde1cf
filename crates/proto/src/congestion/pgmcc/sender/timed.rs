//! Packets that leave flight by time, because no acknowledgement shows when they do.

use alloc::collections::VecDeque;

use faircast_base::{Seq, Time};

/// Most repairs charged to the window. Beyond it the oldest is released.
const REPAIRS_MAX: usize = 4096;

/// Most switches whose packets wait to be released. Beyond it the oldest packets go at once.
const SWITCHES_MAX: usize = 8;

#[derive(Debug, Default)]
pub(super) struct TimedFlight {
    /// Times at which repairs leave flight, ascending.
    repairs: VecDeque<Time>,
    /// Times at which packets of former ackers leave flight, each with the packets' end.
    former: VecDeque<(Time, Seq)>,
}

impl TimedFlight {
    /// Returns the number of repairs in flight.
    pub(super) fn repairs(&self) -> usize {
        self.repairs.len()
    }

    pub(super) fn add_repair(&mut self, until: Time) {
        if self.repairs.len() == REPAIRS_MAX {
            self.repairs.pop_front();
        }
        let index = self.repairs.partition_point(|&at| at <= until);
        self.repairs.insert(index, until);
    }

    /// Adds a former acker's packets before `end`. Returns the end of packets to release at once.
    pub(super) fn add_former(&mut self, until: Time, end: Seq) -> Option<Seq> {
        let is_full = self.former.len() == SWITCHES_MAX;
        let oldest = if is_full { self.former.pop_front() } else { None };
        self.former.push_back((until, end));
        oldest.map(|(_, end)| end)
    }

    /// Releases due repairs. Returns the end of former ackers' packets that are due, if any.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<Seq> {
        while self.repairs.front().is_some_and(|&at| at <= now) {
            self.repairs.pop_front();
        }
        let &(_, end) = self.former.front().filter(|(at, _)| *at <= now)?;
        self.former.pop_front();
        Some(end)
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let former = self.former.front().map(|&(at, _)| at);
        self.repairs.front().copied().into_iter().chain(former).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::at;

    #[test]
    fn packets_leave_in_the_order_of_their_times() {
        let mut timed = TimedFlight::default();
        for ms in [30, 10, 20] {
            timed.add_repair(at(ms));
        }
        assert_eq!(timed.add_former(at(15), Seq::new(7)), None);
        assert_eq!((timed.repairs(), timed.next_timeout()), (3, Some(at(10))));
        assert_eq!((timed.pop_due(at(10)), timed.repairs()), (None, 2));
        assert_eq!(timed.next_timeout(), Some(at(15)));
        assert_eq!(timed.pop_due(at(25)), Some(Seq::new(7)));
        assert_eq!((timed.pop_due(at(25)), timed.repairs()), (None, 1));
    }

    #[test]
    fn beyond_the_limits_the_oldest_leave_at_once() {
        let mut timed = TimedFlight::default();
        for n in 0..2 * REPAIRS_MAX as u64 {
            timed.add_repair(at(n));
        }
        assert_eq!(timed.repairs(), REPAIRS_MAX);
        for n in 0..10 {
            let released = timed.add_former(at(n.into()), Seq::new(n));
            assert_eq!(released, n.checked_sub(SWITCHES_MAX as u32).map(Seq::new));
        }
    }
}
