//! Sessions over the loopback interface.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::net::{SocketAddr, UdpSocket};

use common::{Place, content, receive, send};
use faircast_net::{Ended, Listen, Target};
use faircast_proto::catalog::{SCHEMES, Stack, over_pgm};

fn free_ports<const N: usize>() -> [SocketAddr; N] {
    let sockets = [(); N].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    sockets.map(|socket| socket.local_addr().unwrap())
}

#[test]
fn a_unicast_list_gets_every_byte_over_every_scheme() {
    SCHEMES.iter().map(over_pgm).for_each(a_unicast_list_gets_every_byte);
}

fn a_unicast_list_gets_every_byte(stack: Stack) {
    let ports = free_ports::<2>();
    let bytes = content(3_000_001, 1);
    let place = || Place { stack: Some(stack), ..Place::default() };
    let receivers = ports.map(|port| receive(place(), Listen::Unicast(port), &[0]));
    let source = send(place(), Target::Unicast(ports.to_vec()), 0, bytes.clone());
    for receiver in receivers {
        let outcome = receiver.join().unwrap();
        assert!(outcome.delivered[0][..] == bytes[..], "{stack}: {:?}", outcome.counters);
        assert_eq!((outcome.completed, outcome.ended), (1, Ended::Idle));
    }
    let outcome = source.join().unwrap();
    assert_eq!(outcome.ended, Ended::Idle);
    let sent = outcome.counters.sent;
    assert_eq!(sent.datagrams, 2 * sent.packets, "{sent:?}");
}
