//! Fuzz target of credits: a source, a relay and two receivers, with loss, damage and forgery.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use faircast_base::{Cx, Duration, FlowId, NodeId, Purpose, Rng, Time};
use faircast_proto::catalog::{self, RELAYS};
use faircast_proto::content::InMemory;
use faircast_proto::credit::{
    self, PendingLoad, ProgramFault, ProgramHost, RunningProgram, SessionProgram,
};
use faircast_proto::options::{OptionValue, Options};
use faircast_proto::relay::{Egress, Handling, PacketKey, PortId, Relay, RelayPacket};
use faircast_proto::transport::{EndSetup, Role};
use faircast_proto::{Datagram, Destination, Transmit};
use faircast_relay_sdk::View;

use crate::endpoints::seal;
use crate::ends::{End, FLYING_MAX, MANY, REST, damage};

const ME: NodeId = NodeId(10);
const POLICIES: [&str; 7] = [
    "worst-path",
    "best-path",
    "quantile",
    "bounded-lag",
    "deadline",
    "layered-drop",
    "weighted-utility",
];

/// Decodes the bytes, then runs them as a session: a policy, then steps.
pub(crate) fn credits(data: &[u8]) {
    if let Some(again) = credit::written_again(data) {
        assert_eq!(credit::written_again(&again).as_ref(), Some(&again));
        assert_eq!(data.get(..again.len()), Some(&again[..]));
    }
    let Some((&choice, steps)) = data.split_first() else { return };
    World::new(choice).run(steps);
}

/// Host of programs of three bytes: load time in 10 ms, calls before the failure, and answers.
struct Host;

#[derive(Clone)]
struct Answers {
    left: u8,
    answer: u8,
}

impl ProgramHost for Host {
    fn load(&self, code: &[u8]) -> PendingLoad {
        let &[takes, left, answer] = code else { return Box::new(|_| Some(Err("length".into()))) };
        let takes = Duration::from_millis(10) * u64::from(takes);
        let mut began = None;
        Box::new(move |now| {
            let program: Arc<dyn SessionProgram> = Arc::new(Answers { left, answer });
            (now.since(*began.get_or_insert(now)) >= takes).then_some(Ok(program))
        })
    }
}

impl SessionProgram for Answers {
    fn start(&self, _: u32) -> Result<Box<dyn RunningProgram>, ProgramFault> {
        Ok(Box::new(self.clone()))
    }
}

impl Answers {
    fn ask(&mut self) -> Result<u32, ProgramFault> {
        self.left = self.left.checked_sub(1).ok_or(ProgramFault(String::new()))?;
        // The value 255 never fails.
        self.left += u8::from(self.left == 254);
        Ok(self.answer.into())
    }
}

impl RunningProgram for Answers {
    fn credit(&mut self, _: &dyn View) -> Result<Option<u32>, ProgramFault> {
        self.ask().map(|answer| answer.checked_sub(1))
    }
    fn accepts(&mut self, _: &dyn View, branch: u32, _: u8) -> Result<bool, ProgramFault> {
        self.ask().map(|answer| answer != branch + 7)
    }
    fn discards(&mut self, _: &dyn View, _: u32) -> Result<u32, ProgramFault> {
        self.ask().map(|answer| answer / 32)
    }
    fn interval_ms(&mut self) -> Result<Option<u32>, ProgramFault> {
        Ok((self.answer > 128).then_some(self.answer.into()))
    }
    fn drops(&mut self) -> Result<bool, ProgramFault> {
        Ok(self.answer & 1 == 1)
    }
}

#[derive(Clone)]
struct Flying {
    port: usize,
    up: bool,
    to: Destination,
    from: NodeId,
    bytes: Vec<u8>,
    zeros: u32,
}

struct World {
    now: Time,
    ends: Vec<End>,
    relay: Box<dyn Relay>,
    rng: Rng,
    held: BTreeMap<PacketKey, Flying>,
    awaited: BTreeSet<PortId>,
    key: u64,
    flying: Vec<Flying>,
}

impl World {
    fn new(choice: u8) -> Self {
        let policy = POLICIES.get(usize::from(choice & 7));
        let program: Arc<[u8]> = Arc::from([choice >> 6, choice >> 3 & 7, choice]);
        let (key, value) = match policy {
            Some(policy) => ("policy", OptionValue::Text((*policy).to_string())),
            None => ("program", OptionValue::Bytes(program)),
        };
        let set = [(key, value), ("credit_buffer", OptionValue::Integer(4))];
        let set = set.map(|(key, value)| (key.to_string(), value));
        let stack = catalog::stack("credit").expect("it is registered");
        let options =
            Options::checked(set, &stack.options()).expect("these are settings of credits");
        let sources = [NodeId(1)];
        let ends = (1..=3).map(|node| {
            let content: Vec<u8> = vec![7; 20_000];
            let role = match node {
                1 => Role::Source(Box::new(InMemory(content.into()))),
                _ => Role::Receiver,
            };
            let setup = EndSetup::new(FlowId(0), NodeId(node), &sources, &options);
            let machine = stack.end(role, EndSetup { payload: 100, ..setup });
            End::new(node, machine.expect("credits have sources and receivers"))
        });
        let relay = RELAYS.iter().find(|entry| entry.name == "credit").expect("it is registered");
        Self {
            now: Time::ZERO,
            ends: ends.collect(),
            relay: (relay.relay)(ME, &Options::default(), Some(Arc::new(Host))),
            rng: Rng::new(1, ME, Purpose::Relay),
            held: BTreeMap::new(),
            awaited: BTreeSet::new(),
            key: 0,
            flying: Vec::new(),
        }
    }

    fn run(&mut self, mut data: &[u8]) {
        self.pass(Duration::from_millis(1));
        while let Some((&[operation, argument], rest)) = data.split_first_chunk() {
            data = rest;
            match operation % 8 {
                0 => self.pass(Duration::from_micros(u64::from(argument) * 400)),
                1 => self.exchange(),
                2 => self.pass(Duration::from_millis(u64::from(argument) * 40)),
                3 | 4 => self.damage(operation % 8 == 4, argument, &mut data),
                5 => match usize::from(argument) {
                    closed @ 250.. => self.close(closed % 3),
                    gone @ 240..250 => {
                        let port = gone % 3;
                        let (node, now) = (self.ends[port].node, self.now);
                        let mut cx = Cx::untraced(now, &mut self.rng);
                        self.relay.handle_gone(&mut cx, FlowId(0), PortId(port as u32), node);
                        self.drain_relay();
                    }
                    lost if lost < self.flying.len() => drop(self.flying.remove(lost)),
                    _ => {}
                },
                operation => {
                    let (bytes, rest) = data.split_at(usize::from(argument).min(data.len()));
                    data = rest;
                    let port = usize::from(argument) % 3;
                    let to = match (operation, argument & 4) {
                        (6, 0) => Destination::Node(ME),
                        _ => Destination::Group(faircast_base::GroupId::SESSION),
                    };
                    let (bytes, from) = (dress(bytes.to_vec()), self.ends[port].node);
                    self.deliver(Flying { port, up: operation == 6, to, from, bytes, zeros: 0 });
                }
            }
        }
        // The relay becomes idle once the source is closed; ends send probes forever.
        self.close(0);
        for _ in 0..20 {
            self.pass(Duration::from_secs(1));
            self.exchange();
        }
        self.pass(REST);
        while let Some(port) = self.awaited.pop_first() {
            self.writable(port);
        }
        assert!(self.relay.next_timeout().is_none(), "the relay waits");
        assert!(self.held.is_empty(), "the relay holds {} packets", self.held.len());
    }

    fn damage(&mut self, copy: bool, argument: u8, data: &mut &[u8]) {
        let copy = copy && self.flying.len() < FLYING_MAX;
        if let Some(packet) = damage(&mut self.flying, |it| &mut it.bytes, (copy, argument), data) {
            packet.bytes = dress(core::mem::take(&mut packet.bytes));
        }
    }

    fn close(&mut self, port: usize) {
        let sent = self.ends[port].act(self.now, |machine, cx| machine.handle_close(cx));
        self.launch(port, sent);
    }

    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        for port in 0..self.ends.len() {
            let sent = self.ends[port].pass(self.now, end);
            self.launch(port, sent);
        }
        let mut calls = 0;
        while let Some(at) = self.relay.next_timeout().filter(|at| *at <= end) {
            calls = if at > self.now { 0 } else { calls + 1 };
            assert!(calls < MANY, "time stands still for the relay");
            self.now = self.now.max(at);
            let mut cx = Cx::untraced(self.now, &mut self.rng);
            self.relay.handle_timeout(&mut cx);
            self.drain_relay();
        }
        self.now = end;
    }

    fn push(&mut self, flying: Flying) {
        if self.flying.len() < FLYING_MAX {
            self.flying.push(flying);
        }
    }

    fn launch(&mut self, port: usize, sent: Vec<(Transmit, Vec<u8>)>) {
        let (up, from) = (true, self.ends[port].node);
        for (Transmit { to, zeros, .. }, bytes) in sent {
            self.push(Flying { port, up, to, from, bytes, zeros });
        }
    }

    fn drain_relay(&mut self) {
        let (mut sent, mut buf) = (0, Vec::new());
        loop {
            buf.clear();
            let mut cx = Cx::untraced(self.now, &mut self.rng);
            let Some(egress) = self.relay.poll_transmit(&mut cx, &mut buf) else { break };
            sent += 1;
            assert!(sent < MANY, "a drain does not end");
            match egress {
                Egress::Copy(key, port) => {
                    let held = self.held.get(&key).expect("it copies what it holds");
                    let mut flying = Flying { port: port.0 as usize, up: false, ..held.clone() };
                    flying.bytes[..buf.len()].copy_from_slice(&buf);
                    self.push(flying);
                }
                Egress::Release(key) => {
                    assert!(self.held.remove(&key).is_some(), "it releases what it holds");
                }
                Egress::Await(port) => _ = self.awaited.insert(port),
                Egress::Send(transmit) => {
                    let port = transmit.port.map_or(0, |port| port.0 as usize);
                    let (to, from, zeros) = (transmit.to, transmit.from, transmit.zeros);
                    let bytes = buf.clone();
                    self.push(Flying { port, up: false, to, from, bytes, zeros });
                }
            }
        }
    }

    fn writable(&mut self, port: PortId) {
        let mut cx = Cx::untraced(self.now, &mut self.rng);
        self.relay.handle_writable(&mut cx, port);
        self.drain_relay();
    }

    fn deliver(&mut self, flying: Flying) {
        let Flying { port, up, to, from, bytes, zeros } = &flying;
        let datagram = Datagram { zeros: *zeros, ..Datagram::new(*from, *to, bytes) };
        if !up {
            let Some(end) = self.ends.get_mut(*port) else { return };
            if matches!(to, Destination::Node(other) if *other != end.node) {
                return;
            }
            let sent = end.act(self.now, |machine, cx| machine.handle_datagram(cx, datagram));
            return self.launch(*port, sent);
        }
        let is_out = |place: usize, node: NodeId| match to {
            Destination::Group(_) => place != *port,
            Destination::Node(other) => node == *other,
        };
        let ports_out: Vec<PortId> = (0..self.ends.len())
            .filter(|place| is_out(*place, self.ends[*place].node))
            .map(|place| PortId(place as u32))
            .collect();
        self.key += 1;
        let (key, flow, port) = (PacketKey(self.key), FlowId(0), PortId(*port as u32));
        let packet =
            RelayPacket { key, flow, port, ports_out: &ports_out, datagram, time_to_live: 16 };
        let mut buf = Vec::new();
        let mut cx = Cx::untraced(self.now, &mut self.rng);
        let handling = self.relay.handle_packet(&mut cx, &packet, &mut buf);
        if handling == Handling::Hold {
            self.held.insert(key, flying.clone());
        }
        self.drain_relay();
        if matches!(handling, Handling::Forward | Handling::Alter) {
            let bytes = if handling == Handling::Alter { buf } else { flying.bytes.clone() };
            for port in ports_out {
                let bytes = bytes.clone();
                self.push(Flying { port: port.0 as usize, up: false, bytes, ..flying.clone() });
            }
        }
    }

    fn exchange(&mut self) {
        for flying in core::mem::take(&mut self.flying) {
            self.deliver(flying);
        }
        for port in core::mem::take(&mut self.awaited) {
            self.writable(port);
        }
    }
}

fn dress(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.get(..2) == Some(b"ft") || bytes.len() < 36 {
        return bytes;
    }
    bytes[..3].copy_from_slice(b"fr\x01");
    bytes[3] %= 6;
    let session = 1 + u64::from(bytes[15] & 3 == 3);
    bytes[8..16].copy_from_slice(&session.to_be_bytes());
    let header = match bytes[3] {
        3 | 5 => 40,
        4 => 36,
        _ => 52,
    };
    bytes.get_mut(..header).map(seal);
    bytes
}
