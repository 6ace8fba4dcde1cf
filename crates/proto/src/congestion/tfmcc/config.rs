//! The settings of TFMCC.

use faircast_base::Duration;

use crate::options::Options;

/// The settings of both halves of TFMCC; [`OPTIONS`](super::OPTIONS) says what each does.
#[derive(Clone, Debug, PartialEq)]
pub struct TfmccConfig {
    /// The first guess of R_max. Default 500 ms.
    pub rtt_max_initial: Duration,
    /// Whether the guess ends with the first round that had reports. Default true.
    pub forget_guess: bool,
    /// Decay of R_max a round. Default 0.9.
    pub rtt_max_decay: f64,
    /// The least round trip. Default 0.1 ms.
    pub rtt_min: Duration,
    /// The longest round trip that is believed. Default 64 s.
    pub rtt_absurd: Duration,
    /// T in units of R_max. Default 6.
    pub feedback_round: f64,
    /// g. Default 0.1.
    pub suppression_margin: f64,
    /// N. Default 10000.
    pub group_size: u32,
    /// q at the CLR. Default 0.9.
    pub rtt_weight_clr: f64,
    /// q elsewhere. Default 0.5.
    pub rtt_weight: f64,
    /// Whether round trips follow the delay of data between measurements. Default true.
    pub one_way_delay: bool,
    /// Whether history is discounted. Default true.
    pub discounting: bool,
    /// Later packets that show a loss. Default 3.
    pub loss_threshold: u32,
    /// Whether NAKs carry reports. Default true.
    pub nak_reports: bool,
    /// Whether the CLR reports a loss event at once. Default true.
    pub report_losses: bool,
    /// Least time between reports of the CLR. Default 1 ms.
    pub report_interval_min: Duration,
    /// The least round trip where silence is judged. Default 25 ms.
    pub silence_min: Duration,
}

impl Default for TfmccConfig {
    fn default() -> Self {
        Self {
            rtt_max_initial: Duration::from_millis(500),
            forget_guess: true,
            rtt_max_decay: 0.9,
            rtt_min: Duration::from_micros(100),
            rtt_absurd: Duration::from_secs(64),
            feedback_round: 6.0,
            suppression_margin: 0.1,
            group_size: 10_000,
            rtt_weight_clr: 0.9,
            rtt_weight: 0.5,
            one_way_delay: true,
            discounting: true,
            loss_threshold: 3,
            nak_reports: true,
            report_losses: true,
            report_interval_min: Duration::from_millis(1),
            silence_min: Duration::from_millis(25),
        }
    }
}

impl TfmccConfig {
    /// The settings that `options`, checked against [`OPTIONS`](super::OPTIONS), ask for.
    pub fn from_options(options: &Options) -> Self {
        let mut config = Self::default();
        set(&mut config.rtt_max_initial, options.duration("rtt_max_initial"));
        set(&mut config.forget_guess, options.bool("forget_guess"));
        set(&mut config.rtt_max_decay, options.float("rtt_max_decay"));
        set(&mut config.rtt_min, options.duration("rtt_min"));
        set(&mut config.rtt_absurd, options.duration("rtt_absurd"));
        set(&mut config.feedback_round, options.float("feedback_round"));
        set(&mut config.suppression_margin, options.float("suppression_margin"));
        set(&mut config.group_size, whole(options, "group_size"));
        set(&mut config.rtt_weight_clr, options.float("rtt_weight_clr"));
        set(&mut config.rtt_weight, options.float("rtt_weight"));
        set(&mut config.one_way_delay, options.bool("one_way_delay"));
        set(&mut config.discounting, options.bool("discounting"));
        set(&mut config.loss_threshold, whole(options, "loss_threshold"));
        set(&mut config.nak_reports, options.bool("nak_reports"));
        set(&mut config.report_losses, options.bool("report_losses"));
        set(&mut config.report_interval_min, options.duration("report_interval_min"));
        set(&mut config.silence_min, options.duration("silence_min"));
        config
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::table;
    use crate::congestion::tfmcc::OPTIONS;

    #[test]
    fn the_table_and_the_type_have_the_same_defaults_and_every_setting_changes_something() {
        table::check(OPTIONS, TfmccConfig::from_options);
    }
}
