//! Course of a source over any transport: awaited members, begin of content, and the end.

mod outcome;
mod watch;

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Event, NodeId, Time};

use self::outcome::Outcome;
use self::watch::MemberWatch;
use super::path::Probes;
use super::source::members::Members;
use super::{
    Announcement, MemberState, MemberStatus, ObjectSourceSetup, ObjectStatus, Part, Stage,
};
use crate::FlowEvent;

#[derive(Debug)]
pub(super) struct Course {
    pub(super) members: Members,
    terms: Terms,
    phase: ServicePhase,
    begun_at: Option<Time>,
    outcome: Outcome,
    watch: MemberWatch,
    /// Time of the next look at members, supply and pace; `None` once nothing is left to do.
    tick_at: Option<Time>,
    pub(super) probes: Probes,
}

/// Terms on which the source begins and ends: see [`ObjectSourceSetup`].
#[derive(Debug)]
struct Terms {
    start: Time,
    /// Members to begin with; 0 once the application has ordered the begin.
    wait_for: u32,
    /// Receivers to wait for at the end; if empty, the members present at the beginning.
    names: BTreeSet<String>,
    give_up: Duration,
    stall_max: Option<Duration>,
    /// Time for late receivers after the end of all members.
    linger: Option<Duration>,
    /// Bytes that drivers add to each packet.
    headers: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ServicePhase {
    #[default]
    Waiting,
    Serving,
    /// All members are done since this time; the source stays for late receivers.
    Lingering(Time),
    Ended,
}

/// Interval between two messages to members that lack part of a given-up object.
const GIVEN_UP_INTERVAL: Duration = Duration::from_millis(200);

/// Interval between looks at the members, the digests and the pace.
const TICK: Duration = Duration::from_millis(100);

/// Begin and end of content that a review has decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) begins: bool,
    pub(super) ends: bool,
}

impl Course {
    pub(super) fn new(setup: &ObjectSourceSetup<'_>) -> Self {
        Self {
            members: Members::default(),
            terms: Terms {
                start: setup.start,
                wait_for: setup.wait_for,
                names: setup.names.clone(),
                give_up: setup.give_up,
                stall_max: setup.stall_max,
                linger: setup.options.duration("linger"),
                headers: setup.headers,
            },
            phase: ServicePhase::default(),
            begun_at: None,
            outcome: Outcome::default(),
            watch: MemberWatch::new(setup.start),
            tick_at: Some(setup.start),
            probes: Probes::default(),
        }
    }

    /// Sets the time for late receivers, unless an option sets it.
    pub(super) fn stay(&mut self, linger: Duration) {
        self.terms.linger.get_or_insert(linger);
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.phase == ServicePhase::Waiting
    }

    pub(super) fn is_serving(&self) -> bool {
        self.phase == ServicePhase::Serving
    }

    fn is_open(&self) -> bool {
        matches!(self.phase, ServicePhase::Serving | ServicePhase::Lingering(_))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.phase == ServicePhase::Ended
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun_at.is_some()
    }

    pub(super) fn start(&mut self, now: Time) -> bool {
        let starts = self.is_waiting() && self.terms.start <= now;
        if starts {
            self.phase = ServicePhase::Serving;
        }
        starts
    }

    /// Begins or ends content if the members allow it, and fails if the supply has `failed`.
    pub(super) fn review(
        &mut self,
        cx: &mut Cx<'_>,
        failed: &mut Option<String>,
        content_bytes: u64,
    ) -> Turn {
        if !self.is_open() {
            return Turn::default();
        }
        if let Some(reason) = failed.take() {
            self.fail(reason);
            return Turn { begins: false, ends: true };
        }
        // A failed member counts as present: no other member is waited for in its place.
        let come = [MemberState::Receiving, MemberState::Done, MemberState::Failed];
        let all_here = self.members.count(&come) >= self.terms.wait_for as usize;
        let begins = all_here && self.begin(cx.now);
        Turn { begins, ends: self.end_if_done(cx, content_bytes) }
    }

    /// Begins content with the present members. Returns true if content has just begun.
    pub(super) fn begin(&mut self, now: Time) -> bool {
        if self.is_waiting() {
            self.terms.wait_for = 0;
        }
        if !self.is_open() || self.has_begun() {
            return false;
        }
        self.members.begin();
        self.begun_at = Some(now);
        true
    }

    /// Serves deferred members once no other wants anything. Returns true if the course ends.
    fn end_if_done(&mut self, cx: &mut Cx<'_>, content_bytes: u64) -> bool {
        if self.members.active() > 0 && self.watch.is_end_held() {
            if let ServicePhase::Lingering(_) = self.phase {
                self.phase = ServicePhase::Serving;
            }
            return false;
        }
        if self.members.recall() {
            return false;
        }
        let done = self.members.count(&[MemberState::Done]);
        if self.is_serving() && self.has_begun() && self.members.len() > 0 {
            self.phase = ServicePhase::Lingering(cx.now);
            if done > 0 {
                cx.emit(Event::Completed { bytes: content_bytes });
                self.outcome.report(FlowEvent::Completed);
            }
        }
        let ServicePhase::Lingering(since) = self.phase else { return false };
        if cx.now.since(since) < self.terms.linger.unwrap_or_default() {
            return false;
        }
        if done == 0 {
            self.fail("no receiver has got it all".to_string());
        }
        self.phase = ServicePhase::Ended;
        true
    }

    fn fail(&mut self, reason: String) {
        self.outcome.fail(reason);
        self.phase = ServicePhase::Ended;
    }

    pub(super) fn close(&mut self) {
        if self.is_serving() {
            self.fail("it was told to end".to_string());
        }
        self.phase = ServicePhase::Ended;
    }

    pub(super) fn status_interval(&self) -> Duration {
        self.members.status_interval(self.terms.give_up)
    }

    /// Ends the ticks, except those that inform members of an object that is not `repeatable`.
    pub(super) fn end(&mut self, now: Time, repeatable: bool) {
        self.tick_at = None;
        if !repeatable {
            self.members.give_up();
            self.tick_at = Some(now + GIVEN_UP_INTERVAL);
        }
    }

    pub(super) fn take_tick(&mut self, now: Time, over: bool, repeatable: bool) -> bool {
        if self.tick_at.take_if(|at| *at <= now).is_none() || over {
            return false;
        }
        if self.has_ended() {
            self.end(now, repeatable);
            return false;
        }
        self.tick_at = Some(now + TICK);
        true
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.tick_at.into_iter().chain(self.probes.next_timeout()).min()
    }

    /// Loses members that are silent or stalled for too long. Returns their names in reports.
    pub(super) fn lose_members(&mut self, now: Time, announced: &Announcement) -> Vec<NodeId> {
        let Terms { give_up, stall_max, headers, .. } = self.terms;
        let mut lost = self.watch.lose_silent(&mut self.members, now, give_up);
        let (limit, begun) = (stall_max.filter(|_| !self.is_waiting()), self.has_begun());
        let stalled = self.watch.stalled_span(now);
        if let (Some(span), Some(limit)) = (stalled, limit) {
            let sent = watch::sent(announced, begun);
            lost.extend(self.members.stall(now, span, limit, sent, headers));
        }
        lost
    }

    pub(super) fn excuse_silence(&mut self, now: Time) {
        self.watch.excuse_silence(now);
    }

    pub(super) fn note_growth(&mut self, now: Time) {
        self.watch.note_growth(now);
    }

    /// Judges whether members that lack something hold the end.
    pub(super) fn judge_end(&mut self, now: Time, growing: bool) {
        let Terms { give_up, names, .. } = &self.terms;
        let open = !self.has_begun() || growing;
        self.watch.judge_end(&self.members, now, open, *give_up, names);
    }

    pub(super) fn poll_event(&mut self) -> Option<FlowEvent> {
        self.outcome.poll_event()
    }

    fn statuses(&self) -> Vec<MemberStatus> {
        let mut all = self.members.statuses();
        for member in &mut all {
            member.path = member.path.map(|path| path.with(self.terms.headers));
        }
        all
    }

    pub(super) fn status(&self, announced: &Announcement, exhausted: bool) -> ObjectStatus {
        let (total, growing) = (announced.len(Part::Content), announced.growing);
        let stage = match self.phase {
            _ if self.outcome.reason().is_some() => Stage::Failed,
            ServicePhase::Waiting => Stage::Gathering,
            ServicePhase::Serving if !self.has_begun() => Stage::Gathering,
            ServicePhase::Serving if exhausted && !growing => Stage::Verifying,
            ServicePhase::Serving => Stage::Sending,
            ServicePhase::Lingering(_) | ServicePhase::Ended => Stage::Finished,
        };
        ObjectStatus {
            stage,
            begun: self.begun_at,
            bytes_total: Some(total),
            growing,
            bytes_done: self.members.least_bytes().unwrap_or(0).min(total),
            members: self.statuses(),
            reason: self.outcome.reason().map(ToString::to_string),
            whole_lost: self.members.is_whole_lost(),
            ..ObjectStatus::default()
        }
    }
}
