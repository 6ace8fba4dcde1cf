//! Unanswered packets: how many have left without an answer, and since when.

use faircast_base::{Duration, Time};

/// Since when packets have left that nobody has answered, and how many.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unanswered {
    since: Option<Time>,
    packets: u64,
}

impl Unanswered {
    /// An answer has come, or there is nobody to wait for.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn sent(&mut self, now: Time) {
        self.since.get_or_insert(now);
        self.packets += 1;
    }

    /// For so long of that time there was nothing to answer.
    pub(crate) fn pause(&mut self, span: Duration) {
        if let Some(since) = &mut self.since {
            *since += span;
        }
    }

    /// For how long; no time where all is answered.
    pub(crate) fn lasts(&self, now: Time) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// When it will be `count` times `rtt`, once so many packets have left too: at a slow rate one
    /// packet in each is little to answer, and where nothing is sent nothing is answered.
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
