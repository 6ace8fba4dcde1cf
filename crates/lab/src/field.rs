//! Hosts for programs of any kind, with the links of a scenario between them in real time.
//!
//! In a run of the lab each end of a flow is a machine of the lab's own. In a field the hosts are
//! empty: whoever makes it starts programs there as it likes, the programs speak UDP or TCP over
//! ordinary sockets, and everything that goes wrong on the scenario's links happens to them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration as WallDuration;

use faircast_base::{DropReason, Event, FlowId, GroupId, NodeId, Time};
use faircast_proto::transport::PacketFacts;
use faircast_proto::{Destination, Transmit, pgm};
use faircast_scenario::{Flow, Scenario};
use faircast_sim::{Builtin, Fabric, Parcel};
use faircast_trace::{Record, Sink};
use tun_rs::SyncDevice;

use crate::address;
use crate::clock::{Clock, EMULATOR_PRIORITY, be_exact};
use crate::emulator::{READS_MAX, Waiter};
use crate::error::LabError;
use crate::frame::{self, Frame, Ports, Transport};
use crate::host;
use crate::netlink::Routing;

/// Bytes of the largest packet on the links of a field.
const MTU: u16 = 1500;
/// The tag of packets that travel whole, with their headers: no datagram has both of these ports.
const WHOLE: u32 = u32::MAX;
/// What links have done to packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldCounts {
    /// Packets that reached a host.
    pub delivered: u64,
    /// Lost independently of each other.
    pub lost: u64,
    /// Lost in bursts.
    pub lost_in_bursts: u64,
    /// Lost because a link was down.
    pub lost_in_outages: u64,
    /// Dropped by a full queue.
    pub overflowed: u64,
    /// Second packets that links made.
    pub duplicated: u64,
    /// Packets with a bit flipped.
    pub corrupted: u64,
    /// Packets that came late.
    pub delayed: u64,
    /// Dropped for their length.
    pub too_long: u64,
}

/// Hosts and what is between them. It removes all but programs that still run there.
pub struct Field {
    hosts: Vec<Host>,
    stop: Arc<AtomicBool>,
    counts: Arc<Mutex<FieldCounts>>,
    state: Arc<Mutex<State>>,
    network: Option<JoinHandle<Result<(), LabError>>>,
}

#[derive(Debug, Default)]
struct State {
    moved: BTreeSet<NodeId>,
    /// Bytes of the longest IP packet that leaves or reaches a host.
    longest: BTreeMap<NodeId, u32>,
    /// Bits in which the UDP ports of a host differ from those that other hosts see.
    translated: BTreeMap<NodeId, u16>,
}

impl State {
    fn address(&self, node: NodeId) -> Ipv4Addr {
        if self.moved.contains(&node) { address::of_moved(node) } else { address::of_node(node) }
    }

    fn to(&self, address: Ipv4Addr, nodes: usize) -> Option<Destination> {
        let moved = self.moved.iter().find(|node| address::of_moved(**node) == address);
        let to = moved.map(|node| Destination::Node(*node));
        // An address that was left is nobody's.
        to.or_else(|| address::to(FlowId(0), address, nodes)).filter(|to| match to {
            Destination::Node(node) => self.address(*node) == address,
            Destination::Group(_) => true,
        })
    }

    /// The port on the other side of a host's address translation.
    fn translate(&self, node: NodeId, port: u16) -> u16 {
        port ^ self.translated.get(&node).copied().unwrap_or(0)
    }

    fn takes(&self, node: NodeId, len: usize) -> bool {
        self.longest.get(&node).is_none_or(|longest| len <= *longest as usize)
    }
}

/// A thread in a namespace of its own, which does there what it is asked to.
struct Host {
    node: NodeId,
    /// `None` once it is to end.
    work: Option<Sender<Box<dyn FnOnce() + Send>>>,
    thread: Option<JoinHandle<()>>,
}

impl Field {
    /// Makes the hosts of a scenario: each sender of a flow. Whatever one of them sends to
    /// [`group`](Self::group) or any other group goes to the receivers of its own flow, and what it
    /// sends to the [`address`](Self::address) of one of them goes there. What the flows send
    /// otherwise does not matter.
    ///
    /// # Errors
    /// The machine lacks something that the lab needs, such as permission.
    pub fn new(scenario: Scenario) -> Result<Self, LabError> {
        let (mut hosts, mut devices) = (Vec::new(), Vec::new());
        for flow in &scenario.flows {
            let (host, device) = Host::new(flow.sender())?;
            hosts.push(host);
            devices.push(device);
        }
        let (stop, counts, state) = (Arc::default(), Arc::default(), Arc::default());
        let network = Network {
            scenario,
            devices,
            stop: Arc::clone(&stop),
            counts: Arc::clone(&counts),
            state: Arc::clone(&state),
            clock: Clock::starting_in(WallDuration::ZERO),
        };
        let network = std::thread::Builder::new()
            .name("field".into())
            .spawn(move || network.run())
            .map_err(LabError::doing("start a thread"))?;
        Ok(Self { hosts, stop, counts, state, network: Some(network) })
    }

    /// The one group that all hosts share.
    pub fn group() -> Ipv4Addr {
        address::group(FlowId(0), GroupId::SESSION)
    }

    /// The name of the interface of every host.
    pub const INTERFACE: &str = host::INTERFACE;

    /// The address of a host.
    pub fn address(node: NodeId) -> Ipv4Addr {
        address::of_node(node)
    }

    /// The address of a host that may have [moved](Self::set_moved).
    pub fn current_address(&self, node: NodeId) -> Ipv4Addr {
        self.state().address(node)
    }

    /// Does something on a host, in a thread that must not be kept long.
    pub fn on<T: Send + 'static>(
        &self,
        node: NodeId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let gone = || io::Error::other("there is no such host");
        let host = self.hosts.iter().find(|host| host.node == node).ok_or_else(gone)?;
        let (send, answer) = mpsc::channel();
        let work = Box::new(move || drop(send.send(work())));
        host.work.as_ref().ok_or_else(gone)?.send(work).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())
    }

    /// Starts a program on a host.
    pub fn spawn(&self, node: NodeId, mut command: Command) -> io::Result<Child> {
        self.on(node, move || command.spawn())?
    }

    /// Sets a host's interface down, or up again with its routes.
    pub fn set_interface(&self, node: NodeId, up: bool) -> io::Result<()> {
        let address = self.state().address(node);
        self.on(node, move || {
            let index = nix::net::if_::if_nametoindex(host::INTERFACE)?;
            let routing = Routing::new()?;
            match up {
                true => host::connect(&routing, index, address, Vec::new()),
                false => routing.set(index, false),
            }
        })?
    }

    /// Gives a host another address, or its own again. Packets to the old address reach no host.
    pub fn set_moved(&self, node: NodeId, moved: bool) -> io::Result<()> {
        let mut state = self.state();
        let old = state.address(node);
        let known = if moved { state.moved.insert(node) } else { state.moved.remove(&node) };
        let new = state.address(node);
        drop(state);
        if !known {
            return Ok(());
        }
        self.on(node, move || {
            let index = nix::net::if_::if_nametoindex(host::INTERFACE)?;
            let routing = Routing::new()?;
            routing.add_address(index, new)?;
            routing.remove_address(index, old)?;
            host::connect(&routing, index, new, Vec::new())
        })?
    }

    /// Drops IP packets of more than `bytes` bytes from or to a host, as a black hole does.
    pub fn set_longest(&self, node: NodeId, bytes: Option<u32>) {
        let longest = &mut self.state().longest;
        match bytes {
            Some(bytes) => drop(longest.insert(node, bytes)),
            None => drop(longest.remove(&node)),
        }
    }

    /// Gives the UDP datagrams of a host another source port, as a router does that has lost its
    /// address translation. Datagrams to the old port reach no socket.
    pub fn remap_ports(&self, node: NodeId) {
        *self.state().translated.entry(node).or_default() += 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has happened so far.
    pub fn counts(&self) -> FieldCounts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends everything.
    pub fn finish(mut self) -> Result<FieldCounts, LabError> {
        self.end()?;
        Ok(self.counts())
    }

    fn end(&mut self) -> Result<(), LabError> {
        self.stop.store(true, Ordering::Relaxed);
        let result = self.network.take().map_or(Ok(()), |network| {
            network.join().unwrap_or_else(|_| Err(LabError::Unsuited("the network died".into())))
        });
        for host in &mut self.hosts {
            host.work = None;
            if let Some(thread) = host.thread.take() {
                // A host that has died has said so on standard error.
                let _ = thread.join();
            }
        }
        result
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        // Whoever wants to know how it ended calls `finish`.
        let _ = self.end();
    }
}

impl Host {
    fn new(node: NodeId) -> Result<(Self, SyncDevice), LabError> {
        let (work, orders) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let (ready, made) = mpsc::channel();
        let serve = move || {
            let device = host::make(node, MTU, None);
            let failed = device.is_err();
            if ready.send(device).is_err() || failed {
                return;
            }
            orders.into_iter().for_each(|order| order());
        };
        let thread = std::thread::Builder::new()
            .name("host".into())
            .spawn(serve)
            .map_err(LabError::doing("start a thread"))?;
        let device = made.recv().map_err(|_| LabError::Unsuited("a host died".into()))??;
        Ok((Self { node, work: Some(work), thread: Some(thread) }, device))
    }
}

struct Network {
    scenario: Scenario,
    devices: Vec<SyncDevice>,
    stop: Arc<AtomicBool>,
    counts: Arc<Mutex<FieldCounts>>,
    state: Arc<Mutex<State>>,
    clock: Clock,
}

impl Network {
    fn run(mut self) -> Result<(), LabError> {
        be_exact(EMULATOR_PRIORITY);
        let scenario = self.scenario.clone();
        let mut fabric = Fabric::new(&scenario, &Builtin);
        for (flow, id) in scenario.flows.iter().zip((0..).map(FlowId)) {
            for node in &flow.to {
                fabric.join(id, GroupId::SESSION, *node);
            }
        }
        // Which device an end of any flow is behind: all flows have the same hosts.
        let place = |node| scenario.flows.iter().position(|flow| flow.sender() == node);
        let ends = scenario.flows.iter().flat_map(Flow::ends);
        let device_of: Vec<Option<usize>> = ends.map(place).collect();
        let (mut buffer, mut out) = (vec![0; usize::from(u16::MAX)], Vec::new());
        let (mut tally, mut ready) = (FieldCounts::default(), Waiter::ready());
        let waiter =
            Waiter::new(self.devices.iter()).map_err(LabError::doing("wait for packets"))?;
        while !self.stop.load(Ordering::Relaxed) {
            self.step(&mut fabric, &device_of, &mut tally, &mut out);
            let next = fabric.next_time().unwrap_or(Time::MAX);
            for index in waiter.wait(self.clock.until(next), &mut ready)? {
                for _ in 0..READS_MAX {
                    // An interface that is down has nothing to read.
                    let Ok(len) = self.devices[index].recv(&mut buffer) else { break };
                    self.step(&mut fabric, &device_of, &mut tally, &mut out);
                    if let Some(frame) = Frame::read(&buffer[..len]) {
                        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                        take(&mut fabric, &scenario, &state, index, &frame, &mut tally);
                    }
                }
            }
            *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = tally;
        }
        Ok(())
    }

    fn step(
        &mut self,
        fabric: &mut Fabric<'_>,
        device_of: &[Option<usize>],
        tally: &mut FieldCounts,
        out: &mut Vec<u8>,
    ) {
        let (mut delivered, mut too_long) = (0, 0);
        fabric.advance(self.clock.now(), tally, &mut |parcel| {
            let Some(device) = device_of[parcel.end as usize] else { return };
            let node = self.scenario.flows[device].sender();
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            write(&parcel, &state, out);
            if !state.takes(node, out.len()) {
                too_long += 1;
                return;
            }
            drop(state);
            // What is no packet any more is lost, and what an interface that is down does not take.
            if out.is_empty() || self.devices[device].send(out).is_err() {
                return;
            }
            delivered += 1;
        });
        tally.delivered += delivered;
        tally.too_long += too_long;
    }
}

/// Puts a host's packet on its first link, if it is UDP or TCP.
fn take(
    fabric: &mut Fabric<'_>,
    scenario: &Scenario,
    state: &State,
    host: usize,
    frame: &Frame<'_>,
    counts: &mut FieldCounts,
) {
    if !state.takes(scenario.flows[host].sender(), frame.bytes.len()) {
        counts.too_long += 1;
        return;
    }
    let session = Destination::Group(GroupId::SESSION);
    let to = match state.to(frame.to, scenario.nodes.len()) {
        _ if frame.to.is_multicast() => session,
        Some(to) => to,
        None => return,
    };
    let other_group = to == session && frame.to != Field::group();
    let (bytes, facts, tag) = match frame.transport {
        Transport::Udp { ports, payload } if !other_group => {
            // Programs of faircast speak PGM here.
            let from = state.translate(scenario.flows[host].sender(), ports.from);
            (payload, pgm::facts(payload), Ports { from, ..ports }.tag())
        }
        Transport::Udp { .. } => (frame.bytes, PacketFacts::default(), WHOLE),
        Transport::Tcp(segment) => (frame.bytes, PacketFacts::data(segment.payload_len), WHOLE),
        Transport::Igmp(_) | Transport::Other => return,
    };
    let transmit = Transmit {
        to,
        zeros: 0,
        payload_len: facts.payload_len,
        // What a host sends to its own network takes one hop in IP and one a link here.
        time_to_live: u8::MAX,
        router_alert: facts.router_alert,
        wire_len: Some(frame.bytes.len() as u32),
    };
    let flow = FlowId(host as u32);
    fabric.transmit((flow, scenario.flows[host].sender()), bytes, transmit, tag, counts);
}

fn write(parcel: &Parcel<'_>, state: &State, out: &mut Vec<u8>) {
    if parcel.tag == WHOLE {
        return frame::write_again(out, parcel.bytes, 1);
    }
    let mut ports = Ports::from_tag(parcel.tag, address::UDP_PORT);
    let to = match parcel.to {
        Destination::Node(node) => {
            ports.to = state.translate(node, ports.to);
            state.address(node)
        }
        to => address::of(FlowId(0), to),
    };
    let parcel = Parcel { tag: ports.tag(), ..*parcel };
    frame::write_udp(out, &parcel, (state.address(parcel.from), to), 1);
}

impl Sink for FieldCounts {
    fn record(&mut self, record: &Record) {
        *match record.event {
            Event::PacketDuplicated { .. } => &mut self.duplicated,
            Event::PacketCorrupted { .. } => &mut self.corrupted,
            Event::PacketDelayed { .. } => &mut self.delayed,
            Event::PacketDropped { reason, .. } => match reason {
                DropReason::Loss => &mut self.lost,
                DropReason::Burst => &mut self.lost_in_bursts,
                DropReason::Outage => &mut self.lost_in_outages,
                _ => &mut self.overflowed,
            },
            _ => return,
        } += 1;
    }
}
