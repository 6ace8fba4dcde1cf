//! Peers that were heard, with their keys and replay windows.

use std::num::NonZeroUsize;

use lru::LruCache;

use crate::header::{Header, Role, Salt};
use crate::traffic::{PACKETS_PER_KEY, SessionSecret, TrafficKey};
use crate::window::Window;

/// How many peers' keys and windows are kept, about 1.5 KiB each. Only who has the group's key gets
/// in. Where there are more, the one that was silent for the longest is forgotten: its next
/// datagram costs a derivation, and an old one of its could be replayed to this end once more, as
/// the network itself might deliver one twice.
pub const PEERS_MAX: usize = 65_536;

/// The peers that were heard, and the sessions that they belong to.
pub(crate) struct Peers {
    known: LruCache<PeerKey, Peer>,
    sessions: LruCache<Salt, SessionSecret>,
}

/// By which a peer is known. One that has used up a traffic key counts as another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PeerKey {
    role: Role,
    salt: Salt,
    party: u64,
    epoch: u64,
}

pub(crate) struct Peer {
    pub(crate) key: TrafficKey,
    pub(crate) window: Window,
}

impl Peers {
    pub(crate) fn new(peers_max: usize) -> Self {
        let limit = |count| NonZeroUsize::new(count).expect("limits are above zero");
        // Not made with their limits at once, which would take their memory at once.
        let mut known = LruCache::unbounded();
        known.resize(limit(peers_max));
        let mut sessions = LruCache::unbounded();
        sessions.resize(limit(SESSIONS_MAX));
        Self { known, sessions }
    }

    pub(crate) fn get(&mut self, key: &PeerKey) -> Option<&mut Peer> {
        // Nearly always the one that was heard last.
        match self.known.peek_mru() {
            Some((last, _)) if last == key => self.known.iter_mut().next().map(|(_, peer)| peer),
            _ => self.known.get_mut(key),
        }
    }

    /// What the keys of a session are derived from, where it is known.
    pub(crate) fn session(&mut self, salt: Salt) -> Option<SessionSecret> {
        self.sessions.get(&salt).cloned()
    }

    /// Takes a peer in. It has proved that it has the group's key.
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

/// How many sessions' secrets are kept; they can be derived again.
const SESSIONS_MAX: usize = 1024;
