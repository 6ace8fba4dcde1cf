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
pub(super) struct Waiting<Q> {
    since: Time,
    pub(super) packet: Q,
    pub(super) bytes: u32,
    layer: u8,
}

#[derive(Debug)]
struct Queue<Q> {
    port: PortId,
    branch: Branch,
    waiting: VecDeque<Waiting<Q>>,
    /// True if the port has sent nothing for [`TAG_TIMEOUT`](super::branch::TAG_TIMEOUT).
    stuck: bool,
    /// Bytes and packets sent since the last [`FlowNode::paces`], and packets sent with a backlog.
    sent: (u64, u32, u32),
}

impl<Q> Queue<Q> {
    fn is_left_out(&self) -> bool {
        self.stuck || self.branch.is_silent()
    }
}

pub(super) struct FlowNode<Q> {
    pub(super) upstream: Upstream,
    policy: AnyPolicy,
    header: Capsule,
    queues: Vec<Queue<Q>>,
    /// Indexes of the branches that the policy sees: those that are not left out.
    heard: Vec<usize>,
    heard_at: Time,
    look_at: Option<Time>,
    asks: bool,
    pace: Option<PortId>,
    looked_at: Time,
}

struct Seen<'a, Q> {
    upstream: &'a Upstream,
    queues: &'a [Queue<Q>],
    heard: &'a [usize],
    header: &'a Capsule,
    now: Time,
}

impl<Q> Seen<'_, Q> {
    fn queue(&self, branch: u32) -> &Queue<Q> {
        &self.queues[self.heard[branch as usize]]
    }

    /// Returns FC of a branch: packets received, less packets queued. Lost packets count as done.
    fn done(&self, branch: u32) -> u32 {
        self.upstream.received().wrapping_sub(self.queue(branch).waiting.len() as u32)
    }
}

impl<Q> View for Seen<'_, Q> {
    fn branches(&self) -> u32 {
        self.heard.len() as u32
    }

    fn forwarded(&self, branch: u32) -> i64 {
        self.upstream.total_reported() + self.upstream.since_reported(self.done(branch))
    }

    fn reported(&self) -> i64 {
        self.upstream.total_reported()
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
        let waited = first.map_or(Duration::ZERO, |first| self.now.since(first.since));
        u32::try_from(waited.as_millis()).unwrap_or(u32::MAX)
    }

    fn unit(&self) -> u32 {
        self.header.unit.into()
    }
}

impl<Q: Copy> FlowNode<Q> {
    pub(super) fn new(now: Time, upstream: Upstream, policy: AnyPolicy, header: Capsule) -> Self {
        let (queues, heard) = (Vec::new(), Vec::new());
        let mut node = Self {
            upstream,
            policy,
            header,
            queues,
            heard,
            heard_at: now,
            look_at: None,
            asks: true,
            pace: None,
            looked_at: now,
        };
        node.arm(now);
        node
    }

    fn arm(&mut self, now: Time) {
        self.look_at =
            self.policy.interval_ms().map(|ms| now + Duration::from_millis(u64::from(ms)));
    }

    fn judge(&mut self, now: Time) -> (&mut AnyPolicy, Seen<'_, Q>) {
        let Self { policy, upstream, queues, heard, header, .. } = self;
        (policy, Seen { upstream, queues, heard, header, now })
    }

    fn listen(&mut self) {
        let Self { queues, heard, .. } = self;
        heard.clear();
        heard.extend((0..queues.len()).filter(|place| !queues[*place].is_left_out()));
    }

    /// Sets the ports of the branches, some `stuck`. Returns packets queued for other ports.
    pub(super) fn set_ports(
        &mut self,
        now: Time,
        ports: &[PortId],
        stuck: impl Fn(PortId) -> bool,
    ) -> Vec<Q> {
        let mut gone = Vec::new();
        self.queues.retain_mut(|queue| {
            let stays = ports.contains(&queue.port);
            if !stays {
                gone.extend(queue.waiting.drain(..).map(|waiting| waiting.packet));
            }
            stays
        });
        for &port in ports {
            if !self.queues.iter().any(|queue| queue.port == port) {
                let branch = Branch::new(now, self.header.buffer);
                let (waiting, stuck) = (VecDeque::new(), stuck(port));
                self.queues.push(Queue { port, branch, waiting, stuck, sent: (0, 0, 0) });
            }
        }
        self.listen();
        gone
    }

    pub(super) fn on_data(&mut self, now: Time, packet: Q, bytes: u32, layer: u8) -> u32 {
        self.heard_at = now;
        let mut waits = 0;
        for branch in 0..self.heard.len() {
            let place = self.heard[branch];
            let room = self.queues[place].waiting.len() < usize::from(self.header.buffer);
            let (policy, seen) = self.judge(now);
            let accepts = !policy.drops() || room && policy.accepts(&seen, branch as u32, layer);
            if room && accepts {
                let waiting = Waiting { since: now, packet, bytes, layer };
                self.queues[place].waiting.push_back(waiting);
                waits += 1;
            }
        }
        self.asks = true;
        waits
    }

    /// Handles a probe: packets may have been lost above, which count as forwarded.
    pub(super) fn on_probe(&mut self, now: Time) {
        self.heard_at = now;
        self.asks = true;
    }

    pub(super) fn on_credit(&mut self, now: Time, credit: &Credit) -> Checked<Option<PortId>> {
        let named = |queue: &&mut Queue<Q>| queue.port.0 == credit.branch;
        let queue = self.queues.iter_mut().find(named).ok_or(BadInput::Foreign)?;
        let moves = queue.branch.on_credit(now, credit)?;
        let port = queue.port;
        self.listen();
        Ok(moves.then_some(port))
    }

    /// Marks a port as stuck or not. Returns packets queued for a stuck branch, which sets no pace.
    pub(super) fn set_stuck(&mut self, port: PortId, stuck: bool) -> Vec<Q> {
        let queue = self.queues.iter_mut().find(|queue| queue.port == port);
        let Some(queue) = queue.filter(|queue| queue.stuck != stuck) else { return Vec::new() };
        queue.stuck = stuck;
        let gone = if stuck { core::mem::take(&mut queue.waiting) } else { VecDeque::new() };
        self.listen();
        self.asks = true;
        gone.into_iter().map(|waiting| waiting.packet).collect()
    }

    /// Forgets the node with this tag, which left this port. Returns packets queued for it only.
    pub(super) fn forget(&mut self, now: Time, port: PortId, tag: u64) -> Vec<Q> {
        let mut gone = Vec::new();
        if let Some(queue) = self.queues.iter_mut().find(|queue| queue.port == port) {
            queue.branch.forget(now, tag);
            if queue.branch.is_silent() {
                gone.extend(queue.waiting.drain(..).map(|waiting| waiting.packet));
            }
        }
        self.listen();
        self.asks = true;
        gone
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

    pub(super) fn send(&mut self, port: PortId) -> Option<(Waiting<Q>, Capsule)> {
        let queue = self.queues.iter_mut().find(|queue| queue.port == port)?;
        let waiting = queue.waiting.pop_front()?;
        let count = queue.branch.send();
        queue.sent.0 += u64::from(waiting.bytes);
        queue.sent.1 += 1;
        queue.sent.2 += u32::from(!queue.waiting.is_empty());
        self.asks = true;
        let layer = waiting.layer;
        Some((waiting, Capsule { count, layer, branch: port.0, ..self.header }))
    }

    pub(super) fn poll_credit(&mut self, now: Time, buf: &mut Vec<u8>) -> bool {
        // A credit would make the node above wait for nodes that are gone.
        if self.is_deserted() {
            return false;
        }
        if core::mem::take(&mut self.asks) {
            self.ask(now);
        }
        self.upstream.poll(buf)
    }

    fn is_deserted(&self) -> bool {
        !self.queues.is_empty() && self.heard.is_empty()
    }

    fn ask(&mut self, now: Time) {
        let (policy, seen) = self.judge(now);
        let branches = seen.branches();
        if branches == 0 {
            return;
        }
        let chosen = policy.credit(&seen).filter(|branch| *branch < branches);
        let weights = (0..branches).map(|branch| seen.weight(branch));
        let weight = weights.fold(0u32, u32::saturating_add);
        let chosen = chosen.map(|branch| (seen.done(branch), seen.queue(branch).port));
        if let Some((done, port)) = chosen {
            self.pace = Some(port);
            self.upstream.grant(now, self.header.buffer, done, weight);
        }
    }

    pub(super) fn on_timeout(&mut self, now: Time) -> (Vec<Q>, Vec<(PortId, Capsule)>) {
        let (mut gone, mut probes) = (Vec::new(), Vec::new());
        for queue in &mut self.queues {
            if queue.branch.on_timeout(now) {
                let (count, branch) = (queue.branch.count(), queue.port.0);
                probes.push((queue.port, Capsule { probe: true, count, branch, ..self.header }));
            }
            if queue.branch.is_silent() {
                gone.extend(queue.waiting.drain(..).map(|waiting| waiting.packet));
                queue.branch.wait(now);
            }
        }
        self.listen();
        let is_deserted = self.is_deserted();
        self.upstream.on_timeout(now, !is_deserted);
        self.asks |= !gone.is_empty();
        if self.look_at.is_some_and(|at| at <= now) {
            for branch in 0..self.heard.len() {
                loop {
                    let (policy, seen) = self.judge(now);
                    let discards = policy.discards(&seen, branch as u32) as usize;
                    let waiting = &mut self.queues[self.heard[branch]].waiting;
                    let discards = discards.min(waiting.len());
                    if discards == 0 {
                        break;
                    }
                    gone.extend(waiting.drain(..discards).map(|waiting| waiting.packet));
                }
            }
            self.arm(now);
            self.asks = true;
        }
        (gone, probes)
    }

    pub(super) fn next_timeout(&self) -> Time {
        let each = |queue: &Queue<Q>| queue.branch.next_timeout(!queue.waiting.is_empty());
        let branches = self.queues.iter().filter_map(each);
        let look = self.look_at.into_iter().chain([self.upstream.next_timeout()]);
        branches.chain(look).min().unwrap_or(Time::MAX)
    }

    pub(super) const fn has_program(&self) -> bool {
        self.policy.is_program()
    }

    pub(super) const fn has_failed(&self) -> bool {
        self.policy.has_failed()
    }

    pub(super) fn into_waiting(self) -> impl Iterator<Item = (PortId, Waiting<Q>)> {
        let each = |queue: Queue<Q>| queue.waiting.into_iter().map(move |it| (queue.port, it));
        self.queues.into_iter().flat_map(each)
    }

    /// Returns branches with rates since the last call, except those that are not waited for.
    pub(super) fn paces(&mut self, now: Time, flow: FlowId) -> impl Iterator<Item = BranchPace> {
        let seconds = now.since(core::mem::replace(&mut self.looked_at, now)).as_secs_f64();
        let (from, sets) = (self.upstream.port, self.pace);
        self.queues.iter_mut().filter_map(move |queue| {
            let (bytes, packets, behind) = core::mem::take(&mut queue.sent);
            let waits = 2 * behind > packets || packets == 0 && !queue.waiting.is_empty();
            let counts = !queue.is_left_out() && (!waits || sets == Some(queue.port));
            let bits_per_s = (bytes as f64 * 8.0 / seconds) as u64;
            counts.then_some(BranchPace { flow, from, port: queue.port, bits_per_s, waits })
        })
    }

    pub(super) fn queued(&self) -> impl Iterator<Item = (PortId, u64)> {
        self.queues.iter().map(|queue| {
            (queue.port, queue.waiting.iter().map(|waiting| u64::from(waiting.bytes)).sum())
        })
    }

    pub(super) const fn heard_at(&self) -> Time {
        self.heard_at
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = PortId> {
        self.queues.iter().map(|queue| queue.port)
    }
}
