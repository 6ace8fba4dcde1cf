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
    /// Slow start threshold at the start in packets; 0 stands for window_max, as in ns-2.
    initial_ssthresh: u32 [0, WINDOW_MAX] = 0;
    /// Whether a SYN of 40 bytes goes first, alone, as packet 0 (ns-2: syn_ and delay_growth_).
    syn: bool = true;
    /// Least retransmission timeout before back-off (ns-2: minrto_; RFC 6298 s2.4 says 1 s).
    min_rto: Duration [0 s, 60 s] = 0.2 s;
    /// Retransmission timeout before the first round trip is measured (ns-2: rtxcur_init_; RFC 2988
    /// s2.1).
    initial_rto: Duration [1 ms, 60 s] = 3 s;
    /// The tick in which round trips are measured and timeouts computed (ns-2: tcpTick_).
    clock_granularity: Duration [1 us, 1 s] = 10 ms;
    /// Whether the ticks start at a random phase, as ns-2's do (boot_time_), instead of at the
    /// start of the run.
    random_clock_phase: bool = true;
    /// Duplicate acknowledgements that start a fast retransmit (ns-2: numdupacks_; RFC 5681 s3.2).
    duplicate_acks: u32 [1, 100] = 3;
    /// Whether the first duplicate acknowledgements each let one new packet go (ns-2: singledup_;
    /// RFC 3042).
    limited_transmit: bool = true;
    /// Whether losses of packets sent before the last cut start no further fast retransmit (ns-2:
    /// bugFix_; the careful variant of RFC 6582 s4).
    one_cut_per_window: bool = true;
    /// Whether a cut halves the window with its fraction instead of its whole packets (ns-2:
    /// precisionReduce_).
    precision_reduce: bool = true;
    /// Whether only the first partial acknowledgement of a recovery restarts NewReno's timer (ns-2:
    /// newreno_changes1_; RFC 6582 s4).
    impatient: bool = true;
    /// Whether partial acknowledgements deflate NewReno's window (ns-2: partial_window_deflation_;
    /// RFC 6582 s3.2).
    partial_window_deflation: bool = true;
    /// Sending waits a random time, uniform from 0 to this, which breaks phase effects (ns-2:
    /// overhead_).
    overhead: Duration [0 s, 1 s] = 0 s;
    /// Whether the receiver acknowledges every second packet (ns-2: TCPSink/DelAck; RFC 5681 s4.2).
    delayed_ack: bool = false;
    /// How long a delayed acknowledgement waits for a second packet (ns-2: interval_).
    delayed_ack_interval: Duration [1 ms, 1 s] = 100 ms;
    /// Wait for a hole as long as late packets have shown, and undo cuts for packets that were only late
    /// (RFC 8985 s6.2; nothing of ns-2).
    reordering: bool = false;
}

settings! {
    /// The settings of the kernel's own TCP in the lab. Defaults are those of Linux.
    pub struct KernelSettings;
    /// Largest window in packets that the receiver offers.
    window_max: u32 [1, WINDOW_MAX] = 10000;
    /// Congestion window in packets once the connection is open (RFC 6928 s2).
    initial_window: u32 [1, 100] = 10;
    /// Slow start threshold at the start in packets; 0 for none.
    initial_ssthresh: u32 [0, WINDOW_MAX] = 0;
    /// Least retransmission timeout (Linux: TCP_RTO_MIN; RFC 6298 s2.4 says 1 s).
    min_rto: Duration [1 ms, 60 s] = 0.2 s;
    /// Whether the receiver may acknowledge two packets at once (RFC 5681 s4.2).
    delayed_ack: bool = true;
    /// Packets wait a random time, uniform from 0 to this, before they leave their host, which
    /// breaks phase effects (ns-2: overhead_).
    overhead: Duration [0 s, 1 s] = 0 s;
}
