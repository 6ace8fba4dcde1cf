//! Reno: fast retransmit, and fast recovery until the first new acknowledgement. NewReno: recovery
//! until all packets in flight at its start are acknowledged.

use faircast_base::{CutReason, Cx};

use super::recovery::LastCut;
use super::sender::{DUP_ACK_THRESHOLD, TcpSender};

/// Most packets that one duplicate acknowledgement releases (fixed in ns-2).
const RECOVERY_BURST_MAX: usize = 2;

impl TcpSender {
    /// src: ns-2.35, behaviour of `Agent/TCP/Reno`; RFC 2581 s3.2.
    pub(super) fn on_ack_reno(&mut self, cx: &mut Cx<'_>, ack: u64) {
        if ack > self.una {
            self.recovery.end_fast_recovery();
            self.window.inflation = 0;
            self.open_window(cx, ack);
        } else if ack == self.una {
            self.on_dup_ack(cx);
        }
        if self.recovery.dup_acks == 0 || self.recovery.dup_acks >= DUP_ACK_THRESHOLD {
            self.send_window(cx, false, usize::MAX);
        }
    }

    pub(super) fn on_dup_ack(&mut self, cx: &mut Cx<'_>) {
        self.recovery.dup_acks += 1;
        if self.hole_is_lost(cx.now).is_some() {
            return self.on_hole(cx);
        }
        if self.recovery.dup_acks == DUP_ACK_THRESHOLD {
            if self.may_fast_retransmit() {
                self.fast_retransmit(cx);
            }
        } else if self.recovery.dup_acks > DUP_ACK_THRESHOLD {
            if self.recovery.last_cut == LastCut::DupAcks {
                self.window.inflation += 1;
            }
        } else if self.settings.limited_transmit {
            self.limited_transmit(cx);
        }
    }

    /// Acts on the first hole of a path that reorders: a loss after its time.
    pub(super) fn on_hole(&mut self, cx: &mut Cx<'_>) {
        if self.recovery.last_cut == LastCut::DupAcks {
            self.window.inflation += 1;
        } else if self.hole_is_lost(cx.now) == Some(true) && self.may_fast_retransmit() {
            let arrived = u64::from(self.recovery.dup_acks);
            self.fast_retransmit(cx);
            self.window.inflation = arrived;
        } else {
            self.send_beyond_hole(cx);
        }
    }

    fn fast_retransmit(&mut self, cx: &mut Cx<'_>) {
        self.recovery.recover = self.sent_end;
        self.recovery.last_cut = LastCut::DupAcks;
        self.cut(cx, CutReason::Loss);
        self.timer.restart(cx.now);
        self.timer.timed = None;
        self.output(cx, self.una);
        self.window.inflation = u64::from(DUP_ACK_THRESHOLD);
    }

    /// src: ns-2.35, behaviour of `Agent/TCP/Newreno`; RFC 2582 s3 with its impatient variant.
    pub(super) fn on_ack_newreno(&mut self, cx: &mut Cx<'_>, ack: u64) {
        if ack > self.una {
            if ack >= self.recovery.recover || self.recovery.last_cut != LastCut::DupAcks {
                if self.window.inflation > 0 {
                    self.window.inflation = 0;
                    self.recovery.end_fast_recovery();
                }
                self.recovery.is_partial = false;
                self.open_window(cx, ack);
            } else {
                self.on_partial_ack(cx, ack);
            }
        } else if ack == self.una {
            self.on_dup_ack(cx);
        }
        if self.recovery.dup_acks == 0 {
            self.send_window(cx, false, usize::MAX);
        } else if self.recovery.dup_acks >= DUP_ACK_THRESHOLD {
            self.send_window(cx, false, RECOVERY_BURST_MAX);
        }
    }

    fn on_partial_ack(&mut self, cx: &mut Cx<'_>, ack: u64) {
        if !self.recovery.is_partial {
            // The impatient variant (ns-2: newreno_changes1_; src: RFC 6582 s4).
            self.recovery.is_partial = true;
            self.timer.restart(cx.now);
        }
        self.window.deflate(ack - self.una);
        self.una = ack;
        self.last_una = ack;
        self.next = self.next.max(ack);
        if self.timer.take_timed(ack).is_some() {
            // ns-2 ends the back-off but keeps the estimate.
            self.timer.rto.end_back_off();
        }
        self.output(cx, ack);
    }
}
