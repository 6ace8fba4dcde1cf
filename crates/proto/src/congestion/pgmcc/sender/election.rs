//! Election of the acker: the acker itself, and the receivers that may replace it.

use alloc::vec::Vec;

use faircast_base::{Cx, Duration, NodeId, Seq, SwitchReason, Time};

use super::PgmccSender;
use crate::congestion::pgmcc::PgmccConfig;
use crate::congestion::pgmcc::loss::Estimate;
use crate::congestion::pgmcc::receivers::{Receivers, RttSample};

/// Factor by which a receiver must be slower to replace a new acker at once.
const HOLDING_FACTOR: f64 = 4.0;

#[derive(Debug, Default)]
pub(super) struct Election {
    pub(super) acker: Option<Acker>,
    /// Recent reporters, by whose throughput the acker is elected.
    pub(super) receivers: Receivers,
    pub(super) candidates: Vec<Candidate>,
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
        let bias = config.acker_bias;
        // T_i < C T_a is C^2 M_i^2 > M_a^2. Between two without loss the acker stays (src:
        // pgmcc-draft s2.3).
        bias * bias * (candidate / (handicap * handicap)) > present
    }
}

/// Most candidates waiting. The oldest is dropped and returns with its next NAK.
const CANDIDATES_MAX: usize = 16;

/// Longest wait of a candidate: 64 s. An acker silent for that time has stalled.
const WAIT_MAX: Duration = Duration::from_secs(64);

/// Receiver that waits for a comparison with the acker. A NAK reports a loss just counted; the
/// acker's last report is often older, so a near receiver with the same losses looks far slower
/// (src: seada-helmy s4.4: pairs of switches). A candidate waits until the acker has reported on all
/// packets that the candidate had seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    id: NodeId,
    /// First packet of the candidate's NAK.
    lost: Seq,
    /// Packet on which the acker must have reported.
    seen: Seq,
    since: Time,
}

impl PgmccSender {
    /// Returns true if the acker has reported on the packets that `from` had seen. Otherwise the
    /// receiver waits as a candidate.
    pub(super) fn can_compare(
        &mut self,
        now: Time,
        from: NodeId,
        nak: Option<Seq>,
        sample: Option<RttSample>,
    ) -> bool {
        let Some(lost) = nak.filter(|_| self.config.compare_alike) else { return true };
        // The candidate has seen nothing later than the echoed packet. The acker's report includes
        // a loss only after enough later packets.
        let echoed = sample.map_or(lost, |sample| self.ledger.next() - sample.packets);
        let seen = echoed.max(lost) + self.config.profile.loss_threshold();
        if self.election.acker_has_reported_on(seen) {
            return true;
        }
        let waiting = &mut self.election.candidates;
        waiting.retain(|candidate| candidate.id != from);
        if waiting.len() == CANDIDATES_MAX {
            waiting.remove(0);
        }
        waiting.push(Candidate { id: from, lost, seen, since: now });
        false
    }

    /// Compares the candidates on whose packets the acker has reported by now.
    pub(super) fn compare_candidates(&mut self, cx: &mut Cx<'_>) {
        self.election.candidates.retain(|candidate| cx.now.since(candidate.since) < WAIT_MAX);
        let mut index = 0;
        while let Some(&Candidate { id, lost, seen, .. }) = self.election.candidates.get(index) {
            if !self.election.acker_has_reported_on(seen) {
                index += 1;
                continue;
            }
            self.election.candidates.remove(index);
            if self.election.acker_id() != Some(id)
                && self.election.beats_acker(&self.config, cx.now, id)
            {
                self.appoint(cx, id, SwitchReason::Slower, Some(lost));
            }
        }
    }
}

/// Most excluded receivers. Beyond it the earliest exclusion ends.
const BLACKLIST_MAX: usize = 16;

/// Excluded receivers, each with the end of its exclusion.
#[derive(Debug, Default)]
pub(super) struct Blacklist(Vec<(NodeId, Time)>);

impl Blacklist {
    pub(super) fn add(&mut self, node: NodeId, until: Time) {
        self.0.retain(|entry| entry.0 != node);
        if self.0.len() == BLACKLIST_MAX {
            let soonest = (0..self.0.len()).min_by_key(|&index| self.0[index].1);
            self.0.swap_remove(soonest.expect("a full list has entries"));
        }
        self.0.push((node, until));
    }

    pub(super) fn excludes(&mut self, node: NodeId, now: Time) -> bool {
        self.0.retain(|entry| entry.1 > now);
        self.0.iter().any(|entry| entry.0 == node)
    }
}

/// Settled packets before a verdict: estimators forget earlier losses within 2048 packets.
const HONESTY_PACKETS: u32 = 2048;

/// Highest ratio of reported loss to the loss in bitmaps.
const HONESTY_FACTOR: f64 = 4.0;

/// Additional tolerance, for losses that the sender cannot see.
const HONESTY_SLACK: f64 = 0.03;

/// Check of an acker's reported loss against its acknowledgements (src: pgmcc-draft s5).
#[derive(Clone, Debug)]
pub(super) struct Honesty {
    /// Receiver's estimator, fed by the sender from bitmaps.
    shown: Estimate,
    /// Loss in the acker's latest report.
    pub(super) reported: f64,
    /// Packets settled since the acker's appointment.
    settled: u32,
}

impl Honesty {
    pub(super) fn new(config: &PgmccConfig) -> Self {
        Self { shown: Estimate::new(config), reported: 0.0, settled: 0 }
    }

    pub(super) fn saw(&mut self, now: Time, received: u32, lost: u32) {
        for _ in 0..lost {
            self.shown.sample(now, true);
        }
        for _ in 0..received {
            self.shown.sample(now, false);
        }
        self.settled = self.settled.saturating_add(received + lost);
    }

    pub(super) fn is_exposed(&self) -> bool {
        self.settled >= HONESTY_PACKETS
            && self.reported > HONESTY_FACTOR * self.shown.loss() + HONESTY_SLACK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exclusion_ends_and_the_list_is_bounded() {
        let at = |s| Time::ZERO + Duration::from_secs(s);
        let mut list = Blacklist::default();
        for i in 0..100 {
            list.add(NodeId(i), at(10 + u64::from(i)));
        }
        assert!(list.excludes(NodeId(99), at(5)));
        assert!(!list.excludes(NodeId(0), at(5)), "the first made room");
        assert_eq!(list.0.len(), BLACKLIST_MAX);
        assert!(!list.excludes(NodeId(99), at(109)));
        assert!(list.0.is_empty());
    }

    /// Runs an acker with one packet per ms, which reports `claim` or its own estimate.
    fn exposed_at(
        loss_intervals: bool,
        before: &[bool],
        lost: impl Fn(u32) -> bool,
        claim: Option<f64>,
    ) -> Option<u32> {
        let config = PgmccConfig { loss_intervals, ..PgmccConfig::default() };
        let (mut honesty, mut own) = (Honesty::new(&config), Estimate::new(&config));
        let mut now = Time::ZERO;
        for lost in before {
            now += Duration::from_millis(1);
            own.sample(now, *lost);
        }
        (0..20_000).find(|&i| {
            now += Duration::from_millis(1);
            own.sample(now, lost(i));
            honesty.saw(now, u32::from(!lost(i)), u32::from(lost(i)));
            honesty.reported = claim.unwrap_or(own.loss());
            honesty.is_exposed()
        })
    }

    const BOTH: [bool; 2] = [false, true];

    #[test]
    fn an_honest_acker_is_never_exposed_whatever_it_lost_before_and_however_it_loses() {
        let heavy: Vec<bool> = (0..2000).map(|i| i % 3 != 0).collect();
        for estimator in BOTH {
            for before in [&[][..], &heavy] {
                for (name, every, burst) in
                    [("none", 100_000, 0), ("even", 97, 1), ("bursts", 1500, 200)]
                {
                    let lost = |i: u32| i % every >= every - burst.min(every);
                    let exposed = exposed_at(estimator, before, lost, None);
                    assert_eq!(exposed, None, "{estimator:?}, {name}, {} before", before.len());
                }
            }
        }
    }

    #[test]
    fn an_acker_that_claims_losses_it_does_not_show_is_exposed() {
        for estimator in BOTH {
            for claim in [0.1, 0.3, 1.0] {
                let exposed = exposed_at(estimator, &[], |i| i % 1000 == 999, Some(claim));
                assert!(exposed.is_some_and(|at| at < 2500), "{estimator:?} {claim}: {exposed:?}");
            }
        }
    }
}
