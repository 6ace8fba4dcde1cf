//! Errors of sockets and drivers.

use std::io;
use std::net::{IpAddr, SocketAddr};

/// Reason why sockets could not be opened or a driver had to stop; a network outage is neither.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the text of an error describes the variant")]
pub enum NetError {
    #[error("{0} is not a multicast address (IPv4: 224.0.0.0/4, IPv6: ff00::/8)")]
    NotMulticast(IpAddr),
    #[error(
        "{0} means something on one link only: name the network with --interface, or use such as \
         ff15::7:1"
    )]
    NeedsInterface(IpAddr),
    #[error("{0} and {1} are not of the same address family")]
    Family(IpAddr, IpAddr),
    /// Addresses, zones or groups cannot be used together.
    #[error("{0}")]
    Addresses(String),
    #[error("no usable network interface {wanted}; there are {present}")]
    Interface { wanted: String, present: String },
    #[error("cannot {what}: {error}")]
    Socket { what: &'static str, error: io::Error },
    #[error("cannot bind {address}: {error}")]
    Bind { address: SocketAddr, error: io::Error },
    #[error("cannot join {group}: {error}")]
    Join { group: SocketAddr, error: io::Error },
}

impl NetError {
    pub(crate) fn doing<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Socket { what, error: error.into() }
    }
}
