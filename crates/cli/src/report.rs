//! `faircast report`: summary and report again, from a trace alone.

use faircast_report::{Metrics, Series, run_page};
use faircast_trace::{Outcome, Reader, Record, Sink, Tee};

use crate::args::ReportArgs;
use crate::error::{Failure, print};
use crate::run::{TRACE_FILE, write};

/// The moment of the last record, for traces of runs that were killed.
#[derive(Default)]
struct Last(faircast_base::Time);

impl Sink for Last {
    fn record(&mut self, record: &Record) {
        self.0 = record.at;
    }
}

/// Reads a trace, prints its summary, and writes summary and report.
pub(crate) fn report(args: &ReportArgs) -> Result<(), Failure> {
    let path = if args.trace.is_dir() { args.trace.join(TRACE_FILE) } else { args.trace.clone() };
    let unreadable = |error: faircast_trace::ReadError| Failure::Usage(error.to_string());
    let mut reader = Reader::open(&path).map_err(unreadable)?;
    let header = reader.header().clone();
    let mut sink = Tee(Tee(Metrics::new(&header), Series::new(&header)), Last::default());
    let outcome = reader.replay(&mut sink).map_err(unreadable)?.cloned();
    let Tee(Tee(metrics, series), last) = sink;
    // A run that was killed left no outcome: what it measured until then still counts.
    let outcome =
        outcome.unwrap_or_else(|| Outcome { at: last.0, interrupted: true, ..Outcome::default() });
    let summary = metrics.finish(&outcome);
    let folder = path.parent().map(ToOwned::to_owned).unwrap_or_default();
    let out = args.out.clone().unwrap_or(folder);
    Failure::make_folder(&out)?;
    write(&out.join("report.html"), run_page(&header, &summary, &series).as_bytes())?;
    write(&out.join("summary.json"), (summary.to_json() + "\n").as_bytes())?;
    if args.json {
        return print(&(summary.to_json() + "\n"));
    }
    print(&format!("{}\nreport: {}\n", summary.table(), out.join("report.html").display()))
}
