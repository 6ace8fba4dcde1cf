//! Ends of a session that number their packets' sender, and the address of each end.

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use faircast_base::{Duration, Time};
use lru::LruCache;

use crate::ADDRESSES_MAX;

/// Addresses of ends by their numbers. The end that was heard longest ago makes room.
#[derive(Debug)]
pub(crate) struct Ends(LruCache<u64, End>);

#[derive(Clone, Copy, Debug)]
struct End {
    at: SocketAddr,
    since: Time,
    heard: Time,
    /// True if it was heard there more than once, for some time.
    firm: bool,
    before: Option<SocketAddr>,
}

/// Evidence of a packet on the place of the end that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Located {
    /// The end is where the packet comes from.
    There,
    /// The packet is the end's, which is at this address still.
    Elsewhere(SocketAddr),
    /// The end has come from this address.
    Moved(SocketAddr),
    /// The packet is not of that end.
    False,
}

impl Default for Ends {
    fn default() -> Self {
        // Not made with its limit at once, which would take its memory at once.
        let mut all = LruCache::unbounded();
        all.resize(NonZeroUsize::new(ADDRESSES_MAX).expect("it is above zero"));
        Self(all)
    }
}

impl Ends {
    /// Notes that a packet of end `number` has come from `from`.
    ///
    /// An end is where its first packet came from. Any host can send its number, so an end moves only after
    /// [`MOVES_AFTER`] of silence from its address. The end returns as soon as the earlier address speaks again.
    /// Authenticated packets move an end after a shorter silence, by which late packets differ from a move.
    pub(crate) fn locate(
        &mut self,
        now: Time,
        number: u64,
        from: SocketAddr,
        authenticated: bool,
    ) -> Located {
        let fresh = End { at: from, since: now, heard: now, firm: false, before: None };
        let end = self.0.get_or_insert_mut(number, || fresh);
        if end.at == from {
            end.heard = now;
            end.firm |= now.since(end.since) >= FIRM_AFTER;
            return Located::There;
        }
        let silence = now.since(end.heard);
        let least = if authenticated { OVERLAP } else { MOVES_AFTER };
        let returns = end.before == Some(from);
        if silence < least && (end.firm || authenticated) && !returns {
            return if authenticated { Located::Elsewhere(end.at) } else { Located::False };
        }
        let old = end.at;
        let before = Some(old).filter(|_| end.firm && !returns);
        *end = End { before, firm: returns, ..fresh };
        Located::Moved(old)
    }
}

/// Silence after which an end may be at another address.
const MOVES_AFTER: Duration = Duration::from_millis(1500);

/// Silence before a move where packets are authenticated.
const OVERLAP: Duration = Duration::from_millis(300);

/// Time over which an end must have been heard at an address, so that others cannot take its number at once.
pub(crate) const FIRM_AFTER: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    const ID: u64 = 7;

    /// Evidence of the packets of one end, each given by its time in milliseconds and its host.
    fn located(authenticated: bool, packets: &[(u64, u8)]) -> Vec<Located> {
        let mut ends = Ends::default();
        let take = |&(ms, host): &(u64, u8)| {
            let now = Time::ZERO + Duration::from_millis(ms);
            ends.locate(now, ID, at(host), authenticated)
        };
        packets.iter().map(take).collect()
    }

    fn at(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 9))
    }

    #[test]
    fn an_end_moves_after_a_silence_and_returns_at_once() {
        use Located::{False, Moved, There};
        let moves = 600 + MOVES_AFTER.as_millis();
        let packets = [
            (0, 1),
            (600, 1),
            (700, 2),
            (moves - 1, 2),
            (moves, 2),
            (moves + 100, 2),
            (moves + 1000, 1),
            (moves + 1001, 2),
        ];
        let want = [There, There, False, False, Moved(at(1)), There, Moved(at(2)), False];
        assert_eq!(located(false, &packets), want);
    }

    #[test]
    fn a_number_that_was_only_just_heard_protects_nobody() {
        use Located::{Moved, There};
        assert_eq!(located(false, &[(0, 2), (100, 1), (200, 1)]), [There, Moved(at(2)), There]);
    }

    #[test]
    fn authentic_packets_move_an_end_at_once() {
        use Located::{Elsewhere, Moved, There};
        let packets = [(0, 1), (1000, 1), (1001, 2), (1400, 2), (1401, 2)];
        let want = [There, There, Elsewhere(at(1)), Moved(at(1)), There];
        assert_eq!(located(true, &packets), want);
    }

    #[test]
    fn the_table_is_bounded() {
        let mut ends = Ends::default();
        for number in 0..ADDRESSES_MAX as u64 + 10 {
            ends.locate(Time::ZERO, number, at(1), false);
        }
        assert_eq!(ends.0.len(), ADDRESSES_MAX);
    }
}
