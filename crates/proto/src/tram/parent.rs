//! A receiver's way to a head: candidates, solicitation in expanding rings, binding, a better head, and
//! the loss of the one that it has.

use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use super::settings::{Formation, LateJoin, TramSettings};
use super::wire::{Advertisement, HeadState};
use crate::timers::{Reason, Timers};

/// Most heads that are remembered.
const CANDIDATES_MAX: usize = 10;

/// A candidate that is silent for so long is forgotten before others.
const CANDIDATE_SILENCE: Duration = Duration::from_secs(10);

/// How many intervals of advertisements are listened to before a head is chosen, and the longest that such
/// an interval is taken to be (src: jrms).
const ROUNDS: u32 = 3;
const ROUND_MAX: Duration = Duration::from_secs(20);

/// How often a head that was given is asked, with an interval of solicitations between, until others are.
const GIVEN_TRIES: u32 = 60;

/// How long a head is shunned that did not do what it promised, and how many such are remembered.
const SHUNNED_FOR: Duration = Duration::from_secs(60);
const SHUNNED_MAX: usize = 16;

/// A head that could be this receiver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) node: NodeId,
    /// Its random number.
    id: u64,
    /// The least time to live with which it was heard.
    pub(super) distance: u8,
    /// Heads between it and the source, whose own level is 1.
    pub(super) level: u8,
    /// The first packet that it can repair.
    low: u64,
    heard_at: Time,
}

/// The head that repairs for this receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) node: NodeId,
    pub(super) distance: u8,
    pub(super) level: u8,
    /// The round trip to it, as long as it took to be taken.
    pub(super) round_trip: Duration,
    /// When anything came from it.
    heard_at: Time,
    /// Intervals of hellos in which nothing came.
    missed: u32,
}

/// What it does to get a head, or another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    /// Nothing: it has one, or has heard nothing of the session.
    Idle,
    /// It listens for advertisements, or asks for them.
    Seeking { rounds: u32 },
    /// It has asked this head to take it, so many times.
    Binding { head: Candidate, since: Time, tries: u32 },
}

/// What is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A solicitation to all heads within this time to live.
    Solicit { ttl: u8 },
    /// A request to this head.
    Bind { to: NodeId, distance: u8 },
    /// An acknowledgement that says that no hello came.
    AskHello,
}

/// What has become of the binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    Nothing,
    /// It has a head; `before` is the one that it had until now, where that is still there.
    Joined {
        before: Option<NodeId>,
    },
    /// It had a head, and has none any more.
    Lost,
}

/// What a receiver is while it looks for a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seeker {
    /// Heads that take only heads take it.
    pub(super) may_be_head: bool,
    /// Its own level, where it has members: its head's must be less, so that no loop can be made.
    pub(super) below: Option<u8>,
    /// The first packet that it wants, which not every head may have.
    pub(super) wants: u64,
    /// Its own level and number: it leaves its head only for one that has less, so that no two that move at once
    /// can become each other's heads.
    pub(super) place: (u8, u64),
}

/// Why it wants to be called.
#[derive(Clone, Copy, Debug)]
enum Timer {
    /// A round of listening, asking or binding is over.
    Round,
    /// Its head has been silent for another interval.
    Silence,
}

impl Reason for Timer {
    const ALL: &'static [Self] = &[Self::Round, Self::Silence];

    fn number(self) -> usize {
        self as usize
    }
}

/// A receiver's search for a head, and its watch over the one that it has.
#[derive(Debug)]
pub(super) struct Parent {
    begun: bool,
    /// The head that it was given, and how often that is still asked.
    given: Option<(NodeId, u32)>,
    bound: Option<Bound>,
    search: Search,
    /// It has a good head, and looks for a better one.
    may_stay: bool,
    candidates: Vec<Candidate>,
    /// The source, full or not: it takes those who need what only it has. Whether it was asked in this search.
    root: Option<Candidate>,
    root_asked: bool,
    /// Whether it waits for the source rather than take a head that lacks something.
    wants_all: bool,
    shunned: Vec<(NodeId, Time)>,
    /// Of the next solicitation.
    ring: u8,
    ring_max: u8,
    ring_step: u8,
    /// Whether heads advertise at all without being asked.
    listens: bool,
    /// Between advertisements; `None` where heads advertise only when they are asked.
    advertise_interval: Option<Duration>,
    solicit_interval: Duration,
    bind_timeout: Duration,
    bind_tries: u32,
    silence: Duration,
    hellos_missed_max: u32,
    timers: Timers<Timer, 2>,
    due: Option<Step>,
}

impl Parent {
    /// One that looks for a head, beginning with `given` where that is a node.
    pub(super) fn new(settings: &TramSettings, given: Option<NodeId>) -> Self {
        let ttl = |hops: u32| u8::try_from(hops.max(1)).unwrap_or(u8::MAX);
        Self {
            begun: false,
            given: given.map(|node| (node, GIVEN_TRIES)),
            bound: None,
            search: Search::Idle,
            may_stay: false,
            candidates: Vec::new(),
            root: None,
            root_asked: false,
            wants_all: settings.late_join == LateJoin::Full,
            shunned: Vec::new(),
            ring: ttl(settings.solicit_step),
            ring_max: ttl(settings.ttl),
            ring_step: ttl(settings.solicit_step),
            listens: settings.formation != Formation::Solicit,
            advertise_interval: None,
            solicit_interval: settings.solicit_interval,
            bind_timeout: settings.bind_timeout,
            bind_tries: settings.bind_tries,
            silence: settings.hello_interval * 2,
            hellos_missed_max: settings.hellos_missed_max,
            timers: Timers::new(),
            due: None,
        }
    }

    /// The head that it has.
    pub(super) fn bound(&self) -> Option<Bound> {
        self.bound
    }

    /// Whether a head has been asked to take it.
    pub(super) fn is_binding(&self) -> bool {
        matches!(self.search, Search::Binding { .. })
    }

    /// Whether this node is its head, or has been asked to become it.
    pub(super) fn concerns(&self, node: NodeId) -> bool {
        let asked = matches!(self.search, Search::Binding { head, .. } if head.node == node);
        asked || self.bound.is_some_and(|bound| bound.node == node)
    }

    /// The session has been heard of: the source says how often heads advertise, zero for when they are
    /// asked. The search begins where it has not.
    pub(super) fn on_session(&mut self, now: Time, advertise_interval: Duration) {
        self.advertise_interval = (advertise_interval > Duration::ZERO && self.listens)
            .then(|| advertise_interval.min(ROUND_MAX));
        if !core::mem::replace(&mut self.begun, true) && !self.ask_given(now) {
            self.seek(now);
        }
    }

    /// It looks for a head, or for another one.
    pub(super) fn seek(&mut self, now: Time) {
        self.search = Search::Seeking { rounds: 0 };
        self.may_stay = false;
        self.root_asked = false;
        self.ring = self.ring_step;
        if self.given.is_some() {
            // It may have no head itself yet, and then refuses.
            self.timers.arm(Timer::Round, now + self.solicit_interval);
            return;
        }
        self.begin_round(now);
    }

    /// Asks the head that it was given; `false` where there is none any more.
    fn ask_given(&mut self, now: Time) -> bool {
        let Some((node, tries)) = &mut self.given else { return false };
        let (node, left) = (*node, tries.saturating_sub(1));
        *tries = left;
        if left == 0 {
            self.given = None;
        }
        let (distance, heard_at) = (self.ring_max, now);
        let head = Candidate { node, id: 0, distance, level: 1, low: 0, heard_at };
        // Asked once each time: it is asked again anyway.
        self.search = Search::Binding { head, since: now, tries: self.bind_tries };
        self.due = Some(Step::Bind { to: node, distance });
        self.timers.arm(Timer::Round, now + self.bind_timeout);
        true
    }

    /// It wants no head any more.
    pub(super) fn stop(&mut self) {
        (self.bound, self.search, self.due) = (None, Search::Idle, None);
        self.timers.disarm_all();
    }

    fn begin_round(&mut self, now: Time) {
        let rounds = if let Search::Seeking { rounds } = self.search { rounds } else { 0 };
        let listens = self.advertise_interval.filter(|_| rounds < ROUNDS);
        if listens.is_none() {
            self.due = Some(Step::Solicit { ttl: self.ring });
            self.ring = self.ring.saturating_add(self.ring_step).min(self.ring_max);
        }
        self.timers.arm(Timer::Round, now + listens.unwrap_or(self.solicit_interval));
    }

    /// A head advertises itself, `ttl` being what its packet was sent with.
    pub(super) fn on_advertisement(
        &mut self,
        now: Time,
        (node, id, ttl): (NodeId, u64, u8),
        advertisement: &Advertisement,
        seeker: Seeker,
    ) {
        let takes = match advertisement.state {
            HeadState::Accepting => true,
            HeadState::AcceptingHeads => seeker.may_be_head,
            HeadState::NotAccepting | HeadState::Resigning => false,
        };
        let Advertisement { level, low, .. } = *advertisement;
        if level == 1 {
            self.root = Some(Candidate { node, id, distance: ttl, level, low, heard_at: now });
        }
        self.shunned.retain(|(_, until)| *until > now);
        let shunned = self.shunned.iter().any(|(shunned, _)| *shunned == node);
        if !takes || shunned || level == 0 || seeker.below.is_some_and(|own| level >= own) {
            self.candidates.retain(|candidate| candidate.node != node);
            return;
        }
        if let Some(known) = self.candidates.iter_mut().find(|known| known.node == node) {
            // How far it is can only be found to be less: a ring that grows is heard again and again.
            let distance = known.distance.min(ttl);
            *known = Candidate { node, id, distance, level, low, heard_at: now };
        } else {
            self.remember(
                now,
                Candidate { node, id, distance: ttl, level, low, heard_at: now },
                seeker,
            );
        }
        self.consider_better(now, seeker);
    }

    fn remember(&mut self, now: Time, fresh: Candidate, seeker: Seeker) {
        if self.candidates.len() < CANDIDATES_MAX {
            self.candidates.push(fresh);
            return;
        }
        let candidates = &self.candidates;
        let stale = candidates.iter().position(|it| now.since(it.heard_at) > CANDIDATE_SILENCE);
        let worst = (0..candidates.len()).max_by_key(|&i| rank(&candidates[i], seeker));
        let worse = worst.filter(|&i| rank(&fresh, seeker) < rank(&candidates[i], seeker));
        if let Some(place) = stale.or(worse) {
            self.candidates[place] = fresh;
        }
    }

    /// One that is nearer than the head that it has, and has all that is wanted, is asked after the next interval:
    /// others may be nearer still.
    fn consider_better(&mut self, now: Time, seeker: Seeker) {
        let waits = self.search == Search::Idle && self.given.is_none();
        let Some(interval) = self.advertise_interval.filter(|_| waits) else {
            return;
        };
        if self.bound.is_some() && self.candidates.iter().any(|it| self.is_better(it, seeker)) {
            self.search = Search::Seeking { rounds: ROUNDS - 1 };
            self.may_stay = true;
            self.timers.arm(Timer::Round, now + interval);
        }
    }

    /// Whether a candidate is better than the head that it has. Levels and numbers go down from head to head of
    /// those who move at once, so that they make no loop.
    fn is_better(&self, it: &Candidate, seeker: Seeker) -> bool {
        self.bound.is_some_and(|bound| {
            it.node != bound.node
                && it.distance < bound.distance
                && it.low <= seeker.wants
                && (it.level, it.id) < seeker.place
                && (seeker.below.is_none() || it.level < bound.level)
        })
    }

    /// Takes the best candidate; `false` where there is none.
    fn choose(&mut self, now: Time, seeker: Seeker) -> bool {
        let own = self.bound.map(|bound| bound.node);
        let others = (0..self.candidates.len()).filter(|&i| {
            let it = &self.candidates[i];
            let above = seeker.below.is_none_or(|own| it.level < own);
            above && Some(it.node) != own && (!self.may_stay || self.is_better(it, seeker))
        });
        let best = others.min_by_key(|&i| rank(&self.candidates[i], seeker));
        let Some(best) = best else { return false };
        let lacks = |head: &Candidate| head.low > seeker.wants.max(1);
        if lacks(&self.candidates[best]) && self.root.is_none() && self.ring < self.ring_max {
            // Further away there may be one that has it: the source.
            return false;
        }
        let root = self.root.filter(|root| {
            lacks(&self.candidates[best])
                && !lacks(root)
                && !self.root_asked
                && Some(root.node) != own
        });
        let Candidate { node, low, .. } = self.candidates[best];
        if root.is_none() && self.lacks(node, low, seeker) {
            // The source has all, and no room: there is some when others have caught up.
            return false;
        }
        self.root_asked |= root.is_some();
        // One that does not answer is not chosen again before it is heard again.
        let head = root.unwrap_or_else(|| self.candidates.remove(best));
        self.search = Search::Binding { head, since: now, tries: 0 };
        self.bind(now);
        true
    }

    /// Whether a head that repairs from `start` on lacks what the source has, and there is reason to wait for that.
    pub(super) fn lacks(&self, head: NodeId, start: u64, seeker: Seeker) -> bool {
        let wants = seeker.wants.max(1);
        let root = self.root.filter(|root| root.node != head && root.low <= wants);
        self.wants_all && start > wants && root.is_some()
    }

    fn choose_or_seek(&mut self, now: Time, seeker: Seeker) {
        if self.given.is_some() || !self.choose(now, seeker) {
            self.seek(now);
        }
    }

    fn bind(&mut self, now: Time) {
        if let Search::Binding { head, tries, .. } = &mut self.search {
            *tries += 1;
            self.due = Some(Step::Bind { to: head.node, distance: head.distance });
            self.timers.arm(Timer::Round, now + self.bind_timeout);
        }
    }

    /// A head says that it takes this receiver.
    pub(super) fn on_accept(&mut self, now: Time, from: NodeId, level: u8) -> News {
        match self.search {
            Search::Binding { head, since, .. } if head.node == from => {
                let (distance, round_trip) = (head.distance, now.since(since));
                let (heard_at, missed) = (now, 0);
                let bound = Bound { node: from, distance, level, round_trip, heard_at, missed };
                let before = self.bound.replace(bound).map(|before| before.node);
                (self.search, self.due) = (Search::Idle, None);
                self.timers.disarm(Timer::Round);
                self.timers.arm(Timer::Silence, now + self.silence);
                News::Joined { before }
            }
            _ => News::Nothing,
        }
    }

    /// A head says that it does not take this receiver, or that it is no longer its member.
    pub(super) fn on_reject(&mut self, now: Time, from: NodeId, seeker: Seeker) -> News {
        match (self.search, self.bound) {
            (Search::Binding { head, .. }, _) if head.node == from => {
                self.choose_or_stay(now, seeker);
                News::Nothing
            }
            (search, Some(bound)) if bound.node == from => {
                (self.bound, self.given) = (None, None);
                self.may_stay = false;
                self.timers.disarm(Timer::Silence);
                if search == Search::Idle {
                    self.choose_or_seek(now, seeker);
                }
                News::Lost
            }
            _ => News::Nothing,
        }
    }

    /// The search has failed with one: it goes on, unless there is a good head already.
    fn choose_or_stay(&mut self, now: Time, seeker: Seeker) {
        if self.bound.is_some() && self.may_stay {
            self.search = Search::Idle;
        } else {
            self.choose_or_seek(now, seeker);
        }
    }

    /// Its head does not want to be one any more, or does not do what one does: another is looked for. `shun`
    /// says that it is not to be asked again for a while.
    pub(super) fn on_bad_head(&mut self, now: Time, seeker: Seeker, shun: bool) -> News {
        let Some(bound) = self.bound else { return News::Nothing };
        (self.may_stay, self.given) = (false, None);
        self.candidates.retain(|candidate| candidate.node != bound.node);
        if shun {
            if self.shunned.len() >= SHUNNED_MAX {
                self.shunned.remove(0);
            }
            self.shunned.push((bound.node, now + SHUNNED_FOR));
            self.bound = None;
            self.timers.disarm(Timer::Silence);
        }
        if self.search == Search::Idle {
            self.choose_or_seek(now, seeker);
        }
        if shun { News::Lost } else { News::Nothing }
    }

    /// Anything came from a node; of a head perhaps at another level than before.
    pub(super) fn on_heard(&mut self, now: Time, from: NodeId, level: Option<u8>) {
        if let Some(bound) = self.bound.as_mut().filter(|bound| bound.node == from) {
            (bound.heard_at, bound.missed) = (now, 0);
            // A head that has none itself for a while has no level: what is below it stays below.
            bound.level = level.filter(|level| *level > 0).unwrap_or(bound.level);
        }
    }

    pub(super) fn on_timeout(&mut self, now: Time, seeker: Seeker) -> News {
        let mut news = News::Nothing;
        if self.timers.take_due(Timer::Silence, now)
            && let Some(bound) = &mut self.bound
        {
            let due = bound.heard_at + self.silence;
            if due > now {
                self.timers.arm(Timer::Silence, due);
            } else if bound.missed >= self.hellos_missed_max {
                news = News::Lost;
                self.given = None;
                let lost = bound.node;
                self.candidates.retain(|candidate| candidate.node != lost);
                (self.bound, self.may_stay) = (None, false);
                if self.search == Search::Idle {
                    self.choose_or_seek(now, seeker);
                }
            } else {
                bound.missed += 1;
                self.due = Some(Step::AskHello);
                self.timers.arm(Timer::Silence, now + self.silence / 2);
            }
        }
        if self.timers.take_due(Timer::Round, now) {
            match &mut self.search {
                Search::Seeking { .. } if self.given.is_some() => {
                    self.ask_given(now);
                }
                Search::Seeking { rounds } => {
                    *rounds += 1;
                    let listened = self.advertise_interval.is_none() || *rounds >= ROUNDS;
                    if !listened || !self.choose(now, seeker) {
                        if self.may_stay && self.bound.is_some() {
                            self.search = Search::Idle;
                        } else {
                            self.begin_round(now);
                        }
                    }
                }
                Search::Binding { tries, .. } if *tries < self.bind_tries => self.bind(now),
                Search::Binding { .. } => self.choose_or_stay(now, seeker),
                Search::Idle => {}
            }
        }
        news
    }

    /// The next thing to send.
    pub(super) fn poll(&mut self) -> Option<Step> {
        self.due.take()
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.timers.next()
    }
}

/// The best has the least: one that has all that is wanted, then the nearest; but whoever has members goes
/// by levels first, so that no two nodes can become each other's heads.
fn rank(candidate: &Candidate, seeker: Seeker) -> (bool, u8, u8) {
    let Candidate { distance, level, low, .. } = *candidate;
    let lacks = low > seeker.wants.max(1);
    if seeker.below.is_some() { (lacks, level, distance) } else { (lacks, distance, level) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tram::settings::HeadRole;
    use crate::world::{at, ms};

    fn advertisement(state: HeadState, level: u8) -> Advertisement {
        let (members, members_max, low) = (0, 5, 1);
        Advertisement { state, role: HeadRole::Eager, level, members, members_max, low }
    }

    fn heard(parent: &mut Parent, now: u64, node: u32, ttl: u8, level: u8) {
        let advertisement = advertisement(HeadState::Accepting, level);
        parent.on_advertisement(at(now), (NodeId(node), node.into(), ttl), &advertisement, HEAD);
    }

    /// Whoever may be a head and has no members.
    const HEAD: Seeker = Seeker { may_be_head: true, below: None, wants: 1, place: (2, 60) };

    fn parent() -> Parent {
        Parent::new(&TramSettings::default(), None)
    }

    #[test]
    fn after_three_rounds_the_nearest_head_is_asked() {
        let mut parent = parent();
        parent.on_session(at(0), ms(2000));
        for (now, node, ttl, level) in
            [(10, 1, 4, 1), (20, 2, 2, 3), (30, 3, 2, 2), (40, 4, 2, 2), (50, 1, 6, 1)]
        {
            heard(&mut parent, now, node, ttl, level);
        }
        for now in [2000, 4000] {
            assert_eq!(parent.next_timeout(), Some(at(now)));
            parent.on_timeout(at(now), HEAD);
            assert_eq!(parent.poll(), None);
        }
        parent.on_timeout(at(6000), HEAD);
        assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(3), distance: 2 }));
        assert_eq!(parent.on_accept(at(6001), NodeId(2), 3), News::Nothing, "it was not asked");
        assert_eq!(parent.on_accept(at(6001), NodeId(3), 2), News::Joined { before: None });
        assert_eq!(parent.bound().map(|bound| (bound.node, bound.level)), Some((NodeId(3), 2)));
    }

    #[test]
    fn whoever_has_members_goes_by_levels_and_to_nobody_below_it() {
        let mut parent = parent();
        parent.on_session(at(0), ms(1000));
        let busy = Seeker { below: Some(4), ..HEAD };
        for (node, ttl, level) in [(1, 9, 1), (2, 1, 3), (3, 1, 4)] {
            let heard = advertisement(HeadState::Accepting, level);
            parent.on_advertisement(at(1), (NodeId(node), 1, ttl), &heard, busy);
        }
        for now in [1000, 2000, 3000] {
            parent.on_timeout(at(now), busy);
        }
        assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(1), distance: 9 }));
        assert!(parent.candidates.iter().all(|candidate| candidate.node != NodeId(3)));
    }

    #[test]
    fn where_nobody_advertises_rings_grow_until_somebody_answers() {
        let mut parent = parent();
        parent.on_session(at(0), Duration::ZERO);
        let mut rings = std::vec::Vec::new();
        for _ in 0..4 {
            let Some(Step::Solicit { ttl }) = parent.poll() else { panic!("{parent:?}") };
            rings.push(ttl);
            let now = parent.next_timeout().unwrap();
            parent.on_timeout(now, HEAD);
        }
        assert!(rings.is_sorted() && rings[0] < rings[3], "{rings:?}");
        parent.poll();
        heard(&mut parent, 2001, 8, 3, 2);
        let now = parent.next_timeout().unwrap();
        parent.on_timeout(now, HEAD);
        assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(8), distance: 3 }));
    }

    #[test]
    fn a_head_that_does_not_answer_or_refuses_is_left_for_the_next() {
        let mut parent = parent();
        parent.on_session(at(0), Duration::ZERO);
        parent.poll();
        for node in [1, 2, 3] {
            heard(&mut parent, 1, node, node as u8, 1);
        }
        let mut asked = std::vec::Vec::new();
        for _ in 0..TramSettings::default().bind_tries {
            let now = parent.next_timeout().unwrap();
            parent.on_timeout(now, HEAD);
            asked.push(parent.poll());
        }
        assert!(asked.iter().all(|step| *step == Some(Step::Bind { to: NodeId(1), distance: 1 })));
        let now = parent.next_timeout().unwrap();
        parent.on_timeout(now, HEAD);
        assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(2), distance: 2 }));
        assert_eq!(parent.on_reject(now, NodeId(2), HEAD), News::Nothing);
        assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(3), distance: 3 }));
        assert_eq!(parent.on_reject(now, NodeId(3), HEAD), News::Nothing);
        assert!(matches!(parent.poll(), Some(Step::Solicit { .. })), "nobody is left");
    }

    #[test]
    fn a_head_that_falls_silent_is_asked_and_then_given_up() {
        let mut parent = parent();
        parent.on_session(at(0), Duration::ZERO);
        heard(&mut parent, 1, 1, 1, 1);
        let now = parent.next_timeout().unwrap();
        parent.on_timeout(now, HEAD);
        parent.on_accept(now, NodeId(1), 1);
        parent.on_heard(at(5000), NodeId(1), None);
        heard(&mut parent, 5001, 2, 1, 1);
        let mut asked = 0;
        let lost_at = loop {
            let now = parent.next_timeout().unwrap();
            match parent.on_timeout(now, HEAD) {
                News::Lost => break now,
                _ => asked += u32::from(parent.poll() == Some(Step::AskHello)),
            }
        };
        let settings = TramSettings::default();
        assert_eq!(parent.bound(), None);
        assert_eq!(asked, settings.hellos_missed_max);
        let silence = settings.hello_interval * u64::from(2 + settings.hellos_missed_max);
        assert!(lost_at.since(at(5000)) >= silence, "{lost_at:?}");
        assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(2), distance: 1 }));
    }
    #[test]
    fn a_nearer_head_is_joined_before_the_other_is_left() {
        let mut parent = parent();
        parent.on_session(at(0), ms(1000));
        heard(&mut parent, 1, 1, 6, 1);
        while parent.bound().is_none() {
            let now = parent.next_timeout().unwrap();
            parent.on_timeout(now, HEAD);
            if matches!(parent.poll(), Some(Step::Bind { .. })) {
                parent.on_accept(now, NodeId(1), 1);
            }
        }
        // As far is not nearer, and one that lacks what is wanted does not help.
        heard(&mut parent, 4000, 2, 6, 2);
        let late = Advertisement { low: 50, ..advertisement(HeadState::Accepting, 2) };
        parent.on_advertisement(at(4000), (NodeId(3), 3, 2), &late, HEAD);
        // Nor does one that might do the same in the other direction.
        heard(&mut parent, 4000, 70, 2, 2);
        assert_eq!(parent.search, Search::Idle);
        heard(&mut parent, 4001, 4, 4, 2);
        heard(&mut parent, 4500, 5, 3, 2);
        parent.candidates.retain(|it| ![NodeId(3), NodeId(70)].contains(&it.node));
        let now = parent.timers.next().unwrap();
        parent.on_timeout(at(5001), HEAD);
        assert!(now <= at(5001));
        assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(5), distance: 3 }));
        assert_eq!(parent.bound().map(|bound| bound.node), Some(NodeId(1)), "until then it stays");
        let joined = parent.on_accept(at(5010), NodeId(5), 2);
        assert_eq!(joined, News::Joined { before: Some(NodeId(1)) });
    }

    #[test]
    fn a_head_that_was_given_is_asked_first_and_kept_until_it_is_lost() {
        let mut parent = Parent::new(&TramSettings::default(), Some(NodeId(5)));
        parent.on_session(at(0), ms(500));
        let asks = Some(Step::Bind { to: NodeId(5), distance: 32 });
        assert_eq!(parent.poll(), asks);
        heard(&mut parent, 1, 1, 2, 1);
        parent.on_reject(at(10), NodeId(5), HEAD);
        assert_eq!(parent.poll(), None, "it has no head itself yet");
        let now = parent.next_timeout().unwrap();
        parent.on_timeout(now, HEAD);
        assert_eq!(parent.poll(), asks);
        assert_eq!(parent.on_accept(now, NodeId(5), 2), News::Joined { before: None });
        heard(&mut parent, 2000, 2, 1, 1);
        assert_eq!(parent.search, Search::Idle, "a nearer one changes nothing");
        assert_eq!(parent.on_reject(at(3000), NodeId(5), HEAD), News::Lost);
        assert_eq!(parent.poll(), Some(Step::Bind { to: NodeId(2), distance: 1 }));
    }

    #[test]
    fn a_head_that_was_given_and_never_answers_is_left_for_others() {
        let mut parent = Parent::new(&TramSettings::default(), Some(NodeId(5)));
        parent.on_session(at(0), ms(500));
        let mut asked = std::collections::BTreeSet::new();
        for _ in 0..2 * GIVEN_TRIES + 10 {
            let now = parent.next_timeout().unwrap();
            heard(&mut parent, now.as_nanos() / 1_000_000, 1, 2, 1);
            parent.on_timeout(now, HEAD);
            if let Some(Step::Bind { to, .. }) = parent.poll() {
                asked.insert(to);
            }
        }
        assert_eq!(asked, [NodeId(1), NodeId(5)].into());
    }

    #[test]
    fn a_head_that_serves_nothing_is_shunned() {
        let mut parent = parent();
        parent.on_session(at(0), Duration::ZERO);
        heard(&mut parent, 1, 1, 1, 1);
        parent.on_timeout(parent.next_timeout().unwrap(), HEAD);
        parent.on_accept(at(600), NodeId(1), 1);
        assert_eq!(parent.on_bad_head(at(9000), HEAD, true), News::Lost);
        heard(&mut parent, 9001, 1, 1, 1);
        assert!(parent.candidates.is_empty());
        heard(&mut parent, 70_000, 1, 1, 1);
        assert_eq!(parent.candidates.len(), 1);
    }
}
