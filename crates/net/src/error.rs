//! Errors of sockets and drivers.

use std::io;
use std::net::{IpAddr, SocketAddr};

/// Reason why sockets could not be opened or a driver had to stop; a network outage is neither.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The address of a group is not a multicast address.
    #[error("{0} is not a multicast address (IPv4: 224.0.0.0/4, IPv6: ff00::/8)")]
    NotMulticast(IpAddr),
    /// A link-local group without an interface.
    #[error(
        "{0} means something on one link only: name the network with --interface, or use such as \
         ff15::7:1"
    )]
    NeedsInterface(IpAddr),
    /// Two addresses must be of one family, but are not.
    #[error("{0} and {1} are not of the same address family")]
    Family(IpAddr, IpAddr),
    /// Addresses, zones or groups cannot be used together.
    #[error("{0}")]
    Addresses(String),
    /// No interface has this name, address or number.
    #[error("no usable network interface {wanted}; there are {present}")]
    Interface {
        /// Name, address or index of the interface.
        wanted: String,
        /// Present interfaces, with their addresses.
        present: String,
    },
    /// A socket could not be opened or set up.
    #[error("cannot {what}: {error}")]
    Socket {
        /// Operation that failed.
        what: &'static str,
        /// Error of the system.
        error: io::Error,
    },
    /// An address could not be bound.
    #[error("cannot bind {address}: {error}")]
    Bind {
        /// Address.
        address: SocketAddr,
        /// Error of the system.
        error: io::Error,
    },
    /// A group could not be joined.
    #[error("cannot join {group}: {error}")]
    Join {
        /// Group.
        group: SocketAddr,
        /// Error of the system.
        error: io::Error,
    },
}

impl NetError {
    pub(crate) fn doing<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Socket { what, error: error.into() }
    }
}
