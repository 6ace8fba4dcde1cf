//! Configuration of a link: its rate, delay, queue, losses and faults, and their scheduled changes.

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
    /// What else goes wrong; by default nothing.
    pub faults: Faults,
    /// Clock and noise of the host or emulator that drives the link; by default none.
    pub timing: Timing,
}

/// Timing of a host or an emulator that sends from software. The default is an exact clock without noise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Clock tick: packets leave the queue and the wire only at multiples of the tick. Zero for none.
    ///
    /// Dummynet serves its pipes at each tick of the kernel's clock. Packets come out in batches and keep their slots
    /// of the queue until then. src: dummynet-1997.
    pub tick: Duration,
    /// Longest random wait of a packet behind the wire, uniform from zero. Packets keep their order.
    pub jitter: Duration,
}

/// What goes wrong on a link beside independent loss. The default is nothing; a link without
/// faults draws no random numbers for them.
///
/// A packet that leaves the serialiser is lost by the drop list, independently, by its length, by an outage or in
/// a burst, tried in this order. What survives may become two packets, and each of the two is
/// delayed or corrupted independently of the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Losses that come in bursts.
    pub burst_loss: BurstLoss,
    /// Packets that are overtaken.
    pub reorder: Reorder,
    /// Probability, 0 to 1, that a packet arrives twice. The second packet takes none of the
    /// link's time and arrives right after the first.
    pub duplicate: f64,
    /// Probability, 0 to 1, that one bit of a packet is flipped on the wire, any of its bits alike.
    pub corrupt: f64,
    /// Longest packet in bytes that gets through; longer ones vanish, and nobody is told. `None`: all do.
    pub mtu: Option<u32>,
    /// When the link is down, in order of time and without overlap.
    pub outages: Vec<Outage>,
}

/// Losses in bursts: the two-state Markov chain of Gilbert, which steps once for each packet
/// that nothing else has lost. In its bad
/// state every packet is lost and in its good state none; with independent loss beside it, that
/// is the loss of Elliott's good state.
///
/// The chain is given by what can be measured. With the mean loss p and the mean burst of b packets
/// it goes from bad to good with probability 1 / b and from good to bad with p / (b (1 - p)).
///
/// src: gilbert-1960, elliott-1963; hasslinger-hohlfeld-2008 for the parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstLoss {
    /// Mean share of packets lost in bursts, 0 (off) to 1. At most b / (b + 1) but for 1 itself, or
    /// the chain would have to leave its good state with a probability above 1.
    pub loss: f64,
    /// Mean packets that are lost one after the other, 1 or more.
    pub packets: f64,
}

impl Default for BurstLoss {
    fn default() -> Self {
        Self { loss: 0.0, packets: 1.0 }
    }
}

/// Packets that are overtaken: a share of all gets an extra delay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reorder {
    /// Probability, 0 to 1, that a packet gets it, independent of all others.
    pub share: f64,
    /// The extra delay.
    pub delay: Duration,
}

/// A time in which a link is down.
///
/// What is offered meanwhile is lost at once: it takes neither room nor time. What was admitted
/// before waits and is transmitted as ever, but is lost too if its transmission ends meanwhile. A
/// queue that is longer than the outage thus goes on behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// From this moment on.
    pub from: Time,
    /// It is up again at this moment.
    pub to: Time,
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
    /// New faults, for packets whose transmission ends at `at` or later.
    pub faults: Option<FaultChange>,
}

/// A change of faults during the run. What is `None` stays as it was.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultChange {
    /// The new bursts, which begin anew.
    pub burst_loss: Option<BurstLoss>,
    /// The new reordering.
    pub reorder: Option<Reorder>,
    /// The new share of packets that arrive twice.
    pub duplicate: Option<f64>,
    /// The new share of packets with a bit flipped.
    pub corrupt: Option<f64>,
    /// The new length in bytes of the longest packet that gets through.
    pub mtu: Option<u32>,
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
