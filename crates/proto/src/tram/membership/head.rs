//! Head: takes members, replies their requests and advertises. The source is a head too.

mod pruning;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Cx, Duration, GroupId, NodeId, Time};

use super::advertising::Advertising;
use super::election::{Election, Rank};
use super::members::{Acknowledged, Members, PacketSpan, Questions};
use crate::timers::{Timers, reasons};
use crate::tram::identity::Identity;
use crate::tram::settings::{Formation, HeadRole, LateJoin, TramSettings};
use crate::tram::window::{Cache, JUMP_MAX, RepairRequest, Repairer};
use crate::tram::wire::{
    Accept, Ack, Advertisement, Bind, Body, HeadState, Hello, RejectReason, Solicitation,
};
use crate::{Destination, Transmit};

/// Most waiting replies: more requests at once get no reply, and are repeated.
const REPLIES_MAX: usize = 256;

/// Most repairs for one acknowledgement of a member without progress; chosen.
const STALLING_REPAIRS_MAX: usize = 8;

/// Neighbouring heads that all advertise within one second (src: jrms).
const HEADS_PER_SECOND: u64 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Accept(Accept),
    Reject(RejectReason),
    /// Advertisement with this time to live.
    Advertisement(u8),
    Hello,
}

reasons! {
    enum Timer {
        Advertise,
        Hello,
        /// Advertisement to the LAN, for its election.
        Lan,
        /// Question to members that have said goodbye.
        Leaves,
        /// Question to earlier members of a name.
        Superseded,
    }
}

/// State of a receiver or source as a head, which its packets report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadStatus {
    /// Level of the head; 0 while it has no head itself.
    pub(crate) level: u8,
    /// True if the head can have members: it has a head, and is not far behind itself.
    pub(crate) can_serve: bool,
    /// First packet that the head can repair, and highest packet number that it knows.
    pub(crate) low: u64,
    pub(crate) high: u64,
    /// First packet in the cache. The source can repair earlier packets too.
    pub(crate) first_kept: u64,
    pub(crate) done: bool,
    pub(crate) id: u64,
    /// Number of the head's name; 0 without a name.
    pub(crate) name: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Head {
    pub(crate) members: Members,
    role: HeadRole,
    late_join: LateJoin,
    /// True while members are to look for another head.
    resigning: bool,
    replies: VecDeque<(NodeId, Reply)>,
    hello_due: bool,
    hello_interval: Duration,
    hellos_missed_max: u32,
    /// Numbers of the members that the next hellos ask for an acknowledgement.
    asked: Vec<u64>,
    /// Members that were pruned, with their numbers, to repeat the reason.
    pruned: VecDeque<(NodeId, u64)>,
    election: Election,
    /// True if an advertisement to the LAN is due.
    lan_due: bool,
    pub(crate) advertising: Advertising,
    advertise_interval: Duration,
    /// Time to live of the advertisement that is due.
    advertisement_due: Option<u8>,
    timers: Timers<Timer, 5>,
}

impl Head {
    pub(crate) fn new(settings: &TramSettings, role: HeadRole) -> Self {
        Self {
            members: Members::new(settings),
            role,
            late_join: settings.late_join,
            election: Election::new(settings),
            advertising: Advertising::new(settings),
            advertise_interval: settings.advertise_interval,
            hello_interval: settings.hello_interval,
            hellos_missed_max: settings.hellos_missed_max,
            ..Self::default()
        }
    }

    pub(crate) fn begin(&mut self, now: Time, formation: Formation) {
        if formation != Formation::Solicit {
            self.timers.arm_by(Timer::Advertise, now);
        }
        self.timers.arm_by(Timer::Hello, now + self.hello_interval);
        self.become_candidate(now);
    }

    /// Starts the candidacy for the LAN. A candidate may lack a head: others wait for it.
    pub(crate) fn become_candidate(&mut self, now: Time) {
        let is_new = self.role != HeadRole::Never && !self.timers.is_armed(Timer::Lan);
        if is_new && self.election.become_candidate(now) {
            self.timers.arm(Timer::Lan, now);
        }
    }

    /// Begins anew without members. The election of the LAN goes on.
    pub(crate) fn restart(&mut self, settings: &TramSettings) {
        let election = core::mem::replace(&mut self.election, Election::new(settings));
        *self = Self { election, ..Self::new(settings, self.role) };
    }

    pub(crate) fn on_advertisement(
        &mut self,
        now: Time,
        sender: (NodeId, u64, u8),
        advertisement: &Advertisement,
    ) {
        self.election.on_advertisement(now, sender, advertisement);
    }

    fn yields(&self, now: Time, status: HeadStatus) -> bool {
        let level = if status.can_serve { status.level } else { 0 };
        self.election.yields(now, Rank::new(self.role, level, status.id))
    }

    pub(crate) fn awaits_elected(&self, now: Time, id: u64) -> bool {
        self.election.awaits_elected(now, self.role, id)
    }

    fn advertises_within(&self, now: Time, status: HeadStatus, ttl: u8) -> Option<u8> {
        let reach = self.election.reach(now, self.role, ttl);
        reach.filter(|_| status.can_serve && !self.yields(now, status))
    }

    pub(crate) fn be_source(&mut self, settings: &TramSettings) {
        self.advertising.never_back_off();
        self.members.be_source(settings);
    }

    pub(crate) fn set_advertise_interval(&mut self, now: Time, interval: Duration) {
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
    pub(crate) fn interval_for(least: Duration, heads: u32) -> Duration {
        least
            .max(Duration::from_millis(u64::from(heads) * 1000 / HEADS_PER_SECOND))
            .min(Duration::from_secs(60))
    }

    pub(crate) fn state(&self) -> HeadState {
        if self.resigning { HeadState::Resigning } else { self.members.state() }
    }

    pub(crate) fn resign(&mut self, resigns: bool) {
        if self.resigning != resigns {
            self.resigning = resigns;
            self.hello_due = resigns && !self.members.is_empty();
        }
    }

    pub(crate) fn on_solicitation(
        &mut self,
        now: Time,
        (from, ttl, alone): (NodeId, u8, bool),
        Solicitation { role, name }: Solicitation,
        status: HeadStatus,
    ) {
        if name != 0 {
            // A head that is wanted by name replies, even if it takes no members now.
            if name == status.name {
                self.reply(from, Reply::Advertisement(ttl));
            }
            return;
        }
        let takes = self.state().takes(role != HeadRole::Never);
        // The source replies even if full: it takes receivers that need packets only it has.
        let reaches = |reach| alone || reach >= ttl;
        let advertises =
            status.level == 1 || self.advertises_within(now, status, ttl).is_some_and(reaches);
        if (takes || status.level == 1) && status.can_serve && advertises {
            self.reply(from, Reply::Advertisement(ttl));
        }
    }

    /// Fails if the receiver claims packets that cannot have been sent.
    pub(crate) fn on_bind(
        &mut self,
        now: Time,
        from: NodeId,
        id: u64,
        bind: Bind,
        status: HeadStatus,
    ) -> Checked {
        // Repairs begin with the next packet, the first kept one, or the first available one.
        let next = status.high + 1;
        if bind.first_missing > next + JUMP_MAX {
            return Err(BadInput::Absurd);
        }
        let start = match (bind.first_missing, self.late_join) {
            (0, LateJoin::None) => next,
            (0, LateJoin::Limited) => status.first_kept.max(status.low),
            (0, LateJoin::Full) => status.low,
            (first_missing, _) => first_missing.max(status.low),
        };
        // Only the source has packets from before its cache.
        let needs_reread = status.level == 1 && start < status.first_kept;
        let before = self.state();
        let outcome = match self.resigning || !status.can_serve {
            true => Err(RejectReason::Resigning),
            false => self.members.admit(now, from, (id, bind), (start, next), needs_reread),
        };
        if outcome.is_ok() {
            self.timers.arm_by(Timer::Hello, now + self.hello_interval);
            self.supersede(now, Some(from), bind.name);
            self.advertising.on_member();
            if self.timers.is_armed(Timer::Advertise) && self.state() != before {
                // Unless receivers learn that fewer are taken, many more ask.
                self.advertisement_due = Some(self.advertising.last);
            }
        }
        self.reply(
            from,
            match outcome {
                Ok(()) => Reply::Accept(Accept { start, level: status.level }),
                Err(reason) => Reply::Reject(reason),
            },
        );
        Ok(())
    }

    pub(crate) fn supersede(&mut self, now: Time, node: Option<NodeId>, name: u64) {
        if self.members.supersede(now, node, name) {
            self.timers.arm_by(Timer::Superseded, now);
        }
    }

    fn reply(&mut self, to: NodeId, reply: Reply) {
        if self.replies.len() < REPLIES_MAX && !self.replies.contains(&(to, reply)) {
            self.replies.push_back((to, reply));
        }
    }

    /// Takes an acknowledgement, and hands the repairs that it requests to `repairer`. Fails if the
    /// sender is no member, which is then rejected, or the acknowledgement is absurd.
    pub(crate) fn on_ack(
        &mut self,
        now: Time,
        (from, id): (NodeId, u64),
        ack: &Ack<'_>,
        (end, unknown_max): (u64, u64),
        repairer: &mut Repairer,
        can_repair: impl Fn(&Cache, u64) -> bool,
    ) -> Checked<Acknowledged> {
        if !self.members.recognise(now, (from, id), ack) {
            return self.on_ack_of_other(now, (from, id), ack);
        }
        let span = PacketSpan { first_kept: repairer.cache.first, end, unknown_max };
        let acknowledged = self.members.acknowledge(now, from, ack, span)?;
        if acknowledged.left {
            let (next, _) = self.members.leaves.ask(now);
            next.into_iter().for_each(|at| self.timers.arm(Timer::Leaves, at));
        }
        let stalling = self.members.is_stalling(from);
        let request = RepairRequest {
            from,
            may_alternate: stalling || self.members.catches_up(from),
            unreached: self.members.is_unreached(from),
        };
        let most = if stalling { STALLING_REPAIRS_MAX } else { usize::MAX };
        let missing = ack.missing().take_while(|sequence| *sequence < end + unknown_max);
        repairer.on_request(now, missing.take(most), request, can_repair);
        if ack.hello_missing {
            self.reply(from, Reply::Hello);
        }
        Ok(acknowledged)
    }

    fn on_ack_of_other(
        &mut self,
        now: Time,
        (from, id): (NodeId, u64),
        ack: &Ack<'_>,
    ) -> Checked<Acknowledged> {
        let has_left = self.members.leaves.contains(now, from, id);
        if ack.leaves {
            self.members.amend(id, ack);
            if has_left {
                // The answer of a member that was asked whether it has left.
                return Ok(Acknowledged { congested: false, left: false });
            }
        } else if !has_left {
            // Another member may have joined in the sender's name: only this head knows.
            let pruned = self.pruned.iter().any(|pruned| *pruned == (from, id));
            let reason = if pruned { RejectReason::Pruned } else { RejectReason::NoMember };
            self.reply(from, Reply::Reject(reason));
        }
        Err(BadInput::Foreign)
    }

    /// Asks members that fell silent if they are there: this head itself may have been cut off.
    pub(crate) fn ask_silent(&mut self) {
        let silent = self.members.departures.silent().collect();
        self.ask(silent);
    }

    fn ask(&mut self, all: Vec<(NodeId, u64)>) {
        for (node, id) in all {
            if !self.asked.contains(&id) {
                self.asked.push(id);
            }
            self.reply(node, Reply::Hello);
        }
    }

    /// Handles due timers, with packets before `end`. Returns the members that were removed.
    pub(crate) fn on_timeout(&mut self, now: Time, end: u64, repairer: &Repairer) -> Vec<NodeId> {
        let mut lost = Vec::new();
        if self.timers.take_due(Timer::Hello, now) {
            lost = self.on_hello_timer(now, end, repairer);
        }
        if self.timers.take_due(Timer::Leaves, now) {
            let (next, asked) = self.members.leaves.ask(now);
            next.into_iter().for_each(|at| self.timers.arm(Timer::Leaves, at));
            self.ask(asked);
        }
        if self.timers.take_due(Timer::Superseded, now) {
            let questions = self.members.ask_superseded(now);
            let Questions { next_at, asked, lost: unanswered } = questions;
            next_at.into_iter().for_each(|at| self.timers.arm(Timer::Superseded, at));
            self.ask(asked);
            for node in unanswered {
                self.reply(node, Reply::Reject(RejectReason::NoMember));
                lost.push(node);
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
        lost
    }

    fn on_hello_timer(&mut self, now: Time, end: u64, repairer: &Repairer) -> Vec<NodeId> {
        let silence = self.hello_interval * 2;
        let (asked, mut lost) = self.members.check_silence(now, silence, self.hellos_missed_max);
        self.asked = asked;
        let span = (repairer.cache.first, end);
        let waits = |node, sequence| repairer.is_queued(sequence, node);
        lost.extend(self.members.remove_stalled(now, span, repairer.cache.is_filling(), waits));
        for node in &lost {
            self.reply(*node, Reply::Reject(RejectReason::NoMember));
        }
        self.hello_due = !self.members.is_empty();
        self.timers.arm(Timer::Hello, now + self.hello_interval);
        lost
    }

    pub(crate) fn poll(
        &mut self,
        cx: &mut Cx<'_>,
        identity: &mut Identity,
        status: HeadStatus,
        quiet: bool,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if core::mem::take(&mut self.hello_due) {
            self.queue_hellos(quiet);
        }
        if let Some((to, reply)) = self.replies.pop_front() {
            let to = Destination::Node(to);
            return Some(match reply {
                Reply::Accept(accept) => {
                    identity.control(cx, to, u8::MAX, Body::Accept(accept), buf)
                }
                Reply::Reject(reason) => {
                    identity.control(cx, to, u8::MAX, Body::Reject(reason), buf)
                }
                Reply::Advertisement(ttl) => {
                    let body = Body::Advertisement(self.advertisement(status, false));
                    identity.write(cx, ttl, body, buf);
                    Transmit::control(to)
                }
                Reply::Hello => self.hello(cx, identity, to, u8::MAX, status, buf),
            });
        }
        let lan = core::mem::take(&mut self.lan_due).then(|| self.election.lan()).flatten();
        let lan = lan.filter(|_| !self.yields(cx.now, status)).map(|ttl| (ttl, true));
        let ring = || {
            let ttl = self.advertisement_due.take()?;
            Some((self.advertises_within(cx.now, status, ttl)?, false))
        };
        let (ttl, lan) = lan.or_else(ring)?;
        let body = Body::Advertisement(self.advertisement(status, lan));
        let to = Destination::Group(GroupId::SESSION);
        Some(identity.control(cx, to, ttl, body, buf))
    }

    /// Queues a hello to each member; with `quiet` only to those that have a reason to get one.
    fn queue_hellos(&mut self, quiet: bool) {
        let needs_hello = |id| !quiet || self.resigning || self.asked.contains(&id);
        let members = self.members.iter().filter(|(_, member)| needs_hello(member.id));
        let due: Vec<NodeId> = members.map(|(node, _)| node).collect();
        due.into_iter().for_each(|node| self.reply(node, Reply::Hello));
    }

    fn hello(
        &self,
        cx: &mut Cx<'_>,
        identity: &mut Identity,
        to: Destination,
        ttl: u8,
        status: HeadStatus,
        buf: &mut Vec<u8>,
    ) -> Transmit {
        let mut ids = Vec::new();
        let hello = Hello::new(status.low, status.high, status.level);
        let hello = hello.saying(self.resigning, status.done);
        let body = Body::Hello(hello.asking(&self.asked, &mut ids));
        identity.control(cx, to, ttl, body, buf)
    }

    fn advertisement(&self, status: HeadStatus, lan: bool) -> Advertisement {
        let (members, members_max) = self.members.count();
        let HeadStatus { low, name, .. } = status;
        let role = self.role;
        // An unfit head takes no members, and has no level.
        let (state, level) = match status.can_serve {
            true => (self.state(), status.level),
            false => (HeadState::NotAccepting, 0),
        };
        Advertisement { state, role, level, members, members_max, low, lan, name }
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.timers.next()
    }
}

#[cfg(test)]
mod tests;
