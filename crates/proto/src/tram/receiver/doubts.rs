//! Claims that a receiver does not believe at once: any host can make them in the name of the source or of its head.
//!
//! A claim that ends, removes or loses something is believed if packets repeat it and none contradicts. Meanwhile the
//! receiver asks its head, if the claim was made in the head's name.

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

#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// The last packet of all, and since when nothing has contradicted that.
    end: Option<(u64, Time)>,
    /// Members are to be removed.
    pub(super) prune: Dissent<()>,
    /// Packets that the source repairs no more, if it forgets any.
    pub(super) forgotten: Forgotten,
    /// The head rejects this receiver; true if all such packets say that it was removed.
    pub(super) rejected: Dissent<bool>,
    /// Time of the first rejection without an answer of the head since.
    pub(super) rejected_at: Option<Time>,
    /// The head is below this receiver, or gives it up.
    pub(super) level: Dissent<()>,
    pub(super) resigns: Dissent<(), RESIGNATIONS>,
    /// The head knows of no packet after this one.
    pub(super) beyond: Dissent<u64>,
    /// The new head has nothing before this packet.
    pub(super) start: Option<u64>,
}

/// Settings in messages of the source, against the agreed ones.
#[derive(Debug, Default)]
pub(super) struct Told {
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

    pub(super) fn believe_end(&mut self, cx: &mut Cx<'_>) {
        let Some((last, _)) = self.doubts.end.take() else { return };
        let Some(reached) = &mut self.reached else { return };
        if reached.deliver <= last + 1 {
            // The source has not sent the claims about later packets.
            reached.reception.rewind(last);
            self.head.cache.rewind(last + 1);
        }
        if reached.reception.end == last + 1 {
            self.last = Some(last);
            self.timers.arm_by(Timer::Silence, self.silent_until());
        }
        self.after_progress(cx);
    }

    /// Handles a message of the head that no packet follows `high`. If this receiver knows of later packets and no
    /// data shows them, they were forged, and no head can repair them.
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

    /// Leaves a head that has rejected this receiver and answers nothing else.
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

    /// Asks the head if it is there for this receiver, since a claim in its name is doubted.
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
        // The front is believed, and the receiver looks for a head.
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
