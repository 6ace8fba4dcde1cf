//! A head's table of its direct members: what each has, what it allows, and when it was heard.

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

/// How long a head refuses whoever stood still, or said nothing since it was taken, in which time it may end; and how
/// many such are remembered.
const REFUSED_FOR: Duration = Duration::from_secs(60);
const MUTE_REFUSED_FOR: Duration = Duration::from_secs(4);
const REFUSED_MAX: usize = 64;

/// Times that a member may let pass between two acknowledgements and stand still: as many as it lets pass itself
/// until it leaves a head that repairs nothing.
const STANDSTILLS_MAX: u64 = 10;

/// Repairs without progress of a member, and time without progress, after which it counts as standing still early;
/// chosen. A short outage of its path is no standstill, and neither is a pause between acknowledgements or hellos.
const FRUITLESS_MAX: u32 = 10;
const FRUITLESS_FEW: u32 = 3;
const FRUITLESS_FOR: Duration = Duration::from_secs(3);
const FRUITLESS_INTERVALS: u64 = 3;

/// Longest time from a member's place to its first acknowledgement, for which packets are kept for it.
const MUTE_AFTER: Duration = Duration::from_secs(1);

/// A direct member of a head.
#[derive(Debug, Default)]
pub(super) struct Child {
    pub(super) id: u64,
    /// The number of its name; 0 without one.
    name: u64,
    /// How many heads had it before.
    pub(super) joins: u16,
    pub(super) role: HeadRole,
    /// The time to live with which it is reached.
    pub(super) distance: u8,
    /// The first packet that it lacks: it has all before it.
    pub(super) first_missing: u64,
    /// The last packet that it and its own members allow (H_a).
    pub(super) allowed: u64,
    /// The loss of the worst of its subtree, as a share of 65535, and whether that is one of its members.
    pub(super) loss: u16,
    pub(super) of_subtree: bool,
    /// Receivers below it, and those of them that advertise themselves as heads.
    pub(super) below: u32,
    /// Receivers that had come from it to other heads when the first of these came to it.
    found: u32,
    pub(super) heads: u32,
    /// It has everything, or all that can still be had.
    pub(super) complete: bool,
    pub(super) gaps: bool,
    /// So many were told by it for whom there was no room, there or here.
    pub(super) unnamed: u32,
    /// Catch-up of a member that joined late: one past the last packet sent before it joined. The source does not
    /// wait for a member that still lacks such packets and would close its window. `None` once that is over.
    pub(super) catches_up: Option<u64>,
    /// Some of that is no longer kept: the source reads it again.
    pub(super) rescued: bool,
    /// It has acknowledged. Until then it may never have heard that it is a member, and nobody waits for it.
    pub(super) confirmed: bool,
    /// True after the first acknowledgement and before the next: members that are there go on acknowledging.
    pub(super) spoke_once: bool,
    /// True if the member has not confirmed its place in time: nothing is kept for it. Any host can ask for a place
    /// in any name.
    pub(super) mute: bool,
    pub(super) since: Time,
    pub(super) heard_at: Time,
    /// When it got further, or had everything.
    pub(super) advanced_at: Time,
    /// When a repair that it asked for waited here last: that is no standstill.
    pub(super) waited_at: Time,
    /// Repairs since `advanced_at` of the packet that it lacks first.
    pub(super) fruitless: u32,
    /// Hellos that it has been asked by and has not answered.
    pub(super) unanswered: u32,
    /// Acknowledgements of less than was said in its name before.
    pub(super) behind: Dissent<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Acknowledged {
    /// Whether it told of congestion, in its own reception or below.
    pub(super) congested: bool,
    pub(super) left: bool,
}

#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) children: BTreeMap<NodeId, Child>,
    members_max: usize,
    /// Of these, so many may be such as never become heads, and so many others.
    member_only_max: usize,
    heads_max: usize,
    ack_window: u64,
    /// Hops that control packets go at most.
    ttl: u8,
    /// True at a source that reads all packets again for members that joined late.
    reads_again: bool,
    /// What a receiver can allow beyond what it has.
    ahead_max: u64,
    /// What the deepest can allow beyond that.
    deeper_max: u64,
    /// What the members of heads that fell silent still need, and until when they may come: the source must not
    /// run away from them meanwhile.
    orphans: Vec<Orphans>,
    orphans_for: Duration,
    /// Members that stood still or were mute, and until when they are not taken again.
    refused: VecDeque<(NodeId, Time)>,
    /// Members that others may have taken leave for.
    pub(super) parted: Parted,
    namesakes: Namesakes,
    standstill: Duration,
    /// Shortest standstill: of a member that was sent what it lacks in vain, or spoke once.
    fruitless_for: Duration,
    pub(super) departures: Departures,
}

impl Child {
    fn departed(&self, node: NodeId, fate: Fate) -> Departed {
        let Self { id, joins, below, .. } = *self;
        Departed { id, node: Some(node), fate, joins, below, came_from: 0 }
    }

    /// How it is where nothing more is heard of it.
    fn fate(&self) -> Fate {
        match (self.complete, self.gaps) {
            (true, _) => Fate::Complete,
            (_, true) => Fate::Gaps,
            _ => Fate::Silent,
        }
    }
}

/// What those below a lost member had.
#[derive(Debug)]
struct Orphans {
    /// The number of that member, how many there were, and how many had come from it to other heads before.
    head: u64,
    below: u32,
    found: u32,
    first_missing: u64,
    /// What they allow; `None` where they were catching up, so that nobody waits for that.
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
            // Up to the end of the window that is being acknowledged, and the largest window behind that.
            ahead_max: ack_window + settings.window_max(ack_window),
            deeper_max: match settings.right_edge {
                RightEdge::Levels => LEVELS_MAX * ack_window / 2,
                _ => 0,
            },
            // They find out as late as this head did, and then bind.
            orphans_for: settings.hello_interval * 2 + BIND_TIMEOUT,
            standstill: settings.ack_interval_max * STANDSTILLS_MAX,
            fruitless_for: fruitless_for(settings),
            departures: Departures::new(),
            ..Self::default()
        }
    }

    /// Takes no more than the source does: what its members lose it repairs itself, and they can have as many below them
    /// as it could. Who never has anybody below it may have no other head, so these count by themselves.
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

    /// Takes a member that will be repaired from `start` on, where `end` is what is sent next, or says why not. One
    /// that is a member already stays what it is: its binding was repeated. `rescued` ones are taken though there is
    /// no room, as many again.
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
            // Until it speaks, what it will allow at first: one join does not close the window.
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
        // Another program may have been there; or it still is, and says so.
        if let Some(before) = self.children.insert(node, child).filter(|it| it.confirmed) {
            self.note(node, &before, before.fate());
            self.parted.add(now, node, before);
        }
        Ok(())
    }

    /// Takes an acknowledgement of what was sent before `end`, of which packets from `front` on are kept; whoever
    /// is not the source may not have heard of the last `unheard` packets. What the member has and allows never goes
    /// back.
    ///
    /// # Errors
    /// It is of nobody, or cannot be true.
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
        // Nobody allows more than a window. Whoever was deceived by forged data speaks of packets that there are not yet;
        // of what there is its word holds.
        let highest_missing = ack.missing().last().unwrap_or(0);
        let absurd = ack.first_missing.max(highest_missing) > end + JUMP_MAX;
        if absurd || ack.allowed > most(ack.first_missing) {
            return Err(BadInput::Absurd);
        }
        let first_missing = ack.first_missing.min(end);
        let allowed = ack.allowed.min(most(first_missing));
        // Whoever has nobody below it counts nobody there, and allows at least what it has.
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
        // Packets behind the cache cannot be had here, whatever the message.
        let lags = (front..child.first_missing).contains(&first_missing);
        if !lags {
            child.behind.contradict();
        }
        // A message that was overtaken says less. A member that goes on saying less never had the packets of the
        // message in its name.
        let goes_on = |before: &u64| first_missing >= *before;
        if lags && child.behind.claim(now, first_missing, Duration::ZERO, goes_on) {
            (child.first_missing, child.allowed) = (first_missing, allowed);
        }
        child.first_missing = child.first_missing.max(first_missing);
        child.allowed = child.allowed.max(allowed);
        child.spoke_once = !child.confirmed;
        (child.confirmed, child.mute) = (true, false);
        child.rescued &= child.first_missing < front;
        // A member that allows all that was sent closes no window. A member whose backlog is repaired counts as any other.
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
                // Whoever only changes heads tells the next one.
                self.departures.count(child.unnamed);
            }
            self.parted.add(now, node, child);
        }
        Ok(acknowledged)
    }

    /// True if an acknowledgement from `node` is of the member there, by its number. A member is one again when it
    /// speaks after a goodbye in its name, or after a join under another number.
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

    /// A packet is repaired, for this member or for all.
    pub(super) fn on_repair(&mut self, sequence: u64, to: Destination) {
        let gets = |node: &NodeId| !matches!(to, Destination::Node(only) if only != *node);
        for (node, child) in &mut self.children {
            if child.first_missing == sequence && gets(node) {
                child.fruitless = child.fruitless.saturating_add(1);
            }
        }
    }

    /// True if a member was sent the first packet that it lacks, and still asks for it.
    pub(super) fn is_fruitless(&self, node: NodeId) -> bool {
        self.children
            .get(&node)
            .is_some_and(|child| child.fruitless >= FRUITLESS_FEW && child.catches_up.is_none())
    }

    /// True if several repairs of the first packet that a member lacks have not come there: the time to live that it told
    /// of, by which all are repaired, may be too small.
    pub(super) fn is_unreached(&self, node: NodeId) -> bool {
        self.children.get(&node).is_some_and(|child| child.fruitless >= FRUITLESS_FEW)
    }

    /// True if a member is being sent packets from before it joined.
    pub(super) fn catches_up(&self, node: NodeId) -> bool {
        self.children.get(&node).is_some_and(|child| child.catches_up.is_some())
    }

    /// Whoever was given up before says goodbye.
    pub(super) fn amend(&mut self, id: u64, ack: &Ack<'_>) {
        self.departures.amend(id, ack.short.then(|| went(ack)));
    }

    /// A member tells of those who went.
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

    /// Drops orphans that all have another head, and those whose head is back and speaks for them.
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

    /// Receivers that went and for whom there was no room, here or below.
    pub(super) fn unnamed(&self) -> u32 {
        let told = self.children.values().map(|child| child.unnamed);
        told.fold(self.departures.unnamed, u32::saturating_add)
    }

    /// Who lacks something where the session ends now, and how many more there may be of whom nothing is known.
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

    /// Removes those who stand still, and so keep the source from sending after what was sent before `end`, or
    /// packets from `front` on from making room where the cache is `filling`. They are not taken again soon. A member
    /// whose repair `waits` here to be sent does not stand still.
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

    /// Removes a member for being too slow. Returns its number, if it was a member.
    pub(super) fn prune(&mut self, node: NodeId) -> Option<u64> {
        let child = self.children.remove(&node)?;
        self.note(node, &child, Fate::Pruned);
        Some(child.id)
    }

    /// The last packet that all members allow (H_a of the subtree), but for those that catch up; `None` where there
    /// is nobody to wait for.
    pub(super) fn allowed(&self) -> Option<u64> {
        let orphans = self.orphans.iter().filter_map(|orphans| orphans.allowed);
        let waited_for = self.confirmed().filter(|child| child.catches_up.is_none());
        waited_for.map(|child| child.allowed).chain(orphans).min()
    }

    /// The same for the source: where all catch up, the first of them is whom there is to wait for.
    pub(super) fn allowed_by_any(&self) -> Option<u64> {
        self.allowed().or_else(|| self.confirmed().map(|child| child.allowed).max())
    }

    fn confirmed(&self) -> impl Iterator<Item = &Child> {
        self.children.values().filter(|child| child.confirmed)
    }

    /// First packet that some member lacks and that is kept for this member; `None` without members.
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

    /// The time to live that reaches all members, as they told it. A member that many repairs have not reached is further
    /// away than that.
    pub(super) fn reach(&self) -> u8 {
        let of = |child: &Child| match child.fruitless >= FRUITLESS_MAX {
            true => self.ttl,
            false => child.distance,
        };
        self.children.values().map(of).max().unwrap_or(1)
    }

    /// Receivers below the members, and heads among all of them.
    pub(super) fn below(&self) -> (u32, u32) {
        self.children.values().fold((0, 0), |(below, heads), child| {
            (u32::saturating_add(below, child.below), u32::saturating_add(heads, child.heads))
        })
    }

    /// All receivers in the subtree, and heads among them.
    pub(super) fn all(&self) -> (u64, u32) {
        let (below, heads) = self.below();
        (self.children.len() as u64 + u64::from(below), heads)
    }

    /// Receivers that were in the subtree at a moment already, as far as that is known.
    pub(super) fn below_since(&self, moment: Time) -> u32 {
        let before = self.children.iter().filter(|(_, child)| child.since <= moment);
        let all = before.map(|(node, child)| {
            // Those that found their way to it later are counted where they came from.
            child.below.saturating_sub(self.departures.found_by(*node)).saturating_add(1)
        });
        all.fold(0, u32::saturating_add)
    }

    /// Counts another hello for those who have not been heard for `silence`, removes those who have let
    /// more than `unanswered_max` go by, and returns both: who is to be asked, and who is gone.
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

    /// A member says nothing more. Whoever was below it is waited for a while.
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
        // No more than members: each was one.
        if self.orphans.len() >= self.members_max {
            self.orphans.remove(0);
        }
        let Child { id: head, below, found, first_missing, allowed, catches_up, .. } = child;
        let allowed = catches_up.is_none().then_some(allowed);
        let until = now + self.orphans_for;
        self.orphans.push(Orphans { head, below, found, first_missing, allowed, until });
    }
}

/// Returns the shortest standstill. A member may wait `ack_interval` with each acknowledgement, and answers hellos.
fn fruitless_for(settings: &TramSettings) -> Duration {
    let interval = settings.ack_interval.max(settings.hello_interval);
    FRUITLESS_FOR.max(interval * FRUITLESS_INTERVALS)
}

/// How a member is that takes its leave without everything.
fn went(ack: &Ack<'_>) -> Fate {
    if ack.complete { Fate::Gaps } else { Fate::Left }
}

#[cfg(test)]
mod tests;
