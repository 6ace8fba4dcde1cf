//! PGM's session apart from repair: its identity (TSI), its numbering, SPMs, who speaks what, the
//! scheme's two halves and their reports, its end.
//!
//! What repairs lies above: by NAK for streams ([`repair`](super::repair)), by requested symbols for
//! objects ([`object`](crate::object)).

mod receiver;
mod source;

use core::ops::Deref;

use faircast_base::{BadInput, GroupId, NodeId};

use crate::pgm::wire::Packet;
use crate::{Datagram, Destination};

pub use receiver::SpmOrder;
pub(crate) use receiver::{Held, Phase, ReceiverSession, RepairLayer, crowd, dissent, start_over};
pub(crate) use source::{DataPacket, SourceSession};

/// A packet as it came to an end of a session, decoded once for all that take it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received<'a> {
    packet: Packet<'a>,
    /// Who sent it, as the network says.
    pub(crate) from: NodeId,
    to: Destination,
    /// Whether the network marked congestion on it.
    pub(crate) congestion_experienced: bool,
}

impl<'a> Received<'a> {
    pub(crate) fn decode(datagram: &Datagram<'a>) -> Result<Self, BadInput> {
        let Datagram { from, to, bytes, zeros, congestion_experienced } = *datagram;
        let packet = Packet::decode(bytes, zeros)?;
        Ok(Self { packet, from, to, congestion_experienced })
    }

    /// Whether it came to the group, and not to this node alone.
    pub(crate) fn is_for_group(&self) -> bool {
        self.to == Destination::Group(GroupId::SESSION)
    }
}

impl<'a> Deref for Received<'a> {
    type Target = Packet<'a>;

    fn deref(&self) -> &Packet<'a> {
        &self.packet
    }
}
