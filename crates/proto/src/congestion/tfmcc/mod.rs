//! TFMCC: rate-based congestion control for the receiver with the lowest TCP throughput (source:
//! `RFC 4654`; docs/schemes/tfmcc.md).
//!
//! Receivers compute TCP's throughput; few of them report, most likely the slowest. The sender
//! follows the *current limiting receiver* (CLR), which reports once a round trip.

mod arrivals;
mod history;
mod receiver;
mod round_trip;
mod rounds;
mod sender;
mod values;

#[cfg(test)]
mod tests;

use faircast_base::{Duration, NodeId};

pub use arrivals::Arrivals;
pub use history::FirstInterval;
pub use receiver::TfmccReceiver;
pub use sender::TfmccSender;
pub use values::{Echo, TfmccAnnounce, TfmccReport};

use crate::congestion::{Floor, Guarantees, Load, Reported, Scheme};
use crate::options::{OptionSpec, Options};

/// TFMCC scheme.
#[derive(Debug)]
pub struct Tfmcc;

impl Scheme for Tfmcc {
    const NAME: &'static str = "tfmcc";
    const ABOUT: &'static str =
        "smooth rate control by the receiver with the lowest TCP-friendly rate";
    const OPTIONS: &'static [OptionSpec] = &[];
    const GUARANTEES: Guarantees =
        Guarantees { floor, recovery: Guarantees::RECOVERY, reports_max };
    const TICK: Duration = Duration::from_micros(1);
    type Control = TfmccSender;
    type Feedback = TfmccReceiver;

    fn control(_: &Options) -> TfmccSender {
        TfmccSender::new()
    }

    fn feedback(_: &Options, node: NodeId) -> TfmccReceiver {
        TfmccReceiver::new(node)
    }

    fn stamp(announce: &TfmccAnnounce) -> Option<u32> {
        Some(announce.sent_us)
    }

    fn echo(report: &mut TfmccReport) -> Option<&mut u32> {
        Some(&mut report.echo_us)
    }

    fn reported(report: &TfmccReport, _round_trip: Duration) -> Option<Reported> {
        Some(Reported::of_rate(report.bits_per_s))
    }
}

/// Longest interval between packets, in seconds (src: RFC 4654 s3.3).
const SLOWEST_INTERVAL_S: f64 = 8.0;

/// Packet size before the first packet, in bytes.
const USUAL_BYTES: f64 = 1488.0;

const SIZE_GAIN: f64 = 1.0 / 16.0;

/// Largest round trip before any report, which sets the first rate (src: RFC 4654 s3.2).
const RTT_MAX_INITIAL: Duration = Duration::from_millis(500);

/// Minimum round trip. deviates: 1 ms, the RFC's timestamp resolution, would slow LAN sessions.
const RTT_MIN: Duration = Duration::from_micros(100);

/// Longest credible round trip (src: RFC 4654 s2.2.1: the maximum of R_max).
const RTT_ABSURD: Duration = Duration::from_secs(64);

/// Length of a feedback round, in largest round trips (src: RFC 4654 s3.4).
const FEEDBACK_ROUND: u64 = 6;

/// Weight of the past in the CLR's smoothed round trip (src: RFC 4654 s4.3.2).
const RTT_WEIGHT_CLR: f64 = 0.9;

/// Tolerance for echoes that return before they left, in microseconds: clocks differ in speed.
const CLOCK_TOLERANCE_US: i32 = 2000;

/// The rate halves every ten largest round trips, down to one packet in 8 s: 20 times within half a
/// second each, then by the packet interval: 80 s, 40 s, 20 s ...
fn floor(_: &Options) -> Option<Floor> {
    Some(Floor { after: Duration::from_secs(300), every: Duration::from_secs(8), burst: 1 })
}

/// The CLR reports on each packet, others once in at least six (src: RFC 4654 s4.5), beside NAKs.
fn reports_max(options: &Options, load: &Load) -> u64 {
    let rounds = load.data_packets / 6 + 1;
    let others = (load.receivers.saturating_sub(1)).min(ROUND_REPORTS + load.receivers / 100);
    load.data_packets + rounds * others + load.receivers + load.naks_max(options)
}

const ROUND_REPORTS: u64 = 16;
