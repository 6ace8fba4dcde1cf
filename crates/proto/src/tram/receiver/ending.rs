//! End of a receiver: it has everything, serves its members until they have, and says goodbye.

use faircast_base::{Cx, Duration, Event, NodeId, Time};

use super::{Phase, TramReceiver};
use crate::FlowEvent;
use crate::tram::membership::HeadStatus;
use crate::tram::window::Cache;
use crate::tram::wire::{Bind, Body};

/// Time for which a departed receiver answers hellos of a head that missed the goodbye: 10 s.
const ANSWERS_FOR: Duration = Duration::from_secs(10);

impl TramReceiver {
    fn has_all(&self) -> bool {
        let Some(window) = &self.window else { return false };
        self.session.last.is_some_and(|last| window.first_missing() > last)
    }

    pub(super) fn check_end(&mut self, cx: &mut Cx<'_>) {
        if self.has_all() && !self.delivery.completed {
            self.delivery.completed = true;
            self.next_ack.due = true;
            self.phase = Phase::Serving;
            if self.delivery.is_whole() && !self.delivery.is_retained() {
                cx.emit(Event::Completed { bytes: self.delivery.bytes });
                self.events.push_back(FlowEvent::Completed.into());
            }
        }
        if (self.delivery.is_done() || self.is_closing) && !self.has_left() {
            if self.is_closing {
                self.head.resign(true);
            }
            if self.head.members.is_empty() {
                self.leave(cx.now);
            }
        }
    }

    pub(super) fn leave(&mut self, now: Time) {
        self.past_parents.leave(self.affiliation.parent.map(|parent| parent.node));
        self.affiliation.stop();
        self.phase = Phase::Left { answers_until: now + ANSWERS_FOR };
        if let Some(reports) = &mut self.reports {
            reports.on_leaving();
        }
        self.timers.disarm_all();
    }

    pub(super) fn answer_after_end(
        &mut self,
        cx: &mut Cx<'_>,
        (from, id): (NodeId, u64),
        body: &Body<'_>,
    ) {
        let Phase::Left { answers_until } = self.phase else { return };
        let answers = cx.now < answers_until;
        match body {
            Body::Hello(hello) if answers && hello.asks(self.identity.id(cx)) => {
                self.past_parents.say_goodbye(from);
            }
            Body::Bind(bind) => {
                let bind = Bind { first_missing: 0, ..*bind };
                let _ = self.head.on_bind(cx.now, from, 0, bind, HeadStatus::default());
            }
            // A member that has not noticed the end must look for another head.
            Body::Ack(ack) if answers => {
                let has_none = |_: &Cache, _| false;
                let (end, repairer) = ((0, 0), &mut self.repairer);
                let _ = self.head.on_ack(cx.now, (from, id), ack, end, repairer, has_none);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use faircast_base::{NullTrace, Purpose, Rng};

    use super::*;
    use crate::Machine;
    use crate::options::Options;
    use crate::tram::TramSetup;
    use crate::tram::wire::SourceState;
    use crate::world::{SOURCE, TSI, at};

    fn given_up_at(done: bool) -> u64 {
        let options = Options::default();
        let mut receiver = TramReceiver::new(&TramSetup::of(TSI, SOURCE, at(0), &options));
        let mut rng = Rng::new(1, NodeId(9), Purpose::Machine(0));
        let mut trace = NullTrace;
        let mut cx = Cx::new(at(0), &mut rng, &mut trace);
        receiver.handle_timeout(&mut cx);
        receiver.begin_at(&mut cx, 1);
        cx.now = at(1000);
        receiver
            .on_source_state(cx.now, SourceState { sequence: 40, done, ..SourceState::default() });
        receiver.on_highest_sent(&mut cx, 40, done);
        while let Some(next) = receiver.next_timeout() {
            cx.now = next;
            receiver.handle_timeout(&mut cx);
        }
        let gone =
            core::iter::from_fn(|| receiver.poll_event()).any(|it| it == FlowEvent::Gone.into());
        assert!(receiver.has_left() && gone);
        cx.now.as_nanos() / 1_000_000_000
    }

    #[test]
    fn a_stream_whose_source_ended_and_that_no_head_repairs_is_given_up_soon() {
        assert_eq!((given_up_at(true), given_up_at(false)), (31, 251));
    }
}
