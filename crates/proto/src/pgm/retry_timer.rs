//! Retry timers for NAKs, from measured round trips as in TCP (src: RFC 6298): RFC 3208 gives no
//! values, and no fixed value suits every path.

use faircast_base::{Duration, Time};

use crate::congestion::common::average::RttEstimator;

/// Most doublings of a wait: few packets, and a path that was down is soon found up again.
const DOUBLINGS_MAX: u32 = 3;

/// Longest wait by doubling; a measured round trip may be longer.
const BACKED_OFF_MAX: Duration = Duration::from_secs(16);

/// Longest plausible round trip (TFMCC's longest: RFC 4654 s2.2.1).
const SAMPLE_MAX: Duration = Duration::from_secs(64);

/// Wait for the answer to a request, by the smoothed time of earlier answers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RetryTimer {
    pub(crate) wait_min: Duration,
    /// True if answers may be held back by congestion control: the shortest times measure the path.
    has_held_answers: bool,
    /// Least margin of a wait: answers to requests of other receivers make samples look short.
    margin_min: Duration,
    /// Time from a request to its answer.
    pub(crate) rtt: RttEstimator,
    /// Doublings of waits; they stay while answers are ambiguous (Karn's rule).
    doublings: u32,
    backed_off_at: Time,
}

impl RetryTimer {
    pub(crate) fn new(wait_min: Duration, margin_min: Duration) -> Self {
        Self { wait_min, margin_min, ..Self::default() }
    }

    pub(crate) fn with_held_answers(self) -> Self {
        Self { has_held_answers: true, ..self }
    }

    pub(crate) fn sample(&mut self, took: Duration) {
        if took > SAMPLE_MAX {
            return;
        }
        let took_s = took.as_secs_f64();
        match self.rtt.srtt_s().filter(|_| self.has_held_answers) {
            None => self.rtt.sample(took),
            Some(srtt_s) if took_s > srtt_s => {
                let limited = if took_s > 2.0 * srtt_s { 2.0 * srtt_s } else { took_s };
                self.rtt.sample_with_gain(limited, 1.0 / 16.0);
            }
            Some(_) => self.rtt.sample_with_gain(took_s, 0.5),
        }
        self.doublings = 0;
    }

    /// Returns the time within which an answer is expected; `None` before the first answer.
    pub(crate) fn expected(&self) -> Option<Duration> {
        Some(self.rtt.srtt()? + self.rtt.margin()?.max(self.margin_min))
    }

    pub(crate) fn wait(&self, repeats: u32) -> Duration {
        let base = self.expected().map_or(self.wait_min, |expected| expected.max(self.wait_min));
        let doublings = repeats.max(self.doublings).min(DOUBLINGS_MAX);
        (base * (1 << doublings)).min(base.max(BACKED_OFF_MAX))
    }

    /// Doubles the waits after a missing answer. Timers that expire together count once.
    pub(crate) fn on_timeout(&mut self, now: Time) {
        if now.since(self.backed_off_at) >= self.wait(0).min(now.since(Time::ZERO)) {
            self.backed_off_at = now;
            self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestTimes {
    pub(crate) count: u32,
    first_at: Time,
    last_at: Time,
}

/// Most requests after which an answer gives a first sample.
const FIRST_SAMPLE_TIMES_MAX: u32 = 6;

impl RequestTimes {
    pub(crate) fn on_request(&mut self, now: Time) {
        if self.count == 0 {
            self.first_at = now;
        }
        (self.count, self.last_at) = (self.count + 1, now);
    }

    pub(crate) fn last(&self) -> Option<Time> {
        (self.count > 0).then_some(self.last_at)
    }

    /// Takes an unambiguous answer as a sample for `retry` (Karn's rule), or an early first one.
    pub(crate) fn on_answer(&self, now: Time, retry: &mut RetryTimer) {
        let most = if retry.rtt.srtt().is_some() { 1 } else { FIRST_SAMPLE_TIMES_MAX };
        if (1..=most).contains(&self.count) {
            retry.sample(now.since(self.first_at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{at, ms};

    fn timer() -> RetryTimer {
        RetryTimer::new(ms(200), ms(50))
    }

    #[test]
    fn a_wait_follows_long_round_trips_and_is_never_below_the_least() {
        let mut short = timer();
        let mut long = short;
        assert_eq!(short.wait(0), ms(200));
        long.sample(ms(750));
        assert_eq!(long.wait(0), ms(750 + 4 * 375));
        for _ in 0..100 {
            short.sample(ms(20));
            long.sample(ms(750));
        }
        assert_eq!(short.wait(0), ms(200));
        assert_eq!(long.wait(0), ms(750 + 50));
        long.sample(Duration::from_secs(100));
        assert_eq!(long.wait(0), ms(750 + 50), "absurd samples are not believed");
    }

    #[test]
    fn repetitions_back_off_and_a_clean_answer_ends_it() {
        let mut retry = timer();
        let waits: [_; 5] = core::array::from_fn(|repeats| retry.wait(repeats as u32));
        assert_eq!(waits, [ms(200), ms(400), ms(800), ms(1600), ms(1600)]);
        retry.on_timeout(at(1000));
        retry.on_timeout(at(1000));
        retry.on_timeout(at(1100));
        assert_eq!(retry.wait(0), ms(400), "what runs out together counts once");
        retry.on_timeout(at(1500));
        assert_eq!(retry.wait(0), ms(800));
        retry.sample(ms(20));
        assert_eq!(retry.wait(0), ms(200));
    }

    #[test]
    fn only_a_question_asked_once_gives_a_sample_unless_it_is_the_first() {
        let mut retry = timer();
        let mut asked = RequestTimes::default();
        asked.on_answer(at(5), &mut retry);
        assert!(retry.rtt.srtt().is_none(), "it was never asked");
        asked.on_request(at(10));
        asked.on_request(at(210));
        asked.on_answer(at(510), &mut retry);
        assert_eq!(retry.expected(), Some(ms(500 + 4 * 250)), "from the first time");
        asked.on_answer(at(90_000), &mut retry);
        assert_eq!(retry.expected(), Some(ms(500 + 4 * 250)), "and never again");
        let mut once = RequestTimes::default();
        once.on_request(at(1000));
        once.on_answer(at(1500), &mut retry);
        assert_eq!(retry.expected(), Some(Duration::from_micros(500_000 + 4 * 187_500)));
    }

    #[test]
    fn answers_that_were_held_back_make_nobody_wait_long() {
        let mut retry = timer().with_held_answers();
        retry.sample(Duration::from_secs(3));
        for i in 0..90 {
            retry.sample(if i % 3 == 0 { Duration::from_secs(3) } else { ms(30) });
        }
        assert_eq!(retry.wait(0), ms(200), "{:?}", retry.rtt);
        (0..100).for_each(|_| retry.sample(ms(750)));
        assert!(retry.wait(0) > ms(750) && retry.wait(0) < ms(1200), "{retry:?}");
    }
}
