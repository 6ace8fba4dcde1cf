//! Tests of the batch: sent and dropped packets, and number of calls.

use super::*;
use crate::{SocketSettings, Target};
use std::net::UdpSocket;

fn ends(receivers: usize) -> (Sockets, Vec<UdpSocket>) {
    let sockets: Vec<_> = (0..receivers).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for socket in &sockets {
        socket.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
    }
    let target = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
    let settings = SocketSettings { port: Some(0), ..SocketSettings::default() };
    (Sockets::source(Target::Unicast(target), settings).unwrap(), sockets)
}

fn arrived(socket: &UdpSocket) -> Vec<Vec<u8>> {
    let mut buffer = [0; 2000];
    let next = || socket.recv(&mut buffer).ok().map(|len| buffer[..len].to_vec());
    std::iter::from_fn(next).collect()
}

fn fill(outbox: &mut Outbox, lens: &[usize]) -> Vec<Vec<u8>> {
    let packets: Vec<_> = lens.iter().enumerate().map(|(i, &len)| vec![i as u8; len]).collect();
    for packet in &packets {
        outbox.push(Route::Group(0), 1, |out| out.extend_from_slice(packet));
    }
    packets
}

#[test]
fn packets_of_one_length_leave_together_and_arrive_apart() {
    for (receivers, offload) in [(1, true), (3, true), (1, false), (3, false)] {
        let (mut sockets, others) = ends(receivers);
        sockets.settings.offload = offload;
        let mut outbox = Outbox::new(&sockets);
        // Few enough for the buffers of plain sockets.
        let mut lens = vec![200; 70];
        lens.extend([140, 200, 200, 60, 60]);
        let packets = fill(&mut outbox, &lens);
        let mut sent = Sent::default();
        assert_eq!(outbox.flush(Time::ZERO, &mut sockets, &mut sent), Flushed::All);
        for other in &others {
            assert!(arrived(other) == packets, "{receivers} {offload}");
        }
        assert_eq!(sent.datagrams, 75 * receivers as u64);
        // 64; 6 and a shorter one; two and a shorter one; the last alone.
        let calls = if offload { 4 * receivers as u64 } else { 2 * receivers as u64 };
        assert!(sent.calls <= calls, "{sent:?}");
        assert!(outbox.is_empty());
    }
}

#[test]
fn what_the_system_does_not_cut_leaves_packet_by_packet() {
    let (mut sockets, others) = ends(2);
    let mut outbox = Outbox::new(&sockets);
    let packets = fill(&mut outbox, &[500; 10]);
    let first = outbox.runs[0];
    assert_eq!(first.packets, 10);
    assert!(!outbox.shorten(&first, Errno::EPERM), "no reason");
    assert!(outbox.shorten(&first, Errno::EINVAL));
    assert_eq!((outbox.runs.len(), outbox.segment_max), (10, 499));
    let mut sent = Sent::default();
    outbox.flush(Time::ZERO, &mut sockets, &mut sent);
    for other in &others {
        assert_eq!(arrived(other), packets);
    }
    assert_eq!((sent.segmented, sent.calls), (0, 1));
    fill(&mut outbox, &[400; 10]);
    outbox.flush(Time::ZERO, &mut sockets, &mut sent);
    assert_eq!(sent.segmented, 20, "shorter ones may still be cut");
    others.iter().for_each(|other| assert_eq!(arrived(other).len(), 10));
    assert!(outbox.shorten(&first, Errno::EIO));
    fill(&mut outbox, &[400; 10]);
    outbox.flush(Time::ZERO, &mut sockets, &mut sent);
    assert_eq!(sent.segmented, 20, "none after the system has said so");
}

#[test]
fn one_receiver_that_cannot_be_reached_does_not_stop_the_others() {
    let (_, others) = ends(2);
    let there = [0, 1].map(|i| others[i].local_addr().unwrap());
    // Broadcast is refused without permission.
    let refused = "255.255.255.255:9".parse().unwrap();
    let settings = SocketSettings { port: Some(0), ..SocketSettings::default() };
    let target = Target::Unicast(vec![there[0], refused, there[1], there[0]]);
    let mut sockets = Sockets::source(target, settings).unwrap();
    let mut outbox = Outbox::new(&sockets);
    let mut sent = Sent::default();
    for lens in [&[600; 5][..], &[600][..]] {
        let packets = fill(&mut outbox, lens);
        assert_eq!(outbox.flush(Time::ZERO, &mut sockets, &mut sent), Flushed::All);
        others.iter().for_each(|other| assert!(arrived(other) == packets));
    }
    assert_eq!((sent.unsent, sent.failures, sent.datagrams), (6, 2, 12));
}

/// Runs in a new network namespace, if permitted: on a link without other hosts.
#[test]
fn answers_to_hosts_that_are_not_there_hold_up_no_data() {
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("skipped: not root");
        return;
    }
    let alone = std::thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        for command in [
            "link set lo up",
            "link add e0 type veth peer name e1",
            "addr add 10.9.0.1/16 dev e0",
            "link set e0 up",
            "link set e1 up",
            "route add 224.0.0.0/4 dev e0",
        ] {
            let done = std::process::Command::new("ip").args(command.split(' ')).status();
            assert!(done.unwrap().success(), "{command}");
        }
        let group = "239.192.7.3:7500".parse().unwrap();
        let interface = crate::Interface::Name("e0".into());
        let interfaces = vec![interface];
        let group = crate::Multicast { interfaces, ..crate::Multicast::new(group) };
        let (port, send_buffer) = (Some(0), faircast_base::Bytes::new(65_536));
        let settings = SocketSettings { port, send_buffer, ..SocketSettings::default() };
        let mut sockets = Sockets::source(Target::Multicast(group), settings).unwrap();
        let mut outbox = Outbox::new(&sockets);
        let mut sent = Sent::default();
        for host in 0..2000u16 {
            let net = if host < 1900 { 9 } else { 10 };
            let [high, low] = host.to_be_bytes();
            let to = SocketAddr::from(([10, net, 100 + high, low], 7500));
            outbox.push(Route::Address(0, to), 1, |out| out.extend_from_slice(&[1; 60]));
            outbox.push(Route::Group(0), 1, |out| out.extend_from_slice(&[2; 100]));
            let flushed = outbox.flush(Time::ZERO, &mut sockets, &mut sent);
            assert_eq!(flushed, Flushed::All, "{host}: {sent:?}");
        }
        assert!(sent.unsent >= 100 && sent.datagrams >= 2000, "{sent:?}");
        assert_eq!(sent.datagrams + sent.unsent, 4000, "{sent:?}");
        let to = SocketAddr::from(([10, 10, 0, 1], 7500));
        outbox.push(Route::Address(0, to), 1, |out| out.extend_from_slice(&[1; 60]));
        outbox.flush(Time::ZERO, &mut sockets, &mut sent);
        assert_eq!(sockets.down_since, None);
        let down = ["link", "set", "e0", "down"];
        assert!(std::process::Command::new("ip").args(down).status().unwrap().success());
        outbox.push(Route::Group(0), 1, |out| out.extend_from_slice(&[2; 100]));
        outbox.flush(Time::ZERO, &mut sockets, &mut sent);
        let (_, error) = sockets.down_since.unwrap();
        assert!(matches!(error, Some(Errno::ENETUNREACH | Errno::ENETDOWN)), "{error:?}");
    });
    alone.join().unwrap();
}

#[test]
fn a_source_hears_what_is_sent_to_the_address_of_its_answers() {
    let group = crate::Multicast::new("239.192.7.3:7500".parse().unwrap());
    let interface = crate::Interface::Address([127, 0, 0, 1].into());
    let group = crate::Multicast { interfaces: vec![interface], ..group };
    let settings = SocketSettings { port: Some(0), ..SocketSettings::default() };
    let sockets = Sockets::source(Target::Multicast(group), settings).unwrap();
    let way = &sockets.ways[0];
    assert!(way.answers.is_some());
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    other.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
    let (here, there) = (sockets.local_address(), other.local_addr().unwrap());
    way.answers.as_ref().unwrap_or(&way.socket).send_to(b"answer", &there.into()).unwrap();
    let mut buffer = [0; 10];
    assert_eq!(other.recv_from(&mut buffer).unwrap(), (6, here), "from the source's own port");
    other.send_to(b"question", here).unwrap();
    way.socket.set_nonblocking(false).unwrap();
    way.socket.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
    let node: UdpSocket = sockets.into_parts().0;
    assert_eq!(node.recv(&mut buffer).unwrap(), 8);
    let taken = UdpSocket::bind(here);
    assert!(taken.is_err(), "the port is taken all the same");
}

#[test]
fn while_the_network_is_down_packets_wait_and_after_a_second_they_are_dropped() {
    let (sockets, _others) = ends(1);
    let mut outbox = Outbox::new(&sockets);
    fill(&mut outbox, &[100]);
    let run = outbox.runs[0];
    let at = |ms| Time::ZERO + Duration::from_millis(ms);
    let mut retry = |ms, error| match sockets.is_temporary(0, error) {
        true => outbox.retry(at(ms), &run),
        false => None,
    };
    assert_eq!(retry(10, Errno::ENETUNREACH), Some(at(60)));
    assert_eq!(retry(900, Errno::ENETDOWN), Some(at(950)));
    assert_eq!(retry(1010, Errno::EPERM), None);
    assert_eq!(retry(1010, Errno::EMSGSIZE), None, "that will not pass");
}
