//! Setup of the ends of flows, for every transport: their roles, and what they are made from.

use alloc::boxed::Box;

use faircast_base::{FlowId, GroupId, NodeId, Time};

use crate::Destination;
use crate::content::Content;
use crate::options::Options;

/// Facts of a packet that its bytes tell, for drivers that get packets from hosts and not from machines. A
/// machine says the same in its [`Transmit`](crate::Transmit).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketFacts {
    /// Bytes of payload of the application; 0 for control packets.
    pub payload_len: u32,
    /// True if routers that run a program must look at the packet.
    pub router_alert: bool,
}

impl PacketFacts {
    /// Data with `payload_len` bytes of payload, of no interest to routers.
    pub const fn data(payload_len: u32) -> Self {
        Self { payload_len, router_alert: false }
    }
}

/// Congestion control that a flow has where the kernel's TCP runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelTcp {
    /// Name in the kernel.
    pub congestion_control: &'static str,
    /// True if SACK is on.
    pub sack: bool,
    /// True if the kernel repairs as the simulator's machine of that name does.
    pub alike: bool,
}

/// Format of the packets of a transport on real networks.
#[derive(Clone, Copy, Debug)]
pub enum PacketFormat {
    /// Datagrams of its machines, of which this function reads the facts.
    Datagrams(fn(&[u8]) -> PacketFacts),
    /// Segments of the kernel's TCP.
    Kernel(KernelTcp),
}

/// What an end does in its flow.
pub enum Role {
    /// It sends this.
    Source(Box<dyn Content>),
    /// It receives what the sources send.
    Receiver,
    /// It sends this and receives what the other sources send, where the transport has such ends.
    Both(Box<dyn Content>),
}

/// What one end of a flow is made from, beside its role.
#[derive(Clone, Copy, Debug)]
pub struct EndSetup<'a> {
    /// The flow.
    pub flow: FlowId,
    /// The node that it runs on.
    pub node: NodeId,
    /// The nodes of the flow's sources: one, but where the transport takes more.
    pub sources: &'a [NodeId],
    /// Whom the flow goes to.
    pub to: Destination,
    /// When a source begins, or a receiver joins.
    pub start: Time,
    /// Bytes of payload in every data packet but the last; 1 to 65535.
    pub payload: u32,
    /// Bytes that a data packet adds on the wire, where that is not what its real headers have.
    pub header: Option<u32>,
    /// Settings, checked against the tables of scheme and transport.
    pub options: &'a Options,
    /// The repair head that a receiver is to have from the beginning, where the transport has such heads;
    /// `None` where it finds one itself.
    pub head: Option<NodeId>,
}

impl<'a> EndSetup<'a> {
    /// An end at `node` of a multicast flow from `sources`, that starts at once, with 1400 bytes of
    /// payload a packet.
    pub fn new(flow: FlowId, node: NodeId, sources: &'a [NodeId], options: &'a Options) -> Self {
        Self {
            flow,
            node,
            sources,
            to: Destination::Group(GroupId::SESSION),
            start: Time::ZERO,
            payload: 1400,
            header: None,
            options,
            head: None,
        }
    }

    /// The node of the only source.
    ///
    /// # Panics
    /// There is none.
    pub fn source(&self) -> NodeId {
        *self.sources.first().expect("a flow has a source")
    }
}
