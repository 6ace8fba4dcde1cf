//! Table of a head's direct members: admission, acknowledgements, and what the members need.

mod member;
mod questions;
mod removal;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Duration, NodeId, Time};

use super::affiliation::BIND_TIMEOUT;
use super::departures::{self, Departures};
use crate::ShortReceiver;
use crate::tram::settings::{HeadRole, LateJoin, TramSettings};
use crate::tram::wire::{Ack, BELOW_MAX, Bind, DepartureList, Fate, HeadState, RejectReason};
use member::{AckBounds, Liveness, Subtree};
pub(crate) use member::{Member, PacketSpan, Progress};
use questions::{Earlier, RecentLeaves};
use removal::{EARLY_STALL, EARLY_STALL_INTERVALS, Orphans, STALL_INTERVALS};

const REFUSED_MAX: usize = 64;

/// Largest share of receivers that never become heads among the members of a head (src: jrms).
const MEMBER_ONLY_SHARE: f64 = 0.667;

#[derive(Debug, Default)]
pub(crate) struct Members {
    pub(crate) by_node: BTreeMap<NodeId, Member>,
    members_max: usize,
    member_only_max: usize,
    heads_max: usize,
    bounds: AckBounds,
    ttl: u8,
    /// True at a source that reads all packets again for members that joined late.
    rereads: bool,
    orphans: Vec<Orphans>,
    orphans_for: Duration,
    refused: VecDeque<(NodeId, Time)>,
    pub(super) leaves: RecentLeaves,
    superseded: Vec<Earlier>,
    stall_timeout: Duration,
    /// Timeout of a member that was repaired in vain, or acknowledged only once.
    early_stall_timeout: Duration,
    pub(crate) departures: Departures,
}

impl Members {
    pub(super) fn new(settings: &TramSettings) -> Self {
        let members_max = settings.members_max.max(1) as usize;
        let member_only = (MEMBER_ONLY_SHARE * members_max as f64) as usize;
        // Longer than delays of acknowledgements and hellos.
        let interval = settings.ack_interval.max(settings.hello_interval);
        Self {
            members_max,
            member_only_max: member_only.clamp(1, members_max),
            heads_max: members_max,
            bounds: AckBounds::new(settings),
            ttl: u8::try_from(settings.ttl).unwrap_or(u8::MAX),
            // Orphans notice the loss as late as this head did, and then bind.
            orphans_for: settings.hello_interval * 2 + BIND_TIMEOUT,
            stall_timeout: settings.ack_interval_max * STALL_INTERVALS,
            early_stall_timeout: EARLY_STALL.max(interval * EARLY_STALL_INTERVALS),
            departures: Departures::new(),
            ..Self::default()
        }
    }

    /// Limits members that may be heads to `source_members_max`: the source repairs their losses.
    pub(super) fn be_source(&mut self, settings: &TramSettings) {
        let heads = settings.source_members_max.max(1) as usize;
        self.heads_max = heads.min(self.members_max);
        self.rereads = settings.late_join == LateJoin::Full;
        self.departures.entries_max = departures::SOURCE_MAX;
    }

    /// Returns the number of members, and the most that are taken, as packets report them.
    pub(crate) fn count(&self) -> (u16, u16) {
        [self.by_node.len(), self.members_max].map(|n| u16::try_from(n).unwrap_or(u16::MAX)).into()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, &Member)> {
        self.by_node.iter().map(|(&node, member)| (node, member))
    }

    fn confirmed(&self) -> impl Iterator<Item = &Member> {
        self.by_node.values().filter(|member| member.is_confirmed())
    }

    pub(super) fn state(&self) -> HeadState {
        let never_heads = |member: &&Member| member.role == HeadRole::Never;
        let member_only = self.by_node.values().filter(never_heads).count();
        let has_room = self.by_node.len() < self.members_max;
        let heads = has_room && self.by_node.len() - member_only < self.heads_max;
        match (heads, has_room && member_only < self.member_only_max) {
            (true, true) => HeadState::Accepting,
            (true, false) => HeadState::AcceptingHeads,
            (false, true) => HeadState::AcceptingMembers,
            (false, false) => HeadState::NotAccepting,
        }
    }

    /// Takes a member repaired from `start` on. A repeated request changes nothing. Members that
    /// need packets to be read again may double the limit.
    pub(super) fn admit(
        &mut self,
        now: Time,
        node: NodeId,
        (id, bind): (u64, Bind),
        (start, end): (u64, u64),
        needs_reread: bool,
    ) -> Result<(), RejectReason> {
        let Bind { role, joins, name, .. } = bind;
        if let Some(member) = self.by_node.get_mut(&node).filter(|member| member.id == id) {
            member.life.on_packet(now);
            member.joins = member.joins.max(joins);
            return Ok(());
        }
        self.refused.retain(|(_, until)| *until > now);
        if self.refused.iter().any(|(refused, _)| *refused == node) {
            return Err(RejectReason::Full);
        }
        let has_room = needs_reread && self.by_node.len() < 2 * self.members_max;
        if !has_room && !self.by_node.contains_key(&node) {
            match self.state() {
                state if state.takes(role != HeadRole::Never) => {}
                HeadState::AcceptingHeads => return Err(RejectReason::HeadsOnly),
                HeadState::Resigning => return Err(RejectReason::Resigning),
                _ => return Err(RejectReason::Full),
            }
        }
        let progress = Progress {
            first_missing: start,
            // Initial window: one join does not close the window.
            allowed: start.saturating_sub(1) + 2 * self.bounds.ack_window,
            advanced_at: now,
            repair_queued_at: now,
            catch_up_until: needs_reread.then_some(end),
            needs_reread,
            ..Progress::default()
        };
        let moved_away = self.departures.found_from(id);
        let member = Member {
            id,
            name,
            joins,
            role,
            distance: bind.distance.max(1),
            progress,
            subtree: Subtree { moved_away, ..Subtree::default() },
            life: Liveness { joined_at: now, last_packet_at: now, ..Liveness::default() },
            fate: Fate::Silent,
        };
        // Another program may have been here. If it still is, its acknowledgement brings it back.
        if let Some(before) = self.by_node.insert(node, member).filter(Member::is_confirmed) {
            self.record(node, &before, before.fate);
            self.leaves.add(now, node, before);
        }
        Ok(())
    }

    /// Fails if the sender is no member, or the acknowledgement cannot be true.
    pub(super) fn acknowledge(
        &mut self,
        now: Time,
        node: NodeId,
        ack: &Ack<'_>,
        span: PacketSpan,
    ) -> Checked {
        let Some(member) = self.by_node.get_mut(&node) else { return Err(BadInput::Foreign) };
        let counts = self.bounds.check(ack, span)?;
        let is_first = member.life.on_ack(now);
        self.superseded.retain(|earlier| earlier.node != node);
        member.progress.acknowledge(now, counts, (span, self.bounds.ahead_max), is_first);
        let id = member.id;
        member.subtree.acknowledge(ack, || self.departures.found_from(id));
        member.fate = match (ack.complete, ack.short) {
            (true, false) => Fate::Complete,
            (true, true) => Fate::Gaps,
            (false, _) => Fate::Silent,
        };
        if !ack.departed.is_empty() {
            self.on_departures(node, ack.departed);
        }
        if ack.leaves
            && let Some(member) = self.by_node.remove(&node)
        {
            if ack.short {
                self.record(node, &member, ack.fate_of_leaver());
            } else if !ack.departed.is_empty() {
                // A receiver that only changes heads reports to its next head.
                self.departures.count(member.subtree.unlisted);
            }
            self.leaves.add(now, node, member);
        }
        Ok(())
    }

    /// True if an acknowledgement is of the member at `node`, which counts again if it had left.
    pub(super) fn recognise(
        &mut self,
        now: Time,
        (node, id): (NodeId, u64),
        ack: &Ack<'_>,
    ) -> bool {
        if self.by_node.get(&node).is_some_and(|member| member.id == id) {
            return true;
        }
        if ack.leaves {
            return false;
        }
        let Some(member) = self.leaves.take_back(now, node, id) else { return false };
        self.departures.take_back(id);
        if let Some(other) = self.by_node.insert(node, member).filter(Member::is_confirmed) {
            self.leaves.add(now, node, other);
        }
        true
    }

    fn on_departures(&mut self, by: NodeId, reported: DepartureList<'_>) {
        let mut unlisted = reported.unnamed;
        for departed in reported.iter() {
            let is_here = |it: &Member| it.id == departed.id && it.joins >= departed.joins;
            let stale = departed.fate != Fate::Back && self.by_node.values().any(is_here);
            if !stale && !self.departures.on_report(by, departed) {
                unlisted = unlisted.saturating_add(departed.below.saturating_add(1));
            }
        }
        if let Some(member) = self.by_node.get_mut(&by) {
            member.subtree.unlisted = unlisted.min(BELOW_MAX);
        }
        self.drop_found_orphans();
    }

    /// Records a departed member. A complete one without receivers below is not worth a report.
    fn record(&mut self, node: NodeId, member: &Member, fate: Fate) {
        if fate != Fate::Complete || member.subtree.receivers > 0 {
            self.departures.record(member.departed(node, fate));
        }
        self.departures.count(member.subtree.unlisted);
    }

    /// Returns the number of departed receivers that have no entry in a table.
    pub(crate) fn unlisted(&self) -> u32 {
        let reported = self.by_node.values().map(|member| member.subtree.unlisted);
        reported.fold(self.departures.unlisted, u32::saturating_add)
    }

    /// Returns the receivers that lack something, and the number of further ones.
    pub(crate) fn shortfall(&self) -> (Vec<ShortReceiver>, u64) {
        let here = |id| self.confirmed().any(|member| member.id == id);
        let mut below = 0;
        let mut named = Vec::new();
        for (node, member) in self.iter().filter(|(_, member)| member.is_confirmed()) {
            below += u64::from(member.subtree.receivers) + u64::from(member.subtree.unlisted);
            if let Some(reason) = member.fate.shortfall() {
                let (id, node) = (member.id, Some(node));
                named.push(ShortReceiver { id, node, was_member: true, reason });
            }
        }
        let (departed, unnamed) = self.departures.shortfall(here, below);
        named.extend(departed);
        (named, unnamed)
    }

    /// Returns the last packet that all members allow (H_a), except those catching up.
    pub(crate) fn allowed(&self) -> Option<u64> {
        let orphans = self.orphans.iter().filter_map(|orphans| orphans.allowed);
        let waited_for = self.confirmed().filter(|member| !member.catches_up());
        waited_for.map(|member| member.progress.allowed).chain(orphans).min()
    }

    /// Returns the same for the source: if all members catch up, the furthest limits the source.
    pub(crate) fn allowed_by_any(&self) -> Option<u64> {
        self.allowed().or_else(|| self.confirmed().map(|member| member.progress.allowed).max())
    }

    /// Returns the first packet that must be kept for a member.
    pub(crate) fn first_missing(&self) -> Option<u64> {
        let orphans = self.orphans.iter().map(|orphans| orphans.first_missing);
        let is_reread =
            |member: &Member| member.progress.needs_reread || self.rereads && member.catches_up();
        let needs = |member: &&Member| !is_reread(member) && !member.life.confirmation_expired;
        let members = self.by_node.values().filter(needs);
        members.map(|member| member.progress.first_missing).chain(orphans).min()
    }

    pub(crate) fn worst_loss(&self) -> u16 {
        self.by_node.values().map(|member| member.subtree.loss).max().unwrap_or(0)
    }

    /// Returns the number of receivers below members, and of heads among the members and these.
    pub(crate) fn below(&self) -> (u32, u32) {
        let subtrees = || self.by_node.values().map(|member| member.subtree);
        let receivers = subtrees().map(|subtree| subtree.receivers);
        let heads = subtrees().map(|subtree| subtree.heads);
        (receivers.fold(0, u32::saturating_add), heads.fold(0, u32::saturating_add))
    }

    /// Returns the number of all receivers below this head, and of heads among them.
    pub(crate) fn all(&self) -> (u64, u32) {
        let (below, heads) = self.below();
        (self.by_node.len() as u64 + u64::from(below), heads)
    }

    /// Returns the number of receivers below this head that were there at `moment`.
    pub(crate) fn below_since(&self, moment: Time) -> u32 {
        let before = self.by_node.iter().filter(|(_, member)| member.life.joined_at <= moment);
        let all = before.map(|(node, member)| {
            // Receivers that moved here later count at their earlier head.
            let moved_here = self.departures.found_by(*node);
            member.subtree.receivers.saturating_sub(moved_here).saturating_add(1)
        });
        all.fold(0, u32::saturating_add)
    }
}

#[cfg(test)]
mod tests;
