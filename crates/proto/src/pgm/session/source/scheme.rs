//! Scheme of a source: its announcement in SPMs, and receivers that refuse it.

use alloc::string::ToString;
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, NodeId};

use crate::pgm::negotiation::{ARRIVES, PACKET_BYTES, SchemeAnnouncement, bytes_of};
use crate::{BlackHole, StreamEvent};

/// Most receivers of other schemes, and most starved receivers, that are reported.
const REFUSALS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct SourceScheme {
    name: &'static str,
    /// Value of the option SCHEME; `None` if it is not announced.
    pub(super) announced: Option<Vec<u8>>,
    /// Announced bytes of the longest data packet.
    packet_bytes: Option<u32>,
    /// Receivers of another scheme: the first [`REFUSALS_MAX`].
    mismatched: Vec<NodeId>,
    /// Receivers that have reported that no data arrives: the first [`REFUSALS_MAX`].
    starved: Vec<NodeId>,
}

impl SourceScheme {
    pub(super) fn speak(&mut self, name: &'static str, announced: Option<SchemeAnnouncement>) {
        self.name = name;
        self.packet_bytes =
            announced.as_ref().and_then(|announced| bytes_of(&announced.settings, PACKET_BYTES));
        self.announced = announced.and_then(|announced| announced.encode());
    }

    /// Takes a receiver's message that it has another scheme, or that no data arrives. Returns the
    /// event for the application, once for each receiver.
    pub(super) fn take_refusal(&mut self, from: NodeId, value: &[u8]) -> Checked<StreamEvent> {
        let other = SchemeAnnouncement::decode(value).ok_or(BadInput::Malformed)?;
        let arrives = bytes_of(&other.settings, ARRIVES).filter(|_| other.scheme == self.name);
        let refused = if arrives.is_some() { &mut self.starved } else { &mut self.mismatched };
        if refused.contains(&from) {
            return Err(BadInput::Duplicate);
        }
        if refused.len() >= REFUSALS_MAX {
            return Err(BadInput::TableFull);
        }
        refused.push(from);
        Ok(match arrives {
            Some(arrives) => {
                let hole = BlackHole { arrives, sent: self.packet_bytes };
                StreamEvent::BlackHole { node: from, hole }
            }
            None => {
                let (sender, receiver) = (self.name.to_string(), other.scheme);
                StreamEvent::OtherScheme { node: from, sender, receiver }
            }
        })
    }
}
