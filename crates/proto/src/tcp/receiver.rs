//! Receiver: checks of segments, and acknowledgements.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Cx, Duration, Event, FlowId, NodeId, Time};

use super::Flavour;
use super::settings::Settings;
use super::wire::{self, SackBlocks, Segment};
use crate::content::Held;
use crate::ranges::RangeSet;
use crate::transport::EndSetup;
use crate::{Datagram, Destination, FlowEvent, LossRecord, Machine, Transmit};

/// Receiver of a TCP connection.
#[derive(Default)]
pub struct TcpReceiver {
    flow: FlowId,
    peer: NodeId,
    payload_bytes: u32,
    /// Bytes that the simulated network counts for a data packet's headers; `None` on real ones.
    header_bytes: Option<u32>,
    /// Largest window in packets. Packets beyond it are refused.
    window_max: u64,
    sack: Option<SackHistory>,
    ack_delay: Option<Duration>,
    reassembly: Reassembly,
    /// Due time of a delayed acknowledgement, and the packet that it is for.
    delayed_ack: Option<(Time, u64)>,
    ack: Option<SackBlocks>,
    losses: LossRecord,
}

impl TcpReceiver {
    pub(super) fn new(flavour: Flavour, setup: EndSetup<'_>) -> Self {
        let settings = Settings::from_options(setup.options);
        Self {
            flow: setup.flow,
            peer: setup.source(),
            payload_bytes: setup.payload.max(1),
            header_bytes: setup.header,
            window_max: u64::from(settings.window_max),
            sack: (flavour == Flavour::Sack).then(SackHistory::default),
            ack_delay: settings.delayed_ack.then_some(settings.delayed_ack_interval),
            ..Self::default()
        }
    }

    fn handle_segment(&mut self, cx: &mut Cx<'_>, datagram: &Datagram<'_>) -> Checked {
        let (segment, header_len) = Segment::decode(datagram.bytes)?;
        let Segment::Data { flow, seq, fin, again, .. } = segment else {
            return Err(BadInput::Malformed);
        };
        if flow != self.flow || datagram.from != self.peer {
            return Err(BadInput::Foreign);
        }
        let bytes = &datagram.bytes[header_len..];
        if bytes.len() as u64 + u64::from(datagram.zeros) > u64::from(self.payload_bytes) {
            return Err(BadInput::Malformed);
        }
        let next = self.reassembly.next;
        let seq = wire::unwrap_near(next, seq).ok_or(BadInput::OutOfWindow)?;
        if seq >= next + self.window_max {
            return Err(BadInput::OutOfWindow);
        }
        if fin {
            self.reassembly.fin(seq);
        }
        self.record_losses(cx, seq, again);
        self.reassembly.insert(cx, seq, bytes, datagram.zeros);
        // The SYN, and packets at a gap, are acknowledged at once (src: RFC 5681 s4.2).
        let is_in_order = seq + 1 == self.reassembly.next && self.reassembly.beyond.is_empty();
        let delay = self.ack_delay.filter(|_| seq > 0 && is_in_order);
        match delay.filter(|_| self.delayed_ack.is_none()) {
            Some(delay) => self.delayed_ack = Some((cx.now + delay, seq)),
            None => {
                self.delayed_ack = None;
                self.make_ack(seq);
            }
        }
        Ok(())
    }

    /// Records packets before `seq` as missing, and `seq` too if its first copy is sent again.
    fn record_losses(&mut self, cx: &mut Cx<'_>, seq: u64, again: bool) {
        let known = self.reassembly.known_end();
        if seq > known {
            self.losses.missing(known..seq, |event| cx.emit(event));
        }
        if !again {
            self.losses.arrived(seq, |event| cx.emit(event));
        } else if seq >= known {
            self.losses.missing(seq..seq + 1, |event| cx.emit(event));
        }
    }

    fn make_ack(&mut self, seq: u64) {
        self.ack = Some(match &mut self.sack {
            Some(history) => history.blocks_for(seq, self.reassembly.next, &self.reassembly.beyond),
            None => SackBlocks::default(),
        });
    }
}

impl Machine for TcpReceiver {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        let outcome = self.handle_segment(cx, &datagram);
        cx.check(outcome);
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        if let Some((_, seq)) = self.delayed_ack.take_if(|(at, _)| *at <= cx.now) {
            self.make_ack(seq);
        }
    }

    fn handle_close(&mut self, _cx: &mut Cx<'_>) {}

    fn poll_transmit(&mut self, _cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        let sack = self.ack.take()?;
        let blocks = sack.as_slice().len() as u32;
        Segment::Ack { flow: self.flow, next: self.reassembly.next as u32, sack }.encode(buf);
        let wire_len = match self.header_bytes {
            Some(_) => wire::CONTROL_WIRE_LEN + wire::SACK_BLOCK_WIRE_LEN * blocks,
            None => wire::IP_HEADER_LEN + buf.len() as u32,
        };
        let to = Destination::Node(self.peer);
        Some(Transmit { wire_len: Some(wire_len), ..Transmit::control(to) })
    }

    fn poll_event(&mut self) -> Option<FlowEvent> {
        self.reassembly.events.pop_front()
    }

    fn next_timeout(&self) -> Option<Time> {
        self.delayed_ack.map(|(at, _)| at)
    }
}

/// Most SACK blocks in one acknowledgement (src: RFC 2018 s3; ns-2: maxSackBlocks_).
const SACK_BLOCKS: usize = 3;

/// Latest reported blocks, most recent first (src: RFC 2018 s4).
#[derive(Clone, Debug, Default)]
struct SackHistory(Vec<(u64, u64)>);

impl SackHistory {
    /// Blocks for the acknowledgement of packet `seq`: the run that contains it, then earlier ones.
    fn blocks_for(&mut self, seq: u64, next: u64, beyond: &RangeSet) -> SackBlocks {
        let mut sack = SackBlocks::default();
        if beyond.is_empty() {
            self.0.clear();
            return sack;
        }
        let run = beyond.around(seq).map(|run| (run.start, run.end));
        let covered = run.unwrap_or((0, next));
        self.0.retain(|block| !(covered.0 <= block.0 && covered.1 >= block.1));
        if let Some(run) = run {
            self.0.insert(0, run);
        }
        self.0.truncate(SACK_BLOCKS);
        for &(start, end) in &self.0 {
            sack.push(start as u32, end as u32);
        }
        sack
    }
}

#[derive(Default)]
pub(super) struct Reassembly {
    /// First packet not received (RCV.NXT).
    pub(super) next: u64,
    pub(super) beyond: RangeSet,
    /// Payload of packets from `next` on; slot 0 is packet `next`, which is missing.
    slots: VecDeque<Option<Held>>,
    delivered_bytes: u64,
    end: Option<u64>,
    pub(super) events: VecDeque<FlowEvent>,
}

impl Reassembly {
    pub(super) fn fin(&mut self, seq: u64) {
        if self.end.is_none() && seq >= self.next {
            self.end = Some(seq + 1);
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_block_holds_the_packet_that_just_came_and_the_rest_is_history() {
        let mut history = SackHistory::default();
        let mut beyond = RangeSet::default();
        let mut arrive = |seq: u64, next: u64| {
            if seq >= next {
                beyond.insert(seq..seq + 1);
            }
            beyond.remove(0..next);
            history.blocks_for(seq, next, &beyond).as_slice().to_vec()
        };
        assert_eq!(arrive(5, 3), [(5, 6)]);
        assert_eq!(arrive(7, 3), [(7, 8), (5, 6)]);
        assert_eq!(arrive(6, 3), [(5, 8)], "the gap between two blocks is filled");
        assert_eq!(arrive(10, 3), [(10, 11), (5, 8)]);
        assert_eq!(arrive(12, 3), [(12, 13), (10, 11), (5, 8)]);
        assert_eq!(arrive(14, 3), [(14, 15), (12, 13), (10, 11)], "three at most");
        assert_eq!(arrive(7, 3), [(5, 8), (14, 15), (12, 13)], "a duplicate brings its block up");
        assert_eq!(arrive(4, 8), [(14, 15), (12, 13)], "what is acknowledged leaves");
        assert_eq!(arrive(8, 11), [(14, 15), (12, 13)]);
    }

    #[test]
    fn no_blocks_without_a_gap() {
        let mut history = SackHistory::default();
        let mut beyond = RangeSet::default();
        beyond.insert(5..6);
        assert_eq!(history.blocks_for(5, 3, &beyond).as_slice(), [(5, 6)]);
        beyond = RangeSet::default();
        assert_eq!(history.blocks_for(4, 6, &beyond).as_slice(), []);
    }
}
