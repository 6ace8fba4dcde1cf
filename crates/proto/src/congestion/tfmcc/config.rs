//! The settings of TFMCC.

use faircast_base::Duration;

use crate::settings::settings;

settings! {
    /// The settings of both halves of TFMCC, which must agree on those that say so.
    pub struct TfmccConfig;
    /// The guess of the largest round trip before any report, from which the first rate comes (RFC
    /// 4654 s3.2)
    rtt_max_initial: Duration [1 ms, 64 s] = 500 ms;
    /// That guess ends with the first feedback round that had reports; otherwise it shrinks by a
    /// tenth a round as a measured round trip does
    forget_guess: bool = true;
    /// What is left of the largest round trip after a feedback round without a longer one (RFC 4654
    /// s3.2)
    rtt_max_decay: f64 [0.0, 1.0] = 0.9;
    /// Shorter round trips count as this one (RFC 4654 s3.2: 1 ms, the resolution of its
    /// timestamps); both ends
    rtt_min: Duration [1 us, 10 ms] = 100 us;
    /// Longer round trips are mistakes or lies and not measurements (RFC 4654 s2.2.1: the longest
    /// that its R_max can say)
    rtt_absurd: Duration [10 ms, 600 s] = 64 s;
    /// Largest round trips in a feedback round (RFC 4654 s3.4: 6, or 4 where reports are
    /// multicast); both ends
    feedback_round: f64 [2.0, 100.0] = 6.0;
    /// A report silences receivers whose rate is not lower by this share (g, RFC 4654 s3.4)
    suppression_margin: f64 [0.0, 0.9] = 0.1;
    /// How many receivers feedback timers are made for (N, RFC 4654 s4.5)
    group_size: u32 [2, 1_000_000_000] = 10000;
    /// Weight of the past in the CLR's smoothed round trip (RFC 4654 s4.3.2)
    rtt_weight_clr: f64 [0.0, 0.999] = 0.9;
    /// The same at other receivers, whose measurements are rare (RFC 4654 s4.3.2)
    rtt_weight: f64 [0.0, 0.999] = 0.5;
    /// Between measurements the round trip follows the delay of data (RFC 4654 s4.3.3)
    one_way_delay: bool = true;
    /// Old loss intervals weigh less after a long one without loss (RFC 4654 s5.5)
    discounting: bool = true;
    /// Later packets that must have arrived before one counts as lost (RFC 4654 s5.1)
    loss_threshold: u32 [1, 16] = 3;
    /// NAKs carry reports too, which tell the source the round trips of those that it repairs for
    nak_reports: bool = true;
    /// The CLR reports the beginning of a loss event at once and does not wait for the end of a
    /// round trip (RFC 5348 s6.1)
    report_losses: bool = true;
    /// The CLR reports once a round trip, but not more often than this
    report_interval_min: Duration [0 s, 1 s] = 1 ms;
    /// Round trips count as at least this where the sender judges by silence: hosts may be busy for
    /// longer than a LAN's round trip
    silence_min: Duration [0 s, 60 s] = 25 ms;
}
