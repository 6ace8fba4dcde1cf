//! Tests of multicast between a relay and its hosts: who hears it, and what becomes of who does not.

use super::*;

/// A relay with multicast on one network, a source at it, and receivers from 11 on.
fn with_receivers(count: u8, key: Option<[u8; 32]>) -> Net {
    let mut net = Net::default();
    net.relay(1, &[], key);
    net.relays.get_mut(&1).unwrap().set_multicast(multicast(0), 1);
    net.host(10, &[1], 0, key);
    for host in 11..11 + count {
        net.host(host, &[1], 1, key);
        net.hosts.get_mut(&host).unwrap().hears = Some(0);
    }
    net.run(2000);
    net
}

/// Sends so many packets and returns how many frames left by multicast, and to all receivers by unicast.
fn send(net: &mut Net, packets: u32, receivers: u8) -> [usize; 2] {
    let count = |net: &Net| {
        let to = |at: SocketAddr| net.reached.get(&at).copied().unwrap_or(0);
        [to(multicast(0)), (11..11 + receivers).map(|host| to(at(host))).sum::<usize>()]
    };
    let before = count(net);
    for number in 0..packets {
        net.send(10, TO_GROUP, &number.to_be_bytes());
        net.run(20);
    }
    net.run(6000);
    let after = count(net);
    [after[0] - before[0], after[1] - before[1]]
}

fn numbers(net: &Net, host: u8) -> Vec<u32> {
    net.got(host).iter().map(|body| u32::from_be_bytes((*body).try_into().unwrap())).collect()
}

fn by_multicast(net: &Net) -> usize {
    net.relays[&1].status().neighbours.iter().filter(|it| it.multicast).count()
}

#[test]
fn a_packet_leaves_once_for_all_hosts_of_a_network() {
    for key in [None, Some([5; 32])] {
        let mut net = with_receivers(20, key);
        assert_eq!(by_multicast(&net), 20);
        let [by_multicast, by_unicast] = send(&mut net, 100, 20);
        for host in 11..31 {
            assert_eq!(numbers(&net, host), (0..100).collect::<Vec<_>>(), "{host}");
        }
        // Beside data two beacons a second; by unicast what answers joins.
        assert!((100..125).contains(&by_multicast), "{by_multicast}");
        assert!(by_unicast < 20 * 10, "{by_unicast}");
        assert!(net.got(10).is_empty());
    }
}

#[test]
fn who_does_not_hear_multicast_has_the_same_by_unicast() {
    let mut net = with_receivers(4, None);
    net.host(15, &[1], 1, None);
    net.host(16, &[1], 1, None);
    // Another network, which is none of the relay's.
    net.hosts.get_mut(&16).unwrap().hears = Some(1);
    net.run(3000);
    assert_eq!(by_multicast(&net), 4);
    send(&mut net, 50, 6);
    for host in 11..17 {
        assert_eq!(numbers(&net, host), (0..50).collect::<Vec<_>>(), "{host}");
    }
}

#[test]
fn what_one_host_loses_it_gets_alone_and_what_several_lose_all_get() {
    let mut net = with_receivers(5, None);
    net.hosts.get_mut(&11).unwrap().loses = 5;
    let [by_multicast, by_unicast] = send(&mut net, 200, 5);
    assert!((200..230).contains(&by_multicast), "{by_multicast}");
    assert!(by_unicast > 30, "{by_unicast}");
    net.hosts.get_mut(&11).unwrap().loses = 0;
    net.loses = 10;
    let [by_multicast, by_unicast] = send(&mut net, 200, 5);
    // Two beacons a second and an answer to each join were not lost data.
    let again = by_multicast - 200;
    assert!(net.lost > 10 && again >= net.lost, "{again} of {}", net.lost);
    assert!(by_unicast < 2 * net.lost + 100, "{by_unicast}");
    for host in 11..16 {
        let expected: Vec<u32> = (0..200).chain(0..200).collect();
        assert_eq!(numbers(&net, host), expected, "{host}");
    }
}

#[test]
fn where_multicast_ends_all_goes_on_by_unicast() {
    let mut net = with_receivers(3, None);
    for number in 0..60u32 {
        net.send(10, TO_GROUP, &number.to_be_bytes());
        net.run(100);
        if number == 20 {
            // As where a switch forgets who has joined.
            net.hosts.get_mut(&11).unwrap().hears = None;
            net.hosts.get_mut(&12).unwrap().hears = None;
        }
    }
    net.run(5000);
    assert_eq!(by_multicast(&net), 1);
    assert_eq!(numbers(&net, 13), (0..60).collect::<Vec<_>>());
    for host in [11, 12] {
        // But for what waited at the relay when it went over: the ends repair that.
        let got = numbers(&net, host);
        assert!(got.is_sorted() && got.len() > 35, "{got:?}");
        assert_eq!(got[..21], (0..21).collect::<Vec<_>>());
        assert_eq!(got[got.len() - 15..], (45..60).collect::<Vec<_>>());
    }
    // It comes back.
    net.hosts.get_mut(&11).unwrap().hears = Some(0);
    net.run(3000);
    assert_eq!(by_multicast(&net), 2);
}

#[test]
fn a_host_that_says_nothing_any_more_does_not_hold_up_the_others() {
    let mut net = with_receivers(3, None);
    net.hosts.remove(&12);
    for number in 0..100u32 {
        net.send(10, TO_GROUP, &number.to_be_bytes());
        net.run(100);
    }
    for host in [11, 13] {
        assert_eq!(numbers(&net, host), (0..100).collect::<Vec<_>>(), "{host}");
    }
    // Who says that it hears, and acknowledges nothing, is not believed again soon.
    let mut liar = Guard::new(node(66), None);
    let mut cookie = [0; 16];
    for _ in 0..10 {
        let mut join = Vec::new();
        let body = Join { cookie, relay: false, begins: false, hears: 1, receivers: 1 };
        liar.write(&Frame::control(FrameKind::Join, GROUP, &[]), &mut join, |buf| body.encode(buf));
        net.wire.0.push_back((at(66), at(1), join));
        let mut rng = Rng::new(1, NodeId(0), Purpose::Relay);
        let mut cx = Cx::untraced(net.now, &mut rng);
        let (from, to, join) = net.wire.0.pop_front().unwrap();
        let relay = net.relays.get_mut(&1).unwrap();
        relay.handle_datagram(&mut cx, from, &join, &mut From(to, &mut net.wire));
        for (_, to, frame) in &net.wire.0 {
            if let Ok(Frame { kind: FrameKind::Challenge, body, .. }) = liar.read(frame)
                && *to == at(66)
            {
                cookie = body.try_into().unwrap();
            }
        }
        net.send(10, TO_GROUP, &7u32.to_be_bytes());
        net.run(1500);
    }
    let believed = net.relays[&1].status();
    let believed = believed.neighbours.iter().find(|it| it.address == at(66)).unwrap();
    assert!(!believed.multicast);
    assert_eq!(numbers(&net, 11).len(), 110);
}

#[test]
fn who_hears_beacons_and_no_data_is_served_by_unicast() {
    let mut net = with_receivers(4, None);
    net.hosts.get_mut(&12).unwrap().longest = FRAME_BYTES + 2;
    for number in 0..100u32 {
        net.send(10, TO_GROUP, &number.to_be_bytes());
        net.run(100);
    }
    assert_eq!(by_multicast(&net), 3);
    for host in [11, 13, 14] {
        assert_eq!(numbers(&net, host), (0..100).collect::<Vec<_>>(), "{host}");
    }
    assert_eq!(numbers(&net, 12)[70..], (numbers(&net, 12)[70]..100).collect::<Vec<_>>());
    // It is soon told of beacons again, and has what comes from then on by unicast all the same.
    let [by_multicast, _] = send(&mut net, 50, 4);
    assert!((50..75).contains(&by_multicast), "{by_multicast}");
    assert!(numbers(&net, 12).ends_with(&(0..50).collect::<Vec<_>>()));
}

#[test]
fn a_relay_that_is_started_again_has_its_hosts_on_multicast_again() {
    let mut net = with_receivers(3, None);
    net.relay(1, &[], None);
    net.relays.get_mut(&1).unwrap().set_multicast(multicast(0), 1);
    net.run(4000);
    assert_eq!(by_multicast(&net), 3);
    send(&mut net, 20, 3);
    for host in 11..14 {
        assert_eq!(numbers(&net, host), (0..20).collect::<Vec<_>>(), "{host}");
    }
}

proptest! {
    #[test]
    fn whatever_comes_by_multicast_a_host_bears_it(
        frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..40),
    ) {
        let mut net = with_receivers(1, None);
        let mut relay = net.relays[&1].guard.clone();
        let host = net.hosts.get_mut(&11).unwrap();
        for body in &frames {
            let link = (2, body.first().copied().unwrap_or(0).into());
            let kind = if body.len() % 3 == 0 { FrameKind::Beacon } else { FrameKind::Data };
            let frame = Frame { link, ..Frame::control(kind, GROUP, body) };
            let mut bytes = Vec::new();
            relay.write(&frame, &mut bytes, |_| {});
            host.hear(net.now, &bytes, true);
            host.hear(net.now, body, true);
        }
        net.run(3000);
        prop_assert_eq!(net.state(11), Attachment::Multicast);
    }
}
