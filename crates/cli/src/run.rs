//! `faircast run`: one scenario.

use faircast_experiment::backend;
use faircast_scenario::{Overrides, Scenario};
use faircast_study::Study;

use crate::args::RunArgs;
use crate::error::{Failure, Result, note, print};
use crate::interrupt::listen;
use crate::progress::Watch;

pub(crate) fn run(args: &RunArgs) -> Result {
    let overrides = Overrides { set: args.set.clone(), seed: args.seed };
    let study = Study { backend: backend(args.on), ..Study::default() };
    let scenario = Scenario::load(&args.file, &overrides, &study.catalog)?;
    listen();
    let mut watch = Watch::new(scenario.duration, true);
    let run = match &args.out {
        None => study.run(&scenario, &mut watch, &mut ())?,
        Some(out) => study.run_into(&scenario, out, &mut watch)?,
    };
    watch.finish();
    for text in &run.notes {
        note(text);
    }
    print(&if args.json { run.summary.to_json() + "\n" } else { run.summary.table() })?;
    if let (Some(out), false) = (&args.out, args.json) {
        print(&format!("\nreport: {}\n", out.join("report.html").display()))?;
    }
    if run.outcome.interrupted {
        let at = run.outcome.at;
        let text = format!("interrupted at {at}; the figures are of the time until then");
        return Err(Failure::Work(text));
    }
    run.invalid().map_or(Ok(()), |why| {
        Err(Failure::Work(format!("{why}; the figures are not those of the scenario")))
    })
}
