//! The one definition of the command line: parser, help, completions and man pages come from it.

mod check;
mod clean;
mod files;
mod groups;
mod key;
mod live;
mod node;
mod program;
mod recv;
mod relay;
mod send;
mod soak;
mod sweep;

pub use check::CheckArgs;
pub use clean::CleanArgs;
pub use groups::{ConnectOptions, PubArgs, SubArgs};
pub use key::{KeyArgs, KeyVerb};
pub(crate) use live::socket_address;
pub use live::{KeyOptions, ViaOptions, WatchOptions};
pub use node::{NodeArgs, NodeInitArgs, NodeRehearseArgs, NodeStatusArgs, NodeTopArgs, NodeVerb};
pub use program::{ProgramArgs, ProgramVerb};
pub use recv::RecvArgs;
pub use relay::{RelayArgs, RelayStatusArgs, RelayVerb};
pub use send::SendArgs;
pub(crate) use send::fec;
pub use soak::SoakArgs;
pub use sweep::SweepArgs;

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

/// Reliable multicast that shares the network fairly.
#[derive(Debug, Parser)]
#[command(
    name = "faircast",
    version,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = "\
Begin with:
  faircast demo                                    a file to three receivers beside TCP
  faircast recv --group 239.192.7.1:7500 --into in          on some machines
  faircast send FILE --group 239.192.7.1:7500 --wait-for 3  on one of the same network
  faircast run scenarios/pgmcc-beside-tcp.toml     one experiment
  faircast help run                                what else that can do"
)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Send files and folders to many receivers
    Send(Box<SendArgs>),
    /// Receive what is sent to a group
    Recv(Box<RecvArgs>),
    /// Join sites that have no multicast between them: pass sessions on to hosts and relays
    Relay(Box<RelayArgs>),
    /// Run a daemon of the overlay: groups of clients across sites, with ordered messages
    Node(NodeArgs),
    /// Send lines of standard input to a group of the overlay
    Pub(PubArgs),
    /// Print the messages of groups of the overlay
    Sub(SubArgs),
    /// Check and sign programs that sessions bring to relays
    Program(ProgramArgs),
    /// Look at this host and its network: what would keep a transfer from going well
    Check(Box<CheckArgs>),
    /// Remove leftovers of transfers that were cut off
    Clean(CleanArgs),
    /// Make a key for a group, or show the id of one
    Key(KeyArgs),
    /// Run a scenario and print what each flow got
    Run(RunArgs),
    /// Run a scenario with every combination of some values, into one table
    Sweep(SweepArgs),
    /// Run suites of experiments and compare them with published figures
    Bench(BenchArgs),
    /// Ask what the lab can do on this machine
    Lab {
        /// What to ask
        #[command(subcommand)]
        verb: LabVerb,
    },
    /// Send and receive for real while links and programs fail, and compare every byte
    Soak(SoakArgs),
    /// Send a real file to three receivers beside TCP, in the simulator
    Demo(DemoArgs),
    /// Make the summary and the report of a run again from its trace
    Report(ReportArgs),
    /// List the protocols and router programs with their options
    Schemes(SchemesArgs),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the man page, or write one for each verb into a folder
    Man {
        /// The folder to write to
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

/// What to ask of the lab.
#[derive(Debug, Subcommand)]
pub enum LabVerb {
    /// Whether the lab runs here, what is missing, and up to which rate its links are exact
    Check(LabCheckArgs),
}

/// Arguments of `faircast lab check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Takes about ten seconds. The lab needs Linux and root: CAP_SYS_ADMIN for network namespaces,
CAP_NET_ADMIN and /dev/net/tun for their interfaces, CAP_SYS_NICE to be on time.

Exit status: 0 the lab runs here, 1 something is missing, 2 the arguments are wrong.")]
pub struct LabCheckArgs {
    /// Print the figures as one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Where a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// In the simulator, in virtual time
    Sim,
    /// Between network namespaces of this machine, in real time
    Lab,
}

/// Arguments of `faircast run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  faircast run scenarios/pgmcc-beside-tcp.toml
  faircast run scenarios/pgmcc-beside-tcp.toml --out out --set link.0.rate='1 Mbit/s'
  faircast run scenarios/pgmcc-beside-tcp.toml --set flow.mcc.options.profile=draft --json
  faircast run scenarios/lab/beside-cubic.toml --on lab

Exit status: 0 done, 1 the run failed, was interrupted, or ran in the lab too late to be valid, 2 the
file or arguments are wrong.")]
pub struct RunArgs {
    /// The scenario file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Where to run it: sim, the simulator in virtual time; lab, real sockets and the kernel's TCP
    /// over links emulated in real time (Linux, as root)
    #[arg(long, value_enum, default_value = "sim", hide_possible_values = true)]
    pub on: On,
    /// Seed of all randomness, instead of the file's
    #[arg(long, value_name = "N", value_parser = seed, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// Write summary.json, trace.jsonl.gz and report.html into this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the summary as one JSON document instead of a table
    #[arg(long)]
    pub json: bool,
    /// Change a key of the scenario, such as flow.mcc.packet='1000 B'; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("expected a whole number from 0 to {}", u64::MAX))
}

/// Arguments of `faircast bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  faircast bench                          every suite of experiments
  faircast bench fairness --out out       with a page of plots
  faircast bench fairness --scheme pgmcc --option profile=draft
  faircast bench tcp --only droplist
  faircast bench matrix --quick           all schemes beside each other, a short look
  faircast bench matrix --out out         in full, with a heat map and pages of the worst runs
  faircast bench speed --json             how fast the simulator is here
  faircast bench tram-scale               TRAM with up to 100 000 receivers
  faircast bench cost-benefit             prices of overlay links and senders that pay
  faircast bench cost-benefit-compare     the same overlays with TCP, credits or back pressure
  sudo faircast bench wire --size 256MB   what a key and a tree cost on real sockets here
  faircast bench overlay --live           groups through daemons on this machine
  sudo faircast bench attack              what a host on the network can do to a transfer
  sudo faircast bench sim-vs-lab          whether the lab gives what the simulator gives
  sudo faircast bench tram --on lab       TRAM beside the kernel's TCP, in real time

Exit status: 0 every judged or fitted row holds, 1 a row misses, explained or not, 2 the arguments are
wrong.")]
pub struct BenchArgs {
    /// The suites to run: tcp, fairness, fec, tfmcc, ormcc, tram, credit, tram-scale, cost-benefit,
    /// cost-benefit-compare, cost-benefit-ablation, speed, wire, overlay, attack, matrix,
    /// sim-vs-lab, or the path of a suite file; the first seven where none is given
    #[arg(value_name = "SUITE")]
    pub suites: Vec<String>,
    /// Print the rows as JSON, one document a suite
    #[arg(long)]
    pub json: bool,
    /// Write a page of plots and the rows as JSON for each suite into this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Where to run it: sim, the simulator; lab, the experiments that a suite has for real sockets and
    /// the kernel's TCP in real time (Linux, as root)
    #[arg(long, value_enum, default_value = "sim", hide_possible_values = true)]
    pub on: On,
    /// Runs at the same time; one for each core where none is given, and in the lab one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Seeds for each experiment, instead of the suite's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub seeds: Option<u32>,
    /// Run only experiments whose id contains this; in the suite matrix several with commas between
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Judge this scheme in place of the suite's own, and print a score table; in the suites wire
    /// and attack, send with it; in the suite matrix compare these, with commas between, instead of all
    #[arg(long, value_name = "NAME")]
    pub scheme: Option<String>,
    /// An option of that scheme; may be repeated
    #[arg(long = "option", alias = "options", value_name = "KEY=VALUE", requires = "scheme")]
    pub options: Vec<String>,
    /// List suites and experiments without running them
    #[arg(long)]
    pub list: bool,
    /// Bytes to send in the suite wire, such as 256MB
    #[arg(long, value_name = "SIZE", default_value = "1GB", value_parser = size)]
    pub size: u64,
    /// Rounds of the suite wire, each with every case once
    #[arg(long, value_name = "N", default_value = "3")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// In the suite attack, send and receive with this program, such as an older faircast
    #[arg(long, value_name = "PATH")]
    pub program: Option<PathBuf>,
    /// Real sockets in the suite overlay, which has no other runs yet
    #[arg(long)]
    pub live: bool,
    /// In the suite matrix, run fewer and shorter cases, and one seed where --seeds does not say
    #[arg(long)]
    pub quick: bool,
    /// Compare in the cases of this file instead of the matrix's own
    #[arg(long, value_name = "FILE")]
    pub cases: Option<PathBuf>,
    /// Write a page of the documentation: the matrix into docs/comparison.md, or verdicts of suites into
    /// docs/verdicts.md. Columns of other schemes (--scheme) and sections of other suites stay as they are
    #[arg(long, value_name = "FILE")]
    pub docs: Option<PathBuf>,
    /// Run one case of the suite speed in this process and print its figures
    #[arg(long, hide = true, value_name = "CASE")]
    pub speed_case: Option<String>,
}

/// A number of bytes: `256MB`, `1 GB`, `5000000`.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || "expected 1MB to 1000GB".to_string();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit: u64 = match unit.trim() {
        "" | "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return Err(wrong()),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes.filter(|bytes| (1_000_000..=1_000_000_000_000).contains(bytes)).ok_or_else(wrong)
}

/// Arguments of `faircast demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit status: 0 every copy is whole, 1 one is not, 2 the arguments are wrong.")]
pub struct DemoArgs {
    /// The file to send; this program itself where none is given
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,
    /// Where to write the report
    #[arg(long, value_name = "DIR", default_value = "out/demo")]
    pub out: PathBuf,
}

/// Arguments of `faircast report`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  faircast report out                    the page again
  faircast report out --csv --svg        the series of the plots, and pictures for a paper

A trace is read as far as it goes, so that a run that was killed has a report too.

Exit status: 0 done, 1 a file cannot be written, 2 the trace or the arguments are wrong.")]
pub struct ReportArgs {
    /// The trace, or the folder that holds it
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Where to write report.html and summary.json; the trace's folder where none is given
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the series that the plots show into the folder `csv` there, a table for each plot
    #[arg(long)]
    pub csv: bool,
    /// Write the plots as pictures for papers into the folder `svg` there; the page saves PNG too
    #[arg(long)]
    pub svg: bool,
    /// Print the summary as JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `faircast schemes`.
#[derive(Debug, clap::Args)]
pub struct SchemesArgs {
    /// Only this one
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Print them as JSON
    #[arg(long)]
    pub json: bool,
}
