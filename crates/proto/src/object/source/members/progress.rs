//! Progress of members: holders of the end, stalled members, and members with path limits.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use super::{Members, SERVED, STALLED_SAID, Sent};
use crate::object::path::ROUND;
use crate::object::status::why_stalled;
use crate::object::wire::Status;
use crate::object::{MemberState, PathLimit};

impl Members {
    /// Returns true if a member that lacks something holds the end: awaited members (by name or
    /// presence at the beginning), later members with progress within `give_up`, and members with
    /// the name of a complete one. Any host can join and claim to lack everything.
    pub(crate) fn hold_the_end(
        &self,
        now: Time,
        give_up: Duration,
        names: &BTreeSet<String>,
    ) -> bool {
        let lately = |at: Time| now.since(at) < give_up;
        if names.is_empty() {
            return self.all.values().filter(|member| member.is(&SERVED)).any(|member| {
                member.is_awaited || lately(member.progress.at.unwrap_or(member.status.since))
            });
        }
        // Thousands of members may have one name, so each member is examined once.
        let named = |states: &'static [MemberState]| {
            let members = self.all.values().filter(|member| member.is(states));
            members.filter(|member| names.contains(&*member.status.name))
        };
        let done: BTreeSet<&str> =
            named(&[MemberState::Done]).map(|member| &*member.status.name).collect();
        named(&SERVED).any(|member| {
            // A restarted member falls silent soon after its last progress, and is lost.
            let (heard, progressed) =
                (member.status.heard, member.progress.at.unwrap_or(member.status.since));
            let fell_silent = heard.since(progressed) < give_up / 2;
            let lately = lately(if fell_silent { heard } else { progressed });
            !done.contains(&*member.status.name) || lately
        })
    }

    /// Returns true if the member makes no progress while others do; thousands may be invented.
    pub(crate) fn is_unproven(&self, node: NodeId) -> bool {
        let member = self.by_node.get(&node).and_then(|id| self.all.get(id));
        self.progressed_at.is_some() && member.is_some_and(|member| member.progress.at.is_none())
    }

    /// Returns true if a symbol may be repaired for members without progress.
    pub(crate) fn has_spare(&mut self, sent: u64) -> bool {
        let (left, before) = self.spare;
        let left = left + sent.saturating_sub(before) as f64 * SPARE_SHARE;
        self.spare = (left.min(SPARE_MAX), sent);
        self.spare.0 >= 1.0
    }

    /// Takes up to `symbols` repairs from the share of members without progress, without debt.
    pub(crate) fn take_spare(&mut self, sent: u64, symbols: u64) -> u64 {
        let taken = match self.has_spare(sent) {
            true => symbols.min(self.spare.0 as u64),
            false => 0,
        };
        self.spare.0 -= taken as f64;
        taken
    }

    pub(crate) fn spend_spare(&mut self, symbols: u32) {
        self.spare.0 -= f64::from(symbols);
    }

    /// Notes the path limit of a member. Returns its name in reports if it had no limit before.
    pub(crate) fn note_path(
        &mut self,
        now: Time,
        id: u64,
        path: Option<PathLimit>,
    ) -> Option<NodeId> {
        let whole_for = self.status_interval(Duration::MAX) * 2;
        let member = self.all.get_mut(&id)?;
        if path.is_some_and(|path| !path.is_short()) {
            let (since, messages) = member.path.whole.get_or_insert((now, 0));
            *messages += 1;
            member.path.is_whole_lost |=
                *messages >= WHOLE_MESSAGES && now.since(*since) >= whole_for;
        } else {
            member.path.whole = None;
        }
        let path = path.filter(PathLimit::is_short);
        let reached = member.is_reached();
        let before = core::mem::replace(&mut member.status.path, path);
        self.reached = self.reached + usize::from(member.is_reached()) - usize::from(reached);
        (before.is_none() && path.is_some()).then_some(member.status.reporter)
    }

    /// Returns true if a served member gets full-length packets one by one, but no data. Several
    /// messages are needed, since one may be forged. The result holds while the member is served.
    pub(crate) fn is_whole_lost(&self) -> bool {
        self.all.values().any(|member| member.path.is_whole_lost && member.is(&SERVED))
    }

    /// Returns true if a member may request probes now: while served, once in half a round.
    pub(crate) fn may_probe(&mut self, now: Time, id: u64) -> bool {
        let Some(member) = self.all.get_mut(&id).filter(|member| member.is(&SERVED)) else {
            return false;
        };
        let may = member.path.probed_at.is_none_or(|at| now.since(at) >= ROUND / 2);
        if may {
            member.path.probed_at = Some(now);
        }
        may
    }

    /// Advances stall timers by `span`, and gives up members without progress for `limit` that lack
    /// something sent. Returns the names under which they report.
    /// If all members stall, all count but those that wait for another one; otherwise only members
    /// that long packets do not reach. Members that measure their path have twice the time.
    pub(crate) fn stall(
        &mut self,
        now: Time,
        span: Duration,
        limit: Duration,
        sent: Sent,
        headers: u32,
    ) -> Vec<NodeId> {
        let moving = self.progressed_at.is_some_and(|at| now.since(at) < MOVING);
        let limit = limit.max(self.status_interval(Duration::MAX) * 3);
        let mut over = Vec::new();
        let all_taken =
            self.all.values().all(|member| !member.is(&SERVED) || member.progress.has_taken_all);
        for (&id, member) in &mut self.all {
            // A complete member compares its content, or searches for earlier content.
            let (lacks, comes) = match member.status.state {
                MemberState::Joined => (member.progress.manifest_bytes < sent.manifest, true),
                MemberState::Receiving => (member.status.bytes < sent.content, sent.flows),
                _ => continue,
            };
            let waits = moving || !comes || member.progress.has_taken_all && !all_taken;
            if !lacks || member.status.path.is_none() && waits {
                continue;
            }
            member.progress.stalled_for += span;
            let measures = member.status.path.is_none()
                && member.path.probed_at.is_some_and(|at| now.since(at) < MEASURING);
            if member.progress.stalled_for > if measures { limit * 2 } else { limit } {
                over.push(id);
            }
        }
        let mut reporters = Vec::new();
        for id in over {
            let Some(member) = self.all.get_mut(&id) else { continue };
            let status = &mut member.status;
            let path = status.path.map(|path| path.with(headers));
            status.reason = why_stalled(path, &status.load);
            let (node, reporter) = (status.node, status.reporter);
            member.is_given_up = true;
            self.set(id, MemberState::Failed);
            for _ in 0..STALLED_SAID {
                self.answer(node, 0, id, Status::Stalled);
            }
            reporters.push(reporter);
        }
        reporters
    }
}

/// Share of all symbols for members without any progress, and most symbols saved up for them.
const SPARE_SHARE: f64 = 0.25;
pub(super) const SPARE_MAX: f64 = 1024.0;

/// Time after its last request for probes in which a member still measures: five rounds.
const MEASURING: Duration = Duration::from_millis(3500);

/// Time without progress of any member after which the group counts as stalled.
const MOVING: Duration = Duration::from_secs(10);

/// Consecutive messages that only single full-length packets arrive before they are believed.
const WHOLE_MESSAGES: u32 = 3;
