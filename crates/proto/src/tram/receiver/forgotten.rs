//! Oldest packet that the source still repairs, by what its latest packets say (`obsolete_after`).
//!
//! A receiver gives up what lies before it, and delivers past the gap: nothing takes that back. The limit follows from
//! the number of the packet that names it, so a forged packet that is `n` ahead of the source makes the limit `n` too high.
//!
//! Derivation. A limit is *confirmed* when the last twelve packets, or the last three over a second, all name it or a
//! later one (as in [`Dissent`](crate::pgm::session::dissent::Dissent)). One real packet among them holds the confirmed
//! limit at the source, however many forged ones walk ahead of it, in whatever steps. In honest packets the confirmed
//! limit lags by what the source sends while twelve packets come, which is at most a second where three packets come
//! in one. Waiting for that would hold up a receiver of which the path drops four of five packets, and with it the window
//! of the source, so a limit is believed at once within what the source sends in a second: honest receivers do not wait,
//! and forged packets cost at most a second of data. That credit is gone for [`DISTRUST`] once a packet lies below what
//! was believed: a packet a second would keep a receiver silent otherwise. A limit further ahead, after a pause or a loss
//! of a whole window, takes twelve packets, or three, beacons too.

use alloc::collections::VecDeque;

use faircast_base::{Duration, Time};

use crate::keep_last;
use crate::pgm::session::dissent::{MANY, PACKETS_SLOW, SLOW};

/// Time for which only confirmed limits are believed, after one that was not confirmed turned out to be wrong; chosen.
const DISTRUST: Duration = Duration::from_secs(10);

/// Limits that the latest packets of the source have named.
#[derive(Debug, Default)]
pub(super) struct Forgotten {
    /// Arrival and limit of the last twelve packets, oldest first.
    recent: VecDeque<(Time, u64)>,
    /// Start of the measurement of the pace, and packets by which the confirmed limit moves in a second.
    mark: Option<(Time, u64)>,
    pace: u64,
    /// Highest limit that was believed.
    believed: u64,
    distrusts_until: Time,
}

impl Forgotten {
    /// Returns the limit to believe after a packet that names `limit`: all packets before it are given up.
    pub(super) fn take(&mut self, now: Time, limit: u64) -> u64 {
        keep_last(&mut self.recent, MANY as usize, (now, limit));
        let confirmed = self.confirmed(now);
        self.measure(now, confirmed);
        if limit < self.believed && confirmed < self.believed {
            self.distrusts_until = now + DISTRUST;
            self.believed = confirmed;
        }
        let credit = if now < self.distrusts_until { 0 } else { self.pace };
        self.believed = self.believed.max(limit.min(confirmed + credit));
        self.believed
    }

    /// Returns the highest limit that enough packets in a row have reached; 0 where none has been.
    fn confirmed(&self, now: Time) -> u64 {
        let (mut least, mut slow) = (u64::MAX, 0);
        for (packets, (at, limit)) in (1..).zip(self.recent.iter().rev()) {
            least = least.min(*limit);
            if packets >= PACKETS_SLOW && now.since(*at) >= SLOW {
                slow = least;
                break;
            }
        }
        if self.recent.len() == MANY as usize { slow.max(self.least()) } else { slow }
    }

    fn least(&self) -> u64 {
        self.recent.iter().map(|(_, limit)| *limit).min().unwrap_or(0)
    }

    /// Measures the pace over a second or more. A silence counts with what came after it.
    fn measure(&mut self, now: Time, confirmed: u64) {
        let Some((at, from)) = self.mark else {
            self.mark = (confirmed > 0).then_some((now, confirmed));
            return;
        };
        let span = now.since(at);
        if span >= SLOW && confirmed > from {
            self.pace = ((confirmed - from) as f64 / span.as_secs_f64()) as u64;
            self.mark = Some((now, confirmed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::at;

    /// One packet in 4 ms for two seconds: limits up to 500.
    fn running() -> Forgotten {
        let mut forgotten = Forgotten::default();
        for packet in 1..=500 {
            forgotten.take(at(4 * packet), packet);
        }
        forgotten
    }

    #[test]
    fn a_source_whose_packets_are_nearly_all_lost_is_believed_at_once() {
        let mut forgotten = Forgotten::default();
        // Four of five are dropped, then nineteen of twenty.
        for gap in [5, 20] {
            let from = forgotten.believed;
            for packet in 1..=200 {
                let limit = from + gap * packet;
                let now = at(4 * limit);
                let believed = forgotten.take(now, limit);
                if packet > 100 {
                    assert_eq!(believed, limit, "one of {gap}");
                }
            }
        }
    }

    #[test]
    fn however_many_forged_packets_walk_ahead_a_second_of_the_source_is_the_most() {
        for (step, between) in [(1, 11), (15, 11), (63, 11), (63, 1), (1000, 5)] {
            let mut forgotten = running();
            let mut ahead = 0;
            for packet in 501..=1500 {
                let now = at(4 * packet);
                for _ in 0..between {
                    ahead += step;
                    let believed = forgotten.take(now, packet + ahead);
                    assert!(believed <= packet + 251, "{believed} at {packet}: steps of {step}");
                }
                let believed = forgotten.take(now, packet);
                // The credit is used up, and gone until the source has caught up and some time longer.
                let caught_up = packet > 501 + 260 && packet < 501 + 2500;
                assert!(!caught_up || believed <= packet, "{believed} at {packet}");
            }
        }
    }

    #[test]
    fn a_packet_a_second_costs_a_second_in_ten() {
        let mut forgotten = running();
        let mut silent = 0;
        for packet in 501..=10_500 {
            let now = at(4 * packet);
            if packet % 250 == 0 {
                forgotten.take(now, packet + 64);
            }
            silent += u32::from(forgotten.take(now, packet) > packet);
        }
        // Forty seconds, of which each packet would take 64 of 250 parts.
        assert!(silent <= 4 * 64, "{silent} of 10000 packets");
    }

    #[test]
    fn after_a_silence_twelve_packets_are_believed_or_three_over_a_second() {
        for (gap_ms, want) in [(4, 12), (100, 11), (600, 3), (3000, 3)] {
            let mut forgotten = running();
            let after = |packet: u64| (at(12_000 + gap_ms * packet), 3000 + packet);
            let believed = (1..).find(|packet| {
                let (now, limit) = after(*packet);
                forgotten.take(now, limit) > 3000
            });
            assert_eq!(believed, Some(want), "packets each {gap_ms} ms");
        }
    }
}
