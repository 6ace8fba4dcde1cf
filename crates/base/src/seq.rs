//! 32-bit sequence numbers with serial arithmetic.

use core::cmp::Ordering;
use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// Sequence number modulo 2^32, compared by the sign of the difference (src: RFC 1982, as used by
/// RFC 3208 s6.3). Numbers 2^31 apart or more compare wrongly: bound the distance of received ones
/// first, and never sort by it (no `Ord`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Seq(u32);

#[expect(missing_docs, reason = "`new` and `value` are what their names say")]
impl Seq {
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the signed distance from `other` to `self`: positive if `self` is later.
    pub const fn distance(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// `<` in constants.
    pub const fn before(self, other: Self) -> bool {
        self.distance(other) < 0
    }

    /// `>` in constants.
    pub const fn after(self, other: Self) -> bool {
        self.distance(other) > 0
    }

    /// Returns the following number; 0 follows the highest one.
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Returns the later of two numbers.
    pub const fn max(self, other: Self) -> Self {
        if self.before(other) { other } else { self }
    }
}

impl PartialOrd for Seq {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.distance(*other).cmp(&0))
    }
}

impl Add<u32> for Seq {
    type Output = Self;
    fn add(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }
}

impl AddAssign<u32> for Seq {
    fn add_assign(&mut self, count: u32) {
        *self = *self + count;
    }
}

impl Sub<u32> for Seq {
    type Output = Self;
    fn sub(self, count: u32) -> Self {
        Self(self.0.wrapping_sub(count))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        for (a, b) in [(0, 1), (u32::MAX, 0), (u32::MAX - 5, 10), (0x7fff_ffff, 0x8000_0000)] {
            assert!(Seq::new(a).before(Seq::new(b)), "{a} before {b}");
            assert!(Seq::new(b) > Seq::new(a), "{b} after {a}");
        }
        assert_eq!(Seq::new(5).distance(Seq::new(u32::MAX)), 6);
        assert_eq!(Seq::new(3) - 4, Seq::new(u32::MAX));
    }
}
