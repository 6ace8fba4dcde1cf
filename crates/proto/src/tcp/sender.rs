//! Sender: common part of all flavours.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{
    BadInput, Checked, CutReason, Cx, Duration, Event, FlowId, NodeId, Time, TimeoutKind,
};

use super::Flavour;
use super::recovery::{CongestionWindow, Recovery, Scoreboard};
use super::reordering::Reordering;
use super::settings::Settings;
use super::timer::{Ns2Rto, RetransmissionTimer};
use super::wire::{self, Segment};
use crate::content::Content;
use crate::transport::EndSetup;
use crate::{Datagram, Destination, FlowEvent, Machine, Transmit};

/// Duplicate acknowledgements that start a fast retransmit (src: RFC 5681 s3.2; numdupacks_).
pub(super) const DUP_ACK_THRESHOLD: u32 = 3;

/// Sender of a TCP connection. Resulting packets wait in a queue until polled.
pub struct TcpSender {
    pub(super) flavour: Flavour,
    pub(super) settings: Settings,
    pub(super) packets: Packets,
    start_at: Option<Time>,

    /// First unacknowledged packet, SND.UNA (ns-2: highest_ack_ + 1).
    pub(super) una: u64,
    /// First unacknowledged packet, except during SACK recovery (last_ack_ + 1).
    pub(super) last_una: u64,
    /// Next packet to send, reset to `una` by a timeout (t_seqno_).
    pub(super) next: u64,
    /// First packet never sent (maxseq_ + 1).
    pub(super) sent_end: u64,
    /// First packet that will never be sent (curseq_).
    pub(super) stream_end: u64,

    pub(super) window: CongestionWindow,
    pub(super) recovery: Recovery,
    pub(super) scoreboard: Scoreboard,
    pub(super) reordering: Option<Box<Reordering>>,
    pub(super) timer: RetransmissionTimer,
    /// End of the random delay of sending, while one lasts.
    pub(super) send_at: Option<Time>,
    /// Window in whole packets of the last trace event.
    traced_window: u64,
    is_complete: bool,
    event: Option<FlowEvent>,
}

impl TcpSender {
    pub(super) fn new(flavour: Flavour, setup: EndSetup<'_>, content: Box<dyn Content>) -> Self {
        let settings = Settings::from_options(setup.options);
        let packets = Packets::new(&setup, content);
        Self {
            flavour,
            start_at: Some(setup.start),
            una: 0,
            last_una: 0,
            next: 0,
            sent_end: 0,
            stream_end: packets.end,
            packets,
            window: CongestionWindow::new(&settings),
            recovery: Recovery { recover: 1, ..Recovery::default() },
            scoreboard: Scoreboard::default(),
            reordering: settings.reordering.then(Box::default),
            timer: RetransmissionTimer::new(Ns2Rto::new(&settings)),
            send_at: None,
            traced_window: 0,
            is_complete: false,
            event: None,
            settings,
        }
    }

    /// Queues a packet for sending (ns-2: output()).
    pub(super) fn output(&mut self, cx: &mut Cx<'_>, seq: u64) {
        if seq >= self.stream_end {
            return;
        }
        let nothing_in_flight = self.una == self.sent_end;
        let repair = seq < self.sent_end;
        self.packets.queue.push_back((seq, repair));
        cx.emit(Event::DataSent { seq, bytes: self.packets.payload_len(seq), repair });
        if !repair {
            self.sent_end = seq + 1;
            self.timer.time(seq, cx.now);
        } else if let Some(reordering) = &mut self.reordering {
            reordering.on_resent(cx.now, seq);
        }
        if self.timer.expires_at.is_none() || nothing_in_flight {
            self.timer.restart(cx.now);
        }
    }

    /// Processes an acknowledgement of all before `ack`, some of it new (ns-2: newack()).
    pub(super) fn take_new_ack(&mut self, cx: &mut Cx<'_>, ack: u64) {
        self.recovery.dup_acks = 0;
        self.una = ack;
        self.last_una = ack;
        self.next = self.next.max(ack);
        if let Some(sent_at) = self.timer.take_timed(ack) {
            self.timer.rto.sample(sent_at, cx.now);
            if let Some(reordering) = &mut self.reordering {
                reordering.on_round_trip(cx.now.since(sent_at));
            }
            let rtt = cx.now.since(sent_at);
            cx.emit(Event::RttSample { node: self.packets.peer, rtt_ns: rtt.as_nanos() });
        }
        self.timer.restart(cx.now);
    }

    /// Processes a new acknowledgement that grows the window.
    pub(super) fn open_window(&mut self, cx: &mut Cx<'_>, ack: u64) {
        let times = if self.reordering.is_some() { ack - self.una } else { 1 };
        self.take_new_ack(cx, ack);
        (0..times).for_each(|_| self.window.open());
        if self.una == 1 {
            // ns-2 sets the initial window at the acknowledgement of packet 0.
            self.window.cwnd = self.window.initial;
        }
    }

    pub(super) fn cut(&mut self, cx: &mut Cx<'_>, reason: CutReason) {
        if let Some(reordering) = &mut self.reordering {
            reordering.on_cut(cx.now, self.window);
        }
        self.window.cut(reason == CutReason::Timeout);
        cx.emit(Event::Cut { reason, window_milli: milli(self.window.cwnd) });
    }

    pub(super) fn may_fast_retransmit(&self) -> bool {
        self.recovery.may_fast_retransmit(self.una)
    }

    /// Limited transmit: sends a new packet for an early duplicate acknowledgement (src: RFC 3042).
    pub(super) fn limited_transmit(&mut self, cx: &mut Cx<'_>) -> bool {
        let ahead = (self.next + 1) as f64 - self.una as f64;
        let permitted = self.next < self.una + self.window.max
            && self.next < self.stream_end
            && ahead <= self.window.cwnd + f64::from(self.recovery.dup_acks);
        if permitted {
            self.output(cx, self.next);
            self.next += 1;
        }
        permitted
    }

    /// Sends what the window permits, at most `burst_max` packets (ns-2: send_much()).
    pub(super) fn send_window(&mut self, cx: &mut Cx<'_>, force: bool, burst_max: usize) {
        if self.flavour == Flavour::Sack {
            return self.send_pipe(cx, force);
        }
        if !force && self.send_at.is_some() {
            return;
        }
        let limit = (self.una + self.window.usable()).min(self.stream_end);
        for _ in 0..burst_max {
            if self.next >= limit || self.is_delayed(cx, force) {
                break;
            }
            self.output(cx, self.next);
            self.next += 1;
        }
    }

    /// True if sending waits for a random time, which begins if none lasts (ns-2: overhead_).
    pub(super) fn is_delayed(&mut self, cx: &mut Cx<'_>, force: bool) -> bool {
        if force || self.settings.overhead == Duration::ZERO {
            return false;
        }
        if self.send_at.is_none() {
            self.send_at = Some(cx.now + self.settings.overhead.mul_f64(cx.rng.unit()));
        }
        true
    }

    fn time_out(&mut self, cx: &mut Cx<'_>) {
        self.window.inflation = 0;
        self.recovery.time_out(self.sent_end);
        self.last_una = self.una;
        self.scoreboard = Scoreboard::default();
        if let Some(reordering) = &mut self.reordering {
            reordering.on_timeout();
        }
        self.window.cwnd = self.window.cwnd.max(1.0);
        if self.una == self.sent_end {
            self.window.cwnd = 1.0;
        } else {
            let after_ns = self.timer.interval.as_nanos();
            cx.emit(Event::Timeout { kind: TimeoutKind::Retransmission, after_ns });
            if self.una == 0 {
                // src: RFC 5681 s3.1.
                self.window.initial = 1.0;
            }
            self.cut(cx, CutReason::Timeout);
            self.timer.rto.back_off();
        }
        self.timer.restart(cx.now);
        self.next = self.una;
        self.timer.timed = None;
        self.send_window(cx, false, usize::MAX);
    }

    fn handle_segment(&mut self, cx: &mut Cx<'_>, datagram: &Datagram<'_>) -> Checked {
        let (segment, _) = Segment::decode(datagram.bytes)?;
        let Segment::Ack { flow, next, sack } = segment else { return Err(BadInput::Malformed) };
        if flow != self.packets.flow || datagram.from != self.packets.peer {
            return Err(BadInput::Foreign);
        }
        let ack = wire::unwrap_near(self.una, next).ok_or(BadInput::OutOfWindow)?;
        if ack > self.sent_end {
            return Err(BadInput::Absurd);
        }
        let mut blocks = [(0, 0); wire::SACK_BLOCKS_MAX];
        let mut count = 0;
        for &(start, end) in sack.as_slice() {
            let start = wire::unwrap_near(self.una, start).ok_or(BadInput::OutOfWindow)?;
            let end = wire::unwrap_near(self.una, end).ok_or(BadInput::OutOfWindow)?;
            if start >= end || end > self.sent_end {
                return Err(BadInput::Absurd);
            }
            blocks[count] = (start, end);
            count += 1;
        }
        self.handle_ack(cx, ack, &blocks[..count]);
        Ok(())
    }

    fn handle_ack(&mut self, cx: &mut Cx<'_>, ack: u64, blocks: &[(u64, u64)]) {
        // The window bounds an acknowledgement's payload bytes, so they fit.
        let bytes = self.packets.offset(ack).saturating_sub(self.packets.offset(self.una)) as u32;
        let from = self.packets.peer;
        cx.emit(Event::AckReceived { seq: ack.saturating_sub(1), bytes, from });
        if self.una < self.stream_end {
            self.note_order(cx, ack, blocks);
            match self.flavour {
                Flavour::Reno => self.on_ack_reno(cx, ack),
                Flavour::NewReno => self.on_ack_newreno(cx, ack),
                Flavour::Sack => self.on_ack_sack(cx, ack, blocks),
            }
        }
        self.finish_if_done(cx);
        self.trace_window(cx);
    }

    fn finish_if_done(&mut self, cx: &mut Cx<'_>) {
        if self.una < self.stream_end {
            return;
        }
        self.timer.expires_at = None;
        self.send_at = None;
        if !self.is_complete && self.una == self.packets.end {
            self.is_complete = true;
            self.event = Some(FlowEvent::Completed);
            cx.emit(Event::Completed { bytes: self.packets.offset(self.una) });
        }
    }

    fn trace_window(&mut self, cx: &mut Cx<'_>) {
        let whole = self.window.cwnd as u64;
        if whole != self.traced_window {
            self.traced_window = whole;
            let flight = self.next.saturating_sub(self.una) as u32;
            cx.emit(Event::Window { window_milli: milli(self.window.cwnd), flight });
        }
    }
}

impl Machine for TcpSender {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        let outcome = self.handle_segment(cx, &datagram);
        cx.check(outcome);
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.start_at.take_if(|at| *at <= cx.now).is_some() {
            if self.settings.random_clock_phase {
                let phase = self.settings.clock_granularity.mul_f64(cx.rng.unit());
                self.timer.rto.phase_ns = phase.as_nanos();
            }
            self.send_window(cx, false, usize::MAX);
        }
        // A delayed send comes before a simultaneous timeout.
        if self.send_at.take_if(|at| *at <= cx.now).is_some() {
            self.send_window(cx, true, usize::MAX);
        }
        if self.hole_due().is_some_and(|at| at <= cx.now) {
            match self.flavour {
                Flavour::Reno | Flavour::NewReno => self.on_hole(cx),
                Flavour::Sack => self.on_hole_sack(cx),
            }
        }
        if self.timer.expires_at.is_some_and(|at| at <= cx.now) {
            self.time_out(cx);
        }
        self.trace_window(cx);
    }

    /// Ends the stream after packets already sent. A truncated object never counts as complete.
    fn handle_close(&mut self, cx: &mut Cx<'_>) {
        self.start_at = None;
        self.stream_end = self.stream_end.min(self.sent_end);
        self.finish_if_done(cx);
    }

    fn poll_transmit(&mut self, _cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.packets.transmit(buf)
    }

    fn poll_event(&mut self) -> Option<FlowEvent> {
        self.event.take()
    }

    fn next_timeout(&self) -> Option<Time> {
        let timers = [self.start_at, self.send_at, self.timer.expires_at, self.hole_due()];
        timers.into_iter().flatten().min()
    }
}

fn milli(packets: f64) -> u64 {
    (packets * 1000.0 + 0.5) as u64
}

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
