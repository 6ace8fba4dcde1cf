//! Head: takes members, answers their requests and advertises. The source is a head too.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Cx, Duration, GroupId, NodeId, Time};

use super::advertising::Advertising;
use super::election::{Election, Rank};
use super::members::{Member, Members, PacketSpan, Progress};
use crate::timers::{Timers, reasons};
use crate::tram::identity::Identity;
use crate::tram::settings::{Formation, HeadRole, LateJoin, Pruning, RightEdge, TramSettings};
use crate::tram::window::{Cache, JUMP_MAX, RepairRequest, Repairer};
use crate::tram::wire::{
    ASKED_MAX, Accept, Ack, Advertisement, Bind, Body, HeadState, Hello, RejectReason, Solicitation,
};
use crate::{Destination, Transmit, keep_last};

/// Most waiting replies: more requests at once get no reply, and are repeated.
const REPLIES_MAX: usize = 256;

/// Most repairs for one acknowledgement of a member without progress; chosen.
const STALLING_REPAIRS_MAX: usize = 8;

/// Windows that a member may be behind before decentralised pruning (src: tram s3.3).
const PRUNE_WINDOW: f64 = 1.5;

/// Most removed members that get the reason again; chosen.
const PRUNED_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Accept(Accept),
    Reject(RejectReason),
    Advertisement(u8),
    Hello,
}

reasons! {
    enum Timer {
        Advertise,
        Hello,
        Lan,
        Leaves,
        Superseded,
    }
}

/// State of a receiver or source as a head, which its packets report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadStatus {
    /// 0 while the head has no head itself.
    pub(crate) level: u8,
    /// True if the head can have members: it has a head, and is not far behind itself.
    pub(crate) can_serve: bool,
    pub(crate) low: u64,
    pub(crate) high: u64,
    /// First packet in the cache. The source can repair earlier packets too.
    pub(crate) first_kept: u64,
    pub(crate) done: bool,
    pub(crate) id: u64,
    pub(crate) name: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Head {
    pub(crate) members: Members,
    role: HeadRole,
    late_join: LateJoin,
    resigning: bool,
    replies: VecDeque<(NodeId, Reply)>,
    hello_due: bool,
    hello_interval: Duration,
    hellos_missed_max: u32,
    /// Numbers of the members that the next hellos ask for an acknowledgement.
    asked: Vec<u64>,
    /// Members that were pruned, with their numbers, to repeat the reason.
    pruned: VecDeque<(NodeId, u64)>,
    pub(crate) election: Election,
    lan_due: bool,
    pub(crate) advertising: Advertising,
    advertise_interval: Duration,
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

    fn yields(&self, now: Time, status: HeadStatus) -> bool {
        let level = if status.can_serve { status.level } else { 0 };
        self.election.yields(now, Rank::new(self.role, level, status.id))
    }

    fn advertises_within(&self, now: Time, status: HeadStatus, ttl: u8) -> Option<u8> {
        let reach = self.election.reach(now, self.role, ttl);
        reach.filter(|_| status.can_serve && !self.yields(now, status))
    }

    pub(crate) fn be_source(&mut self, settings: &TramSettings) {
        self.advertising.backs_off = false;
        self.members.be_source(settings);
    }

    pub(crate) fn set_advertise_interval(&mut self, now: Time, interval: Duration) {
        if interval == self.advertise_interval {
            return;
        }
        self.advertise_interval = interval;
        self.election.interval = interval.max(self.election.interval_min);
        if interval == Duration::ZERO {
            self.timers.disarm(Timer::Advertise);
        } else {
            self.timers.arm_by(Timer::Advertise, now + interval);
        }
    }

    pub(crate) fn state(&self) -> HeadState {
        if self.resigning { HeadState::Resigning } else { self.members.state() }
    }

    pub(crate) fn resign(&mut self, resigns: bool) {
        if self.resigning != resigns {
            self.resigning = resigns;
            self.hello_due = resigns && !self.members.by_node.is_empty();
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
            self.advertising.without_members = 0;
            if self.timers.is_armed(Timer::Advertise) && self.state() != before {
                // Unless receivers learn that fewer are taken, many more ask.
                self.advertisement_due = Some(self.advertising.last);
            }
        }
        let accept = Reply::Accept(Accept { start, level: status.level });
        self.reply(from, outcome.map_or_else(Reply::Reject, |()| accept));
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

    /// Takes an acknowledgement, and hands the repairs that it requests to `repairer`. Returns true
    /// for a member. Fails if the sender is none, which is rejected then, or claims absurd numbers.
    pub(crate) fn on_ack(
        &mut self,
        now: Time,
        (from, id): (NodeId, u64),
        ack: &Ack<'_>,
        (end, unknown_max): (u64, u64),
        repairer: &mut Repairer,
        can_repair: impl Fn(&Cache, u64) -> bool,
    ) -> Checked<bool> {
        if !self.members.recognise(now, (from, id), ack) {
            return self.on_ack_of_other(now, (from, id), ack);
        }
        let span = PacketSpan { first_kept: repairer.cache.first, end, unknown_max };
        self.members.acknowledge(now, from, ack, span)?;
        if ack.leaves {
            let (next, _) = self.members.leaves.ask(now);
            next.into_iter().for_each(|at| self.timers.arm(Timer::Leaves, at));
        }
        let member = self.members.by_node.get(&from);
        let unreached = member.is_some_and(Member::is_unreached);
        let catches_up = member.is_some_and(Member::catches_up);
        let request = RepairRequest { from, may_alternate: unreached || catches_up, unreached };
        let most = if unreached && !catches_up { STALLING_REPAIRS_MAX } else { usize::MAX };
        let missing = ack.missing().take_while(|sequence| *sequence < end + unknown_max);
        repairer.on_request(now, missing.take(most), request, can_repair);
        if ack.hello_missing {
            self.reply(from, Reply::Hello);
        }
        Ok(true)
    }

    fn on_ack_of_other(
        &mut self,
        now: Time,
        (from, id): (NodeId, u64),
        ack: &Ack<'_>,
    ) -> Checked<bool> {
        let has_left = self.members.leaves.position(now, from, id).is_some();
        if ack.leaves {
            self.members.departures.amend(id, ack.short.then(|| ack.fate_of_leaver()));
            if has_left {
                // The answer of a member that was asked whether it has left.
                return Ok(false);
            }
        } else if !has_left {
            // Another member may have joined in the sender's name: only this head knows.
            let pruned = self.pruned.iter().any(|pruned| *pruned == (from, id));
            let reason = if pruned { RejectReason::Pruned } else { RejectReason::NoMember };
            self.reply(from, Reply::Reject(reason));
        }
        Err(BadInput::Foreign)
    }

    pub(crate) fn ask(&mut self, all: Vec<(NodeId, u64)>) {
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
            let silence = self.hello_interval * 2;
            (self.asked, lost) = self.members.check_silence(now, silence, self.hellos_missed_max);
            let span = (repairer.cache.first, end);
            let waits = |node, sequence| repairer.is_queued(sequence, node);
            lost.extend(self.members.remove_stalled(now, span, repairer.cache.is_filling(), waits));
            for node in &lost {
                self.reply(*node, Reply::Reject(RejectReason::NoMember));
            }
            self.hello_due = !self.members.by_node.is_empty();
            self.timers.arm(Timer::Hello, now + self.hello_interval);
        }
        if self.timers.take_due(Timer::Leaves, now) {
            let (next, asked) = self.members.leaves.ask(now);
            next.into_iter().for_each(|at| self.timers.arm(Timer::Leaves, at));
            self.ask(asked);
        }
        if self.timers.take_due(Timer::Superseded, now) {
            let (next_at, asked, unanswered) = self.members.ask_superseded(now);
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

    pub(crate) fn poll(
        &mut self,
        cx: &mut Cx<'_>,
        identity: &mut Identity,
        status: HeadStatus,
        quiet: bool,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if core::mem::take(&mut self.hello_due) {
            // With `quiet`, only members that have a reason to get a hello get one.
            let needs_hello = |id| !quiet || self.resigning || self.asked.contains(&id);
            let members = self.members.iter().filter(|(_, member)| needs_hello(member.id));
            let due: Vec<NodeId> = members.map(|(node, _)| node).collect();
            due.into_iter().for_each(|node| self.reply(node, Reply::Hello));
        }
        if let Some((to, reply)) = self.replies.pop_front() {
            let asked: Vec<u8>;
            let (ttl, body) = match reply {
                Reply::Accept(accept) => (u8::MAX, Body::Accept(accept)),
                Reply::Reject(reason) => (u8::MAX, Body::Reject(reason)),
                Reply::Advertisement(ttl) => {
                    (ttl, Body::Advertisement(self.advertisement(status, false)))
                }
                Reply::Hello => {
                    let ids = self.asked.iter().take(ASKED_MAX);
                    asked = ids.flat_map(|id| id.to_be_bytes()).collect();
                    let HeadStatus { level, low, high, done, .. } = status;
                    let resigns = self.resigning;
                    (u8::MAX, Body::Hello(Hello { resigns, level, low, high, done, asked: &asked }))
                }
            };
            identity.packet(cx, ttl, body).write(buf);
            return Some(Transmit::control(Destination::Node(to)));
        }
        let lan_due = core::mem::take(&mut self.lan_due) && !self.yields(cx.now, status);
        let lan = lan_due.then_some((self.election.lan, true)).filter(|(ttl, _)| *ttl > 0);
        let ring = || {
            let ttl = self.advertisement_due.take()?;
            Some((self.advertises_within(cx.now, status, ttl)?, false))
        };
        let (ttl, lan) = lan.or_else(ring)?;
        let body = Body::Advertisement(self.advertisement(status, lan));
        identity.packet(cx, ttl, body).write(buf);
        let to = Destination::Group(GroupId::SESSION);
        Some(Transmit { time_to_live: ttl, ..Transmit::control(to) })
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

    /// Removes members too slow for the group; `worst` is the worst loss of all (src: jrms).
    pub(crate) fn prune(&mut self, settings: &TramSettings, worst: u16, highest: u64) {
        let window = u64::from(settings.ack_window);
        let is_rounded = settings.right_edge == RightEdge::Rounded;
        // A member that catches up lacks packets sent before it joined, whatever its path.
        let may_be_slow = |member: &Member| !member.subtree.loss_is_below && !member.catches_up();
        let members = self.members.iter().filter(|(_, member)| may_be_slow(member));
        // A member that allows less than a window is delayed by its own members, perhaps forged.
        let has_window = |it: &Progress| it.allowed + 1 >= it.first_missing + window;
        let slow: Vec<NodeId> = match settings.pruning {
            Pruning::Off => return,
            Pruning::Centralised => {
                let is_worst =
                    |loss: u16| loss > 0 && 21 * u32::from(loss) >= 20 * u32::from(worst);
                // A member that allows a window more does not delay the source.
                let holds = |it: &Progress| it.allowed < highest + window && has_window(it);
                let slow =
                    members.filter(|(_, it)| holds(&it.progress) && is_worst(it.subtree.loss));
                slow.map(|(node, _)| node).collect()
            }
            Pruning::Decentralised => {
                // A plain right edge is nearer to the received packets by up to a window.
                let windows = if is_rounded { PRUNE_WINDOW } else { PRUNE_WINDOW - 1.0 };
                let limit = highest.saturating_sub((windows * window as f64) as u64);
                // An acknowledgement is up to a window old: slow members also keep it closed.
                let holds = |it: &Progress| is_rounded || it.allowed <= highest && has_window(it);
                let late = members
                    .filter(|(_, it)| it.progress.first_missing < limit && holds(&it.progress));
                let last = late.min_by_key(|(_, it)| it.progress.first_missing);
                last.map(|(node, _)| node).into_iter().collect()
            }
        };
        for node in slow {
            if let Some(id) = self.members.prune(node) {
                keep_last(&mut self.pruned, PRUNED_MAX, (node, id));
                self.reply(node, Reply::Reject(RejectReason::Pruned));
            }
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.timers.next()
    }
}

#[cfg(test)]
mod tests;
