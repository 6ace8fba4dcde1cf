//! Demultiplexer of PGM and TRAM: finds sessions by TSI, and tracks the address of each source.

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

/// Rules by which a PGM receiver recognises a session's source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgmSettings {
    /// True if a receiver trusts network elements named in SPMs. Default false: a forged element
    /// could direct NAKs at a third party.
    pub elements: bool,
    /// SPM silence before a session may move: by default 60 s, twice PGM's longest SPM interval.
    pub moves_after: Duration,
    /// True if sources answer, so that the application can [confirm](crate::Live::confirm) an
    /// address. Default false. An unconfirmed session follows the newest SPM at once: the source is
    /// always ahead of hosts that repeat its packets.
    pub confirms: bool,
    /// True behind relays: packets have credits in front, or are credits alone. Default false.
    pub relayed: bool,
}

impl Default for PgmSettings {
    fn default() -> Self {
        let moves_after = Duration::from_secs(60);
        Self { elements: false, moves_after, confirms: false, relayed: false }
    }
}

/// Unknown session of PGM or TRAM, of which a packet arrived.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct NewSession<'a> {
    pub now: Time,
    pub tsi: Tsi,
    /// PGM data-destination port in its packets.
    pub data_port: u16,
    pub from: SocketAddr,
    pub source: NodeId,
    /// Packet type: data or SPM; for TRAM always data.
    pub kind: PacketType,
    /// Valid packet.
    pub packet: &'a [u8],
}

/// Demultiplexer of PGM sessions by TSI. Without a TSI a receiver accepts the first, a source any.
#[derive(Debug, Default)]
pub struct PgmDemux {
    settings: PgmSettings,
    sessions: Vec<KnownSession>,
    declined: Vec<(Tsi, Time)>,
}

#[derive(Debug, Default)]
struct KnownSession {
    id: SessionId,
    /// `None` until the first packet, if the machine was added without a TSI.
    tsi: Option<Tsi>,
    source: Option<Source>,
    spms: SpmOrder,
    /// Time of the newest SPM, or of the first packet from a new address.
    newest_spm_at: Time,
    added_at: Time,
    confirmed: bool,
    /// Time of the first packet from the source's present address.
    source_since: Time,
    /// True once packets came from that address for [`FIRM_AFTER`].
    firm: bool,
    /// Source's address before a move. A newer SPM from there moves the session back, once.
    previous: Option<IpAddr>,
    /// True for TRAM, whose receivers send to each other too.
    among_receivers: bool,
    ends: Ends,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Source {
    address: SocketAddr,
    node: NodeId,
}

impl KnownSession {
    /// True if a packet from `from`, the SPM with number `spm` or another packet, is from the
    /// session's source. The address of the first packet counts, but another host may have repeated
    /// that packet: a newer SPM moves the session after `moves_after` without new SPMs, or if the
    /// source has never answered. A host that repeats new SPMs loses the session again: a newer SPM
    /// from the earlier address moves it back, if the source has answered or for some time sent
    /// there. The newest authenticated SPM gives the address at once.
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
            let silent = now.since(self.newest_spm_at) >= settings.moves_after;
            let returns = self.previous == Some(from.ip());
            let may_move = authenticated || !self.confirmed || silent || returns;
            if !newer || !may_move {
                return authenticated;
            }
            // Neither the first packet nor a return proves the source's address.
            let proven = if settings.confirms { self.confirmed } else { self.firm };
            self.previous = Some(old).filter(|_| proven && !returns);
            self.source = None;
            self.confirmed = !settings.confirms;
        }
        if self.source.is_none() {
            (self.source_since, self.firm) = (now, false);
        }
        self.firm |= now.since(self.source_since) >= FIRM_AFTER;
        if spm.is_some_and(|spm| self.spms.take(now, spm)) || self.source.is_none() {
            self.newest_spm_at = now;
        }
        true
    }
}

/// Counts a packet as refused if nothing was found for it.
fn or_count<T>(found: Option<T>, refused: &mut u64) -> Option<T> {
    *refused += u64::from(found.is_none());
    found
}

impl PgmDemux {
    /// Makes a demultiplexer without sessions.
    pub const fn new(settings: PgmSettings) -> Self {
        Self { settings, sessions: Vec::new(), declined: Vec::new() }
    }

    fn session(&self, id: SessionId) -> Option<&KnownSession> {
        self.sessions.iter().find(|session| session.id == id)
    }

    fn position(&self, tsi: Tsi, takes_any: bool) -> Option<usize> {
        self.sessions.iter().position(|session| session.tsi.map_or(takes_any, |known| known == tsi))
    }

    /// True if the application decides about a new session; otherwise its packet is foreign.
    fn is_offered(&mut self, arrival: &mut Arrival<'_>, tsi: Tsi, begins: bool) -> bool {
        self.declined.retain(|(_, at)| arrival.now.since(*at) < DECLINED_FOR);
        let is_declined = self.declined.iter().any(|(other, _)| *other == tsi);
        let is_offered =
            begins && !is_declined && arrival.sockets.accepts_source(arrival.from.ip());
        arrival.refused.foreign += u64::from(!is_offered);
        is_offered
    }

    fn find_downstream<'a>(
        &mut self,
        mut arrival: Arrival<'_>,
        kind: PacketType,
        tsi: Tsi,
        packet: &'a [u8],
    ) -> Option<Found<NewSession<'a>>> {
        let Arrival { now, mut from, authenticated, .. } = arrival;
        let begins = matches!(kind, PacketType::Spm | PacketType::Odata);
        if let Upstream::Port(port) = arrival.sockets.settings.upstream {
            from = SocketAddr::new(from.ip(), port);
        }
        // The machine verifies data packets, nearly all of the traffic: one checksum for each.
        let spm =
            (kind == PacketType::Spm).then(|| Packet::decode(packet, 0).map(|packet| packet.body));
        let spm = match spm {
            Some(Ok(Body::Spm(spm))) => Some(spm),
            _ => None,
        };
        let node = self.source_node(spm, from, arrival.book);
        let node = or_count(node, &mut arrival.refused.unknown)?;
        let Some(index) = self.position(tsi, begins) else {
            if !self.is_offered(&mut arrival, tsi, begins) {
                return None;
            }
            let decoded = Packet::decode(packet, 0).ok();
            let decoded = or_count(decoded, &mut arrival.refused.malformed)?;
            let data_port = decoded.header.data_port(kind);
            let new = NewSession { now, tsi, data_port, from, source: node, kind, packet };
            return Some(Found::New(new));
        };
        let session = &mut self.sessions[index];
        session.tsi = Some(tsi);
        let newest = spm.map(|spm| spm.sequence);
        if !session.is_from_source(now, from, newest, authenticated, &self.settings) {
            if !self.settings.elements {
                arrival.refused.spoofed += 1;
                return None;
            }
            return Some(Found::Session(session.id, node));
        }
        let source = session.source.get_or_insert(Source { address: from, node });
        if begins && source.address.ip() == from.ip() {
            source.address = from;
        }
        if kind == PacketType::Spm {
            source.node = node;
        }
        Some(Found::Session(session.id, source.node))
    }

    /// TRAM receivers send to each other: only packets that `begin` a session must be a source's.
    fn find_tram<'a>(
        &mut self,
        mut arrival: Arrival<'_>,
        (tsi, begins): (Tsi, bool),
        packet: &'a [u8],
    ) -> Option<Found<NewSession<'a>>> {
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
                    if let Some(source) =
                        session.source.as_mut().filter(|source| Some(source.node) == node)
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
        let Arrival { now, from, .. } = arrival;
        let source = or_count(arrival.book.node(from), &mut arrival.refused.unknown)?;
        let Some(index) = self.position(tsi, begins) else {
            let kind = PacketType::Odata;
            let new = NewSession { now, tsi, data_port: 0, from, source, kind, packet };
            return self.is_offered(&mut arrival, tsi, begins).then_some(Found::New(new));
        };
        let session = &mut self.sessions[index];
        (session.tsi, session.among_receivers) = (Some(tsi), true);
        if begins {
            session.source.get_or_insert(Source { address: from, node: source });
        }
        Some(Found::Session(session.id, source))
    }

    /// Returns the source's node: the address in its SPMs, also behind NAT; never sent to.
    fn source_node(
        &self,
        spm: Option<Spm>,
        from: SocketAddr,
        book: &mut AddressBook,
    ) -> Option<NodeId> {
        let named = spm
            .filter(|_| book.learns() && !self.settings.elements)
            .and_then(|spm| spm.path.node());
        named.filter(|node| node.0 != 0).or_else(|| book.node(from))
    }
}

impl Demux for PgmDemux {
    type Key = Option<Tsi>;
    type NewSession<'a> = NewSession<'a>;

    fn add(&mut self, now: Time, id: SessionId, key: Option<Tsi>) {
        self.sessions.push(KnownSession {
            id,
            tsi: key,
            added_at: now,
            confirmed: !self.settings.confirms,
            ..KnownSession::default()
        });
    }

    fn remove(&mut self, id: SessionId) {
        self.sessions.retain(|session| session.id != id);
    }

    fn find<'a>(
        &mut self,
        arrival: Arrival<'_>,
        packet: &'a [u8],
    ) -> Option<Found<NewSession<'a>>> {
        let credits = if self.settings.relayed { credit::clear_bytes(packet) } else { 0 };
        if credits > 0 && credits == packet.len() {
            return arrival.book.node(arrival.from).map(Found::Any);
        }
        let packet = &packet[credits..];
        if let Some((session, begins)) = tram::peek(packet) {
            return self.find_tram(arrival, (tram::tsi_of(session), begins), packet);
        }
        let (kind, tsi) = or_count(peek(packet), &mut arrival.refused.malformed)?;
        let is_source = arrival.sockets.is_source;
        if !is_source && !kind.is_upstream() {
            return self.find_downstream(arrival, kind, tsi, packet);
        }
        let index = or_count(self.position(tsi, is_source), &mut arrival.refused.foreign)?;
        let node = or_count(arrival.book.node(arrival.from), &mut arrival.refused.unknown)?;
        Some(Found::Session(self.sessions[index].id, node))
    }

    fn key(&self, new: &NewSession<'_>) -> Option<Tsi> {
        Some(new.tsi)
    }

    fn decline(&mut self, new: &NewSession<'_>) {
        if self.declined.len() >= DECLINED_MAX {
            self.declined.remove(0);
        }
        self.declined.push((new.tsi, new.now));
    }

    /// Receivers send to their session's source only: no SPM may redirect them to third parties.
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

    fn may_go(&self, now: Time, id: SessionId) -> bool {
        let session = self.session(id);
        session.is_some_and(|found| !found.confirmed && now.since(found.added_at) >= TRIAL)
    }
}

impl<M: Machine> Live<M, PgmDemux> {
    /// Returns the session's TSI, if known.
    pub fn tsi(&self, id: SessionId) -> Option<Tsi> {
        self.demux.session(id)?.tsi
    }

    /// Returns the source's address at a receiver; `None` before its first packet or behind relays.
    pub fn source(&self, id: SessionId) -> Option<SocketAddr> {
        let source = self.demux.session(id)?.source?;
        Some(source.address).filter(|_| !self.is_behind_relay())
    }

    /// Returns the number of the newest SPM of the session's source, at a receiver.
    pub fn newest_spm(&self, id: SessionId) -> Option<Seq> {
        self.demux.session(id)?.spms.newest()
    }

    /// Notes at a receiver that the source has answered. See [`PgmSettings::confirms`].
    pub fn confirm(&mut self, id: SessionId) {
        if let Some(session) = self.demux.sessions.iter_mut().find(|session| session.id == id) {
            session.confirmed = true;
        }
    }
}

/// Time without an answer after which a session may be dropped for another: 1 s.
const TRIAL: Duration = Duration::from_secs(1);

/// Time for which an ignored session is not offered again, and most such sessions.
const DECLINED_FOR: Duration = Duration::from_secs(5);
const DECLINED_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use faircast_base::Cx;
    use faircast_proto::{Datagram, FlowEvent, Machine, Transmit};

    use super::*;
    use crate::{DriverSettings, SessionOptions};

    /// Time, address (one of two), SPM, and true if the source has answered by then.
    type Arrived = (u64, u8, Option<u32>, bool);

    fn taken(confirms: bool, authenticated: bool, heard: &[Arrived]) -> Vec<bool> {
        let moves_after = Duration::from_secs(5);
        let settings = PgmSettings { confirms, moves_after, ..PgmSettings::default() };
        let mut demux = PgmDemux::new(settings.clone());
        demux.add(Time::ZERO, SessionId(0), None);
        let session = &mut demux.sessions[0];
        let take = |&(s, host, spm, answered): &Arrived| {
            session.confirmed |= answered;
            let now = Time::ZERO + Duration::from_secs(s);
            let address = SocketAddr::from(([10, 0, 0, host], 7500));
            let spm = spm.map(Seq::new);
            let taken = session.is_from_source(now, address, spm, authenticated, &settings);
            if taken {
                session.source.get_or_insert(Source { address, node: NodeId(1) });
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
            ((3, repeater, Some(10), false), true),
            ((4, source, Some(11), false), true),
            ((5, repeater, Some(12), true), false),
            ((8, repeater, Some(12), false), false),
            ((9, repeater, Some(12), false), true),
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
            // The source sends again: the other host has no claim.
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

    struct Timed;

    impl Machine for Timed {
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
        let add = |live: &mut Live<Timed>| live.add(Timed, SessionOptions::default());
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
