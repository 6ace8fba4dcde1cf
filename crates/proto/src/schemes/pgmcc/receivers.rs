//! What the sender knows of the receivers that have reported lately.

use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use super::config::{PgmccConfig, RttMethod};

/// How many receivers are remembered. Beyond it the one that has been silent longest is forgotten,
/// though never the acker.
const RECEIVERS_MAX: usize = 64;

/// A round trip in the model is at least this: below it, clocks of a millisecond would make
/// neighbours look infinitely fast.
const MODEL_RTT_MIN_S: f64 = 0.001;

/// After so many round trips of silence a sample replaces the average instead of joining it,
/// because NAKs may be minutes apart.
const STALE_ROUND_TRIPS: f64 = 8.0;

/// One measurement of a round trip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RttSample {
    /// As a time.
    pub(super) time: Duration,
    /// As the number of packets sent meanwhile; at least 1.
    pub(super) packets: u32,
}

/// One receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receiver {
    id: NodeId,
    /// Smoothed, in seconds and in packets; `None` before the first measurement.
    rtt: Option<(f64, f64)>,
    loss: f64,
    heard: Time,
}

impl Receiver {
    /// The square of how slow it is; `None` before the first round trip.
    pub(super) fn slowness_squared(&self, config: &PgmccConfig) -> Option<f64> {
        let (seconds, packets) = self.rtt?;
        let rtt = match config.rtt_method {
            RttMethod::Timestamp => seconds.max(MODEL_RTT_MIN_S),
            RttMethod::Sequence => packets,
        };
        Some(config.model.slowness_squared(rtt, self.loss))
    }

    /// The smoothed round trip.
    pub(super) fn rtt(&self) -> Option<Duration> {
        self.rtt.map(|(seconds, _)| Duration::from_secs_f64(seconds))
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Receivers(Vec<Receiver>);

impl Receivers {
    /// Takes a report. `keep` is the acker, who is never forgotten.
    pub(super) fn report(
        &mut self,
        now: Time,
        id: NodeId,
        loss: f64,
        sample: Option<RttSample>,
        gain: f64,
        keep: Option<NodeId>,
    ) -> &Receiver {
        let index = self.slot(now, id, keep);
        let receiver = &mut self.0[index];
        if let Some(sample) = sample {
            let new = (sample.time.as_secs_f64(), f64::from(sample.packets));
            receiver.rtt = Some(match receiver.rtt {
                Some((seconds, packets))
                    if now.since(receiver.heard).as_secs_f64() < STALE_ROUND_TRIPS * seconds =>
                {
                    (seconds + gain * (new.0 - seconds), packets + gain * (new.1 - packets))
                }
                _ => new,
            });
        }
        (receiver.loss, receiver.heard) = (loss, now);
        receiver
    }

    /// One receiver.
    pub(super) fn get(&self, id: NodeId) -> Option<&Receiver> {
        self.0.iter().find(|receiver| receiver.id == id)
    }

    /// Forgets one.
    pub(super) fn forget(&mut self, id: NodeId) {
        self.0.retain(|receiver| receiver.id != id);
    }

    fn slot(&mut self, now: Time, id: NodeId, keep: Option<NodeId>) -> usize {
        if let Some(index) = self.0.iter().position(|receiver| receiver.id == id) {
            return index;
        }
        let new = Receiver { id, rtt: None, loss: 0.0, heard: now };
        if self.0.len() < RECEIVERS_MAX {
            self.0.push(new);
            return self.0.len() - 1;
        }
        let index = (0..self.0.len())
            .filter(|&index| Some(self.0[index].id) != keep)
            .min_by_key(|&index| self.0[index].heard)
            .expect("the table holds more than the acker");
        self.0[index] = new;
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
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

    #[test]
    fn the_silent_are_forgotten_first_but_never_the_acker() {
        let mut table = Receivers::default();
        for i in 0..1000 {
            table.report(at(u64::from(i)), NodeId(i), 0.1, ms(100), 1.0, Some(NodeId(0)));
        }
        assert_eq!(table.0.len(), RECEIVERS_MAX);
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
