//! Loss record of a receiver: packets sent while it was a member, that did not arrive. A repair
//! does not undo the loss of the first transmission; a late first transmission does.

use alloc::boxed::Box;
use core::ops::Range;

use faircast_base::Event;

/// Blocks of 64 sequence numbers in which each lost packet is recorded individually.
const BLOCKS: usize = 64;

/// Loss record. A packet may be reported as missing only before its first transmission arrives.
#[derive(Debug, Default)]
pub struct LossRecord {
    lost: u64,
    from: u64,
    end: u64,
    recent: Option<Box<Recent>>,
}

/// Lost packets among the latest 4096 numbers, one bit each.
#[derive(Debug)]
struct Recent {
    /// Bits of block b in word b modulo [`BLOCKS`].
    words: [u64; BLOCKS],
    newest_block: u64,
    /// First number with a valid bit; earlier bits are unknown.
    known_from: u64,
}

impl LossRecord {
    /// Creates the record of a receiver that joins at packet `from`.
    pub fn starting_at(from: u64) -> Self {
        Self { from, ..Self::default() }
    }

    /// Returns the first packet that counts.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// Excludes packets before `end` that are not reported yet: the receiver had no room for them.
    pub fn count_from(&mut self, end: u64) {
        self.from = self.from.max(end);
    }

    /// Returns the number of packets that count as lost now.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns one past the greatest number that counts or counted as lost.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Records packets `range` as lost. Emits an event for each run that did not count before.
    pub fn missing(&mut self, range: Range<u64>, mut emit: impl FnMut(Event)) {
        let range = range.start.max(self.from)..range.end;
        if range.is_empty() {
            return;
        }
        let known = self.end;
        self.end = known.max(range.end);
        let recent = self.recent.get_or_insert_default();
        recent.reach(range.end - 1);
        // Only the latest numbers have bits. Older numbers below `known` count as lost already.
        let first = recent.first().clamp(range.start, range.end);
        let mut run = range.start.max(known).min(first)..first;
        for seq in first..range.end {
            if recent.set(seq) {
                if run.is_empty() {
                    run.start = seq;
                }
                run.end = seq + 1;
            } else {
                self.lost += emit_run(&mut emit, run);
                run = seq + 1..seq + 1;
            }
        }
        self.lost += emit_run(&mut emit, run);
    }

    /// True if packet `seq`, one of the latest 4096, counts as lost.
    pub fn counts(&self, seq: u64) -> bool {
        self.recent.as_ref().is_some_and(|recent| recent.get(seq))
    }

    /// Records that the first transmission of `seq` arrived. Returns true if this undid a loss.
    pub fn arrived(&mut self, seq: u64, mut emit: impl FnMut(Event)) -> bool {
        if seq >= self.end {
            return false;
        }
        let was_lost = self.recent.as_mut().is_some_and(|recent| recent.clear(seq));
        if was_lost {
            self.lost = self.lost.saturating_sub(1);
            emit(Event::LossWithdrawn { seq, count: 1 });
        }
        was_lost
    }

    /// Withdraws packets from `end` on, which the source did not send. Packets before the newest
    /// 4096 are unknown: the greatest possible number of losses is withdrawn.
    pub fn rewind(&mut self, end: u64, mut emit: impl FnMut(Event)) {
        let start = end.max(self.from);
        self.from = self.from.min(end);
        if end >= self.end {
            return;
        }
        let Some(recent) = &mut self.recent else { return };
        let old = self.lost - recent.count();
        let old = recent.first().saturating_sub(start).min(old);
        let count = old + recent.rewind(end);
        if count > 0 {
            self.lost -= count;
            emit(Event::LossWithdrawn { seq: end, count });
        }
        self.end = end;
    }
}

fn emit_run(emit: &mut impl FnMut(Event), run: Range<u64>) -> u64 {
    let count = run.end.saturating_sub(run.start);
    if count > 0 {
        emit(Event::LossDetected { seq: run.start, count });
    }
    count
}

impl Default for Recent {
    fn default() -> Self {
        Self { words: [0; BLOCKS], newest_block: 0, known_from: 0 }
    }
}

impl Recent {
    /// Shifts the window of bits so that it contains `seq`. The oldest numbers are dropped.
    fn reach(&mut self, seq: u64) {
        let block = seq / 64;
        if block <= self.newest_block {
            return;
        }
        let passed = (block - self.newest_block).min(BLOCKS as u64);
        for block in block + 1 - passed..=block {
            self.words[(block % BLOCKS as u64) as usize] = 0;
        }
        self.newest_block = block;
    }

    fn first(&self) -> u64 {
        ((self.newest_block + 1).saturating_sub(BLOCKS as u64) * 64).max(self.known_from)
    }

    fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Returns the index of a known number's word, and its bit.
    fn bit(&self, seq: u64) -> Option<(usize, u64)> {
        let is_known = seq >= self.first() && seq / 64 <= self.newest_block;
        is_known.then_some(((seq / 64 % BLOCKS as u64) as usize, 1 << (seq % 64)))
    }

    fn get(&self, seq: u64) -> bool {
        self.bit(seq).is_some_and(|(word, bit)| self.words[word] & bit != 0)
    }

    fn set(&mut self, seq: u64) -> bool {
        let Some((word, bit)) = self.bit(seq) else { return false };
        let is_new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        is_new
    }

    fn clear(&mut self, seq: u64) -> bool {
        let was_set = self.get(seq);
        if let Some((word, bit)) = self.bit(seq) {
            self.words[word] &= !bit;
        }
        was_set
    }

    fn rewind(&mut self, end: u64) -> u64 {
        let (first, past) = (self.first(), (self.newest_block + 1) * 64);
        let count = (end.max(first)..past).filter(|seq| self.clear(*seq)).count() as u64;
        self.known_from = first.min(end);
        self.newest_block = self.newest_block.min(end / 64);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    fn losses(record: &mut LossRecord, range: Range<u64>) -> Vec<(u64, u64)> {
        let mut told = Vec::new();
        record.missing(range, |event| match event {
            Event::LossDetected { seq, count } => told.push((seq, count)),
            other => panic!("{other:?}"),
        });
        told
    }

    #[test]
    fn a_packet_is_lost_once_and_counts_as_arrived_when_it_comes_late() {
        let mut record = LossRecord::starting_at(10);
        assert_eq!(losses(&mut record, 5..12), [(10, 2)], "what was sent before is no loss");
        assert_eq!(losses(&mut record, 11..14), [(12, 2)]);
        assert!(record.arrived(11, |event| {
            assert_eq!(event, Event::LossWithdrawn { seq: 11, count: 1 });
        }));
        assert!(!record.arrived(11, |_| ()) && !record.arrived(40, |_| ()));
        assert_eq!(losses(&mut record, 10..14), [(11, 1)]);
        assert_eq!(record.lost(), 4);
        record.rewind(12, |event| assert_eq!(event, Event::LossWithdrawn { seq: 12, count: 2 }));
        assert_eq!(record.lost(), 2);
    }

    #[test]
    fn a_gap_of_any_length_is_one_event_and_counts_once() {
        let mut record = LossRecord::starting_at(1);
        let long = 1 << 31;
        assert_eq!(losses(&mut record, 1..long), [(1, long - 1)]);
        assert_eq!(losses(&mut record, 1..long + 1), [(long, 1)], "the same, given up");
        assert_eq!(record.lost(), long);
    }

    #[test]
    fn losses_before_a_packet_that_was_forged_are_withdrawn_however_far_ahead_it_was() {
        for jump in [100, 4000, 8000, 1 << 31] {
            let mut record = LossRecord::starting_at(1);
            assert_eq!(losses(&mut record, 900..910), [(900, 10)]);
            losses(&mut record, 1000..1000 + jump);
            let mut withdrawn = 0;
            record.rewind(1000, |event| match event {
                Event::LossWithdrawn { seq: 1000, count } => withdrawn += count,
                other => panic!("{other:?}"),
            });
            assert_eq!((record.lost(), withdrawn), (10, jump), "{jump}");
            assert_eq!(losses(&mut record, 1005..1008), [(1005, 3)]);
            assert!(record.arrived(1006, |_| ()), "{jump}");
            assert_eq!(record.lost(), 12);
            // The same packets, given up, count once, even if the record no longer has their bits.
            assert_eq!(losses(&mut record, 900..910), [], "{jump}");
        }
    }

    proptest::proptest! {
        #[test]
        fn it_is_the_set_of_packets_that_are_lost(steps in proptest::collection::vec((0u64..5000, 0u64..90, 0u8..5), 0..200)) {
            let (mut record, mut lost) = (LossRecord::starting_at(100), BTreeSet::new());
            let (mut told, mut next, mut from) = (0i64, 0u64, 100u64);
            for (back, len, step) in steps {
                let mut tell = |event| match event {
                    Event::LossDetected { count, .. } => told += count as i64,
                    Event::LossWithdrawn { count, .. } => told -= count as i64,
                    other => panic!("{other:?}"),
                };
                let known = record.recent.as_ref().map_or(0, |recent| recent.first());
                let start = next.saturating_sub(back);
                match step {
                    0 | 1 => {
                        let (start, len) = if step == 0 { (next, 16 * len) } else { (start.max(known), len) };
                        record.missing(start..start + len, &mut tell);
                        lost.extend((start..start + len).filter(|seq| *seq >= from));
                        next = next.max(start + len);
                    }
                    2 => {
                        let want = start >= known && lost.contains(&start);
                        assert_eq!(record.arrived(start, &mut tell), want);
                        if want {
                            lost.remove(&start);
                        }
                    }
                    3 => {
                        record.missing(next..next + 64 * len + back, &mut tell);
                        record.rewind(next, &mut tell);
                        from = from.min(next);
                    }
                    _ => {
                        let end = start.max(known);
                        record.rewind(end, &mut tell);
                        lost.split_off(&end);
                        (next, from) = (next.min(end), from.min(end));
                    }
                }
                proptest::prop_assert_eq!(record.lost(), lost.len() as u64);
            }
            proptest::prop_assert_eq!(told, lost.len() as i64);
        }
    }
}
