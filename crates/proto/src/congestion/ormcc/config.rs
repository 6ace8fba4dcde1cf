//! Settings of ORMCC, and their two profiles.

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
    /// Profile, for its rules that are no options.
    profile: Profile = Improved;
}

impl OrmccConfig {
    /// Returns the settings of a profile.
    pub fn profile(profile: Profile) -> Self {
        match profile {
            // src: ormcc s2.
            Profile::Paper => Self {
                output_bound: false,
                feedback: Feedback::Ci,
                profile: Profile::Paper,
                ..Self::default()
            },
            Profile::Improved => Self::default(),
        }
    }

    /// True with the guard: growth needs a representative that shows itself alive; silence cuts.
    pub(super) fn is_improved(&self) -> bool {
        self.profile == Profile::Improved
    }

    /// Returns the packets per round trip of the initial rate; open in the paper.
    pub(super) fn initial_packets(&self) -> f64 {
        if self.is_improved() { 4.0 } else { 1.0 }
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
        assert_eq!((paper.feedback, paper.is_improved()), (Feedback::Ci, false));
        let low = config(&[("profile", "paper"), ("feedback", "ci-per-rtt")]);
        assert_eq!(low, OrmccConfig { feedback: Feedback::CiPerRtt, ..paper });
    }
}
