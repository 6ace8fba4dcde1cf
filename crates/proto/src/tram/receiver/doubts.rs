//! Claims that a receiver does not believe at once: any host can forge them. A claim that ends,
//! removes or loses something is believed if packets repeat it and none contradicts. The head is
//! asked meanwhile, if the claim came in its name.

use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Time};

use super::forgotten::Forgotten;
use super::{Kept, Phase, Timer, TramReceiver};
use crate::pgm::session::dissent::Dissent;
use crate::tram::wire::Front;

/// Longest time by which an old packet is overtaken: later packets contradict.
const OVERTAKEN_MAX: Duration = Duration::from_millis(100);

/// Silence after which an end is believed: of a stream, and of an object, which waits anyway.
const END_QUIET: Duration = Duration::from_millis(500);
const END_QUIET_KEPT: Duration = Duration::from_secs(3);

/// Resignations in a row that are believed: the head still serves during the search.
const RESIGNATIONS: u32 = 2;

/// Longest time in which the head answers a question; a rejection is believed after it.
const ANSWER_MAX: Duration = Duration::from_millis(1500);

#[derive(Debug, Default)]
pub(super) struct Doubts {
    end: Option<(u64, Time)>,
    pub(super) prune: Dissent<()>,
    pub(super) forgotten: Forgotten,
    /// Rejection by the head; true if all such packets say that this receiver was pruned.
    pub(super) rejected: Dissent<bool>,
    pub(super) rejected_at: Option<Time>,
    pub(super) level: Dissent<()>,
    pub(super) resigns: Dissent<(), RESIGNATIONS>,
    pub(super) beyond: Dissent<u64>,
    pub(super) start: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) agreed: Option<Vec<u8>>,
    pub(super) other: Dissent<Vec<u8>>,
    pub(super) mismatch: Dissent<()>,
}

impl TramReceiver {
    /// Notes a claim of the source or the head that `last` is the last packet.
    pub(super) fn doubt_end(&mut self, now: Time, last: u64) {
        let known = self.last == Some(last) || self.doubts.end.is_some_and(|end| end.0 == last);
        if known || self.phase != Phase::Member {
            return;
        }
        let quiet = if self.kept == Kept::Not { END_QUIET } else { END_QUIET_KEPT };
        self.doubts.end = Some((last, now));
        self.timers.arm(Timer::End, now + quiet);
        // A head that is the source confirms or denies the end in its hello.
        self.hello_missing = true;
    }

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

    pub(super) fn deny_end(&mut self) {
        self.doubts.end = None;
        self.timers.disarm(Timer::End);
    }

    pub(super) fn believe_end(&mut self, cx: &mut Cx<'_>) {
        let Some((last, _)) = self.doubts.end.take() else { return };
        let Some(reached) = &mut self.reached else { return };
        if reached.deliver <= last + 1 {
            // The source never claimed these later packets: they were forged.
            reached.reception.rewind(last);
            self.head.cache.rewind(last + 1);
        }
        if reached.reception.end == last + 1 {
            self.last = Some(last);
            self.timers.arm_by(Timer::Silence, self.silent_until());
        }
        self.after_progress(cx);
    }

    /// Handles the head's message that no packet follows `high`: later packets were forged.
    pub(super) fn doubt_beyond(&mut self, cx: &mut Cx<'_>, high: u64) {
        let Some(reached) = &self.reached else { return };
        if self.phase != Phase::Member
            || high + 1 >= reached.reception.end
            || !reached.reception.lacks()
        {
            self.doubts.beyond.contradict();
        } else if self.doubts.beyond.claim(cx.now, high, Duration::ZERO, |_| true) {
            self.go_back(cx, high);
        }
    }

    pub(super) fn check_rejection(&mut self, cx: &mut Cx<'_>) {
        let Some(since) = self.doubts.rejected_at else { return };
        if cx.now.since(since) < ANSWER_MAX {
            self.ask_head();
            return;
        }
        self.doubts.rejected.contradict();
        self.doubts.rejected_at = None;
        if let Some(bound) = self.parent.bound {
            self.lose_head(cx, bound.node);
        }
    }

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
    fn beacons_alone_do_not_make_a_receiver_of_an_object_give_packets_up() {
        let options = Options::default();
        let mut receiver = TramReceiver::new(&TramSetup::of(TSI, SOURCE, at(0), &options));
        let mut rng = Rng::new(1, NodeId(9), Purpose::Machine(0));
        let mut trace = NullTrace;
        let mut cx = Cx::new(at(0), &mut rng, &mut trace);
        receiver.handle_timeout(&mut cx);
        receiver.kept = Kept::Until;
        receiver.begin_at(&mut cx, 1);
        receiver.hear_of(&mut cx, 40, false);
        receiver.on_front(at(1000), Front { sequence: 1 << 40, ..Front::default() });
        receiver.give_up_backlog(&mut cx);
        let reached = receiver.reached.as_ref().expect("it has begun");
        assert_eq!((reached.reception.first_missing(), reached.deliver), (1, 1));
    }

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
            let mut cx = Cx::new(at(0), &mut rng, &mut trace);
            receiver.handle_timeout(&mut cx);
            receiver.begin_at(&mut cx, 1);
            receiver.hear_of(&mut cx, 40, false);
            for (ms, high) in says {
                cx.now = at(*ms);
                receiver.doubt_beyond(&mut cx, *high);
            }
            let reached = receiver.reached.as_ref().expect("it has begun");
            assert_eq!(reached.reception.end, want, "{says:?}");
        }
    }
}
