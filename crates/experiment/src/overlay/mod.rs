//! Benchmark of groups over real sockets.
//!
//! One publisher and some subscribers are threads of this process; daemons are separate programs on
//! the loopback interface. `compare/groups.py` measures NATS for comparison.

mod client;
mod daemons;
mod limits;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use faircast_overlay::Service;
use faircast_report::Row;

use self::client::{BlockingClient, Load, Received};
use self::daemons::Daemons;
use crate::Error;
use crate::monitor::{Monitor, Runs};
use crate::request::{Request, Results, chosen, listing};
use crate::wire::{judged, measured_only, row};

const TITLE: &str = "How fast are groups on real sockets?";
const PUBLISH: Duration = Duration::from_millis(1500);
const PUBLISHERS: usize = 8;
const LOW_RATE: f64 = 1000.0;

#[derive(Clone, Copy, Debug)]
struct Setup {
    id: &'static str,
    title: &'static str,
    daemons: usize,
    is_unix: bool,
    has_prices: bool,
    service: Service,
    measures: Measures,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measures {
    /// Rates of all message sizes and numbers of subscribers, at the last daemon.
    All,
    /// Rates at 1 kB, with a subscriber at every daemon.
    Everywhere,
    /// Rates at 1 kB, with several publishers.
    Many,
    Stuck,
    Crowd,
}

const ONE: Setup = Setup {
    id: "one",
    title: "one daemon, clients by TCP",
    daemons: 1,
    is_unix: false,
    has_prices: false,
    service: Service::Fifo,
    measures: Measures::All,
};
const CHAIN: Setup =
    Setup { daemons: 3, ..ONE.named("chain", "chain of three daemons, encrypted links") };
const ORDER: Setup = Setup { measures: Measures::Everywhere, ..CHAIN };

impl Setup {
    const fn named(self, id: &'static str, title: &'static str) -> Self {
        Self { id, title, ..self }
    }

    const fn measuring(self, measures: Measures) -> Self {
        Self { measures, ..self }
    }

    const fn with_prices(self) -> Self {
        Self { has_prices: true, ..self }
    }
}

const SETUPS: [Setup; 10] = [
    ONE,
    ONE.named("one-prices", "one daemon, messages have a price").with_prices(),
    Setup { is_unix: true, ..ONE.named("unix", "one daemon, clients by Unix socket") },
    CHAIN,
    CHAIN.named("chain-prices", "chain of three daemons, messages have a price").with_prices(),
    Setup {
        service: Service::Agreed,
        ..ORDER.named("agreed", "agreed order, a member at each of three daemons")
    },
    Setup {
        service: Service::Safe,
        ..ORDER.named("safe", "safe, a member at each of three daemons")
    },
    ONE.named("many", "eight publishers at once").measuring(Measures::Many),
    ONE.named("stuck", "a subscriber that reads nothing").measuring(Measures::Stuck),
    ONE.named("crowd", "many clients").measuring(Measures::Crowd),
];

const SIZES: [(&str, usize); 4] = [("16", 16), ("128", 128), ("1k", 1024), ("16k", 16 << 10)];
const SUBSCRIBERS: [usize; 3] = [1, 4, 16];

#[derive(Clone, Debug)]
struct Case {
    id: String,
    setup: Setup,
    bytes: usize,
    subscribers: usize,
}

fn cases(request: &Request) -> Result<Vec<Case>, Error> {
    let mut all = Vec::new();
    for setup in SETUPS {
        let subscribers = match setup.measures {
            Measures::All => {
                for (name, bytes) in SIZES {
                    all.extend(SUBSCRIBERS.map(|subscribers| {
                        let id = format!("{}.{name}.{subscribers}", setup.id);
                        Case { id, setup, bytes, subscribers }
                    }));
                }
                continue;
            }
            Measures::Everywhere => setup.daemons,
            Measures::Many => 1,
            Measures::Stuck | Measures::Crowd => 4,
        };
        all.push(Case { id: setup.id.to_string(), setup, bytes: 1024, subscribers });
    }
    chosen("overlay", "row", all, |case| case.id.as_str(), request.only.as_deref())
}

pub(crate) fn list(request: &Request) -> Result<String, Error> {
    let cases = cases(request)?;
    let rows = cases.iter().map(|case| (case.setup.title, case.id.as_str(), ""));
    Ok(listing("overlay", TITLE, rows))
}

#[derive(Clone, Debug, Default)]
struct Figures {
    rate: f64,
    /// Processor time of the daemons in seconds per million deliveries.
    cpu_s: f64,
    /// Median and 99th percentile of the latency in us: at a low rate, at half the greatest rate.
    low: [f64; 2],
    half: [f64; 2],
    whole: f64,
}

pub(crate) fn run(request: &Request, monitor: &dyn Monitor) -> Result<Results, Error> {
    let cases = cases(request)?;
    let (count, weight) = (cases.len(), cases.len() as u64);
    monitor.begin(Runs { name: "overlay", count, weight, long: false });
    let (mut measured, mut limits): (Vec<(Case, Figures)>, Vec<Row>) = (Vec::new(), Vec::new());
    for case in cases {
        let folder = tempfile::tempdir().map_err(|error| Error::doing(&case.id, error))?;
        let daemons = Daemons::start(&request.own, folder.path(), &case.setup)?;
        let failed = |error| Error::doing(&case.id, error);
        match case.setup.measures {
            Measures::Stuck => limits.extend(limits::stuck(&case, &daemons).map_err(failed)?),
            Measures::Crowd => limits.extend(limits::crowd(&daemons).map_err(failed)?),
            Measures::All | Measures::Everywhere | Measures::Many => {
                let figures = measure(&case, &daemons).map_err(failed)?;
                measured.push((case, figures));
            }
        }
        if monitor.is_to_stop() {
            return Err(Error::Interrupted("a sitting that is not finished has no verdict"));
        }
        monitor.ended(1);
    }
    monitor.finish();
    let mut rows = rows(&measured);
    rows.extend(limits);
    Ok(Results::of("overlay", TITLE, rows))
}

fn measure(case: &Case, daemons: &Daemons) -> io::Result<Figures> {
    let (mut figures, before) = (Figures::default(), daemons.cpu_s());
    let run = transfer(case, daemons, None, false)?;
    let deliveries = run.deliveries();
    figures.rate = run.rate();
    figures.cpu_s = (daemons.cpu_s() - before) / (deliveries as f64 / 1e6);
    figures.whole = deliveries as f64 / (run.sent * case.subscribers as u64) as f64;
    let is_timed = case.subscribers == 1 || case.setup.measures == Measures::Everywhere;
    if case.bytes == 1024 && is_timed && case.setup.measures != Measures::Many {
        let half = figures.rate / case.subscribers as f64 / 2.0;
        for (rate, place) in [(LOW_RATE, &mut figures.low), (half, &mut figures.half)] {
            let run = transfer(case, daemons, Some(rate), true)?;
            let all = run.received.into_iter().flat_map(|it| it.latencies.into_iter().skip(100));
            let mut all: Vec<u64> = all.collect();
            all.sort_unstable();
            let at = |share: f64| {
                let index = (all.len() as f64 * share) as usize;
                all.get(index).map_or(f64::NAN, |it| *it as f64 / 1e3)
            };
            *place = [at(0.5), at(0.99)];
        }
    }
    Ok(figures)
}

struct Transfer {
    began: Instant,
    sent: u64,
    received: Vec<Received>,
}

impl Transfer {
    fn deliveries(&self) -> u64 {
        self.received.iter().map(|it| it.messages).sum()
    }

    fn rate(&self) -> f64 {
        let ends = self.received.iter().filter_map(|it| it.at).max();
        let seconds = ends.map_or(f64::INFINITY, |at| (at - self.began).as_secs_f64());
        self.deliveries() as f64 / seconds
    }
}

fn transfer(
    case: &Case,
    daemons: &Daemons,
    rate: Option<f64>,
    has_stamps: bool,
) -> io::Result<Transfer> {
    let Case { setup, bytes, subscribers: count, .. } = case;
    let (first, last) = daemons.ends();
    // Names are new in each run: a session of an earlier run may still be open.
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let subscribe = |number: usize| {
        let is_everywhere = setup.measures == Measures::Everywhere;
        let address = if is_everywhere { &daemons.addresses[number] } else { last };
        BlockingClient::subscriber(address, &format!("s{run}-{number}"))
    };
    let subscribers = (0..*count).map(subscribe).collect::<io::Result<Vec<_>>>()?;
    let count = if setup.measures == Measures::Many { PUBLISHERS } else { 1 };
    let connect = |number| BlockingClient::publisher(first, &format!("p{run}-{number}"));
    let publishers = (0..count).map(connect).collect::<io::Result<Vec<_>>>()?;
    // The publisher's daemon learns of subscribers at other daemons.
    std::thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    let (total, stamps) = (AtomicU64::new(u64::MAX), has_stamps.then_some(began));
    let load = Load { service: setup.service, bytes: *bytes, rate, stamps, time: PUBLISH };
    std::thread::scope(|scope| {
        let (total, load) = (&total, &load);
        let count =
            |it: BlockingClient| it.count(stamps, |count| count >= total.load(Ordering::Relaxed));
        let threads: Vec<_> =
            subscribers.into_iter().map(|it| scope.spawn(move || count(it))).collect();
        let published: Vec<_> =
            publishers.iter().map(|it| scope.spawn(move || it.publish(load))).collect();
        let published = published.into_iter().map(|it| it.join().expect("publishers return"));
        let sent = published.sum::<io::Result<u64>>();
        // One more message wakes subscribers that wait for this number.
        total.store(sent.as_ref().unwrap_or(&0) + 1, Ordering::Relaxed);
        publishers[0].publish_one(setup.service)?;
        let received = threads.into_iter().map(|it| it.join().unwrap_or_default()).collect();
        Ok(Transfer { began, sent: sent? + 1, received })
    })
}

fn values(figures: &Figures) -> [(f64, [&'static str; 3]); 6] {
    let Figures { rate, cpu_s, low, half, .. } = *figures;
    [
        (rate, ["rate", "deliveries", "1/s"]),
        (cpu_s, ["cpu", "CPU of the daemons", "s/million"]),
        (low[0], ["low-p50", "median latency at 1000/s", "us"]),
        (low[1], ["low-p99", "99th percentile at 1000/s", "us"]),
        (half[0], ["half-p50", "median latency at half the rate", "us"]),
        (half[1], ["half-p99", "99th percentile at half the rate", "us"]),
    ]
}

/// Least rate of a setup with prices, as a share of its rate without prices.
const PRICED: f64 = 0.95;

const JUDGED: [&str; 4] = ["1k.1", "1k.16", "16k.1", "16k.16"];

/// Least deliveries per second at each member: rates of Spread 4.4 on such a machine.
const ORDERED: [(&str, f64); 2] = [("agreed", 39_000.0), ("safe", 40_000.0)];

/// Greatest 99th percentile of agreed messages at 1000/s, in microseconds. Spread has 286 us there.
const AGREED_P99_US: f64 = 500.0;

fn rows(measured: &[(Case, Figures)]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (case, figures) in measured {
        for (value, [id, title, unit]) in values(figures) {
            if value > 0.0 {
                let row = row(&format!("{}.{id}", case.id), title, unit, vec![value]);
                rows.push(measured_only(row, case.setup.title));
            }
        }
        let title = "share of the messages that came";
        let row = row(&format!("{}.whole", case.id), title, "ratio", vec![figures.whole]);
        rows.push(judged(row, Some(1.0), None));
    }
    let found = |id: &str| measured.iter().find(|(case, _)| case.id == id).map(|it| &it.1);
    for setup in ["one", "chain"] {
        for case in JUDGED {
            let (with, without) = (format!("{setup}-prices.{case}"), format!("{setup}.{case}"));
            let (Some(with), Some(without)) = (found(&with), found(&without)) else { continue };
            let (id, ratio) = (format!("{setup}.{case}.prices"), with.rate / without.rate);
            let row = row(&id, "rate: with prices / without", "ratio", vec![ratio]);
            rows.push(judged(row, Some(PRICED), None));
        }
    }
    for (id, least) in ORDERED {
        let Some(figures) = found(id) else { continue };
        let each = figures.rate / CHAIN.daemons as f64;
        let title = "messages of a second at each member";
        let row = row(&format!("{id}.each"), title, "1/s", vec![each]);
        rows.push(judged(row, Some(least), None));
    }
    if let Some(figures) = found("agreed") {
        let row = row("agreed.p99", "99th percentile at 1000/s", "us", vec![figures.low[1]]);
        rows.push(judged(row, None, Some(AGREED_P99_US)));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_of_one_sitting_are_judged() {
        let request = Request { only: Some("1k.1".into()), ..Request::default() };
        let mut measured = Vec::new();
        for case in cases(&request).unwrap() {
            let rate = if case.setup.has_prices { 94.0 } else { 100.0 };
            measured.push((case, Figures { rate, whole: 0.99, ..Figures::default() }));
        }
        let rows = rows(&measured);
        let holds = |id: &str| rows.iter().find(|row| row.id == id).map(|row| row.accepted.holds);
        assert_eq!(holds("one.1k.1.prices"), Some(false));
        assert_eq!(holds("one.1k.1.half-p50"), None, "not measured");
        assert_eq!(holds("unix.1k.1.rate"), Some(true));
        assert_eq!(holds("unix.1k.1.whole"), Some(false), "a subscriber was cut");
    }

    #[test]
    fn every_row_has_an_id_of_its_own() {
        let all = cases(&Request::default()).unwrap();
        let ids: std::collections::BTreeSet<_> = all.iter().map(|case| &case.id).collect();
        assert_eq!(ids.len(), all.len());
        assert!(ids.contains(&"agreed".to_string()) && ids.contains(&"one.16k.16".to_string()));
    }
}
