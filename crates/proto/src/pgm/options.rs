//! The table of PGM's settings, for every scheme that runs over it.

use faircast_base::{Bitrate, NodeId};

use super::{ReceiverConfig, Reliability, SourceConfig};
use crate::congestion::Bounds;
use crate::object::Fec;
use crate::options::{self, OptionSpec, Options, choice, rate, switch, whole};
use crate::pgm::RepairTimers;
use crate::pgm::wire::{Nla, Tsi};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

const fn span(name: &'static str, default: &'static str, doc: &'static str) -> OptionSpec {
    options::span(name, (0, 3600 * S), default, doc)
}

/// The settings of PGM. Defaults are those of the set `recommended`; where `ns2` differs, the
/// sentence says so.
pub const OPTIONS: &[OptionSpec] = &[
    choice(
        "pgm",
        &["recommended", "ns2"],
        "\"recommended\"",
        "Which settings of PGM to start from: recommended ones, or those of ns-2.35",
    ),
    switch("reliable", "true", "What is lost is sent again"),
    whole(
        "transmit_window",
        (1, 1 << 30),
        "8192",
        "Packets that the source will repair (ns2: 1073741824)",
    ),
    whole(
        "receive_window",
        (1, 1 << 20),
        "8192",
        "Most packets from the first that is missing to the last that a receiver keeps (ns2: \
         1048576)",
    ),
    choice(
        "repair_timers",
        &["adaptive", "fixed"],
        "\"adaptive\"",
        "Timers of NAKs, repairs and heartbeats follow measured round trips, with the settings as the \
         least values; or they are fixed (ns2: fixed)",
    ),
    span("spm_interval", "\"30 s\"", "Time between ambient SPMs (ns2: 500 ms)"),
    span(
        "heartbeat_min",
        "\"100 ms\"",
        "Least time from data to the first heartbeat SPM; it doubles with each (ns2: 30 s)",
    ),
    span("heartbeat_max", "\"30 s\"", "Longest time between heartbeat SPMs"),
    span(
        "repair_delay",
        "\"0 ms\"",
        "Time from the first NAK for a packet to its repair, to collect more (ns2: 70 ms)",
    ),
    span(
        "repair_interval",
        "\"100 ms\"",
        "Least time between two repairs of one packet; with adaptive timers only where no round \
         trip is known (ns2: 0 ms)",
    ),
    span(
        "confirm_interval",
        "\"10 ms\"",
        "Least time between two confirmations that are alike (ns2: 0 ms)",
    ),
    whole(
        "late_join",
        (0, 1 << 30),
        "0",
        "How many earlier packets a receiver that joins late may ask for",
    ),
    whole(
        "open_start",
        (0, 1 << 16),
        "64",
        "Whoever hears one of so many first packets may ask for all before it (ns2: 0)",
    ),
    span("linger", "\"5 s\"", "Time without NAKs after the end of data until the source rests"),
    whole(
        "reorder_packets",
        (1, 16),
        "2",
        "Later packets that must have come before one counts as missing (ns2: 1)",
    ),
    span(
        "reorder_delay",
        "\"20 ms\"",
        "After how long a gap counts as missing though fewer later packets have come",
    ),
    span(
        "tail_delay",
        "\"20 ms\"",
        "After how long what only an SPM or a NAK told of counts as missing (ns2: 0 ms)",
    ),
    span(
        "report_interval",
        "\"200 ms\"",
        "Where nothing is repaired: least time between two NAKs of a receiver",
    ),
    span("nak_backoff", "\"50 ms\"", "Longest back-off before a NAK (ns2: 30 ms)"),
    span("nak_repeat", "\"200 ms\"", "Time to wait for a confirmation (ns2: 50 ms)"),
    span("nak_repair", "\"200 ms\"", "Time to wait for a confirmed repair (ns2: 1 s)"),
    whole(
        "nak_retries",
        (0, 100_000),
        "50",
        "How often a NAK is repeated for want of a confirmation, and for want of a repair, until \
         the packet is given up (ns2: 5)",
    ),
    switch("nak_lists", "true", "One NAK may ask for several packets (ns2: false)"),
    switch("nak_copies", "false", "Each NAK also goes to the neighbours, to silence theirs"),
    rate(
        "rate_max",
        (1, RATE_MAX_BITS_PER_S),
        "\"1000 Gbit/s\"",
        "Most payload that the source sends, whatever the scheme permits, and packets without any \
         among it; the default binds nobody",
    ),
    rate(
        "rate_min",
        (0, RATE_MAX_BITS_PER_S),
        "\"0 bit/s\"",
        "Payload that the source sends though the scheme does not permit it: fair to nobody, for \
         paths where loss means no congestion",
    ),
    switch(
        "announce_scheme",
        "false",
        "SPMs name the scheme and its settings, so that receivers follow; real sessions always do",
    ),
    choice(
        "delivery",
        &["stream", "object"],
        "\"stream\"",
        "Data goes as a stream that repairs itself, or as an object from which receivers ask for \
         what they lack, whenever they came",
    ),
    choice(
        "fec",
        &["auto", "off", "5%", "10%", "20%", "50%"],
        "\"auto\"",
        "Of an object: parity where it repairs more than sending again would; none; or this share of \
         it with every block unasked",
    ),
];

/// A tenfold of what any network interface can do.
const RATE_MAX_BITS_PER_S: u64 = 1_000_000_000_000;

fn reliability(options: &Options) -> Reliability {
    match options.bool("reliable") {
        Some(false) => Reliability::Unrepaired,
        _ => Reliability::Repaired,
    }
}

fn repair_timers(options: &Options, default: RepairTimers) -> RepairTimers {
    match options.text("repair_timers") {
        Some("fixed") => RepairTimers::Fixed,
        Some(_) => RepairTimers::Adaptive,
        None => default,
    }
}

fn is_ns2(options: &Options) -> bool {
    options.text("pgm") == Some("ns2")
}

/// Puts the whole number of `key` into `setting`, where it is set.
fn put(setting: &mut u32, options: &Options, key: &str) {
    if let Some(value) = options.integer(key).and_then(|value| u32::try_from(value).ok()) {
        *setting = value;
    }
}

impl Bounds {
    /// The bounds that `options`, checked against a table with [`OPTIONS`] in it, ask for.
    pub fn from_options(options: &Options) -> Self {
        let binding = |rate: &Bitrate| rate.bits_per_s() < RATE_MAX_BITS_PER_S;
        Self {
            max: options.rate("rate_max").filter(binding),
            min: options.rate("rate_min").filter(|rate| rate.bits_per_s() > 0),
        }
    }
}

/// How a flow's data goes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Delivery {
    /// In order, by PGM's own repairs.
    #[default]
    Stream,
    /// As an object.
    Object(Fec),
}

impl Delivery {
    pub(crate) fn from_options(options: &Options) -> Self {
        let share = |text: &str| text.strip_suffix('%')?.parse::<f64>().ok();
        let fec = match options.text("fec") {
            Some("off") => Fec::Off,
            Some(text) => share(text).map_or(Fec::Auto, |percent| Fec::Ratio(percent / 100.0)),
            None => Fec::Auto,
        };
        match options.text("delivery") {
            Some("object") => Self::Object(fec),
            _ => Self::Stream,
        }
    }
}

impl SourceConfig {
    /// The settings that `options`, checked against a table with [`OPTIONS`] in it, ask for.
    pub fn from_options(node: NodeId, group: Nla, tsi: Tsi, options: &Options) -> Self {
        let mut config =
            if is_ns2(options) { Self::ns2(node, group, tsi) } else { Self::new(node, group, tsi) };
        config.reliability = reliability(options);
        config.repair_timers = repair_timers(options, config.repair_timers);
        put(&mut config.window_packets, options, "transmit_window");
        for (setting, key) in [
            (&mut config.ambient_interval, "spm_interval"),
            (&mut config.heartbeat_min, "heartbeat_min"),
            (&mut config.heartbeat_max, "heartbeat_max"),
            (&mut config.repair_delay, "repair_delay"),
            (&mut config.repair_interval, "repair_interval"),
            (&mut config.confirm_interval, "confirm_interval"),
            (&mut config.linger, "linger"),
        ] {
            *setting = options.duration(key).unwrap_or(*setting);
        }
        put(&mut config.open_start, options, "open_start");
        let mut late_join = 0;
        put(&mut late_join, options, "late_join");
        config.late_join = (late_join > 0).then_some(late_join);
        config
    }
}

impl ReceiverConfig {
    /// The settings that `options`, checked against a table with [`OPTIONS`] in it, ask for.
    pub fn from_options(group: Nla, options: &Options) -> Self {
        let mut config = if is_ns2(options) { Self::ns2(group) } else { Self::new(group) };
        config.reliability = reliability(options);
        config.repair_timers = repair_timers(options, config.repair_timers);
        put(&mut config.window_packets, options, "receive_window");
        put(&mut config.reorder_packets, options, "reorder_packets");
        put(&mut config.confirm_retries, options, "nak_retries");
        put(&mut config.repair_retries, options, "nak_retries");
        for (setting, key) in [
            (&mut config.reorder_delay, "reorder_delay"),
            (&mut config.tail_delay, "tail_delay"),
            (&mut config.report_interval, "report_interval"),
            (&mut config.nak_backoff, "nak_backoff"),
            (&mut config.nak_repeat, "nak_repeat"),
            (&mut config.nak_repair, "nak_repair"),
        ] {
            *setting = options.duration(key).unwrap_or(*setting);
        }
        config.nak_lists = options.bool("nak_lists").unwrap_or(config.nak_lists);
        config.nak_copies = options.bool("nak_copies").unwrap_or(config.nak_copies);
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{OptionKind, OptionValue};
    use alloc::string::ToString;
    use alloc::vec::Vec;

    fn checked(raw: &[(&str, OptionValue)]) -> Options {
        let raw: Vec<_> = raw.iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
        Options::checked(raw, OPTIONS).unwrap()
    }

    fn configs(options: &Options) -> (SourceConfig, ReceiverConfig) {
        let source = SourceConfig::from_options(NodeId(1), Nla::NULL, Tsi::default(), options);
        (source, ReceiverConfig::from_options(Nla::NULL, options))
    }

    /// A default as the table writes it, read as a value.
    fn written(spec: &OptionSpec) -> OptionValue {
        match spec.kind {
            OptionKind::Bool => OptionValue::Bool(spec.default == "true"),
            OptionKind::Integer { .. } => OptionValue::Integer(spec.default.parse().unwrap()),
            _ => OptionValue::Text(spec.default.trim_matches('"').to_string()),
        }
    }

    #[test]
    fn the_defaults_of_the_table_are_those_of_the_settings() {
        let all: Vec<_> = OPTIONS.iter().map(|spec| (spec.name, written(spec))).collect();
        let none = configs(&checked(&[]));
        assert_eq!(configs(&checked(&all)), none);
        assert_eq!(none.0, SourceConfig::new(NodeId(1), Nla::NULL, Tsi::default()));
        assert_eq!(none.1, ReceiverConfig::new(Nla::NULL));
    }

    #[test]
    fn every_setting_changes_something() {
        let others = |options: &Options| {
            let (delivery, announces) = (options.text("delivery"), options.bool("announce_scheme"));
            (Bounds::from_options(options), delivery.map(str::to_string), announces)
        };
        for spec in OPTIONS {
            let value = match spec.kind {
                OptionKind::Bool => OptionValue::Bool(spec.default != "true"),
                OptionKind::Integer { .. } => OptionValue::Integer(7),
                OptionKind::Choice(words) => OptionValue::Text(words[1].to_string()),
                OptionKind::Rate { .. } => OptionValue::Text("7 kbit/s".to_string()),
                _ => OptionValue::Text("7 ms".to_string()),
            };
            if spec.name == "fec" {
                continue;
            }
            let (changed, none) = (checked(&[(spec.name, value)]), checked(&[]));
            let differs = configs(&changed) != configs(&none) || others(&changed) != others(&none);
            assert!(differs, "{}", spec.name);
        }
    }

    #[test]
    fn a_flow_is_a_stream_unless_it_is_an_object() {
        let text = |text: &str| OptionValue::Text(text.to_string());
        let delivery = |raw: &[(&str, OptionValue)]| Delivery::from_options(&checked(raw));
        assert_eq!(delivery(&[]), Delivery::Stream);
        assert_eq!(delivery(&[("fec", text("off"))]), Delivery::Stream);
        let object = ("delivery", text("object"));
        for (fec, want) in [("auto", Fec::Auto), ("off", Fec::Off), ("5%", Fec::Ratio(0.05))] {
            let got = delivery(&[object.clone(), ("fec", text(fec))]);
            assert_eq!(got, Delivery::Object(want), "{fec}");
        }
    }

    #[test]
    fn the_defaults_of_rates_bind_nobody() {
        let all: Vec<_> = OPTIONS.iter().map(|spec| (spec.name, written(spec))).collect();
        assert_eq!(Bounds::from_options(&checked(&all)), Bounds::default());
        let set = checked(&[("rate_max", OptionValue::Text("5 Mbit/s".to_string()))]);
        let max = Some(Bitrate::from_bits_per_s(5_000_000));
        assert_eq!(Bounds::from_options(&set), Bounds { max, min: None });
    }

    #[test]
    fn single_settings_change_the_set_that_they_start_from() {
        let set = [
            ("pgm", OptionValue::Text("ns2".to_string())),
            ("nak_retries", OptionValue::Integer(9)),
        ];
        let (source, receiver) = configs(&checked(&set));
        assert_eq!(source, SourceConfig::ns2(NodeId(1), Nla::NULL, Tsi::default()));
        assert_eq!((receiver.confirm_retries, receiver.repair_retries), (9, 9));
        assert_eq!(receiver.nak_backoff, ReceiverConfig::ns2(Nla::NULL).nak_backoff);
    }
}
