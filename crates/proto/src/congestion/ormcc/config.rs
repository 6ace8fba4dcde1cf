//! Settings of ORMCC, and their two profiles.

use faircast_base::Duration;

use crate::settings::{choices, settings};

choices! {
    /// Set of settings that belong together. Each setting can still be changed on its own.
    pub enum Profile {
        /// Algorithm of the paper, with what it leaves open filled in.
        Paper = "paper",
        /// Additions for real networks. The default.
        Improved = "improved",
    }

    /// Reporting receivers, and their frequency.
    pub enum Feedback {
        /// All receivers, at each packet that reveals a loss (src: ormcc s2.1).
        Ci = "ci",
        /// All receivers, at most once in a round trip (src: ormcc s3.2).
        CiPerRtt = "ci-per-rtt",
        /// Representative, and receivers below the announced average rate (src: ormcc-trac).
        Trac = "trac",
    }
}

settings! {
    /// All settings of ORMCC, with the defaults of the profile `improved`. The text of a setting
    /// names the value of the profile `paper` if it differs. Sources: docs/schemes/ormcc.md.
    pub struct OrmccConfig;
    from profile: Profile = Improved,
        "Base settings: the paper's algorithm (paper), or that with changes for real networks (improved)";
    /// Share of the representative's output rate to which a cut reduces the rate (ormcc s2.1)
    beta: f64 [0.01, 1.0] = 0.75;
    /// Limit reported output rates to the largest rate of the last round trips (paper: false)
    output_bound: bool = true;
    /// Start the average throughput with its first sample and no deviation, not with the initial
    /// rate (open in the paper)
    // The algorithm has no initial values, but the initial rate is known.
    throughput_first: bool = false;
    /// Receivers that report congestion: all at each packet that reveals a loss (ci), all once a
    /// round trip, or the representative and slower receivers (paper: ci)
    feedback: Feedback = Trac;
    by profile:
    /// Round trips over which a receiver measures its output rate at least, 2 s at most.
    output_rtts: u32 = 1;
    /// Least time over which a receiver measures its output rate.
    output_time: Duration = 5 ms;
    /// Only round trips of the representative's reports count, of any kind; by the paper those of
    /// all congestion indications do (src: ormcc s2.1).
    own_round_trips: bool = true;
    /// Least time between two congestion indications of a receiver.
    ci_spacing: Duration = 1 ms;
    /// Later packets that must have arrived before a receiver counts one as lost.
    ci_reorder: u32 = 3;
    /// Rate at the start in packets per round trip.
    // Open in the paper, which gives only the initial round trip.
    initial_packets: f64 = 4.0;
    /// The rate doubles each round trip until the first sign of congestion.
    initial_doubling: bool = true;
    /// The representative shows that it is alive, the rate grows only while it does, and falls
    /// without any report.
    guard: bool = true;
}

impl OrmccConfig {
    /// Returns the settings of a profile.
    pub fn profile(profile: Profile) -> Self {
        match profile {
            Profile::Paper => Self::paper(),
            Profile::Improved => Self::default(),
        }
    }

    /// src: ormcc s2.
    fn paper() -> Self {
        Self {
            output_bound: false,
            output_rtts: 0,
            output_time: Duration::ZERO,
            own_round_trips: false,
            feedback: Feedback::Ci,
            ci_spacing: Duration::ZERO,
            ci_reorder: 1,
            initial_packets: 1.0,
            initial_doubling: false,
            guard: false,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::options;

    #[test]
    fn the_paper_is_a_starting_point() {
        let config =
            |raw: &[(&str, &str)]| OrmccConfig::from_options(&options(raw, OrmccConfig::OPTIONS));
        let paper = config(&[("profile", "paper")]);
        assert_eq!(paper, OrmccConfig::profile(Profile::Paper));
        assert_eq!(paper.beta, 0.75);
        assert_eq!((paper.feedback, paper.guard), (Feedback::Ci, false));
        let low = config(&[("profile", "paper"), ("feedback", "ci-per-rtt")]);
        assert_eq!(low, OrmccConfig { feedback: Feedback::CiPerRtt, ..paper });
    }
}
