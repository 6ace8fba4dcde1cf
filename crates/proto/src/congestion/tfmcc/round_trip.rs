//! Round trip of a receiver.

use faircast_base::{Duration, Time};

use super::values::Echo;
use super::{CLOCK_TOLERANCE_US, RTT_ABSURD, RTT_MIN, RTT_WEIGHT_CLR};
use crate::congestion::common::stamp::{echoed_us, microseconds};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    smoothed: Option<f64>,
    /// Round trip in seconds by the delay of later data, until the next measurement.
    adjusted: Option<f64>,
    /// Latest measurement: time, echoed timestamp, and data time minus report time in us (D_r).
    measured: Option<(Time, u32, u32)>,
    /// Unconfirmed sample far above the mean, in seconds.
    outlier: Option<f64>,
}

/// Bounds of a plausible sample beside the mean; the next sample confirms longer, forgeable ones.
const OUTLIER_FACTOR: f64 = 4.0;
const OUTLIER_S: f64 = 0.2;

/// Weight of the past at other receivers, whose measurements are rare (src: RFC 4654 s4.3.2).
const RTT_WEIGHT: f64 = 0.5;

/// Round trips for which data delay is usable: clocks at 100 ppm then differ by a tenth of one.
const FOLLOW_FOR: f64 = 1000.0;

/// Longest holding time of a usable echo, in us: clocks at 100 ppm then differ by 500 us.
const HELD_US_MAX: u32 = 5_000_000;

impl RoundTrip {
    pub(super) fn seconds(&self) -> Option<f64> {
        self.adjusted.or(self.smoothed)
    }

    /// Processes an echo on data sent at `sent_us`. True for the first, `Err` for an absurd one.
    pub(super) fn measure(
        &mut self,
        now: Time,
        echo: Echo,
        sent_us: u32,
        is_clr: bool,
    ) -> Result<bool, ()> {
        if echo.held_us > HELD_US_MAX {
            return Ok(false);
        }
        let returned = echo.stamp_us.wrapping_add(echo.held_us);
        let sample = echoed_us(now, returned, CLOCK_TOLERANCE_US, RTT_ABSURD).ok_or(())?;
        // No timestamp predates this receiver.
        if Duration::from_micros(u64::from(echo.held_us)) > now.since(Time::ZERO) {
            return Err(());
        }
        if self.measured.is_some_and(|(_, stamp, _)| stamp == echo.stamp_us) {
            // The sender repeats the CLR's latest timestamp on every packet with room.
            return Ok(false);
        }
        let sample = sample.max(RTT_MIN).as_secs_f64();
        let absurd = |mean: f64| sample > OUTLIER_FACTOR * mean + OUTLIER_S;
        let sample = match self.outlier.take() {
            None if self.smoothed.is_some_and(absurd) => {
                self.outlier = Some(sample);
                return Ok(false);
            }
            Some(outlier) => sample.min(outlier),
            None => sample,
        };
        let first = self.smoothed.is_none();
        // The RFC's own form of the moving average, whose rounding differs from `MovingAverage`'s.
        let weight = if is_clr { RTT_WEIGHT_CLR } else { RTT_WEIGHT };
        self.smoothed = Some(match self.smoothed {
            Some(smoothed) => weight * smoothed + (1.0 - weight) * sample,
            None => sample,
        });
        self.adjusted = None;
        self.measured = Some((now, echo.stamp_us, sent_us.wrapping_sub(returned)));
        Ok(first)
    }

    /// Adjusts the round trip by the change of data delay since the measurement (src: RFC 4654
    /// s4.3.3). deviates: only after two round trips, since one delay would undo the smoothing.
    pub(super) fn follow(&mut self, now: Time, sent_us: u32) {
        let (Some(smoothed), Some((at, _, offset))) = (self.smoothed, self.measured) else {
            return;
        };
        let age = now.since(at).as_secs_f64();
        if age <= 2.0 * smoothed {
            return;
        }
        if age > FOLLOW_FOR * smoothed {
            self.adjusted = None;
            return;
        }
        let us = offset.wrapping_add(microseconds(now)).wrapping_sub(sent_us) as i32;
        let longest = RTT_ABSURD.as_secs_f64();
        self.adjusted = Some((f64::from(us) / 1e6).clamp(RTT_MIN.as_secs_f64(), longest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::at;
    use faircast_base::NodeId;

    fn echo(stamp_us: u32, held_us: u32) -> Echo {
        Echo { receiver: NodeId(1), is_clr: false, stamp_us, held_us }
    }

    #[test]
    fn clocks_need_not_agree_and_the_time_held_does_not_count() {
        let mut rtt = RoundTrip::default();
        // Reported at 1000 ms; the sender, whose clock is near its wrap, held the echo for 25 ms.
        let sent = u32::MAX - 10_000;
        assert_eq!(rtt.measure(at(1065), echo(1_000_000, 25_000), sent, false), Ok(true));
        assert!((rtt.seconds().unwrap() - 0.04).abs() < 1e-9);
        // A repeated timestamp counts nothing, a new one half.
        assert_eq!(rtt.measure(at(1075), echo(1_000_000, 25_000), sent, false), Ok(false));
        assert!((rtt.seconds().unwrap() - 0.04).abs() < 1e-9);
        assert_eq!(rtt.measure(at(2060), echo(2_000_000, 0), sent, false), Ok(false));
        assert!((rtt.seconds().unwrap() - 0.05).abs() < 1e-9);
        assert_eq!(rtt.measure(at(3100), echo(3_000_000, 0), sent, true), Ok(false));
        assert!((rtt.seconds().unwrap() - 0.055).abs() < 1e-9);
    }

    #[test]
    fn between_measurements_it_follows_the_delay_of_data() {
        let mut rtt = RoundTrip::default();
        // Data of 7000 ms on the sender's clock comes at 1040 ms on ours; round trip 40 ms.
        rtt.measure(at(1040), echo(1_000_000, 0), 7_000_000, false).unwrap();
        rtt.follow(at(1080), 7_010_000);
        assert!((rtt.seconds().unwrap() - 0.04).abs() < 1e-9, "the measurement is fresh");
        rtt.follow(at(1570), 7_500_000);
        assert!((rtt.seconds().unwrap() - 0.07).abs() < 1e-9);
        rtt.measure(at(2060), echo(2_000_000, 0), 8_000_000, false).unwrap();
        assert!((rtt.seconds().unwrap() - 0.05).abs() < 1e-9);
        rtt.follow(at(9000), 20_000_000);
        assert_eq!(rtt.seconds(), Some(RTT_MIN.as_secs_f64()));
        rtt.follow(at(60_000), 68_000_000);
        assert!((rtt.seconds().unwrap() - 0.05).abs() < 1e-9);
    }

    #[test]
    fn echoes_from_the_future_and_from_long_ago_are_refused() {
        let mut rtt = RoundTrip::default();
        for (stamp_us, held_us) in [(100_010_000, 0), (30_000_000, 0), (96_000_000, 4_500_000)] {
            let got = rtt.measure(at(100_000), echo(stamp_us, held_us), 0, false);
            assert_eq!(got, Err(()), "{stamp_us} {held_us}");
        }
        let got = rtt.measure(at(100_000), echo(93_000_000, 6_999_000), 0, false);
        assert_eq!((got, rtt.seconds()), (Ok(false), None));
        let got = rtt.measure(at(100_000), echo(99_000_000, 1_000_500), 0, false);
        assert_eq!((got, rtt.seconds()), (Ok(true), Some(RTT_MIN.as_secs_f64())));
    }
}
