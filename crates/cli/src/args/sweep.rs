//! Arguments of `faircast sweep`.

use std::path::PathBuf;

use super::{On, seed};

/// Arguments of `faircast sweep`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  faircast sweep scenarios/pgmcc-beside-tcp.toml --seeds 5 --out out/sweep \\
      --set 'flow.mcc.options.acker_bias=0.5,0.6,0.7' --set 'link.0.rate=500 kbit/s,1 Mbit/s'
  faircast sweep FILE --set KEY=VALUE,VALUE --out DIR --print > runs.txt     for a cluster,
  faircast sweep FILE --set KEY=VALUE,VALUE --out DIR --collect              and its results

What was done is kept: the same command again goes on where it stopped, and with more values or
seeds runs only what is new. DIR then has flows.csv and flows.parquet, with a row for each
combination of values, seed and flow; the same for receivers and links; sweep.html with plots; and
runs, with the summary of each run.

Exit status: 0 done, 1 a run failed, is missing or was interrupted, 2 the file or arguments are wrong.")]
pub struct SweepArgs {
    /// The scenario file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// A key of the scenario with its values, commas between; every combination is run. Commas
    /// within [], {} or quotes belong to a value. May be repeated
    #[arg(long = "set", value_name = "KEY=VALUE,...")]
    pub set: Vec<String>,
    /// Run each combination with the seeds 1 to N
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "seed")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub seeds: u32,
    /// Run each combination with this seed alone
    #[arg(long, value_name = "N", value_parser = seed)]
    pub seed: Option<u64>,
    /// Where runs are kept, and tables and plots are written to
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Runs at the same time; one for each core where none is given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Where to run: sim, the simulator; lab, real sockets in real time, one run after the other
    #[arg(long, value_enum, default_value = "sim", hide_possible_values = true)]
    pub on: On,
    /// Keep the trace of each run too, in DIR/runs: megabytes for each
    #[arg(long)]
    pub traces: bool,
    /// Print a command line for each run that is still to be done, and run nothing. Words with spaces or quotes
    /// have escapes (url:duration=100%20s): lines pass through sh, xargs and schedulers unchanged
    #[arg(long, conflicts_with_all = ["collect", "part", "json"])]
    pub print: bool,
    /// Make tables and plots of the runs that are there, and run nothing
    #[arg(long, conflicts_with = "part")]
    pub collect: bool,
    /// Write the plots as pictures for papers into DIR/svg; the page saves PNG too
    #[arg(long, conflicts_with_all = ["print", "part"])]
    pub svg: bool,
    /// Run and keep, and make neither tables nor plots: a part of a sweep, as --print writes it
    #[arg(long, conflicts_with = "json")]
    pub part: bool,
    /// Print the table of flows as one JSON document
    #[arg(long)]
    pub json: bool,
}
