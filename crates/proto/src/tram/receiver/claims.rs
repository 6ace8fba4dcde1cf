//! Claims that a receiver does not believe at once: any host can forge them. A claim is believed if
//! packets repeat it and none contradicts. The parent is asked meanwhile, if it came in its name.

use faircast_base::{Cx, Duration, Time};

use super::{Phase, Timer, TramReceiver};
use crate::pgm::session::dissent::Dissent;
use crate::tram::window::ObsoleteLimit;

/// Silence after which an end is believed: of a stream, and of an object, which waits anyway.
const END_QUIET: Duration = Duration::from_millis(500);
const END_QUIET_RETAINED: Duration = Duration::from_secs(3);

/// Resignations in a row that are believed: the head still serves during the search.
const RESIGNATIONS: u32 = 2;

/// Longest time by which an old packet is overtaken: later packets contradict an end.
pub(super) const OVERTAKEN_MAX: Duration = Duration::from_millis(100);

/// Longest time in which the head answers a question; a rejection is believed after it.
const ANSWER_MAX: Duration = Duration::from_millis(1500);

/// Unconfirmed claims of packets in the name of the source or of the parent.
#[derive(Debug, Default)]
pub(super) struct Claims {
    pub(super) prune: Dissent<()>,
    pub(super) obsolete: ObsoleteLimit,
    /// Rejections, true if all of them say that this receiver was pruned, and time of the first.
    pub(super) rejection: Dissent<bool>,
    pub(super) rejected_at: Option<Time>,
    pub(super) loop_level: Dissent<()>,
    pub(super) resignation: Dissent<(), RESIGNATIONS>,
    /// No packet was sent after this one.
    pub(super) highest: Dissent<u64>,
    /// A new parent repairs from this packet on.
    pub(super) start: Option<u64>,
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
        let Some(window) = &mut self.window else { return };
        let reception = &window.reception;
        if self.phase != Phase::Member || high + 1 >= reception.end || !reception.has_losses() {
            self.claims.highest.contradict();
            return;
        }
        let last = high.max(self.delivery.next.saturating_sub(1));
        let is_believed = self.claims.highest.claim(cx.now, high, Duration::ZERO, |_| true);
        if is_believed && last + 1 < reception.end {
            window.reach.go_back(cx.now, last);
            self.rewind(cx, last + 1, last + 1);
            self.session.state.sequence = last;
            self.after_progress(cx);
        }
    }

    /// Believes a rejection that the parent has not contradicted in time.
    pub(super) fn check_rejection(&mut self, cx: &mut Cx<'_>) {
        let Some(since) = self.claims.rejected_at else { return };
        if cx.now.since(since) < ANSWER_MAX {
            self.next_ack.hello_missing = true;
            return;
        }
        (self.claims.rejection, self.claims.rejected_at) = Default::default();
        if let Some(parent) = self.affiliation.parent {
            self.lose_parent(cx, parent.node);
        }
    }
}
