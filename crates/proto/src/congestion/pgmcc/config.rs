//! Settings of pgmcc, and their three profiles.

use faircast_base::Duration;

use crate::congestion::common::equation::timeout_factor;
use crate::settings::{choices, settings};

choices! {
    /// Set of settings that belong together. Each setting can still be changed on its own.
    pub enum Profile {
        /// Version that Seada and Helmy evaluated, with its weaknesses.
        Paper = "paper",
        /// Internet draft as it is written, with its token leak.
        Draft = "draft",
        /// Draft with the known problems mended. The default.
        Improved = "improved",
    }

    /// Rule for the stall timeout.
    pub enum TimeoutMode {
        /// Fixed value after the latest acknowledgement (src: seada-helmy s4.1).
        Fixed = "fixed",
        /// TCP's retransmission timeout (src: RFC 6298).
        Tcp = "tcp",
        /// `Tcp`, restarted only by acknowledgements without a hole (seada-helmy s4.1).
        Reno = "reno",
        /// `Tcp`, restarted only when the first missing packet changes, as TCP Reno's: the other
        /// reading of "as close as possible to TCP Reno" (src: seada-helmy s4.1).
        Cumulative = "cumulative",
    }

    /// Packets that an acker's bitmap may acknowledge.
    pub enum BitmapScope {
        /// All packets that it covers.
        All = "all",
        /// Only packets that named the acker, as if each acknowledgement stood for its own.
        Own = "own",
    }
}

settings! {
    /// All settings of pgmcc. Defaults are those of the profile `improved`, every problem of
    /// docs/schemes/pgmcc.md mended; that page says where each value comes from. Where the other
    /// profiles differ, the sentence says so.
    pub struct PgmccConfig;
    from profile: Profile = Improved, "Base settings: those of Seada and Helmy (paper), those of the \
        draft, or the draft with its known problems fixed (improved)";
    /// Rule for the stall timeout: fixed; RFC 6298 (tcp); RFC 6298 restarted only by
    /// acknowledgements without a hole (reno), or only when the first hole changes (cumulative)
    /// (paper: fixed)
    timeout_mode: TimeoutMode = Tcp;
    /// Restart the stall timer when a loss cuts the window, as ns-2.35's TCP Reno does at a fast
    /// retransmit
    // No source has this; see `TimeoutMode::Reno`.
    timeout_after_cut: bool = false;
    /// Share of the acker's throughput below which another receiver becomes the acker (paper:
    /// 0.6666)
    // src: pgmcc-draft s2.3.
    acker_bias: f64 [0.05, 1.0] = 0.75;
    /// Compare a receiver with the acker only after the acker has reported on the same packets
    /// (paper, draft: false)
    compare_alike: bool = true;
    /// Largest window in packets
    window_max: f64 [2.0, 30_000.0] = 10000.0;
    /// Count repairs in the window for one round trip (paper, draft: false)
    charge_repairs: bool = true;
    /// Packets that the acker's bitmap acknowledges: all, or only those that named this acker
    /// (paper: own)
    bitmap_scope: BitmapScope = All;
    /// Declare a packet lost only by the bitmap of the receiver that the packet named, or of a
    /// receiver that must have seen it (paper, draft: false)
    designated_loss: bool = true;
    /// Ignore earlier losses after a switch of ackers (paper, draft: false)
    switch_recover: bool = true;
    /// Remove packets that named a former acker from flight after two round trips (paper, draft:
    /// false)
    switch_ageing: bool = true;
    by profile:
    /// Profile, for its rules that are no options.
    profile: Profile = Improved;
    /// The least adaptive timeout.
    timeout_min: Duration = 200 ms;
    /// The throughput model: 1 / (RTT sqrt p), or with timeouts (pgmcc draft s2.4).
    model: Model = Full;
    /// Round trips for which a new acker stays unless another is far slower.
    holding_time: u32 = 1;
    /// Window in packets up to which each acknowledged packet adds one.
    // Six as first published, not four as in the draft. TCP returns exponentially to half its
    // window after a timeout. Six is below TCP's initial window of ten (RFC 6928).
    slow_start_threshold: f64 = 6.0;
    /// The window opens exponentially beyond `slow_start_threshold`: at first until a loss, or
    /// until the round trip has grown (src: RFC 9406 s4.2); after a stall up to half of the window
    /// before (src: RFC 5681 s3.1).
    slow_start_open: bool = true;
    /// The window is spread over the round trip: a packet follows an acknowledgement that comes
    /// after 3/4 of its share RTT/W, or a random wait of up to twice the share, and only what the
    /// window grows by follows at once.
    spread: bool = true;
    /// Data packets handled in one moment that an acker acknowledges together.
    // The kernel delivers dozens of packets at a time. Bitmaps of 32 packets report each four
    // times.
    ack_every: u32 = 8;
    /// Receivers smooth loss by TFMCC's loss intervals, not by a low-pass filter.
    // The filter jumps by 0.8 % at each loss, so the last receiver to lose always looks slowest:
    // among 1000 with 0.1 % loss the acker changed 23 times a second. The draft allows TFMCC's
    // estimator (src: pgmcc-draft s2.6).
    loss_intervals: bool = true;
}

/// Model equation, without constants: only the order of receivers matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// T ~ 1 / (RTT sqrt p) (src: seada-helmy s2.2).
    Simple,
    /// With TCP's timeouts: T ~ 1 / (RTT sqrt p (1 + 9 p (1 + 32 p^2))) (src: pgmcc-draft s2.4).
    Full,
}

impl Model {
    /// Returns the square of the slowness: `rtt` in seconds or packets, `loss` in 0..=1.
    pub(crate) fn slowness_squared(self, rtt: f64, loss: f64) -> f64 {
        let simple = rtt * rtt * loss;
        match self {
            Self::Simple => simple,
            Self::Full => {
                let timeouts = timeout_factor(loss);
                simple * timeouts * timeouts
            }
        }
    }
}

impl Profile {
    /// Returns the later packets that must have arrived before a receiver counts one as lost.
    pub(super) fn loss_threshold(self) -> u32 {
        if self == Self::Improved { 3 } else { 1 }
    }
}

impl PgmccConfig {
    /// Returns the settings of a profile.
    pub fn profile(profile: Profile) -> Self {
        match profile {
            Profile::Improved => Self::default(),
            Profile::Draft => Self {
                profile: Profile::Draft,
                holding_time: 0,
                compare_alike: false,
                slow_start_threshold: 4.0, // src: pgmcc-draft s2.2
                slow_start_open: false,
                spread: false,
                charge_repairs: false,
                designated_loss: false,
                switch_recover: false,
                switch_ageing: false,
                loss_intervals: false,
                ack_every: 1,
                ..Self::default()
            },
            Profile::Paper => Self {
                profile: Profile::Paper,
                timeout_mode: TimeoutMode::Fixed,
                // For an adaptive timeout only: TCP's own minimum (src: RFC 6298 s2.4).
                timeout_min: Duration::from_secs(1),
                model: Model::Simple, // src: seada-helmy s2.2
                acker_bias: 0.6666,   // src: seada-helmy s4.4: 2/3
                slow_start_threshold: 6.0,
                bitmap_scope: BitmapScope::Own,
                ..Self::profile(Profile::Draft)
            },
        }
    }

    /// True with the additions for real networks, each of which names its reason where it is used.
    pub(super) fn is_improved(&self) -> bool {
        self.profile == Profile::Improved
    }

    /// Returns the fixed timeout, and the adaptive one before it has samples.
    pub(super) fn initial_timeout(&self) -> Duration {
        match self.profile {
            Profile::Paper => Duration::from_secs(4), // src: seada-helmy s4.1
            _ => Duration::from_secs(3),              // src: pgmcc-draft s2.7
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::options;

    #[test]
    fn profiles_are_starting_points() {
        let config =
            |raw: &[(&str, &str)]| PgmccConfig::from_options(&options(raw, PgmccConfig::OPTIONS));
        let paper = config(&[("profile", "paper")]);
        assert_eq!(paper, PgmccConfig::profile(Profile::Paper));
        assert_eq!(paper.initial_timeout(), Duration::from_secs(4));
        assert_eq!((paper.timeout_mode, paper.model), (TimeoutMode::Fixed, Model::Simple));
        assert_eq!((paper.acker_bias, paper.bitmap_scope), (0.6666, BitmapScope::Own));
        let mixed = config(&[("profile", "paper"), ("timeout_mode", "reno")]);
        assert_eq!(mixed, PgmccConfig { timeout_mode: TimeoutMode::Reno, ..paper });
        assert_eq!(config(&[("profile", "draft")]), PgmccConfig::profile(Profile::Draft));
    }

    #[test]
    fn the_full_model_corrects_as_the_equation_says() {
        for (loss, factor) in
            [(0.01, 1.09), (0.02, 1.18), (0.05, 1.49), (0.08, 1.87), (0.1, 2.19), (0.2, 5.1)]
        {
            let squared =
                Model::Full.slowness_squared(1.0, loss) / Model::Simple.slowness_squared(1.0, loss);
            assert!((faircast_base::math::sqrt(squared) / factor - 1.0).abs() < 0.005, "{loss}");
        }
    }

    #[test]
    fn the_full_model_tells_apart_what_the_simple_one_takes_for_equal() {
        // Receivers of the paper's figures 10 and 11, ratios of the fact sheet.
        for (low, high, ratio) in [(0.004, 0.016, 1.105), (0.02, 0.08, 1.58)] {
            let m = |model: Model, rtt, loss| {
                faircast_base::math::sqrt(model.slowness_squared(rtt, loss))
            };
            let simple = m(Model::Simple, 0.2, high) / m(Model::Simple, 0.4, low);
            assert!((simple - 1.0).abs() < 1e-9);
            let full = m(Model::Full, 0.2, high) / m(Model::Full, 0.4, low);
            assert!((full / ratio - 1.0).abs() < 0.005, "{full}");
        }
    }

    proptest::proptest! {
        #[test]
        fn order_is_never_inverted_and_nothing_overflows(
            a in (1u64..64_000_000_000, 0u16..=u16::MAX),
            grow_rtt in 0u64..64_000_000_000, grow_loss in 0u16..=u16::MAX,
        ) {
            let (rtt, loss) = (a.0 as f64 / 1e9, f64::from(a.1) / 65535.0);
            let worse_rtt = (a.0 + grow_rtt) as f64 / 1e9;
            let worse_loss = f64::from(a.1.saturating_add(grow_loss)) / 65535.0;
            for model in [Model::Simple, Model::Full] {
                let (less, more) = (
                    model.slowness_squared(rtt, loss),
                    model.slowness_squared(worse_rtt, worse_loss),
                );
                proptest::prop_assert!(less.is_finite() && more.is_finite());
                proptest::prop_assert!(more >= less);
            }
        }
    }
}
