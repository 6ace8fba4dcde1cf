//! `faircast relay`.

use std::net::SocketAddr;

use clap::{Args, Subcommand};
use faircast_base::Bitrate;

use super::live::{KeyOptions, WatchOptions, address, group, rate};

/// Arguments of `faircast relay`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faircast relay --listen 0.0.0.0:7600                                   the uppermost, at the main site
  faircast relay --listen 0.0.0.0:7600 --parent hq.example:7600          one at another site
  faircast relay --listen 0.0.0.0:7600 --parent a:7600,b:7600 --key group.key --metrics 127.0.0.1:9464
  faircast relay --listen 0.0.0.0:7600 --group 239.192.7.2:7601 --interface eth1   and once for all there
  faircast relay status 127.0.0.1:9464                                   how that one stands
  faircast recv --via 10.1.0.1:7600 --meeting images --into in         on hosts of that site
  faircast send FILE --via 10.0.0.1:7600 --meeting images              anywhere in the tree

Senders and receivers of a session name one --meeting. Packets cross each link between relays once. Receivers and
relays behind address translation may be attached: they begin. A relay that is started again at its
address goes on within seconds. Ctrl-C ends it.

Exit status: 0 ended by Ctrl-C, 1 it failed, 2 the arguments are wrong.")]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct RelayArgs {
    /// Instead of being a relay
    #[command(subcommand)]
    pub verb: Option<RelayVerb>,
    /// The address and port to hear at
    #[arg(long, value_name = "ADDR:PORT", value_parser = address, required = true)]
    pub listen: Option<SocketAddr>,
    /// The relay above, or several of which the first that answers is taken; none for the uppermost
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', num_args = 1..)]
    pub parent: Vec<String>,
    /// The name of the relay, for people; the host's where none is given
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Send by multicast to this group beside, once for all receivers that hear it there; they find out by themselves
    #[arg(long, value_name = "GROUP:PORT", value_parser = group)]
    pub group: Option<SocketAddr>,
    /// The interface to send to that group by, by name or address; may be repeated, to send by each; the
    /// system's routes choose where none is given
    #[arg(long, value_name = "NAME", requires = "group")]
    pub interface: Vec<String>,
    /// Routers that packets to that group may pass: 1 keeps them in this network
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..), requires = "group")]
    pub ttl: u8,
    /// Never send packets of sessions faster than this to each neighbour, the relay above included,
    /// nor each meeting by multicast; such as 100Mbit/s, or 100M [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub rate_max: Option<Bitrate>,
    /// Hosts and relays that may be attached
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub neighbours_max: u32,
    /// Hosts and relays at one IPv4 address, as behind address translation, or in one IPv6 /64
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub at_host_max: u32,
    /// A setting of the relay program `credit`; may be repeated; `faircast schemes credit` lists them
    #[arg(long = "option", value_name = "KEY=VALUE")]
    pub options: Vec<String>,
    /// Run programs that this key has signed, and no others; may be repeated; `faircast program` makes such keys. Default: all
    /// programs with --key or at a loopback address, otherwise none
    #[arg(long = "signer", value_name = "KEY")]
    pub signers: Vec<String>,
    /// The key of the group.
    #[command(flatten)]
    pub key: KeyOptions,
    /// How to watch it.
    #[command(flatten)]
    pub watch: WatchOptions,
}

/// What to do instead of being a relay.
#[derive(Debug, Subcommand)]
pub enum RelayVerb {
    /// Print how a relay stands: who is attached to it, and what it serves
    Status(RelayStatusArgs),
}

/// Arguments of `faircast relay status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: 0 done, 1 there is no relay, or none that serves its status, 2 the arguments are wrong.")]
pub struct RelayStatusArgs {
    /// The --metrics of the relay
    #[arg(value_name = "ADDR:PORT", value_parser = address)]
    pub at: SocketAddr,
    /// Print it as one JSON document
    #[arg(long)]
    pub json: bool,
}
