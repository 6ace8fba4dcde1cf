//! Execution of a single run, from a scenario to a summary, with listeners to its trace.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::time::Instant;

use faircast_base::{ClientNote, Time};
use faircast_link::QueueConfig;
use faircast_report::{Metrics, Series, Summary, run_page};
use faircast_scenario::{ClientSpec, Flow, LinkSpec, Scenario, Speaks};
use faircast_sim::Observer;
use faircast_trace::{
    ClientHeader, FlowHeader, Hasher, Header, LinkHeader, Outcome, Record, Sink, SpeaksHeader, Tee,
    Writer,
};

use crate::backend::BackendOutcome;
use crate::files::{make_folder, write};
use crate::{Error, Study};

/// Results of a run.
pub struct Run {
    /// Header of the trace.
    pub header: Header,
    /// End of the run.
    pub outcome: Outcome,
    /// Figures of each flow, receiver and link.
    pub summary: Summary,
    /// Transmissions of packets: each packet counts once for each link.
    pub packet_hops: u64,
    /// Notes for readers of the figures, in sentences.
    pub notes: Vec<String>,
}

/// Name of the trace in an output folder.
pub const TRACE_FILE: &str = "trace.jsonl.gz";

/// Name of the clients' trace in an output folder; `faircast-check` reads it.
const CLIENTS_FILE: &str = "clients.jsonl";

struct ClientLines {
    to: BufWriter<File>,
    failed: Option<io::Error>,
}

impl Sink for ClientLines {
    fn record(&mut self, _: &Record) {}

    fn note(&mut self, _: Time, note: &ClientNote) {
        if self.failed.is_none() {
            self.failed = writeln!(self.to, "{}", note.line).err();
        }
    }
}

/// Most attempts of a run in the lab until one is valid.
pub(crate) const TRIES_MAX: u32 = 3;

impl Run {
    /// Returns the reason why the figures must not be used; `None` if they are valid.
    pub fn invalid(&self) -> Option<String> {
        self.outcome.lateness.filter(|late| late.is_invalid()).and_then(|late| late.doubts())
    }
}

/// Repeats a run until it is valid or interrupted, at most [`TRIES_MAX`] times; returns the last.
pub(crate) fn until_valid<T, E>(
    mut run: impl FnMut() -> Result<(Run, T), E>,
) -> Result<(Run, T), E> {
    let mut last = run()?;
    for _ in 1..TRIES_MAX {
        if last.0.invalid().is_none() || last.0.outcome.interrupted {
            break;
        }
        last = run()?;
    }
    Ok(last)
}

impl Study<'_> {
    /// Runs `scenario`. Every record also goes to `listener`.
    ///
    /// # Errors
    /// A file that a flow is to send cannot be read, or the backend refuses the scenario.
    pub fn run(
        &self,
        scenario: &Scenario,
        observer: &mut dyn Observer,
        listener: &mut dyn Sink,
    ) -> Result<Run, Error> {
        let header = self.header(scenario);
        let mut sink = Tee(Tee(Metrics::new(&header), Hasher::default()), listener);
        // WebAssembly has no clock.
        let started = (!cfg!(target_family = "wasm")).then(Instant::now);
        let ended = self.backend.run(scenario, observer, &mut sink)?;
        let BackendOutcome { mut outcome, packet_hops, mut notes } = ended;
        let Tee(Tee(metrics, hasher), _) = sink;
        notes.splice(..0, scenario.warnings());
        outcome.wall_s = started.map_or(0.0, |started| started.elapsed().as_secs_f64());
        outcome.trace_hash = Some(hasher.hex());
        let summary = metrics.finish(&outcome);
        Ok(Run { header, outcome, summary, packet_hops, notes })
    }

    /// Runs `scenario`, and writes summary, trace and report to the folder `out`, made if needed.
    ///
    /// # Errors
    /// As for [`run`](Self::run), or a file cannot be written.
    pub fn run_into(
        &self,
        scenario: &Scenario,
        out: &Path,
        observer: &mut dyn Observer,
    ) -> Result<Run, Error> {
        make_folder(out)?;
        let header = self.header(scenario);
        let path = out.join(TRACE_FILE);
        let unwritten = |error| Error::write(&path, error);
        let trace = Writer::create(&path, &header).map_err(unwritten)?;
        let clients_path = out.join(CLIENTS_FILE);
        let clients_unwritten = |error| Error::write(&clients_path, error);
        let clients = match header.clients[..] {
            [] => None,
            _ => Some(File::create(&clients_path).map_err(clients_unwritten)?),
        };
        let clients = clients.map(|file| ClientLines { to: BufWriter::new(file), failed: None });
        let mut sink = Tee(Tee(Series::new(&header), trace), clients);
        let run = self.run(scenario, observer, &mut sink)?;
        let Tee(Tee(series, trace), clients) = sink;
        trace.finish(&run.outcome).map_err(unwritten)?;
        if let Some(ClientLines { mut to, failed }) = clients {
            failed.map_or_else(|| to.flush(), Err).map_err(clients_unwritten)?;
        }
        write(&out.join("report.html"), run_page(&run.header, &run.summary, &series))?;
        write(&out.join("summary.json"), run.summary.to_json() + "\n")?;
        Ok(run)
    }

    /// Returns the header of a scenario's trace.
    pub fn header(&self, scenario: &Scenario) -> Header {
        let client =
            |(node, client): (_, &ClientSpec)| ClientHeader { name: client.name.clone(), node };
        Header {
            scenario: scenario.file.display().to_string(),
            title: scenario.title.clone(),
            text: scenario.text.clone(),
            on: self.backend.on(),
            seed: scenario.seed,
            duration_s: scenario.duration.as_secs_f64(),
            warmup_s: scenario.warmup.as_secs_f64(),
            nodes: scenario.nodes.iter().map(|node| node.name.clone()).collect(),
            links: scenario.links.iter().map(link_header).collect(),
            flows: scenario.flows.iter().map(flow_header).collect(),
            clients: scenario.clients().into_iter().map(client).collect(),
            ..Header::default()
        }
    }
}

fn link_header(link: &LinkSpec) -> LinkHeader {
    LinkHeader {
        from: link.from,
        to: link.to,
        rate_bps: link.config.rate.bits_per_s(),
        delay_s: link.config.delay.as_secs_f64(),
        queue: describe(&link.config.queue),
    }
}

fn flow_header(flow: &Flow) -> FlowHeader {
    let speaks = |it: &Speaks| SpeaksHeader { node: it.node, protocol: it.stack.name() };
    FlowHeader {
        name: flow.name.clone(),
        protocol: flow.stack.name(),
        from: flow.sender(),
        also_from: flow.from[1..].to_vec(),
        to: flow.to.clone(),
        packet_bytes: flow.packet.count(),
        start_s: flow.start.as_secs_f64(),
        stop_s: flow.stop.map(|stop| stop.as_secs_f64()),
        speaks: flow.speaks.iter().map(speaks).collect(),
    }
}

fn describe(queue: &QueueConfig) -> String {
    match queue {
        QueueConfig::DropTail { packets_max } => format!("droptail, {packets_max} packets"),
        QueueConfig::DropTailBytes { bytes_max } => format!("droptail, {bytes_max} B"),
        QueueConfig::Red(red) => {
            format!("RED {} to {}, {} packets", red.min, red.max, red.packets_max)
        }
    }
}

#[cfg(test)]
mod tests {
    use faircast_scenario::Overrides;
    use faircast_trace::Lateness;

    use super::*;

    #[test]
    fn a_run_that_is_not_valid_is_tried_again_a_few_times() {
        let text = "duration = \"1 s\"\n[[link]]\nbetween = [\"a\", \"b\"]\nrate = \"1 Mbit/s\"\n\
            delay = \"10 ms\"\n[[flow]]\nname = \"f\"\nprotocol = \"cbr\"\nfrom = \"a\"\nto = [\"b\"]\n\
            options = { rate = \"10 kbit/s\" }\n";
        let scenario =
            Scenario::parse(Path::new("t"), text, &Overrides::default(), &faircast_sim::catalog());
        let scenario = scenario.unwrap();
        for (late_ms, runs) in
            [(&[0.1][..], 1), (&[9.0, 0.1], 2), (&[9.0, 9.0, 1.0], 3), (&[9.0, 9.0, 9.0, 0.1], 3)]
        {
            let mut tries = 0;
            let last = until_valid(|| {
                let observer = &mut faircast_sim::Unobserved;
                let mut run = Study::default().run(&scenario, observer, &mut ())?;
                let late = Lateness { mean_s: late_ms[tries] / 1e3, ..Lateness::default() };
                run.outcome.lateness = Some(late.judged(0.02, None));
                tries += 1;
                Ok::<_, Error>((run, ()))
            });
            assert_eq!(tries, runs, "{late_ms:?}");
            let invalid = last.unwrap().0.invalid();
            assert_eq!(invalid.is_some(), late_ms[tries - 1] > 2.0, "{late_ms:?}");
        }
    }
}
