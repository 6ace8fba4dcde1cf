//! Settings of sockets and drivers.

use std::net::IpAddr;

use faircast_base::{Bytes, Duration, NodeId};

use crate::Upstream;

/// Settings of sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketSettings {
    /// Multicast hop limit (TTL); a packet's own smaller limit wins. Default 1: the local subnet.
    pub hops: u8,
    /// True if members on this host receive this host's multicasts. Default true.
    pub loopback: bool,
    /// Local port. Default `None`: any; at a source the target's if free, for OpenPGM and ZeroMQ.
    pub port: Option<u16>,
    /// Destination of a receiver's packets to the source. Default [`Upstream::FromPacket`].
    pub upstream: Upstream,
    /// Requested kernel receive buffer. Default 16 MiB: at several Gbit/s a receiver must survive
    /// some tens of milliseconds without a processor. Over a quarter full, packets count as marked
    /// for congestion. The granted size is in [`Sockets::buffers`](crate::Sockets::buffers).
    pub receive_buffer: Bytes,
    /// Requested kernel send buffer. Default 4 MiB.
    pub send_buffer: Bytes,
    /// True if packets may be joined (UDP GSO, GRO): not where links count packets. Default true.
    pub offload: bool,
    /// True if packets are ECN-capable (ECT(0)), for schemes that react to marks. Default false.
    pub ecn: bool,
    /// Only accepted sender address, also for unicast. Default `None`: any.
    pub only_from: Option<IpAddr>,
    /// Longest accepted datagram. Default 65 507 bytes, the maximum of IPv4.
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

/// Settings of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverSettings {
    /// Node. Default `None`: a source's IPv4 address, as other implementations need, else random.
    pub node: Option<NodeId>,
    /// Seed of the machines' random numbers. Default `None`: from the system.
    pub seed: Option<u64>,
    /// Zero of the machines' clock. With a zero, clock steps of any length count, as in a
    /// simulation; otherwise at most a second of each. Default `None`: the driver's creation.
    pub zero: Option<std::time::Instant>,
    /// Most concurrent sessions; ended sessions make room. Default 16.
    pub sessions_max: usize,
    /// Interval between calls of [`App::tick`](crate::App::tick), 1 ms to 500 ms. Default 100 ms.
    pub tick: Duration,
    /// Time limit for the machines' remaining work after a close. Default 30 s.
    pub close_timeout: Duration,
    /// True if the driver ends once no session has work left. Default true; daemons: false.
    pub ends_when_idle: bool,
    /// Longest time by which timers may run early, up to 64 together; maximum 1 ms. Default 50 us.
    pub grain: Duration,
    /// Pause after a read, so that several packets share a wake-up. Default 0, maximum 2 ms.
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
