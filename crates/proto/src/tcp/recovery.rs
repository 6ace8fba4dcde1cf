//! Loss recovery state of a sender, common to all flavours.

/// Recovery from losses. Numbers of packets are one more than ns-2's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
    /// End of the packets sent before the last cut (recover_ + 1); 1 after a SACK recovery.
    pub(super) recover: u64,
    /// Duplicate acknowledgements since the last new one (dupacks_).
    pub(super) dup_acks: u32,
    pub(super) last_cut: LastCut,
    /// NewReno: true once this recovery had a partial acknowledgement.
    pub(super) is_partial: bool,
    /// SACK: packets in the network during fast recovery (pipe_); `None` outside.
    pub(super) pipe: Option<i64>,
    /// SACK: true from a timeout to the next new acknowledgement.
    pub(super) after_timeout: bool,
}

/// Reason of the last cut (ns-2: last_cwnd_action_).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LastCut {
    #[default]
    None,
    /// Duplicate acknowledgements; fast recovery lasts.
    DupAcks,
    /// Duplicate acknowledgements; fast recovery has ended.
    Recovered,
    Timeout,
}

impl Default for Recovery {
    fn default() -> Self {
        let last_cut = LastCut::None;
        Self {
            recover: 1,
            dup_acks: 0,
            last_cut,
            is_partial: false,
            pipe: None,
            after_timeout: false,
        }
    }
}

impl Recovery {
    /// Ends fast recovery of Reno and NewReno, if any.
    pub(super) fn end_fast_recovery(&mut self) {
        if self.last_cut == LastCut::DupAcks {
            self.last_cut = LastCut::Recovered;
        }
    }

    /// True if duplicate acknowledgements may start a fast retransmit: not for losses of packets
    /// sent before the last cut (ns-2: bugFix_; src: RFC 6582 s4, the careful variant).
    pub(super) fn may_fast_retransmit(&self, una: u64) -> bool {
        // The exception permits fast repair of the first data packet.
        una > self.recover || una == 1
    }

    /// Starts anew after a timeout with packets up to `sent_end` in flight.
    pub(super) fn time_out(&mut self, sent_end: u64) {
        let is_partial = self.is_partial;
        let (recover, last_cut) = (sent_end, LastCut::Timeout);
        *self =
            Self { recover, dup_acks: 0, last_cut, is_partial, pipe: None, after_timeout: true };
    }
}
