//! Advertisements of a head: their rings, their times, and when the head leaves them to others. In
//! a crowd all advertisements would exceed the data. So a head advertises in growing rings, halves
//! the frequency each time that no member comes, and stops if enough others are as near.

use faircast_base::Duration;

use crate::tram::settings::{Formation, TramSettings};
use crate::tram::wire::HeadState;

/// Other heads with room that are enough: those of a default interval at 30 a second (src: jrms).
const OTHERS_ENOUGH: u32 = 15;

/// Longest time between two advertisements without new members (src: jrms, for many heads).
const INTERVAL_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(in crate::tram) struct Advertising {
    ring: u8,
    /// Time to live of the last advertisement: its receivers must also learn that the head is full.
    pub(super) last: u8,
    step: u8,
    max: u8,
    is_modest: bool,
    /// Advertisements of other heads with room, within the ring, since the own one was last due.
    others: u32,
    in_vain: u32,
}

impl Advertising {
    pub(super) fn new(settings: &TramSettings) -> Self {
        let ttl = |hops: u32| u8::try_from(hops.max(1)).unwrap_or(u8::MAX);
        let step = ttl(settings.advertise_step);
        Self {
            ring: step,
            last: step,
            step,
            max: ttl(settings.ttl),
            is_modest: settings.formation == Formation::Advertise,
            others: 0,
            in_vain: 0,
        }
    }

    pub(super) fn always(&mut self) {
        self.is_modest = false;
    }

    pub(in crate::tram) fn on_other(&mut self, ttl: u8, state: HeadState) {
        let has_room = matches!(state, HeadState::Accepting | HeadState::AcceptingHeads);
        self.others += u32::from(has_room && ttl <= self.ring);
    }

    pub(super) fn on_member(&mut self) {
        self.in_vain = 0;
    }

    /// Returns the time to live of the due advertisement, `None` to skip it, and the next delay.
    pub(super) fn next(&mut self, state: HeadState, interval: Duration) -> (Option<u8>, Duration) {
        if !self.is_modest {
            self.last = self.ring;
            self.ring = self.ring.saturating_add(self.step).min(self.max);
            return (Some(self.last), interval);
        }
        let enough = core::mem::take(&mut self.others) >= OTHERS_ENOUGH;
        let is_full = state == HeadState::NotAccepting;
        let again = interval * (1 << self.in_vain);
        if again < INTERVAL_MAX {
            self.in_vain += 1;
        }
        if enough || is_full {
            return (None, again.min(INTERVAL_MAX));
        }
        self.last = self.ring;
        self.ring = match self.ring {
            ring if ring >= self.max => self.step,
            ring => ring.saturating_add(self.step).min(self.max),
        };
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
        advertising.on_member();
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
        advertising.always();
        (0..OTHERS_ENOUGH).for_each(|_| advertising.on_other(2, HeadState::Accepting));
        let all = [(Some(2), 500), (Some(4), 500), (Some(5), 500), (Some(5), 500)];
        assert_eq!(rings(&mut advertising, 4), all);
    }
}
