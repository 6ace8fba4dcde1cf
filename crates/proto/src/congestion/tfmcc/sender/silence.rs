//! What follows where the CLR, or everybody, is silent.

use faircast_base::{CutReason, Cx, Duration, Event, SwitchReason, Time, TimeoutKind};

use super::{Clr, TfmccSender};

/// Round trips without a report of the CLR after which the rate is halved (src: RFC 4654 s3.3).
const HALVE_AFTER: u64 = 4;

/// Round trips without one after which the CLR counts as gone, or without any from anybody after
/// which the rate is halved (src: RFC 4654 s3.3).
const GONE_AFTER: u64 = 10;

impl TfmccSender {
    /// The round trip by which the CLR's silence is judged. At slow rates it has nothing to report on
    /// for the time between two packets.
    ///
    /// The RFC says "RTTs" and not whose. What a report shows falls at once when a queue has drained,
    /// to a fifteenth where 50 packets stood in it, while the receiver reports once in its smoothed
    /// round trip still: by the latest alone it would be silent, and the rate halved and halved again
    /// after each full queue.
    pub(super) fn silence_rtt(&self, clr: &Clr) -> Duration {
        clr.rtt.max(clr.rtt_smoothed).max(self.gap()).max(self.config.silence_min)
    }

    /// When silence of the CLR has its next consequence.
    pub(super) fn clr_deadline(&self) -> Option<Time> {
        let clr = self.clr.filter(|_| self.vacant.is_none())?;
        let rtt = self.silence_rtt(&clr);
        let gone = self.clr_asked.after(GONE_AFTER, rtt);
        if clr.halved {
            return gone;
        }
        // src: RFC 4654 s3.3: a young one may not know yet that it is the CLR.
        let halve = self.clr_asked.after(HALVE_AFTER, rtt)?.max(clr.since + rtt * GONE_AFTER);
        Some(gone.map_or(halve, |gone| gone.min(halve)))
    }

    /// When silence of all has its next consequence.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.asked.after(GONE_AFTER, self.announced_rtt_max().max(self.config.silence_min))
    }

    pub(super) fn on_clr_silence(&mut self, cx: &mut Cx<'_>) {
        let Some(clr) = self.clr else { return };
        let gone = self.clr_asked.after(GONE_AFTER, self.silence_rtt(&clr));
        let after_ns = self.clr_asked.lasts(cx.now).as_nanos();
        cx.emit(Event::Timeout { kind: TimeoutKind::Stall, after_ns });
        if let Some(clr) = self.clr.as_mut().filter(|clr| !clr.halved) {
            clr.halved = true;
            self.cut(cx, self.rate / 2.0, CutReason::NoFeedback);
        }
        if gone.is_some_and(|at| at <= cx.now) {
            self.vacate(cx, SwitchReason::Silent);
        }
    }

    pub(super) fn on_silence(&mut self, cx: &mut Cx<'_>) {
        let after_ns = self.asked.lasts(cx.now).as_nanos();
        cx.emit(Event::Timeout { kind: TimeoutKind::Stall, after_ns });
        // It begins again with the next packet.
        self.asked.clear();
        self.unheard = true;
        self.cut(cx, self.rate / 2.0, CutReason::NoFeedback);
    }
}
