//! Sessions over trees of relays, with faults from seeds.

mod multicast;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use faircast_base::{Cx, Duration, Event, FlowId, GroupId, NodeId, Purpose, Rng, Time, Trace};
use faircast_proto::catalog;
use faircast_proto::content::Zeros;
use faircast_proto::credit;
use faircast_proto::options::{OptionValue, Options};
use faircast_proto::transport::{EndSetup, Role};
use faircast_proto::{Datagram, Destination, FlowEvent, FlowMachine, Machine};

use crate::host::{Behind, Host};
use crate::{
    CongestionControl, Endpoint, NodeLimits, NodeStatus, RelayKey, RelayNode, SlowLink, UplinkState,
};

const DELAY: Duration = Duration::from_millis(5);
const RATE: u64 = 2_500_000;
const QUEUE_BYTES: u64 = 150_000;
const SOCKET_BYTES: usize = 1 << 20;
const GROUP: u64 = 77;
const OBJECT: u64 = 6_000_000;

enum Part {
    Relay(Box<RelayNode>),
    Host(Box<Behind<FlowMachine>>),
    Dead,
}

struct Site {
    part: Part,
    at: NodeId,
    claims: NodeId,
    above: Vec<NodeId>,
    is_source: bool,
    starts: u32,
    stopped_until: Time,
    /// Packets in the socket buffer of a stopped host.
    socket: Vec<Packet>,
    is_deaf: bool,
    multicasts: u64,
    busy_until: Time,
    rng: Rng,
    delivered: u64,
    completed: bool,
    data_packets: u64,
}

impl Site {
    fn listens(&self, relay: NodeId) -> bool {
        match &self.part {
            Part::Host(host) => {
                !self.is_deaf && host.host().multicast_at() == Some(&relay.0.to_be_bytes()[..])
            }
            _ => false,
        }
    }
}

struct DataPackets(u64);

impl Trace for DataPackets {
    fn emit(&mut self, _at: Time, event: Event) {
        self.0 += u64::from(matches!(event, Event::DataSent { .. }));
    }
}

type Packet = (NodeId, bool, Vec<u8>);

type Outgoing = Vec<(Destination, Vec<u8>)>;

/// Calls a machine with a packet, or without one at a timeout. Returns its packets and events.
fn drive<M: Machine>(
    machine: &mut M,
    cx: &mut Cx<'_>,
    datagram: Option<Datagram<'_>>,
) -> (Outgoing, Vec<M::Event>) {
    match datagram {
        Some(datagram) => machine.handle_datagram(cx, datagram),
        None => machine.handle_timeout(cx),
    }
    let (mut buf, mut out) = (Vec::new(), Vec::new());
    while let Some(transmit) = machine.poll_transmit(cx, &mut buf) {
        out.push((transmit.to, std::mem::take(&mut buf)));
    }
    (out, std::iter::from_fn(|| machine.poll_event()).collect())
}

type OnTheWay = (Time, u64, NodeId, Packet);

struct World {
    now: Time,
    sites: BTreeMap<NodeId, Site>,
    at: BTreeMap<NodeId, NodeId>,
    wire: BinaryHeap<Reverse<OnTheWay>>,
    sent: u64,
    key: RelayKey,
    source: NodeId,
    bytes: Option<u64>,
    /// Loss rate of multicast at each host; `None` if relays send no multicast.
    multicast: Option<f64>,
    losses: Rng,
    /// Maximum rate of a relay to each neighbour, in bits per second.
    rates: BTreeMap<u32, u64>,
}

impl World {
    fn new(bytes: Option<u64>) -> Self {
        let key = RelayKey::shared([7; 32]).without_secrecy();
        let losses = Rng::new(6, NodeId(0), Purpose::Scenario);
        fresh! {
            Self { key, source: NodeId(100), bytes, losses, }
            now, sites, at, wire, sent, multicast, rates
        }
    }

    fn add(&mut self, node: u32, above: &[u32]) {
        let node = NodeId(node);
        let above = above.iter().map(|node| NodeId(*node)).collect();
        let (is_source, rng) = (node == self.source, Rng::new(5, node, Purpose::Machine(0)));
        let site = fresh! {
            Site { part: Part::Dead, at: node, claims: node, above, is_source, rng, }
            starts, stopped_until, socket, is_deaf, multicasts, busy_until, delivered, completed,
            data_packets
        };
        self.sites.insert(node, site);
        self.at.insert(node, node);
        self.start(node);
    }

    /// Relays have numbers below 100.
    fn start(&mut self, node: NodeId) {
        let Some(site) = self.sites.get_mut(&node) else { return };
        site.starts += 1;
        (site.socket, site.stopped_until) = (Vec::new(), Time::ZERO);
        let is_relay = node.0 < 100;
        let seed = u64::from(node.0) << 32 | u64::from(site.starts);
        let name = format!("node {}", node.0);
        let endpoint =
            Endpoint::new(&self.key, name.as_bytes(), seed, is_relay, CongestionControl::NewReno);
        let options = Options::default();
        site.part = if is_relay {
            let text = |rate| OptionValue::Text(format!("{rate} bit/s"));
            let rate = self.rates.get(&node.0).map(|rate| ("rate_max".to_string(), text(rate)));
            let options = Options::checked(rate, credit::RELAY_OPTIONS).expect("they are right");
            let program = credit::relay(node, &options, None);
            let who = (node, &name[..]);
            let limits = NodeLimits::default();
            let mut relay = RelayNode::new(endpoint, who, site.above.clone(), limits, program);
            if self.multicast.is_some() {
                relay.set_multicast(&node.0.to_be_bytes(), 1);
            }
            Part::Relay(Box::new(relay))
        } else {
            let stack = catalog::stack("credit").expect("it is registered");
            let sources = [self.source];
            let start = self.now;
            let node = site.claims;
            let setup = EndSetup { start, ..EndSetup::new(FlowId(0), node, &sources, &options) };
            let role = match site.is_source {
                true => Role::Source(Box::new(Zeros { len: self.bytes })),
                false => Role::Receiver,
            };
            let inner = stack.end(role, setup).expect("the stack has ends");
            let group = (GROUP, u32::from(!site.is_source));
            let host = Host::new(self.now, endpoint, (node, &name), site.above.clone(), group);
            (site.delivered, site.completed) = (0, false);
            Part::Host(Box::new(Behind::new(inner, host)))
        };
    }

    fn kill(&mut self, node: u32) {
        self.sites.get_mut(&NodeId(node)).unwrap().part = Part::Dead;
    }

    fn stop(&mut self, node: u32, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        self.sites.get_mut(&NodeId(node)).unwrap().stopped_until = until;
    }

    fn moves(&mut self, node: u32, to: u32) {
        let site = self.sites.get_mut(&NodeId(node)).unwrap();
        self.at.remove(&site.at);
        site.at = NodeId(to);
        self.at.insert(NodeId(to), NodeId(node));
    }

    fn call(&mut self, node: NodeId, packet: Option<Packet>) {
        let now = self.now;
        let Some(site) = self.sites.get_mut(&node) else { return };
        let mut trace = DataPackets(0);
        let mut cx = Cx::new(now, &mut site.rng, &mut trace);
        let own = |is_multicast| match is_multicast {
            true => Destination::Group(GroupId(0)),
            false => Destination::Node(site.at),
        };
        let datagram =
            packet.as_ref().map(|(from, to, bytes)| Datagram::new(*from, own(*to), bytes));
        let (out, events) = match &mut site.part {
            Part::Relay(relay) => (drive(&mut **relay, &mut cx, datagram).0, Vec::new()),
            Part::Host(host) => drive(&mut **host, &mut cx, datagram),
            Part::Dead => Default::default(),
        };
        for event in events {
            match event {
                FlowEvent::Delivered { bytes, zeros } => {
                    site.delivered += bytes.len() as u64 + u64::from(zeros);
                }
                FlowEvent::Completed => site.completed = true,
                FlowEvent::Lost { packets } => panic!("{node:?}: {packets} packets lost"),
                FlowEvent::Gone | FlowEvent::Note(_) | FlowEvent::Link(_) => {}
            }
        }
        site.data_packets += trace.0;
        let mut multicasts = Vec::new();
        for (to, bytes) in out {
            let busy = site.busy_until.max(now);
            if busy.since(now).mul_f64(RATE as f64 / 1e9).as_nanos() > QUEUE_BYTES {
                continue;
            }
            let takes = Duration::from_nanos((bytes.len() as u64 + 28) * 1_000_000_000 / RATE);
            site.busy_until = busy + takes;
            let (at, from) = (site.busy_until + DELAY, site.at);
            match to {
                Destination::Node(to) => {
                    self.sent += 1;
                    self.wire.push(Reverse((at, self.sent, to, (from, false, bytes))));
                }
                Destination::Group(_) => {
                    site.multicasts += 1;
                    multicasts.push((at, (from, true, bytes)));
                }
            }
        }
        for (at, packet) in multicasts {
            for site in self.sites.values().filter(|site| site.listens(node)) {
                if self.losses.unit() >= self.multicast.unwrap_or_default() {
                    self.sent += 1;
                    self.wire.push(Reverse((at, self.sent, site.at, packet.clone())));
                }
            }
        }
    }

    fn next_timeout(&self, site: &Site) -> Option<Time> {
        let at = match &site.part {
            Part::Relay(relay) => relay.next_timeout(),
            Part::Host(host) => host.next_timeout(),
            Part::Dead => None,
        };
        at.map(|at| at.max(site.stopped_until))
    }

    fn run(&mut self, seconds: f64) {
        let end = self.now + Duration::from_secs_f64(seconds);
        loop {
            let due = |(node, site): (&NodeId, &Site)| Some((self.next_timeout(site)?, *node));
            let timer = self.sites.iter().filter_map(due).min();
            let arrives = self.wire.peek().map(|Reverse((at, ..))| *at);
            match (timer, arrives) {
                (Some((at, node)), next) if at <= end && next.is_none_or(|next| at <= next) => {
                    self.now = self.now.max(at);
                    let waiting = std::mem::take(&mut self.sites.get_mut(&node).unwrap().socket);
                    waiting.into_iter().for_each(|packet| self.call(node, Some(packet)));
                    self.call(node, None);
                }
                (_, Some(at)) if at <= end => {
                    let Some(Reverse((_, _, to, packet))) = self.wire.pop() else { break };
                    self.now = self.now.max(at);
                    let Some(node) = self.at.get(&to).copied() else { continue };
                    let Some(site) = self.sites.get_mut(&node) else { continue };
                    if self.now < site.stopped_until {
                        let held: usize = site.socket.iter().map(|(.., bytes)| bytes.len()).sum();
                        if held < SOCKET_BYTES {
                            site.socket.push(packet);
                        }
                        continue;
                    }
                    self.call(node, Some(packet));
                }
                _ => break,
            }
        }
        self.now = end;
    }

    fn delivered(&self, node: u32) -> u64 {
        self.sites[&NodeId(node)].delivered
    }

    fn is_complete(&self, node: u32) -> bool {
        let site = &self.sites[&NodeId(node)];
        site.completed && (site.is_source || site.delivered == OBJECT)
    }

    fn status_of(&self, node: u32) -> NodeStatus {
        match &self.sites[&NodeId(node)].part {
            Part::Relay(relay) => relay.status(),
            _ => panic!("{node} is no relay"),
        }
    }

    fn slow_link(&self) -> Option<SlowLink> {
        match &self.sites[&self.source].part {
            Part::Host(host) => host.host().slow_link().cloned(),
            _ => None,
        }
    }

    fn attachment(&self, node: u32) -> Option<UplinkState> {
        match &self.sites[&NodeId(node)].part {
            Part::Relay(relay) => relay.status().above,
            Part::Host(host) => Some(host.host().state().0.clone()),
            Part::Dead => None,
        }
    }
}

/// Returns a source, an upper relay, two lower relays, and two receivers at each of these.
fn tree(bytes: Option<u64>) -> World {
    tree_of(bytes, None, 1, &[])
}

fn tree_of(bytes: Option<u64>, multicast: Option<f64>, at: u32, rates: &[(u32, u64)]) -> World {
    let mut world = World::new(bytes);
    world.multicast = multicast;
    world.rates = rates.iter().copied().collect();
    world.add(1, &[]);
    world.add(2, &[1]);
    world.add(3, &[1]);
    world.add(100, &[at]);
    for (receiver, relay) in [(101, 2), (102, 2), (103, 3), (104, 3)] {
        world.add(receiver, &[relay, 1]);
    }
    world
}

const RECEIVERS: [u32; 4] = [101, 102, 103, 104];

#[test]
fn a_session_over_relays_completes() {
    let mut world = tree(Some(OBJECT));
    world.run(20.0);
    for receiver in RECEIVERS {
        assert!(world.is_complete(receiver), "{receiver}: {}", world.delivered(receiver));
        let relay = if receiver < 103 { "node 2" } else { "node 3" };
        assert_eq!(world.attachment(receiver), Some(UplinkState::Attached(relay.into())));
    }
}

#[test]
fn of_two_hosts_that_say_to_be_one_the_first_keeps_its_place() {
    let mut world = tree(Some(OBJECT));
    world.run(1.0);
    world.add(105, &[2]);
    world.sites.get_mut(&NodeId(105)).unwrap().claims = NodeId(101);
    world.start(NodeId(105));
    world.run(3.0);
    let misplaced = world.status_of(2).refused.misplaced;
    assert!(misplaced > 10, "{misplaced} packets of the second were refused");
    world.run(20.0);
    for receiver in RECEIVERS {
        assert!(world.is_complete(receiver), "{receiver}: {}", world.delivered(receiver));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill(u32),
    Restart(u32, u64),
    Stop(u32, u64),
    Move(u32),
}

impl World {
    fn suffer(&mut self, fault: Fault) {
        match fault {
            Fault::Kill(node) => self.kill(node),
            Fault::Restart(node, seconds) => {
                self.kill(node);
                self.run(seconds as f64);
                self.start(NodeId(node));
            }
            Fault::Stop(node, seconds) => {
                self.stop(node, seconds);
                self.run(seconds as f64);
            }
            Fault::Move(node) => {
                let moves = self.sites.len() as u32 + self.sent as u32;
                self.moves(node, 1000 + moves);
            }
        }
    }

    fn sent_in_a_second(&mut self) -> u64 {
        let before = self.sites[&self.source].data_packets;
        self.run(1.0);
        self.sites[&self.source].data_packets - before
    }

    fn least_in_a_second(&mut self) -> u64 {
        let before = RECEIVERS.map(|it| self.delivered(it));
        self.run(1.0);
        let lives = |node: u32| !matches!(self.sites[&NodeId(node)].part, Part::Dead);
        let living = RECEIVERS.into_iter().zip(before).filter(|(node, _)| lives(*node));
        living.map(|(node, before)| self.delivered(node) - before).min().expect("one lives")
    }
}

fn goes_on(fault: Fault, within: u64) {
    let share = if matches!(fault, Fault::Stop(101, _)) { 0.4 } else { 0.8 };
    let mut world = tree(None);
    world.run(3.0);
    let usual = world.least_in_a_second();
    assert!(usual > 300_000, "{usual} bytes in a second");
    world.suffer(fault);
    let rates: Vec<u64> = (0..within).map(|_| world.least_in_a_second()).collect();
    let then: Vec<u64> = (0..3).map(|_| world.least_in_a_second()).collect();
    let mean = then.iter().sum::<u64>() / then.len() as u64;
    assert!(mean as f64 > usual as f64 * share, "{fault:?}: {usual}, then {rates:?} and {then:?}");
}

#[test]
fn a_dead_receiver_holds_nobody() {
    goes_on(Fault::Kill(101), 4);
}

#[test]
fn a_stopped_relay_holds_nobody_when_it_is_back() {
    for seconds in [1, 3, 8, 20] {
        goes_on(Fault::Stop(1, seconds), 4);
        goes_on(Fault::Stop(2, seconds), 4);
    }
}

#[test]
fn a_stopped_host_holds_nobody_when_it_is_back() {
    for seconds in [1, 8, 20] {
        goes_on(Fault::Stop(100, seconds), 4);
        goes_on(Fault::Stop(101, seconds), 4);
    }
}

#[test]
fn a_relay_that_was_started_again_serves_within_2_seconds() {
    for seconds in [1, 3, 20] {
        goes_on(Fault::Restart(1, seconds), 2);
        goes_on(Fault::Restart(2, seconds), 4);
    }
}

#[test]
fn hosts_return_to_the_first_relay_of_their_list_after_ever_longer_times() {
    let mut world = tree(None);
    world.run(3.0);
    let usual = world.least_in_a_second();
    for wait in [25.0, 55.0] {
        world.suffer(Fault::Restart(2, 6));
        let is_at = |world: &World, relay: &str| {
            let attached = UplinkState::Attached(relay.into());
            [101, 102].iter().all(|it| world.attachment(*it).as_ref() == Some(&attached))
        };
        assert!(is_at(&world, "node 1"), "1.5 s of silence, 2 s for the first relay");
        world.run(wait - 3.0);
        assert!(is_at(&world, "node 1"), "{wait} s");
        world.run(8.0);
        assert!(is_at(&world, "node 2"), "{wait} s");
        world.run(2.0);
        let then = world.least_in_a_second();
        assert!(then * 2 > usual, "{usual}, then {then}");
    }
}

#[test]
fn an_address_may_change_at_every_level() {
    goes_on(Fault::Move(100), 2);
    goes_on(Fault::Move(101), 2);
    // Receivers at the moved relay search for it for 2 s, then for another.
    goes_on(Fault::Move(2), 7);
}

/// The error is the faults: the source lacks 80 % of its rate, or a receiver stalled for 120 s.
fn suffers(seed: u64) -> Result<(), Vec<Fault>> {
    let mut rng = Rng::new(seed, NodeId(0), Purpose::Scenario);
    let multicast = (seed % 2 == 1).then(|| (seed % 12) as f64 / 200.0);
    let mut world = tree_of(None, multicast, 1, &[]);
    world.run(3.0);
    let usual = world.sent_in_a_second();
    let mut faults = Vec::new();
    for _ in 0..4 {
        let all = [1, 2, 3, 100, 101, 102, 103, 104];
        let node = all[rng.below(all.len() as u64) as usize];
        let seconds = 1 + rng.below(20);
        let fault = match rng.below(3) {
            0 if node < 100 => Fault::Restart(node, seconds),
            0 if node > 101 => Fault::Kill(node),
            // No neighbour could find the top relay at another address.
            1 if node != 1 => Fault::Move(node),
            _ => Fault::Stop(node, seconds),
        };
        faults.push(fault);
        world.suffer(fault);
        world.run(rng.unit() * 2.0);
        // A receiver that was stopped first gets what it missed, and TRAM's window waits for it.
        let within = if matches!(fault, Fault::Stop(101.., _)) { 30 } else { 10 };
        if !(0..within).any(|_| world.sent_in_a_second() * 5 > usual * 4) {
            return Err(faults);
        }
    }
    // A stream delivers new data only after the missed data.
    match (0..120).any(|_| world.least_in_a_second() > 100_000) {
        true => Ok(()),
        false => Err(faults),
    }
}

#[test]
fn sessions_go_on_after_faults_from_seeds() {
    for seed in 0..rounds() {
        assert_eq!(suffers(seed), Ok(()), "seed {seed}");
    }
}

fn rounds() -> u64 {
    option_env!("FAIRCAST_ROUNDS").map_or(12, |rounds| rounds.parse().expect("a number"))
}

#[test]
fn a_relay_keeps_to_its_highest_rate_with_each_neighbour_from_seeds() {
    for seed in 0..rounds() {
        let mut rng = Rng::new(seed, NodeId(0), Purpose::Scenario);
        let rate = 200_000 + rng.below(1_800_000);
        let relay = 1 + rng.below(3) as u32;
        let multicast = (seed % 2 == 1).then_some(0.0);
        let mut world = tree_of(None, multicast, 1 + rng.below(3) as u32, &[(relay, rate)]);
        world.run(5.0);
        let before = RECEIVERS.map(|it| world.delivered(it));
        world.run(20.0);
        for (receiver, before) in RECEIVERS.into_iter().zip(before) {
            let share = (world.delivered(receiver) - before) as f64 * 8.0 / 20.0 / rate as f64;
            assert!((0.7..1.0).contains(&share), "seed {seed}: {receiver} gets {share} of {rate}");
        }
        for it in world.status_of(relay).neighbours {
            // The allowance covers QUIC's own bytes, and credits, which are not delayed.
            let sent = it.connection.sent_bits_per_s;
            assert!(sent < rate * 6 / 5 + 50_000, "seed {seed}: {sent} of {rate} to {}", it.name);
        }
    }
}

#[test]
fn the_source_is_told_of_the_link_that_sets_the_pace() {
    let slow = |relay: u32, to: u32| {
        let is = if to < 100 { "relay" } else { "receiver" };
        format!("relay node {relay} → {is} node {to}")
    };
    // Relay of the source, multicast loss, slow relay, and links that may be reported.
    for (at, multicast, relay, links) in [
        (1, None, 3, &[slow(3, 103)][..]),
        (2, None, 3, &[slow(3, 103)]),
        (1, Some(0.0), 3, &[slow(3, 103)]),
        (2, None, 1, &[slow(1, 3)]),
        (3, None, 3, &[slow(3, 103), slow(3, 1)]),
    ] {
        let mut world = tree_of(None, multicast, at, &[(relay, 2_000_000)]);
        world.kill(104);
        world.run(25.0);
        let link = world.slow_link().expect("a link is slow");
        assert!((1_500_000..2_100_000).contains(&link.bits_per_s), "{link:?}");
        assert!(links.contains(&link.name), "{link:?} of {links:?}");
        let of_relay = world.status_of(relay);
        let below = of_relay.neighbours.iter().map(|it| it.connection);
        let mut all = below.chain(of_relay.above_connection);
        let is_fast = |bits: u64| multicast.is_some() || bits > 1_900_000;
        assert!(all.any(|it| it.queued_bytes > 3000 && is_fast(it.sent_bits_per_s)));
    }
}

#[test]
fn no_link_is_named_once_the_slow_one_has_no_receivers() {
    let mut world = tree_of(None, None, 1, &[(3, 2_000_000)]);
    world.run(10.0);
    assert!(world.slow_link().is_some_and(|link| link.name.starts_with("relay node 3 →")));
    [103, 104].into_iter().for_each(|it| world.kill(it));
    world.run(25.0);
    assert_eq!(world.slow_link(), None);
}

#[test]
fn two_relays_below_each_other_say_so() {
    let mut world = World::new(None);
    world.add(1, &[2]);
    world.add(2, &[1]);
    world.run(10.0);
    let states = [world.attachment(1), world.attachment(2)];
    assert!(states.contains(&Some(UplinkState::Loop)), "{states:?}");
}
