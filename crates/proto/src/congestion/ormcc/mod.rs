//! ORMCC: rate-based congestion control by the output rate of the slowest receiver, the *congestion
//! representative* (docs/schemes/ormcc.md).
//!
//! A receiver that misses a packet reports its output rate, at which packets leave the network. At
//! most once a round trip the rate falls to a share of the representative's; each round trip it
//! rises by a packet per round trip. Averages of all reported rates show when another receiver has
//! become the slowest.
//!
//! Sources: `ormcc` (Li and Kalyanaraman); `ormcc-trac`, a later version, for the choice of
//! reporters.

mod config;
mod cr;
mod rate;
mod receiver;
mod sender;
mod silence;
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

/// Weight of a new output rate in the averages that select the representative (src: ormcc s2.2).
const ALPHA: f64 = 0.125;

const RTT0: Duration = Duration::from_millis(200);

/// Minimum charge of a packet, in bytes, since rates count payload: empty packets would be free.
const COST_MIN: u32 = 256;

fn cost(len: u32) -> u32 {
    len.max(COST_MIN)
}

/// ORMCC scheme.
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

/// With the guard, the rate falls after at most 30 s of silence and halves at least once a second.
fn floor(options: &Options) -> Option<Floor> {
    let config = OrmccConfig::from_options(options);
    let every = rate::FLOOR_INTERVAL;
    config.is_improved().then_some(Floor { after: Duration::from_secs(90), every, burst: 1 })
}

/// At most one keep-alive per data packet. Every receiver may answer the first call, repeat it
/// after 200 ms, and request an SPM.
fn reports_max(options: &Options, load: &Load) -> u64 {
    let config = OrmccConfig::from_options(options);
    let alive = if config.is_improved() { load.data_packets } else { 0 };
    load.losses + alive + load.receivers + load.naks_max(options)
}
