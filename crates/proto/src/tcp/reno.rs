//! Reno: fast retransmit, and fast recovery until the first new acknowledgement.

use faircast_base::{CutReason, Cx};

use super::sender::{LastCut, TcpSender};

impl TcpSender {
    /// src: ns-2.35, behaviour of `Agent/TCP/Reno`; RFC 2581 s3.2.
    pub(super) fn on_ack_reno(&mut self, cx: &mut Cx<'_>, ack: u64) {
        if ack > self.una {
            if self.last_cut == LastCut::DupAcks {
                self.last_cut = LastCut::Recovered;
            }
            self.inflation = 0;
            let packets = ack - self.una;
            self.take_new_ack(cx, ack);
            self.open_window(packets);
        } else if ack == self.una {
            self.on_dup_ack(cx);
        }
        if self.dup_acks == 0 || self.dup_acks >= self.settings.duplicate_acks {
            self.send_window(cx, false, usize::MAX);
        }
    }

    pub(super) fn on_dup_ack(&mut self, cx: &mut Cx<'_>) {
        self.dup_acks += 1;
        if self.hole_is_lost(cx.now).is_some() {
            return self.judge_hole(cx);
        }
        let threshold = self.settings.duplicate_acks;
        if self.dup_acks == threshold {
            if self.may_fast_retransmit() {
                self.fast_retransmit(cx);
            }
        } else if self.dup_acks > threshold {
            if self.last_cut == LastCut::DupAcks {
                self.inflation += 1;
            }
        } else if self.settings.limited_transmit {
            self.send_one(cx);
        }
    }

    pub(super) fn judge_hole(&mut self, cx: &mut Cx<'_>) {
        if self.last_cut == LastCut::DupAcks {
            self.inflation += 1;
        } else if self.hole_is_lost(cx.now) == Some(true) && self.may_fast_retransmit() {
            let arrived = u64::from(self.dup_acks);
            self.fast_retransmit(cx);
            self.inflation = arrived;
        } else {
            self.send_beyond_hole(cx);
        }
    }

    fn fast_retransmit(&mut self, cx: &mut Cx<'_>) {
        self.recover = self.high;
        self.last_cut = LastCut::DupAcks;
        self.cut(cx, CutReason::Loss);
        self.set_timer(cx.now);
        self.stop_timing();
        self.output(cx, self.una);
        self.inflation = u64::from(self.settings.duplicate_acks);
    }
}
