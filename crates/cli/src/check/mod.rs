//! `faircast check`: what would keep a transfer from going well, at this host and on the way to others.

mod exchange;
mod finding;
mod judge;
mod local;
mod wire;

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::Instant;

use faircast::GroupKey;
use faircast_base::{Duration, Time};
use faircast_net::{Multicast, NetError, ProbeSockets, SocketSettings, interface_addresses};
use faircast_seal::{OVERHEAD, Salt, Seal, key_hint};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::json;

use crate::args::CheckArgs;
use crate::error::{Failure, note, print};
use crate::live;
use crate::progress::{interrupted, listen};
use exchange::{Exchange, Outgoing, Plan};
use finding::{self as f, Finding, State};
use local::Facts;
use wire::{BYTES, Packet};

/// The longest IP packet that is tried: more than Ethernet's largest frames is only ever the loopback.
const MTU_MAX: u64 = 9000;

/// Looks at this host and, with others that do the same, at the network between them.
pub(crate) fn check(args: &CheckArgs) -> Result<(), Failure> {
    let key = live::read_key(&args.key)?;
    listen();
    let mut facts = Facts {
        group: args.group,
        key: key.as_ref().map(|key| key.id().to_string()),
        ..Facts::default()
    };
    let mut sockets = None;
    if let Some(group) = args.group {
        let interface = live::interface(args.interface.as_deref());
        let multicast = Multicast { interface, ..Multicast::new(group) };
        let way = match multicast.way() {
            // What can only be a mistake of who typed it is no finding.
            Err(error @ (NetError::Interface { .. } | NetError::NeedsInterface(_))) => {
                return Err(live::failure(error.into(), true));
            }
            way => way,
        };
        let name = way.as_ref().ok().map(|way| way.interface.clone());
        facts.others = others(group.ip(), name.as_deref());
        let settings = SocketSettings { hops: args.ttl, ..SocketSettings::default() };
        let joined = way.is_ok().then(|| ProbeSockets::join(multicast, settings)).transpose();
        facts.way = Some(way.map_err(|error| error.to_string()));
        match joined {
            Ok(joined) => sockets = joined,
            Err(error) => facts.way = Some(Err(error.to_string())),
        }
        if let Some(joined) = &sockets {
            facts.link_mtu = joined.link_mtu.map(|mtu| mtu.count());
            facts.buffers = Some(joined.buffers);
        }
    }
    facts.read_settings();
    let mut found = facts.findings();
    if let (Some(sockets), Some(group)) = (sockets, args.group)
        && args.wait > Duration::ZERO
    {
        found.extend(with_others(args, group, key, sockets)?);
    }
    show(args, &found)
}

/// Interfaces with addresses of the family of `like` beside the one that is used.
fn others(like: IpAddr, used: Option<&str>) -> Vec<String> {
    let mut names: Vec<String> = interface_addresses()
        .into_iter()
        .flatten()
        .filter(|(_, ip)| ip.is_ipv4() == like.is_ipv4() && !ip.is_loopback())
        .map(|(name, _)| name)
        .filter(|name| Some(name.as_str()) != used)
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Tests the network with others that check the same group.
fn with_others(
    args: &CheckArgs,
    group: SocketAddr,
    key: Option<GroupKey>,
    sockets: ProbeSockets,
) -> Result<Vec<Finding>, Failure> {
    let mtu = sockets.link_mtu.map_or(1500, |mtu| mtu.count()).min(MTU_MAX);
    let plan = Plan {
        id: random_id(),
        wait: args.wait,
        long: args.long,
        rate_bps: args.rate.bits_per_s(),
        mtu: u32::try_from(mtu).expect("at most MTU_MAX"),
    };
    if !args.json {
        let shown = args.wait.as_secs_f64();
        note(&format!("waiting up to {shown:.0} s for another host that checks {group}"));
    }
    let mut wire = Wire::new(sockets, group, key)?;
    let mut exchange = Exchange::new(plan.clone());
    let started = Instant::now();
    let now = || Time::ZERO + Duration::from_nanos(started.elapsed().as_nanos() as u64);
    let mut has_told = args.json;
    while !exchange.is_over(now()) {
        if interrupted() {
            return Err(Failure::Work(
                "interrupted; a check that is not finished says nothing".into(),
            ));
        }
        while let Some(sent) = exchange.poll(now()) {
            wire.send(&sent);
        }
        let wait = exchange.next_at().since(now());
        wire.wait(wait.min(Duration::from_millis(100)));
        wire.receive(|packet, from, bytes, by_group| {
            exchange.receive(now(), packet, from, bytes, by_group)
        });
        if let (false, Some(peer)) = (has_told, exchange.peers.first()) {
            has_told = true;
            note(&format!("testing with {}", peer.address.ip()));
        }
    }
    let mut found = judge::findings(&exchange, &plan, now());
    found.extend(wire.key_findings());
    Ok(found)
}

/// A number by which this run is known to others; never 0.
fn random_id() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    // Seeded by the system for each process.
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish().max(1)
}

/// The sockets, with the key where there is one.
struct Wire {
    sockets: ProbeSockets,
    group: SocketAddr,
    seal: Option<(Seal, Salt)>,
    /// Bytes of the headers of IP and UDP.
    headers: usize,
    /// Datagrams that were sealed while there is no key here.
    sealed: u64,
}

impl Wire {
    fn new(
        sockets: ProbeSockets,
        group: SocketAddr,
        key: Option<GroupKey>,
    ) -> Result<Self, Failure> {
        let failed = |error: faircast_seal::SealError| Failure::Work(error.to_string());
        let seal = match key {
            None => None,
            Some(key) => {
                // All are alike, and each speaks in a session of its own.
                let session = Seal::source(key.clone()).map_err(failed)?.session();
                let session = session.expect("a source has a session");
                Some((Seal::receiver(key).map_err(failed)?, session))
            }
        };
        let headers = if group.is_ipv4() { 28 } else { 48 };
        Ok(Self { sockets, group, seal, headers, sealed: 0 })
    }

    fn send(&mut self, sent: &Outgoing) {
        let mut plain = sent.packet.encode().to_vec();
        let overhead = self.headers + if self.seal.is_some() { OVERHEAD } else { 0 };
        if let Some(size) = sent.size {
            plain.resize((size as usize).saturating_sub(overhead).max(BYTES), 0);
        }
        let mut sealed = Vec::new();
        let bytes = match &mut self.seal {
            None => &plain,
            Some((seal, session)) => {
                seal.seal(*session, &plain, &mut sealed);
                &sealed
            }
        };
        // What the network does not take is lost, as it is further on: the other host counts.
        let _ = self.sockets.node.send_to(bytes, sent.to.unwrap_or(self.group));
    }

    /// Waits until something comes, or so long.
    fn wait(&self, time: Duration) {
        let timeout = PollTimeout::try_from(time.as_millis()).unwrap_or(PollTimeout::ZERO);
        let [node, group] = [&self.sockets.node, &self.sockets.group].map(|s| s.as_fd());
        let mut fds = [PollFd::new(node, PollFlags::POLLIN), PollFd::new(group, PollFlags::POLLIN)];
        let _ = poll(&mut fds, timeout);
        if time.as_millis() == 0 && time > Duration::ZERO {
            std::thread::sleep(std::time::Duration::from_nanos(time.as_nanos()));
        }
    }

    /// Takes what has come, and sends what is answered.
    fn receive(&mut self, mut take: impl FnMut(Packet, SocketAddr, u32, bool) -> Option<Outgoing>) {
        let mut bytes = [0; 65_536];
        for by_group in [true, false] {
            // A flood must not keep this host from its own work.
            for _ in 0..DATAGRAMS_MAX {
                let socket: &UdpSocket =
                    if by_group { &self.sockets.group } else { &self.sockets.node };
                let (length, from) = match socket.recv_from(&mut bytes) {
                    Ok(came) => came,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // An answer that nobody took says so here, once.
                    Err(_) => continue,
                };
                let whole = u32::try_from(length + self.headers).unwrap_or(u32::MAX);
                let plain = match &mut self.seal {
                    Some((seal, _)) => match seal.open(&mut bytes[..length]) {
                        Ok(opened) => opened.plain,
                        Err(_) => continue,
                    },
                    None => {
                        self.sealed += u64::from(key_hint(&bytes[..length]).is_some());
                        &bytes[..length]
                    }
                };
                let Some(packet) = Packet::decode(plain) else { continue };
                if let Some(answer) = take(packet, from, whole, by_group) {
                    self.send(&answer);
                }
            }
        }
    }

    /// Whether others have other keys.
    fn key_findings(&self) -> Vec<Finding> {
        let refused = self.seal.as_ref().map(|(seal, _)| seal.refusals());
        let wrong = refused.map_or(0, |refused| refused.plain + refused.other_key);
        let mut found = Vec::new();
        if wrong > 0 {
            let text = format!("{wrong} packets came that this key does not open");
            found.push(f::KEY.found(false, text));
        }
        if self.sealed > 0 {
            let text = format!("{} packets came that are sealed, and no key is given", self.sealed);
            found.push(f::KEY.found(false, text));
        }
        found
    }
}

/// Most datagrams that are taken from a socket in one go.
const DATAGRAMS_MAX: usize = 256;

/// Prints what was found; anything wrong makes the exit status 1.
fn show(args: &CheckArgs, found: &[Finding]) -> Result<(), Failure> {
    let is_ok = found.iter().all(|found| found.state != State::Wrong);
    if args.json {
        let group = args.group.map(|group| group.to_string());
        let version = env!("CARGO_PKG_VERSION");
        let document =
            json!({ "faircast": version, "group": group, "ok": is_ok, "findings": found });
        print(&format!("{document:#}\n"))?;
    } else {
        print(&text(found))?;
    }
    if is_ok { Ok(()) } else { Err(Failure::Verdict) }
}

/// Words after a head, in lines that a terminal shows whole, below each other.
fn wrapped(head: &str, words: &str) -> String {
    let indent = head.chars().count();
    let mut text = head.to_string();
    let mut column = indent;
    for word in words.split(' ') {
        let length = word.chars().count();
        if column > indent && column + 1 + length > COLUMNS {
            text.push_str(&format!("\n{:indent$}", ""));
            column = indent;
        }
        if column > indent {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text + "\n"
}

/// Columns of a terminal.
const COLUMNS: usize = 80;

/// The findings for people: this host first, then each other one, what is wrong with what to do.
fn text(found: &[Finding]) -> String {
    let mut text = String::new();
    let mut about: Option<Option<&str>> = None;
    for found in found {
        if about != Some(found.peer.as_deref()) {
            about = Some(found.peer.as_deref());
            let heading = match &found.peer {
                None if text.is_empty() => "This host".to_string(),
                None => "All".to_string(),
                Some(peer) => format!("With {peer}"),
            };
            text.push_str(&format!("{}{heading}\n", if text.is_empty() { "" } else { "\n" }));
        }
        let state = match found.state {
            State::Ok => "ok",
            State::Wrong => "WRONG",
            State::Untested => "-",
        };
        let head = format!("  {state:<6}{:<21}", found.check);
        text.push_str(&wrapped(&head, &found.found));
        if let Some(advice) = found.advice {
            text.push_str(&wrapped("        do: ", &advice.replace('`', "")));
        }
    }
    let wrong = found.iter().filter(|found| found.state == State::Wrong).count();
    let untested = found.iter().filter(|found| found.state == State::Untested).count();
    text.push_str(&format!("\n{wrong} wrong, {untested} not tested.\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_fit_a_terminal() {
        let speed =
            "to it 0.0 % of 5208 lost, at 49.8 Mbit/s; from it 0.0 % of 5208 lost, at 49.7 Mbit/s";
        let found = [Finding { peer: Some("10.9.0.2".into()), ..f::SPEED.found(false, speed) }];
        let text = text(&found);
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        let below = format!("\n{:29}0.0 % of 5208 lost, at 49.7 Mbit/s\n", "");
        assert!(text.contains(&below), "{text}");
        assert!(text.contains("\n        do: a slower link"), "{text}");
    }
}
