//! The output rate: how fast packets come out of the network at a receiver.

use alloc::collections::VecDeque;

use faircast_base::{Duration, Time};

const MARKS_MAX: usize = 128;

/// Measures `n s / t`: bytes of the latest packets over the time that they took
/// (src: ormcc s2.1). t is from the arrival of the packet before them to that of the last, so that
/// n packets have n gaps; both ends of n packets alone would tell the rate too high by n/(n-1).
///
/// Real systems hand packets over many at a time, and a share of a queue is known only over more
/// than a few packets: the measure can be made to span a time too.
#[derive(Clone, Debug, Default)]
pub(super) struct OutputMeter {
    packets: u64,
    /// Packets and bytes that had come by a moment; ascending.
    marks: VecDeque<Mark>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Time,
    packets: u64,
    bytes: u64,
}

impl OutputMeter {
    /// A meter of at least `n` packets, in 1 to 64.
    pub(super) fn new(n: u32) -> Self {
        Self { packets: u64::from(n.clamp(1, 64)), marks: VecDeque::new() }
    }

    /// A packet of `bytes` has come; the measure is going to span `span`.
    pub(super) fn arrived(&mut self, now: Time, bytes: u32, span: Duration) {
        let (packets, sum) = self.marks.back().map_or((0, 0), |last| (last.packets, last.bytes));
        let mark = Mark { at: now, packets: packets + 1, bytes: sum + u64::from(bytes) };
        // So many moments are enough for the span, and the packets: what comes close behind the last
        // moment but one takes the place of the last.
        let step = span / (MARKS_MAX as u64 / 2);
        let merges = self.marks.len() >= 2 && {
            let (last, before) =
                (self.marks[self.marks.len() - 1], self.marks[self.marks.len() - 2]);
            last.at == now || now.since(before.at) < step
        };
        if merges || self.marks.back().is_some_and(|last| last.at == now && last.packets > 1) {
            self.marks.pop_back();
        }
        self.marks.push_back(mark);
        // What lies further back than twice the span is not looked at, as long as that does not double:
        // ten thousand receivers have no memory to spare that is fast.
        let old = |next: Option<&Mark>| {
            next.is_some_and(|next| {
                next.packets + self.packets <= packets && now.since(next.at) >= span * 2
            })
        };
        while self.marks.len() > MARKS_MAX || old(self.marks.get(1)) {
            self.marks.pop_front();
        }
    }

    /// Forgets all but the latest packet: the source was silent before it.
    pub(super) fn restart(&mut self) {
        self.marks.clear();
    }

    pub(super) fn last(&self) -> Option<Time> {
        self.marks.back().map(|mark| mark.at)
    }

    /// Bytes per second over at least n packets and `span`; `None` before there are so many, and
    /// where they took no time. Where `span` reaches further back than packets are known, those
    /// known count.
    pub(super) fn rate(&self, span: Duration) -> Option<f64> {
        let last = self.marks.back()?;
        let enough =
            |mark: &&Mark| mark.packets + self.packets <= last.packets && mark.at < last.at;
        let wide = |mark: &&Mark| enough(mark) && last.at.since(mark.at) >= span;
        let from = self.marks.iter().rev().find(wide);
        let from = from.or_else(|| self.marks.iter().find(enough))?;
        Some((last.bytes - from.bytes) as f64 / last.at.since(from.at).as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_us(us: u64) -> Time {
        Time::ZERO + Duration::from_micros(us)
    }

    fn meter(n: u32, arrivals: &[u64], span: Duration) -> OutputMeter {
        let mut meter = OutputMeter::new(n);
        for &us in arrivals {
            meter.arrived(at_us(us), 1000, span);
        }
        meter
    }

    #[test]
    fn n_packets_over_the_n_gaps_before_them() {
        let none = Duration::ZERO;
        assert_eq!(meter(4, &[0, 1000, 2000, 3000], none).rate(none), None);
        assert_eq!(meter(4, &[0, 1000, 2000, 3000, 4000], none).rate(none), Some(1e6));
        // Only the latest count.
        let slow_then_fast = [0, 100_000, 101_000, 102_000, 103_000, 104_000];
        assert_eq!(meter(4, &slow_then_fast, none).rate(none), Some(1e6));
        // A stall among them is part of the time that they took.
        let stalled = meter(4, &[0, 1000, 2000, 3000, 103_000], none).rate(none);
        assert!((stalled.unwrap() - 4000.0 / 0.103).abs() < 1e-6);
        assert_eq!(meter(1, &[0, 4000], none).rate(none), Some(250_000.0));
    }

    #[test]
    fn a_span_makes_it_longer_and_bunches_do_not_deceive_it() {
        let span = Duration::from_millis(10);
        // Ten packets in one moment every 10 ms.
        let bunches: Vec<_> = (0..200).map(|i| i / 10 * 10_000).collect();
        let rate = meter(4, &bunches, span).rate(span).unwrap();
        assert!((rate - 1e6).abs() < 1e-6, "{rate}");
        assert_eq!(meter(4, &[0, 0, 0, 0, 0, 0], span).rate(span), None, "no time has passed");
        // Without so much behind it the measure is as long as it can be.
        let short = meter(4, &[0, 1000, 2000, 3000, 4000, 5000], span).rate(span);
        assert_eq!(short, Some(1e6));
    }

    #[test]
    fn any_number_of_packets_takes_little_memory() {
        let span = Duration::from_millis(100);
        let mut meter = OutputMeter::new(64);
        for us in 0..1_000_000u64 {
            meter.arrived(at_us(us), 1000, span);
            assert!(meter.marks.len() <= MARKS_MAX);
        }
        let rate = meter.rate(span).unwrap();
        assert!((rate - 1e9).abs() < 1e6, "{rate}");
    }

    #[test]
    fn after_silence_it_begins_anew() {
        let none = Duration::ZERO;
        let mut meter = meter(2, &[0, 1000, 2000], none);
        meter.restart();
        meter.arrived(at_us(900_000), 1000, none);
        meter.arrived(at_us(901_000), 1000, none);
        assert_eq!(meter.rate(none), None);
        meter.arrived(at_us(902_000), 1000, none);
        assert_eq!(meter.rate(none), Some(1e6));
    }

    use alloc::vec::Vec;
}
