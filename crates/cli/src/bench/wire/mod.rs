//! `faircast bench wire`: real files over real sockets, beside what else there is.
//!
//! One sender and four receivers in network namespaces on one bridge; the bare limit of the
//! machine, ours, and every peer that is installed, once in each round, all in one sitting. What is
//! compared are ratios: the numbers themselves are those of a machine that does everything at once.

mod copies;
mod limit;
mod memory;
pub(super) mod network;
pub(super) mod peers;
pub(super) mod process;
mod sitting;
mod transports;
mod verdicts;

use std::fmt::Write as _;

use faircast_report::{Suite, bench_page};
use nix::unistd::Uid;
use serde::{Deserialize, Serialize};

use crate::args::BenchArgs;
use crate::error::{Failure, print};
use crate::interrupt::interrupted;
use crate::progress::Progress;
use crate::run::write;
use network::{Network, Shape};
use sitting::{Figures, Sitting};
use transports::{TRANSPORTS, Transport};

/// What the suite asks.
const TITLE: &str = "How fast are files on real sockets, beside what else there is?";

/// Receivers on the fast network.
const RECEIVERS: u32 = 4;

/// Receivers behind the sender's limited uplink.
const UPLINK_RECEIVERS: u32 = 16;

/// What the limited uplink carries.
const UPLINK_MBIT_PER_S: u32 = 200;

/// The uplink carries a copy for each receiver, so less content will do there.
const UPLINK_BYTES_MAX: u64 = 50_000_000;

/// One end or one program of a measurement, which runs in a process of its own.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Case {
    Job(process::Job),
    LimitSend(limit::End),
    LimitReceive(limit::End),
    CopySend(copies::End),
    CopyReceive(copies::End),
}

/// Runs one case here.
pub(super) fn run_case(case: &str) -> Result<(), Failure> {
    let wrong = |error: serde_json::Error| Failure::Usage(format!("--wire-case: {error}"));
    match serde_json::from_str(case).map_err(wrong)? {
        Case::Job(job) => process::run_job(&job),
        Case::LimitSend(end) => limit::send(&end),
        Case::LimitReceive(end) => limit::receive(&end),
        Case::CopySend(end) => copies::send(&end),
        Case::CopyReceive(end) => copies::receive(&end),
    }
}

/// A transport and what its runs gave, one a round; or why it could not be run.
struct Measured {
    transport: &'static Transport,
    runs: Result<Vec<Figures>, String>,
}

/// Measures everything, and prints figures and verdicts. True where every row holds.
pub(super) fn wire(args: &BenchArgs) -> Result<bool, Failure> {
    let chosen = |transport: &&Transport| {
        args.only.as_deref().is_none_or(|text| transport.id.contains(text))
    };
    let chosen: Vec<&'static Transport> = TRANSPORTS.iter().filter(chosen).collect();
    if chosen.is_empty() {
        let all: Vec<&str> = TRANSPORTS.iter().map(|transport| transport.id).collect();
        let only = args.only.as_deref().unwrap_or_default();
        let all = all.join(", ");
        return Err(Failure::Usage(format!(
            "--only {only}: wire has no such row; there are {all}"
        )));
    }
    if args.list {
        let mut text = format!("wire: {TITLE}\n");
        for transport in chosen {
            let _ = writeln!(text, "  {:<34} {}", transport.id, transport.title);
        }
        return print(&text).map(|()| true);
    }
    if !Uid::effective().is_root() {
        return Err(Failure::Usage(
            "wire makes network namespaces, which needs root: run it with sudo".into(),
        ));
    }
    Network::remove_leftovers();
    memory::Memory::remove_leftovers();
    let mut measured = Vec::new();
    for uplink in [false, true] {
        let here: Vec<_> = chosen.iter().copied().filter(|t| t.uplink == uplink).collect();
        if !here.is_empty() {
            measured.extend(measure(&here, uplink, args)?);
        }
    }
    let rows = verdicts::rows(&measured, args.only.is_some());
    let suite = Suite { name: "wire".into(), about: TITLE.into(), rows };
    let json = json(&suite, &measured);
    if let Some(out) = &args.out {
        write(&out.join("wire.html"), bench_page(&suite).as_bytes())?;
        write(&out.join("wire.json"), json.as_bytes())?;
    }
    let verdict = if suite.rows.is_empty() { String::new() } else { suite.table() };
    print(&if args.json { json } else { format!("{}\n{verdict}", table(&measured)) })?;
    Ok(suite.holds())
}

/// What our senders are told beside what all of them are: scheme and settings.
pub(super) fn ours(args: &BenchArgs) -> Vec<String> {
    let scheme = args.scheme.iter().flat_map(|scheme| ["--scheme".to_string(), scheme.clone()]);
    let options = args.options.iter().flat_map(|option| ["--option".to_string(), option.clone()]);
    scheme.chain(options).collect()
}

/// Runs these transports, once each in every round.
fn measure(
    chosen: &[&'static Transport],
    uplink: bool,
    args: &BenchArgs,
) -> Result<Vec<Measured>, Failure> {
    let shape = Shape {
        uplink_mbit_per_s: uplink.then_some(UPLINK_MBIT_PER_S),
        no_offload: args.no_offload,
    };
    let (bytes, network) = match uplink {
        false => (args.size, Network::make("fast", RECEIVERS, shape)?),
        true => {
            let network = Network::make("slow", UPLINK_RECEIVERS, shape)?;
            (args.size.min(UPLINK_BYTES_MAX), network)
        }
    };
    let sitting = Sitting::new(bytes, ours(args))?;
    let tools = sitting.tools();
    let mut measured: Vec<Measured> = chosen
        .iter()
        .map(|transport| Measured {
            transport,
            runs: transport.prepare(&tools).map(|()| Vec::new()),
        })
        .collect();
    let runs = chosen.len() * args.rounds as usize;
    let bar = Progress::new(if uplink { "wire, uplink" } else { "wire" }, runs, runs as u64);
    for _ in 0..args.rounds {
        for one in &mut measured {
            if let Ok(runs) = &mut one.runs {
                runs.push(sitting.run(&network, one.transport)?);
            }
            if interrupted() {
                return Err(Failure::Work(
                    "interrupted; a sitting that is not finished has no verdict".into(),
                ));
            }
            bar.ended(1);
        }
    }
    bar.finish();
    Ok(measured)
}

/// The middle of some values with the least and the greatest.
#[derive(Clone, Copy, Debug, Serialize)]
struct Spread {
    median: f64,
    low: f64,
    high: f64,
}

impl Spread {
    /// `None` of no values.
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => (values[middle - 1] + values[middle]) / 2.0,
            _ => values[middle],
        };
        Some(Self { median, low, high })
    }
}

impl Measured {
    /// Of the runs that gave whole copies.
    fn spread(&self, value: impl Fn(&Figures) -> f64) -> Option<Spread> {
        let runs = self.runs.as_ref().ok()?;
        Spread::of(runs.iter().filter(|run| run.complete).map(value))
    }

    fn mbit_per_s(&self) -> Option<Spread> {
        self.spread(|run| run.mbit_per_s)
    }
}

fn json(suite: &Suite, measured: &[Measured]) -> String {
    let transports: Vec<_> = measured
        .iter()
        .map(|one| {
            serde_json::json!({
                "id": one.transport.id,
                "title": one.transport.title,
                "mbit_per_s": one.mbit_per_s(),
                "runs": one.runs.as_ref().ok(),
                "skipped": one.runs.as_ref().err(),
            })
        })
        .collect();
    let rows = &suite.rows;
    let all = serde_json::json!({ "suite": suite.name, "rows": rows, "transports": transports });
    format!("{}\n", serde_json::to_string_pretty(&all).expect("plain values serialise"))
}

/// What was measured, a line for each transport.
fn table(measured: &[Measured]) -> String {
    let limit = measured.iter().find(|one| one.transport.id == "limit");
    let limit = limit.and_then(|one| one.mbit_per_s()).map(|spread| spread.median);
    let mut text = format!(
        "{:<16} {:>6} {:>8} {:>13} {:>8} {:>7} {:>9} {:>9} {:>7}\n",
        "transport",
        "whole",
        "Mbit/s",
        "range",
        "of limit",
        "total s",
        "CPU send",
        "CPU recv",
        "sent"
    );
    let mut remarks = String::new();
    for one in measured {
        let id = one.transport.id;
        let runs = match &one.runs {
            Ok(runs) => runs,
            Err(why) => {
                let _ = writeln!(text, "{id:<16} skipped: {why}");
                continue;
            }
        };
        let whole = runs.iter().filter(|run| run.complete).count();
        let _ = write!(text, "{id:<16} {:>6}", format!("{whole}/{}", runs.len()));
        if let Some(speed) = one.mbit_per_s() {
            let median = |value: fn(&Figures) -> f64| one.spread(value).map_or(0.0, |s| s.median);
            let of_limit = match limit.filter(|_| !one.transport.uplink) {
                Some(limit) => format!("{:.0} %", 100.0 * speed.median / limit),
                None => "-".into(),
            };
            let _ = write!(
                text,
                " {:>8.0} {:>13} {of_limit:>8} {:>7.1} {:>9.2} {:>9.2} {:>7.3}",
                speed.median,
                format!("{:.0}-{:.0}", speed.low, speed.high),
                median(|run| run.total_s),
                median(|run| run.cpu_send_s_per_gb),
                median(|run| run.cpu_receive_s_per_gb),
                median(|run| run.sent_per_useful),
            );
        }
        text.push('\n');
        if let Some(trouble) = runs.iter().find_map(|run| run.trouble.as_ref()) {
            let _ = writeln!(remarks, "  {id}: {trouble}");
        }
    }
    text.push_str(
        "Medians of whole runs. CPU in seconds for a gigabyte, of the sender and the mean of the \
         receivers;\nsent: bytes that left the sender for each byte of content.\n",
    );
    text + &remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_values_is_taken_with_their_ends() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        assert!(spread(&[]).is_none());
        for (values, want) in [
            (&[3.0, 1.0, 2.0][..], (2.0, 1.0, 3.0)),
            (&[4.0, 1.0][..], (2.5, 1.0, 4.0)),
            (&[7.0][..], (7.0, 7.0, 7.0)),
        ] {
            let spread = spread(values).unwrap();
            assert_eq!((spread.median, spread.low, spread.high), want);
        }
    }

    #[test]
    fn a_transport_that_is_not_there_is_skipped_with_its_reason() {
        let transport = TRANSPORTS.iter().find(|t| t.id == "udpcast").unwrap();
        let measured = [Measured { transport, runs: Err("not installed".into()) }];
        assert!(table(&measured).contains("udpcast          skipped: not installed"));
    }
}
