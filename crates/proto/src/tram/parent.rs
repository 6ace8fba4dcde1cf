//! Search of a receiver for a head: solicitation in rings, binding, better heads, and lost heads.

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

pub(super) const SOLICIT_INTERVAL: Duration = Duration::from_millis(500);

/// Timeout of a request to a head, and most requests to one head.
pub(super) const BIND_TIMEOUT: Duration = Duration::from_secs(2);
const BIND_TRIES: u32 = 3;

/// Advertisement intervals to listen before a choice, and the longest interval (src: jrms).
const ROUNDS: u32 = 3;
const ROUND_MAX: Duration = Duration::from_secs(20);

/// Advertisement intervals to listen if other receivers took all places: they will be heads.
const ROUNDS_CROWDED: u32 = 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Search {
    /// No search: the receiver has a head, or does not know the session yet.
    #[default]
    Idle,
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
    /// Solicitation to all heads within this time to live; a `name` other than 0 limits it to one.
    Solicit {
        ttl: u8,
        name: u64,
    },
    Probe {
        to: NodeId,
    },
    Bind {
        to: NodeId,
        distance: u8,
    },
    /// Acknowledgement that reports missing hellos.
    AskHello,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    Nothing,
    /// The receiver has a head; `before` is the head until now, if that is still there.
    Joined {
        before: Option<NodeId>,
    },
    Lost,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seeker {
    /// True if heads that take only potential heads take this receiver.
    pub(super) may_be_head: bool,
    /// Own level of a receiver with members: its head's must be less, so that no loop forms.
    pub(super) below: Option<u8>,
    pub(super) wants: u64,
    /// Own level and number: a new head must have less, so that no loop forms.
    pub(super) place: (u8, u64),
    pub(super) waits: bool,
}

impl Seeker {
    /// True if this level and number make no loop. A receiver that is never a head makes none.
    fn may_move(self, level: u8, id: u64) -> bool {
        !self.may_be_head || (level, id) < self.place
    }

    fn is_below(self, level: u8) -> bool {
        self.below.is_none_or(|own| level < own)
    }
}

reasons! {
    enum Timer {
        /// Next round of the search for a head.
        Round,
        /// Silence of the head: requests hellos, and then starts re-affiliation with another head.
        Silence,
    }
}

#[derive(Debug, Default)]
pub(super) struct Parent {
    begun: bool,
    given: Option<Given>,
    pub(super) bound: Option<Bound>,
    pub(super) lost_at: Time,
    search: Search,
    /// Last head that refused, and the time of the request: the refusal may have been forged.
    refused_by: Option<(Candidate, Time)>,
    may_stay: bool,
    candidates: Candidates,
    round_trips: Option<RoundTrips>,
    backoff: Backoff,
    /// Time of the last request without answer, else zero. Older heads may be forged.
    vain_since: Time,
    root_asked: bool,
    /// True if the receiver waits for the source rather than take a head that lacks packets.
    wants_all: bool,
    ring: u8,
    ring_max: u8,
    ring_step: u8,
    /// True if heads advertise unasked, and the distance of the nearest possible head.
    listens: bool,
    nearest: u8,
    advertise_interval: Option<Duration>,
    silence: Duration,
    hellos_missed_max: u32,
    timers: Timers<Timer, 2>,
    due: Option<Step>,
}

impl Parent {
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

    pub(super) fn is_binding(&self) -> bool {
        matches!(self.search, Search::Binding { .. })
    }

    pub(super) fn concerns(&self, node: NodeId) -> bool {
        let asked = matches!(self.search, Search::Binding { head, .. } if head.node == node);
        asked || self.bound.is_some_and(|bound| bound.node == node)
    }

    /// Takes the advertisement interval, zero for answers to solicitations only. Starts the search.
    pub(super) fn on_session(&mut self, now: Time, advertise_interval: Duration) {
        self.advertise_interval = (advertise_interval > Duration::ZERO && self.listens)
            .then(|| advertise_interval.min(ROUND_MAX));
        if !core::mem::replace(&mut self.begun, true) && !self.ask_given(now) {
            self.seek(now);
        }
    }

    pub(super) fn seek(&mut self, now: Time) {
        self.search = Search::Seeking { rounds: 0 };
        self.may_stay = false;
        self.root_asked = false;
        if !self.is_vain() {
            self.ring = self.ring_step;
        }
        if self.given.is_some() {
            // The given head may have no head itself yet, and refuses until then.
            self.timers.arm(Timer::Round, now + SOLICIT_INTERVAL);
            return;
        }
        self.begin_round(now);
    }

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

    /// Asks a nearer head with all wanted packets, after an interval for others to show up.
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

    /// True if a candidate is better than the present head. Levels and numbers decrease: no loops.
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

    fn is_vain(&self) -> bool {
        self.vain_since > Time::ZERO
    }

    fn suits(&self, it: &Candidate, seeker: Seeker) -> bool {
        let own = self.bound.map(|bound| bound.node);
        let other = seeker.is_below(it.level) && Some(it.node) != own;
        other && (!self.may_stay || self.is_better(it, seeker))
    }

    /// Returns the best other candidate. After a request without answer, older ones count last.
    fn best(&self, seeker: Seeker) -> Option<Candidate> {
        let called = matches!(self.search, Search::Seeking { rounds } if rounds >= ROUNDS);
        self.candidates.best(self.vain_since, seeker, |it| {
            (called || it.heard_at >= self.vain_since) && self.suits(it, seeker)
        })
    }

    /// True if the head asked at `since` is given up early: silent as others are not, or all are.
    fn is_silent(&self, head: NodeId, since: Time, seeker: Seeker) -> bool {
        let other = |it: &Candidate| it.heard_at > since && self.suits(it, seeker);
        let outdone = || self.is_vain() || self.candidates.known.iter().any(other);
        !self.candidates.is_heard(head, since) && outdone()
    }

    fn is_nearest(&self, seeker: Seeker) -> bool {
        let is_known = self.backoff.backs_off && self.round_trips.is_none();
        let best = self.best(seeker).filter(|_| is_known);
        best.is_some_and(|it| {
            it.distance <= self.nearest && it.is_eager && !it.distrusted && !it.lacks(seeker)
        })
    }

    fn wait(&mut self, listened: bool, seeker: Seeker) -> Option<Duration> {
        let interval = self.advertise_interval.filter(|_| listened && !seeker.waits)?;
        self.best(seeker)?;
        self.backoff.wait(interval, seeker)
    }

    fn choose(&mut self, now: Time, seeker: Seeker) -> bool {
        if seeker.waits {
            return false;
        }
        let own = self.bound.map(|bound| bound.node);
        let Some(best) = self.best(seeker) else { return false };
        let lacks = best.lacks(seeker);
        let root = self.candidates.root;
        if lacks && root.is_none() && self.ring < self.ring_max {
            // A head further away may have the wanted packets: the source.
            return false;
        }
        let unasked = |root: &Candidate| !self.root_asked && Some(root.node) != own;
        let root = root.filter(|root| lacks && !root.lacks(seeker) && unasked(root));
        if root.is_none() {
            if self.lacks(best.node, best.low, seeker) {
                // The source has all packets, and will have room when other members have caught up.
                return false;
            }
            // A head without an answer is chosen again only after it was received again.
            self.candidates.forget(best.node);
        }
        self.root_asked |= root.is_some();
        let head = root.unwrap_or(best);
        self.search = Search::Binding { head, since: now, tries: 0 };
        self.bind(now);
        true
    }

    pub(super) fn lacks(&self, head: NodeId, start: u64, seeker: Seeker) -> bool {
        let wants = seeker.wants.max(1);
        let root = self.candidates.root.filter(|it| it.node != head && it.low <= wants);
        self.wants_all && start > wants && root.is_some()
    }

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
            // With round trips the distance is unknown; the largest time to live reaches all.
            let distance = if self.round_trips.is_some() { self.ring_max } else { head.distance };
            self.due = Some(Step::Bind { to: head.node, distance });
            self.timers.arm(Timer::Round, now + BIND_TIMEOUT);
        }
    }

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

    fn choose_or_stay(&mut self, now: Time, seeker: Seeker) {
        if self.bound.is_some() && self.may_stay {
            self.search = Search::Idle;
        } else {
            self.choose_or_seek(now, seeker);
        }
    }

    /// Looks for another head. A head that `fails` is left at once, and a last choice for a while.
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
