//! The settings of ORMCC, and the two profiles that set them together.

use faircast_base::Duration;

use crate::settings::{choices, settings};

choices! {
    /// A set of settings that belong together. Each setting can still be changed on its own.
    pub enum Profile {
        /// The paper's algorithm, with what it leaves open filled in.
        Paper = "paper",
        /// What real networks need beyond it. The default.
        Improved = "improved",
    }

    /// Who may report, and how often.
    pub enum Feedback {
        /// Everybody, at each packet that reveals a loss (src: ormcc s2.1).
        Ci = "ci",
        /// Everybody, at most once in a round trip (src: ormcc s3.2).
        CiPerRtt = "ci-per-rtt",
        /// The representative, and those whose own average is below the one that the source
        /// announces (src: ormcc-trac).
        Trac = "trac",
    }

    /// Whose round trips count.
    pub enum RttSamples {
        /// Those of all congestion indications (src: ormcc s2.1).
        All = "all",
        /// Those of the representative's reports, of any kind.
        Representative = "representative",
    }
}

settings! {
    /// All settings of ORMCC; docs/schemes/ormcc.md says where each value comes from. Defaults are
    /// those of the profile `improved`, as "Deviations" there; where the profile `paper` differs, the
    /// sentence says so.
    pub struct OrmccConfig;
    from profile: Profile = Improved, "Which settings to start from: the paper's algorithm, or that \
        with what real networks need";
    /// Weight of a new output rate in the averages that choose the representative (ormcc s2.2)
    alpha: f64 [0.001, 1.0] = 0.125;
    /// Weight of a new value in the throughput (ormcc s2.2)
    gamma: f64 [0.001, 1.0] = 0.5;
    /// A cut goes to this share of the representative's output rate (ormcc s2.1)
    beta: f64 [0.01, 1.0] = 0.75;
    /// Packets over which a receiver measures its output rate (ormcc s2.1)
    n: u32 [1, 64] = 4;
    /// An output rate counts up to the largest rate of the last round trips (paper: false)
    output_bound: bool = true;
    /// Round trips over which it measures at least, 2 s at most (paper: 0)
    output_rtts: f64 [0.0, 100.0] = 1.0;
    /// The least time over which it measures (paper: 0)
    output_time: Duration [0 s, 2 s] = 5 ms;
    /// The round trip before samples (ormcc s3)
    rtt0: Duration [10 us, 10 s] = 200 ms;
    /// Weight of a new round trip (ormcc s2.1)
    rtt_gain: f64 [0.001, 1.0] = 0.125;
    /// Whose round trips count: those of all congestion indications, or of the representative alone
    /// (paper: all)
    rtt_samples: RttSamples = Representative;
    /// Chance that a far lower rate changes the representative though it is not below its average
    /// (open in the paper)
    // Low enough that who is representative stays so.
    q: f64 [0.0, 1.0] = 0.1;
    /// Least deviation of rates, as a share of their average (open in the paper)
    // Without a floor, equal rates have no deviation, and each is far lower.
    sigma_floor: f64 [0.0, 1.0] = 0.01;
    /// Deviations above the average at which the representative has recovered (ormcc s2.1)
    recovered_sigmas: f64 [0.0, 100.0] = 2.0;
    /// Deviations below the average at which a rate changes the representative (ormcc s2.1)
    slower_sigmas: f64 [0.0, 100.0] = 4.0;
    /// A rate at that very limit does too: line 28 of the algorithm; its text says below
    slower_at_limit: bool = false;
    /// Deviations by which the throughput is taken higher for the interval I (ormcc s2.1)
    interval_sigmas: f64 [0.0, 100.0] = 3.0;
    /// The average throughput begins with its first value and no deviation, not with the initial
    /// rate (open in the paper)
    // The algorithm has no initial values; a rate is at hand.
    throughput_first: bool = false;
    /// Least interval I in packets, after which a representative without congestion is replaced
    /// (open in the paper)
    // After a first cut at a low rate the formula gives a packet or two.
    interval_min: f64 [1.0, 1e9] = 100.0;
    /// Who reports congestion: everybody at each packet that reveals a loss, everybody once in a
    /// round trip, or the representative and those slower than it (paper: ci)
    feedback: Feedback = Trac;
    /// Least time between two congestion indications of a receiver (paper: 0)
    ci_spacing: Duration [0 s, 10 s] = 1 ms;
    /// Later packets that must have arrived before a receiver counts one as lost (paper: 1)
    ci_reorder: u32 [1, 32] = 3;
    /// The same by time
    ci_reorder_delay: Duration [0 s, 10 s] = 10 ms;
    /// Rate at the start in packets per round trip (paper: 1)
    initial_packets: f64 [0.01, 1000.0] = 4.0;
    /// The rate doubles each round trip until the first sign of congestion (paper: false)
    initial_doubling: bool = true;
    /// Up to so many packets per round trip (paper: 16)
    doubling_max: f64 [1.0, 1e6] = 100000.0;
    /// Packets per round trip by which the rate leads what the representative told to come out
    /// (guard)
    lead_packets: f64 [0.5, 1e6] = 1.0;
    /// Share of what came out by which the rate leads it beyond that (guard)
    lead_share: f64 [0.0, 100.0] = 0.05;
    /// The representative shows that it is alive, the rate grows only while it does, and falls
    /// without any report (paper: false)
    guard: bool = true;
    /// Silence after which the rate falls, at least 8 round trips (guard)
    silence: Duration [100 ms, 30 s] = 5 s;
    /// The floor: one packet in this time
    floor_interval: Duration [10 ms, 60 s] = 2 s;
}

impl OrmccConfig {
    /// The settings of a profile.
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
            output_rtts: 0.0,
            output_time: Duration::ZERO,
            rtt_samples: RttSamples::All,
            feedback: Feedback::Ci,
            ci_spacing: Duration::ZERO,
            ci_reorder: 1,
            // Open: the paper gives the initial round trip only.
            initial_packets: 1.0,
            initial_doubling: false,
            doubling_max: 16.0,
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
        assert_eq!((paper.alpha, paper.gamma, paper.beta, paper.n), (0.125, 0.5, 0.75, 4));
        assert_eq!((paper.feedback, paper.guard), (Feedback::Ci, false));
        let low = config(&[("profile", "paper"), ("feedback", "ci-per-rtt")]);
        assert_eq!(low, OrmccConfig { feedback: Feedback::CiPerRtt, ..paper });
    }
}
