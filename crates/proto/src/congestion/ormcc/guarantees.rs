//! What ORMCC promises to the network.

use faircast_base::Duration;

use super::OrmccConfig;
use crate::congestion::{Floor, Guarantees, Load};
use crate::options::Options;

/// What ORMCC over PGM promises to the network.
pub const GUARANTEES: Guarantees =
    Guarantees { floor, recovery: Guarantees::RECOVERY, reports_max };

/// With the guard, silence lasts 30 s at most until the rate falls, and it halves once in a second
/// at least. The paper's sender hears nothing where all is well, and does not mind.
fn floor(options: &Options) -> Option<Floor> {
    let config = OrmccConfig::from_options(options);
    let every = config.floor_interval;
    config.guard.then_some(Floor { after: Duration::from_secs(90), every })
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
