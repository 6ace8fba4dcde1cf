//! `faircast run`: one scenario.

use faircast_experiment::{execute, run_into};
use faircast_scenario::{Overrides, Scenario};

use crate::args::{On, RunArgs};
use crate::error::{Failure, note, print};
use crate::progress::{Watch, listen};

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let overrides = Overrides { set: args.set.clone(), seed: args.seed };
    let scenario = Scenario::load(&args.file, &overrides, &faircast_sim::catalog())?;
    listen();
    let mut watch = Watch::new(scenario.duration, true);
    let on = args.on.into();
    let done = match &args.out {
        None => execute(&scenario, on, &mut watch, &mut ())?,
        Some(out) => run_into(&scenario, on, out, &mut watch)?,
    };
    watch.finish();
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

impl From<On> for faircast_trace::On {
    fn from(on: On) -> Self {
        match on {
            On::Sim => Self::Sim,
            On::Lab => Self::Lab,
        }
    }
}
