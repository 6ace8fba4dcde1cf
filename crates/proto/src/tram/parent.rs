//! A receiver's way to a head: solicitation in expanding rings, binding, a better head, and the loss of the one
//! that it has.

mod backoff;
mod bound;
mod candidates;
mod given;
mod round_trips;

use faircast_base::{Duration, NodeId, Time};

use super::GivenHead;
use super::settings::{Distance, Formation, LateJoin, TramSettings};
use super::wire::Advertisement;
use crate::timers::{Timers, reasons};
use backoff::Backoff;
pub(super) use bound::Bound;
use bound::Silence;
use candidates::{Candidate, Candidates};
use given::Given;
use round_trips::RoundTrips;

/// Time between solicitations.
pub(super) const SOLICIT_INTERVAL: Duration = Duration::from_millis(500);

/// Time to wait for the answer of a head, and requests to one head.
pub(super) const BIND_TIMEOUT: Duration = Duration::from_secs(2);
const BIND_TRIES: u32 = 3;

/// How many intervals of advertisements are listened to before a head is chosen, and the longest that such
/// an interval is taken to be (src: jrms).
const ROUNDS: u32 = 3;
const ROUND_MAX: Duration = Duration::from_secs(20);

/// The same where others have taken the places of the heads that were heard: these will be heads with places.
const ROUNDS_CROWDED: u32 = 20;

/// What it does to get a head, or another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Search {
    /// Nothing: it has one, or has heard nothing of the session.
    #[default]
    Idle,
    /// It listens for advertisements, or asks for them.
    Seeking {
        rounds: u32,
    },
    Binding {
        head: Candidate,
        since: Time,
        tries: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A solicitation to all heads within this time to live, or of those to the one of this name.
    Solicit {
        ttl: u8,
        name: u64,
    },
    /// The same to this head alone: how long does its answer take?
    Probe {
        to: NodeId,
    },
    Bind {
        to: NodeId,
        distance: u8,
    },
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
    /// It waits for one of its LAN to become its head.
    pub(super) waits: bool,
}

impl Seeker {
    /// Whether it may leave its head for one of this level and number. Who is never a head itself makes no loop.
    fn may_move(self, level: u8, id: u64) -> bool {
        !self.may_be_head || (level, id) < self.place
    }

    fn is_below(self, level: u8) -> bool {
        self.below.is_none_or(|own| level < own)
    }
}

reasons! {
    enum Timer {
        /// A round of listening, asking or binding is over.
        Round,
        /// Its head has been silent for another interval.
        Silence,
    }
}

/// A receiver's search for a head, and its watch over the one that it has.
#[derive(Debug, Default)]
pub(super) struct Parent {
    begun: bool,
    given: Option<Given>,
    pub(super) bound: Option<Bound>,
    /// When one was heard last that it lost.
    pub(super) lost_at: Time,
    search: Search,
    /// The head that has refused it last, and when it was asked: somebody else may have said so in its name.
    refused_by: Option<(Candidate, Time)>,
    /// It has a good head, and looks for a better one.
    may_stay: bool,
    candidates: Candidates,
    round_trips: Option<RoundTrips>,
    backoff: Backoff,
    /// Time of the request to the last head that did not answer; zero once a head has taken this receiver. Heads that
    /// were heard since are there, and others may be inventions.
    vain_since: Time,
    root_asked: bool,
    /// Whether it waits for the source rather than take a head that lacks something.
    wants_all: bool,
    /// Of the next solicitation.
    ring: u8,
    ring_max: u8,
    ring_step: u8,
    /// Whether heads advertise at all without being asked, and the distance at which their first advertisements are
    /// heard: nobody is nearer.
    listens: bool,
    nearest: u8,
    /// Between advertisements; `None` where heads advertise only when they are asked.
    advertise_interval: Option<Duration>,
    silence: Duration,
    hellos_missed_max: u32,
    timers: Timers<Timer, 2>,
    due: Option<Step>,
}

impl Parent {
    /// One that looks for a head, beginning with `given` where there is that.
    pub(super) fn new(settings: &TramSettings, given: Option<GivenHead>) -> Self {
        let ttl = |hops: u32| u8::try_from(hops.max(1)).unwrap_or(u8::MAX);
        Self {
            given: given.map(Given::new),
            search: Search::Idle,
            round_trips: (settings.distance == Distance::RoundTrip)
                .then(|| RoundTrips::new(SOLICIT_INTERVAL)),
            backoff: Backoff::new(settings),
            wants_all: settings.late_join == LateJoin::Full,
            ring: ttl(settings.solicit_step),
            ring_max: ttl(settings.ttl),
            ring_step: ttl(settings.solicit_step),
            listens: settings.formation != Formation::Solicit,
            nearest: ttl(settings.advertise_step),
            silence: settings.hello_interval * 2,
            hellos_missed_max: settings.hellos_missed_max,
            ..Self::default()
        }
    }

    fn unbind(&mut self) {
        if let Some(bound) = self.bound.take() {
            self.lost_at = bound.heard_at;
        }
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
        if !self.is_vain() {
            self.ring = self.ring_step;
        }
        if self.given.is_some() {
            // It may have no head itself yet, and then refuses.
            self.timers.arm(Timer::Round, now + SOLICIT_INTERVAL);
            return;
        }
        self.begin_round(now);
    }

    /// It wants no head any more.
    pub(super) fn stop(&mut self) {
        (self.bound, self.search, self.due) = (None, Search::Idle, None);
        self.timers.disarm_all();
    }

    fn begin_round(&mut self, now: Time) {
        let rounds = if let Search::Seeking { rounds } = self.search { rounds } else { 0 };
        let most = if self.backoff.is_crowded() { ROUNDS_CROWDED } else { ROUNDS };
        let listens = self.advertise_interval.filter(|_| rounds < most && !self.is_vain());
        if listens.is_none() {
            self.due = Some(Step::Solicit { ttl: self.ring, name: 0 });
            if let Some(round_trips) = &mut self.round_trips {
                round_trips.on_solicit(now, self.ring);
            }
            self.ring = self.ring.saturating_add(self.ring_step).min(self.ring_max);
        }
        self.timers.arm(Timer::Round, now + listens.unwrap_or(SOLICIT_INTERVAL));
    }

    /// A head advertises itself, from this node, of this number, and with this time to live; `alone` says to this
    /// end alone, since it has asked.
    pub(super) fn on_advertisement(
        &mut self,
        now: Time,
        ((node, id, ttl), alone): ((NodeId, u64, u8), bool),
        advertisement: &Advertisement,
        seeker: Seeker,
    ) {
        self.find_given(now, node, advertisement.name);
        let distance = match &mut self.round_trips {
            None => Some(ttl),
            Some(round_trips) if alone => round_trips.on_answer(now, node, ttl),
            Some(_) => None,
        };
        let was_candidate = self.candidates.known.iter().any(|it| it.node == node);
        if self.candidates.hear(now, (node, id, distance), advertisement, seeker) {
            self.consider_better(now, seeker);
        } else if was_candidate && matches!(self.search, Search::Seeking { .. }) {
            self.backoff.on_taken();
        }
    }

    /// One that is nearer than the head that it has, and has all that is wanted, is asked after the next interval:
    /// others may be nearer still.
    fn consider_better(&mut self, now: Time, seeker: Seeker) {
        let waits = self.search == Search::Idle && self.given.is_none();
        let Some(interval) = self.advertise_interval.filter(|_| waits) else {
            return;
        };
        let Some(bound) = self.bound else { return };
        if let Some(round_trips) = self.round_trips.as_mut().filter(|it| it.may_probe(now)) {
            let above = |it: &Candidate| seeker.may_move(it.level, it.id) && it.node != bound.node;
            if let Some(node) = self.candidates.take_unmeasured(above) {
                round_trips.probe(now, node);
            }
        }
        if self.candidates.known.iter().any(|it| self.is_better(it, seeker)) {
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
                && !it.distrusted
                && !it.is_last
                && it.low <= seeker.wants
                && seeker.may_move(it.level, it.id)
                && (seeker.below.is_none() || it.level < bound.level)
        })
    }

    /// True if a head has not answered since a head has taken this receiver.
    fn is_vain(&self) -> bool {
        self.vain_since > Time::ZERO
    }

    fn suits(&self, it: &Candidate, seeker: Seeker) -> bool {
        let own = self.bound.map(|bound| bound.node);
        let other = seeker.is_below(it.level) && Some(it.node) != own;
        other && (!self.may_stay || self.is_better(it, seeker))
    }

    /// The best candidate but the head that it has. After a head that did not answer, those that were heard before are
    /// asked once all heads have been called several times and no other has answered.
    fn best(&self, seeker: Seeker) -> Option<Candidate> {
        let called = matches!(self.search, Search::Seeking { rounds } if rounds >= ROUNDS);
        self.candidates.best(self.vain_since, seeker, |it| {
            (called || it.heard_at >= self.vain_since) && self.suits(it, seeker)
        })
    }

    /// Whether the head that was asked at `since` is given up before its last try: it has been silent, and another head
    /// has not, or all of this search have been silent.
    fn is_silent(&self, head: NodeId, since: Time, seeker: Seeker) -> bool {
        let other = |it: &Candidate| it.heard_at > since && self.suits(it, seeker);
        let outdone = || self.is_vain() || self.candidates.known.iter().any(other);
        !self.candidates.is_heard(head, since) && outdone()
    }

    /// Whether no candidate could be better than the best one, however long it listened; with the timers of the paper it
    /// listens in any case.
    fn is_nearest(&self, seeker: Seeker) -> bool {
        let is_known = self.backoff.backs_off && self.round_trips.is_none();
        let best = self.best(seeker).filter(|_| is_known);
        best.is_some_and(|it| {
            it.distance <= self.nearest && it.is_eager && !it.distrusted && !it.lacks(seeker)
        })
    }

    /// How long it waits before it asks the best candidate, where it is to wait for that at all.
    fn wait(&mut self, listened: bool, seeker: Seeker) -> Option<Duration> {
        let interval = self.advertise_interval.filter(|_| listened && !seeker.waits)?;
        self.best(seeker)?;
        self.backoff.wait(interval, seeker)
    }

    /// Takes the best candidate; `false` where there is none.
    fn choose(&mut self, now: Time, seeker: Seeker) -> bool {
        if seeker.waits {
            return false;
        }
        let own = self.bound.map(|bound| bound.node);
        let Some(best) = self.best(seeker) else { return false };
        let lacks = best.lacks(seeker);
        let root = self.candidates.root;
        if lacks && root.is_none() && self.ring < self.ring_max {
            // Further away there may be one that has it: the source.
            return false;
        }
        let unasked = |root: &Candidate| !self.root_asked && Some(root.node) != own;
        let root = root.filter(|root| lacks && !root.lacks(seeker) && unasked(root));
        if root.is_none() {
            if self.lacks(best.node, best.low, seeker) {
                // The source has all, and no room: there is some when others have caught up.
                return false;
            }
            // One that does not answer is not chosen again before it is heard again.
            self.candidates.forget(best.node);
        }
        self.root_asked |= root.is_some();
        let head = root.unwrap_or(best);
        self.search = Search::Binding { head, since: now, tries: 0 };
        self.bind(now);
        true
    }

    /// Whether a head that repairs from `start` on lacks what the source has, and there is reason to wait for that.
    pub(super) fn lacks(&self, head: NodeId, start: u64, seeker: Seeker) -> bool {
        let wants = seeker.wants.max(1);
        let root = self.candidates.root.filter(|it| it.node != head && it.low <= wants);
        self.wants_all && start > wants && root.is_some()
    }

    /// Asks for the round trips to all candidates to which they are not known. Returns whether there were any.
    fn probe_all(&mut self, now: Time) -> bool {
        let Some(round_trips) = &mut self.round_trips else { return false };
        let mut any = false;
        while let Some(node) = self.candidates.take_unmeasured(|_| true) {
            round_trips.probe(now, node);
            any = true;
        }
        any
    }

    fn choose_or_seek(&mut self, now: Time, seeker: Seeker) {
        if self.given.is_some() || !self.choose(now, seeker) {
            self.seek(now);
        }
    }

    fn bind(&mut self, now: Time) {
        if let Search::Binding { head, tries, .. } = &mut self.search {
            *tries += 1;
            // Where it is not by the time to live that heads are near, that is what reaches all.
            let distance = if self.round_trips.is_some() { self.ring_max } else { head.distance };
            self.due = Some(Step::Bind { to: head.node, distance });
            self.timers.arm(Timer::Round, now + BIND_TIMEOUT);
        }
    }

    /// A head says that it takes this receiver.
    pub(super) fn on_accept(&mut self, now: Time, from: NodeId, level: u8) -> News {
        let asked = match self.search {
            Search::Binding { head, since, .. } if head.node == from => Some((head, since)),
            _ => {
                let lately = |it: &(Candidate, Time)| now.since(it.1) < BIND_TIMEOUT;
                self.refused_by.filter(|it| it.0.node == from && lately(it))
            }
        };
        match asked {
            Some((head, since)) => {
                (self.refused_by, self.vain_since) = (None, Time::ZERO);
                let (distance, round_trip) = (head.distance, now.since(since));
                let (heard_at, missed) = (now, 0);
                let bound = Bound { node: from, distance, level, round_trip, heard_at, missed };
                let before = self.bound.replace(bound).map(|before| before.node);
                (self.search, self.due) = (Search::Idle, None);
                self.backoff.on_accepted();
                self.timers.disarm(Timer::Round);
                self.timers.arm(Timer::Silence, now + self.silence);
                News::Joined { before }
            }
            None => News::Nothing,
        }
    }

    pub(super) fn is_asking(&self, node: NodeId) -> bool {
        matches!(self.search, Search::Binding { head, .. } if head.node == node)
    }

    /// A head says that it does not take this receiver, or that it is no longer its member.
    pub(super) fn on_reject(&mut self, now: Time, from: NodeId, seeker: Seeker) -> News {
        match (self.search, self.bound) {
            (Search::Binding { head, since, .. }, _) if head.node == from => {
                self.refused_by = Some((head, since));
                self.backoff.on_taken();
                self.choose_or_stay(now, seeker);
                News::Nothing
            }
            (search, Some(bound)) if bound.node == from => {
                self.unbind();
                self.given = None;
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

    /// Its head does not want to be one any more, or does not do what one does: another is looked for. With `fails` it
    /// is left at once, and all others go before it for a while.
    pub(super) fn on_bad_head(&mut self, now: Time, seeker: Seeker, fails: bool) -> News {
        let Some(bound) = self.bound else { return News::Nothing };
        (self.may_stay, self.given) = (false, None);
        self.candidates.forget(bound.node);
        if fails {
            self.candidates.distrust(now, bound.node);
            self.unbind();
            self.timers.disarm(Timer::Silence);
        }
        if self.search == Search::Idle {
            self.choose_or_seek(now, seeker);
        }
        if fails { News::Lost } else { News::Nothing }
    }

    /// Anything came from a node; of a head perhaps at another level than before.
    pub(super) fn on_heard(&mut self, now: Time, from: NodeId, level: Option<u8>) {
        if let Some(bound) = self.bound.as_mut().filter(|bound| bound.node == from) {
            bound.on_heard(now, level);
        }
    }

    pub(super) fn on_timeout(&mut self, now: Time, seeker: Seeker) -> News {
        let silent = self.timers.take_due(Timer::Silence, now);
        let news = if silent { self.on_silence(now, seeker) } else { News::Nothing };
        if self.timers.take_due(Timer::Round, now) {
            self.on_round(now, seeker);
        }
        news
    }

    /// Its head may have been silent for another interval.
    fn on_silence(&mut self, now: Time, seeker: Seeker) -> News {
        let Some(bound) = &mut self.bound else { return News::Nothing };
        match bound.on_interval(now, self.silence, self.hellos_missed_max) {
            Silence::No(until) => self.timers.arm(Timer::Silence, until),
            Silence::Asks => {
                self.due = Some(Step::AskHello);
                self.timers.arm(Timer::Silence, now + self.silence / 2);
            }
            Silence::Lost => {
                self.candidates.forget(bound.node);
                self.unbind();
                (self.given, self.may_stay) = (None, false);
                if self.search == Search::Idle {
                    self.choose_or_seek(now, seeker);
                }
                return News::Lost;
            }
        }
        News::Nothing
    }

    /// A round of listening, asking or binding is over.
    fn on_round(&mut self, now: Time, seeker: Seeker) {
        match &mut self.search {
            Search::Seeking { .. } if self.given.is_some() => {
                self.ask_given(now);
            }
            Search::Seeking { rounds } => {
                *rounds += 1;
                let enough = *rounds >= ROUNDS || self.is_vain();
                let listened =
                    enough || self.advertise_interval.is_none() || self.is_nearest(seeker);
                if listened && self.probe_all(now) {
                    self.timers.arm(Timer::Round, now + SOLICIT_INTERVAL);
                } else if let Some(wait) = self.wait(listened, seeker) {
                    self.timers.arm(Timer::Round, now + wait);
                } else if !listened || !self.choose(now, seeker) {
                    if self.may_stay && self.bound.is_some() {
                        self.search = Search::Idle;
                    } else {
                        self.begin_round(now);
                    }
                }
            }
            Search::Binding { head, since, tries } => {
                let (node, since, is_last) = (head.node, *since, *tries >= BIND_TRIES);
                if !is_last && !self.is_silent(node, since, seeker) {
                    return self.bind(now);
                }
                self.vain_since = since;
                self.lose_given(node);
                if is_last {
                    self.candidates.distrust(now, node);
                }
                self.choose_or_stay(now, seeker);
            }
            Search::Idle => {}
        }
    }

    pub(super) fn poll(&mut self) -> Option<Step> {
        let probe = || Some(Step::Probe { to: self.round_trips.as_mut()?.due.pop_front()? });
        self.due.take().or_else(probe)
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.timers.next()
    }
}

#[cfg(test)]
mod tests;
