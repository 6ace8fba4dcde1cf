//! Trace events for changes of a control's window and rate.

use faircast_base::{Cx, Duration, Event, Time};

use super::Gauges;

const GAUGE_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
pub(crate) struct GaugeTrace {
    window: Option<(Time, u64, u32)>,
    rate: Option<(Time, u64)>,
}

impl GaugeTrace {
    /// Emits changed gauges: a fall at once, other changes at most every 10 ms.
    pub(crate) fn observe(&mut self, cx: &mut Cx<'_>, gauges: &Gauges) {
        let now = cx.now;
        let ripe = |at: Time| now.since(at) >= GAUGE_INTERVAL;
        if let Some(window) = gauges.window {
            let window_milli = (window * 1000.0 + 0.5) as u64;
            let flight = gauges.flight.unwrap_or(0);
            let say = self.window.is_none_or(|(at, was, flew)| {
                window_milli < was || ((window_milli, flight) != (was, flew) && ripe(at))
            });
            if say {
                self.window = Some((cx.now, window_milli, flight));
                cx.emit(Event::Window { window_milli, flight });
            }
        }
        if let Some(rate) = gauges.rate_bits_per_s {
            let bits_per_s = (rate + 0.5) as u64;
            let say = self
                .rate
                .is_none_or(|(at, was)| bits_per_s < was || (bits_per_s != was && ripe(at)));
            if say {
                self.rate = Some((cx.now, bits_per_s));
                cx.emit(Event::Rate { bits_per_s });
            }
        }
    }
}
