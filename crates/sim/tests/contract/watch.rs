//! Machines and programs under watch: whoever drives them, each call is checked against the parts
//! of the contract that can be seen from outside.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use faircast_base::{Cx, Duration, FlowId, NodeId, Time};
use faircast_proto::content::Content;
use faircast_proto::relay::{RelayPacket, RelayProgram, RelayTransmit, Verdict};
use faircast_proto::{AppEvent, Datagram, Destination, Machine, Transmit};
use faircast_scenario::{Data, Flow, Program};
use faircast_sim::{Builtin, Protocols};

/// Packets that one call may cause: the largest window that a default allows, and some.
const DRAIN_MAX: u32 = 20_000;
/// Timeouts that may be handled in one moment: a driver that was away for a minute has a CBR sender
/// send what it missed, one packet a timeout.
const STANDSTILL_MAX: u32 = 20_000;
/// A timer further away than this is no timer.
const ARMED_WITHIN: Duration = Duration::from_secs(3_600);
/// Packets that are kept of what each kind of machine received.
const CAPTURED_MAX: usize = 200;

/// A packet as a machine got it.
#[derive(Clone, Debug)]
pub(crate) struct Captured {
    pub(crate) from: NodeId,
    pub(crate) to: Destination,
    pub(crate) bytes: Vec<u8>,
    pub(crate) zeros: u32,
}

/// What was seen.
#[derive(Default)]
pub(crate) struct Notes {
    /// Packets that receivers sent.
    pub(crate) reports: u64,
    /// Calls that were checked.
    pub(crate) calls: u64,
    /// What senders, receivers and programs got, by these words.
    pub(crate) captured: BTreeMap<&'static str, Vec<Captured>>,
    seen: BTreeMap<&'static str, u64>,
    /// Whether packets are kept.
    captures: bool,
}

impl Notes {
    /// Keeps the first packets of each kind of machine, and then fewer and fewer.
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

/// All that is registered, under watch.
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
    /// Checks without keeping any packet.
    pub(crate) fn without_notes() -> Self {
        Self { notes: Rc::default() }
    }

    fn machine(&self, inner: Box<dyn Machine>, flow: &Flow, sender: bool) -> Box<dyn Machine> {
        Box::new(WatchedMachine {
            inner,
            notes: self.notes.clone(),
            clock: Clock::default(),
            sender,
            // A sender of unlimited data has something to do until it is closed.
            active_from: (sender && flow.data == Data::Unlimited).then_some(flow.start),
            polls: 0,
        })
    }
}

impl Protocols for Watched {
    fn sender(&self, flow: &Flow, id: FlowId, content: Box<dyn Content>) -> Box<dyn Machine> {
        self.machine(Builtin.sender(flow, id, content), flow, true)
    }

    fn receiver(&self, flow: &Flow, id: FlowId, node: NodeId, start: Time) -> Box<dyn Machine> {
        self.machine(Builtin.receiver(flow, id, node, start), flow, false)
    }

    fn program(&self, program: &Program, node: NodeId) -> Box<dyn RelayProgram> {
        let inner = Builtin.program(program, node);
        let notes = self.notes.clone();
        Box::new(WatchedProgram { inner, notes, clock: Clock::default() })
    }

    fn sees_corruption(&self, flow: &Flow) -> bool {
        Builtin.sees_corruption(flow)
    }
}

/// The moments at which a machine was called.
#[derive(Default)]
struct Clock {
    now: Time,
    /// Timeouts handled at `now`.
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
    inner: Box<dyn Machine>,
    notes: Rc<RefCell<Notes>>,
    clock: Clock,
    sender: bool,
    active_from: Option<Time>,
    polls: u32,
}

impl Machine for WatchedMachine {
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
        self.notes.borrow_mut().reports += u64::from(!self.sender);
        Some(transmit)
    }

    fn poll_event(&mut self) -> Option<AppEvent> {
        let event = self.inner.poll_event();
        if event.is_some() {
            return event;
        }
        self.notes.borrow_mut().calls += 1;
        // The end of a drain: every packet that is under way, and every report, may be lost now.
        if self.active_from.is_some_and(|start| start <= self.clock.now) {
            let now = self.clock.now;
            let next = self.inner.next_timeout();
            let armed = next.is_some_and(|at| at <= now + ARMED_WITHIN);
            assert!(
                armed,
                "at {now} a sender waits for reports alone: its next timeout is {next:?}"
            );
        }
        None
    }

    fn next_timeout(&self) -> Option<Time> {
        self.inner.next_timeout()
    }
}

struct WatchedProgram {
    inner: Box<dyn RelayProgram>,
    notes: Rc<RefCell<Notes>>,
    clock: Clock,
}

impl RelayProgram for WatchedProgram {
    fn wants_all_data(&self) -> bool {
        self.inner.wants_all_data()
    }

    fn handle_packet(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &RelayPacket<'_>,
        out: &mut Vec<RelayTransmit>,
    ) -> Verdict {
        self.clock.check(cx.now);
        self.notes.borrow_mut().capture("program", &packet.datagram);
        let verdict = self.inner.handle_packet(cx, packet, out);
        assert!(out.len() <= DRAIN_MAX as usize, "one packet became {}", out.len());
        verdict
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>, out: &mut Vec<RelayTransmit>) {
        self.clock.check_timeout(cx.now);
        self.inner.handle_timeout(cx, out);
        assert!(out.len() <= DRAIN_MAX as usize, "one timeout became {}", out.len());
    }

    fn next_timeout(&self) -> Option<Time> {
        self.inner.next_timeout()
    }
}
