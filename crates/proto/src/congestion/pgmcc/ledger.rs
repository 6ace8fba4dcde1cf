//! Ledger of sent packets: time, acker and fate of each.

use alloc::collections::VecDeque;

use faircast_base::{NodeId, Seq, Time};

const HISTORY: usize = 1024;

/// Most packets in the ledger. Beyond it the oldest is released, even if unsettled.
const LEDGER_MAX: usize = 32_768;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    InFlight,
    Acked,
    Lost,
    /// Fate will never be known: the packet counts neither as in flight nor as lost.
    Released,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SentRecord {
    pub(super) at: Time,
    pub(super) acker: Option<NodeId>,
    pub(super) fate: Fate,
    /// First bitmap that lacked the packet: its time and its sender.
    pub(super) missed: Option<(Time, NodeId)>,
    /// True if the packet was repaired: an acknowledgement may then mean the repair.
    pub(super) repaired: bool,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) base: Seq,
    pub(super) entries: VecDeque<SentRecord>,
    pub(super) unsettled: Seq,
    pub(super) flight: u32,
}

impl Ledger {
    pub(super) fn push(&mut self, seq: Seq, at: Time, acker: Option<NodeId>) {
        if self.entries.is_empty() {
            (self.base, self.unsettled) = (seq, seq);
        }
        assert_eq!(seq, self.next(), "data packets are numbered consecutively");
        let fate = Fate::InFlight;
        self.entries.push_back(SentRecord { at, acker, fate, missed: None, repaired: false });
        self.flight += 1;
        while self.entries.len() > LEDGER_MAX
            || self.entries.len() > HISTORY && self.unsettled != self.base
        {
            self.settle(self.base, Fate::Released);
            self.entries.pop_front();
            self.base = self.base.next();
        }
        self.advance();
    }

    pub(super) fn next(&self) -> Seq {
        self.base + self.entries.len() as u32
    }

    pub(super) fn get(&self, seq: Seq) -> Option<&SentRecord> {
        self.entries.get(self.index(seq)?)
    }

    pub(super) fn get_mut(&mut self, seq: Seq) -> Option<&mut SentRecord> {
        let index = self.index(seq)?;
        self.entries.get_mut(index)
    }

    pub(super) fn settle(&mut self, seq: Seq, fate: Fate) -> bool {
        let entry = self.get_mut(seq).filter(|entry| entry.fate == Fate::InFlight);
        let Some(entry) = entry else { return false };
        entry.fate = fate;
        self.flight -= 1;
        self.advance();
        true
    }

    pub(super) fn release(&mut self, end: Seq, which: impl Fn(&SentRecord) -> bool) -> u32 {
        let mut released = 0;
        let mut seq = self.unsettled;
        while seq.before(end) && seq.before(self.next()) {
            if self.get(seq).is_some_and(&which) && self.settle(seq, Fate::Released) {
                released += 1;
            }
            seq = seq.next();
        }
        released
    }

    /// Returns the packet below which each has `count` later acknowledged ones before `highest`.
    pub(super) fn below_acked(&self, highest: Seq, count: u32) -> Seq {
        let mut seq = highest;
        let mut acked = 0;
        while seq.after(self.unsettled) {
            if self.get(seq).is_some_and(|sent| sent.fate == Fate::Acked) {
                acked += 1;
                if acked == count {
                    return seq;
                }
            }
            seq = seq - 1;
        }
        self.unsettled
    }

    pub(super) fn sent_after(&self, moment: Time) -> u32 {
        (self.entries.len() - self.entries.partition_point(|sent| sent.at <= moment)) as u32
    }

    fn index(&self, seq: Seq) -> Option<usize> {
        usize::try_from(seq.distance(self.base)).ok()
    }

    fn advance(&mut self) {
        while self.get(self.unsettled).is_some_and(|sent| sent.fate != Fate::InFlight) {
            self.unsettled = self.unsettled.next();
        }
    }
}

/// Most repairs charged to the window. Beyond it the oldest is released.
const REPAIRS_MAX: usize = 4096;

/// Most switches whose packets wait to be released. Beyond it the oldest packets go at once.
const SWITCHES_MAX: usize = 8;

/// Packets that leave flight by time, because no acknowledgement shows when they do.
#[derive(Debug, Default)]
pub(super) struct TimedFlight {
    pub(super) repairs: VecDeque<Time>,
    /// Times at which packets of former ackers leave flight, each with the packets' end.
    former: VecDeque<(Time, Seq)>,
}

impl TimedFlight {
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

    fn ledger(first: u32, count: u32) -> Ledger {
        let mut ledger = Ledger::default();
        for i in 0..count {
            ledger.push(Seq::new(first) + i, at(u64::from(i)), Some(NodeId(1)));
        }
        ledger
    }

    #[test]
    fn a_packet_is_settled_once_and_flight_counts_the_rest() {
        let mut ledger = ledger(u32::MAX - 2, 6);
        let seq = |i: u32| Seq::new(u32::MAX - 2) + i;
        assert_eq!(ledger.flight, 6);
        assert!(ledger.settle(seq(4), Fate::Acked));
        assert!(!ledger.settle(seq(4), Fate::Lost));
        assert!(!ledger.settle(seq(6), Fate::Acked), "never sent");
        assert!(!ledger.settle(seq(0) - 1, Fate::Acked), "before the first");
        assert_eq!((ledger.flight, ledger.unsettled), (5, seq(0)));
        assert_eq!(ledger.release(seq(3), |_| true), 3);
        assert_eq!((ledger.flight, ledger.unsettled), (2, seq(3)));
        ledger.settle(seq(3), Fate::Lost);
        assert_eq!((ledger.flight, ledger.unsettled), (1, seq(5)));
    }

    #[test]
    fn the_line_below_which_packets_are_lost_needs_so_many_later_acks() {
        let mut ledger = ledger(0, 10);
        for i in [5, 7, 8] {
            ledger.settle(Seq::new(i), Fate::Acked);
        }
        assert_eq!(ledger.below_acked(Seq::new(8), 3), Seq::new(5));
        assert_eq!(ledger.below_acked(Seq::new(8), 4), Seq::new(0));
        assert_eq!(ledger.below_acked(Seq::new(7), 2), Seq::new(5));
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes_first() {
        let mut acked = Ledger::default();
        for i in 0..5000 {
            acked.push(Seq::new(i), at(u64::from(i)), None);
            acked.settle(Seq::new(i), Fate::Acked);
        }
        assert!(acked.entries.len() <= HISTORY + 1);
        let silent = ledger(0, LEDGER_MAX as u32 + 10);
        assert_eq!(silent.entries.len(), LEDGER_MAX);
        assert_eq!(silent.flight, LEDGER_MAX as u32);
        assert_eq!(silent.base, Seq::new(10));
    }

    #[test]
    fn packets_sent_after_a_moment_are_counted() {
        let ledger = ledger(7, 10);
        assert_eq!(ledger.sent_after(at(3)), 6);
        assert_eq!(ledger.sent_after(at(9)), 0);
    }

    #[test]
    fn packets_leave_in_the_order_of_their_times() {
        let mut timed = TimedFlight::default();
        for ms in [30, 10, 20] {
            timed.add_repair(at(ms));
        }
        assert_eq!(timed.add_former(at(15), Seq::new(7)), None);
        assert_eq!((timed.repairs.len(), timed.next_timeout()), (3, Some(at(10))));
        assert_eq!((timed.pop_due(at(10)), timed.repairs.len()), (None, 2));
        assert_eq!(timed.next_timeout(), Some(at(15)));
        assert_eq!(timed.pop_due(at(25)), Some(Seq::new(7)));
        assert_eq!((timed.pop_due(at(25)), timed.repairs.len()), (None, 1));
    }

    #[test]
    fn beyond_the_limits_the_oldest_leave_at_once() {
        let mut timed = TimedFlight::default();
        for n in 0..2 * REPAIRS_MAX as u64 {
            timed.add_repair(at(n));
        }
        assert_eq!(timed.repairs.len(), REPAIRS_MAX);
        for n in 0..10 {
            let released = timed.add_former(at(n.into()), Seq::new(n));
            assert_eq!(released, n.checked_sub(SWITCHES_MAX as u32).map(Seq::new));
        }
    }
}
