//! Curve that reduces its resolution as it grows.

use faircast_base::Time;

/// Most buckets of a [`Curve`]; each has up to four points.
pub(super) const CURVE_BUCKETS_MAX: usize = 600;

/// Initial width of buckets, as a power of two in nanoseconds: about a microsecond.
pub(super) const SHIFT_START: u32 = 10;

/// Bounded curve: each bucket keeps its first, least, greatest and last point, so no peak is lost.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    buckets: Vec<Bucket>,
    /// Width of a bucket, as a power of two in nanoseconds.
    shift: u32,
}

/// Time and value.
type Point = (Time, f64);

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
        let point = (at, value);
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
            let mut corners = vec![bucket.first, bucket.least, bucket.greatest, bucket.last];
            corners[1..3].sort_by_key(|point| point.0);
            corners.dedup();
            points.append(&mut corners);
        }
        points
    }

    fn coarsen(&mut self) {
        self.shift += 1;
        let shift = self.shift;
        for bucket in &mut self.buckets {
            bucket.index = bucket.first.0.as_nanos() >> shift;
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
        if point.1 < self.least.1 {
            self.least = point;
        }
        if point.1 > self.greatest.1 {
            self.greatest = point;
        }
        if point.0 >= self.last.0 {
            self.last = point;
        }
    }
}
