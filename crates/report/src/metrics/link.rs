//! Figures of one direction of a link.

use faircast_base::{DropReason, LinkCounters, Time};

use super::{bits_per_s, ratio};
use crate::summary::{Drops, FaultCounts, LinkSummary};

#[derive(Clone, Debug, Default)]
pub(super) struct Link {
    /// Counters at the end of the warm-up: in its last sample.
    base: LinkCounters,
    base_at: Time,
    last: LinkCounters,
    last_at: Time,
    queue_max_packets: u32,
    pub(super) drops: Drops,
    pub(super) faults: FaultCounts,
}

impl Link {
    /// A link before its first sample had counters of zero at the end of the warm-up.
    pub(super) fn new(warmup: Time) -> Self {
        Self { base_at: warmup, last_at: warmup, ..Self::default() }
    }

    pub(super) fn sample(&mut self, at: Time, warmup: Time, counters: LinkCounters) {
        if at <= warmup {
            (self.base, self.base_at) = (counters, at);
        } else {
            self.queue_max_packets = self.queue_max_packets.max(counters.queue_max_packets);
        }
        (self.last, self.last_at) = (counters, at);
    }

    pub(super) fn summary(&self, from: String, to: String) -> LinkSummary {
        let (base, last) = (&self.base, &self.last);
        let since = |counter: fn(&LinkCounters) -> u64| counter(last).saturating_sub(counter(base));
        let span_s = self.last_at.since(self.base_at).as_secs_f64();
        let share = |ns: u64| if span_s > 0.0 { ns as f64 / 1e9 / span_s } else { 0.0 };
        let dropped = since(|of| of.dropped_packets);
        LinkSummary {
            from,
            to,
            utilisation: share(since(|of| of.busy_ns)),
            dropped_packets: dropped,
            queue_max_packets: self.queue_max_packets,
            queue_mean_packets: share(since(|of| of.queue_packet_ns)),
            sent_packets: since(|of| of.sent_packets),
            throughput_bps: bits_per_s(since(|of| of.sent_bytes), span_s),
            drop_ratio: ratio(dropped, since(|of| of.offered_packets)),
            drops: self.drops,
            faults: self.faults,
        }
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
