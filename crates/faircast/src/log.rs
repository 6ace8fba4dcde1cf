//! Log of protocol machines: events by part and level, free if the log filter excludes them all
//! when a session starts.

use faircast_base::{BadInput, Duration, Event, Time};
use faircast_trace::{Record, Sink, Subject};
use tracing::{Level, debug, enabled, trace};

/// Sink that logs events; single losses and refused packets are logged as counts per second.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    counted_since: Time,
    missing_packets: u64,
    requested_packets: u64,
    refused_packets: u64,
    last_refusal: Option<BadInput>,
}

impl EventLog {
    pub(crate) fn if_enabled() -> Option<Self> {
        let wanted = enabled!(target: "faircast::session", Level::DEBUG)
            || enabled!(target: "faircast::control", Level::DEBUG)
            || enabled!(target: "faircast::packets", Level::DEBUG);
        wanted.then(Self::default)
    }

    fn log_counts(&mut self, now: Time) {
        if now.since(self.counted_since) < COUNT_INTERVAL {
            return;
        }
        self.counted_since = now;
        let missing = std::mem::take(&mut self.missing_packets);
        let requested = std::mem::take(&mut self.requested_packets);
        if missing > 0 {
            debug!(target: "faircast::packets", packets = missing, "packets are missing");
        }
        if requested > 0 {
            debug!(target: "faircast::packets", packets = requested, "receivers miss packets");
        }
        let refused = std::mem::take(&mut self.refused_packets);
        if let Some(last) = self.last_refusal.take() {
            debug!(target: "faircast::packets", packets = refused, ?last, "packets were refused");
        }
    }
}

impl Sink for EventLog {
    fn record(&mut self, record: &Record) {
        let Record { at, event, .. } = *record;
        trace!(target: "faircast::packets", at = at.as_secs_f64(), node = node(record), ?event);
        match event {
            Event::Representative { node, reason } => {
                let node = node.map(|node| node.0);
                debug!(target: "faircast::control", node, ?reason, "the representative changes");
            }
            Event::RepairHead { node: head, level } => {
                let (node, head) = (node(record), head.map(|head| head.0));
                debug!(target: "faircast::session", node, head, level, "another repair head");
            }
            Event::Incomplete { node, receivers, reason } => {
                let node = node.map(|node| node.0);
                debug!(target: "faircast::session", node, receivers, ?reason, "not everything arrived");
            }
            Event::Cut { reason, window_milli } => {
                debug!(target: "faircast::control", ?reason, window_milli, "the sender reduced its rate or window");
            }
            Event::Timeout { kind, after_ns } => {
                debug!(target: "faircast::control", ?kind, after_ns, "a timer ran out");
            }
            Event::Window { window_milli, flight } => {
                trace!(target: "faircast::control", window_milli, flight);
            }
            Event::Rate { bits_per_s } => trace!(target: "faircast::control", bits_per_s),
            Event::Joined | Event::Left | Event::Completed { .. } => {
                debug!(target: "faircast::session", node = node(record), "{event:?}");
            }
            Event::LossDetected { count, .. } => self.missing_packets += count,
            Event::NakReceived { count, .. } => self.requested_packets += u64::from(count),
            Event::BadInput { reason } => {
                self.refused_packets += 1;
                self.last_refusal = Some(reason);
            }
            // Single packets, and events of routers and links.
            _ => {}
        }
        self.log_counts(at);
    }
}

fn node(record: &Record) -> Option<u32> {
    match record.subject {
        Subject::Endpoint { node, .. } | Subject::Node(node) => Some(node.0),
        Subject::Link(_) => None,
    }
}

const COUNT_INTERVAL: Duration = Duration::from_secs(1);
