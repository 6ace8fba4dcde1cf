//! Unanswered packets: their number, and the time since the first.

use faircast_base::{Duration, Time};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unanswered {
    /// Departure of the first one, later by pauses.
    since: Option<Time>,
    packets: u64,
}

impl Unanswered {
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn sent(&mut self, now: Time) {
        self.since.get_or_insert(now);
        self.packets += 1;
    }

    pub(crate) fn pause(&mut self, span: Duration) {
        if let Some(since) = &mut self.since {
            *since += span;
        }
    }

    pub(crate) fn lasts(&self, now: Time) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Returns when the silence reaches `count` round trips, once `count` packets are unanswered.
    pub(crate) fn after(&self, count: u64, rtt: Duration) -> Option<Time> {
        self.since.filter(|_| self.packets >= count).map(|since| since + rtt * count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::{at, ms};

    #[test]
    fn it_lasts_from_the_first_packet_on_without_pauses() {
        let mut silence = Unanswered::default();
        silence.pause(ms(500));
        assert_eq!(silence.lasts(at(1000)), Duration::ZERO);
        silence.sent(at(1000));
        assert_eq!(silence.after(2, ms(100)), None);
        silence.sent(at(1050));
        assert_eq!(silence.lasts(at(1060)), ms(60));
        assert_eq!(silence.after(2, ms(100)), Some(at(1200)));
        silence.pause(ms(60_000));
        assert_eq!(silence.lasts(at(61_150)), ms(150));
        silence.clear();
        assert_eq!(silence.lasts(at(70_000)), Duration::ZERO);
    }
}
