//! `faircast relay`.

use std::net::SocketAddr;

use clap::{Args, Subcommand};
use faircast_base::Bitrate;

use super::live::{KeyOptions, WatchOptions, address, group, rate};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faircast relay --listen 0.0.0.0:7600                                   the root, at the main site
  faircast relay --listen 0.0.0.0:7600 --parent hq.example:7600          one at another site
  faircast relay --listen 0.0.0.0:7600 --parent a:7600,b:7600 --key group.key --metrics 127.0.0.1:9464
  faircast relay --listen 0.0.0.0:7600 --group 239.192.7.2:7601 --interface eth1   multicast there
  faircast relay status 127.0.0.1:9464                                   its neighbours and sessions
  faircast recv --via 10.1.0.1:7600 --meeting images --into in         on hosts of that site
  faircast send FILE --via 10.0.0.1:7600 --meeting images              anywhere in the tree

Senders and receivers of a session name the same --meeting. Each packet crosses a link between relays
once. Hosts and relays behind address translation can attach, since they open the connection. A
restarted relay serves its sessions again within seconds. Ctrl-C ends it.

Exit status: 0 ended by Ctrl-C, 1 it failed, 2 the arguments are wrong.")]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct RelayArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<RelayVerb>,
    /// Address and port for hosts and other relays
    #[arg(long, value_name = "ADDR:PORT", value_parser = address, required = true)]
    pub(crate) listen: Option<SocketAddr>,
    /// Parent relay; the first of several that answers is used [default: none, for the root]
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', num_args = 1..)]
    pub(crate) parent: Vec<String>,
    /// Multicast group for receivers of this network, which then get each packet once; receivers
    /// find out by themselves
    #[arg(long, value_name = "GROUP:PORT", value_parser = group)]
    pub(crate) group: Option<SocketAddr>,
    /// Interface for the group, by name or address; repeat to use several [default: by the routes
    /// of the system]
    #[arg(long, value_name = "NAME", requires = "group")]
    pub(crate) interface: Vec<String>,
    /// Name of the relay in messages [default: name of the host]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Highest rate of session packets to each neighbour, the parent included, and of each session
    /// to the multicast group, such as 100Mbit/s or 100M [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = "Limits")]
    pub(crate) rate_max: Option<Bitrate>,
    /// Most routers that packets to the multicast group pass; 1 keeps them in this network
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..), requires = "group", help_heading = "Limits")]
    pub(crate) ttl: u8,
    /// Most attached hosts and relays
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=65536), help_heading = "Limits")]
    pub(crate) neighbours_max: u32,
    /// Most attached hosts and relays of one IPv4 address (address translation) or IPv6 /64
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65536), help_heading = "Limits")]
    pub(crate) at_host_max: u32,
    /// Setting of the relay program `credit`; may be repeated; `faircast schemes credit` lists all
    #[arg(long = "option", value_name = "KEY=VALUE", help_heading = "Programs of sessions")]
    pub(crate) options: Vec<String>,
    /// Key whose signed programs are run, and no others; may be repeated; `faircast program` makes
    /// such keys [default: all programs with --key or at a loopback address, else none]
    #[arg(long = "signer", value_name = "KEY", help_heading = "Programs of sessions")]
    pub(crate) signers: Vec<String>,
    #[command(flatten)]
    pub(crate) key: KeyOptions,
    #[command(flatten)]
    pub(crate) watch: WatchOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RelayVerb {
    /// Print the neighbours and sessions of a relay
    Status(RelayStatusArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: 0 done, 1 no relay serves its status there, 2 the arguments are wrong.")]
pub(crate) struct RelayStatusArgs {
    /// Address of the relay's --metrics
    #[arg(value_name = "ADDR:PORT", value_parser = address)]
    pub(crate) at: SocketAddr,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}
