//! Progress of members: those that hold the end, those without progress, and those that long packets do not reach.

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
    /// True if a member that lacks something holds the end.
    ///
    /// Members that are waited for do: with `names` the members with these names, and without them the members that
    /// were there when content began. A later member holds the end while it has made progress within `give_up`, since
    /// any host can join and claim to lack everything. The same holds for a member with the name of one that has
    /// everything.
    pub(in crate::object) fn hold_the_end(
        &self,
        now: Time,
        give_up: Duration,
        names: &BTreeSet<String>,
    ) -> bool {
        let lately = |at: Time| now.since(at) < give_up;
        if names.is_empty() {
            return self.members.values().filter(|member| member.is(&SERVED)).any(|member| {
                member.awaited || lately(member.progressed.unwrap_or(member.status.since))
            });
        }
        // Thousands may bear one name, so each is looked at once.
        let named = |states: &'static [MemberState]| {
            let members = self.members.values().filter(|member| member.is(states));
            members.filter(|member| names.contains(&*member.status.name))
        };
        let done: BTreeSet<&str> =
            named(&[MemberState::Done]).map(|member| &*member.status.name).collect();
        named(&SERVED).any(|member| {
            // A member of the same name that has everything may be this one, started again, or another receiver. A
            // restarted one falls silent soon after its last progress, and is lost.
            let (heard, progressed) =
                (member.status.heard, member.progressed.unwrap_or(member.status.since));
            let fell_silent = heard.since(progressed) < give_up / 2;
            let lately = lately(if fell_silent { heard } else { progressed });
            !done.contains(&*member.status.name) || lately
        })
    }

    /// Whether who speaks from `node` makes no progress where others do: thousands of such members may
    /// have been invented, so repairs for them have a share of what is sent and no more.
    pub(in crate::object) fn is_unproven(&self, node: NodeId) -> bool {
        let member = self.by_node.get(&node).and_then(|id| self.members.get(id));
        self.proven && member.is_some_and(|member| member.progressed.is_none())
    }

    /// True if a symbol may be repaired for a member without progress, after `sent` symbols.
    pub(in crate::object) fn has_spare(&mut self, sent: u64) -> bool {
        let (left, before) = self.spare;
        let left = left + sent.saturating_sub(before) as f64 * SPARE_SHARE;
        self.spare = (left.min(SPARE_MAX), sent);
        self.spare.0 >= 1.0
    }

    /// Repairs for a member without progress: up to `symbols`, after `sent` symbols, and no more than are saved up. A debt
    /// would keep the next such member waiting.
    pub(in crate::object) fn take_spare(&mut self, sent: u64, symbols: u64) -> u64 {
        let taken = match self.has_spare(sent) {
            true => symbols.min(self.spare.0 as u64),
            false => 0,
        };
        self.spare.0 -= taken as f64;
        taken
    }

    pub(in crate::object) fn spend_spare(&mut self, symbols: u32) {
        self.spare.0 -= f64::from(symbols);
    }

    /// A member tells which lengths of packets reach it. Returns by what name it reports where that was unknown.
    pub(in crate::object) fn note_path(
        &mut self,
        now: Time,
        id: u64,
        path: Option<PathLimit>,
    ) -> Option<NodeId> {
        let whole_for = self.status_interval(Duration::MAX) * 2;
        let member = self.members.get_mut(&id)?;
        if path.is_some_and(|path| !path.is_short()) {
            let (since, messages) = member.whole.get_or_insert((now, 0));
            *messages += 1;
            member.whole_lost |= *messages >= WHOLE_MESSAGES && now.since(*since) >= whole_for;
        } else {
            member.whole = None;
        }
        let path = path.filter(PathLimit::is_short);
        let reached = member.is_reached();
        let before = core::mem::replace(&mut member.status.path, path);
        self.reached = self.reached + usize::from(member.is_reached()) - usize::from(reached);
        (before.is_none() && path.is_some()).then_some(member.status.reporter)
    }

    /// Returns whether a served member gets packets of full length one by one, and no data.
    ///
    /// One message may be forged: several in a row count, over a time in which the member itself has spoken. Once
    /// packets leave one by one they arrive, and the member says nothing more of lengths: so this holds until the
    /// member is served no more.
    pub(in crate::object) fn is_whole_lost(&self) -> bool {
        self.members.values().any(|member| member.whole_lost && member.is(&SERVED))
    }

    /// Returns whether a member may ask for probes now: while it is served, and once in half a round.
    pub(in crate::object) fn may_probe(&mut self, now: Time, id: u64) -> bool {
        let Some(member) = self.members.get_mut(&id).filter(|member| member.is(&SERVED)) else {
            return false;
        };
        let may = member.probed_at.is_none_or(|at| now.since(at) >= ROUND / 2);
        if may {
            member.probed_at = Some(now);
        }
        may
    }

    /// Lets `span` go by, and gives up members without progress for more than `limit` that lack some of what was sent.
    /// Drivers add `headers` bytes to each packet. Returns the names under which these members report.
    ///
    /// If no member makes progress all count, but members that have taken all packets only when
    /// nobody lacks one: a window stands for the others. If some do, only members count that long
    /// packets do not reach, since the turn of others may still come. A member that measures which
    /// packets reach it has twice as long, to say it.
    pub(in crate::object) fn stall(
        &mut self,
        now: Time,
        span: Duration,
        limit: Duration,
        sent: Sent,
        headers: u32,
    ) -> Vec<NodeId> {
        let moving = self.progressed.is_some_and(|at| now.since(at) < MOVING);
        let limit = limit.max(self.status_interval(Duration::MAX) * 3);
        let mut over = Vec::new();
        let all_taken =
            self.members.values().all(|member| !member.is(&SERVED) || member.has_taken_all);
        for (&id, member) in &mut self.members {
            // A member that has everything compares, or looks for what it had before.
            let (lacks, comes) = match member.status.state {
                MemberState::Joined => (member.manifest < sent.manifest, true),
                MemberState::Receiving => (member.status.bytes < sent.content, sent.flows),
                _ => continue,
            };
            let waits = moving || !comes || member.has_taken_all && !all_taken;
            if !lacks || member.status.path.is_none() && waits {
                continue;
            }
            member.stalled += span;
            let measures = member.status.path.is_none()
                && member.probed_at.is_some_and(|at| now.since(at) < MEASURING);
            if member.stalled > if measures { limit * 2 } else { limit } {
                over.push(id);
            }
        }
        let mut reporters = Vec::new();
        for id in over {
            let Some(member) = self.members.get_mut(&id) else { continue };
            let status = &mut member.status;
            let path = status.path.map(|path| path.with(headers));
            status.reason = why_stalled(path, &status.load);
            let (node, reporter) = (status.node, status.reporter);
            member.given_up = true;
            self.set(id, MemberState::Failed);
            for _ in 0..STALLED_SAID {
                self.answer(node, 0, id, Status::Stalled);
            }
            reporters.push(reporter);
        }
        reporters
    }
}

/// Share of all symbols for members without any progress, and most symbols that are saved up for them.
const SPARE_SHARE: f64 = 0.25;
pub(super) const SPARE_MAX: f64 = 1024.0;

/// Time after its last request for probes in which a member still measures: five rounds, since
/// requests get lost.
const MEASURING: Duration = Duration::from_millis(3500);

/// Time without progress of any member after which no member gets further.
const MOVING: Duration = Duration::from_secs(10);

/// Messages of a member in a row that are believed of packets that leave together.
const WHOLE_MESSAGES: u32 = 3;
