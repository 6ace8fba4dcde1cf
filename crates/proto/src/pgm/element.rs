//! PGM network element: a router that confirms NAKs, forwards one of them, and sends repairs only
//! to ports that requested them (src: RFC 3208 s7; numbers: ns-2's PGM).
//!
//! deviates: an element has one address on all its interfaces, so the path that it writes into an
//! SPM is the same on each.

mod repairs;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{
    BadInput, Checked, Cx, Duration, Event, FlowId, GroupId, NodeId, Seq, Time, TimeoutKind,
};

use crate::Destination;
use crate::congestion::{SchemeEntry, Stamps};
use crate::pgm::wire::{Body, Encoder, Header, NAK_LIST_MAX, Nak, Nla, Packet, Spm, Tsi};
use crate::relay::{Egress, Handling, Interest, PortId, Relay, RelayPacket, RelayTransmit};
use crate::settings::settings;

pub use repairs::Suppression;
use repairs::{Ask, Repairs, report_on};

settings! {
    /// The settings of a [`PgmElement`], and of the relay program `pgm-element`.
    pub struct ElementConfig;
    /// Repeated NAKs for a packet that pass: all, none until the end of the elimination interval,
    /// those that report more loss, those that report less throughput, or random ones (Seada and
    /// Helmy s4.3)
    suppression: Suppression = Rfc3208;
}

// RFC 3208 gives no numbers; these are ns-2's (src: ns-2.35 pgm/pgm-agent.cc, tcl/pgm/ns-pgm.tcl).

/// Least interval between repetitions of an unconfirmed NAK.
const NAK_INTERVAL: Duration = Duration::from_millis(50);

/// Least time in which an unconfirmed NAK is repeated: NAK_RPT_IVL.
const NAK_REPEAT: Duration = Duration::from_secs(1);

/// Longest wait for a confirmed repair: NAK_RDATA_IVL.
const REPAIR_WAIT: Duration = Duration::from_secs(10);

/// Longest time after a confirmation without a further NAK for the packet: NAK_ELIM_IVL.
const ELIMINATION: Duration = Duration::from_secs(5);

/// Most sessions of an element; others are only forwarded. See [`SESSION_EXPIRY`].
const SESSIONS_MAX: usize = 64;

/// Silence after which a session may make room for another (src: openpgm's peer expiry).
const SESSION_EXPIRY: Duration = Duration::from_secs(300);

/// PGM network element.
#[derive(Debug)]
pub struct PgmElement {
    node: NodeId,
    config: ElementConfig,
    schemes: &'static [SchemeEntry],
    sessions: Vec<SessionState>,
    out: VecDeque<(Egress, Vec<u8>)>,
}

#[derive(Clone, Copy)]
struct Passing<'a> {
    relayed: &'a RelayPacket<'a>,
    pgm: Packet<'a>,
}

#[derive(Debug)]
struct SessionState {
    tsi: Tsi,
    flow: FlowId,
    data_port: u16,
    source: NodeId,
    spm_sequence: Seq,
    /// Next PGM hop towards the source, and the port to it.
    upstream: NodeId,
    upstream_port: PortId,
    heard: Time,
    repairs: Repairs,
    stamps: Stamps,
}

impl PgmElement {
    /// Creates the element in router `node`, which reads reports of `schemes`.
    pub fn new(node: NodeId, config: ElementConfig, schemes: &'static [SchemeEntry]) -> Self {
        Self { node, config, schemes, sessions: Vec::new(), out: VecDeque::new() }
    }

    /// Learns the path to the source from an SPM, and forwards it with this element as last hop.
    fn take_spm(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Passing<'_>,
        spm: Spm,
        buf: &mut Vec<u8>,
    ) -> Checked<Handling> {
        let Some(upstream) = spm.path.node() else {
            return Ok(Handling::Forward); // IPv6, which a node number cannot represent.
        };
        let (tsi, now) = (packet.pgm.tsi(), cx.now);
        if let Some(session) = find(&mut self.sessions, tsi) {
            if !spm.sequence.after(session.spm_sequence) {
                return Err(BadInput::Duplicate);
            }
            (session.upstream, session.upstream_port) = (upstream, packet.relayed.port);
            (session.spm_sequence, session.heard) = (spm.sequence, now);
        } else if self.make_room(now) {
            self.sessions.push(SessionState {
                tsi,
                flow: packet.relayed.flow,
                data_port: packet.pgm.header.data_port(packet.pgm.kind()),
                source: packet.relayed.datagram.from,
                spm_sequence: spm.sequence,
                upstream,
                upstream_port: packet.relayed.port,
                heard: now,
                repairs: Repairs::new(),
                stamps: Stamps::default(),
            });
        } else {
            cx.emit(Event::BadInput { reason: BadInput::TableFull });
            return Ok(Handling::Forward);
        }
        let body = Body::Spm(Spm { path: Nla::from_node(self.node), ..spm });
        Packet { body, ..packet.pgm }.encode(buf);
        Ok(Handling::Alter)
    }

    fn make_room(&mut self, now: Time) -> bool {
        if self.sessions.len() < SESSIONS_MAX {
            return true;
        }
        let silent = |session: &SessionState| now.since(session.heard) >= SESSION_EXPIRY;
        let index = self.sessions.iter().position(silent);
        index.map(|index| self.sessions.swap_remove(index)).is_some()
    }

    fn take_nak(&mut self, cx: &mut Cx<'_>, packet: &Passing<'_>, nak: Nak) -> Checked {
        let Self { node, config, schemes, sessions, out } = self;
        let session = asked_of(sessions, packet)?;
        let report = report_on(cx.now, schemes, &packet.pgm);
        let reported = report.and_then(|report| report.reported(&session.stamps, Duration::ZERO));
        let (mut passes, mut room) = (false, false);
        for seq in packet.pgm.nak_sequence() {
            let ask = Ask { port: packet.relayed.port, nak, report, reported };
            match session.repairs.ask(cx, config, seq, ask) {
                Some(passed) => (passes, room) = (passes || passed, true),
                None => cx.emit(Event::BadInput { reason: BadInput::TableFull }),
            }
        }
        if !room {
            // Without state no repair could be forwarded, so the NAK is not confirmed.
            return Ok(());
        }
        out.push_back(session.confirmation(packet, nak));
        let seq = u64::from(nak.first.value());
        if passes {
            cx.emit(Event::NakForwarded { seq });
            out.push_back(session.towards_source(*node, packet.relayed.datagram.bytes.to_vec()));
        } else {
            cx.emit(Event::NakSuppressed { seq });
        }
        Ok(())
    }

    /// Ends the repetition of a NAK, or announces a repair (src: RFC 3208 s7.5).
    fn take_confirmation(&mut self, cx: &mut Cx<'_>, packet: &Passing<'_>, nak: Nak) -> Checked {
        let session = find(&mut self.sessions, packet.pgm.tsi()).ok_or(BadInput::Foreign)?;
        if packet.relayed.port != session.upstream_port {
            return Err(BadInput::Foreign);
        }
        for seq in packet.pgm.nak_sequence() {
            if !session.repairs.confirm(cx.now, seq, nak) {
                cx.emit(Event::BadInput { reason: BadInput::TableFull });
            }
        }
        Ok(())
    }

    fn take_repair(&mut self, cx: &mut Cx<'_>, packet: &Passing<'_>, seq: Seq) -> Handling {
        let Some(session) = find(&mut self.sessions, packet.pgm.tsi()) else {
            // An element that has just started must not discard repairs.
            return Handling::Forward;
        };
        if packet.relayed.port != session.upstream_port {
            cx.emit(Event::BadInput { reason: BadInput::Foreign });
            return Handling::Drop;
        }
        let Some(ports) = session.repairs.repaired(cx.now, seq) else {
            cx.emit(Event::BadInput { reason: BadInput::OutOfWindow });
            return Handling::Drop;
        };
        let copies = ports.iter().map(|port| Egress::Copy(packet.relayed.key, *port));
        let all = copies.chain([Egress::Release(packet.relayed.key)]);
        self.out.extend(all.map(|egress| (egress, Vec::new())));
        Handling::Hold
    }

    fn take_data(&mut self, now: Time, pgm: &Packet<'_>) {
        let stamp = self.schemes.iter().find_map(|SchemeEntry { view, .. }| {
            let announce = pgm.options.find(view.announce_option)?;
            (view.stamp)(announce.value)
        });
        if let (Some(stamp), Some(session)) = (stamp, find(&mut self.sessions, pgm.tsi())) {
            session.stamps.note(now, stamp);
        }
    }

    fn take(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Passing<'_>,
        buf: &mut Vec<u8>,
    ) -> Checked<Handling> {
        let for_me = packet.relayed.datagram.to == Destination::Node(self.node);
        let ends = |()| Handling::Drop;
        match packet.pgm.body {
            Body::Spm(spm) if !for_me => self.take_spm(cx, packet, spm, buf),
            Body::Nak(nak) if for_me => self.take_nak(cx, packet, nak).map(ends),
            Body::Nnak(_) if for_me => {
                let session = asked_of(&mut self.sessions, packet)?;
                let bytes = packet.relayed.datagram.bytes.to_vec();
                self.out.push_back(session.towards_source(self.node, bytes));
                Ok(Handling::Drop)
            }
            Body::Ncf(nak) if !for_me => self.take_confirmation(cx, packet, nak).map(ends),
            Body::Rdata(data) if !for_me => Ok(self.take_repair(cx, packet, data.sequence)),
            Body::Odata(_) if !for_me => {
                self.take_data(cx.now, &packet.pgm);
                Ok(Handling::Forward)
            }
            _ if for_me => Err(BadInput::Foreign),
            _ => Ok(Handling::Forward),
        }
    }
}

fn find(sessions: &mut [SessionState], tsi: Tsi) -> Option<&mut SessionState> {
    sessions.iter_mut().find(|session| session.tsi == tsi)
}

fn asked_of<'s>(
    sessions: &'s mut [SessionState],
    packet: &Passing<'_>,
) -> Checked<&'s mut SessionState> {
    let session = find(sessions, packet.pgm.tsi()).ok_or(BadInput::Foreign)?;
    // An upstream element does not request from a downstream one.
    if packet.relayed.port == session.upstream_port { Err(BadInput::Foreign) } else { Ok(session) }
}

impl Relay for PgmElement {
    fn interest(&self) -> Interest {
        match self.config.suppression {
            Suppression::Throughput => Interest::Everything,
            _ => Interest::Alerted,
        }
    }

    fn handle_packet(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &RelayPacket<'_>,
        buf: &mut Vec<u8>,
    ) -> Handling {
        self.handle_timeout(cx);
        let decoded = Packet::decode(packet.datagram.bytes, packet.datagram.zeros);
        let passing = decoded.map(|pgm| Passing { relayed: packet, pgm });
        match passing.and_then(|packet| self.take(cx, &packet, buf)) {
            Ok(handling) => handling,
            Err(reason) => {
                cx.emit(Event::BadInput { reason });
                // A packet that does not decode may be of another protocol.
                let foreign =
                    decoded.is_err() && packet.datagram.to != Destination::Node(self.node);
                if foreign { Handling::Forward } else { Handling::Drop }
            }
        }
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        for session in &mut self.sessions {
            let expired = session.repairs.expire(cx.now);
            for (kind, given_up, after) in [
                (TimeoutKind::NakConfirmation, expired.unconfirmed, NAK_REPEAT),
                (TimeoutKind::NakRepair, expired.unrepaired, REPAIR_WAIT),
            ] {
                if given_up {
                    cx.emit(Event::Timeout { kind, after_ns: after.as_nanos() });
                }
            }
            for run in expired.repeat.chunk_by(|a, b| b.after(*a)) {
                for list in run.chunks(1 + NAK_LIST_MAX) {
                    self.out.push_back(session.repetition(cx.now, self.node, list));
                }
            }
        }
    }

    fn poll_transmit(&mut self, _cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Egress> {
        let (egress, bytes) = self.out.pop_front()?;
        *buf = bytes;
        Some(egress)
    }

    fn next_timeout(&self) -> Option<Time> {
        self.sessions.iter().filter_map(|session| session.repairs.next_timeout()).min()
    }
}

impl SessionState {
    fn confirmation(&self, packet: &Passing<'_>, nak: Nak) -> (Egress, Vec<u8>) {
        let (port, parity) = (packet.relayed.port, packet.pgm.header.parity);
        let header = Header { parity, ..Header::downstream(self.tsi, self.data_port) };
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, &header, &Body::Ncf(nak));
        encoder.nak_list(packet.pgm.options.nak_list());
        encoder.finish();
        let to = Destination::Group(GroupId::SESSION);
        let control = RelayTransmit::control(self.flow, port, to, self.source);
        let transmit = RelayTransmit { router_alert: true, ..control };
        (Egress::Send(transmit), bytes)
    }

    fn towards_source(&self, node: NodeId, bytes: Vec<u8>) -> (Egress, Vec<u8>) {
        let to = Destination::Node(self.upstream);
        let control = RelayTransmit::control(self.flow, self.upstream_port, to, node);
        (Egress::Send(control), bytes)
    }

    /// Repeats the NAK for unconfirmed packets; `list` is ascending and not empty.
    fn repetition(&self, now: Time, node: NodeId, list: &[Seq]) -> (Egress, Vec<u8>) {
        let (first, rest) = list.split_first().expect("a repetition asks for something");
        let (nak, report) = self.repairs.latest(*first).expect("what is repeated has state");
        let header = Header::upstream(self.tsi, self.data_port);
        let mut bytes = Vec::new();
        let body = Body::Nak(Nak { first: *first, ..nak });
        let mut encoder = Encoder::new(&mut bytes, &header, &body);
        encoder.nak_list(rest.iter().copied());
        if let Some(report) = report {
            encoder.option(report.view.report_option, &report.held_until(now));
        }
        encoder.finish();
        self.towards_source(node, bytes)
    }
}
