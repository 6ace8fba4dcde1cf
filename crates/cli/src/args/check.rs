//! `faircast check`.

use std::net::SocketAddr;

use clap::Args;
use faircast_base::{Bitrate, Duration};

use super::live::{KeyOptions, duration, group, rate};

/// Arguments of `faircast check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faircast check                                   this host alone
  faircast check --group 239.192.7.1:7500          the same on a second host at the same time:
                                                   whether multicast arrives, both ways
  faircast check --via 10.1.0.1:7600 --key group.key   whether a relay answers, and how far it is
  faircast check --to 10.0.0.2:7500                whether `recv --listen` answers there, and the way to it
  faircast check --group 239.192.7.1:7500 --long   and whether it still does after five minutes

With another host that checks the same group it takes about ten seconds: which packets arrive, of which
size, how many get lost, and how fast they may come. It sends at most 50 Mbit/s for one second.

Exit status: 0 nothing is wrong, 1 something is, 2 the arguments are wrong.")]
pub struct CheckArgs {
    /// The group and port that are to be used
    #[arg(long, value_name = "GROUP:PORT", value_parser = group)]
    pub group: Option<SocketAddr>,
    /// Attach to a relay for a moment: whether it answers, with the same key, and the way there
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', num_args = 1..)]
    pub via: Vec<String>,
    /// Receivers (`recv --listen`) to probe one by one, as `send --to` would reach them: whether
    /// each answers, with the same key, the round trip, and which packets arrive
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', num_args = 1..)]
    pub to: Vec<String>,
    /// The interface to use, by name or address; the system's routes choose where none is given
    #[arg(long, value_name = "IF", requires = "group")]
    pub interface: Option<String>,
    /// How long to wait for another host that checks the same group; 0s looks at this one alone
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub wait: Duration,
    /// Go on for so long, to see whether memberships last: without a querier switches forget them
    /// after 260 s
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "300s")]
    #[arg(value_parser = duration, requires = "group")]
    pub long: Option<Duration>,
    /// How fast to send for one second
    #[arg(long, value_name = "RATE", default_value = "50Mbit/s", value_parser = rate)]
    pub rate: Bitrate,
    /// Hops that packets may travel; more than 1 leaves the own network
    #[arg(long, value_name = "N", default_value = "1")]
    pub ttl: u8,
    /// The key of the group.
    #[command(flatten)]
    pub key: KeyOptions,
    /// Print what was found as one JSON document
    #[arg(long)]
    pub json: bool,
}
