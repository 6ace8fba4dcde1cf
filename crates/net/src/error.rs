//! Errors of sockets and drivers.

use std::io;
use std::net::{IpAddr, SocketAddr};

use faircast_base::GroupId;

/// Why sockets could not be opened, or a driver had to stop.
///
/// Nothing that comes from the network is an error, and neither is a network that is down for a
/// while: those are [`Counters`](crate::Counters).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The address of a group is not a multicast address.
    #[error("{0} is not a multicast address (IPv4: 224.0.0.0/4, IPv6: ff00::/8)")]
    NotMulticast(IpAddr),
    /// A group that means something on one link only, and no interface.
    #[error(
        "{0} means something on one link only: name the network with --interface, or use such as \
         ff15::7:1"
    )]
    NeedsInterface(IpAddr),
    /// The zone of a group is not the interface that is named beside it.
    #[error(
        "the zone of {group}%{zone} says another interface than {interface}: name one of them, in \
         the address or with --interface"
    )]
    Zone {
        /// The group.
        group: IpAddr,
        /// Interface of its zone.
        zone: String,
        /// The other interface.
        interface: String,
    },
    /// Two addresses that must be of one family are not.
    #[error("{0} and {1} are not of the same address family")]
    Family(IpAddr, IpAddr),
    /// A target without receivers.
    #[error("a unicast target needs at least one address")]
    NoReceivers,
    /// A unicast target has more receivers than [`RECEIVERS_MAX`](crate::RECEIVERS_MAX).
    #[error("{0} receivers by unicast; at most {max}", max = crate::RECEIVERS_MAX)]
    TooManyReceivers(usize),
    /// The session has no group, so there can be none beside it.
    #[error("groups beside the session's need one of the session, and it has none")]
    NoGroup,
    /// Two groups have one name or one address.
    #[error("{0}: there is a group with this name or this address already")]
    SameGroup(SocketAddr),
    /// A machine wants to join a group that has no address.
    #[error("group {} has no address here", .0.0)]
    UnknownGroup(GroupId),
    /// No interface has this name, address or number.
    #[error("no usable network interface {wanted}; there are {present}")]
    Interface {
        /// What was looked for.
        wanted: String,
        /// The interfaces that there are, with their addresses.
        present: String,
    },
    /// A socket could not be opened or set up.
    #[error("cannot {what}: {error}")]
    Socket {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        error: io::Error,
    },
    /// An address could not be bound.
    #[error("cannot bind {address}: {error}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's answer.
        error: io::Error,
    },
    /// A group could not be joined.
    #[error("cannot join {group}: {error}")]
    Join {
        /// The group.
        group: SocketAddr,
        /// The system's answer.
        error: io::Error,
    },
}

impl NetError {
    pub(crate) fn socket(what: &'static str, error: impl Into<io::Error>) -> Self {
        Self::Socket { what, error: error.into() }
    }

    /// Turns the failure of a step into an error that names it.
    pub(crate) fn doing<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::socket(what, error)
    }
}
