//! Reassembly of the stream at the receiver.

use alloc::collections::VecDeque;

use crate::FlowEvent;
use crate::content::Held;
use crate::ranges::RangeSet;
use faircast_base::{Cx, Event};

#[derive(Default)]
pub(super) struct Reassembly {
    /// First packet not received (RCV.NXT).
    pub(super) next: u64,
    pub(super) beyond: RangeSet,
    /// Payload of packets from `next` on; slot 0 is packet `next`, which is missing.
    slots: VecDeque<Option<Held>>,
    delivered_bytes: u64,
    /// Packet after the last one, once a FIN has come.
    end: Option<u64>,
    /// Deliveries that the application has not fetched.
    pub(super) events: VecDeque<FlowEvent>,
}

impl Reassembly {
    /// Notes that packet `seq` ends the stream, unless another one did.
    pub(super) fn fin(&mut self, seq: u64) {
        if self.end.is_none() && seq >= self.next {
            self.end = Some(seq + 1);
        }
    }

    /// Returns one past the highest packet received.
    pub(super) fn known_end(&self) -> u64 {
        self.beyond.end().unwrap_or(0).max(self.next)
    }

    pub(super) fn insert(&mut self, cx: &mut Cx<'_>, seq: u64, bytes: &[u8], zeros: u32) {
        if seq == self.next {
            self.slots.pop_front();
            self.deliver(cx, Held { bytes: bytes.to_vec(), zeros });
            while let Some(Some(payload)) = self.slots.front_mut().map(Option::take) {
                self.slots.pop_front();
                self.deliver(cx, payload);
            }
            self.beyond.remove(0..self.next);
            if self.end == Some(self.next) {
                self.events.push_back(FlowEvent::Completed);
                cx.emit(Event::Completed { bytes: self.delivered_bytes });
            }
        } else if seq > self.next && self.beyond.insert(seq..seq + 1) {
            let slot = (seq - self.next) as usize;
            if slot >= self.slots.len() {
                self.slots.resize_with(slot + 1, || None);
            }
            self.slots[slot] = Some(Held { bytes: bytes.to_vec(), zeros });
        }
    }

    fn deliver(&mut self, cx: &mut Cx<'_>, Held { bytes, zeros }: Held) {
        let seq = self.next;
        self.next += 1;
        let len = bytes.len() as u32 + zeros;
        if len == 0 {
            return;
        }
        self.delivered_bytes += u64::from(len);
        cx.emit(Event::Delivered { seq, bytes: len });
        match self.events.back_mut() {
            // Zeros after an event not fetched yet need no event of their own.
            Some(FlowEvent::Delivered { zeros, .. })
                if bytes.is_empty() && zeros.checked_add(len).is_some() =>
            {
                *zeros += len;
            }
            _ => self.events.push_back(FlowEvent::Delivered { bytes, zeros }),
        }
    }
}
