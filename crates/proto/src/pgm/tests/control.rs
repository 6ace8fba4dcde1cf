//! Simplest control that exercises every path: a fixed window, driven by acknowledgements.

use alloc::vec::Vec;

use faircast_base::{Cx, Duration, NodeId, Seq, Time};

use crate::congestion::{
    Arrival, Audience, Carrier, Gauges, Permit, ReceiverFeedback, SenderControl, Wire,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word<const OPTION: u8>(pub(super) u32);

/// Receiver that is to acknowledge; 0 for any.
pub(super) type Named = Word<0x12>;

pub(super) type From = Word<0x13>;

impl<const OPTION: u8> Wire for Word<OPTION> {
    const OPTION: u8 = OPTION;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self(u32::from_be_bytes(bytes.try_into().ok()?)))
    }
}

const STALL: Duration = Duration::from_millis(200);

pub(super) struct Window {
    pub(super) size: u32,
    /// Least interval between two packets, including repairs.
    pub(super) pace: Duration,
    free_at: Time,
    pub(super) named: u32,
    next: Option<Seq>,
    acked: Option<Seq>,
    stall_at: Option<Time>,
    pub(super) acks: u32,
    pub(super) naks: u32,
    pub(super) left: Vec<NodeId>,
    pub(super) repairs: u32,
    pub(super) idle: u32,
}

impl Window {
    pub(super) fn new(size: u32) -> Self {
        Self {
            size,
            pace: Duration::ZERO,
            free_at: Time::ZERO,
            named: 0,
            next: None,
            acked: None,
            stall_at: None,
            acks: 0,
            naks: 0,
            left: Vec::new(),
            repairs: 0,
            idle: 0,
        }
    }

    fn flight(&self) -> u32 {
        match (self.next, self.acked) {
            (Some(next), Some(acked)) => next.distance(acked).max(0) as u32 - 1,
            (Some(next), None) => next.value(),
            _ => 0,
        }
    }
}

impl SenderControl for Window {
    type Announce = Named;
    type Report = From;

    fn permit(&mut self, cx: &mut Cx<'_>, _len: u32, repair: bool) -> Permit {
        if cx.now < self.free_at {
            return Permit::At(self.free_at);
        }
        if repair || self.flight() < self.size { Permit::Now } else { Permit::Blocked }
    }

    fn on_sent(&mut self, cx: &mut Cx<'_>, seq: Seq, _len: u32) -> Named {
        self.next = Some(seq.next());
        self.acked.get_or_insert(seq - 1);
        self.stall_at = Some(cx.now + STALL);
        self.free_at = cx.now + self.pace;
        Word(self.named)
    }

    fn on_repair_sent(&mut self, cx: &mut Cx<'_>, _seq: Seq, _len: u32) -> Option<Named> {
        self.free_at = cx.now + self.pace;
        self.repairs += 1;
        None
    }

    fn on_report(&mut self, cx: &mut Cx<'_>, _from: NodeId, carrier: Carrier, report: &From) {
        if self.named == 0 {
            self.named = report.0;
        }
        match carrier {
            Carrier::Ack(vector) => {
                self.acks += 1;
                self.acked = self.acked.map(|acked| acked.max(vector.highest));
                self.stall_at = Some(cx.now + STALL);
            }
            Carrier::Nak { .. } | Carrier::NullNak { .. } => self.naks += 1,
        }
    }

    fn on_leave(&mut self, _cx: &mut Cx<'_>, from: NodeId) {
        self.left.push(from);
        self.named = 0;
    }

    fn on_idle(&mut self, _cx: &mut Cx<'_>) {
        self.idle += 1;
    }

    /// Handles lost feedback: packets in flight count as arrived, and any receiver may answer.
    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.stall_at.is_some_and(|at| at <= cx.now) {
            self.acked = self.next.map(|next| next - 1);
            self.stall_at = None;
            self.named = 0;
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.stall_at
    }

    fn reporter(report: &From) -> Option<NodeId> {
        Some(NodeId(report.0))
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            window: Some(f64::from(self.size)),
            flight: Some(self.flight()),
            ..Gauges::default()
        }
    }
}

pub(super) struct WindowFeedback {
    node: NodeId,
    due: Option<Audience>,
    pub(super) election: Audience,
    pub(super) missing: Vec<(u32, u32)>,
    pub(super) arrivals: Vec<(u32, bool, bool)>,
    pub(super) overheard: u32,
}

impl WindowFeedback {
    pub(super) fn new(node: NodeId) -> Self {
        Self {
            node,
            due: None,
            election: Audience::SenderAck,
            missing: Vec::new(),
            arrivals: Vec::new(),
            overheard: 0,
        }
    }
}

impl ReceiverFeedback for WindowFeedback {
    type Announce = Named;
    type Report = From;

    fn on_data(&mut self, _cx: &mut Cx<'_>, arrival: &Arrival, announce: Option<&Named>) {
        self.arrivals.push((arrival.seq.value(), arrival.repair, arrival.duplicate));
        match announce {
            Some(Word(0)) => self.due = Some(self.election),
            Some(Word(named)) if *named == self.node.0 => self.due = Some(Audience::SenderAck),
            _ => {}
        }
    }

    fn on_missing(&mut self, _cx: &mut Cx<'_>, first: Seq, last: Seq) {
        self.missing.push((first.value(), last.value()));
    }

    fn on_overheard(&mut self, _cx: &mut Cx<'_>, _from: NodeId, _report: &From) {
        self.overheard += 1;
    }

    fn poll_report(&mut self, _cx: &mut Cx<'_>) -> Option<(Audience, From)> {
        Some((self.due.take()?, Word(self.node.0)))
    }

    fn report_for_nak(&mut self, _cx: &mut Cx<'_>) -> Option<From> {
        Some(Word(self.node.0))
    }

    fn on_timeout(&mut self, _cx: &mut Cx<'_>) {}

    fn next_timeout(&self) -> Option<Time> {
        None
    }
}
