//! Packets of the sender: division of the content, the queue, and the encoding of segments.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{FlowId, NodeId};

use crate::content::Content;
use crate::transport::EndSetup;
use crate::{Destination, Transmit};

use super::wire::{self, Segment};

/// Numbered packets of a connection. Packet 0 is a SYN alone (ns-2: syn_ and delay_growth_).
pub(super) struct Packets {
    pub(super) flow: FlowId,
    pub(super) peer: NodeId,
    payload_bytes: u32,
    /// Bytes that the simulated network counts for a data packet's headers; `None` on real ones.
    header_bytes: Option<u32>,
    content: Box<dyn Content>,
    content_bytes: u64,
    /// First number after the content; `u64::MAX` for an endless stream.
    pub(super) end: u64,
    /// Packets that wait for the driver, each with true for a retransmission.
    pub(super) queue: VecDeque<(u64, bool)>,
}

impl Packets {
    pub(super) fn new(setup: &EndSetup<'_>, content: Box<dyn Content>) -> Self {
        let Destination::Node(peer) = setup.to else { panic!("TCP has one receiver") };
        let payload_bytes = setup.payload.max(1);
        // An empty object is one empty packet after the SYN.
        let packets = |bytes: u64| 1 + bytes.div_ceil(u64::from(payload_bytes)).max(1);
        Self {
            flow: setup.flow,
            peer,
            payload_bytes,
            header_bytes: setup.header,
            content_bytes: content.len().unwrap_or(u64::MAX),
            end: content.len().map_or(u64::MAX, packets),
            content,
            queue: VecDeque::new(),
        }
    }

    /// Returns the first byte of a packet within the content.
    pub(super) fn offset(&self, seq: u64) -> u64 {
        let data_packet = seq.saturating_sub(1);
        data_packet.saturating_mul(u64::from(self.payload_bytes)).min(self.content_bytes)
    }

    pub(super) fn payload_len(&self, seq: u64) -> u32 {
        // Packet lengths do not exceed `payload_bytes`, a u32.
        (self.offset(seq + 1) - self.offset(seq)) as u32
    }

    pub(super) fn transmit(&mut self, buf: &mut Vec<u8>) -> Option<Transmit> {
        let (seq, again) = self.queue.pop_front()?;
        let syn = seq == 0;
        let fin = seq + 1 == self.end;
        Segment::Data { flow: self.flow, seq: seq as u32, syn, fin, again }.encode(buf);
        let payload_len = self.payload_len(seq);
        let zeros = match payload_len {
            0 => 0,
            _ => self.content.read(self.offset(seq), payload_len, buf),
        };
        let wire_len = match self.header_bytes {
            Some(_) if syn => wire::CONTROL_WIRE_LEN,
            Some(header_bytes) => payload_len + header_bytes,
            None => wire::IP_HEADER_LEN + wire::HEADER_LEN + payload_len,
        };
        let control = Transmit::control(Destination::Node(self.peer));
        Some(Transmit { zeros, payload_len, wire_len: Some(wire_len), ..control })
    }
}
