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
use serde::Serialize;
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct FieldCounts {
    /// Losses by chance, alone or in bursts, and while a link was down.
    pub lost_packets: u64,
    pub duplicated_packets: u64,
    pub corrupted_packets: u64,
    pub delayed_packets: u64,
    pub too_long_packets: u64,
}

/// Hosts and the network between them. Dropping it removes everything except running programs.
pub struct Field {
    hosts: BTreeMap<NodeId, Host>,
    shared: Arc<Shared>,
    network: Option<JoinHandle<Result<(), LabError>>>,
}

/// State that the owner of a field and the thread of its network share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    counts: Mutex<FieldCounts>,
    state: Mutex<State>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self) -> MutexGuard<'_, FieldCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    work: Sender<Box<dyn FnOnce() + Send>>,
    thread: JoinHandle<()>,
}

impl Field {
    /// Makes a host for each sender of a flow. Packets to [`group`](Self::group) or any other group
    /// go to the receivers of the host's own flow, packets to the address of a receiver go there.
    /// Other settings of the flows are ignored.
    pub fn new(scenario: Scenario) -> Result<Self, LabError> {
        let (mut hosts, mut devices) = (BTreeMap::new(), Vec::new());
        for flow in &scenario.flows {
            let (host, device) = Host::new(flow.sender())?;
            hosts.insert(flow.sender(), host);
            devices.push(device);
        }
        let (shared, clock) = (Arc::<Shared>::default(), Clock::starting_in(WallDuration::ZERO));
        let network = Network { scenario, devices, shared: Arc::clone(&shared), clock };
        let network = std::thread::Builder::new()
            .name("field".into())
            .spawn(move || network.run())
            .map_err(LabError::doing("start a thread"))?;
        Ok(Self { hosts, shared, network: Some(network) })
    }

    /// Returns the group shared by all hosts.
    pub fn group() -> Ipv4Addr {
        address::group(FlowId(0), GroupId::SESSION)
    }

    /// Returns the address of a host that may have [moved](Self::switch_address).
    pub fn current_address(&self, node: NodeId) -> Ipv4Addr {
        self.shared.state().address(node)
    }

    /// Runs a short closure on a host, in the host's thread.
    pub fn on<T: Send + 'static>(
        &self,
        node: NodeId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let gone = || io::Error::other("there is no such host");
        let host = self.hosts.get(&node).ok_or_else(gone)?;
        let (send, answer) = mpsc::channel();
        host.work.send(Box::new(move || drop(send.send(work())))).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())
    }

    /// Starts a program on a host.
    pub fn spawn(&self, node: NodeId, mut command: Command) -> io::Result<Child> {
        self.on(node, move || command.spawn())?
    }

    /// Takes a host's interface down, or up again with its routes.
    pub fn set_interface(&self, node: NodeId, up: bool) -> io::Result<()> {
        let address = self.shared.state().address(node);
        self.on(node, move || {
            let index = nix::net::if_::if_nametoindex(host::INTERFACE)?;
            let routing = Routing::new()?;
            match up {
                true => host::connect(&routing, index, address, Vec::new()),
                false => routing.set(index, false),
            }
        })?
    }

    /// Gives a host its other address, or its first one again. Packets to the old address are lost.
    pub fn switch_address(&self, node: NodeId) -> io::Result<()> {
        let mut state = self.shared.state();
        let old = state.address(node);
        if !state.moved.remove(&node) {
            state.moved.insert(node);
        }
        let new = state.address(node);
        drop(state);
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
        let longest = &mut self.shared.state().longest;
        match bytes {
            Some(bytes) => drop(longest.insert(node, bytes)),
            None => drop(longest.remove(&node)),
        }
    }

    /// Changes a host's UDP source ports, as a restarted NAT does: old ports are lost.
    pub fn remap_ports(&self, node: NodeId) {
        *self.shared.state().translated.entry(node).or_default() += 1;
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> FieldCounts {
        *self.shared.counts()
    }

    /// Ends the field, and returns the counts or its error.
    pub fn finish(mut self) -> Result<FieldCounts, LabError> {
        self.end()?;
        Ok(self.counts())
    }

    fn end(&mut self) -> Result<(), LabError> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let result = self.network.take().map_or(Ok(()), |network| {
            network.join().unwrap_or_else(|_| Err(LabError::Unsuited("the network died".into())))
        });
        for Host { work, thread } in std::mem::take(&mut self.hosts).into_values() {
            drop(work);
            let _ = thread.join();
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
        Ok((Self { work, thread }, device))
    }
}

struct Network {
    scenario: Scenario,
    devices: Vec<SyncDevice>,
    shared: Arc<Shared>,
    clock: Clock,
}

impl Network {
    fn run(self) -> Result<(), LabError> {
        be_exact(EMULATOR_PRIORITY);
        let flows = &self.scenario.flows;
        let mut fabric = Fabric::new(&self.scenario, &Builtin);
        for (flow, id) in flows.iter().zip((0..).map(FlowId)) {
            for node in &flow.to {
                fabric.join(id, GroupId::SESSION, *node);
            }
        }
        let place = |node| flows.iter().position(|flow| flow.sender() == node);
        let device_of: Vec<Option<usize>> = flows.iter().flat_map(Flow::ends).map(place).collect();
        let (mut buffer, mut out) = (vec![0; usize::from(u16::MAX)], Vec::new());
        let (mut tally, mut ready) = (FieldCounts::default(), Waiter::ready());
        let waiter =
            Waiter::new(self.devices.iter()).map_err(LabError::doing("wait for packets"))?;
        while !self.shared.stop.load(Ordering::Relaxed) {
            self.step(&mut fabric, &device_of, &mut tally, &mut out);
            let next = fabric.next_time().unwrap_or(Time::MAX);
            for index in waiter.wait(self.clock.until(next), &mut ready)? {
                for _ in 0..READS_MAX {
                    let Ok(len) = self.devices[index].recv(&mut buffer) else { break };
                    self.step(&mut fabric, &device_of, &mut tally, &mut out);
                    if let Some(frame) = Frame::read(&buffer[..len]) {
                        self.take(&mut fabric, index, &frame, &mut tally);
                    }
                }
            }
            *self.shared.counts() = tally;
        }
        Ok(())
    }

    fn step(
        &self,
        fabric: &mut Fabric<'_>,
        device_of: &[Option<usize>],
        tally: &mut FieldCounts,
        out: &mut Vec<u8>,
    ) {
        let mut too_long = 0;
        fabric.advance(self.clock.now(), tally, &mut |parcel| {
            let Some(device) = device_of[parcel.end as usize] else { return };
            let node = self.scenario.flows[device].sender();
            let state = self.shared.state();
            write(&parcel, &state, out);
            if !state.takes(node, out.len()) {
                too_long += 1;
            } else if !out.is_empty() {
                // Packets with a corrupted header are lost, and those to an interface that is down.
                let _ = self.devices[device].send(out);
            }
        });
        tally.too_long_packets += too_long;
    }

    fn take(
        &self,
        fabric: &mut Fabric<'_>,
        host: usize,
        frame: &Frame<'_>,
        counts: &mut FieldCounts,
    ) {
        let (scenario, state) = (&self.scenario, self.shared.state());
        let sender = scenario.flows[host].sender();
        if !state.takes(sender, frame.bytes.len()) {
            counts.too_long_packets += 1;
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
                let from = state.translate(sender, ports.from);
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
        fabric.transmit((FlowId(host as u32), sender), bytes, transmit, tag, counts);
    }
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
        use DropReason::{Burst, Loss, Outage};
        *match record.event {
            Event::PacketDuplicated { .. } => &mut self.duplicated_packets,
            Event::PacketCorrupted { .. } => &mut self.corrupted_packets,
            Event::PacketDelayed { .. } => &mut self.delayed_packets,
            Event::PacketDropped { reason: Loss | Burst | Outage, .. } => &mut self.lost_packets,
            _ => return,
        } += 1;
    }
}
