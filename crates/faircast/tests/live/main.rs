//! Senders and receivers of one process, over the loopback interface.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod false_heads;
mod files;
mod keys;
mod lengths;
#[path = "../../../../tests/noise.rs"]
mod noise;
mod repeats;
mod schemes;
mod streams;
mod tram;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use faircast::{
    ByteReceiver, Interface, Listen, Multicast, OptionValue, ReceiveOutcome, Received,
    ReceivedFile, Receiver, ReceiverBuilder, SendStatus, Sender, Target,
};
use noise::noise;
use tempfile::{TempDir, tempdir};
use tokio::io::AsyncReadExt as _;

fn group(number: u8) -> Multicast {
    let group = SocketAddr::from((Ipv4Addr::new(239, 192, 77, number), free().port()));
    let interfaces = vec![Interface::Name("lo".to_string())];
    Multicast { interfaces, ..Multicast::new(group) }
}

fn to(group: &Multicast) -> Target {
    Target::Multicast(group.clone())
}

fn at(group: &Multicast) -> Listen {
    Listen::Multicast(group.clone())
}

/// Starts a receiver with a folder of its own, as `set` sets it up.
fn receive(
    listen: Listen,
    set: impl FnOnce(ReceiverBuilder) -> ReceiverBuilder,
) -> (Receiver, TempDir) {
    let folder = tempdir().unwrap();
    (set(Receiver::builder(listen, folder.path())).receive().unwrap(), folder)
}

async fn assert_copies(
    receivers: impl IntoIterator<Item = (Receiver, TempDir)>,
    scheme: &str,
    bytes: &[u8],
) {
    for (mut receiver, folder) in receivers {
        let received = next(&mut receiver).await;
        let complete = matches!(received.outcome, ReceiveOutcome::Complete { .. });
        assert!(complete, "{scheme}: {:?}", received.outcome);
        assert_eq!(received.last.scheme, scheme);
        assert!(std::fs::read(folder.path().join("file")).unwrap() == bytes, "{scheme}");
    }
}

async fn assert_reads(receiver: &mut ByteReceiver, bytes: &[u8], case: &str) {
    let mut got = Vec::new();
    receiver.read_to_end(&mut got).await.unwrap();
    assert!(got == bytes, "{case}: {} of {} bytes", got.len(), bytes.len());
}

async fn until_has(receiver: &Receiver, bytes: u64) {
    let mut status = receiver.status();
    let has = status.wait_for(|it| it.incoming.iter().any(|it| it.object.bytes_done > bytes));
    soon(has).await.unwrap();
}

fn free() -> SocketAddr {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

fn text(value: &str) -> OptionValue {
    OptionValue::Text(value.into())
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

fn put(folder: &Path, name: &str, bytes: &[u8]) -> std::path::PathBuf {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path
}
