//! Settings of pgmcc, and their three profiles.

use faircast_base::Duration;

use super::Model;
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

/// Rule by which the window permits a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accounting {
    /// Tokens as in the draft; each unrepaired loss leaks one.
    Tokens,
    /// Tokens realigned at each loss, as Seada and Helmy describe the original code.
    Realign,
    /// Count of the packets in flight; there are no tokens to lose.
    #[default]
    Flight,
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
    /// The fixed timeout, and the adaptive one before it has samples.
    // src: pgmcc-draft s2.7.
    timeout: Duration = 3 s;
    /// The least adaptive timeout.
    timeout_min: Duration = 200 ms;
    /// One stall timeout drops an acker that replaced another and has acknowledged nothing, and
    /// timeouts are no longer than `timeout` until an acker has acknowledged something.
    // Any host can report in the name of an absent receiver.
    trial: bool = true;
    /// A dropped acker may not come back for two timeouts.
    blacklist: bool = true;
    /// The throughput model: 1 / (RTT sqrt p), or with timeouts (pgmcc draft s2.4).
    model: Model = Full;
    /// Round trips for which a new acker stays unless another is far slower.
    holding_time: u32 = 1;
    /// Round trips in the model are counted in packets sent meanwhile, not in time.
    rtt_in_packets: bool = false;
    /// Weight of a new round trip sample in the model.
    rtt_gain: f64 = 0.125;
    /// Window in packets up to which each acknowledged packet adds one.
    // Six as first published, not four as in the draft. TCP returns exponentially to half its
    // window after a timeout. Six is below TCP's initial window of ten (RFC 6928).
    slow_start_threshold: f64 = 6.0;
    /// The window opens exponentially beyond `slow_start_threshold`: at first until a loss, or
    /// until the round trip has grown (src: RFC 9406 s4.2); after a stall up to half of the window
    /// before (src: RFC 5681 s3.1).
    slow_start_open: bool = true;
    /// Data packets handled in one moment that an acker acknowledges together.
    // The kernel delivers dozens of packets at a time. Bitmaps of 32 packets report each four
    // times.
    ack_every: u32 = 8;
    /// Adapt the wait for an acknowledgement to late ones, and undo cuts for packets that were only
    /// late.
    ack_lateness: bool = true;
    /// Permission to send comes from the draft's tokens, from tokens set right at each loss, or
    /// from counting packets in flight.
    accounting: Accounting = Flight;
    /// Repairs name the acker too, so that it acknowledges them at once.
    ack_repairs: bool = false;
    /// The window stands still while the application, or rate_max, does not fill it.
    window_validation: bool = true;
    /// The window is spread over the round trip: a packet follows an acknowledgement that comes
    /// after 3/4 of its share RTT/W, or a random wait of up to twice the share, and only what the
    /// window grows by follows at once.
    spread: bool = true;
    /// A former acker's acknowledgements count for the packets that named it.
    ack_history: bool = true;
    /// The window is cut again for all losses found after the feedback that ends the last cut, not
    /// only for packets sent after that cut.
    cut_after_feedback: bool = false;
    /// An acker that reports far more loss than its bitmaps show is dropped (pgmcc draft s5).
    lie_check: bool = true;
    /// Receivers smooth loss by TFMCC's loss intervals, not by a low-pass filter.
    // The filter jumps by 0.8 % at each loss, so the last receiver to lose always looks slowest:
    // among 1000 with 0.1 % loss the acker changed 23 times a second. The draft allows TFMCC's
    // estimator (src: pgmcc-draft s2.6).
    loss_intervals: bool = true;
    /// Later packets that must have arrived before a receiver counts one as lost.
    reorder_tolerance: u32 = 3;
    /// A receiver that overhears only reports of less than half its own loss sends its own.
    speak_up: bool = true;
}

impl PgmccConfig {
    /// Returns the settings of a profile.
    pub fn profile(profile: Profile) -> Self {
        match profile {
            Profile::Improved => Self::default(),
            Profile::Draft => Self::draft(),
            Profile::Paper => Self::paper(),
        }
    }

    fn draft() -> Self {
        Self {
            trial: false,
            blacklist: false,
            holding_time: 0,
            compare_alike: false,
            rtt_gain: 1.0,
            slow_start_threshold: 4.0, // src: pgmcc-draft s2.2
            slow_start_open: false,
            ack_lateness: false,
            accounting: Accounting::Tokens,
            charge_repairs: false,
            window_validation: false,
            spread: false,
            ack_history: false,
            designated_loss: false,
            cut_after_feedback: true,
            switch_recover: false,
            switch_ageing: false,
            lie_check: false,
            loss_intervals: false,
            reorder_tolerance: 1,
            ack_every: 1,
            speak_up: false,
            ..Self::default()
        }
    }

    fn paper() -> Self {
        Self {
            timeout_mode: TimeoutMode::Fixed,
            timeout: Duration::from_secs(4), // src: seada-helmy s4.1
            // For an adaptive timeout only: TCP's own minimum (src: RFC 6298 s2.4).
            timeout_min: Duration::from_secs(1),
            model: Model::Simple, // src: seada-helmy s2.2
            acker_bias: 0.6666,   // src: seada-helmy s4.4: 2/3
            rtt_in_packets: true,
            slow_start_threshold: 6.0,
            accounting: Accounting::Realign, // src: seada-helmy s4.4
            // By inference: OpenPGM's repairs repeat the option, and a timer that waits for a
            // complete bitmap needs acknowledged repairs (src: seada-helmy s4.1).
            ack_repairs: true,
            // src: seada-helmy s4.4, by inference: no record shows which acker a packet named.
            ack_history: true,
            bitmap_scope: BitmapScope::Own,
            // src: seada-helmy s4.1, by inference: TCP SACK cuts once for all losses of a window.
            cut_after_feedback: false,
            ..Self::draft()
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
        assert_eq!(paper.timeout, Duration::from_secs(4));
        assert_eq!((paper.timeout_mode, paper.model), (TimeoutMode::Fixed, Model::Simple));
        assert_eq!((paper.acker_bias, paper.rtt_in_packets), (0.6666, true));
        assert_eq!((paper.accounting, paper.bitmap_scope), (Accounting::Realign, BitmapScope::Own));
        let mixed = config(&[("profile", "paper"), ("timeout_mode", "reno")]);
        assert_eq!(mixed, PgmccConfig { timeout_mode: TimeoutMode::Reno, ..paper });
        assert_eq!(config(&[("profile", "draft")]), PgmccConfig::profile(Profile::Draft));
    }
}
