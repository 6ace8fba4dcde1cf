//! Configuration of PGM sources and receivers at their start.

use faircast_base::{Duration, NodeId, Seq, Time};

use crate::congestion::Load;
use crate::options::Options;
use crate::pgm::options::PgmFlowSettings;
use crate::pgm::wire::{Nla, Tsi};

/// Identity and settings of a PGM source.
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
    /// Settings of the flow.
    pub settings: PgmFlowSettings,
    /// Longest time after the end of data, NAKs or not. Default 300 s.
    pub linger_max: Duration,
    /// Hops that its packets may travel. Default 255: drivers of real networks set less.
    pub time_to_live: u8,
}

impl SourceConfig {
    /// The recommended settings for a source on `node` that sends session `tsi` to `group`.
    pub fn new(node: NodeId, group: Nla, tsi: Tsi) -> Self {
        Self::of(PgmFlowSettings::default(), node, group, tsi)
    }

    /// The settings that `options`, checked against a table with [`OPTIONS`](super::OPTIONS) in it, ask
    /// for.
    pub fn from_options(node: NodeId, group: Nla, tsi: Tsi, options: &Options) -> Self {
        Self::of(PgmFlowSettings::from_options(options), node, group, tsi)
    }

    fn of(settings: PgmFlowSettings, node: NodeId, group: Nla, tsi: Tsi) -> Self {
        Self {
            node,
            group,
            tsi,
            data_port: DATA_PORT,
            start: Time::ZERO,
            payload: 1400,
            first: Seq::new(0),
            settings,
            linger_max: Duration::from_secs(300).max(settings.linger),
            time_to_live: 255,
        }
    }
}

/// Identity and settings of a PGM receiver.
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
    /// Settings of the flow.
    pub settings: PgmFlowSettings,
    /// Longest back-off before an SPM request (SPMR_BO_IVL). Default 250 ms.
    pub spm_request_backoff: Duration,
    /// Time without anything new from the source after which it counts as gone: what was said before
    /// can be repeated by anybody. Default 300 s.
    pub expiry: Duration,
}

impl ReceiverConfig {
    /// The recommended settings for a receiver of `group`.
    pub fn new(group: Nla) -> Self {
        Self::of(PgmFlowSettings::default(), group)
    }

    /// The settings that `options`, checked against a table with [`OPTIONS`](super::OPTIONS) in it, ask
    /// for.
    pub fn from_options(group: Nla, options: &Options) -> Self {
        Self::of(PgmFlowSettings::from_options(options), group)
    }

    fn of(settings: PgmFlowSettings, group: Nla) -> Self {
        Self {
            group,
            tsi: None,
            data_port: DATA_PORT,
            start: Time::ZERO,
            settings,
            spm_request_backoff: Duration::from_millis(250),
            expiry: Duration::from_secs(300),
        }
    }

    /// Settings, each of which is taken to the nearest end of its range.
    pub(super) fn bounded(mut self) -> Self {
        let settings = &mut self.settings;
        settings.receive_window = settings.receive_window.clamp(1, RECEIVE_WINDOW_PACKETS_MAX);
        for interval in [
            &mut settings.nak_backoff,
            &mut settings.nak_repeat,
            &mut settings.nak_repair,
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
        let PgmFlowSettings { nak_repeat, nak_repair, .. } = PgmFlowSettings::from_options(options);
        let again = nak_repeat.min(nak_repair).as_nanos().max(1);
        self.losses + self.missing.as_nanos() / again + 2 * self.receivers
    }
}

/// Most packets of a receive window.
const RECEIVE_WINDOW_PACKETS_MAX: u32 = 1 << 20;

/// Shortest interval of a timer that repeats.
const INTERVAL_MIN: Duration = Duration::from_micros(1);

/// The data-destination port of OpenPGM's samples.
pub(crate) const DATA_PORT: u16 = 7500;

/// Most packets of a transmit window, half of what RFC 3208 allows, so that a window and as much
/// again stay comparable.
pub(super) const WINDOW_PACKETS_MAX: u32 = 1 << 30;
