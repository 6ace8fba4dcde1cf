//! Reversal of a cut whose packets were only late.

use faircast_base::{Duration, Time};

use super::rate::Rate;

/// Most consecutive cuts that can be reverted, and the allowance gained with each cut. Chosen: a
/// learnt tolerance is forgotten after sixteen losses.
const ALLOWANCE_MAX: f64 = 4.0;
const ALLOWANCE_PER_CUT: f64 = 1.0 / 16.0;

#[derive(Debug)]
pub(super) struct CutUndo {
    /// Time of the last indication, and the rate before it, while the cut can be reverted.
    before: Option<(Time, Rate)>,
    /// Cuts that may still be reverted: any host can send a withdrawal in the CR's name.
    allowance: f64,
}

impl Default for CutUndo {
    fn default() -> Self {
        Self { before: None, allowance: ALLOWANCE_MAX }
    }
}

impl CutUndo {
    /// Remembers the rate before an indication, unless one of the last `span` is remembered.
    pub(super) fn remember(&mut self, now: Time, rate: Rate, span: Duration) {
        if self.before.is_none_or(|(at, _)| now.since(at) > span) {
            self.before = Some((now, rate));
        }
    }

    pub(super) fn on_cut(&mut self) {
        self.allowance = (self.allowance + ALLOWANCE_PER_CUT).min(ALLOWANCE_MAX);
    }

    /// Forgets the rate before a cut. Returns that rate if the cut may be reverted.
    pub(super) fn take(&mut self, now: Time, span: Duration, may_revert: bool) -> Option<Rate> {
        let (at, rate) = self.before.take()?;
        if !may_revert || self.allowance < 1.0 || now.since(at) > span {
            return None;
        }
        self.allowance -= 1.0;
        Some(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::{at, ms};

    #[test]
    fn a_recent_cut_is_reverted_four_times_in_a_row() {
        let mut undo = CutUndo::default();
        let mut reverts = |cut_ms: u64, withdrawn_ms: u64| {
            undo.remember(at(cut_ms), Rate::default(), ms(100));
            undo.take(at(withdrawn_ms), ms(100), true).is_some()
        };
        assert!(!reverts(1000, 1101), "too late");
        for round in 2..6 {
            assert!(reverts(1000 * round, 1000 * round + 100), "{round}");
        }
        assert!(!reverts(7000, 7000), "the allowance is used up");
        (0..16).for_each(|_| undo.on_cut());
        undo.remember(at(8000), Rate::default(), ms(100));
        assert!(undo.take(at(8000), ms(100), true).is_some(), "sixteen cuts allow another");
    }
}
