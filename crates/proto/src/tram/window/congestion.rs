//! Congestion window of a receiver, and the highest packet that it allows the source to send.

use faircast_base::Time;

use crate::tram::settings::{CongestionRule, RightEdge, TramSettings};

/// Most heads between a receiver and the source for which the receiver may allow more.
pub(crate) const LEVELS_MAX: u64 = 16;

/// Factor by which a congested window multiplies the congestion window (src: tram s3.2).
const DECREASE: f64 = 0.75;

/// Weight of a new value in the moving average of losses (src: jrms).
const LOSS_GAIN: f64 = 0.25;

/// Growth of a congestion window beyond M W_a per window without losses, as a multiple of W_a.
const LOSSLESS_GROWTH: f64 = 0.25;

/// Windows without losses before the congestion window grows beyond M W_a. On a path that limits
/// the rate, queues overflow more often.
const LOSSLESS_AFTER: u32 = 32;

/// W_c of a receiver, adjusted once in an acknowledgement window (src: tram s3.2).
#[derive(Debug, Default)]
pub(crate) struct CongestionWindow {
    rule: CongestionRule,
    right_edge: RightEdge,
    pub(crate) ack_window: u64,
    growth: f64,
    /// Lost packets from which on an acknowledgement window counts as congested.
    threshold: f64,
    pub(crate) size: f64,
    /// Largest window: M W_a, and the bound while no packet is lost. Both in packets.
    size_max: f64,
    lossless_max: f64,
    lossless_windows: u32,
    /// Highest allowed packet (H_a) of this receiver alone. Never decreases.
    pub(crate) allowed: u64,
    /// Packets lost in this acknowledgement window, or missing at its end, and in the one before.
    pub(crate) lost_packets: u64,
    lost_packets_before: u64,
    /// End of the time after the join in which no window counts as congested.
    grace_until: Time,
    /// Moving average of the share of missing packets, 0 to 1.
    pub(crate) loss: f64,
}

impl CongestionWindow {
    pub(crate) fn new(settings: &TramSettings, now: Time, start: u64, ack_window: u64) -> Self {
        let ack_window = ack_window.max(1);
        let size = 2.0 * ack_window as f64;
        Self {
            rule: settings.congestion_rule,
            right_edge: settings.right_edge,
            ack_window,
            growth: settings.window_growth,
            threshold: settings.loss_threshold * ack_window as f64,
            size,
            size_max: f64::from(settings.window_multiple) * ack_window as f64,
            lossless_max: settings.window_max(ack_window) as f64,
            allowed: start.saturating_sub(1) + size as u64,
            grace_until: now + settings.join_grace,
            ..Self::default()
        }
    }

    /// Returns the growth of H_a to report at once, in packets: W_a / 2, or a quarter beyond M W_a.
    pub(crate) fn report_step(&self) -> u64 {
        if self.size > self.size_max { self.size as u64 / 4 } else { self.ack_window / 2 }
    }

    /// Ends an acknowledgement window, with `missing` of `known` packets. True if it was congested.
    pub(crate) fn end_ack_window(&mut self, now: Time, missing: u64, known: u64) -> bool {
        let share = if known == 0 { 0.0 } else { missing as f64 / known as f64 };
        self.loss += LOSS_GAIN * (share - self.loss);
        let lossless = self.lost_packets == 0 && missing == 0;
        self.lossless_windows = if lossless { self.lossless_windows.saturating_add(1) } else { 0 };
        let before = self.lost_packets_before;
        let (lost, grew) = match self.rule {
            CongestionRule::Window => (self.lost_packets, self.lost_packets >= before),
            CongestionRule::Missing => (missing, missing > before),
        };
        // A window without losses is not congested, even with a threshold of 0.
        let congested =
            lost > 0 && grew && lost as f64 >= self.threshold && now >= self.grace_until;
        (self.lost_packets, self.lost_packets_before) = (0, lost);
        let beyond = self.lossless_windows >= LOSSLESS_AFTER && self.size >= self.size_max;
        let growth = if beyond { LOSSLESS_GROWTH * self.ack_window as f64 } else { self.growth };
        let grown = beyond || lossless && self.size > self.size_max;
        let max = if grown { self.lossless_max } else { self.size_max };
        self.size = if congested { self.size * DECREASE } else { self.size + growth };
        self.size = self.size.clamp(self.ack_window as f64, max);
        congested
    }

    /// Moves the right edge, at a receiver of this level. Rounding to the next acknowledgement
    /// keeps staggered acknowledgements from limiting the source (src: jrms).
    pub(crate) fn on_progress(&mut self, first_missing: u64, window_base: u64, level: u8) {
        // Heads accept no window larger than the largest.
        let room = self.lossless_max.max(self.size_max) - self.size;
        let has =
            window_base.min(first_missing.saturating_add(room.max(0.0) as u64)).saturating_sub(1);
        // A member of the source has level 2, and no head between itself and the source.
        let heads = u64::from(level.saturating_sub(2)).min(LEVELS_MAX);
        let base = match self.right_edge {
            RightEdge::Rounded => (has / self.ack_window + 1) * self.ack_window,
            RightEdge::Plain => has,
            RightEdge::Levels => has + heads * self.ack_window / 2,
        };
        self.allowed = self.allowed.max(base + self.size as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{at, ms, s};

    fn window(change: impl FnOnce(&mut TramSettings)) -> CongestionWindow {
        let mut settings = TramSettings::default();
        (settings.window_multiple, settings.lossless_multiple) = (5, 0);
        settings.right_edge = RightEdge::Rounded;
        change(&mut settings);
        CongestionWindow::new(&settings, at(0), 1, 64)
    }

    fn steps(window: &mut CongestionWindow, steps: &[(u64, bool, f64)]) {
        for &(lost, congested, size) in steps {
            window.lost_packets += lost;
            let ended = window.end_ack_window(s(20), lost, 64);
            assert_eq!((ended, window.size), (congested, size), "{lost} lost: {window:?}");
        }
    }

    #[test]
    fn it_grows_by_two_and_shrinks_by_a_quarter_where_losses_do_not_become_fewer() {
        let mut window = window(|_| ());
        steps(&mut window, &[(0, false, 130.0), (15, false, 132.0), (16, true, 99.0)]);
        steps(&mut window, &[(30, true, 74.25), (29, false, 76.25)]);
        steps(&mut window, &[(29, true, 64.0), (29, true, 64.0)]);
    }

    #[test]
    fn it_stays_below_its_multiple_and_a_newcomer_may_be_spared() {
        let mut all = window(|settings| settings.join_grace = ms(30_000));
        for _ in 0..200 {
            assert!(!all.end_ack_window(s(1), 0, 64));
        }
        assert_eq!(all.size, 320.0);
        all.lost_packets += 40;
        assert!(!all.end_ack_window(s(29), 40, 64));
        all.lost_packets += 41;
        assert!(all.end_ack_window(s(30), 41, 64));
    }

    #[test]
    fn while_nothing_is_lost_for_long_it_grows_beyond_its_multiple_and_comes_back_at_once() {
        let mut all = window(|settings| {
            (settings.window_multiple, settings.lossless_multiple) = (2, 16);
            settings.cache_packets = 600;
        });
        let clean = |all: &mut CongestionWindow, windows: u32| {
            for _ in 0..windows {
                assert!(!all.end_ack_window(s(20), 0, 64));
            }
        };
        clean(&mut all, LOSSLESS_AFTER - 1);
        assert_eq!(all.size, 128.0);
        // A quarter of 64 each time, up to half of the cache.
        steps(&mut all, &[(0, false, 144.0), (0, false, 160.0)]);
        clean(&mut all, 20);
        assert_eq!(all.size, 300.0);
        steps(&mut all, &[(1, false, 128.0), (0, false, 128.0)]);
        steps(&mut all, &[(40, true, 96.0), (0, false, 98.0)]);
        clean(&mut all, LOSSLESS_AFTER);
        assert!(all.size > 128.0);
        assert!(!all.end_ack_window(s(20), 1, 64));
        assert_eq!(all.size, 128.0);
    }

    #[test]
    fn by_the_rule_of_2001_packets_that_are_still_missing_count() {
        let mut missing = window(|settings| settings.congestion_rule = CongestionRule::Missing);
        for (missing_now, congested) in
            [(20, true), (20, false), (21, true), (15, false), (16, true)]
        {
            assert_eq!(missing.end_ack_window(s(1), missing_now, 64), congested, "{missing_now}");
        }
        assert!(missing.loss > 0.2 && missing.loss < 0.3);
    }

    #[test]
    fn the_right_edge_never_goes_back() {
        let mut window = window(|_| ());
        assert_eq!(window.allowed, 128);
        window.on_progress(65, 65, 2);
        assert_eq!(window.allowed, 2 * 64 + 128);
        steps(&mut window, &[(60, true, 96.0)]);
        window.on_progress(66, 66, 2);
        assert_eq!(window.allowed, 256);
        window.on_progress(200, 200, 2);
        assert_eq!(window.allowed, 4 * 64 + 96);
    }

    #[test]
    fn the_right_edge_may_go_with_what_is_here_and_make_up_for_heads_on_the_way() {
        let mut plain = window(|settings| settings.right_edge = RightEdge::Plain);
        for (first_missing, allowed) in [(2, 129), (40, 167), (30, 167)] {
            plain.on_progress(first_missing, first_missing, 9);
            assert_eq!(plain.allowed, allowed, "{first_missing}");
        }
        let mut window = window(|settings| settings.right_edge = RightEdge::Levels);
        for (level, allowed) in [(0, 137), (2, 137), (3, 169), (6, 265), (255, 649), (3, 649)] {
            window.on_progress(10, 10, level);
            assert_eq!(window.allowed, allowed, "level {level}");
        }
    }
}
