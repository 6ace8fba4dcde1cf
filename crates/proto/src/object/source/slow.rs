//! Detection of a group that is slower than its application allows.

use alloc::collections::BTreeMap;

use faircast_base::{Bitrate, Duration, NodeId, Time};

use crate::object::SlowPolicy;

const SPAN: Duration = Duration::from_secs(1);

/// Consecutive spans whose average must be below the floor: rate cuts after losses are shorter.
const SPANS: usize = 5;

#[derive(Debug)]
pub(super) struct SlowMeter {
    floor: Option<u64>,
    span: Option<(Time, u64)>,
    /// Bytes and nanoseconds of the latest spans, and number of spans.
    spans: [(u64, u64); SPANS],
    count: usize,
    last: Option<(Time, u64)>,
    /// Bytes below the floor by limiting member: a faster one may briefly replace a slow one.
    limiting: BTreeMap<NodeId, u64>,
}

const LIMITING_MAX: usize = 64;

impl SlowMeter {
    pub(super) fn new(policy: SlowPolicy) -> Self {
        let floor = match policy {
            SlowPolicy::Wait => None,
            SlowPolicy::DropBelow(floor) => Some(floor.bits_per_s()),
        };
        let limiting = BTreeMap::new();
        Self { floor, span: None, spans: [(0, 0); SPANS], count: 0, last: None, limiting }
    }

    pub(super) fn is_below(&self, limit: Bitrate) -> bool {
        self.floor.is_some_and(|floor| limit.bits_per_s() < floor)
    }

    /// Returns the member to defer if the group is too slow. `busy` is true if there is more to
    /// send. Called at least every 100 ms.
    pub(super) fn who_is_too_slow(
        &mut self,
        now: Time,
        bytes: u64,
        busy: bool,
        limiting: Option<NodeId>,
    ) -> Option<NodeId> {
        let floor = self.floor?;
        if !busy {
            self.restart();
            return None;
        }
        let (asked, sent) = self.last.replace((now, bytes)).unwrap_or((now, bytes));
        let due = u128::from(floor) * u128::from(now.since(asked).as_nanos()) / 8_000_000_000;
        let short = u64::try_from(due).unwrap_or(u64::MAX).saturating_sub(bytes - sent);
        if let Some(node) = limiting
            && (self.limiting.len() < LIMITING_MAX || self.limiting.contains_key(&node))
        {
            let total = self.limiting.entry(node).or_default();
            *total = total.saturating_add(short);
        }
        let (since, before) = *self.span.get_or_insert((now, bytes));
        let span = now.since(since);
        if span < SPAN {
            return None;
        }
        self.span = Some((now, bytes));
        self.spans[self.count % SPANS] = (bytes - before, span.as_nanos());
        self.count += 1;
        let sent: u64 = self.spans.iter().map(|(bytes, _)| bytes).sum();
        let time: u64 = self.spans.iter().map(|(_, time)| time).sum();
        let slow = u128::from(sent) * 8 * 1_000_000_000 < u128::from(floor) * u128::from(time);
        if self.count < SPANS || !slow {
            self.limiting.retain(|_, count| {
                *count -= *count / 4 + 1.min(*count);
                *count > 0
            });
            return None;
        }
        let most = self.limiting.iter().max_by_key(|(_, count)| **count).map(|(&node, _)| node);
        if most.is_some() {
            self.restart();
        }
        most
    }

    fn restart(&mut self) {
        (self.span, self.last, self.count) = (None, None, 0);
        self.limiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the seconds until a member is deferred, at `rates` in bytes per 100 ms.
    fn deferred_after(rates: impl IntoIterator<Item = u64>) -> Option<usize> {
        let floor = Bitrate::from_bits_per_s(80_000);
        let mut meter = SlowMeter::new(SlowPolicy::DropBelow(floor));
        let (mut now, mut bytes) = (Time::ZERO, 0);
        for (i, rate) in rates.into_iter().enumerate() {
            // Another member is the representative now and then, and sometimes none is.
            let limiting = [Some(7), Some(8), Some(7), None][i % 4].map(NodeId);
            if let Some(node) = meter.who_is_too_slow(now, bytes, rate < 10_000, limiting) {
                assert_eq!(node, NodeId(7));
                return Some(i / 10);
            }
            now += Duration::from_millis(100);
            bytes += rate;
        }
        None
    }

    #[test]
    fn only_lasting_slowness_with_work_to_do_counts() {
        let spell = |seconds: usize, rate: u64| core::iter::repeat_n(rate, seconds * 10);
        assert_eq!(deferred_after(spell(60, 999)), Some(5));
        assert_eq!(deferred_after(spell(60, 1001)), None);
        assert_eq!(deferred_after(spell(60, 0)), Some(5));
        let pausing = (0..10).flat_map(|_| spell(3, 0).chain(spell(2, 4000)));
        assert_eq!(deferred_after(pausing), None, "it recovers in time");
        let idle = (0..10).flat_map(|_| spell(4, 500).chain(spell(1, 10_000)));
        assert_eq!(deferred_after(idle), None, "it has nothing to send in between");
        let mut waits = SlowMeter::new(SlowPolicy::Wait);
        for s in 0..100 {
            let now = Time::ZERO + Duration::from_secs(s);
            assert_eq!(waits.who_is_too_slow(now, 0, true, Some(NodeId(7))), None);
        }
    }
}
