//! Quantities with units, and how people write them: `500 kbit/s`, `50 ms`, `1400 B`, `30 MB`.

use alloc::string::{String, ToString};
use core::fmt;

use crate::Duration;

/// A rate in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bitrate(u64);

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(u64);

impl Bitrate {
    /// `bits` per second.
    pub const fn from_bits_per_s(bits: u64) -> Self {
        Self(bits)
    }

    /// Bits per second.
    pub const fn bits_per_s(self) -> u64 {
        self.0
    }

    /// Time to transmit `bytes`, rounded down to the nanosecond; the end of time at rate zero.
    pub const fn time_for(self, bytes: u64) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let ns = bytes as u128 * 8_000_000_000 / self.0 as u128;
        if ns > u64::MAX as u128 { Duration::MAX } else { Duration::from_nanos(ns as u64) }
    }
}

impl Bytes {
    /// `count` bytes.
    pub const fn new(count: u64) -> Self {
        Self(count)
    }

    /// How many bytes.
    pub const fn count(self) -> u64 {
        self.0
    }
}

/// A quantity that people write as a number and a unit.
pub trait Quantity: Sized {
    /// What it is, in words: "a duration".
    const WHAT: &'static str;
    /// An example of how it is written.
    const EXAMPLE: &'static str;
    /// The units that it accepts, with how many base units each is.
    const UNITS: &'static [(&'static str, u64)];
    /// Short forms of some of them, which are understood and which errors do not list.
    const SHORT_UNITS: &'static [(&'static str, u64)] = &[];

    /// Makes the quantity from a count of base units (nanoseconds, bits per second, bytes).
    fn from_base_units(count: u64) -> Self;

    /// Reads `text`: a non-negative decimal number and a unit, with or without a space between.
    ///
    /// # Errors
    /// Says what is wrong and what is allowed: no unit, an unknown unit, a negative number, no
    /// number, a value out of range.
    fn parse(text: &str) -> Result<Self, ParseQuantityError> {
        let fail = |problem: &str| ParseQuantityError {
            text: text.to_string(),
            problem: problem.to_string(),
            what: Self::WHAT,
            example: Self::EXAMPLE,
            units: Self::UNITS,
        };
        let trimmed = text.trim();
        if trimmed.starts_with('-') {
            return Err(fail("must not be negative"));
        }
        let split =
            trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
        let (number, unit) = (&trimmed[..split], trimmed[split..].trim());
        if number.is_empty() || number == "." || number.matches('.').count() > 1 {
            return Err(fail("is not a number with a unit"));
        }
        if unit.is_empty() {
            return Err(fail("has no unit"));
        }
        let mut units = Self::UNITS.iter().chain(Self::SHORT_UNITS);
        let Some(&(_, scale)) = units.find(|(name, _)| *name == unit) else {
            return Err(fail("has an unknown unit"));
        };
        scale_decimal(number, scale).map(Self::from_base_units).ok_or_else(|| fail("is too large"))
    }
}

/// `number` x `scale` in integers, digits below one base unit rounded down; `None` on overflow.
fn scale_decimal(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut total = whole.checked_mul(u128::from(scale))?;
    let mut unit = u128::from(scale) * 1_000_000_000_000;
    for digit in fraction.bytes().take(12) {
        unit /= 10;
        total = total.checked_add(u128::from(digit - b'0') * unit / 1_000_000_000_000)?;
    }
    u64::try_from(total).ok()
}

impl Quantity for Duration {
    const WHAT: &'static str = "a duration";
    const EXAMPLE: &'static str = "50 ms";
    const UNITS: &'static [(&'static str, u64)] = &[
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    fn from_base_units(count: u64) -> Self {
        Self::from_nanos(count)
    }
}

impl Quantity for Bitrate {
    const WHAT: &'static str = "a rate";
    const EXAMPLE: &'static str = "500 kbit/s";
    const UNITS: &'static [(&'static str, u64)] = &[
        ("bit/s", 1),
        ("kbit/s", 1_000),
        ("Mbit/s", 1_000_000),
        ("Gbit/s", 1_000_000_000),
        ("B/s", 8),
        ("kB/s", 8_000),
        ("MB/s", 8_000_000),
    ];
    // As `tc`, `iperf` and `udpcast` have them. No rate is in thousandths of a bit.
    const SHORT_UNITS: &'static [(&'static str, u64)] = &[
        ("k", 1_000),
        ("K", 1_000),
        ("m", 1_000_000),
        ("M", 1_000_000),
        ("g", 1_000_000_000),
        ("G", 1_000_000_000),
    ];
    fn from_base_units(count: u64) -> Self {
        Self(count)
    }
}

impl Quantity for Bytes {
    const WHAT: &'static str = "a size";
    const EXAMPLE: &'static str = "1400 B";
    const UNITS: &'static [(&'static str, u64)] = &[
        ("B", 1),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
    ];
    fn from_base_units(count: u64) -> Self {
        Self(count)
    }
}

/// Why a text is not the quantity that was wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseQuantityError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub problem: String,
    /// What was wanted.
    pub what: &'static str,
    /// An example of it.
    pub example: &'static str,
    /// The units that it accepts.
    units: &'static [(&'static str, u64)],
}

impl fmt::Display for ParseQuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" {}; expected {} such as \"{}\" (units:",
            self.text, self.problem, self.what, self.example
        )?;
        for (unit, _) in self.units {
            write!(f, " {unit}")?;
        }
        f.write_str(")")
    }
}

impl core::error::Error for ParseQuantityError {}

/// Writes `count` with the largest decimal unit of `units` that leaves no fraction.
fn write_with_unit(f: &mut fmt::Formatter<'_>, count: u64, units: &[(&str, u64)]) -> fmt::Result {
    let (name, scale) = units
        .iter()
        .filter(|(_, scale)| count >= *scale && count.is_multiple_of(*scale))
        .max_by_key(|(_, scale)| *scale)
        .unwrap_or(&units[0]);
    write!(f, "{} {name}", count / scale)
}

impl fmt::Display for Bitrate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_with_unit(f, self.0, &Self::UNITS[..4])
    }
}

impl fmt::Debug for Bitrate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_with_unit(f, self.0, &Self::UNITS[..5])
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_with_their_units() {
        assert_eq!(Bitrate::parse("500 kbit/s").unwrap().bits_per_s(), 500_000);
        assert_eq!(Bitrate::parse("1.5Mbit/s").unwrap().bits_per_s(), 1_500_000);
        assert_eq!(Duration::parse("50 ms").unwrap(), Duration::from_millis(50));
        assert_eq!(Duration::parse("0.3 s").unwrap(), Duration::from_millis(300));
        assert_eq!(Bytes::parse("30 MB").unwrap().count(), 30_000_000);
        assert_eq!(Bytes::parse("2 KiB").unwrap().count(), 2048);
    }

    #[test]
    fn rates_may_be_written_short() {
        for (text, bits_per_s) in [
            ("100M", 100_000_000),
            ("100m", 100_000_000),
            ("1G", 1_000_000_000),
            ("2.5 g", 2_500_000_000),
            ("64k", 64_000),
            ("64K", 64_000),
        ] {
            assert_eq!(Bitrate::parse(text).unwrap().bits_per_s(), bits_per_s, "{text}");
        }
        for text in ["100", "1T", "1 b"] {
            assert!(Bitrate::parse(text).is_err(), "{text}");
        }
        assert!(Bytes::parse("100M").is_err(), "a thousand and 1024 are both meant by it");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, problem) in [
            ("500", "has no unit"),
            ("-5 ms", "must not be negative"),
            ("5 parsec", "has an unknown unit"),
            ("ms", "is not a number with a unit"),
            ("1.2.3 s", "is not a number with a unit"),
            ("", "is not a number with a unit"),
            ("99999999999999999999999 s", "is too large"),
        ] {
            let error = Duration::parse(text).unwrap_err();
            assert_eq!(error.problem, problem, "{text}");
            assert!(error.to_string().contains("50 ms"), "{error}");
        }
    }

    #[test]
    fn quantities_print_as_they_are_read() {
        for text in ["500 kbit/s", "3 Mbit/s", "1500 bit/s"] {
            assert_eq!(Bitrate::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Bytes::new(1400).to_string(), "1400 B");
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = Duration::parse(&text);
            let _ = Bitrate::parse(&text);
            let _ = Bytes::parse(&text);
        }
    }
}
