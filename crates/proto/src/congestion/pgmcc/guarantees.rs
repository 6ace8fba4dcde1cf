//! What pgmcc promises to the network.

use super::PgmccConfig;
use crate::congestion::{Floor, Guarantees, Load};
use crate::options::Options;

/// What pgmcc over PGM promises to the network.
pub const GUARANTEES: Guarantees =
    Guarantees { floor, recovery: Guarantees::RECOVERY, reports_max };

/// One packet for each stall timeout, which doubles up to the greatest one, with an acker or in
/// search of one. A fixed timeout stays where it is until the acker is given up.
fn floor(options: &Options) -> Option<Floor> {
    let config = PgmccConfig::from_options(options);
    let every = config.timeout_max.max(config.timeout);
    // The doublings take twice the greatest timeout; giving up the acker begins some anew.
    Some(Floor { after: every * 4, every })
}

/// The acker acknowledges each packet once, and every receiver may answer the first call for an
/// election.
fn reports_max(options: &Options, load: &Load) -> u64 {
    load.data_packets + load.receivers + load.naks_max(options)
}
