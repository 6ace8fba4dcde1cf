//! The source of a stream: it sends packets once, and again what is asked for by NAK.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Cx, Duration, Event, Time};

use crate::congestion::BoxControl;
use crate::content::{ByOffset, Content, Packets};
use crate::pgm::SourceConfig;
use crate::pgm::negotiation::SchemeAnnouncement;
use crate::pgm::session::{DataPacket, SourceSession};
use crate::pgm::wire::{Body, Nak, Received};
use crate::{Datagram, FlowEvent, Machine, StreamEvent, Transmit};

/// A PGM source: sends its packets as fast as its control permits, confirms NAKs at once, repairs
/// what is in its transmit window, and says by FIN where the end is.
pub struct PgmSource {
    session: SourceSession,
    packets: Box<dyn Packets + Send>,
    /// Number of all packets, where its application has closed it.
    closed: Option<u64>,
    repairs: Repairs,
    /// Whether the next opportunity is a repair's, where both wait.
    repair_turn: bool,
    events: VecDeque<StreamEvent>,
}

impl PgmSource {
    /// A source of `content` under `control`. Settings out of their range are taken to its nearest
    /// end.
    pub fn new(config: SourceConfig, content: Box<dyn Content>, control: BoxControl) -> Self {
        let payload = config.payload.clamp(1, u32::from(u16::MAX));
        Self::of_packets(config, Box::new(ByOffset::new(content, payload)), control)
    }

    /// A source of `packets` under `control`; how long they are is theirs to say. Settings out of
    /// their range are taken to its nearest end.
    pub fn of_packets(
        config: SourceConfig,
        packets: Box<dyn Packets + Send>,
        control: BoxControl,
    ) -> Self {
        let repaired = config.settings.reliable;
        Self {
            session: SourceSession::new(config, control, repaired),
            packets,
            closed: None,
            repairs: Repairs::default(),
            repair_turn: true,
            events: VecDeque::new(),
        }
    }

    /// The same, which speaks `scheme`; its SPMs say what is `announced`.
    #[must_use]
    pub fn speaking(mut self, scheme: &'static str, announced: Option<SchemeAnnouncement>) -> Self {
        self.session.speak(scheme, announced);
        self
    }

    #[cfg(test)]
    pub(in crate::pgm) fn control(&self) -> &dyn crate::congestion::Control {
        self.session.control.as_ref()
    }

    fn end(&self) -> Option<u64> {
        self.closed.or_else(|| self.packets.end())
    }

    /// Bytes of payload of the next new packet, where there is one to send.
    fn ready(&mut self, now: Time) -> Option<u32> {
        let next = self.session.next;
        let open = self.session.is_sending() && self.end().is_none_or(|end| next < end);
        if open { self.packets.ready(now, next) } else { None }
    }

    fn close_if_all_sent(&mut self, now: Time) {
        if self.session.is_sending() && self.end() == Some(self.session.next) {
            self.session.close(now);
        }
    }

    fn finish(&mut self, cx: &mut Cx<'_>) {
        self.session.finish();
        self.repairs.clear();
        if let Some(bytes) = self.packets.completed(self.session.next) {
            cx.emit(Event::Completed { bytes });
            self.events.push_back(FlowEvent::Completed.into());
        }
    }

    fn take_packet(&mut self, cx: &mut Cx<'_>, packet: &Received<'_>) -> Checked {
        if !self.session.is_ours(packet) {
            return Err(BadInput::Foreign);
        }
        match packet.body {
            Body::Nak(nak) => self.take_nak(cx, packet, nak),
            Body::Nnak(nak) => self.session.take_nak(cx, packet, nak, false).map(drop),
            Body::Ack(ack) => {
                let len = |index| self.packets.len(index);
                self.session.take_ack(cx, packet, ack.vector, len)
            }
            Body::Spmr => self.session.take_request(cx, packet),
            // Our own packets, looped back, and confirmations by network elements; polls are not
            // sent by this source, so nobody can answer one.
            _ => Ok(()),
        }
    }

    /// Confirms a NAK, and queues the repairs that it asks for.
    fn take_nak(&mut self, cx: &mut Cx<'_>, packet: &Received<'_>, nak: Nak) -> Checked {
        let Some(told) = self.session.take_nak(cx, packet, nak, true)? else {
            return Ok(());
        };
        let rtt = told.round_trip;
        let mut room = self.session.confirm(cx.now, packet, nak, rtt)?;
        if self.session.config.settings.reliable {
            let ready = cx.now + self.session.config.settings.repair_delay;
            let crossing = self.session.crossing_time(cx.now, rtt);
            for seq in packet.nak_sequence() {
                let index = self.session.index(seq);
                if let Some(index) = index.filter(|index| *index >= self.session.trail) {
                    room &= self.repairs.ask(index, ready, cx.now, crossing);
                }
            }
        }
        if room { Ok(()) } else { Err(BadInput::TableFull) }
    }

    /// Data or a repair. Where both wait they take turns, so that repairs have half of the
    /// opportunities; where one may not leave the other may.
    fn next_payload(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.repairs.advance(self.session.trail);
        let repair = match self.repairs.first() {
            Some((at, index)) if at <= cx.now => Some(index),
            Some((at, _)) => {
                self.session.wake_by(at);
                None
            }
            None => None,
        };
        let ready = self.ready(cx.now);
        let data = ready.filter(|_| !self.trail_awaits_repair());
        let both = repair.is_some() && data.is_some();
        for turn in [self.repair_turn, !self.repair_turn] {
            if turn {
                let Some(index) = repair else { continue };
                let len = self.packets.len(index);
                if self.session.may_send(cx, len, true) {
                    self.repair_turn = !both;
                    self.repairs.pop();
                    self.repairs.on_sent(index, cx.now);
                    return Some(self.write(cx, repair, len, buf));
                }
            } else if let Some(len) = data
                && self.session.may_send(cx, len, false)
            {
                self.repair_turn = true;
                return Some(self.write(cx, None, len, buf));
            }
        }
        self.session.rest(cx, repair.is_none() && ready.is_none());
        None
    }

    /// Whether new data would push out of the window what a receiver is waiting for. It waits then:
    /// NAKs for the trail postpone its advance (src: RFC 3208 s16).
    fn trail_awaits_repair(&self) -> bool {
        let (trail, window) = (self.session.trail, self.session.config.settings.transmit_window);
        self.session.next - trail >= u64::from(window) && self.repairs.has(trail)
    }

    /// A new packet leaves, or this one again.
    fn write(
        &mut self,
        cx: &mut Cx<'_>,
        again: Option<u64>,
        len: u32,
        buf: &mut Vec<u8>,
    ) -> Transmit {
        let (now, index) = (cx.now, again.unwrap_or(self.session.next));
        let last = self.end() == Some(index + 1);
        let packet = DataPacket { again, len, last, repair: again.is_some() };
        let read = |out: &mut Vec<u8>| self.packets.read(now, index, out);
        let transmit = self.session.write_data(cx, packet, buf, read);
        if again.is_none() {
            self.close_if_all_sent(now);
        }
        transmit
    }
}

impl Machine for PgmSource {
    type Event = StreamEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if !self.session.is_active() {
            return;
        }
        match Received::decode(&datagram) {
            Ok(packet) => {
                let outcome = self.take_packet(cx, &packet);
                cx.check(outcome);
                self.session.observe(cx);
            }
            Err(reason) => cx.emit(Event::BadInput { reason }),
        }
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.session.on_timeout(cx) {
            self.close_if_all_sent(cx.now);
        }
        let owes = self.repairs.first().is_some();
        if self.session.has_lingered(cx.now, owes) {
            self.finish(cx);
        }
    }

    fn handle_close(&mut self, cx: &mut Cx<'_>) {
        if self.session.is_sending() {
            self.closed = Some(self.session.next);
        }
        self.session.close(cx.now);
    }

    fn handle_new_path(&mut self, cx: &mut Cx<'_>) {
        self.session.take_new_path(cx);
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if let Some(transmit) = self.session.poll_control(cx.now, buf, |_| {}) {
            return Some(transmit);
        }
        if self.session.is_active() { self.next_payload(cx, buf) } else { None }
    }

    fn poll_event(&mut self) -> Option<StreamEvent> {
        self.session.poll_event().or_else(|| self.events.pop_front())
    }

    fn next_timeout(&self) -> Option<Time> {
        self.session.next_timeout()
    }
}

/// Most repairs that wait. Receivers ask again for what does not fit.
const REPAIRS_MAX: usize = 1 << 16;

/// Time for which a sent repair is remembered: the longest round trip in a report.
const REMEMBERED: Duration = Duration::from_secs(64);

/// Packets to repair, each once, in the order in which they were asked for.
#[derive(Debug, Default)]
struct Repairs {
    order: VecDeque<(Time, u64)>,
    waiting: BTreeSet<u64>,
    /// When each packet was last repaired, at most [`REPAIRS_MAX`] of them, and the same in order.
    sent: BTreeMap<u64, Time>,
    sent_order: VecDeque<(Time, u64)>,
}

impl Repairs {
    /// Queues packet `index`, to be sent at `ready` or later; moments never decrease from call to
    /// call. Where it was repaired less than `crossing` before `now`, the NAK crossed the repair on
    /// its way and nothing is to be done. Returns false where there is no room.
    fn ask(&mut self, index: u64, ready: Time, now: Time, crossing: Duration) -> bool {
        let under_way = |at: &Time| now.since(*at) < crossing;
        if self.waiting.contains(&index) || self.sent.get(&index).is_some_and(under_way) {
            return true;
        }
        if self.waiting.len() >= REPAIRS_MAX {
            return false;
        }
        self.waiting.insert(index);
        self.order.push_back((ready, index));
        true
    }

    fn first(&self) -> Option<(Time, u64)> {
        self.order.front().copied()
    }

    /// Takes the packet that waits longest.
    fn pop(&mut self) -> Option<u64> {
        let (_, index) = self.order.pop_front()?;
        self.waiting.remove(&index);
        Some(index)
    }

    /// A repair of `index` leaves. The oldest are forgotten.
    fn on_sent(&mut self, index: u64, now: Time) {
        while let Some(&(at, oldest)) = self.sent_order.front()
            && (now.since(at) >= REMEMBERED || self.sent_order.len() >= REPAIRS_MAX)
        {
            self.sent_order.pop_front();
            if self.sent.get(&oldest) == Some(&at) {
                self.sent.remove(&oldest);
            }
        }
        self.sent.insert(index, now);
        self.sent_order.push_back((now, index));
    }

    fn has(&self, index: u64) -> bool {
        self.waiting.contains(&index)
    }

    /// Drops what is older than `trail` from the front, where old packets are.
    fn advance(&mut self, trail: u64) {
        while self.order.front().is_some_and(|&(_, index)| index < trail) {
            self.pop();
        }
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}
