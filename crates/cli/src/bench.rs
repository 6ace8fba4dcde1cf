//! `faircast bench`: suites of experiments, timings, attacks and the comparison of schemes.

mod choice;
mod document;
mod matrix;
mod suites;

use faircast_experiment::{Results, backend, speed};
use faircast_study::Study;
use faircast_study::files::{make_folder, write};
use faircast_trace::On;

use crate::args::BenchArgs;
use crate::error::{Failure, Result, print};
use crate::interrupt::listen;
use crate::progress::RunsMonitor;
use crate::threads::with_jobs;
use choice::{Bench, choose, has_verdicts};

pub(crate) fn bench(args: &BenchArgs) -> Result {
    if let Some(case) = &args.speed_case {
        return print(&speed::run_case(case)?);
    }
    check_options(args)?;
    let monitor = RunsMonitor::default();
    let study = Study { backend: backend(args.on), monitor: &monitor, ..Study::default() };
    let chosen = choose(args, &study)?;
    if args.list {
        let is_short = args.suites.is_empty() && args.only.is_none() && args.scheme.is_none();
        let of = |bench: &Bench| if is_short { bench.title() } else { bench.list() };
        let lists = chosen.iter().map(of).collect::<Result<String, _>>()?;
        let hint = "\nfaircast bench --list SUITE lists the experiments of a suite.\n";
        return print(&(lists + if is_short { hint } else { "" }));
    }
    if let Some(out) = &args.out {
        make_folder(out)?;
    }
    listen();
    let holds = with_jobs(args.jobs, || {
        chosen.iter().try_fold(true, |holds, bench| {
            let results = bench.run(args, &study)?;
            show(args, &results)?;
            Ok::<_, Failure>(holds & results.holds)
        })
    })??;
    if holds { Ok(()) } else { Err(Failure::AlreadyTold) }
}

fn check_options(args: &BenchArgs) -> Result {
    let is_alone = |suite: &str| matches!(&args.suites[..], [one] if one == suite);
    for (option, suite, is_given) in [
        ("--quick", "matrix", args.quick),
        ("--cases", "matrix", args.cases.is_some()),
        ("--program", "attack", args.program.is_some()),
    ] {
        if is_given && !is_alone(suite) {
            return Err(Failure::Usage(format!("{option}: belongs to the suite {suite} alone")));
        }
    }
    if args.docs.is_none() || is_alone("matrix") {
        return Ok(());
    }
    if let Some(suite) = args.suites.iter().find(|suite| !has_verdicts(suite)) {
        return Err(Failure::Usage(format!(
            "--docs: {suite} has no verdicts; allowed are suites of rows, or matrix alone"
        )));
    }
    let parts = [
        ("--only", args.only.is_some()),
        ("--scheme", args.scheme.is_some()),
        ("--seeds", args.seeds.is_some()),
        ("--on lab", args.on == On::Lab),
    ];
    let Some((option, _)) = parts.iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
    Err(Failure::Usage(format!(
        "--docs with {option}: the page has all rows of a suite, with its seeds, from the simulator; leave \
         {option} out"
    )))
}

fn show(args: &BenchArgs, results: &Results) -> Result {
    if let Some(out) = &args.out {
        results.write(out)?;
    }
    if let (Some(path), Some(page)) = (&args.docs, &results.document) {
        write(path, page)?;
    }
    print(if args.json { &results.json } else { &results.table })?;
    if let (Some(out), Some(page), false) = (&args.out, &results.page, args.json) {
        print(&format!("report: {}\n", out.join(page).display()))?;
    }
    match &results.stopped {
        Some(stopped) => Err(Failure::Work(stopped.clone())),
        None => Ok(()),
    }
}
