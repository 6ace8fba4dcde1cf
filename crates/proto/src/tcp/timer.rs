//! Retransmission timer of a sender, and the retransmission timeout (RTO) in ticks of a clock.

use faircast_base::{Duration, Time};

use super::settings::Settings;

/// Maximum retransmission timeout (src: RFC 6298 s2.5; ns-2: maxrto_).
pub(super) const MAX_RTO: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(super) struct RetransmissionTimer {
    pub(super) rto: Ns2Rto,
    /// Packet of the measurement, and its departure; `None` for retransmissions (Karn).
    pub(super) timed: Option<(u64, Time)>,
    pub(super) expires_at: Option<Time>,
    pub(super) interval: Duration,
}

impl RetransmissionTimer {
    pub(super) fn new(rto: Ns2Rto) -> Self {
        Self { rto, timed: None, expires_at: None, interval: Duration::ZERO }
    }

    pub(super) fn restart(&mut self, now: Time) {
        self.interval = self.rto.timeout;
        self.expires_at = Some(now + self.interval);
    }

    /// Measures the round trip of a new packet, unless another is measured.
    pub(super) fn time(&mut self, seq: u64, now: Time) {
        self.timed = self.timed.or(Some((seq, now)));
    }

    /// Ends the measurement if `ack` covers its packet. Returns the time at which that was sent.
    pub(super) fn take_timed(&mut self, ack: u64) -> Option<Time> {
        let (_, sent_at) = self.timed.take_if(|(seq, _)| ack > *seq)?;
        Some(sent_at)
    }
}

/// Retransmission timeout of ns-2: RFC 6298 s2 in BSD's integers, in whole ticks of a clock with
/// arbitrary phase. Published figures depend on the rounding, which no other estimator here has.
#[derive(Clone, Debug)]
pub(super) struct Ns2Rto {
    tick_ns: u64,
    pub(super) phase_ns: u64,
    min: Duration,
    /// Eight times the smoothed round trip in ticks; 0 before samples and after a long back-off.
    srtt_8: i64,
    /// Four times the mean deviation in ticks.
    rttvar_4: i64,
    /// Timeout by the latest sample, without bounds and back-off.
    unbounded: Duration,
    backoff: u64,
    /// Present timeout, cached because each acknowledgement reads it.
    pub(super) timeout: Duration,
}

impl Ns2Rto {
    pub(super) fn new(settings: &Settings) -> Self {
        let mut new = Self {
            tick_ns: settings.clock_granularity.as_nanos(),
            phase_ns: 0,
            min: settings.min_rto,
            srtt_8: 0,
            rttvar_4: 0,
            unbounded: settings.initial_rto,
            backoff: 1,
            timeout: Duration::ZERO,
        };
        new.timeout = new.compute();
        new
    }

    pub(super) fn sample(&mut self, sent: Time, now: Time) {
        let tick_of = |t: Time| t.as_nanos().saturating_add(self.phase_ns) / self.tick_ns;
        let rtt = i64::try_from(tick_of(now).saturating_sub(tick_of(sent))).unwrap_or(i64::MAX);
        // Far above any round trip, and far below an overflow of the sums.
        let rtt = rtt.clamp(1, 1 << 40);
        if self.srtt_8 == 0 {
            self.srtt_8 = rtt << 3;
            self.rttvar_4 = rtt << 1;
        } else {
            // src: RFC 6298 s2.3 as in V. Jacobson, appendix A: shifts round to minus infinity.
            let error = rtt - (self.srtt_8 >> 3);
            self.srtt_8 = (self.srtt_8 + error).max(1);
            self.rttvar_4 = (self.rttvar_4 + error.abs() - (self.rttvar_4 >> 2)).max(1);
        }
        let ticks = ((self.rttvar_4 << 3) + self.srtt_8) >> 3;
        self.unbounded = Duration::from_nanos(self.tick_ns) * ticks.unsigned_abs();
        self.end_back_off();
    }

    /// Doubles the timeout. After four doublings the estimate is forgotten.
    pub(super) fn back_off(&mut self) {
        if self.backoff < 64 || self.timeout < MAX_RTO {
            self.backoff *= 2;
        }
        if self.backoff > 8 {
            self.srtt_8 = 0;
        }
        self.timeout = self.compute();
    }

    pub(super) fn end_back_off(&mut self) {
        self.backoff = 1;
        self.timeout = self.compute();
    }

    fn compute(&self) -> Duration {
        let timeout = (self.unbounded.max(self.min) * self.backoff).min(MAX_RTO);
        timeout.max(Duration::from_nanos(2 * self.tick_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::OPTIONS;
    use crate::world::options;
    use alloc::vec::Vec;

    fn estimator(pairs: &[(&str, &str)]) -> Ns2Rto {
        Ns2Rto::new(&Settings::from_options(&options(pairs, OPTIONS)))
    }

    fn ms(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn the_first_sample_gives_three_round_trips() {
        // src: RFC 6298 s2.2: RTO = R + 4 x R/2.
        let mut rtt = estimator(&[]);
        assert_eq!(rtt.timeout, Duration::from_secs(3));
        rtt.sample(ms(0), ms(100));
        assert_eq!(rtt.timeout, Duration::from_millis(300));
    }

    #[test]
    fn a_steady_round_trip_brings_the_timeout_down_to_its_floor() {
        for (min, want_ms) in [("0.2 s", 200), ("1 s", 1000), ("0 s", 110)] {
            let mut rtt = estimator(&[("min_rto", min)]);
            for _ in 0..50 {
                rtt.sample(ms(1000), ms(1100));
            }
            // Scaled integers keep a deviation of a quarter tick, four of which are one tick.
            let floor = Duration::from_millis(want_ms);
            assert!(rtt.timeout >= floor && rtt.timeout <= floor * 4 / 3, "{min}: {:?}", rtt);
        }
    }

    #[test]
    fn round_trips_count_the_ticks_that_pass_and_depend_on_the_phase() {
        // 9 ms are one tick of 10 ms if a tick falls within; otherwise none, which counts as one.
        for (phase_ms, sent, now, ticks) in [
            (0, 0, 9, 1),
            (0, 5, 14, 1),
            (0, 9, 20, 2),
            (1, 9, 20, 1),
            (0, 0, 109, 10),
            (1, 0, 109, 11),
        ] {
            let mut rtt = estimator(&[("min_rto", "0 s")]);
            rtt.phase_ns = phase_ms * 1_000_000;
            rtt.sample(ms(sent), ms(now));
            assert_eq!(rtt.timeout, Duration::from_millis((30 * ticks).max(20)));
        }
    }

    #[test]
    fn back_off_doubles_up_to_the_maximum_and_a_sample_ends_it() {
        let mut rtt = estimator(&[]);
        rtt.sample(ms(0), ms(100));
        let seconds: Vec<f64> = (0..10)
            .map(|_| {
                rtt.back_off();
                rtt.timeout.as_secs_f64()
            })
            .collect();
        assert_eq!(seconds, [0.6, 1.2, 2.4, 4.8, 9.6, 19.2, 38.4, 60.0, 60.0, 60.0]);
        rtt.sample(ms(0), ms(200));
        assert_eq!(rtt.timeout, Duration::from_millis(600));
    }

    #[test]
    fn the_floor_is_below_the_back_off_and_two_ticks_are_the_least() {
        let mut rtt = estimator(&[("min_rto", "1 s")]);
        rtt.sample(ms(0), ms(10));
        assert_eq!(rtt.timeout, Duration::from_secs(1));
        rtt.back_off();
        assert_eq!(rtt.timeout, Duration::from_secs(2));
        let least = [("initial_rto", "1 ms"), ("min_rto", "0 s"), ("clock_granularity", "100 ms")];
        let rtt = estimator(&least);
        assert_eq!(rtt.timeout, Duration::from_millis(200));
    }

    #[test]
    fn no_times_overflow() {
        let mut rtt = estimator(&[("clock_granularity", "1 us"), ("min_rto", "0 s")]);
        for (sent, now) in [(ms(0), Time::MAX), (Time::MAX, ms(0)), (ms(0), Time::MAX)] {
            rtt.sample(sent, now);
            for _ in 0..200 {
                rtt.back_off();
            }
            assert!(rtt.timeout <= Duration::from_secs(60));
        }
    }
}
