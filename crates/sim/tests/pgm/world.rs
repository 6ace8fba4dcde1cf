//! Runs a scenario and counts the cost of its delivery.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use faircast_base::{DropReason, Duration, Event, NodeId, Time, TimeoutKind};
use faircast_scenario::{Overrides, Scenario};
use faircast_sim::{Builtin, Delivery, SimOutcome, Simulation, Unobserved, catalog};
use faircast_trace::{Record, Sink, Subject};

/// Sums over the events of a run; only the first flow counts.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) data: u64,
    pub(crate) repairs: u64,
    /// Packets of any kind that the source sent into its link, the scenario's first link.
    pub(crate) group_packets: u64,
    pub(crate) naks: u64,
    /// NAKs that network elements accepted, forwarded or not.
    pub(crate) element_naks: u64,
    pub(crate) missed: BTreeSet<u64>,
    pub(crate) abandoned: u64,
    pub(crate) overflows: u64,
    pub(crate) faults: BTreeMap<&'static str, u64>,
    pub(crate) cuts: u64,
    pub(crate) stalls: Vec<Duration>,
    pub(crate) bad_input: BTreeMap<String, u64>,
    pub(crate) representatives: Vec<(Time, Option<NodeId>)>,
    open: BTreeMap<(NodeId, u64), Time>,
    recoveries: Vec<Duration>,
    pub(crate) sent_at: Vec<Time>,
}

impl Tally {
    fn take(&mut self, at: Time, node: NodeId, event: Event) {
        match event {
            Event::DataSent { repair: true, .. } => self.repairs += 1,
            Event::DataSent { .. } => {
                self.data += 1;
                self.sent_at.push(at);
            }
            Event::NakReceived { count, .. } if count > 0 => {
                self.naks += 1;
            }
            Event::LossDetected { seq, count } => {
                self.missed.extend(seq..seq + count);
                self.open.extend((seq..seq + count).map(|seq| ((node, seq), at)));
            }
            Event::Delivered { seq, .. } => {
                if !self.open.is_empty()
                    && let Some(since) = self.open.remove(&(node, seq))
                {
                    self.recoveries.push(at.since(since));
                }
            }
            Event::Abandoned { count, .. } => self.abandoned += count,
            Event::Cut { .. } => self.cuts += 1,
            Event::Timeout { kind: TimeoutKind::Stall, after_ns } => {
                self.stalls.push(Duration::from_nanos(after_ns));
            }
            Event::Representative { node, .. } => self.representatives.push((at, node)),
            Event::BadInput { reason } => {
                *self.bad_input.entry(format!("{reason:?}")).or_default() += 1;
            }
            _ => {}
        }
    }

    fn dropped(&mut self, reason: DropReason) {
        match reason {
            DropReason::QueueFull => self.overflows += 1,
            DropReason::Loss => self.fault("loss"),
            DropReason::Burst => self.fault("burst_loss"),
            DropReason::Outage => self.fault("outages"),
            _ => {}
        }
    }

    fn fault(&mut self, kind: &'static str) {
        *self.faults.entry(kind).or_default() += 1;
    }

    pub(crate) fn repairs_per_loss(&self) -> f64 {
        self.repairs as f64 / self.missed.len().max(1) as f64
    }

    pub(crate) fn naks_per_loss(&self) -> f64 {
        self.naks as f64 / self.missed.len().max(1) as f64
    }

    pub(crate) fn sent_between(&self, from: u64, to: u64) -> usize {
        let at = |s| Time::ZERO + Duration::from_secs(s);
        self.sent_at.iter().filter(|t| (at(from)..at(to)).contains(*t)).count()
    }

    pub(crate) fn recovery_mean(&self) -> Duration {
        let sum: f64 = self.recoveries.iter().map(|time| time.as_secs_f64()).sum();
        Duration::from_secs_f64(sum / self.recoveries.len().max(1) as f64)
    }

    pub(crate) fn recovery_max(&self) -> Duration {
        self.recoveries.iter().copied().max().unwrap_or(Duration::ZERO)
    }
}

impl Sink for Tally {
    fn record(&mut self, record: &Record) {
        match (record.subject, record.event) {
            (_, Event::PacketDropped { reason, .. }) => self.dropped(reason),
            (_, Event::PacketDuplicated { .. }) => self.fault("duplicate"),
            (_, Event::PacketCorrupted { .. }) => self.fault("corrupt"),
            (_, Event::PacketDelayed { .. }) => self.fault("reorder"),
            (Subject::Link(link), Event::LinkSample(counters)) if link.0 == 0 => {
                self.group_packets = counters.offered_packets;
            }
            (Subject::Node(_), Event::NakForwarded { .. } | Event::NakSuppressed { .. }) => {
                self.element_naks += 1;
            }
            (Subject::Endpoint { flow, node, .. }, event) if flow.0 == 0 => {
                self.take(record.at, node, event);
            }
            _ => {}
        }
    }
}

pub(crate) struct Run {
    pub(crate) tally: Tally,
    pub(crate) outcome: SimOutcome,
}

impl Run {
    pub(crate) fn receivers(&self) -> &[(Delivery, bool)] {
        &self.outcome.deliveries[0]
    }

    pub(crate) fn completed(&self) -> Option<Time> {
        let times = self.receivers().iter().map(|(delivery, _)| delivery.completed);
        times.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    #[track_caller]
    pub(crate) fn assert_intact(&self, case: &str) {
        for (place, (delivery, intact)) in self.receivers().iter().enumerate() {
            assert!(intact, "{case}: receiver {place} delivered {} wrong bytes", delivery.bytes);
        }
        assert_eq!(self.tally.abandoned, 0, "{case}");
    }

    #[track_caller]
    pub(crate) fn assert_complete(&self, case: &str) {
        self.assert_intact(case);
        for (place, (delivery, _)) in self.receivers().iter().enumerate() {
            let got = delivery.bytes;
            assert!(delivery.completed.is_some(), "{case}: receiver {place} stopped at byte {got}");
        }
    }
}

#[track_caller]
pub(crate) fn run(text: &str, seed: u64) -> Run {
    let overrides = Overrides { set: Vec::new(), seed: Some(seed) };
    let scenario = Scenario::parse(Path::new("test.toml"), text, &overrides, &catalog())
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut tally = Tally::default();
    let outcome = Simulation::new(&scenario, &Builtin, &mut tally).unwrap().run(&mut Unobserved);
    Run { tally, outcome }
}
