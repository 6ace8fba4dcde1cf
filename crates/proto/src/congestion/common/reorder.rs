//! Loss detection under reordering, by later packets or by time.

use alloc::collections::VecDeque;

use faircast_base::{Duration, Seq, Time};

/// Queue of packets with values, in which each waits for the fate of all earlier packets.
#[derive(Clone, Debug)]
pub(crate) struct Reorder<T> {
    /// First number of unknown fate; `None` before the first packet.
    pub(crate) next: Option<Seq>,
    /// Packets received at or after `next`, with arrival times, in ascending order.
    pub(crate) early: VecDeque<(Seq, Time, T)>,
    /// Arrival of the first packet after the gap at `next`; [`Time::MAX`] without a gap.
    noticed: Time,
    /// True if `noticed` belongs to a packet that has left the queue: it must be computed anew.
    stale: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    Later(usize),
    /// Time since a later packet came, on a path known to reorder.
    Overdue(Duration),
}

impl Evidence {
    /// Returns the tolerance of a path known to reorder, or else `later` packets.
    pub(crate) fn of(later: u32, reordering: Option<Duration>) -> Self {
        reordering.map_or(Self::Later(later as usize), Self::Overdue)
    }

    fn shows_loss(self, now: Time, noticed: Time, waiting: usize) -> bool {
        match self {
            Self::Later(packets) => waiting >= packets,
            Self::Overdue(after) => noticed + after <= now || waiting >= EARLY_MAX,
        }
    }
}

/// Most packets that wait for an overdue packet. Chosen: 50 ms at 1 Gbit/s.
const EARLY_MAX: usize = 4096;

pub(crate) const AT_ONCE: Evidence = Evidence::Later(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled<T> {
    Came(T),
    /// Packets `first..end` are lost; `end` came instead.
    Lost {
        first: Seq,
        end: Seq,
        instead: T,
    },
}

impl<T> Default for Reorder<T> {
    fn default() -> Self {
        Self { next: None, early: VecDeque::new(), noticed: Time::MAX, stale: false }
    }
}

impl<T: Copy> Reorder<T> {
    pub(crate) fn first_gap(&self) -> Option<(Seq, Time)> {
        let noticed = if self.stale { self.earliest() } else { self.noticed };
        Some((self.next.filter(|_| !self.early.is_empty())?, noticed))
    }

    fn earliest(&self) -> Time {
        self.early.iter().map(|(_, at, _)| *at).fold(Time::MAX, Time::min)
    }

    pub(crate) fn end(&self) -> Option<Seq> {
        self.early.back().map(|(last, ..)| last.next()).or(self.next)
    }

    /// Settles a packet that comes in order while no other waits. False for any other packet.
    pub(crate) fn passes(&mut self, seq: Seq) -> bool {
        let passes = self.early.is_empty() && self.next == Some(seq);
        if passes {
            self.next = Some(seq.next());
        }
        passes
    }

    /// Adds a packet with its value. False if its fate is settled, or if it is a duplicate.
    pub(crate) fn arrived(&mut self, now: Time, seq: Seq, known: T) -> bool {
        let next = *self.next.get_or_insert(seq);
        let index = self.early.partition_point(|early| early.0.before(seq));
        let unknown = !seq.before(next) && self.early.get(index).is_none_or(|early| early.0 != seq);
        if unknown {
            self.early.insert(index, (seq, now, known));
            self.noticed = if self.early.len() == 1 { now } else { self.noticed.min(now) };
            self.stale &= self.early.len() > 1;
        }
        unknown
    }

    /// Returns the fate of the next packet, or of the next gap, once known.
    pub(crate) fn settle(&mut self, now: Time, evidence: Evidence) -> Option<Settled<T>> {
        let (next, &(end, at, known)) = self.next.zip(self.early.front())?;
        if end == next {
            self.early.pop_front();
            self.next = Some(next.next());
            self.stale |= at == self.noticed;
            return Some(Settled::Came(known));
        }
        if core::mem::take(&mut self.stale) {
            self.noticed = self.earliest();
        }
        evidence.shows_loss(now, self.noticed, self.early.len()).then(|| {
            self.next = Some(end);
            Settled::Lost { first: next, end, instead: known }
        })
    }

    /// Passes all fates to `take` that [`settle`](Self::settle) would return, and changes nothing.
    pub(crate) fn preview(&self, now: Time, evidence: Evidence, mut take: impl FnMut(Settled<T>)) {
        let Some(mut next) = self.next else { return };
        let (mut noticed, mut stale) = (self.noticed, self.stale);
        for (index, &(end, at, known)) in self.early.iter().enumerate() {
            if end != next {
                let waiting = || self.early.range(index..);
                if core::mem::take(&mut stale) {
                    noticed = waiting().map(|(_, at, _)| *at).fold(Time::MAX, Time::min);
                }
                if !evidence.shows_loss(now, noticed, waiting().len()) {
                    return;
                }
                take(Settled::Lost { first: next, end, instead: known });
            }
            take(Settled::Came(known));
            next = end.next();
            stale |= at == noticed;
        }
    }

    /// Forgets all waiting packets: the fate of every packet before `next` is known from elsewhere.
    pub(crate) fn skip_to(&mut self, next: Seq) {
        self.early.clear();
        (self.next, self.noticed, self.stale) = (Some(next), Time::MAX, false);
    }

    /// Forgets packets after `newest`, never sent. Returns true if that undoes a settled fate.
    pub(crate) fn rewind(&mut self, newest: Seq) -> bool {
        let Some(next) = self.next else { return false };
        let back = next.after(newest.next());
        if back || next == newest.next() {
            self.skip_to(newest.next());
        } else {
            self.early.retain(|(seq, ..)| !seq.after(newest));
            (self.noticed, self.stale) = (self.earliest(), false);
        }
        back
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::at;
    use alloc::vec::Vec;

    fn revealing(tolerance: usize, arrivals: &[u32]) -> Vec<u32> {
        let mut order = Reorder::default();
        let reveals = |n: &u32| {
            order.arrived(at(0), Seq::new(*n), ());
            let mut lost = false;
            while let Some(settled) = order.settle(at(0), Evidence::Later(tolerance)) {
                lost |= settled != Settled::Came(());
            }
            assert!(order.early.len() < tolerance);
            lost
        };
        arrivals.iter().copied().filter(reveals).collect()
    }

    #[test]
    fn a_packet_reveals_a_loss_once_enough_later_ones_have_come() {
        let cases: &[(usize, &[u32], &[u32])] = &[
            (1, &[5, 6, 7], &[]),
            (1, &[5, 7, 8, 10], &[7, 10]),
            (1, &[5, 7, 6, 8], &[7]),
            (1, &[5, 5, 6], &[]),
            (1, &[5, 9, 4, 10], &[9]),
            (3, &[5, 7, 8, 9], &[9]),
            (3, &[5, 7, 8, 6, 9], &[]),
            (3, &[5, 8, 7, 9, 6], &[9]),
            (3, &[5, 7, 9, 10, 11], &[10, 11]),
            (3, &[5, 7, 7, 7], &[]),
            (1, &[u32::MAX, 0, 2], &[2]),
        ];
        for (tolerance, arrivals, want) in cases {
            assert_eq!(revealing(*tolerance, arrivals), *want, "{tolerance} {arrivals:?}");
        }
        let jumps: Vec<u32> = (0..10_000u32).map(|n| n.wrapping_mul(7919)).collect();
        revealing(8, &jumps);
    }

    #[test]
    fn losses_are_told_with_what_came_instead() {
        let mut order = Reorder::default();
        for n in [1, 3, 6] {
            let mut arrives = || order.arrived(at(n.into()), Seq::new(n), n);
            assert!(arrives() && !arrives());
        }
        let three = Evidence::of(3, None);
        assert_eq!(order.settle(at(6), three), Some(Settled::Came(1)));
        assert_eq!(order.settle(at(6), three), None);
        assert_eq!(order.first_gap(), Some((Seq::new(2), at(3))));
        assert_eq!(order.end(), Some(Seq::new(7)));
        let (first, end) = (Seq::new(2), Seq::new(3));
        let lost = order.settle(at(6), Evidence::of(2, None));
        assert_eq!(lost, Some(Settled::Lost { first, end, instead: 3 }));
        assert!(order.rewind(Seq::new(1)) && order.arrived(at(7), Seq::new(2), 2));
        assert_eq!(order.settle(at(7), AT_ONCE), Some(Settled::Came(2)));
        assert_eq!(order.settle(at(7), AT_ONCE), None);
        assert!(!order.rewind(Seq::new(2)) && order.end() == Some(Seq::new(3)));
    }

    #[test]
    fn where_packets_are_reordered_only_time_makes_a_loss() {
        let mut order = Reorder::default();
        let wait = Evidence::of(1, Some(Duration::from_millis(10)));
        let packet = |seq: u32, came: u64, order: &mut Reorder<()>| {
            order.arrived(at(came), Seq::new(seq), ());
            let mut lost = Vec::new();
            while let Some(settled) = order.settle(at(came), wait) {
                if let Settled::Lost { first, end, .. } = settled {
                    lost.extend((0..end.distance(first)).map(|n| first.value() + n as u32));
                }
            }
            lost
        };
        // Packets 2 and 4 are overtaken; 4 is lost. Each gap has its own time.
        let came = [(1, 0), (3, 2), (5, 6), (6, 7), (7, 8), (2, 11), (8, 15)];
        for (seq, now) in came {
            assert_eq!(packet(seq, now, &mut order), [], "{seq}");
        }
        assert_eq!(packet(9, 16, &mut order), [4]);
        assert_eq!(order.first_gap(), None);
        let ahead: Vec<u32> = (0..2 * EARLY_MAX as u32).map(|n| 12 + n).collect();
        let lost = ahead.iter().find(|seq| !packet(**seq, 17, &mut order).is_empty());
        assert_eq!(lost, Some(&(11 + EARLY_MAX as u32)), "memory is bounded");
    }

    #[test]
    fn nothing_waits_after_a_rewind_past_half_of_all_numbers() {
        for (early, newest, back) in [(0x7fff_ffff, 0xffff_fff0u32, true), (0x8000_0000, 0, false)]
        {
            let mut order = Reorder::default();
            order.arrived(at(0), Seq::new(0), 0);
            assert_eq!(order.settle(at(0), AT_ONCE), Some(Settled::Came(0)));
            order.arrived(at(0), Seq::new(early), early);
            assert_eq!((order.early.len(), order.rewind(Seq::new(newest))), (1, back));
            assert_eq!((order.early.len(), order.end()), (0, Some(Seq::new(newest) + 1)));
        }
    }
}
