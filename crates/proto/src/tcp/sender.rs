//! Sender: common part of all flavours.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::content::Content;
use crate::transport::EndSetup;
use crate::{Datagram, Destination, FlowEvent, Machine, Transmit};
use faircast_base::{
    BadInput, Checked, CutReason, Cx, Duration, Event, FlowId, NodeId, Time, TimeoutKind,
};

use super::Flavour;
use super::reordering::Reordering;
use super::rtt::RttEstimator;
use super::scoreboard::Scoreboard;
use super::settings::Settings;
use super::wire::{self, Segment};

/// Sender of a TCP connection. Resulting packets wait in a list until polled.
pub struct TcpSender {
    pub(super) flavour: Flavour,
    pub(super) settings: Settings,
    flow: FlowId,
    peer: NodeId,
    payload: u32,
    header: Option<u32>,
    content: Box<dyn Content>,
    /// Object length in bytes; `u64::MAX` for an endless stream.
    object_len: u64,
    /// First packet after the object; `u64::MAX` for an endless stream.
    object_end: u64,
    start: Option<Time>,

    /// First unacknowledged packet (ns-2: highest_ack_ + 1).
    pub(super) una: u64,
    /// First unacknowledged packet, except during SACK recovery (last_ack_ + 1).
    pub(super) last_una: u64,
    /// Next packet to send, reset to `una` by a timeout (t_seqno_).
    pub(super) next: u64,
    /// First packet never sent (maxseq_ + 1).
    pub(super) high: u64,
    /// First packet that will never be sent (curseq_).
    pub(super) end: u64,
    /// First packet after those sent before the last cut (recover_ + 1).
    pub(super) recover: u64,

    /// Congestion window in packets. As in ns-2, a cut may leave less than one: then none leaves.
    pub(super) cwnd: f64,
    pub(super) ssthresh: f64,
    pub(super) dup_acks: u32,
    pub(super) inflation: u64,
    pub(super) last_cut: LastCut,
    pub(super) partial_seen: bool,
    /// SACK: true during fast recovery, and its estimate of packets in the network.
    pub(super) recovering: bool,
    pub(super) pipe: i64,
    /// SACK: true from a timeout to the next new acknowledgement.
    pub(super) after_timeout: bool,
    pub(super) scoreboard: Scoreboard,
    pub(super) reordering: Option<Box<Reordering>>,

    pub(super) rtt: RttEstimator,
    timed: Option<(u64, Time)>,
    retransmit_at: Option<Time>,
    retransmit_after: Duration,
    pub(super) send_at: Option<Time>,

    out: VecDeque<(u64, bool)>,
    told_window: u64,
    completed: bool,
    completed_untold: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LastCut {
    #[default]
    None,
    DupAcks,
    Recovered,
    Timeout,
}

impl TcpSender {
    pub(super) fn new(flavour: Flavour, setup: EndSetup<'_>, content: Box<dyn Content>) -> Self {
        let Destination::Node(peer) = setup.to else { panic!("TCP has one receiver") };
        let settings = Settings::from_options(setup.options);
        let payload = setup.payload.max(1);
        let ssthresh = match settings.initial_ssthresh {
            0 => settings.window_max,
            packets => packets,
        };
        let object_end = content.len().map_or(u64::MAX, |len| {
            // An empty object is one empty packet.
            u64::from(settings.syn) + len.div_ceil(u64::from(payload)).max(1)
        });
        fresh! {
            Self {
                flavour,
                settings,
                flow: setup.flow,
                peer,
                payload,
                header: setup.header,
                object_len: content.len().unwrap_or(u64::MAX),
                object_end,
                content,
                start: Some(setup.start),
                end: object_end,
                recover: 1,
                // A SYN goes alone (ns-2: delay_growth_).
                cwnd: if settings.syn { 1.0 } else { f64::from(settings.initial_window) },
                ssthresh: f64::from(ssthresh),
                reordering: settings.reordering.then(Box::default),
                rtt: RttEstimator::new(&settings),
            }
            una, last_una, next, high, dup_acks, inflation, last_cut, partial_seen, recovering,
            pipe, after_timeout, scoreboard, timed, retransmit_at, retransmit_after, send_at, out,
            told_window, completed, completed_untold
        }
    }

    fn offset(&self, seq: u64) -> u64 {
        let data_packet = seq.saturating_sub(u64::from(self.settings.syn));
        data_packet.saturating_mul(u64::from(self.payload)).min(self.object_len)
    }

    fn payload_len(&self, seq: u64) -> u32 {
        // Packet lengths do not exceed `payload`, a u32.
        (self.offset(seq + 1) - self.offset(seq)) as u32
    }

    /// Returns the window that limits sending, in whole packets (ns-2: window()).
    pub(super) fn usable_window(&self) -> u64 {
        (self.cwnd as u64 + self.inflation).min(u64::from(self.settings.window_max))
    }

    /// Queues a packet for sending (ns-2: output()).
    pub(super) fn output(&mut self, cx: &mut Cx<'_>, seq: u64) {
        if seq >= self.end {
            return;
        }
        let nothing_in_flight = self.una == self.high;
        let repair = seq < self.high;
        self.out.push_back((seq, repair));
        cx.emit(Event::DataSent { seq, bytes: self.payload_len(seq), repair });
        if repair && let Some(reordering) = &mut self.reordering {
            reordering.on_resent(cx.now, seq);
        }
        if !repair {
            self.high = seq + 1;
            self.timed = self.timed.or(Some((seq, cx.now)));
        }
        if self.retransmit_at.is_none() || nothing_in_flight {
            self.set_timer(cx.now);
        }
    }

    pub(super) fn set_timer(&mut self, now: Time) {
        self.retransmit_after = self.rtt.timeout;
        self.retransmit_at = Some(now + self.retransmit_after);
    }

    /// Stops measuring a round trip before a retransmission (Karn).
    pub(super) fn stop_timing(&mut self) {
        self.timed = None;
    }

    pub(super) fn take_timed(&mut self, ack: u64) -> Option<Time> {
        let (seq, sent) = self.timed?;
        if ack <= seq {
            return None;
        }
        self.timed = None;
        Some(sent)
    }

    /// Processes an acknowledgement of all before `ack`, some of it new (ns-2: newack()).
    pub(super) fn take_new_ack(&mut self, cx: &mut Cx<'_>, ack: u64) {
        self.dup_acks = 0;
        self.una = ack;
        self.last_una = ack;
        self.next = self.next.max(ack);
        if let Some(sent) = self.take_timed(ack) {
            self.rtt.sample(sent, cx.now);
            if let Some(reordering) = &mut self.reordering {
                reordering.on_round_trip(cx.now.since(sent));
            }
            let rtt_ns = cx.now.since(sent).as_nanos();
            cx.emit(Event::RttSample { node: self.peer, rtt_ns });
        }
        self.set_timer(cx.now);
    }

    /// Grows the window (ns-2: opencwnd()). With reordering tolerance each packet counts.
    pub(super) fn open_window(&mut self, packets: u64) {
        let times = if self.reordering.is_some() { packets } else { 1 };
        for _ in 0..times {
            self.cwnd += if self.cwnd < self.ssthresh { 1.0 } else { 1.0 / self.cwnd };
        }
        if self.una == 1 {
            // ns-2 sets the initial window at the acknowledgement of packet 0, SYN or not.
            self.cwnd = f64::from(self.settings.initial_window);
        }
    }

    /// Halves the window, or after a timeout the threshold alone (ns-2: slowdown()).
    pub(super) fn cut(&mut self, cx: &mut Cx<'_>, reason: CutReason) {
        let half = if self.settings.precision_reduce {
            (self.cwnd + self.inflation as f64).min(f64::from(self.settings.window_max)) / 2.0
        } else {
            (self.usable_window() / 2) as f64
        };
        if let Some(reordering) = &mut self.reordering {
            reordering.on_cut(cx.now, self.cwnd, self.ssthresh);
        }
        self.ssthresh = (half as u64).max(2) as f64;
        self.cwnd = if reason == CutReason::Timeout { 1.0 } else { half };
        cx.emit(Event::Cut { reason, window_milli: milli(self.cwnd) });
    }

    /// True if duplicates may start a retransmit: not for losses before a cut (ns-2: bugFix_).
    pub(super) fn may_fast_retransmit(&self) -> bool {
        // The exception permits fast repair of the first data packet.
        self.una > self.recover || self.una == 1 || !self.settings.one_cut_per_window
    }

    /// Limited transmit: sends a new packet for an early duplicate acknowledgement (src: RFC 3042).
    pub(super) fn send_one(&mut self, cx: &mut Cx<'_>) {
        let ahead = (self.next + 1) as f64 - self.una as f64;
        if self.next < self.una + u64::from(self.settings.window_max)
            && self.next < self.end
            && ahead <= self.cwnd + f64::from(self.dup_acks)
        {
            self.output(cx, self.next);
            self.next += 1;
        }
    }

    /// Sends what the window permits, at most `burst_max` packets (ns-2: send_much()).
    pub(super) fn send_window(&mut self, cx: &mut Cx<'_>, force: bool, burst_max: usize) {
        if self.flavour == Flavour::Sack {
            return self.send_pipe(cx, force);
        }
        if !force && self.send_at.is_some() {
            return;
        }
        let limit = (self.una + self.usable_window()).min(self.end);
        for _ in 0..burst_max {
            if self.next >= limit || self.must_wait(cx, force) {
                break;
            }
            self.output(cx, self.next);
            self.next += 1;
        }
    }

    pub(super) fn must_wait(&mut self, cx: &mut Cx<'_>, force: bool) -> bool {
        if force || self.settings.overhead == Duration::ZERO {
            return false;
        }
        if self.send_at.is_none() {
            self.send_at = Some(cx.now + self.settings.overhead.mul_f64(cx.rng.unit()));
        }
        true
    }

    fn begin(&mut self, cx: &mut Cx<'_>) {
        if self.settings.random_clock_phase {
            self.rtt.set_phase(self.settings.clock_granularity.mul_f64(cx.rng.unit()));
        }
        self.send_window(cx, false, usize::MAX);
    }

    fn time_out(&mut self, cx: &mut Cx<'_>) {
        self.inflation = 0;
        self.dup_acks = 0;
        self.recovering = false;
        self.after_timeout = true;
        self.last_una = self.una;
        self.recover = self.high;
        self.scoreboard.clear();
        if let Some(reordering) = &mut self.reordering {
            reordering.on_timeout();
        }
        self.cwnd = self.cwnd.max(1.0);
        if self.una == self.high {
            self.cwnd = 1.0;
        } else {
            let after_ns = self.retransmit_after.as_nanos();
            cx.emit(Event::Timeout { kind: TimeoutKind::Retransmission, after_ns });
            if self.una == 0 {
                // src: RFC 5681 s3.1: a lost SYN makes the initial window one packet.
                self.settings.initial_window = 1;
            }
            self.cut(cx, CutReason::Timeout);
            self.rtt.back_off();
        }
        self.last_cut = LastCut::Timeout;
        self.set_timer(cx.now);
        self.next = self.una;
        self.timed = None;
        self.send_window(cx, false, usize::MAX);
    }

    fn handle_segment(&mut self, cx: &mut Cx<'_>, datagram: &Datagram<'_>) -> Checked {
        let (segment, _) = Segment::decode(datagram.bytes)?;
        let Segment::Ack { flow, next, sack } = segment else { return Err(BadInput::Malformed) };
        if flow != self.flow || datagram.from != self.peer {
            return Err(BadInput::Foreign);
        }
        let ack = wire::unwrap_near(self.una, next).ok_or(BadInput::OutOfWindow)?;
        if ack > self.high {
            return Err(BadInput::Absurd);
        }
        let mut blocks = [(0, 0); wire::SACK_BLOCKS_MAX];
        let mut count = 0;
        for &(start, end) in sack.as_slice() {
            let start = wire::unwrap_near(self.una, start).ok_or(BadInput::OutOfWindow)?;
            let end = wire::unwrap_near(self.una, end).ok_or(BadInput::OutOfWindow)?;
            if start >= end || end > self.high {
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
        let bytes = self.offset(ack).saturating_sub(self.offset(self.una)) as u32;
        cx.emit(Event::AckReceived { seq: ack.saturating_sub(1), bytes, from: self.peer });
        if self.una < self.end {
            self.note_order(cx, ack, blocks);
            match self.flavour {
                Flavour::Reno => self.on_ack_reno(cx, ack),
                Flavour::NewReno => self.on_ack_newreno(cx, ack),
                Flavour::Sack => self.on_ack_sack(cx, ack, blocks),
            }
        }
        self.finish_if_done(cx);
        self.tell_window(cx);
    }

    fn finish_if_done(&mut self, cx: &mut Cx<'_>) {
        if self.una < self.end {
            return;
        }
        self.retransmit_at = None;
        self.send_at = None;
        if !self.completed && self.una == self.object_end {
            self.completed = true;
            self.completed_untold = true;
            cx.emit(Event::Completed { bytes: self.offset(self.una) });
        }
    }

    fn tell_window(&mut self, cx: &mut Cx<'_>) {
        let whole = self.cwnd as u64;
        if whole != self.told_window {
            self.told_window = whole;
            let flight = self.next.saturating_sub(self.una) as u32;
            cx.emit(Event::Window { window_milli: milli(self.cwnd), flight });
        }
    }

    fn write(&mut self, (seq, again): (u64, bool), buf: &mut Vec<u8>) -> Transmit {
        let syn = self.settings.syn && seq == 0;
        let fin = seq + 1 == self.object_end;
        Segment::Data { flow: self.flow, seq: seq as u32, syn, fin, again }.encode(buf);
        let payload_len = self.payload_len(seq);
        let zeros = if payload_len == 0 {
            0
        } else {
            self.content.read(self.offset(seq), payload_len, buf)
        };
        let wire_len = match self.header {
            Some(_) if syn => wire::CONTROL_WIRE_LEN,
            Some(header) => payload_len + header,
            None => wire::IP_HEADER_LEN + wire::HEADER_LEN + payload_len,
        };
        let control = Transmit::control(Destination::Node(self.peer));
        Transmit { zeros, payload_len, wire_len: Some(wire_len), ..control }
    }
}

impl Machine for TcpSender {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        let outcome = self.handle_segment(cx, &datagram);
        cx.check(outcome);
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.start.take_if(|at| *at <= cx.now).is_some() {
            self.begin(cx);
        }
        // A delayed send comes before a simultaneous timeout.
        if self.send_at.take_if(|at| *at <= cx.now).is_some() {
            self.send_window(cx, true, usize::MAX);
        }
        if self.hole_due().is_some_and(|at| at <= cx.now) {
            match self.flavour {
                Flavour::Reno | Flavour::NewReno => self.judge_hole(cx),
                Flavour::Sack => self.judge_hole_sack(cx),
            }
        }
        if self.retransmit_at.is_some_and(|at| at <= cx.now) {
            self.time_out(cx);
        }
        self.tell_window(cx);
    }

    /// Ends the stream after packets already sent. A truncated object never counts as complete.
    fn handle_close(&mut self, cx: &mut Cx<'_>) {
        self.start = None;
        self.end = self.end.min(self.high);
        self.finish_if_done(cx);
    }

    fn poll_transmit(&mut self, _cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        let seq = self.out.pop_front()?;
        Some(self.write(seq, buf))
    }

    fn poll_event(&mut self) -> Option<FlowEvent> {
        core::mem::take(&mut self.completed_untold).then_some(FlowEvent::Completed)
    }

    fn next_timeout(&self) -> Option<Time> {
        let reordering = self.hole_due();
        [self.start, self.send_at, self.retransmit_at, reordering].into_iter().flatten().min()
    }
}

fn milli(packets: f64) -> u64 {
    (packets * 1000.0 + 0.5) as u64
}
