//! The settings of TCP: one table of keys, ranges and defaults, and what is read from it.

use crate::options::{OptionKind, OptionSpec, Options};
use faircast_base::{Duration, Quantity};

/// Most packets that a window, and so every table of the two ends, can be set to hold.
pub const WINDOW_MAX: u32 = 1 << 20;

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// The settings of all flavours of TCP. Defaults are those of ns-2.35, except for the window,
/// whose default there (20) would hide every loss of the networks studied here.
pub const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "window_max",
        kind: OptionKind::Integer { min: 1, max: WINDOW_MAX as i64 },
        default: "10000",
        doc: "Largest window in packets; the receiver refuses what lies beyond it \
              (ns-2: window_, whose default is 20).",
    },
    OptionSpec {
        name: "initial_window",
        kind: OptionKind::Integer { min: 1, max: 10 },
        default: "2",
        doc: "Congestion window in packets once the connection is open (ns-2: windowInit_).",
    },
    OptionSpec {
        name: "initial_ssthresh",
        kind: OptionKind::Integer { min: 0, max: WINDOW_MAX as i64 },
        default: "0",
        doc: "Slow start threshold at the start in packets; 0 stands for window_max, as in ns-2.",
    },
    OptionSpec {
        name: "syn",
        kind: OptionKind::Bool,
        default: "true",
        doc: "Whether a SYN of 40 bytes goes first, alone, as packet 0 (ns-2: syn_ and \
              delay_growth_).",
    },
    OptionSpec {
        name: "min_rto",
        kind: OptionKind::Duration { min_ns: 0, max_ns: 60 * S },
        default: "0.2 s",
        doc: "Least retransmission timeout before back-off (ns-2: minrto_; RFC 6298 s2.4 says 1 s).",
    },
    OptionSpec {
        name: "max_rto",
        kind: OptionKind::Duration { min_ns: MS, max_ns: 3600 * S },
        default: "60 s",
        doc: "Greatest retransmission timeout (ns-2: maxrto_; RFC 6298 s2.5).",
    },
    OptionSpec {
        name: "initial_rto",
        kind: OptionKind::Duration { min_ns: MS, max_ns: 60 * S },
        default: "3 s",
        doc: "Retransmission timeout before the first round trip is measured (ns-2: rtxcur_init_; \
              RFC 2988 s2.1).",
    },
    OptionSpec {
        name: "clock_granularity",
        kind: OptionKind::Duration { min_ns: 1_000, max_ns: S },
        default: "10 ms",
        doc: "The tick in which round trips are measured and timeouts computed (ns-2: tcpTick_).",
    },
    OptionSpec {
        name: "random_clock_phase",
        kind: OptionKind::Bool,
        default: "true",
        doc: "Whether the ticks start at a random phase, as ns-2's do (boot_time_), instead of at \
              the start of the run.",
    },
    OptionSpec {
        name: "duplicate_acks",
        kind: OptionKind::Integer { min: 1, max: 100 },
        default: "3",
        doc: "Duplicate acknowledgements that start a fast retransmit (ns-2: numdupacks_; \
              RFC 5681 s3.2).",
    },
    OptionSpec {
        name: "limited_transmit",
        kind: OptionKind::Bool,
        default: "true",
        doc: "Whether the first duplicate acknowledgements each let one new packet go (ns-2: \
              singledup_; RFC 3042).",
    },
    OptionSpec {
        name: "one_cut_per_window",
        kind: OptionKind::Bool,
        default: "true",
        doc: "Whether losses of packets sent before the last cut start no further fast retransmit \
              (ns-2: bugFix_; the careful variant of RFC 6582 s4).",
    },
    OptionSpec {
        name: "precision_reduce",
        kind: OptionKind::Bool,
        default: "true",
        doc: "Whether a cut halves the window with its fraction instead of its whole packets \
              (ns-2: precisionReduce_).",
    },
    OptionSpec {
        name: "impatient",
        kind: OptionKind::Bool,
        default: "true",
        doc: "Whether only the first partial acknowledgement of a recovery restarts NewReno's \
              timer (ns-2: newreno_changes1_; RFC 6582 s4).",
    },
    OptionSpec {
        name: "partial_window_deflation",
        kind: OptionKind::Bool,
        default: "true",
        doc: "Whether partial acknowledgements deflate NewReno's window (ns-2: \
              partial_window_deflation_; RFC 6582 s3.2).",
    },
    OptionSpec {
        name: "overhead",
        kind: OptionKind::Duration { min_ns: 0, max_ns: S },
        default: "0 s",
        doc: "Sending waits a random time, uniform from 0 to this, which breaks phase effects \
              (ns-2: overhead_).",
    },
    OptionSpec {
        name: "delayed_ack",
        kind: OptionKind::Bool,
        default: "false",
        doc: "Whether the receiver acknowledges every second packet (ns-2: TCPSink/DelAck; \
              RFC 5681 s4.2).",
    },
    OptionSpec {
        name: "delayed_ack_interval",
        kind: OptionKind::Duration { min_ns: MS, max_ns: S },
        default: "100 ms",
        doc: "How long a delayed acknowledgement waits for a second packet (ns-2: interval_).",
    },
    OptionSpec {
        name: "sack_blocks",
        kind: OptionKind::Integer { min: 1, max: 4 },
        default: "3",
        doc: "Most SACK blocks in one acknowledgement of tcp-sack (ns-2: maxSackBlocks_; \
              RFC 2018 s3).",
    },
];

/// The settings of the kernel's own TCP in the lab. Defaults are those of Linux.
pub const KERNEL_OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "window_max",
        kind: OptionKind::Integer { min: 1, max: WINDOW_MAX as i64 },
        default: "10000",
        doc: "Largest window in packets that the receiver offers.",
    },
    OptionSpec {
        name: "initial_window",
        kind: OptionKind::Integer { min: 1, max: 100 },
        default: "10",
        doc: "Congestion window in packets once the connection is open (RFC 6928 s2).",
    },
    OptionSpec {
        name: "initial_ssthresh",
        kind: OptionKind::Integer { min: 0, max: WINDOW_MAX as i64 },
        default: "0",
        doc: "Slow start threshold at the start in packets; 0 for none.",
    },
    OptionSpec {
        name: "min_rto",
        kind: OptionKind::Duration { min_ns: MS, max_ns: 60 * S },
        default: "0.2 s",
        doc: "Least retransmission timeout (Linux: TCP_RTO_MIN; RFC 6298 s2.4 says 1 s).",
    },
    OptionSpec {
        name: "delayed_ack",
        kind: OptionKind::Bool,
        default: "true",
        doc: "Whether the receiver may acknowledge two packets at once (RFC 5681 s4.2).",
    },
    OptionSpec {
        name: "overhead",
        kind: OptionKind::Duration { min_ns: 0, max_ns: S },
        default: "0 s",
        doc: "Packets wait a random time, uniform from 0 to this, before they leave their host, \
              which breaks phase effects (ns-2: overhead_).",
    },
];

/// The settings in the form in which the two ends use them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) window_max: u32,
    pub(super) initial_window: f64,
    pub(super) initial_ssthresh: f64,
    pub(super) syn: bool,
    pub(super) min_rto: Duration,
    pub(super) max_rto: Duration,
    pub(super) initial_rto: Duration,
    pub(super) tick: Duration,
    pub(super) random_clock_phase: bool,
    pub(super) duplicate_acks: u32,
    pub(super) limited_transmit: bool,
    pub(super) one_cut_per_window: bool,
    pub(super) precision_reduce: bool,
    pub(super) impatient: bool,
    pub(super) partial_window_deflation: bool,
    pub(super) overhead: Duration,
    pub(super) delayed_ack: Option<Duration>,
    pub(super) sack_blocks: usize,
}

impl Settings {
    /// Reads checked options; what they leave out has the default of [`OPTIONS`].
    pub(super) fn new(options: &Options) -> Self {
        let read = Reader { options };
        let window_max = read.count("window_max");
        let initial_ssthresh = match read.count("initial_ssthresh") {
            0 => window_max,
            packets => packets,
        };
        Self {
            window_max,
            initial_window: f64::from(read.count("initial_window")),
            initial_ssthresh: f64::from(initial_ssthresh),
            syn: read.bool("syn"),
            min_rto: read.duration("min_rto"),
            max_rto: read.duration("max_rto"),
            initial_rto: read.duration("initial_rto"),
            tick: read.duration("clock_granularity"),
            random_clock_phase: read.bool("random_clock_phase"),
            duplicate_acks: read.count("duplicate_acks"),
            limited_transmit: read.bool("limited_transmit"),
            one_cut_per_window: read.bool("one_cut_per_window"),
            precision_reduce: read.bool("precision_reduce"),
            impatient: read.bool("impatient"),
            partial_window_deflation: read.bool("partial_window_deflation"),
            overhead: read.duration("overhead"),
            delayed_ack: read.bool("delayed_ack").then(|| read.duration("delayed_ack_interval")),
            sack_blocks: read.count("sack_blocks") as usize,
        }
    }
}

/// Reads settings by key, with the table as the only source of defaults.
struct Reader<'a> {
    options: &'a Options,
}

impl Reader<'_> {
    fn default(key: &str) -> &'static str {
        let spec = OPTIONS.iter().find(|spec| spec.name == key);
        spec.expect("only keys of the table are read").default
    }

    fn bool(&self, key: &str) -> bool {
        self.options.bool(key).unwrap_or_else(|| Self::default(key) == "true")
    }

    fn count(&self, key: &str) -> u32 {
        let value = self.options.integer(key).unwrap_or_else(|| {
            Self::default(key).parse().expect("the table's defaults are of their kind")
        });
        u32::try_from(value).expect("the table's ranges fit")
    }

    fn duration(&self, key: &str) -> Duration {
        self.options.duration(key).unwrap_or_else(|| {
            Duration::parse(Self::default(key)).expect("the table's defaults are of their kind")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::OptionValue;
    use alloc::string::ToString;

    #[test]
    fn every_default_is_within_its_own_range() {
        for spec in OPTIONS {
            let value = match spec.kind {
                OptionKind::Bool => OptionValue::Bool(spec.default.parse().unwrap()),
                OptionKind::Integer { .. } => OptionValue::Integer(spec.default.parse().unwrap()),
                _ => OptionValue::Text(spec.default.to_string()),
            };
            let checked = Options::checked([(spec.name.to_string(), value)], OPTIONS);
            assert!(checked.is_ok(), "{}: {:?}", spec.name, checked.err());
        }
        let settings = Settings::new(&Options::default());
        assert_eq!(settings.min_rto, Duration::from_millis(200));
        assert_eq!(settings.initial_ssthresh, 10_000.0);
        assert_eq!(settings.delayed_ack, None);
    }
}
