//! Loss detection under reordering: packets count as lost once enough later ones have come.

use alloc::vec::Vec;

use faircast_base::Seq;

/// Packets in the order of their numbers. One counts as lost once so many later ones have come; what
/// comes before that waits here, with what is to be known of it then.
#[derive(Clone, Debug)]
pub(crate) struct Reorder<T> {
    /// The first number of unknown fate; `None` before the first packet.
    next: Option<Seq>,
    /// What has come at or beyond it; ascending.
    early: Vec<(Seq, T)>,
}

/// What has become of some packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled<T> {
    /// This one has come.
    Came(T),
    /// Those from `first` to before `end` are lost, which came instead.
    Lost {
        first: Seq,
        end: Seq,
        /// What is known of `end`.
        instead: T,
    },
}

impl<T: Copy> Reorder<T> {
    /// Nothing has come yet.
    pub(crate) fn new() -> Self {
        Self { next: None, early: Vec::new() }
    }

    /// The first number of unknown fate.
    pub(crate) fn next(&self) -> Option<Seq> {
        self.next
    }

    /// The same where something has come beyond it.
    pub(crate) fn first_gap(&self) -> Option<Seq> {
        self.next.filter(|_| !self.early.is_empty())
    }

    /// The first number beyond all that have come.
    pub(crate) fn end(&self) -> Option<Seq> {
        self.early.last().map(|(last, _)| last.next()).or(self.next)
    }

    /// Whether packet `seq`, which has come, is the next one and nothing waits: then its fate is known
    /// at once, and that is all there is to do about it.
    pub(crate) fn passes(&mut self, seq: Seq) -> bool {
        let passes = self.early.is_empty() && self.next == Some(seq);
        if passes {
            self.next = Some(seq.next());
        }
        passes
    }

    /// Packet `seq` has come. Whether its fate was unknown.
    pub(crate) fn arrived(&mut self, seq: Seq, known: T) -> bool {
        let next = *self.next.get_or_insert(seq);
        let place = self.early.partition_point(|early| early.0.before(seq));
        let unknown = !seq.before(next) && self.early.get(place).is_none_or(|early| early.0 != seq);
        if unknown {
            self.early.insert(place, (seq, known));
        }
        unknown
    }

    /// The next fate that is known where `tolerance` later packets show a loss.
    pub(crate) fn settle(&mut self, tolerance: usize) -> Option<Settled<T>> {
        let (next, &(end, known)) = self.next.zip(self.early.first())?;
        if end == next {
            self.early.remove(0);
            self.next = Some(next.next());
            return Some(Settled::Came(known));
        }
        (self.early.len() >= tolerance).then(|| {
            self.next = Some(end);
            Settled::Lost { first: next, end, instead: known }
        })
    }

    /// The fate of all before `next` is known otherwise; nothing is left of what had come.
    pub(crate) fn skip_to(&mut self, next: Seq) {
        self.early.clear();
        self.next = Some(next);
    }

    /// Nothing after `newest` was sent. Whether that unsettles something.
    pub(crate) fn rewind(&mut self, newest: Seq) -> bool {
        let Some(next) = self.next else { return false };
        let back = next.after(newest.next());
        if back || next == newest.next() {
            // All that waits lies beyond `next`, and so after `newest`, however far.
            self.early.clear();
            self.next = Some(newest.next());
        } else {
            self.early.retain(|(seq, _)| !seq.after(newest));
        }
        back
    }

    /// How many wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.early.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The packets behind which a loss is seen.
    fn revealing(tolerance: usize, arrivals: &[u32]) -> Vec<u32> {
        let mut order = Reorder::new();
        let reveals = |n: &u32| {
            order.arrived(Seq::new(*n), ());
            let mut lost = false;
            while let Some(settled) = order.settle(tolerance) {
                lost |= settled != Settled::Came(());
            }
            assert!(order.waiting() < tolerance);
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
        let mut order = Reorder::new();
        for n in [1, 3, 6] {
            assert!(order.arrived(Seq::new(n), n) && !order.arrived(Seq::new(n), n));
        }
        assert_eq!(order.settle(3), Some(Settled::Came(1)));
        assert_eq!((order.settle(3), order.first_gap()), (None, Some(Seq::new(2))));
        assert_eq!(order.end(), Some(Seq::new(7)));
        let (first, end) = (Seq::new(2), Seq::new(3));
        assert_eq!(order.settle(2), Some(Settled::Lost { first, end, instead: 3 }));
        assert!(order.rewind(Seq::new(1)) && order.arrived(Seq::new(2), 2));
        assert_eq!((order.settle(1), order.settle(1)), (Some(Settled::Came(2)), None));
        assert!(!order.rewind(Seq::new(2)) && order.end() == Some(Seq::new(3)));
    }

    #[test]
    fn nothing_waits_after_a_rewind_past_half_of_all_numbers() {
        for (early, newest, back) in [(0x7fff_ffff, 0xffff_fff0u32, true), (0x8000_0000, 0, false)]
        {
            let mut order = Reorder::new();
            order.arrived(Seq::new(0), 0);
            assert_eq!(order.settle(1), Some(Settled::Came(0)));
            order.arrived(Seq::new(early), early);
            assert_eq!((order.waiting(), order.rewind(Seq::new(newest))), (1, back));
            assert_eq!((order.waiting(), order.end()), (0, Some(Seq::new(newest) + 1)));
        }
    }
}
