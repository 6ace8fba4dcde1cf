//! Arguments of `faircast sweep`.

use std::path::PathBuf;

use faircast_trace::On;

use super::{on, seed};

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  faircast sweep scenarios/pgmcc-beside-tcp.toml --seeds 5 --out out/sweep \\
      --set 'flow.mcc.options.acker_bias=0.5,0.6,0.7' --set 'link.0.rate=500 kbit/s,1 Mbit/s'
  faircast sweep FILE --set KEY=VALUE,VALUE --out DIR --print > runs.txt     commands for a cluster
  faircast sweep FILE --set KEY=VALUE,VALUE --out DIR --collect              tables of its results

Finished runs are kept: the same command continues after an interruption, and with more values or seeds
it runs only the new ones. DIR has flows.csv with a row for each combination of values, seed and
flow; the same for receivers and links; sweep.html with plots; and the folder runs with the summary
of each run.

Exit status: 0 done, 1 a run failed, is missing or was interrupted, 2 the file or arguments are wrong.")]
pub(crate) struct SweepArgs {
    /// Scenario file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Key of the scenario and its values, separated by commas; every combination is run. Commas
    /// within [], {} or quotes belong to a value. May be repeated
    #[arg(long = "set", value_name = "KEY=VALUE,...")]
    pub(crate) set: Vec<String>,
    /// Number of seeds: each combination runs with the seeds 1 to N
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "seed")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) seeds: u32,
    /// Run each combination with this seed only
    #[arg(long, value_name = "N", value_parser = seed)]
    pub(crate) seed: Option<u64>,
    /// Folder for runs, tables and plots
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Number of parallel runs [default: number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Place of the runs: sim, the simulator; lab, real sockets in real time, one run at a time
    #[arg(long, value_parser = on(), default_value = "sim", hide_possible_values = true)]
    pub(crate) on: On,
    /// Keep the trace of each run in DIR/runs: megabytes each
    #[arg(long, help_heading = "Output")]
    pub(crate) traces: bool,
    /// Print a command line for each missing run, and run nothing. Spaces and quotes are
    /// percent-encoded, as in url:duration=100%20s, so that lines pass through sh and xargs
    #[arg(long, help_heading = "Clusters", conflicts_with_all = ["collect", "part", "json"])]
    pub(crate) print: bool,
    /// Make tables and plots of the finished runs, and run nothing
    #[arg(long, help_heading = "Clusters", conflicts_with = "part")]
    pub(crate) collect: bool,
    /// Also write the plots as SVG into DIR/svg, for papers; the page saves PNG
    #[arg(long, help_heading = "Output", conflicts_with_all = ["print", "part"])]
    pub(crate) svg: bool,
    /// Run and keep a part of a sweep, without tables and plots; --print writes such commands
    #[arg(long, help_heading = "Clusters", conflicts_with = "json")]
    pub(crate) part: bool,
    /// Print the table of flows as one JSON document
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}
