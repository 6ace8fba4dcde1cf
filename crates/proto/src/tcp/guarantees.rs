//! What TCP promises to the network.

use crate::congestion::{Floor, Guarantees, Load};
use crate::options::Options;

use super::settings::Settings;

/// What every flavour of TCP promises to the network.
pub const GUARANTEES: Guarantees =
    Guarantees { floor, recovery: Guarantees::RECOVERY, reports_max };

/// One packet for each retransmission timeout, which doubles up to the greatest one. It is rounded
/// up to the ticks of the clock, and a packet may wait for the random overhead.
fn floor(options: &Options) -> Option<Floor> {
    let settings = Settings::from_options(options);
    let rto = settings.max_rto.max(settings.initial_rto);
    let every = rto + settings.clock_granularity * 2 + settings.overhead;
    Some(Floor { after: every * 4, every })
}

/// Each packet is acknowledged at once, those that come twice too.
fn reports_max(_: &Options, load: &Load) -> u64 {
    load.data_packets
}
