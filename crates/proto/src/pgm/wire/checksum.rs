//! Internet checksum over a whole PGM packet.

/// Returns the Internet checksum of `bytes`; 0 over an intact packet (src: RFC 3208 s8).
///
/// A tail of zero bytes changes nothing, at any length or offset: there is no pseudo-header, and
/// the pad of an odd last byte equals the first byte of the tail.
pub fn checksum(bytes: &[u8]) -> u16 {
    // Words are added in native order and swapped at the end (src: RFC 1071 s2), four at a time in
    // vector instructions: 2^32 fit without a lost carry. Folding keeps the sum modulo 2^16 - 1.
    let (eights, rest) = bytes.as_chunks::<8>();
    let (mut low, mut high) = (0u64, 0u64);
    for eight in eights {
        let eight = u64::from_ne_bytes(*eight);
        low += eight & 0xffff_ffff;
        high += eight >> 32;
    }
    let mut sum = low + high;
    let (four, rest) = rest.as_chunks::<4>();
    if let [four] = four {
        sum += u64::from(u32::from_ne_bytes(*four));
    }
    let (two, rest) = rest.as_chunks::<2>();
    if let [two] = two {
        sum += u64::from(u16::from_ne_bytes(*two));
    }
    if let [one] = rest {
        sum += u64::from(u16::from_ne_bytes([*one, 0]));
    }
    // At most 2^33, then 2^18, then 2^16 + 2.
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    for _ in 0..3 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::from_be(sum as u16)
}

/// Returns the checksum to send: a computed 0 becomes 0xffff, since 0 means that there is none.
pub(super) fn sent_checksum(bytes: &[u8]) -> u16 {
    match checksum(bytes) {
        0 => 0xffff,
        sum => sum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn slow(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    proptest::proptest! {
        #[test]
        fn fast_sum_is_the_defined_one(bytes: Vec<u8>) {
            proptest::prop_assert_eq!(checksum(&bytes), slow(&bytes));
        }

        #[test]
        fn a_tail_of_zeros_costs_nothing(bytes: Vec<u8>, zeros in 0usize..9) {
            let mut long = bytes.clone();
            long.resize(bytes.len() + zeros, 0);
            proptest::prop_assert_eq!(checksum(&bytes), checksum(&long));
        }
    }

    #[test]
    fn no_carry_of_the_largest_sums_is_lost() {
        for len in [1, 2, 3, 7, 8, 9, 1500, 65_535] {
            let bytes = std::vec![0xff; len];
            assert_eq!(checksum(&bytes), slow(&bytes), "{len}");
        }
    }

    #[test]
    fn a_computed_zero_is_sent_as_all_ones() {
        assert_eq!(checksum(&[0xff, 0xff]), 0);
        assert_eq!(sent_checksum(&[0xff, 0xff]), 0xffff);
        assert_eq!(sent_checksum(&[]), 0xffff);
    }
}
