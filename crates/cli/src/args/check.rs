//! `faircast check`.

use std::net::SocketAddr;

use clap::Args;
use faircast_base::{Bitrate, Duration};

use super::live::{KeyOptions, duration, group, rate};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faircast check                                   this host alone
  faircast check --group 239.192.7.1:7500          multicast in both directions, together with the
                                                   same command on a second host
  faircast check --via 10.1.0.1:7600 --key group.key   a relay: answer and round trip
  faircast check --to 10.0.0.2:7500                a receiver with `recv --listen`, and the path
  faircast check --group 239.192.7.1:7500 --long   multicast after five minutes

A check with another host takes about ten seconds and measures packet sizes, loss and rate. It sends
at most 50 Mbit/s for one second.

Exit status: 0 no fault found, 1 a fault found, 2 the arguments are wrong.")]
pub(crate) struct CheckArgs {
    /// Multicast group and port to check
    #[arg(long, value_name = "GROUP:PORT", value_parser = group)]
    pub(crate) group: Option<SocketAddr>,
    /// Relay to check: answer, key, and path
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', num_args = 1..)]
    pub(crate) via: Vec<String>,
    /// Receivers (`recv --listen`) to check one by one: answer, key, round trip, and packet sizes
    /// that arrive
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', num_args = 1..)]
    pub(crate) to: Vec<String>,
    /// Interface for the group, by name or address [default: by the routes of the system]
    #[arg(long, value_name = "IF", requires = "group")]
    pub(crate) interface: Option<String>,
    /// Longest wait for another host that checks the same group; 0s checks this host alone
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) wait: Duration,
    /// Duration of a long check, which shows whether memberships last: without a querier switches
    /// forget them after 260 s
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "300s")]
    #[arg(value_parser = duration, requires = "group")]
    pub(crate) long: Option<Duration>,
    /// Rate of the probe packets, sent for one second
    #[arg(long, value_name = "RATE", default_value = "50Mbit/s", value_parser = rate)]
    pub(crate) rate: Bitrate,
    /// Most routers that packets pass; 1 keeps packets in this network
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) ttl: u8,
    #[command(flatten)]
    pub(crate) key: KeyOptions,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}
