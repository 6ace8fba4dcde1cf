//! Overlay clients: messages, latency, views.

use std::collections::BTreeMap;

use faircast_base::{ClientAct, Duration};
use serde::{Deserialize, Serialize};

use crate::metrics::bits_per_s;

/// Results of an overlay client, over the counted time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientSummary {
    pub name: String,
    pub node: String,
    pub sent_messages: u64,
    pub delivered_messages: u64,
    /// Received payload in bits per second.
    pub goodput_bps: f64,
    /// Median sending-to-arrival time in seconds, at most 1.6 % too large. `None` without messages.
    pub latency_median_s: Option<f64>,
    /// See `latency_median_s`.
    pub latency_p99_s: Option<f64>,
    pub views: u64,
    pub daemons: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Client {
    sent_messages: u64,
    delivered_messages: u64,
    delivered_bytes: u64,
    views: u64,
    daemons: u32,
    latencies: Histogram,
}

/// Histogram of durations; each class is 1/64 wider than the one before.
#[derive(Clone, Debug, Default)]
struct Histogram(BTreeMap<u32, u64>);

const CLASSES: u32 = 64;

impl Histogram {
    fn count(&mut self, span: Duration) {
        let ns = span.as_nanos().max(u64::from(CLASSES));
        let power = ns.ilog2() - CLASSES.ilog2();
        let class = power * CLASSES + (ns >> power) as u32;
        *self.0.entry(class).or_default() += 1;
    }

    fn quantile_s(&self, share: f64) -> Option<f64> {
        let all: u64 = self.0.values().sum();
        let wanted = (all as f64 * share).ceil() as u64;
        let mut below = 0;
        let class = self.0.iter().find_map(|(class, count)| {
            below += count;
            (below >= wanted).then_some(*class)
        })?;
        let power = (class / CLASSES).saturating_sub(1);
        let parts = class - power * CLASSES;
        Some((f64::from(parts) + 1.0) * 2f64.powi(power as i32) / 1e9)
    }
}

impl Client {
    pub(crate) fn take(&mut self, act: ClientAct, counts: bool) {
        match act {
            ClientAct::Sent { .. } if counts => self.sent_messages += 1,
            ClientAct::Delivered { bytes, latency } if counts => {
                self.delivered_messages += 1;
                self.delivered_bytes += u64::from(bytes);
                self.latencies.count(latency);
            }
            ClientAct::View { daemons } => {
                self.views += 1;
                self.daemons = daemons;
            }
            _ => {}
        }
    }

    pub(crate) fn summary(&self, name: String, node: String, counted_s: f64) -> ClientSummary {
        ClientSummary {
            name,
            node,
            sent_messages: self.sent_messages,
            delivered_messages: self.delivered_messages,
            goodput_bps: bits_per_s(self.delivered_bytes, counted_s),
            latency_median_s: self.latencies.quantile_s(0.5),
            latency_p99_s: self.latencies.quantile_s(0.99),
            views: self.views,
            daemons: self.daemons,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_at_most_a_class_too_long() {
        assert_eq!(Histogram::default().quantile_s(0.5), None);
        for ns in [64, 65, 127, 128, 1000, 123_456, 5_000_000_000] {
            let mut histogram = Histogram::default();
            histogram.count(Duration::from_nanos(ns));
            let (found, exact) = (histogram.quantile_s(0.5).unwrap() * 1e9, ns as f64);
            assert!(found > exact && found <= exact * (1.0 + 1.0 / 64.0) + 1.0, "{ns}: {found}");
        }
        let mut histogram = Histogram::default();
        (1..=100).for_each(|ms| histogram.count(Duration::from_millis(ms)));
        for (share, exact) in [(0.5, 0.050), (0.99, 0.099), (1.0, 0.100)] {
            let found = histogram.quantile_s(share).unwrap();
            assert!((exact..exact * 1.017).contains(&found), "{share}: {found}");
        }
    }
}
