//! Ends of sessions for tests, each in a thread of its own.

#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../../../tests/noise.rs"]
mod noise;

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use faircast_base::{Duration, FlowId, NodeId, Time};
use faircast_lab::lan::{Gate, Lan};
use faircast_net::{
    App, Counters, Driver, DriverSettings, Ended, Envelope, Listen, Live, NewSession, SessionId,
    SessionOptions, SocketSettings, Sockets, Target, Waker,
};
use faircast_proto::catalog::{DEFAULT_SCHEME, Stack, stack};
use faircast_proto::content::InMemory;
use faircast_proto::options::{OptionValue, Options};
use faircast_proto::transport::{EndSetup, Role};
use faircast_proto::{FlowEvent, FlowMachine};

pub(crate) type BoxedMachine = FlowMachine;

pub(crate) fn source_node(flow: u32) -> NodeId {
    NodeId(0x0a00_0001 + flow)
}

fn usual() -> Stack {
    stack(DEFAULT_SCHEME).unwrap()
}

pub(crate) fn quick_options() -> Options {
    let linger = ("linger".to_string(), OptionValue::Text("1 s".to_string()));
    Options::checked([linger], &usual().options()).unwrap()
}

pub(crate) fn content(len: usize, seed: u32) -> Arc<[u8]> {
    noise::noise(len, seed).into()
}

pub(crate) fn quick_driver() -> DriverSettings {
    DriverSettings { close_timeout: Duration::from_secs(5), ..DriverSettings::default() }
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) ended: Ended,
    pub(crate) delivered: Vec<Vec<u8>>,
    pub(crate) completed: usize,
    pub(crate) gone: usize,
    pub(crate) counters: Counters,
}

#[derive(Default)]
pub(crate) struct Keeper {
    flows: Vec<u32>,
    stack: Option<Stack>,
    sessions: Vec<SessionId>,
    delivered: Vec<Vec<u8>>,
    completed: usize,
    gone: usize,
    limit: Option<Time>,
}

impl App<BoxedMachine> for Keeper {
    fn accept(
        &mut self,
        live: &mut Live<BoxedMachine>,
        heard: &NewSession<'_>,
    ) -> Option<BoxedMachine> {
        let flow = u32::from(heard.tsi.port & 0x7fff);
        if !self.flows.contains(&flow) {
            return None;
        }
        let options = quick_options();
        let sources = [source_node(flow)];
        let setup = EndSetup::new(FlowId(flow), live.node(), &sources, &options);
        let setup = EndSetup { start: heard.now, ..setup };
        self.stack.unwrap_or_else(usual).end(Role::Receiver, setup)
    }

    fn event(&mut self, _: &mut Live<BoxedMachine>, session: SessionId, event: FlowEvent) {
        let index = self.sessions.iter().position(|id| *id == session).unwrap_or_else(|| {
            self.sessions.push(session);
            self.delivered.push(Vec::new());
            self.sessions.len() - 1
        });
        match event {
            FlowEvent::Delivered { bytes, zeros } => {
                let to = &mut self.delivered[index];
                to.extend_from_slice(&bytes);
                to.resize(to.len() + zeros as usize, 0);
            }
            FlowEvent::Completed => self.completed += 1,
            FlowEvent::Gone => self.gone += 1,
            _ => {}
        }
    }

    fn tick(&mut self, live: &mut Live<BoxedMachine>) {
        let now = live.now();
        let limit = *self.limit.get_or_insert(now + Duration::from_secs(60));
        if now >= limit || self.flows.len() > 1 && self.completed == self.flows.len() {
            live.stop();
        }
    }
}

#[derive(Default)]
pub(crate) struct Place {
    pub(crate) gate: Option<Gate>,
    pub(crate) envelope: Option<Box<dyn Envelope>>,
    pub(crate) sockets: SocketSettings,
    pub(crate) stack: Option<Stack>,
}

impl Place {
    pub(crate) fn on(lan: &Lan, host: usize) -> Self {
        Self { gate: Some(lan.gate(host).unwrap()), ..Self::default() }
    }

    pub(crate) fn enter(&self) {
        if let Some(gate) = &self.gate {
            gate.enter().unwrap();
        }
    }
}

pub(crate) fn send(
    place: Place,
    target: Target,
    flow: u32,
    bytes: Arc<[u8]>,
) -> JoinHandle<Outcome> {
    thread::spawn(move || {
        place.enter();
        let sockets = Sockets::source(target, place.sockets).unwrap();
        let node = source_node(flow);
        let settings = DriverSettings { node: Some(node), ..quick_driver() };
        let mut driver = Driver::<BoxedMachine>::new(sockets, settings).unwrap();
        if let Some(envelope) = place.envelope {
            driver.set_envelope(envelope);
        }
        let start = driver.live().now();
        let options = quick_options();
        let setup = EndSetup::new(FlowId(flow), node, std::slice::from_ref(&node), &options);
        let setup = EndSetup { start, ..setup };
        let role = Role::Source(Box::new(InMemory(bytes)));
        let machine = place.stack.unwrap_or_else(usual).end(role, setup).unwrap();
        driver.live().add(machine, SessionOptions::default());
        finish(driver, Keeper::default())
    })
}

/// Receives these flows. Sends the waker once the sockets are open.
pub(crate) fn receive(place: Place, listen: Listen, flows: &[u32]) -> JoinHandle<Outcome> {
    let (ready, is_ready) = std::sync::mpsc::channel::<Waker<BoxedMachine>>();
    let flows = flows.to_vec();
    let handle = thread::spawn(move || {
        place.enter();
        let sockets = Sockets::receiver(listen, place.sockets).unwrap();
        let settings = DriverSettings { ends_when_idle: flows.len() == 1, ..quick_driver() };
        let mut driver = Driver::<BoxedMachine>::new(sockets, settings).unwrap();
        if let Some(envelope) = place.envelope {
            driver.set_envelope(envelope);
        }
        ready.send(driver.waker()).unwrap();
        finish(driver, Keeper { flows, stack: place.stack, ..Keeper::default() })
    });
    is_ready.recv().unwrap();
    handle
}

fn finish(mut driver: Driver<BoxedMachine>, mut app: Keeper) -> Outcome {
    let ended = driver.run(&mut app).unwrap();
    Outcome {
        ended,
        delivered: app.delivered,
        completed: app.completed,
        gone: app.gone,
        counters: *driver.live().counters(),
    }
}
