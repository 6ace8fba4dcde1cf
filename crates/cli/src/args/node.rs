//! `faircast node`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use faircast_base::Duration;

use super::live::{address, quantity};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faircast node init overlay --sites 2           writes overlay/site1.toml, site2.toml and a key
  faircast node --config overlay/site1.toml      runs the daemon of the first site
  faircast node status                           its links, view, groups and clients
  faircast node top                              rates and queues, each second
  faircast node rehearse --faults 1min -- ./my-test
  faircast sub chat                              in one terminal, and in another:
  echo hello | faircast pub chat

A browser shows the overlay live at the `status` address, such as http://127.0.0.1:9480/.
docs/overlay.md has first steps and a unit for systemd, docs/promises.md the guarantees of messages.
FAIRCAST_LOG=info chooses what is logged. Ctrl-C ends the daemon.

Exit status: 0 ended by Ctrl-C, 1 it failed, 2 the arguments or the configuration are wrong.")]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct NodeArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<NodeVerb>,
    /// File with the configuration; `faircast node init` writes one
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) config: Option<PathBuf>,
    /// Write the log to standard error as JSON
    #[arg(long)]
    pub(crate) log_json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeVerb {
    /// Write a configuration for each site, and one key for all
    Init(NodeInitArgs),
    /// Print the links, view, groups and clients of a daemon
    Status(NodeStatusArgs),
    /// Show rates and queues of the links and clients of a daemon until Ctrl-C
    Top(NodeTopArgs),
    /// Run a program beside daemons that are killed and partitioned
    Rehearse(NodeRehearseArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  faircast node init overlay --sites 3
  faircast node init overlay --sites 2 --host hq.example.org --host backup.example.org --tls

Files that exist are not overwritten. Replace the example hosts in `peers` by your own, and bring to
each site its configuration and the key.

With --tls clients of other hosts connect to tls:HOST:4804, by overlay-ca.pem and a token. The key of
the CA is not kept.

Exit status: 0 done, 1 a file cannot be written, 2 the arguments are wrong.")]
pub(crate) struct NodeInitArgs {
    /// Folder for the files
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Number of sites
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=128))]
    pub(crate) sites: u16,
    /// Host name or IP address of the first site, of the second and so on [default: siteN.example]
    #[arg(long = "host", value_name = "HOST")]
    pub(crate) hosts: Vec<String>,
    /// Serve clients of other hosts by TLS: write a CA, a certificate for each host, and a token
    #[arg(long)]
    pub(crate) tls: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: 0 done, 1 no daemon serves its status there, 2 the arguments are wrong.")]
pub(crate) struct NodeStatusArgs {
    /// Address of `status` in the configuration of the daemon
    #[arg(value_name = "ADDR:PORT", value_parser = address, default_value = "127.0.0.1:9480")]
    pub(crate) at: SocketAddr,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The busiest 15 of each table are shown. Ctrl-C ends it.

Exit status: 0 ended by Ctrl-C or --count, 1 no daemon serves its status there, 2 the arguments are
wrong.")]
pub(crate) struct NodeTopArgs {
    /// Address of `status` in the configuration of the daemon
    #[arg(value_name = "ADDR:PORT", value_parser = address, default_value = "127.0.0.1:9480")]
    pub(crate) at: SocketAddr,
    /// Interval between two pages
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = quantity::<Duration>)]
    pub(crate) interval: Duration,
    /// Number of pages after which the program ends [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: Option<u32>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faircast node rehearse -- ./my-test                          30 s of faults from a random seed
  faircast node rehearse --seed 7 --faults 5min -- python3 test.py
  faircast node rehearse --daemons 2 --faults 0s               until Ctrl-C, without faults

The daemons run in this process, with a link between each two of them. The program gets their
addresses in FAIRCAST_DAEMONS, separated by spaces, and the seed in FAIRCAST_SEED. Kinds and moments
of faults follow from the seed. After the last fault all daemons are in one view again, and the
program goes on until it ends.

Exit status: 0 the program has ended with 0, or Ctrl-C; 1 it failed, or the daemons did; 2 the
arguments are wrong.")]
pub(crate) struct NodeRehearseArgs {
    /// Number of daemons
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) daemons: u8,
    /// Seed of the faults [default: drawn and printed]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Time during which faults happen
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = quantity::<Duration>)]
    pub(crate) faults: Duration,
    /// Program and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}
