//! Suites whose scenarios run in the lab and in the simulator: `sim-vs-lab`, or one's own with
//! `against_sim = true`.

use faircast_report::Row;

use super::runner::{Measured, Plan};
use super::{Loaded, progress, rows as judged};
use crate::args::{BenchArgs, On};
use crate::error::Failure;

/// Seeds of the simulator whose median the lab is compared with: they cost next to nothing.
const SIM_SEEDS: u32 = 9;

/// The rows of what was measured in the lab, judged by what the simulator gives.
pub(crate) fn rows(
    loaded: &Loaded,
    args: &BenchArgs,
    measured: Vec<Measured<'_>>,
) -> Result<Vec<Row>, Failure> {
    let plan =
        Plan { on: On::Sim, seeds: Some(SIM_SEEDS), plots: false, ..loaded.plan(args, None) };
    let bar = progress("in the simulator");
    let simulated = plan.run(&bar);
    bar.finish_and_clear();
    let mut suite = loaded.suite.clone();
    for Measured { experiment, runs, .. } in simulated? {
        let same = suite.experiments.iter_mut().find(|same| same.id == experiment.id);
        let same = same.expect("both sides run the same suite");
        for row in &mut same.rows {
            let values: Vec<f64> =
                runs.iter().map(|run| row.measure.of(&run.summary, &run.probe)).collect();
            row.paper = Some(row.statistic.of(&values));
        }
    }
    let measured = measured
        .into_iter()
        .map(|Measured { experiment, runs, plot }| {
            let same = suite.experiments.iter().find(|same| same.id == experiment.id);
            Measured { experiment: same.expect("both sides run the same suite"), runs, plot }
        })
        .collect();
    Ok(judged(&suite, measured))
}
