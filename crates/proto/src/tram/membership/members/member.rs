//! Direct member of a head: its packets, its subtree, its signs of life, and what it can claim.

use faircast_base::{BadInput, Checked, Duration, NodeId, Time};

use crate::pgm::session::dissent::Dissent;
use crate::tram::settings::{HeadRole, RightEdge, TramSettings};
use crate::tram::window::{JUMP_MAX, LEVELS_MAX};
use crate::tram::wire::{Ack, BELOW_MAX, Departed, Fate};

/// Repairs without effect after which a member gets fewer repairs, by unicast; chosen.
const INEFFECTIVE_FEW: u32 = 3;

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: u64,
    pub(super) name: u64,
    pub(super) joins: u16,
    pub(super) role: HeadRole,
    pub(super) distance: u8,
    pub(crate) progress: Progress,
    pub(crate) subtree: Subtree,
    pub(super) life: Liveness,
    /// Fate of the member if it falls silent now; by its latest acknowledgement.
    pub(super) fate: Fate,
}

impl Member {
    pub(super) fn departed(&self, node: NodeId, fate: Fate) -> Departed {
        let Self { id, joins, subtree: Subtree { receivers: below, .. }, .. } = *self;
        Departed { id, node: Some(node), fate, joins, below, came_from: 0 }
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.life.confirmed
    }

    pub(crate) fn catches_up(&self) -> bool {
        self.progress.catch_up_until.is_some()
    }

    /// True if repairs did not reach the member: its reported time to live may be too small.
    pub(crate) fn is_unreached(&self) -> bool {
        self.progress.ineffective_repairs >= INEFFECTIVE_FEW
    }
}

/// Packets that a member's subtree has and allows. Progress goes back only by `regression`.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) first_missing: u64,
    /// Last packet that the member's subtree allows (H_a).
    pub(crate) allowed: u64,
    /// Time of the last progress, or of having everything.
    pub(super) advanced_at: Time,
    /// Last time that a requested repair waited here: such a member has not stalled.
    pub(super) repair_queued_at: Time,
    pub(super) ineffective_repairs: u32,
    /// Claim that the member lacks packets which it acknowledged before.
    pub(super) regression: Dissent<u64>,
    /// End of the backlog of a late member: one past the last packet sent before its join. The
    /// source does not wait for a member that lacks such packets. `None` once that is over.
    pub(super) catch_up_until: Option<u64>,
    /// True if the member needs packets that are no longer kept: the source reads them again.
    pub(super) needs_reread: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketSpan {
    /// First packet that the head keeps, and one past the last packet that the head knows.
    pub(crate) first_kept: u64,
    pub(crate) end: u64,
    /// Most packets after `end` that a member may know and the head does not; 0 at the source.
    pub(crate) unknown_max: u64,
}

impl Progress {
    pub(super) fn acknowledge(
        &mut self,
        now: Time,
        (first_missing, allowed): (u64, u64),
        (span, ahead_max): (PacketSpan, u64),
        is_first: bool,
    ) {
        let PacketSpan { first_kept, end, .. } = span;
        if first_missing > self.first_missing || first_missing >= end {
            (self.advanced_at, self.ineffective_repairs) = (now, 0);
        }
        // Packets before the cache cannot be repaired here, whatever the acknowledgement says.
        let lags = (first_kept..self.first_missing).contains(&first_missing);
        if !lags {
            self.regression.contradict();
        }
        // An overtaken acknowledgement lacks more. If a member goes on, it never had the packets.
        let goes_on = |before: &u64| first_missing >= *before;
        if lags && self.regression.claim(now, first_missing, Duration::ZERO, goes_on) {
            (self.first_missing, self.allowed) = (first_missing, allowed);
        }
        self.first_missing = self.first_missing.max(first_missing);
        self.allowed = self.allowed.max(allowed);
        self.needs_reread &= self.first_missing < first_kept;
        // Members that allow all sent packets close no window; after the backlog they count fully.
        let backlog = if is_first { Some(end) } else { self.catch_up_until };
        let lacks_backlog =
            |until: &u64| self.first_missing < (*until).max(end.saturating_sub(ahead_max));
        let still_lags = |until: &u64| lacks_backlog(until) && self.allowed + 1 < end;
        self.catch_up_until = backlog.filter(|until| self.needs_reread || still_lags(until));
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Subtree {
    pub(super) receivers: u32,
    /// Receivers that had moved from the member to other heads when `receivers` grew last.
    pub(super) moved_away: u32,
    pub(super) heads: u32,
    /// Reported departed receivers that had no room in a table, there or here.
    pub(super) unlisted: u32,
    /// Worst loss, in parts of 65535, and true if it is that of a receiver below the member.
    pub(crate) loss: u16,
    pub(crate) loss_is_below: bool,
}

impl Subtree {
    pub(super) fn acknowledge(&mut self, ack: &Ack<'_>, moved_away: impl FnOnce() -> u32) {
        let receivers = ack.indirect.saturating_add(u32::from(ack.members));
        if receivers > self.receivers {
            self.moved_away = moved_away();
        }
        (self.receivers, self.heads) = (receivers, ack.heads);
        (self.loss, self.loss_is_below) = (ack.loss, ack.of_subtree);
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Liveness {
    pub(super) joined_at: Time,
    pub(super) last_packet_at: Time,
    pub(super) unanswered_hellos: u32,
    /// True after the first acknowledgement: before it nobody waits for the member.
    pub(super) confirmed: bool,
    /// True between the first acknowledgement and the second. A live member goes on acknowledging.
    pub(super) acked_once: bool,
    /// True if the first acknowledgement is late: nothing is kept for the member.
    pub(super) confirmation_expired: bool,
}

impl Liveness {
    pub(super) fn on_packet(&mut self, now: Time) {
        (self.last_packet_at, self.unanswered_hellos) = (now, 0);
    }

    /// Takes an acknowledgement. Returns true if it is the first one.
    pub(super) fn on_ack(&mut self, now: Time) -> bool {
        self.on_packet(now);
        self.acked_once = !self.confirmed;
        (self.confirmed, self.confirmation_expired) = (true, false);
        self.acked_once
    }
}

/// Bounds of credible acknowledgements: anybody can forge one.
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
        let is_deeper = settings.right_edge == RightEdge::Levels;
        let deeper_max = if is_deeper { LEVELS_MAX * ack_window / 2 } else { 0 };
        Self { ack_window, ahead_max: ack_window + settings.window_max(ack_window), deeper_max }
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
        // A member without receivers below allows at least the packets that it has.
        let alone = ack.members == 0;
        let below = ack.indirect.saturating_add(u32::from(ack.members));
        let holds = alone && !ack.leaves && ack.allowed + 1 < ack.first_missing;
        let miscounts = alone && below > 0 || below > BELOW_MAX || ack.heads > below + 1;
        if absurd || ack.allowed > most(ack.first_missing) || holds || miscounts {
            return Err(BadInput::Absurd);
        }
        let first_missing = ack.first_missing.min(end);
        Ok((first_missing, ack.allowed.min(most(first_missing))))
    }
}
