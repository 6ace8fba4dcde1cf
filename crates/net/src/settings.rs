//! The settings of sockets and drivers.

use std::net::IpAddr;

use faircast_base::{Bytes, Duration, NodeId};

use crate::Upstream;

/// The settings of sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketSettings {
    /// Hops that multicast packets may travel (TTL, hop limit), 0 to 255. Default 1: they stay on
    /// their subnet. What a machine asks for counts where it is less.
    pub hops: u8,
    /// Whether members on this host hear what this host sends to a group. Default true.
    pub loopback: bool,
    /// The port from which it sends and on which it hears unicast. Default `None`: at a source the
    /// target's if it is free, as OpenPGM and ZeroMQ need it; else any.
    pub port: Option<u16>,
    /// Where a receiver's answers go. Default [`Upstream::FromPacket`].
    pub upstream: Upstream,
    /// Size to ask for the kernel's receive buffer. Default 16 MiB: at several Gbit/s a receiver that
    /// does not get a processor for some tens of milliseconds must not lose. While more than a
    /// quarter of it waits, packets count as marked by congestion, so that the source goes slower
    /// before anything is lost. What was got is in [`Sockets::buffers`](crate::Sockets::buffers).
    pub receive_buffer: Bytes,
    /// Size to ask for the kernel's send buffer. Default 4 MiB.
    pub send_buffer: Bytes,
    /// Whether packets may be handed to and taken from the kernel as one large packet (UDP GSO and
    /// GRO), where it can. Default true. Not on emulated links that count packets.
    pub offload: bool,
    /// Whether packets say that congestion may be marked on them (ECT(0)). Default false: only for
    /// schemes that answer marks as they answer losses.
    pub ecn: bool,
    /// The one address from which packets are taken, by unicast too. Default `None`: from all.
    pub only_from: Option<IpAddr>,
    /// Longest datagram that is taken. Default 65 507 bytes, the longest that IPv4 has.
    pub datagram_max: usize,
}

impl Default for SocketSettings {
    fn default() -> Self {
        Self {
            hops: 1,
            loopback: true,
            port: None,
            upstream: Upstream::FromPacket,
            receive_buffer: Bytes::new(16 << 20),
            send_buffer: Bytes::new(4 << 20),
            offload: true,
            ecn: false,
            only_from: None,
            datagram_max: 65_507,
        }
    }
}

/// The settings of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverSettings {
    /// The node that it is. Default `None`: at a source that of its IPv4 address, to which
    /// receivers of other makes answer; else a random number.
    pub node: Option<NodeId>,
    /// Seed of the machines' randomness. Default `None`: from the system.
    pub seed: Option<u64>,
    /// Moment at which the machines' clock stands at zero. Steps of any length count then, as in a
    /// simulation; otherwise a second of each at most. Default `None`: when the driver is made.
    pub zero: Option<std::time::Instant>,
    /// Most sessions that are heard at a time; those that are over make room. Default 16.
    pub sessions_max: usize,
    /// Time between two calls of [`App::tick`](crate::App::tick), 1 ms to 500 ms. Default 100 ms.
    pub tick: Duration,
    /// How long it goes on after a close for what machines have still to do. Default 30 s.
    pub close_timeout: Duration,
    /// Whether it ends when no session has anything left to do. Default true; daemons: false.
    pub ends_when_idle: bool,
    /// Longest time by which a timer may be handled early, so that packets leave together, 64 at
    /// most. Default 50 us; no more than 1 ms is taken.
    pub grain: Duration,
    /// How long after it has read packets it leaves others that come alone, so that they are read together: to wake
    /// up costs more than to handle a packet. Default 0; no more than 2 ms is taken.
    pub gather: Duration,
}

impl Default for DriverSettings {
    fn default() -> Self {
        Self {
            node: None,
            seed: None,
            zero: None,
            sessions_max: 16,
            tick: Duration::from_millis(100),
            close_timeout: Duration::from_secs(30),
            ends_when_idle: true,
            grain: Duration::from_micros(50),
            gather: Duration::ZERO,
        }
    }
}
