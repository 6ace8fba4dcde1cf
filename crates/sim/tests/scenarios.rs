//! Traces of every scenario file, cut to 10 s, by hash; a change without effect changes no hash.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::path::{Path, PathBuf};

use faircast_base::Duration;
use faircast_scenario::{Overrides, Scenario};
use faircast_sim::{Builtin, Simulation, Unobserved, catalog};
use faircast_trace::Hasher;

/// Hashes of traces; a commit that changes a line explains why. The test prints the new lines.
const GOLDEN: &str = include_str!("scenarios.txt");

const LENGTH: Duration = Duration::from_secs(10);

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            found.extend(files(&path));
        } else if name.ends_with(".toml") && !name.ends_with("suite.toml") && name != "matrix.toml"
        {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn hash(path: &Path) -> Option<String> {
    let mut scenario = Scenario::load(path, &Overrides::default(), &catalog())
        .unwrap_or_else(|error| panic!("{error}"));
    scenario.duration = scenario.duration.min(LENGTH);
    if !scenario.flows.iter().all(|flow| flow.stack.is_simulated()) {
        return None;
    }
    let mut hasher = Hasher::default();
    Simulation::new(&scenario, &Builtin, &mut hasher).unwrap().run(&mut Unobserved);
    Some(hasher.hex())
}

#[test]
fn the_traces_of_all_scenarios_are_the_golden_ones() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios"));
    let (mut lines, mut known) = (String::new(), String::new());
    for path in files(root) {
        let Some(hash) = hash(&path) else { continue };
        let name = path.strip_prefix(root).unwrap().display().to_string();
        let line = format!("{name} {hash}\n");
        if GOLDEN.lines().any(|golden| golden.split(' ').next() == Some(&name)) {
            known += &line;
        }
        lines += &line;
    }
    assert!(known == GOLDEN, "traces differ from tests/scenarios.txt; now they are\n{lines}");
}
