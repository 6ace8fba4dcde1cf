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

pub(crate) use check::CheckArgs;
pub(crate) use clean::CleanArgs;
pub(crate) use groups::{ConnectOptions, PubArgs, SubArgs};
pub(crate) use key::{KeyArgs, KeyVerb};
pub(crate) use live::{KeyOptions, ViaOptions, WatchOptions, socket_address};
pub(crate) use node::{
    NodeArgs, NodeInitArgs, NodeRehearseArgs, NodeStatusArgs, NodeTopArgs, NodeVerb,
};
pub(crate) use program::{ProgramArgs, ProgramVerb};
pub(crate) use recv::RecvArgs;
pub(crate) use relay::{RelayArgs, RelayStatusArgs, RelayVerb};
pub(crate) use send::{SendArgs, fec};
pub(crate) use soak::SoakArgs;
pub(crate) use sweep::SweepArgs;

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Command, CommandFactory as _, Parser, Subcommand};
use faircast_trace::On;

/// Reliable multicast that shares the network fairly.
#[derive(Debug, Parser)]
#[command(
    name = "faircast",
    version,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = "\
First steps:
  faircast demo                                             a file to three receivers beside TCP
  faircast recv --group 239.192.7.1:7500 --into in          on three machines of a network
  faircast send FILE --group 239.192.7.1:7500 --wait-for 3  on a fourth one
  faircast run scenarios/pgmcc-beside-tcp.toml              one experiment
  faircast help run                                         options and examples of a command"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Commands by purpose, as the help lists them.
const PURPOSES: [(&str, &[&str]); 4] = [
    ("Files to many hosts", &["send", "recv", "relay", "check", "key", "clean", "program"]),
    ("Groups across sites", &["node", "pub", "sub"]),
    ("Experiments", &["demo", "run", "sweep", "bench", "report", "schemes", "lab", "soak"]),
    ("Shell", &["completions", "man", "help"]),
];

impl Args {
    pub(crate) fn definition() -> Command {
        let mut command = Self::command();
        command.build();
        let mut list = String::new();
        for (purpose, names) in PURPOSES {
            let _ = write!(list, "\n{purpose}:\n");
            for name in names {
                let about = command.find_subcommand(name).and_then(Command::get_about);
                let about = about.map(ToString::to_string).unwrap_or_default();
                let _ = writeln!(list, "  {name:12} {about}");
            }
        }
        let template = "{about-with-newline}\n{usage-heading} {usage}\n";
        command.help_template(format!("{template}{list}\nOptions:\n{{options}}{{after-help}}"))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Send files and folders to many receivers
    Send(Box<SendArgs>),
    /// Receive files and folders of a group
    Recv(Box<RecvArgs>),
    /// Forward sessions between sites that have no multicast between them
    Relay(Box<RelayArgs>),
    /// Run a daemon of the overlay: groups across sites, with ordered messages
    Node(NodeArgs),
    /// Send lines of standard input to a group of the overlay
    Pub(PubArgs),
    /// Print the messages of groups of the overlay
    Sub(SubArgs),
    /// Check and sign programs that sessions run at relays
    Program(ProgramArgs),
    /// Check this host and its network for obstacles to a transfer
    Check(Box<CheckArgs>),
    /// Remove leftovers of interrupted transfers
    Clean(CleanArgs),
    /// Make the key of a group, or print the id of a key
    Key(KeyArgs),
    /// Run a scenario and print the throughput of each flow
    Run(RunArgs),
    /// Run a scenario with every combination of some values, into one table
    Sweep(SweepArgs),
    /// Run suites of experiments and compare them with published figures
    Bench(BenchArgs),
    /// Check the lab on this machine
    Lab {
        #[command(subcommand)]
        verb: LabVerb,
    },
    /// Send and receive files while links and programs fail, and compare every byte
    Soak(SoakArgs),
    /// Send a file to three receivers beside TCP, in the simulator
    Demo(DemoArgs),
    /// Make the summary and the report of a run from its trace
    Report(ReportArgs),
    /// List the protocols and router programs with their options
    Schemes(SchemesArgs),
    /// Print completions for a shell
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Print the man page, or write one for each command into a folder
    Man {
        /// Folder for the pages
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabVerb {
    /// Print whether the lab runs here, what is missing, and the highest exact rate of its links
    Check(LabCheckArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Takes about ten seconds. The lab needs Linux and root: CAP_SYS_ADMIN for network namespaces,
CAP_NET_ADMIN and /dev/net/tun for their interfaces, CAP_SYS_NICE to be on time.

Exit status: 0 the lab runs here, 1 something is missing, 2 the arguments are wrong.")]
pub(crate) struct LabCheckArgs {
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

fn on() -> impl TypedValueParser<Value = On> {
    let values = [
        ("sim", "In the simulator, in virtual time"),
        ("lab", "Between network namespaces of this machine, in real time"),
    ];
    let values = values.map(|(name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(values).map(|name| if name == "lab" { On::Lab } else { On::Sim })
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  faircast run scenarios/pgmcc-beside-tcp.toml
  faircast run scenarios/pgmcc-beside-tcp.toml --out out --set link.0.rate='1 Mbit/s'
  faircast run scenarios/pgmcc-beside-tcp.toml --set flow.mcc.options.profile=draft --json
  faircast run scenarios/lab/beside-cubic.toml --on lab

Exit status: 0 done, 1 the run failed, was interrupted, or ran in the lab too late to be valid, 2 the
file or arguments are wrong.")]
pub(crate) struct RunArgs {
    /// Scenario file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Place of the run: sim, the simulator in virtual time; lab, real sockets and the kernel's TCP
    /// over links emulated in real time (Linux, as root)
    #[arg(long, value_parser = on(), default_value = "sim", hide_possible_values = true)]
    pub(crate) on: On,
    /// Seed of all randomness [default: the file's]
    #[arg(long, value_name = "N", value_parser = seed, allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,
    /// Folder for summary.json, trace.jsonl.gz and report.html
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the summary as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// New value of a key of the scenario, such as flow.mcc.packet='1000 B'; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("expected a whole number from 0 to {}", u64::MAX))
}

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
pub(crate) struct BenchArgs {
    /// Suites: tcp, fairness, fec, tfmcc, ormcc, tram, credit, tram-scale, cost-benefit,
    /// cost-benefit-compare, cost-benefit-ablation, speed, wire, overlay, attack, matrix,
    /// sim-vs-lab, or the path of a suite file [default: the first seven]
    #[arg(value_name = "SUITE")]
    pub(crate) suites: Vec<String>,
    /// Print one JSON document for each suite
    #[arg(long)]
    pub(crate) json: bool,
    /// Folder for a page of plots and the rows as JSON of each suite
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Place of the runs: sim, the simulator; lab, the experiments of a suite for real sockets and
    /// the kernel's TCP in real time (Linux, as root)
    #[arg(long, value_parser = on(), default_value = "sim", hide_possible_values = true)]
    pub(crate) on: On,
    /// Number of parallel runs [default: number of cores; in the lab 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Number of seeds for each experiment [default: the suite's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) seeds: Option<u32>,
    /// Text in the ids of the experiments to run; for the suite matrix several, separated by commas
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// Scheme to judge in place of the suite's own, with a table of scores; for the suites wire and
    /// attack the scheme of the sender; for the suite matrix several, separated by commas
    #[arg(long, value_name = "NAME")]
    pub(crate) scheme: Option<String>,
    /// Setting of that scheme; may be repeated
    #[arg(long = "option", alias = "options", value_name = "KEY=VALUE", requires = "scheme")]
    pub(crate) options: Vec<String>,
    /// List suites and experiments, and run nothing
    #[arg(long)]
    pub(crate) list: bool,
    /// Size of the content in the suite wire, such as 256MB
    #[arg(long, help_heading = "Single suites", value_name = "SIZE", default_value = "1GB", value_parser = size)]
    pub(crate) size: u64,
    /// Rounds of the suite wire, each with every case once
    #[arg(long, help_heading = "Single suites", value_name = "N", default_value = "3")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Program that the suite attack attacks, such as an older faircast [default: this program]
    #[arg(long, help_heading = "Single suites", value_name = "PATH")]
    pub(crate) program: Option<PathBuf>,
    /// Real sockets, which the suite overlay needs
    #[arg(long, help_heading = "Single suites")]
    pub(crate) live: bool,
    /// Fewer and shorter cases of the suite matrix, with one seed unless --seeds is given
    #[arg(long, help_heading = "Single suites")]
    pub(crate) quick: bool,
    /// File with cases for the suite matrix, in place of its own
    #[arg(long, help_heading = "Single suites", value_name = "FILE")]
    pub(crate) cases: Option<PathBuf>,
    /// Page of the documentation to renew: docs/comparison.md by the suite matrix, docs/verdicts.md
    /// by other suites. Columns of other schemes and sections of other suites stay
    #[arg(long, value_name = "FILE")]
    pub(crate) docs: Option<PathBuf>,
    /// Case of the suite speed to run in this process
    #[arg(long, hide = true, value_name = "CASE")]
    pub(crate) speed_case: Option<String>,
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

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit status: 0 every copy is whole, 1 one is not, 2 the arguments are wrong.")]
pub(crate) struct DemoArgs {
    /// File to send [default: this program]
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    /// Folder for the report
    #[arg(long, value_name = "DIR", default_value = "out/demo")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  faircast report out                    the page of a run
  faircast report out --csv --svg        the series of the plots, and pictures for a paper

A cut trace is read up to its end, so that a killed run has a report too.

Exit status: 0 done, 1 a file cannot be written, 2 the trace or the arguments are wrong.")]
pub(crate) struct ReportArgs {
    /// Trace, or folder with the trace
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// Folder for report.html and summary.json [default: folder of the trace]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Write a table of each plot into the subfolder `csv`
    #[arg(long)]
    pub(crate) csv: bool,
    /// Write the plots as pictures for papers into the subfolder `svg`; the page also saves PNG
    #[arg(long)]
    pub(crate) svg: bool,
    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SchemesArgs {
    /// Name of one protocol or program [default: all]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_help_lists_each_command_under_one_purpose() {
        let mut command = Args::definition();
        let listed: Vec<&str> = PURPOSES.iter().flat_map(|(_, names)| *names).copied().collect();
        let all: BTreeSet<&str> = command.get_subcommands().map(Command::get_name).collect();
        assert_eq!(listed.len(), all.len());
        assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), all);
        let help = command.render_help().to_string();
        assert!(help.contains("\nGroups across sites:\n  node         Run a daemon"), "{help}");
        assert!(help.contains("\nFirst steps:\n"), "{help}");
    }
}
