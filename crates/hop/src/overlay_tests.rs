//! Daemons over QUIC in a network with delay, loss and cuts.

use std::collections::{BTreeMap, BTreeSet};

use faircast_base::{Cx, Duration, NodeId, Purpose, Rng, Time};
use faircast_overlay::{
    ClientEvent, ClientId, Daemon, DaemonId, DaemonRun, DaemonSettings, Outgoing, SendError,
    Service,
};

use crate::{CongestionControl, DaemonNode, Endpoint, RelayKey};

const CLIENT: ClientId = ClientId(1);

struct World {
    now: Time,
    random: Rng,
    faults: Rng,
    nodes: BTreeMap<NodeId, DaemonNode>,
    wire: BTreeMap<(Time, u64), (NodeId, NodeId, Vec<u8>)>,
    count: u64,
    loss: f64,
    cut: BTreeSet<(NodeId, NodeId)>,
    said: BTreeMap<u64, Vec<String>>,
    views: BTreeMap<u64, Vec<usize>>,
}

fn node(id: u64, incarnation: u64, key: u8, peers: Vec<NodeId>, now: Time) -> DaemonNode {
    let name = format!("d{id}");
    let (key, seed) = (RelayKey::shared([key; 32]), id * 100 + incarnation);
    let endpoint = Endpoint::new(&key, name.as_bytes(), seed, true, CongestionControl::NewReno);
    let me = DaemonRun { id: DaemonId(id), incarnation };
    let daemon = Daemon::new(now, me, &name, DaemonSettings::default());
    DaemonNode::new(endpoint, daemon, peers)
}

impl World {
    fn chain(count: u64) -> Self {
        let random = Rng::new(1, NodeId(1), Purpose::Machine(0));
        let faults = Rng::new(1, NodeId(2), Purpose::Fault);
        let mut world = fresh! {
            Self { now: Time::ZERO + Duration::from_secs(1), random, faults, }
            nodes, wire, count, loss, cut, said, views
        };
        for id in 1..=count {
            let before = (id > 1).then(|| NodeId(id as u32 - 1));
            let node = node(id, 1, 1, before.into_iter().collect(), world.now);
            world.nodes.insert(NodeId(id as u32), node);
            world.call(NodeId(id as u32), |node, cx| {
                node.with(cx, |daemon, cx| {
                    daemon.connect(cx, CLIENT, "c".into(), 1).unwrap();
                    daemon.join(cx, CLIENT, "g".into(), false).unwrap();
                });
            });
        }
        world
    }

    fn call<R>(&mut self, at: NodeId, act: impl FnOnce(&mut DaemonNode, &mut Cx<'_>) -> R) -> R {
        let now = self.now;
        let node = self.nodes.get_mut(&at).unwrap();
        let result = act(node, &mut Cx::untraced(now, &mut self.random));
        let mut packet = Vec::new();
        while let Some(to) = node.poll_transmit(now, &mut packet) {
            self.count += 1;
            let is_lost = self.faults.chance(self.loss) || self.cut.contains(&(at, to));
            if !is_lost {
                let arrives = now + Duration::from_millis(10);
                self.wire.insert((arrives, self.count), (at, to, std::mem::take(&mut packet)));
            }
            packet.clear();
        }
        let id = node.daemon().view().1.iter().map(|it| it.id.0).max().unwrap_or_default();
        assert!(id > 0, "a daemon is in its view");
        while let Some((_, event)) = node.daemon_mut().poll_client(CLIENT) {
            match &*event {
                ClientEvent::Message { parts, .. } => {
                    let text = String::from_utf8(parts.concat()).unwrap();
                    self.said.entry(at.0.into()).or_default().push(text);
                }
                ClientEvent::View { members, .. } => {
                    self.views.entry(at.0.into()).or_default().push(members.len());
                }
                _ => {}
            }
        }
        result
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let timers = self.nodes.iter().filter_map(|(at, it)| Some((it.next_timeout()?, *at)));
            let timer = timers.min();
            let packet = self.wire.keys().next().copied();
            let is_packet = packet.is_some_and(|it| timer.is_none_or(|timer| it.0 <= timer.0));
            let next = if is_packet { packet.map(|it| it.0) } else { timer.map(|it| it.0) };
            let Some(next) = next.filter(|it| *it <= end) else { break };
            self.now = self.now.max(next);
            if let Some(packet) = packet.filter(|_| is_packet) {
                let (from, to, bytes) = self.wire.remove(&packet).unwrap();
                if self.nodes.contains_key(&to) {
                    self.call(to, |node, cx| node.handle_datagram(cx, from, false, &bytes));
                }
            } else {
                self.call(timer.unwrap().1, |node, cx| node.handle_timeout(cx));
            }
        }
        self.now = end;
    }

    fn seconds(&mut self, seconds: u64) {
        self.run(Duration::from_secs(seconds));
    }

    fn send(&mut self, at: u32, service: Service, text: &str) -> Result<(), SendError> {
        self.call(NodeId(at), |node, cx| {
            let message = Outgoing::new(service, &[b"g"], text.as_bytes());
            node.with(cx, |daemon, cx| daemon.send(cx, CLIENT, &message))
        })
    }

    fn sizes(&self) -> Vec<usize> {
        self.nodes.values().map(|it| it.daemon().view().1.len()).collect()
    }
}

#[test]
fn a_chain_with_losses_delivers_everything_in_one_order() {
    let mut world = World::chain(4);
    world.seconds(5);
    assert_eq!(world.sizes(), [4; 4]);
    world.loss = 0.05;
    for i in 0..300 {
        for at in 1..=4 {
            // Long messages take several frames, and do not fit into one packet.
            let text = format!("{at}-{i}{}", ".".repeat(if i % 50 == 0 { 40_000 } else { 0 }));
            while world.send(at, Service::Agreed, &text).is_err() {
                world.run(Duration::from_millis(10));
            }
        }
        world.run(Duration::from_millis(20));
    }
    world.loss = 0.0;
    world.seconds(5);
    assert_eq!(world.said[&1].len(), 1200);
    for at in 2..=4 {
        assert!(world.said[&at] == world.said[&1], "daemon {at} has another order");
    }
    for node in world.nodes.values() {
        assert_eq!(node.daemon().unstable_bytes(), 0);
        assert!(node.links().all(|(_, _, stats)| stats.queued_bytes == 0));
    }
}

#[test]
fn a_cut_splits_the_view_and_its_end_joins_the_parts_again() {
    let mut world = World::chain(3);
    world.seconds(5);
    world.cut = [(NodeId(1), NodeId(2)), (NodeId(2), NodeId(1))].into();
    world.seconds(8);
    assert_eq!(world.sizes(), [1, 2, 2]);
    world.send(1, Service::Agreed, "alone").unwrap();
    world.send(3, Service::Agreed, "two").unwrap();
    world.cut.clear();
    world.seconds(8);
    assert_eq!(world.sizes(), [3; 3]);
    world.send(2, Service::Safe, "three").unwrap();
    world.seconds(1);
    assert_eq!(world.said[&1], ["alone", "three"]);
    assert_eq!(world.said[&3], ["two", "three"]);
}

#[test]
fn a_daemon_that_comes_back_elsewhere_is_dialed_there() {
    let mut world = World::chain(2);
    world.seconds(5);
    world.nodes.remove(&NodeId(1));
    world.seconds(1);
    world.nodes.insert(NodeId(9), node(1, 2, 1, Vec::new(), world.now));
    world.call(NodeId(2), |node, cx| node.set_peers(cx, &[NodeId(9)]));
    world.seconds(8);
    assert_eq!(world.sizes(), [2, 2]);
    assert_eq!(world.nodes[&NodeId(2)].daemon().view().1[0].incarnation, 2);
}

#[test]
fn two_daemons_that_dial_each_other_keep_one_link() {
    let mut world = World::chain(2);
    world.call(NodeId(1), |node, cx| node.set_peers(cx, &[NodeId(2)]));
    world.seconds(10);
    let views = world.views.clone();
    world.seconds(60);
    assert_eq!((world.sizes(), world.views), (vec![2, 2], views));
    for node in world.nodes.values() {
        assert_eq!(node.links().count(), 1);
    }
}

#[test]
fn a_daemon_with_another_key_stays_alone() {
    let mut world = World::chain(1);
    world.nodes.insert(NodeId(2), node(2, 1, 7, vec![NodeId(1)], world.now));
    world.call(NodeId(2), |node, cx| node.handle_timeout(cx));
    world.seconds(10);
    assert_eq!(world.sizes(), [1, 1]);
    assert_eq!(world.nodes[&NodeId(1)].links().count(), 0);
}
