//! Variation of a flow's rate, and its settling time.
//!
//! A rate is the sender's new payload (TCP: acknowledged payload). RFC 5166 leaves intervals and
//! band open. *Variation*: standard deviation over mean of the rate by second (src: RFC 5166
//! s2.2.2). *Settled*: time until means over 10 s stay within 25 % of the rate in the second half
//! of the time considered, for all means that begin in the next 20 s (src: RFC 5166 s2.3).
//! Probing controls vary by a third in every cycle; the 20 s exclude a rate that crosses the band.

use faircast_base::{Event, Time};
use faircast_trace::{Header, Record, Sink, Subject};

/// Length of a mean.
const MEAN_S: u64 = 10;
/// Time in which all means must begin inside the band.
const STAYS_S: u64 = 20;
/// Half of the band's width, as a share of the long-run rate.
const BAND: f64 = 0.25;
/// Most bins over all flows; beyond them the bins become wider.
const BINS_MAX: usize = 4_000_000;
const FLOW_BINS_MIN: usize = 128;

/// Counts each flow's payload in intervals of one second; of several seconds in very long runs.
#[derive(Clone, Debug)]
pub struct Rates {
    flows: Vec<FlowBins>,
    /// Counting interval; doubled when a flow has `bins_max` bins.
    span_s: u64,
    bins_max: usize,
}

#[derive(Clone, Debug)]
struct FlowBins {
    counts_acknowledged: bool,
    bytes: Vec<u64>,
}

impl Rates {
    /// Makes a counter for the run described by `header`.
    pub fn new(header: &Header) -> Self {
        Self::with_bins(header, (BINS_MAX / header.flows.len().max(1)).max(FLOW_BINS_MIN))
    }

    fn with_bins(header: &Header, bins_max: usize) -> Self {
        let bins = |flow: &faircast_trace::FlowHeader| FlowBins {
            counts_acknowledged: flow.counts_acknowledged(),
            bytes: Vec::new(),
        };
        Self { flows: header.flows.iter().map(bins).collect(), span_s: 1, bins_max }
    }

    /// Returns a rate's coefficient of variation; `None` below two intervals or without payload.
    pub fn variation(&self, flow: usize, from: Time, to: Time) -> Option<f64> {
        let rates = self.between(flow, from, to)?;
        if rates.len() < 2 {
            return None;
        }
        let mean = mean(&rates);
        let variance = rates.iter().map(|rate| (rate - mean) * (rate - mean)).sum::<f64>()
            / rates.len() as f64;
        (mean > 0.0).then(|| faircast_base::math::sqrt(variance) / mean)
    }

    /// Returns the bytes of a flow in the whole intervals between two times.
    pub fn bytes(&self, flow: usize, from: Time, to: Time) -> f64 {
        self.between(flow, from, to).map_or(0.0, |bytes| bytes.iter().sum())
    }

    /// Returns the start of the flow's last interval with payload.
    pub fn last_span(&self, flow: usize) -> Time {
        let spans = self.flows.get(flow).map_or(0, |bins| bins.bytes.len().saturating_sub(1));
        Time::from_nanos(spans as u64 * self.span_s * 1_000_000_000)
    }

    /// Returns the seconds from `from` until the rate settles; `None` if not detected before `to`.
    pub fn settled_s(&self, flow: usize, from: Time, to: Time) -> Option<f64> {
        let rates = self.between(flow, from, to)?;
        let (width, stays) = (MEAN_S.div_ceil(self.span_s), STAYS_S.div_ceil(self.span_s));
        let (width, stays) = (width as usize, stays as usize);
        if rates.len() < 2 * (width + stays) {
            return None;
        }
        let goal = mean(&rates[rates.len() / 2..]);
        if goal <= 0.0 {
            return None;
        }
        let mut inside = 0;
        for (start, means) in rates.windows(width).enumerate() {
            inside = if (mean(means) - goal).abs() <= BAND * goal { inside + 1 } else { 0 };
            if inside > stays {
                return Some(((start - stays) as u64 * self.span_s) as f64);
            }
        }
        None
    }

    fn between(&self, flow: usize, from: Time, to: Time) -> Option<Vec<f64>> {
        let bins = &self.flows.get(flow)?.bytes;
        let span_ns = self.span_s * 1_000_000_000;
        let first = from.as_nanos().div_ceil(span_ns) as usize;
        let end = (to.as_nanos() / span_ns) as usize;
        // Limits the list, whatever the end of the run.
        let end = end.min(self.bins_max);
        let bytes = |i: usize| bins.get(i).copied().unwrap_or(0) as f64;
        Some((first..end).map(bytes).collect())
    }

    #[cold]
    fn widen(&mut self) {
        self.span_s *= 2;
        for flow in &mut self.flows {
            flow.bytes = flow.bytes.chunks(2).map(|pair| pair.iter().sum()).collect();
        }
    }
}

impl Sink for Rates {
    #[inline]
    fn record(&mut self, record: &Record) {
        let Subject::Endpoint { flow, .. } = record.subject else { return };
        if !record.is_senders() {
            return;
        }
        let Some(bins) = self.flows.get(flow.index()) else { return };
        let bytes = match record.event {
            Event::DataSent { bytes, repair: false, .. } if !bins.counts_acknowledged => bytes,
            Event::AckReceived { bytes, .. } if bins.counts_acknowledged => bytes,
            _ => return,
        };
        let place = |span_s: u64| (record.at.as_nanos() / (span_s * 1_000_000_000)) as usize;
        while place(self.span_s) >= self.bins_max {
            self.widen();
        }
        let place = place(self.span_s);
        let bins = &mut self.flows[flow.index()].bytes;
        if bins.len() <= place {
            bins.resize(place + 1, 0);
        }
        bins[place] += u64::from(bytes);
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use faircast_base::{FlowId, NodeId};
    use faircast_trace::FlowHeader;

    /// Feeds rates in packets of 1000 bytes per second, one number per second, as a scheme's data.
    fn fed(bins_max: usize, packets: impl Iterator<Item = u64>) -> Rates {
        let flow = FlowHeader { to: vec![NodeId(1)], ..FlowHeader::default() };
        let header = Header { duration_s: 100.0, flows: vec![flow], ..Header::default() };
        let mut rates = Rates::with_bins(&header, bins_max);
        let subject = Subject::Endpoint { flow: FlowId(0), node: NodeId(0), sender: true };
        for (second, packets) in packets.enumerate() {
            let at = Time::from_secs_f64(second as f64 + 0.5);
            for seq in 0..packets {
                for repair in [false, true] {
                    let event = Event::DataSent { seq, bytes: 1000, repair };
                    rates.record(&Record { at, subject, event });
                }
            }
        }
        rates
    }

    fn at(seconds: u64) -> Time {
        Time::from_secs_f64(seconds as f64)
    }

    #[test]
    fn variation_is_the_deviation_over_the_mean_of_whole_seconds() {
        let rates = fed(1000, (0..100).map(|second| if second % 2 == 0 { 5 } else { 15 }));
        assert!((rates.variation(0, at(0), at(100)).unwrap() - 0.5).abs() < 1e-12);
        let from = Time::from_secs_f64(97.5);
        assert!((rates.variation(0, from, at(100)).unwrap() - 0.5).abs() < 1e-12);
        // Silence counts as a rate of zero.
        assert!((rates.variation(0, at(99), at(101)).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(rates.variation(0, at(0), at(1)), None);
        assert_eq!(rates.variation(0, at(200), at(300)), None);
        assert_eq!(rates.variation(7, at(0), at(100)), None);
    }

    #[test]
    fn a_rate_has_settled_once_its_means_stay_in_the_band() {
        for (case, packets, want) in [
            ("at once", (|_| 100) as fn(u64) -> u64, Some(0.0)),
            ("after a step", |s| if s < 30 { 10 } else { 100 }, Some(28.0)),
            // Means are in the band around 20 s, and leave it again.
            ("overshoot", |s| if s < 40 { 5 * s } else { 100 }, Some(38.0)),
            ("a saw's teeth are no change", |s| 70 + 60 * (s % 7) / 6, Some(0.0)),
            ("never", |s| if s % 30 < 15 { 10 } else { 190 }, None),
            ("silence", |_| 0, None),
        ] {
            let rates = fed(1000, (0..300).map(packets));
            assert_eq!(rates.settled_s(0, at(0), at(300)), want, "{case}");
        }
        let rates = fed(1000, (0..300).map(|_| 100));
        assert_eq!(rates.settled_s(0, at(100), at(200)), Some(0.0));
        assert_eq!(rates.settled_s(0, at(0), at(50)), None, "too short to be seen");
    }

    #[test]
    fn long_runs_are_counted_in_wider_spans() {
        let rates = fed(128, (0..300).map(|second| if second % 2 == 0 { 5 } else { 15 }));
        assert_eq!(rates.span_s, 4);
        assert_eq!(rates.variation(0, at(0), at(300)), Some(0.0));
        assert_eq!(rates.settled_s(0, at(0), at(300)), Some(0.0));
        assert!(rates.flows[0].bytes.len() <= 128);
    }
}
