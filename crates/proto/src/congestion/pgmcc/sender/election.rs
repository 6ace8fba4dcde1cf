//! Election of the acker: the acker itself, and the receivers that may replace it.

use faircast_base::{Duration, NodeId, Seq, Time};

use super::candidates::Candidates;
use super::honesty::Honesty;
use crate::congestion::pgmcc::PgmccConfig;
use crate::congestion::pgmcc::blacklist::Blacklist;
use crate::congestion::pgmcc::model::is_slower;
use crate::congestion::pgmcc::receivers::Receivers;

/// Factor by which a receiver must be slower to replace a new acker at once.
const HOLDING_FACTOR: f64 = 4.0;

#[derive(Debug, Default)]
pub(super) struct Election {
    pub(super) acker: Option<Acker>,
    /// Recent reporters, by whose throughput the acker is elected.
    pub(super) receivers: Receivers,
    pub(super) candidates: Candidates,
    pub(super) blacklist: Blacklist,
    /// True while a packet that calls for an election is unanswered.
    pub(super) is_called: bool,
}

/// Receiver that acknowledges all packets that name it (src: pgmcc-draft s2.3).
#[derive(Debug)]
pub(super) struct Acker {
    pub(super) id: NodeId,
    /// End of the holding time, in which only a far slower receiver replaces this acker.
    pub(super) held_until: Time,
    /// Oldest packet that the acker has received; earlier holes do not count.
    pub(super) joined: Option<Seq>,
    /// Highest packet of the acker's bitmaps (RX_MAX).
    pub(super) rx_max: Option<Seq>,
    /// Due time of the first acknowledgement of a replacement acker, which may not exist.
    pub(super) on_trial: Option<Time>,
    pub(super) honesty: Honesty,
}

impl Election {
    pub(super) fn acker_id(&self) -> Option<NodeId> {
        self.acker.as_ref().map(|acker| acker.id)
    }

    /// Returns the smoothed round trip of a receiver.
    pub(super) fn rtt(&self, id: NodeId) -> Option<Duration> {
        self.receivers.get(id)?.rtt()
    }

    /// True if the acker has not acknowledged any packet that named it. Its round trip is then a
    /// claim: any host can report in the name of an absent receiver.
    pub(super) fn is_acker_a_claim(&self) -> bool {
        self.acker_id().is_some_and(|id| !self.receivers.is_shown(id))
    }

    /// True if the acker has reported on packet `seq` or a later one.
    pub(super) fn acker_has_reported_on(&self, seq: Seq) -> bool {
        let rx_max = self.acker.as_ref().and_then(|acker| acker.rx_max);
        rx_max.is_some_and(|rx_max| !rx_max.before(seq))
    }

    /// True if receiver `from` is slower than the acker by the model and the bias C.
    pub(super) fn beats_acker(&self, config: &PgmccConfig, now: Time, from: NodeId) -> bool {
        let Some(acker) = &self.acker else { return true };
        if acker.on_trial.is_some_and(|due| due <= now) && !self.receivers.is_shown(from) {
            return false;
        }
        let slowness = |id: NodeId| self.receivers.get(id)?.slowness_squared(config);
        let (Some(candidate), Some(present)) = (slowness(from), slowness(acker.id)) else {
            return false;
        };
        let handicap = if now < acker.held_until { HOLDING_FACTOR } else { 1.0 };
        is_slower(candidate / (handicap * handicap), present, config.acker_bias)
    }
}
