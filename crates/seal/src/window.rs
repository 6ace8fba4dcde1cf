//! Replay window of a peer: counters of opened datagrams.

use crate::refusal::Refusal;

/// Largest distance of a datagram behind its peer's newest, for receive queues: 4 ms at 10 Gbit/s.
pub(crate) const WINDOW_PACKETS: u64 = 4096;

/// Replay window: one bit for each of the last [`WINDOW_PACKETS`] counters.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// One past the greatest counter seen.
    end: u64,
    bits: Box<[u64; WORDS]>,
}

impl Window {
    pub(crate) fn new() -> Self {
        Self { end: 0, bits: Box::new([0; WORDS]) }
    }

    pub(crate) fn check(&self, counter: u64) -> Result<(), Refusal> {
        if counter >= self.end {
            return Ok(());
        }
        if self.end - counter > WINDOW_PACKETS {
            return Err(Refusal::Old);
        }
        let (word, bit) = bit_of(counter);
        if self.bits[word] & bit == 0 { Ok(()) } else { Err(Refusal::Repeated) }
    }

    /// Marks a counter that has passed [`check`](Self::check) and is authentic.
    pub(crate) fn insert(&mut self, counter: u64) {
        if counter >= self.end {
            if counter - self.end >= WINDOW_PACKETS {
                self.bits.fill(0);
            } else {
                self.clear(self.end, counter);
            }
            self.end = counter + 1;
        }
        let (word, bit) = bit_of(counter);
        self.bits[word] |= bit;
    }

    /// Clears `first ..= last`, less than a window, by words if possible.
    fn clear(&mut self, first: u64, last: u64) {
        let mut counter = first;
        while counter <= last {
            let (word, bit) = bit_of(counter);
            if counter.is_multiple_of(64) && last - counter >= 63 {
                self.bits[word] = 0;
                counter += 64;
            } else {
                self.bits[word] &= !bit;
                counter += 1;
            }
        }
    }
}

fn bit_of(counter: u64) -> (usize, u64) {
    let index = counter % WINDOW_PACKETS;
    ((index / 64) as usize, 1 << (index % 64))
}

const WORDS: usize = (WINDOW_PACKETS / 64) as usize;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_edges_of_the_window_are_where_they_are_said_to_be() {
        let mut window = Window::new();
        let last = 10 * WINDOW_PACKETS;
        window.insert(last);
        assert_eq!(window.check(last), Err(Refusal::Repeated));
        assert_eq!(window.check(last + 1), Ok(()));
        assert_eq!(window.check(last + 1 - WINDOW_PACKETS), Ok(()));
        assert_eq!(window.check(last - WINDOW_PACKETS), Err(Refusal::Old));
    }

    proptest! {
        #[test]
        fn the_window_agrees_with_a_set(steps in prop::collection::vec(
            prop_oneof![0..200u64, 0..9000u64, 3900..4300u64], 1..400,
        ), back in prop::collection::vec(0..5000u64, 1..400)) {
            let mut window = Window::new();
            let mut seen = BTreeSet::new();
            let mut newest = 0;
            for (step, back) in steps.iter().zip(&back) {
                for counter in [newest + step, (newest + step).saturating_sub(*back)] {
                    let end = seen.last().map_or(0, |last| last + 1);
                    let want = if counter < end && end - counter > WINDOW_PACKETS {
                        Err(Refusal::Old)
                    } else if seen.contains(&counter) {
                        Err(Refusal::Repeated)
                    } else {
                        Ok(())
                    };
                    prop_assert_eq!(window.check(counter), want);
                    if want.is_ok() {
                        window.insert(counter);
                        seen.insert(counter);
                        newest = newest.max(counter);
                    }
                }
            }
        }
    }
}
