//! Tests of the relay's ports: branches that a session waits for, and state of departed neighbours.

use faircast_base::{Purpose, Rng};

use super::super::settings::CreditSettings;
use super::*;
use crate::Datagram;
use crate::world::{at, relayed};

const NODE: NodeId = NodeId(1);

fn relay() -> (CreditRelay, Rng) {
    let relay = CreditRelay::new(NODE, &Options::default(), None);
    (relay, Rng::new(1, NODE, Purpose::Relay))
}

fn capsule(count: u32) -> Capsule {
    let first = CreditSettings::from_options(&Options::default()).capsule(7, NodeId(9), None);
    Capsule { count, ..first }
}

fn hear_data(relay: &mut CreditRelay, cx: &mut Cx<'_>, number: u32, ports: &[u32], bytes: &[u8]) {
    let ports_out: Vec<PortId> = ports.iter().map(|port| PortId(*port)).collect();
    let datagram = Datagram::new(NodeId(9), Destination::Group(GroupId::SESSION), bytes);
    relay.handle_packet(cx, &relayed(number.into(), &ports_out, datagram), &mut Vec::new());
}

fn hear_credit(
    relay: &mut CreditRelay,
    cx: &mut Cx<'_>,
    (node, branch, port): (u32, u32, u32),
    count: u32,
) {
    let (session, tag) = (7, tag_of(NodeId(node), 7));
    let credit = Credit { session, tag, branch, buffer: 5, count, weight: 1 };
    let bytes = Packet::Credit(credit).encoded();
    let datagram = Datagram::new(NodeId(node), Destination::Node(NODE), &bytes);
    let packet = RelayPacket { port: PortId(port), ..relayed(0, &[], datagram) };
    relay.handle_packet(cx, &packet, &mut Vec::new());
}

fn copies(relay: &mut CreditRelay, cx: &mut Cx<'_>) -> usize {
    let mut copies = 0;
    while let Some(egress) = relay.poll_transmit(cx, &mut Vec::new()) {
        match egress {
            Egress::Copy(..) => copies += 1,
            Egress::Await(port) => relay.handle_writable(cx, port),
            _ => {}
        }
    }
    copies
}

#[test]
fn a_credit_for_the_branch_of_another_port_is_refused() {
    let (mut relay, mut rng) = relay();
    let cx = &mut Cx::untraced(at(1), &mut rng);
    for count in 1..12 {
        let bytes = Packet::Capsule(capsule(count)).encoded();
        hear_data(&mut relay, cx, count, &[1], &bytes);
        copies(&mut relay, cx);
        if count == 1 {
            hear_credit(&mut relay, cx, (20, 1, 1), 1);
        }
    }
    for (port, want) in [(2, 0), (1, 5)] {
        hear_credit(&mut relay, cx, (20, 1, port), 6);
        assert_eq!(copies(&mut relay, cx), want);
    }
}

#[test]
fn nobody_waits_for_a_host_behind_a_port_that_is_reached_there_no_more() {
    let (mut relay, mut rng) = relay();
    let cx = &mut Cx::untraced(at(1), &mut rng);
    let data = |relay: &mut CreditRelay, cx: &mut Cx<'_>, count: u32| {
        let bytes = [&Packet::Capsule(capsule(count)).encoded()[..], b"payload"].concat();
        hear_data(relay, cx, count, &[1], &bytes);
        copies(relay, cx)
    };
    let credit = |relay: &mut CreditRelay, cx: &mut Cx<'_>, node: u32, count: u32| {
        hear_credit(relay, cx, (node, 1, 1), count);
        copies(relay, cx)
    };
    assert_eq!(data(&mut relay, cx, 1), 1);
    credit(&mut relay, cx, 20, 1);
    credit(&mut relay, cx, 21, 1);
    // Both nodes have room for five more packets; then only one sends further credits.
    let sent: usize = (2..12).map(|count| data(&mut relay, cx, count)).sum();
    assert_eq!(sent, 5);
    assert_eq!(credit(&mut relay, cx, 20, 6), 0);
    relay.handle_gone(cx, FlowId(0), PortId(1), NodeId(21));
    assert_eq!(copies(&mut relay, cx), 5);
    credit(&mut relay, cx, 21, 1);
    credit(&mut relay, cx, 20, 11);
    assert!(data(&mut relay, cx, 12) > 0);
}

#[test]
fn ports_of_neighbours_that_are_gone_are_forgotten() {
    let (mut relay, mut rng) = relay();
    let cx = &mut Cx::untraced(at(1), &mut rng);
    for port in 1..10_000 {
        hear_data(&mut relay, cx, port, &[port], b"any");
        let mut ready = Vec::new();
        while let Some(egress) = relay.poll_transmit(cx, &mut Vec::new()) {
            ready.extend(matches!(egress, Egress::Await(_)).then_some(PortId(port)));
        }
        assert_eq!(ready.len(), 1);
        relay.handle_writable(cx, ready[0]);
    }
    assert!(relay.ports.len() <= PORTS_ROOM_MIN, "{}", relay.ports.len());
}

#[test]
fn a_branch_whose_port_takes_nothing_for_3_s_sets_no_pace() {
    let (mut relay, mut rng) = relay();
    let buffer = u32::from(capsule(1).buffer);
    let (mut may_send, mut sent) = (buffer, 0);
    let (mut sent_at, mut copies) = ([0; 8], [0; 3]);
    for ms in 1..8000 {
        let mut cx = Cx::untraced(at(ms), &mut rng);
        if relay.next_timeout().is_some_and(|due| due <= cx.now) {
            relay.handle_timeout(&mut cx);
        }
        if sent < may_send {
            sent += 1;
            let bytes = Packet::Capsule(capsule(sent)).encoded();
            hear_data(&mut relay, &mut cx, sent, &[1, 2], &bytes);
        }
        let mut buf = Vec::new();
        while let Some(egress) = relay.poll_transmit(&mut cx, &mut buf) {
            match egress {
                Egress::Await(PortId(2)) if ms < 6000 => {}
                Egress::Await(port) => relay.handle_writable(&mut cx, port),
                Egress::Copy(_, port) => copies[port.0 as usize] += 1,
                Egress::Send(_) => {
                    if let Ok(Packet::Credit(credit)) = wire::decode(&buf) {
                        may_send = credit.count + credit.buffer;
                    }
                }
                _ => {}
            }
            buf.clear();
        }
        if ms % 100 == 0 {
            for branch in [1, 2] {
                let count = copies[branch as usize];
                hear_credit(&mut relay, &mut cx, (20, branch, branch), count);
            }
        }
        sent_at[ms as usize / 1000] = sent;
    }
    assert!(sent_at[2] <= 2 * buffer, "{sent_at:?}: the session waits for the branch");
    let each_s = 8 * buffer;
    assert!(sent_at[5] > sent_at[3] + 2 * each_s, "{sent_at:?}: the session waits no longer");
    assert!(sent_at[7] > sent_at[6] + each_s, "{sent_at:?}: nor once the branch is back");
}

#[test]
fn a_port_that_waits_for_its_highest_rate_is_not_stuck() {
    let rate = ("rate_max".into(), crate::options::OptionValue::Text("16 kbit/s".into()));
    let options = Options::checked([rate], super::super::RELAY_OPTIONS).expect("it is right");
    let mut relay = CreditRelay::new(NODE, &options, None);
    let mut rng = Rng::new(1, NODE, Purpose::Relay);
    let (mut sent, mut copies) = (0, [Vec::new(), Vec::new()]);
    for ms in 1..60_000 {
        let mut cx = Cx::untraced(at(ms), &mut rng);
        if relay.next_timeout().is_some_and(|due| due <= cx.now) {
            relay.handle_timeout(&mut cx);
        }
        // With headers, a packet takes 4.1 s to send. A port without progress for 3 s is stuck.
        if relay.copies.len() < 2 {
            sent += 1;
            let mut bytes = Packet::Capsule(capsule(sent)).encoded();
            bytes.resize(8200 - IP_UDP_BYTES as usize, 0);
            hear_data(&mut relay, &mut cx, sent, &[1, 2], &bytes);
        }
        while let Some(egress) = relay.poll_transmit(&mut cx, &mut Vec::new()) {
            match egress {
                Egress::Copy(_, port) => copies[port.0 as usize - 1].push(ms),
                Egress::Await(port) => relay.handle_writable(&mut cx, port),
                _ => {}
            }
        }
        for branch in [1, 2] {
            let count = copies[branch as usize - 1].len() as u32;
            hear_credit(&mut relay, &mut cx, (20, branch, branch), count);
        }
        assert!(relay.ports.values().all(|port| !port.stuck), "after {ms} ms");
    }
    assert_eq!(copies[0], copies[1]);
    assert!(copies[0].windows(2).all(|pair| (4095..=4101).contains(&(pair[1] - pair[0]))));
    assert_eq!(copies[0].len(), 15);
}
