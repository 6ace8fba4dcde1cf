//! Settings that all ends have in common: key, scheme, options, MTU, sockets and trace.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use faircast_base::{Bytes, Duration, Time};
use faircast_net::{Listen, Live, SocketSettings, Target};
use faircast_proto::Machine;
use faircast_proto::catalog::{DEFAULT_SCHEME, SCHEMES, SchemeEntry, scheme, scheme_spoken};
use faircast_proto::object::HostLoad;
use faircast_proto::options::{OptionSpec, OptionValue, Options};
use faircast_proto::pgm::negotiation::{ANNOUNCED_BYTES_MAX, SchemeAnnouncement};
use faircast_proto::pgm::wire::Nla;

use crate::envelope::overhead;
use crate::{Error, GroupKey};

/// The settings of every end.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    pub(crate) key: Option<GroupKey>,
    /// `None` for the default at a sender, and for the sender's at a receiver.
    pub(crate) scheme: Option<String>,
    pub(crate) options: Vec<(String, OptionValue)>,
    pub(crate) mtu: Bytes,
    pub(crate) sockets: SocketSettings,
    pub(crate) trace: Option<PathBuf>,
}

impl Default for Common {
    fn default() -> Self {
        Self {
            key: None,
            scheme: None,
            options: Vec::new(),
            mtu: Bytes::new(1500),
            sockets: SocketSettings::default(),
            trace: None,
        }
    }
}

impl Common {
    /// The scheme of a sender and its settings, checked. `more` are those that the kind of session
    /// dictates.
    pub(crate) fn scheme(
        &self,
        more: &[(&str, OptionValue)],
    ) -> Result<(&'static SchemeEntry, Options), Error> {
        let entry = self.named()?.unwrap_or_else(default_scheme);
        let own = more.iter().map(|(key, value)| ((*key).to_string(), value.clone()));
        let announced = ("announce_scheme".to_string(), OptionValue::Bool(true));
        let all = own.chain(self.options.iter().cloned()).chain([announced]);
        let options = Options::checked(all, entry.options)?;
        let announced = SchemeAnnouncement {
            scheme: entry.name.to_string(),
            settings: options.of(entry.own_options),
        };
        if announced.encode().is_none() {
            return Err(Error::Settings { max: ANNOUNCED_BYTES_MAX });
        }
        Ok((entry, options))
    }

    /// What a receiver speaks, with settings that are checked.
    pub(crate) fn speaks(&self, more: &[(&str, OptionValue)]) -> Result<Speaks, Error> {
        let named = self.named()?;
        let own = more.iter().map(|(key, value)| ((*key).to_string(), value.clone()));
        let options: Vec<_> = own.chain(self.options.iter().cloned()).collect();
        for option in &options {
            check_for_any(named, option)?;
        }
        Ok(Speaks { named, options })
    }

    /// The scheme that was named.
    fn named(&self) -> Result<Option<&'static SchemeEntry>, Error> {
        let known = || SCHEMES.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
        let Some(name) = &self.scheme else { return Ok(None) };
        let entry = scheme(name);
        entry.map(Some).ok_or_else(|| Error::Scheme { name: name.clone(), known: known() })
    }

    /// Bytes that a packet has on its way beside what a machine writes.
    fn headers(&self, family: SocketAddr) -> u32 {
        let ip = if family.is_ipv4() { IPV4_BYTES } else { IPV6_BYTES };
        ip + UDP_BYTES + overhead(self.key.is_some()) as u32
    }

    /// Bytes of payload, after PGM's headers and what `scheme` adds to them, that fit into a packet.
    pub(crate) fn payload(&self, family: SocketAddr, scheme: &SchemeEntry) -> Result<u32, Error> {
        let announcement = OPTION_BYTES + scheme.announce_bytes_max as u32;
        let others = u64::from(self.headers(family) + PGM_BYTES + announcement);
        // What UDP can take, with its headers.
        let (min, max) = (others + PAYLOAD_MIN, 65_507 + 28);
        let bytes = self.mtu.count();
        if !(min..=max).contains(&bytes) {
            return Err(Error::Mtu { bytes, min, max });
        }
        Ok((bytes - others) as u32)
    }
}

/// A setting must be one of the scheme that was named, or else of any, since it is not known which
/// one will be spoken.
fn check_for_any(
    named: Option<&'static SchemeEntry>,
    option: &(String, OptionValue),
) -> Result<(), Error> {
    let check = |specs: &[OptionSpec]| Options::checked([option.clone()], specs);
    if let Some(entry) = named {
        return Ok(check(entry.options).map(|_| ())?);
    }
    if SCHEMES.iter().any(|entry| check(entry.options).is_ok()) {
        return Ok(());
    }
    let all: Vec<OptionSpec> = SCHEMES.iter().flat_map(|entry| entry.options).copied().collect();
    Ok(check(&all).map(|_| ())?)
}

fn default_scheme() -> &'static SchemeEntry {
    scheme(DEFAULT_SCHEME).expect("the default is registered")
}

/// What a receiver speaks.
#[derive(Clone, Debug)]
pub(crate) struct Speaks {
    /// What it insists on; `None` to follow the sender.
    named: Option<&'static SchemeEntry>,
    options: Vec<(String, OptionValue)>,
}

impl Speaks {
    /// The scheme to begin with where this was the first packet of a session, and its settings. A
    /// sender whose scheme is not known here is refused by whatever machine is made.
    pub(crate) fn after(&self, packet: &[u8]) -> (&'static SchemeEntry, Options) {
        let spoken = || scheme_spoken(packet).and_then(|name| scheme(&name));
        let entry = self.named.or_else(spoken).unwrap_or_else(default_scheme);
        let known = |option: &&(String, OptionValue)| {
            Options::checked([(*option).clone()], entry.options)
                .inspect_err(|error| tracing::warn!("{}: {error}: it is left as it is", entry.name))
                .is_ok()
        };
        let options = self.options.iter().filter(known).cloned();
        let options = Options::checked(options, entry.options);
        (entry, options.expect("each of them was checked"))
    }
}

/// How the thread of a driver has spent its time, of which it waited so long for its disk.
pub(crate) fn host_load<M: Machine>(live: &mut Live<M>, disk: std::time::Duration) -> HostLoad {
    let disk = Duration::from_secs_f64(disk.as_secs_f64());
    let span = live.now().since(Time::ZERO);
    let counters = live.counters();
    let link = counters.sent.waited;
    HostLoad {
        span,
        busy: span.saturating_sub(counters.asleep).saturating_sub(link),
        disk,
        link,
        overflowed: counters.received.overflowed,
    }
}

/// An address of the family that packets to `target` have.
pub(crate) fn family(target: &Target) -> SocketAddr {
    match target {
        Target::Multicast(multicast) | Target::Both(multicast, _) => multicast.group,
        Target::Unicast(all) => {
            all.first().copied().unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)))
        }
    }
}

/// The group of packets to `target`, as PGM writes it.
pub(crate) fn group_to(target: &Target) -> Nla {
    match target {
        Target::Multicast(multicast) | Target::Both(multicast, _) => nla(multicast.group.ip()),
        Target::Unicast(_) => nla(unspecified(family(target))),
    }
}

/// The same, of packets that are heard. Where each receiver is sent to by itself the address at
/// which it hears is nobody else's business, and not known there: both ends say "unspecified".
pub(crate) fn group_of(listen: &Listen) -> Nla {
    match listen {
        Listen::Multicast(multicast) | Listen::Both(multicast, _) => nla(multicast.group.ip()),
        Listen::Unicast(address) => nla(unspecified(*address)),
    }
}

/// The address of a family that stands for all.
pub(crate) fn unspecified(family: SocketAddr) -> IpAddr {
    if family.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

fn nla(ip: IpAddr) -> Nla {
    match ip {
        IpAddr::V4(ip) => Nla::V4(ip.octets()),
        IpAddr::V6(ip) => Nla::V6(ip.octets()),
    }
}

/// The methods that all builders have.
macro_rules! common_settings {
    () => {
        /// Encrypts and authenticates everything with this key. Default: none.
        pub fn key(mut self, key: $crate::GroupKey) -> Self {
            self.common.key = Some(key);
            self
        }

        /// How the rate is chosen, by the scheme's name. A sender has
        /// [`DEFAULT_SCHEME`](crate::DEFAULT_SCHEME) where none is named; a receiver follows the
        /// sender, and takes nothing from one that speaks another than was named here.
        pub fn scheme(mut self, name: impl Into<String>) -> Self {
            self.common.scheme = Some(name.into());
            self
        }

        /// Changes a setting of the scheme or of PGM; checked when the end begins. The sender's
        /// settings of the scheme hold at its receivers too, unless they have their own.
        pub fn option(
            mut self,
            key: impl Into<String>,
            value: faircast_proto::options::OptionValue,
        ) -> Self {
            self.common.options.push((key.into(), value));
            self
        }

        /// Changes how sockets are set up: hops, loopback, buffers. Default: multicast stays in the
        /// local network.
        pub fn sockets(mut self, settings: faircast_net::SocketSettings) -> Self {
            self.common.sockets = settings;
            self
        }

        /// Writes a trace of everything to this file, which `faircast report` makes a page of. The
        /// file appears when the end is done. Default: none.
        pub fn trace(mut self, file: impl Into<std::path::PathBuf>) -> Self {
            self.common.trace = Some(file.into());
            self
        }
    };
}

/// The methods that builders of sending ends have.
macro_rules! sender_settings {
    () => {
        /// Never sends more payload than this. Default: as fast as is fair.
        pub fn rate_max(self, rate: faircast_base::Bitrate) -> Self {
            let rate = format!("{} bit/s", rate.bits_per_s());
            self.option("rate_max", faircast_proto::options::OptionValue::Text(rate))
        }

        /// Sends so much payload though the scheme does not permit it: fair to nobody, for paths
        /// where loss means no congestion. Default: none.
        pub fn rate_min(self, rate: faircast_base::Bitrate) -> Self {
            let rate = format!("{} bit/s", rate.bits_per_s());
            self.option("rate_min", faircast_proto::options::OptionValue::Text(rate))
        }

        /// Bytes of the largest IP packet. Default 1500.
        pub fn mtu(mut self, bytes: faircast_base::Bytes) -> Self {
            self.common.mtu = bytes;
            self
        }
    };
}

pub(crate) use {common_settings, sender_settings};

const IPV4_BYTES: u32 = 20;
const IPV6_BYTES: u32 = 40;
const UDP_BYTES: u32 = 8;
/// Header and body of an ODATA packet, and OPT_LENGTH.
const PGM_BYTES: u32 = 16 + 8 + 4;
/// What comes before an option's value.
const OPTION_BYTES: u32 = 4;
/// Options that ride on the first and the last packets of a stream: OPT_JOIN, OPT_SYN and OPT_FIN.
pub(crate) const STREAM_BYTES: u32 = 8 + 4 + 4;
const PAYLOAD_MIN: u64 = 64;

#[cfg(test)]
mod tests {
    use faircast_proto::options::OptionKind;

    use super::*;

    fn payload(mtu: u64, sealed: bool, family: &str) -> Result<u32, Error> {
        let key = sealed.then(|| GroupKey::from_bytes([1; 32]));
        Common { mtu: Bytes::new(mtu), key, ..Common::default() }
            .payload(family.parse().unwrap(), scheme("pgmcc").unwrap())
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
        let error = common.scheme(&[]).unwrap_err().to_string();
        assert!(error.contains("\"pgmc\"; there are pgmcc"), "{error}");
        let options = vec![("acker_bais".to_string(), OptionValue::Float(0.5))];
        let error = Common { options, ..Common::default() }.scheme(&[]).unwrap_err().to_string();
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
        let table = scheme(DEFAULT_SCHEME).unwrap().own_options;
        let spans = table.iter().filter(|spec| matches!(spec.kind, OptionKind::Duration { .. }));
        let long = || OptionValue::Text(format!("{} s", "0".repeat(150) + "1"));
        let options: Vec<_> = spans.map(|spec| (spec.name.to_string(), long())).collect();
        assert!(options.len() > 1);
        let error = Common { options, ..Common::default() }.scheme(&[]).unwrap_err().to_string();
        assert!(error.contains("251 bytes"), "{error}");
    }
}
