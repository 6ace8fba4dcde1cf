//! What a link is like.

use alloc::vec::Vec;

use faircast_base::{Bitrate, Duration, Time};

/// One direction of one link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Transmission rate at the start; above zero.
    pub rate: Bitrate,
    /// Propagation delay at the start.
    pub delay: Duration,
    /// The queue in front of the serialiser.
    pub queue: QueueConfig,
    /// Probability at the start, 0 to 1, that a packet is lost on the wire, independent of all
    /// others. A lost packet has used the link's time all the same.
    pub loss: f64,
    /// What changes during the run, in order of time.
    pub changes: Vec<LinkChange>,
    /// Packets to drop on purpose, counted from 1 in order of arrival among those with payload.
    /// An instrument for tests of loss recovery.
    pub drop_list: Vec<u64>,
}

/// A change of a link during the run. What is `None` stays as it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkChange {
    /// When.
    pub at: Time,
    /// The new rate; above zero. It holds from `at` on, for a packet in transmission too.
    pub rate: Option<Bitrate>,
    /// The new delay, for packets whose transmission ends at `at` or later. A shorter delay lets
    /// them overtake, as a change of route does.
    pub delay: Option<Duration>,
    /// The new loss probability, for packets whose transmission ends at `at` or later.
    pub loss: Option<f64>,
}

/// The queue in front of a link's serialiser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueConfig {
    /// Drops what does not fit. The limit counts the packet in transmission, as ns-2's does:
    /// a limit of 30 holds 29 waiting packets and the one in transmission.
    DropTail {
        /// Most packets, at least 1.
        packets_max: u32,
    },
    /// Drops what does not fit into so many bytes, the packet in transmission counted.
    DropTailBytes {
        /// Most bytes; at least one packet always fits an idle link.
        bytes_max: u64,
    },
    /// Random early detection.
    Red(RedConfig),
}

/// Random early detection as ns-2 has it: the average counts waiting packets only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedConfig {
    /// Average from which on packets are dropped at random, in packets.
    pub min: f64,
    /// Average from which on all are dropped (or, if `gentle`, more and more up to twice this).
    pub max: f64,
    /// Weight of a new sample in the average, above 0 to 1.
    pub weight: f64,
    /// Probability of dropping at `max`, above 0 to 1.
    pub max_p: f64,
    /// Whether the probability rises gently from `max_p` to 1 between `max` and `2 max`.
    pub gentle: bool,
    /// Most packets waiting, the one in transmission not counted.
    pub packets_max: u32,
    /// Packet size in bytes used to turn idle time into packets that could have been sent.
    pub mean_packet_bytes: u32,
}
