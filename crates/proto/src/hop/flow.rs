//! A link between two neighbours by itself, as a flow from one node to another: what a hop between relays takes of a path, to
//! be measured beside others.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{BadInput, Cx, Duration, Event, NodeId, Time};

use super::frame::{Frame, FrameKind, HopPacket};
use super::guard::Guard;
use super::link::HopLink;
use super::window::{Ack, TIMEOUT_MAX, WINDOW_MAX};
use crate::congestion::{Floor, Guarantees};
use crate::content::Content;
use crate::pgm::session::dissent::Dissent;
use crate::transport::{EndSetup, PacketFacts, Role};
use crate::{Datagram, Destination, FlowEvent, FlowMachine, LossRecord, Machine, Transmit};

/// Number of the link: there is one.
const LINK: u16 = 1;

/// Guarantees of a hop to the network: one frame after a timeout, and at most one in each timeout that follows.
pub const GUARANTEES: Guarantees = Guarantees {
    floor: |_| Some(Floor { after: Duration::from_secs(8), every: TIMEOUT_MAX, burst: 1 }),
    recovery: Guarantees::RECOVERY,
    // Each frame is acknowledged at once where something is missing.
    reports_max: |_, load| load.data_packets,
};

/// Facts of a packet.
pub(crate) fn facts(packet: &[u8]) -> PacketFacts {
    match Frame::decode(packet) {
        Ok(Frame { kind: FrameKind::Data, body, .. }) => PacketFacts::data(body.len() as u32),
        _ => PacketFacts::default(),
    }
}

/// One end.
///
/// # Panics
/// The role is both.
pub fn end(role: Role, setup: EndSetup<'_>) -> FlowMachine {
    let guard = Guard::new(setup.node, None);
    let link = HopLink::new(LINK);
    match role {
        Role::Source(content) => Box::new(HopSender {
            link,
            guard,
            flow: u64::from(setup.flow.0),
            to: setup.to,
            payload: setup.payload.max(1),
            object_len: content.len().unwrap_or(u64::MAX),
            content,
            begins: Some(setup.start),
            offset: 0,
            ended: false,
            completed: false,
            events: VecDeque::new(),
        }),
        Role::Receiver => {
            Box::new(HopReceiver::new(link, guard, setup.flow.0.into(), setup.source()))
        }
        Role::Both(_) => unreachable!("a hop has one sending end here"),
    }
}

/// Sends what there is as fast as the link has room.
struct HopSender {
    link: HopLink,
    guard: Guard,
    flow: u64,
    to: Destination,
    payload: u32,
    content: Box<dyn Content>,
    object_len: u64,
    begins: Option<Time>,
    /// Bytes that were sent.
    offset: u64,
    /// The packet without payload was sent that follows the last.
    ended: bool,
    completed: bool,
    events: VecDeque<FlowEvent>,
}

impl HopSender {
    fn bytes(&self, offset: u64) -> u32 {
        (self.object_len - offset).min(self.payload.into()) as u32
    }

    /// Sends the frame that was written last. The trace shows its counter: frames that are sent again have counters
    /// of their own.
    fn transmit(&self, cx: &mut Cx<'_>, bytes: u32, repair: bool) -> Transmit {
        cx.emit(Event::DataSent { seq: self.guard.counter(), bytes, repair });
        Transmit { payload_len: bytes, ..Transmit::control(self.to) }
    }
}

impl Machine for HopSender {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        let frame = self.guard.read(datagram.bytes);
        let is_own = |sender| self.to == Destination::Node(sender) && sender == datagram.from;
        let taken = frame.and_then(|frame| match frame.kind {
            FrameKind::Ack if frame.link.0 == LINK && is_own(frame.sender) => {
                self.link.on_ack(cx.now, &Ack::decode(frame.body).ok_or(BadInput::Malformed)?)
            }
            _ => Err(BadInput::Foreign),
        });
        match taken {
            Err(reason) => cx.emit(Event::BadInput { reason }),
            Ok(()) if self.ended && !self.completed && self.link.has_arrived() => {
                self.completed = true;
                cx.emit(Event::Completed { bytes: self.offset });
                self.events.push_back(FlowEvent::Completed);
            }
            Ok(()) => {
                let window_milli = (self.link.window() * 1000.0) as u64;
                cx.emit(Event::Window { window_milli, flight: self.link.in_flight() as u32 });
            }
        }
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.begins.take_if(|at| *at <= cx.now);
        self.link.handle_timeout(cx.now);
    }

    fn handle_close(&mut self, _cx: &mut Cx<'_>) {
        self.object_len = self.offset;
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if self.begins.is_some() {
            return None;
        }
        if let Some(seq) = self.link.poll_again(cx.now) {
            self.link.write(seq, &mut self.guard, buf);
            let bytes = buf.len() - self.guard.overhead();
            return Some(self.transmit(cx, bytes as u32, true));
        }
        if self.ended || !self.link.has_room() {
            return None;
        }
        let bytes = self.bytes(self.offset);
        let mut body = Vec::new();
        if bytes > 0 {
            let zeros = self.content.read(self.offset, bytes, &mut body);
            body.resize(body.len() + zeros as usize, 0);
        }
        let (group, origin, to) = (self.flow, self.guard.node(), self.to);
        let packet = HopPacket { hops: 1, group, origin, to, body: body.into() };
        let seq = self.link.send(cx.now, packet)?;
        self.link.write(seq, &mut self.guard, buf);
        self.offset += u64::from(bytes);
        self.ended = bytes == 0;
        Some(self.transmit(cx, bytes, false))
    }

    fn poll_event(&mut self) -> Option<FlowEvent> {
        self.events.pop_front()
    }

    fn next_timeout(&self) -> Option<Time> {
        self.begins.into_iter().chain(self.link.next_timeout()).min()
    }
}

/// Delivers what comes, in order.
struct HopReceiver {
    link: HopLink,
    guard: Guard,
    flow: u64,
    source: NodeId,
    packets: u64,
    bytes: u64,
    /// Counter of the next frame of the source.
    next_counter: u64,
    /// Frames from further ahead than is believed: the counter of the last.
    ahead: Dissent<u64>,
    losses: LossRecord,
    events: VecDeque<FlowEvent>,
}

/// Greatest gap between the counters of two frames that is believed at once. The window is smaller, and the record of
/// losses knows each packet of such a gap: frames that come after a forged one withdraw its losses.
const COUNTER_JUMP_MAX: u64 = 2 * WINDOW_MAX as u64 - 64;

impl Machine for HopReceiver {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        let frame = self.guard.read(datagram.bytes);
        let taken = frame.and_then(|frame| {
            let is_sources = [frame.sender, datagram.from] == [self.source; 2];
            let is_own = frame.link.0 == LINK && frame.group == self.flow && is_sources;
            match frame.kind {
                FrameKind::Data if is_own => {
                    let was_lost = self.record_losses(cx, frame.counter);
                    let is_new = self.link.on_frame(cx.now, &frame);
                    if is_new || was_lost { Ok(()) } else { Err(BadInput::Duplicate) }
                }
                _ => Err(BadInput::Foreign),
            }
        });
        if let Err(reason) = taken {
            cx.emit(Event::BadInput { reason });
        }
        self.deliver(cx);
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.link.handle_timeout(cx.now);
        self.deliver(cx);
    }

    fn handle_close(&mut self, _cx: &mut Cx<'_>) {}

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        let to = Destination::Node(self.source);
        self.link.poll(cx.now, &mut self.guard, buf).then(|| Transmit::control(to))
    }

    fn poll_event(&mut self) -> Option<FlowEvent> {
        self.events.pop_front()
    }

    fn next_timeout(&self) -> Option<Time> {
        self.link.next_timeout()
    }
}

impl HopReceiver {
    fn new(link: HopLink, guard: Guard, flow: u64, source: NodeId) -> Self {
        Self {
            link,
            guard,
            flow,
            source,
            packets: 0,
            bytes: 0,
            next_counter: 1,
            ahead: Dissent::default(),
            losses: LossRecord::starting_at(1),
            events: VecDeque::new(),
        }
    }

    /// The frame with this counter has come. Returns whether it had counted as lost.
    fn record_losses(&mut self, cx: &mut Cx<'_>, counter: u64) -> bool {
        match counter.checked_sub(self.next_counter) {
            None => return self.losses.arrived(counter, |event| cx.emit(event)),
            Some(jump) if jump > COUNTER_JUMP_MAX => {
                // Many timeouts of a source that was not heard. Frames before this one do not count.
                let agrees =
                    |before: &u64| (*before..*before + COUNTER_JUMP_MAX).contains(&counter);
                if self.ahead.claim(cx.now, counter, Duration::ZERO, agrees) {
                    self.next_counter = counter + 1;
                    self.losses.count_from(self.next_counter);
                }
                return false;
            }
            Some(_) => self.ahead.contradict(),
        }
        self.losses.missing(self.next_counter..counter, |event| cx.emit(event));
        self.next_counter = counter + 1;
        false
    }

    fn deliver(&mut self, cx: &mut Cx<'_>) {
        while let Some(packet) = self.link.take() {
            let (seq, bytes) = (self.packets, packet.body.len() as u32);
            self.packets += 1;
            if bytes > 0 {
                self.bytes += u64::from(bytes);
                cx.emit(Event::Delivered { seq, bytes });
                let bytes = packet.body.to_vec();
                self.events.push_back(FlowEvent::Delivered { bytes, zeros: 0 });
            } else {
                cx.emit(Event::Completed { bytes: self.bytes });
                self.events.push_back(FlowEvent::Completed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::at;
    use faircast_base::{NullTrace, Purpose, Rng};

    #[test]
    fn a_forged_counter_leaves_no_losses_behind() {
        let mut rng = Rng::new(1, NodeId(4), Purpose::Machine(0));
        let mut trace = NullTrace;
        let mut cx = Cx::new(at(0), &mut rng, &mut trace);
        for jump in [100, COUNTER_JUMP_MAX, COUNTER_JUMP_MAX + 1, 1 << 16, u64::MAX - 10] {
            let guard = Guard::new(NodeId(4), None);
            let mut receiver = HopReceiver::new(HopLink::new(LINK), guard, 0, NodeId(1));
            let mut take = |counter| {
                receiver.record_losses(&mut cx, counter);
                receiver.losses.lost()
            };
            (1..10).for_each(|counter| _ = take(counter));
            take(10 + jump);
            for counter in 10..10 + 2 * COUNTER_JUMP_MAX {
                take(counter);
            }
            assert_eq!(receiver.losses.lost(), 0, "{jump}");
            // A source that really is that far ahead is followed.
            let far = 10 + 9 * COUNTER_JUMP_MAX;
            for counter in far..far + 20 {
                receiver.record_losses(&mut cx, counter);
            }
            assert_eq!((receiver.next_counter, receiver.losses.lost()), (far + 20, 0), "{jump}");
        }
    }
}
