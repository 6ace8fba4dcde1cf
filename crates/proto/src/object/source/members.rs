//! Receivers that a source knows: states, progress, and pending answers.

mod progress;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound;

use faircast_base::{BadInput, Bitrate, Checked, Duration, NodeId, Time};

use crate::object::wire::{Answer, Claim, LEAD_MAX, MemberMessage, Status};
use crate::object::{MemberLoad, MemberState, MemberStatus, TreePlace};

pub(crate) const MEMBERS_MAX: usize = 1 << 16;

/// Most pending answers. Receivers repeat messages without an answer.
pub(crate) const ANSWERS_MAX: usize = 1 << 12;

#[derive(Debug, Default)]
pub(crate) struct Member {
    status: MemberStatus,
    /// Number of the newest accepted message, and time of the last accepted one.
    number: u32,
    taken_at: Time,
    /// True if the member needs no further answer: its last message has been noted.
    pub(crate) is_settled: bool,
    pub(crate) is_awaited: bool,
    is_given_up: bool,
    progress: Progress,
    path: MemberPath,
}

#[derive(Debug, Default)]
struct Progress {
    manifest_bytes: u64,
    /// Time of the last report of more content.
    at: Option<Time>,
    /// Time without progress that the member could have made.
    stalled_for: Duration,
    /// True if the last report covers all packets that were sent at the report before.
    has_taken_all: bool,
    sent_packets: u64,
}

#[derive(Debug, Default)]
struct MemberPath {
    /// Time and number of consecutive messages that only single full-length packets arrive.
    whole: Option<(Time, u32)>,
    is_whole_lost: bool,
    probed_at: Option<Time>,
}

impl Member {
    fn is(&self, states: &[MemberState]) -> bool {
        states.contains(&self.status.state)
    }

    fn is_reached(&self) -> bool {
        self.is(&SERVED) && self.status.path.is_none()
    }

    /// Notes the sender of a message. Any host can repeat an old message, so only one that `proves`
    /// its sender shows that the member has moved.
    fn note_sender(&mut self, now: Time, from: NodeId, proves: bool) {
        let status = &mut self.status;
        status.heard = now;
        if proves {
            status.home = from;
        }
        if from == status.home {
            status.home_heard = now;
        }
    }

    /// Notes the reported bytes. Returns true if there is more content than before.
    fn note_progress(&mut self, now: Time, claim: Claim, bytes: u64) -> bool {
        let (status, progress) = (&mut self.status, &mut self.progress);
        if claim == Claim::Joined {
            if bytes > progress.manifest_bytes {
                progress.stalled_for = Duration::ZERO;
            }
            (progress.manifest_bytes, status.bytes) = (bytes, 0);
            return false;
        }
        let progresses = bytes > status.bytes && status.state != MemberState::Joined;
        if progresses {
            (progress.at, progress.stalled_for) = (Some(now), Duration::ZERO);
        }
        status.bytes = bytes;
        progresses
    }

    fn note_claim(&mut self, now: Time, claim: Claim, asks: bool) -> MemberState {
        let status = &mut self.status;
        let before = status.state;
        let after = match (claim, before) {
            (Claim::Done, _) => MemberState::Done,
            (Claim::Failed, _) => MemberState::Failed,
            (Claim::Leaving, MemberState::Done) => MemberState::Done,
            (Claim::Leaving, _) => MemberState::Left,
            (_, MemberState::Deferred) => MemberState::Deferred,
            (Claim::Joined, _) => MemberState::Joined,
            (Claim::Receiving, _) => MemberState::Receiving,
        };
        if before == MemberState::Joined {
            status.found = status.bytes;
        }
        if before != after {
            // The time for the manifest is no sign of content progress.
            self.progress.stalled_for = Duration::ZERO;
        }
        if after == MemberState::Done {
            status.done.get_or_insert(now);
        }
        let last = matches!(claim, Claim::Done | Claim::Failed);
        self.is_settled = claim == Claim::Leaving || last && !asks;
        after
    }
}

/// States of served members that want more, and of departed members.
const SERVED: [MemberState; 2] = [MemberState::Joined, MemberState::Receiving];
const GONE: [MemberState; 3] = [MemberState::Left, MemberState::Lost, MemberState::Failed];

const OVER: [MemberState; 3] = [MemberState::Done, MemberState::Failed, MemberState::Left];

fn answer_to(state: MemberState, given_up: bool) -> Status {
    match state {
        MemberState::Done => Status::Done,
        _ if given_up => Status::GivenUp,
        MemberState::Deferred => Status::Deferred,
        MemberState::Failed | MemberState::Left => Status::Gone,
        _ => Status::Welcome,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) manifest: u64,
    pub(crate) content: u64,
    /// True if content has begun, and waits only for members.
    pub(crate) flows: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// No member is at the node: its packets do not count.
    Unknown,
    Member,
    /// Deferred or complete member: its reports do not count.
    Unserved,
}

#[derive(Debug, Default)]
pub(crate) struct Members {
    pub(crate) all: BTreeMap<u64, Member>,
    /// Members by the node that they are at, and by their names in the scheme's reports.
    pub(crate) by_node: BTreeMap<NodeId, u64>,
    by_reporter: BTreeMap<NodeId, u64>,
    pub(crate) answers: VecDeque<(NodeId, Answer)>,
    counts: [usize; 7],
    progressed_at: Option<Time>,
    /// Number of served members without a path limit.
    reached: usize,
    has_limits: bool,
    /// True if the object is given up: every answer says so, except to complete members.
    given_up: bool,
    last_given_up_answer: Option<u64>,
    /// Symbols saved up for members without progress, and symbols sent at the last update.
    spare: (f64, u64),
}

impl Members {
    pub(crate) fn count(&self, states: &[MemberState]) -> usize {
        states.iter().map(|state| self.counts[*state as usize]).sum()
    }

    pub(crate) fn active(&self) -> usize {
        self.count(&SERVED)
    }

    /// Takes a receiver's message about itself, and returns the new state if it changed.
    /// A message from another address is [`Foreign`](BadInput::Foreign) unless the member was
    /// silent or is authenticated. Old or far-ahead numbers are answered with the newest number,
    /// which a member whose name was misused contradicts.
    pub(crate) fn take_message(
        &mut self,
        now: Time,
        from: NodeId,
        authenticated: bool,
        message: MemberMessage,
    ) -> Checked<Option<MemberState>> {
        let id = message.id;
        if !self.accept(now, (from, authenticated), &message)? {
            return Ok(None);
        }
        self.bind(now, id, from, message.reporter);
        let Some(member) = self.all.get_mut(&id) else { return Ok(None) };
        member.note_sender(now, from, authenticated || message.number != member.number);
        // A moved receiver proves the move with a new message; this answer asks for one.
        let elsewhere = from != member.status.home;
        (member.number, member.taken_at) = (message.number, now);
        if member.note_progress(now, message.claim, message.bytes) {
            self.progressed_at = Some(now);
        }
        let status = &mut member.status;
        status.loss = f64::from(message.loss) / 65535.0;
        status.name = message.name;
        status.identity = message.identity.or(status.identity);
        if member.is_given_up && matches!(message.claim, Claim::Joined | Claim::Receiving) {
            for _ in 0..STALLED_SAID {
                self.answer(from, message.number, id, Status::Stalled);
            }
            return Ok(None);
        }
        status.reason = message.reason;
        let (before, after) = (status.state, member.note_claim(now, message.claim, message.ask));
        self.set(id, after);
        let state = answer_to(after, self.given_up);
        if elsewhere {
            self.answer(from, message.number.wrapping_add(1), id, state);
        } else if message.ask || after == MemberState::Deferred {
            self.answer(from, message.number, id, state);
        }
        Ok((before != after).then_some(after))
    }

    /// Checks a message of a known member, or admits a new one. Returns false for a receiver that
    /// leaves without having joined.
    fn accept(
        &mut self,
        now: Time,
        (from, authenticated): (NodeId, bool),
        message: &MemberMessage,
    ) -> Checked<bool> {
        let id = message.id;
        if let Some(member) = self.all.get(&id) {
            if let Err(reason) = self.check(now, member, (from, authenticated), message.number) {
                if reason == BadInput::Duplicate {
                    let (number, state) = (member.number, member.status.state);
                    self.answer(from, number, id, answer_to(state, self.given_up));
                }
                return Err(reason);
            }
            return Ok(true);
        }
        if message.claim == Claim::Leaving {
            self.answer(from, message.number, id, Status::Gone);
            return Ok(false);
        }
        if self.all.len() >= MEMBERS_MAX && !self.make_room() {
            self.answer(from, message.number, id, Status::Refused);
            return Err(BadInput::TableFull);
        }
        self.admit(now, from, message);
        Ok(true)
    }

    pub(crate) fn note_reports(
        &mut self,
        id: u64,
        load: MemberLoad,
        limit: Option<Bitrate>,
        place: Option<TreePlace>,
    ) {
        if let Some(member) = self.all.get_mut(&id) {
            (member.status.load, member.status.limit) = (load, limit);
            member.status.place = place;
            self.has_limits |= limit.is_some();
        }
    }

    /// Notes that a member has taken the first `taken` of `sent` packets. A report is older than
    /// the last packets, so it is compared with the number sent before the previous report.
    pub(crate) fn note_taken(&mut self, id: u64, taken: u64, sent: u64) {
        if let Some(member) = self.all.get_mut(&id) {
            member.progress.has_taken_all = taken >= member.progress.sent_packets;
            member.progress.sent_packets = sent;
        }
    }

    pub(crate) fn is_served(&self, id: u64) -> bool {
        self.all.get(&id).is_some_and(|member| member.is(&SERVED))
    }

    pub(crate) fn least_limit(&self) -> Option<(Bitrate, NodeId)> {
        if !self.has_limits {
            return None;
        }
        let all = self.all.values().filter(|member| member.is(&SERVED));
        all.filter_map(|member| Some((member.status.limit?, member.status.reporter))).min()
    }

    fn admit(&mut self, now: Time, from: NodeId, message: &MemberMessage) {
        let status = MemberStatus::joined(message.id, from, message.reporter, now);
        let number = message.number;
        let member = Member { status, number, taken_at: now, ..Member::default() };
        self.counts[MemberState::Joined as usize] += 1;
        self.reached += 1;
        self.all.insert(message.id, member);
    }

    fn make_room(&mut self) -> bool {
        let gone = || self.all.iter().find(|(_, member)| member.is(&GONE)).map(|(&id, _)| id);
        let found = if self.count(&GONE) == 0 { None } else { gone() };
        found.map(|id| self.remove(id)).is_some()
    }

    /// Returns the member's name if another member has the same, after a restart or a move.
    pub(crate) fn shared_name(&self, id: u64) -> Option<&str> {
        let name = self.all.get(&id)?.status.name.as_str();
        let bears = |(other, member): (&u64, &Member)| *other != id && member.status.name == name;
        (!name.is_empty() && self.all.iter().any(bears)).then_some(name)
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<NodeId> {
        let member = self.all.remove(&id)?;
        self.reached -= usize::from(member.is_reached());
        let MemberStatus { node, reporter, state, .. } = member.status;
        self.counts[state as usize] -= 1;
        if self.by_node.get(&node) == Some(&id) {
            self.by_node.remove(&node);
        }
        if self.by_reporter.get(&reporter) == Some(&id) {
            self.by_reporter.remove(&reporter);
            return Some(reporter);
        }
        None
    }

    fn set(&mut self, id: u64, state: MemberState) {
        let Some(member) = self.all.get_mut(&id) else { return };
        let reached = member.is_reached();
        let before = core::mem::replace(&mut member.status.state, state);
        self.reached = self.reached + usize::from(member.is_reached()) - usize::from(reached);
        self.counts[before as usize] -= 1;
        self.counts[state as usize] += 1;
        debug_assert_eq!(self.counts.iter().sum::<usize>(), self.all.len(), "counted once");
    }

    fn answer(&mut self, to: NodeId, number: u32, id: u64, status: Status) {
        if self.answers.len() < ANSWERS_MAX {
            self.answers.push_back((to, Answer { status, number, id }));
        }
    }

    /// Marks the object as given up, and queues that answer for up to [`ANSWERS_MAX`] members.
    pub(crate) fn give_up(&mut self) {
        self.given_up = true;
        if !self.answers.is_empty() {
            return;
        }
        let after = self.last_given_up_answer.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.all.range((after, Bound::Unbounded));
        let told = self.last_given_up_answer.into_iter().flat_map(|last| self.all.range(..=last));
        let lacking = |member: &&Member| !member.is(&[MemberState::Done, MemberState::Left]);
        let members = rest.chain(told).map(|(_, member)| member).filter(lacking).take(ANSWERS_MAX);
        let answers = members.map(|Member { status, .. }| {
            (status.node, Answer { status: Status::GivenUp, number: 0, id: status.id })
        });
        self.answers = answers.collect();
        self.last_given_up_answer = self.answers.back().map(|(_, answer)| answer.id);
    }

    /// Marks incomplete members silent since `before` as lost. Returns their names in reports.
    pub(crate) fn lose_silent(&mut self, before: Time) -> Vec<NodeId> {
        let waiting = [MemberState::Joined, MemberState::Receiving, MemberState::Deferred];
        if self.count(&waiting) == 0 {
            return Vec::new();
        }
        let silent = |member: &Member| member.is(&waiting) && member.status.heard <= before;
        let found = self.all.iter().filter(|(_, member)| silent(member));
        let lost: Vec<_> = found.map(|(&id, member)| (id, member.status.reporter)).collect();
        lost.iter().for_each(|&(id, _)| self.set(id, MemberState::Lost));
        lost.into_iter().map(|(_, reporter)| reporter).collect()
    }

    pub(crate) fn defer(&mut self, reporter: NodeId) -> bool {
        let Some(&id) = self.by_reporter.get(&reporter) else { return false };
        let member = self.all.get(&id).filter(|member| member.is(&SERVED));
        let Some(node) = member.map(|member| member.status.node) else { return false };
        self.set(id, MemberState::Deferred);
        self.answer(node, 0, id, Status::Deferred);
        true
    }

    pub(crate) fn recall(&mut self) -> bool {
        if self.count(&[MemberState::Deferred]) == 0 {
            return false;
        }
        let found = self.all.iter().filter(|(_, member)| member.is(&[MemberState::Deferred]));
        let ids: Vec<_> = found.map(|(&id, member)| (id, member.status.node)).collect();
        for (id, node) in ids {
            self.set(id, MemberState::Receiving);
            self.answer(node, 0, id, Status::Welcome);
        }
        true
    }

    /// Returns the interval between status messages of a member: at most 50 a second in the group.
    pub(crate) fn status_interval(&self, give_up: Duration) -> Duration {
        let each = STATUS_SPACING * self.all.len() as u64;
        each.clamp(STATUS_MIN, STATUS_MAX).min((give_up / 4).max(STATUS_MIN))
    }

    pub(crate) fn least_bytes(&self) -> Option<u64> {
        let counts = [MemberState::Joined, MemberState::Receiving, MemberState::Done];
        let served = self.all.values().filter(|member| member.is(&counts));
        served.map(|member| member.status.bytes).min()
    }

    pub(crate) fn statuses(&self) -> Vec<MemberStatus> {
        self.all.values().map(|member| member.status.clone()).collect()
    }

    fn check(
        &self,
        now: Time,
        member: &Member,
        (from, authenticated): (NodeId, bool),
        number: u32,
    ) -> Checked {
        // Numbers wrap.
        let ahead = number.wrapping_sub(member.number).cast_signed();
        let silent = self.is_silent(now, member);
        if member.status.node == from {
            // Other packets of the member may arrive while none of its messages is accepted.
            let refused = now.since(member.taken_at) >= self.silence();
            let follows = (0..=LEAD_MAX).contains(&ahead) || authenticated && ahead >= 0;
            if follows || silent || refused { Ok(()) } else { Err(BadInput::Duplicate) }
        } else if (silent || authenticated) && ahead >= i32::from(member.is(&OVER)) {
            // A member is silent after its last message: only a new message moves it.
            Ok(())
        } else {
            Err(BadInput::Foreign)
        }
    }

    fn is_silent(&self, now: Time, member: &Member) -> bool {
        member.is(&[MemberState::Lost]) || now.since(member.status.heard) >= self.silence()
    }

    fn silence(&self) -> Duration {
        self.status_interval(Duration::MAX) * SILENT_MESSAGES
    }

    fn bind(&mut self, now: Time, id: u64, node: NodeId, reporter: NodeId) {
        let other = self.by_reporter.get(&reporter).filter(|other| **other != id);
        let taken = other
            .and_then(|other| self.all.get(other))
            .is_some_and(|other| !other.is(&GONE) && !self.is_silent(now, other));
        let Some(Member { status, .. }) = self.all.get_mut(&id) else { return };
        let (old_node, old_reporter) = (status.node, status.reporter);
        (status.node, status.reporter) = (node, reporter);
        if old_node != node && self.by_node.get(&old_node) == Some(&id) {
            self.by_node.remove(&old_node);
        }
        if old_reporter != reporter && self.by_reporter.get(&old_reporter) == Some(&id) {
            self.by_reporter.remove(&old_reporter);
        }
        self.by_node.insert(node, id);
        if !taken {
            self.by_reporter.insert(reporter, id);
        }
    }

    /// Returns the standing of `node`, or for NAKs of `reporter` alone: elements forward NAKs under
    /// their own address.
    pub(crate) fn standing_of(
        &mut self,
        now: Time,
        node: NodeId,
        reporter: Option<NodeId>,
        through_elements: bool,
    ) -> Standing {
        let by_node = self.by_node.get(&node);
        let by_reporter = reporter.map(|reporter| self.by_reporter.get(&reporter));
        let id = match (by_node, by_reporter) {
            (Some(id), None) => id,
            (Some(id), Some(Some(reported))) if id == reported || through_elements => reported,
            (None, Some(Some(id))) if through_elements => id,
            _ => return Standing::Unknown,
        };
        let Some(Member { status, .. }) = self.all.get_mut(id) else {
            return Standing::Unknown;
        };
        if node == status.home {
            status.home_heard = now;
        }
        let standing = match status.state {
            // Members that data does not reach are served when no other member wants anything.
            MemberState::Joined | MemberState::Receiving
                if status.path.is_some() && self.reached > 0 =>
            {
                Standing::Unserved
            }
            MemberState::Joined | MemberState::Receiving => Standing::Member,
            MemberState::Done | MemberState::Deferred => Standing::Unserved,
            MemberState::Failed | MemberState::Left | MemberState::Lost => {
                return Standing::Unknown;
            }
        };
        status.heard = now;
        standing
    }
}

/// Interval between two status messages of the group, and bounds for one member.
const STATUS_SPACING: Duration = Duration::from_millis(20);
const STATUS_MIN: Duration = Duration::from_secs(1);
const STATUS_MAX: Duration = Duration::from_secs(60);

/// Consecutive missing messages after which a member is silent.
const SILENT_MESSAGES: u64 = 5;

/// Copies of the message to a given-up member, since packets get lost.
const STALLED_SAID: u32 = 2;

#[cfg(test)]
mod tests;
