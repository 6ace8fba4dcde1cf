//! End of a flow at a host, with the sockets and the driver of `faircast-net`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use faircast_base::{Duration, Event, FlowId, GroupId, NodeId, Time};
use faircast_net::{
    AddressBook, App, Arrival, Demux, Driver, DriverSettings, Found, Interface, Listen, Live,
    Multicast, NetError, PgmDemux, PgmSettings, RelayDemux, SessionId, SessionOptions,
    SocketSettings, Sockets, Target,
};
use faircast_proto::transport::Role;
use faircast_proto::{FlowEvent, FlowMachine};
use faircast_scenario::{FaultKind, Flow, NodeFault, NodeProgram, Scenario};
use faircast_sim::{Builtin, Delivery, Protocols, SentContent};
use faircast_trace::{Record, Sink, Subject};

use crate::address::{self, OTHER_GROUPS_MAX, UDP_PORT};
use crate::clock::{Clock, HOST_PRIORITY, RECEIVER_PRIORITY, be_exact, wall};
use crate::emulator::Shared;
use crate::error::LabError;
use crate::merge::Outbox;
use crate::plan::memberships;

const RECEIVER_PORT: u16 = UDP_PORT + 1;
const TICK: Duration = Duration::from_millis(10);
const CLOSE_MAX: Duration = Duration::from_secs(1);

pub(crate) struct Place<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) node: NodeId,
    /// Number among all ends and relays, which also seeds its random numbers as in the simulator.
    pub(crate) number: u32,
    pub(crate) subject: Subject,
    pub(crate) clock: Clock,
    pub(crate) shared: &'a Shared,
    pub(crate) out: Rc<RefCell<Outbox>>,
}

impl Place<'_> {
    pub(crate) fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn sleep_until(&self, at: Time) {
        while !self.stopped() {
            let left = self.clock.until(at);
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(wall(TICK)));
        }
    }

    pub(crate) fn say(&self, at: Time, event: Event) {
        self.out.borrow_mut().record(&Record { at, subject: self.subject, event });
    }

    /// Ignores errors at the end of the run, when interfaces and connections disappear.
    pub(crate) fn failed<E: std::error::Error + Send + Sync + 'static>(
        &self,
        result: Result<(), E>,
    ) -> Result<(), LabError> {
        match result {
            Err(error) if !self.stopped() => {
                let name = &self.scenario.nodes[self.node.index()].name;
                let doing = format!("drive the program at \"{name}\"");
                Err(LabError::doing(doing)(std::io::Error::other(error)))
            }
            _ => Ok(()),
        }
    }

    fn book(&self, flow: Option<&Flow>) -> AddressBook {
        let entry = |node: NodeId| {
            let receives = flow.is_some_and(|flow| flow.receives(node));
            let port = if receives { RECEIVER_PORT } else { UDP_PORT };
            (node, SocketAddr::from((address::of_node(node), port)))
        };
        AddressBook::fixed((0..self.scenario.nodes.len() as u32).map(NodeId).map(entry))
    }
}

pub(crate) struct End<'a> {
    pub(crate) place: Place<'a>,
    pub(crate) flow: &'a Flow,
    pub(crate) id: FlowId,
}

pub(crate) fn sockets(flow: &Flow, id: FlowId, node: NodeId) -> Result<Sockets, LabError> {
    if flow.via.contains_key(&node) {
        return relayed_sockets(node);
    }
    let sender = !flow.receives(node);
    let multicast = Multicast {
        group: SocketAddr::from((address::group(id, GroupId::SESSION), UDP_PORT)),
        source: None,
        interfaces: vec![Interface::Address(address::of_node(node).into())],
    };
    let settings = settings(if sender { UDP_PORT } else { RECEIVER_PORT });
    let opened = match sender {
        true => Sockets::source(Target::Multicast(multicast), settings),
        false => Sockets::receiver(Listen::Multicast(multicast), settings),
    };
    let mut sockets = opened.map_err(opening)?;
    for group in (1..=OTHER_GROUPS_MAX).map(GroupId) {
        let added = sockets.add_group(group, (address::group(id, group), UDP_PORT).into());
        added.map_err(opening)?;
    }
    Ok(sockets)
}

fn settings(port: u16) -> SocketSettings {
    SocketSettings {
        hops: u8::MAX,
        loopback: false,
        port: Some(port),
        // Queues should get packets as they are on a wire.
        offload: false,
        ..SocketSettings::default()
    }
}

pub(crate) fn relayed_sockets(node: NodeId) -> Result<Sockets, LabError> {
    let at = SocketAddr::from((address::of_node(node), UDP_PORT));
    Sockets::relay(at, None, settings(UDP_PORT)).map_err(opening)
}

fn opening(error: NetError) -> LabError {
    LabError::doing("open the sockets of a flow")(std::io::Error::other(error))
}

pub(crate) fn send(end: End<'_>, sockets: Sockets, sent: &SentContent) -> Result<(), LabError> {
    be_exact(HOST_PRIORITY);
    let mut driven = Driven::new(end.place, Delivery::new(false));
    driven.close_at = end.flow.stop;
    let (flow, id) = (end.flow, end.id);
    driven.drive(sockets, Some(flow), flow.start, |at, node| {
        Builtin.end(flow, id, node, Role::Source(sent.content()), at)
    })?;
    driven.finish();
    Ok(())
}

pub(crate) fn receive(end: End<'_>, sent: &SentContent) -> Result<Delivery, LabError> {
    be_exact(RECEIVER_PRIORITY);
    let memberships = memberships(end.flow, end.place.node);
    let End { place, flow, id } = end;
    let mut driven = Driven::new(place, Delivery::new(sent.is_real()));
    for (join, leave) in memberships {
        driven.place.sleep_until(join);
        let mut again = !driven.place.stopped();
        while std::mem::take(&mut again) {
            let node = driven.place.node;
            let sends = flow.sends(node, join);
            let stop = flow.stop.filter(|_| sends);
            driven.close_at = leave.into_iter().chain(stop).min();
            let start = if sends { flow.start } else { Time::ZERO };
            driven.drive(sockets(flow, id, node)?, Some(flow), start, |at, node| {
                let role = if sends { Role::Both(sent.content()) } else { Role::Receiver };
                Builtin.end(flow, id, node, role, at)
            })?;
            if driven.starts_again() {
                driven.delivery = Delivery::new(sent.is_real());
                again = true;
            }
        }
        if driven.is_killed {
            break;
        }
    }
    Ok(driven.finish())
}

pub(crate) fn program(
    place: Place<'_>,
    program: NodeProgram<'_>,
    mut sockets: Sockets,
) -> Result<(), LabError> {
    be_exact(HOST_PRIORITY);
    let mut driven = Driven::new(place, Delivery::new(false));
    loop {
        driven.drive(sockets, None, Time::ZERO, |at, _| Builtin.node_program(program, at))?;
        if !driven.starts_again() {
            break;
        }
        sockets = relayed_sockets(program.node())?;
    }
    driven.finish();
    Ok(())
}

struct Driven<'a> {
    place: Place<'a>,
    delivery: Delivery,
    close_at: Option<Time>,
    faults: VecDeque<NodeFault>,
    is_killed: bool,
    restart: Option<Time>,
}

impl<'a> Driven<'a> {
    fn new(place: Place<'a>, delivery: Delivery) -> Self {
        let all = place.scenario.faults.iter();
        let faults = all.filter(|fault| fault.node == place.node).copied().collect();
        Self { place, delivery, close_at: None, faults, is_killed: false, restart: None }
    }

    fn starts_again(&mut self) -> bool {
        let Some(at) = self.restart.take() else { return false };
        self.place.sleep_until(at);
        self.is_killed = false;
        !self.place.stopped()
    }

    fn drive(
        &mut self,
        sockets: Sockets,
        flow: Option<&Flow>,
        start: Time,
        make: impl FnOnce(Time, NodeId) -> FlowMachine,
    ) -> Result<(), LabError> {
        match flow.filter(|flow| flow.via.is_empty()) {
            None => self.drive_with(sockets, None, RelayDemux::default(), start, make),
            Some(flow) if flow.stack.is_pgm() => {
                let settings = PgmSettings { elements: true, ..PgmSettings::default() };
                self.drive_with(sockets, Some(flow), PgmDemux::new(settings), start, make)
            }
            flow => self.drive_with(sockets, flow, OneSession::default(), start, make),
        }
    }

    fn drive_with<D: Demux>(
        &mut self,
        sockets: Sockets,
        flow: Option<&Flow>,
        demux: D,
        start: Time,
        make: impl FnOnce(Time, NodeId) -> FlowMachine,
    ) -> Result<(), LabError> {
        let place = &self.place;
        let sender = matches!(place.subject, Subject::Endpoint { sender: true, .. });
        let settings = DriverSettings {
            node: Some(place.node),
            seed: Some(place.scenario.seed),
            tick: TICK,
            close_timeout: CLOSE_MAX,
            // A receiver may have nothing to do before its first packet.
            ends_when_idle: sender,
            zero: Some(place.clock.zero),
            ..DriverSettings::default()
        };
        // The clock of the run is zero until it begins.
        place.sleep_until(Time::from_nanos(1));
        self.faults.retain(|fault| fault.at >= place.clock.now());
        let book = place.book(flow);
        let driver = Driver::<FlowMachine, D>::with_demux(sockets, book, demux, settings);
        let mut driver = driver.map_err(opening)?;
        let now = driver.live().now();
        driver.set_trace(Box::new(ToOutbox(Rc::clone(&place.out))));
        let machine = make(start.max(now), place.node);
        let options = SessionOptions { key: D::Key::default(), subject: Some(place.subject) };
        driver.live().number_from(place.number);
        let session = driver.live().add(machine, options);
        let ended = driver.run(self).map(drop);
        self.place.failed(ended)?;
        if !sender && !self.is_killed && !self.place.stopped() {
            driver.live().remove(session);
        }
        Ok(())
    }

    fn finish(self) -> Delivery {
        self.place.out.borrow_mut().flush(self.place.clock.now());
        self.delivery
    }

    fn suffer<D: Demux>(&mut self, live: &mut Live<FlowMachine, D>, now: Time) {
        let Some(fault) = self.faults.front().copied().filter(|fault| fault.at <= now) else {
            return;
        };
        self.faults.pop_front();
        match fault.kind {
            FaultKind::Stop(span) => self.place.sleep_until(fault.at + span),
            FaultKind::Kill | FaultKind::Restart(_) => {
                self.is_killed = true;
                if let FaultKind::Restart(span) = fault.kind {
                    self.restart = Some(fault.at + span);
                }
                live.stop();
            }
            FaultKind::Move => {}
        }
    }
}

impl<D: Demux> App<FlowMachine, D> for Driven<'_> {
    fn event(&mut self, live: &mut Live<FlowMachine, D>, _: SessionId, event: FlowEvent) {
        match event {
            FlowEvent::Delivered { bytes, zeros } => self.delivery.take(&bytes, zeros),
            FlowEvent::Lost { packets } => self.delivery.lost_packets += u64::from(packets),
            FlowEvent::Completed => self.delivery.completed = Some(self.place.clock.now()),
            FlowEvent::Note(note) => self.place.out.borrow_mut().note(live.now(), &note),
            FlowEvent::Link(note) => self.place.out.borrow_mut().link_note(live.now(), &note),
            FlowEvent::Gone => {}
        }
    }

    fn tick(&mut self, live: &mut Live<FlowMachine, D>) {
        let now = self.place.clock.now();
        self.place.out.borrow_mut().flush_if_due(now);
        if self.place.stopped() {
            live.stop();
        } else if self.close_at.take_if(|at| *at <= now).is_some() {
            live.close();
        } else {
            self.suffer(live, now);
        }
    }
}

/// Demultiplexer for packets without session numbers: an end's machine gets all of them.
#[derive(Default)]
struct OneSession(Option<SessionId>);

impl Demux for OneSession {
    type Key = ();
    type NewSession<'a> = ();

    fn add(&mut self, _: Time, id: SessionId, (): ()) {
        self.0 = Some(id);
    }

    fn remove(&mut self, _: SessionId) {
        self.0 = None;
    }

    fn find(&mut self, arrival: Arrival<'_>, _: &[u8]) -> Option<Found<()>> {
        // A host is one end, whatever its source port: a source sends unicast from another port.
        let ports = [arrival.from.port(), UDP_PORT, RECEIVER_PORT];
        let mut nodes = ports.into_iter().map(|port| SocketAddr::new(arrival.from.ip(), port));
        Some(Found::Session(self.0?, nodes.find_map(|from| arrival.book.node(from))?))
    }

    fn key(&self, (): &()) {}
}

struct ToOutbox(Rc<RefCell<Outbox>>);

impl Sink for ToOutbox {
    fn record(&mut self, record: &Record) {
        self.0.borrow_mut().record(record);
    }
}
