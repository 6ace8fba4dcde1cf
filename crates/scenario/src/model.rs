//! A checked scenario: everything in it is known to exist and to be in range.

use std::collections::BTreeMap;
use std::path::PathBuf;

use faircast_base::{Bitrate, Bytes, Duration, FlowId, NodeFaultKind, NodeId, Time};
use faircast_link::LinkConfig;
use faircast_overlay::{Benefit, FlowControl, Service};
use faircast_proto::options::{OptionValue, Options};
use faircast_proto::stack::Stack;

/// A checked scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The file that it came from, as the user named it.
    pub file: PathBuf,
    /// The text of that file with all settings from the command line applied, for the report.
    pub text: String,
    /// The question that it answers.
    pub title: String,
    /// How long it runs.
    pub duration: Duration,
    /// What is left out of every average at the start; less than `duration`.
    pub warmup: Duration,
    /// Seed of all randomness.
    pub seed: u64,
    /// All nodes; a [`NodeId`] is an index into this.
    pub nodes: Vec<Node>,
    /// All directions of all links; a [`LinkId`](faircast_base::LinkId) is an index into this.
    pub links: Vec<LinkSpec>,
    /// All flows, `count` already spelled out; a [`FlowId`](faircast_base::FlowId) is an index
    /// into this.
    pub flows: Vec<Flow>,
    /// All relay nodes.
    pub relays: Vec<RelaySpec>,
    /// All daemons of the overlay, with their clients.
    pub daemons: Vec<DaemonSpec>,
    /// Faults of nodes, in order of time.
    pub faults: Vec<NodeFault>,
}

impl Scenario {
    /// The flow to which packets of node programs count: the first number that no flow has.
    pub fn programs_flow(&self) -> FlowId {
        FlowId(self.flows.len() as u32)
    }

    /// Programs of nodes: relay nodes, then daemons.
    pub fn programs(&self) -> impl Iterator<Item = NodeProgram<'_>> {
        let relays = self.relays.iter().map(NodeProgram::Relay);
        relays.chain(self.daemons.iter().map(NodeProgram::Daemon))
    }

    /// Clients of all daemons, in the order of their numbers, with their nodes.
    pub fn clients(&self) -> Vec<(NodeId, &ClientSpec)> {
        let of = |it: &'_ DaemonSpec| it.node;
        let all =
            self.daemons.iter().flat_map(|it| it.clients.iter().map(move |own| (of(it), own)));
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|(_, client)| client.index);
        all
    }
}

/// Program of a node that speaks to other nodes over QUIC.
#[derive(Clone, Copy, Debug)]
pub enum NodeProgram<'a> {
    /// A relay node.
    Relay(&'a RelaySpec),
    /// A daemon of the overlay.
    Daemon(&'a DaemonSpec),
}

impl NodeProgram<'_> {
    /// The node.
    pub fn node(&self) -> NodeId {
        match self {
            Self::Relay(relay) => relay.node,
            Self::Daemon(daemon) => daemon.node,
        }
    }
}

/// A daemon of the overlay.
#[derive(Clone, Debug)]
pub struct DaemonSpec {
    /// The node.
    pub node: NodeId,
    /// Nodes of daemons to which this one opens links.
    pub peers: Vec<NodeId>,
    /// Clients of the daemon, which run at its node.
    pub clients: Vec<ClientSpec>,
    /// Flow control of the clients.
    pub flow_control: FlowControl,
}

/// A scripted client of a daemon.
#[derive(Clone, Debug)]
pub struct ClientSpec {
    /// Number of the client in the scenario.
    pub index: u32,
    /// Name of the client, unique in the scenario.
    pub name: String,
    /// When the client connects.
    pub start: Time,
    /// When the client ends, if it does.
    pub stop: Option<Time>,
    /// Groups of the client over time.
    pub stays: Vec<GroupStay>,
    /// Messages of the client.
    pub send: Option<SendSpec>,
}

/// Membership of a client in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStay {
    /// The group.
    pub group: String,
    /// When the client asks to join.
    pub at: Time,
    /// When the client asks to leave, if it does.
    pub leave: Option<Time>,
}

/// Messages of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendSpec {
    /// Groups of each message.
    pub groups: Vec<String>,
    /// Order and certainty of delivery.
    pub service: Service,
    /// Benefit under flow control; `None` for the daemon's choice.
    pub benefit: Option<Benefit>,
    /// Bytes of each message.
    pub size: Bytes,
    /// Rate of the messages' bytes; `None` for as many as the daemon takes.
    pub rate: Option<Bitrate>,
    /// When the first message is sent.
    pub start: Time,
    /// When no more messages are sent.
    pub stop: Option<Time>,
}

/// A relay node: a host that passes sessions on to hosts and relays below it.
#[derive(Clone, Debug)]
pub struct RelaySpec {
    /// Its node.
    pub node: NodeId,
    /// Relays above, of which the first that answers is used. Empty for the uppermost.
    pub parents: Vec<NodeId>,
    /// Settings of its program, checked against the program's table.
    pub options: Options,
}

/// A fault of a node: of all ends of flows there, and of its relay or daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeFault {
    /// When it happens.
    pub at: Time,
    /// The node.
    pub node: NodeId,
    /// The fault.
    pub kind: FaultKind,
}

/// Kind of a fault of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Programs stand still for this long. Packets wait at their sockets, as many as fit there.
    Stop(Duration),
    /// Programs are killed for good.
    Kill,
    /// Programs are killed, and start after this long without what they knew.
    Restart(Duration),
    /// The node has another address from then on; nobody is told.
    Move,
}

impl FaultKind {
    /// The event at its beginning.
    pub const fn begins(self) -> NodeFaultKind {
        match self {
            Self::Stop(_) => NodeFaultKind::Stopped,
            Self::Kill | Self::Restart(_) => NodeFaultKind::Killed,
            Self::Move => NodeFaultKind::Moved,
        }
    }

    /// The event at its end, and how long after the beginning that is.
    pub const fn ends(self) -> Option<(Duration, NodeFaultKind)> {
        match self {
            Self::Stop(span) => Some((span, NodeFaultKind::Resumed)),
            Self::Restart(span) => Some((span, NodeFaultKind::Started)),
            Self::Kill | Self::Move => None,
        }
    }
}

/// A host or router.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name, unique.
    pub name: String,
    /// What it runs beside forwarding, with the program's options in their text form.
    pub program: Option<Program>,
}

/// A program in a router.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its registered name, such as `pgm-element`.
    pub name: String,
    /// Its settings, checked against its table.
    pub options: Options,
}

/// One direction of one link.
#[derive(Clone, Debug)]
pub struct LinkSpec {
    /// Where it starts.
    pub from: NodeId,
    /// Where it ends.
    pub to: NodeId,
    /// What it is like.
    pub config: LinkConfig,
}

/// A flow.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Its name, unique.
    pub name: String,
    /// Its protocols.
    pub stack: Stack,
    /// Its senders: one, but where the protocol takes more.
    pub from: Vec<NodeId>,
    /// Its receivers. Those that join later are here too, and senders that receive.
    pub to: Vec<NodeId>,
    /// Payload of one data packet.
    pub packet: Bytes,
    /// Bytes that each data packet adds on the wire; `None` for the protocol's real headers.
    pub header: Option<Bytes>,
    /// When it starts.
    pub start: Time,
    /// When its sender stops offering new data, where it does.
    pub stop: Option<Time>,
    /// What it sends.
    pub data: Data,
    /// Memberships that do not last the whole run. A receiver that is not named here is a member
    /// throughout.
    pub join: Vec<Join>,
    /// Receivers that speak another scheme than the flow's.
    pub speaks: Vec<Speaks>,
    /// For each end the relays to attach to, of which the first that answers is used. Empty for a
    /// flow that goes through no relay nodes.
    pub via: BTreeMap<NodeId, Vec<NodeId>>,
    /// Receivers whose repair head is given, with that head: a receiver or the sender.
    pub heads: BTreeMap<NodeId, NodeId>,
    /// The settings of the protocol, checked against its table.
    pub options: Options,
    /// The same as the file gave them, for the report.
    pub raw_options: Vec<(String, OptionValue)>,
}

/// A receiver that speaks another scheme than its flow's, by mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Speaks {
    /// The receiver.
    pub node: NodeId,
    /// Protocols of the end at the node.
    pub stack: Stack,
}

impl Flow {
    /// The only sender, or the first of many.
    ///
    /// # Panics
    /// There is none, which no checked scenario has.
    pub fn sender(&self) -> NodeId {
        self.from[0]
    }

    /// Whether the end at `node` sends, where it begins at this moment.
    pub fn sends(&self, node: NodeId, at: Time) -> bool {
        self.from.contains(&node) && self.stop.is_none_or(|stop| at < stop)
    }

    /// Whether the end at `node` receives.
    pub fn receives(&self, node: NodeId) -> bool {
        self.to.contains(&node)
    }

    /// How many senders the receiver at `node` hears: all but itself.
    pub fn heard_at(&self, node: NodeId) -> u64 {
        self.from.iter().filter(|sender| **sender != node).count() as u64
    }

    /// Its ends: the senders, then the receivers that send nothing.
    pub fn ends(&self) -> impl Iterator<Item = NodeId> {
        let receivers = self.to.iter().filter(|node| !self.from.contains(node));
        self.from.iter().chain(receivers).copied()
    }

    /// The protocols that the receiver at `node` speaks.
    pub fn spoken_by(&self, node: NodeId) -> Stack {
        let other = self.speaks.iter().find(|speaks| speaks.node == node);
        other.map_or(self.stack, |speaks| speaks.stack)
    }
}

/// What a flow sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// Without end.
    Unlimited,
    /// So many bytes.
    Size(Bytes),
    /// The bytes of a file, verified at each receiver.
    File(PathBuf),
}

/// A membership that does not last the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// The receiver.
    pub node: NodeId,
    /// When it joins.
    pub at: Time,
    /// When it leaves, where it does.
    pub leave: Option<Time>,
}
