//! Loss detection of pgmcc's sender from bitmaps.

use faircast_base::{NodeId, Seq, Time};

use super::PgmccSender;
use crate::congestion::AckVector;
use crate::congestion::pgmcc::config::BitmapScope;
use crate::congestion::pgmcc::ledger::Fate;

const BITMAP_LEN: i32 = 32;

/// Later packets after which a missing one counts as lost (src: pgmcc-draft s2.2).
const LOSS_THRESHOLD: u32 = 3;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lost {
    /// Packets found lost.
    pub(super) count: u32,
    /// Packets whose fate stays unknown: they left the range of bitmaps.
    pub(super) unknown: u32,
    /// Latest packet found lost.
    pub(super) latest: Option<Seq>,
}

impl Lost {
    fn add(&mut self, seq: Seq) {
        self.count += 1;
        self.latest = Some(seq);
    }
}

impl PgmccSender {
    /// Settles the packets that a bitmap shows to be lost.
    pub(super) fn judge(
        &mut self,
        now: Time,
        from: NodeId,
        is_acker: bool,
        vector: AckVector,
    ) -> Lost {
        if self.config.designated_loss {
            self.judge_bitmap(now, from, is_acker, vector)
        } else {
            self.judge_by_history(vector)
        }
    }

    fn judge_bitmap(&mut self, now: Time, from: NodeId, is_acker: bool, vector: AckVector) -> Lost {
        let tolerance = self.tolerance().filter(|_| self.config.is_improved());
        let rtt = self.election.rtt(from).unwrap_or_default();
        let mut lost = Lost::default();
        let mut seq = self.ledger.unsettled;
        while seq.before(vector.highest) {
            let distance = vector.highest.distance(seq);
            let sent = self.ledger.get(seq).filter(|sent| sent.fate == Fate::InFlight);
            if let Some(sent) = sent {
                let named = sent.acker == Some(from);
                let must_have_come = is_acker && now.since(sent.at) >= rtt;
                let missed = sent.missed.map(|(at, _)| at);
                if let Some((missed, tolerance)) = missed.zip(tolerance) {
                    // An earlier bitmap lacked the packet, and no later one has shown it.
                    if (named || must_have_come) && missed + tolerance <= now {
                        self.ledger.settle(seq, Fate::Lost);
                        lost.add(seq);
                    }
                } else if distance >= BITMAP_LEN {
                    // Beyond the bitmap, its acknowledgements were lost: unknown, not lost.
                    if (named || must_have_come) && self.ledger.settle(seq, Fate::Released) {
                        self.window.refund(1);
                        lost.unknown += 1;
                    }
                } else if (named || must_have_come) && vector.bitmap >> distance & 1 == 0 {
                    if let Some(sent) = self.ledger.get_mut(seq) {
                        sent.missed.get_or_insert((now, from));
                    }
                    if tolerance.is_none() && self.is_missing(vector, distance) {
                        self.ledger.settle(seq, Fate::Lost);
                        lost.add(seq);
                    }
                }
            }
            seq = seq.next();
        }
        lost
    }

    fn is_missing(&self, vector: AckVector, distance: i32) -> bool {
        let later = vector.bitmap & ((1u32 << distance) - 1);
        vector.bitmap >> distance & 1 == 0 && later.count_ones() >= LOSS_THRESHOLD
    }

    /// Judges by the acknowledgements of all receivers (src: pgmcc-draft s2.2, seada-helmy s2.2).
    /// By only the acker's own, packets of a former acker count as lost (src: seada-helmy s4.4).
    fn judge_by_history(&mut self, vector: AckVector) -> Lost {
        let mut lost = Lost::default();
        let limit = self.ledger.below_acked(vector.highest, LOSS_THRESHOLD);
        let mut seq = self.ledger.unsettled;
        while seq.before(limit) {
            let seen = vector.highest.distance(seq) < BITMAP_LEN
                || self.config.bitmap_scope == BitmapScope::Own;
            let fate = if seen { Fate::Lost } else { Fate::Released };
            if self.ledger.settle(seq, fate) && seen {
                lost.add(seq);
            }
            seq = seq.next();
        }
        lost
    }
}
