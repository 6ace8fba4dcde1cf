//! Messages of a receiver to its source: joins, status and last messages, and their timers.

use alloc::string::String;

use faircast_base::{Cx, Duration, NodeId, Time};

use crate::object::wire::{Answer, Claim, LEAD_MAX, MemberMessage, Status};
use crate::pgm::session::dissent::Dissent;

/// First and longest interval between repetitions of a message.
const REPEAT_MIN: Duration = Duration::from_millis(500);
const REPEAT_MAX: Duration = Duration::from_secs(8);

/// Spread of first messages, since many receivers get the same packet of the source at once.
const JOIN_SPREAD: Duration = Duration::from_millis(50);

const LAST_WORDS_MAX: u32 = 10;

/// Packet threshold never reached: any host can send many answers, so only duration counts.
const BY_DURATION: u32 = u32::MAX;

const STATUS_ALONE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Membership {
    id: u64,
    reporter: NodeId,
    name: String,
    pub(crate) identity: Option<u64>,
    claim: Claim,
    reason: String,
    /// Number of the present claim, which grows with each change; 0 before the first message.
    number: u32,
    pub(crate) schedule: MessageSchedule,
    pub(crate) welcome: bool,
    /// True while the source serves other members first.
    pub(crate) deferred: bool,
    pub(crate) answers: u64,
    /// Time of the first message that the source gave this receiver up, unless contradicted since.
    pub(crate) stalled_answer_at: Option<Time>,
    refusals: Dissent<Status, BY_DURATION>,
}

#[derive(Debug, Default)]
pub(crate) struct MessageSchedule {
    is_answered: bool,
    repetitions: u32,
    pub(crate) next_at: Option<Time>,
    pub(crate) is_due: bool,
    interval: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Nothing,
    Recalled,
    Refused,
    Stalled,
    Noted,
    GivenUp,
}

impl Membership {
    pub(crate) fn new(id: u64, reporter: NodeId, name: String) -> Self {
        let schedule = MessageSchedule { interval: STATUS_ALONE, ..MessageSchedule::default() };
        Self { id, reporter, name, schedule, ..Self::default() }
    }

    pub(crate) fn join(&mut self, cx: &mut Cx<'_>) {
        self.change(cx, self.claim, JOIN_SPREAD);
        self.welcome = false;
    }

    pub(crate) fn join_once(&mut self, cx: &mut Cx<'_>) {
        if self.number == 0 {
            self.join(cx);
        }
    }

    pub(crate) fn claim(&mut self, cx: &mut Cx<'_>, claim: Claim, reason: String) {
        (self.claim, self.reason) = (claim, reason);
        // A longer interval means a larger group, in which more members report the same now.
        let spread = self.schedule.interval.saturating_sub(STATUS_ALONE) / 5;
        self.change(cx, claim, spread);
    }

    fn change(&mut self, cx: &mut Cx<'_>, claim: Claim, spread: Duration) {
        self.claim = claim;
        self.number = self.number.wrapping_add(1);
        (self.schedule.is_answered, self.schedule.repetitions) = (false, 0);
        self.schedule.next_at = Some(cx.now + cx.rng.up_to(spread));
    }

    pub(crate) fn set_interval(&mut self, interval: Duration) {
        self.schedule.interval = interval.clamp(STATUS_ALONE, INTERVAL_MAX);
    }

    pub(crate) fn shorten_interval(&mut self, cx: &mut Cx<'_>, interval: Duration) {
        self.set_interval(interval);
        let late = self.schedule.next_at.is_some_and(|at| at > cx.now + self.schedule.interval);
        if self.schedule.is_answered && late {
            self.plan_status(cx);
        }
    }

    fn is_last_word(&self) -> bool {
        matches!(self.claim, Claim::Done | Claim::Failed | Claim::Leaving)
    }

    pub(crate) fn take_answer(&mut self, cx: &mut Cx<'_>, answer: Answer) -> News {
        // Numbers wrap.
        let ahead = answer.number.wrapping_sub(self.number).cast_signed();
        // With a greater lead, the receiver's own number would be the old one.
        let absurd = self.number > 0 && ahead > LEAD_MAX;
        if answer.id != self.id || absurd {
            return News::Nothing;
        }
        self.answers += 1;
        if self.number > 0 && ahead > 0 {
            // Another host has sent a message in this receiver's name.
            self.number = answer.number;
            self.change(cx, self.claim, Duration::ZERO);
            return News::Nothing;
        }
        // Unsolicited answers have number 0.
        let current = ahead == 0;
        match answer.status {
            Status::Welcome | Status::Deferred if !self.is_last_word() => {
                let deferred = answer.status == Status::Deferred;
                let recalled = self.deferred && !deferred;
                (self.deferred, self.welcome) = (deferred, true);
                self.note_progress();
                if current && !self.schedule.is_answered {
                    self.schedule.is_answered = true;
                    self.plan_status(cx);
                }
                if recalled { News::Recalled } else { News::Nothing }
            }
            Status::Refused if !self.is_last_word() && !self.welcome => {
                self.doubt(cx, answer.status, current)
            }
            Status::GivenUp if self.claim != Claim::Done => News::GivenUp,
            Status::Stalled if !self.is_last_word() => self.doubt(cx, answer.status, current),
            Status::Done if self.claim == Claim::Done && current => self.finish(),
            Status::Gone if current && matches!(self.claim, Claim::Failed | Claim::Leaving) => {
                self.finish()
            }
            _ => News::Nothing,
        }
    }

    /// Doubts a final answer, which may be forged: asks, and believes it after 1 s of silence.
    fn doubt(&mut self, cx: &mut Cx<'_>, status: Status, current: bool) -> News {
        if status == Status::Stalled {
            self.stalled_answer_at.get_or_insert(cx.now);
        }
        if self.schedule.is_answered {
            self.change(cx, self.claim, Duration::ZERO);
            // Forged answers cause at most two messages a second.
            self.schedule.next_at = Some(cx.now + REPEAT_MIN);
            return News::Nothing;
        }
        let counts = current && self.schedule.repetitions > 0;
        let agrees = |before: &Status| *before == status;
        match counts && self.refusals.claim(cx.now, status, Duration::ZERO, agrees) {
            false => News::Nothing,
            true if status == Status::Stalled => News::Stalled,
            true => News::Refused,
        }
    }

    pub(crate) fn note_progress(&mut self) {
        self.stalled_answer_at = None;
        self.refusals.contradict();
    }

    /// Ends the repetition of the last message, and answers the confirmation once.
    fn finish(&mut self) -> News {
        self.schedule.next_at = None;
        self.schedule.is_due |= !self.schedule.is_answered;
        self.schedule.is_answered = true;
        News::Noted
    }

    /// Handles the end of the source: a pending last message is sent once more and not repeated.
    pub(crate) fn end(&mut self) {
        if self.awaits_note() {
            self.finish();
        }
    }

    fn plan_status(&mut self, cx: &mut Cx<'_>) {
        let half = self.schedule.interval / 2;
        self.schedule.next_at =
            Some(cx.now + self.schedule.interval - half / 2 + cx.rng.up_to(half));
    }

    /// Sends what is due. Returns true if the last message stays without an answer for good.
    pub(crate) fn on_timeout(&mut self, cx: &mut Cx<'_>) -> bool {
        if self.schedule.next_at.is_none_or(|at| at > cx.now) {
            return false;
        }
        if self.is_last_word() && self.schedule.repetitions >= LAST_WORDS_MAX {
            self.schedule.next_at = None;
            return true;
        }
        self.schedule.is_due = true;
        if self.schedule.is_answered {
            self.plan_status(cx);
        } else {
            // In a large group many answers are pending, so the wait grows with the group.
            let least = REPEAT_MIN.max(self.schedule.interval.saturating_sub(STATUS_ALONE) / 4);
            let wait = least * (1 << self.schedule.repetitions.min(4));
            let wait = wait.min(REPEAT_MAX.max(least));
            self.schedule.next_at = Some(cx.now + wait + cx.rng.up_to(wait / 4));
        }
        self.schedule.repetitions = self.schedule.repetitions.saturating_add(1);
        false
    }

    pub(crate) fn hurry(&mut self, cx: &mut Cx<'_>) {
        if self.is_last_word() && self.schedule.repetitions == 0 && self.schedule.next_at.is_some()
        {
            self.schedule.next_at = Some(cx.now);
            self.on_timeout(cx);
        }
    }

    /// Makes a message due, if the source still expects some.
    pub(crate) fn speak_soon(&mut self) {
        self.schedule.is_due |= self.welcome && !self.is_last_word();
    }

    /// Leaves the source, if it may know of this receiver.
    pub(crate) fn leave(&mut self, cx: &mut Cx<'_>) {
        if self.number > 0 {
            self.change(cx, Claim::Leaving, Duration::ZERO);
            (self.schedule.next_at, self.schedule.is_due) = (None, true);
        }
    }

    pub(crate) fn has_left(&self) -> bool {
        self.claim == Claim::Leaving && !self.schedule.is_due
    }

    pub(crate) fn awaits_note(&self) -> bool {
        self.is_last_word() && self.schedule.next_at.is_some()
    }

    /// Returns a due message with the `bytes` of content here and the share of lost packets.
    pub(crate) fn take_due(
        &mut self,
        bytes: u64,
        (packets, lost): (u64, u64),
    ) -> Option<MemberMessage> {
        let loss = lost.min(packets) as f64 / packets.max(1) as f64;
        core::mem::take(&mut self.schedule.is_due).then(|| MemberMessage {
            claim: self.claim,
            // A deferred receiver waits for the answer that it is served again.
            ask: !self.schedule.is_answered || self.deferred,
            loss: (loss * 65535.0 + 0.5) as u16,
            number: self.number,
            id: self.id,
            reporter: self.reporter,
            bytes,
            name: self.name.clone(),
            reason: self.reason.clone(),
            identity: self.identity,
        })
    }
}

const INTERVAL_MAX: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;
    use faircast_base::{Purpose, Rng};

    #[test]
    fn what_somebody_else_has_said_in_its_name_is_contradicted() {
        for (ahead, want) in [
            (38, 41),
            (LEAD_MAX as u32, LEAD_MAX as u32 + 3),
            (LEAD_MAX as u32 + 1, 2),
            (i32::MAX as u32 - 2, 2),
            (i32::MAX as u32, 2),
            (1 << 31, 2),
            (u32::MAX, 2),
        ] {
            let mut rng = Rng::new(1, NodeId(4), Purpose::Machine(0));
            let mut cx = Cx::untraced(Time::ZERO, &mut rng);
            let mut member = Membership::new(1, NodeId(4), String::new());
            member.join(&mut cx);
            member.claim(&mut cx, Claim::Receiving, String::new());
            let number = 2u32.wrapping_add(ahead);
            let forged = Answer { status: Status::Done, number, id: 1 };
            assert_eq!(member.take_answer(&mut cx, forged), News::Nothing);
            cx.now = member.schedule.next_at.expect("it speaks again");
            member.on_timeout(&mut cx);
            let message = member.take_due(10, (0, 0)).expect("it is due");
            assert_eq!((message.claim, message.number), (Claim::Receiving, want), "{ahead}");
        }
    }

    /// Returns the milliseconds until a receiver believes that it was given up, with forged answers
    /// every 100 ms, and its messages in a minute.
    fn stalled_after(
        status: Status,
        delay_ms: u64,
        forged: impl Fn(u64) -> bool,
        lost: impl Fn(u64) -> bool,
    ) -> (Option<u64>, usize) {
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let mut rng = Rng::new(1, NodeId(4), Purpose::Machine(0));
        let mut member = Membership::new(1, NodeId(4), String::new());
        let (mut answers, mut messages) = (alloc::collections::BTreeMap::new(), 0);
        for ms in 0..60_000 {
            let mut cx = Cx::untraced(at(ms), &mut rng);
            if ms == 0 {
                member.join(&mut cx);
                member.take_answer(&mut cx, Answer { status: Status::Welcome, number: 1, id: 1 });
            }
            if member.schedule.next_at.is_some_and(|due| due <= at(ms)) {
                member.on_timeout(&mut cx);
            }
            let message = member.take_due(10, (0, 0));
            messages += usize::from(message.is_some());
            if let Some(message) = message.filter(|it| it.ask && !lost(ms)) {
                answers.insert(ms + delay_ms, message.number);
            }
            let answer = answers.remove(&ms).map(|number| Answer { status, number, id: 1 });
            let forged = [0, member.number].map(|number| (ms % 100 == 0 && forged(ms), number));
            let forged = forged.into_iter().filter(|it| it.0);
            let forged = forged.map(|it| Answer { status: Status::Stalled, number: it.1, id: 1 });
            for answer in forged.chain(answer) {
                if member.take_answer(&mut cx, answer) == News::Stalled {
                    return (Some(ms), messages);
                }
            }
        }
        (None, messages)
    }

    #[test]
    fn it_believes_that_it_is_given_up_when_the_source_says_nothing_else_for_a_second() {
        let forever = |_| true;
        for delay_ms in [1, 50, 400] {
            let (after, messages) = stalled_after(Status::Welcome, delay_ms, forever, |_| false);
            assert_eq!(after, None, "{delay_ms} ms");
            assert!(messages < 180, "{messages} in a minute");
            // The source says so once unsolicited, and in answer to each message.
            let (after, _) = stalled_after(Status::Stalled, delay_ms, |ms| ms == 5000, |_| false);
            let after = after.expect("it is true") - 5000;
            assert!((1000..5000).contains(&after), "{after} ms");
        }
        let lost = |ms| (5000..5600).contains(&ms);
        assert_eq!(stalled_after(Status::Welcome, 50, |ms| ms >= 5000, lost).0, None);
        assert!(stalled_after(Status::Welcome, 50, forever, |_| true).0.is_some());
    }

    #[test]
    fn a_refusal_is_believed_after_a_second_and_a_welcome_voids_it() {
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        for (welcome_ms, want) in [(None, Some(1600)), (Some(900), None)] {
            let mut rng = Rng::new(1, NodeId(4), Purpose::Machine(0));
            let mut member = Membership::new(1, NodeId(4), String::new());
            let mut ended = None;
            for ms in (0..5000).step_by(100) {
                let mut cx = Cx::untraced(at(ms), &mut rng);
                if ms == 0 {
                    member.join(&mut cx);
                }
                if member.schedule.next_at.is_some_and(|due| due <= at(ms)) {
                    member.on_timeout(&mut cx);
                }
                let status = if welcome_ms == Some(ms) { Status::Welcome } else { Status::Refused };
                let answer = Answer { status, number: 1, id: 1 };
                if member.take_answer(&mut cx, answer) == News::Refused && ended.is_none() {
                    ended = Some(ms);
                }
            }
            assert_eq!(ended.is_some(), want.is_some(), "{ended:?}");
            assert!(ended.is_none_or(|ms| (1000..1600).contains(&ms)), "{ended:?}");
        }
    }

    #[test]
    fn who_is_closed_in_the_moment_in_which_it_is_done_says_so() {
        let mut rng = Rng::new(1, NodeId(4), Purpose::Machine(0));
        let mut cx = Cx::untraced(Time::ZERO, &mut rng);
        let mut member = Membership::new(1, NodeId(4), String::new());
        member.join(&mut cx);
        member.hurry(&mut cx);
        assert!(!member.schedule.is_due, "only the last message is sent at once");
        member.claim(&mut cx, Claim::Done, String::new());
        member.hurry(&mut cx);
        let message = member.take_due(10, (100, 1)).expect("it is due");
        assert_eq!((message.claim, message.ask), (Claim::Done, true));
        assert!(member.schedule.next_at.is_some(), "and repeated until it is answered");
        member.hurry(&mut cx);
        assert!(!member.schedule.is_due, "but not each time");
    }
}
