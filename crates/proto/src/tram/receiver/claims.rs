//! Claims that a receiver does not believe at once: any host can forge them. A claim that ends,
//! removes or loses something is believed if packets repeat it and none contradicts. The parent is
//! asked meanwhile, if the claim came in its name.

use faircast_base::{Cx, Duration, Time};

use super::{Phase, Timer, TramReceiver};
use crate::pgm::session::dissent::Dissent;
use crate::tram::window::ObsoleteLimit;
use crate::tram::wire::SourceState;

/// Silence after which an end is believed: of a stream, and of an object, which waits anyway.
const END_QUIET: Duration = Duration::from_millis(500);
const END_QUIET_RETAINED: Duration = Duration::from_secs(3);

/// Resignations in a row that are believed: the head still serves during the search.
const RESIGNATIONS: u32 = 2;

/// Longest time in which the head answers a question; a rejection is believed after it.
const ANSWER_MAX: Duration = Duration::from_millis(1500);

/// Unconfirmed claims of packets in the name of the source or of the parent.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Heads are to prune slow members.
    pub(super) prune: Dissent<()>,
    /// Packets before a limit are no longer repaired.
    pub(super) obsolete: ObsoleteLimit,
    pub(super) rejection: Rejection,
    /// The level of the parent is one of a loop.
    pub(super) loop_level: Dissent<()>,
    /// The parent resigns.
    pub(super) resignation: Dissent<(), RESIGNATIONS>,
    /// No packet was sent after this one.
    pub(super) highest: Dissent<u64>,
    /// A new parent repairs from this packet on.
    pub(super) start: Option<u64>,
}

/// Rejection by the parent.
#[derive(Debug, Default)]
pub(super) struct Rejection {
    /// Rejections; true if all of them say that this receiver was pruned.
    claim: Dissent<bool>,
    first_at: Option<Time>,
}

impl Rejection {
    pub(super) fn contradict(&mut self) {
        self.claim.contradict();
        self.first_at = None;
    }

    /// Takes a rejection. Returns its reason if it is believed: true if the receiver was pruned.
    pub(super) fn claim(&mut self, now: Time, pruned: bool) -> Option<bool> {
        let pruned = pruned && self.claim.get().copied().unwrap_or(true);
        if !self.claim.claim(now, pruned, Duration::ZERO, |_| true) {
            self.first_at.get_or_insert(now);
            return None;
        }
        self.first_at = None;
        Some(pruned)
    }
}

impl TramReceiver {
    /// Takes a claim of the source or the parent that `last` is the last packet.
    pub(super) fn on_end_claimed(&mut self, now: Time, last: u64) {
        if self.session.has_claimed_end(last) || self.phase != Phase::Member {
            return;
        }
        let quiet = if self.delivery.is_retained() { END_QUIET_RETAINED } else { END_QUIET };
        self.session.claim_end(now, last);
        self.timers.arm(Timer::EndQuiet, now + quiet);
        // A head that is the source confirms or denies the end in its hello.
        self.next_ack.hello_missing = true;
    }

    pub(super) fn contradict_end(&mut self, now: Time, state: SourceState) {
        if self.session.contradicts_claim(now, &state) {
            self.deny_end();
        }
        let is_later = |last| state.sequence > last;
        if self.phase == Phase::Member && self.session.last.is_some_and(is_later) {
            self.session.last = None;
        }
    }

    pub(super) fn deny_end(&mut self) {
        self.session.drop_claim();
        self.timers.disarm(Timer::EndQuiet);
    }

    pub(super) fn confirm_end(&mut self, cx: &mut Cx<'_>) {
        let Some(last) = self.session.take_claim() else { return };
        let Some(window) = &mut self.window else { return };
        if self.delivery.next <= last + 1 {
            // The source never claimed these later packets: they were forged.
            window.reception.rewind(last);
            self.repairer.cache.rewind(last + 1);
        }
        if window.reception.end == last + 1 {
            self.session.last = Some(last);
            self.timers.arm_by(Timer::SourceSilence, self.silent_until());
        }
        self.after_progress(cx);
    }

    /// Takes the parent's claim that no packet follows `high`: later packets were forged.
    pub(super) fn on_highest_claimed(&mut self, cx: &mut Cx<'_>, high: u64) {
        let Some(window) = &self.window else { return };
        let reception = &window.reception;
        if self.phase != Phase::Member || high + 1 >= reception.end || !reception.has_losses() {
            self.claims.highest.contradict();
        } else if self.claims.highest.claim(cx.now, high, Duration::ZERO, |_| true) {
            self.discard_after(cx, high);
        }
    }

    /// Believes a rejection that the parent has not contradicted in time.
    pub(super) fn check_rejection(&mut self, cx: &mut Cx<'_>) {
        let Some(since) = self.claims.rejection.first_at else { return };
        if cx.now.since(since) < ANSWER_MAX {
            self.next_ack.hello_missing = true;
            return;
        }
        self.claims.rejection.contradict();
        if let Some(parent) = self.affiliation.parent {
            self.lose_parent(cx, parent.node);
        }
    }
}

#[cfg(test)]
mod tests {
    use faircast_base::{NodeId, NullTrace, Purpose, Rng};

    use super::*;
    use crate::Machine;
    use crate::options::Options;
    use crate::tram::TramSetup;
    use crate::tram::receiver::Retention;
    use crate::world::{SOURCE, TSI, at};

    #[test]
    fn beacons_alone_do_not_make_a_receiver_of_an_object_give_packets_up() {
        let options = Options::default();
        let mut receiver = TramReceiver::new(&TramSetup::of(TSI, SOURCE, at(0), &options));
        let mut rng = Rng::new(1, NodeId(9), Purpose::Machine(0));
        let mut trace = NullTrace;
        let mut cx = Cx::new(at(0), &mut rng, &mut trace);
        receiver.handle_timeout(&mut cx);
        receiver.delivery.retention = Retention::UntilReleased;
        receiver.begin_at(&mut cx, 1);
        receiver.on_highest_sent(&mut cx, 40, false);
        receiver
            .on_source_state(at(1000), SourceState { sequence: 1 << 40, ..SourceState::default() });
        receiver.give_up_backlog(&mut cx);
        let window = receiver.window.as_ref().expect("it has begun");
        assert_eq!((window.first_missing(), receiver.delivery.next), (1, 1));
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
            receiver.on_highest_sent(&mut cx, 40, false);
            for (ms, high) in says {
                cx.now = at(*ms);
                receiver.on_highest_claimed(&mut cx, *high);
            }
            let window = receiver.window.as_ref().expect("it has begun");
            assert_eq!(window.reception.end, want, "{says:?}");
        }
    }
}
