//! The refusal by which a receiver tells a source of another scheme what it speaks.

use faircast_base::{Cx, Duration, Time};

/// The word to the source that another scheme is spoken here. There is no answer to it, so it is
/// said a few times.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Refusal {
    said: u32,
    next_at: Option<Time>,
    pub(super) due: bool,
}

impl Refusal {
    /// Many may find it out at one moment: each waits for up to `spread`.
    pub(super) fn begin(&mut self, cx: &mut Cx<'_>, spread: Duration) {
        self.next_at = Some(cx.now + cx.rng.up_to(spread));
    }

    pub(super) fn on_timeout(&mut self, cx: &Cx<'_>) {
        if self.next_at.is_some_and(|at| at <= cx.now) {
            self.due = true;
            self.said += 1;
            self.next_at = (self.said < REFUSALS).then_some(cx.now + REFUSAL_INTERVAL);
        }
    }

    pub(super) const fn next_timeout(&self) -> Option<Time> {
        self.next_at
    }
}

/// How often it is said, and when again: at a loss of 10 % one in a thousand goes unheard.
const REFUSALS: u32 = 3;
const REFUSAL_INTERVAL: Duration = Duration::from_millis(300);
