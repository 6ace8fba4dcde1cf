//! Repair head: takes members, keeps packets, repairs losses and advertises. The source is one too.

mod advertising;
mod pruning;
mod repairs;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Cx, Duration, GroupId, NodeId, Time};

use super::cache::Cache;
use super::election::{Election, Rank};
use super::identity::Identity;
use super::members::{Acknowledged, Members};
use super::reception::JUMP_MAX;
use super::settings::{Formation, HeadRole, LateJoin, TramSettings};
use super::wire::{
    Accept, Ack, Advertisement, Bind, Body, HeadState, Hello, Packet, RejectReason, Solicitation,
};
use crate::timers::{Timers, reasons};
use crate::{Destination, Transmit};
use advertising::Advertising;
pub(super) use repairs::Repair;
use repairs::Repairs;

/// Most waiting answers: more requests at once get no answer, and are repeated.
const ANSWERS_MAX: usize = 256;

/// Most repairs for one acknowledgement of a member without progress; chosen.
const STUCK_ASKS: usize = 8;

/// Neighbouring heads that all advertise within one second (src: jrms).
const HEADS_PER_SECOND: u64 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Accept(Accept),
    Reject(RejectReason),
    Advertise(u8),
    Hello,
}

reasons! {
    enum Timer {
        Advertise,
        Hello,
        Lan,
        Parted,
        Namesakes,
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Level of the head; 0 while it has no head itself.
    pub(super) level: u8,
    /// True if the head can have members: it has a head, and is not far behind itself.
    pub(super) fit: bool,
    /// First packet that the head can repair, and highest packet number that it knows.
    pub(super) low: u64,
    pub(super) high: u64,
    pub(super) done: bool,
    pub(super) id: u64,
    /// Number of the head's name; 0 without a name.
    pub(super) name: u64,
}

#[derive(Debug, Default)]
pub(super) struct Head {
    pub(super) members: Members,
    pub(super) cache: Cache,
    role: HeadRole,
    late_join: LateJoin,
    pub(super) repairs: Repairs,
    passes_on: bool,
    answers: VecDeque<(NodeId, Answer)>,
    hello_due: bool,
    advertisement_due: Option<u8>,
    lan_due: bool,
    election: Election,
    silent: Vec<u64>,
    pruned: VecDeque<(NodeId, u64)>,
    resigning: bool,
    pub(super) advertising: Advertising,
    advertise_interval: Duration,
    hello_interval: Duration,
    hellos_missed_max: u32,
    /// True at the source: repairs for members without progress alternate with new data.
    is_source: bool,
    timers: Timers<Timer, 5>,
}

impl Head {
    pub(super) fn new(settings: &TramSettings, role: HeadRole, start: u64) -> Self {
        let floor = settings.cache_floor();
        Self {
            members: Members::new(settings),
            cache: Cache::new(start, settings.cache_packets as usize, floor),
            role,
            late_join: settings.late_join,
            repairs: Repairs::new(settings),
            passes_on: settings.pass_on,
            election: Election::new(settings),
            advertising: Advertising::new(settings),
            advertise_interval: settings.advertise_interval,
            hello_interval: settings.hello_interval,
            hellos_missed_max: settings.hellos_missed_max,
            ..Self::default()
        }
    }

    pub(super) fn begin(&mut self, now: Time, formation: Formation) {
        if formation != Formation::Solicit {
            self.timers.arm_by(Timer::Advertise, now);
        }
        self.timers.arm_by(Timer::Hello, now + self.hello_interval);
        self.stand(now);
    }

    /// Starts the candidacy for the LAN. A candidate may lack a head: others wait for it.
    pub(super) fn stand(&mut self, now: Time) {
        let is_new = self.role != HeadRole::Never && !self.timers.is_armed(Timer::Lan);
        if is_new && self.election.stand(now) {
            self.timers.arm(Timer::Lan, now);
        }
    }

    pub(super) fn starting_at(&mut self, settings: &TramSettings, start: u64) -> Self {
        let fresh = Self::new(settings, self.role, start);
        let election = core::mem::replace(&mut self.election, Election::new(settings));
        Self { election, ..fresh }
    }

    pub(super) fn on_advertisement(
        &mut self,
        now: Time,
        heard: (NodeId, u64, u8),
        advertisement: &Advertisement,
    ) {
        self.election.on_advertisement(now, heard, advertisement);
    }

    fn yields(&self, now: Time, known: Known) -> bool {
        let level = if known.fit { known.level } else { 0 };
        self.election.yields(now, Rank::new(self.role, level, known.id))
    }

    pub(super) fn waits(&self, now: Time, id: u64) -> bool {
        self.election.waits(now, self.role, id)
    }

    fn shows(&self, now: Time, known: Known, ttl: u8) -> Option<u8> {
        let reach = self.election.reach(now, self.role, ttl);
        reach.filter(|_| known.fit && !self.yields(now, known))
    }

    pub(super) fn be_source(&mut self, settings: &TramSettings) {
        self.advertising.always();
        self.members.take_few(settings);
        self.is_source = true;
    }

    pub(super) fn set_advertise_interval(&mut self, now: Time, interval: Duration) {
        if interval == self.advertise_interval {
            return;
        }
        self.advertise_interval = interval;
        self.election.set_interval(interval);
        if interval == Duration::ZERO {
            self.timers.disarm(Timer::Advertise);
        } else if self.timers.is_armed(Timer::Advertise) {
            self.timers.arm_by(Timer::Advertise, now + interval);
        } else {
            self.timers.arm(Timer::Advertise, now + interval);
        }
    }

    /// Returns the interval at which `heads` heads together advertise at a steady rate (src: jrms).
    pub(super) fn interval_for(least: Duration, heads: u32) -> Duration {
        least
            .max(Duration::from_millis(u64::from(heads) * 1000 / HEADS_PER_SECOND))
            .min(Duration::from_secs(60))
    }

    pub(super) fn state(&self) -> HeadState {
        if self.resigning { HeadState::Resigning } else { self.members.state() }
    }

    pub(super) fn resign(&mut self, resigns: bool) {
        if self.resigning != resigns {
            self.resigning = resigns;
            self.hello_due = resigns && !self.members.children.is_empty();
        }
    }

    pub(super) fn on_solicitation(
        &mut self,
        now: Time,
        (from, ttl, alone): (NodeId, u8, bool),
        Solicitation { role, name }: Solicitation,
        known: Known,
    ) {
        if name != 0 {
            // A head that is wanted by name answers, even if it takes no members now.
            if name == known.name {
                self.answer(from, Answer::Advertise(ttl));
            }
            return;
        }
        let takes = self.state().takes(role != HeadRole::Never);
        // The source answers even if full: it takes receivers that need packets only it has.
        let reaches = |reach| alone || reach >= ttl;
        let shows = known.level == 1 || self.shows(now, known, ttl).is_some_and(reaches);
        if (takes || known.level == 1) && known.fit && shows {
            self.answer(from, Answer::Advertise(ttl));
        }
    }

    /// Fails if the receiver claims packets that cannot have been sent.
    pub(super) fn on_bind(
        &mut self,
        now: Time,
        from: NodeId,
        id: u64,
        bind: Bind,
        known: Known,
    ) -> Checked {
        // Repairs begin with the next packet, the first kept one, or the first available one.
        let next = known.high + 1;
        if bind.first_missing > next + JUMP_MAX {
            return Err(BadInput::Absurd);
        }
        let start = match (bind.first_missing, self.late_join) {
            (0, LateJoin::None) => next,
            (0, LateJoin::Limited) => self.cache.front.max(known.low),
            (0, LateJoin::Full) => known.low,
            (first_missing, _) => first_missing.max(known.low),
        };
        // Only the source has packets from before its cache.
        let rescued = known.level == 1 && start < self.cache.front;
        let before = self.state();
        let answer = match self.resigning || !known.fit {
            true => Err(RejectReason::Resigning),
            false => self.members.admit(now, from, (id, bind), (start, next), rescued),
        };
        if answer.is_ok() {
            self.timers.arm_by(Timer::Hello, now + self.hello_interval);
            self.succeed(now, Some(from), bind.name);
            self.advertising.on_member();
            if self.timers.is_armed(Timer::Advertise) && self.state() != before {
                // Unless receivers learn that fewer are taken, many more ask.
                self.advertisement_due = Some(self.advertising.last);
            }
        }
        self.answer(
            from,
            match answer {
                Ok(()) => Answer::Accept(Accept { start, level: known.level }),
                Err(reason) => Answer::Reject(reason),
            },
        );
        Ok(())
    }

    pub(super) fn succeed(&mut self, now: Time, node: Option<NodeId>, name: u64) {
        if self.members.succeed(now, node, name) {
            self.timers.arm_by(Timer::Namesakes, now);
        }
    }

    fn answer(&mut self, to: NodeId, answer: Answer) {
        if self.answers.len() < ANSWERS_MAX && !self.answers.contains(&(to, answer)) {
            self.answers.push_back((to, answer));
        }
    }

    /// Takes an acknowledgement of packets before `end`, and of up to `unheard` packets more.
    /// Fails if the sender is no member, which is then rejected, or the acknowledgement is absurd.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        (from, id): (NodeId, u64),
        ack: &Ack<'_>,
        (end, unheard): (u64, u64),
        can_repair: impl Fn(&Cache, u64) -> bool,
    ) -> Checked<Acknowledged> {
        if !self.members.recognise(now, (from, id), ack) {
            let parted = self.members.parted.has(now, from, id);
            if ack.leaves {
                self.members.amend(id, ack);
                if parted {
                    // The answer of a member that was asked whether it has left.
                    return Ok(Acknowledged { congested: false, left: false });
                }
            } else if !parted {
                // Another member may have joined in the sender's name: only this head knows.
                let pruned = self.pruned.iter().any(|pruned| *pruned == (from, id));
                let reason = if pruned { RejectReason::Pruned } else { RejectReason::NoMember };
                self.answer(from, Answer::Reject(reason));
            }
            return Err(BadInput::Foreign);
        }
        let front = self.cache.front;
        let acknowledged = self.members.acknowledge(now, from, ack, (front, end, unheard))?;
        if acknowledged.left {
            let (next, _) = self.members.parted.ask(now);
            next.into_iter().for_each(|at| self.timers.arm(Timer::Parted, at));
        }
        let fruitless = self.members.is_fruitless(from);
        let most = if fruitless { STUCK_ASKS } else { usize::MAX };
        let stuck = self.is_source && (fruitless || self.members.catches_up(from));
        let unreached = self.members.is_unreached(from);
        let missing = ack.missing().take_while(|sequence| *sequence < end + unheard);
        for sequence in missing.take(most) {
            if can_repair(&self.cache, sequence) {
                self.repairs.ask(now, sequence, from, (front, stuck, unreached));
            } else if self.passes_on && sequence >= front {
                self.repairs.await_for(now, sequence, from, front);
            }
        }
        if ack.hello_missing {
            self.answer(from, Answer::Hello);
        }
        Ok(acknowledged)
    }

    /// Asks members that fell silent if they are there: this head itself may have been cut off.
    pub(super) fn ask_silent(&mut self) {
        let silent = self.members.departures.silent().collect();
        self.ask(silent);
    }

    fn ask(&mut self, all: Vec<(NodeId, u64)>) {
        for (node, id) in all {
            if !self.silent.contains(&id) {
                self.silent.push(id);
            }
            self.answer(node, Answer::Hello);
        }
    }

    pub(super) fn next_repair(&mut self, now: Time) -> Option<Repair> {
        let repair = self.repairs.next(now, self.members.reach())?;
        self.members.on_repair(repair.sequence, repair.to);
        Some(repair)
    }

    pub(super) fn on_timeout(&mut self, now: Time, end: u64) -> Vec<NodeId> {
        let mut gone = Vec::new();
        if self.timers.take_due(Timer::Hello, now) {
            let silence = self.hello_interval * 2;
            (self.silent, gone) = self.members.look_after(now, silence, self.hellos_missed_max);
            let (span, filling) = ((self.cache.front, end), self.cache.is_filling());
            let waits = |node, sequence| self.repairs.is_queued(sequence, node);
            gone.extend(self.members.remove_standing(now, span, filling, waits));
            for node in &gone {
                self.answer(*node, Answer::Reject(RejectReason::NoMember));
            }
            self.hello_due = !self.members.children.is_empty();
            self.timers.arm(Timer::Hello, now + self.hello_interval);
        }
        if self.timers.take_due(Timer::Parted, now) {
            let (next, asked) = self.members.parted.ask(now);
            next.into_iter().for_each(|at| self.timers.arm(Timer::Parted, at));
            self.ask(asked);
        }
        if self.timers.take_due(Timer::Namesakes, now) {
            let (next, asked, lost) = self.members.ask_namesakes(now);
            next.into_iter().for_each(|at| self.timers.arm(Timer::Namesakes, at));
            self.ask(asked);
            for node in lost {
                self.answer(node, Answer::Reject(RejectReason::NoMember));
                gone.push(node);
            }
        }
        if self.timers.take_due(Timer::Advertise, now) {
            let (ring, again) = self.advertising.next(self.state(), self.advertise_interval);
            self.advertisement_due = ring;
            if self.advertise_interval > Duration::ZERO {
                self.timers.arm(Timer::Advertise, now + again);
            }
        }
        if self.timers.take_due(Timer::Lan, now) {
            self.lan_due = true;
            self.timers.arm(Timer::Lan, now + self.election.interval);
        }
        gone
    }

    pub(super) fn poll(
        &mut self,
        cx: &mut Cx<'_>,
        identity: &mut Identity,
        known: Known,
        quiet: bool,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if core::mem::take(&mut self.hello_due) {
            self.queue_hellos(quiet);
        }
        if let Some((to, answer)) = self.answers.pop_front() {
            let to = Destination::Node(to);
            return Some(match answer {
                Answer::Accept(accept) => {
                    identity.control(cx, to, u8::MAX, Body::Accept(accept), buf)
                }
                Answer::Reject(reason) => {
                    identity.control(cx, to, u8::MAX, Body::Reject(reason), buf)
                }
                Answer::Advertise(ttl) => {
                    let body = Body::Advertisement(self.advertisement(known, false));
                    identity.write(cx, ttl, body, buf);
                    Transmit::control(to)
                }
                Answer::Hello => self.hello(cx, identity, to, u8::MAX, known, buf),
            });
        }
        let lan = core::mem::take(&mut self.lan_due).then(|| self.election.lan()).flatten();
        let lan = lan.filter(|_| !self.yields(cx.now, known)).map(|ttl| (ttl, true));
        let ring = || {
            let ttl = self.advertisement_due.take()?;
            Some((self.shows(cx.now, known, ttl)?, false))
        };
        let (ttl, lan) = lan.or_else(ring)?;
        let body = Body::Advertisement(self.advertisement(known, lan));
        let to = Destination::Group(GroupId::SESSION);
        Some(identity.control(cx, to, ttl, body, buf))
    }

    fn queue_hellos(&mut self, quiet: bool) {
        let silent = core::mem::take(&mut self.silent);
        let due: Vec<NodeId> = self
            .members
            .iter()
            .filter(|(_, child)| !quiet || self.resigning || silent.contains(&child.id))
            .map(|(node, _)| node)
            .collect();
        self.silent = silent;
        due.into_iter().for_each(|node| self.answer(node, Answer::Hello));
    }

    fn hello(
        &self,
        cx: &mut Cx<'_>,
        identity: &mut Identity,
        to: Destination,
        ttl: u8,
        known: Known,
        buf: &mut Vec<u8>,
    ) -> Transmit {
        let mut ids = Vec::new();
        let hello = Hello::new(known.low, known.high, known.level);
        let hello = hello.saying(self.resigning, known.done);
        let body = Body::Hello(hello.asking(&self.silent, &mut ids));
        identity.control(cx, to, ttl, body, buf)
    }

    fn advertisement(&self, known: Known, lan: bool) -> Advertisement {
        let (members, members_max) = self.members.count();
        let Known { low, name, .. } = known;
        let role = self.role;
        // An unfit head takes no members, and has no level.
        let (state, level) = match known.fit {
            true => (self.state(), known.level),
            false => (HeadState::NotAccepting, 0),
        };
        Advertisement { state, role, level, members, members_max, low, lan, name }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.timers.next()
    }
}

pub(super) fn decode<'a>(datagram: &crate::Datagram<'a>, session: u64) -> Checked<Packet<'a>> {
    if !datagram.authenticated && !super::wire::is_sound(datagram.bytes) {
        return Err(BadInput::Checksum);
    }
    let packet = Packet::decode(datagram.bytes)?;
    if packet.session == session { Ok(packet) } else { Err(BadInput::Foreign) }
}

#[cfg(test)]
mod tests;
