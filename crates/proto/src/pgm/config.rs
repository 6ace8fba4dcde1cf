//! Configuration of PGM sources and receivers at their start.

use faircast_base::{Duration, NodeId, Seq, Time};

use crate::congestion::Load;
use crate::options::Options;
use crate::pgm::options::PgmFlowSettings;
use crate::pgm::wire::{Nla, Tsi};

/// Identity and settings of a PGM source.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceConfig {
    /// Node of the source: destination of NAKs and ACKs.
    pub node: NodeId,
    /// Group to send to.
    pub group: Nla,
    /// Session of the source.
    pub tsi: Tsi,
    /// Data-destination port. Default 7500, as in OpenPGM's samples.
    pub data_port: u16,
    /// Start time.
    pub start: Time,
    /// Payload bytes of every data packet but the last, 1 to 65535. Default 1400.
    pub payload: u32,
    /// Sequence number of the first data packet. Default 0, as in OpenPGM.
    pub first: Seq,
    /// Settings of the flow.
    pub settings: PgmFlowSettings,
    /// Packets that the source keeps for repair (RFC 3208: TXW_SQNS), 1 to 2^30. Default 8192.
    pub transmit_window: u32,
    /// Longest stay after the end of data, even if NAKs arrive. Default 300 s.
    pub linger_max: Duration,
    /// Time to live of packets, in hops. Default 255; drivers of real networks set less.
    pub time_to_live: u8,
}

impl SourceConfig {
    /// Returns the recommended settings for a source on `node` that sends session `tsi` to `group`.
    pub fn new(node: NodeId, group: Nla, tsi: Tsi) -> Self {
        Self::from_options(node, group, tsi, &Options::default())
    }

    /// Returns the settings in `options`, checked against a table with [`OPTIONS`](super::OPTIONS).
    pub fn from_options(node: NodeId, group: Nla, tsi: Tsi, options: &Options) -> Self {
        let settings = PgmFlowSettings::from_options(options);
        Self {
            node,
            group,
            tsi,
            data_port: DATA_PORT,
            start: Time::ZERO,
            payload: 1400,
            first: Seq::new(0),
            settings,
            transmit_window: WINDOW_PACKETS,
            linger_max: Duration::from_secs(300).max(settings.linger),
            time_to_live: 255,
        }
    }
}

/// Identity and settings of a PGM receiver.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiverConfig {
    /// Group to receive from.
    pub group: Nla,
    /// Session to receive; `None` for the first session received. Default `None`.
    pub tsi: Option<Tsi>,
    /// Data-destination port. Default 7500.
    pub data_port: u16,
    /// Time of the join.
    pub start: Time,
    /// Settings of the flow.
    pub settings: PgmFlowSettings,
    /// Largest span of the buffer in packets (RXW_SQNS), 1 to 2^20. Default 8192.
    pub receive_window: u32,
    /// Longest back-off before an SPM request (SPMR_BO_IVL). Default 250 ms.
    pub spm_request_backoff: Duration,
    /// Time without new packets, replays excluded, before the source counts as gone. Default 300 s.
    pub expiry: Duration,
}

impl ReceiverConfig {
    /// Returns the recommended settings for a receiver of `group`.
    pub fn new(group: Nla) -> Self {
        Self::from_options(group, &Options::default())
    }

    /// Returns the settings in `options`, checked against a table with [`OPTIONS`](super::OPTIONS).
    pub fn from_options(group: Nla, options: &Options) -> Self {
        Self {
            group,
            tsi: None,
            data_port: DATA_PORT,
            start: Time::ZERO,
            settings: PgmFlowSettings::from_options(options),
            receive_window: WINDOW_PACKETS,
            spm_request_backoff: Duration::from_millis(250),
            expiry: Duration::from_secs(300),
        }
    }

    pub(super) fn bounded(mut self) -> Self {
        self.receive_window = self.receive_window.clamp(1, RECEIVE_WINDOW_PACKETS_MAX);
        let settings = &mut self.settings;
        for interval in [
            &mut settings.nak_backoff,
            &mut settings.nak_repeat,
            &mut settings.nak_repair,
            &mut self.spm_request_backoff,
        ] {
            // A timer of zero length would expire again and again at one moment.
            *interval = (*interval).max(INTERVAL_MIN);
        }
        self
    }
}

impl Load {
    /// One NAK for each loss and each late confirmation or repair; two SPM requests each.
    pub fn naks_max(&self, options: &Options) -> u64 {
        let PgmFlowSettings { nak_repeat, nak_repair, .. } = PgmFlowSettings::from_options(options);
        let again = nak_repeat.min(nak_repair).as_nanos().max(1);
        self.losses + self.missing.as_nanos() / again + 2 * self.receivers
    }
}

/// Default of both windows: 1000 packets at 10 Mbit/s are too short for a lost repair. The source
/// needs no memory for its window.
const WINDOW_PACKETS: u32 = 8192;

const RECEIVE_WINDOW_PACKETS_MAX: u32 = 1 << 20;

const INTERVAL_MIN: Duration = Duration::from_micros(1);

/// Data-destination port of OpenPGM's samples.
pub(crate) const DATA_PORT: u16 = 7500;

/// Most packets of a transmit window: half of the limit in RFC 3208, so that numbers stay ordered.
pub(super) const WINDOW_PACKETS_MAX: u32 = 1 << 30;
