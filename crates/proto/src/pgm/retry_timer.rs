//! Retry timers for NAKs: retransmission timeouts that follow measured round trips.
//!
//! RFC 3208 gives its NAK timers no values. Whatever value is fixed, it is too short on some path,
//! where every loss is then asked for and repaired several times, or too long on another. So the
//! value is measured, as TCP does it (src: RFC 6298).

use faircast_base::{Duration, Time};

/// Doublings after which a wait grows no further. Eight round trips are much below what a path
/// that is down for seconds needs, yet cost few packets, and it is found up again soon.
const DOUBLINGS_MAX: u32 = 3;

/// Doubling does not lead beyond this; a measured round trip may.
const BACKED_OFF_MAX: Duration = Duration::from_secs(16);

/// A longer round trip is a mistake (TFMCC's longest: RFC 4654 s2.2.1).
const SAMPLE_MAX: Duration = Duration::from_secs(64);

/// Smoothed round trip and its variation in seconds after a further sample (src: RFC 6298 s2.2,
/// s2.3).
pub(crate) fn smoothed(known: Option<(f64, f64)>, sample: f64, gain: f64) -> (f64, f64) {
    let Some((smoothed, variation)) = known else { return (sample, sample / 2.0) };
    let deviation = if smoothed > sample { smoothed - sample } else { sample - smoothed };
    (smoothed + (sample - smoothed) * gain, variation + (deviation - variation) / 4.0)
}

/// One timer's estimate of how long its answer takes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RetryTimer {
    /// The shortest wait.
    pub(crate) least: Duration,
    /// Whether an answer may be held back at the other end, as congestion control holds repairs.
    /// Then the shortest times tell of the path, and long ones of the moment.
    held: bool,
    /// What a wait exceeds the smoothed time by, at the least: answers to others' questions, asked
    /// so much earlier, make samples look short.
    slack: Duration,
    /// Smoothed time to the answer and its variation in seconds.
    estimate: Option<(f64, f64)>,
    /// Karn's rule: while answers cannot be told apart, waits stay as long as they have grown.
    doublings: u32,
    backed_off_at: Time,
}

impl RetryTimer {
    pub(crate) fn new(least: Duration, slack: Duration) -> Self {
        let backed_off_at = Time::ZERO;
        Self { least, held: false, slack, estimate: None, doublings: 0, backed_off_at }
    }

    /// The same for answers that may be held back at the other end.
    pub(crate) fn of_held_answers(self) -> Self {
        Self { held: true, ..self }
    }

    pub(crate) fn has_estimate(&self) -> bool {
        self.estimate.is_some()
    }

    /// An answer came after this time to a question asked once.
    pub(crate) fn sample(&mut self, took: Duration) {
        if took > SAMPLE_MAX {
            return;
        }
        let r = took.as_secs_f64();
        let (r, gain) = match self.estimate {
            Some((smoothed, _)) if self.held && r > smoothed => {
                (if r > 2.0 * smoothed { 2.0 * smoothed } else { r }, 1.0 / 16.0)
            }
            Some(_) if self.held => (r, 0.5),
            _ => (r, 1.0 / 8.0),
        };
        self.estimate = Some(smoothed(self.estimate, r, gain));
        self.doublings = 0;
    }

    /// The smoothed time to an answer; `None` before the first sample.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.estimate.map(|(smoothed, _)| Duration::from_secs_f64(smoothed))
    }

    /// The time within which an answer is to be expected; `None` before the first sample.
    pub(crate) fn expected(&self) -> Option<Duration> {
        let (smoothed, variation) = self.estimate?;
        Some(
            Duration::from_secs_f64(smoothed)
                + Duration::from_secs_f64(4.0 * variation).max(self.slack),
        )
    }

    /// How long to wait now for an answer to a question that was asked in vain `repeats` times
    /// before.
    pub(crate) fn wait(&self, repeats: u32) -> Duration {
        let base = self.expected().map_or(self.least, |expected| expected.max(self.least));
        let doublings = repeats.max(self.doublings).min(DOUBLINGS_MAX);
        (base * (1 << doublings)).min(base.max(BACKED_OFF_MAX))
    }

    /// An answer did not come in time. Many that run out together count once.
    pub(crate) fn run_out(&mut self, now: Time) {
        if now.since(self.backed_off_at) >= self.wait(0).min(now.since(Time::ZERO)) {
            self.backed_off_at = now;
            self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
        }
    }
}

/// Number and times of requests for something.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) times: u32,
    first: Time,
    last: Time,
}

/// Most requests after which an answer gives a first sample.
const FIRST_SAMPLE_TIMES_MAX: u32 = 6;

impl Asked {
    pub(crate) fn note(&mut self, now: Time) {
        if self.times == 0 {
            self.first = now;
        }
        (self.times, self.last) = (self.times + 1, now);
    }

    pub(crate) fn last(&self) -> Option<Time> {
        (self.times > 0).then_some(self.last)
    }

    /// An answer comes now: a sample for `retry`, where that can be told. Of a question asked
    /// more than once nobody knows which time was answered (Karn's rule). But where nothing is
    /// known yet the first of few times will do: on a long path every first question is repeated
    /// too soon, and too long a wait is mended by the samples that follow.
    pub(crate) fn answered(&self, now: Time, retry: &mut RetryTimer) {
        let most = if retry.has_estimate() { 1 } else { FIRST_SAMPLE_TIMES_MAX };
        if (1..=most).contains(&self.times) {
            retry.sample(now.since(self.first));
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
        retry.run_out(at(1000));
        retry.run_out(at(1000));
        retry.run_out(at(1100));
        assert_eq!(retry.wait(0), ms(400), "what runs out together counts once");
        retry.run_out(at(1500));
        assert_eq!(retry.wait(0), ms(800));
        retry.sample(ms(20));
        assert_eq!(retry.wait(0), ms(200));
    }

    #[test]
    fn only_a_question_asked_once_gives_a_sample_unless_it_is_the_first() {
        let mut retry = timer();
        let mut asked = Asked::default();
        asked.answered(at(5), &mut retry);
        assert!(!retry.has_estimate(), "it was never asked");
        asked.note(at(10));
        asked.note(at(210));
        asked.answered(at(510), &mut retry);
        assert_eq!(retry.expected(), Some(ms(500 + 4 * 250)), "from the first time");
        asked.answered(at(90_000), &mut retry);
        assert_eq!(retry.expected(), Some(ms(500 + 4 * 250)), "and never again");
        let mut once = Asked::default();
        once.note(at(1000));
        once.answered(at(1500), &mut retry);
        assert_eq!(retry.expected(), Some(Duration::from_micros(500_000 + 4 * 187_500)));
    }

    #[test]
    fn answers_that_were_held_back_make_nobody_wait_long() {
        let mut retry = timer().of_held_answers();
        retry.sample(Duration::from_secs(3));
        for i in 0..90 {
            retry.sample(if i % 3 == 0 { Duration::from_secs(3) } else { ms(30) });
        }
        assert_eq!(retry.wait(0), ms(200), "{:?}", retry.estimate);
        // A path that is long is found to be so all the same.
        (0..100).for_each(|_| retry.sample(ms(750)));
        assert!(retry.wait(0) > ms(750) && retry.wait(0) < ms(1200), "{retry:?}");
    }
}
