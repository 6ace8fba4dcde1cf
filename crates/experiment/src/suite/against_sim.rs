//! Suites whose scenarios run in the lab and in the simulator: `sim-vs-lab`, or one's own with
//! `against_sim = true`.

use faircast_trace::On;

use super::LoadedSuite;
use super::file::SuiteFile;
use super::runner::{Measured, Runner};
use crate::Error;
use crate::bench::Request;
use crate::monitor::Monitor;

/// Seeds of the simulator whose median the lab is compared with: they cost next to nothing.
const SIM_SEEDS: u32 = 9;

/// The suite with what the simulator gives as the figures that are expected of the lab. The simulator goes
/// first: where the lab is stopped, what it has done can be judged.
pub(crate) fn expected(
    loaded: &LoadedSuite,
    request: &Request,
    monitor: &dyn Monitor,
) -> Result<SuiteFile, Error> {
    let runner = Runner {
        on: On::Sim,
        seeds: Some(SIM_SEEDS),
        plots: false,
        ..loaded.runner(request, None, monitor)
    };
    let mut suite = loaded.suite.clone();
    for Measured { experiment, runs, .. } in runner.run("in the simulator")?.measured {
        let same = suite.experiments.iter_mut().find(|same| same.id == experiment.id);
        let same = same.expect("both sides run the same suite");
        for row in &mut same.rows {
            let values: Vec<f64> =
                runs.iter().map(|run| row.measure.of(&run.summary, &run.probe)).collect();
            row.paper = Some(row.statistic.of(&values));
        }
    }
    Ok(suite)
}
