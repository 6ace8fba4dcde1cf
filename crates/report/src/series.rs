//! Time series for plots, collected in bounded memory for runs of any length.

mod bins;
mod curve;
mod flow;
mod links;
mod marks;
mod tree;

pub use bins::BINS_GIVEN_MAX;
pub(crate) use bins::Bins;
pub use curve::Curve;
pub(crate) use flow::{FlowSeries, RestSeries};
pub(crate) use links::LinkSeries;
pub(crate) use marks::Marks;
pub(crate) use tree::{HeadChange, LEVELS, TreeSeries};

use faircast_base::{Duration, Event, NodeId, Time};
use faircast_trace::{Header, On, Record, Sink, Subject};

use links::WatchedLinks;

/// Most flows with curves of their own; the rest is shown as one mean per protocol.
pub(crate) const FLOWS_MAX: usize = 16;

/// Collector of the curves and marks of a run's plots.
#[derive(Clone, Debug)]
pub struct Series {
    pub(crate) duration_s: f64,
    pub(crate) warmup_s: f64,
    /// Time of the last record.
    pub ended: Time,
    /// Flows with curves: multicast flows first.
    pub flows: Vec<FlowSeries>,
    /// All other flows, one entry per protocol.
    pub(crate) rest: Vec<RestSeries>,
    flow_slots: Vec<FlowSlot>,
    pub(crate) links: WatchedLinks,
    node_names: Vec<String>,
    /// True if each trace is of one end, as on real networks.
    of_one_end: bool,
}

/// Place of a flow in a [`Series`]: index in `flows` or in `rest`.
#[derive(Clone, Copy, Debug)]
enum FlowSlot {
    Single(u32),
    Rest(u32),
}

impl Series {
    /// Makes a collector for the run described by `header`.
    pub fn new(header: &Header) -> Self {
        Self::sampled(header, None)
    }

    /// Makes a collector with bins of the width `sample`; `None` chooses it by the run's length.
    pub fn sampled(header: &Header, sample: Option<Duration>) -> Self {
        let bins = sample.map_or_else(|| Bins::new(header.duration()), Bins::of_width);
        let mut series = Self {
            duration_s: header.duration_s,
            warmup_s: header.warmup_s,
            ended: Time::ZERO,
            flows: Vec::new(),
            rest: Vec::new(),
            flow_slots: vec![FlowSlot::Single(0); header.flows.len()],
            links: WatchedLinks::new(header),
            node_names: header.nodes.clone(),
            of_one_end: header.on == On::Net,
        };
        let mut order: Vec<usize> = (0..header.flows.len()).collect();
        // Numerous background flows must not displace the flows that the run is about.
        order.sort_by_key(|i| {
            let flow = &header.flows[*i];
            flow.counts_acknowledged() || flow.protocol == "cbr"
        });
        for index in order {
            series.flow_slots[index] = series.add_flow(header, index, &bins);
        }
        series
    }

    fn add_flow(&mut self, header: &Header, index: usize, bins: &Bins) -> FlowSlot {
        let slot = |index: usize| u32::try_from(index).expect("flow ids have 32 bits");
        if self.flows.len() < FLOWS_MAX {
            self.flows.push(FlowSeries::new(header, index, bins.clone()));
            return FlowSlot::Single(slot(self.flows.len() - 1));
        }
        let flow = &header.flows[index];
        let known = self.rest.iter().position(|rest| rest.protocol == flow.protocol);
        let place = known.unwrap_or_else(|| {
            self.rest.push(RestSeries::new(flow, bins.clone()));
            self.rest.len() - 1
        });
        self.rest[place].flows += 1;
        FlowSlot::Rest(slot(place))
    }

    pub(crate) fn node_name(&self, node: NodeId) -> String {
        name_of(&self.node_names, node)
    }
}

impl Sink for Series {
    fn record(&mut self, record: &Record) {
        self.ended = self.ended.max(record.at);
        match record.subject {
            Subject::Endpoint { flow, node, .. } => {
                let Some(slot) = self.flow_slots.get(flow.index()).copied() else { return };
                match slot {
                    FlowSlot::Single(slot) if record.is_senders() => {
                        self.flows[slot as usize].sender_event(record, &self.node_names);
                    }
                    FlowSlot::Single(slot) => {
                        self.flows[slot as usize].receiver_event(record, node, self.of_one_end);
                    }
                    FlowSlot::Rest(slot) if record.is_senders() => {
                        self.rest[slot as usize].sender_event(record);
                    }
                    FlowSlot::Rest(_) => {}
                }
            }
            Subject::Node(_) => {}
            Subject::Link(link) => match record.event {
                Event::LinkSample(counters) => {
                    self.links.sample(record.at, link.index(), counters);
                }
                Event::PacketDropped { .. } => self.links.dropped(record.at, link.index()),
                _ => {}
            },
        }
    }
}

fn name_of(names: &[String], node: NodeId) -> String {
    names.get(node.index()).cloned().unwrap_or_else(|| format!("{node:?}"))
}

#[cfg(test)]
mod tests;
