//! Claims that a receiver does not believe at once: any host can forge them. A claim is believed if
//! packets repeat it and none contradicts. The parent is asked meanwhile, if it came in its name.

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

/// Longest time by which an old packet is overtaken: later packets contradict an end.
const OVERTAKEN_MAX: Duration = Duration::from_millis(100);

/// Longest time in which the head answers a question; a rejection is believed after it.
const ANSWER_MAX: Duration = Duration::from_millis(1500);

/// Unconfirmed claims of packets in the name of the source or of the parent.
#[derive(Debug, Default)]
pub(super) struct Claims {
    pub(super) prune: Dissent<()>,
    pub(super) obsolete: ObsoleteLimit,
    pub(super) rejection: Rejection,
    pub(super) loop_level: Dissent<()>,
    pub(super) resignation: Dissent<(), RESIGNATIONS>,
    /// No packet was sent after this one.
    pub(super) highest: Dissent<u64>,
    /// A new parent repairs from this packet on.
    pub(super) start: Option<u64>,
}

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

    /// Takes a rejection. Returns its reason if it is believed.
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
        let is_claimed = self.session.end_claim.is_some_and(|(claimed, _)| claimed == last);
        if is_claimed || self.session.last == Some(last) || self.phase != Phase::Member {
            return;
        }
        let quiet = if self.delivery.is_retained() { END_QUIET_RETAINED } else { END_QUIET };
        self.session.end_claim = Some((last, now));
        self.timers.arm(Timer::EndQuiet, now + quiet);
        // A head that is the source confirms or denies the end in its hello.
        self.next_ack.hello_missing = true;
    }

    pub(super) fn contradict_end(&mut self, now: Time, state: SourceState) {
        let SourceState { sequence, done, .. } = state;
        let goes_on = |(last, since)| sequence > last || !done && now.since(since) >= OVERTAKEN_MAX;
        if self.session.end_claim.is_some_and(goes_on) {
            self.deny_end();
        }
        if self.phase == Phase::Member {
            self.session.last.take_if(|last| sequence > *last);
        }
    }

    pub(super) fn deny_end(&mut self) {
        self.session.end_claim = None;
        self.timers.disarm(Timer::EndQuiet);
    }

    pub(super) fn confirm_end(&mut self, cx: &mut Cx<'_>) {
        let Some((last, _)) = self.session.end_claim.take() else { return };
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
