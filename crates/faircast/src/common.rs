//! What all ends have in common.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use faircast_base::Bytes;
use faircast_net::{Listen, SocketSettings, Target};
use faircast_proto::options::{OptionValue, Options};
use faircast_proto::registry::{DEFAULT_SCHEME, SCHEMES, SchemeEntry, scheme};
use faircast_proto::wire::pgm::Nla;

use crate::envelope::overhead;
use crate::{Error, GroupKey};

/// The settings of every end.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    pub(crate) key: Option<GroupKey>,
    pub(crate) scheme: String,
    pub(crate) options: Vec<(String, OptionValue)>,
    pub(crate) mtu: Bytes,
    pub(crate) sockets: SocketSettings,
    pub(crate) trace: Option<PathBuf>,
}

impl Default for Common {
    fn default() -> Self {
        Self {
            key: None,
            scheme: DEFAULT_SCHEME.to_string(),
            options: Vec::new(),
            mtu: Bytes::new(1500),
            sockets: SocketSettings::default(),
            trace: None,
        }
    }
}

impl Common {
    /// The scheme and its settings, checked. `more` are those that the kind of session dictates.
    pub(crate) fn scheme(
        &self,
        more: &[(&str, OptionValue)],
    ) -> Result<(&'static SchemeEntry, Options), Error> {
        let known = || SCHEMES.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
        let entry = scheme(&self.scheme)
            .ok_or_else(|| Error::Scheme { name: self.scheme.clone(), known: known() })?;
        let own = more.iter().map(|(key, value)| ((*key).to_string(), value.clone()));
        let all = own.chain(self.options.iter().cloned());
        let options = Options::checked(all, entry.options)?;
        Ok((entry, options))
    }

    /// Bytes that a packet has on its way beside what a machine writes.
    fn headers(&self, family: SocketAddr) -> u32 {
        let ip = if family.is_ipv4() { IPV4_BYTES } else { IPV6_BYTES };
        ip + UDP_BYTES + overhead(self.key.is_some()) as u32
    }

    /// Bytes of payload, after PGM's headers, that fit into a packet.
    pub(crate) fn payload(&self, family: SocketAddr) -> Result<u32, Error> {
        let others = u64::from(self.headers(family) + PGM_BYTES);
        // What UDP can take, with its headers.
        let (min, max) = (others + PAYLOAD_MIN, 65_507 + 28);
        let bytes = self.mtu.count();
        if !(min..=max).contains(&bytes) {
            return Err(Error::Mtu { bytes, min, max });
        }
        Ok((bytes - others) as u32)
    }
}

/// An address of the family that packets to `target` have.
pub(crate) fn family(target: &Target) -> SocketAddr {
    match target {
        Target::Multicast(multicast) => multicast.group,
        Target::Unicast(all) => {
            all.first().copied().unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)))
        }
    }
}

/// The group of packets to `target`, as PGM writes it.
pub(crate) fn group_to(target: &Target) -> Nla {
    match target {
        Target::Multicast(multicast) => nla(multicast.group.ip()),
        Target::Unicast(_) => nla(unspecified(family(target))),
    }
}

/// The same, of packets that are heard. Where each receiver is sent to by itself the address at
/// which it hears is nobody else's business, and not known there: both ends say "unspecified".
pub(crate) fn group_of(listen: &Listen) -> Nla {
    match listen {
        Listen::Multicast(multicast) => nla(multicast.group.ip()),
        Listen::Unicast(address) => nla(unspecified(*address)),
    }
}

fn unspecified(family: SocketAddr) -> IpAddr {
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

        /// How the rate is chosen, by the scheme's name. Default `pgmcc`. Both ends need the same.
        pub fn scheme(mut self, name: impl Into<String>) -> Self {
            self.common.scheme = name.into();
            self
        }

        /// Changes a setting of the scheme or of PGM; checked when the end begins.
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
/// Header and body of an ODATA packet, and the options that ride on it: OPT_LENGTH and what the
/// scheme announces.
const PGM_BYTES: u32 = 16 + 8 + 4 + 16;
const PAYLOAD_MIN: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(mtu: u64, sealed: bool, family: &str) -> Result<u32, Error> {
        let key = sealed.then(|| GroupKey::from_bytes([1; 32]));
        Common { mtu: Bytes::new(mtu), key, ..Common::default() }.payload(family.parse().unwrap())
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
        let common = Common { scheme: "pgmc".into(), ..Common::default() };
        let error = common.scheme(&[]).unwrap_err().to_string();
        assert!(error.contains("\"pgmc\"; there are pgmcc"), "{error}");
        let options = vec![("acker_bais".to_string(), OptionValue::Float(0.5))];
        let error = Common { options, ..Common::default() }.scheme(&[]).unwrap_err().to_string();
        assert!(error.contains("acker_bias"), "{error}");
    }
}
