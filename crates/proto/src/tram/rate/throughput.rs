//! Throughput of the source over the averaging time T, sent and acknowledged (src: tram s3.4).

use alloc::collections::VecDeque;

use faircast_base::{Duration, Time};

/// Buckets of the averaging time; chosen.
const BUCKETS: u32 = 50;

#[derive(Clone, Copy, Debug, Default)]
struct Bytes {
    sent: u64,
    new: u64,
    acknowledged: u64,
}

/// Sums of the last T, in buckets of equal length.
#[derive(Debug, Default)]
pub(super) struct Throughput {
    bucket_time: Duration,
    /// Number of each bucket since time zero, and its bytes.
    buckets: VecDeque<(u64, Bytes)>,
    total: Bytes,
    began_at: Option<Time>,
}

impl Throughput {
    pub(super) fn new(averaging_time: Duration) -> Self {
        let bucket_time = Duration::from_nanos(averaging_time.as_nanos() / u64::from(BUCKETS));
        Self { bucket_time, ..Self::default() }
    }

    /// Returns T, rounded down to whole buckets.
    pub(super) fn averaging_time(&self) -> Duration {
        self.bucket_time * u64::from(BUCKETS)
    }

    pub(super) fn bucket_of(&self, now: Time) -> u64 {
        now.as_nanos() / self.bucket_time.as_nanos().max(1)
    }

    pub(super) fn on_sent(&mut self, now: Time, bytes: u32, repair: bool) {
        self.began_at.get_or_insert(now);
        let sent = u64::from(bytes);
        self.add(now, Bytes { sent, new: if repair { 0 } else { sent }, acknowledged: 0 });
    }

    /// Returns the acknowledged bytes per second, averaged over T.
    pub(super) fn on_acknowledged(&mut self, now: Time, bytes: u32) -> f64 {
        self.add(now, Bytes { acknowledged: bytes.into(), ..Bytes::default() });
        self.total.acknowledged as f64 / self.averaging_time().as_secs_f64()
    }

    fn add(&mut self, now: Time, bytes: Bytes) {
        let number = self.bucket_of(now);
        if self.buckets.back().is_none_or(|last| last.0 != number) {
            self.buckets.push_back((number, Bytes::default()));
        }
        let bucket = self.buckets.back_mut().map(|(_, bucket)| bucket);
        for sum in bucket.into_iter().chain([&mut self.total]) {
            sum.sent += bytes.sent;
            sum.new += bytes.new;
            sum.acknowledged += bytes.acknowledged;
        }
        self.expire(now);
    }

    pub(super) fn expire(&mut self, now: Time) {
        let number = self.bucket_of(now);
        let old = |first: &&(u64, Bytes)| first.0 + u64::from(BUCKETS) <= number;
        while let Some((_, Bytes { sent, new, acknowledged })) = self.buckets.front().filter(old) {
            self.total.sent -= sent;
            self.total.new -= new;
            self.total.acknowledged -= acknowledged;
            self.buckets.pop_front();
        }
    }

    /// Returns the sent bytes per second from the bucket `first` on; `None` before any packet.
    pub(super) fn sent_since(&self, now: Time, first: u64) -> Option<f64> {
        let before = self.buckets.iter().take_while(|(number, _)| *number < first);
        let bytes = self.total.sent - before.map(|(_, bytes)| bytes.sent).sum::<u64>();
        let since = Time::ZERO + Duration::from_nanos(self.bucket_time.as_nanos() * first);
        Some(self.per_second(now, self.began_at?.max(since), bytes))
    }

    /// Returns the bytes per second of new packets; `None` before any packet.
    pub(super) fn new_data(&self, now: Time) -> Option<f64> {
        Some(self.per_second(now, self.began_at?, self.total.new))
    }

    fn per_second(&self, now: Time, since: Time, bytes: u64) -> f64 {
        let span = now.since(since).max(self.bucket_time).min(self.averaging_time());
        bytes as f64 / span.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::at;

    #[test]
    fn sums_cover_the_averaging_time_and_no_more() {
        let mut throughput = Throughput::new(Duration::from_secs(1));
        assert_eq!(throughput.sent_since(at(0), 0), None);
        for ms in 0..1000 {
            throughput.on_sent(at(ms), 100, ms % 4 == 0);
        }
        assert_eq!(throughput.sent_since(at(1000), 0), Some(100_000.0));
        assert_eq!(throughput.sent_since(at(1000), 25), Some(100_000.0));
        assert_eq!(throughput.new_data(at(1000)), Some(75_000.0));
        assert_eq!(throughput.on_acknowledged(at(1000), 5000), 5000.0);
        throughput.expire(at(1500));
        assert_eq!(throughput.new_data(at(1500)), Some(75.0 * 500.0 - 75.0 * 20.0));
        throughput.expire(at(9000));
        assert_eq!(throughput.new_data(at(9000)), Some(0.0));
    }
}
