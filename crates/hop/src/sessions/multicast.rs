//! Sessions whose last hop is multicast.

use super::*;
use crate::message::ParcelHead;
use crate::seal::Seal;

/// Returns a source, a relay and four receivers on the relay's network, each with a share of loss.
fn site(bytes: Option<u64>, loss: f64) -> World {
    let mut world = World::new(bytes);
    world.multicast = Some(loss);
    world.add(1, &[]);
    for host in [100, 101, 102, 103, 104] {
        world.add(host, &[1]);
    }
    world
}

impl World {
    fn all_hear(&self) {
        assert_eq!(RECEIVERS.map(|it| self.hears(it)), [true; 4]);
    }

    fn hears(&self, node: u32) -> bool {
        match &self.sites[&NodeId(node)].part {
            Part::Host(host) => host.host().hears_multicast(),
            _ => false,
        }
    }
}

/// Frames of a packet with 1400 bytes of content and its heads.
const FRAMES_EACH: f64 = 2.0;

#[test]
fn packets_leave_once_for_all_hosts_of_a_network() {
    for loss in [0.0, 0.01, 0.05] {
        let mut world = site(Some(OBJECT), loss);
        world.run(1.0);
        world.all_hear();
        let sent = world.status_of(1).sent;
        world.run(60.0);
        let all = RECEIVERS.map(|it| world.is_complete(it));
        assert_eq!(all, [true; 4], "{loss}: {:?}", RECEIVERS.map(|it| world.delivered(it)));
        let data = world.sites[&world.source].data_packets as f64;
        let multicasts = world.sites[&NodeId(1)].multicasts as f64;
        // Frames that two hosts lack are multicast again; beacons and hosts' reports are added.
        let most = FRAMES_EACH * data * (1.05 + 2.0 * loss);
        assert!(multicasts < most, "{loss}: {multicasts} of {data}");
        let refused = world.status_of(1).refused;
        assert_eq!((refused.malformed, refused.lost), (0, 0));
        assert!(world.status_of(1).sent > sent);
    }
}

impl World {
    /// The receivers `others` stall for at most 4 s of the next minute, and all complete.
    fn holds_briefly(&mut self, others: &[u32]) {
        let mut still = 0;
        for _ in 0..60 {
            let before: Vec<u64> = others.iter().map(|it| self.delivered(*it)).collect();
            self.run(1.0);
            let is_still = |(node, before): (&u32, u64)| {
                self.delivered(*node) == before && !self.is_complete(*node)
            };
            still += u32::from(others.iter().zip(before).any(is_still));
        }
        assert!(still <= 4, "{still} s");
        assert!(RECEIVERS.iter().all(|it| self.is_complete(*it)), "not all have everything");
    }
}

#[test]
fn a_host_without_multicast_is_served_by_unicast() {
    for seconds in [0.0, 2.0] {
        let mut world = site(Some(OBJECT), 0.01);
        world.run(seconds);
        world.sites.get_mut(&NodeId(104)).unwrap().is_deaf = true;
        world.holds_briefly(&[101, 102, 103]);
        assert_eq!(RECEIVERS.map(|it| world.hears(it)), [true, true, true, false]);
        world.sites.get_mut(&NodeId(104)).unwrap().is_deaf = false;
        world.run(10.0);
        assert!(world.hears(104), "{seconds}");
    }
}

#[test]
fn a_host_that_is_stopped_holds_the_others_3_seconds() {
    let mut world = site(Some(OBJECT), 0.01);
    world.run(2.0);
    world.stop(104, 8);
    world.holds_briefly(&[101, 102, 103]);
}

#[test]
fn multicast_goes_on_after_a_restart_of_the_relay_or_a_host() {
    let mut world = site(Some(OBJECT), 0.01);
    world.run(2.0);
    world.suffer(Fault::Restart(1, 1));
    world.run(5.0);
    world.all_hear();
    world.suffer(Fault::Restart(104, 1));
    world.suffer(Fault::Move(101));
    world.run(2.0);
    world.all_hear();
    world.holds_briefly(&[101, 102, 103]);
}

#[test]
fn a_host_that_joins_late_gets_everything_by_multicast() {
    let mut world = site(Some(OBJECT), 0.01);
    world.kill(104);
    world.run(4.0);
    world.start(NodeId(104));
    world.run(2.0);
    world.all_hear();
    world.holds_briefly(&[101, 102, 103]);
}

#[test]
fn forged_multicast_changes_nothing() {
    let mut world = site(Some(OBJECT), 0.0);
    world.run(2.0);
    let link = match &world.sites[&NodeId(1)].part {
        Part::Relay(relay) => {
            let links = relay.groups.by_id.get(&GROUP).unwrap().members.values();
            links.filter_map(|member| member.link).next().unwrap().0
        }
        _ => panic!("the relay is dead"),
    };
    let control = CongestionControl::NewReno;
    let relay = Endpoint::new(&world.key, b"node 1", 1 << 32 | 1, true, control);
    let head =
        ParcelHead { hops: 1, origin: world.source, to: Destination::Group(GroupId::SESSION) };
    let frame = [&head.encode()[..], b"forged"].concat();
    let keys = [[7; 32], relay.multicast_key()];
    let seqs = [u64::MAX, u64::MAX - 1, 1 << 32, 0];
    for (key, seq) in keys.into_iter().flat_map(|key| seqs.map(|seq| (key, seq))) {
        for link in [0, link, link + 1] {
            let sealed = Seal::new(&key).seal(link, seq, &frame);
            world.call(NodeId(104), Some((NodeId(9), true, sealed.clone())));
            world.call(NodeId(104), Some((NodeId(9), true, sealed[..20].to_vec())));
        }
    }
    world.holds_briefly(&RECEIVERS);
    world.all_hear();
    assert_eq!(world.status_of(1).refused.malformed, 0);
}

#[test]
fn a_session_completes_with_many_hosts_on_a_link() {
    let mut world = World::new(Some(OBJECT / 6));
    world.multicast = Some(0.01);
    let hosts = 101..133;
    world.add(1, &[]);
    [100].into_iter().chain(hosts.clone()).for_each(|host| world.add(host, &[1]));
    world.run(2.0);
    assert!(hosts.clone().all(|host| world.hears(host)));
    world.run(20.0);
    for host in hosts {
        let site = &world.sites[&NodeId(host)];
        assert!(site.completed && site.delivered == OBJECT / 6, "{host}: {}", site.delivered);
    }
    let multicasts = world.sites[&NodeId(1)].multicasts as f64;
    let data = world.sites[&world.source].data_packets as f64;
    assert!(multicasts < FRAMES_EACH * data * 1.5, "{multicasts} of {data}");
}
