//! Checked scenario: all names exist, and all values are in range.

use std::collections::BTreeMap;
use std::path::PathBuf;

use faircast_base::{Bitrate, Bytes, Duration, FlowId, NodeFaultKind, NodeId, Time};
use faircast_link::LinkConfig;
use faircast_overlay::{Benefit, FlowControl, Service};
use faircast_proto::options::{OptionValue, Options};
use faircast_proto::stack::Stack;

/// Checked scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Path of the file, as the user gave it.
    pub file: PathBuf,
    /// Text of the file with the settings of the command line, for the report.
    pub text: String,
    /// Question that the scenario answers.
    pub title: String,
    /// Duration of the run.
    pub duration: Duration,
    /// Start of the run, left out of all averages; less than `duration`.
    pub warmup: Duration,
    /// Seed of all randomness.
    pub seed: u64,
    /// Nodes, indexed by [`NodeId`].
    pub nodes: Vec<Node>,
    /// Directions of links, indexed by [`LinkId`](faircast_base::LinkId).
    pub links: Vec<LinkSpec>,
    /// Flows after expansion of `count`, indexed by [`FlowId`](faircast_base::FlowId).
    pub flows: Vec<Flow>,
    /// Relay nodes.
    pub relays: Vec<RelaySpec>,
    /// Daemons of the overlay, with their clients.
    pub daemons: Vec<DaemonSpec>,
    /// Faults of nodes, in order of time.
    pub faults: Vec<NodeFault>,
}

impl Scenario {
    /// Returns the flow id for packets of node programs: the first number without a flow.
    pub fn programs_flow(&self) -> FlowId {
        FlowId(self.flows.len() as u32)
    }

    /// Returns the programs of nodes: relay nodes, then daemons.
    pub fn programs(&self) -> impl Iterator<Item = NodeProgram<'_>> {
        let relays = self.relays.iter().map(NodeProgram::Relay);
        relays.chain(self.daemons.iter().map(NodeProgram::Daemon))
    }

    /// Returns the clients of all daemons in the order of their numbers, with their nodes.
    pub fn clients(&self) -> Vec<(NodeId, &ClientSpec)> {
        let of = |it: &'_ DaemonSpec| it.node;
        let all =
            self.daemons.iter().flat_map(|it| it.clients.iter().map(move |own| (of(it), own)));
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|(_, client)| client.index);
        all
    }
}

/// Program of a node that communicates over QUIC.
#[derive(Clone, Copy, Debug)]
pub enum NodeProgram<'a> {
    /// Relay node.
    Relay(&'a RelaySpec),
    /// Daemon of the overlay.
    Daemon(&'a DaemonSpec),
}

impl NodeProgram<'_> {
    /// Returns the node.
    pub fn node(&self) -> NodeId {
        match self {
            Self::Relay(relay) => relay.node,
            Self::Daemon(daemon) => daemon.node,
        }
    }
}

/// Daemon of the overlay.
#[derive(Clone, Debug)]
pub struct DaemonSpec {
    /// Node of the daemon.
    pub node: NodeId,
    /// Nodes of daemons to which this one opens links.
    pub peers: Vec<NodeId>,
    /// Clients of the daemon, at the same node.
    pub clients: Vec<ClientSpec>,
    /// Flow control of clients.
    pub flow_control: FlowControl,
}

/// Scripted client of a daemon.
#[derive(Clone, Debug)]
pub struct ClientSpec {
    /// Number of the client in the scenario.
    pub index: u32,
    /// Name, unique in the scenario.
    pub name: String,
    /// Time at which the client connects.
    pub start: Time,
    /// Time at which the client ends, if it does.
    pub stop: Option<Time>,
    /// Groups of the client over time.
    pub stays: Vec<GroupStay>,
    /// Messages of the client.
    pub send: Option<SendSpec>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStay {
    pub group: String,
    pub at: Time,
    pub leave: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendSpec {
    pub groups: Vec<String>,
    pub service: Service,
    /// Benefit under flow control; `None` for the daemon's choice.
    pub benefit: Option<Benefit>,
    pub size: Bytes,
    /// Rate of the messages' bytes; `None` for as fast as the daemon accepts.
    pub rate: Option<Bitrate>,
    pub start: Time,
    /// Time after which no messages are sent.
    pub stop: Option<Time>,
}

#[derive(Clone, Debug)]
pub struct RelaySpec {
    pub node: NodeId,
    /// Parent relays, of which the first that answers is used. Empty for the root.
    pub parents: Vec<NodeId>,
    pub options: Options,
}

/// Fault of a node, which affects all flows' ends there, and its relay or daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeFault {
    /// Time of the fault.
    pub at: Time,
    /// Node of the fault.
    pub node: NodeId,
    /// Kind of the fault.
    pub kind: FaultKind,
}

/// Kind of a fault of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Programs pause for this duration. Packets wait in socket buffers of limited size.
    Stop(Duration),
    /// Programs are killed for good.
    Kill,
    /// Programs are killed, and restart after this duration without their state.
    Restart(Duration),
    /// The node's address changes, without a notice to any other node.
    Move,
}

impl FaultKind {
    /// Returns the event at the start of the fault.
    pub const fn begins(self) -> NodeFaultKind {
        match self {
            Self::Stop(_) => NodeFaultKind::Stopped,
            Self::Kill | Self::Restart(_) => NodeFaultKind::Killed,
            Self::Move => NodeFaultKind::Moved,
        }
    }

    /// Returns the event at the end of the fault, with the time from the start.
    pub const fn ends(self) -> Option<(Duration, NodeFaultKind)> {
        match self {
            Self::Stop(span) => Some((span, NodeFaultKind::Resumed)),
            Self::Restart(span) => Some((span, NodeFaultKind::Started)),
            Self::Kill | Self::Move => None,
        }
    }
}

/// Host or router.
#[derive(Clone, Debug)]
pub struct Node {
    /// Name, unique in the scenario.
    pub name: String,
    /// Program beside forwarding.
    pub program: Option<Program>,
}

/// Program of a router.
#[derive(Clone, Debug)]
pub struct Program {
    /// Registered name, such as `pgm-element`.
    pub name: String,
    /// Checked options.
    pub options: Options,
}

/// Direction of a link.
#[derive(Clone, Debug)]
pub struct LinkSpec {
    /// Node at the start.
    pub from: NodeId,
    /// Node at the end.
    pub to: NodeId,
    /// Settings of the link.
    pub config: LinkConfig,
}

/// Flow.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Name, unique in the scenario.
    pub name: String,
    /// Protocols of the flow.
    pub stack: Stack,
    /// Senders: one, unless the protocol allows more.
    pub from: Vec<NodeId>,
    /// Receivers, including those that join later and senders that receive.
    pub to: Vec<NodeId>,
    /// Payload of a data packet.
    pub packet: Bytes,
    /// Header bytes of each data packet on the wire; `None` for the protocol's real headers.
    pub header: Option<Bytes>,
    /// Start of the flow.
    pub start: Time,
    /// Time at which the sender stops offering new data, if it does.
    pub stop: Option<Time>,
    /// Data to send.
    pub data: Data,
    /// Memberships for a part of the run. Other receivers are members throughout.
    pub join: Vec<Join>,
    /// Receivers that speak another scheme.
    pub speaks: Vec<Speaks>,
    /// Relays for each end, of which the first that answers is used. Empty without relay nodes.
    pub via: BTreeMap<NodeId, Vec<NodeId>>,
    /// Given repair heads of receivers: a receiver or the sender.
    pub heads: BTreeMap<NodeId, NodeId>,
    /// Checked options of the protocol.
    pub options: Options,
    /// Options as the file gives them, for the report.
    pub raw_options: Vec<(String, OptionValue)>,
}

/// Receiver that speaks another scheme than its flow, by mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Speaks {
    /// Node of the receiver.
    pub node: NodeId,
    /// Protocols of the receiver.
    pub stack: Stack,
}

impl Flow {
    /// Returns the only sender, or the first one.
    ///
    /// # Panics
    /// The flow has no sender, which no checked scenario allows.
    pub fn sender(&self) -> NodeId {
        self.from[0]
    }

    /// True if the end at `node` sends, given its start at `at`.
    pub fn sends(&self, node: NodeId, at: Time) -> bool {
        self.from.contains(&node) && self.stop.is_none_or(|stop| at < stop)
    }

    /// True if the end at `node` receives.
    pub fn receives(&self, node: NodeId) -> bool {
        self.to.contains(&node)
    }

    /// Returns the number of senders that the receiver at `node` hears: all but itself.
    pub fn heard_at(&self, node: NodeId) -> u64 {
        self.from.iter().filter(|sender| **sender != node).count() as u64
    }

    /// Returns the ends: senders, then receivers that do not send.
    pub fn ends(&self) -> impl Iterator<Item = NodeId> {
        let receivers = self.to.iter().filter(|node| !self.from.contains(node));
        self.from.iter().chain(receivers).copied()
    }

    /// Returns the protocols that the receiver at `node` speaks.
    pub fn spoken_by(&self, node: NodeId) -> Stack {
        let other = self.speaks.iter().find(|speaks| speaks.node == node);
        other.map_or(self.stack, |speaks| speaks.stack)
    }
}

/// Data of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// Unlimited data.
    Unlimited,
    /// Data of this size.
    Size(Bytes),
    /// Bytes of a file, verified at each receiver.
    File(PathBuf),
}

/// Membership for a part of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// Node of the receiver.
    pub node: NodeId,
    /// Time of the join.
    pub at: Time,
    /// Time of the leave, if any.
    pub leave: Option<Time>,
}
