//! Marks of events, counted together as they grow numerous.

use faircast_base::Time;

use super::curve::SHIFT_START;

/// Most marks of a [`Marks`].
pub const MARKS_MAX: usize = 800;

/// Events over time in bounded memory: a full list counts each time bucket's events in one mark.
#[derive(Clone, Debug, PartialEq)]
pub struct Marks {
    points: Vec<Mark>,
    total: u64,
    /// Width of a bucket, as a power of two in nanoseconds.
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
