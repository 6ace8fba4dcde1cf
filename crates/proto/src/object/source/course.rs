//! The course of a source: when content begins, who holds it up, and when all is over.

use alloc::string::{String, ToString};

use faircast_base::{Bitrate, Cx, Duration, Event, NodeId, Time};

use super::{ObjectSource, ServicePhase, Timer};
use crate::AppEvent;
use crate::object::{MemberState, Part};

impl ObjectSource {
    /// What has to be looked at from time to time, and after each word of a member.
    pub(super) fn review(&mut self, cx: &mut Cx<'_>) {
        if !matches!(self.phase, ServicePhase::Serving | ServicePhase::Lingering(_)) {
            return;
        }
        let packets = &mut self.packets;
        packets.notice.status_interval = self.members.status_interval(self.give_up);
        if let Some(reason) = packets.failed.take().or_else(|| self.reason.take()) {
            self.fail(cx, reason);
            return;
        }
        // Who has come and cannot take it is not waited for: it is told at the end.
        let come = [MemberState::Receiving, MemberState::Done, MemberState::Failed];
        if !packets.notice.begun && self.members.count(&come) >= self.wait_for as usize {
            self.begin_content(cx);
        }
        self.end_if_done(cx);
    }

    pub(super) fn begin_content(&mut self, cx: &mut Cx<'_>) {
        let packets = &mut self.packets;
        if !packets.notice.begun {
            packets.notice.begun = true;
            self.members.begin();
            self.begun = Some(cx.now);
            self.session.announce_now(cx.now);
        }
    }

    /// Who is deferred has his turn when nobody else wants anything; and when nobody at all does,
    /// it is over.
    fn end_if_done(&mut self, cx: &mut Cx<'_>) {
        if self.members.active() > 0 && self.held {
            if let ServicePhase::Lingering(_) = self.phase {
                self.phase = ServicePhase::Serving;
            }
            return;
        }
        if self.members.recall() {
            return;
        }
        let done = self.members.count(&[MemberState::Done]);
        let begun = self.packets.notice.begun;
        if self.phase == ServicePhase::Serving && begun && self.members.len() > 0 {
            self.phase = ServicePhase::Lingering(cx.now);
            if done > 0 {
                let bytes = self.packets.layout.len(Part::Content);
                cx.emit(Event::Completed { bytes });
                self.say(AppEvent::Completed);
            }
        }
        if let ServicePhase::Lingering(since) = self.phase
            && cx.now.since(since) >= self.linger.unwrap_or_default()
        {
            if done == 0 {
                self.fail(cx, "no receiver has got it all".to_string());
            } else {
                self.end(cx);
            }
        }
    }

    /// Tells the application how it ends, once.
    fn say(&mut self, event: AppEvent) {
        if !core::mem::replace(&mut self.told, true) {
            self.event = Some(event);
        }
    }

    pub(super) fn fail(&mut self, cx: &mut Cx<'_>, reason: String) {
        self.reason = Some(reason);
        self.say(AppEvent::Gone);
        self.end(cx);
    }

    pub(super) fn end(&mut self, cx: &mut Cx<'_>) {
        self.phase = ServicePhase::Ended;
        self.timers.disarm(Timer::Tick);
        self.confirm.clear();
        self.packets.close();
        self.session.close(cx.now);
    }

    pub(super) fn tick(&mut self, cx: &mut Cx<'_>) {
        if !self.timers.take_due(Timer::Tick, cx.now) || self.phase == ServicePhase::Ended {
            return;
        }
        self.timers.arm(Timer::Tick, cx.now + TICK);
        let packets = &mut self.packets;
        // Both: the end of what grows comes with its digests.
        let (grown, known) = (packets.poll_growth(), packets.poll_digests());
        if grown || known {
            self.session.announce_now(cx.now);
        }
        if grown {
            self.grown_at = Some(cx.now);
        }
        let age = cx.now.since(Time::ZERO);
        if age >= self.give_up {
            let before = Time::ZERO + age.saturating_sub(self.give_up);
            for reporter in self.members.lose_silent(before) {
                self.session.control_mut().on_leave(cx, reporter);
            }
        }
        self.check_pace(cx);
        let notice = &self.packets.notice;
        // Nobody gets further than a pipe that gives nothing, and then not at once.
        let lately = self.grown_at.is_some_and(|at| cx.now.since(at) < self.give_up);
        self.held = !notice.begun
            || notice.announcement.growing
            || lately
            || self.members.active() > 0
                && self.members.hold_the_end(cx.now, self.give_up, &self.names);
        self.review(cx);
    }

    /// Defers the one who keeps all others below the floor.
    fn check_pace(&mut self, cx: &mut Cx<'_>) {
        let packets = &mut self.packets;
        let busy = packets.notice.begun && packets.has_work() && self.members.active() > 1;
        let limiting = self.session.control().gauges().representative;
        let slow = self.slow.who_is_too_slow(cx.now, packets.bytes, busy, limiting);
        if let Some(reporter) = slow
            && self.members.defer(reporter)
        {
            self.session.control_mut().on_leave(cx, reporter);
        }
        self.obey_limits(cx);
    }

    /// Sends no faster than the least that a served member asks for. Who asks for less than the floor is
    /// deferred.
    fn obey_limits(&mut self, cx: &mut Cx<'_>) {
        let mut least = self.members.least_limit();
        while let Some((limit, reporter)) = least
            && self.packets.notice.begun
            && self.slow.is_below(limit)
            && self.members.active() > 1
            && self.members.defer(reporter)
        {
            self.session.control_mut().on_leave(cx, reporter);
            least = self.members.least_limit();
        }
        self.obey(cx.now, least);
    }

    /// The least that a member asks for is this from now on.
    pub(super) fn obey(&mut self, now: Time, least: Option<(Bitrate, NodeId)>) {
        if least != self.limit {
            self.limit = least;
            let limit = least.map(|(limit, _)| limit);
            let binds = self.session.control_mut().set_limit(now, limit);
            self.limited_by = least.filter(|_| binds).map(|(_, reporter)| reporter);
        }
    }
}

/// How often the members, the digests and the pace are looked at.
const TICK: Duration = Duration::from_millis(100);
