//! Response to losses, and its reversal for late packets, as TCP's by Eifel and RACK (src: RFC 4015;
//! RFC 8985 s7.4).

use faircast_base::{Duration, Seq, Time};

use super::PgmccSender;
use crate::congestion::common::lateness::{Lateness, bound};
use crate::congestion::pgmcc::ledger::Fate;
use crate::congestion::pgmcc::window::Window;

#[derive(Debug, Default)]
pub(super) struct Late {
    lateness: Lateness,
    /// Latest packet found lost.
    pub(super) latest_lost: Option<Seq>,
    /// Last cut, while it can be reverted.
    pub(super) cut: Option<Undo>,
}

#[derive(Debug)]
pub(super) struct Undo {
    /// Window before the cut.
    window: Window,
    /// End of the answered losses before the cut.
    answered_end: Option<Seq>,
    /// End of the packets sent before the cut.
    end: Seq,
    /// Packets found lost that have not come late.
    lost: u32,
}

/// Response to losses: at most one cut of the window for the losses of a round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossResponse {
    /// Packet whose feedback ends the suspension of W (src: pgmcc-draft s2.2).
    pub(super) suspended_until: Option<Seq>,
    /// End of the packets whose losses are answered: they cut no more.
    pub(super) answered_end: Option<Seq>,
}

impl LossResponse {
    pub(super) fn is_suspended(&self) -> bool {
        self.suspended_until.is_some()
    }

    /// Suspends W until feedback for `next`, the next packet to send, and answers earlier losses.
    pub(super) fn suspend(&mut self, next: Seq) {
        (self.suspended_until, self.answered_end) = (Some(next), Some(next));
    }

    /// Ends the suspension if the acker's bitmap reaches up to its packet.
    pub(super) fn on_feedback(&mut self, rx_max: Seq) {
        self.suspended_until.take_if(|until| !rx_max.before(*until));
    }

    /// True if the loss of `seq` has not been answered by a cut.
    pub(super) fn is_open(&self, seq: Seq) -> bool {
        self.answered_end.is_none_or(|end| !seq.before(end))
    }
}

impl PgmccSender {
    pub(super) fn tolerance(&self) -> Option<Duration> {
        self.late.lateness.tolerance(bound(self.stall.rtt.srtt()))
    }

    pub(super) fn note_lost(&mut self, now: Time, count: u32, latest: Seq) {
        self.late.lateness.lost(now);
        let before = self.late.latest_lost.unwrap_or(latest);
        self.late.latest_lost = Some(before.max(latest));
        if let Some(undo) = &mut self.late.cut {
            undo.lost += count;
        }
    }

    pub(super) fn cut_for(&mut self, lost: u32) {
        let (window, answered_end) = (self.window, self.response.answered_end);
        self.cut();
        let end = self.ledger.next();
        self.late.cut =
            Some(Undo { window, answered_end, end, lost }).filter(|_| self.config.is_improved());
    }

    /// Notes a packet that an earlier bitmap lacked. Reverts the cut once all its packets came.
    pub(super) fn note_late(&mut self, now: Time, seq: Seq) {
        let bound = bound(self.stall.rtt.srtt());
        let Some(sent) = self.ledger.get_mut(seq).filter(|sent| !sent.repaired) else { return };
        let Some((missed, _)) = sent.missed.take() else { return };
        let late = now.since(missed);
        self.late.lateness.came(late, bound);
        if sent.fate != Fate::Lost || late > bound {
            return;
        }
        sent.fate = Fate::Acked;
        let Some(undo) = self.late.cut.as_mut().filter(|undo| seq.before(undo.end)) else { return };
        undo.lost = undo.lost.saturating_sub(1);
        if undo.lost == 0
            && let Some(undo) = self.late.cut.take()
        {
            self.window.undo_cut(&undo.window);
            // No cut is made while another one suspends the window.
            self.response = LossResponse { answered_end: undo.answered_end, suspended_until: None };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_of_packets_sent_before_a_cut_are_answered() {
        let mut response = LossResponse::default();
        assert!(!response.is_suspended() && response.is_open(Seq::new(0)));
        response.suspend(Seq::new(10));
        response.on_feedback(Seq::new(9));
        assert!(response.is_suspended());
        response.on_feedback(Seq::new(10));
        assert!(!response.is_suspended());
        assert_eq!([9, 10].map(|seq| response.is_open(Seq::new(seq))), [false, true]);
    }
}
