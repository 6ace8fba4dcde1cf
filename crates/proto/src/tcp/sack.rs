//! SACK: recovery by the receiver's selective acknowledgements.

use faircast_base::{CutReason, Cx};

use super::sender::{LastCut, TcpSender};

impl TcpSender {
    /// src: ns-2.35, behaviour of `Agent/TCP/Sack1`; Fall and Floyd, Simulation-based Comparisons
    /// of Tahoe, Reno, and SACK TCP, 1996.
    pub(super) fn on_ack_sack(&mut self, cx: &mut Cx<'_>, ack: u64, blocks: &[(u64, u64)]) {
        if self.recovering {
            self.on_ack_in_recovery(cx, ack, blocks);
            return self.send_window(cx, false, usize::MAX);
        }
        if ack > self.una {
            self.partial_seen = false;
            let packets = ack - self.una;
            self.take_new_ack(cx, ack);
            self.open_window(packets);
            self.after_timeout = false;
            if self.hole_is_lost(cx.now).is_some() {
                self.scoreboard.update(ack, blocks);
                return self.judge_hole_sack(cx);
            }
            self.scoreboard.clear();
        } else if ack == self.una && !self.after_timeout && self.scoreboard.update(ack, blocks) {
            self.on_sacked(cx);
        }
        if self.dup_acks == 0 {
            self.send_window(cx, false, usize::MAX);
        }
    }

    fn on_sacked(&mut self, cx: &mut Cx<'_>) {
        if self.hole_is_lost(cx.now).is_some() {
            return self.judge_hole_sack(cx);
        }
        self.dup_acks += 1;
        let threshold = self.settings.duplicate_acks;
        if self.dup_acks == threshold {
            if self.may_fast_retransmit() {
                self.begin_recovery(cx);
            }
        } else if self.dup_acks < threshold && self.settings.limited_transmit {
            self.send_one(cx);
        }
    }

    /// Handles an acknowledgement on a path that reorders: the first hole is a loss after its time.
    pub(super) fn judge_hole_sack(&mut self, cx: &mut Cx<'_>) {
        self.dup_acks = self.scoreboard.arrived();
        if self.hole_is_lost(cx.now) == Some(true) && self.may_fast_retransmit() {
            self.begin_recovery(cx);
            self.send_window(cx, false, usize::MAX);
        } else {
            self.send_beyond_hole(cx);
        }
    }

    fn begin_recovery(&mut self, cx: &mut Cx<'_>) {
        self.recover = self.high;
        self.pipe = (self.high - self.una) as i64 - i64::from(self.dup_acks);
        self.set_timer(cx.now);
        self.stop_timing();
        self.recovering = true;
        self.scoreboard.mark_retransmitted(self.una);
        self.last_cut = LastCut::DupAcks;
        self.cut(cx, CutReason::Loss);
        self.output(cx, self.una);
    }

    fn on_ack_in_recovery(&mut self, cx: &mut Cx<'_>, ack: u64, blocks: &[(u64, u64)]) {
        self.pipe -= 1;
        if ack >= self.recover {
            self.recover = 1;
            self.recovering = false;
            self.take_new_ack(cx, ack);
            self.after_timeout = false;
            self.scoreboard.clear();
            if self.hole_is_lost(cx.now).is_some() {
                self.scoreboard.update(ack, blocks);
                self.dup_acks = self.scoreboard.arrived();
            }
            if self.una == self.high {
                // deviates: a halved window of one releases nothing; no timer ends that in ns-2.
                self.cwnd = self.cwnd.max(1.0);
            }
        } else if ack > self.una {
            // The retransmission and the original have both left the network.
            self.pipe -= 1;
            self.una = ack;
            self.scoreboard.update(ack, blocks);
            // As in ns-2, this timer still has the old back-off.
            self.set_timer(cx.now);
            self.rtt.end_backoff();
        } else {
            self.scoreboard.update(self.una, blocks);
        }
    }

    pub(super) fn send_pipe(&mut self, cx: &mut Cx<'_>, force: bool) {
        if !force && self.send_at.is_some() {
            return;
        }
        let window = self.usable_window();
        loop {
            let open = if self.recovering {
                self.pipe < self.cwnd as i64
            } else {
                self.next < self.last_una + window
            };
            if !open || self.last_una >= self.end || self.must_wait(cx, force) {
                break;
            }
            let Some(seq) = self.next_to_send(cx, window) else { break };
            self.output(cx, seq);
            self.next = self.next.max(seq + 1);
            self.pipe += 1;
        }
    }

    fn next_to_send(&mut self, cx: &Cx<'_>, window: u64) -> Option<u64> {
        let limit = self.una + u64::from(self.settings.window_max);
        let lost_before = self.reordering.as_ref().and_then(|it| it.lost_before(cx.now));
        let is_lost = |hole: &u64| lost_before.is_none_or(|end| *hole < end);
        if let Some(hole) = self.scoreboard.next_hole(self.una).filter(is_lost) {
            // ns-2 ignores holes unless a cut followed the last recovery.
            let may = self.recover > 1 && hole < limit;
            return may.then(|| {
                self.scoreboard.mark_retransmitted(hole);
                hole
            });
        }
        let limit = if self.recovering { limit } else { self.una + window };
        (self.next < limit.min(self.end)).then_some(self.next)
    }
}
