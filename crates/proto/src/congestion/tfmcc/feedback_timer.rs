//! Feedback timer of a receiver that is not the CLR (RFC 4654 s4.5).

use faircast_base::{Duration, Rng, Time, math};

/// Timer of a feedback round. A few early reports suppress the rest (src: RFC 4654 s4.5).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FeedbackTimer(pub(super) Option<Pending>);

#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    started: Time,
    /// Random wait in seconds, scaled to the present largest round trip.
    wait_s: f64,
    /// Largest round trip of the scale (R_max).
    rtt_max_s: f64,
    /// Sender's silence beyond R_max, which does not count: no report could be suppressed then.
    silence: Duration,
    /// Receiver's rate at the start of the round (X_fbr).
    pub(super) rate: f64,
}

impl FeedbackTimer {
    /// Starts a round of `round_s` seconds: t = T (1 + ln x / ln N), x uniform in (0, 1].
    pub(super) fn start(
        &mut self,
        now: Time,
        rng: &mut Rng,
        round_s: f64,
        rtt_max_s: f64,
        group_size: u32,
        rate: f64,
    ) {
        let x = 1.0 - rng.unit();
        let share = 1.0 + math::ln(x) / math::ln(f64::from(group_size.max(2)));
        let wait_s = (round_s * share).max(0.0);
        self.0 = Some(Pending { started: now, wait_s, rtt_max_s, silence: Duration::ZERO, rate });
    }

    pub(super) fn on_data(&mut self, now: Time, previous: Time, rtt_max_s: f64) {
        let Some(pending) = &mut self.0 else { return };
        let since = previous.max(pending.started);
        let excess = now.since(since).saturating_sub(Duration::from_secs_f64(pending.rtt_max_s));
        pending.silence += excess;
        if rtt_max_s != pending.rtt_max_s {
            pending.wait_s *= rtt_max_s / pending.rtt_max_s;
            pending.rtt_max_s = rtt_max_s;
        }
    }

    pub(super) fn expiry(&self, last_data: Time) -> Option<Time> {
        let pending = self.0?;
        let at = pending.started + Duration::from_secs_f64(pending.wait_s) + pending.silence;
        (at <= last_data + Duration::from_secs_f64(pending.rtt_max_s)).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::at;
    use alloc::vec::Vec;
    use faircast_base::{NodeId, Purpose};

    #[test]
    fn draws_are_biased_so_that_few_of_a_large_group_are_early() {
        let mut rng = Rng::new(1, NodeId(0), Purpose::Machine(0));
        let draws: Vec<f64> = (0..100_000)
            .map(|_| {
                let mut timer = FeedbackTimer::default();
                timer.start(at(0), &mut rng, 6.0, 1.0, 10_000, 1.0);
                let at = timer.expiry(Time::ZERO + Duration::from_secs(100)).unwrap();
                at.since(Time::ZERO).as_secs_f64()
            })
            .collect();
        // P(t <= u T) = N^(u - 1).
        for (share, want) in [(0.0, 1e-4), (0.5, 0.01), (0.75, 0.1), (1.0, 1.0)] {
            let got = draws.iter().filter(|t| **t <= 6.0 * share + 1e-9).count() as f64 / 1e5;
            assert!((got - want).abs() < 0.3 * want, "{share}: {got} for {want}");
        }
    }

    fn half() -> FeedbackTimer {
        let rtt_max_s = 0.1;
        FeedbackTimer(Some(Pending {
            started: at(0),
            wait_s: 0.3,
            rtt_max_s,
            silence: Duration::ZERO,
            rate: 1.0,
        }))
    }

    #[test]
    fn it_scales_with_the_largest_round_trip() {
        let mut timer = half();
        timer.on_data(at(50), at(0), 0.2);
        assert_eq!(timer.expiry(at(500)), Some(at(600)));
        timer.on_data(at(100), at(50), 0.05);
        assert_eq!(timer.expiry(at(500)), Some(at(150)));
    }

    #[test]
    fn silence_of_the_sender_does_not_count() {
        let mut timer = half();
        assert_eq!(timer.expiry(at(150)), None, "data must come before it can run out");
        assert_eq!(timer.expiry(at(200)), Some(at(300)));
        timer.on_data(at(180), at(0), 0.1);
        assert_eq!(timer.expiry(at(300)), Some(at(380)));
        timer.0 = None;
        assert_eq!(timer.expiry(at(300)), None);
    }
}
