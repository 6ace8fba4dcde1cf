//! The receivers that a source knows: states, progress, and the answers that they are owed.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use faircast_base::{BadInput, Bitrate, Duration, NodeId, Time};

use crate::object::wire::{Answer, Claim, MemberMessage, Status};
use crate::object::{MemberLoad, MemberState, MemberStatus};

/// Most members. Whoever comes after them is refused.
pub(super) const MEMBERS_MAX: usize = 1 << 16;

/// Most answers that wait. Receivers repeat what is not answered.
pub(super) const ANSWERS_MAX: usize = 1 << 12;

/// One receiver.
#[derive(Clone, Debug)]
struct Member {
    node: NodeId,
    /// Where it joined, and when it last spoke from there.
    home: NodeId,
    home_heard: Time,
    reporter: NodeId,
    /// Of the last message that was taken.
    number: u32,
    name: String,
    state: MemberState,
    bytes: u64,
    /// What it had at its first word after it joined.
    found: u64,
    loss: u16,
    since: Time,
    heard: Time,
    done: Option<Time>,
    reason: String,
    /// It has said its last word, and heard that it was heard.
    settled: bool,
    load: MemberLoad,
    limit: Option<Bitrate>,
    /// Whether it was there when content began.
    awaited: bool,
    /// When it last had more than before; `None` where it never had.
    progressed: Option<Time>,
}

/// Whether what a node says counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It does not: nobody knows it.
    Unknown,
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
    /// Whether anybody has made progress.
    proven: bool,
    /// Whether anybody has ever asked for a rate at most.
    limited: bool,
    /// Symbols that may be repaired now for those who have made none, and how many had been sent when
    /// that was so.
    spare: (f64, u64),
}

impl Members {
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether all have said their last word and know that it was heard.
    pub(super) fn are_settled(&self) -> bool {
        self.members.values().all(|member| member.settled)
    }

    /// Whether a member is at `node`: what comes from there came through no element.
    pub(super) fn is_at(&self, node: NodeId) -> bool {
        self.by_node.contains_key(&node)
    }

    /// How many are in one of these states.
    pub(super) fn count(&self, states: &[MemberState]) -> usize {
        states.iter().map(|state| self.counts[*state as usize]).sum()
    }

    /// How many want more and are served.
    pub(super) fn active(&self) -> usize {
        self.count(&[MemberState::Joined, MemberState::Receiving])
    }

    /// Content begins: who is there is waited for.
    pub(super) fn begin(&mut self) {
        self.members.values_mut().for_each(|member| member.awaited = true);
    }

    /// Whether somebody who wants more holds the end: those who are waited for do. With `names` these
    /// are who bears one of them, without they are who was there when content began; who came later
    /// holds it while it has made progress within `patience`, since anybody can join and say that it
    /// lacks everything.
    pub(super) fn hold_the_end(
        &self,
        now: Time,
        patience: Duration,
        names: &BTreeSet<String>,
    ) -> bool {
        let active = [MemberState::Joined, MemberState::Receiving];
        let lately = |at: Time| now.since(at) < patience;
        if names.is_empty() {
            let mut members = self.members.values().filter(|member| active.contains(&member.state));
            return members
                .any(|member| member.awaited || lately(member.progressed.unwrap_or(member.since)));
        }
        // Thousands may bear one name, so each is looked at once.
        let named = |states: &[MemberState]| -> BTreeSet<&str> {
            let members = self.members.values().filter(|member| states.contains(&member.state));
            let bears = |member: &&Member| names.contains(&member.name);
            members.filter(bears).map(|member| &*member.name).collect()
        };
        !named(&active).is_subset(&named(&[MemberState::Done]))
    }

    /// Whether who speaks from `node` makes no progress where others do: thousands of such members may
    /// have been invented, so repairs for them have a share of what is sent and no more.
    pub(super) fn is_unproven(&self, node: NodeId) -> bool {
        let member = self.by_node.get(&node).and_then(|id| self.members.get(id));
        self.proven && member.is_some_and(|member| member.progressed.is_none())
    }

    /// Whether a symbol may be repaired for such a member, where so many have been sent by now.
    pub(super) fn has_spare(&mut self, sent: u64) -> bool {
        let (left, before) = self.spare;
        let left = left + sent.saturating_sub(before) as f64 * SPARE_SHARE;
        self.spare = (left.min(SPARE_MAX), sent);
        self.spare.0 >= 1.0
    }

    /// So many symbols are to be repaired for such a member.
    pub(super) fn spend_spare(&mut self, symbols: u32) {
        self.spare.0 -= f64::from(symbols);
    }

    /// Takes what a receiver says of itself. Returns its new state where that has changed.
    ///
    /// A member is where it joined: what others say in its name is [`Foreign`](BadInput::Foreign),
    /// unless it has been silent for so long that its address may have changed. What it says was
    /// said before where its number is lower than one that was taken.
    pub(super) fn take(
        &mut self,
        now: Time,
        from: NodeId,
        message: MemberMessage,
    ) -> Result<Option<MemberState>, BadInput> {
        let id = message.id;
        if let Some(member) = self.members.get(&id) {
            self.check(now, member, from, message.number)?;
        } else {
            if message.claim == Claim::Leaving {
                self.answer(from, message.number, id, Status::Gone);
                return Ok(None);
            }
            if self.members.len() >= MEMBERS_MAX && !self.make_room() {
                self.answer(from, message.number, id, Status::Refused);
                return Err(BadInput::TableFull);
            }
            self.admit(now, from, &message);
        }
        self.bind(now, id, from, message.reporter);
        let Some(member) = self.members.get_mut(&id) else { return Ok(None) };
        member.heard = now;
        if from == member.home {
            member.home_heard = now;
        }
        member.number = message.number;
        if message.bytes > member.bytes && member.state != MemberState::Joined {
            member.progressed = Some(now);
            self.proven = true;
        }
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
        if before == MemberState::Joined {
            member.found = member.bytes;
        }
        if after == MemberState::Done {
            member.done.get_or_insert(now);
        }
        // Who leaves does not wait for an answer.
        let last = matches!(message.claim, Claim::Done | Claim::Failed);
        member.settled = message.claim == Claim::Leaving || last && !message.ask;
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

    /// A member tells what keeps it busy, and the rate that it asks for at most.
    pub(super) fn note(&mut self, id: u64, load: MemberLoad, limit: Option<Bitrate>) {
        if let Some(member) = self.members.get_mut(&id) {
            (member.load, member.limit) = (load, limit);
            self.limited |= limit.is_some();
        }
    }

    /// Whether content is for it.
    pub(super) fn is_served(&self, id: u64) -> bool {
        let served = [MemberState::Joined, MemberState::Receiving];
        self.members.get(&id).is_some_and(|member| served.contains(&member.state))
    }

    /// The least rate that one who is served asks for at most, and its name in reports.
    pub(super) fn least_limit(&self) -> Option<(Bitrate, NodeId)> {
        if !self.limited {
            return None;
        }
        let served = [MemberState::Joined, MemberState::Receiving];
        let all = self.members.values().filter(|member| served.contains(&member.state));
        all.filter_map(|member| Some((member.limit?, member.reporter))).min()
    }

    /// Whether what `from` says in the name of `member` counts.
    fn check(&self, now: Time, member: &Member, from: NodeId, number: u32) -> Result<(), BadInput> {
        // Numbers wrap.
        let ahead = number.wrapping_sub(member.number).cast_signed();
        let silent = self.is_silent(now, member);
        let over = [MemberState::Done, MemberState::Failed, MemberState::Left];
        if member.node == from {
            if ahead < 0 && !silent { Err(BadInput::Duplicate) } else { Ok(()) }
        } else if silent && ahead >= i32::from(over.contains(&member.state)) {
            // Who has said its last word is silent anyhow: only a new one moves it.
            Ok(())
        } else {
            Err(BadInput::Foreign)
        }
    }

    /// Whether nothing has come from it though several messages should have.
    fn is_silent(&self, now: Time, member: &Member) -> bool {
        let several = self.status_interval(Duration::MAX) * SILENT_MESSAGES;
        member.state == MemberState::Lost || now.since(member.heard) >= several
    }

    /// Member `id` is `node`, and `reporter` in reports unless that is somebody else who is there.
    fn bind(&mut self, now: Time, id: u64, node: NodeId, reporter: NodeId) {
        let gone = [MemberState::Left, MemberState::Lost, MemberState::Failed];
        let other = self.by_reporter.get(&reporter).filter(|other| **other != id);
        let taken = other
            .and_then(|other| self.members.get(other))
            .is_some_and(|other| !gone.contains(&other.state) && !self.is_silent(now, other));
        let Some(member) = self.members.get_mut(&id) else { return };
        let (old_node, old_reporter) = (member.node, member.reporter);
        (member.node, member.reporter) = (node, reporter);
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

    fn admit(&mut self, now: Time, from: NodeId, message: &MemberMessage) {
        let member = Member {
            node: from,
            home: from,
            home_heard: now,
            reporter: message.reporter,
            number: message.number,
            name: String::new(),
            state: MemberState::Joined,
            bytes: 0,
            found: 0,
            loss: 0,
            since: now,
            heard: now,
            done: None,
            reason: String::new(),
            settled: false,
            load: MemberLoad::default(),
            limit: None,
            awaited: false,
            progressed: None,
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
        let Some((&id, _)) = found else { return false };
        self.remove(id);
        true
    }

    /// Forgets a member. Returns by what name it reports, unless another one does.
    pub(super) fn remove(&mut self, id: u64) -> Option<NodeId> {
        let Member { node, reporter, state, .. } = self.members.remove(&id)?;
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

    /// Whether answers are owed.
    pub(super) fn owes_answers(&self) -> bool {
        !self.answers.is_empty()
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
            _ => return Standing::Unknown,
        };
        let Some(member) = self.members.get_mut(id) else { return Standing::Unknown };
        if node == member.home {
            member.home_heard = now;
        }
        match member.state {
            MemberState::Joined | MemberState::Receiving => {}
            // Who has it all need hold up nobody.
            MemberState::Done | MemberState::Deferred => {
                member.heard = now;
                return Standing::Unserved;
            }
            MemberState::Failed | MemberState::Left | MemberState::Lost => {
                return Standing::Unknown;
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
            home: member.home,
            home_heard: member.home_heard,
            reporter: member.reporter,
            name: member.name.clone(),
            state: member.state,
            bytes: member.bytes,
            found: member.found,
            loss: f64::from(member.loss) / 65535.0,
            since: member.since,
            heard: member.heard,
            done: member.done,
            reason: member.reason.clone(),
            load: member.load,
            limit: member.limit,
        };
        self.members.iter().map(status).collect()
    }
}

/// Time between two status messages of all members together, and bounds of that of one.
const STATUS_SPACING: Duration = Duration::from_millis(20);
const STATUS_MIN: Duration = Duration::from_secs(1);
const STATUS_MAX: Duration = Duration::from_secs(60);

/// What members without any progress may make of all symbols, and most that is saved up for them.
const SPARE_SHARE: f64 = 0.25;
const SPARE_MAX: f64 = 1024.0;

/// A member is silent when so many messages in a row are missing.
const SILENT_MESSAGES: u64 = 5;

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
        assert_eq!(members.hear(at(0), node, reporter, false), Standing::Unknown);
        for id in [1, 2] {
            let joined = members.take(at(0), NodeId(id as u32), message(id, Claim::Joined));
            assert_eq!(joined, Ok(None), "joined is where it begins");
        }
        for (case, from, reporter, element, want) in [
            ("itself", 1, Some(101), false, Standing::Member),
            ("without a report", 1, None, false, Standing::Member),
            ("in another's name", 1, Some(102), false, Standing::Unknown),
            ("in nobody's name", 1, Some(9), false, Standing::Unknown),
            ("a stranger in its name", 7, Some(101), false, Standing::Unknown),
            ("through an element", 7, Some(101), true, Standing::Member),
            ("a stranger", 7, None, true, Standing::Unknown),
        ] {
            let got = members.hear(at(1), NodeId(from), reporter.map(NodeId), element);
            assert_eq!(got, want, "{case}");
        }
        members.defer(NodeId(101));
        assert_eq!(members.hear(at(1), node, reporter, false), Standing::Unserved);
        assert!(members.recall());
        members.take(at(2), node, message(1, Claim::Leaving)).unwrap();
        assert_eq!(members.hear(at(2), node, reporter, false), Standing::Unknown);
    }

    #[test]
    fn a_member_is_where_it_joined_until_it_is_silent() {
        let numbered = |claim, number| MemberMessage { number, ..message(1, claim) };
        let (home, other) = (NodeId(1), NodeId(7));
        let foreign = Err(BadInput::Foreign);
        for (case, last, said, from, after_s, want) in [
            ("repeated", Claim::Receiving, numbered(Claim::Receiving, 2), home, 1, Ok(())),
            ("replayed", Claim::Receiving, numbered(Claim::Receiving, 2), other, 1, foreign),
            ("replayed bye", Claim::Receiving, numbered(Claim::Leaving, 3), other, 1, foreign),
            ("forged end", Claim::Receiving, numbered(Claim::Done, 3), other, 4, foreign),
            ("moved", Claim::Receiving, numbered(Claim::Receiving, 2), other, 5, Ok(())),
            ("old, moved", Claim::Receiving, numbered(Claim::Joined, 1), other, 5, foreign),
            ("old", Claim::Done, numbered(Claim::Joined, 1), home, 1, Err(BadInput::Duplicate)),
            ("done, replayed", Claim::Done, numbered(Claim::Done, 2), other, 50, foreign),
            ("done, moved, new", Claim::Done, numbered(Claim::Joined, 3), other, 50, Ok(())),
        ] {
            let mut members = Members::default();
            members.take(at(0), home, numbered(last, 2)).unwrap();
            let taken = members.take(at(after_s), from, said);
            assert_eq!(taken.map(|_| ()), want, "{case}");
            let node = members.statuses()[0].node;
            assert_eq!(node, if want.is_ok() { from } else { home }, "{case}");
            let MemberStatus { home: joined_at, home_heard, .. } = members.statuses()[0].clone();
            let spoke = want.is_ok() && from == home;
            let heard = at(if spoke { after_s } else { 0 });
            assert_eq!((joined_at, home_heard), (home, heard), "{case}");
        }
    }

    #[test]
    fn nobody_takes_the_name_of_another_in_reports() {
        let mut members = Members::default();
        let mut claims = |id, s| {
            let thief = MemberMessage { reporter: NodeId(101), ..message(id, Claim::Joined) };
            members.take(at(s), NodeId(id as u32), thief).unwrap();
            members.hear(at(s), NodeId(1), Some(NodeId(101)), false)
        };
        assert_eq!(claims(1, 0), Standing::Member);
        assert_eq!(claims(2, 1), Standing::Member);
        // Who was started again in its place has it once the first is silent.
        assert_eq!(members.remove(1), Some(NodeId(101)));
        assert_eq!((members.len(), members.counts.iter().sum::<usize>()), (1, 1));
        let again = MemberMessage { reporter: NodeId(101), ..message(2, Claim::Joined) };
        members.take(at(2), NodeId(2), again).unwrap();
        let standing = members.hear(at(2), NodeId(2), Some(NodeId(101)), false);
        assert_eq!(standing, Standing::Member);
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
    fn who_came_later_holds_the_end_while_it_gets_on_and_with_names_nobody_else_does() {
        let patience = Duration::from_secs(30);
        let mut members = Members::default();
        let say = |members: &mut Members, s: u64, id: u64, bytes: u64| {
            let name = if id == 1 { "one" } else { "other" }.to_string();
            let said = MemberMessage { bytes, name, ..message(id, Claim::Receiving) };
            members.take(at(s), NodeId(id as u32), said).unwrap();
        };
        say(&mut members, 0, 1, 0);
        members.begin();
        let (named, nobody) = (BTreeSet::from(["one".to_string()]), BTreeSet::new());
        assert!(members.hold_the_end(at(500), patience, &nobody), "it was there");
        assert!(members.hold_the_end(at(500), patience, &named));
        members.take(at(1), NodeId(1), message(1, Claim::Done)).unwrap();
        for s in 1..100 {
            say(&mut members, s, 2, 0);
            assert_eq!(members.hold_the_end(at(s), patience, &nobody), s < 31, "{s}");
            assert!(!members.hold_the_end(at(s), patience, &named));
        }
        say(&mut members, 100, 2, 70);
        assert!(members.hold_the_end(at(129), patience, &nobody));
        assert!(!members.hold_the_end(at(130), patience, &nobody));
    }

    /// Were each looked up among all others, this would take a hundred times as long as all other tests
    /// of this file.
    #[test]
    fn all_may_bear_one_name_of_which_one_is_done() {
        let mut members = Members::default();
        let last = MEMBERS_MAX as u64 - 1;
        for id in 0..=last {
            let claim = if id == last { Claim::Done } else { Claim::Receiving };
            let said = MemberMessage { name: "one".to_string(), ..message(id, claim) };
            members.take(at(0), NodeId(id as u32), said).unwrap();
        }
        let [one, both] = [&["one"][..], &["one", "two"]]
            .map(|names| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>());
        for _ in 0..10 {
            assert!(!members.hold_the_end(at(1), Duration::from_secs(30), &one));
            assert!(!members.hold_the_end(at(1), Duration::from_secs(30), &both));
        }
    }

    #[test]
    fn members_that_were_invented_get_a_share_of_what_is_sent() {
        let mut members = Members::default();
        for id in 0..10_000 {
            members.take(at(0), NodeId(id as u32), message(id, Claim::Receiving)).unwrap();
        }
        assert!(!members.is_unproven(NodeId(7)), "nobody has got on yet");
        let got = MemberMessage { bytes: 1000, ..message(7, Claim::Receiving) };
        members.take(at(1), NodeId(7), got).unwrap();
        assert!(!members.is_unproven(NodeId(7)) && members.is_unproven(NodeId(8)));
        // They ask for a block each time, and are sent what they get.
        let mut sent = 10_000;
        let mut repaired = |members: &mut Members, more: u64| {
            sent += more;
            let blocks = (0..1000).take_while(|_| {
                let may = members.has_spare(sent);
                if may {
                    members.spend_spare(64);
                }
                may
            });
            64 * blocks.count()
        };
        assert_eq!(repaired(&mut members, 0), SPARE_MAX as usize);
        assert_eq!(repaired(&mut members, 0), 0);
        let later: usize = (0..100).map(|_| repaired(&mut members, 1000)).sum();
        assert!(later.abs_diff(25_000) <= 64, "{later}");
    }

    #[test]
    fn a_flood_of_joins_is_refused_when_the_table_is_full() {
        let mut members = Members::default();
        for id in 0..MEMBERS_MAX as u64 {
            members.take(at(0), NodeId(id as u32), message(id, Claim::Joined)).unwrap();
        }
        let late = message(1 << 40, Claim::Joined);
        assert_eq!(members.take(at(0), NodeId(1 << 20), late.clone()), Err(BadInput::TableFull));
        assert_eq!((members.len(), members.answers.len()), (MEMBERS_MAX, ANSWERS_MAX));
        members.take(at(1), NodeId(5), message(5, Claim::Leaving)).unwrap();
        assert!(members.take(at(1), NodeId(1 << 20), late).is_ok(), "in the place of one who left");
        assert_eq!(members.len(), MEMBERS_MAX);
        assert_eq!(members.counts.iter().sum::<usize>(), MEMBERS_MAX);
    }
}
