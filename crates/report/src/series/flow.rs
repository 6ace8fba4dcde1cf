//! Curves and marks of one flow.

use faircast_base::{CutReason, Event, FlowId, NodeId, SwitchReason, Time};
use faircast_trace::{FlowHeader, Header, Record};

use super::{Bins, Curve, Marks, TreeSeries, name_of};

const SWITCHES_MAX: usize = 2_000;

/// Curves of one flow.
#[derive(Clone, Debug, Default)]
pub struct FlowSeries {
    pub(crate) flow: FlowId,
    pub(crate) name: String,
    pub(crate) protocol: String,
    pub curves: FlowCurves,
    pub(crate) marks: FlowMarks,
    /// First changes of representative: pgmcc's acker, TFMCC's CLR.
    pub(crate) switches: Vec<Switch>,
    pub(crate) switch_count: u64,
    pub tree: TreeSeries,
    /// True if received packets count as sent: the trace of a receiver on a real network.
    pub(crate) received: bool,
    progress: Progress,
}

#[derive(Clone, Debug, Default)]
pub struct FlowCurves {
    pub(crate) sent: Curve,
    pub(crate) acked: Curve,
    pub(crate) throughput: Bins,
    pub window: Curve,
    pub(crate) rate: Curve,
    pub(crate) rtt: Curve,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct FlowMarks {
    /// NAKs that reached the sender, at the requested sequence number.
    pub(crate) naks: Marks,
    /// Losses detected by receivers, at the packet's sequence number.
    pub(crate) losses: Marks,
    /// Reductions of window or rate after a loss, at the sequence number sent last.
    pub(crate) cuts: Marks,
    /// Expired timers of the sender, at the sequence number sent last.
    pub(crate) timeouts: Marks,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Switch {
    pub(crate) at: Time,
    pub(crate) name: Option<String>,
    pub(crate) reason: SwitchReason,
}

/// Position of a flow in its sequence numbers.
#[derive(Clone, Debug, Default)]
struct Progress {
    counts_acknowledged: bool,
    packet_bytes: f64,
    /// New data packets sent; received, if the trace is a receiver's.
    packets: u64,
    acked_bytes: u64,
    first_seq: Option<u64>,
}

impl Progress {
    fn packet(&mut self, seq: u64) -> f64 {
        self.first_seq.get_or_insert(seq);
        self.packets += 1;
        self.packets as f64
    }

    fn acked(&mut self, bytes: u32) -> f64 {
        self.acked_bytes += u64::from(bytes);
        self.acked_bytes as f64 / self.packet_bytes
    }

    /// Number of packets before `seq`; at most the packets so far.
    fn height_of(&self, seq: u64) -> f64 {
        let before = seq.wrapping_sub(self.first_seq.unwrap_or(seq));
        before.min(self.packets) as f64
    }
}

/// Bytes that an event adds to a flow's throughput.
fn payload_bytes(event: &Event, counts_acknowledged: bool) -> u64 {
    match *event {
        Event::DataSent { bytes, repair: false, .. } if !counts_acknowledged => u64::from(bytes),
        Event::AckReceived { bytes, .. } if counts_acknowledged => u64::from(bytes),
        _ => 0,
    }
}

impl FlowSeries {
    pub(super) fn new(header: &Header, index: usize, throughput: Bins) -> Self {
        let flow = &header.flows[index];
        Self {
            flow: FlowId(u32::try_from(index).expect("flow ids have 32 bits")),
            name: flow.name.clone(),
            protocol: flow.protocol.clone(),
            curves: FlowCurves { throughput, ..FlowCurves::default() },
            progress: Progress {
                counts_acknowledged: flow.counts_acknowledged(),
                packet_bytes: flow.packet_bytes.max(1) as f64,
                ..Progress::default()
            },
            ..Self::default()
        }
    }

    /// Takes an event of the sender. `nodes` has the names of all nodes.
    pub(super) fn sender_event(&mut self, record: &Record, nodes: &[String]) {
        let at = record.at;
        let Self { curves, marks, progress, .. } = self;
        let bytes = payload_bytes(&record.event, progress.counts_acknowledged);
        curves.throughput.add(at, bytes);
        match record.event {
            Event::DataSent { seq, repair: false, .. } => {
                curves.sent.push(at, progress.packet(seq))
            }
            Event::AckReceived { bytes, .. } if bytes > 0 => {
                curves.acked.push(at, progress.acked(bytes));
            }
            Event::NakReceived { seq, .. } => marks.naks.push(at, progress.height_of(seq)),
            Event::Window { window_milli, .. } => curves.window.push(at, window_milli as f64 / 1e3),
            Event::Rate { bits_per_s } => curves.rate.push(at, bits_per_s as f64),
            Event::RttSample { rtt_ns, .. } => curves.rtt.push(at, rtt_ns as f64 / 1e9),
            // A timeout has a mark of its own.
            Event::Cut { reason: CutReason::Timeout, .. } => {}
            Event::Cut { .. } => marks.cuts.push(at, progress.packets as f64),
            Event::Timeout { .. } => marks.timeouts.push(at, progress.packets as f64),
            Event::Representative { node, reason } => {
                self.switch_count += 1;
                if self.switches.len() < SWITCHES_MAX {
                    let name = node.map(|node| name_of(nodes, node));
                    self.switches.push(Switch { at, name, reason });
                }
            }
            _ => {}
        }
    }

    /// Takes an event of a receiver. `of_one_end` is true if the trace has no events of the sender.
    pub(super) fn receiver_event(&mut self, record: &Record, receiver: NodeId, of_one_end: bool) {
        let at = record.at;
        match record.event {
            Event::RepairHead { node: head, level } => self.tree.change(at, receiver, head, level),
            Event::Left => self.tree.leave(at, receiver),
            Event::LossDetected { seq, .. } => {
                self.marks.losses.push(at, self.progress.height_of(seq));
            }
            Event::Delivered { seq, bytes, .. } if of_one_end => {
                self.received = true;
                self.curves.sent.push(at, self.progress.packet(seq));
                self.curves.throughput.add(at, u64::from(bytes));
            }
            _ => {}
        }
    }
}

/// Flows of one protocol without curves of their own.
#[derive(Clone, Debug)]
pub(crate) struct RestSeries {
    pub(crate) protocol: String,
    pub(crate) flows: usize,
    /// Bytes of their total throughput.
    pub(crate) throughput: Bins,
    counts_acknowledged: bool,
}

impl RestSeries {
    pub(super) fn new(flow: &FlowHeader, throughput: Bins) -> Self {
        Self {
            protocol: flow.protocol.clone(),
            flows: 0,
            throughput,
            counts_acknowledged: flow.counts_acknowledged(),
        }
    }

    pub(super) fn sender_event(&mut self, record: &Record) {
        let bytes = payload_bytes(&record.event, self.counts_acknowledged);
        self.throughput.add(record.at, bytes);
    }
}
