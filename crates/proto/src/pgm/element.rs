//! PGM's network element: a router that confirms NAKs, passes one of them on, and sends repairs
//! only where they were asked for (src: RFC 3208 s7; numbers: ns-2's PGM).
//!
//! deviates: an element here has one address on all its interfaces, so the path that it writes
//! into an SPM is the same on each.

mod config;
mod repairs;
mod suppression;
#[cfg(test)]
mod tests;

use alloc::vec;
use alloc::vec::Vec;

use faircast_base::{BadInput, Cx, Duration, Event, GroupId, NodeId, Seq, Time, TimeoutKind};

use crate::Destination;
use crate::congestion::Wire;
use crate::congestion::pgmcc::{PgmccAnnounce, PgmccReport};
use crate::pgm::wire::{
    Body, Encoder, Header, NAK_LIST_MAX, Nak, NakList, Nla, Packet, PgmOption, Spm, Tsi,
};
use crate::relay::{PortId, RelayPacket, RelayProgram, RelayTransmit, Verdict};
use suppression::{Claim, Stamps};

pub use config::{ElementConfig, OPTIONS};
use repairs::{Ask, Repairs};
pub use suppression::Suppression;

/// How many sessions an element serves. A further one is forwarded as by any router, unless one of
/// these has been silent for [`SESSION_EXPIRY`] and makes room.
const SESSIONS_MAX: usize = 64;

/// Silence after which a session may make room for another (src: openpgm's peer expiry).
const SESSION_EXPIRY: Duration = Duration::from_secs(300);

/// The hops that an element's own packets may travel.
const TIME_TO_LIVE: u8 = 255;

/// The program. See the module's documentation.
#[derive(Debug)]
pub struct PgmElement {
    node: NodeId,
    config: ElementConfig,
    sessions: Vec<Session>,
}

/// What an element knows of one session.
#[derive(Debug)]
struct Session {
    tsi: Tsi,
    data_port: u16,
    /// The source's own address, in whose name confirmations are sent.
    source: NodeId,
    spm_sequence: Seq,
    /// The next PGM hop towards the source, and the port to it.
    upstream: NodeId,
    upstream_port: PortId,
    heard: Time,
    repairs: Repairs,
    stamps: Stamps,
}

impl PgmElement {
    /// The element in the router `node`. Intervals are at least a millisecond.
    pub fn new(node: NodeId, mut config: ElementConfig) -> Self {
        // A timer of no length would run out again and again in one moment.
        config.nak_interval = config.nak_interval.max(Duration::from_millis(1));
        Self { node, config, sessions: Vec::new() }
    }

    fn session(&mut self, tsi: Tsi) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|session| session.tsi == tsi)
    }

    /// Learns the way to the source from an SPM, and passes it on with this element as the way.
    fn take_spm(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &RelayPacket<'_>,
        pgm: &Packet<'_>,
        spm: Spm,
        out: &mut Vec<RelayTransmit>,
    ) -> Result<Verdict, BadInput> {
        let Some(upstream) = spm.path.node() else {
            return Ok(Verdict::Forward); // IPv6, which node numbers cannot stand for.
        };
        let (tsi, now) = (pgm.tsi(), cx.now);
        if let Some(session) = self.session(tsi) {
            if !spm.sequence.after(session.spm_sequence) {
                return Err(BadInput::Duplicate);
            }
            (session.upstream, session.upstream_port) = (upstream, packet.port);
            (session.spm_sequence, session.heard) = (spm.sequence, now);
        } else if self.make_room(now) {
            let repairs = Repairs::new(&self.config);
            self.sessions.push(Session {
                tsi,
                data_port: pgm.header.data_port(pgm.kind()),
                source: packet.datagram.from,
                spm_sequence: spm.sequence,
                upstream,
                upstream_port: packet.port,
                heard: now,
                repairs,
                stamps: Stamps::default(),
            });
        } else {
            cx.emit(Event::BadInput { reason: BadInput::TableFull });
            return Ok(Verdict::Forward);
        }
        let body = Body::Spm(Spm { path: Nla::from_node(self.node), ..spm });
        let mut bytes = Vec::new();
        Packet { body, ..*pgm }.encode(&mut bytes);
        self.copy_to(packet.ports_out, packet, &bytes, 0, out);
        Ok(Verdict::Consume)
    }

    /// Whether there is room for one session more.
    fn make_room(&mut self, now: Time) -> bool {
        if self.sessions.len() < SESSIONS_MAX {
            return true;
        }
        let silent = |session: &Session| now.since(session.heard) >= SESSION_EXPIRY;
        self.sessions
            .iter()
            .position(silent)
            .map(|index| self.sessions.swap_remove(index))
            .is_some()
    }

    /// Sends `bytes` on in the name of the packet's sender, out of some of the ports.
    fn copy_to(
        &self,
        ports: &[PortId],
        packet: &RelayPacket<'_>,
        bytes: &[u8],
        payload_len: u32,
        out: &mut Vec<RelayTransmit>,
    ) {
        let Some(time_to_live) = packet.time_to_live.checked_sub(1).filter(|&hops| hops > 0) else {
            return;
        };
        out.extend(ports.iter().map(|&port| RelayTransmit {
            port: Some(port),
            to: packet.datagram.to,
            from: packet.datagram.from,
            bytes: bytes.to_vec(),
            zeros: packet.datagram.zeros,
            payload_len,
            time_to_live,
            router_alert: true,
        }));
    }

    /// Confirms a NAK on the port that it came from, and passes it on unless it is eliminated.
    fn take_nak(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &RelayPacket<'_>,
        pgm: &Packet<'_>,
        nak: Nak,
        out: &mut Vec<RelayTransmit>,
    ) -> Result<(), BadInput> {
        let (node, config) = (self.node, self.config);
        let session = self.session(pgm.tsi()).ok_or(BadInput::Foreign)?;
        if packet.port == session.upstream_port {
            return Err(BadInput::Foreign); // The element above would be asking the one below.
        }
        let report = report_of(pgm);
        let claim = report.map(|report| Claim::new(cx.now, &report, &session.stamps));
        let (mut passes, mut room) = (false, false);
        for seq in pgm.nak_sequence() {
            let ask = Ask { port: packet.port, nak, report, claim };
            match session.repairs.ask(cx, &config, seq, ask) {
                Some(passed) => (passes, room) = (passes || passed, true),
                None => cx.emit(Event::BadInput { reason: BadInput::TableFull }),
            }
        }
        if !room {
            // Without state no repair could be forwarded, so the NAK is not confirmed either: its
            // sender will ask again.
            return Ok(());
        }
        out.push(session.confirmation(packet.port, pgm, nak));
        let seq = u64::from(nak.first.value());
        if passes {
            cx.emit(Event::NakForwarded { seq });
            out.push(session.towards_source(node, packet.datagram.bytes.to_vec()));
        } else {
            cx.emit(Event::NakSuppressed { seq });
        }
        Ok(())
    }

    /// A NAK that asks for nothing goes on without state.
    fn take_null_nak(
        &mut self,
        packet: &RelayPacket<'_>,
        pgm: &Packet<'_>,
        out: &mut Vec<RelayTransmit>,
    ) -> Result<(), BadInput> {
        let node = self.node;
        let session = self.session(pgm.tsi()).ok_or(BadInput::Foreign)?;
        if packet.port == session.upstream_port {
            return Err(BadInput::Foreign);
        }
        out.push(session.towards_source(node, packet.datagram.bytes.to_vec()));
        Ok(())
    }

    /// A confirmation from above ends the repetition of a NAK, or foretells a repair that others
    /// have asked for (src: RFC 3208 s7.5).
    fn take_confirmation(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &RelayPacket<'_>,
        pgm: &Packet<'_>,
        nak: Nak,
    ) -> Result<(), BadInput> {
        let config = self.config;
        let session = self.session(pgm.tsi()).ok_or(BadInput::Foreign)?;
        if packet.port != session.upstream_port {
            return Err(BadInput::Foreign);
        }
        for seq in pgm.nak_sequence() {
            if !session.repairs.confirm(cx.now, &config, seq, nak) {
                cx.emit(Event::BadInput { reason: BadInput::TableFull });
            }
        }
        Ok(())
    }

    /// A repair goes where it was asked for, and with it its state.
    fn take_repair(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &RelayPacket<'_>,
        pgm: &Packet<'_>,
        seq: Seq,
        out: &mut Vec<RelayTransmit>,
    ) -> Verdict {
        let config = self.config;
        let Some(session) = self.session(pgm.tsi()) else {
            // An element that has just started must not be a black hole.
            return Verdict::Forward;
        };
        if packet.port != session.upstream_port {
            cx.emit(Event::BadInput { reason: BadInput::Foreign });
            return Verdict::Consume;
        }
        match session.repairs.repaired(cx.now, &config, seq) {
            Some(ports) => {
                let len = u32::try_from(pgm.payload.len()).unwrap_or(u32::MAX);
                self.copy_to(&ports, packet, packet.datagram.bytes, len, out);
            }
            None => cx.emit(Event::BadInput { reason: BadInput::OutOfWindow }),
        }
        Verdict::Consume
    }

    fn take(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &RelayPacket<'_>,
        pgm: &Packet<'_>,
        out: &mut Vec<RelayTransmit>,
    ) -> Result<Verdict, BadInput> {
        let for_me = packet.datagram.to == Destination::Node(self.node);
        match pgm.body {
            Body::Spm(spm) if !for_me => self.take_spm(cx, packet, pgm, spm, out),
            Body::Nak(nak) if for_me => {
                self.take_nak(cx, packet, pgm, nak, out).map(|()| Verdict::Consume)
            }
            Body::Nnak(_) if for_me => {
                self.take_null_nak(packet, pgm, out).map(|()| Verdict::Consume)
            }
            Body::Ncf(nak) if !for_me => {
                self.take_confirmation(cx, packet, pgm, nak).map(|()| Verdict::Consume)
            }
            Body::Rdata(data) if !for_me => {
                Ok(self.take_repair(cx, packet, pgm, data.sequence, out))
            }
            Body::Odata(_) if !for_me => {
                let announce = pgm.options.find(PgmccAnnounce::OPTION);
                if let Some(announce) = announce.and_then(|o| PgmccAnnounce::decode(o.value))
                    && let Some(session) = self.session(pgm.tsi())
                {
                    session.stamps.note(cx.now, announce.sent_ms);
                }
                Ok(Verdict::Forward)
            }
            _ if for_me => Err(BadInput::Foreign),
            _ => Ok(Verdict::Forward),
        }
    }
}

impl RelayProgram for PgmElement {
    fn wants_all_data(&self) -> bool {
        self.config.suppression.needs_stamps()
    }

    fn handle_packet(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &RelayPacket<'_>,
        out: &mut Vec<RelayTransmit>,
    ) -> Verdict {
        self.handle_timeout(cx, out);
        let decoded = Packet::decode(packet.datagram.bytes, packet.datagram.zeros);
        match decoded.map_err(Into::into).and_then(|pgm| self.take(cx, packet, &pgm, out)) {
            Ok(verdict) => verdict,
            Err(reason) => {
                cx.emit(Event::BadInput { reason });
                // What is no packet of ours may be somebody else's.
                let foreign =
                    decoded.is_err() && packet.datagram.to != Destination::Node(self.node);
                if foreign { Verdict::Forward } else { Verdict::Consume }
            }
        }
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>, out: &mut Vec<RelayTransmit>) {
        for session in &mut self.sessions {
            let expired = session.repairs.expire(cx.now, &self.config);
            for (kind, after) in [
                (
                    TimeoutKind::NakConfirmation,
                    expired.unconfirmed.then_some(self.config.nak_repeat),
                ),
                (TimeoutKind::NakRepair, expired.unrepaired.then_some(self.config.repair_wait)),
            ] {
                if let Some(after) = after {
                    cx.emit(Event::Timeout { kind, after_ns: after.as_nanos() });
                }
            }
            for run in expired.repeat.chunk_by(|a, b| b.after(*a)) {
                for list in run.chunks(1 + NAK_LIST_MAX) {
                    out.push(session.repetition(cx.now, self.node, list));
                }
            }
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.sessions.iter().filter_map(|session| session.repairs.next_timeout()).min()
    }
}

impl Session {
    /// A confirmation of `nak`, which came from `port`, in the name of the source.
    fn confirmation(&self, port: PortId, pgm: &Packet<'_>, nak: Nak) -> RelayTransmit {
        let header =
            Header { parity: pgm.header.parity, ..Header::downstream(self.tsi, self.data_port) };
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, &header, &Body::Ncf(nak));
        let list = pgm.options.nak_list();
        if !list.is_empty() {
            encoder.option(&PgmOption::NakList(list));
        }
        encoder.finish();
        RelayTransmit {
            port: Some(port),
            to: Destination::Group(GroupId::SESSION),
            from: self.source,
            bytes,
            zeros: 0,
            payload_len: 0,
            time_to_live: TIME_TO_LIVE,
            router_alert: true,
        }
    }

    /// A NAK that goes to the next hop towards the source.
    fn towards_source(&self, node: NodeId, bytes: Vec<u8>) -> RelayTransmit {
        RelayTransmit {
            port: Some(self.upstream_port),
            to: Destination::Node(self.upstream),
            from: node,
            bytes,
            zeros: 0,
            payload_len: 0,
            time_to_live: TIME_TO_LIVE,
            router_alert: false,
        }
    }

    /// Asks again for packets whose NAKs nobody has confirmed; `list` is ascending and not empty.
    fn repetition(&self, now: Time, node: NodeId, list: &[Seq]) -> RelayTransmit {
        let (first, rest) = list.split_first().expect("a repetition asks for something");
        let (nak, report) = self.repairs.latest(*first).expect("what is repeated has state");
        let header = Header::upstream(self.tsi, self.data_port);
        let mut bytes = vec![];
        let mut encoder =
            Encoder::new(&mut bytes, &header, &Body::Nak(Nak { first: *first, ..nak }));
        let mut buf = [0; 4 * NAK_LIST_MAX];
        if let Some(list) = NakList::write(rest, &mut buf).filter(|list| !list.is_empty()) {
            encoder.option(&PgmOption::NakList(list));
        }
        if let Some((report, at)) = report {
            // The time for which this element held the report is no part of the round trip.
            let held_ms = now.since(at).as_millis() as u32;
            let echo_ms = report.echo_ms.wrapping_add(held_ms);
            encoder.scheme_option(&PgmccReport { echo_ms, ..report });
        }
        encoder.finish();
        self.towards_source(node, bytes)
    }
}

fn report_of(pgm: &Packet<'_>) -> Option<PgmccReport> {
    PgmccReport::decode(pgm.options.find(PgmccReport::OPTION)?.value)
}
