//! Bytes for tests of several crates, which include this file.

/// Returns incompressible bytes that follow from the seed.
pub(crate) fn noise(len: usize, seed: u32) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d ^ u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..len.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(len).collect()
}
