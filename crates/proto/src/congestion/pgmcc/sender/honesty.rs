//! Check of an acker's reported loss against its acknowledgements (src: pgmcc-draft s5).

use faircast_base::Time;

use crate::congestion::pgmcc::PgmccConfig;
use crate::congestion::pgmcc::loss::Estimate;

/// Settled packets before a verdict: estimators forget earlier losses within 2048 packets.
const PACKETS: u32 = 2048;

/// Highest ratio of reported loss to the loss in bitmaps.
const FACTOR: f64 = 4.0;

/// Additional tolerance, for losses that the sender cannot see.
const SLACK: f64 = 0.03;

#[derive(Clone, Debug)]
pub(super) struct Honesty {
    /// Receiver's estimator, fed by the sender from bitmaps.
    shown: Estimate,
    /// Loss in the acker's latest report.
    reported: f64,
    /// Packets settled since the acker's appointment.
    settled: u32,
}

impl Honesty {
    pub(super) fn new(config: &PgmccConfig) -> Self {
        Self { shown: Estimate::new(config), reported: 0.0, settled: 0 }
    }

    pub(super) fn reports(&mut self, loss: f64) {
        self.reported = loss;
    }

    pub(super) fn saw(&mut self, now: Time, received: u32, lost: u32) {
        for _ in 0..lost {
            self.shown.sample(now, true);
        }
        for _ in 0..received {
            self.shown.sample(now, false);
        }
        self.settled = self.settled.saturating_add(received + lost);
    }

    pub(super) fn is_exposed(&self) -> bool {
        self.settled >= PACKETS && self.reported > FACTOR * self.shown.loss() + SLACK
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faircast_base::Duration;
    use std::vec::Vec;

    /// Runs an acker with one packet per ms, which reports `claim` or its own estimate.
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
