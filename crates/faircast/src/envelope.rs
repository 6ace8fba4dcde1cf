//! Sealing of datagrams for drivers, and reports of keys that disagree.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use faircast_base::Time;
use faircast_net::Envelope;
use faircast_proto::pgm::wire::{Tsi, peek};
use faircast_proto::{credit, tram};
use faircast_seal::{
    KeyHint, NoRandomness, OVERHEAD, Refusal, Refusals, Role, Salt, Seal, key_hint,
};
use lru::LruCache;
use parking_lot::Mutex;

use crate::GroupKey;
use crate::check::wire;

/// Key mismatch: another key at the other end, or a key at one end only. Any host can forge it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyMismatch {
    /// Address of the other end.
    pub peer: SocketAddr,
    /// First digits of the other end's key id; `None` for no key.
    pub theirs: Option<KeyHint>,
    /// First digits of this end's key id; `None` for no key.
    pub ours: Option<KeyHint>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Incidents {
    pub(crate) refusals: Refusals,
    pub(crate) mismatch: Option<KeyMismatch>,
}

pub(crate) type Watched = Arc<Mutex<Incidents>>;

/// Seals the datagrams of one end; without a key, detects sealed datagrams.
pub(crate) struct Wrapper {
    seal: Option<Seal>,
    side: Side,
    incidents: Incidents,
    watched: Watched,
    opened: LruCache<IpAddr, Time>,
    suspects: LruCache<IpAddr, u32>,
    /// True if unsealed credits precede the sealed part. Relays pass no notices.
    pub(crate) relayed: bool,
    answer: Option<Vec<u8>>,
}

enum Side {
    Source { salt: Salt },
    Receiver { sessions: LruCache<Tsi, Salt>, notices: Notices },
}

impl Wrapper {
    pub(crate) fn source(key: Option<GroupKey>, watched: Watched) -> Result<Self, NoRandomness> {
        let seal = key.map(Seal::source).transpose()?;
        let salt = seal.as_ref().and_then(Seal::session).unwrap_or(Salt([0; 16]));
        Ok(Self::of(seal, Side::Source { salt }, watched))
    }

    pub(crate) fn receiver(key: Option<GroupKey>, watched: Watched) -> Result<Self, NoRandomness> {
        let seal = key.map(Seal::receiver).transpose()?;
        let sessions = LruCache::new(SESSIONS_MAX);
        let side = Side::Receiver { sessions, notices: Notices::default() };
        Ok(Self::of(seal, side, watched))
    }

    fn of(seal: Option<Seal>, side: Side, watched: Watched) -> Self {
        let incidents = Incidents::default();
        let (opened, suspects) = (LruCache::new(PEERS_MAX), LruCache::new(PEERS_MAX));
        Self { seal, side, incidents, watched, opened, suspects, relayed: false, answer: None }
    }

    fn note_opened(&mut self, now: Time, peer: IpAddr) {
        if let Some((last, at)) = self.opened.iter_mut().next()
            && *last == peer
        {
            *at = now;
            return;
        }
        if self.opened.put(peer, now).is_some() {
            return;
        }
        self.suspects.pop(&peer);
        if self.incidents.mismatch.is_some_and(|mismatch| mismatch.peer.ip() == peer) {
            self.incidents.mismatch = None;
            *self.watched.lock() = self.incidents;
        }
    }

    /// True if `peer` seems to have another key. Damaged and foreign datagrams cannot be opened
    /// either: a peer opened lately never disagrees, and any other needs several datagrams.
    fn disagrees(&mut self, now: Time, peer: IpAddr) -> bool {
        let lately = |at: &Time| now.since(*at) < OPENED_LATELY;
        if self.opened.peek(&peer).is_some_and(lately) {
            return false;
        }
        if !self.opened.iter().any(|(_, at)| lately(at)) {
            return true;
        }
        let count = self.suspects.get_or_insert_mut(peer, || 0);
        *count = count.saturating_add(1);
        *count >= SUSPECT_DATAGRAMS
    }

    fn refused(&mut self, now: Time, peer: SocketAddr, theirs: Option<Option<KeyHint>>) {
        if let Some(theirs) = theirs.filter(|_| self.disagrees(now, peer.ip())) {
            let ours = self.seal.as_ref().map(Seal::hint);
            self.incidents.mismatch = Some(KeyMismatch { peer, theirs, ours });
            if let (Side::Receiver { notices, .. }, false) = (&mut self.side, self.relayed) {
                let mut notice = Vec::new();
                match &mut self.seal {
                    Some(seal) => seal.seal(Salt([0; 16]), &[], &mut notice),
                    None => notice.resize(NOTICE_BYTES, 0),
                }
                notices.send(peer, &notice);
            }
        }
        if let Some(seal) = &self.seal {
            self.incidents.refusals = seal.refusals();
        }
        *self.watched.lock() = self.incidents;
    }
}

impl Envelope for Wrapper {
    fn authenticates(&self) -> bool {
        self.seal.is_some()
    }

    fn overhead(&self) -> usize {
        overhead(self.seal.is_some())
    }

    fn seal(&mut self, packet: &[u8], out: &mut Vec<u8>) {
        let clear = if self.relayed { credit::clear_bytes(packet) } else { 0 };
        let (clear, plain) = packet.split_at(clear);
        out.extend_from_slice(clear);
        if plain.is_empty() && self.relayed {
            return;
        }
        let Some(seal) = &mut self.seal else { return out.extend_from_slice(plain) };
        let salt = match &self.side {
            Side::Source { salt } => *salt,
            Side::Receiver { sessions, .. } => {
                let known = session_of(plain).and_then(|tsi| sessions.peek(&tsi));
                // A machine answers only sessions it has received: no source accepts this.
                known.copied().unwrap_or(Salt([0; 16]))
            }
        };
        seal.seal(salt, plain, out);
    }

    fn open<'a>(
        &mut self,
        now: Time,
        from: SocketAddr,
        datagram: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        let clear = if self.relayed { credit::clear_bytes(datagram) } else { 0 };
        if clear == 0 {
            return self.open_sealed(now, from, datagram);
        }
        if clear == datagram.len() {
            return Some(datagram);
        }
        let base = datagram.as_ptr() as usize;
        let opened = self.open_sealed(now, from, &mut datagram[clear..])?;
        let (start, len) = (opened.as_ptr() as usize - base, opened.len());
        datagram.copy_within(..clear, start - clear);
        datagram.get(start - clear..start + len)
    }

    fn answer(&mut self) -> Option<Vec<u8>> {
        self.answer.take()
    }
}

impl Wrapper {
    fn open_sealed<'a>(
        &mut self,
        now: Time,
        from: SocketAddr,
        datagram: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        let theirs = match &mut self.seal {
            None => match key_hint(datagram) {
                None if *datagram == [0; NOTICE_BYTES] => return None,
                None => {
                    let answer = wire::answer(datagram);
                    if let (Some(answer), Side::Receiver { .. }) = (answer, &self.side) {
                        self.answer = Some(answer.to_vec());
                        return None;
                    }
                    self.note_opened(now, from.ip());
                    return Some(datagram);
                }
                theirs => Some(theirs),
            },
            Some(seal) => match seal.open(datagram) {
                Ok(opened) => {
                    let answer = wire::answer(opened.plain);
                    if let (Some(answer), Side::Receiver { .. }) = (answer, &self.side) {
                        seal.seal(opened.session, &answer, self.answer.insert(Vec::new()));
                        return None;
                    }
                    if opened.role == Role::Source
                        && let Side::Receiver { sessions, .. } = &mut self.side
                        && let Some(tsi) = session_of(opened.plain)
                        && sessions.peek_mru() != Some((&tsi, &opened.session))
                    {
                        sessions.put(tsi, opened.session);
                    }
                    self.note_opened(now, from.ip());
                    return Some(opened.plain);
                }
                Err(Refusal::Plain) => Some(None),
                Err(Refusal::OtherKey(theirs)) => Some(Some(theirs)),
                Err(_) => None,
            },
        };
        self.refused(now, from, theirs);
        None
    }
}

impl fmt::Display for KeyMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, theirs, ours } = self;
        match theirs {
            Some(theirs) => write!(f, "{peer} uses the key {theirs}..., ")?,
            None => write!(f, "{peer} uses no key, ")?,
        }
        match ours {
            Some(ours) => write!(f, "this end uses the key {ours}...; ")?,
            None => write!(f, "this end uses none; ")?,
        }
        f.write_str("nothing can pass until both use the same key or none")
    }
}

fn session_of(packet: &[u8]) -> Option<Tsi> {
    let tram = tram::peek(packet).map(|(session, _)| tram::tsi_of(session));
    tram.or_else(|| peek(packet).map(|(_, tsi)| tsi))
}

pub(crate) const fn overhead(sealed: bool) -> usize {
    if sealed { OVERHEAD } else { 0 }
}

/// Notices to sources about unopened packets. Any host can forge a notice: it is only shown.
#[derive(Default)]
struct Notices {
    socket: Option<UdpSocket>,
    sent_at: Option<Instant>,
}

impl Notices {
    fn send(&mut self, to: SocketAddr, notice: &[u8]) {
        let now = Instant::now();
        if self.sent_at.is_some_and(|at| now.duration_since(at) < NOTICE_INTERVAL) {
            return;
        }
        self.sent_at = Some(now);
        let fits = |socket: &UdpSocket| {
            socket.local_addr().is_ok_and(|local| local.is_ipv4() == to.is_ipv4())
        };
        if !self.socket.as_ref().is_some_and(fits) {
            self.socket = UdpSocket::bind((unspecified(to), 0)).ok();
        }
        if let Some(socket) = &self.socket {
            let _ = socket.set_nonblocking(true).and_then(|()| socket.send_to(notice, to));
        }
    }
}

/// Most sessions of a receiver; the least recently used one makes room.
const SESSIONS_MAX: NonZeroUsize = NonZeroUsize::new(64).expect("it is above zero");
/// Most peers; time for which an opened datagram proves a key, and unopened ones against it.
const PEERS_MAX: NonZeroUsize = SESSIONS_MAX;
const OPENED_LATELY: faircast_base::Duration = faircast_base::Duration::from_secs(30);
const SUSPECT_DATAGRAMS: u32 = 3;
const NOTICE_BYTES: usize = 16;
const NOTICE_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) fn unspecified(family: SocketAddr) -> IpAddr {
    if family.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(session: u8, up: bool) -> Vec<u8> {
        let mut packet = vec![0; 40];
        let (source, data) = ([0x80, session], [0x1d, 0x4c]);
        packet[..2].copy_from_slice(if up { &data } else { &source });
        packet[2..4].copy_from_slice(if up { &source } else { &data });
        packet[4] = if up { 0x08 } else { 0x00 };
        packet[8..14].copy_from_slice(b"source");
        packet
    }

    fn key(number: u8) -> Option<GroupKey> {
        (number > 0).then(|| GroupKey::from_bytes([number; 32]))
    }

    fn sealed(by: &mut Wrapper, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        by.seal(plain, &mut out);
        assert_eq!(out.len(), plain.len() + by.overhead());
        out
    }

    #[test]
    fn a_receiver_answers_each_of_several_sources_in_its_session() {
        let from: SocketAddr = "10.0.0.1:7500".parse().unwrap();
        let watched = Watched::default();
        let mut sources: Vec<_> =
            (0..3).map(|_| Wrapper::source(key(1), Watched::default()).unwrap()).collect();
        let mut receiver = Wrapper::receiver(key(1), watched.clone()).unwrap();
        for (number, source) in sources.iter_mut().enumerate() {
            let mut down = sealed(source, &packet(number as u8, false));
            assert_eq!(
                receiver.open(Time::ZERO, from, &mut down),
                Some(&packet(number as u8, false)[..])
            );
        }
        for (number, source) in sources.iter_mut().enumerate() {
            let up = packet(number as u8, true);
            let mut sealed = sealed(&mut receiver, &up);
            assert_eq!(source.open(Time::ZERO, from, &mut sealed), Some(&up[..]));
        }
        assert_eq!(*watched.lock(), Incidents::default());
    }

    #[test]
    fn ends_whose_keys_disagree_hear_of_it_on_both_sides() {
        for (ours, theirs, at_receiver, at_source) in [
            (1, 2, "uses the key", "this end uses the key"),
            (1, 0, "uses the key", "this end uses the key"),
            (0, 2, "uses no key", "this end uses none"),
        ] {
            let heard = UdpSocket::bind("127.0.0.1:0").unwrap();
            heard.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let here = heard.local_addr().unwrap();
            let (up, down) = (Watched::default(), Watched::default());
            let mut source = Wrapper::source(key(ours), up.clone()).unwrap();
            let mut receiver = Wrapper::receiver(key(theirs), down.clone()).unwrap();
            let mut packet = sealed(&mut source, &packet(1, false));
            assert_eq!(receiver.open(Time::ZERO, here, &mut packet), None);
            let said = down.lock().mismatch.unwrap();
            assert!(said.to_string().contains(at_receiver), "{said}");
            let mut notice = [0; 1500];
            let (len, from) = heard.recv_from(&mut notice).unwrap();
            assert_eq!(source.open(Time::ZERO, from, &mut notice[..len]), None);
            let said = up.lock().mismatch.unwrap();
            assert_eq!(said.peer, from);
            assert!(said.to_string().contains(at_source), "{said}");
            assert_eq!(receiver.open(Time::ZERO, here, &mut packet), None);
            heard.set_nonblocking(true).unwrap();
            assert!(heard.recv_from(&mut notice).is_err());
        }
    }

    #[test]
    fn damaged_datagrams_of_a_session_that_is_heard_do_not_say_that_it_cannot_be() {
        let [from, other] =
            ["10.0.0.1:7500", "10.0.0.2:7500"].map(|address| address.parse().unwrap());
        let watched = Watched::default();
        let mut source = Wrapper::source(key(1), Watched::default()).unwrap();
        let mut receiver = Wrapper::receiver(key(1), watched.clone()).unwrap();
        for number in 0..20 {
            let mut whole = sealed(&mut source, &packet(1, false));
            let mut damaged = whole.clone();
            damaged[number % 8] ^= 0x10;
            assert!(receiver.open(Time::ZERO, from, &mut whole).is_some());
            assert_eq!(receiver.open(Time::ZERO, from, &mut damaged), None);
            let mismatch = watched.lock().mismatch;
            assert_eq!(mismatch, None, "after {number}");
        }
        for _ in 0..SUSPECT_DATAGRAMS {
            receiver.open(Time::ZERO, other, &mut packet(2, false));
        }
        assert!(watched.lock().mismatch.is_some_and(|mismatch| mismatch.peer == other));
        let mut unkeyed = packet(1, false);
        receiver.open(Time::ZERO + OPENED_LATELY, from, &mut unkeyed);
        assert!(watched.lock().mismatch.is_some_and(|mismatch| mismatch.peer == from));
    }

    #[test]
    fn without_keys_datagrams_pass_as_they_are() {
        let from: SocketAddr = "10.0.0.1:7500".parse().unwrap();
        let mut source = Wrapper::source(None, Watched::default()).unwrap();
        let mut receiver = Wrapper::receiver(None, Watched::default()).unwrap();
        let mut down = sealed(&mut source, &packet(1, false));
        assert_eq!(down, packet(1, false));
        assert_eq!(receiver.open(Time::ZERO, from, &mut down), Some(&packet(1, false)[..]));
        assert_eq!(source.open(Time::ZERO, from, &mut [0; NOTICE_BYTES]), None);
    }
}
