//! `faircast bench`: suites of experiments, timings, attacks and the comparison of schemes.

mod choice;
mod document;
mod matrix;
mod suites;

use faircast_experiment::{Results, backend, speed};
use faircast_study::Study;
use faircast_study::files::{make_folder, write};

use crate::args::{BenchArgs, On};
use crate::error::{Failure, print};
use crate::interrupt::listen;
use crate::progress::RunsMonitor;
use crate::threads::with_jobs;
use choice::{Bench, choose, has_verdicts};

pub(crate) fn bench(args: &BenchArgs) -> Result<(), Failure> {
    if let Some(case) = &args.speed_case {
        return print(&speed::run_case(case)?);
    }
    only_in_one_suite(args)?;
    let monitor = RunsMonitor::default();
    let study = Study { backend: backend(args.on.into()), monitor: &monitor, ..Study::default() };
    let chosen = choose(args, &study)?;
    if args.list {
        let is_short = args.suites.is_empty() && args.only.is_none() && args.scheme.is_none();
        let of = |bench: &Bench| match is_short {
            true => bench.title(),
            false => bench.list(),
        };
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

fn only_in_one_suite(args: &BenchArgs) -> Result<(), Failure> {
    let given = [
        ("--quick", "matrix", args.quick),
        ("--cases", "matrix", args.cases.is_some()),
        ("--program", "attack", args.program.is_some()),
    ];
    let elsewhere = |suite: &str| !matches!(&args.suites[..], [one] if one == suite);
    if let Some((option, suite, _)) =
        given.iter().find(|(_, suite, is_given)| *is_given && elsewhere(suite))
    {
        return Err(Failure::Usage(format!("{option}: belongs to the suite {suite} alone")));
    }
    only_whole_suites_in_documents(args)
}

fn only_whole_suites_in_documents(args: &BenchArgs) -> Result<(), Failure> {
    let is_matrix = args.suites.iter().any(|suite| suite == "matrix");
    if args.docs.is_none() || (is_matrix && args.suites.len() == 1) {
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
    match parts.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(Failure::Usage(format!(
            "--docs with {option}: the page has all rows of a suite, with its seeds, from the simulator; leave \
             {option} out"
        ))),
        None => Ok(()),
    }
}

fn show(args: &BenchArgs, results: &Results) -> Result<(), Failure> {
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
