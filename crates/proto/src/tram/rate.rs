//! Rate control of the source: when the next packet leaves, and the rate of repairs by heads (src:
//! tram s3.4, s3.5). TRAM's own control is [`RateControl`], that by a scheme [`Steered`].

mod control;
mod pacer;
mod slow_start;
mod steered;
mod throughput;

use alloc::vec::Vec;

use faircast_base::{BadInput, Bitrate, Checked, Cx, Duration, NodeId, Time};

use crate::congestion::Permit;
use crate::tram::settings::TramSettings;
use crate::tram::wire::Report;
pub(super) use control::RateControl;
pub(super) use steered::Steered;

/// Window at the source, H_a - N: negative if packet N is not allowed.
pub(super) type Window = i64;

/// Time between two packets while the window is closed (src: tram s3.5).
pub(super) const CLOSED_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(super) struct SentPacket {
    pub(super) sequence: u64,
    pub(super) bytes: u32,
    pub(super) repair: bool,
    pub(super) window: Window,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) bytes: u32,
    pub(super) congested: bool,
    pub(super) highest: u64,
    /// Packets that members allow beyond those that all have, and the number of these already sent.
    pub(super) allowed: u64,
    pub(super) flight: u32,
    pub(super) repeated: u32,
}

pub(super) trait Controller {
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
