//! Affiliation of a receiver with its parent, the head that repairs its losses: solicitation in
//! rings, binding, better heads, and lost heads (src: tram s2.2).

mod backoff;
mod candidates;
mod round_trips;

use faircast_base::{Duration, NodeId, Time};

use super::advertising::ADVERTISE_STEP;
use crate::timers::{Timers, reasons};
use crate::tram::GivenHead;
use crate::tram::settings::{Distance, Formation, LateJoin, TramSettings};
use crate::tram::wire::Advertisement;
use backoff::Backoff;
use candidates::{Candidate, Candidates};
use round_trips::RoundTrips;

/// Interval between solicitations, and growth of their scope in hops (src: jrms).
pub(crate) const SOLICIT_INTERVAL: Duration = Duration::from_millis(500);
const SOLICIT_STEP: u8 = 1;

/// Timeout of a request to a head, and most requests to one head.
pub(crate) const BIND_TIMEOUT: Duration = Duration::from_secs(2);
const BIND_TRIES: u32 = 3;

/// Requests to an assigned head before others are asked, a solicitation interval apart.
const ASSIGNED_TRIES: u32 = 60;

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
    /// Listens to advertisements, or solicits heads.
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
pub(crate) enum Request {
    /// Solicitation to all heads within this time to live; a `name` other than 0 limits it to one.
    Solicit {
        ttl: u8,
        name: u64,
    },
    /// Solicitation to one head, to measure the round trip.
    Probe {
        to: NodeId,
    },
    Bind {
        to: NodeId,
        distance: u8,
    },
    /// Acknowledgement that reports missing hellos.
    Hello,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParentChange {
    Nothing,
    Joined { previous: Option<NodeId> },
    Lost,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seeker {
    pub(crate) may_be_head: bool,
    /// Own level of a receiver with members: its head's must be less, so that no loop forms.
    pub(crate) level_with_members: Option<u8>,
    pub(crate) first_missing: u64,
    /// Own level and number: a new head must have less, so that no loop forms.
    pub(crate) level_and_id: (u8, u64),
    /// True if another candidate of the LAN is to become this receiver's head.
    pub(crate) awaits_lan_head: bool,
}

impl Seeker {
    /// True if this level and number make no loop. A receiver that is never a head makes none.
    fn may_move(self, level: u8, id: u64) -> bool {
        !self.may_be_head || (level, id) < self.level_and_id
    }

    fn is_below(self, level: u8) -> bool {
        self.level_with_members.is_none_or(|own| level < own)
    }
}

reasons! {
    enum Timer {
        SearchRound,
        /// Silence of the head: requests hellos, and then starts re-affiliation with another head.
        HeadSilence,
    }
}

/// Head that a scenario or user has assigned, by its node or its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assigned {
    /// Number of the head's name; `None` for a head that was assigned by its node.
    name: Option<u64>,
    node: Option<NodeId>,
    tries: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(crate) node: NodeId,
    /// Time to live of the parent's packets, or the class of the round trip.
    pub(crate) distance: u8,
    pub(crate) level: u8,
    pub(crate) round_trip: Duration,
    last_packet_at: Time,
    missed_hellos: u32,
}

#[derive(Debug, Default)]
struct RequestHistory {
    /// Last head that refused, and the time of the request: the refusal may have been forged.
    refused_by: Option<(Candidate, Time)>,
    /// Time of the last request without answer, else zero. Older heads may be forged.
    unanswered_since: Time,
    root_requested: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Affiliation {
    has_begun: bool,
    /// True if the parent has pruned this receiver, which looks for no other.
    pub(crate) is_pruned: bool,
    /// `None` once the assigned head is lost, or lacks wanted packets that another head has.
    pub(crate) assigned: Option<Assigned>,
    pub(crate) parent: Option<Parent>,
    pub(crate) lost_at: Time,
    search: Search,
    /// True if the search is for a better head only, and the parent stays if it fails.
    keeps_parent: bool,
    candidates: Candidates,
    requests: RequestHistory,
    /// Measurement of distances; `None` if the time to live is the distance.
    round_trips: Option<RoundTrips>,
    backoff: Backoff,
    /// True if the receiver waits for the source rather than take a head that lacks packets.
    requires_all: bool,
    /// Scope of the next solicitation in hops, which grows in rings, and its maximum.
    next_ring: u8,
    ring_max: u8,
    heads_advertise: bool,
    advertise_interval: Option<Duration>,
    /// Silence after which a parent is asked for a hello, and questions before it counts as lost.
    silence_max: Duration,
    missed_hellos_max: u32,
    timers: Timers<Timer, 2>,
    due: Option<Request>,
}

impl Affiliation {
    pub(crate) fn new(settings: &TramSettings, assigned: Option<GivenHead>) -> Self {
        let (name, node) = match assigned {
            Some(GivenHead::Named(name)) => (Some(name), None),
            Some(GivenHead::Node(node)) => (None, Some(node)),
            None => (None, None),
        };
        let by_round_trip = settings.distance == Distance::RoundTrip;
        Self {
            assigned: assigned.map(|_| Assigned { name, node, tries: ASSIGNED_TRIES }),
            round_trips: by_round_trip.then(RoundTrips::default),
            backoff: Backoff::new(settings),
            requires_all: settings.late_join == LateJoin::Full,
            next_ring: SOLICIT_STEP,
            ring_max: u8::try_from(settings.ttl.max(1)).unwrap_or(u8::MAX),
            heads_advertise: settings.formation != Formation::Solicit,
            silence_max: settings.hello_interval * 2,
            missed_hellos_max: settings.hellos_missed_max,
            ..Self::default()
        }
    }

    pub(crate) fn binds_to(&self) -> Option<NodeId> {
        let Search::Binding { head, .. } = self.search else { return None };
        Some(head.node)
    }

    pub(crate) fn is_parent(&self, node: NodeId) -> bool {
        self.parent.is_some_and(|parent| parent.node == node)
    }

    /// Takes the advertisement interval, zero for answers to solicitations only. Starts the search.
    pub(crate) fn on_session(&mut self, now: Time, advertise_interval: Duration) {
        if self.is_pruned {
            return;
        }
        self.advertise_interval = (advertise_interval > Duration::ZERO && self.heads_advertise)
            .then(|| advertise_interval.min(ROUND_MAX));
        if !core::mem::replace(&mut self.has_begun, true) && !self.request_assigned(now) {
            self.seek(now);
        }
    }

    pub(crate) fn seek(&mut self, now: Time) {
        self.search = Search::Seeking { rounds: 0 };
        self.keeps_parent = false;
        self.requests.root_requested = false;
        if !self.has_unanswered() {
            self.next_ring = SOLICIT_STEP;
        }
        if self.assigned.is_some() {
            // The assigned head may have no head itself yet, and refuses until then.
            self.timers.arm(Timer::SearchRound, now + SOLICIT_INTERVAL);
            return;
        }
        self.begin_round(now);
    }

    fn request_assigned(&mut self, now: Time) -> bool {
        let Some(assigned) = &mut self.assigned else { return false };
        assigned.tries = assigned.tries.saturating_sub(1);
        let Assigned { name, node, tries } = *assigned;
        if tries == 0 {
            self.assigned = None;
        }
        if let Some(to) = node {
            let head = Candidate::assigned(now, to, self.ring_max);
            self.search = Search::Binding { head, since: now, tries: BIND_TRIES };
            self.due = Some(Request::Bind { to, distance: self.ring_max });
            self.timers.arm(Timer::SearchRound, now + BIND_TIMEOUT);
        } else {
            self.search = Search::Seeking { rounds: 0 };
            self.due = Some(Request::Solicit { ttl: self.ring_max, name: name.unwrap_or(0) });
            self.timers.arm(Timer::SearchRound, now + SOLICIT_INTERVAL);
        }
        true
    }

    pub(crate) fn stop(&mut self) {
        (self.parent, self.search, self.due) = (None, Search::Idle, None);
        self.timers.disarm_all();
    }

    fn begin_round(&mut self, now: Time) {
        let rounds = if let Search::Seeking { rounds } = self.search { rounds } else { 0 };
        let most = if self.backoff.is_crowded() { ROUNDS_CROWDED } else { ROUNDS };
        let listening = self.advertise_interval.filter(|_| rounds < most && !self.has_unanswered());
        if listening.is_none() {
            let ttl = self.next_ring;
            self.next_ring = ttl.saturating_add(SOLICIT_STEP).min(self.ring_max);
            self.due = Some(Request::Solicit { ttl, name: 0 });
            if let Some(round_trips) = &mut self.round_trips {
                round_trips.on_solicit(now, ttl);
            }
        }
        self.timers.arm(Timer::SearchRound, now + listening.unwrap_or(SOLICIT_INTERVAL));
    }

    pub(crate) fn on_advertisement(
        &mut self,
        now: Time,
        ((node, id, ttl), alone): ((NodeId, u64, u8), bool),
        advertisement: &Advertisement,
        seeker: Seeker,
    ) {
        // A later node of the assigned name is ignored while the first one answers.
        let name = Some(advertisement.name);
        let assigned = self.assigned.as_mut().filter(|it| it.node.is_none() && it.name == name);
        if let Some(assigned) = assigned {
            assigned.node = Some(node);
            if matches!(self.search, Search::Seeking { .. }) {
                self.timers.arm(Timer::SearchRound, now);
            }
        }
        let distance = match &mut self.round_trips {
            None => Some(ttl),
            Some(round_trips) if alone => round_trips.on_answer(now, node, ttl),
            Some(_) => None,
        };
        let was_candidate = self.candidates.known.iter().any(|it| it.node == node);
        if self.candidates.on_advertisement(now, (node, id, distance), advertisement, seeker) {
            self.consider_better(now, seeker);
        } else if was_candidate && matches!(self.search, Search::Seeking { .. }) {
            self.backoff.crowded = true;
        }
    }

    /// Requests a nearer head with all wanted packets, after an interval for others to show up.
    fn consider_better(&mut self, now: Time, seeker: Seeker) {
        let waits = self.search == Search::Idle && self.assigned.is_none();
        let Some(interval) = self.advertise_interval.filter(|_| waits) else {
            return;
        };
        let Some(parent) = self.parent else { return };
        if let Some(round_trips) = self.round_trips.as_mut().filter(|it| now >= it.next_probe_at) {
            let above = |it: &Candidate| seeker.may_move(it.level, it.id) && it.node != parent.node;
            if let Some(node) = self.candidates.take_unmeasured(above) {
                round_trips.probe(now, node);
            }
        }
        if self.candidates.known.iter().any(|it| self.is_better(it, seeker)) {
            self.search = Search::Seeking { rounds: ROUNDS - 1 };
            self.keeps_parent = true;
            self.timers.arm(Timer::SearchRound, now + interval);
        }
    }

    /// True if a candidate is better than the present head. Levels and numbers decrease: no loops.
    fn is_better(&self, it: &Candidate, seeker: Seeker) -> bool {
        self.parent.is_some_and(|parent| {
            it.node != parent.node
                && it.distance < parent.distance
                && !it.distrusted
                && !it.is_last
                && it.low <= seeker.first_missing
                && seeker.may_move(it.level, it.id)
                && (seeker.level_with_members.is_none() || it.level < parent.level)
        })
    }

    fn has_unanswered(&self) -> bool {
        self.requests.unanswered_since > Time::ZERO
    }

    fn suits(&self, it: &Candidate, seeker: Seeker) -> bool {
        let own = self.parent.map(|parent| parent.node);
        let other = seeker.is_below(it.level) && Some(it.node) != own;
        other && (!self.keeps_parent || self.is_better(it, seeker))
    }

    /// Returns the best other candidate. After a request without answer, older ones count last.
    fn best(&self, seeker: Seeker) -> Option<Candidate> {
        let called = matches!(self.search, Search::Seeking { rounds } if rounds >= ROUNDS);
        self.candidates.best(self.requests.unanswered_since, seeker, |it| {
            (called || it.last_packet_at >= self.requests.unanswered_since)
                && self.suits(it, seeker)
        })
    }

    /// True if the head asked at `since` is given up early: silent as others are not, or all are.
    fn is_silent(&self, head: NodeId, since: Time, seeker: Seeker) -> bool {
        let other = |it: &Candidate| it.last_packet_at > since && self.suits(it, seeker);
        let outdone = || self.has_unanswered() || self.candidates.known.iter().any(other);
        let is_received = |it: &Candidate| it.node == head && it.last_packet_at > since;
        let Candidates { known, root, .. } = &self.candidates;
        !known.iter().chain(root).any(is_received) && outdone()
    }

    fn wait(&mut self, has_listened: bool, seeker: Seeker) -> Option<Duration> {
        let interval =
            self.advertise_interval.filter(|_| has_listened && !seeker.awaits_lan_head)?;
        self.best(seeker)?;
        self.backoff.wait(interval, seeker)
    }

    fn choose(&mut self, now: Time, seeker: Seeker) -> bool {
        if seeker.awaits_lan_head {
            return false;
        }
        let own = self.parent.map(|parent| parent.node);
        let Some(best) = self.best(seeker) else { return false };
        let lacks = best.lacks(seeker);
        let root = self.candidates.root;
        if lacks && root.is_none() && self.next_ring < self.ring_max {
            // A head further away may have the wanted packets: the source.
            return false;
        }
        let unasked = |root: &Candidate| !self.requests.root_requested && Some(root.node) != own;
        let root = root.filter(|root| lacks && !root.lacks(seeker) && unasked(root));
        if root.is_none() {
            if self.lacks(best.node, best.low, seeker) {
                // The source has all packets, and will have room when other members have caught up.
                return false;
            }
            // A head without an answer is chosen again only after it was received again.
            self.candidates.forget(best.node);
        }
        self.requests.root_requested |= root.is_some();
        let head = root.unwrap_or(best);
        self.search = Search::Binding { head, since: now, tries: 0 };
        self.bind(now);
        true
    }

    pub(crate) fn lacks(&self, head: NodeId, start: u64, seeker: Seeker) -> bool {
        let first_missing = seeker.first_missing.max(1);
        let root = self.candidates.root.filter(|it| it.node != head && it.low <= first_missing);
        self.requires_all && start > first_missing && root.is_some()
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
        if self.assigned.is_some() || !self.choose(now, seeker) {
            self.seek(now);
        }
    }

    fn bind(&mut self, now: Time) {
        if let Search::Binding { head, tries, .. } = &mut self.search {
            *tries += 1;
            // With round trips the distance is unknown; the largest time to live reaches all.
            let distance = if self.round_trips.is_some() { self.ring_max } else { head.distance };
            self.due = Some(Request::Bind { to: head.node, distance });
            self.timers.arm(Timer::SearchRound, now + BIND_TIMEOUT);
        }
    }

    pub(crate) fn on_accept(&mut self, now: Time, from: NodeId, level: u8) -> ParentChange {
        let asked = match self.search {
            Search::Binding { head, since, .. } if head.node == from => Some((head, since)),
            _ => {
                let is_recent = |it: &(Candidate, Time)| now.since(it.1) < BIND_TIMEOUT;
                self.requests.refused_by.filter(|it| it.0.node == from && is_recent(it))
            }
        };
        let Some((head, since)) = asked else { return ParentChange::Nothing };
        (self.requests.refused_by, self.requests.unanswered_since) = (None, Time::ZERO);
        let parent = Parent {
            node: from,
            distance: head.distance,
            level,
            round_trip: now.since(since),
            last_packet_at: now,
            missed_hellos: 0,
        };
        let previous = self.parent.replace(parent).map(|previous| previous.node);
        (self.search, self.due) = (Search::Idle, None);
        (self.backoff.crowded, self.backoff.waited) = (false, false);
        self.timers.disarm(Timer::SearchRound);
        self.timers.arm(Timer::HeadSilence, now + self.silence_max);
        ParentChange::Joined { previous }
    }

    pub(crate) fn on_reject(&mut self, now: Time, from: NodeId, seeker: Seeker) -> ParentChange {
        match self.search {
            Search::Binding { head, since, .. } if head.node == from => {
                self.requests.refused_by = Some((head, since));
                self.backoff.crowded = true;
                self.choose_or_keep_parent(now, seeker);
                ParentChange::Nothing
            }
            _ if self.is_parent(from) => self.leave_parent(now, seeker),
            _ => ParentChange::Nothing,
        }
    }

    fn leave_parent(&mut self, now: Time, seeker: Seeker) -> ParentChange {
        if let Some(parent) = self.parent.take() {
            self.lost_at = parent.last_packet_at;
        }
        self.timers.disarm(Timer::HeadSilence);
        self.look_elsewhere(now, seeker);
        ParentChange::Lost
    }

    fn look_elsewhere(&mut self, now: Time, seeker: Seeker) {
        (self.assigned, self.keeps_parent) = (None, false);
        if self.search == Search::Idle {
            self.choose_or_seek(now, seeker);
        }
    }

    fn choose_or_keep_parent(&mut self, now: Time, seeker: Seeker) {
        if self.parent.is_some() && self.keeps_parent {
            self.search = Search::Idle;
        } else {
            self.choose_or_seek(now, seeker);
        }
    }

    /// Looks for another head. A head that `fails` is left at once, and a last choice for a while.
    pub(crate) fn on_head_failure(
        &mut self,
        now: Time,
        seeker: Seeker,
        fails: bool,
    ) -> ParentChange {
        let Some(parent) = self.parent else { return ParentChange::Nothing };
        self.candidates.forget(parent.node);
        if fails {
            self.candidates.distrust(now, parent.node);
            return self.leave_parent(now, seeker);
        }
        self.look_elsewhere(now, seeker);
        ParentChange::Nothing
    }

    pub(crate) fn on_packet(&mut self, now: Time, from: NodeId, level: Option<u8>) {
        if let Some(parent) = self.parent.as_mut().filter(|parent| parent.node == from) {
            (parent.last_packet_at, parent.missed_hellos) = (now, 0);
            // A head that lost its own head has no level; its members keep theirs.
            parent.level = level.filter(|level| *level > 0).unwrap_or(parent.level);
        }
    }

    pub(crate) fn on_timeout(&mut self, now: Time, seeker: Seeker) -> ParentChange {
        let silent = self.timers.take_due(Timer::HeadSilence, now);
        let change = if silent { self.on_silence(now, seeker) } else { ParentChange::Nothing };
        if self.timers.take_due(Timer::SearchRound, now) {
            self.on_round(now, seeker);
        }
        change
    }

    fn on_silence(&mut self, now: Time, seeker: Seeker) -> ParentChange {
        let Some(parent) = &mut self.parent else { return ParentChange::Nothing };
        let due = parent.last_packet_at + self.silence_max;
        if due > now {
            self.timers.arm(Timer::HeadSilence, due);
        } else if parent.missed_hellos < self.missed_hellos_max {
            parent.missed_hellos += 1;
            self.due = Some(Request::Hello);
            self.timers.arm(Timer::HeadSilence, now + self.silence_max / 2);
        } else {
            self.candidates.forget(parent.node);
            return self.leave_parent(now, seeker);
        }
        ParentChange::Nothing
    }

    fn on_round(&mut self, now: Time, seeker: Seeker) {
        match &mut self.search {
            Search::Seeking { .. } if self.assigned.is_some() => {
                self.request_assigned(now);
            }
            Search::Seeking { rounds } => {
                *rounds += 1;
                let enough = *rounds >= ROUNDS || self.has_unanswered();
                // No head can be nearer.
                let is_nearest = |it: Candidate| {
                    let is_known = self.backoff.backs_off && self.round_trips.is_none();
                    let is_near = it.distance <= ADVERTISE_STEP && it.is_eager && !it.distrusted;
                    is_known && is_near && !it.lacks(seeker)
                };
                let has_listened = enough
                    || self.advertise_interval.is_none()
                    || self.best(seeker).is_some_and(is_nearest);
                if has_listened && self.probe_all(now) {
                    self.timers.arm(Timer::SearchRound, now + SOLICIT_INTERVAL);
                } else if let Some(wait) = self.wait(has_listened, seeker) {
                    self.timers.arm(Timer::SearchRound, now + wait);
                } else if !has_listened || !self.choose(now, seeker) {
                    if self.keeps_parent && self.parent.is_some() {
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
                self.requests.unanswered_since = since;
                let assigned = self.assigned.as_mut().filter(|it| it.name.is_some());
                if let Some(assigned) = assigned.filter(|it| it.node == Some(node)) {
                    assigned.node = None;
                }
                if is_last {
                    self.candidates.distrust(now, node);
                }
                self.choose_or_keep_parent(now, seeker);
            }
            Search::Idle => {}
        }
    }

    pub(crate) fn poll(&mut self) -> Option<Request> {
        let probe = || Some(Request::Probe { to: self.round_trips.as_mut()?.due.pop_front()? });
        self.due.take().or_else(probe)
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.timers.next()
    }
}

#[cfg(test)]
mod tests;
