//! Configuration of a link: rate, delay, queue, losses and faults, with their scheduled changes.

use alloc::vec::Vec;

use faircast_base::{Bitrate, Duration, Time};

/// Configuration of one direction of a link.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct LinkConfig {
    /// Initial transmission rate; above zero.
    pub rate: Bitrate,
    pub delay: Duration,
    pub queue: QueueConfig,
    /// Initial independent loss probability, 0 to 1. A lost packet has used transmission time.
    pub loss: f64,
    pub changes: Vec<LinkChange>,
    /// Packets to drop, by arrival from 1 among packets with payload. For tests of loss recovery.
    pub drop_list: Vec<u64>,
    /// Faults beside independent loss; none by default.
    pub faults: Faults,
    /// Clock and jitter of the host or emulator that drives the link; none by default.
    pub timing: Timing,
}

/// Timing of a host or emulator that sends from software. Default: exact clock without jitter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Clock tick: packets leave queue and wire only at its multiples, and occupy the queue until
    /// then, as in Dummynet (src: dummynet-1997). Zero for an exact clock.
    pub tick: Duration,
    /// Maximum jitter of a packet after the wire, uniform from zero. Packets keep their order.
    pub jitter: Duration,
}

/// Faults of a link beside independent loss. Loss by the drop list, independent, by length, by an
/// outage and in a burst is tested in this order. A surviving packet may be duplicated; each copy
/// is then delayed or corrupted independently.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Faults {
    pub burst_loss: BurstLoss,
    pub reorder: Reorder,
    /// Probability, 0 to 1, that a duplicate follows a packet, without transmission time.
    pub duplicate: f64,
    /// Probability, 0 to 1, that a uniformly chosen bit of a packet is flipped.
    pub corrupt: f64,
    /// MTU in bytes; longer packets are lost without a report. `None` for no limit.
    pub mtu: Option<u32>,
    /// Outages, sorted by time, without overlap.
    pub outages: Vec<Outage>,
}

/// Burst losses by Gilbert's two-state Markov chain, which advances once for each packet that
/// survived the other losses. In the bad state every packet is lost, in the good state none. With
/// mean loss p and mean burst length b, the chain goes from bad to good with probability 1 / b, and
/// from good to bad with p / (b (1 - p)).
/// src: gilbert-1960, elliott-1963; hasslinger-hohlfeld-2008 for the parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstLoss {
    /// Mean loss p: 0 (off) to b / (b + 1), or 1. Above, a transition probability exceeds 1.
    pub loss: f64,
    /// Mean burst length b in packets, at least 1.
    pub packets: f64,
}

impl Default for BurstLoss {
    fn default() -> Self {
        Self { loss: 0.0, packets: 1.0 }
    }
}

/// Reordering: a share of all packets gets an extra delay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Reorder {
    /// Probability, 0 to 1, that a packet is delayed, independent for each packet.
    pub share: f64,
    pub delay: Duration,
}

/// Outage of a link. Packets offered during the outage are lost at once and take neither queue
/// space nor time. Queued packets are lost if their transmission ends during the outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Outage {
    pub from: Time,
    /// End of the outage, exclusive.
    pub to: Time,
}

/// Change of a link during the run. `None` keeps the old value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct LinkChange {
    pub at: Time,
    /// New rate; above zero. Applies from `at` on, also to a packet in transmission.
    pub rate: Option<Bitrate>,
    /// New delay of packets transmitted at `at` or later; a shorter one lets them overtake.
    pub delay: Option<Duration>,
    /// New loss probability of packets whose transmission ends at `at` or later.
    pub loss: Option<f64>,
    /// New faults of packets whose transmission ends at `at` or later.
    pub faults: Option<FaultChange>,
}

/// Change of faults during the run. `None` keeps the old value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct FaultChange {
    pub burst_loss: Option<BurstLoss>,
    pub reorder: Option<Reorder>,
    pub duplicate: Option<f64>,
    pub corrupt: Option<f64>,
    pub mtu: Option<u32>,
}

/// Queue in front of a link's serialiser, by queue discipline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueConfig {
    /// Drop-tail queue limited in packets, including the packet in transmission as in ns-2.
    DropTail {
        /// Limit in packets, at least 1.
        packets_max: u32,
    },
    /// Drop-tail queue limited in bytes, including the packet in transmission.
    DropTailBytes {
        /// Limit in bytes; an idle link takes a packet of any length.
        bytes_max: u64,
    },
    /// Random early detection.
    Red(RedConfig),
}

/// Random early detection as in ns-2: the average counts waiting packets only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedConfig {
    /// Lower threshold of the average, in packets: random drops start here.
    pub min: f64,
    /// Upper threshold of the average, in packets, to drop all; with `gentle` up to `2 max`.
    pub max: f64,
    /// Weight of a new sample in the average, above 0 to 1.
    pub weight: f64,
    /// Drop probability at `max`, above 0 to 1.
    pub max_p: f64,
    /// True if the drop probability rises from `max_p` to 1 between `max` and `2 max`.
    pub gentle: bool,
    /// Most waiting packets, without the one in transmission.
    pub packets_max: u32,
    /// Packet size in bytes by which idle time is converted to packets.
    pub mean_packet_bytes: u32,
}
