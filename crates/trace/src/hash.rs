//! A hash of a whole trace: the short proof that two runs did the same.

use crate::schema::record_words;
use crate::{Record, Sink};

/// Order-sensitive 128-bit hash of all records. Integers only, so it is the same on every platform
/// and with every compiler. It tells runs apart; it does not resist an attacker.
#[derive(Clone, Copy, Debug)]
pub struct Hasher {
    lanes: [u64; 2],
    records: u64,
}

impl Hasher {
    /// How many records came.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The hash of all records so far.
    pub fn digest(&self) -> u128 {
        let [a, b] = self.lanes;
        let high = finish(a ^ b.rotate_left(32) ^ self.records);
        let low = finish(b.wrapping_add(high));
        u128::from(high) << 64 | u128::from(low)
    }

    /// The hash as 32 hexadecimal digits.
    pub fn hex(&self) -> String {
        format!("{:032x}", self.digest())
    }
}

/// The hash of no records.
impl Default for Hasher {
    fn default() -> Self {
        // Digits of pi: two starts that differ, with nothing up the sleeve.
        Self { lanes: [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344], records: 0 }
    }
}

impl Sink for Hasher {
    #[inline]
    fn record(&mut self, record: &Record) {
        // Words go to the two lanes in turn, so that their multiplications overlap. A step is a
        // bijection of its lane: no record can wipe out what came before.
        let [mut next, mut other] = self.lanes;
        record_words(record, |word| {
            let mixed = (next ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            next = other;
            other = mixed;
        });
        self.lanes = [next, other];
        self.records += 1;
    }
}

/// SplitMix64's finaliser: every bit of the lane reaches every bit of the result.
fn finish(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
