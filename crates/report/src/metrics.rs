//! Metrics of a run: summarises records in one pass and constant memory.

mod slots;

use std::collections::BTreeSet;

use faircast_base::{
    BadInput, ClientNote, DropReason, Event, FlowId, LinkCounters, NodeId, Shortfall, Time,
};
use faircast_trace::{Header, On, Outcome, Record, Sink, Subject};

use crate::clients::Clients;
use crate::incomplete;
use crate::rates::Rates;
use crate::summary::{
    Common, Drops, FaultCounts, FlowSummary, LinkSummary, ReceiverSummary, RouterSummary, Summary,
    TreeSummary, jain_index,
};
use slots::Slots;

/// Accumulates a summary during a run of hundreds of millions of records, at a few nanoseconds
/// each. Links' averages need [`LinkCounters`] samples at the end of the warm-up and of the run.
#[derive(Clone, Debug)]
pub struct Metrics {
    header: Header,
    warmup: Time,
    /// Counted time in which all flows are active, until the first completion.
    common_from: Time,
    common_to: Time,
    flows: Vec<Flow>,
    links: Vec<Link>,
    routers: RouterSummary,
    rates: Rates,
    clients: Clients,
}

impl Metrics {
    /// Makes an accumulator for the run described by `header`.
    pub fn new(header: &Header) -> Self {
        let seconds = Time::from_secs_f64;
        let starts = header.flows.iter().map(|flow| seconds(flow.start_s));
        let stops = header.flows.iter().filter_map(|flow| flow.stop_s.map(seconds));
        Self {
            warmup: header.warmup(),
            common_from: starts.fold(header.warmup(), Time::max),
            common_to: stops.fold(Time::MAX, Time::min),
            flows: header
                .flows
                .iter()
                .map(|flow| Flow {
                    counts_acknowledged: flow.counts_acknowledged(),
                    receivers: vec![Receiver::default(); flow.to.len()],
                    slots: Slots::new(&flow.to),
                    ..Flow::default()
                })
                .collect(),
            links: vec![Link::new(header.warmup()); header.links.len()],
            routers: RouterSummary::default(),
            rates: Rates::new(header),
            clients: Clients::new(header),
            header: header.clone(),
        }
    }

    /// Returns the summary, with the values known only to the driver.
    pub fn finish(&self, outcome: &Outcome) -> Summary {
        let header = &self.header;
        let none = Vec::new();
        let common_s = self.common_s(outcome);
        let flows: Vec<FlowSummary> = (0..self.flows.len())
            .map(|i| {
                let intact = outcome.intact.get(i).unwrap_or(&none);
                let mut flow = self.flow_summary(i, outcome, intact);
                flow.common_throughput_bps =
                    common_s.map(|[from, to]| bits_per_s(self.flows[i].common_bytes, to - from));
                flow
            })
            .collect();
        let common = common_s.map(|[from_s, to_s]| Common {
            from_s,
            to_s,
            jain_index: jain_index(flows.iter().filter_map(|flow| flow.common_throughput_bps)),
        });
        Summary {
            faircast: header.faircast.clone(),
            scenario: header.scenario.clone(),
            title: header.title.clone(),
            on: header.on,
            seed: header.seed,
            duration_s: header.duration_s,
            warmup_s: header.warmup_s,
            ended_s: outcome.at.as_secs_f64(),
            interrupted: outcome.interrupted,
            jain_index: jain_index(flows.iter().map(|flow| flow.throughput_bps)),
            common,
            flows,
            links: (0..self.links.len()).map(|i| self.link_summary(i)).collect(),
            routers: self.routers,
            clients: self.clients.finish(header, outcome.at),
            wall_s: outcome.wall_s,
            events: outcome.events,
            trace_hash: outcome.trace_hash.clone(),
            lateness: outcome.lateness,
        }
    }

    fn common_s(&self, outcome: &Outcome) -> Option<[f64; 2]> {
        let to = self.common_to.min(outcome.at);
        (self.flows.len() > 1 && to > self.common_from)
            .then(|| [self.common_from.as_secs_f64(), to.as_secs_f64()])
    }

    fn flow_summary(
        &self,
        index: usize,
        outcome: &Outcome,
        intact: &[Option<bool>],
    ) -> FlowSummary {
        let (header, flow) = (&self.header.flows[index], &self.flows[index]);
        let counted_s = outcome.at.since(self.warmup).as_secs_f64();
        let receivers: Vec<ReceiverSummary> = header
            .to
            .iter()
            .zip(&flow.receivers)
            .enumerate()
            .map(|(i, (node, receiver))| ReceiverSummary {
                node: self.header.node_name(*node),
                goodput_bps: bits_per_s(receiver.counted_bytes, counted_s),
                delivered_packets: receiver.delivered,
                lost_packets: receiver.lost,
                abandoned_packets: receiver.abandoned,
                loss_ratio: ratio(
                    receiver.lost,
                    match self.is_receivers(flow) {
                        true => receiver.extent.unwrap_or(receiver.delivered + receiver.abandoned),
                        false => receiver.offered(flow.numbers),
                    },
                ),
                completed_s: receiver.completed.map(Time::as_secs_f64),
                other_scheme: receiver.other_scheme,
                speaks: header
                    .spoken_by(*node)
                    .filter(|_| receiver.other_scheme)
                    .map(ToString::to_string),
                incomplete: receiver.incomplete.map(|reason| incomplete::key(reason).to_string()),
                path_bytes: receiver.path_bytes,
                intact: intact.get(i).copied().flatten(),
                repair_head: receiver.head.map(|node| self.header.node_name(node)),
                level: receiver.head.map(|_| receiver.level),
                repairs_sent: (receiver.head.is_some() || receiver.repairs > 0)
                    .then_some(receiver.repairs),
            })
            .collect();
        let counted_bytes = match self.is_receivers(flow) {
            true => flow.receivers.iter().map(|r| r.counted_bytes).max().unwrap_or_default(),
            false => flow.counted_bytes,
        };
        let completed = flow.completed();
        let active_from = self.warmup.max(Time::from_secs_f64(header.start_s));
        let active_to = [header.stop_s.map(Time::from_secs_f64), completed]
            .into_iter()
            .flatten()
            .fold(outcome.at, Time::min);
        FlowSummary {
            name: header.name.clone(),
            protocol: header.protocol.clone(),
            from: {
                let names: Vec<_> =
                    header.senders().map(|node| self.header.node_name(*node)).collect();
                names.join(", ")
            },
            throughput_bps: bits_per_s(counted_bytes, counted_s),
            active_throughput_bps: bits_per_s(
                counted_bytes,
                active_to.since(active_from).as_secs_f64(),
            ),
            sent_bps: bits_per_s(flow.sent_bytes, counted_s),
            feedback_per_s: per_s(
                flow.counted_feedback,
                active_to.since(active_from).as_secs_f64(),
            ),
            rate_variation: self.rates.variation(index, active_from, active_to),
            settled_s: self.rates.settled_s(index, Time::from_secs_f64(header.start_s), active_to),
            feedback_packets: flow.counts.ack_packets + flow.counts.nak_packets,
            representative: flow.representative.map(|node| self.header.node_name(node)),
            rtt_mean_s: (flow.rtt_count > 0)
                .then(|| flow.rtt_sum_ns as f64 / 1e9 / flow.rtt_count as f64),
            loss_ratio: receivers
                .iter()
                .filter(|receiver| receiver.has_deliveries(self.header.on))
                .map(|receiver| receiver.loss_ratio)
                .reduce(f64::max),
            completed_s: completed.map(Time::as_secs_f64),
            tree: flow.tree(header.senders().copied()),
            receivers,
            ..flow.counts.clone()
        }
    }

    fn is_receivers(&self, flow: &Flow) -> bool {
        self.header.on == On::Net && flow.counts.sent_packets == 0
    }

    fn link_summary(&self, index: usize) -> LinkSummary {
        let (header, link) = (&self.header.links[index], &self.links[index]);
        let (from, to) = (&link.base, &link.last);
        let span_s = link.last_at.since(link.base_at).as_secs_f64();
        let share = |ns: u64| if span_s > 0.0 { ns as f64 / 1e9 / span_s } else { 0.0 };
        let dropped = to.dropped_packets.saturating_sub(from.dropped_packets);
        LinkSummary {
            from: self.header.node_name(header.from),
            to: self.header.node_name(header.to),
            utilisation: share(to.busy_ns.saturating_sub(from.busy_ns)),
            dropped_packets: dropped,
            queue_max_packets: link.queue_max,
            queue_mean_packets: share(to.queue_packet_ns.saturating_sub(from.queue_packet_ns)),
            sent_packets: to.sent_packets.saturating_sub(from.sent_packets),
            throughput_bps: bits_per_s(to.sent_bytes.saturating_sub(from.sent_bytes), span_s),
            drop_ratio: ratio(dropped, to.offered_packets.saturating_sub(from.offered_packets)),
            drops: link.drops,
            faults: link.faults,
        }
    }
}

impl Sink for Metrics {
    fn note(&mut self, at: Time, note: &ClientNote) {
        self.clients.take(note, at >= self.warmup);
    }

    #[inline]
    fn record(&mut self, record: &Record) {
        let counts = record.at >= self.warmup;
        let is_common = record.at >= self.common_from && record.at < self.common_to;
        self.rates.record(record);
        match record.subject {
            Subject::Endpoint { flow, node, sender } => {
                let Some(flow) = self.flows.get_mut(flow.index()) else { return };
                if record.is_senders() {
                    flow.sender_event(record, sender, counts, is_common);
                }
                if !sender {
                    flow.receiver_event(node, record, counts);
                }
                if let Event::Completed { .. } | Event::Left = record.event
                    && flow.completed().is_some()
                {
                    self.common_to = self.common_to.min(record.at);
                }
            }
            Subject::Link(link) => match record.event {
                Event::LinkSample(counters) => {
                    if let Some(link) = self.links.get_mut(link.index()) {
                        link.sample(record.at, self.warmup, counters);
                    }
                }
                Event::PacketDropped { flow, reason, .. } => {
                    self.count_drop(flow);
                    if let Some(link) = self.links.get_mut(link.index()).filter(|_| counts) {
                        link.drops.count(reason);
                    }
                }
                event => {
                    if let Some(link) = self.links.get_mut(link.index()).filter(|_| counts) {
                        link.faults.count(event);
                    }
                }
            },
            Subject::Node(_) => match record.event {
                Event::NakForwarded { .. } => self.routers.naks_forwarded += 1,
                Event::NakSuppressed { .. } => self.routers.naks_suppressed += 1,
                Event::PacketDropped { flow, .. } => {
                    self.count_drop(flow);
                    self.routers.dropped_packets += 1;
                }
                _ => {}
            },
        }
    }
}

impl Metrics {
    fn count_drop(&mut self, flow: FlowId) {
        if let Some(flow) = self.flows.get_mut(flow.index()) {
            flow.counts.dropped_packets += 1;
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Flow {
    counts_acknowledged: bool,
    counted_bytes: u64,
    common_bytes: u64,
    sent_bytes: u64,
    counted_feedback: u64,
    /// Packets with a sequence number of their own, and one past the greatest number.
    numbers: u64,
    next_seq: u64,
    counts: FlowSummary,
    representative: Option<NodeId>,
    rtt_sum_ns: u64,
    rtt_count: u64,
    sender_completed: Option<Time>,
    receivers: Vec<Receiver>,
    slots: Slots,
}

impl Flow {
    #[inline]
    fn sender_event(&mut self, record: &Record, is_sender: bool, counts: bool, is_common: bool) {
        if counts {
            match record.event {
                // Repairs by heads use their own links, not those of the sender's data.
                Event::DataSent { bytes, repair, .. } if is_sender || !repair => {
                    self.sent_bytes += u64::from(bytes);
                }
                Event::AckReceived { .. } | Event::NakReceived { .. } => self.counted_feedback += 1,
                _ => {}
            }
        }
        // A repair counts as a packet of the session if it has its own sequence number.
        if let Event::DataSent { seq, repair, .. } = record.event {
            self.numbers += u64::from(!repair || seq >= self.next_seq);
            self.next_seq = self.next_seq.max(seq.saturating_add(1));
        }
        match record.event {
            Event::DataSent { bytes, repair: false, .. } => {
                self.counts.sent_packets += 1;
                if counts && !self.counts_acknowledged {
                    self.count_bytes(bytes, is_common);
                }
            }
            Event::DataSent { repair: true, .. } => self.counts.repair_packets += 1,
            Event::AckReceived { bytes, .. } => {
                self.counts.ack_packets += 1;
                if counts && self.counts_acknowledged {
                    self.count_bytes(bytes, is_common);
                }
            }
            Event::NakReceived { .. } => self.counts.nak_packets += 1,
            Event::Timeout { .. } => self.counts.timeouts += 1,
            Event::Cut { .. } => self.counts.cuts += 1,
            Event::Representative { node, .. } => {
                let other = node.is_some() && node != self.representative;
                self.counts.representative_changes += u64::from(other);
                self.representative = node;
            }
            Event::RttSample { rtt_ns, .. } if counts => {
                self.rtt_sum_ns = self.rtt_sum_ns.saturating_add(rtt_ns);
                self.rtt_count += 1;
            }
            Event::Completed { .. } => self.sender_completed = Some(record.at),
            Event::Incomplete { node, receivers, reason } => {
                let slot = node.and_then(|node| self.slots.find(node));
                match slot.and_then(|slot| self.receivers.get_mut(slot)) {
                    Some(receiver) => receiver.incomplete = Some(reason),
                    None => self.counts.unnamed_receivers += u64::from(receivers),
                }
            }
            Event::BadInput { reason } => {
                self.counts.bad_input += 1;
                self.counts.mismatched_receivers += u64::from(reason == BadInput::OtherScheme);
            }
            _ => {}
        }
    }

    #[inline]
    fn count_bytes(&mut self, bytes: u32, is_common: bool) {
        self.counted_bytes += u64::from(bytes);
        self.common_bytes += if is_common { u64::from(bytes) } else { 0 };
    }

    #[inline]
    fn receiver_event(&mut self, node: NodeId, record: &Record, counts: bool) {
        let sent = self.numbers;
        if let Event::BadInput { .. } = record.event {
            self.counts.bad_input += 1;
        }
        let Some(receiver) = self.slots.find(node).and_then(|i| self.receivers.get_mut(i)) else {
            return;
        };
        match record.event {
            Event::DataSent { repair: false, .. } => receiver.own += 1,
            Event::DataSent { repair: true, .. } => receiver.repairs += 1,
            Event::RepairHead { node, level } => {
                receiver.head_choices += u64::from(node.is_some());
                (receiver.head, receiver.level) = (node, level);
            }
            Event::PathLimit { arrives, .. } => receiver.path_bytes = Some(arrives),
            Event::Delivered { bytes, .. } => {
                // Data packets have full length.
                receiver.path_bytes = None;
                receiver.delivered += 1;
                receiver.last_delivery = Some(record.at);
                if counts {
                    receiver.counted_bytes += u64::from(bytes);
                }
            }
            Event::LossDetected { count, .. } => {
                receiver.lost = receiver.lost.saturating_add(count)
            }
            Event::LossWithdrawn { count, .. } => {
                receiver.lost = receiver.lost.saturating_sub(count)
            }
            Event::SessionExtent { packets } => receiver.extent = Some(packets),
            Event::Abandoned { count, .. } => {
                receiver.abandoned = receiver.abandoned.saturating_add(count);
            }
            Event::Completed { .. } => {
                // An empty object has no last byte.
                receiver.completed = receiver.last_delivery.or(Some(record.at));
            }
            Event::BadInput { reason: BadInput::OtherScheme } => receiver.other_scheme = true,
            Event::Joined => receiver.member_since = Some(sent),
            Event::Left => {
                receiver.offered_before = receiver.offered(sent);
                receiver.own = 0;
                receiver.member_since = None;
                receiver.has_left = true;
            }
            _ => {}
        }
    }

    fn tree(&self, senders: impl Iterator<Item = NodeId>) -> Option<TreeSummary> {
        let choices: u64 = self.receivers.iter().map(|receiver| receiver.head_choices).sum();
        let had_one = self.receivers.iter().filter(|receiver| receiver.head_choices > 0).count();
        if had_one == 0 {
            return None;
        }
        let senders: BTreeSet<NodeId> = senders.collect();
        let bound = || self.receivers.iter().filter_map(|it| Some((it.head?, it.level)));
        let heads: BTreeSet<NodeId> = bound().map(|(head, _)| head).collect();
        let repairs: u64 = self.receivers.iter().map(|receiver| receiver.repairs).sum();
        Some(TreeSummary {
            members: bound().count() as u64,
            direct_members: bound().filter(|(head, _)| senders.contains(head)).count() as u64,
            heads: heads.difference(&senders).count() as u64,
            levels: bound().map(|(_, level)| level).max().unwrap_or(1),
            head_changes: choices - had_one as u64,
            sender_repairs: self.counts.repair_packets.saturating_sub(repairs),
        })
    }

    fn completed(&self) -> Option<Time> {
        if self.receivers.is_empty() {
            return self.sender_completed;
        }
        let mut last = None;
        for receiver in &self.receivers {
            match receiver.completed {
                Some(at) => last = last.max(Some(at)),
                None if receiver.has_left => {}
                None => return None,
            }
        }
        last
    }
}

#[derive(Clone, Debug, Default)]
struct Receiver {
    counted_bytes: u64,
    delivered: u64,
    lost: u64,
    abandoned: u64,
    extent: Option<u64>,
    path_bytes: Option<u32>,
    last_delivery: Option<Time>,
    completed: Option<Time>,
    /// Packets sent before the receiver joined; a join need not be recorded.
    member_since: Option<u64>,
    offered_before: u64,
    has_left: bool,
    /// Packets sent by the receiver itself, which nobody offers to it.
    own: u64,
    other_scheme: bool,
    incomplete: Option<Shortfall>,
    head: Option<NodeId>,
    level: u32,
    head_choices: u64,
    repairs: u64,
}

impl Receiver {
    fn offered(&self, sent: u64) -> u64 {
        let offered = match self.member_since {
            Some(since) => self.offered_before + (sent - since),
            None if self.has_left => return self.offered_before,
            None => sent,
        };
        offered.saturating_sub(self.own)
    }
}

#[derive(Clone, Debug, Default)]
struct Link {
    base: LinkCounters,
    base_at: Time,
    last: LinkCounters,
    last_at: Time,
    queue_max: u32,
    drops: Drops,
    faults: FaultCounts,
}

impl Link {
    /// A link before its first sample had counters of zero at the end of the warm-up.
    fn new(warmup: Time) -> Self {
        Self { base_at: warmup, last_at: warmup, ..Self::default() }
    }

    fn sample(&mut self, at: Time, warmup: Time, counters: LinkCounters) {
        if at <= warmup {
            (self.base, self.base_at) = (counters, at);
        } else {
            self.queue_max = self.queue_max.max(counters.queue_max_packets);
        }
        (self.last, self.last_at) = (counters, at);
    }
}

impl Drops {
    pub(crate) fn count(&mut self, reason: DropReason) {
        *match reason {
            DropReason::QueueFull => &mut self.queue_full,
            DropReason::RedEarly => &mut self.red_early,
            DropReason::RedForced => &mut self.red_forced,
            DropReason::Loss => &mut self.loss,
            DropReason::TimeToLive => &mut self.ttl,
            DropReason::NoRoute => &mut self.no_route,
            DropReason::Listed => &mut self.listed,
            DropReason::Burst => &mut self.burst,
            DropReason::Outage => &mut self.outage,
            DropReason::TooLong => &mut self.too_long,
        } += 1;
    }
}

impl FaultCounts {
    fn count(&mut self, event: Event) {
        match event {
            Event::PacketDuplicated { .. } => self.duplicated += 1,
            Event::PacketCorrupted { .. } => self.corrupted += 1,
            Event::PacketDelayed { .. } => self.delayed += 1,
            _ => {}
        }
    }
}

fn bits_per_s(bytes: u64, seconds: f64) -> f64 {
    8.0 * per_s(bytes, seconds)
}

fn per_s(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole > 0 { part as f64 / whole as f64 } else { 0.0 }
}

#[cfg(test)]
mod tests;
