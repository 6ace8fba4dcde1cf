//! How long packets have gone unanswered.

use faircast_base::{Duration, Time};

/// A pause of the source counts as this part of the silence that has consequences, at most. The packet
/// before it need not have been answered, as the representative answers once in a round trip; so
/// many in a row it would have.
const PAUSES: u64 = 8;

/// Since when packets have left that nobody has answered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unanswered(Option<Time>);

impl Unanswered {
    /// An answer has come, or there is nobody to wait for.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    /// A packet leaves.
    pub(super) fn sent(&mut self, now: Time) {
        self.0.get_or_insert(now);
    }

    /// The source had nothing to send for `idle` until now, and nobody had anything to answer;
    /// `patience` is the silence that has consequences.
    pub(super) fn pause(&mut self, idle: Duration, patience: Duration) {
        if let Some(since) = &mut self.0 {
            *since += idle.saturating_sub(patience / PAUSES);
        }
    }

    /// For how long; no time where all is answered.
    pub(super) fn lasts(&self, now: Time) -> Duration {
        self.0.map_or(Duration::ZERO, |since| now.since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_count_for_an_eighth_of_the_patience_at_most() {
        let at = |ms| Time::ZERO + MS * ms;
        let mut silence = Unanswered::default();
        silence.pause(MS * 500, MS * 800);
        assert_eq!(silence.lasts(at(1000)), Duration::ZERO);
        silence.sent(at(1000));
        silence.sent(at(1050));
        assert_eq!(silence.lasts(at(1060)), MS * 60);
        silence.pause(MS * 90, MS * 800);
        assert_eq!(silence.lasts(at(1150)), MS * 150, "a short one counts whole");
        silence.pause(MS * 60_000, MS * 800);
        assert_eq!(silence.lasts(at(61_150)), MS * 250);
        silence.clear();
        assert_eq!(silence.lasts(at(70_000)), Duration::ZERO);
    }
}
