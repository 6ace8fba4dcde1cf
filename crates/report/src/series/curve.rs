//! Curves, bins and marks that reduce their resolution as they grow.

use faircast_base::{Duration, Time};

/// Most buckets of a [`Curve`]; each has up to four points.
pub const CURVE_BUCKETS_MAX: usize = 600;
/// Most marks of a [`Marks`].
pub const MARKS_MAX: usize = 800;
/// Most bins of a run with the announced duration; a longer run has up to twice as many.
const BINS_MAX: u64 = 240;
/// Most bins of a run of any length.
pub const BINS_GIVEN_MAX: u64 = 2 * BINS_MAX;

/// Initial width of buckets, as a power of two in nanoseconds: about a microsecond.
const SHIFT_START: u32 = 10;

/// Bounded curve: each bucket keeps its first, least, greatest and last point, so no peak is lost.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    buckets: Vec<Bucket>,
    /// Width of a bucket, as a power of two in nanoseconds.
    shift: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    at: Time,
    value: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Bucket {
    index: u64,
    first: Point,
    least: Point,
    greatest: Point,
    last: Point,
}

impl Default for Curve {
    fn default() -> Self {
        Self { buckets: Vec::new(), shift: SHIFT_START }
    }
}

impl Curve {
    /// Adds a point. An earlier point than the last one counts in the last one's bucket.
    #[inline]
    pub fn push(&mut self, at: Time, value: f64) {
        let point = Point { at, value };
        let index = at.as_nanos() >> self.shift;
        match self.buckets.last_mut() {
            Some(bucket) if index <= bucket.index => bucket.add(point),
            _ => {
                let bucket =
                    Bucket { index, first: point, least: point, greatest: point, last: point };
                self.buckets.push(bucket);
                while self.buckets.len() > CURVE_BUCKETS_MAX {
                    self.coarsen();
                }
            }
        }
    }

    /// True without any point.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// Returns the points in time order: all of them, or those of their envelope.
    pub fn points(&self) -> Vec<(Time, f64)> {
        let mut points = Vec::with_capacity(4 * self.buckets.len());
        for bucket in &self.buckets {
            let mut corners = [bucket.first, bucket.least, bucket.greatest, bucket.last];
            corners[1..3].sort_by_key(|point| point.at);
            for (i, point) in corners.iter().enumerate() {
                if i == 0 || *point != corners[i - 1] {
                    points.push((point.at, point.value));
                }
            }
        }
        points
    }

    fn coarsen(&mut self) {
        self.shift += 1;
        let shift = self.shift;
        for bucket in &mut self.buckets {
            bucket.index = bucket.first.at.as_nanos() >> shift;
        }
        self.buckets.dedup_by(|later, earlier| {
            let is_same = later.index <= earlier.index;
            if is_same {
                for point in [later.first, later.least, later.greatest, later.last] {
                    earlier.add(point);
                }
            }
            is_same
        });
    }
}

impl Bucket {
    fn add(&mut self, point: Point) {
        if point.value < self.least.value {
            self.least = point;
        }
        if point.value > self.greatest.value {
            self.greatest = point;
        }
        if point.at >= self.last.at {
            self.last = point;
        }
    }
}

/// Amounts by equal bins of time, in bounded memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bins {
    width: Duration,
    amounts: Vec<u64>,
}

impl Default for Bins {
    fn default() -> Self {
        Self::of_width(Duration::ZERO)
    }
}

impl Bins {
    /// Makes bins for a run of about this length: their width is 1, 2 or 5 times a power of ten.
    pub fn new(duration: Duration) -> Self {
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
    pub fn of_width(width: Duration) -> Self {
        Self { width: width.max(Duration::from_nanos(1)), amounts: Vec::new() }
    }

    /// Adds an amount at a time.
    #[inline]
    pub fn add(&mut self, at: Time, amount: u64) {
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

    /// Returns the width of a bin.
    pub fn width(&self) -> Duration {
        self.width
    }

    /// Returns the amounts from the start to the last non-empty bin.
    pub fn amounts(&self) -> &[u64] {
        &self.amounts
    }

    pub(crate) fn of(width: Duration, amounts: Vec<u64>) -> Self {
        Self { width, amounts }
    }

    /// Returns the amounts in bins of at least this width; widths differ by powers of two.
    pub(crate) fn at_width(&self, width: Duration) -> Self {
        let mut wider = self.clone();
        while wider.width < width {
            wider.coarsen();
        }
        wider
    }

    pub(crate) fn lengthen(&mut self, length: usize) {
        self.amounts.resize(self.amounts.len().max(length), 0);
    }

    fn coarsen(&mut self) {
        self.width = self.width * 2;
        self.amounts = self.amounts.chunks(2).map(|pair| pair.iter().sum()).collect();
    }
}

/// Events over time in bounded memory: a full list counts each time bucket's events in one mark.
#[derive(Clone, Debug, PartialEq)]
pub struct Marks {
    points: Vec<Mark>,
    total: u64,
    shift: u32,
}

/// One or several events of a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    /// Time of the first event.
    pub at: Time,
    /// Height of the first event in its plot.
    pub height: f64,
    /// Number of events up to the next mark.
    pub count: u64,
}

impl Default for Marks {
    fn default() -> Self {
        Self { points: Vec::new(), total: 0, shift: SHIFT_START }
    }
}

impl Marks {
    /// Adds a mark at a time and a height. A mark out of order counts in the last one's bucket.
    pub fn push(&mut self, at: Time, height: f64) {
        self.total += 1;
        let bucket = |at: Time, shift| at.as_nanos() >> shift;
        if let Some(last) = self.points.last_mut()
            && bucket(at, self.shift) <= bucket(last.at, self.shift)
        {
            last.count += 1;
            return;
        }
        self.points.push(Mark { at, height, count: 1 });
        while self.points.len() > MARKS_MAX {
            self.shift += 1;
            let shift = self.shift;
            self.points.dedup_by(|later, earlier| {
                let is_same = bucket(later.at, shift) == bucket(earlier.at, shift);
                earlier.count += if is_same { later.count } else { 0 };
                is_same
            });
        }
    }

    /// Returns the kept marks in time order.
    pub fn points(&self) -> &[Mark] {
        &self.points
    }

    /// Returns the number of all events.
    pub fn total(&self) -> u64 {
        self.total
    }
}
