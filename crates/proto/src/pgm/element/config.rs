//! The settings of an element.

use faircast_base::Duration;

use super::Suppression;
use crate::options::{self, OptionSpec, Options, choice, float};
use crate::pgm::RepairTimers;

/// The settings of a [`PgmElement`](super::PgmElement). RFC 3208 gives no numbers; the defaults are
/// those of ns-2's PGM.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ElementConfig {
    /// Whether repetition and elimination follow the round trips that the element measures. Default
    /// [`RepairTimers::Adaptive`].
    pub repair_timers: RepairTimers,
    /// Time between repetitions of a NAK that nobody confirms; the least one where timers are
    /// adaptive. Default 50 ms.
    pub nak_interval: Duration,
    /// How long it is repeated before it is given up (NAK_RPT_IVL). Default 1 s. With adaptive
    /// timers at least four repetitions.
    pub nak_repeat: Duration,
    /// How long a confirmed repair is awaited (NAK_RDATA_IVL). Default 10 s.
    pub repair_wait: Duration,
    /// How long after the confirmation no NAK for the same packet passes (NAK_ELIM_IVL). Default
    /// 5 s. With adaptive timers that is the most: a NAK passes once the repair is overdue, or one
    /// lost repair would cost all receivers below these 5 s.
    pub elimination: Duration,
    /// Which NAKs pass nevertheless. Default [`Suppression::Rfc3208`].
    pub suppression: Suppression,
    /// A NAK passes too where its loss differs by more than this share from the last that passed;
    /// 0 for never. Default 0. RFC 3208 appendix B has 0.05 for its congestion reports.
    pub loss_change: f64,
}

impl Default for ElementConfig {
    fn default() -> Self {
        Self {
            repair_timers: RepairTimers::Adaptive,
            // src: ns-2.35 pgm/pgm-agent.cc, tcl/pgm/ns-pgm.tcl
            nak_interval: Duration::from_millis(50),
            nak_repeat: Duration::from_secs(1),
            repair_wait: Duration::from_secs(10),
            elimination: Duration::from_secs(5),
            suppression: Suppression::Rfc3208,
            loss_change: 0.0,
        }
    }
}

impl ElementConfig {
    /// The settings that `options`, checked against [`OPTIONS`], ask for.
    pub fn from_options(options: &Options) -> Self {
        let default = Self::default();
        let pass = options.float("pass_probability").unwrap_or(PASS_PROBABILITY);
        Self {
            repair_timers: match options.text("repair_timers") {
                Some("fixed") => RepairTimers::Fixed,
                _ => RepairTimers::Adaptive,
            },
            nak_interval: options.duration("nak_interval").unwrap_or(default.nak_interval),
            nak_repeat: options.duration("nak_repeat").unwrap_or(default.nak_repeat),
            repair_wait: options.duration("repair_wait").unwrap_or(default.repair_wait),
            elimination: options.duration("elimination").unwrap_or(default.elimination),
            suppression: match options.text("suppression") {
                Some("none") => Suppression::None,
                Some("loss") => Suppression::Loss,
                Some("throughput") => Suppression::Throughput,
                Some("random") => Suppression::Random { pass },
                _ => Suppression::Rfc3208,
            },
            loss_change: options.float("loss_change").unwrap_or(default.loss_change),
        }
    }
}

/// The paper proposes chance without a number. At one half the NAK of the one worst of a hundred
/// receivers passes for every other loss, and the load is halved.
const PASS_PROBABILITY: f64 = 0.5;

const MS: u64 = 1_000_000;

const fn span(name: &'static str, default: &'static str, doc: &'static str) -> OptionSpec {
    options::span(name, (MS, 600_000 * MS), default, doc)
}

/// The settings of the relay program `pgm-element`.
pub const OPTIONS: &[OptionSpec] = &[
    choice(
        "suppression",
        &["none", "rfc3208", "loss", "throughput", "random"],
        "\"rfc3208\"",
        "Which NAKs pass for a packet that was already asked for: all, none until the elimination \
         interval is over, those that report more loss, those that report less throughput, or some \
         by chance (Seada and Helmy s4.3)",
    ),
    float(
        "pass_probability",
        (0.0, 1.0),
        "0.5",
        "The chance of each with suppression = \"random\"",
    ),
    float(
        "loss_change",
        (0.0, 10.0),
        "0.0",
        "A NAK passes too where its loss differs by more than this share from the last that passed; \
         0 for never; 0.05 as RFC 3208 appendix B has it for congestion reports",
    ),
    choice(
        "repair_timers",
        &["adaptive", "fixed"],
        "\"adaptive\"",
        "Repetition and elimination follow measured round trips, with nak_interval as the least and \
         elimination as the greatest value; or they are fixed, as in ns-2",
    ),
    span("nak_interval", "\"50 ms\"", "Time between repetitions of an unconfirmed NAK (ns-2)"),
    span("nak_repeat", "\"1 s\"", "How long it is repeated: NAK_RPT_IVL (ns-2)"),
    span("repair_wait", "\"10 s\"", "How long a confirmed repair is awaited: NAK_RDATA_IVL (ns-2)"),
    span(
        "elimination",
        "\"5 s\"",
        "How long after a confirmation no further NAK for the packet passes: NAK_ELIM_IVL (ns-2)",
    ),
];
