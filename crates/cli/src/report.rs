//! `faircast report`: makes the summary and the report again from a trace.

use faircast_report::{Metrics, Series, csv, plots, run_page, svg};
use faircast_study::TRACE_FILE;
use faircast_study::files::{make_folder, write};
use faircast_trace::{Outcome, ReadError, Reader, Record, Sink, Tee};

use crate::args::ReportArgs;
use crate::error::{Failure, Result, note, print};

#[derive(Default)]
struct Last(faircast_base::Time);

impl Sink for Last {
    fn record(&mut self, record: &Record) {
        self.0 = record.at;
    }
}

pub(crate) fn report(args: &ReportArgs) -> Result {
    let path = if args.trace.is_dir() { args.trace.join(TRACE_FILE) } else { args.trace.clone() };
    let unreadable = |error: ReadError| Failure::usage(error);
    if !path.exists() {
        return Err(Failure::Usage(format!(
            "{}: there is no such file; expected a trace, or a folder with {TRACE_FILE}",
            path.display()
        )));
    }
    let mut reader = Reader::open(&path).map_err(unreadable)?;
    let header = reader.header().clone();
    let mut sink = Tee(Tee(Metrics::new(&header), Series::new(&header)), Last::default());
    let outcome = match reader.replay(&mut sink) {
        Ok(outcome) => outcome.cloned(),
        Err(error @ ReadError::Cut(_)) => {
            note(&format!("{error}; the run seems to have been killed; what came before is used"));
            None
        }
        Err(error) => return Err(unreadable(error)),
    };
    let Tee(Tee(metrics, series), last) = sink;
    let outcome =
        outcome.unwrap_or_else(|| Outcome { at: last.0, interrupted: true, ..Outcome::default() });
    let summary = metrics.finish(&outcome);
    let folder = path.parent().map(ToOwned::to_owned).unwrap_or_default();
    let out = args.out.clone().unwrap_or(folder);
    make_folder(&out)?;
    write(&out.join("report.html"), run_page(&header, &summary, &series))?;
    write(&out.join("summary.json"), summary.to_json() + "\n")?;
    let mut more = String::new();
    if args.csv || args.svg {
        let plots = plots(&series, outcome.at);
        let tables = args.csv.then(|| csv(&plots)).into_iter().flatten();
        let tables = tables.map(|(name, text)| ("csv", name, text));
        let pictures = plots.iter().filter(|_| args.svg);
        let pictures = pictures.map(|p| ("svg", format!("{}.svg", p.key), svg(p, &series)));
        for (kind, name, text) in tables.chain(pictures) {
            let folder = out.join(kind);
            make_folder(&folder)?;
            write(&folder.join(name), text)?;
        }
        let kinds = [(args.csv, "csv", "series"), (args.svg, "svg", "pictures")];
        for (_, kind, what) in kinds.into_iter().filter(|(is_wanted, ..)| *is_wanted) {
            more.push_str(&format!("{what}: {}\n", out.join(kind).display()));
        }
    }
    if args.json {
        return print(&(summary.to_json() + "\n"));
    }
    let page = out.join("report.html");
    print(&format!("{}\nreport: {}\n{more}", summary.table(), page.display()))
}
