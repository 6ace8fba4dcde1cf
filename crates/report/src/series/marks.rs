//! Marks of events, counted together as they grow numerous.

use faircast_base::Time;

use super::curve::SHIFT_START;

/// Most marks of a [`Marks`].
pub(super) const MARKS_MAX: usize = 800;

/// Events over time in bounded memory: a full list counts each time bucket's events in one mark.
#[derive(Clone, Debug, PartialEq)]
pub struct Marks {
    /// Kept marks in time order.
    pub(crate) points: Vec<Mark>,
    pub total: u64,
    /// Width of a bucket, as a power of two in nanoseconds.
    shift: u32,
}

/// One or several events of a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mark {
    pub(crate) at: Time,
    /// Height of the first event in its plot.
    pub(crate) height: f64,
    /// Number of events up to the next mark.
    pub(crate) count: u64,
}

impl Default for Marks {
    fn default() -> Self {
        Self { points: Vec::new(), total: 0, shift: SHIFT_START }
    }
}

impl Marks {
    /// Adds a mark at a time and a height. A mark out of order counts in the last one's bucket.
    pub(crate) fn push(&mut self, at: Time, height: f64) {
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
}
