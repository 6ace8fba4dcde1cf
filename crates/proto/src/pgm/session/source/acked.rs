//! Which packets some receiver has acknowledged, to count each once.

/// How many packets below the highest acknowledged one are remembered. Acknowledgements cover 32;
/// those that come late, from a receiver that was named before, reach further back.
const REMEMBERED: u64 = 128;

/// The acknowledged packets just below the highest one.
#[derive(Debug, Default)]
pub(super) struct Acked {
    /// One past the highest acknowledged packet.
    end: u64,
    /// Bit i: whether packet `end - 1 - i` is acknowledged.
    bits: u128,
}

impl Acked {
    /// Takes an acknowledgement of `highest` and, by bit i of `bitmap`, `highest - i`. Returns the
    /// packets that are acknowledged for the first time.
    pub(super) fn mark(&mut self, highest: u64, bitmap: u32) -> impl Iterator<Item = u64> + use<> {
        if highest >= self.end {
            let step = highest + 1 - self.end;
            self.bits = if step < REMEMBERED { self.bits << step } else { 0 };
            self.end = highest + 1;
        }
        let below = self.end - 1 - highest;
        let mut fresh = 0;
        if below < REMEMBERED {
            // Bits beyond what is remembered fall off; packets before the first do not exist.
            let exists = if highest < 31 { u32::MAX >> (31 - highest) } else { u32::MAX };
            let bits = u128::from(bitmap & exists) << below;
            fresh = bits & !self.bits;
            self.bits |= bits;
        }
        let end = self.end;
        core::iter::from_fn(move || {
            let bit = (fresh != 0).then(|| fresh.trailing_zeros())?;
            fresh &= fresh - 1;
            Some(end - 1 - u64::from(bit))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn each_packet_counts_once_however_acknowledgements_come() {
        let mut acked = Acked::default();
        let mut mark = |highest, bitmap| acked.mark(highest, bitmap).collect::<Vec<_>>();
        // A first bitmap of all ones speaks of no packet before the first.
        assert_eq!(mark(0, u32::MAX), [0]);
        assert_eq!(mark(3, 0b1011), [3, 2]);
        assert_eq!(mark(3, 0b1111), [1]);
        assert_eq!(mark(100, 1), [100]);
        // Late, from another receiver.
        assert_eq!(mark(5, 0b111), [5, 4]);
        assert_eq!(mark(400, 1), [400]);
        // Too late to know.
        assert_eq!(mark(101, 1), []);
        assert_eq!(mark(399, 0b11), [399, 398]);
    }
}
