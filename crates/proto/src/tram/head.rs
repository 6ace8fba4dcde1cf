//! A repair head: it takes members, keeps packets for them, answers their acknowledgements with repairs,
//! and shows that it is there. The source is one, and so is each receiver that may be.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use faircast_base::{BadInput, Cx, Duration, GroupId, NodeId, Time};

use super::cache::Cache;
use super::identity::Identity;
use super::members::{Acknowledged, Child, Members};
use super::settings::{
    Formation, HeadRole, LateJoin, Pruning, RepairCast, RightEdge, TramSettings,
};
use super::wire::{Accept, Ack, Advertisement, Bind, Body, HeadState, Hello, Packet, RejectReason};
use crate::timers::{Reason, Timers};
use crate::{Destination, Transmit};

/// Most answers that wait to be sent: more requests at once are not answered, and are repeated.
const ANSWERS_MAX: usize = 256;

/// Heads beside each other of which the advertisements of all take an interval of a second (src: jrms).
const HEADS_PER_SECOND: u64 = 30;

/// An answer to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Accept(Accept),
    Reject(RejectReason),
    /// An advertisement for one who was within this time to live.
    Advertise(u8),
    Hello,
}

/// Why it wants to be called.
#[derive(Clone, Copy, Debug)]
enum Timer {
    Advertise,
    Hello,
}

impl Reason for Timer {
    const ALL: &'static [Self] = &[Self::Advertise, Self::Hello];

    fn number(self) -> usize {
        self as usize
    }
}

/// A repair that was asked for, or was sent not long ago.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// Who asked, where they are one or two.
    nodes: [Option<NodeId>; 2],
    /// More than these asked.
    many: bool,
    queued: bool,
    /// It is not here yet, and goes on as soon as it is.
    awaited: bool,
    /// When it was sent, and whether to all.
    sent: Option<(Time, bool)>,
}

impl Asked {
    /// Another one asked. Each has its own where `alone`; who is pushed out then asks again.
    fn add(&mut self, from: NodeId, alone: bool) {
        match self.nodes {
            [None, _] => self.nodes[0] = Some(from),
            [Some(first), _] if first == from => {}
            [_, None] => self.nodes[1] = Some(from),
            [_, Some(second)] if second == from => {}
            _ if alone => (self.nodes, self.sent) = ([Some(from), None], None),
            _ => self.many = true,
        }
    }
}

/// A repair that is to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repair {
    pub(super) sequence: u64,
    pub(super) to: Destination,
    pub(super) ttl: u8,
}

/// What a head says of the session when it speaks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Its level; 0 while it has no head itself.
    pub(super) level: u8,
    /// Whether it is fit to have members: it has a head, and is not itself far behind.
    pub(super) fit: bool,
    /// The first packet that it can repair, and the last that it has heard of.
    pub(super) low: u64,
    pub(super) high: u64,
    /// Nothing follows after that.
    pub(super) done: bool,
}

/// The part of an end that others depend on.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) members: Members,
    pub(super) cache: Cache,
    role: HeadRole,
    late_join: LateJoin,
    cast: RepairCast,
    repair_interval: Duration,
    passes_on: bool,
    repairs: VecDeque<u64>,
    /// Those of what is not kept any more, for members that joined late; and whether the last packet was one:
    /// they share the way with others by turns.
    late_repairs: VecDeque<u64>,
    late_turn: bool,
    asked: BTreeMap<u64, Asked>,
    /// The second of two copies of a repair, for another member.
    second: Option<Repair>,
    answers: VecDeque<(NodeId, Answer)>,
    /// Hellos and advertisements to all that are due.
    hello_due: bool,
    advertisement_due: Option<u8>,
    silent: Vec<u64>,
    resigning: bool,
    ring: u8,
    ring_step: u8,
    ring_max: u8,
    advertise_interval: Duration,
    hello_interval: Duration,
    hellos_missed_max: u32,
    timers: Timers<Timer, 2>,
}

impl Head {
    /// A head whose first packet to keep is `start`.
    pub(super) fn new(settings: &TramSettings, role: HeadRole, start: u64) -> Self {
        let ttl = |hops: u32| u8::try_from(hops.max(1)).unwrap_or(u8::MAX);
        let floor = settings.cache_floor();
        let marks = (settings.cache_low, settings.cache_high);
        Self {
            members: Members::new(settings),
            cache: Cache::new(start, settings.cache_packets as usize, marks, floor),
            role,
            late_join: settings.late_join,
            cast: settings.repair,
            repair_interval: settings.repair_interval,
            passes_on: settings.pass_on,
            repairs: VecDeque::new(),
            late_repairs: VecDeque::new(),
            late_turn: false,
            asked: BTreeMap::new(),
            second: None,
            answers: VecDeque::new(),
            hello_due: false,
            advertisement_due: None,
            silent: Vec::new(),
            resigning: false,
            ring: ttl(settings.advertise_step),
            ring_step: ttl(settings.advertise_step),
            ring_max: ttl(settings.ttl),
            advertise_interval: settings.advertise_interval,
            hello_interval: settings.hello_interval,
            hellos_missed_max: settings.hellos_missed_max,
            timers: Timers::new(),
        }
    }

    /// It may have members from now on, and shows itself where heads do that unasked.
    pub(super) fn begin(&mut self, now: Time, formation: Formation) {
        if formation != Formation::Solicit {
            self.advertise_at(now);
        }
        self.timers.arm_by(Timer::Hello, now + self.hello_interval);
    }

    fn advertise_at(&mut self, at: Time) {
        self.timers.arm_by(Timer::Advertise, at);
    }

    /// Heads advertise themselves at this interval from now on; zero for no more.
    pub(super) fn set_advertise_interval(&mut self, now: Time, interval: Duration) {
        if interval == self.advertise_interval {
            return;
        }
        self.advertise_interval = interval;
        if interval == Duration::ZERO {
            self.timers.disarm(Timer::Advertise);
        } else if self.timers.is_armed(Timer::Advertise) {
            self.timers.arm_by(Timer::Advertise, now + interval);
        } else {
            self.timers.arm(Timer::Advertise, now + interval);
        }
    }

    /// How often so many heads should advertise themselves: so that all of them together are heard about as often
    /// (src: jrms).
    pub(super) fn interval_for(least: Duration, heads: u32) -> Duration {
        least
            .max(Duration::from_millis(u64::from(heads) * 1000 / HEADS_PER_SECOND))
            .min(Duration::from_secs(60))
    }

    /// Whom it takes now.
    pub(super) fn state(&self) -> HeadState {
        if self.resigning { HeadState::Resigning } else { self.members.state() }
    }

    /// It gives up being a head, or is one again.
    pub(super) fn resign(&mut self, resigns: bool) {
        if self.resigning != resigns {
            self.resigning = resigns;
            self.hello_due = resigns && !self.members.is_empty();
        }
    }

    /// Somebody looks for a head, within this time to live.
    pub(super) fn on_solicitation(&mut self, from: NodeId, ttl: u8, role: HeadRole, known: Known) {
        let takes = match self.state() {
            HeadState::Accepting => true,
            HeadState::AcceptingHeads => role != HeadRole::Never,
            HeadState::NotAccepting | HeadState::Resigning => false,
        };
        // The source answers though it is full: it takes those who need what only it has.
        if (takes || known.level == 1) && known.fit {
            self.answer(from, Answer::Advertise(ttl));
        }
    }

    /// Somebody wants this head.
    pub(super) fn on_bind(&mut self, now: Time, from: NodeId, id: u64, bind: Bind, known: Known) {
        // Its data begins with the next packet, with what is kept, or with what is still to be had.
        let next = known.high + 1;
        let start = match (bind.first_missing, self.late_join) {
            (0, LateJoin::None) => next,
            (0, LateJoin::Limited) => self.cache.front().max(known.low),
            (0, LateJoin::Full) => known.low,
            (first_missing, _) => first_missing.max(known.low),
        };
        // Only the source has what its cache has not: who needs that has nowhere else to go.
        let rescued = known.level == 1 && start < self.cache.front();
        let asks = (id, bind.role, bind.distance.max(1));
        let answer = match self.resigning || !known.fit {
            true => Err(RejectReason::Resigning),
            false => self.members.admit(now, from, asks, (start, next), rescued),
        };
        if answer.is_ok() {
            self.timers.arm_by(Timer::Hello, now + self.hello_interval);
        }
        self.answer(
            from,
            match answer {
                Ok(()) => Answer::Accept(Accept { start, level: known.level }),
                Err(reason) => Answer::Reject(reason),
            },
        );
    }

    fn answer(&mut self, to: NodeId, answer: Answer) {
        if self.answers.len() < ANSWERS_MAX && !self.answers.contains(&(to, answer)) {
            self.answers.push_back((to, answer));
        }
    }

    /// A member acknowledges what was sent before `end`, and up to `unheard` packets more.
    ///
    /// # Errors
    /// It is no member, who is told so, or its words cannot be true.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        from: NodeId,
        ack: &Ack<'_>,
        (end, unheard): (u64, u64),
        can_repair: impl Fn(&Cache, u64) -> bool,
    ) -> Result<Acknowledged, BadInput> {
        if !self.members.is_member(from) {
            if !ack.leaves {
                self.answer(from, Answer::Reject(RejectReason::NoMember));
            }
            return Err(BadInput::Foreign);
        }
        let acknowledged =
            self.members.acknowledge(now, from, ack, (self.cache.front(), end, unheard))?;
        for sequence in ack.missing() {
            if can_repair(&self.cache, sequence) {
                self.ask(now, sequence, from);
            } else if self.passes_on && sequence >= self.cache.front() {
                self.await_for(now, sequence, from);
            }
        }
        if ack.hello_missing {
            self.answer(from, Answer::Hello);
        }
        Ok(acknowledged)
    }

    /// A member wants a packet.
    fn ask(&mut self, now: Time, sequence: u64, from: NodeId) {
        let asked = self.asked.entry(sequence).or_default();
        let lately = asked.sent.filter(|(at, _)| now.since(*at) < self.repair_interval);
        match lately {
            // It is on its way to this one.
            Some((_, to_all)) if to_all || asked.nodes.contains(&Some(from)) => return,
            None if !asked.queued => *asked = Asked::default(),
            _ => {}
        }
        asked.add(from, self.cast == RepairCast::Unicast);
        if !core::mem::replace(&mut asked.queued, true) {
            let late = sequence < self.cache.front();
            if late { &mut self.late_repairs } else { &mut self.repairs }.push_back(sequence);
        }
    }

    /// A member wants a packet that is not here: this head asks for it itself.
    fn await_for(&mut self, now: Time, sequence: u64, from: NodeId) {
        self.forget_sent(now);
        let asked = self.asked.entry(sequence).or_default();
        if !asked.queued {
            if !core::mem::replace(&mut asked.awaited, true) {
                *asked = Asked { awaited: true, ..Asked::default() };
            }
            asked.add(from, self.cast == RepairCast::Unicast);
        }
    }

    /// A repair has come. Where it came to this head alone those who asked for it have it next.
    pub(super) fn on_repaired(&mut self, sequence: u64, came_to_all: bool) {
        let Some(asked) = self.asked.get_mut(&sequence).filter(|asked| asked.awaited) else {
            return;
        };
        if came_to_all {
            self.asked.remove(&sequence);
        } else {
            (asked.awaited, asked.queued) = (false, true);
            self.repairs.push_back(sequence);
        }
    }

    /// Whether a repair waits that is to be sent before new data.
    pub(super) fn has_repairs(&self) -> bool {
        let late = !self.late_repairs.is_empty() && !self.late_turn;
        self.second.is_some() || !self.repairs.is_empty() || late
    }

    /// New data was sent: it is the turn of those who came late.
    pub(super) fn on_data_sent(&mut self) {
        self.late_turn = false;
    }

    /// The repair that is to be sent now.
    pub(super) fn next_repair(&mut self, now: Time) -> Option<Repair> {
        if let Some(second) = self.second.take() {
            return Some(second);
        }
        let sequence = self.repairs.pop_front().or_else(|| {
            self.late_turn = true;
            self.late_repairs.pop_front()
        })?;
        self.forget_sent(now);
        let asked = self.asked.get_mut(&sequence)?;
        asked.queued = false;
        let to_all = match self.cast {
            RepairCast::Auto => asked.many,
            RepairCast::Unicast => false,
            RepairCast::Scope => true,
        };
        // Those who were sent it alone not long ago remain, so that a third one is not sent it alone too.
        let before = asked.sent.replace((now, to_all)).is_some();
        let ttl = self.members.reach();
        if to_all {
            let to = Destination::Group(GroupId::SESSION);
            return Some(Repair { sequence, to, ttl });
        }
        let to = |node| Repair { sequence, to: Destination::Node(node), ttl: u8::MAX };
        let [first, second] = asked.nodes.map(|node| node.map(to));
        match (first, second) {
            // Of two the first has had it.
            (_, Some(second)) if before => Some(second),
            (first, second) => {
                self.second = second;
                first
            }
        }
    }

    /// Forgets repairs that were sent long ago, and packets that will not be kept any more, before they become many.
    fn forget_sent(&mut self, now: Time) {
        if self.asked.len() > 2 * self.repairs.len() + 1024 {
            let (interval, front) = (self.repair_interval, self.cache.front());
            self.asked.retain(|sequence, asked| {
                asked.queued
                    || asked.awaited && *sequence >= front
                    || asked.sent.is_some_and(|(at, _)| now.since(at) < interval)
            });
        }
    }

    /// A member is removed and told why.
    pub(super) fn disown(&mut self, node: NodeId, reason: RejectReason) {
        if self.members.remove(node).is_some() {
            self.answer(node, Answer::Reject(reason));
        }
    }

    /// Removes members that are too slow for the good of the whole; `worst` is the worst loss of all receivers, and
    /// `highest` the last packet sent (src: jrms).
    pub(super) fn prune(&mut self, settings: &TramSettings, worst: u16, highest: u64) {
        let slow: Vec<NodeId> = match settings.pruning {
            Pruning::Off => return,
            // Whoever is as bad as the worst, but for a twentieth.
            Pruning::Centralised => {
                let is_worst =
                    |loss: u16| loss > 0 && 21 * u32::from(loss) >= 20 * u32::from(worst);
                let own = self.members.iter().filter(|(_, child)| !child.of_subtree);
                own.filter(|(_, child)| is_worst(child.loss)).map(|(node, _)| node).collect()
            }
            // The one that is furthest behind.
            Pruning::Decentralised => {
                // A plain right edge lies by as much as a window less beyond what is here.
                let windows = match settings.right_edge {
                    RightEdge::Rounded => settings.prune_window,
                    RightEdge::Plain => settings.prune_window - 1.0,
                };
                let window = u64::from(settings.ack_window);
                let behind = windows * window as f64;
                let limit = highest.saturating_sub(behind as u64);
                // Its word is up to a window old. So it must also keep the window closed, and by itself: who allows
                // less than the least window beyond what it has is held up by its own members.
                let plain = settings.right_edge == RightEdge::Plain;
                let holds = |child: &Child| {
                    child.allowed <= highest && child.allowed + 1 >= child.first_missing + window
                };
                let late = self.members.iter().filter(|(_, child)| {
                    !child.of_subtree && child.first_missing < limit && (!plain || holds(child))
                });
                late.min_by_key(|(_, child)| child.first_missing)
                    .map(|(node, _)| node)
                    .into_iter()
                    .collect()
            }
        };
        slow.into_iter().for_each(|node| self.disown(node, RejectReason::Pruned));
    }

    /// Takes the passing of time. Returns who has been given up.
    pub(super) fn on_timeout(&mut self, now: Time) -> Vec<NodeId> {
        let mut gone = Vec::new();
        if self.timers.take_due(Timer::Hello, now) {
            let silence = self.hello_interval * 2;
            (self.silent, gone) = self.members.look_after(now, silence, self.hellos_missed_max);
            for node in &gone {
                self.answer(*node, Answer::Reject(RejectReason::NoMember));
            }
            self.hello_due = !self.members.is_empty();
            self.timers.arm(Timer::Hello, now + self.hello_interval);
        }
        if self.timers.take_due(Timer::Advertise, now) {
            self.advertisement_due = Some(self.ring);
            self.ring = self.ring.saturating_add(self.ring_step).min(self.ring_max);
            if self.advertise_interval > Duration::ZERO {
                self.timers.arm(Timer::Advertise, now + self.advertise_interval);
            }
        }
        gone
    }

    /// The next control packet, written into `buf`. `quiet` says that hellos are only for those who must answer:
    /// all others hear this head anyway.
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
                    let body = Body::Advertisement(self.advertisement(known));
                    identity.write(cx, ttl, body, buf);
                    Transmit::control(to)
                }
                Answer::Hello => self.hello(cx, identity, to, u8::MAX, known, buf),
            });
        }
        if let Some(ttl) = self.advertisement_due.take().filter(|_| known.fit) {
            let body = Body::Advertisement(self.advertisement(known));
            let to = Destination::Group(GroupId::SESSION);
            return Some(identity.control(cx, to, ttl, body, buf));
        }
        None
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

    fn advertisement(&self, known: Known) -> Advertisement {
        let (members, members_max) = self.members.count();
        let (state, role, level, low) = (self.state(), self.role, known.level, known.low);
        Advertisement { state, role, level, members, members_max, low }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.timers.next()
    }
}

/// A packet that was read, from somebody of this session.
pub(super) fn decode<'a>(
    datagram: &crate::Datagram<'a>,
    session: u64,
) -> Result<Packet<'a>, BadInput> {
    if !datagram.authenticated && !super::wire::is_sound(datagram.bytes) {
        return Err(BadInput::Checksum);
    }
    let packet = Packet::decode(datagram.bytes)?;
    if packet.session == session { Ok(packet) } else { Err(BadInput::Foreign) }
}
