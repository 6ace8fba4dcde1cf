//! Wrappers that check every call of a machine or program against the contract.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use faircast_base::{Cx, Duration, FlowId, NodeId, Time};
use faircast_proto::relay::{Egress, Handling, Interest, PacketKey, PortId, Relay, RelayPacket};
use faircast_proto::transport::Role;
use faircast_proto::{
    Datagram, Destination, FlowEvent, FlowMachine, Machine, Transmit, passes, passes_on,
};
use faircast_scenario::{Data, Flow, NodeProgram, Program};
use faircast_sim::{Builtin, Protocols};

/// Most packets that one call may cause: the largest default window, with a margin.
const DRAIN_MAX: u32 = 20_000;
/// Most timeouts at one time: a CBR sender has one for each packet missed during a pause.
const STANDSTILL_MAX: u32 = 20_000;
/// Latest reasonable timeout: a later one counts as none.
const ARMED_WITHIN: Duration = Duration::from_secs(3_600);
const CAPTURED_MAX: usize = 200;

#[derive(Clone, Debug)]
pub(crate) struct Captured {
    pub(crate) from: NodeId,
    pub(crate) to: Destination,
    pub(crate) bytes: Vec<u8>,
    pub(crate) zeros: u32,
}

#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) reports: u64,
    pub(crate) calls: u64,
    pub(crate) packets: blake3::Hasher,
    pub(crate) captured: BTreeMap<&'static str, Vec<Captured>>,
    seen: BTreeMap<&'static str, u64>,
    captures: bool,
}

impl Notes {
    fn capture(&mut self, whose: &'static str, datagram: &Datagram<'_>) {
        if !self.captures {
            return;
        }
        let seen = self.seen.entry(whose).or_default();
        *seen += 1;
        let kept = self.captured.entry(whose).or_default();
        if kept.len() < CAPTURED_MAX && (*seen < 100 || seen.is_multiple_of(kept.len() as u64)) {
            let Datagram { from, to, bytes, zeros, .. } = *datagram;
            kept.push(Captured { from, to, bytes: bytes.to_vec(), zeros });
        }
    }
}

#[derive(Clone)]
pub(crate) struct Watched {
    pub(crate) notes: Rc<RefCell<Notes>>,
}

impl Default for Watched {
    fn default() -> Self {
        let watched = Self::without_notes();
        watched.notes.borrow_mut().captures = true;
        watched
    }
}

impl Watched {
    pub(crate) fn without_notes() -> Self {
        Self { notes: Rc::default() }
    }

    fn machine(&self, inner: FlowMachine, sender: bool, active_from: Option<Time>) -> FlowMachine {
        let (notes, clock) = (self.notes.clone(), Clock::default());
        Box::new(WatchedMachine { inner, notes, clock, sender, active_from, polls: 0 })
    }
}

impl Protocols for Watched {
    fn end(&self, flow: &Flow, id: FlowId, node: NodeId, role: Role, start: Time) -> FlowMachine {
        let sender = !matches!(role, Role::Receiver);
        // A sender of unlimited data must keep a timeout until it is closed.
        let active_from = (sender && flow.data == Data::Unlimited).then_some(flow.start);
        self.machine(Builtin.end(flow, id, node, role, start), sender, active_from)
    }

    fn node_program(&self, program: NodeProgram<'_>, start: Time) -> FlowMachine {
        self.machine(Builtin.node_program(program, start), false, None)
    }

    fn relay(&self, program: &Program, node: NodeId) -> Box<dyn Relay> {
        Box::new(WatchedRelay::new(Builtin.relay(program, node), self.notes.clone()))
    }

    fn sees_corruption(&self, flow: &Flow) -> bool {
        Builtin.sees_corruption(flow)
    }
}

#[derive(Default)]
struct Clock {
    now: Time,
    timeouts: u32,
}

impl Clock {
    fn check(&mut self, now: Time) {
        assert!(now >= self.now, "the driver's clock went back from {} to {now}", self.now);
        if now > self.now {
            self.timeouts = 0;
        }
        self.now = now;
    }

    fn check_timeout(&mut self, now: Time) {
        self.check(now);
        self.timeouts += 1;
        assert!(self.timeouts <= STANDSTILL_MAX, "time stands still at {now}");
    }
}

struct WatchedMachine {
    inner: FlowMachine,
    notes: Rc<RefCell<Notes>>,
    clock: Clock,
    sender: bool,
    active_from: Option<Time>,
    polls: u32,
}

impl Machine for WatchedMachine {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        self.clock.check(cx.now);
        self.polls = 0;
        let whose = if self.sender { "sender" } else { "receiver" };
        self.notes.borrow_mut().capture(whose, &datagram);
        self.inner.handle_datagram(cx, datagram);
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.clock.check_timeout(cx.now);
        self.polls = 0;
        self.inner.handle_timeout(cx);
    }

    fn handle_close(&mut self, cx: &mut Cx<'_>) {
        self.clock.check(cx.now);
        self.polls = 0;
        self.active_from = None;
        self.inner.handle_close(cx);
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.clock.check(cx.now);
        self.polls += 1;
        assert!(self.polls <= DRAIN_MAX, "a drain does not end at {}", cx.now);
        assert!(buf.is_empty(), "the driver gives an empty buffer");
        let transmit = self.inner.poll_transmit(cx, buf)?;
        let len = buf.len() as u64 + u64::from(transmit.zeros);
        assert!(len > 0 && u64::from(transmit.payload_len) <= len, "{transmit:?}");
        assert!(transmit.time_to_live > 0, "a packet that may not leave: {transmit:?}");
        let mut notes = self.notes.borrow_mut();
        notes.reports += u64::from(!self.sender);
        notes.packets.update(&(buf.len() as u32).to_be_bytes()).update(buf);
        Some(transmit)
    }

    fn poll_event(&mut self) -> Option<FlowEvent> {
        let event = self.inner.poll_event();
        if event.is_some() {
            return event;
        }
        self.notes.borrow_mut().calls += 1;
        // After a drain: all packets under way and all reports may be lost.
        if self.active_from.is_some_and(|start| start <= self.clock.now) {
            let now = self.clock.now;
            let next = self.inner.next_timeout();
            let armed = next.is_some_and(|at| at <= now + ARMED_WITHIN);
            assert!(armed, "at {now} a sender waits for reports alone: its timeout is {next:?}");
        }
        None
    }

    passes_on!(inner: poll_membership, next_timeout);
}

/// Relay under check: a drain ends, and the relay uses only packets that it keeps.
pub(crate) struct WatchedRelay {
    inner: Box<dyn Relay>,
    notes: Rc<RefCell<Notes>>,
    clock: Clock,
    polls: u32,
    held: BTreeSet<PacketKey>,
}

impl WatchedRelay {
    pub(crate) fn new(inner: Box<dyn Relay>, notes: Rc<RefCell<Notes>>) -> Self {
        Self { inner, notes, clock: Clock::default(), polls: 0, held: BTreeSet::new() }
    }
}

const HELD_MAX: usize = 1 << 16;

impl Relay for WatchedRelay {
    passes! { inner: fn interest(&self) -> Interest; }
    passes_on!(inner: next_timeout);

    fn handle_packet(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &RelayPacket<'_>,
        buf: &mut Vec<u8>,
    ) -> Handling {
        self.clock.check(cx.now);
        self.notes.borrow_mut().capture("relay", &packet.datagram);
        self.polls = 0;
        let handling = self.inner.handle_packet(cx, packet, buf);
        assert_eq!(!buf.is_empty(), handling == Handling::Alter, "bytes are for altering");
        if handling == Handling::Hold {
            assert!(self.held.insert(packet.key), "no two packets have one key");
            assert!(self.held.len() <= HELD_MAX, "a relay holds so many packets");
        }
        handling
    }

    fn handle_writable(&mut self, cx: &mut Cx<'_>, port: PortId) {
        self.clock.check_timeout(cx.now);
        self.polls = 0;
        self.inner.handle_writable(cx, port);
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.clock.check_timeout(cx.now);
        self.polls = 0;
        self.inner.handle_timeout(cx);
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Egress> {
        self.clock.check(cx.now);
        self.polls += 1;
        assert!(self.polls <= DRAIN_MAX, "a drain has no end at {}", cx.now);
        let egress = self.inner.poll_transmit(cx, buf)?;
        match egress {
            Egress::Copy(key, _) => assert!(self.held.contains(&key), "it holds what it copies"),
            Egress::Release(key) => assert!(self.held.remove(&key), "it lets go what it holds"),
            Egress::Send(transmit) => {
                assert!(!buf.is_empty() && transmit.time_to_live > 0, "{transmit:?}");
            }
            Egress::Await(_) => {}
        }
        Some(egress)
    }
}
