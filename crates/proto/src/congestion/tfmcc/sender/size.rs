//! Packet size of the sender, with headers, in bytes.

use crate::congestion::common::average::MovingAverage;
use crate::congestion::tfmcc::{SIZE_GAIN, USUAL_BYTES};

#[derive(Debug, Default)]
pub(super) struct PacketSize {
    /// Bytes of a data packet beside its payload, part of all rates (src: RFC 4654 s4.3.4).
    pub(super) header_bytes: u32,
    /// Packet size (s): the mean, or before any report the largest.
    size: MovingAverage,
    largest: f64,
    /// True once a receiver has reported.
    pub(super) is_mean: bool,
}

impl PacketSize {
    /// Returns the packet size s.
    pub(super) fn bytes(&self) -> f64 {
        self.size.get().unwrap_or(USUAL_BYTES)
    }

    pub(super) fn bits(&self) -> f64 {
        self.bytes() * 8.0
    }

    /// Returns the bits of the largest packet.
    pub(super) fn largest_bits(&self) -> f64 {
        8.0 * if self.largest > 0.0 { self.largest } else { USUAL_BYTES }
    }

    pub(super) fn is_known(&self) -> bool {
        self.size.get().is_some()
    }

    /// Returns true if a packet of `bytes` will replace the size. The first rate is one packet per
    /// R_max, and a transfer may begin with a short one: the rate must follow.
    pub(super) fn is_replaced_by(&self, bytes: f64) -> bool {
        !self.is_mean && self.size.get().is_none_or(|largest| bytes > largest) || !self.is_known()
    }

    pub(super) fn note_largest(&mut self, bytes: f64) {
        self.largest = self.largest.max(bytes);
    }

    pub(super) fn add(&mut self, bytes: f64) {
        if self.is_replaced_by(bytes) {
            self.size = MovingAverage::of(bytes);
        } else if self.is_mean {
            self.size.add(bytes, SIZE_GAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_counts_until_a_report_and_then_the_mean() {
        let mut size = PacketSize::default();
        assert_eq!((size.bytes(), size.largest_bits()), (USUAL_BYTES, 8.0 * USUAL_BYTES));
        for (bytes, replaced, want) in
            [(100.0, true, 100.0), (900.0, true, 900.0), (50.0, false, 900.0)]
        {
            assert_eq!(size.is_replaced_by(bytes), replaced, "{bytes}");
            size.note_largest(bytes);
            size.add(bytes);
            assert_eq!(size.bytes(), want, "{bytes}");
        }
        size.is_mean = true;
        assert!(!size.is_replaced_by(1860.0));
        size.note_largest(1860.0);
        size.add(1860.0);
        assert_eq!((size.bytes(), size.largest_bits()), (960.0, 8.0 * 1860.0));
    }
}
