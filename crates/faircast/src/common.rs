//! Settings common to all ends: key, scheme, options, MTU, sockets and trace.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use faircast_base::{Bytes, Duration, NodeId, Time};
use faircast_hop::{NAME_BYTES_MAX, RelayKey};
use faircast_net::{
    Listen, Live, Multicast, NetError, SocketSettings, Sockets, Target, ViaSettings, random,
};
use faircast_proto::Machine;
use faircast_proto::catalog::{
    DEFAULT_SCHEME, SchemeEntry, live_stacks, scheme, scheme_spoken, stack,
};
use faircast_proto::credit;
use faircast_proto::object::{HostLoad, SYMBOL_HEADER};
use faircast_proto::options::{OptionSpec, OptionValue, Options};
use faircast_proto::pgm::negotiation::{ANNOUNCED_BYTES_MAX, SchemeAnnouncement};
use faircast_proto::pgm::wire::Nla;
use faircast_proto::tram::{self, HEADS};

use crate::ends::Carrier;
use crate::envelope::{overhead, unspecified};
use crate::{Error, GroupKey, RelaySecret, Result};

/// Longest lead or delay of a packet at a paced source: the grain of Linux's TCP pacing.
pub(crate) const PACED_GRAIN: Duration = Duration::from_millis(1);

/// Longest delay at a TRAM receiver: many on one host spent a quarter of their time on wake-ups.
pub(crate) const GATHER: Duration = Duration::from_millis(2);

#[derive(Clone, Debug, Default)]
pub(crate) struct Common {
    pub(crate) key: Option<GroupKey>,
    pub(crate) scheme: Option<String>,
    /// Options of the scheme, of PGM or TRAM, and of credits; the last of a key counts.
    pub(crate) options: Vec<(String, OptionValue)>,
    pub(crate) mtu: Option<Bytes>,
    pub(crate) sockets: SocketSettings,
    pub(crate) trace: Option<PathBuf>,
    /// Relays, each `HOST:PORT`, and the name of the session there.
    pub(crate) via: Vec<String>,
    pub(crate) meeting: Option<String>,
    pub(crate) name: String,
    /// True if neither the sender nor relays wait for slow receivers.
    pub(crate) leaves_slow: bool,
}

impl Common {
    fn via(&self, group: Option<&Multicast>, receivers: u32) -> Result<Option<ViaSettings>> {
        if self.via.is_empty() {
            return Ok(None);
        }
        let address = group.map(|group| group.group.to_string());
        let meeting = self.meeting.clone().or(address).ok_or_else(|| {
            let text = "a session through relays needs a name at which senders and receivers meet";
            Error::Setting(text.to_string())
        })?;
        let digest = blake3::hash(meeting.as_bytes());
        let group = digest.as_bytes().first_chunk().expect("a digest has 32 bytes");
        Ok(Some(ViaSettings {
            node: node_of(random()),
            name: name_of(&self.name),
            relays: self.via.clone(),
            group: u64::from_be_bytes(*group),
            receivers,
            key: relay_key(self.key.as_ref().map(GroupKey::relay)),
        }))
    }

    pub(crate) fn source_sockets(
        &self,
        target: &Target,
        with_heads: bool,
    ) -> Result<(Sockets, Option<ViaSettings>)> {
        if let Some(via) = self.via(multicast_to(target), 0)? {
            return Ok((Sockets::via(true, self.sockets.clone())?, Some(via)));
        }
        let mut sockets = Sockets::source(target.clone(), self.sockets.clone())?;
        if with_heads {
            add_heads(&mut sockets, multicast_to(target))?;
        }
        Ok((sockets, None))
    }

    pub(crate) fn receiver_sockets(
        &self,
        listen: &Listen,
    ) -> Result<(Sockets, Option<ViaSettings>)> {
        if let Some(via) = self.via(multicast_of(listen), 1)? {
            return Ok((Sockets::via(false, self.sockets.clone())?, Some(via)));
        }
        let mut sockets = Sockets::receiver(listen.clone(), self.sockets.clone())?;
        add_heads(&mut sockets, multicast_of(listen))?;
        Ok((sockets, None))
    }

    /// Separates the options of credits, which are empty without relays, from the other settings.
    pub(crate) fn split_credits(&self) -> Result<(Self, Options)> {
        let is_credits = |key: &str| credit::OPTIONS.iter().any(|spec| spec.name == key);
        let (credits, options): (Vec<_>, Vec<_>) =
            self.options.iter().cloned().partition(|(key, _)| is_credits(key));
        if self.via.is_empty() {
            return Ok((self.clone(), Options::default()));
        }
        let usual =
            credit::RELAYED.map(|(key, value)| (key.to_string(), OptionValue::Integer(value)));
        let policy = ("policy".to_string(), OptionValue::Text("bounded-lag".to_string()));
        let policy = Some(policy).filter(|_| self.leaves_slow);
        let usual: Vec<_> = usual.into_iter().chain(policy).collect();
        let credits = Options::checked(credits, credit::OPTIONS)?.under(&usual, credit::OPTIONS);
        Ok((Self { options, ..self.clone() }, credits))
    }

    pub(crate) fn carrier(
        &self,
        pgm: &[(&str, OptionValue)],
        tram: &[(&str, OptionValue)],
    ) -> Result<(Carrier, Options)> {
        let carrier = self.named()?.unwrap_or(Carrier::Pgm(default_scheme()));
        let specs = carrier.stack().options();
        let own = |own: &[(&str, OptionValue)]| {
            own.iter().map(|(key, value)| ((*key).to_string(), value.clone())).collect::<Vec<_>>()
        };
        let given = self.options.iter().cloned();
        let (options, is_announced) = match carrier {
            Carrier::Pgm(entry) => {
                let announces = ("announce_scheme".to_string(), OptionValue::Bool(true));
                let options =
                    Options::checked(own(pgm).into_iter().chain(given).chain([announces]), &specs)?;
                let (scheme, settings) = (entry.name.to_string(), options.of(entry.own_options));
                let is_announced = SchemeAnnouncement { scheme, settings }.encode().is_some();
                (options, is_announced)
            }
            Carrier::Tram(tree) => {
                // TRAM's own control has no options if a scheme steers the tree.
                let own = own(tram).into_iter().filter(|(key, _)| tree.has_option(key));
                let all: BTreeMap<String, OptionValue> = own.chain(given).collect();
                let options = Options::checked(all, &specs)?;
                let is_announced = tram::announced(tree, &options).is_some();
                (options, is_announced)
            }
        };
        match is_announced {
            true => Ok((carrier, options)),
            false => Err(Error::Setting(format!(
                "the settings of the scheme do not fit into the {ANNOUNCED_BYTES_MAX} bytes that receivers can be told \
                 of them: leave some of them as they are, or choose a profile"
            ))),
        }
    }

    pub(crate) fn speaks(&self, more: &[(&str, OptionValue)]) -> Result<Speaks> {
        let named = self.named()?;
        let own = more.iter().map(|(key, value)| ((*key).to_string(), value.clone()));
        for option in &self.options {
            check_for_any(named, option)?;
        }
        let pgm = own.chain(self.options.iter().cloned()).collect();
        Ok(Speaks { required: named, pgm, tram: self.options.clone() })
    }

    fn named(&self) -> Result<Option<Carrier>> {
        let Some(name) = &self.scheme else { return Ok(None) };
        let found = live_stacks().find(|stack| stack.name() == *name).map(Carrier::of);
        found.map(Some).ok_or_else(|| {
            let known: Vec<String> = live_stacks().map(|stack| stack.name()).collect();
            Error::Setting(format!("there is no scheme \"{name}\"; there are {}", known.join(", ")))
        })
    }

    pub(crate) fn symbol_bytes(&self, family: SocketAddr, carrier: Carrier) -> Result<u16> {
        let payload = self.payload(family, carrier, TRAM_PAYLOAD_MIN)?;
        Ok((payload - SYMBOL_HEADER as u32).min(SYMBOL_BYTES_MAX) as u16 & !1)
    }

    pub(crate) fn stream_bytes(&self, family: SocketAddr, carrier: Carrier) -> Result<u32> {
        let payload = self.payload(family, carrier, PAYLOAD_MIN)?;
        Ok(match carrier {
            Carrier::Pgm(_) => payload.saturating_sub(STREAM_BYTES).max(1),
            Carrier::Tram(_) => payload,
        })
    }

    /// Returns the bytes of a packet without headers. Over TRAM at least `tram_min` must remain.
    fn payload(&self, family: SocketAddr, carrier: Carrier, tram_min: u64) -> Result<u32> {
        let (headers, payload_min) = match carrier {
            Carrier::Pgm(entry) => {
                (PGM_BYTES + OPTION_BYTES + entry.announce_bytes_max as u32, PAYLOAD_MIN)
            }
            Carrier::Tram(tree) => (tram::header_bytes(tree), tram_min),
        };
        let headers = u64::from(self.headers(family) + headers);
        let (min, max) = (headers + payload_min, 65_507 + 28);
        let own = self.mtu.map_or(1500, Bytes::count);
        let bytes = if self.via.is_empty() { own } else { RELAYED_BYTES };
        if (min..=max).contains(&bytes) {
            return Ok((bytes - headers) as u32);
        }
        let text = format!("packets of {bytes} bytes are not possible; expected {min} to {max}");
        Err(Error::Setting(text))
    }

    pub(crate) fn headers(&self, family: SocketAddr) -> u32 {
        let sealed = overhead(self.key.is_some()) as u32;
        match family.is_ipv4() {
            _ if !self.via.is_empty() => sealed + credit::CAPSULE_BYTES as u32,
            true => IPV4_BYTES + UDP_BYTES + sealed,
            false => IPV6_BYTES + UDP_BYTES + sealed,
        }
    }
}

pub(crate) fn relay_key(secret: Option<RelaySecret>) -> RelayKey {
    secret.map_or(RelayKey::none(), |secret| RelayKey::shared(secret.bytes()))
}

/// Returns a random node: an address without special meaning, 1.0.0.0 to 223.255.255.255.
pub(crate) const fn node_of(random: u64) -> NodeId {
    NodeId(0x0100_0000 + (random % 0xdf00_0000) as u32)
}

/// Returns a name as nodes show it: the first 64 bytes, without control characters.
pub(crate) fn name_of(name: &str) -> String {
    let letters = name.chars().filter(|letter| !letter.is_control());
    let mut bytes = 0;
    letters
        .take_while(|letter| {
            bytes += letter.len_utf8();
            bytes <= NAME_BYTES_MAX
        })
        .collect()
}

fn check_for_any(named: Option<Carrier>, option: &(String, OptionValue)) -> Result {
    let check = |specs: &[OptionSpec]| Options::checked([option.clone()], specs);
    let specs: Vec<OptionSpec> = match named {
        Some(carrier) => carrier.stack().options(),
        None if live_stacks().any(|stack| check(&stack.options()).is_ok()) => return Ok(()),
        None => live_stacks().flat_map(|stack| stack.options()).collect(),
    };
    Ok(check(&specs).map(|_| ())?)
}

const TRAM: &str = "tram";

fn default_scheme() -> &'static SchemeEntry {
    scheme(DEFAULT_SCHEME).expect("the default is registered")
}

#[derive(Clone, Debug)]
pub(crate) struct Speaks {
    /// Only scheme to speak; `None` for the sender's.
    pub(crate) required: Option<Carrier>,
    pgm: Vec<(String, OptionValue)>,
    tram: Vec<(String, OptionValue)>,
}

impl Speaks {
    pub(crate) fn of_tram(&self) -> Options {
        Options::default().under(&self.tram, tram::OPTIONS)
    }

    pub(crate) fn after(&self, packet: &[u8]) -> Option<(Carrier, Options)> {
        let over_tram = tram::peek(packet).is_some();
        let spoken = || match over_tram {
            true => stack(TRAM).map(Carrier::Tram),
            false => scheme_spoken(packet).and_then(|name| scheme(&name)).map(Carrier::Pgm),
        };
        let carrier = self.required.or_else(spoken).unwrap_or(Carrier::Pgm(default_scheme()));
        if over_tram != matches!(carrier, Carrier::Tram(_)) {
            tracing::warn!("a sender does not speak {}: it is not heard", carrier.stack());
            return None;
        }
        let (stack, specs) = (carrier.stack(), carrier.stack().options());
        let known = |option: &&(String, OptionValue)| {
            Options::checked([(*option).clone()], &specs)
                .inspect_err(|error| tracing::warn!("{stack}: {error}: it is left as it is"))
                .is_ok()
        };
        let all = if over_tram { &self.tram } else { &self.pgm };
        let options = all.iter().filter(known).cloned();
        let options = Options::checked(options, &specs);
        Some((carrier, options.expect("each of them was checked")))
    }
}

pub(crate) fn host_load<M: Machine>(live: &mut Live<M>, disk: std::time::Duration) -> HostLoad {
    let disk = Duration::from_secs_f64(disk.as_secs_f64());
    let span = live.now().since(Time::ZERO);
    let counters = live.counters();
    let waited = counters.sent.waited;
    // A source that sleeps with content to send waits for credits of the relay above.
    let credits = if live.relay().is_some() { counters.asleep } else { Duration::ZERO };
    HostLoad {
        span,
        busy: span.saturating_sub(counters.asleep).saturating_sub(waited),
        disk,
        link: waited + credits,
        overflowed: counters.received.overflowed,
    }
}

pub(crate) fn family(target: &Target) -> SocketAddr {
    match target {
        Target::Multicast(multicast) | Target::Both(multicast, _) => multicast.group,
        Target::Unicast(all) => {
            all.first().copied().unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], RELAYED_PORT)))
        }
    }
}

/// Returns options of TRAM for a mere unicast target, whose receivers find no head but the source.
pub(crate) fn tree_without_heads(target: &Target) -> Vec<(&'static str, OptionValue)> {
    let keys: &[_] = match target {
        Target::Unicast(_) => &["members_max", "source_members_max"],
        Target::Multicast(_) | Target::Both(..) => &[],
    };
    keys.iter().map(|key| (*key, OptionValue::Integer(4096))).collect()
}

/// Adds the group in which TRAM receivers look for heads: the session's, at the next port.
fn add_heads(sockets: &mut Sockets, multicast: Option<&Multicast>) -> Result<(), NetError> {
    let Some(mut heads) = multicast.map(|multicast| multicast.group) else { return Ok(()) };
    heads.set_port(heads.port().checked_add(1).unwrap_or(u16::MAX - 1));
    sockets.add_group(HEADS, heads)
}

pub(crate) fn multicast_to(target: &Target) -> Option<&Multicast> {
    match target {
        Target::Multicast(multicast) | Target::Both(multicast, _) => Some(multicast),
        Target::Unicast(_) => None,
    }
}

pub(crate) fn multicast_of(listen: &Listen) -> Option<&Multicast> {
    match listen {
        Listen::Multicast(multicast) | Listen::Both(multicast, _) => Some(multicast),
        Listen::Unicast(_) => None,
    }
}

pub(crate) fn group_to(target: &Target) -> Nla {
    let group = multicast_to(target).map(|multicast| multicast.group.ip());
    nla(group.unwrap_or_else(|| unspecified(family(target))))
}

/// Returns the group as PGM encodes it; "unspecified" for unicast, unknown at the sender.
pub(crate) fn group_of(listen: &Listen) -> Nla {
    nla(match listen {
        Listen::Multicast(multicast) | Listen::Both(multicast, _) => multicast.group.ip(),
        Listen::Unicast(address) => unspecified(*address),
    })
}

fn nla(ip: IpAddr) -> Nla {
    match ip {
        IpAddr::V4(ip) => Nla::V4(ip.octets()),
        IpAddr::V6(ip) => Nla::V6(ip.octets()),
    }
}

macro_rules! common_settings {
    () => {
        /// Sets the key that encrypts and authenticates all packets. Default: none.
        pub fn key(mut self, key: $crate::GroupKey) -> Self {
            self.common.key = Some(key);
            self
        }

        /// Sets the scheme of congestion control. Default at a sender:
        /// [`DEFAULT_SCHEME`](crate::DEFAULT_SCHEME); at a receiver: its sender's. A receiver with
        /// a scheme refuses others.
        pub fn scheme(mut self, name: impl Into<String>) -> Self {
            self.common.scheme = Some(name.into());
            self
        }

        /// Changes an option of the scheme or of PGM; a sender's options apply at receivers too.
        pub fn option(
            mut self,
            key: impl Into<String>,
            value: faircast_proto::options::OptionValue,
        ) -> Self {
            self.common.options.push((key.into(), value));
            self
        }

        /// Sets up sockets: hops, loopback, buffers. Default: multicast stays local.
        pub fn sockets(mut self, settings: faircast_net::SocketSettings) -> Self {
            self.common.sockets = settings;
            self
        }

        /// Connects through the first of these relays (`HOST:PORT`) that answers. Default: none.
        pub fn via(mut self, relays: Vec<String>) -> Self {
            self.common.via = relays;
            self
        }

        /// Sets the meeting at relays, such as `images`. Default: the group's address and port.
        pub fn meeting(mut self, name: impl Into<String>) -> Self {
            self.common.meeting = Some(name.into());
            self
        }

        /// Writes a trace of the run to this file at the end, for `faircast report`. Default: none.
        pub fn trace(mut self, file: impl Into<std::path::PathBuf>) -> Self {
            self.common.trace = Some(file.into());
            self
        }
    };
}

macro_rules! sender_settings {
    () => {
        /// Sets the highest rate of payload. Default: as fast as is fair.
        pub fn rate_max(self, rate: faircast_base::Bitrate) -> Self {
            let rate = format!("{} bit/s", rate.bits_per_s());
            self.option("rate_max", faircast_proto::options::OptionValue::Text(rate))
        }

        /// Sets the lowest rate of payload, even if the scheme permits less: unfair, for paths with
        /// losses that do not mean congestion. Default: none.
        pub fn rate_min(self, rate: faircast_base::Bitrate) -> Self {
            let rate = format!("{} bit/s", rate.bits_per_s());
            self.option("rate_min", faircast_proto::options::OptionValue::Text(rate))
        }

        /// Sets the bytes of the largest IP packet. Default 1500.
        pub fn mtu(mut self, bytes: faircast_base::Bytes) -> Self {
            self.common.mtu = Some(bytes);
            self
        }
    };
}

pub(crate) use {common_settings, sender_settings};

/// Packet bytes through relays, of which 4 % are headers. Transmission takes 0.3 s at 100 kbit/s.
const RELAYED_BYTES: u64 = 4096;
/// Port in PGM's headers for sessions through relays without a group address.
const RELAYED_PORT: u16 = 7500;
const SYMBOL_BYTES_MAX: u32 = 65_408;
/// Least payload of TRAM: an announcement must fit into one packet.
const TRAM_PAYLOAD_MIN: u64 = 128;
const IPV4_BYTES: u32 = 20;
const IPV6_BYTES: u32 = 40;
const UDP_BYTES: u32 = 8;
const PGM_BYTES: u32 = 16 + 8 + 4;
const OPTION_BYTES: u32 = 4;
/// Options on the first and last packets of a stream: OPT_JOIN, OPT_SYN and OPT_FIN.
const STREAM_BYTES: u32 = 8 + 4 + 4;
const PAYLOAD_MIN: u64 = 64;

#[cfg(test)]
mod tests {
    use faircast_proto::catalog::SCHEMES;
    use faircast_proto::options::OptionKind;

    use super::*;

    fn payload(mtu: u64, sealed: bool, family: &str) -> Result<u32> {
        let key = sealed.then(|| GroupKey::from_bytes([1; 32]));
        let common = Common { mtu: Some(Bytes::new(mtu)), key, ..Common::default() };
        common.payload(family.parse().unwrap(), Carrier::Pgm(scheme("pgmcc").unwrap()), 0)
    }

    #[test]
    fn packets_are_as_long_as_the_network_takes() {
        assert_eq!(payload(1500, false, "10.0.0.1:1").unwrap(), 1500 - 72);
        assert_eq!(payload(1500, true, "10.0.0.1:1").unwrap(), 1500 - 72 - 56);
        assert_eq!(payload(9000, false, "[::1]:1").unwrap(), 9000 - 92);
        for wrong in [0, 100, 65_536] {
            let error = payload(wrong, false, "10.0.0.1:1").unwrap_err().to_string();
            assert!(error.contains("expected 136 to 65535"), "{error}");
        }
    }

    #[test]
    fn schemes_and_options_are_checked() {
        let common = Common { scheme: Some("pgmc".into()), ..Common::default() };
        let error = common.carrier(&[], &[]).unwrap_err().to_string();
        assert!(error.contains("\"pgmc\"; there are pgmcc"), "{error}");
        let options = vec![("acker_bais".to_string(), OptionValue::Float(0.5))];
        let error =
            Common { options, ..Common::default() }.carrier(&[], &[]).unwrap_err().to_string();
        assert!(error.contains("acker_bias"), "{error}");
    }

    #[test]
    fn a_receivers_settings_may_be_those_of_any_scheme_unless_it_insists_on_one() {
        let wrong =
            [("acker_bais", OptionValue::Float(0.5)), ("acker_bias", OptionValue::Float(7.0))];
        let own = SCHEMES.iter().filter_map(|entry| {
            let spec = entry.own_options.iter().find(|spec| spec.kind == OptionKind::Bool)?;
            Some((entry.name, spec.name))
        });
        for (name, key) in own {
            let options = vec![(key.to_string(), OptionValue::Bool(true))];
            let common = Common { options, ..Common::default() };
            common.speaks(&[]).unwrap();
            Common { scheme: Some(name.to_string()), ..common }.speaks(&[]).unwrap();
        }
        for scheme in [None, Some("pgmcc".to_string())] {
            for (key, value) in &wrong {
                let options = vec![((*key).to_string(), value.clone())];
                let common = Common { options, scheme: scheme.clone(), ..Common::default() };
                let error = common.speaks(&[]).unwrap_err().to_string();
                let want = if *key == "acker_bias" { "from 0.05 to 1" } else { "acker_bias" };
                assert!(error.contains(key) && error.contains(want), "{error}");
            }
        }
    }

    #[test]
    fn settings_that_receivers_cannot_be_told_are_refused() {
        let long = || OptionValue::Text(format!("{} s", "0".repeat(150) + "1"));
        let spans = ["hello_interval", "beacon_interval"];
        let options = spans.map(|name| (name.to_string(), long())).to_vec();
        let common = Common { scheme: Some("tram".to_string()), options, ..Common::default() };
        let error = common.carrier(&[], &[]).err().unwrap().to_string();
        assert!(error.contains("251 bytes"), "{error}");
    }
}
