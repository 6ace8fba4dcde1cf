//! `faircast sweep`: a scenario with all combinations of given values; writes tables and plots.

mod words;

use std::path::Path;

use faircast_experiment::backend;
use faircast_report::{SweepAxis, sweep_page, sweep_pictures};
use faircast_study::files::{make_folder, write};
use faircast_study::sweep::{
    Axis, FailedRun, Job, RECEIVER_ROWS_MAX, Store, StoredRun, SweepOutcome, Tables, run, unique,
};
use faircast_study::table::Table;
use faircast_study::{Draft, Study, Sweep};
use faircast_trace::Validity;

use crate::args::SweepArgs;
use crate::error::{Failure, Result, note, print};
use crate::interrupt::listen;
use crate::progress::RunsMonitor;
use crate::threads::with_jobs;
use words::{command, for_shell, unescape, unescape_path};

const REASONS_MAX: usize = 20;

pub(crate) fn sweep(args: &SweepArgs) -> Result {
    let args = &unescaped(args)?;
    let axes = args.set.iter().map(|set| Axis::parse(set).map_err(Failure::Usage));
    let axes = axes.collect::<Result<Vec<_>>>()?;
    let seeds = args.seed.map_or_else(|| (1..=args.seeds.into()).collect(), |seed| vec![seed]);
    let monitor = RunsMonitor::default();
    let study = Study { backend: backend(args.on), monitor: &monitor, ..Study::default() };
    let sweep = Sweep::new(&study, Draft::load(&args.file)?, axes, seeds)?;
    let jobs = sweep.jobs()?;
    make_folder(&args.out)?;
    let store =
        Store::open(&args.out).map_err(|error| Failure::write(&args.out.join("runs"), &error))?;
    // Several combinations may describe one run in different ways.
    let runs = unique(&jobs);
    let missing: Vec<&Job> =
        runs.iter().copied().filter(|job| !store.has(job, args.traces)).collect();
    for job in &missing {
        if let StoredRun::Altered(file) = store.find(job) {
            note(&format!(
                "{}: was edited or damaged after it was written; {}: it counts as missing",
                file.display(),
                sweep.named(job)
            ));
        }
    }
    if args.print {
        return print_commands(args, &sweep, &missing, runs.len());
    }
    let mut outcome = SweepOutcome::default();
    if !args.collect {
        listen();
        outcome = with_jobs(args.jobs, || run(&sweep, &missing, &store, args.traces))?;
    }
    outcome.notes.iter().for_each(|text| note(text));
    reasons(&sweep, &outcome.failed).iter().for_each(|text| note(text));
    let kept = runs.len() - missing.len() + outcome.done;
    if outcome.stopped {
        return Err(Failure::Work(format!(
            "interrupted; {kept} of {} runs are done and kept in {}: the same command goes on with the \
             rest",
            runs.len(),
            args.out.display()
        )));
    }
    if !args.part && (kept > 0 || args.collect) {
        results(args, &sweep, &jobs, &store)?;
    }
    let lacking = if args.collect { missing.len() } else { outcome.failed.len() };
    match lacking {
        0 => Ok(()),
        _ if args.collect => Err(Failure::Work(format!(
            "{lacking} of {} runs are missing, such as {}; --print gives their commands",
            runs.len(),
            sweep.named(missing[0])
        ))),
        _ => Err(Failure::Work(format!(
            "{lacking} of {} runs failed; what was done is kept, and the same command tries these again",
            runs.len()
        ))),
    }
}

fn unescaped(args: &SweepArgs) -> Result<SweepArgs> {
    let word = |word: &str| unescape(word).map_err(Failure::Usage);
    let path = |path: &Path| unescape_path(path).map_err(Failure::Usage);
    let set = args.set.iter().map(|set| word(set)).collect::<Result<Vec<String>>>()?;
    Ok(SweepArgs { set, file: path(&args.file)?, out: path(&args.out)?, ..args.clone() })
}

fn reasons(sweep: &Sweep<'_>, failed: &[FailedRun]) -> Vec<String> {
    let mut reasons: Vec<(&FailedRun, usize)> = Vec::new();
    for failed in failed {
        match reasons.iter_mut().find(|(known, _)| known.reason == failed.reason) {
            Some((_, times)) => *times += 1,
            None => reasons.push((failed, 1)),
        }
    }
    let line = |(failed, times): &(&FailedRun, usize)| {
        let others = match times - 1 {
            0 => String::new(),
            1 => " and one run more".into(),
            more => format!(" and {more} runs more"),
        };
        format!("failed: {}{others}: {}", sweep.named(&failed.job), failed.reason)
    };
    reasons.iter().take(REASONS_MAX).map(line).collect()
}

fn print_commands(args: &SweepArgs, sweep: &Sweep<'_>, missing: &[&Job], runs: usize) -> Result {
    let program = std::env::args().next().unwrap_or_else(|| "faircast".into());
    let program = for_shell(&program);
    let line = |job: &&Job| format!("{program} {}\n", command(sweep, job, &args.out, args.traces));
    print(&missing.iter().map(line).collect::<String>())?;
    if missing.len() < runs {
        note(&format!("{} of {runs} runs are done already", runs - missing.len()));
    }
    Ok(())
}

fn results(args: &SweepArgs, sweep: &Sweep<'_>, jobs: &[Job], store: &Store) -> Result {
    let mut tables = Tables::new(sweep);
    let axis = |axis: &Axis| SweepAxis {
        key: axis.key.clone(),
        values: axis.values.clone(),
        numbers: axis.numbers(),
    };
    let title = sweep.title()?;
    let axes = sweep.axes.iter().map(axis).collect();
    let scenario = sweep.draft.file().display().to_string();
    let mut shown = faircast_report::Sweep::new(&scenario, &title, axes, sweep.seeds.len());
    let mut doubtful = 0;
    for job in jobs {
        match store.get(job) {
            Some(summary) => {
                let verdict = summary.lateness.and_then(|late| late.verdict);
                doubtful += usize::from(verdict == Some(Validity::Doubtful));
                shown.add(&job.choice, &summary);
                tables.add(job, summary);
            }
            None => shown.missing += 1,
        }
    }
    write_files(args, &shown, &tables)?;
    let out = &args.out;
    if doubtful > 0 {
        note(&format!(
            "{doubtful} of {} runs in the lab are doubtful, since packets left too late: the column \
             lateness_verdict says which",
            jobs.len() - shown.missing
        ));
    }
    let others = store.others(jobs);
    if others > 0 {
        note(&format!(
            "{} has {others} runs of other values, or of another build of the program: they are not in \
             the tables",
            out.join("runs").display()
        ));
    }
    if args.json {
        let set: serde_json::Map<String, serde_json::Value> =
            sweep.axes.iter().map(|axis| (axis.key.clone(), axis.values.clone().into())).collect();
        let document = serde_json::json!({
            "faircast": sweep.program.version, "scenario": shown.scenario, "title": shown.title,
            "on": sweep.study.backend.on(), "set": set, "seeds": sweep.seeds, "missing": shown.missing,
            "flows": tables.flows.json(), "medians": shown.medians(),
        });
        return print(&format!("{document:#}\n"));
    }
    let path = |name: &str| out.join(name).display().to_string();
    print(&format!(
        "{}\ntables: {} ({} rows), the same for receivers and links\nplots:  {}\n\
         pandas: import pandas; flows = pandas.read_csv({:?})\n",
        shown.table(),
        path("flows.csv"),
        tables.flows.row_count(),
        path("sweep.html"),
        path("flows.csv"),
    ))
}

fn write_files(args: &SweepArgs, shown: &faircast_report::Sweep, tables: &Tables) -> Result {
    let out = &args.out;
    write_table(out, "flows", &tables.flows)?;
    write_table(out, "links", &tables.links)?;
    match &tables.receivers {
        Some(receivers) => write_table(out, "receivers", receivers)?,
        None => note(&format!(
            "receivers.csv is left out: it would have more than {RECEIVER_ROWS_MAX} rows; {} has the \
             summaries",
            out.join("runs").display()
        )),
    }
    write(&out.join("sweep.html"), sweep_page(shown))?;
    if args.svg {
        let folder = out.join("svg");
        make_folder(&folder)?;
        for (name, text) in sweep_pictures(shown) {
            write(&folder.join(name), text)?;
        }
    }
    Ok(())
}

fn write_table(out: &Path, name: &str, table: &Table) -> Result {
    Ok(write(&out.join(format!("{name}.csv")), table.csv())?)
}
