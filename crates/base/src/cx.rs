//! Context of protocol code: current time, random stream and trace.

use crate::{Checked, Duration, Event, Rng, Time};

/// Context of a call: the only access of protocol code to its environment.
pub struct Cx<'a> {
    /// Current time. Never decreases from one call to the next.
    pub now: Time,
    /// Delay of this call because the host or the program was stopped. After a long delay packets
    /// may be queued: silence of peers means nothing.
    pub late: Duration,
    /// Random stream of this machine.
    pub rng: &'a mut Rng,
    /// Trace for the events of the machine. The driver adds the machine's identity.
    pub trace: &'a mut dyn Trace,
}

impl<'a> Cx<'a> {
    /// Creates the context of a call without delay.
    pub fn new(now: Time, rng: &'a mut Rng, trace: &'a mut dyn Trace) -> Self {
        Self { now, late: Duration::ZERO, rng, trace }
    }

    /// Creates the context of a call without delay and without trace.
    pub fn untraced(now: Time, rng: &'a mut Rng) -> Self {
        // Only an empty array can be borrowed mutably for `'static`.
        let nowhere: &'static mut [NullTrace; 0] = &mut [];
        Self::new(now, rng, nowhere)
    }

    /// Records an event at the current time.
    #[inline]
    pub fn emit(&mut self, event: Event) {
        self.trace.emit(self.now, event);
    }

    /// Records refused input, if `input` is an error.
    #[inline]
    pub fn check(&mut self, input: Checked) {
        if let Err(reason) = input {
            self.emit(Event::BadInput { reason });
        }
    }
}

/// Sink for the events of one machine.
pub trait Trace {
    /// Records one event.
    fn emit(&mut self, at: Time, event: Event);
}

/// Trace that discards all events.
#[derive(Debug, Default)]
pub struct NullTrace;

impl Trace for NullTrace {
    fn emit(&mut self, _at: Time, _event: Event) {}
}

impl Trace for [NullTrace; 0] {
    fn emit(&mut self, _at: Time, _event: Event) {}
}
