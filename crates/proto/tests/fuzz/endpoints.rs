//! Fuzz targets of both ends: PGM streams and objects under every scheme, and TRAM trees. Inserted
//! packets get a valid session, ports and checksum, to pass the first checks.

use faircast_base::{Duration, FlowId, GroupId, NodeId, Time};
use faircast_proto::catalog::{SCHEMES, SchemeEntry, Stack, over_pgm, trees};
use faircast_proto::content::{ByOffset, InMemory, Zeros};
use faircast_proto::object::{ContentSupply, InOrder, ObjectReceiverSetup, ObjectSourceSetup};
use faircast_proto::options::{OptionValue, Options};
use faircast_proto::pgm::wire::{Gsi, HEADER_LEN, Nla, Tsi, checksum};
use faircast_proto::pgm::{ReceiverConfig, SourceConfig};
use faircast_proto::transport::{EndSetup, Role};
use faircast_proto::{Datagram, Destination, FlowEnd, FlowMachine, Transmit};

use crate::ends::{End, FLYING_MAX, REST, damage};

pub(crate) const GROUP: Nla = Nla::V4([239, 192, 0, 1]);
pub(crate) const TSI: Tsi = Tsi { gsi: Gsi([1, 2, 3, 4, 5, 6]), port: 5000 };

const SYMBOL_BYTES: u16 = 100;

/// Runs a stream: the first byte selects the scheme, the others are steps.
pub(crate) fn streams(data: &[u8]) {
    let Some((entry, steps)) = scheme(data) else { return };
    let options = settings(entry, &[]);
    let mut config = SourceConfig::from_options(NodeId(1), GROUP, TSI, &options);
    config.transmit_window = 128;
    let endless = ByOffset::new(Box::new(Zeros { len: None }), 100);
    let source = entry.stream_source(config, Box::new(endless), &options);
    let receiver = |node| {
        let mut config = ReceiverConfig::from_options(GROUP, &options);
        config.receive_window = 128;
        entry.stream_receiver(node, config, &options)
    };
    let [first, second] =
        [2, 3].map(|node| Box::new(FlowEnd(receiver(NodeId(node)))) as FlowMachine);
    Session::new([Box::new(FlowEnd(source)), first, second], dress).run(steps);
}

/// Runs a tree with each control. The source may have one member: the other's repair head.
pub(crate) fn tree(steps: &[u8]) {
    for stack in trees() {
        tree_of(stack, steps);
    }
}

fn tree_of(stack: Stack, steps: &[u8]) {
    let set = [("members_max", OptionValue::Integer(1)), ("wait_for", OptionValue::Integer(2))];
    let set = set.map(|(key, value)| (key.to_string(), value));
    let options = Options::checked(set, &stack.options()).expect("these are settings of the tree");
    let nodes = [NodeId(1)];
    let end = |role, node| {
        let setup = EndSetup::new(FlowId(0), NodeId(node), &nodes, &options);
        let end = stack.end(role, EndSetup { payload: 100, ..setup });
        end.expect("trees have sources and receivers")
    };
    let content: Vec<u8> = (0..20_000_u32).map(|i| (i * 7 + i / 251) as u8).collect();
    let source = end(Role::Source(Box::new(InMemory(content.into()))), 1);
    let [first, second] = [2, 3].map(|node| end(Role::Receiver, node));
    Session::new([source, first, second], dress_for_tree).run(steps);
}

/// Runs an object: the first byte selects the scheme, the others are steps.
pub(crate) fn objects(data: &[u8]) {
    let Some((entry, steps)) = scheme(data) else { return };
    let options = settings(entry, &[("reliable", OptionValue::Bool(false))]);
    let content: Vec<u8> = (0..20_000_u32).map(|i| (i * 7 + i / 251) as u8).collect();
    let supply = ContentSupply::new(Box::new(InMemory(content.into())), SYMBOL_BYTES);
    let (node, supply, give_up) = (NodeId(1), Box::new(supply), Duration::from_secs(30));
    let setup = ObjectSourceSetup::new(node, GROUP, TSI, supply, SYMBOL_BYTES, &options);
    let source = entry.object_source(ObjectSourceSetup { give_up, ..setup });
    let receiver = |node| {
        let store = Box::new(InOrder::default());
        entry.object_receiver(ObjectReceiverSetup::new(node, GROUP, TSI, store, &options))
    };
    let [first, second] =
        [2, 3].map(|node| Box::new(FlowEnd(receiver(NodeId(node)))) as FlowMachine);
    Session::new([Box::new(FlowEnd(source)), first, second], dress).run(steps);
}

fn scheme(data: &[u8]) -> Option<(&'static SchemeEntry, &[u8])> {
    let (&choice, steps) = data.split_first()?;
    Some((&SCHEMES[usize::from(choice) % SCHEMES.len()], steps))
}

fn settings(entry: &'static SchemeEntry, more: &[(&str, OptionValue)]) -> Options {
    let more = more.iter().map(|(key, value)| ((*key).to_string(), value.clone()));
    Options::checked(more, &over_pgm(entry).options()).expect("these are settings of every scheme")
}

const DATA_PORT: u16 = 7500;

#[derive(Clone)]
struct Flying {
    from: usize,
    to: usize,
    destination: Destination,
    bytes: Vec<u8>,
    zeros: u32,
}

struct Session {
    dress: fn(Vec<u8>) -> Vec<u8>,
    now: Time,
    ends: Vec<End>,
    flying: Vec<Flying>,
}

impl Session {
    fn new(machines: [FlowMachine; 3], dress: fn(Vec<u8>) -> Vec<u8>) -> Self {
        let ends = machines.into_iter().zip(1..).map(|(machine, node)| End::new(node, machine));
        Self { dress, now: Time::ZERO, ends: ends.collect(), flying: Vec::new() }
    }

    /// Runs the steps of `data`: an operation, an argument, perhaps more bytes.
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
                    lost if lost < self.flying.len() => drop(self.flying.remove(lost)),
                    _ => {}
                },
                operation => {
                    let (bytes, rest) = data.split_at(usize::from(argument).min(data.len()));
                    data = rest;
                    let destination = match operation {
                        6 => Destination::Group(GroupId::SESSION),
                        _ => Destination::Node(self.ends[usize::from(argument) % 3].node),
                    };
                    let to = usize::from(argument) % 3;
                    let from = (to + 1) % 3;
                    let bytes = (self.dress)(bytes.to_vec());
                    self.deliver(&Flying { from, to, destination, bytes, zeros: 0 });
                }
            }
        }
        self.close(0);
        self.pass(REST);
        for end in &self.ends {
            let next = end.machine.next_timeout();
            assert!(next.is_none(), "node {} waits for {next:?}", end.node.0);
        }
    }

    fn damage(&mut self, copy: bool, argument: u8, data: &mut &[u8]) {
        let copy = copy && self.flying.len() < FLYING_MAX;
        if let Some(packet) = damage(&mut self.flying, |it| &mut it.bytes, (copy, argument), data) {
            packet.bytes = (self.dress)(core::mem::take(&mut packet.bytes));
        }
    }

    fn close(&mut self, end: usize) {
        let sent = self.ends[end].act(self.now, |machine, cx| machine.handle_close(cx));
        self.launch(end, sent);
    }

    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        for i in 0..self.ends.len() {
            let sent = self.ends[i].pass(self.now, end);
            self.launch(i, sent);
        }
        self.now = end;
    }

    fn launch(&mut self, from: usize, sent: Vec<(Transmit, Vec<u8>)>) {
        for (Transmit { to: destination, zeros, .. }, bytes) in sent {
            for to in (0..self.ends.len()).filter(|to| *to != from) {
                let meant = match destination {
                    Destination::Group(_) => true,
                    Destination::Node(node) => node == self.ends[to].node,
                };
                if meant && self.flying.len() < FLYING_MAX {
                    let bytes = bytes.clone();
                    self.flying.push(Flying { from, to, destination, bytes, zeros });
                }
            }
        }
    }

    fn deliver(&mut self, packet: &Flying) {
        let Flying { from, to, destination, bytes, zeros } = packet;
        let datagram = Datagram::new(self.ends[*from].node, *destination, bytes);
        let datagram = Datagram { zeros: *zeros, ..datagram };
        let sent =
            self.ends[*to].act(self.now, |machine, cx| machine.handle_datagram(cx, datagram));
        self.launch(*to, sent);
    }

    fn exchange(&mut self) {
        for packet in core::mem::take(&mut self.flying) {
            self.deliver(&packet);
        }
    }
}

pub(crate) fn dress(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.len() >= HEADER_LEN {
        let upstream = matches!(bytes[4] & 0x0f, 2 | 8 | 9 | 11..=13);
        let ports = if upstream { (DATA_PORT, TSI.port) } else { (TSI.port, DATA_PORT) };
        bytes[0..2].copy_from_slice(&ports.0.to_be_bytes());
        bytes[2..4].copy_from_slice(&ports.1.to_be_bytes());
        bytes[8..14].copy_from_slice(&TSI.gsi.0);
        seal(&mut bytes);
    }
    bytes
}

pub(crate) fn dress_for_tree(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.len() >= 24 {
        bytes[..3].copy_from_slice(b"ft\x01");
        bytes[8..16].copy_from_slice(&1_u64.to_be_bytes());
        seal(&mut bytes);
    }
    bytes
}

/// Writes the checksum, which all packets have at the same bytes.
pub(crate) fn seal(bytes: &mut [u8]) {
    bytes[6..8].fill(0);
    let sum = checksum(bytes);
    bytes[6..8].copy_from_slice(&sum.to_be_bytes());
}
