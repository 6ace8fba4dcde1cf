//! Retransmission timer of a sender.

use faircast_base::{Duration, Time};

use super::rto::Ns2Rto;

/// Retransmission timer, and the round trip that is being measured for its timeout.
#[derive(Clone, Debug)]
pub(super) struct RetransmissionTimer {
    pub(super) rto: Ns2Rto,
    /// Packet of the measurement, and the time at which it was sent.
    timed: Option<(u64, Time)>,
    expires_at: Option<Time>,
    /// Timeout by which the timer was last set.
    pub(super) interval: Duration,
}

impl RetransmissionTimer {
    pub(super) fn new(rto: Ns2Rto) -> Self {
        Self { rto, timed: None, expires_at: None, interval: Duration::ZERO }
    }

    pub(super) fn restart(&mut self, now: Time) {
        self.interval = self.rto.timeout;
        self.expires_at = Some(now + self.interval);
    }

    pub(super) fn stop(&mut self) {
        self.expires_at = None;
    }

    pub(super) fn expires_at(&self) -> Option<Time> {
        self.expires_at
    }

    /// Measures the round trip of a new packet, unless another is measured.
    pub(super) fn time(&mut self, seq: u64, now: Time) {
        self.timed = self.timed.or(Some((seq, now)));
    }

    /// Stops the measurement before a retransmission (Karn).
    pub(super) fn stop_timing(&mut self) {
        self.timed = None;
    }

    /// Ends the measurement if `ack` covers its packet. Returns the time at which that was sent.
    pub(super) fn take_timed(&mut self, ack: u64) -> Option<Time> {
        let (_, sent_at) = self.timed.take_if(|(seq, _)| ack > *seq)?;
        Some(sent_at)
    }
}
