//! Quantities with units in text form: `500 kbit/s`, `50 ms`, `1400 B`, `30 MB`.

use alloc::string::{String, ToString};
use core::fmt;

use crate::Duration;
use crate::time::debug_as_display;

/// Rate in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bitrate(u64);

/// Number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(u64);

#[expect(missing_docs, reason = "functions without a text are what their names say")]
impl Bitrate {
    pub const fn from_bits_per_s(bits: u64) -> Self {
        Self(bits)
    }

    pub const fn bits_per_s(self) -> u64 {
        self.0
    }

    /// Returns the time to transmit `bytes`, rounded down; [`Duration::MAX`] at rate zero.
    pub const fn time_for(self, bytes: u64) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let ns = bytes as u128 * 8_000_000_000 / self.0 as u128;
        if ns > u64::MAX as u128 { Duration::MAX } else { Duration::from_nanos(ns as u64) }
    }
}

#[expect(missing_docs, reason = "functions without a text are what their names say")]
impl Bytes {
    pub const fn new(count: u64) -> Self {
        Self(count)
    }

    pub const fn count(self) -> u64 {
        self.0
    }
}

/// Quantity that is written as a number and a unit.
pub trait Quantity: Sized {
    /// Name for error messages: "a duration".
    const WHAT: &'static str;
    /// Example for error messages.
    const EXAMPLE: &'static str;
    /// Accepted units, with their size in base units.
    const UNITS: &'static [(&'static str, u64)];
    /// Short forms of units, which are accepted but not listed in errors.
    const SHORT_UNITS: &'static [(&'static str, u64)] = &[];
    /// Refused spellings, for which the error suggests the right one: a unit of
    /// [`UNITS`](Self::UNITS), a factor, and spellings separated by spaces. An exact match first,
    /// else the last in any case.
    const SPELLINGS: &'static [(&'static str, u64, &'static str)];

    /// Creates the quantity from a count of base units (nanoseconds, bits per second, bytes).
    fn from_base_units(count: u64) -> Self;

    /// Parses a non-negative decimal number and a unit, with an optional space; the error gives
    /// what is allowed.
    fn parse(text: &str) -> Result<Self, ParseQuantityError> {
        let fail = |problem: &str| ParseQuantityError {
            text: text.to_string(),
            problem: problem.to_string(),
            what: Self::WHAT,
            example: Self::EXAMPLE,
            meant: None,
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
            let meant = meant(number, unit, Self::UNITS, Self::SPELLINGS);
            return Err(ParseQuantityError { meant, ..fail("has an unknown unit") });
        };
        scale_decimal(number, scale).map(Self::from_base_units).ok_or_else(|| fail("is too large"))
    }
}

fn meant(
    number: &str,
    unit: &str,
    units: &[(&str, u64)],
    spellings: &[(&str, u64, &str)],
) -> Option<String> {
    let written = || {
        let all = spellings.iter();
        all.flat_map(|(name, factor, ways)| ways.split(' ').map(move |one| (one, *factor, *name)))
    };
    let exact = written().find(|(one, ..)| *one == unit);
    let capitals = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
    let (_, factor, name) = match (exact, capitals) {
        (Some(exact), _) => exact,
        (None, Some((name, _))) => (unit, 1, *name),
        (None, None) => written().rev().find(|(one, ..)| one.eq_ignore_ascii_case(unit))?,
    };
    if factor == 1 {
        return Some(alloc::format!("{number} {name}"));
    }
    // No suggestion for a fraction that the factor does not make whole.
    let whole = scale_decimal(number, factor)?;
    let exact = scale_decimal(number, factor.checked_mul(1_000_000)?)? == whole * 1_000_000;
    exact.then(|| alloc::format!("{whole} {name}"))
}

/// Returns `number` x `scale` in integers, rounded down; `None` on overflow.
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
    const SPELLINGS: &'static [(&'static str, u64, &'static str)] = &[
        ("ns", 1, "nanoseconds"),
        // Greek letter mu, not the micro sign.
        ("us", 1, "\u{3bc}s usec microseconds"),
        ("ms", 1, "msec msecs millis millisecond milliseconds"),
        ("s", 1, "sec secs second seconds"),
        ("min", 1, "m mins minute minutes"),
        ("h", 1, "hr hrs hour hours"),
        ("h", 24, "d day days"),
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
    // As in `tc`, `iperf` and `udpcast`. `m` is mega, because no rate is in thousandths of a bit.
    const SHORT_UNITS: &'static [(&'static str, u64)] = &[
        ("k", 1_000),
        ("K", 1_000),
        ("m", 1_000_000),
        ("M", 1_000_000),
        ("g", 1_000_000_000),
        ("G", 1_000_000_000),
    ];
    const SPELLINGS: &'static [(&'static str, u64, &'static str)] = &[
        // Small b is bit, capital B is byte.
        ("bit/s", 1, "b/s"),
        ("kbit/s", 1, "kb/s Kb/s"),
        ("Mbit/s", 1, "Mb/s"),
        ("Gbit/s", 1, "Gb/s"),
        ("B/s", 1, "Bps"),
        ("kB/s", 1, "kBps KBps"),
        ("MB/s", 1, "MBps"),
        ("MB/s", 1000, "GB/s GBps"),
        ("bit/s", 1, "bps bit bits/s"),
        ("kbit/s", 1, "kbps kbit kbits/s"),
        ("Mbit/s", 1, "Mbps Mbit Mbits/s"),
        ("Gbit/s", 1, "Gbps Gbit Gbits/s"),
        ("Gbit/s", 1000, "Tbps Tbit/s"),
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
    const SPELLINGS: &'static [(&'static str, u64, &'static str)] = &[
        ("B", 1, "byte bytes"),
        ("kB", 1, "k kbyte kilobytes"),
        ("MB", 1, "M Mbyte megabytes"),
        ("GB", 1, "G Gbyte gigabytes"),
        ("TB", 1, "T terabytes"),
        ("GiB", 1024, "TiB"),
    ];
    fn from_base_units(count: u64) -> Self {
        Self(count)
    }
}

/// Error of a text that is not the expected quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct ParseQuantityError {
    pub text: String,
    pub problem: String,
    pub what: &'static str,
    pub example: &'static str,
    /// Suggested spelling, if known: `500 kbit/s` for `500 Kbps`.
    pub meant: Option<String>,
    units: &'static [(&'static str, u64)],
}

impl fmt::Display for ParseQuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" {}", self.text, self.problem)?;
        if let Some(meant) = &self.meant {
            write!(f, " (did you mean \"{meant}\"?)")?;
        }
        write!(f, "; expected {} such as \"{}\" (units:", self.what, self.example)?;
        for (unit, _) in self.units {
            write!(f, " {unit}")?;
        }
        f.write_str(")")
    }
}

impl core::error::Error for ParseQuantityError {}

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

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_with_unit(f, self.0, &Self::UNITS[..5])
    }
}

debug_as_display!(Bitrate Bytes);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_with_their_units() {
        for (text, bits_per_s) in [
            ("500 kbit/s", 500_000),
            ("1.5Mbit/s", 1_500_000),
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
        assert_eq!(Duration::parse("50 ms").unwrap(), Duration::from_millis(50));
        assert_eq!(Duration::parse("0.3 s").unwrap(), Duration::from_millis(300));
        assert_eq!(Bytes::parse("30 MB").unwrap().count(), 30_000_000);
        assert_eq!(Bytes::parse("2 KiB").unwrap().count(), 2048);
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
    fn a_unit_as_others_write_it_gets_the_right_spelling() {
        fn meant<Q: Quantity>(text: &str) -> Option<String> {
            let error = Q::parse(text).err().unwrap_or_else(|| panic!("{text} was read"));
            if let Some(meant) = &error.meant {
                assert!(Q::parse(meant).is_ok(), "{text}: {meant}");
                assert!(error.to_string().contains(&std::format!("(did you mean \"{meant}\"?)")));
            }
            error.meant
        }
        for (text, want) in [
            ("500 Kbps", "500 kbit/s"),
            ("500kbps", "500 kbit/s"),
            ("1.5 MBIT/S", "1.5 Mbit/s"),
            ("10 Mb/s", "10 Mbit/s"),
            ("10 MBps", "10 MB/s"),
            ("2 KB/s", "2 kB/s"),
            ("1 Gbps", "1 Gbit/s"),
            ("1 GB/s", "1000 MB/s"),
            ("1.5 Tbps", "1500 Gbit/s"),
            ("100 bits/s", "100 bit/s"),
        ] {
            assert_eq!(meant::<Bitrate>(text).as_deref(), Some(want), "{text}");
        }
        for (text, want) in [
            ("5 minutes", "5 min"),
            ("5m", "5 min"),
            ("0.5 sec", "0.5 s"),
            ("10 S", "10 s"),
            ("20 msec", "20 ms"),
            ("3 \u{3bc}s", "3 us"),
            ("2 days", "48 h"),
            ("0.5 d", "12 h"),
        ] {
            assert_eq!(meant::<Duration>(text).as_deref(), Some(want), "{text}");
        }
        for (text, want) in [
            ("1400 bytes", "1400 B"),
            ("30 mb", "30 MB"),
            ("2 KIB", "2 KiB"),
            ("1 TiB", "1024 GiB"),
        ] {
            assert_eq!(meant::<Bytes>(text).as_deref(), Some(want), "{text}");
        }
        for text in ["0.01 days", "5 parsec", "5"] {
            assert_eq!(meant::<Duration>(text), None, "{text}");
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
