//! Advertisements of a head. In a crowd all advertisements would exceed the data. So a head
//! advertises in growing rings, halves the frequency each time that no member comes, and stops if
//! enough others are as near.

use faircast_base::Duration;

use crate::tram::settings::{Formation, TramSettings};
use crate::tram::wire::HeadState;

/// Growth in hops of the scope of each advertisement (src: jrms).
pub(super) const ADVERTISE_STEP: u8 = 2;

/// Other heads with room that are enough: those of a default interval at 30 a second (src: jrms).
const OTHERS_ENOUGH: u32 = 15;

/// Longest time between two advertisements without new members (src: jrms, for many heads).
const INTERVAL_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Advertising {
    ring: u8,
    /// Time to live of the last advertisement: its receivers must also learn that the head is full.
    pub(crate) last: u8,
    max: u8,
    /// True if the head advertises less in a crowd, and without new members.
    pub(crate) backs_off: bool,
    /// Advertisements of other heads with room, within the ring, since the own one was last due.
    others: u32,
    /// Advertisements since the last new member, which double the interval.
    pub(crate) without_members: u32,
}

impl Advertising {
    pub(crate) fn new(settings: &TramSettings) -> Self {
        Self {
            ring: ADVERTISE_STEP,
            last: ADVERTISE_STEP,
            max: u8::try_from(settings.ttl.max(1)).unwrap_or(u8::MAX),
            backs_off: settings.formation == Formation::Advertise,
            ..Self::default()
        }
    }

    pub(crate) fn on_other(&mut self, ttl: u8, state: HeadState) {
        let has_room = matches!(state, HeadState::Accepting | HeadState::AcceptingHeads);
        self.others += u32::from(has_room && ttl <= self.ring);
    }

    /// Returns the time to live of the due advertisement, `None` to skip it, and the next delay.
    pub(crate) fn next(&mut self, state: HeadState, interval: Duration) -> (Option<u8>, Duration) {
        let wider = self.ring.saturating_add(ADVERTISE_STEP).min(self.max);
        if !self.backs_off {
            (self.last, self.ring) = (self.ring, wider);
            return (Some(self.last), interval);
        }
        let enough = core::mem::take(&mut self.others) >= OTHERS_ENOUGH;
        let is_full = state == HeadState::NotAccepting;
        let again = interval * (1 << self.without_members);
        if again < INTERVAL_MAX {
            self.without_members += 1;
        }
        if enough || is_full {
            return (None, again.min(INTERVAL_MAX));
        }
        let next = if self.ring >= self.max { ADVERTISE_STEP } else { wider };
        (self.last, self.ring) = (self.ring, next);
        (Some(self.last), again.min(INTERVAL_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tram::settings::TramSettings;
    use std::vec::Vec;

    const INTERVAL: Duration = Duration::from_millis(500);

    fn rings(advertising: &mut Advertising, times: usize) -> Vec<(Option<u8>, u64)> {
        let next = |_| advertising.next(HeadState::Accepting, INTERVAL);
        let seconds = |(ring, again): (Option<u8>, Duration)| (ring, again.as_nanos() / 1_000_000);
        (0..times).map(next).map(seconds).collect()
    }

    #[test]
    fn to_whom_nobody_comes_shows_itself_less_and_less_often_in_rings_that_begin_anew() {
        let mut advertising = Advertising::new(&TramSettings { ttl: 5, ..TramSettings::default() });
        let first = [(Some(2), 500), (Some(4), 1000), (Some(5), 2000), (Some(2), 4000)];
        assert_eq!(rings(&mut advertising, 4), first);
        advertising.without_members = 0;
        assert_eq!(rings(&mut advertising, 1), [(Some(4), 500)]);
        let last = rings(&mut advertising, 300).pop();
        assert_eq!(last.map(|last| last.1), Some(60_000));
    }

    #[test]
    fn where_others_have_room_as_near_it_is_silent_and_so_is_one_without_room() {
        let mut advertising = Advertising::new(&TramSettings::default());
        let hear = |advertising: &mut Advertising, ttl, state| {
            (0..OTHERS_ENOUGH).for_each(|_| advertising.on_other(ttl, state));
        };
        hear(&mut advertising, 2, HeadState::AcceptingHeads);
        assert_eq!(rings(&mut advertising, 2), [(None, 500), (Some(2), 1000)]);
        hear(&mut advertising, 6, HeadState::Accepting);
        hear(&mut advertising, 4, HeadState::NotAccepting);
        assert_eq!(rings(&mut advertising, 1)[0].0, Some(4));
        assert_eq!(advertising.next(HeadState::NotAccepting, INTERVAL).0, None);
    }

    #[test]
    fn the_source_shows_itself_always() {
        let mut advertising = Advertising::new(&TramSettings { ttl: 5, ..TramSettings::default() });
        advertising.backs_off = false;
        (0..OTHERS_ENOUGH).for_each(|_| advertising.on_other(2, HeadState::Accepting));
        let all = [(Some(2), 500), (Some(4), 500), (Some(5), 500), (Some(5), 500)];
        assert_eq!(rings(&mut advertising, 4), all);
    }
}
