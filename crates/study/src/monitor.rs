//! Monitor of experiments: progress, notes, and requests to stop.

use std::ops::ControlFlow;

use faircast_base::Time;
use faircast_sim::Observer;

/// Runs that are about to begin.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a> {
    /// Name of the runs.
    pub name: &'a str,
    /// Number of runs.
    pub count: usize,
    /// Cost of all runs together, in an arbitrary unit.
    pub weight: u64,
    /// True if each of the runs is long.
    pub long: bool,
}

/// Observer of experiments that can stop them. All methods are optional.
pub trait Monitor: Sync {
    /// Announces runs. All earlier runs have ended.
    fn begin(&self, _runs: Runs<'_>) {}

    /// Reports the end of a run of this weight, with or without success.
    fn ended(&self, _weight: u64) {}

    /// Reports the end of all announced runs.
    fn finish(&self) {}

    /// Reports a note for readers of the figures.
    fn note(&self, _text: &str) {}

    /// Returns true if all runs are to stop.
    fn is_to_stop(&self) -> bool {
        false
    }
}

impl Monitor for () {}

pub(crate) struct Watch<'a>(pub(crate) &'a dyn Monitor);

impl Observer for Watch<'_> {
    fn observe(&mut self, _now: Time, _events: u64) -> ControlFlow<()> {
        if self.0.is_to_stop() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
