//! Claims that a receiver does not believe at once: anybody can make them in the name of the source or of its head.
//!
//! What ends, removes or loses something is believed where packets go on saying so and none says otherwise. Meanwhile
//! the one in whose name it was said is asked, where that is its head.

use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Time};

use super::forgotten::Forgotten;
use super::{Kept, Phase, Timer, TramReceiver};
use crate::pgm::session::dissent::Dissent;
use crate::tram::wire::Front;

/// Longest time by which an old packet is overtaken: what comes later contradicts.
const OVERTAKEN_MAX: Duration = Duration::from_millis(100);

/// Silence after which an end is believed: of a stream, and of an object, which waits for its source anyway.
const END_QUIET: Duration = Duration::from_millis(500);
const END_QUIET_KEPT: Duration = Duration::from_secs(3);

/// Resignations in a row that are believed: another head is looked for, and this one serves on meanwhile.
const RESIGNATIONS: u32 = 2;

/// Time in which a head that was asked shows that it is there for this receiver. A rejection is believed after it.
const ANSWER_MAX: Duration = Duration::from_millis(1500);

/// What packets say against what is believed.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// The last packet of all, and since when nothing has contradicted that.
    end: Option<(u64, Time)>,
    /// Members are to be removed.
    pub(super) prune: Dissent<()>,
    /// The packets that the source repairs no more, where it forgets any.
    pub(super) forgotten: Forgotten,
    /// Its head does not have it; whether all say that it was removed.
    pub(super) rejected: Dissent<bool>,
    /// Since when, without an answer of its head.
    pub(super) rejected_at: Option<Time>,
    /// Its head is below it, or gives it up.
    pub(super) level: Dissent<()>,
    pub(super) resigns: Dissent<(), RESIGNATIONS>,
    /// Its head knows of no packet after this one.
    pub(super) beyond: Dissent<u64>,
    /// The new head has nothing before this packet.
    pub(super) start: Option<u64>,
}

/// What the source tells of its settings, against what was agreed on.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// What was agreed on.
    pub(super) agreed: Option<Vec<u8>>,
    pub(super) other: Dissent<Vec<u8>>,
    pub(super) mismatch: Dissent<()>,
}

impl TramReceiver {
    /// The source, or its head, says that `last` is the last packet of all.
    pub(super) fn doubt_end(&mut self, now: Time, last: u64) {
        let known = self.last == Some(last) || self.doubts.end.is_some_and(|end| end.0 == last);
        if known || self.phase != Phase::Member {
            return;
        }
        let quiet = if self.kept == Kept::Not { END_QUIET } else { END_QUIET_KEPT };
        self.doubts.end = Some((last, now));
        self.timers.arm(Timer::End, now + quiet);
        // A head that is the source knows.
        self.hello_missing = true;
    }

    /// The source goes on, as this says of it.
    pub(super) fn contradict_end(&mut self, now: Time, front: Front) {
        let Front { sequence, done, .. } = front;
        let goes_on = |(last, since)| sequence > last || !done && now.since(since) >= OVERTAKEN_MAX;
        if self.doubts.end.is_some_and(goes_on) {
            self.deny_end();
        }
        if self.phase == Phase::Member && self.last.is_some_and(|last| sequence > last) {
            self.last = None;
        }
    }

    /// The source itself says that there is more to come.
    pub(super) fn deny_end(&mut self) {
        self.doubts.end = None;
        self.timers.disarm(Timer::End);
    }

    /// Nothing has contradicted the end.
    pub(super) fn believe_end(&mut self, cx: &mut Cx<'_>) {
        let Some((last, _)) = self.doubts.end.take() else { return };
        let Some(reached) = &mut self.reached else { return };
        if reached.deliver <= last + 1 {
            // What was said of later packets was not said by the source.
            reached.reception.rewind(last);
            self.head.cache.rewind(last + 1);
        }
        if reached.reception.end() == last + 1 {
            self.last = Some(last);
            self.timers.arm_by(Timer::Silence, self.silent_until());
        }
        self.after_progress(cx);
    }

    /// Its head knows of no packet after `high`. Where this receiver does, and no data comes that shows it, somebody
    /// else has told of those: nobody can repair them.
    pub(super) fn doubt_beyond(&mut self, cx: &mut Cx<'_>, high: u64) {
        let Some(reached) = &self.reached else { return };
        if self.phase != Phase::Member
            || high + 1 >= reached.reception.end()
            || !reached.reception.lacks()
        {
            self.doubts.beyond.contradict();
        } else if self.doubts.beyond.claim(cx.now, high, Duration::ZERO, |_| true) {
            self.go_back(cx, high);
        }
    }

    /// Its head has said that this receiver is no member, and answers nothing else: another is looked for.
    pub(super) fn check_rejection(&mut self, cx: &mut Cx<'_>) {
        let Some(since) = self.doubts.rejected_at else { return };
        if cx.now.since(since) < ANSWER_MAX {
            self.ask_head();
            return;
        }
        self.doubts.rejected.contradict();
        self.doubts.rejected_at = None;
        if let Some(bound) = self.parent.bound() {
            self.lose_head(cx, bound.node);
        }
    }

    /// Its head says something that is not believed at once, and is asked whether it is there for this receiver.
    pub(super) fn ask_head(&mut self) {
        self.hello_missing = true;
    }
}

#[cfg(test)]
mod tests {
    use faircast_base::{NodeId, NullTrace, Purpose, Rng};

    use super::*;
    use crate::Machine;
    use crate::options::Options;
    use crate::tram::TramSetup;
    use crate::world::{SOURCE, TSI, at};

    #[test]
    fn packets_of_which_only_forged_ones_told_are_void_once_its_head_says_so_for_a_second() {
        for (says, want) in [
            (&[(0, 20), (600, 20), (1200, 20)][..], 21),
            (&[(0, 20), (300, 20), (600, 20)], 41),
            (&[(0, 20), (600, 40), (1200, 20)], 41),
            (&[(0, 20), (600, 21), (1200, 22)], 23),
        ] {
            let options = Options::default();
            let mut receiver = TramReceiver::new(&TramSetup::of(TSI, SOURCE, at(0), &options));
            let mut rng = Rng::new(1, NodeId(9), Purpose::Machine(0));
            let mut trace = NullTrace;
            let mut cx = Cx { now: at(0), rng: &mut rng, trace: &mut trace };
            receiver.handle_timeout(&mut cx);
            receiver.begin_at(&mut cx, 1);
            receiver.hear_of(&mut cx, 40, false);
            for (ms, high) in says {
                cx.now = at(*ms);
                receiver.doubt_beyond(&mut cx, *high);
            }
            let reached = receiver.reached.as_ref().expect("it has begun");
            assert_eq!(reached.reception.end(), want, "{says:?}");
        }
    }
}
