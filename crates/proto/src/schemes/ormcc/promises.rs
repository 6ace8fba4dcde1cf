//! What ORMCC promises to the network.

use faircast_base::Duration;

use super::OrmccConfig;
use super::receiver::ANSWER_INTERVAL;
use crate::options::Options;
use crate::promises::{Floor, Load, Promises};

/// What ORMCC over PGM promises to the network.
pub const PROMISES: Promises = Promises { floor, reports_max };

/// With the guard, silence lasts 30 s at most until the rate falls, and it halves once in a second
/// at least. The paper's sender hears nothing where all is well, and does not mind.
fn floor(options: &Options) -> Option<Floor> {
    let config = OrmccConfig::from_options(options);
    let every = config.floor_interval;
    config.guard.then_some(Floor { after: Duration::from_secs(90), every })
}

/// Each loss is reported when it is found, and asked for by NAKs as by any PGM receiver; the
/// representative shows that it is alive at most once for each data packet; every receiver answers
/// calls for a representative, which follow each that leaves or falls silent, at most once in a time,
/// and may ask for an SPM. A packet that the network marks is reported as a loss is.
fn reports_max(options: &Options, load: &Load) -> u64 {
    let config = OrmccConfig::from_options(options);
    let answers = 1 + load.lasted.as_nanos() / ANSWER_INTERVAL.as_nanos();
    let signs = load.data_packets + load.receivers * answers;
    load.losses + if config.guard { signs } else { 0 } + load.naks_max(options)
}
