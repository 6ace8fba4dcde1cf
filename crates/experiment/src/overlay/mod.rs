//! Groups over real sockets: daemons of faircast, beside nats-server in the same sitting.
//!
//! One publisher and some subscribers are threads of this process, servers are programs of their
//! own, all on the loopback interface. Clients of both systems share their code and use no library:
//! the servers are compared. Ratios are judged, since the numbers are those of a machine that is
//! publisher, servers and subscribers at once.

mod client;
mod limits;
mod server;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use faircast_overlay::Service;
use faircast_report::{Row, Suite, bench_page};

use self::client::{Client, Protocol, Received};
use self::server::Servers;
use crate::Error;
use crate::monitor::{Monitor, Runs};
use crate::request::{Request, Results, chosen, listing};
use crate::wire::row;

const TITLE: &str = "How fast are groups on real sockets, beside NATS?";
/// Time for which a publisher publishes.
const PUBLISH: Duration = Duration::from_millis(1500);
/// Share of the rate that is kept when a subscriber of NATS has lost messages.
const SLOWER: f64 = 0.88;
/// Most attempts at a slower rate.
const PACES_MAX: usize = 8;
/// Publishers of [`Measures::Many`].
const PUBLISHERS: usize = 8;
/// Messages a second of latency at low load.
const LOW_RATE: f64 = 1000.0;
/// Longest sleep of a publisher at a fixed rate.
const NAP: Duration = Duration::from_micros(30);

/// Servers and clients that are measured together.
#[derive(Clone, Copy, Debug)]
struct Setup {
    id: &'static str,
    title: &'static str,
    servers: usize,
    is_unix: bool,
    has_prices: bool,
    protocol: Protocol,
    measures: Measures,
}

/// Kind of a setup's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measures {
    /// Rates of all sizes and numbers of subscribers at the last server.
    All,
    /// Rates of 1 kB, with a subscriber at every server.
    Everywhere,
    /// Rates of 1 kB, with many publishers at once.
    Many,
    /// Four subscribers beside one that reads nothing.
    Stuck,
    /// Ten thousand clients.
    Crowd,
}

const FIFO: Protocol = Protocol::Faircast(Service::Fifo);
const ONE: Setup = Setup {
    id: "one",
    title: "one daemon, clients by TCP",
    servers: 1,
    is_unix: false,
    has_prices: false,
    protocol: FIFO,
    measures: Measures::All,
};
const CHAIN: Setup =
    Setup { id: "chain", title: "chain of three daemons, encrypted links", servers: 3, ..ONE };
const SETUPS: [Setup; 12] = [
    ONE,
    Setup { id: "one-nats", title: "one nats-server", protocol: Protocol::Nats, ..ONE },
    Setup { id: "one-prices", title: "one daemon, messages have a price", has_prices: true, ..ONE },
    Setup { id: "unix", title: "one daemon, clients by Unix socket", is_unix: true, ..ONE },
    CHAIN,
    Setup {
        id: "chain-prices",
        title: "chain of three daemons, messages have a price",
        has_prices: true,
        ..CHAIN
    },
    Setup {
        id: "chain-nats",
        title: "chain of three nats-servers, TLS on the links",
        protocol: Protocol::Nats,
        ..CHAIN
    },
    Setup {
        id: "agreed",
        title: "agreed order, a member at each of three daemons",
        protocol: Protocol::Faircast(Service::Agreed),
        measures: Measures::Everywhere,
        ..CHAIN
    },
    Setup {
        id: "safe",
        title: "safe, a member at each of three daemons",
        protocol: Protocol::Faircast(Service::Safe),
        measures: Measures::Everywhere,
        ..CHAIN
    },
    Setup { id: "many", title: "eight publishers at once", measures: Measures::Many, ..ONE },
    Setup {
        id: "stuck",
        title: "a subscriber that reads nothing",
        measures: Measures::Stuck,
        ..ONE
    },
    Setup { id: "crowd", title: "many clients", measures: Measures::Crowd, ..ONE },
];

const SIZES: [(&str, usize); 4] = [("16", 16), ("128", 128), ("1k", 1024), ("16k", 16 << 10)];
const SUBSCRIBERS: [usize; 3] = [1, 4, 16];

/// One row of figures.
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
        for (name, bytes) in SIZES {
            for subscribers in SUBSCRIBERS {
                let is_only = setup.measures != Measures::All;
                let id = match is_only {
                    true if name == "1k" && subscribers == 1 => setup.id.to_string(),
                    true => continue,
                    false => format!("{}.{name}.{subscribers}", setup.id),
                };
                let subscribers = match setup.measures {
                    Measures::All => subscribers,
                    Measures::Everywhere => setup.servers,
                    Measures::Many => 1,
                    Measures::Stuck | Measures::Crowd => 4,
                };
                all.push(Case { id, setup, bytes, subscribers });
            }
        }
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
    /// Deliveries of a second, to all subscribers together.
    rate: f64,
    /// Seconds of the servers' processors for a million deliveries.
    cpu_s: f64,
    /// Median and 99th percentile in microseconds: at a low rate, and at half of the greatest.
    low: [f64; 2],
    half: [f64; 2],
    /// Share of the messages that came.
    whole: f64,
}

pub(crate) fn run(request: &Request, monitor: &dyn Monitor) -> Result<Results, Error> {
    let mut cases = cases(request)?;
    if !server::has_nats() {
        monitor.note(
            "nats-server is not installed, and left out: \
             go install github.com/nats-io/nats-server/v2@latest",
        );
        cases.retain(|case| case.setup.protocol != Protocol::Nats);
    }
    monitor.begin(Runs {
        name: "overlay",
        count: cases.len(),
        weight: cases.len() as u64,
        long: false,
    });
    let (mut measured, mut limits): (Vec<(Case, Figures)>, Vec<Row>) = (Vec::new(), Vec::new());
    for case in cases {
        let folder = tempfile::tempdir().map_err(|error| Error::doing(&case.id, error))?;
        let servers = Servers::start(&request.own, folder.path(), &case.setup)?;
        let failed = |error| Error::doing(&case.id, error);
        match case.setup.measures {
            Measures::Stuck => limits.extend(limits::stuck(&case, &servers).map_err(failed)?),
            Measures::Crowd => limits.extend(limits::crowd(&case, &servers).map_err(failed)?),
            Measures::All | Measures::Everywhere | Measures::Many => {
                let figures = measure(&case, &servers).map_err(failed)?;
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
    let suite = Suite { name: "overlay".into(), about: TITLE.into(), rows };
    let json = suite.to_json() + "\n";
    Ok(Results {
        table: suite.table(),
        files: vec![
            ("overlay.html".into(), bench_page(&suite)),
            ("overlay.json".into(), json.clone()),
        ],
        json,
        holds: suite.holds(),
        ..Results::default()
    })
}

fn measure(case: &Case, servers: &Servers) -> io::Result<Figures> {
    let (mut pace, mut figures) = (None, Figures::default());
    for _ in 0..PACES_MAX {
        let before = servers.cpu_s();
        let run = transfer(case, servers, pace, false)?;
        let deliveries = run.deliveries();
        figures.rate = run.rate();
        figures.cpu_s = (servers.cpu_s() - before) / (deliveries as f64 / 1e6);
        figures.whole = deliveries as f64 / (run.sent * case.subscribers as u64) as f64;
        // The chain of NATS has no back pressure: its publisher is slowed until nothing is lost.
        if figures.whole >= 1.0 || case.setup.protocol != Protocol::Nats {
            break;
        }
        let rate = run.sent as f64 / PUBLISH.as_secs_f64();
        pace = Some(pace.unwrap_or(rate) * SLOWER);
    }
    let is_timed = case.subscribers == 1 || case.setup.measures == Measures::Everywhere;
    if case.bytes == 1024 && is_timed && case.setup.measures != Measures::Many {
        let half = figures.rate / case.subscribers as f64 / 2.0;
        for (rate, place) in [(LOW_RATE, &mut figures.low), (half, &mut figures.half)] {
            let run = transfer(case, servers, Some(rate), true)?;
            let mut all: Vec<u64> = run
                .received
                .into_iter()
                .flat_map(|it| it.latencies.into_iter().skip(100))
                .collect();
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

    /// Deliveries of a second, to all subscribers together.
    fn rate(&self) -> f64 {
        let ends = self.received.iter().filter_map(|it| it.at).max();
        let seconds = ends.map_or(f64::INFINITY, |at| (at - self.began).as_secs_f64());
        self.deliveries() as f64 / seconds
    }
}

/// Publishes for a while, at a rate if one is given, and counts until all has come or nothing comes
/// any more.
fn transfer(
    case: &Case,
    servers: &Servers,
    rate: Option<f64>,
    stamps: bool,
) -> io::Result<Transfer> {
    let protocol = case.setup.protocol;
    let (first, last) = servers.ends();
    // Names are new in each run: a session of an earlier run may still stand.
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let mut subscribers = Vec::new();
    for number in 0..case.subscribers {
        let address = match case.setup.measures == Measures::Everywhere {
            true => &servers.addresses()[number],
            false => last,
        };
        let client = Client::connect(address, protocol, &format!("s{run}-{number}"))?;
        subscribers.push(client.subscribe()?);
    }
    let count = if case.setup.measures == Measures::Many { PUBLISHERS } else { 1 };
    let connect = |number| Client::connect(first, protocol, &format!("p{run}-{number}"));
    let publishers: Vec<Client> = (0..count).map(connect).collect::<io::Result<_>>()?;
    publishers.iter().try_for_each(Client::drain)?;
    // The publisher's server learns of the subscribers of the others.
    std::thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    let total = AtomicU64::new(u64::MAX);
    let payload = vec![b'x'; case.bytes];
    let publish = |mut publisher: Client| {
        let (mut sent, mut payload) = (0u64, payload.clone());
        while began.elapsed() < PUBLISH {
            let due = rate.map_or(sent + 64, |rate| (began.elapsed().as_secs_f64() * rate) as u64);
            while sent < due {
                if stamps {
                    let now = began.elapsed().as_nanos() as u64;
                    let at = payload.len() - 8;
                    payload[at..].copy_from_slice(&now.to_be_bytes());
                }
                publisher.publish(&payload)?;
                sent += 1;
            }
            if rate.is_some() {
                publisher.flush()?;
                std::thread::sleep(NAP);
            }
        }
        publisher.flush().map(|()| (publisher, sent))
    };
    std::thread::scope(|scope| {
        let total = &total;
        let threads: Vec<_> = subscribers
            .into_iter()
            .map(|it| {
                let is_over = move |count| count >= total.load(Ordering::Relaxed);
                scope.spawn(move || it.count(stamps.then_some(began), is_over))
            })
            .collect();
        let published: Vec<_> =
            publishers.into_iter().map(|it| scope.spawn(|| publish(it))).collect();
        let published = published.into_iter().map(|it| it.join().expect("publishers return"));
        let published = published.collect::<io::Result<Vec<(Client, u64)>>>();
        let sent = published.iter().flatten().map(|it| it.1).sum::<u64>();
        // One more tells subscribers that wait for the number.
        total.store(sent + 1, Ordering::Relaxed);
        let mut published = published?;
        published[0].0.publish(&payload).and_then(|()| published[0].0.flush())?;
        let received = threads.into_iter().map(|it| it.join().unwrap_or_default()).collect();
        published.iter().for_each(|(publisher, _)| publisher.close());
        Ok(Transfer { began, sent: sent + 1, received })
    })
}

/// Figures of a case: row, title, unit.
const FIGURES: [[&str; 3]; 6] = [
    ["rate", "deliveries", "1/s"],
    ["cpu", "CPU of the servers", "s/million"],
    ["low-p50", "median latency at 1000/s", "us"],
    ["low-p99", "99th percentile at 1000/s", "us"],
    ["half-p50", "median latency at half the rate", "us"],
    ["half-p99", "99th percentile at half the rate", "us"],
];

fn values(figures: &Figures) -> [f64; FIGURES.len()] {
    let Figures { rate, cpu_s, low, half, .. } = *figures;
    [rate, cpu_s, low[0], low[1], half[0], half[1]]
}

/// Goals beside NATS: the figure's place, the row of the case, whether more is better.
const GOALS: [(usize, &str, bool); 5] = [
    (0, "deliveries / NATS", true),
    (2, "median latency at 1000/s / NATS", false),
    (3, "99th percentile at 1000/s / NATS", false),
    (4, "median latency at half the rate / NATS", false),
    (5, "99th percentile at half the rate / NATS", false),
];

/// Cases of the goals.
/// Least share of the rate without prices that a setup has with them.
const PRICED: f64 = 0.95;

const JUDGED: [&str; 4] = ["1k.1", "1k.16", "16k.1", "16k.16"];

/// Least deliveries of a second at each member: Spread 4.4 on a machine such as this one.
const ORDERED: [(&str, f64); 2] = [("agreed", 39_000.0), ("safe", 40_000.0)];

/// Greatest 99th percentile of agreed messages at 1000/s, which is above Spread's 286 us there.
const AGREED_P99_US: f64 = 500.0;

fn rows(measured: &[(Case, Figures)]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (case, figures) in measured {
        for (value, [id, title, unit]) in values(figures).into_iter().zip(FIGURES) {
            if value > 0.0 {
                rows.push(Row {
                    group: case.setup.title.into(),
                    unit: unit.into(),
                    measured_only: true,
                    holds: true,
                    ..row(&format!("{}.{id}", case.id), title, vec![value])
                });
            }
        }
        // The publisher of NATS is slowed until nothing is lost; no reader of a daemon may be cut.
        if case.setup.protocol != Protocol::Nats {
            let title = "share of the messages that came";
            let row = row(&format!("{}.whole", case.id), title, vec![figures.whole]);
            rows.push(judged(row, Some(1.0), None));
        }
    }
    let found = |id: &str| measured.iter().find(|(case, _)| case.id == id).map(|it| &it.1);
    for setup in ["one", "chain"] {
        for (place, title, is_more) in GOALS {
            for case in JUDGED {
                let (ours, theirs) = (format!("{setup}.{case}"), format!("{setup}-nats.{case}"));
                let (Some(ours), Some(theirs)) = (found(&ours), found(&theirs)) else { continue };
                let (ours, theirs) = (values(ours)[place], values(theirs)[place]);
                if ours > 0.0 && theirs > 0.0 {
                    let ratio = ours / theirs;
                    let id = format!("{setup}.{case}.{}-nats", FIGURES[place][0]);
                    let [low, high] = [is_more, !is_more].map(|it| it.then_some(1.0));
                    rows.push(judged(row(&id, title, vec![ratio]), low, high));
                }
            }
        }
    }
    for setup in ["one", "chain"] {
        for case in JUDGED {
            let (with, without) = (format!("{setup}-prices.{case}"), format!("{setup}.{case}"));
            let (Some(with), Some(without)) = (found(&with), found(&without)) else { continue };
            let id = format!("{setup}.{case}.prices");
            let ratio = with.rate / without.rate;
            rows.push(judged(
                row(&id, "rate: with prices / without", vec![ratio]),
                Some(PRICED),
                None,
            ));
        }
    }
    for (id, least) in ORDERED {
        let Some(figures) = found(id) else { continue };
        let each = figures.rate / CHAIN.servers as f64;
        let title = "messages of a second at each member";
        let row = Row { unit: "1/s".into(), ..row(&format!("{id}.each"), title, vec![each]) };
        rows.push(judged(row, Some(least), None));
    }
    if let Some(figures) = found("agreed") {
        let title = "99th percentile at 1000/s";
        let row = Row { unit: "us".into(), ..row("agreed.p99", title, vec![figures.low[1]]) };
        rows.push(judged(row, None, Some(AGREED_P99_US)));
    }
    rows
}

fn judged(row: Row, low: Option<f64>, high: Option<f64>) -> Row {
    let holds = low.is_none_or(|it| row.ours >= it) && high.is_none_or(|it| row.ours <= it);
    Row { accept_low: low, accept_high: high, holds, ..row }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_of_one_sitting_are_judged() {
        let request = Request { only: Some("1k.1".into()), ..Request::default() };
        let figures =
            |rate, p50| Figures { rate, low: [p50, 2.0], whole: 0.99, ..Figures::default() };
        let mut measured = Vec::new();
        for case in cases(&request).unwrap() {
            let is_nats = case.setup.protocol == Protocol::Nats;
            measured.push((case, if is_nats { figures(100.0, 5.0) } else { figures(99.0, 4.0) }));
        }
        let rows = rows(&measured);
        let holds = |id: &str| rows.iter().find(|row| row.id == id).map(|row| row.holds);
        assert_eq!(holds("one.1k.1.rate-nats"), Some(false));
        assert_eq!(holds("chain.1k.1.low-p50-nats"), Some(true));
        assert_eq!(holds("one.1k.1.half-p50-nats"), None, "not measured");
        assert_eq!(holds("unix.1k.1.rate"), Some(true));
        assert_eq!(holds("unix.1k.1.whole"), Some(false), "a subscriber was cut");
        assert_eq!(holds("one-nats.1k.1.whole"), None);
    }

    #[test]
    fn every_row_has_an_id_of_its_own() {
        let all = cases(&Request::default()).unwrap();
        let ids: std::collections::BTreeSet<_> = all.iter().map(|case| &case.id).collect();
        assert_eq!(ids.len(), all.len());
        assert!(
            ids.contains(&"agreed".to_string()) && ids.contains(&"one-nats.16k.16".to_string())
        );
    }
}
