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
mod hystart;
mod ledger;
mod loss;
mod model;
mod options;
mod promises;
mod receiver;
mod receivers;
mod rto;
mod sender;
mod values;
mod window;

#[cfg(test)]
mod tests;

pub use config::{
    Accounting, BitmapScope, ElectionReply, LossEpoch, LossEstimator, PgmccConfig, Profile,
    RttMethod, SlowStart, TimeoutMode,
};
pub use model::Model;
pub use options::OPTIONS;
pub use promises::PROMISES;
pub use receiver::PgmccReceiver;
pub use sender::PgmccSender;
pub use values::{PgmccAnnounce, PgmccReport};
