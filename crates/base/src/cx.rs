//! The context of protocol code: the present time, a random stream and the trace of events.

use crate::{Checked, Duration, Event, Rng, Time};

/// All that protocol code may know about the world.
pub struct Cx<'a> {
    /// The present moment. Never decreases from one call to the next.
    pub now: Time,
    /// Delay of this call: the driver would have called this much earlier if its host had run. Zero
    /// in the simulator unless a fault stops the program. After a long delay the silence of others
    /// says nothing, for their packets may still wait to be handled.
    pub late: Duration,
    /// The random stream of this machine.
    pub rng: &'a mut Rng,
    /// Where the machine says what it does. The driver adds who speaks.
    pub trace: &'a mut dyn Trace,
}

impl<'a> Cx<'a> {
    /// The context of a call that is not late.
    pub fn new(now: Time, rng: &'a mut Rng, trace: &'a mut dyn Trace) -> Self {
        Self { now, late: Duration::ZERO, rng, trace }
    }

    /// The context of a call that is not late and leaves no trace.
    pub fn untraced(now: Time, rng: &'a mut Rng) -> Self {
        // An empty array is the one mutable value that the compiler lends for ever.
        let nowhere: &'static mut [NullTrace; 0] = &mut [];
        Self::new(now, rng, nowhere)
    }

    /// Records an event at the present moment.
    #[inline]
    pub fn emit(&mut self, event: Event) {
        self.trace.emit(self.now, event);
    }

    /// Records that input was refused, if it was.
    #[inline]
    pub fn check(&mut self, input: Checked) {
        if let Err(reason) = input {
            self.emit(Event::BadInput { reason });
        }
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

impl Trace for [NullTrace; 0] {
    fn emit(&mut self, _at: Time, _event: Event) {}
}
