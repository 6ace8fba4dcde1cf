//! Figures of one flow, as its sender and its receivers report them.

use std::collections::BTreeSet;

use faircast_base::{BadInput, Event, NodeId, Time};
use faircast_trace::{FlowHeader, Header, On, Outcome, Record};

use super::receiver::Receiver;
use super::slots::Slots;
use super::{bits_per_s, per_s, ratio};
use crate::incomplete;
use crate::rates::Rates;
use crate::summary::{
    FlowCounts, FlowFaults, FlowRates, FlowSummary, ReceiverSummary, TreeSummary,
};

#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    /// Index in the header.
    index: usize,
    counts_acknowledged: bool,
    counted: Counted,
    numbers: Numbers,
    counts: FlowCounts,
    pub(super) faults: FlowFaults,
    representative: Option<NodeId>,
    rtt: RttSum,
    sender_completed_at: Option<Time>,
    receivers: Vec<Receiver>,
    slots: Slots,
}

/// Sums over the counted time.
#[derive(Clone, Debug, Default)]
struct Counted {
    /// Bytes of the throughput: new payload, or acknowledged payload of TCP.
    bytes: u64,
    /// Bytes of the throughput while all flows are active.
    common_bytes: u64,
    /// Payload on the sender's links, with the sender's own repairs.
    sent_bytes: u64,
    /// ACKs and NAKs at the sender.
    feedback_packets: u64,
}

/// Sequence numbers of a flow.
#[derive(Clone, Debug, Default)]
struct Numbers {
    /// Packets with a sequence number of their own, repairs among them.
    used: u64,
    /// One more than the greatest number.
    next: u64,
}

#[derive(Clone, Debug, Default)]
struct RttSum {
    sum_ns: u64,
    samples: u64,
}

/// Time of an event, among the times over which averages are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    /// True after the warm-up.
    pub(super) is_counted: bool,
    /// True while all flows are active.
    pub(super) is_common: bool,
}

impl Flow {
    pub(super) fn new(index: usize, header: &FlowHeader) -> Self {
        Self {
            index,
            counts_acknowledged: header.counts_acknowledged(),
            receivers: vec![Receiver::default(); header.to.len()],
            slots: Slots::new(&header.to),
            ..Self::default()
        }
    }

    /// Takes an event of the flow's sending side. `is_sender` is false for a repair head.
    #[inline]
    pub(super) fn sender_event(&mut self, record: &Record, is_sender: bool, period: Period) {
        if period.is_counted {
            match record.event {
                // Repairs by heads use their own links, not those of the sender's data.
                Event::DataSent { bytes, repair, .. } if is_sender || !repair => {
                    self.counted.sent_bytes += u64::from(bytes);
                }
                Event::AckReceived { .. } | Event::NakReceived { .. } => {
                    self.counted.feedback_packets += 1;
                }
                _ => {}
            }
        }
        match record.event {
            Event::DataSent { seq, bytes, repair } => {
                self.numbers.sent(seq, repair);
                if repair {
                    self.counts.repair_packets += 1;
                } else {
                    self.counts.sent_packets += 1;
                    if !self.counts_acknowledged {
                        self.counted.add(bytes, period);
                    }
                }
            }
            Event::AckReceived { bytes, .. } => {
                self.counts.ack_packets += 1;
                if self.counts_acknowledged {
                    self.counted.add(bytes, period);
                }
            }
            Event::NakReceived { .. } => self.counts.nak_packets += 1,
            Event::Timeout { .. } => self.counts.timeouts += 1,
            Event::Cut { .. } => self.counts.cuts += 1,
            Event::Representative { node, .. } => {
                let is_other = node.is_some() && node != self.representative;
                self.counts.representative_changes += u64::from(is_other);
                self.representative = node;
            }
            Event::RttSample { rtt_ns, .. } if period.is_counted => self.rtt.add(rtt_ns),
            Event::Completed { .. } => self.sender_completed_at = Some(record.at),
            Event::Incomplete { node, receivers, reason } => {
                let slot = node.and_then(|node| self.slots.find(node));
                match slot.and_then(|slot| self.receivers.get_mut(slot)) {
                    Some(receiver) => receiver.incomplete = Some(reason),
                    None => self.faults.unnamed_receivers += u64::from(receivers),
                }
            }
            Event::BadInput { reason } => {
                self.faults.bad_input += 1;
                self.faults.mismatched_receivers += u64::from(reason == BadInput::OtherScheme);
            }
            _ => {}
        }
    }

    #[inline]
    pub(super) fn receiver_event(&mut self, node: NodeId, record: &Record, is_counted: bool) {
        if let Event::BadInput { .. } = record.event {
            self.faults.bad_input += 1;
        }
        if let Some(receiver) = self.slots.find(node).and_then(|i| self.receivers.get_mut(i)) {
            receiver.event(record, self.numbers.used, is_counted);
        }
    }

    /// Completion time of the last receiver that stayed; without receivers, of the sender.
    pub(super) fn completed_at(&self) -> Option<Time> {
        if self.receivers.is_empty() {
            return self.sender_completed_at;
        }
        let mut last = None;
        for receiver in &self.receivers {
            match receiver.deliveries.completed_at {
                Some(at) => last = last.max(Some(at)),
                None if receiver.membership.has_left => {}
                None => return None,
            }
        }
        last
    }

    /// `common_s` is the time in which all flows were active.
    pub(super) fn summary(
        &self,
        header: &Header,
        rates: &Rates,
        outcome: &Outcome,
        common_s: Option<f64>,
    ) -> FlowSummary {
        let flow = &header.flows[self.index];
        let senders: Vec<_> = flow.senders().map(|node| header.node_name(*node)).collect();
        let receivers = self.receiver_summaries(header, outcome);
        let mut counts = self.counts;
        counts.feedback_packets = counts.ack_packets + counts.nak_packets;
        FlowSummary {
            name: flow.name.clone(),
            protocol: flow.protocol.clone(),
            from: senders.join(", "),
            rates: self.rates(header, rates, outcome, common_s),
            counts,
            representative: self.representative.map(|node| header.node_name(node)),
            rtt_mean_s: self.rtt.mean_s(),
            faults: self.faults,
            loss_ratio: receivers
                .iter()
                .filter(|receiver| receiver.has_deliveries(header.on))
                .map(|receiver| receiver.loss_ratio)
                .reduce(f64::max),
            completed_s: self.completed_at().map(Time::as_secs_f64),
            tree: self.tree(flow.senders().copied()),
            receivers,
        }
    }

    fn rates(
        &self,
        header: &Header,
        rates: &Rates,
        outcome: &Outcome,
        common_s: Option<f64>,
    ) -> FlowRates {
        let flow = &header.flows[self.index];
        let (warmup, start) = (header.warmup(), Time::from_secs_f64(flow.start_s));
        let counted_s = outcome.at.since(warmup).as_secs_f64();
        let active_from = warmup.max(start);
        let ends = [flow.stop_s.map(Time::from_secs_f64), self.completed_at()];
        let active_to = ends.into_iter().flatten().fold(outcome.at, Time::min);
        let active_s = active_to.since(active_from).as_secs_f64();
        let bytes = match self.is_a_receivers(header.on) {
            true => {
                let all = self.receivers.iter().map(|receiver| receiver.deliveries.counted_bytes);
                all.max().unwrap_or_default()
            }
            false => self.counted.bytes,
        };
        FlowRates {
            throughput_bps: bits_per_s(bytes, counted_s),
            active_throughput_bps: bits_per_s(bytes, active_s),
            common_throughput_bps: common_s
                .map(|common_s| bits_per_s(self.counted.common_bytes, common_s)),
            sent_bps: bits_per_s(self.counted.sent_bytes, counted_s),
            feedback_per_s: per_s(self.counted.feedback_packets, active_s),
            rate_variation: rates.variation(self.index, active_from, active_to),
            settled_s: rates.settled_s(self.index, start, active_to),
        }
    }

    /// True for the trace of a receiver on a real network, which has no events of the sender.
    fn is_a_receivers(&self, on: On) -> bool {
        on == On::Net && self.counts.sent_packets == 0
    }

    fn receiver_summaries(&self, header: &Header, outcome: &Outcome) -> Vec<ReceiverSummary> {
        let counted_s = outcome.at.since(header.warmup()).as_secs_f64();
        let intact = outcome.intact.get(self.index).map_or(&[][..], Vec::as_slice);
        let nodes = header.flows[self.index].to.iter().zip(&self.receivers).enumerate();
        nodes
            .map(|(i, (node, receiver))| {
                let goodput_bps = bits_per_s(receiver.deliveries.counted_bytes, counted_s);
                let intact = intact.get(i).copied().flatten();
                let summary = self.receiver_summary(header, *node, receiver);
                ReceiverSummary { goodput_bps, intact, ..summary }
            })
            .collect()
    }

    /// Figures of a receiver without goodput and the check of the data.
    fn receiver_summary(
        &self,
        header: &Header,
        node: NodeId,
        receiver: &Receiver,
    ) -> ReceiverSummary {
        let Receiver { deliveries, losses, tree, other_scheme, .. } = receiver;
        let offered = match self.is_a_receivers(header.on) {
            true => losses.extent_packets.unwrap_or(deliveries.packets + losses.abandoned_packets),
            false => receiver.offered(self.numbers.used),
        };
        let speaks = header.flows[self.index].spoken_by(node).filter(|_| *other_scheme);
        ReceiverSummary {
            node: header.node_name(node),
            delivered_packets: deliveries.packets,
            lost_packets: losses.packets,
            abandoned_packets: losses.abandoned_packets,
            loss_ratio: ratio(losses.packets, offered),
            completed_s: deliveries.completed_at.map(Time::as_secs_f64),
            other_scheme: *other_scheme,
            speaks: speaks.map(ToString::to_string),
            incomplete: receiver.incomplete.map(|reason| incomplete::key(reason).to_string()),
            path_bytes: receiver.path_bytes,
            repair_head: tree.head.map(|node| header.node_name(node)),
            level: tree.head.map(|_| tree.level),
            repairs_sent: (tree.head.is_some() || tree.repairs > 0).then_some(tree.repairs),
            ..ReceiverSummary::default()
        }
    }

    fn tree(&self, senders: impl Iterator<Item = NodeId>) -> Option<TreeSummary> {
        let places = || self.receivers.iter().map(|receiver| &receiver.tree);
        let choices: u64 = places().map(|place| place.choices).sum();
        let first_choices = places().filter(|place| place.choices > 0).count() as u64;
        if first_choices == 0 {
            return None;
        }
        let senders: BTreeSet<NodeId> = senders.collect();
        let bound = || places().filter_map(|place| Some((place.head?, place.level)));
        let heads: BTreeSet<NodeId> = bound().map(|(head, _)| head).collect();
        let repairs: u64 = places().map(|place| place.repairs).sum();
        Some(TreeSummary {
            members: bound().count() as u64,
            direct_members: bound().filter(|(head, _)| senders.contains(head)).count() as u64,
            heads: heads.difference(&senders).count() as u64,
            levels: bound().map(|(_, level)| level).max().unwrap_or(1),
            head_changes: choices - first_choices,
            sender_repairs: self.counts.repair_packets.saturating_sub(repairs),
        })
    }
}

impl Counted {
    #[inline]
    fn add(&mut self, bytes: u32, period: Period) {
        if period.is_counted {
            self.bytes += u64::from(bytes);
            self.common_bytes += if period.is_common { u64::from(bytes) } else { 0 };
        }
    }
}

impl Numbers {
    /// A repair counts as a packet of the session if it has its own sequence number.
    #[inline]
    fn sent(&mut self, seq: u64, repair: bool) {
        self.used += u64::from(!repair || seq >= self.next);
        self.next = self.next.max(seq.saturating_add(1));
    }
}

impl RttSum {
    fn add(&mut self, rtt_ns: u64) {
        self.sum_ns = self.sum_ns.saturating_add(rtt_ns);
        self.samples += 1;
    }

    fn mean_s(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.sum_ns as f64 / 1e9 / self.samples as f64)
    }
}
