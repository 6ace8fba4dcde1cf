//! The demultiplexer of PGM and TRAM: sessions by their TSIs, and where the source of each is.

use std::net::{IpAddr, SocketAddr};

use faircast_base::{Duration, NodeId, Seq, Time};
use faircast_proto::pgm::SpmOrder;
use faircast_proto::pgm::wire::{Body, Packet, PacketType, Spm, Tsi, peek};
use faircast_proto::tram;
use faircast_proto::{Machine, credit};

use crate::book::native;
use crate::demux::{Arrival, Demux, Found};
use crate::ends::{Ends, FIRM_AFTER, Located};
use crate::{AddressBook, Live, SessionId, Sockets, Upstream};

/// How a receiver of PGM knows a session's source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgmSettings {
    /// Whether a receiver believes network elements that name themselves in SPMs. Default false:
    /// anybody could claim to be one and aim answers at a third party.
    pub elements: bool,
    /// Time without a new SPM of its source after which a session at a receiver may move to another
    /// address that sends one. Default 60 s, twice as long as sources of PGM are silent.
    pub moves_after: Duration,
    /// Whether sources answer their receivers, so that the application can
    /// [confirm](crate::Live::confirm) that a session is where it is heard. One that is not
    /// confirmed follows the newest SPM at once: whoever was heard first may only have repeated
    /// what it had heard, and the source itself is always ahead of that. Default false.
    pub confirms: bool,
    /// True behind relays: packets carry credits in front, or credits alone. Default false.
    pub relayed: bool,
}

impl Default for PgmSettings {
    fn default() -> Self {
        let moves_after = Duration::from_secs(60);
        Self { elements: false, moves_after, confirms: false, relayed: false }
    }
}

/// A session of PGM or TRAM that was heard and that no machine takes part in.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'a> {
    /// When.
    pub now: Time,
    /// The session.
    pub tsi: Tsi,
    /// The data-destination port of PGM that its packets name.
    pub data_port: u16,
    /// The UDP address from which the packet came.
    pub from: SocketAddr,
    /// The node that it is from.
    pub source: NodeId,
    /// Data or an SPM; of TRAM always data.
    pub kind: PacketType,
    /// The whole packet, which decodes.
    pub packet: &'a [u8],
}

/// Tells PGM's sessions apart. The key is a session's number; without one a source takes every packet,
/// and a receiver those of the first session that is heard.
#[derive(Debug, Default)]
pub struct PgmDemux {
    settings: PgmSettings,
    /// The oldest first.
    sessions: Vec<KnownSession>,
    /// Sessions that the application left alone, and when.
    declined: Vec<(Tsi, Time)>,
}

#[derive(Debug, Default)]
struct KnownSession {
    id: SessionId,
    tsi: Option<Tsi>,
    /// At a receiver: where the session's packets come from.
    source: Option<Peer>,
    /// At a receiver: the SPMs of the source, and since when there is no newer one.
    spms: SpmOrder,
    newest_at: Time,
    since: Time,
    /// At a receiver: whether the source has answered from where it is heard.
    confirmed: bool,
    /// Time of the first packet from the present address; and true once packets came from there for some time.
    here_since: Time,
    firm: bool,
    /// Address of the source before it moved. A new packet from there takes the session back, once.
    before: Option<IpAddr>,
    /// Whether receivers speak with each other: it is one of TRAM.
    among_receivers: bool,
    /// TRAM only: ends by the numbers that their packets carry.
    ends: Ends,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Peer {
    address: SocketAddr,
    node: NodeId,
}

impl KnownSession {
    /// True if a packet is from the session's source: it came from `from`, and is the SPM of number `spm` or another
    /// packet.
    ///
    /// A session is where its first packet came from. The source may have moved since, or the first packet may have
    /// been a repetition by another host. A newer SPM therefore moves the session if no new SPM has come for
    /// `moves_after`, or if the source has never answered. Repeated SPMs move nothing. A host that repeats new ones
    /// loses the session again: a newer SPM of the source from its address before takes the session back at once. The
    /// source must have answered there or, if sources do not answer, have sent from there for some time. Where
    /// packets are authenticated the newest SPM gives the source's address at once.
    fn is_from_source(
        &mut self,
        now: Time,
        from: SocketAddr,
        spm: Option<Seq>,
        authenticated: bool,
        settings: &PgmSettings,
    ) -> bool {
        let newer = spm.is_some_and(|spm| self.spms.is_newer(now, spm));
        let old = self.source.map(|source| source.address.ip()).filter(|old| *old != from.ip());
        if let Some(old) = old {
            let silent = now.since(self.newest_at) >= settings.moves_after;
            let returns = self.before == Some(from.ip());
            let may_move = authenticated || !self.confirmed || silent || returns;
            if !newer || !may_move {
                // An authentic packet is the source's, wherever it was sent from.
                return authenticated;
            }
            // Only heard first is no proof that it was the source, and neither is a return.
            let proven = if settings.confirms { self.confirmed } else { self.firm };
            self.before = Some(old).filter(|_| proven && !returns);
            self.source = None;
            self.confirmed = !settings.confirms;
        }
        if self.source.is_none() {
            (self.here_since, self.firm) = (now, false);
        }
        self.firm |= now.since(self.here_since) >= FIRM_AFTER;
        if spm.is_some_and(|spm| self.spms.take(now, spm)) || self.source.is_none() {
            self.newest_at = now;
        }
        true
    }
}

impl PgmDemux {
    /// One without sessions.
    pub const fn new(settings: PgmSettings) -> Self {
        Self { settings, sessions: Vec::new(), declined: Vec::new() }
    }

    fn session(&self, id: SessionId) -> Option<&KnownSession> {
        self.sessions.iter().find(|session| session.id == id)
    }

    /// The oldest session that takes packets of this number.
    fn position(&self, tsi: Tsi, takes_any: bool) -> Option<usize> {
        self.sessions.iter().position(|session| session.tsi.map_or(takes_any, |it| it == tsi))
    }

    /// Whether the application is asked about a session: it has not left it alone just now.
    fn is_offered(&mut self, now: Time, tsi: Tsi) -> bool {
        self.declined.retain(|(_, at)| now.since(*at) < DECLINED_FOR);
        !self.declined.iter().any(|(other, _)| *other == tsi)
    }

    /// What a receiver hears from a source, or from a network element in its name.
    fn find_downstream<'a>(
        &mut self,
        arrival: Arrival<'_>,
        kind: PacketType,
        tsi: Tsi,
        packet: &'a [u8],
    ) -> Option<Found<Heard<'a>>> {
        let Arrival { now, from, authenticated, sockets, book, refused, .. } = arrival;
        let begins = matches!(kind, PacketType::Spm | PacketType::Odata);
        let from = match sockets.settings.upstream {
            Upstream::FromPacket => from,
            Upstream::Port(port) => SocketAddr::new(from.ip(), port),
        };
        // Data, which is nearly all, is left to the machine: its checksum is computed once.
        let spm =
            (kind == PacketType::Spm).then(|| Packet::decode(packet, 0).map(|packet| packet.body));
        let spm = match spm {
            Some(Ok(Body::Spm(spm))) => Some(spm),
            _ => None,
        };
        let Some(node) = self.source_node(spm, from, book) else {
            refused.unknown += 1;
            return None;
        };
        let Some(index) = self.position(tsi, begins) else {
            if !begins || !self.is_offered(now, tsi) || !sockets.hears(from.ip()) {
                refused.foreign += 1;
                return None;
            }
            let Ok(decoded) = Packet::decode(packet, 0) else {
                refused.malformed += 1;
                return None;
            };
            let data_port = decoded.header.data_port(kind);
            return Some(Found::New(Heard {
                now,
                tsi,
                data_port,
                from,
                source: node,
                kind,
                packet,
            }));
        };
        let session = &mut self.sessions[index];
        session.tsi = Some(tsi);
        let newest = spm.map(|spm| spm.sequence);
        if !session.is_from_source(now, from, newest, authenticated, &self.settings) {
            if !self.settings.elements {
                refused.spoofed += 1;
                return None;
            }
            return Some(Found::Session(session.id, node));
        }
        let source = session.source.get_or_insert(Peer { address: from, node });
        if begins && source.address.ip() == from.ip() {
            source.address = from;
        }
        if kind == PacketType::Spm {
            source.node = node;
        }
        Some(Found::Session(session.id, source.node))
    }

    /// A packet of TRAM, whose receivers speak with each other as with the source. Only packets that `begin` a
    /// session come from its source, and the machine takes them from no other.
    fn find_tram<'a>(
        &mut self,
        arrival: Arrival<'_>,
        (tsi, begins): (Tsi, bool),
        packet: &'a [u8],
    ) -> Option<Found<Heard<'a>>> {
        let begins = begins && !arrival.sockets.is_source;
        let sender = tram::sender_of(packet).filter(|_| arrival.book.learns());
        if let Some((index, sender)) = self.position(tsi, begins).zip(sender) {
            let ends = &mut self.sessions[index].ends;
            match ends.locate(arrival.now, sender, arrival.from, arrival.authenticated) {
                Located::There => {}
                Located::Elsewhere(at) => {
                    let node = arrival.book.node(at)?;
                    return Some(Found::Session(self.sessions[index].id, node));
                }
                Located::Moved(old) => {
                    *arrival.moved = Some((old, arrival.from));
                    let node = arrival.book.relocate(old, arrival.from);
                    let session = &mut self.sessions[index];
                    if let Some(source) = session.source.as_mut().filter(|it| Some(it.node) == node)
                    {
                        source.address = arrival.from;
                    }
                }
                Located::False => {
                    arrival.refused.spoofed += 1;
                    return None;
                }
            }
        }
        let Arrival { now, from, sockets, book, refused, .. } = arrival;
        let Some(node) = book.node(from) else {
            refused.unknown += 1;
            return None;
        };
        let Some(index) = self.position(tsi, begins) else {
            if !begins || !self.is_offered(now, tsi) || !sockets.hears(from.ip()) {
                refused.foreign += 1;
                return None;
            }
            let (source, kind) = (node, PacketType::Odata);
            return Some(Found::New(Heard { now, tsi, data_port: 0, from, source, kind, packet }));
        };
        let session = &mut self.sessions[index];
        (session.tsi, session.among_receivers) = (Some(tsi), true);
        if begins {
            session.source.get_or_insert(Peer { address: from, node });
        }
        Some(Found::Session(session.id, node))
    }

    /// Who speaks for a source. What a source calls itself in its SPMs is its number, since that is
    /// what it wants to be called: behind address translation and with IPv6 the address does not
    /// tell it. It says nothing about where packets go.
    fn source_node(
        &self,
        spm: Option<Spm>,
        from: SocketAddr,
        book: &mut AddressBook,
    ) -> Option<NodeId> {
        let called = spm
            .filter(|_| book.learns() && !self.settings.elements)
            .and_then(|spm| spm.path.node());
        called.filter(|node| node.0 != 0).or_else(|| book.node(from))
    }
}

impl Demux for PgmDemux {
    type Key = Option<Tsi>;
    type Heard<'a> = Heard<'a>;

    fn add(&mut self, now: Time, id: SessionId, key: Option<Tsi>) {
        self.sessions.push(KnownSession {
            id,
            tsi: key,
            since: now,
            confirmed: !self.settings.confirms,
            ..KnownSession::default()
        });
    }

    fn remove(&mut self, id: SessionId) {
        self.sessions.retain(|session| session.id != id);
    }

    fn find<'a>(&mut self, arrival: Arrival<'_>, packet: &'a [u8]) -> Option<Found<Heard<'a>>> {
        let credits = if self.settings.relayed { credit::clear_bytes(packet) } else { 0 };
        if credits > 0 && credits == packet.len() {
            return arrival.book.node(arrival.from).map(Found::Any);
        }
        let packet = &packet[credits..];
        if let Some((session, begins)) = tram::peek(packet) {
            return self.find_tram(arrival, (tram::tsi_of(session), begins), packet);
        }
        let Some((kind, tsi)) = peek(packet) else {
            arrival.refused.malformed += 1;
            return None;
        };
        let is_source = arrival.sockets.is_source;
        if !is_source && !kind.is_upstream() {
            return self.find_downstream(arrival, kind, tsi, packet);
        }
        // From a receiver, or from a neighbour.
        let Some(index) = self.position(tsi, is_source) else {
            arrival.refused.foreign += 1;
            return None;
        };
        let Some(node) = arrival.book.node(arrival.from) else {
            arrival.refused.unknown += 1;
            return None;
        };
        Some(Found::Session(self.sessions[index].id, node))
    }

    fn key(&self, heard: &Heard<'_>) -> Option<Tsi> {
        Some(heard.tsi)
    }

    fn decline(&mut self, heard: &Heard<'_>) {
        if self.declined.len() >= DECLINED_MAX {
            self.declined.remove(0);
        }
        self.declined.push((heard.tsi, heard.now));
    }

    /// A receiver speaks with the source of its session, whatever number that goes by: what an SPM says
    /// must not make it send to third parties.
    fn route(
        &self,
        id: SessionId,
        to: NodeId,
        sockets: &Sockets,
        book: &AddressBook,
    ) -> Option<SocketAddr> {
        if sockets.is_source {
            return book.address(to);
        }
        let session = self.session(id)?;
        let source = session.source?;
        if session.among_receivers {
            return if to == source.node { Some(source.address) } else { book.address(to) };
        }
        if !self.settings.elements || to == source.node {
            return Some(source.address);
        }
        book.address(to).or_else(|| {
            let [a, b, c, d] = to.0.to_be_bytes();
            let known = book.learns() && native([a, b, c, d].into()).is_some();
            known.then(|| SocketAddr::new([a, b, c, d].into(), source.address.port()))
        })
    }

    /// Where nobody has answered in the time for that.
    fn may_go(&self, now: Time, id: SessionId) -> bool {
        let session = self.session(id);
        session.is_some_and(|it| !it.confirmed && now.since(it.since) >= TRIAL)
    }
}

impl<M: Machine> Live<M, PgmDemux> {
    /// The session's number on the wire, where it is known.
    pub fn tsi(&self, id: SessionId) -> Option<Tsi> {
        self.demux.session(id)?.tsi
    }

    /// At a receiver: the address from which packets of the session come; `None` before the first,
    /// and behind relays.
    pub fn source(&self, id: SessionId) -> Option<SocketAddr> {
        let source = self.demux.session(id)?.source?;
        Some(source.address).filter(|_| !self.is_behind_relay())
    }

    /// At a receiver: the number of the newest SPM of the session's source.
    pub fn newest_spm(&self, id: SessionId) -> Option<Seq> {
        self.demux.session(id)?.spms.newest()
    }

    /// At a receiver: the source has just answered from there. See [`PgmSettings::confirms`].
    pub fn confirm(&mut self, id: SessionId) {
        if let Some(session) = self.demux.sessions.iter_mut().find(|session| session.id == id) {
            session.confirmed = true;
        }
    }
}

/// After so long without an answer a session loses its place where others want one.
const TRIAL: Duration = Duration::from_secs(1);

/// How long a session that the application left alone is not asked about again, and how many of
/// them are remembered.
const DECLINED_FOR: Duration = Duration::from_secs(5);
const DECLINED_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use faircast_base::Cx;
    use faircast_proto::{Datagram, FlowEvent, Machine, Transmit};

    use super::*;
    use crate::{DriverSettings, SessionOptions};

    /// When, from which of two addresses, with which SPM, and whether it has answered by then.
    type Word = (u64, u8, Option<u32>, bool);

    /// Whose packets are taken for those of the session's source.
    fn taken(confirms: bool, authenticated: bool, heard: &[Word]) -> Vec<bool> {
        let moves_after = Duration::from_secs(5);
        let settings = PgmSettings { confirms, moves_after, ..PgmSettings::default() };
        let mut demux = PgmDemux::new(settings.clone());
        demux.add(Time::ZERO, SessionId(0), None);
        let session = &mut demux.sessions[0];
        let take = |&(s, host, spm, answered): &Word| {
            session.confirmed |= answered;
            let now = Time::ZERO + Duration::from_secs(s);
            let address = SocketAddr::from(([10, 0, 0, host], 7500));
            let spm = spm.map(Seq::new);
            let taken = session.is_from_source(now, address, spm, authenticated, &settings);
            if taken {
                session.source.get_or_insert(Peer { address, node: NodeId(1) });
            }
            taken
        };
        heard.iter().map(take).collect()
    }

    #[test]
    fn a_session_follows_the_newest_word_until_its_source_has_answered() {
        let (source, repeater) = (1, 2);
        let heard = [
            ((0, repeater, Some(5), false), true),
            ((1, source, None, false), false),
            ((1, source, Some(9), false), true),
            ((2, repeater, Some(7), false), false),
            ((2, repeater, Some(9), false), false),
            // What the source has sent, and was lost here.
            ((3, repeater, Some(10), false), true),
            ((4, source, Some(11), false), true),
            ((5, repeater, Some(12), true), false),
            ((8, repeater, Some(12), false), false),
            ((9, repeater, Some(12), false), true),
            // The answer had come from elsewhere.
            ((10, source, Some(13), false), true),
        ];
        let want: Vec<bool> = heard.iter().map(|(_, want)| *want).collect();
        assert_eq!(taken(true, false, &heard.map(|(heard, _)| heard)), want);
    }

    #[test]
    fn a_session_whose_sources_do_not_answer_stays_where_it_is_heard() {
        let heard = [
            (0, 2, Some(5), false),
            (1, 1, Some(9), false),
            (4, 1, Some(10), false),
            (5, 1, Some(11), false),
            (6, 2, Some(12), false),
        ];
        assert_eq!(taken(false, false, &heard), [true, false, false, true, false]);
    }

    #[test]
    fn a_source_that_was_paused_takes_its_session_back_with_one_packet() {
        let (source, thief) = (1, 2);
        let heard = [
            (0, source, Some(1), true),
            (3, thief, Some(2), false),
            (5, thief, Some(3), false),
            (6, source, Some(4), true),
            (7, thief, Some(5), false),
        ];
        assert_eq!(taken(true, false, &heard), [true, false, true, true, true]);
        // Even where the thief has answered.
        let heard = [
            (0, source, Some(1), true),
            (5, thief, Some(3), false),
            (6, thief, Some(4), true),
            (7, source, Some(5), true),
            (8, thief, None, true),
        ];
        assert_eq!(taken(true, false, &heard), [true, true, true, true, false]);
    }

    #[test]
    fn a_source_that_was_heard_for_some_time_takes_its_session_back_once() {
        let heard = [
            (0, 1, Some(5), false),
            (1, 1, None, false),
            (4, 2, Some(6), false),
            (5, 2, Some(6), false),
            (6, 1, Some(7), false),
            // The source speaks: the host that had its place for a while has no claim.
            (7, 2, Some(8), false),
            (8, 2, Some(9), false),
        ];
        let want = [true, true, false, true, true, false, false];
        assert_eq!(taken(false, false, &heard), want);
    }

    #[test]
    fn authentic_packets_are_followed_at_once() {
        let heard = [
            (0, 1, Some(1), true),
            (1, 2, None, true),
            (1, 2, Some(2), true),
            (1, 1, None, true),
            (1, 1, Some(1), true),
        ];
        assert_eq!(taken(true, true, &heard), [true; 5]);
    }

    /// A machine that always has something to do.
    struct Busy;

    impl Machine for Busy {
        type Event = FlowEvent;

        fn handle_datagram(&mut self, _: &mut Cx<'_>, _: Datagram<'_>) {}
        fn handle_timeout(&mut self, _: &mut Cx<'_>) {}
        fn handle_close(&mut self, _: &mut Cx<'_>) {}
        fn poll_transmit(&mut self, _: &mut Cx<'_>, _: &mut Vec<u8>) -> Option<Transmit> {
            None
        }
        fn poll_event(&mut self) -> Option<FlowEvent> {
            None
        }
        fn next_timeout(&self) -> Option<Time> {
            Some(Time::MAX)
        }
    }

    #[test]
    fn sessions_that_nobody_answers_make_room_and_those_in_use_do_not() {
        let settings = crate::SocketSettings::default();
        let listen = crate::Listen::Unicast("127.0.0.1:0".parse().unwrap());
        let sockets = Sockets::receiver(listen, settings).unwrap();
        let demux = PgmDemux::new(PgmSettings { confirms: true, ..PgmSettings::default() });
        let settings = DriverSettings { sessions_max: 4, ..DriverSettings::default() };
        let mut live = Live::new(sockets, AddressBook::native(), demux, settings);
        let add = |live: &mut Live<Busy>| live.add(Busy, SessionOptions::default());
        let used = add(&mut live);
        live.confirm(used);
        let invented = add(&mut live);
        add(&mut live);
        let now = live.now();
        assert!(live.has_room(now));
        add(&mut live);
        let now = live.now();
        assert!(!live.has_room(now), "they may be answered yet");
        assert!(live.has_room(now + TRIAL), "one makes room");
        add(&mut live);
        assert!(live.machine(used).is_some() && live.machine(invented).is_none());
    }
}
