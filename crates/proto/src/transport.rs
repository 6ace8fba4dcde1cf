//! What the ends of flows are made from, whatever transport carries them.

use alloc::boxed::Box;

use faircast_base::{FlowId, GroupId, NodeId, Time};

use crate::Destination;
use crate::content::Content;
use crate::options::Options;

/// What an end does in its flow.
pub enum Role {
    /// It sends this.
    Source(Box<dyn Content>),
    /// It receives.
    Receiver,
}

/// What one end of a flow is made from, beside its role.
#[derive(Clone, Copy, Debug)]
pub struct EndSetup<'a> {
    /// The flow.
    pub flow: FlowId,
    /// The node that it runs on.
    pub node: NodeId,
    /// The node of the flow's source.
    pub source: NodeId,
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
}

impl<'a> EndSetup<'a> {
    /// An end at `node` of a multicast flow from `source`, that starts at once, with 1400 bytes of
    /// payload a packet.
    pub fn new(flow: FlowId, node: NodeId, source: NodeId, options: &'a Options) -> Self {
        Self {
            flow,
            node,
            source,
            to: Destination::Group(GroupId::SESSION),
            start: Time::ZERO,
            payload: 1400,
            header: None,
            options,
        }
    }
}
