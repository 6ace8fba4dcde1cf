//! Addresses of a session's ends, for protocols whose packets carry the sender's number.

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use faircast_base::{Duration, Time};
use lru::LruCache;

use crate::ADDRESSES_MAX;

#[derive(Debug)]
pub(crate) struct Ends(LruCache<u64, End>);

#[derive(Clone, Copy, Debug)]
struct End {
    address: SocketAddr,
    since: Time,
    heard_at: Time,
    /// True if several packets came from the address, over [`FIRM_AFTER`].
    firm: bool,
    /// Firm address before the last move.
    previous: Option<SocketAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Located {
    There,
    /// The packet is the end's, but the end remains at this address.
    Elsewhere(SocketAddr),
    Moved(SocketAddr),
    False,
}

impl Default for Ends {
    fn default() -> Self {
        let mut all = LruCache::unbounded();
        all.resize(NonZeroUsize::new(ADDRESSES_MAX).expect("it is above zero"));
        Self(all)
    }
}

impl Ends {
    /// Handles a packet of end `number` from `from`. Any host can send the number, so an end moves
    /// only after [`MOVES_AFTER`] of silence, and a packet from the old address moves it back. With
    /// authenticated packets [`OVERLAP`] suffices, which distinguishes a move from late packets.
    pub(crate) fn locate(
        &mut self,
        now: Time,
        number: u64,
        from: SocketAddr,
        authenticated: bool,
    ) -> Located {
        let fresh = End { address: from, since: now, heard_at: now, firm: false, previous: None };
        let end = self.0.get_or_insert_mut(number, || fresh);
        if end.address == from {
            end.heard_at = now;
            end.firm |= now.since(end.since) >= FIRM_AFTER;
            return Located::There;
        }
        let silence = now.since(end.heard_at);
        let least = if authenticated { OVERLAP } else { MOVES_AFTER };
        let returns = end.previous == Some(from);
        if silence < least && (end.firm || authenticated) && !returns {
            return if authenticated { Located::Elsewhere(end.address) } else { Located::False };
        }
        let old = end.address;
        let previous = Some(old).filter(|_| end.firm && !returns);
        *end = End { previous, firm: returns, ..fresh };
        Located::Moved(old)
    }
}

const MOVES_AFTER: Duration = Duration::from_millis(1500);

/// Silence after which an authenticated end may move: more than packets overtake each other.
const OVERLAP: Duration = Duration::from_millis(300);

/// Time between packets after which an address is firm, so that nobody else gets the number.
pub(crate) const FIRM_AFTER: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    const ID: u64 = 7;

    /// Conclusions from one end's packets, each given by its time in milliseconds and its host.
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
