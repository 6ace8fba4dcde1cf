//! Sums by equal bins of time, which widen as a run grows.

use faircast_base::{Duration, Time};

/// Most bins of a run with the announced duration; a longer run has up to twice as many.
const BINS_MAX: u64 = 240;
/// Most bins of a run of any length.
pub const BINS_GIVEN_MAX: u64 = 2 * BINS_MAX;

/// Amounts by equal bins of time, in bounded memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bins {
    pub(crate) width: Duration,
    /// From the start to the last non-empty bin.
    pub(crate) amounts: Vec<u64>,
}

impl Default for Bins {
    fn default() -> Self {
        Self::of_width(Duration::ZERO)
    }
}

impl Bins {
    /// Makes bins for a run of about this length: their width is 1, 2 or 5 times a power of ten.
    pub(crate) fn new(duration: Duration) -> Self {
        let least = (duration.as_nanos() / BINS_MAX).max(1_000_000);
        let mut power = 1_000_000u64;
        let width = loop {
            if let Some(width) = [1, 2, 5].map(|digit| digit * power).iter().find(|w| **w >= least)
            {
                break *width;
            }
            power = match power.checked_mul(10) {
                Some(next) if next < u64::MAX / 50 => next,
                _ => break least,
            };
        };
        Self { width: Duration::from_nanos(width), amounts: Vec::new() }
    }

    /// Makes bins of a width of at least 1 ns, which doubles beyond [`BINS_GIVEN_MAX`] bins.
    pub(crate) fn of_width(width: Duration) -> Self {
        Self { width: width.max(Duration::from_nanos(1)), amounts: Vec::new() }
    }

    #[inline]
    pub(crate) fn add(&mut self, at: Time, amount: u64) {
        if amount == 0 {
            return;
        }
        let mut index = at.as_nanos() / self.width.as_nanos();
        while index >= BINS_GIVEN_MAX {
            self.coarsen();
            index = at.as_nanos() / self.width.as_nanos();
        }
        let index = index as usize;
        if index >= self.amounts.len() {
            self.amounts.resize(index + 1, 0);
        }
        self.amounts[index] += amount;
    }

    /// Returns the amounts in bins of at least this width; widths differ by powers of two.
    pub(crate) fn at_width(&self, width: Duration) -> Self {
        let mut wider = self.clone();
        while wider.width < width {
            wider.coarsen();
        }
        wider
    }

    fn coarsen(&mut self) {
        self.width = self.width * 2;
        self.amounts = self.amounts.chunks(2).map(|pair| pair.iter().sum()).collect();
    }
}
