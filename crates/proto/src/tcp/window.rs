//! Congestion window of a sender, in packets (src: RFC 5681 s3; ns-2.35).

use super::settings::Settings;

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
