//! The course of a source, whatever carries its packets: who is waited for, when content begins, who holds the end,
//! and when all is over.

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

/// Where a source is in its life, and whom it serves.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) members: Members,
    wait_for: u32,
    /// Receivers to wait for at the end; empty for those that were there when content began.
    pub(super) names: BTreeSet<String>,
    pub(super) give_up: Duration,
    /// Time without progress after which a member that speaks is given up.
    pub(super) stall_max: Option<Duration>,
    /// Bytes that drivers add to each packet.
    pub(super) headers: u32,
    looked_at: Time,
    /// Time for which it stays when all members are done.
    linger: Option<Duration>,
    start: Time,
    phase: ServicePhase,
    begun: Option<Time>,
    /// Whether somebody holds the end, at the last look.
    held: bool,
    /// Time at which this host was last unreachable.
    excused_at: Time,
    /// When content last became longer, of what comes from a pipe.
    grown_at: Option<Time>,
    reason: Option<String>,
    /// The one thing that the application is told, and whether that has been decided.
    event: Option<FlowEvent>,
    told: bool,
    /// Time of the next look at the members, the digests and the growth.
    tick_at: Option<Time>,
    pub(super) probes: Probes,
    /// Bytes of the longest packet of data so far.
    pub(super) longest: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ServicePhase {
    #[default]
    Waiting,
    Serving,
    /// All have been done since then; it stays for who may come.
    Lingering(Time),
    /// The source says that this is the end, or has said so.
    Ended,
}

/// Most of the time between two looks that counts.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// Time between two words to members that lack something of a given-up object.
const GIVEN_UP_INTERVAL: Duration = Duration::from_millis(200);

/// Interval between looks at the members, the digests and the pace.
const TICK: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) begins: bool,
    pub(super) ends: bool,
}

impl Course {
    /// That of a source as `setup` describes it, which fails at its start where there is a `reason`.
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

    /// It stays for so long after all members are done, where the options do not say.
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

    /// Begins where it is time. Returns whether it has just done so.
    pub(super) fn start(&mut self, now: Time) -> bool {
        let starts = self.is_waiting() && self.start <= now;
        if starts {
            self.phase = ServicePhase::Serving;
        }
        starts
    }

    /// What has to be looked at from time to time, and after each word of a member: the supply may have `failed`, and
    /// content has so many bytes by now.
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
        // Who has come and cannot take it is not waited for: it is told at the end.
        let come = [MemberState::Receiving, MemberState::Done, MemberState::Failed];
        let all_here = self.members.count(&come) >= self.wait_for as usize;
        let begins = all_here && self.begin(cx.now);
        Turn { begins, ends: self.end_if_done(cx, content_bytes) }
    }

    /// Content begins, with whoever is there. Returns whether that is news; before its start it begins with that.
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

    /// Who is deferred has his turn when nobody else wants anything; and when nobody at all does, it is over.
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

    /// Tells the application how it ends, once.
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

    /// Ends the session, whether any member has everything or not.
    pub(super) fn close(&mut self) {
        if self.is_serving() {
            self.fail("it was told to end".to_string());
        }
        self.phase = ServicePhase::Ended;
    }

    /// After how long without one a word of each member is wanted.
    pub(super) fn status_interval(&self) -> Duration {
        self.members.status_interval(self.give_up)
    }

    /// Ends the ticks. Of an object that is not `repeatable`, members that lack something are told
    /// so until the session is over.
    pub(super) fn end(&mut self, now: Time, repeatable: bool) {
        self.tick_at = None;
        if !repeatable {
            self.members.give_up();
            self.tick_at = Some(now + GIVEN_UP_INTERVAL);
        }
    }

    /// Returns whether it is time to look at everything, of a session that is `over` or not.
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

    /// Members that have been silent for too long are lost. Returns by what name they report.
    pub(super) fn lose_silent(&mut self, now: Time) -> Vec<NodeId> {
        let age = now.since(Time::ZERO);
        if now.since(self.excused_at) < self.give_up {
            return Vec::new();
        }
        self.members.lose_silent(Time::ZERO + age.saturating_sub(self.give_up))
    }

    /// Gives up members without progress on what was `announced`. Returns the names under which they report.
    pub(super) fn lose_stalled(&mut self, now: Time, announced: &Announcement) -> Vec<NodeId> {
        // A program that was stopped has sent nothing meanwhile.
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

    /// Loses no member for a silence before now.
    pub(super) fn excuse_silence(&mut self, now: Time) {
        self.excused_at = now;
    }

    pub(super) fn note_growth(&mut self, now: Time) {
        self.grown_at = Some(now);
    }

    /// Looks who holds the end; content may still be `growing`.
    pub(super) fn look(&mut self, now: Time, growing: bool) {
        // Nobody gets further than a pipe that gives nothing, and then not at once.
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

    /// All members; what they say of lengths counts what drivers add.
    fn statuses(&self) -> Vec<MemberStatus> {
        let mut all = self.members.statuses();
        for member in &mut all {
            member.path = member.path.map(|path| path.with(self.headers));
        }
        all
    }

    /// How it stands with content of so many bytes, which may be `growing`, where nothing may be left to send. Costs
    /// time in proportion to the number of members.
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
