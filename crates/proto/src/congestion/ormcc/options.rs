//! The table of ORMCC's settings.

use crate::options::{OptionSpec, choice, float, span, switch, whole};

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const S: u64 = 1_000 * MS;

/// The settings of ORMCC. Defaults are those of the profile `improved`; where the profile `paper`
/// differs, the sentence says so.
pub const OPTIONS: &[OptionSpec] = &[
    choice(
        "profile",
        &["paper", "improved"],
        "\"improved\"",
        "Which settings to start from: the paper's algorithm, or that with what real networks need",
    ),
    float(
        "alpha",
        (0.001, 1.0),
        "0.125",
        "Weight of a new output rate in the averages that choose the representative (ormcc s2.2)",
    ),
    float("gamma", (0.001, 1.0), "0.5", "Weight of a new value in the throughput (ormcc s2.2)"),
    float(
        "beta",
        (0.01, 1.0),
        "0.75",
        "A cut goes to this share of the representative's output rate (ormcc s2.1)",
    ),
    whole("n", (1, 64), "4", "Packets over which a receiver measures its output rate (ormcc s2.1)"),
    switch(
        "output_bound",
        "true",
        "An output rate counts up to the largest rate of the last round trips (paper: false)",
    ),
    float(
        "output_rtts",
        (0.0, 100.0),
        "1.0",
        "Round trips over which it measures at least, 2 s at most (paper: 0)",
    ),
    span("output_time", (0, 2 * S), "\"5 ms\"", "The least time over which it measures (paper: 0)"),
    span("rtt0", (10 * US, 10 * S), "\"200 ms\"", "The round trip before samples (ormcc s3)"),
    float("rtt_gain", (0.001, 1.0), "0.125", "Weight of a new round trip (ormcc s2.1)"),
    choice(
        "rtt_samples",
        &["all", "representative"],
        "\"representative\"",
        "Whose round trips count: those of all congestion indications, or of the representative \
         alone (paper: all)",
    ),
    float(
        "q",
        (0.0, 1.0),
        "0.1",
        "Chance that a far lower rate changes the representative though it is not below its average \
         (open in the paper)",
    ),
    float(
        "sigma_floor",
        (0.0, 1.0),
        "0.01",
        "Least deviation of rates, as a share of their average (open in the paper)",
    ),
    float(
        "recovered_sigmas",
        (0.0, 100.0),
        "2.0",
        "Deviations above the average at which the representative has recovered (ormcc s2.1)",
    ),
    float(
        "slower_sigmas",
        (0.0, 100.0),
        "4.0",
        "Deviations below the average at which a rate changes the representative (ormcc s2.1)",
    ),
    switch(
        "slower_at_limit",
        "false",
        "A rate at that very limit does too: line 28 of the algorithm; its text says below",
    ),
    float(
        "interval_sigmas",
        (0.0, 100.0),
        "3.0",
        "Deviations by which the throughput is taken higher for the interval I (ormcc s2.1)",
    ),
    switch(
        "throughput_first",
        "false",
        "The average throughput begins with its first value and no deviation, not with the initial \
         rate (open in the paper)",
    ),
    float(
        "interval_min",
        (1.0, 1e9),
        "100.0",
        "Least interval I in packets, after which a representative without congestion is replaced \
         (open in the paper)",
    ),
    choice(
        "feedback",
        &["ci", "ci-per-rtt", "trac"],
        "\"trac\"",
        "Who reports congestion: everybody at each packet that reveals a loss, everybody once in a \
         round trip, or the representative and those slower than it (paper: ci)",
    ),
    span(
        "ci_spacing",
        (0, 10 * S),
        "\"1 ms\"",
        "Least time between two congestion indications of a receiver (paper: 0)",
    ),
    whole(
        "ci_reorder",
        (1, 32),
        "3",
        "Later packets that must have arrived before a receiver counts one as lost (paper: 1)",
    ),
    span("ci_reorder_delay", (0, 10 * S), "\"10 ms\"", "The same by time"),
    float(
        "initial_packets",
        (0.01, 1000.0),
        "4.0",
        "Rate at the start in packets per round trip (paper: 1)",
    ),
    switch(
        "initial_doubling",
        "true",
        "The rate doubles each round trip until the first sign of congestion (paper: false)",
    ),
    float(
        "doubling_max",
        (1.0, 1e6),
        "100000.0",
        "Up to so many packets per round trip (paper: 16)",
    ),
    float(
        "lead_packets",
        (0.5, 1e6),
        "1.0",
        "Packets per round trip by which the rate leads what the representative told to come out \
         (guard)",
    ),
    float(
        "lead_share",
        (0.0, 100.0),
        "0.05",
        "Share of what came out by which the rate leads it beyond that (guard)",
    ),
    switch(
        "guard",
        "true",
        "The representative shows that it is alive, the rate grows only while it does, and falls \
         without any report (paper: false)",
    ),
    span(
        "silence",
        (100 * MS, 30 * S),
        "\"5 s\"",
        "Silence after which the rate falls, at least 8 round trips (guard)",
    ),
    span("floor_interval", (10 * MS, 60 * S), "\"2 s\"", "The floor: one packet in this time"),
];
