//! Pause between two packets of the source (src: tram s3.5).

use faircast_base::{Duration, Time};

use super::CLOSED_INTERVAL;
use crate::congestion::{Pace, Permit};
use crate::tram::settings::{Clock, TramSettings};

/// Units of the coarse clock and of its sleep, in nanoseconds (src: tram s3.5).
const COARSE_NS: u64 = 1_000_000;
const COARSE_SLEEP_NS: u64 = 10_000_000;

#[derive(Debug, Default)]
pub(super) struct Pacer {
    pace: Pace,
    /// Payload bytes of the latest packet, whose pause the next packet waits for.
    pub(super) packet_bytes: u32,
    /// Sleep of the coarse clock; `None` with the resolution of the driver.
    sleep: Option<CoarseSleep>,
}

#[derive(Clone, Copy, Debug, Default)]
struct CoarseSleep {
    until: Time,
    /// Time by which earlier sleeps were too long, which shortens the next sleep.
    excess_ns: u64,
}

impl Pacer {
    pub(super) fn new(settings: &TramSettings, bytes_per_s: f64) -> Self {
        Self {
            pace: Pace::new(bytes_per_s * 8.0, Pace::BURST),
            packet_bytes: 1,
            sleep: (settings.clock == Clock::Coarse).then(CoarseSleep::default),
        }
    }

    /// Returns the rate of one packet per [`CLOSED_INTERVAL`], in bytes per second.
    pub(super) fn least_rate(&self) -> f64 {
        f64::from(self.packet_bytes.max(1)) / CLOSED_INTERVAL.as_secs_f64()
    }

    pub(super) fn permit(&mut self, now: Time, bytes_per_s: f64) -> Permit {
        if let Some(CoarseSleep { until, .. }) = self.sleep {
            return if until <= now { Permit::Now } else { Permit::At(until) };
        }
        self.pace.set(now, bytes_per_s * 8.0);
        self.pace.permit(now)
    }

    pub(super) fn on_sent(&mut self, now: Time, bytes_per_s: f64) {
        let bytes = self.packet_bytes;
        match &mut self.sleep {
            Some(sleep) => sleep.begin(now, f64::from(bytes) / bytes_per_s),
            None => {
                self.pace.set(now, bytes_per_s * 8.0);
                self.pace.spend(now, bytes);
            }
        }
    }
}

impl CoarseSleep {
    /// Sleeps whole milliseconds, less the excess of earlier sleeps (src: jrms).
    fn begin(&mut self, now: Time, seconds: f64) {
        let wanted = (seconds * 1e3) as u64 * COARSE_NS;
        let wanted = wanted.min(CLOSED_INTERVAL.as_nanos());
        if self.excess_ns > wanted {
            (self.until, self.excess_ns) = (now, self.excess_ns - wanted);
        } else {
            let left = wanted - self.excess_ns;
            let slept = left.next_multiple_of(COARSE_SLEEP_NS);
            (self.until, self.excess_ns) = (now + Duration::from_nanos(slept), slept - left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::at;

    #[test]
    fn coarse_sleeps_last_tens_of_milliseconds_and_keep_the_rate() {
        let settings = TramSettings { clock: Clock::Coarse, ..TramSettings::default() };
        for bytes_per_s in [50e3, 137e3, 400e3, 1000e3] {
            let mut pacer = Pacer::new(&settings, bytes_per_s);
            pacer.packet_bytes = 1400;
            let (mut now, mut sleeps) = (at(0), 0);
            for _ in 0..63 {
                if let Permit::At(until) = pacer.permit(now, bytes_per_s) {
                    (now, sleeps) = (until, sleeps + 1);
                }
                assert_eq!(now.as_nanos() % COARSE_SLEEP_NS, 0, "{bytes_per_s}");
                pacer.on_sent(now, bytes_per_s);
            }
            let achieved = 63.0 * 1400.0 / now.as_secs_f64();
            // Whole milliseconds round the pause down.
            let wanted = 1400.0 / (1400.0 / (bytes_per_s / 1e3)).floor() * 1e3;
            assert!((achieved / wanted - 1.0).abs() < 0.2, "{achieved} of {wanted} bytes/s");
            assert!(sleeps > 0);
        }
    }
}
