//! Network in real time: one thread between all hosts.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration as WallDuration;

use faircast_base::{Bytes, Duration, Event, FlowId, GroupId, NodeId, Purpose, Rng, Time};
use faircast_proto::Transmit;
use faircast_proto::transport::PacketFacts;
use faircast_scenario::{Flow, NodeFault, Scenario};
use faircast_sim::{Builtin, Fabric, Parcel};
use faircast_trace::{Record, Sink, Subject};
use hdrhistogram::Histogram;
use nix::poll::PollFlags;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::time::{ClockId, clock_gettime};
use tun_rs::SyncDevice;

use crate::LabOutcome;
use crate::address;
use crate::clock::{Clock, EMULATOR_PRIORITY, be_exact};
use crate::error::LabError;
use crate::frame::{self, Frame, Transport};
use crate::lateness::{histogram, lateness};
use crate::merge::Outbox;
use crate::plan::{TcpPlan, data_len, memberships};
use crate::tap::Tap;
use crate::tcp;

pub(crate) const READS_MAX: usize = 16;
const PACKET_MAX: usize = 65_535;
/// Waits below this are busy waits, since sleep and wake-up take as long.
const SPIN: WallDuration = WallDuration::from_micros(15);
/// Longest sleep, so that the trace is written and a stop is noticed: 20 ms.
const SLEEP_MAX: WallDuration = WallDuration::from_millis(20);

#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) stop: AtomicBool,
    pub(crate) events: AtomicU64,
}

pub(crate) struct Port {
    pub(crate) device: SyncDevice,
    pub(crate) flow: FlowId,
    pub(crate) node: NodeId,
    pub(crate) sender: bool,
}

#[derive(Clone, Copy, Debug)]
struct Action {
    at: Time,
    flow: FlowId,
    node: NodeId,
    join: bool,
}

struct Emulator<'a> {
    scenario: &'a Scenario,
    fabric: Fabric<'a>,
    clock: Clock,
    ports: Vec<Port>,
    segments: Vec<Option<Segments>>,
    actions: VecDeque<Action>,
    faults: VecDeque<Record>,
    held: Vec<VecDeque<Held>>,
    rng: Rng,
    network_out: Outbox,
    tap_out: Outbox,
    late: Histogram<u64>,
    refused: u64,
    events: u64,
    scratch: Vec<u8>,
}

/// Packet delayed before its first link by TCP's option `overhead`.
struct Held {
    at: Time,
    bytes: Vec<u8>,
}

struct Segments {
    tap: Tap,
    /// Longest delay of the sender's packets; delays are uniform from 0.
    overhead: Duration,
}

pub(crate) fn run(
    scenario: &Scenario,
    ports: Vec<Port>,
    clock: Clock,
    (network_out, tap_out): (Outbox, Outbox),
    shared: &Shared,
) -> Result<LabOutcome, LabError> {
    let realtime = be_exact(EMULATOR_PRIORITY);
    let waiter = Waiter::new(ports.iter().map(|port| &port.device))
        .map_err(LabError::doing("wait for packets"))?;
    let mut fabric = Fabric::new(scenario, &Builtin);
    fabric.schedule_samples();
    let mut emulator = Emulator {
        fabric,
        scenario,
        clock,
        segments: scenario.flows.iter().enumerate().map(segments).chain([None]).collect(),
        actions: actions(scenario).into(),
        faults: fault_records(scenario).into(),
        held: ports.iter().map(|_| VecDeque::new()).collect(),
        ports,
        rng: Rng::new(scenario.seed, NodeId(0), Purpose::Scenario),
        network_out,
        tap_out,
        late: histogram(),
        refused: 0,
        events: 0,
        scratch: Vec::new(),
    };
    let ran = emulator.run(&waiter, shared);
    // Before the hosts' interfaces disappear, which would count as a failure.
    shared.stop.store(true, Ordering::Relaxed);
    ran?;
    let at = emulator.fabric.now();
    emulator.fabric.sample(&mut emulator.network_out);
    emulator.network_out.flush(at);
    emulator.tap_out.flush(at);
    let late = "the emulator may not have real-time priority (CAP_SYS_NICE): packets are later";
    let mut notes = Vec::from_iter((!realtime).then(|| late.to_string()));
    if emulator.refused > 0 {
        notes.push(format!("hosts refused {} packets of the emulator", emulator.refused));
    }
    Ok(LabOutcome {
        at,
        interrupted: false,
        events: emulator.events,
        packet_hops: emulator.fabric.packet_hops(),
        lateness: lateness(&emulator.late, realtime),
        cpu_s: clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
            .map_or(0.0, |used| WallDuration::from(used).as_secs_f64()),
        intact: Vec::new(),
        notes,
    })
}

fn fault_records(scenario: &Scenario) -> Vec<Record> {
    let mut records = Vec::new();
    for NodeFault { at, node, kind } in &scenario.faults {
        let subject = Subject::Node(*node);
        let mut add = |at, kind| {
            records.push(Record { at, subject, event: Event::NodeFault { kind } });
        };
        add(*at, kind.begins());
        kind.ends().into_iter().for_each(|(span, kind)| add(*at + span, kind));
    }
    records.sort_by_key(|record| record.at);
    records
}

impl Emulator<'_> {
    fn run(&mut self, waiter: &Waiter, shared: &Shared) -> Result<(), LabError> {
        let end = Time::ZERO + self.scenario.duration;
        let mut buffer = vec![0; PACKET_MAX];
        let mut ready = Waiter::ready();
        loop {
            let now = self.clock.now();
            self.advance(now.min(end));
            self.network_out.flush_if_due(now);
            self.tap_out.flush_if_due(now);
            shared.events.store(self.events, Ordering::Relaxed);
            if now >= end || shared.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let held = self.next_held().map(|(at, _)| at);
            let action = self.actions.front().map(|action| action.at);
            let next = [self.fabric.next_time(), action, held, Some(end)];
            let next = next.into_iter().flatten().min().unwrap_or(end);
            for port in waiter.wait(self.clock.until(next), &mut ready)? {
                self.read(port, end, &mut buffer);
            }
        }
    }

    fn advance(&mut self, now: Time) {
        while let Some((at, port)) = self.next_held().filter(|(at, _)| *at <= now) {
            self.act(at);
            let Some(held) = self.held[port].pop_front() else { break };
            if let Some(frame) = Frame::read(&held.bytes) {
                self.take(port, &frame);
            }
        }
        self.act(now);
    }

    fn next_held(&self) -> Option<(Time, usize)> {
        let first = |(port, held): (usize, &VecDeque<Held>)| Some((held.front()?.at, port));
        self.held.iter().enumerate().filter_map(first).min()
    }

    fn act(&mut self, now: Time) {
        while let Some(action) = self.actions.front().copied().filter(|action| action.at <= now) {
            self.actions.pop_front();
            self.step(action.at);
            match action.join {
                true => self.fabric.join(action.flow, GroupId::SESSION, action.node),
                false => self.fabric.leave(action.flow, GroupId::SESSION, action.node),
            };
        }
        self.step(now);
        while let Some(record) = self.faults.front().filter(|record| record.at <= now) {
            self.network_out.record(record);
            self.faults.pop_front();
        }
    }

    fn step(&mut self, now: Time) {
        let Self { fabric, network_out, ports, segments, clock, late, refused, scratch, .. } = self;
        let tap_out = &mut self.tap_out;
        let mut deliver = |parcel: Parcel<'_>| {
            let port = &ports[parcel.end as usize];
            write(port, &parcel, &mut segments[parcel.flow.index()], tap_out, scratch);
            late.saturating_record(clock.now().since(parcel.at).as_nanos());
            *refused += u64::from(port.device.send(scratch).is_err());
        };
        self.events += fabric.advance(now, network_out, &mut deliver);
    }

    fn read(&mut self, port: usize, end: Time, buffer: &mut [u8]) {
        for _ in 0..READS_MAX {
            let Ok(len) = self.ports[port].device.recv(buffer) else { return };
            let now = self.clock.now().min(end);
            self.advance(now);
            self.events += 1;
            let overhead = self.overhead(port);
            if overhead > Duration::ZERO {
                let at = now + overhead.mul_f64(self.rng.unit());
                let held = &mut self.held[port];
                let at = held.back().map_or(at, |last| last.at.max(at));
                held.push_back(Held { at, bytes: buffer[..len].to_vec() });
            } else if let Some(frame) = Frame::read(&buffer[..len]) {
                self.take(port, &frame);
            }
        }
    }

    fn overhead(&self, port: usize) -> Duration {
        let Port { flow, sender, .. } = self.ports[port];
        match self.segments[flow.index()] {
            Some(Segments { overhead, .. }) if sender => overhead,
            _ => Duration::ZERO,
        }
    }

    /// Sends a host's packet over its first link. Reports change all groups but the session's.
    fn take(&mut self, port: usize, frame: &Frame<'_>) {
        let Port { flow, node, sender, .. } = self.ports[port];
        if let Transport::Igmp(report) = frame.transport {
            for (group, joined) in frame::memberships(report) {
                match address::to_group(flow, group).filter(|group| *group != GroupId::SESSION) {
                    Some(group) if joined => self.fabric.join(flow, group, node),
                    Some(group) => self.fabric.leave(flow, group, node),
                    None => continue,
                };
            }
            return;
        }
        let Some(to) = address::to(flow, frame.to, self.scenario.nodes.len()) else { return };
        let at = self.fabric.now();
        let mut transmit = Transmit {
            to,
            zeros: 0,
            payload_len: 0,
            time_to_live: frame.time_to_live,
            router_alert: false,
            wire_len: None,
        };
        let (bytes, tag) = match (&mut self.segments[flow.index()], frame.transport) {
            (Some(Segments { tap, .. }), Transport::Tcp(segment)) => {
                let again = sender && tap.sent(at, &segment, &mut self.tap_out);
                let header = self.scenario.flows[flow.index()].header.map(Bytes::count);
                transmit.payload_len = segment.payload_len;
                transmit.wire_len = Some(match header {
                    Some(header) if segment.payload_len > 0 => segment.payload_len + header as u32,
                    _ => frame.bytes.len() as u32,
                });
                (frame.bytes, u32::from(again))
            }
            (None, Transport::Udp { ports, payload }) => {
                let flow = self.scenario.flows.get(flow.index());
                let facts = match flow.filter(|flow| flow.via.is_empty()) {
                    Some(flow) => flow.stack.facts(payload),
                    // Connections with relays are encrypted.
                    None => Some(PacketFacts::default()),
                };
                let Some(facts) = facts else { return };
                transmit.payload_len = facts.payload_len;
                transmit.router_alert = facts.router_alert;
                (payload, ports.tag())
            }
            _ => return,
        };
        self.fabric.transmit((flow, node), bytes, transmit, tag, &mut self.network_out);
    }
}

fn write(
    port: &Port,
    parcel: &Parcel<'_>,
    segments: &mut Option<Segments>,
    tap_out: &mut Outbox,
    out: &mut Vec<u8>,
) {
    // The simulator counts links, IP counts the routers between them.
    let time_to_live = parcel.time_to_live.saturating_add(1);
    if let Some(Segments { tap, .. }) = segments {
        match Frame::read(parcel.bytes).map(|frame| frame.transport) {
            Some(Transport::Tcp(segment)) if port.sender => {
                tap.heard(parcel.at, &segment, tap_out);
            }
            Some(Transport::Tcp(segment)) => {
                tap.reached(parcel.at, &segment, parcel.tag != 0, tap_out);
            }
            _ => {}
        }
        return frame::write_again(out, parcel.bytes, time_to_live);
    }
    let ends = (address::of_node(parcel.from), address::of(parcel.flow, parcel.to));
    frame::write_udp(out, parcel, ends, time_to_live);
}

fn segments((index, flow): (usize, &Flow)) -> Option<Segments> {
    let plan = TcpPlan::of(flow)?;
    let (ends, packet) = ((flow.sender(), flow.to[0]), flow.packet.count());
    let tap = Tap::new(FlowId(index as u32), ends, packet, data_len(flow));
    Some(Segments { tap, overhead: plan.overhead })
}

fn actions(scenario: &Scenario) -> Vec<Action> {
    let mut actions = Vec::new();
    for (flow, id) in scenario.flows.iter().zip((0..).map(FlowId)) {
        for &node in &flow.to {
            for (at, leave) in memberships(flow, node) {
                actions.push(Action { at, flow: id, node, join: true });
                actions.extend(leave.map(|at| Action { at, flow: id, node, join: false }));
            }
        }
    }
    actions.sort_by_key(|action| (action.at, action.join));
    actions
}

pub(crate) struct Waiter(Epoll);

impl Waiter {
    pub(crate) fn new<'a>(devices: impl Iterator<Item = &'a SyncDevice>) -> std::io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for (index, device) in (0..).zip(devices) {
            epoll.add(device.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, index))?;
        }
        Ok(Self(epoll))
    }

    pub(crate) fn ready() -> [EpollEvent; 64] {
        [EpollEvent::empty(); 64]
    }

    pub(crate) fn wait<'a>(
        &self,
        span: WallDuration,
        ready: &'a mut [EpollEvent],
    ) -> Result<impl Iterator<Item = usize> + use<'a>, LabError> {
        let mut wait = || {
            if span >= SPIN {
                // Polled, since epoll itself waits for whole milliseconds.
                tcp::wait(&self.0.0, PollFlags::POLLIN, span.min(SLEEP_MAX))?;
            }
            Ok(self.0.wait(ready, 0u8)?)
        };
        let count = wait().map_err(LabError::doing("wait for packets"))?;
        Ok(ready[..count].iter().map(|event| event.data() as usize))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};
    use std::path::Path;
    use std::sync::mpsc::channel;

    use faircast_scenario::Overrides;

    use super::*;
    use crate::host;

    const SCENARIO: &str = r#"
        title = "Does the network route by what kernels report?"
        duration = "30 s"
        [[link]]
        between = ["a", "b"]
        rate = "10 Mbit/s"
        delay = "1 ms"
        [[flow]]
        name = "background"
        protocol = "cbr"
        from = "a"
        to = ["b"]
        options = { rate = "1 Mbit/s" }
    "#;

    fn socket() -> UdpSocket {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, address::UDP_PORT)).unwrap();
        socket.set_read_timeout(Some(WallDuration::from_millis(20))).unwrap();
        socket
    }

    struct Stop<'a>(&'a Shared);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.stop.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_packet_to_a_group_reaches_the_host_whose_kernel_has_joined_it() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: network namespaces need root");
            return;
        }
        let catalog = faircast_sim::catalog();
        let scenario =
            Scenario::parse(Path::new("t"), SCENARIO, &Overrides::default(), &catalog).unwrap();
        let (sender, receiver) = (scenario.flows[0].sender(), scenario.flows[0].to[0]);
        let group = address::group(FlowId(0), GroupId(1));
        let (shared, (devices, made)) = (Shared::default(), channel());
        let heard = std::thread::scope(|scope| {
            let (shared, other) = (&shared, devices.clone());
            let _stop = Stop(shared);
            scope.spawn(move || {
                other.send((sender, host::make(sender, 1500, None).unwrap())).unwrap();
                let socket = socket();
                while !shared.stop.load(Ordering::Relaxed) {
                    // A host may refuse a packet while its interface starts.
                    let _ = socket.send_to(&[1; 100], (group, address::UDP_PORT));
                    std::thread::sleep(WallDuration::from_millis(5));
                }
            });
            let hears = scope.spawn(move || {
                devices.send((receiver, host::make(receiver, 1500, None).unwrap())).unwrap();
                let (socket, mut buffer) = (socket(), [0; 200]);
                socket.join_multicast_v4(&group, &address::of_node(receiver)).unwrap();
                let mut heard = 0;
                while heard < 3 && !shared.stop.load(Ordering::Relaxed) {
                    heard += usize::from(socket.recv(&mut buffer).is_ok_and(|len| len == 100));
                }
                shared.stop.store(true, Ordering::Relaxed);
                heard
            });
            let made = || made.recv_timeout(WallDuration::from_secs(30)).unwrap();
            let mut hosts = [made(), made()];
            hosts.sort_by_key(|(node, _)| *node != sender);
            let port =
                |(node, device)| Port { device, flow: FlowId(0), node, sender: node == sender };
            let clock = Clock::starting_in(WallDuration::ZERO);
            let (to, _records) = channel();
            let outs = (Outbox::new(to.clone()), Outbox::new(to));
            run(&scenario, hosts.map(port).into(), clock, outs, shared).unwrap();
            hears.join().unwrap()
        });
        assert_eq!(heard, 3);
    }
}
