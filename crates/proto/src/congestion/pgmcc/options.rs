//! The table of pgmcc's settings.

use crate::options::{OptionSpec, choice, float, span, switch, whole};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// The settings of pgmcc. Defaults are those of the profile `improved`; where the other profiles
/// differ, the sentence says so.
pub const OPTIONS: &[OptionSpec] = &[
    choice(
        "profile",
        &["paper", "draft", "improved"],
        "\"improved\"",
        "Which settings to start from: what Seada and Helmy evaluated, the draft by the letter, \
         or the draft with its known problems mended",
    ),
    choice(
        "timeout_mode",
        &["fixed", "tcp", "reno", "cumulative"],
        "\"tcp\"",
        "How the stall timeout is computed: fixed, as RFC 6298, or as that but restarted only by \
         acknowledgements without a hole, or only when the first hole changes (paper: fixed)",
    ),
    span(
        "timeout",
        (10 * MS, 600 * S),
        "\"3 s\"",
        "The fixed timeout, and the adaptive one before it has samples (paper: 4 s)",
    ),
    span("timeout_min", (MS, 60 * S), "\"200 ms\"", "The least adaptive timeout (paper: 1 s)"),
    span(
        "timeout_max",
        (100 * MS, 600 * S),
        "\"60 s\"",
        "The greatest timeout after backing off (RFC 6298 s2.4)",
    ),
    switch(
        "timeout_restart",
        "true",
        "A new acker starts with a fresh timeout estimate (pgmcc draft s2.7)",
    ),
    switch(
        "timeout_after_cut",
        "false",
        "The stall timer starts anew when the window is cut for a loss, as TCP Reno's does in ns-2.35 \
         when it retransmits fast",
    ),
    whole(
        "retry_max",
        (1, 100),
        "2",
        "Stall timeouts in a row after which the acker is dropped (pgmcc draft s2.7)",
    ),
    switch(
        "blacklist",
        "true",
        "A dropped acker may not come back for two timeouts (paper, draft: false)",
    ),
    choice(
        "model",
        &["simple", "full"],
        "\"full\"",
        "The throughput model: 1 / (RTT sqrt p), or with timeouts (pgmcc draft s2.4) (paper: \
         simple)",
    ),
    float(
        "acker_bias",
        (0.05, 1.0),
        "0.75",
        "Another receiver becomes the acker where its throughput is below this share of the \
         acker's (paper: 0.6666)",
    ),
    float(
        "holding_time",
        (0.0, 1000.0),
        "1.0",
        "Round trips for which a new acker stays unless another is far slower (paper, draft: 0)",
    ),
    float(
        "holding_factor",
        (1.0, 1e6),
        "4.0",
        "How many times slower than the acker that other must be",
    ),
    switch(
        "compare_alike",
        "true",
        "A receiver is compared with the acker only once the acker has reported on the same packets \
         (paper, draft: false)",
    ),
    choice(
        "rtt_method",
        &["timestamp", "sequence"],
        "\"timestamp\"",
        "Round trips in the model are times, or packets sent meanwhile (paper: sequence)",
    ),
    float(
        "rtt_gain",
        (0.001, 1.0),
        "0.125",
        "Weight of a new round trip sample in the model (paper, draft: 1)",
    ),
    float(
        "slow_start_threshold",
        (1.0, 1000.0),
        "6.0",
        "Window in packets up to which each acknowledged packet adds one (draft: 4)",
    ),
    choice(
        "slow_start",
        &["limited", "open"],
        "\"open\"",
        "The window opens exponentially up to slow_start_threshold only, or as TCP's until the first \
         loss or a growing round trip, and after a stall up to half of the window before",
    ),
    float("window_max", (2.0, 30_000.0), "10000.0", "The greatest window in packets"),
    whole(
        "ack_every",
        (1, 16),
        "8",
        "Data packets handled in one moment that an acker acknowledges together (paper, draft: 1)",
    ),
    whole(
        "loss_threshold",
        (1, 30),
        "3",
        "Later packets that must have arrived before one is taken for lost (pgmcc draft s2.2)",
    ),
    choice(
        "accounting",
        &["tokens", "realign", "flight"],
        "\"flight\"",
        "Permission to send comes from the draft's tokens, from tokens set right at each loss, or \
         from counting packets in flight (paper: realign, draft: tokens)",
    ),
    switch(
        "charge_repairs",
        "true",
        "Repairs take room in the window for one round trip (paper, draft: false)",
    ),
    switch(
        "ack_repairs",
        "false",
        "Repairs name the acker too, so that it acknowledges them at once (paper: true)",
    ),
    switch(
        "window_validation",
        "true",
        "The window stands still while the application, or rate_max, does not fill it (paper, draft: \
         false)",
    ),
    switch(
        "spread",
        "true",
        "The window is spread over the round trip: a packet follows an acknowledgement that comes \
         after 3/4 of its share RTT/W, or a random wait of up to twice the share, and only what the \
         window grows by follows at once (paper, draft: false)",
    ),
    switch(
        "ack_history",
        "true",
        "A former acker's acknowledgements count for the packets that named it (draft: \
         false)",
    ),
    choice(
        "bitmap_scope",
        &["all", "own"],
        "\"all\"",
        "The acker's bitmap acknowledges all that it covers, or only packets that named it (paper: \
         own)",
    ),
    switch(
        "designated_loss",
        "true",
        "Only the bitmap of the receiver that a packet named, or of one that must have seen it, \
         declares it lost (paper, draft: false)",
    ),
    choice(
        "loss_epoch",
        &["feedback", "sent"],
        "\"sent\"",
        "The window is cut again for losses found after the feedback that ends the last cut, or \
         only for packets sent after that cut (draft: feedback)",
    ),
    switch(
        "switch_recover",
        "true",
        "A switch of ackers closes the account of earlier losses (paper, draft: false)",
    ),
    switch(
        "switch_ageing",
        "true",
        "Packets that named a former acker leave flight after two round trips (paper, draft: \
         false)",
    ),
    switch(
        "lie_check",
        "true",
        "An acker that reports far more loss than its bitmaps show is dropped (pgmcc draft s5) \
         (paper, draft: false)",
    ),
    choice(
        "loss_estimator",
        &["ewma", "loss-intervals"],
        "\"loss-intervals\"",
        "How receivers smooth loss: a low-pass filter, or TFMCC's loss intervals (paper, draft: ewma)",
    ),
    float(
        "loss_gain",
        (0.00001, 1.0),
        "0.00762939453125",
        "Weight of one packet in the low-pass filter: 500/65536 (pgmcc draft s2.6)",
    ),
    span(
        "loss_event_time",
        (0, 10 * S),
        "\"10 ms\"",
        "Losses within this span are one event for the loss intervals",
    ),
    whole(
        "reorder_tolerance",
        (1, 32),
        "3",
        "Later packets that must have arrived before a receiver counts one as lost (paper, draft: \
         1)",
    ),
    choice(
        "election_reply",
        &["ack", "nak"],
        "\"ack\"",
        "Receivers answer a call for an election with an ACK, as OpenPGM does, or with the \
         draft's NAK that asks for nothing",
    ),
    span("election_backoff", (0, 10 * S), "\"50 ms\"", "The longest wait before that answer"),
    switch(
        "speak_up",
        "true",
        "A receiver that overhears only reports of less than half its own loss sends its own \
         (paper, draft: false)",
    ),
];
