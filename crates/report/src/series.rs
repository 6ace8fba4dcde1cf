//! Time series for plots, collected in bounded memory for runs of any length.

mod curve;
mod tree;

pub use curve::{BINS_GIVEN_MAX, Bins, CURVE_BUCKETS_MAX, Curve, MARKS_MAX, Mark, Marks};
pub(crate) use tree::LEVELS;
pub use tree::{HeadChange, TreeSeries};

use faircast_base::{CutReason, Duration, Event, FlowId, LinkCounters, NodeId, SwitchReason, Time};
use faircast_trace::{Header, On, Record, Sink, Subject};

/// Most flows with curves of their own; the rest is shown as one mean per protocol.
pub const FLOWS_MAX: usize = 16;
/// Most links with plots: those with the most drops and the longest queues.
pub const LINKS_MAX: usize = 12;
/// Most recorded links. A worse link replaces another one from then on.
const LINKS_WATCHED_MAX: usize = 48;
/// Most recorded changes of representative for each flow: the first ones.
pub const SWITCHES_MAX: usize = 2_000;

/// Collector of the curves and marks of a run's plots.
#[derive(Clone, Debug)]
pub struct Series {
    /// Planned duration of the run in seconds.
    pub duration_s: f64,
    /// Start of averages in seconds.
    pub warmup_s: f64,
    /// Time of the last record.
    pub ended: Time,
    /// Flows with curves: multicast flows first.
    pub flows: Vec<FlowSeries>,
    /// All other flows, one entry per protocol.
    pub rest: Vec<RestSeries>,
    watched: Vec<LinkSeries>,
    /// By flow: index in `flows`, or past its end in `rest`.
    flow_slots: Vec<u32>,
    link_slots: Vec<u32>,
    link_names: Vec<String>,
    node_names: Vec<String>,
    /// True if each trace is of one end, as on real networks.
    of_one_end: bool,
}

/// Curves of one flow.
#[derive(Clone, Debug, Default)]
pub struct FlowSeries {
    /// Flow.
    pub flow: FlowId,
    /// Name.
    pub name: String,
    /// Protocol.
    pub protocol: String,
    /// Number of new data packets sent, over time: the papers' sequence number.
    pub sent: Curve,
    /// Number of packets acknowledged for the first time, over time.
    pub acked: Curve,
    /// Bytes of the throughput, by bin.
    pub throughput: Bins,
    /// Window in packets.
    pub window: Curve,
    /// Rate in bits of payload per second.
    pub rate: Curve,
    /// Round-trip times in seconds.
    pub rtt: Curve,
    /// NAKs that reached the sender, at the requested sequence number.
    pub naks: Marks,
    /// Losses detected by receivers, at the packet's sequence number.
    pub losses: Marks,
    /// Reductions of window or rate after a loss, at the sequence number sent last.
    pub cuts: Marks,
    /// Expired timers of the sender, at the sequence number sent last.
    pub timeouts: Marks,
    /// Changes of representative.
    pub switches: Vec<Switch>,
    /// Number of all changes of representative.
    pub switches_total: u64,
    /// Repair tree.
    pub tree: TreeSeries,
    /// True if received packets count as sent: the trace of a receiver on a real network.
    pub received: bool,
    counts_acknowledged: bool,
    packet_bytes: f64,
    packets_sent: u64,
    bytes_acked: u64,
    first_seq: Option<u64>,
}

/// Change of representative: pgmcc's acker, TFMCC's CLR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Time of the change.
    pub at: Time,
    /// New representative.
    pub node: Option<NodeId>,
    /// Name of the new representative's node.
    pub name: Option<String>,
    /// Reason for the change.
    pub reason: SwitchReason,
}

/// Flows without curves of their own.
#[derive(Clone, Debug)]
pub struct RestSeries {
    /// Protocol of these flows.
    pub protocol: String,
    /// Number of these flows.
    pub flows: usize,
    /// Bytes of their total throughput, by bin.
    pub throughput: Bins,
    counts_acknowledged: bool,
}

/// Queue of one direction of a link.
#[derive(Clone, Debug, Default)]
pub struct LinkSeries {
    /// Index of the link in the header.
    pub link: usize,
    /// `from -> to`.
    pub name: String,
    /// Mean number of queued packets, between samples.
    pub mean: Curve,
    /// Most packets in the queue and in transmission, between samples.
    pub max: Curve,
    /// Dropped packets, at the queue's last known length.
    pub drops: Marks,
    last: LinkCounters,
    last_at: Time,
}

impl Series {
    /// Makes a collector for the run described by `header`.
    pub fn new(header: &Header) -> Self {
        Self::sampled(header, None)
    }

    /// Makes a collector with bins of the width `sample`; `None` chooses it by the run's length.
    pub fn sampled(header: &Header, sample: Option<Duration>) -> Self {
        let bins = sample.map_or_else(|| Bins::new(header.duration()), Bins::of_width);
        let mut order: Vec<usize> = (0..header.flows.len()).collect();
        // Numerous background flows must not displace the flows that the run is about.
        order.sort_by_key(|i| {
            let flow = &header.flows[*i];
            flow.counts_acknowledged() || flow.protocol == "cbr"
        });
        let mut series = Self {
            duration_s: header.duration_s,
            warmup_s: header.warmup_s,
            ended: Time::ZERO,
            flows: Vec::new(),
            rest: Vec::new(),
            watched: Vec::new(),
            flow_slots: vec![0; header.flows.len()],
            link_slots: vec![u32::MAX; header.links.len()],
            link_names: header
                .links
                .iter()
                .map(|l| format!("{} → {}", header.node_name(l.from), header.node_name(l.to)))
                .collect(),
            node_names: header.nodes.clone(),
            of_one_end: header.on == On::Net,
        };
        for index in order {
            let slot = if series.flows.len() < FLOWS_MAX {
                series.flows.push(FlowSeries::new(header, index, bins.clone()));
                series.flows.len() - 1
            } else {
                FLOWS_MAX + series.rest_of(header, index, &bins)
            };
            series.flow_slots[index] = u32::try_from(slot).expect("flow ids have 32 bits");
        }
        series
    }

    /// Returns the links with the most drops and longest queues, in the header's order.
    pub fn links(&self) -> Vec<&LinkSeries> {
        let mut links: Vec<&LinkSeries> = self.watched.iter().collect();
        links.sort_by_key(|link| std::cmp::Reverse(score(&link.last)));
        links.truncate(LINKS_MAX);
        links.sort_by_key(|link| link.link);
        links
    }

    fn rest_of(&mut self, header: &Header, index: usize, bins: &Bins) -> usize {
        let flow = &header.flows[index];
        let place = self.rest.iter().position(|rest| rest.protocol == flow.protocol);
        let place = place.unwrap_or_else(|| {
            self.rest.push(RestSeries {
                protocol: flow.protocol.clone(),
                flows: 0,
                throughput: bins.clone(),
                counts_acknowledged: flow.counts_acknowledged(),
            });
            self.rest.len() - 1
        });
        self.rest[place].flows += 1;
        place
    }

    pub(crate) fn node_name(&self, node: NodeId) -> String {
        name_of(&self.node_names, node)
    }

    fn link_sample(&mut self, at: Time, link: usize, counters: LinkCounters) {
        let Some(slot) = self.link_slots.get(link).copied() else { return };
        let is_busy = counters.queue_max_packets > 1 || counters.dropped_packets > 0;
        if let Some(link) = self.watched.get_mut(slot as usize) {
            link.sample(at, counters);
        } else if is_busy {
            self.watch(at, link, counters);
        }
    }

    fn watch(&mut self, at: Time, link: usize, counters: LinkCounters) {
        let slot = if self.watched.len() < LINKS_WATCHED_MAX {
            self.watched.len()
        } else {
            let least = (0..self.watched.len())
                .min_by_key(|i| score(&self.watched[*i].last))
                .expect("the table is full, not empty");
            if score(&counters) <= score(&self.watched[least].last) {
                return;
            }
            self.link_slots[self.watched[least].link] = u32::MAX;
            least
        };
        let mut series = LinkSeries {
            link,
            name: self.link_names[link].clone(),
            last: counters,
            last_at: at,
            ..LinkSeries::default()
        };
        series.max.push(at, f64::from(counters.queue_max_packets));
        series.mean.push(at, f64::from(counters.queue_packets));
        self.link_slots[link] = u32::try_from(slot).expect("at most LINKS_WATCHED_MAX");
        if slot == self.watched.len() {
            self.watched.push(series);
        } else {
            self.watched[slot] = series;
        }
    }
}

fn score(counters: &LinkCounters) -> (u64, u64) {
    (counters.dropped_packets, counters.queue_packet_ns)
}

impl Sink for Series {
    fn record(&mut self, record: &Record) {
        self.ended = self.ended.max(record.at);
        match record.subject {
            Subject::Endpoint { flow, .. } if record.is_senders() => {
                let Some(slot) = self.flow_slots.get(flow.index()) else { return };
                let slot = *slot as usize;
                if let Some(flow) = self.flows.get_mut(slot) {
                    flow.event(record, &self.node_names);
                } else if let Some(rest) = self.rest.get_mut(slot.saturating_sub(FLOWS_MAX)) {
                    let bytes = payload(&record.event, rest.counts_acknowledged);
                    rest.throughput.add(record.at, bytes);
                }
            }
            Subject::Endpoint { flow, node, .. } => {
                let slot = self.flow_slots.get(flow.index()).copied().unwrap_or(u32::MAX);
                let Some(flow) = self.flows.get_mut(slot as usize) else { return };
                match record.event {
                    Event::RepairHead { node: head, level } => {
                        flow.tree.change(record.at, node, head, level);
                    }
                    Event::Left => flow.tree.leave(record.at, node),
                    Event::LossDetected { seq, .. } => {
                        flow.losses.push(record.at, flow.place_of(seq));
                    }
                    Event::Delivered { seq, bytes, .. } if self.of_one_end => {
                        flow.arrival(record.at, seq, bytes);
                    }
                    _ => {}
                }
            }
            Subject::Node(_) => {}
            Subject::Link(link) => match record.event {
                Event::LinkSample(counters) => {
                    self.link_sample(record.at, link.index(), counters);
                }
                Event::PacketDropped { .. } => {
                    let slot = self.link_slots.get(link.index()).copied().unwrap_or(u32::MAX);
                    if let Some(link) = self.watched.get_mut(slot as usize) {
                        link.drops.push(record.at, f64::from(link.last.queue_max_packets));
                    }
                }
                _ => {}
            },
        }
    }
}

fn name_of(names: &[String], node: NodeId) -> String {
    names.get(node.index()).cloned().unwrap_or_else(|| format!("{node:?}"))
}

fn payload(event: &Event, counts_acknowledged: bool) -> u64 {
    match *event {
        Event::DataSent { bytes, repair: false, .. } if !counts_acknowledged => u64::from(bytes),
        Event::AckReceived { bytes, .. } if counts_acknowledged => u64::from(bytes),
        _ => 0,
    }
}

impl FlowSeries {
    fn new(header: &Header, index: usize, throughput: Bins) -> Self {
        let flow = &header.flows[index];
        Self {
            flow: FlowId(u32::try_from(index).expect("flow ids have 32 bits")),
            name: flow.name.clone(),
            protocol: flow.protocol.clone(),
            throughput,
            counts_acknowledged: flow.counts_acknowledged(),
            packet_bytes: flow.packet_bytes.max(1) as f64,
            ..Self::default()
        }
    }

    fn event(&mut self, record: &Record, names: &[String]) {
        let at = record.at;
        self.throughput.add(at, payload(&record.event, self.counts_acknowledged));
        match record.event {
            Event::DataSent { seq, repair: false, .. } => {
                self.first_seq.get_or_insert(seq);
                self.packets_sent += 1;
                self.sent.push(at, self.packets_sent as f64);
            }
            Event::AckReceived { bytes, .. } if bytes > 0 => {
                self.bytes_acked += u64::from(bytes);
                self.acked.push(at, self.bytes_acked as f64 / self.packet_bytes);
            }
            Event::NakReceived { seq, .. } => {
                let place = self.place_of(seq);
                self.naks.push(at, place);
            }
            Event::Window { window_milli, .. } => self.window.push(at, window_milli as f64 / 1e3),
            Event::Rate { bits_per_s } => self.rate.push(at, bits_per_s as f64),
            Event::RttSample { rtt_ns, .. } => self.rtt.push(at, rtt_ns as f64 / 1e9),
            // A timeout has a mark of its own.
            Event::Cut { reason: CutReason::Timeout, .. } => {}
            Event::Cut { .. } => self.cuts.push(at, self.packets_sent as f64),
            Event::Timeout { .. } => self.timeouts.push(at, self.packets_sent as f64),
            Event::Representative { node, reason } => self.switch(at, node, reason, names),
            _ => {}
        }
    }

    fn arrival(&mut self, at: Time, seq: u64, bytes: u32) {
        self.received = true;
        self.first_seq.get_or_insert(seq);
        self.packets_sent += 1;
        self.sent.push(at, self.packets_sent as f64);
        self.throughput.add(at, u64::from(bytes));
    }

    fn place_of(&self, seq: u64) -> f64 {
        let place = seq.wrapping_sub(self.first_seq.unwrap_or(seq));
        place.min(self.packets_sent) as f64
    }

    fn switch(&mut self, at: Time, node: Option<NodeId>, reason: SwitchReason, names: &[String]) {
        self.switches_total += 1;
        if self.switches.len() < SWITCHES_MAX {
            let name = node.map(|node| name_of(names, node));
            self.switches.push(Switch { at, node, name, reason });
        }
    }
}

impl LinkSeries {
    /// Returns the mean number of queued packets from the start of the run to the last sample.
    pub fn mean_packets(&self) -> f64 {
        self.last.queue_packet_ns as f64 / self.last_at.as_nanos().max(1) as f64
    }

    fn sample(&mut self, at: Time, counters: LinkCounters) {
        let span_ns = at.since(self.last_at).as_nanos();
        if span_ns > 0 {
            let waited = counters.queue_packet_ns.saturating_sub(self.last.queue_packet_ns);
            self.mean.push(at, waited as f64 / span_ns as f64);
        }
        self.max.push(at, f64::from(counters.queue_max_packets));
        (self.last, self.last_at) = (counters, at);
    }
}

#[cfg(test)]
mod tests;
