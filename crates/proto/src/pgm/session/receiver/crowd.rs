//! Back-off of NAKs, by the estimated number of receivers that miss the same packets.

use faircast_base::{Duration, Rng, Time};

use crate::pgm::PgmFlowSettings;

/// Bounds of confirmations of a loss beyond the first: a few NAKs cost less than avoiding them.
const MORE_ABOVE: f64 = 3.5;
const FAR_MORE_ABOVE: f64 = 6.0;
const FEWER_BELOW: f64 = 3.0;

const GAIN: f64 = 0.25;

/// Most doublings of the crowd: some thousand receivers behind one lossy link.
const DOUBLINGS_MAX: u32 = 13;

/// Mean of the exponential draw in round trips. Receivers with draws within one round trip of the
/// earliest send a NAK: e^(4/3) of them, about four, for any size of the crowd.
const MEAN_ROUND_TRIPS: f64 = 0.75;

/// Estimator of the number of receivers that miss the same packets.
///
/// Back-offs drawn evenly from a span below the round trip suppress no NAK. The remedy is a span of
/// some round trips with few early draws (src: RFC 5401 s4.3). It needs the group's size, which
/// receivers estimate from the number of confirmations of a loss.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    backoff: Duration,
    /// Binary logarithm of the estimate.
    doublings: u32,
    /// Smoothed confirmations of a loss beyond the first.
    surplus: f64,
    changed_at: Time,
    rtt: Duration,
}

impl Crowd {
    pub(crate) fn new(settings: &PgmFlowSettings) -> Self {
        Self { backoff: settings.nak_backoff, ..Self::default() }
    }

    /// Notes a repaired packet with its confirmations; `rtt` is the time to a confirmation.
    pub(crate) fn note(&mut self, now: Time, confirmations: u32, rtt: Option<Duration>) {
        if confirmations == 0 {
            return;
        }
        self.rtt = rtt.unwrap_or(self.rtt);
        self.surplus += GAIN * (f64::from(confirmations - 1) - self.surplus);
        // Packets lost together give the same information, and a change affects later losses only.
        if now.since(self.changed_at) < Duration::from_secs_f64(self.shape().1) + self.rtt {
            return;
        }
        let guess = if self.surplus > MORE_ABOVE {
            let step = if self.surplus > FAR_MORE_ABOVE { 2 } else { 1 };
            (self.doublings + step).min(DOUBLINGS_MAX)
        } else if self.surplus < FEWER_BELOW {
            self.doublings.saturating_sub(1)
        } else {
            return;
        };
        if guess != self.doublings {
            (self.doublings, self.changed_at) = (guess, now);
            self.surplus = (MORE_ABOVE + FEWER_BELOW) / 2.0;
        }
    }

    fn shape(&self) -> (f64, f64) {
        // The span is ln N + 1 means (src: RFC 5401 s4.3); ln 2 is 0.69.
        let means = 1.0 + 0.69 * f64::from(self.doublings);
        let shortest = self.backoff.as_secs_f64() / means;
        let mean = MEAN_ROUND_TRIPS * self.rtt.as_secs_f64();
        let mean = if mean > shortest { mean } else { shortest };
        (mean, mean * means)
    }

    pub(crate) fn draw(&self, rng: &mut Rng) -> Duration {
        if self.doublings == 0 {
            return rng.up_to(self.backoff);
        }
        let (mean, span) = self.shape();
        for _ in 0..8 {
            let before_end = rng.exponential(mean);
            if before_end < span {
                return Duration::from_secs_f64(span - before_end);
            }
        }
        rng.up_to(Duration::from_secs_f64(span))
    }
}

/// Back-offs of one moment. Packets found missing together share one draw and one NAK.
#[derive(Debug)]
pub(crate) struct Backoff {
    now: Time,
    drawn: Option<Time>,
}

impl Backoff {
    pub(crate) fn new(now: Time) -> Self {
        Self { now, drawn: None }
    }

    pub(crate) fn draw(&mut self, crowd: &Crowd, rng: &mut Rng) -> Time {
        *self.drawn.get_or_insert_with(|| self.now + crowd.draw(rng))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::s;
    use alloc::vec::Vec;
    use faircast_base::{NodeId, Purpose};

    const RTT: Duration = Duration::from_millis(400);

    fn crowd() -> Crowd {
        Crowd::new(&PgmFlowSettings::default())
    }

    fn naks(crowd: &Crowd, members: u32, rng: &mut Rng) -> (usize, Duration) {
        let draws: Vec<_> = (0..members).map(|_| crowd.draw(rng)).collect();
        let first = *draws.iter().min().unwrap();
        (draws.iter().filter(|&&draw| draw < first + RTT).count(), first)
    }

    #[test]
    fn a_crowd_learns_to_let_few_speak_for_all() {
        let mut rng = Rng::new(1, NodeId(1), Purpose::Machine(0));
        for members in [1, 3, 10, 100, 1000, 10_000] {
            let mut crowd = crowd();
            let (mut late, mut spoke) = (Duration::ZERO, 0);
            for second in 0..400 {
                let (naks, first) = naks(&crowd, members, &mut rng);
                crowd.note(s(10 * second), (naks as u32).min(9), Some(RTT));
                if second >= 200 {
                    spoke += naks;
                    late += first;
                }
            }
            assert!(spoke <= 8 * 200, "{members}: {spoke} NAKs for 200 losses");
            assert!(late <= RTT * 300, "{members}: {late} for 200 losses");
            if members <= 3 {
                assert_eq!(crowd.doublings, 0);
            }
        }
    }

    #[test]
    fn a_crowd_that_has_shrunk_is_not_taken_for_a_large_one_for_ever() {
        let mut rng = Rng::new(1, NodeId(1), Purpose::Machine(0));
        let mut crowd = crowd();
        for second in 0..400 {
            let members = if second < 100 { 3000 } else { 10 };
            let (naks, _) = naks(&crowd, members, &mut rng);
            crowd.note(s(10 * second), (naks as u32).min(9), Some(RTT));
        }
        assert!(crowd.doublings <= 4, "{}", crowd.doublings);
    }

    #[test]
    fn who_loses_alone_again_waits_no_longer_than_before() {
        let mut crowd = crowd();
        (0..60).for_each(|i| crowd.note(s(10 * i), 9, Some(RTT)));
        assert!(crowd.doublings > 5);
        (60..200).for_each(|i| crowd.note(s(10 * i), 1, Some(RTT)));
        assert_eq!(crowd.doublings, 0);
    }
}
