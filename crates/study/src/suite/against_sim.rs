//! Lab compared with the simulator: marked experiments, or suites with `against_sim = true`.

use std::collections::BTreeMap;

use super::file::SuiteFile;
use super::runner::{Measured, Runner};
use super::{LoadedSuite, Selection};
use crate::{Error, Study};

/// Number of simulator seeds whose median judges the lab; simulated runs cost little.
const SIM_SEEDS: u32 = 9;

pub(crate) fn in_lab(suite: &SuiteFile, selection: &Selection) -> Result<SuiteFile, Error> {
    let name = &suite.name;
    if selection.scheme.is_some() {
        return Err(Error::Usage("--scheme: schemes are judged in the simulator".into()));
    }
    let there = suite.in_lab();
    match there.experiments.is_empty() {
        true => Err(Error::Usage(format!("--on lab: no experiment of {name} has lab = SEEDS"))),
        false => Ok(there),
    }
}

pub(crate) fn simulated(
    suite: &LoadedSuite,
    study: &Study<'_>,
) -> Result<BTreeMap<String, f64>, Error> {
    let seeds = Some(if suite.in_lab { suite.file.seeds } else { SIM_SEEDS });
    let selection = Selection { seeds, plots: false, ..suite.selection.clone() };
    let study = study.simulated();
    let runner = Runner { selection: &selection, ..suite.runner(&study) };
    let mut values = BTreeMap::new();
    for Measured { experiment, runs, .. } in runner.run("in the simulator")?.measured {
        for row in &experiment.rows {
            let of_seeds: Vec<f64> =
                runs.iter().map(|run| row.measure.of(&run.summary, &run.probe)).collect();
            values.insert(experiment.row_id(row).to_string(), row.statistic.of(&of_seeds));
        }
    }
    Ok(values)
}

pub(crate) fn expected(suite: &SuiteFile, simulated: &BTreeMap<String, f64>) -> SuiteFile {
    let mut suite = suite.clone();
    for experiment in &mut suite.experiments {
        for row in &mut experiment.rows {
            let id = row.id.as_ref().unwrap_or(&experiment.id);
            row.paper = simulated.get(id).copied();
        }
    }
    suite
}
