//! SACK: recovery by the receiver's selective acknowledgements.

use faircast_base::{CutReason, Cx};

use super::recovery::{LastCut, Scoreboard};
use super::sender::{DUP_ACK_THRESHOLD, TcpSender};

impl TcpSender {
    /// src: ns-2.35, behaviour of `Agent/TCP/Sack1`; Fall and Floyd, 1996.
    pub(super) fn on_ack_sack(&mut self, cx: &mut Cx<'_>, ack: u64, blocks: &[(u64, u64)]) {
        if self.recovery.pipe.is_some() {
            self.on_ack_in_recovery(cx, ack, blocks);
            return self.send_window(cx, false, usize::MAX);
        }
        if ack > self.una {
            self.recovery.is_partial = false;
            self.open_window(cx, ack);
            self.recovery.after_timeout = false;
            if self.hole_is_lost(cx.now).is_some() {
                self.scoreboard.update(ack, blocks);
                return self.on_hole_sack(cx);
            }
            self.scoreboard = Scoreboard::default();
        } else if ack == self.una
            && !self.recovery.after_timeout
            && self.scoreboard.update(ack, blocks)
        {
            self.on_sacked(cx);
        }
        if self.recovery.dup_acks == 0 {
            self.send_window(cx, false, usize::MAX);
        }
    }

    fn on_sacked(&mut self, cx: &mut Cx<'_>) {
        if self.hole_is_lost(cx.now).is_some() {
            return self.on_hole_sack(cx);
        }
        self.recovery.dup_acks += 1;
        if self.recovery.dup_acks == DUP_ACK_THRESHOLD {
            if self.may_fast_retransmit() {
                self.begin_recovery(cx);
            }
        } else if self.recovery.dup_acks < DUP_ACK_THRESHOLD && self.settings.limited_transmit {
            self.limited_transmit(cx);
        }
    }

    /// Handles an acknowledgement on a path that reorders: the first hole is a loss after its time.
    pub(super) fn on_hole_sack(&mut self, cx: &mut Cx<'_>) {
        self.recovery.dup_acks = self.scoreboard.arrived();
        if self.hole_is_lost(cx.now) == Some(true) && self.may_fast_retransmit() {
            self.begin_recovery(cx);
            self.send_window(cx, false, usize::MAX);
        } else {
            self.send_beyond_hole(cx);
        }
    }

    fn begin_recovery(&mut self, cx: &mut Cx<'_>) {
        self.recovery.recover = self.sent_end;
        let in_network = (self.sent_end - self.una) as i64 - i64::from(self.recovery.dup_acks);
        self.recovery.pipe = Some(in_network);
        self.timer.restart(cx.now);
        self.timer.timed = None;
        self.scoreboard.mark_retransmitted(self.una);
        self.recovery.last_cut = LastCut::DupAcks;
        self.cut(cx, CutReason::Loss);
        self.output(cx, self.una);
    }

    fn on_ack_in_recovery(&mut self, cx: &mut Cx<'_>, ack: u64, blocks: &[(u64, u64)]) {
        if ack >= self.recovery.recover {
            self.recovery.recover = 1;
            self.recovery.pipe = None;
            self.take_new_ack(cx, ack);
            self.recovery.after_timeout = false;
            self.scoreboard = Scoreboard::default();
            if self.hole_is_lost(cx.now).is_some() {
                self.scoreboard.update(ack, blocks);
                self.recovery.dup_acks = self.scoreboard.arrived();
            }
            if self.una == self.sent_end {
                // deviates: a halved window of one releases nothing; no timer ends that in ns-2.
                self.window.cwnd = self.window.cwnd.max(1.0);
            }
        } else if ack > self.una {
            // The retransmission and the original have both left the network.
            self.leave_network(2);
            self.una = ack;
            self.scoreboard.update(ack, blocks);
            // As in ns-2, this timer still has the old back-off.
            self.timer.restart(cx.now);
            self.timer.rto.end_back_off();
        } else {
            self.leave_network(1);
            self.scoreboard.update(self.una, blocks);
        }
    }

    fn leave_network(&mut self, packets: i64) {
        if let Some(pipe) = &mut self.recovery.pipe {
            *pipe -= packets;
        }
    }

    pub(super) fn send_pipe(&mut self, cx: &mut Cx<'_>, force: bool) {
        if !force && self.send_at.is_some() {
            return;
        }
        let window = self.window.usable();
        loop {
            let open = match self.recovery.pipe {
                Some(pipe) => pipe < self.window.cwnd as i64,
                None => self.next < self.last_una + window,
            };
            if !open || self.last_una >= self.stream_end || self.is_delayed(cx, force) {
                break;
            }
            let Some(seq) = self.next_to_send(cx, window) else { break };
            self.output(cx, seq);
            self.next = self.next.max(seq + 1);
            self.leave_network(-1);
        }
    }

    fn next_to_send(&mut self, cx: &Cx<'_>, window: u64) -> Option<u64> {
        let limit = self.una + self.window.max;
        let lost_before =
            self.reordering.as_ref().and_then(|reordering| reordering.lost_before(cx.now));
        let is_lost = |hole: &u64| lost_before.is_none_or(|end| *hole < end);
        if let Some(hole) = self.scoreboard.next_hole(self.una).filter(is_lost) {
            // ns-2 ignores holes unless a cut followed the last recovery.
            let may = self.recovery.recover > 1 && hole < limit;
            return may.then(|| {
                self.scoreboard.mark_retransmitted(hole);
                hole
            });
        }
        let limit = if self.recovery.pipe.is_some() { limit } else { self.una + window };
        (self.next < limit.min(self.stream_end)).then_some(self.next)
    }
}
