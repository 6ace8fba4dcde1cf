//! Who receives.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use crate::transfer::wire::{Answer, Claim, MemberMessage, Status};
use crate::transfer::{MemberState, MemberStatus};

/// Most members. Whoever comes after them is refused.
pub(super) const MEMBERS_MAX: usize = 1 << 16;

/// Most answers that wait. Receivers repeat what is not answered.
pub(super) const ANSWERS_MAX: usize = 1 << 12;

/// One receiver.
#[derive(Clone, Debug)]
struct Member {
    node: NodeId,
    reporter: NodeId,
    name: String,
    state: MemberState,
    bytes: u64,
    loss: u16,
    since: Time,
    heard: Time,
    done: Option<Time>,
    reason: String,
}

/// Whether what a node says counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It does not: nobody knows it.
    Stranger,
    /// It is served.
    Member,
    /// It is sent nothing, and what it reports does not count: it is deferred, or done.
    Unserved,
}

/// All members, and the answers that they are owed.
#[derive(Debug, Default)]
pub(super) struct Members {
    members: BTreeMap<u64, Member>,
    by_node: BTreeMap<NodeId, u64>,
    by_reporter: BTreeMap<NodeId, u64>,
    answers: VecDeque<(NodeId, Answer)>,
    /// How many are in each state, so that none need be counted.
    counts: [usize; 7],
}

impl Members {
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// How many are in one of these states.
    pub(super) fn count(&self, states: &[MemberState]) -> usize {
        states.iter().map(|state| self.counts[*state as usize]).sum()
    }

    /// How many want more and are served.
    pub(super) fn active(&self) -> usize {
        self.count(&[MemberState::Joined, MemberState::Receiving])
    }

    /// Takes what a receiver says of itself. Returns false where there is no room.
    pub(super) fn take(
        &mut self,
        now: Time,
        from: NodeId,
        message: MemberMessage,
    ) -> Result<Option<MemberState>, ()> {
        let id = message.id;
        if !self.members.contains_key(&id) {
            if message.claim == Claim::Leaving {
                self.answer(from, message.number, id, Status::Gone);
                return Ok(None);
            }
            if self.members.len() >= MEMBERS_MAX && !self.make_room() {
                self.answer(from, message.number, id, Status::Refused);
                return Err(());
            }
            self.admit(now, from, &message);
        }
        let Some(member) = self.members.get_mut(&id) else { return Ok(None) };
        if member.node != from {
            if self.by_node.get(&member.node) == Some(&id) {
                self.by_node.remove(&member.node);
            }
            member.node = from;
        }
        if member.reporter != message.reporter {
            if self.by_reporter.get(&member.reporter) == Some(&id) {
                self.by_reporter.remove(&member.reporter);
            }
            member.reporter = message.reporter;
        }
        self.by_node.insert(from, id);
        self.by_reporter.insert(message.reporter, id);
        member.heard = now;
        (member.bytes, member.loss) = (message.bytes, message.loss);
        (member.name, member.reason) = (message.name, message.reason);
        let before = member.state;
        let after = match (message.claim, before) {
            (Claim::Done, _) => MemberState::Done,
            (Claim::Failed, _) => MemberState::Failed,
            // Who has it all and goes has not failed.
            (Claim::Leaving, MemberState::Done) => MemberState::Done,
            (Claim::Leaving, _) => MemberState::Left,
            (_, MemberState::Deferred) => MemberState::Deferred,
            (Claim::Joined, _) => MemberState::Joined,
            (Claim::Receiving, _) => MemberState::Receiving,
        };
        if after == MemberState::Done {
            member.done.get_or_insert(now);
        }
        self.set(id, after);
        if message.ask || after == MemberState::Deferred {
            let status = match after {
                MemberState::Deferred => Status::Deferred,
                MemberState::Done => Status::Done,
                MemberState::Failed | MemberState::Left => Status::Gone,
                _ => Status::Welcome,
            };
            self.answer(from, message.number, id, status);
        }
        Ok((before != after).then_some(after))
    }

    fn admit(&mut self, now: Time, from: NodeId, message: &MemberMessage) {
        let member = Member {
            node: from,
            reporter: message.reporter,
            name: String::new(),
            state: MemberState::Joined,
            bytes: 0,
            loss: 0,
            since: now,
            heard: now,
            done: None,
            reason: String::new(),
        };
        self.counts[MemberState::Joined as usize] += 1;
        self.members.insert(message.id, member);
    }

    /// Forgets one who is gone.
    fn make_room(&mut self) -> bool {
        let gone = [MemberState::Left, MemberState::Lost, MemberState::Failed];
        if self.count(&gone) == 0 {
            return false;
        }
        let found = self.members.iter().find(|(_, member)| gone.contains(&member.state));
        let Some((&id, member)) = found else { return false };
        self.counts[member.state as usize] -= 1;
        let (node, reporter) = (member.node, member.reporter);
        if self.by_node.get(&node) == Some(&id) {
            self.by_node.remove(&node);
        }
        if self.by_reporter.get(&reporter) == Some(&id) {
            self.by_reporter.remove(&reporter);
        }
        self.members.remove(&id);
        true
    }

    fn set(&mut self, id: u64, state: MemberState) {
        let Some(member) = self.members.get_mut(&id) else { return };
        self.counts[member.state as usize] -= 1;
        self.counts[state as usize] += 1;
        member.state = state;
    }

    fn answer(&mut self, to: NodeId, number: u32, id: u64, status: Status) {
        if self.answers.len() < ANSWERS_MAX {
            self.answers.push_back((to, Answer { status, number, id }));
        }
    }

    /// An answer that is owed.
    pub(super) fn poll_answer(&mut self) -> Option<(NodeId, Answer)> {
        self.answers.pop_front()
    }

    /// How `node` stands, of whose report the reporter is `reporter` where it tells; and it has
    /// been heard.
    ///
    /// Elements pass NAKs on in their own name, so that there the reporter's word must do.
    pub(super) fn hear(
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
            _ => return Standing::Stranger,
        };
        let Some(member) = self.members.get_mut(id) else { return Standing::Stranger };
        match member.state {
            MemberState::Joined | MemberState::Receiving => {}
            // Who has it all need hold up nobody.
            MemberState::Done | MemberState::Deferred => {
                member.heard = now;
                return Standing::Unserved;
            }
            MemberState::Failed | MemberState::Left | MemberState::Lost => {
                return Standing::Stranger;
            }
        }
        member.heard = now;
        Standing::Member
    }

    /// Members that want something and have been silent since `before`: they are lost. Returns by
    /// what name they report.
    pub(super) fn lose_silent(&mut self, before: Time) -> Vec<NodeId> {
        let waiting = [MemberState::Joined, MemberState::Receiving, MemberState::Deferred];
        if self.count(&waiting) == 0 {
            return Vec::new();
        }
        let silent = |member: &Member| waiting.contains(&member.state) && member.heard < before;
        let found = self.members.iter().filter(|(_, member)| silent(member));
        let lost: Vec<_> = found.map(|(&id, member)| (id, member.reporter)).collect();
        lost.iter().for_each(|&(id, _)| self.set(id, MemberState::Lost));
        lost.into_iter().map(|(_, reporter)| reporter).collect()
    }

    /// Defers the one that reports as `reporter`. Returns whether there is such a one, served.
    pub(super) fn defer(&mut self, reporter: NodeId) -> bool {
        let Some(&id) = self.by_reporter.get(&reporter) else { return false };
        let Some(member) = self.members.get(&id) else { return false };
        if !matches!(member.state, MemberState::Joined | MemberState::Receiving) {
            return false;
        }
        let node = member.node;
        self.set(id, MemberState::Deferred);
        self.answer(node, 0, id, Status::Deferred);
        true
    }

    /// Serves all again who were deferred. Returns whether there were any.
    pub(super) fn recall(&mut self) -> bool {
        if self.count(&[MemberState::Deferred]) == 0 {
            return false;
        }
        let deferred = |member: &Member| member.state == MemberState::Deferred;
        let found = self.members.iter().filter(|(_, member)| deferred(member));
        let ids: Vec<_> = found.map(|(&id, member)| (id, member.node)).collect();
        for (id, node) in ids {
            self.set(id, MemberState::Receiving);
            self.answer(node, 0, id, Status::Welcome);
        }
        true
    }

    /// Time without a word after which each member that wants something is to be heard of again:
    /// so that all together send some tens of messages in a second.
    pub(super) fn status_interval(&self, give_up: Duration) -> Duration {
        let each = STATUS_SPACING * self.members.len() as u64;
        each.clamp(STATUS_MIN, STATUS_MAX).min((give_up / 4).max(STATUS_MIN))
    }

    /// The least that a member has which is neither deferred nor gone; `None` without any.
    pub(super) fn least_bytes(&self) -> Option<u64> {
        let counts = [MemberState::Joined, MemberState::Receiving, MemberState::Done];
        let served = self.members.values().filter(|member| counts.contains(&member.state));
        served.map(|member| member.bytes).min()
    }

    pub(super) fn statuses(&self) -> Vec<MemberStatus> {
        let status = |(&id, member): (&u64, &Member)| MemberStatus {
            id,
            node: member.node,
            name: member.name.clone(),
            state: member.state,
            bytes: member.bytes,
            loss: f64::from(member.loss) / 65535.0,
            since: member.since,
            heard: member.heard,
            done: member.done,
            reason: member.reason.clone(),
        };
        self.members.iter().map(status).collect()
    }
}

/// Time between two status messages of all members together, and bounds of that of one.
const STATUS_SPACING: Duration = Duration::from_millis(20);
const STATUS_MIN: Duration = Duration::from_secs(1);
const STATUS_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn message(id: u64, claim: Claim) -> MemberMessage {
        MemberMessage {
            claim,
            ask: true,
            loss: 0,
            number: 1,
            id,
            reporter: NodeId(id as u32 + 100),
            bytes: 0,
            name: "n".to_string(),
            reason: String::new(),
        }
    }

    fn at(s: u64) -> Time {
        Time::ZERO + Duration::from_secs(s)
    }

    #[test]
    fn only_who_joined_is_heard_and_only_in_its_own_name() {
        let mut members = Members::default();
        let (node, reporter) = (NodeId(1), Some(NodeId(101)));
        assert_eq!(members.hear(at(0), node, reporter, false), Standing::Stranger);
        for id in [1, 2] {
            let joined = members.take(at(0), NodeId(id as u32), message(id, Claim::Joined));
            assert_eq!(joined, Ok(None), "joined is where it begins");
        }
        for (case, from, reporter, element, want) in [
            ("itself", 1, Some(101), false, Standing::Member),
            ("without a report", 1, None, false, Standing::Member),
            ("in another's name", 1, Some(102), false, Standing::Stranger),
            ("in nobody's name", 1, Some(9), false, Standing::Stranger),
            ("a stranger in its name", 7, Some(101), false, Standing::Stranger),
            ("through an element", 7, Some(101), true, Standing::Member),
            ("a stranger", 7, None, true, Standing::Stranger),
        ] {
            let got = members.hear(at(1), NodeId(from), reporter.map(NodeId), element);
            assert_eq!(got, want, "{case}");
        }
        members.defer(NodeId(101));
        assert_eq!(members.hear(at(1), node, reporter, false), Standing::Unserved);
        assert!(members.recall());
        members.take(at(2), node, message(1, Claim::Leaving)).unwrap();
        assert_eq!(members.hear(at(2), node, reporter, false), Standing::Stranger);
    }

    #[test]
    fn who_is_silent_is_lost_and_who_is_done_may_be_silent() {
        let mut members = Members::default();
        for (id, claim) in [(1, Claim::Joined), (2, Claim::Done), (3, Claim::Receiving)] {
            members.take(at(0), NodeId(id as u32), message(id, claim)).unwrap();
        }
        members.hear(at(9), NodeId(3), None, false);
        assert_eq!(members.lose_silent(at(5)), [NodeId(101)]);
        assert_eq!(members.count(&[MemberState::Lost, MemberState::Done]), 2);
        assert_eq!(members.active(), 1);
    }

    #[test]
    fn a_flood_of_joins_is_refused_when_the_table_is_full() {
        let mut members = Members::default();
        for id in 0..MEMBERS_MAX as u64 {
            members.take(at(0), NodeId(id as u32), message(id, Claim::Joined)).unwrap();
        }
        let late = message(1 << 40, Claim::Joined);
        assert_eq!(members.take(at(0), NodeId(1 << 20), late.clone()), Err(()));
        assert_eq!((members.len(), members.answers.len()), (MEMBERS_MAX, ANSWERS_MAX));
        members.take(at(1), NodeId(5), message(5, Claim::Leaving)).unwrap();
        assert!(members.take(at(1), NodeId(1 << 20), late).is_ok(), "in the place of one who left");
        assert_eq!(members.len(), MEMBERS_MAX);
        assert_eq!(members.counts.iter().sum::<usize>(), MEMBERS_MAX);
    }
}
