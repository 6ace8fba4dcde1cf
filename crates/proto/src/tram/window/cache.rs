//! Packets that a head keeps for repairs, between two water marks.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

const GAP: u32 = u32::MAX;

/// Water marks, as shares of the capacity: above the high one, packets that all have are dropped.
const HIGH: f64 = 0.667;
const LOW: f64 = 0.333;

/// Packets in the order of their sequence numbers, with gaps. A packet of zeros takes four bytes.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// First packet that is kept, unless it is a gap.
    pub(crate) first: u64,
    /// Zeros at the end of each packet, from `first` on; [`GAP`] for a missing packet.
    slots: VecDeque<u32>,
    /// Bytes of each packet before the zeros. Packets at the end without such bytes have no entry.
    bytes: VecDeque<Box<[u8]>>,
    spare: Vec<Box<[u8]>>,
    /// Most slots, and the high and low water marks, in packets.
    packets_max: usize,
    high: usize,
    low: usize,
}

impl Cache {
    /// Keeps every water mark at `floor` or above, and twice as many slots at least.
    pub(crate) fn new(first: u64, packets_max: usize, floor: usize) -> Self {
        let packets_max = packets_max.max(2 * floor).max(1);
        let mark = |share: f64| ((share * packets_max as f64) as usize).clamp(floor, packets_max);
        let high = mark(HIGH).max(1);
        let low = mark(LOW).min(high);
        Self { first, packets_max, high, low, ..Self::default() }
    }

    pub(crate) fn room_until(&self) -> u64 {
        self.first + self.packets_max as u64
    }

    pub(crate) fn get(&self, sequence: u64) -> Option<(&[u8], u32)> {
        let position = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        let zeros = self.slots.get(position).copied().filter(|zeros| *zeros != GAP)?;
        Some((self.bytes.get(position).map_or(&[], |bytes| bytes), zeros))
    }

    pub(crate) fn next_from(&self, sequence: u64) -> Option<u64> {
        let from = usize::try_from(sequence.saturating_sub(self.first)).ok()?;
        let position = self.slots.iter().skip(from).position(|zeros| *zeros != GAP)?;
        Some(self.first + (from + position) as u64)
    }

    pub(crate) fn insert(&mut self, sequence: u64, bytes: &[u8], zeros: u32) -> bool {
        if sequence < self.first || sequence >= self.room_until() {
            return false;
        }
        let position = (sequence - self.first) as usize;
        if position >= self.slots.len() {
            self.slots.resize(position + 1, GAP);
        }
        if self.slots[position] != GAP {
            return true;
        }
        self.slots[position] = zeros.min(GAP - 1);
        if !bytes.is_empty() {
            if position >= self.bytes.len() {
                self.bytes.resize_with(position + 1, Box::default);
            }
            self.bytes[position] = match self.spare.pop() {
                Some(mut spare) if spare.len() == bytes.len() => {
                    spare.copy_from_slice(bytes);
                    spare
                }
                _ => bytes.into(),
            };
        }
        true
    }

    /// Drops packets before `done` if the high water mark is reached. Returns false if it still is.
    pub(crate) fn purge(&mut self, done: u64) -> bool {
        if self.is_filling() {
            let most = self.slots.len().saturating_sub(self.low) as u64;
            self.forget(done.min(self.first + most));
        }
        !self.is_filling()
    }

    pub(crate) fn make_room(&mut self, sequence: u64, done: u64) {
        let end = (sequence + 1).saturating_sub(self.packets_max as u64);
        self.forget(end.min(done));
    }

    pub(crate) fn is_filling(&self) -> bool {
        self.slots.len() >= self.high
    }

    pub(crate) fn forget(&mut self, end: u64) {
        let dropped = end.saturating_sub(self.first).min(self.slots.len() as u64) as usize;
        self.slots.drain(..dropped);
        let bytes = self.bytes.drain(..dropped.min(self.bytes.len()));
        self.spare.extend(bytes.filter(|bytes| !bytes.is_empty()));
        self.spare.truncate(self.packets_max - self.slots.len().min(self.packets_max));
        self.first = self.first.max(end);
    }

    pub(crate) fn rewind(&mut self, start: u64) {
        let kept = start.saturating_sub(self.first).min(self.slots.len() as u64) as usize;
        self.slots.truncate(kept);
        self.bytes.truncate(kept);
    }

    #[cfg(test)]
    fn held(&self) -> usize {
        self.slots.iter().filter(|zeros| **zeros != GAP).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(cache: &mut Cache, sequence: u64) -> bool {
        let (bytes, zeros) = packet(sequence);
        cache.insert(sequence, &bytes, zeros)
    }

    fn packet(sequence: u64) -> (Vec<u8>, u32) {
        let bytes = sequence.to_be_bytes();
        if sequence.is_multiple_of(3) { (Vec::new(), 8) } else { (bytes.to_vec(), 0) }
    }

    fn cache() -> Cache {
        Cache::new(1, 12, 1)
    }

    #[test]
    fn what_nobody_needs_goes_from_high_water_to_low() {
        let mut cache = cache();
        for sequence in 1..8 {
            assert!(insert(&mut cache, sequence));
            assert!(cache.purge(8), "below high water nothing goes");
        }
        assert_eq!((cache.first, cache.held()), (1, 7));
        insert(&mut cache, 8);
        assert!(cache.purge(9));
        assert_eq!((cache.first, cache.held()), (6, 3));
    }

    #[test]
    fn what_somebody_needs_stays_until_the_cache_is_full() {
        let mut cache = cache();
        for sequence in 1..13 {
            assert!(insert(&mut cache, sequence));
        }
        assert!(!cache.purge(3), "all but two are needed");
        assert_eq!(cache.first, 3);
        assert!(insert(&mut cache, 14) && !insert(&mut cache, 15), "it is full");
        assert!(cache.get(13).is_none() && cache.get(14).is_some() && cache.get(2).is_none());
        assert!(!insert(&mut cache, 2), "what has dropped does not come back");
        cache.forget(20);
        assert_eq!((cache.first, cache.held(), cache.room_until()), (20, 0, 32));
    }

    #[test]
    fn what_was_not_sent_goes_and_can_come() {
        let mut cache = cache();
        for sequence in [1, 2, 5] {
            insert(&mut cache, sequence);
        }
        cache.rewind(2);
        assert_eq!((cache.held(), cache.next_from(2)), (1, None));
        assert!(cache.insert(2, &[9], 0));
        assert_eq!(cache.get(2), Some((&[9][..], 0)));
        cache.rewind(0);
        assert_eq!((cache.first, cache.held()), (1, 0));
    }

    proptest::proptest! {
        #[test]
        fn it_holds_what_came_and_has_not_gone(steps: Vec<(u8, bool)>) {
            let mut cache = cache();
            for (number, purges) in steps {
                let sequence = u64::from(number % 40);
                if purges {
                    cache.purge(sequence);
                } else if insert(&mut cache, sequence) {
                    let (bytes, zeros) = packet(sequence);
                    proptest::prop_assert_eq!(cache.get(sequence), Some((&bytes[..], zeros)));
                }
                let held = (0..60).filter(|sequence| cache.get(*sequence).is_some()).count();
                proptest::prop_assert_eq!(held, cache.held());
                proptest::prop_assert!(held <= 12);
            }
        }
    }
}
