//! Affiliation of a receiver: answers and hellos of heads.

use faircast_base::{BadInput, Checked, Cx, Duration, Event, NodeId};

use super::claims::Claims;
use super::{LEVEL_MAX, Timer, TramReceiver};
use crate::FlowEvent;
use crate::tram::membership::{ParentChange, PreviousParent};
use crate::tram::settings::LateJoin;
use crate::tram::window::JUMP_MAX;
use crate::tram::wire::{Accept, BELOW_MAX, Departed, Fate, Hello, RejectReason};

impl TramReceiver {
    pub(super) fn on_accept(
        &mut self,
        cx: &mut Cx<'_>,
        (from, id): (NodeId, u64),
        accept: Accept,
    ) -> Checked {
        let Accept { start, level } = accept;
        if !self.may_take_parent(cx, from, accept)? {
            return Ok(());
        }
        let change = self.affiliation.on_accept(cx.now, from, level);
        let ParentChange::Joined { previous } = change else { return Ok(()) };
        if previous.is_none() {
            // Losses without a head say nothing of the present rate: the session did not wait.
            self.next_ack.congested = false;
        }
        self.past_parents.latest_id = id;
        self.report_return(cx);
        let newest = self.window.as_ref().map(|window| window.reach.newest);
        if self.can_ask_otherwise() && newest.is_some_and(|newest| start <= newest + 1) {
            // Waiting for the old head, or for a confirmation of the new one, is not needed.
            self.give_up_before(cx, start);
        }
        self.begin_with_parent(cx, start, previous);
        cx.emit(Event::RepairHead { node: Some(from), level: u32::from(self.level()) });
        self.next_ack.due = true;
        let (last, done) = (self.session.state.sequence, self.session.state.done);
        if let Some(window) = &mut self.window {
            window.reception.extend_to(cx.now, last, (false, None));
            if let Some(range) = window.reception.find_lost(cx.now) {
                for run in window.reception.missing_within(range) {
                    self.losses.missing(run, |event| cx.emit(event));
                }
            }
        }
        if done {
            self.on_end_claimed(cx.now, last);
        }
        self.after_progress(cx);
        self.arm_ack(cx.now);
        Ok(())
    }

    /// Returns true if the head that accepts may become the parent; else that head is left. Fails
    /// if the answer cannot be true.
    fn may_take_parent(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        Accept { start, level }: Accept,
    ) -> Checked<bool> {
        if level == 0 || level >= LEVEL_MAX {
            return Err(BadInput::Malformed);
        }
        let end = match &self.window {
            Some(window) => window.reception.end,
            None => self.session.state.sequence + 1,
        };
        if start > end + JUMP_MAX {
            return Err(BadInput::Absurd);
        }
        // Levels may have changed since the advertisement, and wanted packets may be gone.
        let seeker = self.seeker(cx.now);
        let has_all = from == self.session.source && self.settings.late_join == LateJoin::Full;
        if has_all && start > seeker.first_missing {
            // Another host has requested that start in this receiver's name.
            return Err(BadInput::Absurd);
        }
        let lacks = self.affiliation.lacks(from, start, seeker);
        if !lacks && seeker.level_with_members.is_none_or(|own| level < own) {
            return Ok(true);
        }
        self.past_parents.say_goodbye(from);
        if lacks {
            self.affiliation.drop_assigned();
        }
        let change = self.affiliation.on_reject(cx.now, from, seeker);
        self.on_parent_change(cx, change);
        Ok(false)
    }

    fn begin_with_parent(&mut self, cx: &mut Cx<'_>, start: u64, previous: Option<NodeId>) {
        let Some(window) = &mut self.window else { return self.begin_at(cx, start) };
        window.requests.on_new_parent();
        let lacks = window.first_missing() < start;
        match previous {
            Some(node) if lacks => {
                self.past_parents.previous = Some(PreviousParent { node, until: start });
            }
            Some(node) => self.past_parents.say_goodbye(node),
            // The new head must confirm its start before packets are given up.
            None if lacks => {
                self.claims.start = Some(start);
                self.next_ack.hello_missing = true;
            }
            None => {}
        }
        self.head.resign(false);
    }

    /// Reports the return of a receiver that a former parent may count as lost.
    fn report_return(&mut self, cx: &mut Cx<'_>) {
        self.head.members.departures.report_again();
        if let Some((came_from, since)) = self.past_parents.lost.take() {
            let (id, joins, fate) = (self.identity.id(cx), self.past_parents.joins, Fate::Back);
            let members = &mut self.head.members;
            // Receivers that moved here meanwhile report for themselves.
            let below = members.below_since(since).min(BELOW_MAX);
            let itself = Departed { id, node: None, fate, joins, below, came_from };
            members.departures.record(itself);
            self.head.ask_silent();
        }
        self.past_parents.joins = self.past_parents.joins.saturating_add(1);
    }

    pub(super) fn on_reject(&mut self, cx: &mut Cx<'_>, from: NodeId, reason: RejectReason) {
        let is_parent = self.affiliation.parent.is_some_and(|parent| parent.node == from);
        let mut pruned = reason == RejectReason::Pruned;
        if is_parent && !self.affiliation.is_binding_to(from) {
            // Any host can forge a rejection, so the head is asked to confirm it.
            let Some(believed) = self.claims.rejection.claim(cx.now, pruned) else {
                self.next_ack.hello_missing = true;
                return;
            };
            pruned = believed;
        }
        if is_parent && pruned {
            // A pruned receiver gets no more reliability (src: tram s3.6, note 10).
            self.affiliation.on_pruned();
            cx.emit(Event::RepairHead { node: None, level: 0 });
            self.events.push_back(FlowEvent::Gone.into());
            self.is_closing = true;
            self.check_end(cx);
            return;
        }
        self.lose_parent(cx, from);
        if self.window.is_some() && self.past_parents.drop_previous(from) {
            // The new parent lacks packets that only the previous one had.
            let seeker = self.seeker(cx.now);
            let change = self.affiliation.on_head_failure(cx.now, seeker, false);
            self.on_parent_change(cx, change);
        }
    }

    pub(super) fn lose_parent(&mut self, cx: &mut Cx<'_>, from: NodeId) {
        let seeker = self.seeker(cx.now);
        let change = self.affiliation.on_reject(cx.now, from, seeker);
        self.on_parent_change(cx, change);
        if change == ParentChange::Lost {
            // That head knows that this receiver is no member, and does not count it.
            self.past_parents.lost = Some((0, cx.now));
        }
    }

    pub(super) fn on_parent_change(&mut self, cx: &mut Cx<'_>, change: ParentChange) {
        if change == ParentChange::Lost {
            let (id, lost_at) = (self.past_parents.latest_id, self.affiliation.lost_at);
            self.past_parents.lost = Some((id, lost_at));
            self.timers.arm_by(Timer::SourceSilence, self.silent_until());
            cx.emit(Event::RepairHead { node: None, level: 0 });
        }
    }

    pub(super) fn on_hello(&mut self, cx: &mut Cx<'_>, from: NodeId, hello: &Hello<'_>) {
        self.affiliation.on_packet(cx.now, from, Some(hello.level));
        let is_parent = self.affiliation.parent.is_some_and(|parent| parent.node == from);
        if !is_parent && !self.past_parents.is_previous(from) {
            // This head still counts the receiver as a member, and would report it as lost.
            if hello.asks(self.identity.id(cx)) && !self.affiliation.involves(from) {
                self.past_parents.say_goodbye_once(from);
            }
            return;
        }
        self.next_ack.hello_missing = false;
        self.next_ack.due |= hello.asks(self.identity.id(cx));
        let is_source = from == self.session.source;
        if is_parent {
            self.claims.rejection.contradict();
            self.check_parent(cx, hello);
            if is_source && !self.session.state.done {
                self.on_highest_claimed(cx, hello.high);
            }
        }
        let (high, done) = (hello.high, hello.done);
        if !done && hello.level == 1 && is_source {
            self.deny_end();
        }
        if let Some(window) = &mut self.window
            && window.reach.can_lead(cx.now, high)
        {
            self.on_highest_sent(cx, high, done);
        }
    }

    /// Looks for another head if the parent resigns, is in a loop, or lacks what it promised.
    fn check_parent(&mut self, cx: &mut Cx<'_>, hello: &Hello<'_>) {
        // No tree is that deep: the path is a loop.
        let loops = hello.level >= LEVEL_MAX;
        let (now, Claims { loop_level, resignation, .. }) = (cx.now, &mut self.claims);
        if !loops {
            loop_level.contradict();
        }
        if !hello.resigns {
            resignation.contradict();
        }
        let leaves = loops && loop_level.claim(now, (), Duration::ZERO, |()| true);
        let looks = hello.resigns && resignation.claim(now, (), Duration::ZERO, |()| true);
        if leaves || looks {
            let seeker = self.seeker(now);
            let change = self.affiliation.on_head_failure(now, seeker, leaves);
            self.on_parent_change(cx, change);
        } else if loops || hello.resigns {
            self.next_ack.hello_missing = true;
        }
        if let Some(start) = self.claims.start.take()
            && self.window.as_ref().is_some_and(|window| hello.low > window.first_missing())
        {
            self.give_up_before(cx, start.min(hello.low));
        }
    }
}
