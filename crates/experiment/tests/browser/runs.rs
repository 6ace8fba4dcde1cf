//! Runs for report pages: a pgmcc session beside TCP Reno on a bottleneck of 500 kbit/s.

use std::ops::ControlFlow;
use std::path::Path;

use faircast_base::Time;
use faircast_report::{Series, Summary};
use faircast_scenario::{Overrides, Scenario};
use faircast_sim::Observer;
use faircast_study::Study;
use faircast_trace::Header;

pub(crate) struct Run {
    pub(crate) header: Header,
    pub(crate) summary: Summary,
    pub(crate) series: Series,
}

struct Until(Time);

impl Observer for Until {
    fn observe(&mut self, now: Time, _events: u64) -> ControlFlow<()> {
        if now < self.0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// Runs with a warm-up of a fifteenth of `until_s`, at least 1 s.
pub(crate) fn run(title: &str, tcp: u32, receivers: u32, duration_s: u32, until_s: u32) -> Run {
    run_with(title, tcp, receivers, duration_s, until_s, &[])
}

pub(crate) fn run_with(
    title: &str,
    tcp: u32,
    receivers: u32,
    duration_s: u32,
    until_s: u32,
    set: &[&str],
) -> Run {
    let text = SCENARIO.replace("<tcp>", &tcp.to_string());
    let text = text.replace("<receivers>", &receivers.to_string());
    let mut all = vec![
        format!("title=\"{title}\""),
        format!("duration={duration_s} s"),
        format!("warmup={} s", (until_s / 15).max(1)),
    ];
    all.extend(set.iter().map(|set| set.to_string()));
    let overrides = Overrides { set: all, seed: None };
    let path = Path::new("scenarios/two-flows.toml");
    let scenario = Scenario::parse(path, &text, &overrides, &faircast_sim::catalog());
    let scenario = scenario.expect("it is a scenario");
    let study = Study::default();
    let mut series = Series::new(&study.header(&scenario));
    let mut until = Until(Time::from_secs_f64(until_s.into()));
    let done = study.run(&scenario, &mut until, &mut series).expect("it runs");
    Run { header: done.header, summary: done.summary, series }
}

const SCENARIO: &str = r#"title    = "?"
duration = "300 s"
warmup   = "20 s"

[[link]]
between = ["r1", "r2"]
rate    = "500 kbit/s"
delay   = "50 ms"
queue   = { kind = "droptail", packets = 30 }   # a comment that is long enough to be wider than a phone's screen

[[link]]
star  = { center = "r1", leaves = ["ms", "ts"] }
rate  = "10 Mbit/s"
delay = "1 ms"

[[link]]
star  = { center = "r2", leaves = ["mr{1..<receivers>}"] }
rate  = "10 Mbit/s"
delay = "1 ms"
loss  = 0.002

[[flow]]
name     = "mcc"
protocol = "pgmcc"
from     = "ms"
to       = ["mr{1..<receivers>}"]

[[flow]]
name     = "tcp"
protocol = "tcp-reno"
from     = "ts"
to       = ["mr1"]
count    = <tcp>
start    = { uniform = ["0 s", "2 s"] }
"#;
