//! Deterministic oracle of the suite `tcp`: ns-2's retransmissions to the microsecond.

use std::path::Path;

use faircast_base::{Event, Time};
use faircast_report::Row;
use faircast_scenario::{Overrides, Scenario};
use faircast_sim::Unobserved;
use faircast_trace::{Record, Sink};

use super::judge::one_value;
use super::tcp;
use crate::{Error, Study};

const ORACLE: &str = include_str!("../../../../scenarios/tcp/droplist.txt");
const SCENARIO: &str = "drop-list.toml";

struct Line<'a> {
    flavour: &'a str,
    limited_transmit: bool,
    min_rto_s: &'a str,
    drops: &'a str,
    finish_us: f64,
    sent: u64,
    timeouts: u64,
    /// Sequence number and time in microseconds of each retransmission.
    retransmissions: Vec<(u64, f64)>,
}

#[derive(Default)]
struct Log {
    sent: u64,
    timeouts: u64,
    last_ack: Time,
    retransmissions: Vec<(u64, Time)>,
}

impl Sink for Log {
    fn record(&mut self, record: &Record) {
        match record.event {
            Event::DataSent { seq, repair, .. } => {
                self.sent += 1;
                if repair {
                    self.retransmissions.push((seq, record.at));
                }
            }
            Event::AckReceived { bytes, .. } if bytes > 0 => self.last_ack = record.at,
            Event::Timeout { .. } => self.timeouts += 1,
            _ => {}
        }
    }
}

pub(crate) fn is_chosen(only: Option<&str>) -> bool {
    lines(only).next().is_some()
}

pub(crate) fn rows(only: Option<&str>, study: &Study<'_>) -> Result<Vec<Row>, Error> {
    lines(only).map(|line| row(&line, study)).collect()
}

fn lines(only: Option<&str>) -> impl Iterator<Item = Line<'static>> {
    let all = ORACLE.lines().filter(|line| line.starts_with("DROP")).map(parse);
    all.filter(move |line| only.is_none_or(|text| line.id().contains(text)))
}

impl Line<'_> {
    fn id(&self) -> String {
        let Self { flavour, drops, limited_transmit, min_rto_s, .. } = self;
        format!("droplist.{flavour}.{drops}.limtx{limited_transmit}.minrto{min_rto_s}")
    }
}

fn parse(line: &str) -> Line<'_> {
    let field = |key: &str| {
        line.split_whitespace()
            .find_map(|word| word.strip_prefix(key).and_then(|rest| rest.strip_prefix('=')))
    };
    let need = |key: &str| field(key).expect("every line of the oracle has all fields");
    let number = |text: &str| text.parse::<f64>().expect("the oracle has numbers");
    let retransmissions = need("rtx").split(',').filter(|entry| !entry.is_empty()).map(|entry| {
        let (seq, rest) = entry.split_once('@').expect("seq@time#count");
        let at = rest.split('#').next().unwrap_or_default();
        (number(seq) as u64, number(at) * 1e6)
    });
    Line {
        flavour: need("flavour"),
        limited_transmit: field("limtx").is_none_or(|limtx| limtx == "1"),
        min_rto_s: field("minrto").unwrap_or("0.2"),
        drops: need("drops"),
        finish_us: number(need("finish")) * 1e6,
        sent: number(need("sent")) as u64,
        timeouts: number(need("timeouts")) as u64,
        retransmissions: retransmissions.collect(),
    }
}

fn row(line: &Line<'_>, study: &Study<'_>) -> Result<Row, Error> {
    let log = run(line, study)?;
    let distance = |at: Time, us: f64| (at.as_nanos() as f64 / 1e3 - us).abs();
    let same_packets = log.retransmissions.len() == line.retransmissions.len()
        && log.retransmissions.iter().zip(&line.retransmissions).all(|(a, b)| a.0 == b.0);
    // Both simulators count the SYN as a packet.
    let same_counts = log.sent == line.sent && log.timeouts == line.timeouts;
    let times = log.retransmissions.iter().zip(&line.retransmissions);
    let ours = times
        .map(|((_, at), (_, us))| distance(*at, *us))
        .fold(distance(log.last_ack, line.finish_us), f64::max);
    let Line { flavour, drops, .. } = line;
    let what = if *drops == "999" { "no drop".to_string() } else { format!("drops {drops}") };
    let explained = (!same_packets || !same_counts).then(|| {
        format!(
            "other packets: {} sent, {} timeouts, retransmitted {:?}",
            log.sent, log.timeouts, log.retransmissions
        )
    });
    let title = format!("{flavour}, {what}: greatest distance of a moment");
    let reason = "nothing is random, and the oracle has whole microseconds";
    let mut row = one_value(line.id(), title, "us", ours, 0.0..=1.0, reason);
    row.expected.paper = Some(0.0);
    row.accepted.low = None;
    row.accepted.holds &= same_packets && same_counts;
    row.cause.explained = explained;
    Ok(row)
}

fn run(line: &Line<'_>, study: &Study<'_>) -> Result<Log, Error> {
    let protocol = tcp::protocol(line.flavour);
    let mut set = vec![
        format!("flow.tcp.protocol={protocol}"),
        format!("flow.tcp.options.limited_transmit={}", line.limited_transmit),
        format!("flow.tcp.options.min_rto={} s", line.min_rto_s),
    ];
    if line.drops != "999" {
        set.push(format!("link.0.drop_list=[{}]", line.drops));
    }
    let text = tcp::FILES.find(SCENARIO).expect("the suite comes with its scenario");
    let path = Path::new(tcp::FILES.folder).join(SCENARIO);
    let overrides = Overrides { set, seed: Some(1) };
    let scenario = Scenario::parse(&path, text, &overrides, &study.catalog)?;
    let mut log = Log::default();
    study.run(&scenario, &mut Unobserved, &mut log)?;
    Ok(log)
}
