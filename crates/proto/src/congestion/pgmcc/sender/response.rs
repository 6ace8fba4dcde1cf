//! Response to losses: at most one cut of the window for the losses of a round trip.

use faircast_base::Seq;

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

    /// Answers losses before `next` without a suspension.
    pub(super) fn restart(&mut self, next: Seq) {
        (self.suspended_until, self.answered_end) = (None, Some(next));
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
