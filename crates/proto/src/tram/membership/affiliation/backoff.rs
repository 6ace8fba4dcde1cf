//! Random back-off before requests to a head, so that only some of a crowd ask it.

use faircast_base::{Duration, math};

use super::Seeker;
use crate::tram::settings::{Formation, HeadRole, TramSettings};

/// Crowd for which a head gets a few dozen requests before all know that it is full.
const CROWD: f64 = 100_000.0;

/// Odd multiplier of the hash: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// True if heads advertise all the time, so that no receiver has to hurry.
    pub(super) backs_off: bool,
    /// True for an eager head: it must have a head before others choose theirs.
    is_eager: bool,
    pub(super) waited: bool,
    /// Back-offs so far, which give each a random number of its own.
    waits: u64,
    /// True if other receivers took the places of a head since this receiver lost its head.
    pub(super) crowded: bool,
}

impl Backoff {
    pub(super) fn new(settings: &TramSettings) -> Self {
        let backs_off = settings.formation == Formation::Advertise;
        let is_eager = settings.head == HeadRole::Eager;
        Self { backs_off, is_eager, ..Self::default() }
    }

    pub(super) fn is_crowded(&self) -> bool {
        self.backs_off && self.crowded
    }

    /// Returns the back-off, at most 1.5 times `interval`, for eager receivers 0.5; `None` if it is
    /// over. As with reports of large groups, the first requests are few (src: RFC 4654 s2.5.1).
    pub(super) fn wait(&mut self, interval: Duration, seeker: Seeker) -> Option<Duration> {
        self.waited = self.backs_off && !self.waited;
        if !self.waited {
            return None;
        }
        self.waits += 1;
        // Hashing the random number with the count gives a new random number for each wait.
        let mut bits = (seeker.level_and_id.1 ^ self.waits).wrapping_mul(SPREAD);
        bits = (bits ^ bits >> 29).wrapping_mul(SPREAD);
        let share = ((bits >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        let wait = (1.0 + math::ln(share) / math::ln(CROWD)).max(0.0);
        let wait = if self.is_eager { wait / 2.0 } else { 0.5 + wait };
        Some(Duration::from_secs_f64(interval.as_secs_f64() * wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(500);

    fn backoff(head: HeadRole, formation: Formation) -> Backoff {
        Backoff::new(&TramSettings { head, formation, ..TramSettings::default() })
    }

    fn waits(head: HeadRole) -> std::vec::Vec<Duration> {
        let wait = |id: u64| {
            let mut backoff = backoff(head, Formation::Advertise);
            let level_and_id = (0, id.wrapping_mul(0xd134_2543_de82_ef95));
            let seeker = Seeker { level_and_id, ..Seeker::default() };
            let wait = backoff.wait(INTERVAL, seeker);
            assert_eq!(backoff.wait(INTERVAL, seeker), None, "it has waited");
            wait.unwrap()
        };
        (0..100_000).map(wait).collect()
    }

    #[test]
    fn of_a_crowd_a_few_ask_at_once_and_eager_ones_before() {
        let waits_of = waits(HeadRole::Reluctant);
        let within = |ms| {
            let until = INTERVAL / 2 + Duration::from_millis(ms);
            waits_of.iter().filter(|wait| **wait < until).count()
        };
        assert!(within(10) < 10, "{}", within(10));
        assert!((20..200).contains(&within(200)), "{}", within(200));
        assert!(waits_of.iter().all(|wait| (INTERVAL / 2..=INTERVAL * 3 / 2).contains(wait)));
        assert!(waits(HeadRole::Eager).iter().all(|wait| *wait <= INTERVAL / 2));
    }

    #[test]
    fn where_heads_answer_only_nobody_waits() {
        let mut backoff = backoff(HeadRole::Reluctant, Formation::Both);
        assert_eq!(backoff.wait(INTERVAL, Seeker::default()), None);
        backoff.crowded = true;
        assert!(!backoff.is_crowded());
    }
}
