//! Constant bit rate: packets at fixed intervals, from one source or many. No loss is repaired.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::content::Content;
use crate::fields::{Encoded, Fields};
use crate::options::OptionSpec;
use crate::settings::settings;
use crate::transport::{EndSetup, PacketFacts, Role};
use crate::{
    Datagram, Destination, FlowEvent, FlowMachine, LossRecord, Machine, Transmit, passes_on,
};
use faircast_base::{BadInput, Bitrate, Checked, Cx, Event, FlowId, NodeId, Time};

settings! {
    struct Settings;
    /// Payload rate in bits per second.
    rate: Bitrate [1 bit, 1000 Gbit] = 1 Mbit;
    /// Longest random delay of each packet as a share of the interval, uniform from 0.
    jitter: f64 [0.0, 1.0] = 0.0;
}

/// Settings of a CBR flow, as a table.
pub const OPTIONS: &[OptionSpec] = Settings::OPTIONS;

const HEADER_LEN: usize = 16;
const LAST: u8 = 1;

pub(crate) fn facts(packet: &[u8]) -> PacketFacts {
    PacketFacts::data(packet.len().saturating_sub(HEADER_LEN) as u32)
}

/// Creates an end of a flow to a node or a group. A receiver takes the flow's other sources.
pub fn end(role: Role, setup: EndSetup<'_>) -> FlowMachine {
    match role {
        Role::Source(content) => Box::new(CbrSender::new(setup, content)),
        Role::Receiver => Box::new(CbrReceiver::new(setup)),
        Role::Both(content) => Box::new(CbrPeer {
            sender: CbrSender { reports_completion: false, ..CbrSender::new(setup, content) },
            receiver: CbrReceiver::new(setup),
        }),
    }
}

struct CbrSender {
    flow: FlowId,
    to: Destination,
    payload_bytes: u32,
    content: Box<dyn Content>,
    /// Length of the content; `u64::MAX` for an endless stream.
    content_bytes: u64,
    schedule: Schedule,
    send_at: Option<Time>,
    seq: u64,
    is_pending: bool,
    is_completed: bool,
    /// False if only a receiver of the same host reports completion.
    reports_completion: bool,
}

struct Schedule {
    /// Longest delay, as a share of the interval.
    jitter: f64,
    rate_bits_per_s: u64,
    /// Interval between packets, rounded down to ns, and its rounding error in 1 / rate ns.
    interval_ns: u64,
    interval_remainder: u64,
    /// Sum of the rounding errors below a nanosecond.
    remainder: u64,
    /// Departure of the latest packet without its delay.
    due: Time,
}

impl Schedule {
    fn new(settings: &Settings, payload_bytes: u32, start: Time) -> Self {
        let rate_bits_per_s = settings.rate.bits_per_s();
        let bit_ns = u64::from(payload_bytes) * 8_000_000_000;
        let (interval_ns, interval_remainder) =
            (bit_ns / rate_bits_per_s, bit_ns % rate_bits_per_s);
        let (jitter, remainder, due) = (settings.jitter, 0, start);
        Self { jitter, rate_bits_per_s, interval_ns, interval_remainder, remainder, due }
    }

    /// Returns the next departure. Carries the remainder, so that the long-run rate is exact.
    fn next(&mut self, cx: &mut Cx<'_>) -> Time {
        let mut ns = self.interval_ns;
        self.remainder += self.interval_remainder;
        if self.remainder >= self.rate_bits_per_s {
            self.remainder -= self.rate_bits_per_s;
            ns += 1;
        }
        self.due = Time::from_nanos(self.due.as_nanos().saturating_add(ns));
        let late = if self.jitter > 0.0 { self.jitter * cx.rng.unit() * ns as f64 } else { 0.0 };
        Time::from_nanos(self.due.as_nanos().saturating_add(late as u64))
    }
}

impl CbrSender {
    fn new(setup: EndSetup<'_>, content: Box<dyn Content>) -> Self {
        let settings = Settings::from_options(setup.options);
        let payload_bytes = setup.payload.max(1);
        Self {
            flow: setup.flow,
            to: setup.to,
            payload_bytes,
            content_bytes: content.len().unwrap_or(u64::MAX),
            content,
            schedule: Schedule::new(&settings, payload_bytes, setup.start),
            send_at: Some(setup.start),
            seq: 0,
            is_pending: false,
            is_completed: false,
            reports_completion: true,
        }
    }

    fn offset(&self, seq: u64) -> u64 {
        seq.saturating_mul(u64::from(self.payload_bytes)).min(self.content_bytes)
    }
}

impl Machine for CbrSender {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, _datagram: Datagram<'_>) {
        cx.emit(Event::BadInput { reason: BadInput::Foreign });
    }

    /// Releases one packet. A late driver calls again at once, because the next timeout is due.
    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.send_at.take_if(|at| *at <= cx.now).is_some() {
            self.is_pending = true;
            if self.offset(self.seq + 1) < self.content_bytes {
                self.send_at = Some(self.schedule.next(cx));
            }
        }
    }

    fn handle_close(&mut self, _cx: &mut Cx<'_>) {
        self.send_at = None;
        self.is_pending = false;
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if !core::mem::take(&mut self.is_pending) {
            return None;
        }
        let seq = self.seq;
        self.seq += 1;
        let (offset, end) = (self.offset(seq), self.offset(self.seq));
        let bytes = (end - offset) as u32;
        let last = end == self.content_bytes;
        let flags = if last { LAST } else { 0 };
        (self.flow.0, [flags, 0, 0, 0], seq).put(buf);
        let zeros = if bytes == 0 { 0 } else { self.content.read(offset, bytes, buf) };
        cx.emit(Event::DataSent { seq, bytes, repair: false });
        if last && self.reports_completion {
            self.is_completed = true;
            cx.emit(Event::Completed { bytes: end });
        }
        Some(Transmit { zeros, payload_len: bytes, ..Transmit::control(self.to) })
    }

    fn poll_event(&mut self) -> Option<FlowEvent> {
        core::mem::take(&mut self.is_completed).then_some(FlowEvent::Completed)
    }

    fn next_timeout(&self) -> Option<Time> {
        self.send_at
    }
}

struct CbrReceiver {
    flow: FlowId,
    payload: u32,
    sources: BTreeMap<NodeId, SourceRecord>,
    delivered_bytes: u64,
    events: VecDeque<FlowEvent>,
}

#[derive(Default)]
struct SourceRecord {
    next: Option<u64>,
    has_holes: bool,
    ended: bool,
    losses: LossRecord,
}

impl CbrReceiver {
    fn new(setup: EndSetup<'_>) -> Self {
        let others = setup.sources.iter().filter(|source| **source != setup.node);
        Self {
            flow: setup.flow,
            payload: setup.payload.max(1),
            sources: others.map(|source| (*source, SourceRecord::default())).collect(),
            delivered_bytes: 0,
            events: VecDeque::new(),
        }
    }

    fn take(&mut self, cx: &mut Cx<'_>, datagram: &Datagram<'_>) -> Checked {
        let mut fields = Fields(datagram.bytes);
        let header: Option<(u32, [u8; 4], u64)> = fields.read();
        let (flow, [flags, ..], seq) = header.ok_or(BadInput::Truncated)?;
        let payload = fields.rest();
        if FlowId(flow) != self.flow {
            return Err(BadInput::Foreign);
        }
        let source = self.sources.get_mut(&datagram.from).ok_or(BadInput::Foreign)?;
        let bytes = payload.len() as u64 + u64::from(datagram.zeros);
        if bytes > u64::from(self.payload) || seq == u64::MAX {
            return Err(BadInput::Malformed);
        }
        let next = source.next.unwrap_or(seq);
        if source.next.is_none() {
            source.losses = LossRecord::starting_at(seq);
        }
        let Some(missing) = seq.checked_sub(next) else {
            // A late packet is not delivered, but it is not lost either.
            let was_lost = source.losses.arrived(seq, |event| cx.emit(event));
            return if was_lost { Ok(()) } else { Err(BadInput::Duplicate) };
        };
        source.has_holes |= missing > 0 || (source.next.is_none() && seq > 0);
        source.next = Some(seq + 1);
        source.ended |= flags & LAST != 0;
        if missing > 0 {
            source.losses.missing(next..seq, |event| cx.emit(event));
            let packets = u32::try_from(missing).unwrap_or(u32::MAX);
            self.events.push_back(FlowEvent::Lost { packets });
        }
        if bytes > 0 {
            self.delivered_bytes += bytes;
            cx.emit(Event::Delivered { seq, bytes: bytes as u32 });
            let (bytes, zeros) = (payload.to_vec(), datagram.zeros);
            self.events.push_back(FlowEvent::Delivered { bytes, zeros });
        }
        let is_whole = |source: &SourceRecord| source.ended && !source.has_holes;
        if flags & LAST != 0 && self.sources.values().all(is_whole) {
            cx.emit(Event::Completed { bytes: self.delivered_bytes });
            self.events.push_back(FlowEvent::Completed);
        }
        Ok(())
    }
}

impl Machine for CbrReceiver {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        let outcome = self.take(cx, &datagram);
        cx.check(outcome);
    }

    fn handle_timeout(&mut self, _cx: &mut Cx<'_>) {}

    fn handle_close(&mut self, _cx: &mut Cx<'_>) {}

    fn poll_transmit(&mut self, _cx: &mut Cx<'_>, _buf: &mut Vec<u8>) -> Option<Transmit> {
        None
    }

    fn poll_event(&mut self) -> Option<FlowEvent> {
        self.events.pop_front()
    }

    fn next_timeout(&self) -> Option<Time> {
        None
    }
}

struct CbrPeer {
    sender: CbrSender,
    receiver: CbrReceiver,
}

impl Machine for CbrPeer {
    type Event = FlowEvent;

    passes_on!(receiver: handle_datagram, poll_event);
    passes_on!(sender: handle_timeout, handle_close, poll_transmit, next_timeout);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::{InMemory, Zeros};
    use crate::options::{OptionValue, Options};
    use alloc::string::ToString;
    use alloc::vec;
    use faircast_base::{GroupId, Purpose, Rng};
    use proptest::prelude::*;

    fn options(rate: &str, jitter: f64) -> Options {
        let raw = [
            ("rate".to_string(), OptionValue::Text(rate.to_string())),
            ("jitter".to_string(), OptionValue::Float(jitter)),
        ];
        Options::checked(raw, OPTIONS).unwrap()
    }

    fn setup(options: &Options, payload: u32) -> EndSetup<'_> {
        let setup = EndSetup::new(FlowId(3), NodeId(2), &[NodeId(1)], options);
        EndSetup { start: Time::from_nanos(500), payload, ..setup }
    }

    /// Sender of packets of 10 bytes.
    fn sender(options: &Options, len: Option<u64>) -> CbrSender {
        CbrSender::new(setup(options, 10), Box::new(Zeros { len }))
    }

    fn sent(sender: &mut CbrSender, count: usize) -> Vec<(u64, Vec<u8>, u32)> {
        let mut rng = Rng::new(1, NodeId(1), Purpose::Machine(0));
        let mut packets = Vec::new();
        while let Some(now) = sender.next_timeout().filter(|_| packets.len() < count) {
            let mut cx = Cx::untraced(now, &mut rng);
            sender.handle_timeout(&mut cx);
            let mut bytes = Vec::new();
            let transmit = sender.poll_transmit(&mut cx, &mut bytes).unwrap();
            packets.push((now.as_nanos(), bytes, transmit.zeros));
            assert_eq!(sender.poll_transmit(&mut cx, &mut Vec::new()), None);
        }
        packets
    }

    fn received(receiver: &mut CbrReceiver, bytes: &[u8], zeros: u32) -> Vec<FlowEvent> {
        let mut rng = Rng::new(1, NodeId(2), Purpose::Machine(0));
        let mut cx = Cx::untraced(Time::ZERO, &mut rng);
        let to = Destination::Group(GroupId::SESSION);
        let datagram = Datagram { zeros, ..Datagram::new(NodeId(1), to, bytes) };
        receiver.handle_datagram(&mut cx, datagram);
        std::iter::from_fn(|| receiver.poll_event()).collect()
    }

    #[test]
    fn the_rate_is_exact_in_the_long_run() {
        // 1000 B at 3 Mbit/s are 2 666 666.67 ns; 3000 of them are 8 s.
        let options = options("3 Mbit/s", 0.0);
        let mut sender = CbrSender::new(setup(&options, 1000), Box::new(Zeros { len: None }));
        let times: Vec<u64> = sent(&mut sender, 3001).iter().map(|packet| packet.0).collect();
        assert_eq!(times[..4], [500, 2_667_166, 5_333_833, 8_000_500]);
        assert_eq!(times[3000], 8_000_000_500);
    }

    #[test]
    fn jitter_delays_but_does_not_slow_down() {
        let options = options("8 Mbit/s", 0.5);
        let mut sender = CbrSender::new(setup(&options, 1000), Box::new(Zeros { len: None }));
        let mut moved = 0;
        for (i, (at, ..)) in sent(&mut sender, 500).iter().enumerate() {
            let late = at - 500 - i as u64 * 1_000_000;
            assert!(late <= 500_000, "packet {i} is {late} ns late");
            moved += u32::from(late > 100_000);
        }
        assert!(moved > 300, "{moved} of 500");
    }

    #[test]
    fn an_object_arrives_whole_and_ends_both_sides() {
        let object: Vec<u8> = (0..2500u32).map(|n| n as u8).collect();
        let options = options("8 Mbit/s", 0.0);
        let content = Box::new(InMemory(object.clone().into()));
        let mut sender = CbrSender::new(setup(&options, 1000), content);
        let packets = sent(&mut sender, 10);
        assert_eq!(packets.len(), 3);
        assert_eq!(sender.poll_event(), Some(FlowEvent::Completed));
        let mut receiver = CbrReceiver::new(setup(&options, 1000));
        let receive =
            |(_, bytes, zeros): &(u64, Vec<u8>, u32)| received(&mut receiver, bytes, *zeros);
        let events: Vec<_> = packets.iter().flat_map(receive).collect();
        let bytes = |event: &FlowEvent| match event {
            FlowEvent::Delivered { bytes, .. } => bytes.clone(),
            _ => Vec::new(),
        };
        assert_eq!(events.iter().flat_map(bytes).collect::<Vec<_>>(), object);
        assert_eq!(events.last(), Some(&FlowEvent::Completed));
    }

    #[test]
    fn gaps_are_counted_and_what_comes_late_is_refused() {
        let options = options("8 Mbit/s", 0.0);
        let mut sender = sender(&options, Some(60));
        let packets = sent(&mut sender, 10);
        let mut receiver = CbrReceiver::new(setup(&options, 10));
        let delivered = FlowEvent::Delivered { bytes: Vec::new(), zeros: 10 };
        for (packet, want) in [
            (1, vec![delivered.clone()]),
            (4, vec![FlowEvent::Lost { packets: 2 }, delivered.clone()]),
            (3, vec![]),
            (4, vec![]),
            (5, vec![delivered]),
        ] {
            let (_, bytes, zeros) = &packets[packet];
            assert_eq!(received(&mut receiver, bytes, *zeros), want, "packet {packet}");
        }
    }

    #[test]
    fn a_peer_that_sends_too_receives_from_all_others_and_is_complete_with_them() {
        let options = options("8 Mbit/s", 0.0);
        let sources = &[NodeId(1), NodeId(2), NodeId(3)];
        let of = |node| EndSetup { node, sources, ..setup(&options, 10) };
        let mut peer = end(Role::Both(Box::new(Zeros { len: Some(10) })), of(NodeId(2)));
        let (mut rng, start) = (Rng::new(1, NodeId(2), Purpose::Machine(0)), Time::from_nanos(500));
        let cx = &mut Cx::untraced(start, &mut rng);
        assert_eq!(peer.next_timeout(), Some(start));
        peer.handle_timeout(cx);
        let mut own = Vec::new();
        let transmit = peer.poll_transmit(cx, &mut own).unwrap();
        assert_eq!(transmit.to, Destination::Group(GroupId::SESSION));
        assert_eq!((peer.next_timeout(), peer.poll_event()), (None, None));
        let delivered = FlowEvent::Delivered { bytes: Vec::new(), zeros: 10 };
        for (from, want) in [
            (1, vec![delivered.clone()]),
            // The node's own packet, a duplicate, and a packet of a node that is no source.
            (2, vec![]),
            (1, vec![]),
            (4, vec![]),
            (3, vec![delivered, FlowEvent::Completed]),
        ] {
            let to = Destination::Group(GroupId::SESSION);
            let datagram = Datagram { zeros: 10, ..Datagram::new(NodeId(from), to, &own) };
            peer.handle_datagram(cx, datagram);
            let events: Vec<_> = std::iter::from_fn(|| peer.poll_event()).collect();
            assert_eq!(events, want, "from {from:?}");
        }
    }

    #[test]
    fn a_closed_sender_is_silent() {
        let options = options("8 Mbit/s", 0.0);
        let mut sender = sender(&options, None);
        assert_eq!(sent(&mut sender, 5).len(), 5);
        let mut rng = Rng::new(1, NodeId(1), Purpose::Machine(0));
        sender.handle_close(&mut Cx::untraced(Time::ZERO, &mut rng));
        assert_eq!(sender.next_timeout(), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(packets in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..40), any::<u32>(), any::<bool>()), 1..20,
        )) {
            let options = Options::default();
            let mut receiver = CbrReceiver::new(setup(&options, 100));
            for (mut bytes, zeros, ours) in packets {
                if ours && bytes.len() >= 4 {
                    bytes[..4].copy_from_slice(&3u32.to_be_bytes());
                }
                prop_assert!(received(&mut receiver, &bytes, zeros % 200).len() <= 3);
            }
        }
    }
}
