//! One end of a session: it seals what leaves and opens what comes.

use std::num::NonZeroUsize;
use std::time::Instant;

use lru::LruCache;

use crate::budget::Budget;
use crate::header::{Header, KeyHint, NoHeader, Role, Salt};
use crate::key::GroupKey;
use crate::peers::{PEERS_MAX, Peer, PeerKey, Peers};
use crate::random::fill_random;
use crate::traffic::{PACKETS_PER_KEY, SessionSecret, TrafficKey};
use crate::window::{Stale, Window};

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
    /// For datagrams of sessions that were heard, and of others.
    newcomers: Budget,
    strangers: Budget,
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
    /// By which of them.
    pub party: u64,
}

/// Why a datagram was not opened. None of these changes anything for datagrams that are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is not sealed: the other end uses no key.
    Plain,
    /// It is sealed by another version of faircast.
    Version,
    /// It is shorter than sealing makes it.
    Short,
    /// It is sealed with another key.
    OtherKey(KeyHint),
    /// It belongs to a session that this source does not send.
    OtherSession,
    /// It comes from a source, and this is one.
    WrongRole,
    /// This end has sealed it.
    Own,
    /// It is not what was sealed, or was sealed by who has not the key.
    Forged,
    /// It was opened before.
    Repeated,
    /// It is too old to know whether it was.
    Old,
    /// Too many unknown parties were heard in this moment.
    Busy,
}

/// How many datagrams were refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Not sealed.
    pub plain: u64,
    /// Sealed with another key.
    pub other_key: u64,
    /// Changed, forged, cut short or of another version.
    pub forged: u64,
    /// Repeated, or too old to know.
    pub repeated: u64,
    /// Of another session, of this end itself, or of who has no business here.
    pub foreign: u64,
    /// Of unknown parties, while too many came.
    pub busy: u64,
    /// What was wrong with the last one that shows a disagreement about keys.
    pub wrong_key: Option<WrongKey>,
}

/// How the keys of two ends disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongKey {
    /// The other end uses none.
    None,
    /// The other end uses this one.
    Other(KeyHint),
}

/// Why there is no [`Seal`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    Random,
}

impl Seal {
    /// The seal of a source: it draws a new session.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn source(key: GroupKey) -> Result<Self, SealError> {
        Ok(Self::new(key, Role::Source, Some(Salt(random()?)), u64::from_be_bytes(random()?)))
    }

    /// The seal of a receiver, for all sessions that it hears.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn receiver(key: GroupKey) -> Result<Self, SealError> {
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
            strangers: Budget::new(now),
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

    /// How many parties it knows.
    pub fn peers(&self) -> usize {
        self.peers.len()
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
            return Ok(Opened { plain, session, role, party });
        }
        let (known, budget) = match self.peers.session(session) {
            Some(secret) => (Some(secret), &mut self.newcomers),
            None if self.own.is_some() => (None, &mut self.newcomers),
            None => (None, &mut self.strangers),
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
        Ok(Opened { plain, session, role, party })
    }
}

/// A key that this end seals with, for as long as it lasts.
struct Outgoing {
    key: TrafficKey,
    epoch: u64,
}

impl Refusals {
    fn count(&mut self, refusal: Refusal) {
        let counter = match refusal {
            Refusal::Plain => {
                self.wrong_key = Some(WrongKey::None);
                &mut self.plain
            }
            Refusal::OtherKey(hint) => {
                self.wrong_key = Some(WrongKey::Other(hint));
                &mut self.other_key
            }
            Refusal::Version | Refusal::Short | Refusal::Forged => &mut self.forged,
            Refusal::Repeated | Refusal::Old => &mut self.repeated,
            Refusal::OtherSession | Refusal::WrongRole | Refusal::Own => &mut self.foreign,
            Refusal::Busy => &mut self.busy,
        };
        *counter += 1;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.plain + self.other_key + self.forged + self.repeated + self.foreign + self.busy
    }
}

impl From<NoHeader> for Refusal {
    fn from(none: NoHeader) -> Self {
        match none {
            NoHeader::Plain => Self::Plain,
            NoHeader::Version => Self::Version,
            NoHeader::Short => Self::Short,
        }
    }
}

impl From<Stale> for Refusal {
    fn from(stale: Stale) -> Self {
        match stale {
            Stale::Seen => Self::Repeated,
            Stale::Old => Self::Old,
        }
    }
}

fn random<const N: usize>() -> Result<[u8; N], SealError> {
    let mut bytes = [0; N];
    fill_random(&mut bytes).map_err(|_| SealError::Random)?;
    Ok(bytes)
}

/// How many sessions a receiver answers to at once without deriving keys again.
const OUTGOING_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("it is above zero");

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
