//! An end of a flow at a host, as it runs on real networks: sockets and driver are those of
//! `faircast-net`.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use faircast_base::{Duration, Event, FlowId, GroupId, NodeId, Time};
use faircast_net::{
    AddressBook, App, Arrival, Demux, Driver, DriverSettings, Found, Interface, Listen, Live,
    Multicast, NetError, PgmDemux, PgmSettings, SessionId, SessionOptions, SocketSettings, Sockets,
    Target,
};
use faircast_proto::transport::Role;
use faircast_proto::{FlowEvent, FlowMachine};
use faircast_scenario::{Flow, Scenario};
use faircast_sim::{Builtin, Delivery, Protocols, SentContent};
use faircast_trace::{Record, Sink, Subject};

use crate::address::{self, OTHER_GROUPS_MAX, UDP_PORT};
use crate::clock::{Clock, HOST_PRIORITY, RECEIVER_PRIORITY, be_exact, wall};
use crate::emulator::Shared;
use crate::error::LabError;
use crate::merge::Outbox;

/// From where receivers send, and where they hear what is for them alone.
const RECEIVER_PORT: u16 = UDP_PORT + 1;
/// How often an end looks whether it is to stop, to close or to leave.
const TICK: Duration = Duration::from_millis(10);
/// How long a machine goes on after it was told to end.
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// One end of a flow, in its own namespace.
pub(crate) struct End<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) flow: &'a Flow,
    pub(crate) id: FlowId,
    pub(crate) node: NodeId,
    /// Its number among the ends of all flows, by which the simulator too makes it random.
    pub(crate) number: u32,
    pub(crate) clock: Clock,
    pub(crate) shared: &'a Shared,
    pub(crate) out: Rc<RefCell<Outbox>>,
}

impl End<'_> {
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
        let subject = self.subject();
        self.out.borrow_mut().record(&Record { at, subject, event });
    }

    /// At the end of the run interfaces and connections go away; that is no failure.
    pub(crate) fn failed<E: std::error::Error + Send + Sync + 'static>(
        &self,
        result: Result<(), E>,
    ) -> Result<(), LabError> {
        match result {
            Err(error) if !self.stopped() => {
                let doing = format!("drive flow \"{}\"", self.flow.name);
                Err(LabError::doing(doing)(std::io::Error::other(error)))
            }
            _ => Ok(()),
        }
    }

    fn is_sender(&self) -> bool {
        !self.flow.receives(self.node)
    }

    fn subject(&self) -> Subject {
        Subject::Endpoint { flow: self.id, node: self.node, sender: self.is_sender() }
    }

    /// When it is a member, in order: from a moment, until another. Throughout where the scenario does
    /// not say.
    fn memberships(&self) -> Vec<(Time, Option<Time>)> {
        let joins = self.flow.join.iter().filter(|join| join.node == self.node);
        let mut memberships: Vec<_> = joins.map(|join| (join.at, join.leave)).collect();
        if memberships.is_empty() {
            memberships.push((Time::ZERO, None));
        }
        memberships.sort_unstable();
        memberships
    }

    /// Who has which address, from where this end stands.
    fn book(&self) -> AddressBook {
        let entry = |node: NodeId| {
            let port = if self.flow.receives(node) { RECEIVER_PORT } else { UDP_PORT };
            (node, SocketAddr::from((address::of_node(node), port)))
        };
        AddressBook::fixed((0..self.scenario.nodes.len() as u32).map(NodeId).map(entry))
    }
}

/// Opens the sockets of an end, in its own namespace.
pub(crate) fn sockets(flow: &Flow, id: FlowId, node: NodeId) -> Result<Sockets, LabError> {
    let sender = !flow.receives(node);
    let multicast = Multicast {
        group: SocketAddr::from((address::group(id, GroupId::SESSION), UDP_PORT)),
        source: None,
        interfaces: vec![Interface::Address(address::of_node(node).into())],
    };
    let settings = SocketSettings {
        // What a machine asks for is less or as much.
        hops: u8::MAX,
        loopback: false,
        port: Some(if sender { UDP_PORT } else { RECEIVER_PORT }),
        // Queues are to see packets as they are on a wire.
        offload: false,
        ..SocketSettings::default()
    };
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

fn opening(error: NetError) -> LabError {
    LabError::doing("open the sockets of a flow")(std::io::Error::other(error))
}

pub(crate) fn send(end: End<'_>, sockets: Sockets, role: Role) -> Result<(), LabError> {
    be_exact(HOST_PRIORITY);
    let close_at = end.flow.stop;
    let mut driven = Driven { end, delivery: Delivery::new(false), close_at };
    driven.drive(sockets, role)?;
    driven.finish();
    Ok(())
}

/// Receives everything, while it is a member, and sends too where it is a sender as well. Before a
/// membership it has no sockets, so that the kernel is no member either.
pub(crate) fn receive(end: End<'_>, sent: &SentContent) -> Result<Delivery, LabError> {
    be_exact(RECEIVER_PRIORITY);
    let mut driven = Driven { end, delivery: Delivery::new(sent.is_real()), close_at: None };
    for (join, leave) in driven.end.memberships() {
        driven.end.sleep_until(join);
        if driven.end.stopped() {
            break;
        }
        let sends = driven.end.flow.sends(driven.end.node, join);
        let stop = driven.end.flow.stop.filter(|_| sends);
        driven.close_at = leave.into_iter().chain(stop).min();
        let role = if sends { Role::Both(sent.content()) } else { Role::Receiver };
        let sockets = sockets(driven.end.flow, driven.end.id, driven.end.node)?;
        driven.drive(sockets, role)?;
    }
    Ok(driven.finish())
}

struct Driven<'a> {
    end: End<'a>,
    delivery: Delivery,
    close_at: Option<Time>,
}

impl Driven<'_> {
    fn drive(&mut self, sockets: Sockets, role: Role) -> Result<(), LabError> {
        match self.end.flow.stack.is_pgm() {
            true => {
                let settings = PgmSettings { elements: true, ..PgmSettings::default() };
                self.drive_with(sockets, PgmDemux::new(settings), role)
            }
            false => self.drive_with(sockets, OneSession::default(), role),
        }
    }

    /// Drives a machine until it has ended, is closed and has said goodbye, or the run ends.
    fn drive_with<D: Demux>(
        &mut self,
        sockets: Sockets,
        demux: D,
        role: Role,
    ) -> Result<(), LabError> {
        let end = &self.end;
        let sender = end.is_sender();
        let settings = DriverSettings {
            node: Some(end.node),
            seed: Some(end.scenario.seed),
            tick: TICK,
            close_timeout: CLOSE_MAX,
            // A receiver may have nothing to do before it hears anything.
            ends_when_idle: sender,
            ..DriverSettings::default()
        };
        // The clock of the run stands still until it begins.
        end.sleep_until(Time::from_nanos(1));
        let driver = Driver::<FlowMachine, D>::with_demux(sockets, end.book(), demux, settings);
        let mut driver = driver.map_err(opening)?;
        let now = driver.live().now();
        // The moment of the run at which the driver's clock stood at zero.
        let zero = Time::ZERO + end.clock.now().since(Time::ZERO + now.since(Time::ZERO));
        driver.set_trace(Box::new(Shifted { zero, out: Rc::clone(&end.out) }));
        let start = match role {
            Role::Receiver => now,
            _ => Time::ZERO + end.flow.start.since(zero),
        };
        let machine = Builtin.end(end.flow, end.id, end.node, role, start.max(now));
        let options = SessionOptions { key: D::Key::default(), subject: Some(end.subject()) };
        driver.live().number_from(end.number);
        let session = driver.live().add(machine, options);
        let ended = driver.run(self).map(drop);
        self.end.failed(ended)?;
        if !sender && !self.end.stopped() {
            driver.live().remove(session);
        }
        Ok(())
    }

    fn finish(self) -> Delivery {
        self.end.out.borrow_mut().flush(self.end.clock.now());
        self.delivery
    }
}

impl<D: Demux> App<FlowMachine, D> for Driven<'_> {
    fn event(&mut self, _: &mut Live<FlowMachine, D>, _: SessionId, event: FlowEvent) {
        match event {
            FlowEvent::Delivered { bytes, zeros } => self.delivery.take(&bytes, zeros),
            FlowEvent::Lost { packets } => self.delivery.lost_packets += u64::from(packets),
            FlowEvent::Completed => self.delivery.completed = Some(self.end.clock.now()),
            FlowEvent::Gone => {}
        }
    }

    fn tick(&mut self, live: &mut Live<FlowMachine, D>) {
        let now = self.end.clock.now();
        self.end.out.borrow_mut().flush_if_due(now);
        if self.end.stopped() {
            live.stop();
        } else if self.close_at.take_if(|at| *at <= now).is_some() {
            live.close();
        }
    }
}

/// The demultiplexer of what names no sessions in its packets: the machine of an end takes them all.
#[derive(Default)]
struct OneSession(Option<SessionId>);

impl Demux for OneSession {
    type Key = ();
    type Heard<'a> = ();

    fn add(&mut self, _: Time, id: SessionId, (): ()) {
        self.0 = Some(id);
    }

    fn remove(&mut self, _: SessionId) {
        self.0 = None;
    }

    fn find(&mut self, arrival: Arrival<'_>, _: &[u8]) -> Option<Found<()>> {
        // A host is one end, whatever port it sends from: a source answers single nodes from another.
        let ports = [arrival.from.port(), UDP_PORT, RECEIVER_PORT];
        let mut nodes = ports.into_iter().map(|port| SocketAddr::new(arrival.from.ip(), port));
        Some(Found::Session(self.0?, nodes.find_map(|from| arrival.book.node(from))?))
    }

    fn key(&self, (): &()) {}
}

/// Turns the driver's times into the run's.
struct Shifted {
    zero: Time,
    out: Rc<RefCell<Outbox>>,
}

impl Sink for Shifted {
    fn record(&mut self, record: &Record) {
        let at = self.zero + record.at.since(Time::ZERO);
        self.out.borrow_mut().record(&Record { at, ..*record });
    }
}
