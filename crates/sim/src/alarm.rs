//! The timer events of a machine, and when they are due.

use faircast_base::Time;

/// The timer events of one machine in the event queue. Events cannot be taken back, and a machine
/// asks again and again: one event is enough for all wishes that are not earlier than it.
// What every packet needs stands first: see `Agent`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Alarm {
    /// The moment of the next event in the queue; [`Time::MAX`] for none.
    next: Time,
    /// The moments of those behind it, the last one first; all different.
    later: Vec<Time>,
}

impl Default for Alarm {
    fn default() -> Self {
        Self { next: Time::MAX, later: Vec::new() }
    }
}

impl Alarm {
    /// Asks for an event at `at`. True where one must be scheduled: none is due by then.
    #[inline]
    pub(crate) fn set(&mut self, at: Time) -> bool {
        let earlier = at < self.next;
        if earlier {
            if self.next != Time::MAX {
                self.later.push(self.next);
            }
            self.next = at;
        }
        earlier
    }

    /// The next event has happened.
    #[inline]
    pub(crate) fn ring(&mut self, now: Time) {
        debug_assert_eq!(self.next, now, "events happen in the order of their times");
        self.next = self.later.pop().unwrap_or(Time::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_that_an_earlier_event_serves_schedules_nothing() {
        let at = Time::from_nanos;
        let mut alarm = Alarm::default();
        assert!(alarm.set(at(50)) && !alarm.set(at(50)) && !alarm.set(at(60)));
        assert!(alarm.set(at(10)));
        alarm.ring(at(10));
        // The event at 50 is still in the queue.
        assert!(!alarm.set(at(50)) && !alarm.set(at(70)) && alarm.set(at(40)));
        alarm.ring(at(40));
        alarm.ring(at(50));
        assert!(alarm.set(at(70)));
    }
}
