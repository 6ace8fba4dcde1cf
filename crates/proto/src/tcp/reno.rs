//! Reno: fast retransmit, and fast recovery until the first new acknowledgement.

use faircast_base::{CutReason, Cx};

use super::recovery::LastCut;
use super::sender::{DUP_ACK_THRESHOLD, TcpSender};

impl TcpSender {
    /// src: ns-2.35, behaviour of `Agent/TCP/Reno`; RFC 2581 s3.2.
    pub(super) fn on_ack_reno(&mut self, cx: &mut Cx<'_>, ack: u64) {
        if ack > self.una {
            self.recovery.end_fast_recovery();
            self.window.inflation = 0;
            let packets = ack - self.una;
            self.take_new_ack(cx, ack);
            self.open_window(packets);
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
        self.timer.stop_timing();
        self.output(cx, self.una);
        self.window.inflation = u64::from(DUP_ACK_THRESHOLD);
    }
}
