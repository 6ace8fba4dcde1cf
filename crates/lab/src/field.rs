//! Empty hosts, connected by the links of a scenario in real time: the caller starts programs
//! there, which use UDP or TCP over ordinary sockets.

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

const MTU: u16 = 1500;
/// Tag of packets carried whole, with their headers: no datagram has both of these ports.
const WHOLE: u32 = u32::MAX;
/// Counts of packets by the effect of links on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldCounts {
    /// Packets that reached a host.
    pub delivered: u64,
    /// Independent losses.
    pub lost: u64,
    /// Burst losses.
    pub lost_in_bursts: u64,
    /// Losses while a link was down.
    pub lost_in_outages: u64,
    /// Packets dropped at a full queue.
    pub overflowed: u64,
    /// Duplicates made by links.
    pub duplicated: u64,
    /// Packets with a flipped bit.
    pub corrupted: u64,
    /// Delayed packets.
    pub delayed: u64,
    /// Packets dropped for their length.
    pub too_long: u64,
}

/// Hosts and the network between them. Dropping it removes everything except running programs.
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
    /// Longest IP packet in bytes to or from a host.
    longest: BTreeMap<NodeId, u32>,
    /// Bits in which a host's UDP ports differ from the ports that other hosts see.
    translated: BTreeMap<NodeId, u16>,
}

impl State {
    fn address(&self, node: NodeId) -> Ipv4Addr {
        if self.moved.contains(&node) { address::of_moved(node) } else { address::of_node(node) }
    }

    fn to(&self, address: Ipv4Addr, nodes: usize) -> Option<Destination> {
        let moved = self.moved.iter().find(|node| address::of_moved(**node) == address);
        let to = moved.map(|node| Destination::Node(*node));
        to.or_else(|| address::to(FlowId(0), address, nodes)).filter(|to| match to {
            Destination::Node(node) => self.address(*node) == address,
            Destination::Group(_) => true,
        })
    }

    fn translate(&self, node: NodeId, port: u16) -> u16 {
        port ^ self.translated.get(&node).copied().unwrap_or(0)
    }

    fn takes(&self, node: NodeId, len: usize) -> bool {
        self.longest.get(&node).is_none_or(|longest| len <= *longest as usize)
    }
}

struct Host {
    node: NodeId,
    work: Option<Sender<Box<dyn FnOnce() + Send>>>,
    thread: Option<JoinHandle<()>>,
}

impl Field {
    /// Makes a host for each sender of a flow. Packets to [`group`](Self::group) or any other group
    /// go to the receivers of the host's own flow, packets to the [`address`](Self::address) of a
    /// receiver go there. Other settings of the flows are ignored.
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

    /// Returns the group shared by all hosts.
    pub fn group() -> Ipv4Addr {
        address::group(FlowId(0), GroupId::SESSION)
    }

    /// Name of every host's interface.
    pub const INTERFACE: &str = host::INTERFACE;

    /// Returns the address of a host.
    pub fn address(node: NodeId) -> Ipv4Addr {
        address::of_node(node)
    }

    /// Returns the address of a host that may have [moved](Self::set_moved).
    pub fn current_address(&self, node: NodeId) -> Ipv4Addr {
        self.state().address(node)
    }

    /// Runs a short closure on a host, in the host's thread.
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

    /// Takes a host's interface down, or up again with its routes.
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

    /// Gives a host another address, or its own again. Packets to the old address are lost.
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

    /// Drops IP packets longer than `bytes` bytes to and from a host, as an MTU black hole does.
    pub fn set_longest(&self, node: NodeId, bytes: Option<u32>) {
        let longest = &mut self.state().longest;
        match bytes {
            Some(bytes) => drop(longest.insert(node, bytes)),
            None => drop(longest.remove(&node)),
        }
    }

    /// Changes a host's UDP source ports, as a restarted NAT does: old ports are lost.
    pub fn remap_ports(&self, node: NodeId) {
        *self.state().translated.entry(node).or_default() += 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> FieldCounts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the field, and returns the counts or its error.
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
                let _ = thread.join();
            }
        }
        result
    }
}

impl Drop for Field {
    fn drop(&mut self) {
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
            // Packets with a corrupted header are lost, and packets to an interface that is down.
            if out.is_empty() || self.devices[device].send(out).is_err() {
                return;
            }
            delivered += 1;
        });
        tally.delivered += delivered;
        tally.too_long += too_long;
    }
}

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
        // A packet to the host's own network takes one IP hop, but here one hop for each link.
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
