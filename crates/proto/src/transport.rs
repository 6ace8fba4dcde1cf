//! Setup of the ends of flows for every transport: roles and parameters.

use alloc::boxed::Box;

use faircast_base::{FlowId, GroupId, NodeId, Time};

use crate::Destination;
use crate::content::Content;
use crate::options::Options;

/// Facts of a packet by its bytes, for drivers; a [`Transmit`](crate::Transmit) has them too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are those of a `Transmit`")]
pub struct PacketFacts {
    pub payload_len: u32,
    pub router_alert: bool,
}

impl PacketFacts {
    /// Returns the facts of data with `payload_len` bytes of payload, of no interest to routers.
    pub const fn data(payload_len: u32) -> Self {
        Self { payload_len, router_alert: false }
    }
}

/// Settings of the kernel's TCP for a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct KernelTcp {
    pub congestion_control: &'static str,
    pub sack: bool,
    /// True if the kernel's loss recovery equals that of the simulator's machine of the same name.
    pub alike: bool,
}

/// Format of the packets of a transport on real networks.
#[derive(Clone, Copy, Debug)]
pub enum PacketFormat {
    /// Datagrams of the transport's machines, with the parser of their facts.
    Datagrams(fn(&[u8]) -> PacketFacts),
    /// Segments of the kernel's TCP.
    Kernel(KernelTcp),
}

/// Role of an end in its flow.
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum Role {
    Source(Box<dyn Content>),
    Receiver,
    /// Sends this content and receives that of the other sources, if the transport supports it.
    Both(Box<dyn Content>),
}

/// Parameters of an end of a flow, beside its role.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct EndSetup<'a> {
    pub flow: FlowId,
    pub node: NodeId,
    /// Nodes of the flow's sources; exactly one, unless the transport supports more.
    pub sources: &'a [NodeId],
    pub to: Destination,
    /// Start time of a source, or join time of a receiver.
    pub start: Time,
    /// Payload of every data packet but the last: 1 to 65535 bytes.
    pub payload: u32,
    /// Header length of a data packet on the wire in bytes, if it differs from the real headers.
    pub header: Option<u32>,
    pub options: &'a Options,
    /// Repair head of a receiver from the start; `None` if the receiver finds one itself.
    pub head: Option<NodeId>,
}

impl<'a> EndSetup<'a> {
    /// Creates the setup of a multicast end: start at time zero, payload of 1400 bytes a packet.
    pub fn new(flow: FlowId, node: NodeId, sources: &'a [NodeId], options: &'a Options) -> Self {
        let (to, start) = (Destination::Group(GroupId::SESSION), Time::ZERO);
        Self { flow, node, sources, to, start, payload: 1400, header: None, options, head: None }
    }

    /// Returns the node of the only source.
    ///
    /// # Panics
    /// If there is no source.
    pub fn source(&self) -> NodeId {
        *self.sources.first().expect("a flow has a source")
    }
}
