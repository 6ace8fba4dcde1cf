//! Known peers with their keys and replay windows, and a limit of derivations for unknown ones.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::header::{Header, Role, Salt};
use crate::refusal::Refusal;
use crate::traffic::{PACKETS_PER_KEY, SessionSecret, TrafficKey};

/// Most peers whose keys and windows are kept, about 1.5 KiB each. Above, the one silent longest is
/// removed, and one of its old datagrams could be replayed once.
pub const PEERS_MAX: usize = 65_536;

/// Peers and secrets of sessions; those used longest ago make room.
pub(crate) struct Peers {
    known: LruCache<PeerKey, Peer>,
    sessions: LruCache<Salt, SessionSecret>,
}

/// Identity of a peer. A peer with its next traffic key counts as another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PeerKey {
    role: Role,
    salt: Salt,
    party: u64,
    /// Number of the traffic key.
    epoch: u64,
}

pub(crate) struct Peer {
    pub(crate) key: TrafficKey,
    pub(crate) window: Window,
}

impl Peers {
    pub(crate) fn new(peers_max: usize) -> Self {
        let limit = |count| NonZeroUsize::new(count).expect("limits are above zero");
        // A cache created with its limit would allocate all its memory at once.
        let mut known = LruCache::unbounded();
        known.resize(limit(peers_max));
        let mut sessions = LruCache::unbounded();
        sessions.resize(limit(SESSIONS_MAX));
        Self { known, sessions }
    }

    pub(crate) fn get(&mut self, key: &PeerKey) -> Option<&mut Peer> {
        // Usually the peer of the last datagram.
        match self.known.peek_mru() {
            Some((last, _)) if last == key => self.known.iter_mut().next().map(|(_, peer)| peer),
            _ => self.known.get_mut(key),
        }
    }

    pub(crate) fn session(&mut self, salt: Salt) -> Option<SessionSecret> {
        self.sessions.get(&salt).cloned()
    }

    /// Adds a peer that has proved to have the group's key.
    pub(crate) fn admit(&mut self, key: PeerKey, peer: Peer, secret: SessionSecret) {
        self.sessions.put(key.salt, secret);
        self.known.put(key, peer);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }
}

impl PeerKey {
    pub(crate) fn of(header: &Header) -> Self {
        let Header { role, salt, party, counter, .. } = *header;
        Self { role, salt, party, epoch: counter / PACKETS_PER_KEY }
    }
}

/// Most session secrets in the cache; others can be derived again.
const SESSIONS_MAX: usize = 1024;

/// Limit of key derivations for unknown parties: [`PER_SECOND`] on average, [`BURST`] at once. Only
/// the derived key reveals a forged datagram of an unknown party. A derivation takes about 1 µs: a
/// flood takes a few per cent of a core. Meanwhile some newcomers retry, as after a loss.
#[derive(Debug)]
pub(crate) struct Budget {
    tokens: f64,
    filled_at: Instant,
}

impl Budget {
    pub(crate) fn new(now: Instant) -> Self {
        Self { tokens: BURST, filled_at: now }
    }

    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled_at).min(FULL_AFTER);
        // A clock that goes back must not stop the refill until it catches up.
        self.filled_at = now;
        self.tokens = (self.tokens + passed.as_secs_f64() * PER_SECOND).min(BURST);
        let has_token = self.tokens >= 1.0;
        if has_token {
            self.tokens -= 1.0;
        }
        has_token
    }
}

/// Average derivations per second: a group of 65 536 parties is known after four seconds.
pub(crate) const PER_SECOND: f64 = 16_384.0;
pub(crate) const BURST: f64 = 4096.0;
const FULL_AFTER: Duration = Duration::from_secs(1);

/// Largest distance of a datagram behind its peer's newest, for receive queues: 4 ms at 10 Gbit/s.
pub(crate) const WINDOW_PACKETS: u64 = 4096;

/// Replay window: one bit for each of the last [`WINDOW_PACKETS`] counters.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// One past the greatest counter seen.
    end: u64,
    bits: Box<[u64; WORDS]>,
}

impl Window {
    pub(crate) fn new() -> Self {
        Self { end: 0, bits: Box::new([0; WORDS]) }
    }

    pub(crate) fn check(&self, counter: u64) -> Result<(), Refusal> {
        if counter >= self.end {
            return Ok(());
        }
        if self.end - counter > WINDOW_PACKETS {
            return Err(Refusal::Old);
        }
        let (word, bit) = bit_of(counter);
        if self.bits[word] & bit == 0 { Ok(()) } else { Err(Refusal::Repeated) }
    }

    /// Marks a counter that has passed [`check`](Self::check) and is authentic.
    pub(crate) fn insert(&mut self, counter: u64) {
        if counter >= self.end {
            if counter - self.end >= WINDOW_PACKETS {
                self.bits.fill(0);
            } else {
                self.clear(self.end, counter);
            }
            self.end = counter + 1;
        }
        let (word, bit) = bit_of(counter);
        self.bits[word] |= bit;
    }

    /// Clears `first ..= last`, less than a window, by words if possible.
    fn clear(&mut self, first: u64, last: u64) {
        let mut counter = first;
        while counter <= last {
            let (word, bit) = bit_of(counter);
            if counter.is_multiple_of(64) && last - counter >= 63 {
                self.bits[word] = 0;
                counter += 64;
            } else {
                self.bits[word] &= !bit;
                counter += 1;
            }
        }
    }
}

fn bit_of(counter: u64) -> (usize, u64) {
    let index = counter % WINDOW_PACKETS;
    ((index / 64) as usize, 1 << (index % 64))
}

const WORDS: usize = (WINDOW_PACKETS / 64) as usize;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_flood_gets_a_burst_and_then_its_share_of_time() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        let taken = |budget: &mut Budget, ms: u64| {
            let now = start + Duration::from_millis(ms);
            (0..100_000).filter(|_| budget.take(now)).count()
        };
        assert_eq!(taken(&mut budget, 0), 4096);
        assert_eq!(taken(&mut budget, 0), 0);
        assert_eq!(taken(&mut budget, 125), 2048);
        assert_eq!(taken(&mut budget, 3_600_000), 4096);
        // A clock that goes back adds no tokens; then the refill continues.
        assert_eq!(taken(&mut budget, 0), 0);
        assert_eq!(taken(&mut budget, 125), 2048);
    }

    #[test]
    fn the_edges_of_the_window_are_where_they_are_said_to_be() {
        let mut window = Window::new();
        let last = 10 * WINDOW_PACKETS;
        window.insert(last);
        assert_eq!(window.check(last), Err(Refusal::Repeated));
        assert_eq!(window.check(last + 1), Ok(()));
        assert_eq!(window.check(last + 1 - WINDOW_PACKETS), Ok(()));
        assert_eq!(window.check(last - WINDOW_PACKETS), Err(Refusal::Old));
    }

    proptest! {
        #[test]
        fn the_window_agrees_with_a_set(steps in prop::collection::vec(
            prop_oneof![0..200u64, 0..9000u64, 3900..4300u64], 1..400,
        ), back in prop::collection::vec(0..5000u64, 1..400)) {
            let mut window = Window::new();
            let mut seen = BTreeSet::new();
            let mut newest = 0;
            for (step, back) in steps.iter().zip(&back) {
                for counter in [newest + step, (newest + step).saturating_sub(*back)] {
                    let end = seen.last().map_or(0, |last| last + 1);
                    let want = if counter < end && end - counter > WINDOW_PACKETS {
                        Err(Refusal::Old)
                    } else if seen.contains(&counter) {
                        Err(Refusal::Repeated)
                    } else {
                        Ok(())
                    };
                    prop_assert_eq!(window.check(counter), want);
                    if want.is_ok() {
                        window.insert(counter);
                        seen.insert(counter);
                        newest = newest.max(counter);
                    }
                }
            }
        }
    }
}
