//! NewReno: recovery until all packets in flight at its start are acknowledged.

use faircast_base::Cx;

use super::recovery::LastCut;
use super::sender::{DUP_ACK_THRESHOLD, TcpSender};

/// Most packets that one duplicate acknowledgement releases (fixed in ns-2).
const RECOVERY_BURST_MAX: usize = 2;

impl TcpSender {
    /// src: ns-2.35, behaviour of `Agent/TCP/Newreno`; RFC 2582 s3 with its impatient variant.
    pub(super) fn on_ack_newreno(&mut self, cx: &mut Cx<'_>, ack: u64) {
        if ack > self.una {
            if ack >= self.recovery.recover || self.recovery.last_cut != LastCut::DupAcks {
                self.on_full_ack(cx, ack);
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

    fn on_full_ack(&mut self, cx: &mut Cx<'_>, ack: u64) {
        if self.window.inflation > 0 {
            self.window.inflation = 0;
            self.recovery.end_fast_recovery();
        }
        self.recovery.is_partial = false;
        let packets = ack - self.una;
        self.take_new_ack(cx, ack);
        self.open_window(packets);
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
