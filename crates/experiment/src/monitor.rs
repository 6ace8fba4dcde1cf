//! The monitor of experiments: progress, remarks, and the wish to stop.

use std::ops::ControlFlow;

use faircast_base::Time;
use faircast_sim::Observer;

/// Runs that are about to begin.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a> {
    /// What they are called.
    pub name: &'a str,
    /// How many there are.
    pub count: usize,
    /// How much work they are in all, in a unit of their own.
    pub weight: u64,
    /// Whether each of them is long.
    pub long: bool,
}

/// Hears how experiments go, and says when they are to stop. What is not of interest may be left out.
pub trait Monitor: Sync {
    /// Runs begin; those that began before have ended.
    fn begin(&self, _runs: Runs<'_>) {}

    /// A run of this weight has ended, well or not.
    fn ended(&self, _weight: u64) {}

    /// No run is left of those that began last.
    fn finish(&self) {}

    /// Something that the reader of the figures should know.
    fn note(&self, _text: &str) {}

    /// Whether everything is to stop.
    fn is_to_stop(&self) -> bool {
        false
    }
}

impl Monitor for () {}

/// Ends a run where everything is to stop.
pub(crate) struct Watch<'a>(pub(crate) &'a dyn Monitor);

impl Observer for Watch<'_> {
    fn observe(&mut self, _now: Time, _events: u64) -> ControlFlow<()> {
        if self.0.is_to_stop() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
