//! ORMCC: rate-based congestion control by the output rate of the slowest receiver, the *congestion
//! representative*.
//!
//! A receiver that finds a packet missing tells the rate at which packets come out of the network
//! where it is, in a congestion indication. The sender follows those of the representative: it goes
//! down to a share of the rate told, at most once in a round trip, and up by a packet per round
//! trip in each. Averages of all rates told show when another receiver has become the slowest.
//!
//! Source: `ormcc` (Li and Kalyanaraman), and of a later version of the same work the rule of who may
//! report (`ormcc-trac`). Constants, readings and limits: docs/schemes/ormcc.md.

mod choice;
mod config;
mod output;
mod rate;
mod receiver;
mod recent;
mod repairs;
mod sender;
mod values;

#[cfg(test)]
mod tests;

use faircast_base::{Duration, NodeId};

pub use config::{Feedback, OrmccConfig, Profile};
pub use receiver::OrmccReceiver;
pub use sender::OrmccSender;
pub use values::{OrmccAnnounce, OrmccReport};

use crate::congestion::{Floor, Guarantees, Load, Reported, Scheme};
use crate::options::{OptionSpec, Options};

/// Weight of a new output rate in the averages that choose the representative (src: ormcc s2.2).
const ALPHA: f64 = 0.125;

/// The round trip before samples (src: ormcc s3).
const RTT0: Duration = Duration::from_millis(200);

/// Bytes that a packet counts for at least. Rates are of payload, as the paper's packets of 1000 bytes
/// have no headers; those that real packets have, some 90 bytes, would make a rate of small ones a
/// load many times as large, and one of empty ones no rate at all.
const COST_MIN: u32 = 256;

/// The bytes that a packet with `len` bytes of payload counts for.
fn cost(len: u32) -> u32 {
    len.max(COST_MIN)
}

/// ORMCC as a scheme that can be named.
#[derive(Debug)]
pub struct Ormcc;

impl Scheme for Ormcc {
    const NAME: &'static str = "ormcc";
    const ABOUT: &'static str = "rate control by the output rate of the slowest receiver, over PGM";
    const OPTIONS: &'static [OptionSpec] = OrmccConfig::OPTIONS;
    const GUARANTEES: Guarantees =
        Guarantees { floor, recovery: Guarantees::RECOVERY, reports_max };
    const TICK: Duration = Duration::from_micros(1);
    type Control = OrmccSender;
    type Feedback = OrmccReceiver;

    fn control(options: &Options) -> OrmccSender {
        OrmccSender::new(OrmccConfig::from_options(options))
    }

    fn feedback(options: &Options, node: NodeId) -> OrmccReceiver {
        OrmccReceiver::new(OrmccConfig::from_options(options), node)
    }

    fn stamp(announce: &OrmccAnnounce) -> Option<u32> {
        Some(announce.sent_us)
    }

    fn echo(report: &mut OrmccReport) -> Option<&mut u32> {
        Some(&mut report.echo_us)
    }

    fn reported(report: &OrmccReport, _round_trip: Duration) -> Option<Reported> {
        report.rate.map(Reported::of_rate)
    }
}

/// With the guard, silence lasts 30 s at most until the rate falls, and it halves once in a second
/// at least. The paper's sender hears nothing where all is well, and does not mind.
fn floor(options: &Options) -> Option<Floor> {
    let config = OrmccConfig::from_options(options);
    let every = rate::FLOOR_INTERVAL;
    config.guard.then_some(Floor { after: Duration::from_secs(90), every, burst: 1 })
}

/// Each loss is reported when it is found, and asked for by NAKs as by any PGM receiver; the
/// representative shows that it is alive at most once for each data packet, and every receiver
/// answers the first call for a representative and may ask for an SPM. A load does not tell how many
/// marks the network made, each of which is reported as a loss is, nor how often the representative
/// left, after which there is another call; one of no answer in 200 ms is answered again.
fn reports_max(options: &Options, load: &Load) -> u64 {
    let config = OrmccConfig::from_options(options);
    let alive = if config.guard { load.data_packets } else { 0 };
    load.losses + alive + load.receivers + load.naks_max(options)
}
