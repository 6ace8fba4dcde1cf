//! `faircast run`: one scenario.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use faircast_experiment::files::{make_folder, write};
use faircast_experiment::{Done, execute, header};
use faircast_report::{Series, run_page};
use faircast_scenario::{Overrides, Scenario};
use faircast_trace::{Header, Outcome, Record, Sink, Tee, Writer};

use crate::args::{On, RunArgs};
use crate::error::{Failure, note, print};
use crate::progress::{Watch, listen};

/// The trace's name in an output folder.
pub(crate) const TRACE_FILE: &str = "trace.jsonl.gz";

/// Runs a scenario, prints its summary, and writes trace and report where asked to.
pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let overrides = Overrides { set: args.set.clone(), seed: args.seed };
    let scenario = Scenario::load(&args.file, &overrides, &faircast_sim::catalog())?;
    listen();
    let done = match &args.out {
        None => {
            let mut watch = Watch::new(scenario.duration, true);
            let done = execute(&scenario, args.on.into(), &mut watch, &mut ())?;
            watch.finish();
            done
        }
        Some(out) => run_into(&scenario, args.on, out)?,
    };
    for text in &done.notes {
        note(text);
    }
    print(&if args.json { done.summary.to_json() + "\n" } else { done.summary.table() })?;
    if let (Some(out), false) = (&args.out, args.json) {
        print(&format!("\nreport: {}\n", out.join("report.html").display()))?;
    }
    if let (Some(why), false) = (done.invalid(), done.outcome.interrupted) {
        return Err(Failure::Work(format!("{why}; the figures are not those of the scenario")));
    }
    if done.outcome.interrupted {
        return Err(Failure::Work(format!(
            "interrupted at {}; the figures are of the time until then",
            done.outcome.at
        )));
    }
    Ok(())
}

/// Runs a scenario and writes summary, trace and report into `out`.
pub(crate) fn run_into(scenario: &Scenario, on: On, out: &Path) -> Result<Done, Failure> {
    make_folder(out)?;
    let header = header(scenario, on.into());
    let mut sink = Tee(Series::new(&header), TraceFile::create(&out.join(TRACE_FILE), &header)?);
    let mut watch = Watch::new(scenario.duration, true);
    let done = execute(scenario, on.into(), &mut watch, &mut sink)?;
    watch.finish();
    let Tee(series, trace) = sink;
    trace.finish(&done.outcome)?;
    let page = run_page(&done.header, &done.summary, &series);
    write(&out.join("report.html"), page)?;
    write(&out.join("summary.json"), done.summary.to_json() + "\n")?;
    Ok(done)
}

impl From<On> for faircast_trace::On {
    fn from(on: On) -> Self {
        match on {
            On::Sim => Self::Sim,
            On::Lab => Self::Lab,
        }
    }
}

/// A trace on disk.
struct TraceFile {
    writer: Writer<BufWriter<File>>,
    path: std::path::PathBuf,
}

impl TraceFile {
    fn create(path: &Path, header: &Header) -> Result<Self, Failure> {
        let writer = Writer::create(path, header).map_err(|error| Failure::write(path, &error))?;
        Ok(Self { writer, path: path.to_owned() })
    }

    fn finish(self, outcome: &Outcome) -> Result<(), Failure> {
        self.writer.finish(outcome).map_err(|error| Failure::write(&self.path, &error))?;
        Ok(())
    }
}

impl Sink for TraceFile {
    fn record(&mut self, record: &Record) {
        self.writer.record(record);
    }
}
