//! Which packets reveal a loss.

use alloc::vec::Vec;

use faircast_base::Seq;

/// Numbers that were passed by without having come. A packet counts as lost once so many later ones
/// have arrived; with a tolerance of 1 the first packet behind a gap reveals it, as the paper has
/// it, and a packet that comes late looks like a loss.
#[derive(Clone, Debug)]
pub(super) struct Gaps {
    tolerance: usize,
    /// The first number of unknown fate; `None` before the first packet.
    cursor: Option<Seq>,
    /// What has come beyond it; ascending, fewer than `tolerance` between calls.
    early: Vec<Seq>,
}

impl Gaps {
    /// Nothing has come yet; `tolerance` is at least 1.
    pub(super) fn new(tolerance: u32) -> Self {
        Self { tolerance: tolerance.max(1) as usize, cursor: None, early: Vec::new() }
    }

    /// An original has come. Returns whether it reveals a loss.
    pub(super) fn received(&mut self, seq: Seq) -> bool {
        let cursor = *self.cursor.get_or_insert(seq);
        if cursor.after(seq) {
            return false;
        }
        if seq == cursor && self.early.is_empty() {
            self.cursor = Some(seq.next());
            return false;
        }
        let place = self.early.partition_point(|&other| seq.after(other));
        if self.early.get(place) != Some(&seq) {
            self.early.insert(place, seq);
        }
        self.close();
        let mut revealed = false;
        while self.early.len() >= self.tolerance {
            revealed = true;
            self.give_up();
        }
        revealed
    }

    /// Nothing after `newest` was sent.
    pub(super) fn rewind(&mut self, newest: Seq) {
        self.early.retain(|seq| !seq.after(newest));
        self.cursor =
            self.cursor.map(|cursor| if cursor.after(newest) { newest.next() } else { cursor });
    }

    /// Where the first gap begins that too few packets have shown; `None` where there is none.
    pub(super) fn first(&self) -> Option<Seq> {
        self.cursor.filter(|_| !self.early.is_empty())
    }

    /// The first gap has been open for long enough: what is missing in it is lost.
    pub(super) fn give_up(&mut self) {
        if let Some(&first) = self.early.first() {
            self.cursor = Some(first);
            self.close();
        }
    }

    /// Moves the cursor over what has come.
    fn close(&mut self) {
        let Some(cursor) = &mut self.cursor else { return };
        let mut closed = 0;
        while self.early.get(closed) == Some(cursor) {
            *cursor = cursor.next();
            closed += 1;
        }
        self.early.drain(..closed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revealing(tolerance: u32, arrivals: &[u32]) -> Vec<u32> {
        let mut gaps = Gaps::new(tolerance);
        arrivals.iter().copied().filter(|&n| gaps.received(Seq::new(n))).collect()
    }

    #[test]
    fn a_packet_reveals_a_loss_once_enough_later_ones_have_come() {
        let cases: &[(u32, &[u32], &[u32])] = &[
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
    }

    #[test]
    fn a_gap_that_is_given_up_is_told_once() {
        let mut gaps = Gaps::new(3);
        assert!(!gaps.received(Seq::new(1)) && !gaps.received(Seq::new(3)));
        assert_eq!(gaps.first(), Some(Seq::new(2)));
        gaps.give_up();
        assert_eq!(gaps.first(), None);
        for n in 4..9 {
            assert!(!gaps.received(Seq::new(n)));
        }
    }

    #[test]
    fn what_is_held_is_less_than_the_tolerance() {
        let mut gaps = Gaps::new(8);
        for n in 0..10_000u32 {
            gaps.received(Seq::new(n.wrapping_mul(7919)));
            assert!(gaps.early.len() < 8);
        }
    }
}
