//! End of a receiver: it has everything, serves its members until they have, and says goodbye. Or
//! the silence of the source reaches its limit, and the session counts as over.

use faircast_base::{Cx, Duration, Event, NodeId, Time};

use super::{Phase, TramReceiver};
use crate::FlowEvent;
use crate::tram::RECOVERY;
use crate::tram::membership::HeadStatus;
use crate::tram::window::Cache;
use crate::tram::wire::{Bind, Body, SourceState};

/// Longest silence of the source before a receiver takes the session to be over: 250 s.
const SILENCE_MAX: Duration = Duration::from_secs(250);

/// Longest silence after the end of a session: 10 s shows that nobody repairs missing packets.
const ENDED_SILENCE: Duration = Duration::from_secs(10);

/// Time for which a departed receiver answers hellos of a head that missed the goodbye: 10 s.
const ANSWERS_FOR: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) source: NodeId,
    /// Latest state of the source, and the time of the packet that had it.
    pub(super) state: SourceState,
    pub(super) state_at: Time,
    /// Time of the latest packet from the source; zero if none has come.
    pub(super) source_packet_at: Time,
    pub(super) data_at: Time,
    /// Last packet of the session, once that is confirmed.
    pub(super) last: Option<u64>,
    /// Claimed last packet, and the time of the claim.
    pub(super) end_claim: Option<(u64, Time)>,
}

impl TramReceiver {
    /// Returns the time at which silence ends the session. The source of an application that
    /// releases its receivers leaves when all is over.
    pub(super) fn silent_until(&self) -> Time {
        let Self { session, affiliation, .. } = self;
        let latest = session.source_packet_at.max(session.data_at);
        if self.delivery.is_retained() && (session.last.is_some() || session.state.done) {
            return latest + ENDED_SILENCE;
        }
        if self.phase == Phase::Member && self.level() == 0 && session.last.is_some() {
            // All has been sent, and the receiver has time to find another head after an attack.
            return latest.max(affiliation.lost_at) + RECOVERY;
        }
        session.source_packet_at + SILENCE_MAX
    }

    pub(super) fn check_end(&mut self, cx: &mut Cx<'_>) {
        let end = self.window.as_ref().map_or(0, |window| window.reception.first_missing());
        let has_all = self.session.last.is_some_and(|last| end > last);
        if has_all && !self.delivery.completed {
            self.delivery.completed = true;
            self.next_ack.due = true;
            self.phase = Phase::Serving;
            let is_whole = self.delivery.from_start && !self.delivery.lost_any;
            if is_whole && !self.delivery.is_retained() {
                cx.emit(Event::Completed { bytes: self.delivery.bytes });
                self.events.push_back(FlowEvent::Completed.into());
            }
        }
        if (self.delivery.is_done() || self.is_closing) && !self.is_over() {
            if self.is_closing {
                self.head.resign(true);
            }
            if !self.has_members() {
                self.leave(cx.now);
            }
        }
    }

    pub(super) fn leave(&mut self, now: Time) {
        let parent = self.affiliation.parent.map(|parent| parent.node);
        let previous = self.past_parents.previous.take().map(|(node, _)| node);
        self.past_parents.goodbyes.extend(parent.into_iter().chain(previous));
        self.affiliation.stop();
        self.phase = Phase::Left(now + ANSWERS_FOR);
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
        let Phase::Left(answers_until) = self.phase else { return };
        let answers = cx.now < answers_until;
        match body {
            Body::Hello(hello) if answers && hello.asks(self.identity.id(cx)) => {
                self.past_parents.goodbyes.push_back(from);
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
