//! Estimators of a mean, one for each definition: a moving average, the average with its mean
//! deviation, and the round-trip time estimator of RFC 6298.

use faircast_base::Duration;

/// Moving average `a <- a + gain (x - a)`, which begins with its first sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct MovingAverage(Option<f64>);

impl MovingAverage {
    pub(crate) fn of(value: f64) -> Self {
        Self(Some(value))
    }

    pub(crate) fn get(self) -> Option<f64> {
        self.0
    }

    pub(crate) fn add(&mut self, sample: f64, gain: f64) {
        self.0 = Some(self.0.map_or(sample, |mean| mean + gain * (sample - mean)));
    }
}

/// Moving average with that of distances from it (src: RFC 6298 s2, ormcc s2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct MeanDeviation {
    pub(crate) mean: f64,
    pub(crate) deviation: f64,
}

impl MeanDeviation {
    /// Begins with the first sample, and half of it as deviation (src: RFC 6298 s2.2).
    pub(crate) fn first(sample: f64) -> Self {
        Self { mean: sample, deviation: sample / 2.0 }
    }

    pub(crate) fn add(&mut self, sample: f64, mean_gain: f64, deviation_gain: f64) {
        let error = sample - self.mean;
        let distance = if error < 0.0 { -error } else { error };
        self.mean += mean_gain * error;
        self.deviation += deviation_gain * (distance - self.deviation);
    }
}

/// Weight of a sample in SRTT, and of a deviation in RTTVAR (src: RFC 6298 s2.3).
const ALPHA: f64 = 1.0 / 8.0;
const BETA: f64 = 1.0 / 4.0;

/// Deviations that the timeout exceeds the smoothed round trip by (K; src: RFC 6298 s2.2).
const K: f64 = 4.0;

/// Round-trip time estimator: SRTT and RTTVAR in seconds (src: RFC 6298 s2), without back-off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RttEstimator(Option<MeanDeviation>);

impl RttEstimator {
    pub(crate) fn sample(&mut self, rtt: Duration) {
        self.sample_with_gain(rtt.as_secs_f64(), ALPHA);
    }

    /// Adds a sample in seconds with another weight in SRTT than RFC 6298's.
    pub(crate) fn sample_with_gain(&mut self, rtt_s: f64, gain: f64) {
        match &mut self.0 {
            None => self.0 = Some(MeanDeviation::first(rtt_s)),
            Some(rtt) => rtt.add(rtt_s, gain, BETA),
        }
    }

    pub(crate) fn srtt_s(&self) -> Option<f64> {
        self.0.map(|rtt| rtt.mean)
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.srtt_s().map(Duration::from_secs_f64)
    }

    pub(crate) fn margin(&self) -> Option<Duration> {
        self.0.map(|rtt| Duration::from_secs_f64(K * rtt.deviation))
    }

    pub(crate) fn rto(&self) -> Option<Duration> {
        self.0.map(|rtt| Duration::from_secs_f64(rtt.mean + K * rtt.deviation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::ms;

    #[test]
    fn an_average_begins_with_its_first_sample_and_moves_by_its_gain() {
        for (gain, start, samples, want) in [
            (0.125, None, &[8.0, 16.0][..], 9.0),
            (0.125, None, &[8.0], 8.0),
            (1.0, None, &[8.0, 16.0], 16.0),
            (0.5, Some(0.0), &[8.0, 8.0], 6.0),
        ] {
            let mut average = start.map_or(MovingAverage::default(), MovingAverage::of);
            samples.iter().for_each(|sample| average.add(*sample, gain));
            assert_eq!(average.get(), Some(want), "{gain} {samples:?}");
        }
        assert_eq!(MovingAverage::default().get(), None);
    }

    #[test]
    fn round_trips_follow_rfc_6298() {
        let us = Duration::from_micros;
        for (samples_ms, srtt, rto) in [
            // s2.2: SRTT = R, RTTVAR = R/2.
            (&[100][..], ms(100), ms(300)),
            // s2.3: RTTVAR = 3/4 50 + 1/4 0 = 37.5 ms.
            (&[100, 100], ms(100), ms(250)),
            // RTTVAR = 3/4 50 + 1/4 80 = 57.5 ms by the old SRTT, SRTT = 7/8 100 + 1/8 180.
            (&[100, 180], ms(110), ms(340)),
            (&[100, 20], ms(90), ms(320)),
            // RTTVAR = 3/4 57.5 + 1/4 30 = 50.625 ms, SRTT = 110 - 30/8.
            (&[100, 180, 80], us(106_250), us(308_750)),
        ] {
            let mut estimator = RttEstimator::default();
            samples_ms.iter().for_each(|sample| estimator.sample(ms(*sample)));
            assert_eq!((estimator.srtt(), estimator.rto()), (Some(srtt), Some(rto)));
            assert_eq!(estimator.margin(), Some(rto.saturating_sub(srtt)), "{samples_ms:?}");
        }
        let none = RttEstimator::default();
        assert_eq!((none.srtt(), none.rto(), none.margin()), (None, None, None));
    }
}
