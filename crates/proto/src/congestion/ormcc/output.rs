//! Output rate: the rate at which packets leave the network at a receiver.

use alloc::collections::VecDeque;

use faircast_base::{Duration, Time};

/// Most marks. Close ones are merged.
const MARKS_MAX: usize = 128;

/// Meter of `n s / t`: bytes of the latest packets over their time (src: ormcc s2.1). Time t starts
/// at the packet before them: else the rate would be too high by n/(n-1). Packets arrive in
/// batches, so the measurement can span a minimum time too.
#[derive(Clone, Debug, Default)]
pub(super) struct OutputMeter {
    /// Packets of a measurement at least (n).
    packets: u64,
    marks: VecDeque<Mark>,
}

/// Packets and bytes that have arrived by a time.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Time,
    packets: u64,
    bytes: u64,
}

impl OutputMeter {
    pub(super) fn new(n: u32) -> Self {
        Self { packets: u64::from(n.clamp(1, 64)), marks: VecDeque::new() }
    }

    /// Notes a packet. Measurements span at least `span`.
    pub(super) fn arrived(&mut self, now: Time, bytes: u32, span: Duration) {
        let (packets, sum) = self.marks.back().map_or((0, 0), |last| (last.packets, last.bytes));
        let mark = Mark { at: now, packets: packets + 1, bytes: sum + u64::from(bytes) };
        // Merges a mark that is close to the last but one: half of the marks suffice for the span.
        let step = span / (MARKS_MAX as u64 / 2);
        let before = self.marks.len().checked_sub(2).map(|index| self.marks[index]);
        let merges = before.is_some_and(|before| now.since(before.at) < step);
        self.marks.pop_back_if(|last| merges || last.at == now && last.packets > 1);
        self.marks.push_back(mark);
        // Keeps at most twice the span: ten thousand receivers need compact state.
        let old = |next: Option<&Mark>| {
            next.is_some_and(|next| {
                next.packets + self.packets <= packets && now.since(next.at) >= span * 2
            })
        };
        while self.marks.len() > MARKS_MAX || old(self.marks.get(1)) {
            self.marks.pop_front();
        }
    }

    pub(super) fn restart(&mut self) {
        self.marks.clear();
    }

    /// Returns the arrival of the latest packet.
    pub(super) fn last(&self) -> Option<Time> {
        self.marks.back().map(|mark| mark.at)
    }

    /// Returns bytes per second over at least n packets and `span` if known; `None` with fewer.
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
        let slow_then_fast = [0, 100_000, 101_000, 102_000, 103_000, 104_000];
        assert_eq!(meter(4, &slow_then_fast, none).rate(none), Some(1e6));
        let stalled = meter(4, &[0, 1000, 2000, 3000, 103_000], none).rate(none);
        assert!((stalled.unwrap() - 4000.0 / 0.103).abs() < 1e-6);
        assert_eq!(meter(1, &[0, 4000], none).rate(none), Some(250_000.0));
    }

    #[test]
    fn a_span_makes_it_longer_and_bunches_do_not_deceive_it() {
        let span = Duration::from_millis(10);
        let bunches: Vec<_> = (0..200).map(|i| i / 10 * 10_000).collect();
        let rate = meter(4, &bunches, span).rate(span).unwrap();
        assert!((rate - 1e6).abs() < 1e-6, "{rate}");
        assert_eq!(meter(4, &[0, 0, 0, 0, 0, 0], span).rate(span), None, "no time has passed");
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
