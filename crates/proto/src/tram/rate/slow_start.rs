//! Slow start of the source: the state of the phase, and the bound by acknowledgements.
//! `RateControl` raises the rate and ends the phase. Rates are in payload bytes per second.

use faircast_base::{Duration, Time};

/// Growth of the best acknowledged rate by which a closure of the window counts as progress. As
/// [`CLOSURES_MAX`], a value of BBR's startup for a full pipe: a busy machine closes windows too.
const CLOSURE_GROWTH_MIN: f64 = 1.25;

/// Most closures without that growth; the next one ends slow start.
const CLOSURES_MAX: u32 = 3;

/// Highest rate in acknowledged rates: a higher one fills any queue.
const ACKNOWLEDGED_RATES_MAX: f64 = 2.0;

/// Shortest measurement of acknowledgements; chosen: several times the batches of receivers, 2 ms.
const MEASUREMENT_MIN: Duration = Duration::from_millis(10);

/// Phase in which the rate grows by increments up to a ceiling.
#[derive(Debug, Default)]
pub(super) struct SlowStart {
    pub(super) is_active: bool,
    /// Bound of the rate by acknowledgements. Without it, the first closure ends slow start.
    pub(super) probe: Option<AckRateProbe>,
    /// Rate at which slow start ends by itself.
    pub(super) ceiling: f64,
    /// Ceiling below the maximum that slow start reached. Dropped when the window closes, or slow
    /// start ends for another reason.
    pub(super) reached: Option<Reached>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    /// Bucket of `Throughput` at that moment.
    pub(super) bucket: u64,
    pub(super) rate: f64,
}

impl SlowStart {
    pub(super) fn new(ceiling: f64, bounded_by_acks: bool) -> Self {
        let probe = bounded_by_acks.then(AckRateProbe::default);
        Self { is_active: true, probe, ceiling, reached: None }
    }

    pub(super) fn may_grow(&self, rate: f64) -> bool {
        self.is_active && self.probe.as_ref().is_none_or(|probe| probe.may_grow(rate))
    }

    /// Handles a closure of the window. Returns true if slow start goes on.
    pub(super) fn on_closed(&mut self) -> bool {
        self.is_active && self.probe.as_mut().is_some_and(AckRateProbe::on_closed)
    }

    /// Discards the measurement in progress: a paused source gets no acknowledgements.
    pub(super) fn discard_measurement(&mut self) {
        if let Some(probe) = &mut self.probe {
            probe.measurement = None;
        }
    }
}

/// Measurement of the rate of acknowledgements, by which the rate in slow start is bounded.
#[derive(Debug, Default)]
pub(super) struct AckRateProbe {
    measurement: Option<Measurement>,
    /// Bytes of an acknowledgement window, which a measurement needs.
    window_bytes: u64,
    bytes_since_acknowledgement: u64,
    pub(super) latest_rate: Option<f64>,
    best_rate: f64,
    /// Best rate when the window last closed with growth, and the closures from then on.
    best_at_closure: f64,
    closures: u32,
}

#[derive(Debug)]
struct Measurement {
    since: Time,
    acknowledged_bytes: u64,
}

impl AckRateProbe {
    pub(super) fn on_sent(&mut self, bytes: u32, ack_window_packets: f64) {
        self.window_bytes = (f64::from(bytes) * ack_window_packets) as u64;
        self.bytes_since_acknowledgement += u64::from(bytes);
    }

    fn may_grow(&self, rate: f64) -> bool {
        rate < self.limit() && self.bytes_since_acknowledgement <= self.window_bytes
    }

    pub(super) fn limit(&self) -> f64 {
        self.latest_rate.map_or(f64::INFINITY, |rate| ACKNOWLEDGED_RATES_MAX * rate)
    }

    /// Counts a closure of the window. Returns true if the path may still carry more.
    fn on_closed(&mut self) -> bool {
        // Before the first measurement both rates are 0, and closures do not count.
        if self.best_rate >= CLOSURE_GROWTH_MIN * self.best_at_closure {
            (self.best_at_closure, self.closures) = (self.best_rate, 0);
        }
        self.closures += 1;
        self.closures <= CLOSURES_MAX
    }

    pub(super) fn on_acknowledged(&mut self, now: Time, bytes: u64) {
        // An acknowledgement without progress shows too that receivers answer.
        self.bytes_since_acknowledgement = 0;
        if bytes == 0 {
            return;
        }
        // The first acknowledgement only starts the measurement.
        let Some(Measurement { since, acknowledged_bytes }) = &mut self.measurement else {
            self.measurement = Some(Measurement { since: now, acknowledged_bytes: 0 });
            return;
        };
        *acknowledged_bytes += bytes;
        let time = now.since(*since);
        if *acknowledged_bytes >= self.window_bytes && time >= MEASUREMENT_MIN {
            let rate = *acknowledged_bytes as f64 / time.as_secs_f64();
            (self.latest_rate, self.best_rate) = (Some(rate), self.best_rate.max(rate));
            (*since, *acknowledged_bytes) = (now, 0);
        }
    }
}
