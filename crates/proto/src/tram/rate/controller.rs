//! Interface of rate controls, which time the packets of a source.

use alloc::vec::Vec;

use faircast_base::{BadInput, Bitrate, Checked, Cx, Duration, NodeId, Time};

use crate::congestion::Permit;
use crate::tram::settings::TramSettings;
use crate::tram::wire::Report;

/// Window at the source, H_a - N: negative if packet N is not allowed.
pub(crate) type Window = i64;

/// Time between two packets while the window is closed (src: tram s3.5).
pub(crate) const CLOSED_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(crate) struct SentPacket {
    pub(crate) sequence: u64,
    pub(crate) bytes: u32,
    pub(crate) repair: bool,
    pub(crate) window: Window,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub(crate) bytes: u32,
    pub(crate) congested: bool,
    pub(crate) highest: u64,
    /// Packets that members allow beyond those that all have, and the number of these already sent.
    pub(crate) allowed: u64,
    pub(crate) flight: u32,
    pub(crate) repeated: u32,
}

pub(crate) trait Controller {
    fn permit(&mut self, cx: &mut Cx<'_>, window: Window, len: u32, repair: bool) -> Permit;

    /// Counts a leaving packet. Appends its announcement and returns the option number, if any.
    fn on_sent(
        &mut self,
        cx: &mut Cx<'_>,
        packet: SentPacket,
        announce: &mut Vec<u8>,
    ) -> Option<u8>;

    fn on_progress(&mut self, cx: &mut Cx<'_>, progress: Progress);

    fn on_closed(&mut self, _now: Time) {}

    fn on_open(&mut self, _now: Time) {}

    /// True if new data and repairs alternate while both wait; else repairs go first.
    fn takes_turns(&self) -> bool {
        false
    }

    fn on_idle(&mut self, _cx: &mut Cx<'_>) {}

    /// Returns the payload rate in bits per second, at which heads repair.
    fn bits_per_s(&self) -> f64;

    fn set_limit(&mut self, now: Time, limit: Option<Bitrate>);

    /// Returns since when the rate is at or below the session's minimum. Must be called repeatedly.
    fn below_min_since(&mut self, _now: Time) -> Option<Time> {
        None
    }

    /// Fails if no scheme takes reports, or the report cannot be true.
    fn take_report(&mut self, _: &mut Cx<'_>, _: NodeId, _: u64, _: &Report<'_>) -> Checked {
        Err(BadInput::Foreign)
    }

    /// Starts anew: earlier packets say nothing about the path. A scheme keeps its state.
    fn renew(&mut self, _settings: &TramSettings) {}

    fn on_timeout(&mut self, _cx: &mut Cx<'_>) {}

    fn next_timeout(&self) -> Option<Time> {
        None
    }
}
