//! Lateness of packets, and stolen processor time.

use faircast_trace::Lateness;
use hdrhistogram::Histogram;

/// Histogram of nanoseconds with a precision of 0.1 %; the maximum is one hour.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(3600 * 1_000_000_000, 3).expect("three digits are allowed")
}

pub(crate) fn lateness(late: &Histogram<u64>, realtime: bool) -> Lateness {
    Lateness {
        packets: late.len(),
        mean_s: late.mean() / 1e9,
        p99_s: late.value_at_quantile(0.99) as f64 / 1e9,
        max_s: late.max() as f64 / 1e9,
        realtime,
        ..Lateness::default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessorTime {
    total: u64,
    /// Ticks that the hypervisor gave to other machines.
    stolen: u64,
}

impl ProcessorTime {
    pub(crate) fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses user, nice, system, idle, iowait, irq, softirq, steal; two more are parts of these.
    fn parse(stat: &str) -> Option<Self> {
        let ticks = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks = ticks.split_whitespace().take(8).map(|tick| tick.parse().ok());
        let ticks: Vec<u64> = ticks.collect::<Option<_>>()?;
        let stolen = *ticks.get(7)?;
        Some(Self { total: ticks.iter().fold(0, |sum, tick| sum.saturating_add(*tick)), stolen })
    }

    pub(crate) fn stolen_since(&self, before: &Self) -> Option<f64> {
        let total = self.total.checked_sub(before.total).filter(|total| *total > 0)?;
        Some(self.stolen.saturating_sub(before.stolen) as f64 / total as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_exact_to_a_thousandth_and_nothing_is_never_late() {
        let mut late = histogram();
        assert_eq!(lateness(&late, false), Lateness::default());
        late.saturating_record(u64::MAX);
        assert!((lateness(&late, false).max_s / 3600.0 - 1.0).abs() < 0.3, "{}", late.max());
        late.reset();
        (1..=10_000_u64).for_each(|us| late.saturating_record(us * 1000));
        let lateness = lateness(&late, true);
        assert_eq!(lateness.packets, 10_000);
        for (got, want) in
            [(lateness.mean_s, 5.0005e-3), (lateness.max_s, 10e-3), (lateness.p99_s, 9.9e-3)]
        {
            assert!((got / want - 1.0).abs() < 1e-3, "{got} {want}");
        }
    }

    #[test]
    fn stolen_time_is_read_from_the_systems_counters() {
        let read = |line: &str| ProcessorTime::parse(line);
        let before = read("cpu  100 0 50 800 10 0 0 40 7 7\ncpu0 1 2\n").unwrap();
        let after = read("cpu  150 0 70 860 10 0 0 110 9 9\n").unwrap();
        // 70 of 200 ticks; guests' time is included in the first numbers.
        assert_eq!(after.stolen_since(&before), Some(0.35));
        assert_eq!(before.stolen_since(&before), None, "no time went by");
        assert_eq!(before.stolen_since(&after), None, "time does not go back");
        for other in ["", "cpu  1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu  1 2 3 4 5 6 7 x"] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
