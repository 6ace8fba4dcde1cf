//! `faircast node`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use faircast_base::Duration;

use super::live::{address, quantity};

/// Arguments of `faircast node`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faircast node init overlay --sites 2           writes overlay/site1.toml, site2.toml and a key
  faircast node --config overlay/site1.toml      runs the daemon of the first site
  faircast node status                           its links, view, groups and clients
  faircast node top                              rates and queues, every second
  faircast sub chat                              in one terminal, and in another:
  echo hello | faircast pub chat

docs/overlay.md has first steps and a unit for systemd, docs/promises.md the guarantees of messages.
FAIRCAST_LOG=info chooses what is logged. Ctrl-C ends the daemon.

Exit status: 0 ended by Ctrl-C, 1 it failed, 2 the arguments or the configuration are wrong.")]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct NodeArgs {
    /// Instead of running a daemon
    #[command(subcommand)]
    pub verb: Option<NodeVerb>,
    /// The configuration, such as `faircast node init` writes
    #[arg(long, value_name = "FILE", required = true)]
    pub config: Option<PathBuf>,
    /// Write the log to standard error as JSON
    #[arg(long)]
    pub log_json: bool,
}

/// Verb instead of running a daemon.
#[derive(Debug, Subcommand)]
pub enum NodeVerb {
    /// Write a configuration for each of several sites, and one key for all
    Init(NodeInitArgs),
    /// Print the state of a daemon: links, view, groups and clients
    Status(NodeStatusArgs),
    /// Show rates and queues of a daemon's links and clients until Ctrl-C
    Top(NodeTopArgs),
}

/// Arguments of `faircast node init`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  faircast node init overlay --sites 3

Files that exist are not overwritten. Replace the example hosts in `peers` by your own, and bring to
each site its configuration and the key.

Exit status: 0 done, 1 a file cannot be written, 2 the arguments are wrong.")]
pub struct NodeInitArgs {
    /// The folder to write to
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Number of sites
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=128))]
    pub sites: u16,
}

/// Arguments of `faircast node status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: 0 done, 1 no daemon serves its status there, 2 the arguments are wrong.")]
pub struct NodeStatusArgs {
    /// The `status` address of the daemon's configuration
    #[arg(value_name = "ADDR:PORT", value_parser = address, default_value = "127.0.0.1:9480")]
    pub at: SocketAddr,
    /// Print it as one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `faircast node top`.
#[derive(Debug, Args)]
#[command(after_help = "\
The busiest 15 of each table are shown. Ctrl-C ends it.

Exit status: 0 ended by Ctrl-C or --count, 1 no daemon serves its status there, 2 the arguments are
wrong.")]
pub struct NodeTopArgs {
    /// The `status` address of the daemon's configuration
    #[arg(value_name = "ADDR:PORT", value_parser = address, default_value = "127.0.0.1:9480")]
    pub at: SocketAddr,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = quantity::<Duration>)]
    pub interval: Duration,
    /// End after N pages [default: none]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub count: Option<u32>,
}
