//! Watch over the members of a source: silence, stalls, and members that hold the end.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use crate::object::source::members::{Members, Sent};
use crate::object::{Announcement, Part};

/// Longest span between two looks that counts as stalled: a suspended program sends nothing.
const LOOK_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct MemberWatch {
    looked_at: Time,
    /// Time at which this host was last unreachable.
    excused_at: Time,
    grown_at: Option<Time>,
    /// True if the last look found members that hold the end.
    is_end_held: bool,
}

impl MemberWatch {
    pub(super) fn new(start: Time) -> Self {
        Self { looked_at: start, excused_at: Time::ZERO, grown_at: None, is_end_held: true }
    }

    pub(super) fn is_end_held(&self) -> bool {
        self.is_end_held
    }

    /// Marks members silent for `give_up` as lost, unless their silence is excused.
    pub(super) fn lose_silent(
        &self,
        members: &mut Members,
        now: Time,
        give_up: Duration,
    ) -> Vec<NodeId> {
        if now.since(self.excused_at) < give_up {
            return Vec::new();
        }
        let age = now.since(Time::ZERO);
        members.lose_silent(Time::ZERO + age.saturating_sub(give_up))
    }

    /// Returns the time since the last look that counts for stalls; `None` if it is excused.
    pub(super) fn stalled_span(&mut self, now: Time) -> Option<Duration> {
        let span = now.since(self.looked_at).min(LOOK_MAX);
        self.looked_at = now;
        (now.since(self.excused_at) >= LOOK_MAX).then_some(span)
    }

    pub(super) fn excuse_silence(&mut self, now: Time) {
        self.excused_at = now;
    }

    pub(super) fn note_growth(&mut self, now: Time) {
        self.grown_at = Some(now);
    }

    /// Judges the end, which an `open` course always holds.
    pub(super) fn judge_end(
        &mut self,
        members: &Members,
        now: Time,
        open: bool,
        give_up: Duration,
        names: &BTreeSet<String>,
    ) {
        // Members make no progress while a pipe is silent, and need time after it resumes.
        let lately = self.grown_at.is_some_and(|at| now.since(at) < give_up);
        self.is_end_held =
            open || lately || members.active() > 0 && members.hold_the_end(now, give_up, names);
    }
}

/// Returns what members can have got by now.
pub(super) fn sent(announced: &Announcement, begun: bool) -> Sent {
    Sent {
        manifest: announced.len(Part::Manifest),
        content: announced.len(Part::Content),
        flows: begun && !announced.growing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{at, ms};

    #[test]
    fn a_suspended_or_excused_program_lets_nobody_stall() {
        let mut watch = MemberWatch::new(at(1000));
        assert_eq!(watch.stalled_span(at(1100)), Some(ms(100)));
        assert_eq!(watch.stalled_span(at(9000)), Some(LOOK_MAX));
        watch.excuse_silence(at(9000));
        assert_eq!(watch.stalled_span(at(9999)), None);
        assert_eq!(watch.stalled_span(at(10_000)), Some(ms(1)));
    }

    #[test]
    fn an_end_is_held_while_the_course_is_open_and_after_growth() {
        let mut watch = MemberWatch::new(at(0));
        let (members, names) = (Members::default(), BTreeSet::new());
        let mut held = |now, open, grown: Option<u64>| {
            grown.into_iter().for_each(|ms| watch.note_growth(at(ms)));
            watch.judge_end(&members, at(now), open, ms(500), &names);
            watch.is_end_held()
        };
        assert!(held(0, true, None) && !held(0, false, None));
        assert!(held(899, false, Some(400)) && !held(900, false, None));
    }
}
