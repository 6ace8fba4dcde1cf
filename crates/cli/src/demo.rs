//! `faircast demo`: sends a real file to three receivers beside TCP, in the simulator.

use std::fmt::{Display, Write as _};
use std::path::Path;

use faircast_report::ReceiverSummary;
use faircast_scenario::{Overrides, Scenario};
use faircast_study::Study;
use faircast_study::files::make_folder;

use crate::args::DemoArgs;
use crate::error::{Failure, Result, print, this_program};
use crate::interrupt::listen;
use crate::progress::Watch;

const SCENARIO: &str = include_str!("../../../scenarios/demo.toml");

pub(crate) fn demo(args: &DemoArgs) -> Result {
    let file = args.file.clone().map_or_else(this_program, Ok)?;
    let wrong = |text: &dyn Display| Failure::Usage(format!("--file {}: {text}", file.display()));
    let bytes = std::fs::metadata(&file).map_err(|error| wrong(&error))?.len();
    if bytes == 0 {
        return Err(wrong(&"is empty"));
    }
    let path = std::path::absolute(&file).map_err(|error| wrong(&error))?;
    let Some(path) = path.to_str() else { return Err(wrong(&"its path must be UTF-8")) };
    // TOML's escapes are those of JSON.
    let path = serde_json::Value::from(path);
    let duration_s = DURATION_S_MIN.max(bytes * 8 / RATE_BPS_MIN);
    let data = format!("flow.file.data={{ file = {path} }}");
    let set = vec![data, format!("duration={duration_s} s")];
    let overrides = Overrides { set, seed: None };
    let (study, path) = (Study::default(), Path::new("scenarios/demo.toml"));
    let scenario = Scenario::parse(path, SCENARIO, &overrides, &study.catalog)?;
    make_folder(&args.out)?;
    listen();
    print(&format!(
        "Sending {} ({:.1} MB) to three receivers over a bottleneck shared with TCP ...\n\n",
        file.display(),
        bytes as f64 / 1e6
    ))?;
    let mut watch = Watch::new(scenario.duration, true);
    let run = study.run_into(&scenario, &args.out, &mut watch)?;
    watch.finish();
    let mut text = run.summary.table();
    let flow = run.summary.flows.iter().find(|flow| flow.name == "file");
    let receivers = flow.map(|flow| &flow.receivers[..]).unwrap_or_default();
    let is_whole = |r: &&ReceiverSummary| r.intact == Some(true) && r.completed_s.is_some();
    let good = receivers.iter().filter(is_whole).count();
    let _ = writeln!(
        text,
        "\n{good} of {} copies arrived whole, checked with BLAKE3.\nreport: {}",
        receivers.len(),
        args.out.join("report.html").display()
    );
    print(&text)?;
    if run.outcome.interrupted {
        return Err(Failure::work("interrupted before the file had arrived"));
    }
    if good < receivers.len() || receivers.is_empty() {
        return Err(Failure::work("not every receiver has the file"));
    }
    Ok(())
}

const DURATION_S_MIN: u64 = 60;
/// Expected rate of a session beside one TCP flow on 20 Mbit/s. Larger files get more time.
const RATE_BPS_MIN: u64 = 5_000_000;
