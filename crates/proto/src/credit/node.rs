//! Session at a relay: a queue and credits for each branch, and credits upstream (src: credits s3).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Duration, FlowId, Time};
use faircast_relay_sdk::{Policy, View};

use super::branch::Branch;
use super::settings::AnyPolicy;
use super::upstream::Upstream;
use super::wire::{Capsule, Credit};
use crate::relay::{BranchPace, PortId};

#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedPacket<Q> {
    queued_at: Time,
    pub(super) packet: Q,
    pub(super) bytes: u32,
    layer: u8,
}

#[derive(Debug)]
struct Queue<Q> {
    port: PortId,
    branch: Branch,
    waiting: VecDeque<QueuedPacket<Q>>,
    /// True if the port has sent nothing for [`TAG_TIMEOUT`](super::branch::TAG_TIMEOUT).
    stuck: bool,
    /// Counts since the last [`FlowNode::paces`].
    sent: Sent,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    bytes: u64,
    packets: u32,
    /// Packets that left others waiting.
    with_backlog: u32,
}

impl<Q> Queue<Q> {
    fn is_left_out(&self) -> bool {
        self.stuck || self.branch.is_silent()
    }
}

pub(super) struct FlowNode<Q> {
    pub(super) upstream: Upstream,
    pub(super) policy: AnyPolicy,
    header: Capsule,
    queues: Vec<Queue<Q>>,
    /// Indexes of the branches that the policy sees: those that are not left out.
    active: Vec<usize>,
    pub(super) last_packet_at: Time,
    policy_tick_at: Option<Time>,
    credit_due: bool,
    pacing_port: Option<PortId>,
    paces_at: Time,
}

struct PolicyView<'a, Q> {
    upstream: &'a Upstream,
    queues: &'a [Queue<Q>],
    active: &'a [usize],
    header: &'a Capsule,
    now: Time,
}

impl<Q> PolicyView<'_, Q> {
    fn queue(&self, branch: u32) -> &Queue<Q> {
        &self.queues[self.active[branch as usize]]
    }

    /// Returns FC of a branch: packets received, less packets queued. Lost and discarded packets
    /// count as forwarded.
    fn done(&self, branch: u32) -> u32 {
        self.upstream.received.wrapping_sub(self.queue(branch).waiting.len() as u32)
    }
}

impl<Q> View for PolicyView<'_, Q> {
    fn branches(&self) -> u32 {
        self.active.len() as u32
    }

    fn forwarded(&self, branch: u32) -> i64 {
        self.upstream.total_reported + self.upstream.since_reported(self.done(branch))
    }

    fn reported(&self) -> i64 {
        self.upstream.total_reported
    }

    fn queued(&self, branch: u32) -> u32 {
        self.queue(branch).waiting.len() as u32
    }

    fn buffer(&self) -> u32 {
        self.header.buffer.into()
    }

    fn weight(&self, branch: u32) -> u32 {
        self.queue(branch).branch.weight()
    }

    fn waited_ms(&self, branch: u32) -> u32 {
        let first = self.queue(branch).waiting.front();
        let waited = first.map_or(Duration::ZERO, |first| self.now.since(first.queued_at));
        u32::try_from(waited.as_millis()).unwrap_or(u32::MAX)
    }

    fn unit(&self) -> u32 {
        self.header.unit.into()
    }
}

impl<Q: Copy> FlowNode<Q> {
    pub(super) fn new(now: Time, upstream: Upstream, policy: AnyPolicy, header: Capsule) -> Self {
        let (last_packet_at, paces_at, credit_due) = (now, now, true);
        let mut node = fresh! {
            Self { upstream, policy, header, last_packet_at, paces_at, credit_due, }
            queues, active, policy_tick_at, pacing_port
        };
        node.arm_policy_tick(now);
        node
    }

    fn arm_policy_tick(&mut self, now: Time) {
        let interval = self.policy.interval_ms().map(|ms| Duration::from_millis(ms.into()));
        self.policy_tick_at = interval.map(|interval| now + interval);
    }

    fn policy_and_view(&mut self, now: Time) -> (&mut AnyPolicy, PolicyView<'_, Q>) {
        let Self { policy, upstream, queues, active, header, .. } = self;
        (policy, PolicyView { upstream, queues, active, header, now })
    }

    fn refresh_active(&mut self) {
        let Self { queues, active, .. } = self;
        active.clear();
        active.extend((0..queues.len()).filter(|index| !queues[*index].is_left_out()));
    }

    /// Sets the ports of the branches, some `stuck`. Returns packets queued for other ports.
    pub(super) fn set_ports(
        &mut self,
        now: Time,
        ports: &[PortId],
        stuck: impl Fn(PortId) -> bool,
    ) -> Vec<Q> {
        let gone = self.queues.extract_if(.., |queue| !ports.contains(&queue.port));
        let dropped = gone.flat_map(|queue| queue.waiting).map(|waiting| waiting.packet).collect();
        for &port in ports {
            if !self.queues.iter().any(|queue| queue.port == port) {
                let branch = Branch::new(now, self.header.buffer);
                let (waiting, stuck) = (VecDeque::new(), stuck(port));
                self.queues.push(Queue { port, branch, waiting, stuck, sent: Sent::default() });
            }
        }
        self.refresh_active();
        dropped
    }

    pub(super) fn on_data(&mut self, now: Time, packet: Q, bytes: u32, layer: u8) -> u32 {
        self.last_packet_at = now;
        let mut waits = 0;
        for branch in 0..self.active.len() {
            let index = self.active[branch];
            let room = self.queues[index].waiting.len() < usize::from(self.header.buffer);
            let (policy, view) = self.policy_and_view(now);
            let accepts = !policy.drops() || room && policy.accepts(&view, branch as u32, layer);
            if room && accepts {
                let waiting = QueuedPacket { queued_at: now, packet, bytes, layer };
                self.queues[index].waiting.push_back(waiting);
                waits += 1;
            }
        }
        self.credit_due = true;
        waits
    }

    /// Handles a probe: packets may have been lost upstream, which count as forwarded.
    pub(super) fn on_probe(&mut self, now: Time) {
        self.last_packet_at = now;
        self.credit_due = true;
    }

    pub(super) fn on_credit(&mut self, now: Time, credit: &Credit) -> Checked<Option<PortId>> {
        let named = |queue: &&mut Queue<Q>| queue.port.0 == credit.branch;
        let queue = self.queues.iter_mut().find(named).ok_or(BadInput::Foreign)?;
        let moves = queue.branch.on_credit(now, credit)?;
        let port = queue.port;
        self.refresh_active();
        Ok(moves.then_some(port))
    }

    /// Marks a port as stuck or not. Returns packets queued for a stuck branch, which sets no pace.
    pub(super) fn set_stuck(&mut self, port: PortId, stuck: bool) -> Vec<Q> {
        let queue = self.queues.iter_mut().find(|queue| queue.port == port);
        let Some(queue) = queue.filter(|queue| queue.stuck != stuck) else { return Vec::new() };
        queue.stuck = stuck;
        let dropped = if stuck { core::mem::take(&mut queue.waiting) } else { VecDeque::new() };
        self.refresh_active();
        self.credit_due = true;
        dropped.into_iter().map(|waiting| waiting.packet).collect()
    }

    /// Forgets the node with this tag, which left this port. Returns packets queued for it only.
    pub(super) fn forget(&mut self, now: Time, port: PortId, tag: u64) -> Vec<Q> {
        let mut dropped = Vec::new();
        if let Some(queue) = self.queues.iter_mut().find(|queue| queue.port == port) {
            queue.branch.forget(now, tag);
            if queue.branch.is_silent() {
                dropped.extend(queue.waiting.drain(..).map(|waiting| waiting.packet));
            }
        }
        self.refresh_active();
        self.credit_due = true;
        dropped
    }

    pub(super) fn next_bytes(&mut self, now: Time, port: PortId) -> Option<u32> {
        let queue = self.queues.iter_mut().find(|queue| queue.port == port)?;
        let bytes = queue.waiting.front()?.bytes;
        if queue.branch.may_send() {
            return Some(bytes);
        }
        queue.branch.wait(now);
        None
    }

    pub(super) fn send(&mut self, port: PortId) -> Option<(QueuedPacket<Q>, Capsule)> {
        let queue = self.queues.iter_mut().find(|queue| queue.port == port)?;
        let waiting = queue.waiting.pop_front()?;
        let count = queue.branch.send();
        queue.sent.bytes += u64::from(waiting.bytes);
        queue.sent.packets += 1;
        queue.sent.with_backlog += u32::from(!queue.waiting.is_empty());
        self.credit_due = true;
        let layer = waiting.layer;
        Some((waiting, Capsule { count, layer, branch: port.0, ..self.header }))
    }

    pub(super) fn poll_credit(&mut self, now: Time, buf: &mut Vec<u8>) -> bool {
        // A credit would make the upstream node wait for departed nodes.
        if self.is_deserted() {
            return false;
        }
        if core::mem::take(&mut self.credit_due) {
            self.grant(now);
        }
        self.upstream.poll(buf)
    }

    fn is_deserted(&self) -> bool {
        !self.queues.is_empty() && self.active.is_empty()
    }

    fn grant(&mut self, now: Time) {
        let (policy, view) = self.policy_and_view(now);
        let branches = view.branches();
        if branches == 0 {
            return;
        }
        let chosen = policy.credit(&view).filter(|branch| *branch < branches);
        let weights = (0..branches).map(|branch| view.weight(branch));
        let weight = weights.fold(0u32, u32::saturating_add);
        let chosen = chosen.map(|branch| (view.done(branch), view.queue(branch).port));
        if let Some((done, port)) = chosen {
            self.pacing_port = Some(port);
            self.upstream.grant(now, self.header.buffer, done, weight);
        }
    }

    pub(super) fn on_timeout(&mut self, now: Time) -> (Vec<Q>, Vec<(PortId, Capsule)>) {
        let (mut dropped, mut probes) = (Vec::new(), Vec::new());
        for queue in &mut self.queues {
            if queue.branch.on_timeout(now) {
                let (count, branch) = (queue.branch.count, queue.port.0);
                probes.push((queue.port, Capsule { probe: true, count, branch, ..self.header }));
            }
            if queue.branch.is_silent() {
                dropped.extend(queue.waiting.drain(..).map(|waiting| waiting.packet));
                queue.branch.wait(now);
            }
        }
        self.refresh_active();
        let is_deserted = self.is_deserted();
        self.upstream.on_timeout(now, !is_deserted);
        self.credit_due |= !dropped.is_empty();
        if self.policy_tick_at.is_some_and(|at| at <= now) {
            for branch in 0..self.active.len() {
                loop {
                    let (policy, view) = self.policy_and_view(now);
                    let discards = policy.discards(&view, branch as u32) as usize;
                    let waiting = &mut self.queues[self.active[branch]].waiting;
                    let discards = discards.min(waiting.len());
                    if discards == 0 {
                        break;
                    }
                    dropped.extend(waiting.drain(..discards).map(|waiting| waiting.packet));
                }
            }
            self.arm_policy_tick(now);
            self.credit_due = true;
        }
        (dropped, probes)
    }

    pub(super) fn next_timeout(&self) -> Time {
        let each = |queue: &Queue<Q>| queue.branch.next_timeout(!queue.waiting.is_empty());
        let branches = self.queues.iter().filter_map(each);
        let others = self.policy_tick_at.into_iter().chain([self.upstream.refresh_at]);
        branches.chain(others).min().unwrap_or(Time::MAX)
    }

    pub(super) fn into_waiting(self) -> impl Iterator<Item = (PortId, QueuedPacket<Q>)> {
        let each = |queue: Queue<Q>| queue.waiting.into_iter().map(move |it| (queue.port, it));
        self.queues.into_iter().flat_map(each)
    }

    /// Returns branches with rates since the last call, without branches that are left out, and
    /// without those with a backlog that did not set the pace.
    pub(super) fn paces(&mut self, now: Time, flow: FlowId) -> impl Iterator<Item = BranchPace> {
        let seconds = now.since(core::mem::replace(&mut self.paces_at, now)).as_secs_f64();
        let (from, sets) = (self.upstream.port, self.pacing_port);
        self.queues.iter_mut().filter_map(move |queue| {
            let Sent { bytes, packets, with_backlog } = core::mem::take(&mut queue.sent);
            // Most packets of a branch with a backlog leave others waiting.
            let waits = 2 * with_backlog > packets || packets == 0 && !queue.waiting.is_empty();
            let counts = !queue.is_left_out() && (!waits || sets == Some(queue.port));
            let bits_per_s = (bytes as f64 * 8.0 / seconds) as u64;
            counts.then_some(BranchPace { flow, from, port: queue.port, bits_per_s, waits })
        })
    }

    pub(super) fn queued(&self) -> impl Iterator<Item = (PortId, u64)> {
        let bytes = |queue: &Queue<Q>| queue.waiting.iter().map(|it| u64::from(it.bytes)).sum();
        self.queues.iter().map(move |queue| (queue.port, bytes(queue)))
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = PortId> {
        self.queues.iter().map(|queue| queue.port)
    }
}
