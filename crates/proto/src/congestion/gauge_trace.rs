//! Trace events for changes of a control's window and rate.

use faircast_base::{Cx, Duration, Event, Time};

use super::Gauges;

/// Minimum time between two events of a gauge that does not fall.
const GAUGE_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
pub(crate) struct GaugeTrace {
    /// Last event: its time, window in thousandths of a packet, and packets in flight.
    window: Option<(Time, u64, u32)>,
    /// Last event: its time, and rate in bits per second.
    rate: Option<(Time, u64)>,
}

impl GaugeTrace {
    /// Emits changed gauges: a fall at once, other changes at most every 10 ms.
    pub(crate) fn observe(&mut self, cx: &mut Cx<'_>, gauges: &Gauges) {
        let now = cx.now;
        let is_due = |at: Time| now.since(at) >= GAUGE_INTERVAL;
        if let Some(window) = gauges.window {
            let window_milli = (window * 1000.0 + 0.5) as u64;
            let flight = gauges.flight.unwrap_or(0);
            if self.window.is_none_or(|(at, last_milli, last_flight)| {
                let changes = (window_milli, flight) != (last_milli, last_flight);
                window_milli < last_milli || changes && is_due(at)
            }) {
                self.window = Some((now, window_milli, flight));
                cx.emit(Event::Window { window_milli, flight });
            }
        }
        if let Some(rate) = gauges.rate_bits_per_s {
            let bits_per_s = (rate + 0.5) as u64;
            let emits = self
                .rate
                .is_none_or(|(at, last)| bits_per_s < last || bits_per_s != last && is_due(at));
            if emits {
                self.rate = Some((now, bits_per_s));
                cx.emit(Event::Rate { bits_per_s });
            }
        }
    }
}
