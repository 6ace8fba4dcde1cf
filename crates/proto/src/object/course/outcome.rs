//! Outcome of a source: its reason of failure, and the one event for the application.

use alloc::string::String;

use crate::FlowEvent;

#[derive(Debug, Default)]
pub(super) struct Outcome {
    reason: Option<String>,
    event: Option<FlowEvent>,
    /// True once the event is decided: a later one is dropped.
    is_reported: bool,
}

impl Outcome {
    pub(super) fn report(&mut self, event: FlowEvent) {
        if !core::mem::replace(&mut self.is_reported, true) {
            self.event = Some(event);
        }
    }

    pub(super) fn fail(&mut self, reason: String) {
        self.reason = Some(reason);
        self.report(FlowEvent::Gone);
    }

    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    pub(super) fn poll_event(&mut self) -> Option<FlowEvent> {
        self.event.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_event_is_reported_and_the_last_reason_is_shown() {
        let mut outcome = Outcome::default();
        outcome.report(FlowEvent::Completed);
        outcome.fail("late".into());
        assert_eq!(outcome.poll_event(), Some(FlowEvent::Completed));
        assert_eq!((outcome.poll_event(), outcome.reason()), (None, Some("late")));
    }
}
