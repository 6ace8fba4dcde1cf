//! Late acknowledgements: waiting times, and reversal of cuts for late packets, as TCP's by Eifel
//! and RACK (src: RFC 4015; RFC 8985 s7.4).

use faircast_base::{Duration, Seq, Time};

use super::PgmccSender;
use super::response::LossResponse;
use crate::congestion::common::lateness::{Lateness, bound};
use crate::congestion::pgmcc::ledger::Fate;
use crate::congestion::pgmcc::window::Window;

#[derive(Debug, Default)]
pub(super) struct Late {
    lateness: Lateness,
    /// Latest packet found lost.
    latest_lost: Option<Seq>,
    /// Last cut, while it can be reverted.
    cut: Option<Undo>,
}

#[derive(Debug)]
struct Undo {
    /// Window before the cut.
    window: Window,
    /// [`answered_end`](super::LossResponse::answered_end) before the cut.
    answered_end: Option<Seq>,
    /// End of the packets sent before the cut.
    end: Seq,
    /// Packets found lost that have not come late.
    lost: u32,
}

impl Late {
    /// Makes the last cut final.
    pub(super) fn settle(&mut self) {
        self.cut = None;
    }
}

impl PgmccSender {
    pub(super) fn tolerance(&self) -> Option<Duration> {
        self.late.lateness.tolerance(bound(self.stall.srtt()))
    }

    /// True if a bitmap that ends at `highest` may show a packet that was found lost.
    pub(super) fn may_show_late(&self, highest: Seq) -> bool {
        self.late.latest_lost.is_some_and(|lost| highest.distance(lost) < 32)
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
        let bound = bound(self.stall.srtt());
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
