//! Slow start of the source: the state of the phase, and the bound by acknowledgements.

use faircast_base::{Duration, Time};

/// Growth of acknowledgements between two closures, and the closures without it that end slow
/// start: a busy machine closes windows too. Values of BBR's startup for a full pipe.
const GROWTH_MIN: f64 = 1.25;
const CLOSURES_MAX: u32 = 3;

/// Shortest measurement of acknowledgements; chosen: several times the batches of receivers, 2 ms.
const MEASUREMENT_MIN: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
pub(super) struct SlowStart {
    pub(super) active: bool,
    /// Bound of the rate by acknowledgements.
    pub(super) probe: Option<AckRateProbe>,
    pub(super) ceiling: f64,
    /// Bucket in which slow start reached a ceiling below the maximum, and that rate. Dropped when
    /// the window closes, or slow start ends for another reason.
    pub(super) reached: Option<(u64, f64)>,
}

impl SlowStart {
    pub(super) fn new(ceiling: f64, bounded_by_acks: bool) -> Self {
        let probe = bounded_by_acks.then(AckRateProbe::default);
        Self { active: true, probe, ceiling, reached: None }
    }

    pub(super) fn may_grow(&self, rate: f64) -> bool {
        self.active && self.probe.as_ref().is_none_or(|probe| probe.may_grow(rate))
    }

    /// Handles a closure of the window. Returns true if slow start goes on.
    pub(super) fn on_closed(&mut self) -> bool {
        self.active && self.probe.as_mut().is_some_and(AckRateProbe::on_closed)
    }

    /// Discards the measurement in progress: a paused source gets no acknowledgements.
    pub(super) fn discard_measurement(&mut self) {
        if let Some(probe) = &mut self.probe {
            probe.measurement = None;
        }
    }
}

/// Rate of acknowledgements; slow start goes to at most twice that, else it fills any queue.
#[derive(Debug, Default)]
pub(super) struct AckRateProbe {
    /// Start of the present measurement, and the bytes acknowledged since.
    measurement: Option<(Time, u64)>,
    /// Bytes of an acknowledgement window, which a measurement needs.
    window_bytes: u64,
    unacknowledged_bytes: u64,
    pub(super) latest: Option<f64>,
    best: f64,
    /// Best measurement when the window closed last with growth, and the closures since.
    best_at_closure: f64,
    closures: u32,
}

impl AckRateProbe {
    pub(super) fn on_sent(&mut self, bytes: u32, ack_window: f64) {
        self.window_bytes = (f64::from(bytes) * ack_window) as u64;
        self.unacknowledged_bytes += u64::from(bytes);
    }

    fn may_grow(&self, rate: f64) -> bool {
        rate < self.limit() && self.unacknowledged_bytes <= self.window_bytes
    }

    pub(super) fn limit(&self) -> f64 {
        self.latest.map_or(f64::INFINITY, |latest| 2.0 * latest)
    }

    /// Counts a closure of the window. Returns true if the path may still carry more.
    fn on_closed(&mut self) -> bool {
        if self.best >= GROWTH_MIN * self.best_at_closure {
            (self.best_at_closure, self.closures) = (self.best, 0);
        }
        self.closures += 1;
        self.closures <= CLOSURES_MAX
    }

    pub(super) fn on_acknowledged(&mut self, now: Time, bytes: u64) {
        self.unacknowledged_bytes = 0;
        if bytes == 0 {
            return;
        }
        // The first acknowledgement only starts the measurement.
        let Some((since, sum)) = &mut self.measurement else {
            self.measurement = Some((now, 0));
            return;
        };
        *sum += bytes;
        if *sum >= self.window_bytes && now.since(*since) >= MEASUREMENT_MIN {
            let measured = *sum as f64 / now.since(*since).as_secs_f64();
            (self.latest, self.best) = (Some(measured), self.best.max(measured));
            (*since, *sum) = (now, 0);
        }
    }
}
