//! TFMCC: rate-based congestion control that follows the receiver to which TCP would send slowest.
//!
//! Receivers measure their loss events and round trips and compute from them TCP's throughput; few
//! of them report it, whoever has the lowest most likely. The sender goes at the rate of the
//! *current limiting receiver* (CLR), which reports once a round trip.
//!
//! Source: `RFC 4654`. Constants, formats, deviations and limits: docs/schemes/tfmcc.md.

mod arrivals;
mod echoes;
mod feedback_timer;
mod history;
mod receive_rate;
mod receiver;
mod round_trip;
mod rounds;
mod sender;
mod values;

#[cfg(test)]
mod tests;

use faircast_base::{Duration, NodeId};

pub use arrivals::{Arrivals, FirstInterval};
pub use receiver::TfmccReceiver;
pub use sender::TfmccSender;
pub use values::{Echo, TfmccAnnounce, TfmccReport};

use crate::congestion::{Floor, Guarantees, Load, Reported, Scheme};
use crate::options::{OptionSpec, Options};

/// TFMCC as a scheme that can be named.
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

/// Nobody may send slower than one packet in so many seconds (src: RFC 4654 s3.3).
const SLOWEST_INTERVAL_S: f64 = 8.0;

/// A packet's size before any has been seen, in bytes.
const USUAL_BYTES: f64 = 1488.0;

/// Weight of one packet in the mean size.
const SIZE_GAIN: f64 = 1.0 / 16.0;

/// The guess of the largest round trip before any report, from which the first rate comes
/// (src: RFC 4654 s3.2).
const RTT_MAX_INITIAL: Duration = Duration::from_millis(500);

/// Shorter round trips count as this one. deviates: 1 ms, the resolution of the RFC's timestamps,
/// would keep sessions on a LAN slow.
const RTT_MIN: Duration = Duration::from_micros(100);

/// Longer round trips are mistakes or lies (src: RFC 4654 s2.2.1: the longest that its R_max can
/// say).
const RTT_ABSURD: Duration = Duration::from_secs(64);

/// Largest round trips in a feedback round (src: RFC 4654 s3.4).
const FEEDBACK_ROUND: u64 = 6;

/// Weight of the past in the CLR's smoothed round trip (src: RFC 4654 s4.3.2).
const RTT_WEIGHT_CLR: f64 = 0.9;

/// Timestamps of one clock, echoed by another that measures how long it held them, may seem to come
/// back before they left by what clocks differ in speed: microseconds.
const CLOCK_TOLERANCE_US: i32 = 2000;

/// Ten of the largest round trips halve the rate, down to one packet in 8 s. At the slow end it is
/// the packets' distance that counts as a round trip: 40 s, 20 s, 10 s ... to the last halving but
/// one, and then 80 s. Before that 20 halvings of ten round trips of at most half a second.
fn floor(_: &Options) -> Option<Floor> {
    Some(Floor { after: Duration::from_secs(300), every: Duration::from_secs(8), burst: 1 })
}

/// The CLR reports on some packets, each of the others once in a feedback round at most; a round has
/// six packets at least, and suppression leaves some of a large group (src: RFC 4654 s4.5). NAKs as
/// in any session over PGM.
fn reports_max(options: &Options, load: &Load) -> u64 {
    let rounds = load.data_packets / 6 + 1;
    let others = (load.receivers.saturating_sub(1)).min(ROUND_REPORTS + load.receivers / 100);
    load.data_packets + rounds * others + load.receivers + load.naks_max(options)
}

/// Reports that suppression lets through in a round.
const ROUND_REPORTS: u64 = 16;
