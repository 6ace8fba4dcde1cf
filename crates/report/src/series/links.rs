//! Queues of links: of numerous links those that drop most and queue longest.

use std::cmp::Reverse;

use faircast_base::{LinkCounters, Time};
use faircast_trace::Header;

use super::{Curve, Marks};

const LINKS_MAX: usize = 12;
/// Most recorded links. A worse link replaces another one from then on.
pub(super) const LINKS_WATCHED_MAX: usize = 48;

/// Queue of one direction of a link.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkSeries {
    pub(crate) link: usize,
    /// `from → to`.
    pub(crate) name: String,
    /// Mean number of queued packets, between samples.
    pub(crate) mean: Curve,
    /// Most packets in the queue and in transmission, between samples.
    pub(crate) max: Curve,
    /// Dropped packets, at the queue's last known length.
    pub(crate) drops: Marks,
    last: LinkCounters,
    last_at: Time,
}

impl LinkSeries {
    fn new(link: usize, name: String, at: Time, counters: LinkCounters) -> Self {
        let mut series = Self { link, name, last: counters, last_at: at, ..Self::default() };
        series.max.push(at, f64::from(counters.queue_max_packets));
        series.mean.push(at, f64::from(counters.queue_packets));
        series
    }

    /// Returns the mean number of queued packets from the start of the run to the last sample.
    pub(crate) fn mean_packets(&self) -> f64 {
        self.last.queue_packet_ns as f64 / self.last_at.as_nanos().max(1) as f64
    }

    fn sample(&mut self, at: Time, counters: LinkCounters) {
        let span_ns = at.since(self.last_at).as_nanos();
        if span_ns > 0 {
            let queued_ns = counters.queue_packet_ns.saturating_sub(self.last.queue_packet_ns);
            self.mean.push(at, queued_ns as f64 / span_ns as f64);
        }
        self.max.push(at, f64::from(counters.queue_max_packets));
        (self.last, self.last_at) = (counters, at);
    }
}

/// Recorded links, at most [`LINKS_WATCHED_MAX`].
#[derive(Clone, Debug)]
pub(crate) struct WatchedLinks {
    pub(super) watched: Vec<LinkSeries>,
    /// By link: index in `watched`, `u32::MAX` for a link that is not recorded.
    slots: Vec<u32>,
    names: Vec<String>,
}

impl WatchedLinks {
    pub(super) fn new(header: &Header) -> Self {
        let name = |from, to| format!("{} → {}", header.node_name(from), header.node_name(to));
        Self {
            watched: Vec::new(),
            slots: vec![u32::MAX; header.links.len()],
            names: header.links.iter().map(|link| name(link.from, link.to)).collect(),
        }
    }

    /// Returns the links with the most drops and longest queues, in the header's order.
    pub(crate) fn worst(&self) -> Vec<&LinkSeries> {
        let mut links: Vec<&LinkSeries> = self.watched.iter().collect();
        links.sort_by_key(|link| Reverse(badness(&link.last)));
        links.truncate(LINKS_MAX);
        links.sort_by_key(|link| link.link);
        links
    }

    pub(super) fn sample(&mut self, at: Time, link: usize, counters: LinkCounters) {
        let is_busy = counters.queue_max_packets > 1 || counters.dropped_packets > 0;
        if let Some(series) = self.get_mut(link) {
            series.sample(at, counters);
        } else if is_busy && link < self.slots.len() {
            self.watch(at, link, counters);
        }
    }

    pub(super) fn dropped(&mut self, at: Time, link: usize) {
        if let Some(series) = self.get_mut(link) {
            series.drops.push(at, f64::from(series.last.queue_max_packets));
        }
    }

    fn get_mut(&mut self, link: usize) -> Option<&mut LinkSeries> {
        self.watched.get_mut(*self.slots.get(link)? as usize)
    }

    /// Records a link from now on: in a free slot, or instead of a link with fewer drops.
    fn watch(&mut self, at: Time, link: usize, counters: LinkCounters) {
        let series = LinkSeries::new(link, self.names[link].clone(), at, counters);
        let slot = if self.watched.len() < LINKS_WATCHED_MAX {
            self.watched.push(series);
            self.watched.len() - 1
        } else {
            let least = (0..self.watched.len())
                .min_by_key(|slot| badness(&self.watched[*slot].last))
                .expect("the table is full, not empty");
            if badness(&counters) <= badness(&self.watched[least].last) {
                return;
            }
            self.slots[self.watched[least].link] = u32::MAX;
            self.watched[least] = series;
            least
        };
        self.slots[link] = u32::try_from(slot).expect("at most LINKS_WATCHED_MAX");
    }
}

/// Order of links: by drops, then by the time that packets were queued.
fn badness(counters: &LinkCounters) -> (u64, u64) {
    (counters.dropped_packets, counters.queue_packet_ns)
}
