//! Oldest packet that the source still repairs, by its latest packets (`obsolete_after`). A
//! receiver delivers past it for good; a forged packet `n` ahead makes this limit `n` too high.
//! Derivation. A limit is *confirmed* when the last twelve packets, or three over a second, all
//! name it or a later one (as in [`Dissent`](crate::pgm::session::dissent::Dissent)): one real
//! packet among them suffices. It lags by at most a second if three packets arrive in one, which
//! would stall a receiver whose path drops four of five packets. So a limit within a second's
//! packets of the source is accepted at once. That credit is gone for [`DISTRUST`] once a packet is
//! below the accepted limit: else a forged packet a second would keep a receiver silent. Limits
//! further ahead, as after a pause, take twelve packets, or three, beacons included.

use alloc::collections::VecDeque;

use faircast_base::{Duration, Time};

use crate::keep_last;
use crate::pgm::session::dissent::{MANY, PACKETS_SLOW, SLOW};

/// Time for which only confirmed limits are accepted, after a wrong one; chosen.
const DISTRUST: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct ObsoleteLimit {
    recent: VecDeque<(Time, u64)>,
    /// Start of the present measurement, and the pace of the confirmed limit in packets per second.
    measurement: Option<(Time, u64)>,
    pace: u64,
    accepted: u64,
    distrust_until: Time,
}

impl ObsoleteLimit {
    pub(crate) fn take(&mut self, now: Time, limit: u64) -> u64 {
        keep_last(&mut self.recent, MANY as usize, (now, limit));
        let confirmed = self.confirmed(now);
        self.measure(now, confirmed);
        if limit < self.accepted && confirmed < self.accepted {
            self.distrust_until = now + DISTRUST;
            self.accepted = confirmed;
        }
        let credit = if now < self.distrust_until { 0 } else { self.pace };
        self.accepted = self.accepted.max(limit.min(confirmed + credit));
        self.accepted
    }

    fn confirmed(&self, now: Time) -> u64 {
        let (mut least, mut slow) = (u64::MAX, 0);
        for (packets, (at, limit)) in (1..).zip(self.recent.iter().rev()) {
            least = least.min(*limit);
            if packets >= PACKETS_SLOW && now.since(*at) >= SLOW {
                slow = slow.max(least);
            }
        }
        if self.recent.len() == MANY as usize { slow.max(least) } else { slow }
    }

    /// Measures the pace over a second or more; a silence counts with the packets after it.
    fn measure(&mut self, now: Time, confirmed: u64) {
        let Some((at, from)) = self.measurement else {
            self.measurement = (confirmed > 0).then_some((now, confirmed));
            return;
        };
        let span = now.since(at);
        if span >= SLOW && confirmed > from {
            self.pace = ((confirmed - from) as f64 / span.as_secs_f64()) as u64;
            self.measurement = Some((now, confirmed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::at;

    fn running() -> ObsoleteLimit {
        let mut obsolete = ObsoleteLimit::default();
        for packet in 1..=500 {
            obsolete.take(at(4 * packet), packet);
        }
        obsolete
    }

    #[test]
    fn a_source_whose_packets_are_nearly_all_lost_is_believed_at_once() {
        let mut obsolete = ObsoleteLimit::default();
        for gap in [5, 20] {
            let from = obsolete.accepted;
            for packet in 1..=200 {
                let limit = from + gap * packet;
                let now = at(4 * limit);
                let accepted = obsolete.take(now, limit);
                if packet > 100 {
                    assert_eq!(accepted, limit, "one of {gap}");
                }
            }
        }
    }

    #[test]
    fn however_many_forged_packets_walk_ahead_a_second_of_the_source_is_the_most() {
        for (step, between) in [(1, 11), (15, 11), (63, 11), (63, 1), (1000, 5)] {
            let mut obsolete = running();
            let mut ahead = 0;
            for packet in 501..=1500 {
                let now = at(4 * packet);
                for _ in 0..between {
                    ahead += step;
                    let accepted = obsolete.take(now, packet + ahead);
                    assert!(accepted <= packet + 251, "{accepted} at {packet}: steps of {step}");
                }
                let accepted = obsolete.take(now, packet);
                let caught_up = packet > 501 + 260 && packet < 501 + 2500;
                assert!(!caught_up || accepted <= packet, "{accepted} at {packet}");
            }
        }
    }

    #[test]
    fn a_packet_a_second_costs_a_second_in_ten() {
        let mut obsolete = running();
        let mut silent = 0;
        for packet in 501..=10_500 {
            let now = at(4 * packet);
            if packet % 250 == 0 {
                obsolete.take(now, packet + 64);
            }
            silent += u32::from(obsolete.take(now, packet) > packet);
        }
        assert!(silent <= 4 * 64, "{silent} of 10000 packets");
    }

    #[test]
    fn after_a_silence_twelve_packets_are_believed_or_three_over_a_second() {
        for (gap_ms, want) in [(4, 12), (100, 11), (600, 3), (3000, 3)] {
            let mut obsolete = running();
            let after = |packet: u64| (at(12_000 + gap_ms * packet), 3000 + packet);
            let accepted = (1..).find(|packet| {
                let (now, limit) = after(*packet);
                obsolete.take(now, limit) > 3000
            });
            assert_eq!(accepted, Some(want), "packets each {gap_ms} ms");
        }
    }
}
