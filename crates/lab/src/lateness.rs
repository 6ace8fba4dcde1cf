//! Counts of how late things happened, in constant memory, and how much of the processors' time was stolen.

use faircast_trace::Lateness;

/// Counts of spans by size, exact to 6 %.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    count: u64,
    total_ns: u128,
    max_ns: u64,
}

/// Sizes that a power of two is divided into, as a power of two.
const PARTS_LOG: u32 = 4;
const PARTS: u64 = 1 << PARTS_LOG;

impl Default for Histogram {
    fn default() -> Self {
        let sizes = (64 - PARTS_LOG as usize + 1) << PARTS_LOG;
        Self { counts: vec![0; sizes], count: 0, total_ns: 0, max_ns: 0 }
    }
}

impl Histogram {
    /// Counts a span of so many nanoseconds.
    pub(crate) fn add(&mut self, ns: u64) {
        self.counts[place(ns)] += 1;
        self.count += 1;
        self.total_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// What was counted.
    pub(crate) fn lateness(&self, realtime: bool) -> Lateness {
        let mean_ns = self.total_ns as f64 / self.count.max(1) as f64;
        Lateness {
            packets: self.count,
            mean_s: mean_ns / 1e9,
            p99_s: self.quantile(0.99) as f64 / 1e9,
            max_s: self.max_ns as f64 / 1e9,
            realtime,
            ..Lateness::default()
        }
    }

    /// A span that this share of all do not exceed, in nanoseconds.
    fn quantile(&self, share: f64) -> u64 {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut below = 0;
        for (place, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= wanted.max(1) {
                return greatest(place).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

fn place(ns: u64) -> usize {
    if ns < PARTS {
        return ns as usize;
    }
    let shift = ns.ilog2() - PARTS_LOG;
    ((u64::from(shift) << PARTS_LOG) + (ns >> shift)) as usize
}

/// The greatest span that is counted at a place.
fn greatest(place: usize) -> u64 {
    let place = place as u64;
    if place < PARTS {
        return place;
    }
    let shift = (place >> PARTS_LOG) - 1;
    let parts = place - (shift << PARTS_LOG);
    (((u128::from(parts) + 1) << shift) - 1).min(u128::from(u64::MAX)) as u64
}

/// What the system's counters of processor time say, summed over all processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessorTime {
    /// All ticks.
    total: u64,
    /// Those that the host of this virtual machine gave to others.
    stolen: u64,
}

impl ProcessorTime {
    /// The counters now; `None` where the system does not tell.
    pub(crate) fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal, and two
    /// that are parts of the first ones.
    fn parse(stat: &str) -> Option<Self> {
        let ticks = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks = ticks.split_whitespace().take(8).map(|tick| tick.parse().ok());
        let ticks: Vec<u64> = ticks.collect::<Option<_>>()?;
        let stolen = *ticks.get(7)?;
        Some(Self { total: ticks.iter().fold(0, |sum, tick| sum.saturating_add(*tick)), stolen })
    }

    /// The share that was stolen since `before`; `None` where no time went by.
    pub(crate) fn stolen_since(&self, before: &Self) -> Option<f64> {
        let total = self.total.checked_sub(before.total).filter(|total| *total > 0)?;
        Some(self.stolen.saturating_sub(before.stolen) as f64 / total as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_to_a_sixteenth() {
        let mut histogram = Histogram::default();
        (1..=10_000).for_each(|us| histogram.add(us * 1000));
        let lateness = histogram.lateness(true);
        assert_eq!(lateness.packets, 10_000);
        assert!((lateness.mean_s - 5.0005e-3).abs() < 1e-9);
        assert_eq!(lateness.max_s, 10e-3);
        assert!((9.9e-3..=9.9e-3 * 1.07).contains(&lateness.p99_s), "{}", lateness.p99_s);
    }

    #[test]
    fn every_span_has_a_place_that_covers_it() {
        for ns in [0, 1, 15, 16, 17, 31, 32, 1000, 123_456_789, u64::MAX / 2, u64::MAX] {
            let place = place(ns);
            assert!(greatest(place) >= ns && (place == 0 || greatest(place - 1) < ns), "{ns}");
        }
        assert_eq!(Histogram::default().lateness(false).p99_s, 0.0);
    }

    #[test]
    fn stolen_time_is_read_from_the_systems_counters() {
        let read = |line: &str| ProcessorTime::parse(line);
        let before = read("cpu  100 0 50 800 10 0 0 40 7 7\ncpu0 1 2\n").unwrap();
        let after = read("cpu  150 0 70 860 10 0 0 110 9 9\n").unwrap();
        // 70 of 200 ticks; the time of guests is in the first numbers already.
        assert_eq!(after.stolen_since(&before), Some(0.35));
        assert_eq!(before.stolen_since(&before), None, "no time went by");
        assert_eq!(before.stolen_since(&after), None, "time does not go back");
        for other in ["", "cpu  1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu  1 2 3 4 5 6 7 x"] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
