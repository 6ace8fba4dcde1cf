//! Senders and receivers of one process, over the loopback interface.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod false_heads;
mod files;
mod keys;
mod lengths;
mod repeats;
mod schemes;
mod streams;
mod tram;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use faircast::{
    Interface, Listen, Multicast, ReceiveOutcome, Received, ReceivedFile, Receiver, SendStatus,
    Sender, Target,
};

fn group(number: u8) -> Multicast {
    let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let group = SocketAddr::from((Ipv4Addr::new(239, 192, 77, number), free));
    let interfaces = vec![Interface::Name("lo".to_string())];
    Multicast { interfaces, ..Multicast::new(group) }
}

fn to(group: &Multicast) -> Target {
    Target::Multicast(group.clone())
}

fn at(group: &Multicast) -> Listen {
    Listen::Multicast(group.clone())
}

fn hearing(group: &Multicast) -> UdpSocket {
    use socket2::{Domain, Socket, Type};
    let SocketAddr::V4(group) = group.group else { unreachable!("groups of tests are IPv4") };
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&group.into()).unwrap();
    socket.join_multicast_v4(group.ip(), &Ipv4Addr::LOCALHOST).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.into()
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("it ends within a minute")
}

async fn next(receiver: &mut Receiver) -> Received {
    soon(receiver.next()).await.unwrap()
}

async fn whole(receiver: &mut Receiver) -> Vec<ReceivedFile> {
    match next(receiver).await.outcome {
        ReceiveOutcome::Complete { files } => files,
        other => panic!("{other:?}"),
    }
}

async fn succeeds(sender: &mut Sender) -> SendStatus {
    let last = soon(sender.finish()).await.unwrap();
    assert!(last.succeeded(), "{last:?}");
    last
}

fn noise(len: usize, seed: u32) -> Vec<u8> {
    let mut x = seed.wrapping_mul(2) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        x
    };
    (0..len.div_ceil(4)).flat_map(|_| next().to_le_bytes()).take(len).collect()
}

fn put(folder: &Path, name: &str, bytes: &[u8]) -> std::path::PathBuf {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path
}
