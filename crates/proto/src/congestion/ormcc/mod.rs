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
mod guarantees;
mod output;
mod rate;
mod receiver;
mod recent;
mod repairs;
mod sender;
mod silence;
mod values;

#[cfg(test)]
mod tests;

use faircast_base::{Duration, NodeId};

pub use config::{Feedback, OrmccConfig, Profile, RttSamples};
pub use guarantees::GUARANTEES;
pub use receiver::OrmccReceiver;
pub use sender::OrmccSender;
pub use values::{OrmccAnnounce, OrmccReport};

use crate::congestion::{Guarantees, Reported, Scheme};
use crate::options::{OptionSpec, Options};

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
    const GUARANTEES: Guarantees = GUARANTEES;
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
