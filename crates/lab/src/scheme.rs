//! A multicast scheme at a host, as it runs on real networks: sockets and driver are those of
//! `faircast-net`.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use faircast_base::{Duration, GroupId, NodeId, Time};
use faircast_net::{
    AddressBook, App, Driver, DriverSettings, Interface, Listen, Live, Multicast, NetError,
    PgmDemux, PgmSettings, SessionId, SessionOptions, SocketSettings, Sockets, Target,
};
use faircast_proto::content::Content;
use faircast_proto::transport::Role;
use faircast_proto::{AppEvent, Machine};
use faircast_scenario::Scenario;
use faircast_sim::{Builtin, Delivery, Protocols};
use faircast_trace::{Record, Sink, Subject};

use crate::address::{self, UDP_PORT};
use crate::clock::{HOST_PRIORITY, RECEIVER_PRIORITY, be_exact};
use crate::error::LabError;
use crate::machine::{End, Membership};
use crate::merge::Outbox;

/// From where receivers send, and where they hear what is for them alone.
const RECEIVER_PORT: u16 = UDP_PORT + 1;
/// How often a driver looks whether it is to stop, to close or to leave.
const TICK: Duration = Duration::from_millis(10);
/// How long a machine goes on after it was told to end.
const PATIENCE: Duration = Duration::from_secs(1);

type Boxed = Box<dyn Machine>;

/// Opens the sockets of an end, in its own namespace.
pub(crate) fn sockets(
    scenario: &Scenario,
    flow: faircast_base::FlowId,
    node: NodeId,
) -> Result<Sockets, LabError> {
    let multicast = Multicast {
        group: SocketAddr::from((address::group(flow, GroupId::SESSION), UDP_PORT)),
        source: None,
        interfaces: vec![Interface::Address(address::of_node(node).into())],
    };
    let sender = scenario.flows[flow.index()].sender() == node;
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
    opened.map_err(failed("open the sockets of a flow"))
}

/// Sends everything that the flow sends.
pub(crate) fn send(
    end: End<'_>,
    scenario: &Scenario,
    sockets: Sockets,
    content: Box<dyn Content>,
) -> Result<(), LabError> {
    be_exact(HOST_PRIORITY);
    let mut host = Host::new(end, false);
    let close_at = host.end.flow.stop;
    let content = std::cell::Cell::new(Some(content));
    host.drive(scenario, sockets, close_at, |end, start| {
        let content = content.take().expect("one machine is made");
        Builtin.end(end.flow, end.id, end.node, Role::Source(content), start)
    })?;
    host.finish();
    Ok(())
}

/// Receives everything, while it is a member. Before a membership it has no sockets, so that the
/// kernel is no member either.
pub(crate) fn receive(end: End<'_>, scenario: &Scenario, real: bool) -> Result<Delivery, LabError> {
    be_exact(RECEIVER_PRIORITY);
    let mut host = Host::new(end, real);
    for Membership { at, leave } in host.end.memberships() {
        host.end.sleep_until(at);
        if host.end.stopped() {
            break;
        }
        let sockets = sockets(scenario, host.end.id, host.end.node)?;
        host.drive(scenario, sockets, leave, |end, start| {
            Builtin.end(end.flow, end.id, end.node, Role::Receiver, start)
        })?;
    }
    Ok(host.finish())
}

/// An end while it is driven.
struct Host<'a> {
    end: End<'a>,
    out: Rc<RefCell<Outbox>>,
    delivery: Delivery,
    /// The moment of the run at which the driver's clock stood at zero.
    zero: Time,
    close_at: Option<Time>,
}

impl<'a> Host<'a> {
    fn new(mut end: End<'a>, real: bool) -> Self {
        let out = Rc::new(RefCell::new(end.take_out()));
        Self { end, out, delivery: Delivery::new(real), zero: Time::ZERO, close_at: None }
    }

    /// Drives a machine until it has ended, is closed and has said goodbye, or the run ends.
    fn drive(
        &mut self,
        scenario: &Scenario,
        sockets: Sockets,
        close_at: Option<Time>,
        machine: impl FnOnce(&End<'_>, Time) -> Boxed,
    ) -> Result<(), LabError> {
        let sender = self.end.node == self.end.flow.sender();
        // The clock of the run stands still until it begins.
        self.end.sleep_until(Time::from_nanos(1));
        let settings = DriverSettings {
            node: Some(self.end.node),
            seed: Some(scenario.seed),
            tick: TICK,
            patience: PATIENCE,
            // A receiver may have nothing to do before it hears anything.
            ends_when_idle: sender,
            ..DriverSettings::default()
        };
        let demux = PgmDemux::new(PgmSettings { elements: true, ..PgmSettings::default() });
        let book = self.book(scenario);
        let mut driver = Driver::<Boxed>::with_demux(sockets, book, demux, settings)
            .map_err(failed("drive a flow"))?;
        let now = driver.live().now();
        self.zero = Time::ZERO + self.end.clock.now().since(Time::ZERO + now.since(Time::ZERO));
        self.close_at = close_at;
        driver.set_trace(Box::new(Shifted { zero: self.zero, out: Rc::clone(&self.out) }));
        let start = self.end.flow.start.since(self.zero);
        let start = if sender { Time::ZERO + start } else { now };
        let machine = machine(&self.end, start.max(now));
        let (flow, node) = (self.end.id, self.end.node);
        let subject = Some(Subject::Endpoint { flow, node, sender });
        let session = driver.live().add(machine, SessionOptions { key: None, subject });
        match driver.run(self) {
            // At the end of the run interfaces go away; that is no failure.
            Err(error) if !self.end.stopped() => return Err(failed("drive a flow")(error)),
            _ => {}
        }
        if !sender && !self.end.stopped() {
            driver.live().remove(session);
        }
        Ok(())
    }

    /// Who has which address, from where this end stands.
    fn book(&self, scenario: &Scenario) -> AddressBook {
        let entry = |index: usize| {
            let node = NodeId(index as u32);
            let receives = self.end.flow.to.contains(&node);
            let port = if receives { RECEIVER_PORT } else { UDP_PORT };
            (node, SocketAddr::from((address::of_node(node), port)))
        };
        AddressBook::fixed((0..scenario.nodes.len()).map(entry))
    }

    fn finish(self) -> Delivery {
        self.out.borrow_mut().flush(self.end.clock.now());
        self.delivery
    }
}

impl App<Boxed> for Host<'_> {
    fn event(&mut self, _: &mut Live<Boxed>, _: SessionId, event: AppEvent) {
        match event {
            AppEvent::Delivered { bytes, zeros } => self.delivery.take(&bytes, zeros),
            AppEvent::Lost { packets } => self.delivery.lost_packets += u64::from(packets),
            AppEvent::Completed => self.delivery.completed = Some(self.end.clock.now()),
            _ => {}
        }
    }

    fn tick(&mut self, live: &mut Live<Boxed>) {
        let now = self.end.clock.now();
        self.out.borrow_mut().flush_if_due(now);
        if self.end.shared.stop.load(Ordering::Relaxed) {
            live.stop();
        } else if self.close_at.take_if(|at| *at <= now).is_some() {
            live.close();
        }
    }
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

fn failed(doing: &str) -> impl FnOnce(NetError) -> LabError {
    let doing = doing.to_string();
    move |error| LabError::System { doing, source: std::io::Error::other(error) }
}
