//! Lateness of packets in the lab's emulated network, and the validity of a run's figures.

use serde::{Deserialize, Serialize};

/// Lateness of packets behind their due times in the emulator of a lab run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// Packets delivered to hosts.
    pub packets: u64,
    /// Mean lateness in seconds.
    pub mean_s: f64,
    /// Lateness that 99 of 100 packets do not exceed, in seconds.
    pub p99_s: f64,
    /// Greatest lateness in seconds.
    pub max_s: f64,
    /// True if the emulator ran with real-time priority.
    pub realtime: bool,
    /// Shortest round-trip time of any flow without queueing, in seconds; `None` if not judged.
    pub round_trip_s: Option<f64>,
    /// Share of processor time taken by the hypervisor (steal time), 0 to 1; `None` if unknown.
    pub stolen_share: Option<f64>,
    /// Validity of the figures; `None` if not judged.
    pub verdict: Option<Validity>,
}

/// Validity of the figures of a lab run as results of the scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Validity {
    /// The network behaved as the scenario requires.
    Valid,
    /// The network deviated: differences of a few per cent mean nothing.
    Doubtful,
    /// The network deviated too much.
    Invalid,
}

/// Greatest mean lateness of a valid run, in round-trip times: round trips grow by 5 %.
const MEAN_SHARE_VALID: f64 = 0.025;
/// Greatest mean lateness of a doubtful run: round trips grow by 20 %.
const MEAN_SHARE_DOUBTFUL: f64 = 0.1;
/// Greatest 99th percentile of a valid run, in round-trip times: pauses end within a round trip.
const P99_SHARE_VALID: f64 = 0.25;
/// Greatest 99th percentile of a doubtful run: longer pauses look like losses or silence.
const P99_SHARE_DOUBTFUL: f64 = 1.0;
/// Least steal time that is named as a cause.
const STOLEN_SHARE_NAMED: f64 = 0.01;

impl Validity {
    /// Returns the validity by the mean and 99th percentile of lateness; the worse counts. Invalid
    /// for NaN, or late packets at a round trip of zero.
    pub fn of(mean_s: f64, p99_s: f64, round_trip_s: f64) -> Self {
        let share = |lateness_s: f64, valid: f64, doubtful: f64| match lateness_s / round_trip_s {
            share if share <= valid => Self::Valid,
            share if share <= doubtful => Self::Doubtful,
            _ => Self::Invalid,
        };
        // Without lateness, a run is valid at any round-trip time.
        if mean_s == 0.0 && p99_s == 0.0 {
            return Self::Valid;
        }
        share(mean_s, MEAN_SHARE_VALID, MEAN_SHARE_DOUBTFUL).max(share(
            p99_s,
            P99_SHARE_VALID,
            P99_SHARE_DOUBTFUL,
        ))
    }
}

impl Lateness {
    /// Returns the lateness judged against the scenario's shortest round-trip time in seconds.
    #[must_use]
    pub fn judged(self, round_trip_s: f64, stolen_share: Option<f64>) -> Self {
        let verdict = Some(Validity::of(self.mean_s, self.p99_s, round_trip_s));
        Self { round_trip_s: Some(round_trip_s), stolen_share, verdict, ..self }
    }

    /// True if the figures of the run must not be used.
    pub fn is_invalid(&self) -> bool {
        self.verdict == Some(Validity::Invalid)
    }

    /// Returns a warning about the figures without a full stop; `None` if valid or not judged.
    pub fn doubts(&self) -> Option<String> {
        let word = match self.verdict? {
            Validity::Valid => return None,
            Validity::Doubtful => "DOUBTFUL",
            Validity::Invalid => "NOT VALID",
        };
        let ms = |seconds: f64| seconds * 1e3;
        let cause = match self.stolen_share {
            Some(share) if share >= STOLEN_SHARE_NAMED => {
                format!(
                    "; the machine's host took its processor away for {:.1} % of the time",
                    share * 1e2
                )
            }
            _ if !self.realtime => "; the emulator had no real-time priority".to_string(),
            _ => "; the processors were busy with other work".to_string(),
        };
        Some(format!(
            "{word}: packets left {:.2} ms late in the mean, {:.2} ms at the 99th percentile, over round \
             trips from {:.2} ms on{cause}",
            ms(self.mean_s),
            ms(self.p99_s),
            ms(self.round_trip_s.unwrap_or_default()),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_held_against_the_round_trip() {
        use Validity::{Doubtful, Invalid, Valid};
        for (what, mean_s, p99_s, round_trip_s, want) in [
            ("a quiet machine", 20e-6, 200e-6, 40e-3, Valid),
            ("the same beside a short path", 20e-6, 200e-6, 0.5e-3, Doubtful),
            ("nothing late at all", 0.0, 0.0, 0.0, Valid),
            ("5 % of the round trip, both ways", 1e-3, 2e-3, 40e-3, Valid),
            ("a little more", 1.01e-3, 2e-3, 40e-3, Doubtful),
            ("a fifth of it", 4e-3, 8e-3, 40e-3, Doubtful),
            ("more than a fifth", 4.01e-3, 8e-3, 40e-3, Invalid),
            ("seldom, but long", 0.1e-3, 10.1e-3, 40e-3, Doubtful),
            ("pauses of a round trip", 0.5e-3, 41e-3, 40e-3, Invalid),
            ("a processor that was taken away", 16e-3, 193e-3, 40e-3, Invalid),
            ("the same on a path of seconds", 16e-3, 193e-3, 1.0, Valid),
            ("no round trip", 1e-6, 1e-6, 0.0, Invalid),
            ("no number", f64::NAN, 1e-6, 1.0, Invalid),
        ] {
            assert_eq!(Validity::of(mean_s, p99_s, round_trip_s), want, "{what}");
        }
    }

    #[test]
    fn more_lateness_never_makes_a_run_more_valid() {
        let steps = [0.0, 1e-6, 1e-4, 1e-3, 5e-3, 0.02, 0.1, 1.0, f64::INFINITY];
        for pair in steps.windows(2) {
            for other in steps {
                assert!(Validity::of(pair[0], other, 0.04) <= Validity::of(pair[1], other, 0.04));
                assert!(Validity::of(other, pair[0], 0.04) <= Validity::of(other, pair[1], 0.04));
                assert!(Validity::of(pair[0], other, 0.4) <= Validity::of(pair[0], other, 0.04));
            }
        }
    }

    #[test]
    fn the_cause_is_named_where_it_is_known() {
        let late = Lateness { mean_s: 16e-3, p99_s: 193e-3, realtime: true, ..Lateness::default() };
        assert_eq!(late.doubts(), None, "nobody judged it");
        let judged = |stolen| late.judged(0.04, stolen);
        assert!(judged(None).is_invalid());
        let text = judged(Some(0.073)).doubts().unwrap();
        assert_eq!(
            text,
            "NOT VALID: packets left 16.00 ms late in the mean, 193.00 ms at the 99th percentile, over \
             round trips from 40.00 ms on; the machine's host took its processor away for 7.3 % of the time"
        );
        assert!(judged(Some(0.0)).doubts().unwrap().ends_with("busy with other work"));
        let ordinary = Lateness { realtime: false, ..late }.judged(0.4, None);
        assert!(ordinary.doubts().unwrap().starts_with("DOUBTFUL: "), "{ordinary:?}");
        assert!(ordinary.doubts().unwrap().ends_with("no real-time priority"));
        assert_eq!(late.judged(10.0, Some(0.5)).doubts(), None, "valid whatever was stolen");
    }
}
