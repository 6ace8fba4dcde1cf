//! Configuration of PGM sources and receivers at their start.

use faircast_base::{Duration, NodeId, Seq, Time};

use crate::congestion::Load;
use crate::options::Options;
use crate::pgm::RepairTimers;
use crate::pgm::options::{PgmSettings, Profile};
use crate::pgm::wire::{Nla, Tsi};

/// Whether what is lost is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reliability {
    /// Receivers ask for every missing packet, the source repairs.
    Repaired,
    /// Nothing is repaired. Receivers that lose still send a NAK now and then, which the source
    /// confirms: congestion control lives on the reports that they carry.
    Unrepaired,
}

impl Reliability {
    fn of(settings: &PgmSettings) -> Self {
        if settings.reliable { Self::Repaired } else { Self::Unrepaired }
    }
}

/// The settings of a PGM source.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceConfig {
    /// The node that it runs on: where NAKs and ACKs go.
    pub node: NodeId,
    /// The group that it sends to.
    pub group: Nla,
    /// Its session.
    pub tsi: Tsi,
    /// The data-destination port. Default 7500, that of OpenPGM's samples.
    pub data_port: u16,
    /// When it begins.
    pub start: Time,
    /// Bytes of payload in every data packet but the last, 1 to 65535. Default 1400.
    pub payload: u32,
    /// Sequence number of the first data packet. Default 0, as OpenPGM has it.
    pub first: Seq,
    /// Whether it repairs. Default [`Reliability::Repaired`].
    pub reliability: Reliability,
    /// Packets that it will repair: the transmit window, 1 to 2^30. Default 8192, what a receiver
    /// keeps. It costs no memory, since repairs are read from the content again; a window of 1000
    /// as others have it is passed in about a second at 10 Mbit/s, too soon for a packet whose
    /// repair is lost as well.
    pub window_packets: u32,
    /// Whether repairs and heartbeats follow the round trips that reports tell of. Default
    /// [`RepairTimers::Adaptive`].
    pub repair_timers: RepairTimers,
    /// Time between ambient SPMs. Default 30 s (src: openpgm, ZeroMQ): who joins in between asks
    /// for one.
    pub ambient_interval: Duration,
    /// Time from data to the first heartbeat SPM; it doubles with each. With adaptive timers it is
    /// at least one and a half round trips, so that a window that waits for acknowledgements is no
    /// end of data. Also the least time between answers to SPM requests. Default 100 ms.
    pub heartbeat_min: Duration,
    /// Longest time between heartbeat SPMs. Default 30 s.
    pub heartbeat_max: Duration,
    /// Time from the first NAK for a packet to its repair, to collect more NAKs. Default 0.
    pub repair_delay: Duration,
    /// Least time between two repairs of one packet: NAKs that cross the repair on its way cause
    /// no second one. Default 100 ms. With adaptive timers it serves only where no round trip is
    /// known; a NAK is taken to have crossed a repair that left less than its sender's round trip
    /// ago. Fixed, zero repairs at every NAK that finds no repair waiting.
    pub repair_interval: Duration,
    /// Least time between two confirmations that are alike. Default 10 ms: far below a receiver's
    /// time to repeat a NAK, yet thousands of NAKs for one loss cost few confirmations (src:
    /// RFC 3208 s5.2). Zero confirms every NAK.
    pub confirm_interval: Duration,
    /// How many packets before its lead late joiners may ask for; `None` says nothing (no
    /// OPT_JOIN). Default `None`.
    pub late_join: Option<u32>,
    /// Whoever hears one of so many first packets may ask for all before it, so that a loss at the
    /// very start costs nobody the session. Default 64; 0 for nobody.
    pub open_start: u32,
    /// Time without NAKs after the end of data until it rests. Default 5 s. After a NAK in this
    /// time it is four times as long: where losses are many, so are those of NAKs.
    pub linger: Duration,
    /// Longest time after the end of data, NAKs or not. Default 300 s.
    pub linger_max: Duration,
    /// Hops that its packets may travel. Default 255: drivers of real networks set less.
    pub time_to_live: u8,
}

impl SourceConfig {
    /// The recommended settings for a source on `node` that sends session `tsi` to `group`.
    pub fn new(node: NodeId, group: Nla, tsi: Tsi) -> Self {
        Self::of(&PgmSettings::default(), node, group, tsi)
    }

    /// The settings of ns-2.35's PGM sender.
    pub fn ns2(node: NodeId, group: Nla, tsi: Tsi) -> Self {
        Self::of(&PgmSettings::profile(Profile::Ns2), node, group, tsi)
    }

    /// The settings that `options`, checked against a table with [`OPTIONS`](super::OPTIONS) in it, ask
    /// for.
    pub fn from_options(node: NodeId, group: Nla, tsi: Tsi, options: &Options) -> Self {
        Self::of(&PgmSettings::from_options(options), node, group, tsi)
    }

    fn of(settings: &PgmSettings, node: NodeId, group: Nla, tsi: Tsi) -> Self {
        Self {
            node,
            group,
            tsi,
            data_port: DATA_PORT,
            start: Time::ZERO,
            payload: 1400,
            first: Seq::new(0),
            reliability: Reliability::of(settings),
            window_packets: settings.transmit_window,
            repair_timers: settings.repair_timers,
            ambient_interval: settings.spm_interval,
            heartbeat_min: settings.heartbeat_min,
            heartbeat_max: settings.heartbeat_max,
            repair_delay: settings.repair_delay,
            repair_interval: settings.repair_interval,
            confirm_interval: settings.confirm_interval,
            late_join: (settings.late_join > 0).then_some(settings.late_join),
            open_start: settings.open_start,
            linger: settings.linger,
            linger_max: Duration::from_secs(300).max(settings.linger),
            time_to_live: 255,
        }
    }
}

/// The settings of a PGM receiver.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiverConfig {
    /// The group that it hears.
    pub group: Nla,
    /// The session that it hears; `None` for the first one heard. Default `None`.
    pub tsi: Option<Tsi>,
    /// The data-destination port. Default 7500.
    pub data_port: u16,
    /// When it joins.
    pub start: Time,
    /// Whether it asks for repairs. Default [`Reliability::Repaired`].
    pub reliability: Reliability,
    /// Most packets between the first that is missing and the last that is kept, 1 to 2^20; what
    /// comes from beyond is dropped, and asked for later. Default 8192.
    pub window_packets: u32,
    /// How many later packets show that one is missing, 1 to 16. Default 2
    /// (src: RFC 3208 s6.3 leaves it open and names 2 as possible).
    pub reorder_packets: u32,
    /// After how long a gap that fewer later packets have shown counts as missing. Default 20 ms.
    pub reorder_delay: Duration,
    /// Wait for the packets of a gap as long as late packets have shown, whatever comes meanwhile. Default true.
    pub reorder_learn: bool,
    /// After how long what only an SPM or a NAK told of counts as missing. Default 20 ms. OpenPGM's
    /// sources announce packets before they may send them: 4 s is right for those.
    pub tail_delay: Duration,
    /// Whether the timers of NAKs follow the round trips measured from them. Default
    /// [`RepairTimers::Adaptive`].
    pub repair_timers: RepairTimers,
    /// Longest back-off before a NAK (NAK_BO_IVL). Default 50 ms.
    pub nak_backoff: Duration,
    /// Time to wait for a confirmation (NAK_RPT_IVL); the least one where timers are adaptive.
    /// Default 200 ms.
    pub nak_repeat: Duration,
    /// Time to wait for a confirmed repair (NAK_RDATA_IVL); the least one where timers are
    /// adaptive. Default 200 ms.
    pub nak_repair: Duration,
    /// NAKs without confirmation until a packet is given up (NAK_NCF_RETRIES). Default 50.
    pub confirm_retries: u32,
    /// Confirmations without repair until a packet is given up (NAK_DATA_RETRIES). Default 50.
    pub repair_retries: u32,
    /// Whether one NAK may ask for several packets. Default true.
    pub nak_lists: bool,
    /// Whether each NAK also goes to the group with one hop to live, to silence neighbours.
    /// Default false.
    pub nak_copies: bool,
    /// Longest back-off before an SPM request (SPMR_BO_IVL). Default 250 ms.
    pub spm_request_backoff: Duration,
    /// Where nothing is repaired: least time between two NAKs. Default 200 ms.
    pub report_interval: Duration,
    /// Time without anything new from the source after which it counts as gone: what was said before
    /// can be repeated by anybody. Default 300 s.
    pub expiry: Duration,
}

impl ReceiverConfig {
    /// The recommended settings for a receiver of `group`.
    pub fn new(group: Nla) -> Self {
        Self::of(&PgmSettings::default(), group)
    }

    /// The settings of ns-2.35's PGM receiver.
    pub fn ns2(group: Nla) -> Self {
        Self::of(&PgmSettings::profile(Profile::Ns2), group)
    }

    /// The settings that `options`, checked against a table with [`OPTIONS`](super::OPTIONS) in it, ask
    /// for.
    pub fn from_options(group: Nla, options: &Options) -> Self {
        Self::of(&PgmSettings::from_options(options), group)
    }

    fn of(settings: &PgmSettings, group: Nla) -> Self {
        Self {
            group,
            tsi: None,
            data_port: DATA_PORT,
            start: Time::ZERO,
            reliability: Reliability::of(settings),
            window_packets: settings.receive_window,
            reorder_packets: settings.reorder_packets,
            reorder_delay: settings.reorder_delay,
            reorder_learn: settings.reorder_learn,
            tail_delay: settings.tail_delay,
            repair_timers: settings.repair_timers,
            nak_backoff: settings.nak_backoff,
            nak_repeat: settings.nak_repeat,
            nak_repair: settings.nak_repair,
            confirm_retries: settings.nak_retries,
            repair_retries: settings.nak_retries,
            nak_lists: settings.nak_lists,
            nak_copies: settings.nak_copies,
            spm_request_backoff: Duration::from_millis(250),
            report_interval: settings.report_interval,
            expiry: Duration::from_secs(300),
        }
    }

    /// Settings, each of which is taken to the nearest end of its range.
    pub(super) fn bounded(mut self) -> Self {
        self.window_packets = self.window_packets.clamp(1, RECEIVE_WINDOW_PACKETS_MAX);
        self.reorder_packets = self.reorder_packets.clamp(1, REORDER_PACKETS_MAX);
        for interval in [
            &mut self.nak_backoff,
            &mut self.nak_repeat,
            &mut self.nak_repair,
            &mut self.spm_request_backoff,
        ] {
            // A timer of no length would run out again and again in one moment.
            *interval = (*interval).max(INTERVAL_MIN);
        }
        self
    }
}

impl Load {
    /// The most packets that PGM's repair makes receivers send, whatever the scheme: each loss is
    /// asked for when it is found, and again each time that a confirmation or a repair has not come
    /// in time; and each receiver may ask the source and its neighbours for an SPM.
    pub fn naks_max(&self, options: &Options) -> u64 {
        let receiver = ReceiverConfig::from_options(Nla::NULL, options);
        let again = receiver.nak_repeat.min(receiver.nak_repair).as_nanos().max(1);
        self.losses + self.missing.as_nanos() / again + 2 * self.receivers
    }
}

/// Most packets of a receive window.
const RECEIVE_WINDOW_PACKETS_MAX: u32 = 1 << 20;

/// Most later packets that a receiver waits for before it calls one missing.
const REORDER_PACKETS_MAX: u32 = 16;

/// Shortest interval of a timer that repeats.
const INTERVAL_MIN: Duration = Duration::from_micros(1);

/// The data-destination port of OpenPGM's samples.
pub(crate) const DATA_PORT: u16 = 7500;

/// Most packets of a transmit window, half of what RFC 3208 allows, so that a window and as much
/// again stay comparable.
pub(super) const WINDOW_PACKETS_MAX: u32 = 1 << 30;
