//! Progress of a source: packets sent, and packets that all members have.

use faircast_base::Time;

#[derive(Debug)]
pub(super) struct Progress {
    /// Next new packet.
    pub(super) next: u64,
    pub(super) bytes: u64,
    pub(super) sent_at: Time,
    /// Last packet that all members have.
    acknowledged: u64,
    /// Time of the last acknowledgement, or of the last new packet if later.
    pub(super) acknowledged_at: Time,
}

impl Progress {
    pub(super) fn new(start: Time) -> Self {
        let acknowledged_at = Time::ZERO;
        Self { next: 1, bytes: 0, sent_at: start, acknowledged: 0, acknowledged_at }
    }

    /// Returns the last packet before `first_missing`, the first packet that a member lacks.
    pub(super) fn last_before(&self, first_missing: Option<u64>) -> u64 {
        first_missing.unwrap_or(1).min(self.next) - 1
    }

    /// Learns that all members have the packets up to `last`. Returns the bytes that are new.
    pub(super) fn on_acknowledged(&mut self, last: u64, bytes_of: impl Fn(u64) -> u32) -> u32 {
        let before = self.acknowledged;
        self.acknowledged = last.max(before);
        (before..last).map(bytes_of).fold(0, u32::saturating_add)
    }

    /// Takes a new packet. Returns its number.
    pub(super) fn send(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    pub(super) fn on_sent(&mut self, now: Time, bytes: u32) {
        self.bytes += u64::from(bytes);
        self.sent_at = now;
    }
}
