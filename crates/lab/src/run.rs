//! Run of a scenario: hosts, the network between them, and one trace.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration as WallDuration;

use faircast_base::{FlowId, NodeId};
use faircast_net::Sockets;
use faircast_scenario::{Flow, NodeProgram, Scenario};
use faircast_sim::{Delivery, Observer, SentContent, shortest_round_trip};
use faircast_trace::{Sink, Subject};
use socket2::Socket;
use tun_rs::SyncDevice;

use crate::LabOutcome;
use crate::clock::Clock;
use crate::emulator::{self, Port, Shared};
use crate::endpoint::{End, Place};
use crate::error::LabError;
use crate::lateness::ProcessorTime;
use crate::merge::{Entry, Merge, Outbox};
use crate::plan::{self, TcpPlan};
use crate::{endpoint, host, tcp};

/// Time between the setup of all hosts and the start of the run.
const LEAD: WallDuration = WallDuration::from_millis(100);
const TICK: WallDuration = WallDuration::from_millis(50);
/// Stack of a host's thread in bytes: its buffers are on the heap.
const STACK: usize = 512 * 1024;

type Ended = Result<Option<Delivery>, LabError>;

/// Runs a scenario in the lab, in real time. Events are recorded to `sink` in time order. Fails if
/// the machine lacks something, or if the scenario needs something that the lab lacks.
pub fn run(
    scenario: &Scenario,
    observer: &mut dyn Observer,
    sink: &mut dyn Sink,
) -> Result<LabOutcome, LabError> {
    plan::check(scenario)?;
    let sent = scenario.flows.iter().map(SentContent::of).collect::<Result<Vec<_>, _>>()?;
    let shared = Shared::default();
    let (to, records) = mpsc::channel();
    std::thread::scope(|scope| {
        let lab = Lab { scenario, shared: &shared, to };
        let mut hosts = Vec::new();
        for (id, sent) in (0..).map(FlowId).zip(&sent) {
            for node in scenario.flows[id.index()].ends() {
                hosts.push(lab.start_end(scope, (hosts.len() as u32, node), id, sent)?);
            }
        }
        for program in scenario.programs() {
            hosts.push(lab.start_program(scope, hosts.len() as u32, program)?);
        }
        let mut ports = Vec::new();
        for host in &hosts {
            // A thread without an answer has panicked, which the join reports.
            match host.ready.recv() {
                Ok(port) => ports.push(port?),
                Err(_) => break,
            }
        }
        let before = ProcessorTime::now();
        let clock = Clock::starting_in(LEAD);
        let outs = (Outbox::new(lab.to.clone()), Outbox::new(lab.to.clone()));
        let emulator = std::thread::Builder::new()
            .name("emulator".to_string())
            .spawn_scoped(scope, {
                let shared = &shared;
                move || emulator::run(scenario, ports, clock, outs, shared)
            })
            .map_err(LabError::doing("start a thread"))?;
        for host in &hosts {
            // A failed thread does not receive; its join returns the error.
            let _ = host.go.send(clock);
        }
        drop(lab);
        let mut merge = Merge::default();
        let interrupted = watch(&clock, &records, &emulator, &shared, (observer, &mut merge), sink);
        shared.stop.store(true, Ordering::Relaxed);
        let mut outcome = joined(emulator)?;
        let ended: Result<Vec<_>, _> = hosts.into_iter().map(|host| joined(host.thread)).collect();
        merge.waiting.extend(records.try_iter().flatten());
        merge.finish(outcome.at, sink);
        let stolen = before.and_then(|before| ProcessorTime::now()?.stolen_since(&before));
        // Without senders no packet can be late.
        let round_trip_s =
            shortest_round_trip(scenario).map_or(f64::INFINITY, |rtt| rtt.as_secs_f64());
        outcome.interrupted = interrupted;
        outcome.lateness = outcome.lateness.judged(round_trip_s, stolen);
        outcome.intact = intact(scenario, &ended?, &sent);
        outcome.notes.splice(..0, plan::warnings(scenario));
        if merge.moved > 0 {
            let note =
                format!("{} records came too late for their place in the trace", merge.moved);
            outcome.notes.push(note);
        }
        Ok(outcome)
    })
}

fn intact(
    scenario: &Scenario,
    ended: &[Option<Delivery>],
    sent: &[SentContent],
) -> Vec<Vec<Option<bool>>> {
    let mut ended = ended.iter();
    let intact = |(flow, sent): (&Flow, &SentContent)| {
        let of_flow: BTreeMap<NodeId, _> = flow.ends().zip(ended.by_ref()).collect();
        let judged = |node: &NodeId| {
            let got = of_flow[node].as_ref()?;
            got.has_any().then(|| got.intact(sent, flow.heard_at(*node)))
        };
        flow.to.iter().map(judged).collect()
    };
    scenario.flows.iter().zip(sent).map(intact).collect()
}

fn watch(
    clock: &Clock,
    records: &Receiver<Vec<Entry>>,
    emulator: &ScopedJoinHandle<'_, Result<LabOutcome, LabError>>,
    shared: &Shared,
    (observer, merge): (&mut dyn Observer, &mut Merge),
    sink: &mut dyn Sink,
) -> bool {
    let mut next_tick = std::time::Instant::now();
    let mut interrupted = false;
    while !emulator.is_finished() {
        match records.recv_timeout(TICK) {
            Ok(batch) => merge.waiting.extend(batch),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if std::time::Instant::now() < next_tick {
            continue;
        }
        next_tick = std::time::Instant::now() + TICK;
        // All records sent by now are taken before any is passed on.
        let now = clock.now();
        merge.waiting.extend(records.try_iter().flatten());
        merge.pass(now, sink);
        let events = shared.events.load(Ordering::Relaxed);
        if !interrupted && observer.observe(now, events).is_break() {
            interrupted = true;
            shared.stop.store(true, Ordering::Relaxed);
        }
    }
    interrupted
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

struct Host<'scope> {
    ready: Receiver<Result<Port, LabError>>,
    go: Sender<Clock>,
    thread: ScopedJoinHandle<'scope, Ended>,
}

struct Lab<'env> {
    scenario: &'env Scenario,
    shared: &'env Shared,
    to: Sender<Vec<Entry>>,
}

impl<'env> Lab<'env> {
    fn start_end<'scope>(
        &self,
        scope: &'scope Scope<'scope, 'env>,
        (number, node): (u32, NodeId),
        id: FlowId,
        sent: &'env SentContent,
    ) -> Result<Host<'scope>, LabError> {
        let flow = &self.scenario.flows[id.index()];
        let sender = !flow.receives(node);
        let subject = Subject::Endpoint { flow: id, node, sender };
        let prepared = move || prepare(flow, id, node, sender);
        self.spawn(scope, (id, number), subject, prepared, move |place, opened| {
            let end = End { place, flow, id };
            match opened {
                Opened::Tcp(socket) if sender => {
                    tcp::send(end, socket, sent.content()).map(|()| None)
                }
                Opened::Tcp(listener) => Ok(Some(tcp::receive(end, listener, sent.is_real()))),
                Opened::Udp(sockets) => endpoint::send(end, *sockets, sent).map(|()| None),
                Opened::Nothing => endpoint::receive(end, sent).map(Some),
            }
        })
    }

    fn start_program<'scope>(
        &self,
        scope: &'scope Scope<'scope, 'env>,
        number: u32,
        program: NodeProgram<'env>,
    ) -> Result<Host<'scope>, LabError> {
        let node = program.node();
        let subject = Subject::Node(node);
        let prepared = move || {
            let device = host::make(node, plan::RELAY_MTU, None)?;
            Ok((device, endpoint::relayed_sockets(node)?))
        };
        let id = self.scenario.programs_flow();
        self.spawn(scope, (id, number), subject, prepared, move |place, sockets| {
            endpoint::program(place, program, sockets).map(|()| None)
        })
    }

    fn spawn<'scope, O>(
        &self,
        scope: &'scope Scope<'scope, 'env>,
        (flow, number): (FlowId, u32),
        subject: Subject,
        prepare: impl FnOnce() -> Result<(SyncDevice, O), LabError> + Send + 'scope,
        run: impl FnOnce(Place<'env>, O) -> Ended + Send + 'scope,
    ) -> Result<Host<'scope>, LabError> {
        let (ready_to, ready) = mpsc::channel();
        let (go, wait) = mpsc::channel();
        let (scenario, shared) = (self.scenario, self.shared);
        let out = Outbox::new(self.to.clone());
        let (node, sender) = match subject {
            Subject::Endpoint { node, sender, .. } => (node, sender),
            Subject::Node(node) => (node, false),
            Subject::Link(_) => unreachable!("a link has no program"),
        };
        let body = move || {
            let (port, opened) = match prepare() {
                Ok((device, opened)) => (Ok(Port { device, flow, node, sender }), Some(opened)),
                Err(error) => (Err(error), None),
            };
            let _ = ready_to.send(port);
            let (Some(opened), Ok(clock)) = (opened, wait.recv()) else { return Ok(None) };
            let out = Rc::new(RefCell::new(out));
            let ended = run(Place { scenario, node, number, subject, clock, shared, out }, opened);
            if ended.is_err() {
                // The figures would not be those of the scenario.
                shared.stop.store(true, Ordering::Relaxed);
            }
            ended
        };
        let thread = std::thread::Builder::new()
            .name(format!("{flow:?} {node:?}"))
            .stack_size(STACK)
            .spawn_scoped(scope, body)
            .map_err(LabError::doing("start a thread"))?;
        Ok(Host { ready, go, thread })
    }
}

enum Opened {
    Tcp(Socket),
    /// Sockets of an end that only sends.
    Udp(Box<Sockets>),
    /// Other ends open sockets for each membership.
    Nothing,
}

fn prepare(
    flow: &Flow,
    id: FlowId,
    node: NodeId,
    sender: bool,
) -> Result<(SyncDevice, Opened), LabError> {
    let plan = TcpPlan::of(flow);
    let device = host::make(node, plan::mtu(flow), plan.as_ref())?;
    let opened = match plan {
        Some(plan) => Opened::Tcp(tcp::socket(flow, &plan, sender)?),
        None if sender => Opened::Udp(Box::new(endpoint::sockets(flow, id, node)?)),
        None => Opened::Nothing,
    };
    Ok((device, opened))
}
