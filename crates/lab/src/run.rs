//! A run: hosts, the network between them, and one trace of it all.

use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration as WallDuration;

use faircast_base::{FlowId, NodeId};
use faircast_net::Sockets;
use faircast_proto::content::Content;
use faircast_scenario::{Flow, Scenario};
use faircast_sim::{Delivery, Observer, Sent, shortest_round_trip};
use faircast_trace::{Record, Sink};
use socket2::Socket;
use tun_rs::SyncDevice;

use crate::Outcome;
use crate::clock::Clock;
use crate::emulator::{self, Emulated, Port, Shared};
use crate::error::LabError;
use crate::lateness::ProcessorTime;
use crate::merge::{Merge, Outbox};
use crate::plan::{self, TcpPlan};
use crate::{host, machine, scheme, tcp};

/// Between the moment when all hosts stand and the beginning of the run.
const LEAD: WallDuration = WallDuration::from_millis(100);
/// How often records are ordered and the observer is asked.
const TICK: WallDuration = WallDuration::from_millis(50);
/// Bytes of stack of a host's thread: it keeps its buffers on the heap.
const STACK: usize = 512 * 1024;

/// What an end's thread gives back: what a receiver delivered.
type Ended = Result<Option<Delivery>, LabError>;

/// Runs a scenario.
pub(crate) fn run(
    scenario: &Scenario,
    observer: &mut dyn Observer,
    sink: &mut dyn Sink,
) -> Result<Outcome, LabError> {
    plan::check(scenario)?;
    let sent = scenario.flows.iter().map(Sent::of).collect::<Result<Vec<_>, _>>()?;
    let shared = Shared::default();
    let (to, records) = mpsc::channel();
    std::thread::scope(|scope| {
        let lab = Lab { scenario, shared: &shared, to };
        let mut hosts = Vec::new();
        for (flow, sent) in sent.iter().enumerate() {
            hosts.extend(lab.start_flow(scope, flow, sent)?);
        }
        let mut ports = Vec::new();
        for host in &hosts {
            // A thread that ends without an answer has panicked, which the join shows.
            match host.ready.recv() {
                Ok(device) => ports.push(host.port(device?)),
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
        hosts.iter().for_each(|host| host.go(clock));
        drop(lab);
        let mut merge = Merge::default();
        let interrupted = watch(&clock, &records, &emulator, &shared, (observer, &mut merge), sink);
        shared.stop.store(true, Ordering::Relaxed);
        let emulated = emulator.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let ended: Result<Vec<_>, _> = hosts.into_iter().map(Host::join).collect();
        for mut batch in records.try_iter() {
            merge.take(&mut batch);
        }
        merge.finish(emulated.at, sink);
        let stolen = before.and_then(|before| ProcessorTime::now()?.stolen_since(&before));
        // Where nobody sends nothing is late.
        let round_trip_s =
            shortest_round_trip(scenario).map_or(f64::INFINITY, |rtt| rtt.as_secs_f64());
        let lateness = emulated.lateness.judged(round_trip_s, stolen);
        let emulated = Emulated { lateness, ..emulated };
        Ok(outcome(scenario, emulated, interrupted, &ended?, &sent, &merge))
    })
}

/// Orders records until the emulator has ended. True where the observer ended the run.
fn watch(
    clock: &Clock,
    records: &Receiver<Vec<Record>>,
    emulator: &ScopedJoinHandle<'_, Result<Emulated, LabError>>,
    shared: &Shared,
    (observer, merge): (&mut dyn Observer, &mut Merge),
    sink: &mut dyn Sink,
) -> bool {
    let mut next_tick = std::time::Instant::now();
    let mut interrupted = false;
    while !emulator.is_finished() {
        match records.recv_timeout(TICK) {
            Ok(mut batch) => merge.take(&mut batch),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if std::time::Instant::now() < next_tick {
            continue;
        }
        next_tick = std::time::Instant::now() + TICK;
        // Everything that was sent by now is taken before anything is passed on.
        let now = clock.now();
        for mut batch in records.try_iter() {
            merge.take(&mut batch);
        }
        merge.pass(now, sink);
        let events = shared.events.load(Ordering::Relaxed);
        if !interrupted && observer.observe(now, events).is_break() {
            interrupted = true;
            shared.stop.store(true, Ordering::Relaxed);
        }
    }
    interrupted
}

fn outcome(
    scenario: &Scenario,
    emulated: Emulated,
    interrupted: bool,
    ended: &[Option<Delivery>],
    sent: &[Sent],
    merge: &Merge,
) -> Outcome {
    let mut receivers = ended.iter().flatten();
    let intact = |(flow, sent): (&Flow, &Sent)| {
        let of_flow = receivers.by_ref().take(flow.to.len());
        of_flow.map(|got| got.has_any().then(|| got.intact(sent, 1))).collect()
    };
    let intact = scenario.flows.iter().zip(sent).map(intact).collect();
    let mut notes = plan::warnings(scenario);
    if !emulated.lateness.realtime {
        notes.push(
            "the emulator may not have real-time priority (CAP_SYS_NICE): packets are later"
                .to_string(),
        );
    }
    if emulated.refused > 0 {
        notes.push(format!("hosts refused {} packets of the emulator", emulated.refused));
    }
    if merge.moved > 0 {
        notes.push(format!("{} records came too late for their place in the trace", merge.moved));
    }
    Outcome {
        at: emulated.at,
        interrupted,
        events: emulated.events,
        packet_hops: emulated.packet_hops,
        lateness: emulated.lateness,
        cpu_s: emulated.cpu_s,
        intact,
        notes,
    }
}

/// An end of a flow and its thread.
struct Host<'scope> {
    flow: FlowId,
    node: NodeId,
    sender: bool,
    ready: Receiver<Result<SyncDevice, LabError>>,
    go: Sender<Clock>,
    thread: ScopedJoinHandle<'scope, Ended>,
}

impl Host<'_> {
    fn port(&self, device: SyncDevice) -> Port {
        Port { device, flow: self.flow, node: self.node, sender: self.sender }
    }

    fn go(&self, clock: Clock) {
        // A thread that has failed hears nothing; joining it tells why.
        let _ = self.go.send(clock);
    }

    fn join(self) -> Ended {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// What all ends are made from.
struct Lab<'env> {
    scenario: &'env Scenario,
    shared: &'env Shared,
    to: Sender<Vec<Record>>,
}

/// What an end does, once it has a socket.
enum Role {
    Sender(Box<dyn Content>),
    Receiver {
        /// Whether the flow sends real bytes.
        real: bool,
    },
}

/// The sockets of an end.
enum Ready {
    Udp(UdpSocket),
    /// A scheme's sender has its sockets from the beginning, a receiver with its membership.
    Scheme(Option<Box<Sockets>>),
    Connects(Socket),
    Listens(TcpListener),
}

impl<'env> Lab<'env> {
    /// Starts the threads of all ends of a flow: the sender, then the receivers.
    fn start_flow<'scope>(
        &self,
        scope: &'scope Scope<'scope, 'env>,
        index: usize,
        sent: &Sent,
    ) -> Result<Vec<Host<'scope>>, LabError> {
        let flow = &self.scenario.flows[index];
        let id = FlowId(index as u32);
        let first: usize = self.scenario.flows[..index].iter().map(|flow| 1 + flow.to.len()).sum();
        let real = sent.is_real();
        let role = Role::Sender(sent.content());
        let mut hosts = vec![self.start(scope, (id, first), flow.sender(), role)?];
        for (place, node) in flow.to.iter().enumerate() {
            let end = (id, first + 1 + place);
            hosts.push(self.start(scope, end, *node, Role::Receiver { real })?);
        }
        Ok(hosts)
    }

    fn start<'scope>(
        &self,
        scope: &'scope Scope<'scope, 'env>,
        (id, end): (FlowId, usize),
        node: NodeId,
        role: Role,
    ) -> Result<Host<'scope>, LabError> {
        let (ready_to, ready) = mpsc::channel();
        let (go, wait) = mpsc::channel();
        let (scenario, shared) = (self.scenario, self.shared);
        let out = Outbox::new(self.to.clone());
        let sender = matches!(role, Role::Sender(_));
        let body = move || {
            let flow = &scenario.flows[id.index()];
            let sockets = match prepare(scenario, id, node, sender) {
                Ok((device, sockets)) => {
                    let _ = ready_to.send(Ok(device));
                    sockets
                }
                Err(error) => {
                    let _ = ready_to.send(Err(error));
                    return Ok(None);
                }
            };
            // Where another host could not be made there is no run.
            let Ok(clock) = wait.recv() else { return Ok(None) };
            let rng = machine::random(scenario.seed, node, end as u32);
            let udp = |out| machine::End { flow, id, node, clock, shared, out, rng };
            let ended = match (sockets, role) {
                (Ready::Udp(socket), Role::Sender(content)) => {
                    machine::send(udp(out), socket, content).map(|()| None)
                }
                (Ready::Udp(socket), Role::Receiver { real }) => {
                    machine::receive(udp(out), socket, real).map(Some)
                }
                (Ready::Scheme(Some(sockets)), Role::Sender(content)) => {
                    scheme::send(udp(out), scenario, *sockets, content).map(|()| None)
                }
                (Ready::Scheme(_), Role::Receiver { real }) => {
                    scheme::receive(udp(out), scenario, real).map(Some)
                }
                (Ready::Connects(socket), Role::Sender(content)) => {
                    let end = tcp::End { flow, id, clock, shared, out };
                    tcp::send(end, socket, content).map(|()| None)
                }
                (Ready::Listens(listener), Role::Receiver { real }) => {
                    let end = tcp::End { flow, id, clock, shared, out };
                    Ok(Some(tcp::receive(end, listener, real)))
                }
                _ => unreachable!("senders connect and receivers listen"),
            };
            if ended.is_err() {
                // The figures would be of another scenario.
                shared.stop.store(true, Ordering::Relaxed);
            }
            ended
        };
        let thread = std::thread::Builder::new()
            .name(format!("{id:?} {node:?}"))
            .stack_size(STACK)
            .spawn_scoped(scope, body)
            .map_err(LabError::doing("start a thread"))?;
        Ok(Host { flow: id, node, sender, ready, go, thread })
    }
}

/// Makes the namespace of the calling thread and what is in it.
fn prepare(
    scenario: &Scenario,
    id: FlowId,
    node: NodeId,
    sender: bool,
) -> Result<(SyncDevice, Ready), LabError> {
    let flow = &scenario.flows[id.index()];
    let plan = TcpPlan::of(flow);
    let device = host::make(node, plan::mtu(flow), plan.as_ref())?;
    let sockets = match plan {
        None if flow.protocol == "cbr" => Ready::Udp(machine::socket(node)?),
        None if sender => Ready::Scheme(Some(Box::new(scheme::sockets(scenario, id, node)?))),
        None => Ready::Scheme(None),
        Some(plan) if sender => Ready::Connects(tcp::socket(flow, &plan)?),
        Some(plan) => Ready::Listens(tcp::listen(flow, &plan)?),
    };
    Ok((device, sockets))
}
