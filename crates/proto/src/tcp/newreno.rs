//! NewReno: recovery until all packets in flight at its start are acknowledged.

use faircast_base::Cx;

use super::sender::{LastCut, TcpSender};

/// Most packets that one duplicate acknowledgement releases (fixed in ns-2).
const RECOVERY_BURST_MAX: usize = 2;

impl TcpSender {
    /// src: ns-2.35, behaviour of `Agent/TCP/Newreno`; RFC 2582 s3 with its impatient variant.
    pub(super) fn on_ack_newreno(&mut self, cx: &mut Cx<'_>, ack: u64) {
        if ack > self.una {
            if ack >= self.recover || self.last_cut != LastCut::DupAcks {
                self.on_full_ack(cx, ack);
            } else {
                self.on_partial_ack(cx, ack);
            }
        } else if ack == self.una {
            self.on_dup_ack(cx);
        }
        if self.dup_acks == 0 {
            self.send_window(cx, false, usize::MAX);
        } else if self.dup_acks >= self.settings.duplicate_acks {
            self.send_window(cx, false, RECOVERY_BURST_MAX);
        }
    }

    fn on_full_ack(&mut self, cx: &mut Cx<'_>, ack: u64) {
        if self.inflation > 0 {
            self.inflation = 0;
            if self.last_cut == LastCut::DupAcks {
                self.last_cut = LastCut::Recovered;
            }
        }
        self.partial_seen = false;
        let packets = ack - self.una;
        self.take_new_ack(cx, ack);
        self.open_window(packets);
    }

    fn on_partial_ack(&mut self, cx: &mut Cx<'_>, ack: u64) {
        if !self.settings.impatient || !self.partial_seen {
            self.partial_seen = true;
            self.set_timer(cx.now);
        }
        if self.settings.partial_window_deflation {
            self.deflate(ack - self.una);
        } else {
            self.inflation = 0;
        }
        self.una = ack;
        self.last_una = ack;
        self.next = self.next.max(ack);
        if self.take_timed(ack).is_some() {
            // ns-2 ends the back-off but keeps the estimate.
            self.rtt.end_backoff();
        }
        self.output(cx, ack);
    }

    fn deflate(&mut self, acked: u64) {
        if self.inflation > acked {
            self.inflation -= acked - 1;
        } else {
            self.cwnd = (self.cwnd - (acked - self.inflation) as f64).max(1.0);
            // Zero would end recovery.
            self.inflation = 1;
        }
    }
}
