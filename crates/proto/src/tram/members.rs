//! Table of a head's direct members: their packets, windows and last activity.

mod namesakes;
mod parted;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Duration, NodeId, Time};

use super::departures::{self, Departures};
use super::parent::BIND_TIMEOUT;
use super::reception::JUMP_MAX;
use super::settings::{HeadRole, LateJoin, RightEdge, TramSettings};
use super::window::LEVELS_MAX;
use super::wire::Fate;
use super::wire::{Ack, BELOW_MAX, Bind, Departed, Departeds, HeadState, RejectReason};
use crate::pgm::session::dissent::Dissent;
use crate::{Destination, ShortReceiver, keep_last};
use namesakes::Namesakes;
use parted::Parted;

/// Time for which a head refuses a removed member: one without progress or acknowledgement. Last,
/// the most such members that are remembered.
const REFUSED_FOR: Duration = Duration::from_secs(60);
const MUTE_REFUSED_FOR: Duration = Duration::from_secs(4);
const REFUSED_MAX: usize = 64;

/// Longest time without progress, in acknowledgement intervals; members leave a head after as many.
const STANDSTILLS_MAX: u64 = 10;

/// Repairs and time without progress after which a member counts as stalled early; chosen. A short
/// outage of its path is no stall.
const FRUITLESS_MAX: u32 = 10;
const FRUITLESS_FEW: u32 = 3;
const FRUITLESS_FOR: Duration = Duration::from_secs(3);
const FRUITLESS_INTERVALS: u64 = 3;

/// Longest time to the first acknowledgement of a new member, for which packets are kept.
const MUTE_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Child {
    pub(super) id: u64,
    name: u64,
    pub(super) joins: u16,
    pub(super) role: HeadRole,
    pub(super) distance: u8,
    pub(super) first_missing: u64,
    /// Last packet that the member's subtree allows (H_a).
    pub(super) allowed: u64,
    /// Worst loss in the subtree, in parts of 65535, and true if it is that of a receiver below.
    pub(super) loss: u16,
    pub(super) of_subtree: bool,
    /// Receivers below the member, and advertising heads among them.
    pub(super) below: u32,
    found: u32,
    pub(super) heads: u32,
    /// True if the member has everything; true if it has all that can still be had.
    pub(super) complete: bool,
    pub(super) gaps: bool,
    /// Reported departed receivers that had no room in a table, there or here.
    pub(super) unnamed: u32,
    /// Catch-up of a late member: one past the last packet sent before its join. The source does
    /// not wait for a member that lacks such packets. `None` once that is over.
    pub(super) catches_up: Option<u64>,
    /// True if the member needs packets that are no longer kept: the source reads them again.
    pub(super) rescued: bool,
    /// True after the first acknowledgement: before it nobody waits for the member.
    pub(super) confirmed: bool,
    /// True between the first acknowledgement and the second. A live member goes on acknowledging.
    pub(super) spoke_once: bool,
    /// True if the first acknowledgement is late: nothing is kept for the member.
    pub(super) mute: bool,
    pub(super) since: Time,
    pub(super) heard_at: Time,
    /// Time of the last progress, or of having everything.
    pub(super) advanced_at: Time,
    /// Last time that a requested repair waited here: such a member has not stalled.
    pub(super) waited_at: Time,
    pub(super) fruitless: u32,
    pub(super) unanswered: u32,
    pub(super) behind: Dissent<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Acknowledged {
    pub(super) congested: bool,
    pub(super) left: bool,
}

#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) children: BTreeMap<NodeId, Child>,
    members_max: usize,
    /// Most members that never become heads, and most other members.
    member_only_max: usize,
    heads_max: usize,
    ack_window: u64,
    ttl: u8,
    /// True at a source that reads all packets again for members that joined late.
    reads_again: bool,
    /// Packets that a receiver can allow beyond those that it has.
    ahead_max: u64,
    deeper_max: u64,
    /// Needs of receivers below lost heads, with their expiry; the source waits for them.
    orphans: Vec<Orphans>,
    orphans_for: Duration,
    refused: VecDeque<(NodeId, Time)>,
    /// Members that have left, perhaps only by a forged goodbye.
    pub(super) parted: Parted,
    namesakes: Namesakes,
    standstill: Duration,
    /// Shorter standstill of a member that was repaired in vain or acknowledged only once.
    fruitless_for: Duration,
    pub(super) departures: Departures,
}

impl Child {
    fn departed(&self, node: NodeId, fate: Fate) -> Departed {
        let Self { id, joins, below, .. } = *self;
        Departed { id, node: Some(node), fate, joins, below, came_from: 0 }
    }

    fn fate(&self) -> Fate {
        match (self.complete, self.gaps) {
            (true, _) => Fate::Complete,
            (_, true) => Fate::Gaps,
            _ => Fate::Silent,
        }
    }
}

#[derive(Debug)]
struct Orphans {
    /// Number of that member, receivers below it, and those that had moved to other heads before.
    head: u64,
    below: u32,
    found: u32,
    first_missing: u64,
    allowed: Option<u64>,
    until: Time,
}

impl Members {
    pub(super) fn new(settings: &TramSettings) -> Self {
        let members_max = settings.members_max.max(1) as usize;
        let member_only_max = (settings.member_only_share * members_max as f64) as usize;
        let ack_window = u64::from(settings.ack_window);
        Self {
            members_max,
            member_only_max: member_only_max.clamp(1, members_max),
            heads_max: members_max,
            ack_window,
            ttl: u8::try_from(settings.ttl).unwrap_or(u8::MAX),
            // The end of the window that is being acknowledged, and the largest window after it.
            ahead_max: ack_window + settings.window_max(ack_window),
            deeper_max: match settings.right_edge {
                RightEdge::Levels => LEVELS_MAX * ack_window / 2,
                _ => 0,
            },
            // Orphans notice the loss as late as this head did, and then bind.
            orphans_for: settings.hello_interval * 2 + BIND_TIMEOUT,
            standstill: settings.ack_interval_max * STANDSTILLS_MAX,
            fruitless_for: fruitless_for(settings),
            departures: Departures::new(),
            ..Self::default()
        }
    }

    /// Limits members that may be heads to `source_members_max`: the source repairs their losses.
    pub(super) fn take_few(&mut self, settings: &TramSettings) {
        let few = settings.source_members_max.max(1) as usize;
        self.heads_max = few.min(self.members_max);
        self.reads_again = settings.late_join == LateJoin::Full;
        self.departures.with_room(departures::SOURCE_MAX);
    }

    pub(super) fn count(&self) -> (u16, u16) {
        [self.children.len(), self.members_max].map(|n| u16::try_from(n).unwrap_or(u16::MAX)).into()
    }

    pub(super) fn is_member(&self, node: NodeId) -> bool {
        self.children.contains_key(&node)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, &Child)> {
        self.children.iter().map(|(&node, child)| (node, child))
    }

    pub(super) fn state(&self) -> HeadState {
        let member_only = self.member_only();
        let has_room = self.children.len() < self.members_max;
        let heads = has_room && self.children.len() - member_only < self.heads_max;
        match (heads, has_room && member_only < self.member_only_max) {
            (true, true) => HeadState::Accepting,
            (true, false) => HeadState::AcceptingHeads,
            (false, true) => HeadState::AcceptingMembers,
            (false, false) => HeadState::NotAccepting,
        }
    }

    fn member_only(&self) -> usize {
        self.children.values().filter(|child| child.role == HeadRole::Never).count()
    }

    /// Takes a member repaired from `start` on. A repeated request changes nothing. `rescued`
    /// members may double the limit.
    pub(super) fn admit(
        &mut self,
        now: Time,
        node: NodeId,
        (id, bind): (u64, Bind),
        (start, end): (u64, u64),
        rescued: bool,
    ) -> Result<(), RejectReason> {
        let Bind { role, joins, name, .. } = bind;
        let distance = bind.distance.max(1);
        if let Some(child) = self.children.get_mut(&node).filter(|child| child.id == id) {
            (child.heard_at, child.unanswered) = (now, 0);
            child.joins = child.joins.max(joins);
            return Ok(());
        }
        self.refused.retain(|(_, until)| *until > now);
        if self.refused.iter().any(|(refused, _)| *refused == node) {
            return Err(RejectReason::Full);
        }
        let has_room = rescued && self.children.len() < 2 * self.members_max;
        if !has_room && !self.is_member(node) {
            match self.state() {
                state if state.takes(role != HeadRole::Never) => {}
                HeadState::AcceptingHeads => return Err(RejectReason::HeadsOnly),
                HeadState::Resigning => return Err(RejectReason::Resigning),
                _ => return Err(RejectReason::Full),
            }
        }
        let child = Child {
            id,
            name,
            joins,
            role,
            distance,
            first_missing: start,
            // Initial window: one join does not close the window.
            allowed: start.saturating_sub(1) + 2 * self.ack_window,
            found: self.departures.found_from(id),
            catches_up: rescued.then_some(end),
            rescued,
            since: now,
            heard_at: now,
            advanced_at: now,
            waited_at: now,
            ..Child::default()
        };
        // Another program may have been here. If it still is, its acknowledgement brings it back.
        if let Some(before) = self.children.insert(node, child).filter(|it| it.confirmed) {
            self.note(node, &before, before.fate());
            self.parted.add(now, node, before);
        }
        Ok(())
    }

    /// Takes an acknowledgement of packets before `end`, of which packets from `front` on are kept.
    /// A head other than the source may not know the last `unheard` packets. Progress never goes
    /// back. Fails if the sender is no member, or the acknowledgement cannot be true.
    pub(super) fn acknowledge(
        &mut self,
        now: Time,
        node: NodeId,
        ack: &Ack<'_>,
        (front, end, unheard): (u64, u64, u64),
    ) -> Checked<Acknowledged> {
        let sent = end;
        let end = end + unheard;
        let Some(child) = self.children.get_mut(&node) else { return Err(BadInput::Foreign) };
        let ahead = self.ahead_max + self.deeper_max;
        let most =
            |missing: u64| missing.saturating_sub(1) / self.ack_window * self.ack_window + ahead;
        // No member allows more than a window, and only existing packets count: others are forged.
        let highest_missing = ack.missing().last().unwrap_or(0);
        let absurd = ack.first_missing.max(highest_missing) > end + JUMP_MAX;
        if absurd || ack.allowed > most(ack.first_missing) {
            return Err(BadInput::Absurd);
        }
        let first_missing = ack.first_missing.min(end);
        let allowed = ack.allowed.min(most(first_missing));
        // A member without receivers below allows at least the packets that it has.
        let alone = ack.members == 0;
        let below = ack.indirect.saturating_add(u32::from(ack.members));
        let holds = alone && !ack.leaves && ack.allowed + 1 < ack.first_missing;
        if holds || alone && below > 0 || below > BELOW_MAX || ack.heads > below + 1 {
            return Err(BadInput::Absurd);
        }
        (child.heard_at, child.unanswered) = (now, 0);
        self.namesakes.answers(node);
        if first_missing > child.first_missing || first_missing >= sent {
            (child.advanced_at, child.fruitless) = (now, 0);
        }
        // Packets before the cache cannot be repaired here, whatever the acknowledgement says.
        let lags = (front..child.first_missing).contains(&first_missing);
        if !lags {
            child.behind.contradict();
        }
        // An overtaken acknowledgement lacks more. If a member goes on, it never had the packets.
        let goes_on = |before: &u64| first_missing >= *before;
        if lags && child.behind.claim(now, first_missing, Duration::ZERO, goes_on) {
            (child.first_missing, child.allowed) = (first_missing, allowed);
        }
        child.first_missing = child.first_missing.max(first_missing);
        child.allowed = child.allowed.max(allowed);
        child.spoke_once = !child.confirmed;
        (child.confirmed, child.mute) = (true, false);
        child.rescued &= child.first_missing < front;
        // Members that allow all sent packets close no window; after the backlog they count fully.
        let backlog = if child.spoke_once { Some(sent) } else { child.catches_up };
        let lacks_backlog =
            |until: &u64| child.first_missing < (*until).max(sent.saturating_sub(self.ahead_max));
        let still_lags = |until: &u64| lacks_backlog(until) && child.allowed + 1 < sent;
        child.catches_up = backlog.filter(|until| child.rescued || still_lags(until));
        (child.loss, child.of_subtree) = (ack.loss, ack.of_subtree);
        if below > child.below {
            child.found = self.departures.found_from(child.id);
        }
        child.below = below;
        child.heads = ack.heads;
        (child.complete, child.gaps) = (ack.complete && !ack.short, ack.complete && ack.short);
        let acknowledged = Acknowledged { congested: ack.congested, left: ack.leaves };
        if !ack.departed.is_empty() {
            self.hear_of_departed(node, ack.departed);
        }
        if ack.leaves
            && let Some(child) = self.children.remove(&node)
        {
            if ack.short {
                self.note(node, &child, went(ack));
            } else if !ack.departed.is_empty() {
                // A receiver that only changes heads reports to its next head.
                self.departures.count(child.unnamed);
            }
            self.parted.add(now, node, child);
        }
        Ok(acknowledged)
    }

    /// True if an acknowledgement is of the member at `node`, which counts again if it had left.
    pub(super) fn recognise(
        &mut self,
        now: Time,
        (node, id): (NodeId, u64),
        ack: &Ack<'_>,
    ) -> bool {
        if self.children.get(&node).is_some_and(|child| child.id == id) {
            return true;
        }
        if ack.leaves {
            return false;
        }
        let Some(child) = self.parted.take_back(now, node, id) else { return false };
        self.departures.take_back(id);
        if let Some(other) = self.children.insert(node, child).filter(|it| it.confirmed) {
            self.parted.add(now, node, other);
        }
        true
    }

    pub(super) fn on_repair(&mut self, sequence: u64, to: Destination) {
        let gets = |node: &NodeId| !matches!(to, Destination::Node(only) if only != *node);
        for (node, child) in &mut self.children {
            if child.first_missing == sequence && gets(node) {
                child.fruitless = child.fruitless.saturating_add(1);
            }
        }
    }

    pub(super) fn is_fruitless(&self, node: NodeId) -> bool {
        self.children
            .get(&node)
            .is_some_and(|child| child.fruitless >= FRUITLESS_FEW && child.catches_up.is_none())
    }

    /// True if repairs did not reach the member: its reported time to live may be too small.
    pub(super) fn is_unreached(&self, node: NodeId) -> bool {
        self.children.get(&node).is_some_and(|child| child.fruitless >= FRUITLESS_FEW)
    }

    pub(super) fn catches_up(&self, node: NodeId) -> bool {
        self.children.get(&node).is_some_and(|child| child.catches_up.is_some())
    }

    pub(super) fn amend(&mut self, id: u64, ack: &Ack<'_>) {
        self.departures.amend(id, ack.short.then(|| went(ack)));
    }

    fn hear_of_departed(&mut self, by: NodeId, told: Departeds<'_>) {
        let mut unnamed = told.unnamed;
        for departed in told.iter() {
            let is_here = |it: &Child| it.id == departed.id && it.joins >= departed.joins;
            let stale = departed.fate != Fate::Back && self.children.values().any(is_here);
            if !stale && !self.departures.hear(by, departed) {
                unnamed = unnamed.saturating_add(departed.below.saturating_add(1));
            }
        }
        if let Some(child) = self.children.get_mut(&by) {
            child.unnamed = unnamed.min(BELOW_MAX);
        }
        self.forget_found();
    }

    fn forget_found(&mut self) {
        let departures = &self.departures;
        let found = |it: &Orphans| departures.found_from(it.head).saturating_sub(it.found);
        self.orphans.retain(|it| found(it) < it.below && !departures.is_back(it.head));
    }

    fn note(&mut self, node: NodeId, child: &Child, fate: Fate) {
        if fate != Fate::Complete || child.below > 0 {
            self.departures.note(child.departed(node, fate));
        }
        self.departures.count(child.unnamed);
    }

    pub(super) fn unnamed(&self) -> u32 {
        let told = self.children.values().map(|child| child.unnamed);
        told.fold(self.departures.unnamed, u32::saturating_add)
    }

    pub(super) fn shortfall(&self) -> (Vec<ShortReceiver>, u64) {
        let here = |id| self.confirmed().any(|child| child.id == id);
        let mut below = 0;
        let mut named = Vec::new();
        for (&node, child) in self.children.iter().filter(|(_, child)| child.confirmed) {
            below += u64::from(child.below) + u64::from(child.unnamed);
            if let Some(reason) = child.fate().shortfall() {
                let (id, node) = (child.id, Some(node));
                named.push(ShortReceiver { id, node, was_member: true, reason });
            }
        }
        let (gone, unnamed) = self.departures.shortfall(here, below);
        named.extend(gone);
        (named, unnamed)
    }

    /// Removes and refuses stalled members that block packets after `end`, or a `filling` cache.
    pub(super) fn remove_standing(
        &mut self,
        now: Time,
        (front, end): (u64, u64),
        filling: bool,
        waits: impl Fn(NodeId, u64) -> bool,
    ) -> Vec<NodeId> {
        for (node, child) in &mut self.children {
            if waits(*node, child.first_missing) {
                child.waited_at = now;
            }
        }
        let stands = |child: &Child| {
            let hinders = child.allowed + 1 < end || filling && child.first_missing <= front;
            let lacks = child.first_missing < end && !child.rescued && child.confirmed;
            let fruitless =
                child.fruitless >= FRUITLESS_MAX && child.catches_up.is_none() || child.spoke_once;
            let most =
                if fruitless { self.standstill.min(self.fruitless_for) } else { self.standstill };
            let since =
                if fruitless { child.advanced_at } else { child.advanced_at.max(child.waited_at) };
            lacks && hinders && now.since(since) >= most
        };
        let standing: Vec<NodeId> =
            self.iter().filter(|(_, child)| stands(child)).map(|(node, _)| node).collect();
        for node in &standing {
            if let Some(child) = self.children.remove(node) {
                self.note(*node, &child, Fate::Pruned);
            }
            self.refuse(*node, now + REFUSED_FOR);
        }
        standing
    }

    fn refuse(&mut self, node: NodeId, until: Time) {
        keep_last(&mut self.refused, REFUSED_MAX, (node, until));
    }

    pub(super) fn prune(&mut self, node: NodeId) -> Option<u64> {
        let child = self.children.remove(&node)?;
        self.note(node, &child, Fate::Pruned);
        Some(child.id)
    }

    /// Returns the last packet that all members allow (H_a), except those catching up.
    pub(super) fn allowed(&self) -> Option<u64> {
        let orphans = self.orphans.iter().filter_map(|orphans| orphans.allowed);
        let waited_for = self.confirmed().filter(|child| child.catches_up.is_none());
        waited_for.map(|child| child.allowed).chain(orphans).min()
    }

    /// Returns the same for the source: if all members catch up, the furthest limits the source.
    pub(super) fn allowed_by_any(&self) -> Option<u64> {
        self.allowed().or_else(|| self.confirmed().map(|child| child.allowed).max())
    }

    fn confirmed(&self) -> impl Iterator<Item = &Child> {
        self.children.values().filter(|child| child.confirmed)
    }

    pub(super) fn first_missing(&self) -> Option<u64> {
        let orphans = self.orphans.iter().map(|orphans| orphans.first_missing);
        let is_read_again =
            |child: &Child| child.rescued || self.reads_again && child.catches_up.is_some();
        let kept_for = self.children.values().filter(|child| !is_read_again(child) && !child.mute);
        kept_for.map(|child| child.first_missing).chain(orphans).min()
    }

    pub(super) fn worst_loss(&self) -> u16 {
        self.children.values().map(|child| child.loss).max().unwrap_or(0)
    }

    pub(super) fn reach(&self) -> u8 {
        let of = |child: &Child| match child.fruitless >= FRUITLESS_MAX {
            true => self.ttl,
            false => child.distance,
        };
        self.children.values().map(of).max().unwrap_or(1)
    }

    pub(super) fn below(&self) -> (u32, u32) {
        self.children.values().fold((0, 0), |(below, heads), child| {
            (u32::saturating_add(below, child.below), u32::saturating_add(heads, child.heads))
        })
    }

    pub(super) fn all(&self) -> (u64, u32) {
        let (below, heads) = self.below();
        (self.children.len() as u64 + u64::from(below), heads)
    }

    pub(super) fn below_since(&self, moment: Time) -> u32 {
        let before = self.children.iter().filter(|(_, child)| child.since <= moment);
        let all = before.map(|(node, child)| {
            // Receivers that moved here later count at their earlier head.
            child.below.saturating_sub(self.departures.found_by(*node)).saturating_add(1)
        });
        all.fold(0, u32::saturating_add)
    }

    /// Counts hellos to members silent for `silence`. Returns numbers to ask and removed nodes.
    pub(super) fn look_after(
        &mut self,
        now: Time,
        silence: Duration,
        unanswered_max: u32,
    ) -> (Vec<u64>, Vec<NodeId>) {
        let (mut asked, mut gone) = (Vec::new(), Vec::new());
        self.orphans.retain(|orphans| orphans.until > now);
        for (&node, child) in &mut self.children {
            child.mute = !child.confirmed && now.since(child.since) >= MUTE_AFTER;
            if now.since(child.heard_at) < silence {
                continue;
            }
            if child.unanswered >= unanswered_max {
                gone.push(node);
            } else {
                child.unanswered += 1;
                asked.push(child.id);
            }
        }
        for node in &gone {
            self.lose(now, *node);
        }
        self.forget_found();
        (asked, gone)
    }

    fn lose(&mut self, now: Time, node: NodeId) {
        let Some(child) = self.children.remove(&node) else { return };
        if child.confirmed {
            self.note(node, &child, child.fate());
        } else {
            self.refuse(node, now + MUTE_REFUSED_FOR);
        }
        if child.below == 0 || child.rescued {
            return;
        }
        // Each entry was a member, so there are no more entries than members.
        if self.orphans.len() >= self.members_max {
            self.orphans.remove(0);
        }
        let Child { id: head, below, found, first_missing, allowed, catches_up, .. } = child;
        let allowed = catches_up.is_none().then_some(allowed);
        let until = now + self.orphans_for;
        self.orphans.push(Orphans { head, below, found, first_missing, allowed, until });
    }
}

/// Returns the shortest standstill, longer than delays of acknowledgements and hellos.
fn fruitless_for(settings: &TramSettings) -> Duration {
    let interval = settings.ack_interval.max(settings.hello_interval);
    FRUITLESS_FOR.max(interval * FRUITLESS_INTERVALS)
}

fn went(ack: &Ack<'_>) -> Fate {
    if ack.complete { Fate::Gaps } else { Fate::Left }
}

#[cfg(test)]
mod tests;
