//! Source of a session under credits: another machine, polled when a credit permits a packet.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Cx, GroupId, NodeId, Time};

use super::branch::Branch;
use super::programs::parts;
use super::settings::{CreditSettings, PROGRAM};
use super::wire::{self, Capsule, Packet, Pull};
use crate::options::Options;
use crate::{Datagram, Destination, Interactive, Machine, Transmit, passes_on};

/// Source `inner` under credits. Packets to the group leave as capsules, others unchanged.
#[derive(Debug)]
pub struct CreditSource<M> {
    inner: M,
    header: Capsule,
    layers: u32,
    branch: Branch,
    probes: bool,
    chance: bool,
    is_idle: bool,
    woken_at: Time,
    packet: Vec<u8>,
    program: Option<Arc<[u8]>>,
    parts: VecDeque<(NodeId, Vec<u8>)>,
}

/// Longest queue of parts; a node that gets no answer repeats its request.
const PARTS_MAX: usize = 256;

impl<M: Machine> CreditSource<M> {
    /// Returns the inner machine, which has no credits.
    pub const fn inner(&self) -> &M {
        &self.inner
    }

    /// Creates the source of the session with this number at `node`.
    pub fn new(inner: M, session: u64, node: NodeId, start: Time, options: &Options) -> Self {
        let settings = CreditSettings::from_options(options);
        let program = options.bytes(PROGRAM.name).cloned();
        let header = settings.capsule(session, node, program.as_deref());
        let layers = settings.layers;
        let branch = Branch::new(start, header.buffer);
        fresh! {
            Self { inner, header, layers, branch, program, }
            probes, chance, is_idle, woken_at, packet, parts
        }
    }

    fn on_pull(&mut self, from: NodeId, pull: Pull) -> Checked {
        let Self { program, parts: waiting, header, .. } = self;
        let is_it = pull.session == header.session && pull.policy == header.policy;
        let program = program.as_ref().filter(|_| is_it).ok_or(BadInput::Foreign)?;
        let all = parts(program, pull).take(PARTS_MAX.saturating_sub(waiting.len()));
        waiting.extend(all.map(|part| (from, Packet::Part(part).encoded())));
        Ok(())
    }

    fn poll_inner(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.packet.clear();
        let transmit = self.inner.poll_transmit(cx, &mut self.packet)?;
        if transmit.to == Destination::Group(GroupId::SESSION) {
            let count = self.branch.send();
            let layer = (count % self.layers) as u8;
            Packet::Capsule(Capsule { count, layer, ..self.header }).encode(buf);
            if self.branch.is_silent() {
                self.branch.wait(cx.now);
            }
        }
        buf.extend_from_slice(&self.packet);
        Some(transmit)
    }
}

impl<M: Interactive> Interactive for CreditSource<M> {
    type Input = M::Input;

    fn handle_input(&mut self, cx: &mut Cx<'_>, input: M::Input) {
        self.inner.handle_input(cx, input);
    }
}

impl<M: Machine> Machine for CreditSource<M> {
    type Event = M::Event;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if !wire::is_ours(datagram.bytes) {
            return self.inner.handle_datagram(cx, datagram);
        }
        let outcome = match wire::decode(datagram.bytes) {
            Ok(Packet::Credit(credit)) if credit.session == self.header.session => {
                self.branch.on_credit(cx.now, &credit).map(|_| ())
            }
            Ok(Packet::Pull(pull)) => self.on_pull(datagram.from, pull),
            Ok(_) => Err(BadInput::Foreign),
            Err(reason) => Err(reason),
        };
        cx.check(outcome);
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.woken_at = cx.now;
        self.probes |= self.branch.on_timeout(cx.now);
        self.inner.handle_timeout(cx);
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if let Some((to, part)) = self.parts.pop_front() {
            buf.extend_from_slice(&part);
            return Some(Transmit::control(Destination::Node(to)));
        }
        let probes = core::mem::take(&mut self.probes);
        // Towards silent receivers, a data packet replaces each probe: one may be there again.
        self.chance = self.branch.is_silent() && (self.chance || probes);
        let may = self.branch.may_send() || self.chance;
        let sent = if may { self.poll_inner(cx, buf) } else { None };
        self.is_idle = may && sent.is_none();
        // A packet without payload does not use up the chance.
        self.chance &= sent.is_some_and(|transmit| transmit.payload_len == 0);
        if sent.is_some() {
            return sent;
        }
        if !may {
            self.branch.wait(cx.now);
        }
        probes.then(|| {
            let probe = Capsule { probe: true, count: self.branch.count, ..self.header };
            Packet::Capsule(probe).encode(buf);
            Transmit::control(Destination::Group(GroupId::SESSION))
        })
    }

    fn next_timeout(&self) -> Option<Time> {
        if self.is_idle && self.inner.next_timeout().is_none() {
            return None;
        }
        // A timeout that passed already waits for a credit, not for time.
        let waits = |at: &Time| self.branch.may_send() || *at > self.woken_at;
        let inner = self.inner.next_timeout().filter(waits);
        inner.into_iter().chain(self.branch.next_timeout(false)).min()
    }

    passes_on!(inner: handle_close, handle_new_path, poll_membership, poll_event);
}
