//! Queue of receivers' timestamps to echo (RFC 4654 s3.5).

use alloc::collections::VecDeque;

use faircast_base::{NodeId, Time};

use super::{Echo, TfmccReport};

/// Most queued timestamps. Suppression admits some tens of reports a round, which has more packets.
pub(super) const ECHOES_MAX: usize = 64;

/// Timestamps to echo, the most urgent first.
#[derive(Clone, Debug, Default)]
pub(super) struct Echoes(pub(super) VecDeque<Waiting>);

/// Timestamp to echo, with its report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Waiting {
    pub(super) receiver: NodeId,
    /// Arrival of the report.
    pub(super) at: Time,
    pub(super) report: TfmccReport,
}

impl Waiting {
    /// True if this goes first: no round trip, older rounds, lower rates (src: RFC 4654 s3.5).
    fn before(&self, other: &Self) -> bool {
        let (this, other) = (&self.report, &other.report);
        if this.have_rtt != other.have_rtt {
            return !this.have_rtt;
        }
        let newer = this.round.wrapping_sub(other.round) as i8;
        newer < 0 || newer == 0 && this.bits_per_s < other.bits_per_s
    }

    pub(super) fn echo(&self, now: Time, is_clr: bool) -> Echo {
        let held_us = (now.since(self.at).as_nanos() / 1000) as u32;
        Echo { receiver: self.receiver, is_clr, stamp_us: self.report.sent_us, held_us }
    }
}

impl Echoes {
    pub(super) fn push(&mut self, waiting: Waiting) {
        self.forget(waiting.receiver);
        let index = self.0.partition_point(|other| !waiting.before(other));
        self.0.insert(index, waiting);
        self.0.truncate(ECHOES_MAX);
    }

    pub(super) fn forget(&mut self, receiver: NodeId) {
        self.0.retain(|waiting| waiting.receiver != receiver);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(receiver: u32, have_rtt: bool, round: u8, bits_per_s: f32) -> Waiting {
        let report = TfmccReport { have_rtt, round, bits_per_s, ..TfmccReport::default() };
        Waiting { receiver: NodeId(receiver), at: Time::ZERO, report }
    }

    #[test]
    fn receivers_without_a_round_trip_come_first_then_the_slow() {
        let mut echoes = Echoes::default();
        for w in [
            waiting(1, true, 5, 10.0),
            waiting(2, true, 4, 5.0),
            waiting(3, false, 0, 30.0),
            waiting(4, false, 255, 40.0),
            waiting(5, false, 0, 20.0),
            waiting(2, true, 5, 50.0),
            waiting(6, true, 4, 60.0),
        ] {
            echoes.push(w);
        }
        let order = core::iter::from_fn(|| echoes.0.pop_front().map(|w| w.receiver.0));
        assert!(order.eq([4, 5, 3, 6, 1, 2]));
    }

    #[test]
    fn beyond_the_limit_the_least_urgent_is_dropped() {
        let mut echoes = Echoes::default();
        for k in (0..1000).rev() {
            echoes.push(waiting(k, true, 0, k as f32));
        }
        assert_eq!(echoes.0.len(), ECHOES_MAX);
        assert_eq!(echoes.0.pop_front().map(|w| w.receiver), Some(NodeId(0)));
    }
}
