//! The context of protocol code: the present time, a random stream and the trace of events.

use crate::{Event, Rng, Time};

/// All that protocol code may know about the world. It has these three fields; a fourth would be a way
/// to the outside world.
pub struct Cx<'a> {
    /// The present moment. Never decreases from one call to the next.
    pub now: Time,
    /// The random stream of this machine.
    pub rng: &'a mut Rng,
    /// Where the machine says what it does. The driver adds who speaks.
    pub trace: &'a mut dyn Trace,
}

impl Cx<'_> {
    /// Records an event at the present moment.
    pub fn emit(&mut self, event: Event) {
        self.trace.emit(self.now, event);
    }
}

/// A sink for the events of one machine.
pub trait Trace {
    /// Records one event.
    fn emit(&mut self, at: Time, event: Event);
}

/// A trace that keeps nothing.
#[derive(Debug, Default)]
pub struct NullTrace;

impl Trace for NullTrace {
    fn emit(&mut self, _at: Time, _event: Event) {}
}
