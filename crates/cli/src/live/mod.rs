//! Common parts of `send` and `recv`: settings, error messages, interrupts.

mod above;
pub(crate) mod display;
pub(crate) mod metrics;
mod output;
pub(crate) mod words;

pub(crate) use above::Above;
pub(crate) use output::Output;

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use faircast::{Error, Exposure, Interface, KeyError, NetError, OptionValue};
use faircast_base::escaped_lines;
use faircast_proto::credit;
use faircast_proto::options::OptionKind;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::{KeyOptions, ViaOptions, WatchOptions, socket_address};
use crate::error::{Failure, Result};
use crate::key::exposure;

pub(crate) fn begin_log(watch: &WatchOptions) -> Result {
    let wanted = std::env::var("FAIRCAST_LOG").unwrap_or_else(|_| "warn".to_string());
    let filter = log_filter(&wanted)
        .map_err(|error| Failure::Usage(format!("FAIRCAST_LOG={wanted}: {error}")))?;
    let log = tracing_subscriber::registry().with(filter);
    let colours = io::stderr().is_terminal();
    let stderr = move || Escaping { colours };
    let lines = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(stderr);
    let _ = match watch.log_json {
        true => log.with(lines.json()).try_init(),
        false => log.with(lines).try_init(),
    };
    Ok(())
}

struct Escaping {
    colours: bool,
}

impl io::Write for Escaping {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        for (place, part) in text.split('\u{1b}').enumerate() {
            if place > 0 {
                io::stderr().write_all(if self.colours { b"\x1b" } else { b"\\u001b" })?;
            }
            io::stderr().write_all(escaped_lines(part).as_bytes())?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Parses a filter of the log: one level for all, and levels of single parts, separated by commas.
fn log_filter(text: &str) -> Result<Targets, String> {
    let (mut all, mut parts) = (LevelFilter::WARN, Vec::new());
    for item in text.split(',').map(str::trim) {
        match item.split_once('=') {
            None => all = level(item)?,
            Some((part, text)) if LOG_PARTS.contains(&part) => {
                parts.push((format!("faircast::{part}"), level(text)?));
            }
            Some((part, _)) => {
                let known = LOG_PARTS.join(", ");
                return Err(format!("there is no part \"{part}\"; expected one of {known}"));
            }
        }
    }
    let filter =
        Targets::new().with_default(all.min(LevelFilter::WARN)).with_target("faircast", all);
    Ok(filter.with_targets(parts))
}

fn level(text: &str) -> Result<LevelFilter, String> {
    let known = ["off", "error", "warn", "info", "debug", "trace"];
    let found = known.iter().find(|level| level.eq_ignore_ascii_case(text));
    found.and_then(|level| level.parse().ok()).ok_or_else(|| {
        format!(
            "there is no level \"{text}\"; expected one of {}, or PART=LEVEL with a part of {}",
            known.join(", "),
            LOG_PARTS.join(", ")
        )
    })
}

const LOG_PARTS: [&str; 3] = ["session", "control", "packets"];

pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Work(format!("the system gives no timers: {error}")))
}

pub(crate) fn with<B, T>(builder: B, given: Option<T>, set: impl FnOnce(B, T) -> B) -> B {
    match given {
        Some(given) => set(builder, given),
        None => builder,
    }
}

pub(crate) fn read_key<K>(
    options: &KeyOptions,
    read: fn(&Path, Exposure) -> Result<K, KeyError>,
) -> Result<Option<K>> {
    let read = |path| {
        read(path, exposure(options.key_exposed)).map_err(|error| {
            let advice = match error {
                KeyError::Exposed { .. } => "; --key-exposed takes it all the same",
                KeyError::File { error: ref said, .. }
                    if said.kind() == io::ErrorKind::NotFound =>
                {
                    "; expected a file that `faircast key new` has made"
                }
                _ => "",
            };
            Failure::Usage(format!("--key {error}{advice}"))
        })
    };
    options.key.as_deref().map(read).transpose()
}

pub(crate) fn relays(via: &ViaOptions, group: Option<SocketAddr>) -> Result<Vec<String>> {
    if !via.via.is_empty() && via.meeting.is_none() && group.is_none() {
        return Err(Failure::usage(
            "--via needs --meeting NAME, at which senders and receivers meet, such as \
                    --meeting images",
        ));
    }
    names("--via", &via.via)
}

/// Returns the hosts that `option` lists, each as `HOST:PORT`. Names are resolved at each use.
pub(crate) fn names(option: &str, hosts: &[String]) -> Result<Vec<String>> {
    let name = |host: &String| {
        if let Some(address) = socket_address(host)? {
            return checked(address).map(|address| address.to_string());
        }
        let port = host.rsplit_once(':').filter(|(name, _)| !name.is_empty());
        match port.and_then(|(_, port)| port.parse::<u16>().ok()) {
            Some(port) if port > 0 => Ok(host.clone()),
            _ => Err("expected HOST:PORT, such as hq.example:7600".to_string()),
        }
    };
    each(option, hosts, name)
}

fn each<T>(
    option: &str,
    hosts: &[String],
    read: impl Fn(&String) -> Result<T, String>,
) -> Result<Vec<T>> {
    let (mut all, mut wrong) = (Vec::new(), Vec::new());
    for host in hosts {
        match read(host) {
            Ok(one) => all.push(one),
            Err(what) => wrong.push(format!("{option} {host}: {what}")),
        }
    }
    if wrong.is_empty() { Ok(all) } else { Err(Failure::Usage(wrong.join("; "))) }
}

/// Returns the addresses that `--to` lists, each once, of the group's family if there is a group.
pub(crate) fn receivers(hosts: &[String], group: Option<SocketAddr>) -> Result<Vec<SocketAddr>> {
    let ipv6 = group.is_some_and(|group| group.is_ipv6());
    let mut all = each("--to", hosts, |host| resolve(host, ipv6))?;
    let mut seen = BTreeSet::new();
    all.retain(|address| seen.insert(*address));
    Ok(all)
}

pub(crate) fn interface(given: Option<&str>) -> Interface {
    match given {
        None => Interface::Any,
        Some(text) => match (text.parse::<IpAddr>(), text.split_once('%')) {
            (Ok(address), _) => Interface::Address(address),
            // The zone of an address names the interface.
            (_, Some((address, zone))) if address.parse::<IpAddr>().is_ok() => {
                Interface::Name(zone.to_string())
            }
            _ => Interface::Name(text.to_string()),
        },
    }
}

fn checked(address: SocketAddr) -> Result<SocketAddr, String> {
    if address.ip().is_multicast() {
        return Err("is a multicast group; use --group".to_string());
    }
    if address.port() == 0 {
        let text = "expected the port that `recv --listen` or `relay --listen` has, such as \
                    10.0.0.2:7500";
        return Err(text.to_string());
    }
    Ok(address)
}

fn resolve(host: &str, ipv6: bool) -> Result<SocketAddr, String> {
    // All addresses of a list have one family: IPv4 unless the group has IPv6.
    let mut all: Vec<SocketAddr> = match socket_address(host)? {
        Some(address) => vec![address],
        None => host
            .to_socket_addrs()
            .map_err(|error| format!("{error}; expected HOST:PORT, such as 10.0.0.2:7500"))?
            .collect(),
    };
    all.iter().try_for_each(|address| checked(*address).map(|_| ()))?;
    all.sort_by_key(|address| address.is_ipv6() != ipv6);
    all.first().copied().ok_or_else(|| "has no address".to_string())
}

/// Parses settings of the scheme, `KEY=VALUE` each. A file as the value is read.
pub(crate) fn options(given: &[String]) -> Result<Vec<(String, OptionValue)>> {
    let all = given.iter().map(|text| {
        let (key, value) = text.split_once('=').ok_or_else(|| {
            Failure::Usage(format!("--option {text}: expected KEY=VALUE, such as acker_bias=0.75"))
        })?;
        let (key, value) = (key.trim(), value.trim());
        let spec = credit::OPTIONS.iter().find(|spec| spec.name == key);
        let value = match spec.map(|spec| spec.kind) {
            Some(OptionKind::File { max_bytes }) => OptionValue::Bytes(
                read_small(Path::new(value), max_bytes)
                    .map_err(|error| Failure::Usage(format!("--option {key}={value}: {error}")))?
                    .into(),
            ),
            _ => option_value(value),
        };
        Ok((key.to_string(), value))
    });
    all.collect()
}

pub(crate) fn read_small(path: &Path, max_bytes: u32) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(u64::from(max_bytes) + 1).read_to_end(&mut bytes)?;
    match bytes.len() {
        len if (1..=max_bytes as usize).contains(&len) => Ok(bytes),
        _ => Err(std::io::Error::other(format!("expected a file of 1 to {max_bytes} bytes"))),
    }
}

pub(crate) fn write_new(file: &Path, mode: u32, text: &str) -> io::Result<()> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(file);
    opened?.write_all(text.as_bytes())
}

fn option_value(text: &str) -> OptionValue {
    let float = || text.parse().ok().filter(|value: &f64| value.is_finite());
    let boolean = text.parse().ok().map(OptionValue::Bool);
    let number = boolean.or_else(|| text.parse().ok().map(OptionValue::Integer));
    let number = number.or_else(|| float().map(OptionValue::Float));
    number.unwrap_or_else(|| OptionValue::Text(text.trim_matches('"').to_string()))
}

/// Converts an error of the library and adds the remedy. `multicast`: the transfer has a group.
pub(crate) fn failure(error: Error, multicast: bool) -> Failure {
    let text = error.to_string();
    match &error {
        Error::Net(net) => match net {
            NetError::Bind { error, .. } if error.kind() == io::ErrorKind::AddrInUse => {
                Failure::Work(format!("{text}; another program has the port: choose another one"))
            }
            NetError::Bind { error, .. } if error.kind() == io::ErrorKind::AddrNotAvailable => {
                Failure::Usage(format!("{text}; expected an address of this host, or 0.0.0.0"))
            }
            NetError::Socket { error, .. }
            | NetError::Bind { error, .. }
            | NetError::Join { error, .. } => match error.kind() {
                io::ErrorKind::PermissionDenied => Failure::Work(format!(
                    "{text}; a firewall or a sandbox forbids it, or the port needs root: choose one \
                     above 1023"
                )),
                _ if no_route(error) && !multicast => Failure::Work(format!(
                    "{text}; no route leads there: look at `ip route`, or give other addresses"
                )),
                _ if no_route(error) => Failure::Work(format!(
                    "{text}; no route leads there: name the network with --interface, or add a \
                     route, such as `ip route add 224.0.0.0/4 dev eth0`"
                )),
                _ => Failure::Work(text),
            },
            _ => Failure::Usage(text),
        },
        Error::Thread(_) | Error::Seal(_) | Error::Closed => Failure::Work(text),
        _ => Failure::Usage(text),
    }
}

fn no_route(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::NetworkUnreachable, io::ErrorKind::HostUnreachable];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(nix::errno::Errno::ENODEV as i32)
}

/// True if the network is not up yet. An unknown interface does not count: it may be misspelt.
pub(crate) fn is_away(error: &Error) -> bool {
    let Error::Net(error) = error else { return false };
    match error {
        NetError::Socket { error, .. } | NetError::Join { error, .. } => no_route(error),
        NetError::Bind { error, .. } => {
            no_route(error) || error.kind() == io::ErrorKind::AddrNotAvailable
        }
        _ => false,
    }
}

pub(crate) fn host_name() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    name.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_what_they_look_like() {
        for (text, want) in [
            ("true", OptionValue::Bool(true)),
            ("-3", OptionValue::Integer(-3)),
            ("0.75", OptionValue::Float(0.75)),
            ("paper", OptionValue::Text("paper".to_string())),
            ("\"5 ms\"", OptionValue::Text("5 ms".to_string())),
            ("nan", OptionValue::Text("nan".to_string())),
        ] {
            assert_eq!(option_value(text), want, "{text}");
        }
        let options = options(&["a=1".to_string(), "b = x = y".to_string()]).unwrap();
        assert_eq!(options[1], ("b".to_string(), OptionValue::Text("x = y".to_string())));
    }

    #[test]
    fn what_is_logged_is_checked() {
        use tracing_subscriber::filter::LevelFilter as L;
        for text in ["debug", "TRACE", "off", "control=debug", "info,packets=trace, session=off"] {
            assert!(log_filter(text).is_ok(), "{text}");
        }
        let filter = log_filter("info,packets=trace").unwrap();
        let level = |target| {
            let all = [tracing::Level::TRACE, tracing::Level::INFO, tracing::Level::WARN];
            all.into_iter().find(|level| filter.would_enable(target, level)).map(L::from)
        };
        assert_eq!(level("faircast::packets"), Some(L::TRACE));
        assert_eq!(level("faircast::session"), Some(L::INFO));
        assert_eq!(level("hyper"), Some(L::WARN));
        for (text, want) in [
            ("nonsense", "there is no level \"nonsense\"; expected one of off, error"),
            ("debug,", "there is no level \"\""),
            ("net=debug", "there is no part \"net\"; expected one of session, control, packets"),
            ("control=loud", "there is no level \"loud\""),
        ] {
            let error = log_filter(text).unwrap_err();
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn interfaces_are_named_or_have_an_address() {
        assert_eq!(interface(None), Interface::Any);
        assert_eq!(interface(Some("eth0")), Interface::Name("eth0".to_string()));
        assert_eq!(interface(Some("fe80::1")), Interface::Address("fe80::1".parse().unwrap()));
    }
}
