//! Errors of sockets and drivers.

use std::io;
use std::net::{IpAddr, SocketAddr};

use faircast_base::GroupId;

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
    /// The zone of a group differs from the named interface.
    #[error(
        "the zone of {group}%{zone} says another interface than {interface}: name one of them, in \
         the address or with --interface"
    )]
    Zone {
        /// Group address.
        group: IpAddr,
        /// Interface of its zone.
        zone: String,
        /// Named interface.
        interface: String,
    },
    /// Two addresses must be of one family, but are not.
    #[error("{0} and {1} are not of the same address family")]
    Family(IpAddr, IpAddr),
    /// A target without receivers.
    #[error("a unicast target needs at least one address")]
    NoReceivers,
    /// A unicast target has more receivers than [`RECEIVERS_MAX`](crate::RECEIVERS_MAX).
    #[error("{0} receivers by unicast; at most {max}", max = crate::RECEIVERS_MAX)]
    TooManyReceivers(usize),
    /// The session has no group, and other groups require one.
    #[error("groups beside the session's need one of the session, and it has none")]
    NoGroup,
    /// A group with this number or address exists already.
    #[error("{0}: there is a group with this name or this address already")]
    SameGroup(SocketAddr),
    /// A machine joins a group that has no address.
    #[error("group {} has no address here", .0.0)]
    UnknownGroup(GroupId),
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
    pub(crate) fn socket(what: &'static str, error: impl Into<io::Error>) -> Self {
        Self::Socket { what, error: error.into() }
    }

    pub(crate) fn doing<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::socket(what, error)
    }
}
