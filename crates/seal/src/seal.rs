//! One end of a session: it seals what leaves and opens what comes.

use std::num::NonZeroUsize;
use std::time::Instant;

use lru::LruCache;

use crate::budget::Budget;
use crate::header::{Header, KeyHint, Role, Salt};
use crate::key::{GroupKey, NoRandomness, random};
use crate::peers::{PEERS_MAX, Peer, PeerKey, Peers};
use crate::refusal::{Refusal, Refusals};
use crate::traffic::{PACKETS_PER_KEY, SessionSecret, TrafficKey};
use crate::window::Window;

/// One end of a session, or of all sessions that a receiver hears: it seals what leaves and opens
/// what comes.
///
/// It draws an id at random and counts its datagrams, so that no two are ever sealed alike; it must
/// not be cloned or kept from one run of a program to the next, and cannot be.
pub struct Seal {
    key: GroupKey,
    hint: KeyHint,
    role: Role,
    party: u64,
    counter: u64,
    /// The session of a source, who hears no other.
    own: Option<Salt>,
    outgoing: LruCache<Salt, Outgoing>,
    peers: Peers,
    /// For unknown parties of the own session, or of one that was heard before.
    newcomers: Budget,
    /// For parties of sessions not heard before.
    unknown_sessions: Budget,
    refusals: Refusals,
}

/// A datagram that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened<'a> {
    /// What was sealed.
    pub plain: &'a [u8],
    /// In which session.
    pub session: Salt,
    /// By whom.
    pub role: Role,
}

impl Seal {
    /// The seal of a source: it draws a new session.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn source(key: GroupKey) -> Result<Self, NoRandomness> {
        Ok(Self::new(key, Role::Source, Some(Salt(random()?)), u64::from_be_bytes(random()?)))
    }

    /// The seal of a receiver, for all sessions that it hears.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn receiver(key: GroupKey) -> Result<Self, NoRandomness> {
        Ok(Self::new(key, Role::Receiver, None, u64::from_be_bytes(random()?)))
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

    /// The session of a source; `None` for a receiver.
    pub fn session(&self) -> Option<Salt> {
        self.own
    }

    /// The first bytes of this end's key.
    pub fn hint(&self) -> KeyHint {
        self.hint
    }

    /// What it has refused so far.
    pub fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// Appends the sealed form of `plain` for `session` to `out`: [`OVERHEAD`](crate::OVERHEAD)
    /// bytes more, whatever its length.
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

    /// Opens a datagram in its place. What is refused is counted and changes nothing else.
    ///
    /// # Errors
    /// Why it was refused.
    pub fn open<'a>(&mut self, datagram: &'a mut [u8]) -> Result<Opened<'a>, Refusal> {
        let opened = self.try_open(datagram);
        if let Err(refusal) = opened {
            self.refusals.count(refusal);
        }
        opened
    }

    fn try_open<'a>(&mut self, datagram: &'a mut [u8]) -> Result<Opened<'a>, Refusal> {
        let header = Header::parse(datagram)?;
        // What costs least comes first: nothing is computed for datagrams that cannot be meant.
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
            peer.window.note(counter);
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
        window.note(counter);
        self.peers.admit(id, Peer { key, window }, secret);
        Ok(Opened { plain, session, role })
    }
}

/// A key that this end seals with, for as long as it lasts.
struct Outgoing {
    key: TrafficKey,
    epoch: u64,
}

/// How many sessions a receiver answers to at once without deriving keys again.
const OUTGOING_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("it is above zero");

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
