//! Spreading of the window over the round trip: at a full drop-tail queue, clumps of large packets
//! never lose beside clumps of small ones (src: floyd-jacobson-1992). Two rules follow TCP: packets
//! follow acknowledgements, and window growth leaves back to back.

use faircast_base::{Cx, Duration, Time};

use crate::congestion::Permit;
use crate::congestion::pgmcc::window::Window;

/// Minimum share to spread. Drivers group packets within 50 microseconds, and timers are no finer.
const SHARE_MIN: Duration = Duration::from_micros(100);

/// Maximum share: an overestimated round trip, as after an outage, must not delay the recovery.
const SHARE_MAX: Duration = Duration::from_millis(20);

const RTT_MIN: Duration = Duration::from_millis(1);

/// Shares RTT/W after which a packet may follow an acknowledgement, so that clumps dissolve.
const LEAST: f64 = 0.75;

/// Longest random wait of a packet, in shares.
const MOST: f64 = 2.0;

/// Most packets that follow their predecessor at once: those of one bitmap.
const TOGETHER_MAX: u32 = 32;

/// Largest timer delay that later packets catch up with.
const LATENESS_MAX: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
pub(super) struct Spread {
    until: Time,
    from: Time,
    /// Due time of the last packet in the schedule of packets that only waited.
    due: Time,
    pub(super) waiting: bool,
    /// Packets that may follow at once, for growth: spread, they would displace other flows'.
    pub(super) together: u32,
    acked_at: Time,
}

impl Spread {
    pub(super) fn permit(&mut self, now: Time) -> Permit {
        if self.until <= now {
            return Permit::Now;
        }
        self.waiting = true;
        Permit::At(self.until)
    }

    pub(super) fn sent(&mut self, cx: &mut Cx<'_>, rtt: Duration, window: &Window) {
        if self.together > 0 {
            self.together -= 1;
            return;
        }
        // Slow start sends two packets per acknowledged one.
        let per_round_trip = window.size * if window.is_opening() { 2.0 } else { 1.0 };
        let share = rtt.mul_f64(1.0 / per_round_trip).min(SHARE_MAX);
        if share >= SHARE_MIN && rtt >= RTT_MIN {
            // Packets that only waited keep to RTT/W on average, despite late timers.
            let behind_max = LATENESS_MAX.max(share).min(cx.now.since(Time::ZERO));
            self.due = match self.waiting {
                true => (self.due + share).clamp(cx.now - behind_max, cx.now),
                false => cx.now,
            };
            self.from = cx.now + share.mul_f64(LEAST);
            let range = share.mul_f64(MOST - LEAST);
            self.until = self.due + share.mul_f64(LEAST) + cx.rng.up_to(range);
            self.waiting = false;
        }
    }

    /// Releases the next packet after an acknowledgement of `count` packets, as TCP's clock does.
    pub(super) fn acknowledged(&mut self, now: Time, count: u32) {
        let first = u32::from(self.acked_at != now);
        self.together = (self.together + count.saturating_sub(first)).min(TOGETHER_MAX);
        self.acked_at = now;
        if self.from <= now && now < self.until {
            self.until = now;
            self.waiting = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use faircast_base::{NodeId, Purpose, Rng};

    use super::*;
    use crate::congestion::pgmcc::PgmccConfig;

    const RTT: Duration = Duration::from_millis(100);

    fn at(us: u64) -> Time {
        Time::ZERO + Duration::from_micros(us)
    }

    fn window() -> Window {
        let mut window =
            Window::new(&PgmccConfig { slow_start_open: false, ..PgmccConfig::default() });
        while window.size < 10.0 {
            window.grow(1);
        }
        window
    }

    fn sent(spread: &mut Spread, now: Time, seed: u64) {
        let mut rng = Rng::new(seed, NodeId(1), Purpose::Machine(0));
        let mut cx = Cx::untraced(now, &mut rng);
        spread.sent(&mut cx, RTT, &window());
    }

    #[test]
    fn a_packet_follows_an_acknowledgement_that_comes_late_enough() {
        for (after_us, goes) in [(1000, false), (7300, false), (7500, true)] {
            let mut spread = (0..)
                .map(|seed| {
                    let mut spread = Spread::default();
                    sent(&mut spread, at(50_000), seed);
                    spread
                })
                .find(|spread| spread.until > at(60_000))
                .expect("half of the waits do");
            let now = at(50_000 + after_us);
            assert_ne!(spread.permit(now), Permit::Now, "{after_us} us");
            spread.acknowledged(now, 1);
            assert_eq!(spread.permit(now) == Permit::Now, goes, "{after_us} us");
        }
    }

    #[test]
    fn what_grows_and_what_is_acknowledged_together_goes_together() {
        let mut spread = Spread::default();
        spread.together += 1;
        sent(&mut spread, at(50_000), 1);
        assert_eq!(spread.permit(at(50_000)), Permit::Now);
        sent(&mut spread, at(50_000), 1);
        assert_ne!(spread.permit(at(50_000)), Permit::Now);
        spread.acknowledged(at(90_000), 5);
        for _ in 0..5 {
            assert_eq!(spread.permit(at(90_000)), Permit::Now);
            sent(&mut spread, at(90_000), 1);
        }
        assert_ne!(spread.permit(at(90_000)), Permit::Now);
    }

    #[test]
    fn waits_alone_keep_to_one_packet_a_share() {
        let mut spread = Spread::default();
        let (mut now, packets) = (at(50_000), 2000);
        for seed in 0..packets {
            sent(&mut spread, now, seed);
            if let Permit::At(until) = spread.permit(now) {
                now = until;
            }
        }
        let mean = now.since(at(50_000)).as_secs_f64() / packets as f64;
        assert!((0.0095..0.0105).contains(&mean), "{mean} s for each, of 0.01 s");
    }
}
