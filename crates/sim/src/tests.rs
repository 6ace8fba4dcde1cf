//! Tests of the engine with a sender at a constant rate, and receivers that count packets.

mod groups;
mod many_to_many;
mod repair_head;

use std::ops::ControlFlow;

use faircast_base::{
    Bitrate, Bytes, Cx, DropReason, Duration, Event, FlowId, GroupId, LinkCounters, NodeId, Time,
};
use faircast_link::{LinkConfig, QueueConfig};
use faircast_proto::relay::Relay;
use faircast_proto::transport::Role;
use faircast_proto::{Datagram, Destination, FlowEvent, FlowMachine, Machine, Transmit};
use faircast_scenario::{Data, Flow, Join, LinkSpec, Node, Program, Scenario};
use faircast_trace::{Record, Sink, Subject};

use crate::{Observer, Protocols, SimOutcome, Simulation, Unobserved};

const PACKET: u32 = 1000;

fn packet(to: Destination) -> Transmit {
    let (zeros, payload_len) = (PACKET, PACKET);
    Transmit { to, zeros, payload_len, time_to_live: 255, router_alert: false, wire_len: None }
}

struct Ticker {
    to: Destination,
    time_to_live: u8,
    next: Time,
    due: bool,
    closed: bool,
}

impl Machine for Ticker {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, _cx: &mut Cx<'_>, _datagram: Datagram<'_>) {}
    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        if cx.now >= self.next && !self.closed {
            self.due = true;
            self.next += Duration::from_millis(10);
        }
    }
    fn handle_close(&mut self, _cx: &mut Cx<'_>) {
        self.closed = true;
    }
    fn poll_transmit(&mut self, _cx: &mut Cx<'_>, _buf: &mut Vec<u8>) -> Option<Transmit> {
        let Self { time_to_live, .. } = *self;
        std::mem::take(&mut self.due).then(|| Transmit { time_to_live, ..packet(self.to) })
    }
    fn poll_event(&mut self) -> Option<FlowEvent> {
        None
    }
    fn next_timeout(&self) -> Option<Time> {
        (!self.closed).then_some(self.next)
    }
}

#[derive(Default)]
struct Counter {
    arrived: u32,
}

impl Machine for Counter {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        self.arrived += datagram.zeros;
        cx.emit(Event::Delivered { seq: 0, bytes: datagram.zeros });
    }
    fn handle_timeout(&mut self, _cx: &mut Cx<'_>) {}
    fn handle_close(&mut self, _cx: &mut Cx<'_>) {}
    fn poll_transmit(&mut self, _cx: &mut Cx<'_>, _buf: &mut Vec<u8>) -> Option<Transmit> {
        None
    }
    fn poll_event(&mut self) -> Option<FlowEvent> {
        let zeros = std::mem::take(&mut self.arrived);
        (zeros > 0).then_some(FlowEvent::Delivered { bytes: Vec::new(), zeros })
    }
    fn next_timeout(&self) -> Option<Time> {
        None
    }
}

struct Ends<F>(F);

impl<F: Fn(&Flow, NodeId, Role) -> FlowMachine> Protocols for Ends<F> {
    fn end(&self, flow: &Flow, _: FlowId, node: NodeId, role: Role, _: Time) -> FlowMachine {
        (self.0)(flow, node, role)
    }
    fn relay(&self, _: &Program, _: NodeId) -> Box<dyn Relay> {
        unreachable!("no router of these tests runs a program")
    }
}

fn plain(time_to_live: u8) -> impl Protocols {
    Ends(move |flow: &Flow, _: NodeId, role: Role| -> FlowMachine {
        if let Role::Receiver = role {
            return Box::new(Counter::default());
        }
        let to = match flow.to[..] {
            [only] if !flow.stack.transport.multicast => Destination::Node(only),
            _ => Destination::Group(GroupId::SESSION),
        };
        Box::new(Ticker { to, time_to_live, next: flow.start, due: false, closed: false })
    })
}

#[derive(Default)]
struct Log(Vec<Record>);

impl Sink for Log {
    fn record(&mut self, record: &Record) {
        self.0.push(*record);
    }
}

impl Log {
    fn delivered_at(&self, node: u32) -> Vec<Time> {
        let at_node = |record: &&Record| {
            matches!(record.event, Event::Delivered { .. })
                && matches!(record.subject, Subject::Endpoint { node: n, .. } if n.0 == node)
        };
        self.0.iter().filter(at_node).map(|record| record.at).collect()
    }

    fn drops(&self, wanted: DropReason) -> usize {
        let is = |r: &&Record| matches!(r.event, Event::PacketDropped { reason, .. } if reason == wanted);
        self.0.iter().filter(is).count()
    }

    fn last_sample(&self, link: u32) -> LinkCounters {
        let of_link = |record: &Record| match (record.subject, record.event) {
            (Subject::Link(id), Event::LinkSample(counters)) if id.0 == link => Some(counters),
            _ => None,
        };
        self.0.iter().rev().find_map(of_link).unwrap_or_default()
    }
}

pub(crate) fn link(from: u32, to: u32, delay_ms: u64) -> LinkSpec {
    LinkSpec {
        from: NodeId(from),
        to: NodeId(to),
        config: LinkConfig {
            rate: Bitrate::from_bits_per_s(8_000_000),
            delay: Duration::from_millis(delay_ms),
            queue: QueueConfig::DropTail { packets_max: 50 },
            loss: 0.0,
            changes: Vec::new(),
            drop_list: Vec::new(),
            faults: Default::default(),
            timing: Default::default(),
        },
    }
}

/// Scenario with both directions of each (from, to, delay in ms), and a flow from node 0.
fn scenario(edges: &[(u32, u32, u64)], protocol: &str, to: &[u32]) -> Scenario {
    let nodes = edges.iter().map(|edge| edge.0.max(edge.1)).max().unwrap_or(0) + 1;
    Scenario {
        file: "test".into(),
        text: String::new(),
        title: String::new(),
        duration: Duration::from_secs(1),
        warmup: Duration::ZERO,
        seed: 1,
        nodes: (0..nodes).map(|n| Node { name: format!("n{n}"), program: None }).collect(),
        links: edges.iter().flat_map(|&(a, b, ms)| [link(a, b, ms), link(b, a, ms)]).collect(),
        flows: vec![Flow {
            name: "flow".into(),
            stack: faircast_proto::catalog::stack(protocol).expect("it is registered"),
            from: vec![NodeId(0)],
            to: to.iter().map(|node| NodeId(*node)).collect(),
            packet: Bytes::new(u64::from(PACKET)),
            header: Some(Bytes::new(0)),
            start: Time::ZERO,
            stop: None,
            data: Data::Unlimited,
            join: Vec::new(),
            via: Default::default(),
            heads: Default::default(),
            speaks: Vec::new(),
            options: Default::default(),
            raw_options: Vec::new(),
        }],
        relays: Vec::new(),
        daemons: Vec::new(),
        faults: Vec::new(),
    }
}

fn run(scenario: &Scenario) -> (SimOutcome, Log) {
    run_with(scenario, &plain(255), &mut Unobserved)
}

fn run_with(
    scenario: &Scenario,
    protocols: &dyn Protocols,
    observer: &mut dyn Observer,
) -> (SimOutcome, Log) {
    let mut log = Log::default();
    let simulation = Simulation::new(scenario, protocols, &mut log).expect("no file is read");
    (simulation.run(observer), log)
}

const STAR: &[(u32, u32, u64)] = &[(0, 1, 1), (1, 2, 1), (1, 3, 1), (1, 4, 1)];

#[test]
fn a_packet_takes_transmission_and_propagation_on_every_hop() {
    let (_, log) = run(&scenario(&[(0, 1, 5), (1, 2, 7)], "tcp-reno", &[2]));
    // 1000 B at 8 Mbit/s take 1 ms; 1 + 5 + 1 + 7.
    assert_eq!(log.delivered_at(2)[..2], [14, 24].map(|ms| Time::from_nanos(ms * 1_000_000)));
}

#[test]
fn multicast_sends_one_copy_per_link_of_the_tree() {
    let (outcome, log) = run(&scenario(STAR, "cbr", &[2, 3, 4]));
    for node in [2, 3, 4] {
        assert_eq!(log.delivered_at(node).len(), 100, "node {node}");
    }
    // 100 full paths of four links each, plus the first link of the packet sent at the very end.
    assert_eq!(outcome.packet_hops, 400);
    assert_eq!(log.last_sample(0).sent_packets, 100);
    assert_eq!(log.last_sample(1).sent_packets, 0, "nothing flows back");
}

#[test]
fn paths_are_shortest_by_delay_and_not_by_hops() {
    // Directly 20 ms, or over node 1 in 2 x 5 ms.
    let (_, log) = run(&scenario(&[(0, 2, 20), (0, 1, 5), (1, 2, 5)], "tcp-reno", &[2]));
    assert_eq!(log.delivered_at(2)[0], Time::from_nanos(12_000_000));
}

#[test]
fn members_get_what_is_sent_while_they_belong() {
    let mut scenario = scenario(STAR, "cbr", &[2, 3]);
    let ms = |ms: u64| Time::from_nanos(ms * 1_000_000);
    let stay = |at, leave: u64| Join { node: NodeId(3), at: ms(at), leave: Some(ms(leave)) };
    scenario.flows[0].join = vec![stay(200, 400), stay(600, 700)];
    let (_, log) = run(&scenario);
    assert_eq!(log.delivered_at(2).len(), 100);
    let times = log.delivered_at(3);
    let inside = |t: &Time| (ms(200)..ms(402)).contains(t) || (ms(600)..ms(702)).contains(t);
    assert!(times.iter().all(inside), "{times:?}");
    assert!((29..=31).contains(&times.len()), "{}", times.len());
    // The branch is pruned: its link carries no more packets than its member received.
    assert!(log.last_sample(4).sent_packets <= times.len() as u64 + 2);
}

#[test]
fn a_time_to_live_ends_a_packet_at_its_last_hop() {
    let scenario = scenario(&[(0, 1, 1), (1, 2, 1), (2, 3, 1)], "cbr", &[1, 2, 3]);
    let (_, log) = run_with(&scenario, &plain(2), &mut Unobserved);
    assert_eq!(log.delivered_at(1).len(), 100);
    assert_eq!(log.delivered_at(2).len(), 100);
    assert_eq!(log.delivered_at(3).len(), 0);
    assert_eq!(log.drops(DropReason::TimeToLive), 100);
}

#[test]
fn a_stopped_flow_sends_no_more() {
    let mut scenario = scenario(STAR, "cbr", &[2]);
    scenario.flows[0].stop = Some(Time::from_nanos(500_000_000));
    let (_, log) = run(&scenario);
    assert_eq!(log.delivered_at(2).len(), 50);
}

#[test]
fn an_observer_can_end_a_run_early() {
    struct Impatient;
    impl Observer for Impatient {
        fn observe(&mut self, _now: Time, _events: u64) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    let mut scenario = scenario(STAR, "cbr", &[2, 3, 4]);
    scenario.duration = Duration::from_secs(1000);
    let (outcome, log) = run_with(&scenario, &plain(255), &mut Impatient);
    assert!(outcome.interrupted && outcome.at < Time::ZERO + scenario.duration);
    assert_eq!(log.0.last().map(|record| record.at), Some(outcome.at), "counters of that moment");
}
