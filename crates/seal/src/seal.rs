//! Seal of an end: seals outgoing and opens incoming datagrams.

use std::num::NonZeroUsize;
use std::time::Instant;

use lru::LruCache;

use crate::header::{Header, KeyHint, Role, Salt};
use crate::key::{GroupKey, NoRandomness, random};
use crate::peers::{Budget, PEERS_MAX, Peer, PeerKey, Peers, Window};
use crate::refusal::{Refusal, Refusals};
use crate::traffic::{PACKETS_PER_KEY, SessionSecret, TrafficKey};

/// Seal of one session's source, or of a receiver for all its sessions. A random id and a counter
/// make each datagram unique: a seal must not be cloned, or saved for the next run.
pub struct Seal {
    key: GroupKey,
    hint: KeyHint,
    role: Role,
    party: u64,
    counter: u64,
    /// Session of a source, which takes no other.
    own: Option<Salt>,
    outgoing: LruCache<Salt, Outgoing>,
    peers: Peers,
    /// Budget for unknown parties of known sessions.
    newcomers: Budget,
    /// Budget for parties of unknown sessions.
    unknown_sessions: Budget,
    refusals: Refusals,
}

/// Opened datagram: decrypted content, session, and role of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Opened<'a> {
    pub plain: &'a [u8],
    pub session: Salt,
    pub role: Role,
}

impl Seal {
    /// Creates the seal of a source, with a new session; fails without random bytes.
    pub fn source(key: GroupKey) -> Result<Self, NoRandomness> {
        let session = Salt(*random()?);
        Ok(Self::new(key, Role::Source, Some(session), u64::from_be_bytes(*random()?)))
    }

    /// Creates the seal of a receiver for all sessions; fails without random bytes.
    pub fn receiver(key: GroupKey) -> Result<Self, NoRandomness> {
        Ok(Self::new(key, Role::Receiver, None, u64::from_be_bytes(*random()?)))
    }

    fn new(key: GroupKey, role: Role, own: Option<Salt>, party: u64) -> Self {
        let [a, b, c, ..] = key.id().0;
        let now = Instant::now();
        Self {
            hint: KeyHint([a, b, c]),
            key,
            role,
            party,
            counter: 0,
            own,
            outgoing: LruCache::new(OUTGOING_MAX),
            peers: Peers::new(PEERS_MAX),
            newcomers: Budget::new(now),
            unknown_sessions: Budget::new(now),
            refusals: Refusals::default(),
        }
    }

    /// Returns the session of a source; `None` for a receiver.
    pub fn session(&self) -> Option<Salt> {
        self.own
    }

    /// Returns the first bytes of the key's id.
    pub fn hint(&self) -> KeyHint {
        self.hint
    }

    /// Returns the counters of refused datagrams.
    pub fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// Seals `plain` for `session` into `out`, [`OVERHEAD`](crate::OVERHEAD) bytes longer.
    pub fn seal(&mut self, session: Salt, plain: &[u8], out: &mut Vec<u8>) {
        let counter = self.counter;
        self.counter += 1;
        let (role, party, key) = (self.role, self.party, self.hint);
        let header = Header { role, key, salt: session, party, counter }.write();
        let epoch = counter / PACKETS_PER_KEY;
        if let Some(outgoing) = self.outgoing.get(&session)
            && outgoing.epoch == epoch
        {
            return outgoing.key.seal(&header, counter, plain, out);
        }
        let key = SessionSecret::new(&self.key, session).traffic(role, party, counter);
        key.seal(&header, counter, plain, out);
        self.outgoing.put(session, Outgoing { key, epoch });
    }

    /// Opens a datagram in place. A refused datagram is counted and changes nothing else.
    pub fn open<'a>(&mut self, datagram: &'a mut [u8]) -> Result<Opened<'a>, Refusal> {
        let opened = self.try_open(datagram);
        if let Err(refusal) = opened {
            self.refusals.count(refusal);
        }
        opened
    }

    fn try_open<'a>(&mut self, datagram: &'a mut [u8]) -> Result<Opened<'a>, Refusal> {
        let header = Header::parse(datagram)?;
        // The cheapest checks come first: nothing is computed for datagrams of other recipients.
        if header.key != self.hint {
            return Err(Refusal::OtherKey(header.key));
        }
        if self.own.is_some_and(|own| own != header.salt) {
            return Err(Refusal::OtherSession);
        }
        if self.role == Role::Source && header.role == Role::Source {
            return Err(Refusal::WrongRole);
        }
        if header.party == self.party {
            return Err(Refusal::Own);
        }
        let Header { counter, salt: session, role, party, .. } = header;
        let id = PeerKey::of(&header);
        if let Some(peer) = self.peers.get(&id) {
            peer.window.check(counter)?;
            let plain = peer.key.open(counter, datagram).map_err(|_| Refusal::Forged)?;
            peer.window.insert(counter);
            return Ok(Opened { plain, session, role });
        }
        let (known, budget) = match self.peers.session(session) {
            Some(secret) => (Some(secret), &mut self.newcomers),
            None if self.own.is_some() => (None, &mut self.newcomers),
            None => (None, &mut self.unknown_sessions),
        };
        if !budget.take(Instant::now()) {
            return Err(Refusal::Busy);
        }
        let secret = known.unwrap_or_else(|| SessionSecret::new(&self.key, session));
        let key = secret.traffic(role, party, counter);
        let plain = key.open(counter, datagram).map_err(|_| Refusal::Forged)?;
        let mut window = Window::new();
        window.insert(counter);
        self.peers.admit(id, Peer { key, window }, secret);
        Ok(Opened { plain, session, role })
    }
}

struct Outgoing {
    key: TrafficKey,
    /// Number of the key: the counter divided by [`PACKETS_PER_KEY`].
    epoch: u64,
}

/// Most sessions for which a receiver keeps a traffic key.
const OUTGOING_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("it is above zero");

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
