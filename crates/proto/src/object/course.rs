//! Course of a source over any transport: awaited members, begin of content, and the end.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Event, NodeId, Time};

use super::path::Probes;
use super::source::members::{Members, Sent};
use super::{
    Announcement, MemberState, MemberStatus, ObjectSourceSetup, ObjectStatus, Part, Stage,
};
use crate::FlowEvent;

#[derive(Debug)]
pub(super) struct Course {
    pub(super) members: Members,
    wait_for: u32,
    /// Receivers to wait for at the end; if empty, the members present at the beginning.
    pub(super) names: BTreeSet<String>,
    pub(super) give_up: Duration,
    pub(super) stall_max: Option<Duration>,
    /// Bytes that drivers add to each packet.
    pub(super) headers: u32,
    looked_at: Time,
    linger: Option<Duration>,
    start: Time,
    phase: ServicePhase,
    begun: Option<Time>,
    held: bool,
    /// Time at which this host was last unreachable.
    excused_at: Time,
    grown_at: Option<Time>,
    reason: Option<String>,
    /// Single event for the application; `told` is true once the event is decided.
    event: Option<FlowEvent>,
    told: bool,
    tick_at: Option<Time>,
    pub(super) probes: Probes,
    /// Bytes of the longest data packet so far.
    pub(super) longest: u32,
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

/// Longest span between two looks that counts as stalled: a suspended program sends nothing.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// Interval between two messages to members that lack part of a given-up object.
const GIVEN_UP_INTERVAL: Duration = Duration::from_millis(200);

/// Interval between looks at the members, the digests and the pace.
const TICK: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) begins: bool,
    pub(super) ends: bool,
}

impl Course {
    /// Creates the course, which fails at its start with a `reason`.
    pub(super) fn new(setup: &ObjectSourceSetup<'_>, reason: Option<String>) -> Self {
        fresh! {
            Self {
                wait_for: setup.wait_for,
                names: setup.names.clone(),
                give_up: setup.give_up,
                stall_max: setup.stall_max,
                headers: setup.headers,
                looked_at: setup.start,
                linger: setup.options.duration("linger"),
                start: setup.start,
                held: true,
                reason,
                tick_at: Some(setup.start),
            }
            members, phase, begun, excused_at, grown_at, event, told, probes, longest
        }
    }

    pub(super) fn stay(&mut self, linger: Duration) {
        self.linger = self.linger.or(Some(linger));
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.phase == ServicePhase::Waiting
    }

    pub(super) fn is_serving(&self) -> bool {
        self.phase == ServicePhase::Serving
    }

    pub(super) fn has_ended(&self) -> bool {
        self.phase == ServicePhase::Ended
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun.is_some()
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
        failed: Option<String>,
        content_bytes: u64,
    ) -> Turn {
        if !matches!(self.phase, ServicePhase::Serving | ServicePhase::Lingering(_)) {
            return Turn::default();
        }
        if let Some(reason) = failed.or_else(|| self.reason.take()) {
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
        let open = matches!(self.phase, ServicePhase::Serving | ServicePhase::Lingering(_));
        if !open || self.has_begun() {
            return false;
        }
        self.members.begin();
        self.begun = Some(now);
        true
    }

    /// Serves deferred members once no other wants anything. Returns true if the course ends.
    fn end_if_done(&mut self, cx: &mut Cx<'_>, content_bytes: u64) -> bool {
        if self.members.active() > 0 && self.held {
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
                self.say(FlowEvent::Completed);
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

    fn say(&mut self, event: FlowEvent) {
        if !core::mem::replace(&mut self.told, true) {
            self.event = Some(event);
        }
    }

    fn fail(&mut self, reason: String) {
        self.reason = Some(reason);
        self.say(FlowEvent::Gone);
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

    pub(super) fn lose_silent(&mut self, now: Time) -> Vec<NodeId> {
        let age = now.since(Time::ZERO);
        if now.since(self.excused_at) < self.give_up {
            return Vec::new();
        }
        self.members.lose_silent(Time::ZERO + age.saturating_sub(self.give_up))
    }

    pub(super) fn lose_stalled(&mut self, now: Time, announced: &Announcement) -> Vec<NodeId> {
        let span = now.since(self.looked_at).min(LOOK_MAX);
        self.looked_at = now;
        let Some(limit) = self.stall_max.filter(|_| !self.is_waiting()) else {
            return Vec::new();
        };
        if now.since(self.excused_at) < LOOK_MAX {
            return Vec::new();
        }
        let sent = Sent {
            manifest: announced.len(Part::Manifest),
            content: announced.len(Part::Content),
            flows: self.has_begun() && !announced.growing,
        };
        self.members.stall(now, span, limit, sent, self.headers)
    }

    pub(super) fn excuse_silence(&mut self, now: Time) {
        self.excused_at = now;
    }

    pub(super) fn note_growth(&mut self, now: Time) {
        self.grown_at = Some(now);
    }

    pub(super) fn look(&mut self, now: Time, growing: bool) {
        // Members make no progress while a pipe is silent, and need time after it resumes.
        let lately = self.grown_at.is_some_and(|at| now.since(at) < self.give_up);
        self.held = !self.has_begun()
            || growing
            || lately
            || self.members.active() > 0
                && self.members.hold_the_end(now, self.give_up, &self.names);
    }

    pub(super) fn poll_event(&mut self) -> Option<FlowEvent> {
        self.event.take()
    }

    fn statuses(&self) -> Vec<MemberStatus> {
        let mut all = self.members.statuses();
        for member in &mut all {
            member.path = member.path.map(|path| path.with(self.headers));
        }
        all
    }

    pub(super) fn status(&self, total: u64, growing: bool, exhausted: bool) -> ObjectStatus {
        let stage = match self.phase {
            _ if self.reason.is_some() => Stage::Failed,
            ServicePhase::Waiting => Stage::Gathering,
            ServicePhase::Serving if !self.has_begun() => Stage::Gathering,
            ServicePhase::Serving if exhausted && !growing => Stage::Verifying,
            ServicePhase::Serving => Stage::Sending,
            ServicePhase::Lingering(_) | ServicePhase::Ended => Stage::Finished,
        };
        ObjectStatus {
            stage,
            begun: self.begun,
            bytes_total: Some(total),
            growing,
            bytes_done: self.members.least_bytes().unwrap_or(0).min(total),
            members: self.statuses(),
            reason: self.reason.clone(),
            whole_lost: self.members.is_whole_lost(),
            ..ObjectStatus::default()
        }
    }
}
