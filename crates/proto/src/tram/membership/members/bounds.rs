//! Bounds of credible acknowledgements: anybody can forge one.

use faircast_base::{BadInput, Checked};

use super::PacketSpan;
use crate::tram::settings::{RightEdge, TramSettings};
use crate::tram::window::{JUMP_MAX, LEVELS_MAX};
use crate::tram::wire::{Ack, BELOW_MAX};

#[derive(Debug, Default)]
pub(super) struct AckBounds {
    pub(super) ack_window: u64,
    /// Packets that a receiver can allow beyond those that it has: the end of the window that is
    /// being acknowledged, and the largest window after it.
    pub(super) ahead_max: u64,
    /// Packets that a receiver deep in the tree can allow in addition.
    deeper_max: u64,
}

impl AckBounds {
    pub(super) fn new(settings: &TramSettings) -> Self {
        let ack_window = u64::from(settings.ack_window);
        Self {
            ack_window,
            ahead_max: ack_window + settings.window_max(ack_window),
            deeper_max: match settings.right_edge {
                RightEdge::Levels => LEVELS_MAX * ack_window / 2,
                _ => 0,
            },
        }
    }

    /// Returns the first missing and the last allowed packet that count. Fails if the
    /// acknowledgement cannot be true.
    pub(super) fn check(&self, ack: &Ack<'_>, span: PacketSpan) -> Checked<(u64, u64)> {
        let end = span.end + span.unknown_max;
        let most = |missing: u64| {
            let windows = missing.saturating_sub(1) / self.ack_window;
            windows * self.ack_window + self.ahead_max + self.deeper_max
        };
        // No member allows more than a window, and only existing packets count: others are forged.
        let highest_missing = ack.missing().last().unwrap_or(0);
        let absurd = ack.first_missing.max(highest_missing) > end + JUMP_MAX;
        if absurd || ack.allowed > most(ack.first_missing) {
            return Err(BadInput::Absurd);
        }
        let first_missing = ack.first_missing.min(end);
        // A member without receivers below allows at least the packets that it has.
        let alone = ack.members == 0;
        let below = ack.indirect.saturating_add(u32::from(ack.members));
        let holds = alone && !ack.leaves && ack.allowed + 1 < ack.first_missing;
        if holds || alone && below > 0 || below > BELOW_MAX || ack.heads > below + 1 {
            return Err(BadInput::Absurd);
        }
        Ok((first_missing, ack.allowed.min(most(first_missing))))
    }
}
