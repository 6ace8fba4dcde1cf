//! Source of a stream: sends packets once, and again when requested by NAK.

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

/// PGM source: sends packets as its control permits, and repairs those in its window.
pub struct PgmSource {
    session: SourceSession,
    packets: Box<dyn Packets + Send>,
    /// Number of all packets, after the application has closed the source.
    closed: Option<u64>,
    repairs: Repairs,
    repair_turn: bool,
    events: VecDeque<StreamEvent>,
}

impl PgmSource {
    /// Creates a source of `content` under `control`. Settings are clamped to their ranges.
    pub fn new(config: SourceConfig, content: Box<dyn Content>, control: BoxControl) -> Self {
        let payload = config.payload.clamp(1, u32::from(u16::MAX));
        Self::of_packets(config, Box::new(ByOffset::new(content, payload)), control)
    }

    /// Creates a source of `packets` of any lengths. Settings are clamped to their ranges.
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

    /// Sets the scheme, and the announcement in SPMs.
    #[must_use]
    pub fn speaking(mut self, scheme: &'static str, announced: Option<SchemeAnnouncement>) -> Self {
        self.session.scheme.speak(scheme, announced);
        self
    }

    #[cfg(test)]
    pub(crate) fn control(&self) -> &dyn crate::congestion::ErasedControl {
        self.session.control.as_ref()
    }

    fn end(&self) -> Option<u64> {
        self.closed.or_else(|| self.packets.end())
    }

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
        self.repairs = Repairs::default();
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
            Body::Ack(vector) => {
                let len = |index| self.packets.len(index);
                self.session.take_ack(cx, packet, vector, len)
            }
            Body::Spmr => self.session.take_request(cx, packet),
            // Looped-back packets, confirmations by network elements, and answers to polls.
            _ => Ok(()),
        }
    }

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

    /// Writes data or a repair, alternately if both wait; if one may not be sent, the other may.
    fn next_payload(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.repairs.advance(self.session.trail);
        let repair = match self.repairs.order.front().copied() {
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

    /// True if new data would push out a packet that a receiver waits for (src: RFC 3208 s16).
    fn trail_awaits_repair(&self) -> bool {
        let (trail, window) = (self.session.trail, self.session.config.transmit_window);
        self.session.next - trail >= u64::from(window) && self.repairs.waiting.contains(&trail)
    }

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
        let owes = !self.repairs.order.is_empty();
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

/// Most waiting repairs. Receivers repeat requests that do not fit.
const REPAIRS_MAX: usize = 1 << 16;

/// Time for which a sent repair is remembered: longest round trip in a report.
const REMEMBERED: Duration = Duration::from_secs(64);

#[derive(Debug, Default)]
struct Repairs {
    order: VecDeque<(Time, u64)>,
    waiting: BTreeSet<u64>,
    /// Times of the last repairs of at most [`REPAIRS_MAX`] packets, by packet and in order.
    sent: BTreeMap<u64, Time>,
    sent_order: VecDeque<(Time, u64)>,
}

impl Repairs {
    /// Queues packet `index`, due at `ready`, which never decreases. False if the table is full.
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

    fn pop(&mut self) {
        if let Some((_, index)) = self.order.pop_front() {
            self.waiting.remove(&index);
        }
    }

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

    fn advance(&mut self, trail: u64) {
        while self.order.front().is_some_and(|&(_, index)| index < trail) {
            self.pop();
        }
    }
}
