//! Timer events of a machine.

use faircast_base::Time;

/// Timer events of a machine: not cancellable, so that one queued event serves all later timeouts.
// The fields of the packet path come first: see `Agent`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Alarm {
    /// Time of the next event in the queue; [`Time::MAX`] without an event.
    next: Time,
    /// Times of the later events, in descending order, all different.
    later: Vec<Time>,
}

impl Default for Alarm {
    fn default() -> Self {
        Self { next: Time::MAX, later: Vec::new() }
    }
}

impl Alarm {
    /// Requests an event at `at`. True if the caller must schedule it: no event is due by then.
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
        assert!(!alarm.set(at(50)) && !alarm.set(at(70)) && alarm.set(at(40)));
        alarm.ring(at(40));
        alarm.ring(at(50));
        assert!(alarm.set(at(70)));
    }
}
