//! The settings of ORMCC, and the two profiles that set them together.

use faircast_base::Duration;

use crate::options::Options;

/// A set of settings that belong together. Each setting can still be changed on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// The paper's algorithm, with what it leaves open filled in.
    Paper,
    /// What real networks need beyond it. The default.
    Improved,
}

/// Who may report, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// Everybody, at each packet that reveals a loss (src: ormcc s2.1).
    Ci,
    /// Everybody, at most once in a round trip (src: ormcc s3.2).
    CiPerRtt,
    /// The representative, and those whose own average is below the one that the source announces
    /// (src: ormcc-trac).
    Trac,
}

/// Whose round trips count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RttSamples {
    /// Those of all congestion indications (src: ormcc s2.1).
    All,
    /// Those of the representative's reports, of any kind.
    Representative,
}

/// All settings of ORMCC. `docs/schemes/ormcc.md` says where each value comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrmccConfig {
    /// Weight of a new rate in the averages; in (0, 1].
    pub alpha: f64,
    /// Weight of a new value in the average throughput and its deviation; in (0, 1].
    pub gamma: f64,
    /// A cut goes to this share of the output rate; in (0, 1].
    pub beta: f64,
    /// Packets over which a receiver measures its output rate; 1 to 64.
    pub n: u32,
    /// Whether what receivers tell counts up to what the sender lately sent.
    pub output_bound: bool,
    /// Round trips over which it measures at least, and the least time.
    pub output_rtts: f64,
    /// The least time over which it measures.
    pub output_time: Duration,
    /// The round trip before there are samples.
    pub rtt0: Duration,
    /// Weight of a new sample of the round trip; in (0, 1].
    pub rtt_gain: f64,
    /// Whose round trips count.
    pub rtt_samples: RttSamples,
    /// Chance that a far lower rate makes its receiver the representative though it is not below
    /// the present one's average; in [0, 1].
    pub q: f64,
    /// Least deviation of rates, as a share of their average.
    pub sigma_floor: f64,
    /// The representative has recovered where its average is so many deviations above that of all.
    pub recovered_sigmas: f64,
    /// A rate is far lower where it is so many deviations below the average of all.
    pub slower_sigmas: f64,
    /// Whether a rate at that limit counts as far lower.
    pub slower_at_limit: bool,
    /// Deviations by which the throughput is taken higher for the interval I.
    pub interval_sigmas: f64,
    /// Whether the average throughput begins with its first value, which makes the interval I of the
    /// first minutes shorter, or with the initial rate and a deviation from that.
    pub throughput_first: bool,
    /// Least interval I, in packets.
    pub interval_min: f64,
    /// Who may report, and how often. The source tells receivers.
    pub feedback: Feedback,
    /// Least time between two congestion indications of a receiver.
    pub ci_spacing: Duration,
    /// Later packets that must have arrived before a receiver counts one as lost; at least 1.
    pub ci_reorder: u32,
    /// The same by time.
    pub ci_reorder_delay: Duration,
    /// Rate at the start, in packets per round trip.
    pub initial_packets: f64,
    /// Whether the rate doubles each round trip until the first sign of congestion.
    pub initial_doubling: bool,
    /// Up to so many packets per round trip.
    pub doubling_max: f64,
    /// With the guard the rate grows up to so many packets per round trip, and this share, above
    /// what the representative told to come out.
    pub lead_packets: f64,
    /// That share.
    pub lead_share: f64,
    /// Whether the representative shows that it is alive though it loses nothing, so that silence
    /// can be told from a free path: without any report the rate does not grow, then falls.
    pub guard: bool,
    /// Silence after which the rate falls; at least 8 round trips.
    pub silence: Duration,
    /// The floor: one packet in this time.
    pub floor_interval: Duration,
}

impl Default for OrmccConfig {
    fn default() -> Self {
        Self::profile(Profile::Improved)
    }
}

impl OrmccConfig {
    /// The settings of a profile.
    pub fn profile(profile: Profile) -> Self {
        match profile {
            Profile::Paper => Self::paper(),
            Profile::Improved => Self::improved(),
        }
    }

    /// src: ormcc s2; what it leaves open is marked.
    fn paper() -> Self {
        Self {
            alpha: 0.125,
            gamma: 0.5,
            beta: 0.75,
            n: 4,
            output_bound: false,
            output_rtts: 0.0,
            output_time: Duration::ZERO,
            rtt0: Duration::from_millis(200), // src: ormcc s3
            rtt_gain: 0.125,
            rtt_samples: RttSamples::All,
            // Open in the paper: low enough that who is representative stays so.
            q: 0.1,
            // Open: without a floor, equal rates have no deviation, and each is far lower.
            sigma_floor: 0.01,
            recovered_sigmas: 2.0,
            slower_sigmas: 4.0,
            // The text says below, line 28 of the algorithm at most.
            slower_at_limit: false,
            interval_sigmas: 3.0,
            // Open: the algorithm has no initial values; a rate is at hand.
            throughput_first: false,
            // Open: after a first cut at a low rate the formula gives a packet or two.
            interval_min: 100.0,
            feedback: Feedback::Ci,
            ci_spacing: Duration::ZERO,
            ci_reorder: 1,
            ci_reorder_delay: Duration::from_millis(10),
            // Open: the paper gives the initial round trip only.
            initial_packets: 1.0,
            initial_doubling: false,
            doubling_max: 16.0,
            lead_packets: 1.0,
            lead_share: 0.05,
            guard: false,
            silence: Duration::from_secs(5),
            floor_interval: Duration::from_secs(2),
        }
    }

    /// See "Deviations" in docs/schemes/ormcc.md.
    fn improved() -> Self {
        Self {
            output_bound: true,
            output_rtts: 1.0,
            output_time: Duration::from_millis(5),
            rtt_samples: RttSamples::Representative,
            feedback: Feedback::Trac,
            ci_spacing: Duration::from_millis(1),
            ci_reorder: 3,
            initial_packets: 4.0,
            initial_doubling: true,
            doubling_max: 100_000.0,
            guard: true,
            ..Self::paper()
        }
    }

    /// The settings that `options`, checked against [`OPTIONS`](super::OPTIONS), ask for.
    pub fn from_options(options: &Options) -> Self {
        let mut config = Self::profile(match options.text("profile") {
            Some("paper") => Profile::Paper,
            _ => Profile::Improved,
        });
        config.apply_choice(options);
        config.apply_rate(options);
        config.apply_receiver(options);
        config
    }

    fn apply_choice(&mut self, options: &Options) {
        set(&mut self.alpha, options.float("alpha"));
        set(&mut self.q, options.float("q"));
        set(&mut self.sigma_floor, options.float("sigma_floor"));
        set(&mut self.recovered_sigmas, options.float("recovered_sigmas"));
        set(&mut self.slower_sigmas, options.float("slower_sigmas"));
        set(&mut self.slower_at_limit, options.bool("slower_at_limit"));
        set(&mut self.interval_sigmas, options.float("interval_sigmas"));
        set(&mut self.throughput_first, options.bool("throughput_first"));
        set(&mut self.interval_min, options.float("interval_min"));
    }

    fn apply_rate(&mut self, options: &Options) {
        if let Some(word) = options.text("rtt_samples") {
            self.rtt_samples =
                if word == "all" { RttSamples::All } else { RttSamples::Representative };
        }
        set(&mut self.gamma, options.float("gamma"));
        set(&mut self.beta, options.float("beta"));
        set(&mut self.rtt0, options.duration("rtt0"));
        set(&mut self.rtt_gain, options.float("rtt_gain"));
        set(&mut self.initial_packets, options.float("initial_packets"));
        set(&mut self.initial_doubling, options.bool("initial_doubling"));
        set(&mut self.doubling_max, options.float("doubling_max"));
        set(&mut self.lead_share, options.float("lead_share"));
        set(&mut self.lead_packets, options.float("lead_packets"));
        set(&mut self.guard, options.bool("guard"));
        set(&mut self.silence, options.duration("silence"));
        set(&mut self.floor_interval, options.duration("floor_interval"));
    }

    fn apply_receiver(&mut self, options: &Options) {
        if let Some(word) = options.text("feedback") {
            self.feedback = match word {
                "ci" => Feedback::Ci,
                "ci-per-rtt" => Feedback::CiPerRtt,
                _ => Feedback::Trac,
            };
        }
        set(&mut self.n, whole(options, "n"));
        set(&mut self.output_bound, options.bool("output_bound"));
        set(&mut self.output_rtts, options.float("output_rtts"));
        set(&mut self.output_time, options.duration("output_time"));
        set(&mut self.ci_spacing, options.duration("ci_spacing"));
        set(&mut self.ci_reorder, whole(options, "ci_reorder"));
        set(&mut self.ci_reorder_delay, options.duration("ci_reorder_delay"));
    }
}

fn set<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}

fn whole(options: &Options, key: &str) -> Option<u32> {
    options.integer(key).and_then(|x| u32::try_from(x).ok())
}
