//! Figures of one flow, as its sender and its receivers report them.

use std::collections::BTreeSet;

use faircast_base::{BadInput, Event, NodeId, Time};
use faircast_trace::{FlowHeader, Header, On, Outcome, Record};

use super::receiver::Receiver;
use super::slots::Slots;
use super::{bits_per_s, per_s, ratio};
use crate::notes;
use crate::rates::Rates;
use crate::summary::{
    FlowCounts, FlowFaults, FlowRates, FlowSummary, ReceiverSummary, TreeSummary,
};

#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    index: usize,
    counts_acknowledged: bool,
    /// Throughput in the counted time: new payload, or acknowledged payload of TCP.
    counted_bytes: u64,
    /// Throughput while all flows are active.
    common_bytes: u64,
    /// Payload on the sender's links in the counted time, with the sender's own repairs.
    sent_bytes: u64,
    feedback_packets: u64,
    /// Packets with a sequence number of their own, repairs among them.
    numbered_packets: u64,
    /// One more than the greatest sequence number.
    next_seq: u64,
    counts: FlowCounts,
    pub(super) faults: FlowFaults,
    representative: Option<NodeId>,
    rtt_sum_ns: u64,
    rtt_samples: u64,
    sender_completed_at: Option<Time>,
    receivers: Vec<Receiver>,
    slots: Slots,
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

    /// Takes an event of the flow's sending side. `is_sender` is false for a repair head,
    /// `is_common` is true while all flows are active.
    #[inline]
    pub(super) fn sender_event(
        &mut self,
        record: &Record,
        is_sender: bool,
        is_counted: bool,
        is_common: bool,
    ) {
        match record.event {
            Event::DataSent { seq, bytes, repair } => {
                // Repairs by heads use their own links, not those of the sender's data.
                if is_counted && (is_sender || !repair) {
                    self.sent_bytes += u64::from(bytes);
                }
                // A repair is a packet of the session if it has its own sequence number.
                self.numbered_packets += u64::from(!repair || seq >= self.next_seq);
                self.next_seq = self.next_seq.max(seq.saturating_add(1));
                if repair {
                    self.counts.repair_packets += 1;
                } else {
                    self.counts.sent_packets += 1;
                    self.count(bytes, is_counted && !self.counts_acknowledged, is_common);
                }
            }
            Event::AckReceived { bytes, .. } => {
                self.counts.ack_packets += 1;
                self.feedback_packets += u64::from(is_counted);
                self.count(bytes, is_counted && self.counts_acknowledged, is_common);
            }
            Event::NakReceived { .. } => {
                self.counts.nak_packets += 1;
                self.feedback_packets += u64::from(is_counted);
            }
            Event::Timeout { .. } => self.counts.timeouts += 1,
            Event::Cut { .. } => self.counts.cuts += 1,
            Event::Representative { node, .. } => {
                let is_other = node.is_some() && node != self.representative;
                self.counts.representative_changes += u64::from(is_other);
                self.representative = node;
            }
            Event::RttSample { rtt_ns, .. } if is_counted => {
                self.rtt_sum_ns = self.rtt_sum_ns.saturating_add(rtt_ns);
                self.rtt_samples += 1;
            }
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
    fn count(&mut self, bytes: u32, is_counted: bool, is_common: bool) {
        if is_counted {
            self.counted_bytes += u64::from(bytes);
            self.common_bytes += if is_common { u64::from(bytes) } else { 0 };
        }
    }

    #[inline]
    pub(super) fn receiver_event(&mut self, node: NodeId, record: &Record, is_counted: bool) {
        if let Event::BadInput { .. } = record.event {
            self.faults.bad_input += 1;
        }
        if let Some(receiver) = self.slots.find(node).and_then(|i| self.receivers.get_mut(i)) {
            receiver.event(record, self.numbered_packets, is_counted);
        }
    }

    /// Completion time of the last receiver that stayed; without receivers, of the sender.
    pub(super) fn completed_at(&self) -> Option<Time> {
        if self.receivers.is_empty() {
            return self.sender_completed_at;
        }
        let mut last = None;
        for receiver in &self.receivers {
            match receiver.completed_at {
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
            rtt_mean_s: (self.rtt_samples > 0)
                .then(|| self.rtt_sum_ns as f64 / 1e9 / self.rtt_samples as f64),
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
        let received = self.receivers.iter().map(|receiver| receiver.counted_bytes);
        let bytes = match self.is_a_receivers(header.on) {
            true => received.max().unwrap_or_default(),
            false => self.counted_bytes,
        };
        FlowRates {
            throughput_bps: bits_per_s(bytes, counted_s),
            active_throughput_bps: bits_per_s(bytes, active_s),
            common_throughput_bps: common_s.map(|common_s| bits_per_s(self.common_bytes, common_s)),
            sent_bps: bits_per_s(self.sent_bytes, counted_s),
            feedback_per_s: per_s(self.feedback_packets, active_s),
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
        let intact = intact.iter().copied().chain(std::iter::repeat(None));
        let flow = &header.flows[self.index];
        let summary = |((node, receiver), intact): ((&NodeId, &Receiver), Option<bool>)| {
            let Receiver { delivered_packets, lost_packets, abandoned_packets, .. } = *receiver;
            let offered = match self.is_a_receivers(header.on) {
                true => receiver.extent_packets.unwrap_or(delivered_packets + abandoned_packets),
                false => receiver.membership.offered(self.numbered_packets),
            };
            let speaks = flow.spoken_by(*node).filter(|_| receiver.other_scheme);
            let is_in_tree = receiver.head.is_some() || receiver.repairs > 0;
            ReceiverSummary {
                node: header.node_name(*node),
                goodput_bps: bits_per_s(receiver.counted_bytes, counted_s),
                delivered_packets,
                lost_packets,
                abandoned_packets,
                loss_ratio: ratio(lost_packets, offered),
                completed_s: receiver.completed_at.map(Time::as_secs_f64),
                other_scheme: receiver.other_scheme,
                speaks: speaks.map(ToString::to_string),
                incomplete: receiver.incomplete.map(|reason| notes::key(reason).to_string()),
                path_bytes: receiver.path_bytes,
                intact,
                repair_head: receiver.head.map(|node| header.node_name(node)),
                level: receiver.head.map(|_| receiver.level),
                repairs_sent: is_in_tree.then_some(receiver.repairs),
            }
        };
        flow.to.iter().zip(&self.receivers).zip(intact).map(summary).collect()
    }

    fn tree(&self, senders: impl Iterator<Item = NodeId>) -> Option<TreeSummary> {
        let receivers = || self.receivers.iter();
        let choices: u64 = receivers().map(|receiver| receiver.head_choices).sum();
        let first_choices = receivers().filter(|it| it.head_choices > 0).count() as u64;
        if first_choices == 0 {
            return None;
        }
        let senders: BTreeSet<NodeId> = senders.collect();
        let bound = || receivers().filter_map(|receiver| Some((receiver.head?, receiver.level)));
        let heads: BTreeSet<NodeId> = bound().map(|(head, _)| head).collect();
        let repairs: u64 = receivers().map(|receiver| receiver.repairs).sum();
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
