//! Affiliation of a receiver: answers and hellos of heads.

use alloc::collections::VecDeque;

use faircast_base::{BadInput, Checked, Cx, Duration, Event, NodeId, Time};

use super::claims::Claims;
use super::{LEVEL_MAX, Timer, TramReceiver};
use crate::FlowEvent;
use crate::tram::membership::ParentChange;
use crate::tram::settings::LateJoin;
use crate::tram::window::JUMP_MAX;
use crate::tram::wire::{Accept, BELOW_MAX, Departed, Fate, Hello, RejectReason};

#[derive(Debug, Default)]
pub(super) struct PastParents {
    /// Number of the present or latest parent, and the level of the receiver below it.
    pub(super) latest_id: u64,
    pub(super) latest_level: u8,
    pub(super) joins: u16,
    /// Head that may count this receiver as lost, else 0, and the time of its last packet.
    pub(super) lost: Option<(u64, Time)>,
    /// Previous parent, and the end of the packets that it still repairs.
    pub(super) previous: Option<(NodeId, u64)>,
    pub(super) goodbyes: VecDeque<NodeId>,
}

impl TramReceiver {
    /// True for the parent, and a head that was asked to be.
    pub(super) fn is_head(&self, node: NodeId) -> bool {
        self.affiliation.is_parent(node) || self.affiliation.binds_to() == Some(node)
    }

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
                for run in window.reception.missing.within(range) {
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

    /// Returns true if the head may become the parent; else that head is left.
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
        self.past_parents.goodbyes.push_back(from);
        if lacks {
            self.affiliation.assigned = None;
        }
        let change = self.affiliation.on_reject(cx.now, from, seeker);
        self.on_parent_change(cx, change);
        Ok(false)
    }

    fn begin_with_parent(&mut self, cx: &mut Cx<'_>, start: u64, previous: Option<NodeId>) {
        let Some(window) = &mut self.window else { return self.begin_at(cx, start) };
        window.requests.unrepaired_intervals = 0;
        let lacks = window.reception.first_missing() < start;
        match previous {
            Some(node) if lacks => {
                self.past_parents.previous = Some((node, start));
            }
            Some(node) => self.past_parents.goodbyes.push_back(node),
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
            // Members that fell silent may be there: this head itself may have been cut off.
            let silent = members.departures.silent().collect();
            self.head.ask(silent);
        }
        self.past_parents.joins = self.past_parents.joins.saturating_add(1);
    }

    pub(super) fn on_reject(&mut self, cx: &mut Cx<'_>, from: NodeId, reason: RejectReason) {
        let is_parent = self.affiliation.is_parent(from);
        let mut pruned = reason == RejectReason::Pruned;
        if is_parent && self.affiliation.binds_to() != Some(from) {
            // Any host can forge a rejection, so the head is asked to confirm it.
            let Claims { rejection, rejected_at, .. } = &mut self.claims;
            pruned &= rejection.get().copied().unwrap_or(true);
            if !rejection.claim(cx.now, pruned, Duration::ZERO, |_| true) {
                rejected_at.get_or_insert(cx.now);
                self.next_ack.hello_missing = true;
                return;
            }
            *rejected_at = None;
        }
        if is_parent && pruned {
            // A pruned receiver gets no more reliability (src: tram s3.6, note 10).
            self.affiliation.is_pruned = true;
            self.affiliation.stop();
            cx.emit(Event::RepairHead { node: None, level: 0 });
            self.events.push_back(FlowEvent::Gone.into());
            self.is_closing = true;
            self.check_end(cx);
            return;
        }
        self.lose_parent(cx, from);
        let previous = &mut self.past_parents.previous;
        if self.window.is_some() && previous.take_if(|(node, _)| *node == from).is_some() {
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
        let is_parent = self.affiliation.is_parent(from);
        let is_previous = self.past_parents.previous.is_some_and(|(node, _)| node == from);
        if !is_parent && !is_previous {
            // This head still counts the receiver as a member, and would report it as lost.
            let goodbyes = &self.past_parents.goodbyes;
            let is_new = !goodbyes.contains(&from) && !self.is_head(from);
            if hello.asks(self.identity.id(cx)) && is_new {
                self.past_parents.goodbyes.push_back(from);
            }
            return;
        }
        self.next_ack.hello_missing = false;
        self.next_ack.due |= hello.asks(self.identity.id(cx));
        let is_source = from == self.session.source;
        if is_parent {
            (self.claims.rejection, self.claims.rejected_at) = Default::default();
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
            && self
                .window
                .as_ref()
                .is_some_and(|window| hello.low > window.reception.first_missing())
        {
            self.give_up_before(cx, start.min(hello.low));
        }
    }
}
