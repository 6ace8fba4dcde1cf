//! pgmcc: window-based congestion control between the sender and one representative receiver, the
//! *acker*.
//!
//! The acker acknowledges every data packet that names it, and the sender runs a TCP-like window
//! on those acknowledgements. All receivers report loss rate and round trip with their NAKs, and
//! the sender makes the one with the lowest modelled throughput the acker.
//!
//! Sources: `pgmcc-draft` (the protocol), `seada-helmy` (how it behaved, and what to mend),
//! `openpgm` (formats). Constants, deviations and limits: docs/schemes/pgmcc.md.

mod blacklist;
mod config;
mod guarantees;
mod hystart;
mod ledger;
mod loss;
mod model;
mod receiver;
mod receivers;
mod rto;
mod sender;
mod values;
mod window;

#[cfg(test)]
mod tests;

use faircast_base::{Duration, NodeId};

pub use config::{
    Accounting, BitmapScope, ElectionReply, LossEpoch, LossEstimator, PgmccConfig, Profile,
    RttMethod, SlowStart, TimeoutMode,
};
pub use guarantees::GUARANTEES;
pub use model::Model;

pub use receiver::PgmccReceiver;
pub use sender::PgmccSender;
pub use values::{PgmccAnnounce, PgmccReport};

use crate::congestion::{Guarantees, Reported, Scheme};
use crate::options::{OptionSpec, Options};

/// pgmcc as a scheme that can be named.
#[derive(Debug)]
pub struct Pgmcc;

impl Scheme for Pgmcc {
    const NAME: &'static str = "pgmcc";
    const ABOUT: &'static str =
        "window control between the sender and the slowest receiver, over PGM";
    const OPTIONS: &'static [OptionSpec] = PgmccConfig::OPTIONS;
    const GUARANTEES: Guarantees = GUARANTEES;
    const TICK: Duration = Duration::from_millis(1);
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
