//! Course of a source over any transport: awaited members, begin of content, and the end.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Event, NodeId, Time};

use super::path::Probes;
use super::source::members::{Members, Sent};
use super::{Announcement, MemberState, ObjectSourceSetup, ObjectStatus, Part, Stage};
use crate::FlowEvent;

#[derive(Debug)]
pub(super) struct Course {
    pub(super) members: Members,
    start: Time,
    /// Members to begin with; 0 once the application has ordered the begin.
    wait_for: u32,
    names: BTreeSet<String>,
    give_up: Duration,
    stall_max: Option<Duration>,
    linger: Option<Duration>,
    headers: u32,
    phase: ServicePhase,
    begun_at: Option<Time>,
    pub(super) outcome: Outcome,
    pub(super) watch: MemberWatch,
    /// Time of the next look at members, supply and pace; `None` once nothing is left to do.
    tick_at: Option<Time>,
    pub(super) probes: Probes,
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

const TICK: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) begins: bool,
    pub(super) ends: bool,
}

impl Course {
    pub(super) fn new(setup: &ObjectSourceSetup<'_>) -> Self {
        Self {
            members: Members::default(),
            start: setup.start,
            wait_for: setup.wait_for,
            names: setup.names.clone(),
            give_up: setup.give_up,
            stall_max: setup.stall_max,
            linger: setup.options.duration("linger"),
            headers: setup.headers,
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
        self.linger.get_or_insert(linger);
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
        let starts = self.is_waiting() && self.start <= now;
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
        let all_here = self.members.count(&come) >= self.wait_for as usize;
        let begins = all_here && self.begin(cx.now);
        Turn { begins, ends: self.end_if_done(cx, content_bytes) }
    }

    /// Begins content with the present members. Returns true if content has just begun.
    pub(super) fn begin(&mut self, now: Time) -> bool {
        if self.is_waiting() {
            self.wait_for = 0;
        }
        if !self.is_open() || self.has_begun() {
            return false;
        }
        self.members.all.values_mut().for_each(|member| member.is_awaited = true);
        self.begun_at = Some(now);
        true
    }

    /// Serves deferred members once no other wants anything. Returns true if the course ends.
    fn end_if_done(&mut self, cx: &mut Cx<'_>, content_bytes: u64) -> bool {
        if self.members.active() > 0 && self.watch.is_end_held {
            if let ServicePhase::Lingering(_) = self.phase {
                self.phase = ServicePhase::Serving;
            }
            return false;
        }
        if self.members.recall() {
            return false;
        }
        let done = self.members.count(&[MemberState::Done]);
        if self.is_serving() && self.has_begun() && !self.members.all.is_empty() {
            self.phase = ServicePhase::Lingering(cx.now);
            if done > 0 {
                cx.emit(Event::Completed { bytes: content_bytes });
                self.outcome.report(FlowEvent::Completed);
            }
        }
        let ServicePhase::Lingering(since) = self.phase else { return false };
        if cx.now.since(since) < self.linger.unwrap_or_default() {
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
        self.members.status_interval(self.give_up)
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
        let mut lost = Vec::new();
        if now.since(self.watch.excused_at) >= self.give_up {
            let silent_for = now.since(Time::ZERO).saturating_sub(self.give_up);
            lost = self.members.lose_silent(Time::ZERO + silent_for);
        }
        let limit = self.stall_max.filter(|_| !self.is_waiting());
        if let (Some(span), Some(limit)) = (self.watch.stalled_span(now), limit) {
            let sent = Sent {
                manifest: announced.len(Part::Manifest),
                content: announced.len(Part::Content),
                flows: self.has_begun() && !announced.growing,
            };
            lost.extend(self.members.stall(now, span, limit, sent, self.headers));
        }
        lost
    }

    pub(super) fn judge_end(&mut self, now: Time, growing: bool) {
        let open = !self.has_begun() || growing;
        self.watch.judge_end(&self.members, now, open, self.give_up, &self.names);
    }

    pub(super) fn status(&self, announced: &Announcement, exhausted: bool) -> ObjectStatus {
        let (total, growing) = (announced.len(Part::Content), announced.growing);
        let stage = match self.phase {
            _ if self.outcome.reason.is_some() => Stage::Failed,
            ServicePhase::Waiting => Stage::Gathering,
            ServicePhase::Serving if !self.has_begun() => Stage::Gathering,
            ServicePhase::Serving if exhausted && !growing => Stage::Verifying,
            ServicePhase::Serving => Stage::Sending,
            ServicePhase::Lingering(_) | ServicePhase::Ended => Stage::Finished,
        };
        let mut members = self.members.statuses();
        for member in &mut members {
            member.path = member.path.map(|path| path.with(self.headers));
        }
        ObjectStatus {
            stage,
            begun: self.begun_at,
            bytes_total: Some(total),
            growing,
            bytes_done: self.members.least_bytes().unwrap_or(0).min(total),
            members,
            reason: self.outcome.reason.clone(),
            whole_lost: self.members.is_whole_lost(),
            ..ObjectStatus::default()
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) reason: Option<String>,
    pub(crate) event: Option<FlowEvent>,
    /// True once the event is decided: a later one is dropped.
    is_reported: bool,
}

impl Outcome {
    fn report(&mut self, event: FlowEvent) {
        if !core::mem::replace(&mut self.is_reported, true) {
            self.event = Some(event);
        }
    }

    fn fail(&mut self, reason: String) {
        self.reason = Some(reason);
        self.report(FlowEvent::Gone);
    }
}

/// Longest span between two looks that counts as stalled: a suspended program sends nothing.
const LOOK_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct MemberWatch {
    looked_at: Time,
    /// Time at which this host was last unreachable.
    pub(crate) excused_at: Time,
    pub(crate) grown_at: Option<Time>,
    is_end_held: bool,
}

impl MemberWatch {
    fn new(start: Time) -> Self {
        Self { looked_at: start, excused_at: Time::ZERO, grown_at: None, is_end_held: true }
    }

    /// Returns the time since the last look that counts for stalls; `None` if it is excused.
    fn stalled_span(&mut self, now: Time) -> Option<Duration> {
        let span = now.since(self.looked_at).min(LOOK_MAX);
        self.looked_at = now;
        (now.since(self.excused_at) >= LOOK_MAX).then_some(span)
    }

    /// Judges the end, which an `open` course always holds.
    fn judge_end(
        &mut self,
        members: &Members,
        now: Time,
        open: bool,
        give_up: Duration,
        names: &BTreeSet<String>,
    ) {
        // Members make no progress while a pipe is silent, and need time after it resumes.
        let lately = self.grown_at.is_some_and(|at| now.since(at) < give_up);
        self.is_end_held =
            open || lately || members.active() > 0 && members.hold_the_end(now, give_up, names);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{at, ms};

    #[test]
    fn only_the_first_event_is_reported_and_the_last_reason_is_shown() {
        let mut outcome = Outcome::default();
        outcome.report(FlowEvent::Completed);
        outcome.fail("late".into());
        assert_eq!(
            (outcome.event.take(), outcome.reason.as_deref()),
            (Some(FlowEvent::Completed), Some("late"))
        );
    }

    #[test]
    fn a_suspended_or_excused_program_lets_nobody_stall() {
        let mut watch = MemberWatch::new(at(1000));
        assert_eq!(watch.stalled_span(at(1100)), Some(ms(100)));
        assert_eq!(watch.stalled_span(at(9000)), Some(LOOK_MAX));
        watch.excused_at = at(9000);
        assert_eq!(watch.stalled_span(at(9999)), None);
        assert_eq!(watch.stalled_span(at(10_000)), Some(ms(1)));
    }

    #[test]
    fn an_end_is_held_while_the_course_is_open_and_after_growth() {
        let mut watch = MemberWatch::new(at(0));
        let (members, names) = (Members::default(), BTreeSet::new());
        let mut held = |now, open, grown: Option<u64>| {
            grown.into_iter().for_each(|ms| watch.grown_at = Some(at(ms)));
            watch.judge_end(&members, at(now), open, ms(500), &names);
            watch.is_end_held
        };
        assert!(held(0, true, None) && !held(0, false, None));
        assert!(held(899, false, Some(400)) && !held(900, false, None));
    }
}
