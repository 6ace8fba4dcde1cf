//! What TFMCC promises to the network.

use faircast_base::Duration;

use crate::congestion::{Floor, Guarantees, Load};
use crate::options::Options;

/// What TFMCC over PGM promises to the network.
pub const GUARANTEES: Guarantees =
    Guarantees { floor, recovery: Guarantees::RECOVERY, reports_max };

/// Ten of the largest round trips halve the rate, down to one packet in 8 s. At the slow end it is
/// the packets' distance that counts as a round trip: 40 s, 20 s, 10 s ... to the last halving but
/// one, and then 80 s. Before that 20 halvings of ten round trips of at most half a second.
fn floor(_: &Options) -> Option<Floor> {
    Some(Floor { after: Duration::from_secs(300), every: Duration::from_secs(8) })
}

/// The CLR reports on some packets, each of the others once in a feedback round at most; a round has
/// six packets at least, and suppression leaves some of a large group (src: RFC 4654 s4.5). NAKs as
/// in any session over PGM.
fn reports_max(options: &Options, load: &Load) -> u64 {
    let rounds = load.data_packets / 6 + 1;
    let others = (load.receivers.saturating_sub(1)).min(ROUND_REPORTS + load.receivers / 100);
    load.data_packets + rounds * others + load.receivers + load.naks_max(options)
}

/// Reports that suppression lets through in a round.
const ROUND_REPORTS: u64 = 16;
