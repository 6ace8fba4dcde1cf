//! Events of a TCP connection, derived from its packets since the kernel does not report all.

use faircast_base::{Event, FlowId, NodeId, Time, fresh};
use faircast_proto::LossRecord;
use faircast_trace::{Record, Sink, Subject};

use crate::frame::Segment;

#[derive(Debug)]
pub(crate) struct Tap {
    subject: Subject,
    receiver: NodeId,
    receiver_subject: Subject,
    packet: u64,
    object_len: Option<u64>,
    first: Option<u32>,
    sent: u64,
    acknowledged: u64,
    completed: bool,
    /// Losses at the receiver, in packets, and one past the last packet that arrived.
    losses: LossRecord,
    reached: u64,
}

impl Tap {
    pub(crate) fn new(
        flow: FlowId,
        (sender, receiver): (NodeId, NodeId),
        packet: u64,
        object_len: Option<u64>,
    ) -> Self {
        let subject = Subject::Endpoint { flow, node: sender, sender: true };
        let receiver_subject = Subject::Endpoint { flow, node: receiver, sender: false };
        let packet = packet.max(1);
        fresh! {
            Self { subject, receiver, receiver_subject, packet, object_len, }
            first, sent, acknowledged, completed, losses, reached
        }
    }

    /// Handles a segment of the sender. True for a retransmission.
    pub(crate) fn sent(&mut self, at: Time, segment: &Segment, sink: &mut dyn Sink) -> bool {
        if segment.syn {
            self.first = Some(segment.sequence.wrapping_add(1));
        }
        let Some(first) = self.first.filter(|_| segment.payload_len > 0) else { return false };
        let from = offset(first, segment.sequence, self.sent);
        let to = from + u64::from(segment.payload_len);
        let repair = to <= self.sent;
        self.sent = self.sent.max(to);
        let (seq, bytes) = (from / self.packet, segment.payload_len);
        self.say(at, Event::DataSent { seq, bytes, repair }, sink);
        repair
    }

    pub(crate) fn reached(
        &mut self,
        at: Time,
        segment: &Segment,
        repair: bool,
        sink: &mut dyn Sink,
    ) {
        let Some(first) = self.first.filter(|_| segment.payload_len > 0) else { return };
        let Self { losses, reached, receiver_subject: subject, packet, .. } = self;
        let from = offset(first, segment.sequence, *reached * *packet);
        let packets = from / *packet..(from + u64::from(segment.payload_len)).div_ceil(*packet);
        let subject = *subject;
        let mut emit = |event| sink.record(&Record { at, subject, event });
        if repair {
            losses.missing(*reached..packets.end, &mut emit);
        } else {
            losses.missing(*reached..packets.start, &mut emit);
            packets.clone().for_each(|seq| _ = losses.arrived(seq, &mut emit));
        }
        *reached = packets.end.max(*reached);
    }

    pub(crate) fn heard(&mut self, at: Time, segment: &Segment, sink: &mut dyn Sink) {
        let (Some(first), Some(acknowledgement)) = (self.first, segment.acknowledgement) else {
            return;
        };
        if segment.syn {
            return;
        }
        // The end of the stream counts as a byte.
        let upto = offset(first, acknowledgement, self.sent).min(self.sent);
        let bytes = upto.saturating_sub(self.acknowledged) as u32;
        self.acknowledged = self.acknowledged.max(upto);
        let (seq, from) = (upto / self.packet, self.receiver);
        self.say(at, Event::AckReceived { seq, bytes, from }, sink);
        if !self.completed && self.object_len == Some(self.acknowledged) {
            self.completed = true;
            self.say(at, Event::Completed { bytes: self.acknowledged }, sink);
        }
    }

    fn say(&self, at: Time, event: Event, sink: &mut dyn Sink) {
        sink.record(&Record { at, subject: self.subject, event });
    }
}

/// Returns the stream offset of a sequence number that is less than 2 GB from `near`.
fn offset(first: u32, sequence: u32, near: u64) -> u64 {
    let distance = sequence.wrapping_sub(first).wrapping_sub(near as u32) as i32;
    near.saturating_add_signed(i64::from(distance))
}

#[cfg(test)]
mod tests {
    use super::*;
    use faircast_trace::Recording;

    #[test]
    fn repairs_acknowledgements_and_the_end_are_told() {
        let mut tap = Tap::new(FlowId(0), (NodeId(0), NodeId(1)), 1000, Some(3000));
        let mut out = Recording::default();
        // Close to the highest number, so that the numbers wrap.
        let start = u32::MAX - 1500;
        let segment = |offset: u32, payload_len| Segment {
            sequence: start.wrapping_add(1 + offset),
            acknowledgement: Some(1),
            syn: false,
            payload_len,
        };
        let ack = |offset: u32| Segment {
            sequence: 1,
            acknowledgement: Some(start.wrapping_add(1 + offset)),
            syn: false,
            payload_len: 0,
        };
        let syn = Segment { sequence: start, acknowledgement: None, syn: true, payload_len: 0 };
        tap.sent(Time::ZERO, &syn, &mut out);
        for (offset, len) in [(0, 1000), (1000, 1000), (2000, 1000), (1000, 1000)] {
            let repair = tap.sent(Time::ZERO, &segment(offset, len), &mut out);
            assert_eq!(repair, out.records.len() == 4);
        }
        for offset in [1000, 1000, 3001] {
            tap.heard(Time::ZERO, &ack(offset), &mut out);
        }
        let told: Vec<Event> = out.records.drain(..).map(|record| record.event).collect();
        let sent = |seq, repair| Event::DataSent { seq, bytes: 1000, repair };
        let heard = |seq, bytes| Event::AckReceived { seq, bytes, from: NodeId(1) };
        assert_eq!(
            told,
            [
                sent(0, false),
                sent(1, false),
                sent(2, false),
                sent(1, true),
                heard(1, 1000),
                heard(1, 0),
                heard(3, 2000),
                Event::Completed { bytes: 3000 },
            ]
        );
        // The second packet is late; the fourth (twice) and the last are lost.
        for (offset, len, repair) in
            [(0, 1000, false), (2000, 1000, false), (1000, 1000, false), (4000, 1000, true)]
        {
            tap.reached(Time::ZERO, &segment(offset, len), repair, &mut out);
        }
        let told: Vec<Event> = out.records.iter().map(|record| record.event).collect();
        let lost = |seq, count| Event::LossDetected { seq, count };
        assert_eq!(told, [lost(1, 1), Event::LossWithdrawn { seq: 1, count: 1 }, lost(3, 2)]);
    }
}
