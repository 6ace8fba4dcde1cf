//! What pgmcc promises to the network.

use super::PgmccConfig;
use crate::endpoint::ReceiverConfig;
use crate::options::Options;
use crate::promises::{Floor, Load, Promises};
use crate::wire::pgm::Nla;

/// What pgmcc over PGM promises to the network.
pub const PROMISES: Promises = Promises { floor, reports_max };

/// One packet for each stall timeout, which doubles up to the greatest one, with an acker or in
/// search of one. A fixed timeout stays where it is until the acker is given up.
fn floor(options: &Options) -> Option<Floor> {
    let config = PgmccConfig::from_options(options);
    let every = config.timeout_max.max(config.timeout);
    // The doublings take twice the greatest timeout; giving up the acker begins some anew.
    Some(Floor { after: every * 4, every })
}

/// The acker acknowledges each packet once. Every receiver may answer the first call for an
/// election and ask the source and its neighbours for an SPM. Each loss is asked for when it is
/// found, and again each time that a confirmation or a repair has not come in time.
fn reports_max(options: &Options, load: &Load) -> u64 {
    let receiver = ReceiverConfig::from_options(Nla::NULL, options);
    let again = receiver.nak_repeat.min(receiver.nak_repair).as_nanos().max(1);
    let repeated = load.missing.as_nanos() / again;
    load.data_packets + load.losses + repeated + 3 * load.receivers
}
