//! Loss recovery state of a sender, common to all flavours; scoreboard of SACK; and the congestion
//! window, in packets (src: RFC 5681 s3; ns-2.35).

use super::settings::Settings;
use crate::ranges::RangeSet;

/// Numbers of packets are one more than ns-2's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recovery {
    /// End of the packets sent before the last cut (recover_ + 1); 1 after a SACK recovery.
    pub(super) recover: u64,
    pub(super) dup_acks: u32,
    pub(super) last_cut: LastCut,
    /// NewReno: true once this recovery had a partial acknowledgement.
    pub(super) is_partial: bool,
    /// SACK: packets in the network during fast recovery (pipe_); `None` outside.
    pub(super) pipe: Option<i64>,
    /// SACK: true from a timeout to the next new acknowledgement.
    pub(super) after_timeout: bool,
}

/// Reason of the last cut (ns-2: last_cwnd_action_).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LastCut {
    #[default]
    None,
    DupAcks,
    Recovered,
    Timeout,
}

impl Recovery {
    pub(super) fn end_fast_recovery(&mut self) {
        if self.last_cut == LastCut::DupAcks {
            self.last_cut = LastCut::Recovered;
        }
    }

    /// True if duplicate acknowledgements may start a fast retransmit: not for losses of packets
    /// sent before the last cut (ns-2: bugFix_; src: RFC 6582 s4, the careful variant).
    pub(super) fn may_fast_retransmit(&self, una: u64) -> bool {
        // The exception permits fast repair of the first data packet.
        una > self.recover || una == 1
    }

    pub(super) fn time_out(&mut self, sent_end: u64) {
        *self = Self {
            recover: sent_end,
            last_cut: LastCut::Timeout,
            is_partial: self.is_partial,
            after_timeout: true,
            ..Self::default()
        };
    }
}

/// Scoreboard of ns-2's Sack1 agent. A lost retransmission is left to the timer.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    sacked: RangeSet,
    retransmitted: u64,
}

impl Scoreboard {
    pub(super) fn update(&mut self, una: u64, blocks: &[(u64, u64)]) -> bool {
        self.sacked.remove(0..una);
        let mut news = false;
        for &(start, end) in blocks {
            if end > una {
                news |= self.sacked.insert(start.max(una)..end);
            }
        }
        news
    }

    pub(super) fn next_hole(&mut self, una: u64) -> Option<u64> {
        if self.sacked.is_empty() {
            return None;
        }
        self.retransmitted = self.retransmitted.max(una);
        let hole = self.sacked.gap_from(self.retransmitted)?;
        self.retransmitted = hole;
        Some(hole)
    }

    pub(super) fn arrived(&self) -> u32 {
        self.sacked.iter().map(|run| (run.end - run.start) as u32).sum()
    }

    pub(super) fn mark_retransmitted(&mut self, seq: u64) {
        self.retransmitted = self.retransmitted.max(seq + 1);
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct CongestionWindow {
    /// Window in packets (cwnd_). As in ns-2, a cut may leave less than one: then none leaves.
    pub(super) cwnd: f64,
    pub(super) ssthresh: f64,
    /// Packets by which duplicate acknowledgements inflate the window in fast recovery (dupwnd_).
    pub(super) inflation: u64,
    pub(super) max: u64,
    /// Window once the SYN is acknowledged (windowInit_): one packet after a lost SYN.
    pub(super) initial: f64,
    /// True if a cut halves the fraction too (precisionReduce_).
    halves_fraction: bool,
}

impl CongestionWindow {
    pub(super) fn new(settings: &Settings) -> Self {
        let ssthresh = match settings.initial_ssthresh {
            0 => settings.window_max,
            packets => packets,
        };
        Self {
            cwnd: 1.0,
            ssthresh: f64::from(ssthresh),
            inflation: 0,
            max: u64::from(settings.window_max),
            initial: f64::from(settings.initial_window),
            halves_fraction: settings.precision_reduce,
        }
    }

    /// Returns the window that limits sending, in whole packets (ns-2: window()).
    pub(super) fn usable(&self) -> u64 {
        (self.cwnd as u64 + self.inflation).min(self.max)
    }

    /// Grows by slow start or congestion avoidance (ns-2: opencwnd()).
    pub(super) fn open(&mut self) {
        self.cwnd += if self.cwnd < self.ssthresh { 1.0 } else { 1.0 / self.cwnd };
    }

    /// Halves the window, or after a timeout the threshold alone (ns-2: slowdown()).
    pub(super) fn cut(&mut self, by_timeout: bool) {
        let half = if self.halves_fraction {
            (self.cwnd + self.inflation as f64).min(self.max as f64) / 2.0
        } else {
            (self.usable() / 2) as f64
        };
        self.ssthresh = (half as u64).max(2) as f64;
        self.cwnd = if by_timeout { 1.0 } else { half };
    }

    /// Deflates by `acked` packets of a partial acknowledgement (src: RFC 6582 s3.2).
    pub(super) fn deflate(&mut self, acked: u64) {
        if self.inflation > acked {
            self.inflation -= acked - 1;
        } else {
            self.cwnd = (self.cwnd - (acked - self.inflation) as f64).max(1.0);
            // Zero would end recovery.
            self.inflation = 1;
        }
    }

    pub(super) fn undo_cut(&mut self, before: &Self) {
        self.cwnd = self.cwnd.max(before.cwnd);
        self.ssthresh = self.ssthresh.max(before.ssthresh);
        self.inflation = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn each_hole_is_offered_once_from_the_bottom_up() {
        let mut board = Scoreboard::default();
        assert_eq!(board.next_hole(10), None);
        assert!(board.update(10, &[(12, 14), (17, 18)]));
        assert!(!board.update(10, &[(12, 14)]), "nothing new");
        let mut holes = Vec::new();
        while let Some(hole) = board.next_hole(10) {
            board.mark_retransmitted(hole);
            holes.push(hole);
        }
        assert_eq!(holes, [10, 11, 14, 15, 16]);
        assert!(board.update(10, &[(20, 21)]));
        assert_eq!(board.next_hole(10), Some(18));
    }

    #[test]
    fn a_cumulative_acknowledgement_outruns_the_retransmissions() {
        let mut board = Scoreboard::default();
        board.update(10, &[(12, 14), (20, 21)]);
        board.mark_retransmitted(10);
        board.update(16, &[(20, 21)]);
        assert_eq!(board.next_hole(16), Some(16));
        board = Scoreboard::default();
        assert_eq!(board.next_hole(16), None);
    }

    #[test]
    fn blocks_below_the_cumulative_acknowledgement_say_nothing() {
        let mut board = Scoreboard::default();
        assert!(!board.update(10, &[(5, 8), (8, 10)]));
        assert!(board.update(10, &[(8, 12)]));
        assert_eq!(board.next_hole(10), None);
    }

    fn window(settings: Settings, cwnd: f64, inflation: u64) -> CongestionWindow {
        CongestionWindow { cwnd, inflation, ..CongestionWindow::new(&settings) }
    }

    #[test]
    fn a_cut_halves_what_was_usable() {
        for (precise, cwnd, inflation, by_timeout, want) in [
            (true, 9.5, 0, false, (4.75, 4.0)),
            (false, 9.5, 0, false, (4.0, 4.0)),
            (true, 9.5, 3, false, (6.25, 6.0)),
            (true, 9.5, 0, true, (1.0, 4.0)),
            (true, 1.0, 0, false, (0.5, 2.0)),
            (true, 30.0, 0, false, (10.0, 10.0)),
        ] {
            let settings =
                Settings { precision_reduce: precise, window_max: 20, ..Settings::default() };
            let mut window = window(settings, cwnd, inflation);
            window.cut(by_timeout);
            assert_eq!((window.cwnd, window.ssthresh), want, "{precise} {cwnd} + {inflation}");
        }
    }

    #[test]
    fn a_partial_acknowledgement_takes_back_what_duplicates_inflated() {
        for (cwnd, inflation, acked, want) in
            [(5.0, 7, 3, (5.0, 5)), (5.0, 2, 3, (4.0, 1)), (2.0, 0, 9, (1.0, 1))]
        {
            let mut window = window(Settings::default(), cwnd, inflation);
            window.deflate(acked);
            assert_eq!((window.cwnd, window.inflation), want, "{acked} of {inflation}");
        }
    }

    #[test]
    fn slow_start_adds_a_packet_and_congestion_avoidance_a_share() {
        let mut window = window(Settings { initial_ssthresh: 4, ..Settings::default() }, 3.0, 0);
        window.open();
        assert_eq!(window.cwnd, 4.0);
        window.open();
        assert_eq!(window.cwnd, 4.25);
    }
}
