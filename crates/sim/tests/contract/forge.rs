//! Forged packets: random bytes and damaged real packets.

use std::ops::Range;

use faircast_base::{Cx, Duration, Event, FlowId, GroupId, NodeId, Purpose, Rng, Time, Trace};
use faircast_proto::content::Zeros;
use faircast_proto::pgm::wire::{Body, Encoder, Packet, checksum};
use faircast_proto::relay::{PacketKey, PortId, Relay, RelayPacket};
use faircast_proto::stack::Stack;
use faircast_proto::tram;
use faircast_proto::transport::Role;
use faircast_proto::{Datagram, Destination, FlowEvent, FlowMachine, Machine};
use faircast_scenario::Scenario;
use faircast_sim::Protocols;

use crate::watch::{Captured, Watched};

const RANDOM_BYTES_MAX: u64 = 200;
/// Most zeros after a packet: more than a real packet can have.
const ZEROS_MAX: u64 = 70_000;
const OUTPUT_MAX: usize = 100_000;

pub(crate) struct Forger<'a> {
    pub(crate) rng: Rng,
    pub(crate) real: &'a [Captured],
}

impl<'a> Forger<'a> {
    pub(crate) fn new(seed: u64, real: &'a [Captured]) -> Self {
        Self { rng: Rng::new(seed, NodeId(0), Purpose::Machine(0)), real }
    }

    fn byte(&mut self) -> u8 {
        self.rng.below(256) as u8
    }

    pub(crate) fn packet(&mut self) -> Captured {
        let way = self.rng.below(8);
        if self.real.is_empty() || way == 0 {
            let bytes = (0..self.rng.below(RANDOM_BYTES_MAX)).map(|_| self.byte()).collect();
            let from = NodeId(self.rng.below(8) as u32);
            let zeros = self.rng.below(ZEROS_MAX) as u32;
            return Captured { from, to: Destination::Group(GroupId::SESSION), bytes, zeros };
        }
        let mut packet = self.real[self.rng.below(self.real.len() as u64) as usize].clone();
        if way > 1 {
            for _ in 0..=self.rng.below(3) {
                self.damage(&mut packet);
            }
            // Most packets get a valid checksum, since a wrong one is rejected at once.
            if self.rng.chance(0.7) {
                seal(&mut packet.bytes);
            }
        }
        packet
    }

    fn damage(&mut self, packet: &mut Captured) {
        let len = packet.bytes.len() as u64;
        match self.rng.below(9) {
            0 => packet.bytes.truncate(self.rng.below(len + 1) as usize),
            1 => {
                let more = self.rng.below(40);
                for _ in 0..more {
                    let byte = self.byte();
                    packet.bytes.push(byte);
                }
            }
            2 => packet.zeros = self.rng.below(ZEROS_MAX) as u32,
            3 => packet.from = NodeId(self.rng.bits() as u32),
            4 if len > 0 => {
                let at = self.rng.below(len) as usize;
                packet.bytes[at] ^= 1 << self.rng.below(8);
            }
            5 if len > 0 => {
                let at = self.rng.below(len) as usize;
                packet.bytes[at] = self.byte();
            }
            _ if len >= 4 => {
                let at = self.rng.below(len / 2 - 1) as usize * 2;
                let Some(word) = packet.bytes.get_mut(at..at + 4) else { return };
                let old = u32::from_be_bytes(word.try_into().expect("four bytes"));
                let new = match self.rng.below(4) {
                    0 => self.rng.bits() as u32,
                    1 => [0, 1, u32::MAX, 1 << 31][self.rng.below(4) as usize],
                    _ => old.wrapping_add(self.rng.below(40_000) as u32).wrapping_sub(20_000),
                };
                word.copy_from_slice(&new.to_be_bytes());
            }
            _ => {}
        }
    }
}

pub(crate) fn seal(bytes: &mut [u8]) {
    if bytes.len() >= 16 {
        bytes[6..8].fill(0);
        let sum = checksum(bytes);
        bytes[6..8].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Offsets of kind and reports in TRAM's packets, as in docs/tram.md; the scheme's part is last.
const TRAM_KIND: usize = 3;
const TRAM_REPORT: u8 = 12;
const TRAM_TELLING: usize = 24;
const TRAM_OPTION: usize = 25;
const TRAM_VALUE: usize = 40;
/// Flags: acknowledges, requests nothing.
const ACKNOWLEDGES: u8 = 0;
const NOTHING: u8 = 2;

fn is_tram_report(bytes: &[u8]) -> bool {
    tram::peek(bytes).is_some() && bytes.len() >= TRAM_VALUE && bytes[TRAM_KIND] == TRAM_REPORT
}

pub(crate) fn report_place(bytes: &[u8], zeros: u32, option: u8) -> Option<Range<usize>> {
    if is_tram_report(bytes) {
        return (bytes[TRAM_OPTION] == option).then_some(TRAM_VALUE..bytes.len());
    }
    let packet = Packet::decode(bytes, zeros).ok()?;
    let value = packet.options.find(option)?.value;
    let start = value.as_ptr() as usize - bytes.as_ptr() as usize;
    Some(start..start + value.len())
}

pub(crate) fn acknowledges(bytes: &[u8], zeros: u32) -> bool {
    let of_pgm = || Packet::decode(bytes, zeros).is_ok_and(|it| matches!(it.body, Body::Ack(_)));
    is_tram_report(bytes) && bytes[TRAM_TELLING] == ACKNOWLEDGES || of_pgm()
}

pub(crate) fn with_report(bytes: &[u8], zeros: u32, option: u8, value: &[u8]) -> Option<Vec<u8>> {
    let mut forged = Vec::new();
    if is_tram_report(bytes) {
        forged.extend_from_slice(&bytes[..TRAM_VALUE]);
        (forged[TRAM_TELLING], forged[TRAM_OPTION]) = (NOTHING, option);
        forged.extend_from_slice(value);
        seal(&mut forged);
        return Some(forged);
    }
    let packet = Packet::decode(bytes, zeros).ok()?;
    let (Body::Nak(nak) | Body::Nnak(nak)) = packet.body else { return None };
    let mut encoder = Encoder::new(&mut forged, &packet.header, &Body::Nnak(nak));
    encoder.raw_option(option, 0, value);
    encoder.finish();
    Some(forged)
}

#[derive(Default)]
pub(crate) struct Said {
    pub(crate) refused: u64,
    pub(crate) other: u64,
}

impl Trace for Said {
    fn emit(&mut self, _at: Time, event: Event) {
        match event {
            Event::BadInput { .. } => self.refused += 1,
            _ => self.other += 1,
        }
    }
}

pub(crate) struct Victim {
    machine: FlowMachine,
    rng: Rng,
    pub(crate) said: Said,
    pub(crate) now: Time,
}

impl Victim {
    pub(crate) fn new(scenario: &Scenario, watched: &Watched, sender: bool) -> Self {
        let (flow, id) = (&scenario.flows[0], FlowId(0));
        let (role, node) = if sender {
            (Role::Source(Box::new(Zeros { len: None })), flow.sender())
        } else {
            (Role::Receiver, flow.to[0])
        };
        let machine = watched.end(flow, id, node, role, Time::ZERO);
        let rng = Rng::new(1, node, Purpose::Machine(1));
        Self { machine, rng, said: Said::default(), now: Time::ZERO }
    }

    fn call(&mut self, act: impl FnOnce(&mut dyn Machine<Event = FlowEvent>, &mut Cx<'_>)) {
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.said);
        act(&mut *self.machine, &mut cx);
        let mut buf = Vec::new();
        while self.machine.poll_transmit(&mut cx, &mut buf).is_some() {
            buf.clear();
        }
        let mut events = 0;
        while self.machine.poll_event().is_some() {
            events += 1;
            assert!(events < OUTPUT_MAX, "one input became {events} events");
        }
    }

    pub(crate) fn take(&mut self, packet: &Captured, congestion_experienced: bool) {
        let Captured { from, to, ref bytes, zeros } = *packet;
        let datagram = Datagram { zeros, congestion_experienced, ..Datagram::new(from, to, bytes) };
        self.call(|machine, cx| machine.handle_datagram(cx, datagram));
    }

    pub(crate) fn pass(&mut self, span: Duration, timely: bool) {
        let end = self.now + span;
        while let Some(at) = self.machine.next_timeout().filter(|at| timely && *at <= end) {
            self.now = self.now.max(at);
            self.call(|machine, cx| machine.handle_timeout(cx));
        }
        self.now = end;
        self.call(|machine, cx| machine.handle_timeout(cx));
    }

    pub(crate) fn close(&mut self) {
        self.call(|machine, cx| machine.handle_close(cx));
    }
}

pub(crate) struct VictimRelay {
    relay: Box<dyn Relay>,
    rng: Rng,
    pub(crate) said: Said,
    pub(crate) now: Time,
    key: u64,
}

impl VictimRelay {
    pub(crate) fn new(scenario: &Scenario, watched: &Watched) -> Self {
        let place = scenario.nodes.iter().position(|node| node.program.is_some());
        let place = place.expect("a router runs the relay");
        let program = scenario.nodes[place].program.as_ref().expect("just found");
        let node = NodeId(place as u32);
        let rng = Rng::new(1, node, Purpose::Relay);
        let relay = watched.relay(program, node);
        Self { relay, rng, said: Said::default(), now: Time::ZERO, key: 0 }
    }

    pub(crate) fn take(&mut self, packet: &Captured, dice: &mut Rng) {
        let Captured { from, to, ref bytes, zeros } = *packet;
        let ports: Vec<PortId> = (0..4).filter(|_| dice.chance(0.5)).map(PortId).collect();
        self.key += 1;
        let view = RelayPacket {
            key: PacketKey(self.key),
            flow: FlowId(dice.below(2) as u32),
            port: PortId(dice.below(4) as u32),
            ports_out: &ports,
            datagram: Datagram { zeros, ..Datagram::new(from, to, bytes) },
            time_to_live: dice.below(256) as u8,
        };
        self.call(|relay, cx| {
            let _ = relay.handle_packet(cx, &view, &mut Vec::new());
        });
    }

    fn call(&mut self, act: impl FnOnce(&mut dyn Relay, &mut Cx<'_>)) {
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.said);
        act(self.relay.as_mut(), &mut cx);
        while self.relay.poll_transmit(&mut cx, &mut Vec::new()).is_some() {}
    }

    pub(crate) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.relay.next_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.call(|relay, cx| relay.handle_timeout(cx));
        }
        self.now = end;
    }
}

pub(crate) fn hears(protocol: Stack, sender: bool) -> bool {
    !sender || protocol.transport.answers
}
