//! What ORMCC promises to the network.

use faircast_base::Duration;

use super::OrmccConfig;
use crate::endpoint::ReceiverConfig;
use crate::options::Options;
use crate::promises::{Floor, Load, Promises};
use crate::wire::pgm::Nla;

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
/// representative shows that it is alive at most once for each data packet, and every receiver
/// answers the first call for a representative and may ask for an SPM.
fn reports_max(options: &Options, load: &Load) -> u64 {
    let receiver = ReceiverConfig::from_options(Nla::NULL, options);
    let config = OrmccConfig::from_options(options);
    let again = receiver.nak_repeat.min(receiver.nak_repair).as_nanos().max(1);
    let naks = load.losses + load.missing.as_nanos() / again;
    let alive = if config.guard { load.data_packets } else { 0 };
    naks + load.losses + alive + 3 * load.receivers
}
