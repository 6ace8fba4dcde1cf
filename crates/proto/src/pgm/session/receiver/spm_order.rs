//! Which SPMs of a source are newer than those before.

use faircast_base::{Duration, Seq, Time};

use super::dissent::Dissent;

/// The sequence number of the newest SPM, and what other SPMs say against it.
#[derive(Clone, Copy, Debug)]
pub struct SpmOrder {
    newest: Option<(Seq, Time)>,
    ahead: Dissent<Seq>,
    behind: Dissent<Seq>,
}

impl Default for SpmOrder {
    fn default() -> Self {
        Self {
            newest: None,
            ahead: Dissent::default(),
            behind: Dissent::of_packets(BEHIND_PACKETS),
        }
    }
}

impl SpmOrder {
    /// The newest one.
    pub fn newest(&self) -> Option<Seq> {
        self.newest.map(|(newest, _)| newest)
    }

    /// Whether SPM `sequence` would be newer, and no further ahead than a source can come.
    pub fn is_newer(&self, now: Time, sequence: Seq) -> bool {
        self.newest.is_none_or(|(newest, at)| {
            let ahead = i64::from(sequence.distance(newest));
            ahead > 0 && ahead as u64 <= FREE_SPMS + PER_SECOND * now.since(at).as_millis() / 1000
        })
    }

    /// An SPM has come. Returns whether it is newer than those before, or whether they were none of
    /// the source: it goes on with other numbers.
    pub fn take(&mut self, now: Time, sequence: Seq) -> bool {
        let newer = self.is_newer(now, sequence);
        if !newer && let Some((newest, _)) = self.newest {
            if sequence == newest {
                return false;
            }
            let goes_on = |before: &Seq| sequence.after(*before);
            let claims = if sequence.after(newest) { &mut self.ahead } else { &mut self.behind };
            if !claims.claim(now, sequence, Duration::ZERO, goes_on) {
                return false;
            }
        }
        self.newest = Some((sequence, now));
        self.ahead.contradict();
        self.behind.contradict();
        true
    }
}

/// How many SPMs ahead a source can be at once, and for each second: every receiver that joins may
/// be sent one of its own.
const FREE_SPMS: u64 = 1000;
const PER_SECOND: u64 = 10_000;

/// Old numbers in ascending order that show that the newest was none of the source.
const BEHIND_PACKETS: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_far_ahead_or_somewhat_ahead_does_not_make_real_ones_old() {
        let at = |s| Time::ZERO + Duration::from_secs(s);
        for (jump, taken, then) in [(100_000_000, false, [true, true]), (900, true, [false, true])]
        {
            let mut order = SpmOrder::default();
            assert!((0..5).all(|s| order.take(at(s), Seq::new(s as u32))));
            assert!(!order.take(at(4), Seq::new(4)) && !order.take(at(4), Seq::new(3)));
            assert_eq!(order.take(at(4), Seq::new(4 + jump)), taken);
            assert_eq!([5, 6].map(|s| order.take(at(s), Seq::new(s as u32))), then);
            assert!(order.take(at(7), Seq::new(7)));
        }
    }
}
