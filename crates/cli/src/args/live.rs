//! Arguments that `send` and `recv` have in common.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::path::PathBuf;

use clap::Args;
use faircast_base::{Bitrate, Bytes, Duration, Quantity};
use faircast_net::interface_name;
use faircast_proto::catalog::live_stacks;
use nix::net::if_::if_nametoindex;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Encryption")]
pub(crate) struct KeyOptions {
    /// File with the key that encrypts and authenticates all packets; `faircast key new` makes one
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Accept a key file that other users can read
    #[arg(long, requires = "key")]
    pub(crate) key_exposed: bool,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Relays")]
pub(crate) struct ViaOptions {
    /// Relay to attach to; the first of several that answers is used; see `faircast relay`
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', num_args = 1.., conflicts_with = "interface")]
    pub(crate) via: Vec<String>,
    /// Name of the session at relays, the same for senders and receivers, such as `images`; a
    /// --group address serves as a name too
    #[arg(long, value_name = "NAME", requires = "via", conflicts_with = "group")]
    pub(crate) meeting: Option<String>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct WatchOptions {
    /// Address that serves metrics for Prometheus at /metrics
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Print events as JSON, one a line, instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Print errors and the result of a transfer alone
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// Write the log to standard error as JSON; FAIRCAST_LOG=debug sets its level
    #[arg(long)]
    pub(crate) log_json: bool,
}

pub(super) fn group(text: &str) -> Result<SocketAddr, String> {
    let expected = "expected a group and a port, such as 239.192.7.1:7500 or [ff15::7:1]:7500";
    match socket_address(text)? {
        Some(group) if !group.ip().is_multicast() => Err(format!(
            "{} is not a multicast address (IPv4: 224.0.0.0/4, IPv6: ff00::/8); {expected}; hosts \
             are reached one by one with send --to and recv --listen",
            group.ip()
        )),
        Some(group) if group.port() > 0 => Ok(group),
        _ => Err(expected.to_string()),
    }
}

/// Parses an address and a port. IPv6 addresses may have a zone, the name or number of an
/// interface: `[ff12::7%eth0]:7500`. `None` if the text is no address.
///
/// # Errors
/// The zone is no interface of this host.
pub(crate) fn socket_address(text: &str) -> Result<Option<SocketAddr>, String> {
    let Some((start, rest)) = text.split_once('%') else { return Ok(text.parse().ok()) };
    let Some((zone, port)) = rest.split_once("]:") else { return Ok(None) };
    let Ok(SocketAddr::V6(mut address)) = format!("{start}]:{port}").parse() else {
        return Ok(None);
    };
    address.set_scope_id(zone_index(zone)?);
    Ok(Some(address.into()))
}

/// Parses an address; an IPv6 address may have a zone. The port is 0.
pub(super) fn source(text: &str) -> Result<SocketAddr, String> {
    let (address, zone) = text.split_once('%').unwrap_or((text, ""));
    let ip = address.parse::<IpAddr>();
    let expected = "expected an address, such as 10.0.0.1 or fe80::1%eth0";
    let ip = ip.ok().filter(|ip| zone.is_empty() || ip.is_ipv6()).ok_or(expected)?;
    match ip {
        IpAddr::V6(ip) if !zone.is_empty() => {
            Ok(SocketAddrV6::new(ip, 0, 0, zone_index(zone)?).into())
        }
        ip => Ok(SocketAddr::new(ip, 0)),
    }
}

fn zone_index(zone: &str) -> Result<u32, String> {
    let number = zone.parse().ok().filter(|number| interface_name(*number).is_some());
    let found = if_nametoindex(zone).ok().or(number);
    found.ok_or_else(|| format!("the zone `%{zone}` is no interface of this host; see `ip link`"))
}

pub(super) fn scheme(text: &str) -> Result<String, String> {
    let known: Vec<String> = live_stacks().map(|stack| stack.name()).collect();
    let found = known.iter().find(|name| *name == text);
    found.cloned().ok_or_else(|| format!("there are {}", known.join(", ")))
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let address = socket_address(text)?.filter(|address| address.port() > 0);
    address.ok_or_else(|| {
        "expected an address and a port, such as 127.0.0.1:9464 or [::1]:9464".to_string()
    })
}

/// Parses a limit of silence. Both ends send about once a second.
pub(super) fn silence(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if time < Duration::from_secs(1) => Err("expected 1 s or more".to_string()),
        time => Ok(time),
    }
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    quantity(text)
}

pub(super) fn rate(text: &str) -> Result<Bitrate, String> {
    match quantity::<Bitrate>(text)? {
        rate if rate.bits_per_s() == 0 => Err("must be above zero".to_string()),
        rate => Ok(rate),
    }
}

pub(super) fn bytes(text: &str) -> Result<Bytes, String> {
    match text.parse() {
        Ok(count) => Ok(Bytes::new(count)),
        Err(_) => quantity(text),
    }
}

pub(super) fn receivers(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=65_536).contains(number));
    number.ok_or_else(|| "expected a whole number from 1 to 65536".to_string())
}

pub(super) fn quantity<Q: Quantity>(text: &str) -> Result<Q, String> {
    Q::parse(text).map_err(|error| error.to_string())
}
