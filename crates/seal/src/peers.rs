//! Known peers, with their keys and replay windows.

use std::num::NonZeroUsize;

use lru::LruCache;

use crate::header::{Header, Role, Salt};
use crate::traffic::{PACKETS_PER_KEY, SessionSecret, TrafficKey};
use crate::window::Window;

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
