//! Random early detection as in ns-2.
//!
//! src: floyd-jacobson-1993 for the algorithm; ns-2.35 for its parameters: the average counts
//! waiting packets only, `wait` spaces drops, and a queue of at most one has no early drop.

use faircast_base::{DropReason, Rng, Time, math};

use crate::RedConfig;

#[derive(Clone, Debug)]
pub(crate) struct Red {
    config: RedConfig,
    average: f64,
    /// Packets since the last early drop.
    count: u64,
    /// True if the average already exceeded the lower threshold.
    above_min: bool,
}

impl Red {
    pub(crate) fn new(config: RedConfig) -> Self {
        Self { config, average: 0.0, count: 0, above_min: false }
    }

    /// `idle`: start of the link's idle time, if it is idle; `rate` is in bits per second.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        now: Time,
        waiting: u32,
        idle: Option<Time>,
        rate: u64,
        rng: &mut Rng,
    ) -> Result<(), DropReason> {
        self.update_average(now, waiting, idle, rate);
        self.count += 1;
        let RedConfig { min, max, gentle, packets_max, .. } = self.config;
        let mut verdict = Ok(());
        if self.average >= min && waiting > 1 {
            let ceiling = if gentle { 2.0 * max } else { max };
            if self.average >= ceiling {
                verdict = Err(DropReason::RedForced);
            } else if !self.above_min {
                self.count = 1;
                self.above_min = true;
            } else if rng.unit() <= self.probability() {
                verdict = Err(DropReason::RedEarly);
            }
        } else {
            self.above_min = false;
        }
        if waiting >= packets_max {
            verdict = Err(DropReason::QueueFull);
        }
        if verdict.is_err() {
            self.count = 0;
        }
        verdict
    }

    /// Updates the average. Idle time counts as arrivals at an empty queue at the link's rate.
    fn update_average(&mut self, now: Time, waiting: u32, idle: Option<Time>, rate: u64) {
        let keep = 1.0 - self.config.weight;
        if let Some(since) = idle {
            let packets_per_s = rate as f64 / (8.0 * f64::from(self.config.mean_packet_bytes));
            let missed = math::floor(packets_per_s * now.since(since).as_secs_f64());
            self.average *= math::pow(keep, missed);
        }
        self.average = self.average * keep + self.config.weight * f64::from(waiting);
    }

    fn probability(&self) -> f64 {
        let RedConfig { min, max, max_p, .. } = self.config;
        let base = if self.average >= max {
            // With `gentle` only: from max_p at max to 1 at twice max.
            max_p + (1.0 - max_p) * (self.average - max) / max
        } else {
            max_p * (self.average - min) / (max - min)
        };
        // With `wait`, no drop before 1/p packets have passed since the last one.
        let expected = self.count as f64 * base;
        if expected < 1.0 {
            0.0
        } else if expected < 2.0 {
            (base / (2.0 - expected)).min(1.0)
        } else {
            1.0
        }
    }
}
