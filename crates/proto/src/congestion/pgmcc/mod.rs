//! pgmcc: window-based congestion control between the sender and one representative receiver, the
//! *acker* (docs/schemes/pgmcc.md).
//!
//! The acker acknowledges every data packet that names it, which drives a TCP-like window. The
//! receiver with the lowest modelled throughput, by loss rate and round trip in its NAKs, is acker.
//!
//! Sources: `pgmcc-draft` (protocol), `seada-helmy` (behaviour, weaknesses), `openpgm` (formats).

mod config;
mod ledger;
mod loss;
mod receiver;
mod sender;
mod values;
mod window;

#[cfg(test)]
mod tests;

use faircast_base::{Duration, NodeId};

pub use config::{BitmapScope, Model, PgmccConfig, Profile, TimeoutMode};
pub use receiver::PgmccReceiver;
pub use sender::PgmccSender;
pub use values::{PgmccAnnounce, PgmccReport};

use crate::congestion::{Floor, Guarantees, Load, Reported, Scheme};
use crate::options::{OptionSpec, Options};

/// pgmcc scheme.
#[derive(Debug)]
pub struct Pgmcc;

impl Scheme for Pgmcc {
    const NAME: &'static str = "pgmcc";
    const ABOUT: &'static str =
        "window control between the sender and the slowest receiver, over PGM";
    const OPTIONS: &'static [OptionSpec] = PgmccConfig::OPTIONS;
    const GUARANTEES: Guarantees =
        Guarantees { floor, recovery: Guarantees::RECOVERY, reports_max };
    type Control = PgmccSender;
    type Feedback = PgmccReceiver;

    fn control(options: &Options) -> PgmccSender {
        PgmccSender::new(PgmccConfig::from_options(options))
    }

    fn feedback(options: &Options, node: NodeId) -> PgmccReceiver {
        PgmccReceiver::new(PgmccConfig::from_options(options), node)
    }

    fn stamp(announce: &PgmccAnnounce) -> Option<u32> {
        Some(announce.sent_ms)
    }

    fn echo(report: &mut PgmccReport) -> Option<&mut u32> {
        Some(&mut report.echo_ms)
    }

    fn reported(report: &PgmccReport, round_trip: Duration) -> Option<Reported> {
        let loss = f64::from(report.loss) / 65535.0;
        let slowness_squared = Model::Full.slowness_squared(round_trip.as_secs_f64(), loss);
        Some(Reported { loss, slowness_squared })
    }
}

/// Returns one packet per stall timeout, which doubles up to the maximum, or stays if fixed.
fn floor(_: &Options) -> Option<Floor> {
    let every = window::TIMEOUT_MAX;
    // The doublings last twice the maximum timeout, and dropping the acker restarts some.
    Some(Floor { after: every * 4, every, burst: 1 })
}

/// The acker acknowledges each packet once; every receiver may answer the first election call.
fn reports_max(options: &Options, load: &Load) -> u64 {
    load.data_packets + load.receivers + load.naks_max(options)
}
