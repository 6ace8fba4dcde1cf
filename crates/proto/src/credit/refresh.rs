//! Interval at which a message is repeated without news, because the message may be lost.

use faircast_base::{Duration, Time};

/// Shortest and longest interval. Chosen: in the paper, a lost credit stops a session.
pub(crate) const REFRESH: Duration = Duration::from_millis(100);
pub(crate) const REFRESH_MAX: Duration = Duration::from_secs(1);

/// Refresh interval: twice the mean interval of rare packets, to avoid a repetition after each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refresh {
    last_news_at: Option<Time>,
    /// Mean interval of news.
    gap: Duration,
    interval: Duration,
}

impl Default for Refresh {
    fn default() -> Self {
        Self { last_news_at: None, gap: REFRESH / 2, interval: REFRESH }
    }
}

impl Refresh {
    pub(super) fn on_news(&mut self, now: Time) {
        if let Some(last) = self.last_news_at.replace(now) {
            let gap = now.since(last).min(REFRESH_MAX / 2);
            self.gap = (self.gap * 3 + gap) / 4;
        }
        self.interval = (self.gap * 2).clamp(REFRESH, REFRESH_MAX);
    }

    pub(super) const fn interval(&self) -> Duration {
        self.interval
    }

    pub(super) fn back_off(&mut self) {
        self.interval = (self.interval * 2).min(REFRESH_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_packets_are_rare_nothing_is_said_again_between_them() {
        for (gap_ms, want_ms) in
            [(1, 100..=100), (90, 170..=180), (400, 700..=800), (5000, 900..=1000)]
        {
            let mut refresh = Refresh::default();
            for i in 0..20 {
                refresh.on_news(Time::ZERO + Duration::from_millis(gap_ms) * i);
            }
            let interval_ms = refresh.interval().as_millis();
            assert!(want_ms.contains(&interval_ms), "{gap_ms} ms: {interval_ms} ms");
            (0..9).for_each(|_| refresh.back_off());
            assert_eq!(refresh.interval(), REFRESH_MAX);
        }
    }
}
