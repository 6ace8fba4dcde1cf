//! Server over sockets of the loopback interface.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod python;
mod tls;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use faircast_hop::RelayKey;
use faircast_node::{
    Batch, ClientAddress, ClientSocket, ClientTls, DaemonReport, LinkReport, Server, ServerSettings,
};
use faircast_overlay::protocol::{Decoder, EVENT_BYTES_MAX, Frame, ReasonCode, Welcome};
use faircast_overlay::{
    ClientEvent, DaemonSettings, FlowControl, PriceProfile, Reason, SendError, Service, WaitReason,
};

/// Timeout of any wait: 60 s.
const LIMIT: Duration = Duration::from_secs(60);

fn settings(name: &str, peers: Vec<String>, limits: DaemonSettings) -> ServerSettings {
    ServerSettings {
        name: name.into(),
        listen: "127.0.0.1:0".parse().unwrap(),
        peers,
        key: RelayKey::shared([7; 32]),
        clients: vec!["tcp:127.0.0.1:0".parse().unwrap()],
        tls: None,
        limits,
    }
}

async fn start(name: &str, limits: DaemonSettings) -> Server {
    Server::start(settings(name, Vec::new(), limits)).await.unwrap()
}

async fn north(limits: DaemonSettings) -> (Server, ClientAddress) {
    let server = start("north", limits).await;
    let at = server.addresses()[0].clone();
    (server, at)
}

async fn start_below(peer: &Server, name: &str, limits: DaemonSettings) -> Server {
    let peers = vec![peer.local_address().to_string()];
    Server::start(settings(name, peers, limits)).await.unwrap()
}

async fn until(server: &Server, is_wanted: impl Fn(&DaemonReport) -> bool) -> DaemonReport {
    let wait = async {
        loop {
            let report = server.inquiry().report().await.unwrap();
            if is_wanted(&report) {
                return report;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    match tokio::time::timeout(LIMIT, wait).await {
        Ok(report) => report,
        Err(_) => panic!("{:#?}", server.inquiry().report().await),
    }
}

fn send(request: u64, service: Service, group: &'static str, payload: impl Into<Bytes>) -> Frame {
    let (groups, payload) = ([group].into_iter().collect(), payload.into());
    let (wants_receipt, view, benefit) = (false, None, None);
    Frame::Send { request, service, wants_receipt, view, benefit, groups, payload }
}

struct Peer {
    socket: ClientSocket,
    decoder: Decoder,
    request: u64,
}

impl Peer {
    async fn open(at: &ClientAddress) -> Self {
        Self::open_with(at, None).await.unwrap()
    }

    async fn open_with(at: &ClientAddress, tls: Option<&ClientTls>) -> io::Result<Self> {
        let (socket, decoder) = (at.connect(tls).await?, Decoder::new(EVENT_BYTES_MAX));
        Ok(Self { socket, decoder, request: 0 })
    }

    async fn hello(at: &ClientAddress, name: &str, incarnation: u64, next: u64) -> Self {
        let mut peer = Self::open(at).await;
        let (name, token) = (Bytes::copy_from_slice(name.as_bytes()), Bytes::new());
        peer.put(Frame::Hello { version: 1, incarnation, next, name, token }).await;
        peer
    }

    async fn connect(at: &ClientAddress, name: &str) -> Self {
        let mut peer = Self::hello(at, name, 1, 0).await;
        peer.welcome().await;
        assert!(matches!(peer.event().await, (1, ClientEvent::View { .. })));
        peer
    }

    async fn member(at: &ClientAddress, name: &str, group: &'static str) -> Self {
        Self::connect(at, name).await.into_member(name, group).await
    }

    async fn into_member(mut self, name: &str, group: &'static str) -> Self {
        self.join(group).await;
        loop {
            if let ClientEvent::Group { reason: Reason::Join, subject, .. } = self.event().await.1
                && subject.unwrap().name == name
            {
                return self;
            }
        }
    }

    async fn put(&mut self, frame: Frame) {
        let mut batch = Batch::default();
        batch.push(&frame);
        batch.write(&self.socket).await.unwrap();
    }

    async fn resume(at: &ClientAddress, name: &str, next: u64) -> Self {
        let mut peer = Self::hello(at, name, 1, next).await;
        peer.welcome().await;
        assert_eq!(peer.frame().await, Some(Frame::Resumed));
        peer
    }

    async fn join(&mut self, group: &'static str) {
        self.request += 1;
        let (request, group) = (self.request, group.into());
        self.put(Frame::Join { request, group, holds_senders: false }).await;
    }

    async fn send(&mut self, service: Service, group: &'static str, payload: impl Into<Bytes>) {
        self.request += 1;
        self.put(send(self.request, service, group, payload)).await;
    }

    async fn frame(&mut self) -> Option<Frame> {
        let read = async {
            loop {
                if let Some(frame) = self.decoder.next_frame().unwrap() {
                    return Some(frame);
                }
                self.socket.readable().await.ok()?;
                self.socket.try_read(self.decoder.room()).ok()?;
            }
        };
        tokio::time::timeout(LIMIT, read).await.expect("a frame comes, or the end")
    }

    async fn welcome(&mut self) -> Welcome {
        match self.frame().await {
            Some(Frame::Welcome(welcome)) => welcome,
            other => panic!("{other:?}"),
        }
    }

    async fn event(&mut self) -> (u64, ClientEvent) {
        loop {
            match self.frame().await {
                Some(Frame::Event(number, event)) => return (number, Arc::unwrap_or_clone(event)),
                Some(Frame::Sent(_) | Frame::Waiting(_)) => {}
                Some(Frame::Ping(number)) => self.put(Frame::Pong(number)).await,
                other => panic!("{other:?}"),
            }
        }
    }

    async fn message(&mut self) -> Bytes {
        loop {
            if let (_, ClientEvent::Message { parts, .. }) = self.event().await {
                return parts.concat().into();
            }
        }
    }

    /// Takes event `next`, which is message `got`, and counts both.
    async fn numbered(&mut self, next: &mut u64, got: &mut u32) {
        let (number, event) = self.event().await;
        let ClientEvent::Message { parts, .. } = event else { panic!("{event:?}") };
        assert_eq!((number, &parts.concat()[..]), (*next, &got.to_be_bytes()[..]));
        (*next, *got) = (*next + 1, *got + 1);
    }

    async fn error(&mut self) -> (ReasonCode, String) {
        loop {
            match self.frame().await {
                Some(Frame::Error(code, text)) => return (code, text),
                Some(_) => {}
                None => panic!("no error before the end"),
            }
        }
    }
}

#[tokio::test]
async fn two_clients_chat_by_unix_socket_and_by_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let mut settings = settings("north", Vec::new(), DaemonSettings::default());
    settings.clients.push(ClientAddress::Unix(path.clone()));
    let server = Server::start(settings).await.unwrap();
    let [tcp, unix] = server.addresses() else { panic!("two addresses") };
    let mut alice = Peer::member(tcp, "alice", "chat").await;
    let mut bob = Peer::member(unix, "bob", "chat").await;
    let (_, event) = alice.event().await;
    let ClientEvent::Group { members, .. } = event else { panic!("{event:?}") };
    let names: Vec<&[u8]> = members.iter().map(|it| &it.name[..]).collect();
    assert_eq!(names, [&b"alice"[..], b"bob"]);
    for (number, service) in Service::ALL.into_iter().enumerate() {
        let text = Bytes::from(format!("{number}"));
        alice.send(service, "chat", text.clone()).await;
        assert_eq!([alice.message().await, bob.message().await], [text.clone(), text]);
    }
    let large: Bytes = (0..1 << 20).map(|i| (i >> 8) as u8).collect::<Vec<u8>>().into();
    bob.send(Service::Fifo, "chat", large.clone()).await;
    assert!(alice.message().await == large && bob.message().await == large);
    bob.put(Frame::Goodbye).await;
    let (_, event) = alice.event().await;
    assert!(matches!(event, ClientEvent::Group { reason: Reason::Disconnect, .. }), "{event:?}");
    server.close().await;
    assert_eq!(alice.error().await.0, ReasonCode::Shutdown);
    assert!(alice.frame().await.is_none() && !path.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_client_is_cut_at_its_limit_and_learns_what_it_lost() {
    let limits = DaemonSettings { client_bytes: 1 << 20, ..DaemonSettings::default() };
    let (server, at) = north(limits).await;
    let mut slow = Peer::member(&at, "slow", "g").await;
    let mut fast = Peer::member(&at, "fast", "g").await;
    let mut source = Peer::connect(&at, "source").await;
    let mut sent = 0u64;
    // While the reader keeps up, only the slow client can reach its limits.
    while server.inquiry().report().await.unwrap().counters.cuts == 0 {
        for _ in 0..16 {
            sent += 1;
            let payload = [&sent.to_be_bytes()[..], &[0; 32 << 10]].concat();
            source.send(Service::Fifo, "g", payload).await;
            assert_eq!(fast.message().await[..8], sent.to_be_bytes());
        }
        assert!(sent < 10_000, "the slow client is not cut");
    }
    let report = server.inquiry().report().await.unwrap();
    let of = |name: &str| report.clients.iter().find(|it| it.name == name).unwrap();
    assert!(!of("slow").connected && of("fast").connected && of("source").connected);
    assert!(of("slow").queued_bytes <= 1 << 20);
    let mut next = 3;
    let mut error = None;
    while let Some(frame) = slow.frame().await {
        match frame {
            Frame::Event(number, _) => {
                assert_eq!(number, next);
                next += 1;
            }
            Frame::Error(code, _) => error = Some(code),
            _ => {}
        }
    }
    assert!(error.is_none_or(|code| code == ReasonCode::ClientTooSlow), "{error:?}");
    let mut slow = Peer::resume(&at, "slow", next).await;
    let mut missing = 0;
    sent += 1;
    source.send(Service::Fifo, "g", sent.to_be_bytes().to_vec()).await;
    loop {
        match slow.event().await {
            (number, ClientEvent::Cut { lost: (first, last), .. }) => {
                assert_eq!((first, last), (next, number));
                missing += last - first + 1;
                next = last + 1;
            }
            (number, event) => {
                assert_eq!(number, next);
                next += 1;
                let ClientEvent::Message { parts, .. } = event else { continue };
                if parts.concat()[..8] == sent.to_be_bytes() {
                    break;
                }
            }
        }
    }
    assert!(missing > 0 && missing < sent);
    assert_eq!(next - 1, 3 + sent, "each event has one number");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn senders_wait_for_a_slow_member_where_the_group_asks_and_other_clients_go_on() {
    let limits = DaemonSettings { client_bytes: 1 << 20, ..DaemonSettings::default() };
    let server = start("north", limits).await;
    let at = &server.addresses()[0];
    let mut slow = Peer::connect(at, "slow").await;
    slow.put(Frame::Join { request: 1, group: "g".into(), holds_senders: true }).await;
    while !matches!(slow.event().await, (_, ClientEvent::Group { .. })) {}
    let mut sender = Peer::connect(at, "sender").await;
    let sent = tokio::spawn(async move {
        for number in 0..1000u32 {
            let payload = [&number.to_be_bytes()[..], &[0; 20_000]].concat();
            sender.send(Service::Fifo, "g", payload).await;
        }
        sender
    });
    let waits = |report: &DaemonReport| {
        let sender = report.clients.iter().find(|it| it.name == "sender").unwrap();
        sender.waiting.as_ref().is_some_and(|reason| reason.contains("slow"))
    };
    let report = until(&server, waits).await;
    assert_eq!(report.groups.iter().map(|it| it.held).collect::<Vec<_>>(), [true]);
    let mut other = Peer::member(at, "other", "h").await;
    other.send(Service::Agreed, "h", "on").await;
    assert_eq!(other.message().await, "on");
    for number in 0..1000u32 {
        let message = slow.message().await;
        assert_eq!(message[..4], number.to_be_bytes());
    }
    sent.await.unwrap();
    let report = until(&server, |report| !waits(report)).await;
    assert_eq!((report.counters.cuts, report.counters.messages), (0, 1001));
    assert!(report.groups.iter().all(|it| !it.held), "{:?}", report.groups);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_has_the_links_of_the_view_with_the_prices_of_both_directions() {
    for (kind, price) in [(PriceProfile::Fast, Some(0.0)), (PriceProfile::Off, None)] {
        let flow_control = FlowControl::profile(kind);
        let limits = DaemonSettings { flow_control, ..DaemonSettings::default() };
        let north = start("north", limits).await;
        let south = start_below(&north, "south", limits).await;
        for server in [&north, &south] {
            let is_told = |it: &LinkReport| it.prices == [price; 2] && it.cost_us > 0;
            let is_known = |it: &DaemonReport| it.links.iter().any(is_told);
            let report = until(server, is_known).await;
            let mut ids = report.member_ids.clone();
            assert_eq!((report.links.len(), report.members.len(), ids.len()), (1, 2, 2));
            assert!(ids.contains(&report.id));
            assert_ne!(report.neighbors[0].id.as_ref(), Some(&report.id));
            ids.sort();
            assert_eq!(report.links[0].ends.to_vec(), ids);
        }
        south.close().await;
        north.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_resumes_gets_every_event_once() {
    let (server, at) = north(DaemonSettings::default()).await;
    let mut client = Peer::member(&at, "client", "g").await;
    let mut source = Peer::connect(&at, "source").await;
    let (mut next, mut got) = (3, 0u32);
    for round in 0..20u32 {
        for i in 0..50 {
            source.send(Service::Agreed, "g", (round * 50 + i).to_be_bytes().to_vec()).await;
        }
        for _ in 0..(round * 7 % 40) {
            client.numbered(&mut next, &mut got).await;
        }
        let waits = round % 2 == 0;
        drop(client);
        if waits {
            until(&server, |it| it.clients.iter().any(|it| it.name == "client" && !it.connected))
                .await;
        }
        client = Peer::resume(&at, "client", next).await;
    }
    while got < 1000 {
        client.numbered(&mut next, &mut got).await;
    }
    let mut unknown = Peer::hello(&at, "nobody", 1, 5).await;
    assert_eq!(unknown.error().await.0, ReasonCode::SessionOver);
    let mut future = Peer::hello(&at, "client", 1, next + 1).await;
    assert_eq!(future.error().await.0, ReasonCode::SessionOver);
}

#[tokio::test]
async fn requests_that_are_sent_again_after_a_resume_are_handled_once() {
    let (_server, at) = north(DaemonSettings::default()).await;
    let mut client = Peer::member(&at, "client", "g").await;
    for text in ["a", "b"] {
        client.send(Service::Fifo, "g", text).await;
        assert_eq!(client.message().await, text);
    }
    drop(client);
    let mut client = Peer::hello(&at, "client", 1, 5).await;
    assert_eq!(client.welcome().await.taken, 3);
    client.request = 1;
    for text in ["a", "b", "c"] {
        client.send(Service::Fifo, "g", text).await;
    }
    assert_eq!(client.frame().await, Some(Frame::Resumed));
    assert_eq!(client.message().await, "c");
}

#[tokio::test]
async fn a_refusal_is_not_lost_with_its_connection() {
    let (server, at) = north(DaemonSettings::default()).await;
    let mut client = Peer::connect(&at, "client").await;
    client.join("x".repeat(65).leak()).await;
    until(&server, |it| it.counters.refused == 1).await;
    drop(client);
    let mut client = Peer::hello(&at, "client", 1, 2).await;
    assert_eq!(client.welcome().await.taken, 1);
    assert_eq!(client.frame().await, Some(Frame::Resumed));
    let refused = ClientEvent::Refused { request: 1, reason: SendError::Group };
    assert_eq!(client.event().await, (2, refused));
}

#[tokio::test]
async fn a_later_run_of_a_client_replaces_the_earlier_one() {
    let (server, at) = north(DaemonSettings::default()).await;
    let mut first = Peer::member(&at, "client", "g").await;
    let mut other = Peer::member(&at, "other", "g").await;
    let mut same = Peer::hello(&at, "client", 1, 0).await;
    let (code, text) = same.error().await;
    assert!(code == ReasonCode::NameUnavailable && text.contains("\"client\", run 1"), "{text}");
    let mut second = Peer::hello(&at, "client", 2, 0).await;
    second.welcome().await;
    assert_eq!(first.error().await.0, ReasonCode::Replaced);
    let (_, event) = other.event().await;
    assert!(matches!(event, ClientEvent::Group { reason: Reason::Disconnect, .. }), "{event:?}");
    let mut third = Peer::hello(&at, "client", 2, 2).await;
    third.welcome().await;
    assert_eq!(second.error().await.0, ReasonCode::Replaced);
    let report = server.inquiry().report().await.unwrap();
    assert_eq!(report.clients.len(), 2);
}

#[tokio::test]
async fn nonsense_ends_its_connection_alone() {
    let (_server, at) = north(DaemonSettings::default()).await;
    let mut honest = Peer::member(&at, "honest", "g").await;
    let (name, token) = ("x".into(), Bytes::new());
    let hello = Frame::Hello { version: 9, incarnation: 1, next: 0, name, token }.encode();
    let wrong: [(&[u8], ReasonCode); 5] = [
        (b"GET / HTTP/1.1\r\n\r\n", ReasonCode::Malformed),
        (&[0, 0, 0, 0], ReasonCode::Malformed),
        (&[0, 0, 0, 1, 99], ReasonCode::Malformed),
        (&Frame::Ping(1).encode(), ReasonCode::Malformed),
        (&hello, ReasonCode::VersionMismatch),
    ];
    for (bytes, code) in wrong {
        let mut peer = Peer::open(&at).await;
        peer.socket.writable().await.unwrap();
        peer.socket.try_write(&[std::io::IoSlice::new(bytes)]).unwrap();
        assert_eq!(peer.error().await.0, code, "{bytes:?}");
        assert_eq!(peer.frame().await, None);
    }
    for frame in [Frame::Sent(1), Frame::Goodbye] {
        let mut peer = Peer::member(&at, "liar", "g").await;
        peer.put(frame.clone()).await;
        if frame != Frame::Goodbye {
            assert_eq!(peer.error().await.0, ReasonCode::Malformed);
        }
        for _ in 0..2 {
            assert!(matches!(honest.event().await.1, ClientEvent::Group { .. }));
        }
    }
    honest.join("x".repeat(65).leak()).await;
    let (request, reason) = (honest.request, SendError::Group);
    assert_eq!(honest.event().await.1, ClientEvent::Refused { request, reason });
    honest.send(Service::Safe, "g", "still here").await;
    assert_eq!(honest.message().await, "still here");
}

/// Sends QUIC initial packets faster than the daemon, with its one thread, can derive their keys.
#[tokio::test]
async fn a_flood_of_datagrams_keeps_no_client_waiting() {
    let server = start("north", DaemonSettings::default()).await;
    let (at, to) = (server.addresses()[0].clone(), server.local_address());
    let going = Arc::new(());
    let flood = || {
        let (going, mut initial) = (Arc::downgrade(&going), [0; 1200]);
        // Version 1, 8 bytes of destination, no source, no token, 1182 bytes: RFC 9000, 17.2.2.
        initial[..6].copy_from_slice(&[0xc0, 0, 0, 0, 1, 8]);
        initial[16..18].copy_from_slice(&0x449e_u16.to_be_bytes());
        std::thread::spawn(move || {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            // The flood also ends after a failed test.
            for number in (0_u64..).take_while(|_| going.strong_count() > 0) {
                initial[6..14].copy_from_slice(&number.to_be_bytes());
                let _ = socket.send_to(&initial, to);
            }
        })
    };
    let floods = [flood(), flood()];
    until(&server, |report| report.counters.received_packets > 10_000).await;
    let mut alice = Peer::member(&at, "alice", "g").await;
    for number in 0..50u8 {
        alice.send(Service::Safe, "g", vec![number]).await;
        assert_eq!(alice.message().await, vec![number]);
    }
    drop(going);
    floods.into_iter().for_each(|flood| flood.join().unwrap());
}

#[tokio::test]
async fn a_client_that_floods_without_reading_refusals_is_closed() {
    let settings = DaemonSettings { client_bytes: 1 << 20, ..DaemonSettings::default() };
    let (server, at) = north(settings).await;
    let mut client = Peer::connect(&at, "client").await;
    let mut batch = Batch::default();
    for request in 1..300_000 {
        batch.push(&Frame::Join { request, group: Bytes::new(), holds_senders: false });
    }
    // The daemon closes the connection before it has read all bytes.
    let _ = batch.write(&client.socket).await;
    let mut refusals = 0;
    while let Some(frame) = client.frame().await {
        let Frame::Event(_, event) = frame else { continue };
        refusals += u32::from(matches!(*event, ClientEvent::Refused { .. }));
    }
    assert!(refusals < 299_999);
    let report = until(&server, |it| it.clients.iter().all(|it| !it.connected)).await;
    assert!(report.counters.refused > 0);
}

const GROUPS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

#[tokio::test]
async fn no_task_and_no_session_is_left_of_a_thousand_connections() {
    let (server, at) = north(DaemonSettings::default()).await;
    until(&server, |_| true).await;
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = alive();
    let mut peers = Vec::new();
    for number in 0..1000 {
        let mut peer = match number % 4 {
            0 => Peer::open(&at).await,
            _ => Peer::connect(&at, &format!("client {number}")).await,
        };
        if number % 2 == 1 {
            peer.join(GROUPS[number % 10]).await;
        }
        peers.push(peer);
    }
    let joined = |it: &DaemonReport| it.groups.iter().map(|it| it.members).sum::<usize>() == 500;
    let report = until(&server, joined).await;
    assert_eq!(report.clients.len(), 750);
    assert!(alive() >= before + 750);
    for (number, mut peer) in peers.into_iter().enumerate() {
        if number % 4 != 0 {
            peer.put(Frame::Goodbye).await;
        }
    }
    until(&server, |it| it.clients.is_empty() && it.groups.is_empty()).await;
    until(&server, |_| alive() == before).await;
    server.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_cross_three_daemons_in_order_while_the_source_waits_for_room() {
    let limits = DaemonSettings { retention_bytes: 64 << 10, ..DaemonSettings::default() };
    let a = start("a", limits).await;
    let b = start_below(&a, "b", limits).await;
    let c = start_below(&b, "c", limits).await;
    for server in [&a, &b, &c] {
        let report = until(server, |it| it.members.len() == 3 && it.settled).await;
        let members: std::collections::BTreeSet<_> = report.members.iter().collect();
        assert_eq!(members.into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
    }
    let mut far = Peer::member(&c.addresses()[0], "far", "g").await;
    let mut near = Peer::member(&a.addresses()[0], "near", "g").await;
    until(&a, |it| it.groups.iter().any(|it| it.members == 2)).await;
    let mut source = Peer::connect(&a.addresses()[0], "source").await;
    let sender = tokio::spawn(async move {
        for number in 0..2000u32 {
            let service = if number % 3 == 0 { Service::Safe } else { Service::Fifo };
            let payload = [&number.to_be_bytes()[..], &[0; 4096]].concat();
            source.send(service, "g", payload).await;
        }
        source
    });
    for number in 0..2000u32 {
        assert_eq!(far.message().await[..4], number.to_be_bytes());
        assert_eq!(near.message().await[..4], number.to_be_bytes());
    }
    let mut source = sender.await.unwrap();
    let mut waited = false;
    loop {
        match source.frame().await.unwrap() {
            Frame::Waiting(reason) => waited |= reason == Some(WaitReason::Retention),
            Frame::Sent(2000) => break,
            Frame::Sent(_) | Frame::Event(..) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(waited, "8 MB do not wait for a limit of 64 kB");
    b.close().await;
    until(&a, |it| it.members == ["a"]).await;
    until(&c, |it| it.members == ["c"]).await;
    a.close().await;
    c.close().await;
}

#[tokio::test]
async fn addresses_that_others_reach_are_refused() {
    let mut open = settings("a", Vec::new(), DaemonSettings::default());
    for (at, problem) in [
        ("tcp:0.0.0.0:0", "expected tls:ADDR:PORT, a loopback address"),
        ("tls:0.0.0.0:0", "expected a certificate"),
    ] {
        open.clients = vec![at.parse().unwrap()];
        let error = Server::start(open.clone()).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("{at}: {problem}")), "{error}");
    }
    (open.listen, open.key) = ("0.0.0.0:0".parse().unwrap(), RelayKey::none());
    let error = Server::start(open).await.unwrap_err().to_string();
    assert!(error.contains("without a key any host could join"), "{error}");
}
