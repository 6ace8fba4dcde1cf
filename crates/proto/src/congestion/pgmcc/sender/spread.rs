//! The window spread over the round trip, so that packets form no clumps.
//!
//! Clumps of large packets never lose beside clumps of small ones at a full drop-tail queue (src:
//! floyd-jacobson-1992). Two things are as TCP has them, or TCP would lose at that queue what we do
//! not: packets follow acknowledgements, and what the window grows by goes back to back.

use faircast_base::{Cx, Duration, Time};

use crate::congestion::Permit;
use crate::congestion::pgmcc::window::Window;

/// Packets that are nearer to each other than this are not spread: the driver of a real network
/// groups what leaves within 50 microseconds, and timers are no finer.
const SHARE_MIN: Duration = Duration::from_micros(100);

/// Nor are they further apart: an estimate of the round trip that is far too long, as after an outage,
/// must not hold up the recovery.
const SHARE_MAX: Duration = Duration::from_millis(20);

/// Nothing is spread over round trips that are shorter.
const RTT_MIN: Duration = Duration::from_millis(1);

/// After a packet the next waits for an acknowledgement, which it follows if this many shares RTT/W of
/// the round trip have passed, so that clumps dissolve.
const LEAST: f64 = 0.75;

/// It waits no longer than evenly at random up to this many shares.
const MOST: f64 = 2.0;

/// Packets that may follow their predecessor at once, at a time: those that one bitmap brings.
const TOGETHER_MAX: u32 = 32;

/// How much of a timer's lateness the next packets make good.
const LATENESS_MAX: Duration = Duration::from_millis(5);

/// When the next packet may leave, as far as spreading goes.
#[derive(Debug, Default)]
pub(super) struct Spread {
    /// Before this moment no data follows the last packet.
    until: Time,
    /// From this moment on it follows an acknowledgement.
    from: Time,
    /// When the last packet was due by the schedule of packets that only waited.
    due: Time,
    /// Nothing but that moment has kept back data since then.
    waiting: bool,
    /// Packets that may follow their predecessor at once.
    together: u32,
    /// When the last acknowledgement came.
    acked_at: Time,
}

impl Spread {
    /// Whether data for which there is room may leave.
    pub(super) fn permit(&mut self, now: Time) -> Permit {
        if self.until <= now {
            return Permit::Now;
        }
        self.waiting = true;
        Permit::At(self.until)
    }

    pub(super) fn blocked(&mut self) {
        self.waiting = false;
    }

    /// A packet left: how long the next one waits.
    pub(super) fn sent(&mut self, cx: &mut Cx<'_>, rtt: Duration, window: &Window) {
        if self.together > 0 {
            self.together -= 1;
            return;
        }
        // Slow start sends two packets for each that is acknowledged.
        let per_round_trip = window.size * if window.is_opening() { 2.0 } else { 1.0 };
        let share = rtt.mul_f64(1.0 / per_round_trip).min(SHARE_MAX);
        if share >= SHARE_MIN && rtt >= RTT_MIN {
            // Packets that only waited keep to RTT/W on average: neither the random waits nor timers
            // that fire late may cost throughput.
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

    /// An acknowledgement of `count` packets lets the next packet go: a clock that TCP has too, so
    /// that at a full queue both find as many free places. Of packets that are acknowledged together
    /// as many go together.
    pub(super) fn acknowledged(&mut self, now: Time, count: u32) {
        let first = u32::from(self.acked_at != now);
        self.together = (self.together + count.saturating_sub(first)).min(TOGETHER_MAX);
        self.acked_at = now;
        if self.from <= now && now < self.until {
            self.until = now;
            self.waiting = false;
        }
    }

    /// The window has grown by `packets`, after slow start. They go back to back, so that at a full
    /// queue they are lost themselves; spread, they would take the places of others' packets.
    pub(super) fn grown(&mut self, packets: u32) {
        self.together += packets;
    }

    /// The window was cut.
    pub(super) fn restart(&mut self) {
        self.together = 0;
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

    /// A window of ten packets that has left slow start: a share is 10 ms.
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
            // A wait that lasts longer than that by itself.
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
        spread.grown(1);
        sent(&mut spread, at(50_000), 1);
        assert_eq!(spread.permit(at(50_000)), Permit::Now);
        sent(&mut spread, at(50_000), 1);
        assert_ne!(spread.permit(at(50_000)), Permit::Now);
        // Five at once: the first lets one go, the others do not wait for it.
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
