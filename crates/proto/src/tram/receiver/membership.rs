//! Membership of a receiver: answers and hellos of heads.

use faircast_base::{BadInput, Checked, Cx, Duration, Event, NodeId};

use super::doubts::Doubts;
use super::{LEVEL_MAX, Reached, Timer, TramReceiver};
use crate::FlowEvent;
use crate::tram::parent::News;
use crate::tram::reception::JUMP_MAX;
use crate::tram::settings::LateJoin;
use crate::tram::wire::Fate;
use crate::tram::wire::{Accept, BELOW_MAX, Departed, Hello, RejectReason};

impl TramReceiver {
    pub(super) fn on_accept(
        &mut self,
        cx: &mut Cx<'_>,
        (from, number): (NodeId, u64),
        accept: Accept,
    ) -> Checked {
        if accept.level == 0 || accept.level >= LEVEL_MAX {
            return Err(BadInput::Malformed);
        }
        let end = match &self.reached {
            Some(reached) => reached.reception.end,
            None => self.front.sequence + 1,
        };
        if accept.start > end + JUMP_MAX {
            return Err(BadInput::Absurd);
        }
        // Levels may have changed since the advertisement, and wanted packets may be gone.
        let seeker = self.seeker(cx.now);
        let has_all = from == self.source && self.settings.late_join == LateJoin::Full;
        if has_all && accept.start > seeker.wants {
            // Another host has requested that start in this receiver's name.
            return Err(BadInput::Absurd);
        }
        let lacks = self.parent.lacks(from, accept.start, seeker);
        if lacks || seeker.below.is_some_and(|own| accept.level >= own) {
            self.goodbyes.push_back(from);
            if lacks {
                self.parent.on_lacking();
            }
            let news = self.parent.on_reject(cx.now, from, seeker);
            self.on_news(cx, news);
            return Ok(());
        }
        let joined = self.parent.on_accept(cx.now, from, accept.level);
        let News::Joined { before } = joined else { return Ok(()) };
        if before.is_none() {
            // Losses without a head say nothing of the present rate: the session did not wait.
            self.congested = false;
        }
        self.head_number = number;
        self.come_back(cx);
        let Accept { start, .. } = accept;
        let newest = self.reached.as_ref().map(|reached| reached.reach.newest);
        if self.can_ask_otherwise() && newest.is_some_and(|newest| start <= newest + 1) {
            // Waiting for the old head, or for a confirmation of the new one, is not needed.
            self.give_up_before(cx, start);
        }
        match &mut self.reached {
            None => self.begin_at(cx, start),
            Some(reached) => {
                reached.fruitless = 0;
                let lacks = reached.reception.first_missing() < start;
                match before {
                    Some(before) if lacks => reached.before = Some((before, start)),
                    Some(before) => self.goodbyes.push_back(before),
                    // The new head must confirm its start before packets are given up.
                    None if lacks => {
                        self.doubts.start = Some(start);
                        self.ask_head();
                    }
                    None => {}
                }
                self.head.resign(false);
            }
        }
        cx.emit(Event::RepairHead { node: Some(from), level: u32::from(self.level()) });
        self.ack_due = true;
        let (last, done) = (self.front.sequence, self.front.done);
        if let Some(reached) = &mut self.reached {
            reached.reception.hear_of(cx.now, last, (false, None));
            if let Some(range) = reached.reception.find_lost(cx.now) {
                for run in reached.reception.missing_within(range) {
                    self.losses.missing(run, |event| cx.emit(event));
                }
            }
        }
        if done {
            self.doubt_end(cx.now, last);
        }
        self.after_progress(cx);
        self.arm_ack(cx.now);
        Ok(())
    }

    fn come_back(&mut self, cx: &mut Cx<'_>) {
        self.head.members.departures.tell_again();
        if let Some((came_from, since)) = self.missed.take() {
            let (id, joins, fate) = (self.identity.id(cx), self.joins, Fate::Back);
            let members = &mut self.head.members;
            // Receivers that moved here meanwhile report for themselves.
            let below = members.below_since(since).min(BELOW_MAX);
            let itself = Departed { id, node: None, fate, joins, below, came_from };
            members.departures.note(itself);
            self.head.ask_silent();
        }
        self.joins = self.joins.saturating_add(1);
    }

    pub(super) fn on_reject(&mut self, cx: &mut Cx<'_>, from: NodeId, reason: RejectReason) {
        let was_bound = self.parent.bound.is_some_and(|bound| bound.node == from);
        let mut pruned = reason == RejectReason::Pruned;
        if was_bound && !self.parent.is_asking(from) {
            // Any host can forge a rejection, so the head is asked to confirm it.
            pruned &= self.doubts.rejected.get().copied().unwrap_or(true);
            if !self.doubts.rejected.claim(cx.now, pruned, Duration::ZERO, |_| true) {
                self.doubts.rejected_at.get_or_insert(cx.now);
                self.ask_head();
                return;
            }
            self.doubts.rejected_at = None;
        }
        if was_bound && pruned {
            // A pruned receiver gets no more reliability (src: tram s3.6, note 10).
            self.pruned = true;
            self.parent.stop();
            cx.emit(Event::RepairHead { node: None, level: 0 });
            self.events.push_back(FlowEvent::Gone.into());
            self.closing = true;
            self.check_end(cx);
            return;
        }
        self.lose_head(cx, from);
        if let Some(reached) = &mut self.reached
            && reached.before.take_if(|before| before.0 == from).is_some()
        {
            self.give_up_where_nobody_has_it(cx);
        }
    }

    pub(super) fn lose_head(&mut self, cx: &mut Cx<'_>, from: NodeId) {
        let seeker = self.seeker(cx.now);
        let news = self.parent.on_reject(cx.now, from, seeker);
        self.on_news(cx, news);
        if news == News::Lost {
            // That head knows that this receiver is no member, and does not count it.
            self.missed = Some((0, cx.now));
        }
    }

    pub(super) fn give_up_where_nobody_has_it(&mut self, cx: &mut Cx<'_>) {
        let seeker = self.seeker(cx.now);
        let news = self.parent.on_bad_head(cx.now, seeker, false);
        self.on_news(cx, news);
    }

    pub(super) fn on_news(&mut self, cx: &mut Cx<'_>, news: News) {
        if news != News::Lost {
            return;
        }
        self.missed = Some((self.head_number, self.parent.lost_at));
        self.timers.arm_by(Timer::Silence, self.silent_until());
        cx.emit(Event::RepairHead { node: None, level: 0 });
    }

    pub(super) fn on_hello(&mut self, cx: &mut Cx<'_>, from: NodeId, hello: &Hello<'_>) {
        self.parent.on_heard(cx.now, from, Some(hello.level));
        let bound = self.parent.bound.filter(|bound| bound.node == from);
        let old = self.reached.as_ref().and_then(|it| it.before).filter(|before| before.0 == from);
        if bound.is_none() && old.is_none() {
            // This head still counts the receiver as a member, and would report it as lost.
            let asks = hello.asks(self.identity.id(cx)) && !self.parent.concerns(from);
            if asks && !self.goodbyes.contains(&from) {
                self.goodbyes.push_back(from);
            }
            return;
        }
        self.hello_missing = false;
        self.ack_due |= hello.asks(self.identity.id(cx));
        if bound.is_some() {
            self.doubts.rejected.contradict();
            self.doubts.rejected_at = None;
            self.doubt_head(cx, hello);
            if from == self.source && !self.front.done {
                self.doubt_beyond(cx, hello.high);
            }
        }
        let (high, done) = (hello.high, hello.done);
        if !done && hello.level == 1 && from == self.source {
            self.deny_end();
        }
        if let Some(reached) = &mut self.reached
            && reached.reach.can_lead(cx.now, high)
        {
            self.hear_of(cx, high, done);
        }
    }

    fn doubt_head(&mut self, cx: &mut Cx<'_>, hello: &Hello<'_>) {
        // No tree is that deep: the path is a loop.
        let loops = hello.level >= LEVEL_MAX;
        let (now, Doubts { level, resigns, .. }) = (cx.now, &mut self.doubts);
        if !loops {
            level.contradict();
        }
        if !hello.resigns {
            resigns.contradict();
        }
        let leaves = loops && level.claim(now, (), Duration::ZERO, |()| true);
        let looks = hello.resigns && resigns.claim(now, (), Duration::ZERO, |()| true);
        if leaves || looks {
            let seeker = self.seeker(now);
            let news = self.parent.on_bad_head(now, seeker, leaves);
            self.on_news(cx, news);
        } else if loops || hello.resigns {
            self.ask_head();
        }
        let lacks = |it: &Reached| hello.low > it.reception.first_missing();
        if let Some(start) = self.doubts.start.take()
            && self.reached.as_ref().is_some_and(lacks)
        {
            self.give_up_before(cx, start.min(hello.low));
        }
    }
}
