//! End of a receiver: it has everything, serves its members until they have, and says goodbye.

use faircast_base::{Cx, Duration, Event, NodeId, Time};

use super::{Kept, Phase, TramReceiver};
use crate::FlowEvent;
use crate::tram::cache::Cache;
use crate::tram::head::Known;
use crate::tram::wire::{Bind, Body};

/// Time for which a departed receiver answers hellos of a head that missed the goodbye: 10 s.
const LINGERS: Duration = Duration::from_secs(10);

impl TramReceiver {
    fn has_all(&self) -> bool {
        let Some(reached) = &self.reached else { return false };
        self.last.is_some_and(|last| reached.reception.first_missing() > last)
    }

    /// True if the receiver would leave incomplete. An application that keeps it judges by itself.
    pub(super) fn is_short(&self) -> bool {
        let lost_any = self.reached.as_ref().is_some_and(|it| it.lost_any);
        self.kept == Kept::Not && (lost_any || !self.completed)
    }

    pub(super) fn check_end(&mut self, cx: &mut Cx<'_>) {
        if self.has_all() && !self.completed {
            self.completed = true;
            self.ack_due = true;
            self.phase = Phase::Serving;
            let whole = self.reached.as_ref().is_some_and(|it| it.from_start && !it.lost_any);
            if whole && self.kept == Kept::Not {
                cx.emit(Event::Completed { bytes: self.bytes });
                self.events.push_back(FlowEvent::Completed.into());
            }
        }
        let done = match self.kept {
            Kept::Not => self.completed,
            Kept::Until => false,
            Kept::Released => true,
        };
        if (done || self.closing) && self.phase != Phase::Left {
            if self.closing {
                self.head.resign(true);
            }
            if self.head.members.children.is_empty() {
                self.leave(cx.now);
            }
        }
    }

    pub(super) fn leave(&mut self, now: Time) {
        let before = self.reached.as_mut().and_then(|it| it.before.take()).map(|it| it.0);
        let bound = self.parent.bound.map(|bound| bound.node);
        self.goodbyes.extend(bound.into_iter().chain(before));
        self.parent.stop();
        self.phase = Phase::Left;
        self.lingers_until = now + LINGERS;
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
        match body {
            Body::Hello(hello)
                if hello.asks(self.identity.id(cx)) && cx.now < self.lingers_until =>
            {
                self.goodbyes.push_back(from);
            }
            Body::Bind(bind) => {
                let known =
                    Known { level: 0, fit: false, low: 0, high: 0, done: false, id: 0, name: 0 };
                let bind = Bind { first_missing: 0, ..*bind };
                let _ = self.head.on_bind(cx.now, from, 0, bind, known);
            }
            // A member that has not noticed the end must look for another head.
            Body::Ack(ack) if cx.now < self.lingers_until => {
                let has_none = |_: &Cache, _| false;
                let _ = self.head.on_ack(cx.now, (from, id), ack, (0, 0), has_none);
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
    use crate::tram::wire::Front;
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
        receiver.on_front(cx.now, Front { sequence: 40, done, ..Front::default() });
        receiver.hear_of(&mut cx, 40, done);
        while let Some(next) = receiver.next_timeout() {
            cx.now = next;
            receiver.handle_timeout(&mut cx);
        }
        let gone =
            core::iter::from_fn(|| receiver.poll_event()).any(|it| it == FlowEvent::Gone.into());
        assert!(receiver.phase == Phase::Left && gone);
        cx.now.as_nanos() / 1_000_000_000
    }

    #[test]
    fn a_stream_whose_source_ended_and_that_no_head_repairs_is_given_up_soon() {
        assert_eq!((given_up_at(true), given_up_at(false)), (31, 251));
    }
}
