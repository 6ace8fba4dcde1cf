//! The table of TFMCC's settings.

use crate::options::{OptionSpec, float, span, switch, whole};

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const S: u64 = 1_000 * MS;

/// The settings of TFMCC. Both ends must agree on those that say so.
pub const OPTIONS: &[OptionSpec] = &[
    span(
        "rtt_max_initial",
        (MS, 64 * S),
        "\"500 ms\"",
        "The guess of the largest round trip before any report, from which the first rate comes \
         (RFC 4654 s3.2)",
    ),
    switch(
        "forget_guess",
        "true",
        "That guess ends with the first feedback round that had reports; otherwise it shrinks by a \
         tenth a round as a measured round trip does",
    ),
    float(
        "rtt_max_decay",
        (0.0, 1.0),
        "0.9",
        "What is left of the largest round trip after a feedback round without a longer one (RFC \
         4654 s3.2)",
    ),
    span(
        "rtt_min",
        (US, 10 * MS),
        "\"100 us\"",
        "Shorter round trips count as this one (RFC 4654 s3.2: 1 ms, the resolution of its \
         timestamps); both ends",
    ),
    span(
        "rtt_absurd",
        (10 * MS, 600 * S),
        "\"64 s\"",
        "Longer round trips are mistakes or lies and not measurements (RFC 4654 s2.2.1: the longest \
         that its R_max can say)",
    ),
    float(
        "feedback_round",
        (2.0, 100.0),
        "6.0",
        "Largest round trips in a feedback round (RFC 4654 s3.4: 6, or 4 where reports are \
         multicast); both ends",
    ),
    float(
        "suppression_margin",
        (0.0, 0.9),
        "0.1",
        "A report silences receivers whose rate is not lower by this share (g, RFC 4654 s3.4)",
    ),
    whole(
        "group_size",
        (2, 1_000_000_000),
        "10000",
        "How many receivers feedback timers are made for (N, RFC 4654 s4.5)",
    ),
    float(
        "rtt_weight_clr",
        (0.0, 0.999),
        "0.9",
        "Weight of the past in the CLR's smoothed round trip (RFC 4654 s4.3.2)",
    ),
    float(
        "rtt_weight",
        (0.0, 0.999),
        "0.5",
        "The same at other receivers, whose measurements are rare (RFC 4654 s4.3.2)",
    ),
    switch(
        "one_way_delay",
        "true",
        "Between measurements the round trip follows the delay of data (RFC 4654 s4.3.3)",
    ),
    switch(
        "discounting",
        "true",
        "Old loss intervals weigh less after a long one without loss (RFC 4654 s5.5)",
    ),
    whole(
        "loss_threshold",
        (1, 16),
        "3",
        "Later packets that must have arrived before one counts as lost (RFC 4654 s5.1)",
    ),
    switch(
        "nak_reports",
        "true",
        "NAKs carry reports too, which tell the source the round trips of those that it repairs for",
    ),
    switch(
        "report_losses",
        "true",
        "The CLR reports the beginning of a loss event at once and does not wait for the end of a \
         round trip (RFC 5348 s6.1)",
    ),
    span(
        "report_interval_min",
        (0, S),
        "\"1 ms\"",
        "The CLR reports once a round trip, but not more often than this",
    ),
    span(
        "silence_min",
        (0, 60 * S),
        "\"25 ms\"",
        "Round trips count as at least this where the sender judges by silence: hosts may be busy \
         for longer than a LAN's round trip",
    ),
];
