//! Election of the acker, from recent reporters: their loss and smoothed round trips.

use alloc::vec::Vec;

use faircast_base::{Cx, Duration, NodeId, Seq, SwitchReason, Time};

use super::PgmccSender;
use crate::congestion::common::average::MovingAverage;
use crate::congestion::pgmcc::config::{PgmccConfig, Profile};
use crate::congestion::pgmcc::loss::Estimate;

/// Factor by which a receiver must be slower to replace a new acker at once.
const HOLDING_FACTOR: f64 = 4.0;

#[derive(Debug, Default)]
pub(super) struct Election {
    pub(super) acker: Option<Acker>,
    pub(super) receivers: Receivers,
    pub(super) candidates: Vec<Candidate>,
    pub(super) blacklist: Blacklist,
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

    pub(super) fn rtt(&self, id: NodeId) -> Option<Duration> {
        self.receivers.get(id)?.rtt()
    }

    /// True if the acker never acknowledged a packet that named it: its round trip may be forged.
    pub(super) fn is_acker_a_claim(&self) -> bool {
        self.acker_id().is_some_and(|id| !self.receivers.is_shown(id))
    }

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
        // T_i < C T_a is C^2 M_i^2 > M_a^2. Without loss the acker stays (src: pgmcc-draft s2.3).
        bias * bias * (candidate / (handicap * handicap)) > present
    }
}

/// Most candidates waiting. The oldest is dropped and returns with its next NAK.
const CANDIDATES_MAX: usize = 16;

/// Longest wait of a candidate: 64 s. An acker silent for that time has stalled.
const WAIT_MAX: Duration = Duration::from_secs(64);

/// Receiver that waits until the acker has reported on all packets that it had seen: compared at
/// once, a near receiver looks far slower (src: seada-helmy s4.4: pairs of switches).
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    id: NodeId,
    lost: Seq,
    seen: Seq,
    since: Time,
}

impl PgmccSender {
    /// Returns true if the acker has reported on what `from` had seen; otherwise it must wait.
    pub(super) fn can_compare(
        &mut self,
        now: Time,
        from: NodeId,
        nak: Option<Seq>,
        sample: Option<RttSample>,
    ) -> bool {
        let Some(lost) = nak.filter(|_| self.config.compare_alike) else { return true };
        // The acker's report includes a loss only after enough later packets.
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
    shown: Estimate,
    pub(super) reported: f64,
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

/// Most receivers remembered. Beyond it the one silent longest is dropped, never the acker.
const RECEIVERS_MAX: usize = 64;

/// Minimum round trip in the model: with clocks of 1 ms, neighbours would look infinitely fast.
const MODEL_RTT_MIN_S: f64 = 0.001;

/// Round trips of silence after which a sample replaces the average: NAKs may be rare.
const STALE_ROUND_TRIPS: f64 = 8.0;

/// Samples of the acker after which nothing remains of an older average.
const SAMPLES_MAX: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RttSample {
    pub(super) time: Duration,
    pub(super) packets: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Receiver {
    id: NodeId,
    /// Smoothed round trip in seconds, and in packets sent meanwhile.
    rtt_s: MovingAverage,
    rtt_packets: MovingAverage,
    loss: f64,
    reported_at: Time,
    acker_samples: u64,
    /// True once the receiver acknowledged a packet that named it.
    is_shown: bool,
}

impl Receiver {
    pub(super) fn slowness_squared(&self, config: &PgmccConfig) -> Option<f64> {
        let rtt = match config.profile {
            // src: seada-helmy s2.2: round trips are counted in packets sent meanwhile.
            Profile::Paper => self.rtt_packets.get()?,
            _ => self.rtt_s.get()?.max(MODEL_RTT_MIN_S),
        };
        Some(config.model.slowness_squared(rtt, self.loss))
    }

    pub(super) fn rtt(&self) -> Option<Duration> {
        self.rtt_s.get().map(Duration::from_secs_f64)
    }
}

#[derive(Debug, Default)]
pub(super) struct Receivers {
    table: Vec<Receiver>,
    acker_samples: u64,
}

impl Receivers {
    /// Processes a report. `gain` is the weight of one sample of `acker`, which is never dropped.
    /// Other averages decay as fast: NAKs come when queues are full, and alone exceed the acker's.
    pub(super) fn report(
        &mut self,
        now: Time,
        id: NodeId,
        loss: f64,
        sample: Option<RttSample>,
        gain: f64,
        acker: Option<NodeId>,
    ) -> &Receiver {
        let index = self.slot(now, id, acker);
        self.acker_samples += u64::from(sample.is_some() && acker == Some(id));
        let receiver = &mut self.table[index];
        if let Some(sample) = sample {
            let missed = (self.acker_samples - receiver.acker_samples).clamp(1, SAMPLES_MAX);
            receiver.acker_samples = self.acker_samples;
            let gain = 1.0 - (0..missed).fold(1.0, |left, _| left * (1.0 - gain));
            let silence_s = now.since(receiver.reported_at).as_secs_f64();
            if receiver.rtt_s.get().is_some_and(|rtt_s| silence_s >= STALE_ROUND_TRIPS * rtt_s) {
                (receiver.rtt_s, receiver.rtt_packets) = Default::default();
            }
            receiver.rtt_s.add(sample.time.as_secs_f64(), gain);
            receiver.rtt_packets.add(f64::from(sample.packets), gain);
        }
        (receiver.loss, receiver.reported_at) = (loss, now);
        receiver
    }

    pub(super) fn show(&mut self, now: Time, id: NodeId, acker: Option<NodeId>) {
        let index = self.slot(now, id, acker);
        self.table[index].is_shown = true;
    }

    pub(super) fn is_shown(&self, id: NodeId) -> bool {
        self.get(id).is_some_and(|receiver| receiver.is_shown)
    }

    pub(super) fn get(&self, id: NodeId) -> Option<&Receiver> {
        self.table.iter().find(|receiver| receiver.id == id)
    }

    pub(super) fn forget(&mut self, id: NodeId) {
        self.table.retain(|receiver| receiver.id != id);
    }

    fn slot(&mut self, now: Time, id: NodeId, acker: Option<NodeId>) -> usize {
        if let Some(index) = self.table.iter().position(|receiver| receiver.id == id) {
            return index;
        }
        let acker_samples = self.acker_samples;
        let new = Receiver { id, reported_at: now, acker_samples, ..Receiver::default() };
        if self.table.len() < RECEIVERS_MAX {
            self.table.push(new);
            return self.table.len() - 1;
        }
        let index = (0..self.table.len())
            .filter(|&index| Some(self.table[index].id) != acker)
            .min_by_key(|&index| self.table[index].reported_at)
            .expect("the table holds more than the acker");
        self.table[index] = new;
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::at;

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

    fn ms(ms: u64) -> Option<RttSample> {
        Some(RttSample { time: Duration::from_millis(ms), packets: 1 })
    }

    #[test]
    fn samples_are_smoothed_unless_the_receiver_was_long_silent() {
        let mut table = Receivers::default();
        let node = NodeId(1);
        table.report(at(0), node, 0.1, ms(100), 0.125, None);
        let rtt = table.report(at(100), node, 0.1, ms(180), 0.125, None).rtt();
        assert_eq!(rtt, Some(Duration::from_millis(110)));
        let rtt = table.report(at(5000), node, 0.1, ms(180), 0.125, None).rtt();
        assert_eq!(rtt, Some(Duration::from_millis(180)));
    }

    /// The acker's round trip fell from 700 to 300 ms; the other's average decays as much.
    #[test]
    fn who_reports_seldom_forgets_as_fast_as_the_acker() {
        let mut table = Receivers::default();
        let (acker, other) = (Some(NodeId(1)), NodeId(2));
        for i in 0..40 {
            table.report(at(i), NodeId(1), 0.1, ms(700), 0.125, acker);
            if i % 10 == 9 {
                table.report(at(i), other, 0.1, ms(700), 0.125, acker);
            }
        }
        for i in 40..60 {
            table.report(at(i), NodeId(1), 0.1, ms(300), 0.125, acker);
        }
        let seconds = |receiver: &Receiver| receiver.rtt().unwrap().as_secs_f64();
        let there = seconds(table.report(at(60), other, 0.1, ms(300), 0.125, acker));
        let here = seconds(table.get(NodeId(1)).unwrap());
        // 400 ms times 7/8 to the power of 20 remain.
        assert!((there - here).abs() < 1e-6 && (0.327..0.329).contains(&here), "{there} {here}");
    }

    #[test]
    fn the_silent_are_forgotten_first_but_never_the_acker() {
        let mut table = Receivers::default();
        for i in 0..1000 {
            table.report(at(u64::from(i)), NodeId(i), 0.1, ms(100), 1.0, Some(NodeId(0)));
        }
        assert_eq!(table.table.len(), RECEIVERS_MAX);
        assert!(table.get(NodeId(0)).is_some() && table.get(NodeId(999)).is_some());
        assert!(table.get(NodeId(1)).is_none());
    }

    #[test]
    fn neighbours_on_a_fast_network_are_compared_by_loss() {
        let config = PgmccConfig::default();
        let mut table = Receivers::default();
        let fast = Some(RttSample { time: Duration::from_micros(20), packets: 1 });
        let slow = Some(RttSample { time: Duration::from_micros(90), packets: 1 });
        let more = *table.report(at(0), NodeId(1), 0.02, fast, 1.0, None);
        let less = *table.report(at(0), NodeId(2), 0.01, slow, 1.0, None);
        assert!(more.slowness_squared(&config) > less.slowness_squared(&config));
    }
}
