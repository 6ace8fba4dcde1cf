//! Metrics of a run: summarises records in one pass and constant memory.

mod flow;
mod link;
mod receiver;
mod slots;

use faircast_base::{ClientNote, Event, FlowId, Time};
use faircast_trace::{Header, Outcome, Record, Sink, Subject};

use crate::clients::Client;
use crate::rates::Rates;
use crate::summary::{Common, FlowSummary, RouterSummary, Summary, jain_index};
use flow::Flow;
use link::Link;

/// Accumulates a summary during a run. Links' averages need samples of their
/// [`LinkCounters`](faircast_base::LinkCounters) at the end of the warm-up and of the run.
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
    clients: Vec<Client>,
}

impl Metrics {
    /// Makes an accumulator for the run described by `header`.
    pub fn new(header: &Header) -> Self {
        let seconds = Time::from_secs_f64;
        let starts = header.flows.iter().map(|flow| seconds(flow.start_s));
        let stops = header.flows.iter().filter_map(|flow| flow.stop_s.map(seconds));
        let flows = header.flows.iter().enumerate();
        Self {
            warmup: header.warmup(),
            common_from: starts.fold(header.warmup(), Time::max),
            common_to: stops.fold(Time::MAX, Time::min),
            flows: flows.map(|(index, flow)| Flow::new(index, flow)).collect(),
            links: vec![Link::new(header.warmup()); header.links.len()],
            routers: RouterSummary::default(),
            rates: Rates::new(header),
            clients: vec![Client::default(); header.clients.len()],
            header: header.clone(),
        }
    }

    /// Returns the summary, with the values known only to the driver.
    pub fn finish(&self, outcome: &Outcome) -> Summary {
        let header = &self.header;
        let common_to = self.common_to.min(outcome.at);
        let common = (self.flows.len() > 1 && common_to > self.common_from)
            .then(|| [self.common_from, common_to].map(Time::as_secs_f64));
        let span_s = common.map(|[from_s, to_s]| to_s - from_s);
        let flows = self.flows.iter();
        let flows: Vec<FlowSummary> =
            flows.map(|flow| flow.summary(header, &self.rates, outcome, span_s)).collect();
        let commons = flows.iter().filter_map(|flow| flow.rates.common_throughput_bps);
        let common =
            common.map(|[from_s, to_s]| Common { from_s, to_s, jain_index: jain_index(commons) });
        let links = header.links.iter().zip(&self.links);
        let links = links
            .map(|(of, link)| link.summary(header.node_name(of.from), header.node_name(of.to)));
        let counted_s = outcome.at.since(header.warmup()).as_secs_f64();
        let clients = header.clients.iter().zip(&self.clients).map(|(of, client)| {
            client.summary(of.name.clone(), header.node_name(of.node), counted_s)
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
            jain_index: jain_index(flows.iter().map(|flow| flow.rates.throughput_bps)),
            common,
            links: links.collect(),
            routers: self.routers,
            clients: clients.collect(),
            flows,
            wall_s: outcome.wall_s,
            events: outcome.events,
            trace_hash: outcome.trace_hash.clone(),
            lateness: outcome.lateness,
        }
    }

    fn count_drop(&mut self, flow: FlowId) {
        if let Some(flow) = self.flows.get_mut(flow.index()) {
            flow.faults.dropped_packets += 1;
        }
    }
}

impl Sink for Metrics {
    fn note(&mut self, at: Time, note: &ClientNote) {
        if let Some(client) = self.clients.get_mut(note.client as usize) {
            client.take(note.act, at >= self.warmup);
        }
    }

    #[inline]
    fn record(&mut self, record: &Record) {
        let is_counted = record.at >= self.warmup;
        let is_common = record.at >= self.common_from && record.at < self.common_to;
        self.rates.record(record);
        match record.subject {
            Subject::Endpoint { flow, node, sender } => {
                let Some(flow) = self.flows.get_mut(flow.index()) else { return };
                if record.is_senders() {
                    flow.sender_event(record, sender, is_counted, is_common);
                }
                if !sender {
                    flow.receiver_event(node, record, is_counted);
                }
                if let Event::Completed { .. } | Event::Left = record.event
                    && flow.completed_at().is_some()
                {
                    self.common_to = self.common_to.min(record.at);
                }
            }
            Subject::Link(link) => {
                if let Event::PacketDropped { flow, .. } = record.event {
                    self.count_drop(flow);
                }
                let Some(link) = self.links.get_mut(link.index()) else { return };
                match record.event {
                    Event::LinkSample(counters) => link.sample(record.at, self.warmup, counters),
                    _ if !is_counted => {}
                    Event::PacketDropped { reason, .. } => link.drops.count(reason),
                    Event::PacketDuplicated { .. } => link.faults.duplicated += 1,
                    Event::PacketCorrupted { .. } => link.faults.corrupted += 1,
                    Event::PacketDelayed { .. } => link.faults.delayed += 1,
                    _ => {}
                }
            }
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

pub(crate) fn bits_per_s(bytes: u64, seconds: f64) -> f64 {
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
