//! A receiver's hesitation before it asks a head: of a crowd that hears the same head only some are to ask it.

use faircast_base::{Duration, math};

use super::Seeker;

/// For so many receivers a head gets a few dozen requests in the time in which it says that it is full.
const CROWD: f64 = 100_000.0;

/// Odd numbers with bits all over, to make numbers of numbers.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// What a receiver remembers of it.
#[derive(Debug)]
pub(super) struct Hesitation {
    /// Where heads advertise at all times nobody has to hurry.
    hesitates: bool,
    /// It has waited, and is to choose now.
    waited: bool,
    waits: u64,
    /// A head that it wanted is full.
    crowded: bool,
}

impl Hesitation {
    pub(super) fn new(hesitates: bool) -> Self {
        Self { hesitates, waited: false, waits: 0, crowded: false }
    }

    /// Whether others want places too.
    pub(super) fn is_crowded(&self) -> bool {
        self.hesitates && self.crowded
    }

    /// Others have taken the place that it wanted.
    pub(super) fn on_taken(&mut self) {
        self.crowded = true;
    }

    pub(super) fn on_accepted(&mut self) {
        (self.crowded, self.waited) = (false, false);
    }

    /// How long it waits before it chooses, at most `most`; `None` where it has waited. Few wait for a short time and
    /// most for a long one, as with the reports of large groups (src: RFC 4654 s2.5.1), so that however many there
    /// are, the first requests are few.
    pub(super) fn wait(&mut self, most: Duration, seeker: Seeker) -> Option<Duration> {
        self.waited = self.hesitates && !self.waited;
        if !self.waited {
            return None;
        }
        self.waits += 1;
        // Its own number is random, and another one for each wait comes out of it.
        let mut bits = (seeker.place.1 ^ self.waits).wrapping_mul(SPREAD);
        bits = (bits ^ bits >> 29).wrapping_mul(SPREAD);
        let share = ((bits >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        let wait = 1.0 + math::ln(share) / math::ln(CROWD);
        Some(Duration::from_secs_f64(most.as_secs_f64() * wait.max(0.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_crowd_a_few_ask_at_once() {
        let most = Duration::from_millis(500);
        let waits: std::vec::Vec<_> = (0..100_000)
            .map(|id: u64| {
                let mut hesitation = Hesitation::new(true);
                let place = (0, id.wrapping_mul(0xd134_2543_de82_ef95));
                let seeker = Seeker { place, ..Seeker::default() };
                let wait = hesitation.wait(most, seeker);
                assert_eq!(hesitation.wait(most, seeker), None, "it has waited");
                wait.unwrap()
            })
            .collect();
        let within = |ms| waits.iter().filter(|wait| **wait < Duration::from_millis(ms)).count();
        assert!(within(10) < 10, "{}", within(10));
        assert!((20..200).contains(&within(200)), "{}", within(200));
        assert!(waits.iter().all(|wait| *wait <= most));
    }

    #[test]
    fn where_heads_answer_only_nobody_waits() {
        let mut hesitation = Hesitation::new(false);
        assert_eq!(hesitation.wait(Duration::from_secs(1), Seeker::default()), None);
        hesitation.on_taken();
        assert!(!hesitation.is_crowded());
    }
}
