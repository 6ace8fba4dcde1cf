//! Settings of TCP.

use faircast_base::Duration;

use crate::settings::settings;

/// Largest configurable window in packets, which also bounds all tables of both ends.
pub const WINDOW_MAX: u32 = 1 << 20;

settings! {
    /// The settings of all flavours of TCP. Defaults are those of ns-2.35, except for the window,
    /// whose default there (20) would hide every loss of the networks studied here.
    pub(super) struct Settings;
    /// Largest window in packets; the receiver refuses what lies beyond it (ns-2: window_, whose
    /// default is 20).
    window_max: u32 [1, WINDOW_MAX] = 10000;
    /// Congestion window in packets once the connection is open (ns-2: windowInit_).
    initial_window: u32 [1, 10] = 2;
    /// Initial slow start threshold in packets; 0 for window_max, as in ns-2.
    initial_ssthresh: u32 [0, WINDOW_MAX] = 0;
    /// Shortest retransmission timeout before back-off (ns-2: minrto_; RFC 6298 s2.4 says 1 s).
    min_rto: Duration [0 s, 60 s] = 0.2 s;
    /// Retransmission timeout before the first round trip is measured (ns-2: rtxcur_init_; RFC 2988
    /// s2.1).
    initial_rto: Duration [1 ms, 60 s] = 3 s;
    /// Tick of round-trip samples and timeouts (ns-2: tcpTick_).
    clock_granularity: Duration [1 us, 1 s] = 10 ms;
    /// Start the ticks at a random phase, as ns-2 does (boot_time_), instead of at the start of the
    /// run.
    random_clock_phase: bool = true;
    /// Send one new packet for each of the first duplicate acknowledgements (ns-2: singledup_; RFC
    /// 3042).
    limited_transmit: bool = true;
    /// Halve the window with its fraction, not its whole packets alone (ns-2: precisionReduce_).
    precision_reduce: bool = true;
    /// Longest random delay of sending, uniform from 0, which breaks phase effects (ns-2:
    /// overhead_).
    overhead: Duration [0 s, 1 s] = 0 s;
    /// Acknowledge every second packet (ns-2: TCPSink/DelAck; RFC 5681 s4.2).
    delayed_ack: bool = false;
    /// Longest wait of a delayed acknowledgement for a second packet (ns-2: interval_).
    delayed_ack_interval: Duration [1 ms, 1 s] = 100 ms;
    /// Adapt the wait for a hole to the lateness of reordered packets, and undo cuts for late
    /// packets (RFC 8985 s6.2; not in ns-2).
    reordering: bool = false;
}

settings! {
    /// The settings of the kernel's own TCP in the lab. Defaults are those of Linux.
    pub struct KernelSettings;
    /// Largest window in packets that the receiver offers.
    window_max: u32 [1, WINDOW_MAX] = 10000;
    /// Congestion window in packets once the connection is open (RFC 6928 s2).
    initial_window: u32 [1, 100] = 10;
    /// Initial slow start threshold in packets; 0 for none.
    initial_ssthresh: u32 [0, WINDOW_MAX] = 0;
    /// Shortest retransmission timeout (Linux: TCP_RTO_MIN; RFC 6298 s2.4 says 1 s).
    min_rto: Duration [1 ms, 60 s] = 0.2 s;
    /// Allow the receiver to acknowledge two packets at once (RFC 5681 s4.2).
    delayed_ack: bool = true;
    /// Longest random delay of a packet at its host, uniform from 0, which breaks phase effects
    /// (ns-2: overhead_).
    overhead: Duration [0 s, 1 s] = 0 s;
}
