//! Sessions of a driver: their machines, timeouts and traces.

use std::collections::{BTreeMap, BTreeSet};

use faircast_base::{Cx, Duration, FlowId, NodeId, Purpose, Rng, Time, Trace};
use faircast_proto::{Machine, Membership};
use faircast_trace::{Sink, Subject, Tagged};

use crate::SessionId;

/// Machines of a driver, by session. Every call of a machine that may change its timeout goes
/// through [`call`](Self::call).
pub(crate) struct Sessions<M> {
    pub(crate) by_id: BTreeMap<SessionId, Session<M>>,
    pub(crate) next_id: u32,
    /// Sessions whose timeout may have changed since [`arm`](Self::arm), each once.
    pub(crate) pending: Vec<SessionId>,
    pub(crate) timeouts: Timeouts,
    pub(crate) lateness: Duration,
    pub(crate) node: NodeId,
    seed: u64,
    pub(crate) sink: Option<Box<dyn Sink>>,
}

pub(crate) struct Session<M> {
    pub(crate) machine: M,
    rng: Rng,
    subject: Subject,
    /// True if the machine may have packets to send: from a call until a transmission yields none.
    may_send: bool,
    is_pending: bool,
}

impl<M: Machine> Sessions<M> {
    pub(crate) fn new(node: NodeId, seed: u64) -> Self {
        Self {
            by_id: BTreeMap::new(),
            next_id: 0,
            pending: Vec::new(),
            timeouts: Timeouts::default(),
            lateness: Duration::ZERO,
            node,
            seed,
            sink: None,
        }
    }

    /// Adds a machine. Its default subject in the trace is an end of the flow of its number.
    pub(crate) fn add(&mut self, machine: M, subject: Option<Subject>, sender: bool) -> SessionId {
        let id = SessionId(self.next_id);
        self.next_id += 1;
        let (flow, node) = (FlowId(id.0), self.node);
        let subject = subject.unwrap_or(Subject::Endpoint { flow, node, sender });
        let rng = Rng::new(self.seed, node, Purpose::Machine(id.0));
        let session = Session { machine, rng, subject, may_send: true, is_pending: true };
        self.by_id.insert(id, session);
        self.pending.push(id);
        id
    }

    pub(crate) fn remove(&mut self, id: SessionId) {
        self.by_id.remove(&id);
        self.timeouts.set(id, None);
    }

    pub(crate) fn ended(&self) -> Vec<SessionId> {
        let has_ended =
            |session: &Session<M>| !session.may_send && session.machine.next_timeout().is_none();
        self.by_id.iter().filter(|(_, session)| has_ended(session)).map(|(id, _)| *id).collect()
    }

    pub(crate) fn call<R>(
        &mut self,
        id: SessionId,
        now: Time,
        f: impl FnOnce(&mut M, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        let late = self.lateness;
        let Session { machine, rng, subject, may_send, is_pending } = self.by_id.get_mut(&id)?;
        *may_send = true;
        if !std::mem::replace(is_pending, true) {
            self.pending.push(id);
        }
        Some(match &mut self.sink {
            None => f(machine, &mut Cx { late, ..Cx::untraced(now, rng) }),
            Some(sink) => {
                let mut trace = Tagged { subject: *subject, sink: &mut **sink };
                let trace: &mut dyn Trace = &mut trace;
                f(machine, &mut Cx { late, ..Cx::new(now, rng, trace) })
            }
        })
    }

    pub(crate) fn expire(&mut self, id: SessionId, now: Time, lateness: Duration) {
        let of_turn = self.lateness;
        self.lateness = of_turn.max(lateness);
        self.call(id, now, |machine, cx| machine.handle_timeout(cx));
        self.lateness = of_turn;
    }

    pub(crate) fn poll_transmit(
        &mut self,
        id: SessionId,
        now: Time,
        packet: &mut Vec<u8>,
    ) -> Option<faircast_proto::Transmit> {
        let next = self.call(id, now, |machine, cx| machine.poll_transmit(cx, packet)).flatten();
        if next.is_none()
            && let Some(session) = self.by_id.get_mut(&id)
        {
            session.may_send = false;
        }
        next
    }

    pub(crate) fn poll_membership(&mut self, id: SessionId) -> Option<Membership> {
        self.by_id.get_mut(&id)?.machine.poll_membership()
    }

    pub(crate) fn poll_event(&mut self, id: SessionId) -> Option<M::Event> {
        self.by_id.get_mut(&id)?.machine.poll_event()
    }

    /// Updates timeouts of called sessions; not after each packet, which is costly for a machine.
    pub(crate) fn arm(&mut self) {
        let Self { pending, by_id, timeouts, .. } = self;
        pending.retain(|id| {
            let Some(session) = by_id.get_mut(id) else { return false };
            timeouts.set(*id, session.machine.next_timeout());
            session.is_pending = session.may_send;
            session.may_send
        });
    }

    pub(crate) fn may_send(&self, id: SessionId) -> bool {
        self.by_id.get(&id).is_some_and(|session| session.may_send)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Timeouts {
    in_order: BTreeSet<(Time, SessionId)>,
    of: BTreeMap<SessionId, Time>,
}

impl Timeouts {
    pub(crate) fn set(&mut self, id: SessionId, at: Option<Time>) {
        let before = match at {
            Some(at) => self.of.insert(id, at),
            None => self.of.remove(&id),
        };
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.in_order.remove(&(before, id));
        }
        self.in_order.extend(at.map(|at| (at, id)));
    }

    pub(crate) fn first(&self) -> Option<(Time, SessionId)> {
        self.in_order.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use faircast_base::{NodeId, Purpose, Rng};

    use super::*;

    #[test]
    fn the_first_is_what_a_scan_over_all_finds() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed, NodeId(0), Purpose::Scenario);
            let (mut timeouts, mut scanned) = (Timeouts::default(), [None; 50]);
            for _ in 0..2000 {
                let id = rng.below(50);
                let at = rng.chance(0.7).then(|| Time::from_nanos(rng.below(40)));
                scanned[id as usize] = at;
                timeouts.set(SessionId(id as u32), at);
                let all =
                    scanned.iter().zip(0..).filter_map(|(at, id)| Some(((*at)?, SessionId(id))));
                assert_eq!(timeouts.first(), all.min(), "seed {seed}");
                assert_eq!(timeouts.in_order.len(), timeouts.of.len(), "nothing stale is kept");
            }
        }
    }
}
