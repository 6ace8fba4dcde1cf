//! When the group goes slower than its application can bear.

use faircast_base::{Duration, Time};

use crate::transfer::SlowPolicy;

/// After so long below the floor the one who limits the group is deferred. A change of the
/// representative, or a cut after a loss, is over sooner.
const PATIENCE: Duration = Duration::from_secs(5);

/// Payload is counted over spans of this length. Each in [`PATIENCE`] must be below the floor.
const SPAN: Duration = Duration::from_secs(1);

/// Measures how fast a source sends while it has something to send.
#[derive(Debug)]
pub(super) struct SlowMeter {
    floor: Option<u64>,
    /// When the present span began, and how many bytes had been sent then.
    span: Option<(Time, u64)>,
    /// Since when all spans have been below the floor.
    below: Option<Time>,
}

impl SlowMeter {
    pub(super) fn new(policy: SlowPolicy) -> Self {
        let floor = match policy {
            SlowPolicy::Wait => None,
            SlowPolicy::DropBelow(floor) => Some(floor.bits_per_s()),
        };
        Self { floor, span: None, below: None }
    }

    /// `bytes` have been sent in all, and with `busy` there is more to send. Returns whether
    /// somebody is to be deferred; it begins anew then. Asked at least each tenth of a second.
    pub(super) fn is_too_slow(&mut self, now: Time, bytes: u64, busy: bool) -> bool {
        let Some(floor) = self.floor else { return false };
        if !busy {
            (self.span, self.below) = (None, None);
            return false;
        }
        let (since, before) = *self.span.get_or_insert((now, bytes));
        let span = now.since(since);
        if span < SPAN {
            return false;
        }
        self.span = Some((now, bytes));
        let bits = u128::from(bytes - before) * 8 * 1_000_000_000;
        if bits >= u128::from(floor) * u128::from(span.as_nanos()) {
            self.below = None;
            return false;
        }
        let below = *self.below.get_or_insert(since);
        let slow = now.since(below) >= PATIENCE;
        if slow {
            self.below = None;
        }
        slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faircast_base::Bitrate;

    /// Seconds until somebody is deferred, of `rates` in bytes per tenth of a second.
    fn deferred_after(rates: impl IntoIterator<Item = u64>) -> Option<usize> {
        let floor = Bitrate::from_bits_per_s(80_000);
        let mut meter = SlowMeter::new(SlowPolicy::DropBelow(floor));
        let (mut now, mut bytes) = (Time::ZERO, 0);
        for (i, rate) in rates.into_iter().enumerate() {
            if meter.is_too_slow(now, bytes, rate < 10_000) {
                return Some(i / 10);
            }
            now += Duration::from_millis(100);
            bytes += rate;
        }
        None
    }

    #[test]
    fn only_lasting_slowness_with_work_to_do_counts() {
        let spell = |seconds: usize, rate: u64| core::iter::repeat_n(rate, seconds * 10);
        assert_eq!(deferred_after(spell(60, 999)), Some(5));
        assert_eq!(deferred_after(spell(60, 1001)), None);
        assert_eq!(deferred_after(spell(60, 0)), Some(5));
        let pausing = (0..10).flat_map(|_| spell(4, 0).chain(spell(2, 2000)));
        assert_eq!(deferred_after(pausing), None, "it recovers in time");
        let idle = (0..10).flat_map(|_| spell(4, 500).chain(spell(1, 10_000)));
        assert_eq!(deferred_after(idle), None, "it has nothing to send in between");
        let mut waits = SlowMeter::new(SlowPolicy::Wait);
        for s in 0..100 {
            assert!(!waits.is_too_slow(Time::ZERO + Duration::from_secs(s), 0, true));
        }
    }
}
