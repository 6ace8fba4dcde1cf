//! Check of a host and of the network to other hosts, for what would disturb a transfer.

mod exchange;
mod finding;
mod judge;
mod local;
mod receiver;
mod relay;
pub(crate) mod wire;

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::os::fd::AsFd as _;
use std::time::Instant;

use faircast_base::{Bitrate, Duration, Time};
use faircast_net::{
    Interface, Multicast, NetError, ProbeSockets, SocketSettings, interface_addresses, random,
};
use faircast_seal::{GroupKey, OVERHEAD, Salt, Seal, key_hint};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

pub use finding::{Finding, State};

use crate::{Error, Result};
use exchange::{Exchange, Outgoing, TestSettings};
use local::Facts;
use wire::{BYTES, Packet};

/// Longest IP packet to try: only loopback takes more than 9000 bytes.
const MTU_MAX: u64 = 9000;

const DATAGRAMS_MAX: usize = 256;

/// Settings of a check.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Settings {
    /// Group to test; `None` checks the host alone.
    pub group: Option<SocketAddr>,
    /// Relays to test, each `HOST:PORT`.
    pub via: Vec<String>,
    /// Receivers to test by unicast.
    pub to: Vec<SocketAddr>,
    pub interface: Interface,
    /// Longest wait for another host that checks the same group; zero skips the tests with others.
    pub wait: Duration,
    /// Least duration of the tests, to see whether memberships last; `None` skips that test.
    pub long: Option<Duration>,
    /// Rate of the burst, which takes 1 s.
    pub rate: Bitrate,
    pub hops: u8,
    pub key: Option<GroupKey>,
}

/// Progress of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The check waits for another host.
    Waiting,
    /// The check tests the network to this host.
    Testing(IpAddr),
    /// No news; frequent, so that the caller can stop the check.
    Going,
}

/// Checks this host, and the network to hosts that do the same; `None` if `watch` stopped it.
///
/// # Errors
/// The interface does not exist, or the system has no randomness for sealing.
pub fn check(
    settings: &Settings,
    watch: &mut dyn FnMut(Event) -> ControlFlow<()>,
) -> Result<Option<Vec<Finding>>, Error> {
    let key = settings.key.as_ref().map(|key| key.id().to_string());
    let mut facts = Facts { group: settings.group, key, ..Facts::default() };
    let mut sockets = None;
    if let Some(group) = settings.group {
        let interfaces = vec![settings.interface.clone()];
        let multicast = Multicast { interfaces, ..Multicast::new(group) };
        let used = match multicast.interface_state() {
            // A mistyped interface is an error, not a finding.
            Err(error @ (NetError::Interface { .. } | NetError::NeedsInterface(_))) => {
                return Err(error.into());
            }
            used => used,
        };
        let name = used.as_ref().ok().map(|used| used.name.clone());
        facts.others = others(group.ip(), name.as_deref());
        let hops = SocketSettings { hops: settings.hops, ..SocketSettings::default() };
        let joined = used.is_ok().then(|| ProbeSockets::join(multicast, hops)).transpose();
        facts.interface = Some(used.map_err(|error| error.to_string()));
        match joined {
            Ok(joined) => sockets = joined,
            Err(error) => facts.interface = Some(Err(error.to_string())),
        }
        if let Some(joined) = &sockets {
            facts.link_mtu = joined.link_mtu.map(|mtu| mtu.count());
            facts.buffers = Some(joined.buffers);
        }
    }
    facts.read_settings();
    let mut found = facts.findings();
    if !settings.via.is_empty() {
        let Some(more) = relay::check_relay(settings, watch)? else { return Ok(None) };
        found.extend(more);
    }
    for to in &settings.to {
        let Some(more) = receiver::findings(settings, *to, watch)? else { return Ok(None) };
        found.extend(more.into_iter().map(|found| found.of(&to.to_string())));
    }
    if let (Some(sockets), Some(group)) = (sockets, settings.group)
        && settings.wait > Duration::ZERO
    {
        let Some(more) = with_others(settings, group, sockets, watch)? else { return Ok(None) };
        found.extend(more);
    }
    Ok(Some(found))
}

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

fn with_others(
    settings: &Settings,
    group: SocketAddr,
    sockets: ProbeSockets,
    watch: &mut dyn FnMut(Event) -> ControlFlow<()>,
) -> Result<Option<Vec<Finding>>> {
    let mtu = sockets.link_mtu.map_or(1500, |mtu| mtu.count()).min(MTU_MAX);
    let test_settings = TestSettings {
        id: random().max(1),
        wait: settings.wait,
        long: settings.long,
        rate_bps: settings.rate.bits_per_s(),
        mtu: u32::try_from(mtu).expect("at most MTU_MAX"),
    };
    let mut event = Event::Waiting;
    let mut wire = Wire::new(sockets, group, settings.key.clone())?;
    let mut exchange = Exchange::new(test_settings.clone());
    let started = Instant::now();
    let now = || Time::ZERO + Duration::from_nanos(started.elapsed().as_nanos() as u64);
    let mut has_met = false;
    while !exchange.is_over(now()) {
        if watch(event).is_break() {
            return Ok(None);
        }
        event = Event::Going;
        while let Some(sent) = exchange.poll(now()) {
            wire.send(&sent);
        }
        let wait = exchange.next_at().since(now());
        wire.wait(wait.min(Duration::from_millis(100)));
        wire.receive(|packet, from, bytes, by_group| {
            exchange.receive(now(), packet, from, bytes, by_group)
        });
        if let (false, Some(peer)) = (has_met, exchange.peers.first()) {
            has_met = true;
            event = Event::Testing(peer.address.ip());
        }
    }
    let mut found = judge::findings(&exchange, &test_settings, now());
    found.extend(wire.key_findings());
    Ok(Some(found))
}

struct Wire {
    sockets: ProbeSockets,
    group: SocketAddr,
    seal: Option<(Seal, Salt)>,
    headers: usize,
    /// Sealed datagrams that arrived although this host has no key.
    sealed: u64,
}

impl Wire {
    fn new(sockets: ProbeSockets, group: SocketAddr, key: Option<GroupKey>) -> Result<Self> {
        let seal = match key {
            None => None,
            Some(key) => {
                let session = Seal::source(key.clone())?.session();
                let session = session.expect("a source has a session");
                Some((Seal::receiver(key)?, session))
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
        let _ = self.sockets.node.send_to(bytes, sent.to.unwrap_or(self.group));
    }

    fn wait(&self, time: Duration) {
        let timeout = PollTimeout::try_from(time.as_millis()).unwrap_or(PollTimeout::ZERO);
        let [node, group] = [&self.sockets.node, &self.sockets.group].map(|s| s.as_fd());
        let mut fds = [PollFd::new(node, PollFlags::POLLIN), PollFd::new(group, PollFlags::POLLIN)];
        let _ = poll(&mut fds, timeout);
        if time.as_millis() == 0 && time > Duration::ZERO {
            std::thread::sleep(std::time::Duration::from_nanos(time.as_nanos()));
        }
    }

    fn receive(&mut self, mut take: impl FnMut(Packet, SocketAddr, u32, bool) -> Option<Outgoing>) {
        let mut bytes = [0; 65_536];
        for by_group in [true, false] {
            // A flood must not starve this host's own tests.
            for _ in 0..DATAGRAMS_MAX {
                let socket: &UdpSocket =
                    if by_group { &self.sockets.group } else { &self.sockets.node };
                let (length, from) = match socket.recv_from(&mut bytes) {
                    Ok(came) => came,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // An earlier send that failed reports its error here, once.
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

    fn key_findings(&self) -> Vec<Finding> {
        let refused = self.seal.as_ref().map(|(seal, _)| seal.refusals());
        let wrong = refused.map_or(0, |refused| refused.plain + refused.other_key);
        let mut found = Vec::new();
        if wrong > 0 {
            let text = format!("{wrong} packets came that this key does not open");
            found.push(finding::KEY.found(false, text));
        }
        if self.sealed > 0 {
            let text = format!("{} packets came that are sealed, and no key is given", self.sealed);
            found.push(finding::KEY.found(false, text));
        }
        found
    }
}
