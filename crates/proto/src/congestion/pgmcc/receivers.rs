//! Sender's table of recent reporters: their loss and smoothed round trips.

use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use super::config::{PgmccConfig, Profile};
use crate::congestion::common::average::MovingAverage;

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
    /// Packets sent meanwhile.
    pub(super) packets: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Receiver {
    id: NodeId,
    /// Smoothed round trip in seconds, and in packets sent meanwhile.
    rtt_s: MovingAverage,
    rtt_packets: MovingAverage,
    /// Reported loss, in 0..=1.
    loss: f64,
    reported_at: Time,
    /// Samples of the acker up to this receiver's latest one.
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
    /// Round trips of all ackers.
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

    /// Notes that a receiver acknowledged a packet that named it.
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
