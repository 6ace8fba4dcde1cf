//! The comparison of transports: real files over real sockets, beside what else there is.
//!
//! One sender and four receivers in network namespaces on one bridge; the bare limit of the
//! machine, ours, and every peer that is installed, once in each round, all in one sitting. What is
//! compared are ratios: the numbers themselves are those of a machine that does everything at once.

mod copies;
mod limit;
mod memory;
mod sitting;
mod transports;
mod verdicts;

use std::fmt::Write as _;

use faircast_report::{Suite, bench_page, spread};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::files::json;
use crate::host::{Job, Network, Shape, Unprepared, need_root, run_job};
use crate::monitor::{Monitor, Runs};
use crate::request::{Request, Results, chosen, listing};
use sitting::{Figures, Sitting};
use transports::{Over, TABLES, Transport};

const TITLE: &str = "How fast are files on real sockets, beside what else there is?";

const RECEIVERS: u32 = 4;

/// Receivers of a group that is large for one machine.
const GROUP_RECEIVERS: u32 = 20;

/// Receivers behind the sender's limited uplink.
const UPLINK_RECEIVERS: u32 = 16;

const UPLINK_MBIT_PER_S: u32 = 200;

/// The uplink carries a copy for each receiver, so less content will do there.
const UPLINK_BYTES_MAX: u64 = 50_000_000;

/// One end or one program of a measurement, which runs in a process of its own.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Case {
    Job(Job),
    LimitSend(limit::End),
    LimitReceive(limit::End),
    CopySend(copies::End),
    CopyReceive(copies::End),
}

/// Runs one case in this process, for the one that started it; `out` is what that reads.
///
/// # Errors
/// There is no such case, or it failed.
pub fn run_case(case: &str, out: &mut dyn std::io::Write) -> Result<(), Error> {
    let wrong = |error: serde_json::Error| Error::Usage(format!("--wire-case: {error}"));
    match serde_json::from_str(case).map_err(wrong)? {
        Case::Job(job) => run_job(&job, out),
        Case::LimitSend(end) => limit::send(&end),
        Case::LimitReceive(end) => limit::receive(&end),
        Case::CopySend(end) => copies::send(&end),
        Case::CopyReceive(end) => copies::receive(&end),
    }
}

/// A transport and what its runs gave, one a round; or why it could not be run.
struct Measured {
    transport: &'static Transport,
    runs: Result<Vec<Figures>, Unprepared>,
}

fn transports(request: &Request) -> Result<Vec<&'static Transport>, Error> {
    chosen("wire", "row", &TABLES.transports, |transport| &transport.id, request.only.as_deref())
}

pub(crate) fn list(request: &Request) -> Result<String, Error> {
    let transports = transports(request)?.into_iter();
    Ok(listing("wire", TITLE, transports.map(|transport| ("", &*transport.id, &*transport.title))))
}

pub(crate) fn run(request: &Request, monitor: &dyn Monitor) -> Result<Results, Error> {
    let chosen = transports(request)?;
    need_root("wire")?;
    Network::remove_leftovers();
    memory::Memory::remove_leftovers();
    let mut measured = Vec::new();
    for over in [Over::Fast, Over::Group, Over::Uplink] {
        let here: Vec<_> = chosen.iter().copied().filter(|t| t.over == over).collect();
        if !here.is_empty() {
            measured.extend(measure(&here, over, request, monitor)?);
        }
    }
    let rows = verdicts::rows(&measured, request.only.is_some());
    let suite = Suite { name: "wire".into(), about: TITLE.into(), rows };
    let json = to_json(&suite, &measured);
    let verdict = if suite.rows.is_empty() { String::new() } else { suite.table() };
    Ok(Results {
        table: format!("{}\n{verdict}", table(&measured)),
        files: vec![("wire.html".into(), bench_page(&suite)), ("wire.json".into(), json.clone())],
        json,
        holds: suite.holds(),
        ..Results::default()
    })
}

/// What our senders are told beside what all of them are: scheme and settings.
pub(crate) fn ours(request: &Request) -> Vec<String> {
    let scheme = request.scheme.iter().flat_map(|scheme| ["--scheme".to_string(), scheme.clone()]);
    let options =
        request.options.iter().flat_map(|option| ["--option".to_string(), option.clone()]);
    scheme.chain(options).collect()
}

fn measure(
    chosen: &[&'static Transport],
    over: Over,
    request: &Request,
    monitor: &dyn Monitor,
) -> Result<Vec<Measured>, Error> {
    let shape = Shape {
        uplink_mbit_per_s: (over == Over::Uplink).then_some(UPLINK_MBIT_PER_S),
        no_offload: request.no_offload,
    };
    let own = &request.own;
    let (name, receivers, bytes_max) = match over {
        Over::Fast => ("fast", RECEIVERS, u64::MAX),
        Over::Group => ("group", GROUP_RECEIVERS, memory::room_for(GROUP_RECEIVERS + 1)),
        Over::Uplink => ("slow", UPLINK_RECEIVERS, UPLINK_BYTES_MAX),
    };
    let bytes = request.size.min(bytes_max);
    let network = Network::make(name, receivers, shape, own)?;
    let sitting = Sitting::new(bytes, ours(request))?;
    let tools = sitting.tools();
    let mut measured: Vec<Measured> = chosen
        .iter()
        .map(|transport| Measured {
            transport,
            runs: transport.prepare(&tools).map(|()| Vec::new()),
        })
        .collect();
    let runs = chosen.len() * request.rounds as usize;
    let name = match over {
        Over::Fast => "wire",
        Over::Group => "wire, group",
        Over::Uplink => "wire, uplink",
    };
    monitor.begin(Runs { name, count: runs, weight: runs as u64, long: false });
    for _ in 0..request.rounds {
        for one in &mut measured {
            if let Ok(runs) = &mut one.runs {
                runs.push(sitting.run(&network, one.transport, monitor)?);
            }
            if monitor.is_to_stop() {
                return Err(Error::Interrupted("a sitting that is not finished has no verdict"));
            }
            monitor.ended(1);
        }
    }
    monitor.finish();
    Ok(measured)
}

impl Measured {
    /// Least, median and greatest of the runs that gave whole copies.
    fn spread(&self, value: impl Fn(&Figures) -> f64) -> Option<[f64; 3]> {
        let runs = self.runs.as_ref().ok()?;
        spread(runs.iter().filter(|run| run.complete).map(value))
    }

    fn mbit_per_s(&self) -> Option<[f64; 3]> {
        self.spread(|run| run.mbit_per_s)
    }
}

fn to_json(suite: &Suite, measured: &[Measured]) -> String {
    let transports: Vec<_> = measured
        .iter()
        .map(|one| {
            serde_json::json!({
                "id": one.transport.id,
                "title": one.transport.title,
                "mbit_per_s": one.mbit_per_s().map(|[low, median, high]| {
                    serde_json::json!({ "median": median, "low": low, "high": high })
                }),
                "runs": one.runs.as_ref().ok(),
                "skipped": one.runs.as_ref().err().map(Unprepared::to_string),
            })
        })
        .collect();
    let rows = &suite.rows;
    json(&serde_json::json!({ "suite": suite.name, "rows": rows, "transports": transports }))
}

fn table(measured: &[Measured]) -> String {
    let limit = measured.iter().find(|one| one.transport.id == "limit");
    let limit = limit.and_then(|one| one.mbit_per_s()).map(|[_, median, _]| median);
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
        let id = &one.transport.id;
        let runs = match &one.runs {
            Ok(runs) => runs,
            Err(why) => {
                let _ = writeln!(text, "{id:<16} skipped: {why}");
                continue;
            }
        };
        let whole = runs.iter().filter(|run| run.complete).count();
        let _ = write!(text, "{id:<16} {:>6}", format!("{whole}/{}", runs.len()));
        if let Some([low, speed, high]) = one.mbit_per_s() {
            let median = |value: fn(&Figures) -> f64| one.spread(value).map_or(0.0, |of| of[1]);
            let of_limit = match limit.filter(|_| one.transport.over == Over::Fast) {
                Some(limit) => format!("{:.0} %", 100.0 * speed / limit),
                None => "-".into(),
            };
            let _ = write!(
                text,
                " {:>8.0} {:>13} {of_limit:>8} {:>7.1} {:>9.2} {:>9.2} {:>7.3}",
                speed,
                format!("{low:.0}-{high:.0}"),
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
    fn a_transport_that_is_not_there_is_skipped_with_its_reason() {
        let transport = TABLES.transports.iter().find(|t| t.id == "udpcast").unwrap();
        let runs = Err(Unprepared::Missing("not installed".into()));
        let measured = [Measured { transport, runs }];
        assert!(table(&measured).contains("udpcast          skipped: not installed"));
    }
}
