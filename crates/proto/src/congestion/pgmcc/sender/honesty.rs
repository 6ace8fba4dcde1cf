//! The check of an acker's reported loss against what it acknowledges (src: pgmcc-draft s5).

use faircast_base::Time;

use crate::congestion::pgmcc::PgmccConfig;
use crate::congestion::pgmcc::loss::Estimate;

/// Packets that must be settled before an acker is judged. What it lost before it became acker the
/// sender has not seen; after so many packets neither estimator remembers it.
const PACKETS: u32 = 2048;

/// How many times the loss that its bitmaps show an acker may report.
const FACTOR: f64 = 4.0;

/// And how much more in addition: some losses that the sender could not see.
const SLACK: f64 = 0.03;

/// What an acker has shown and said in its time.
#[derive(Clone, Debug)]
pub(super) struct Honesty {
    /// The receiver's own estimator, run by the sender over what the bitmaps show.
    shown: Estimate,
    said: f64,
    settled: u32,
}

impl Honesty {
    /// An acker that has shown nothing yet.
    pub(super) fn new(config: &PgmccConfig) -> Self {
        Self { shown: Estimate::new(config), said: 0.0, settled: 0 }
    }

    pub(super) fn reports(&mut self, loss: f64) {
        self.said = loss;
    }

    /// Its bitmap settles packets.
    pub(super) fn saw(&mut self, now: Time, received: u32, lost: u32) {
        for _ in 0..lost {
            self.shown.sample(now, true);
        }
        for _ in 0..received {
            self.shown.sample(now, false);
        }
        self.settled = self.settled.saturating_add(received + lost);
    }

    /// Whether it reports far more loss than it shows.
    pub(super) fn is_exposed(&self) -> bool {
        self.settled >= PACKETS && self.said > FACTOR * self.shown.loss() + SLACK
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faircast_base::Duration;
    use std::vec::Vec;

    /// Runs an acker for `packets`, 1 ms each: whether each was lost, and the loss that it claims,
    /// or its own honest estimate, which has a past of `before`.
    fn exposed_at(
        loss_intervals: bool,
        before: &[bool],
        lost: impl Fn(u32) -> bool,
        claim: Option<f64>,
    ) -> Option<u32> {
        let config = PgmccConfig { loss_intervals, ..PgmccConfig::default() };
        let (mut honesty, mut own) = (Honesty::new(&config), Estimate::new(&config));
        let mut now = Time::ZERO;
        for lost in before {
            now += Duration::from_millis(1);
            own.sample(now, *lost);
        }
        (0..20_000).find(|&i| {
            now += Duration::from_millis(1);
            own.sample(now, lost(i));
            honesty.saw(now, u32::from(!lost(i)), u32::from(lost(i)));
            honesty.reports(claim.unwrap_or(own.loss()));
            honesty.is_exposed()
        })
    }

    const BOTH: [bool; 2] = [false, true];

    #[test]
    fn an_honest_acker_is_never_exposed_whatever_it_lost_before_and_however_it_loses() {
        let heavy: Vec<bool> = (0..2000).map(|i| i % 3 != 0).collect();
        for estimator in BOTH {
            for before in [&[][..], &heavy] {
                for (name, every, burst) in
                    [("none", 100_000, 0), ("even", 97, 1), ("bursts", 1500, 200)]
                {
                    let lost = |i: u32| i % every >= every - burst.min(every);
                    let exposed = exposed_at(estimator, before, lost, None);
                    assert_eq!(exposed, None, "{estimator:?}, {name}, {} before", before.len());
                }
            }
        }
    }

    #[test]
    fn an_acker_that_claims_losses_it_does_not_show_is_exposed() {
        for estimator in BOTH {
            for claim in [0.1, 0.3, 1.0] {
                let exposed = exposed_at(estimator, &[], |i| i % 1000 == 999, Some(claim));
                assert!(exposed.is_some_and(|at| at < 2500), "{estimator:?} {claim}: {exposed:?}");
            }
        }
    }
}
