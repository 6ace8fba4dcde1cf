//! Hash of a trace, which proves that two runs are equal.

use crate::schema::record_words;
use crate::{Record, Sink};

/// Order-sensitive 128-bit hash of all records, equal on all platforms. Not cryptographic.
#[derive(Clone, Copy, Debug)]
pub struct Hasher {
    /// Two states, to which words are added in turn.
    lanes: [u64; 2],
    records: u64,
}

impl Hasher {
    /// Returns the hash of all records so far.
    pub fn digest(&self) -> u128 {
        let [a, b] = self.lanes;
        let high = finish(a ^ b.rotate_left(32) ^ self.records);
        let low = finish(b.wrapping_add(high));
        u128::from(high) << 64 | u128::from(low)
    }

    /// Returns the hash as 32 hexadecimal digits.
    pub fn hex(&self) -> String {
        format!("{:032x}", self.digest())
    }
}

impl Default for Hasher {
    fn default() -> Self {
        // Digits of pi.
        Self { lanes: [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344], records: 0 }
    }
}

impl Sink for Hasher {
    #[inline]
    fn record(&mut self, record: &Record) {
        // Two lanes let multiplications overlap. Bijective steps: no record can erase earlier ones.
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

/// Applies SplitMix64's finaliser: every input bit affects every output bit.
fn finish(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
