//! Clients over TLS: admission, and faults of connections.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use faircast_node::{ServerTls, incarnation};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Duration, Instant, timeout};

use super::*;

/// Folder with two CAs, each with valid and expired certificates for a daemon and a client.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        for name in ["ours", "foreign"] {
            let mut ca = CertificateParams::default();
            ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
            ca.distinguished_name.push(DnType::CommonName, name);
            let key = KeyPair::generate().unwrap();
            files.put(&format!("{name}-ca.pem"), &ca.self_signed(&key).unwrap().pem());
            let issuer = Issuer::new(ca, key);
            for (kind, year) in [("valid", 4000), ("expired", 2000)] {
                let hosts = ["127.0.0.1".to_string(), "localhost".to_string()];
                let mut params = CertificateParams::new(hosts).unwrap();
                params.use_authority_key_identifier_extension = true;
                params.not_after = rcgen::date_time_ymd(year, 1, 1);
                let key = KeyPair::generate().unwrap();
                let pem = params.signed_by(&key, &issuer).unwrap().pem();
                files.put(&format!("{name}-{kind}.pem"), &pem);
                files.put(&format!("{name}-{kind}-key.pem"), &key.serialize_pem());
            }
        }
        let tokens = "# NAME TOKEN\nalice alice-has-this-token\n\n* all-have-this-token\n";
        files.put("tokens.txt", tokens);
        files
    }

    fn put(&self, name: &str, text: &str) {
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(self.at(name));
        io::Write::write_all(&mut file.unwrap(), text.as_bytes()).unwrap();
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) async fn serve(
        &self,
        certificate: &str,
        client_ca: Option<&str>,
        tokens: bool,
    ) -> Server {
        let pair = (self.at(certificate), self.at(&certificate.replace(".pem", "-key.pem")));
        let tokens = tokens.then(|| self.at("tokens.txt"));
        let client_ca = client_ca.map(|name| self.at(name));
        let tls =
            ServerTls::read((&pair.0, &pair.1), client_ca.as_deref(), tokens.as_deref()).unwrap();
        let mut settings = settings("north", Vec::new(), DaemonSettings::default());
        settings.clients.push("tls:127.0.0.1:0".parse().unwrap());
        settings.tls = Some(tls);
        Server::start(settings).await.unwrap()
    }

    fn client(&self, ca: &str, certificate: Option<&str>) -> ClientTls {
        let pair =
            certificate.map(|name| (self.at(name), self.at(&name.replace(".pem", "-key.pem"))));
        let pair = pair.as_ref().map(|(certificate, key)| (&**certificate, &**key));
        ClientTls::read(&self.at(ca), pair).unwrap()
    }
}

/// Starts a daemon that admits clients by token. Returns its files, its address and a client's CA.
async fn with_tokens() -> (Files, Server, ClientAddress, ClientTls) {
    let files = Files::new();
    let server = files.serve("ours-valid.pem", None, true).await;
    let (at, tls) = (tls_address(&server), files.client("ours-ca.pem", None));
    (files, server, at, tls)
}

fn tls_address(server: &Server) -> ClientAddress {
    server.addresses()[1].clone()
}

fn socket_address(at: &ClientAddress) -> SocketAddr {
    at.to_string().strip_prefix("tls:").unwrap().parse().unwrap()
}

async fn greet(
    at: &ClientAddress,
    tls: &ClientTls,
    (name, incarnation, next): (&'static str, u64, u64),
    token: &'static str,
) -> io::Result<Peer> {
    let peer = Peer::open_with(at, Some(tls)).await?;
    let (name, token) = (name.into(), token.into());
    let mut batch = Batch::default();
    batch.push(&Frame::Hello { version: 1, incarnation, next, name, token });
    batch.write(&peer.socket).await?;
    Ok(peer)
}

/// Returns the daemon's answer to a hello: `Ok` for a welcome, else the error code if one arrives.
async fn answer(
    at: &ClientAddress,
    tls: &ClientTls,
    name: &'static str,
    token: &'static str,
) -> Result<(), Option<ReasonCode>> {
    match greet(at, tls, (name, incarnation(), 0), token).await.map_err(|_| None)?.frame().await {
        Some(Frame::Welcome(_)) => Ok(()),
        Some(Frame::Error(code, _)) => Err(Some(code)),
        Some(other) => panic!("{other:?}"),
        None => Err(None),
    }
}

async fn member(at: &ClientAddress, tls: &ClientTls, name: &'static str) -> Peer {
    let mut peer = greet(at, tls, (name, 1, 0), "all-have-this-token").await.unwrap();
    peer.welcome().await;
    peer.into_member(name, "g").await
}

#[tokio::test]
async fn tokens_admit_the_clients_of_their_names() {
    let (_files, server, at, tls) = with_tokens().await;
    let refused = Err(Some(ReasonCode::NotAuthenticated));
    assert_eq!(answer(&at, &tls, "alice", "alice-has-this-token").await, Ok(()));
    assert_eq!(answer(&at, &tls, "alice", "all-have-this-token").await, Ok(()));
    assert_eq!(answer(&at, &tls, "bob", "all-have-this-token").await, Ok(()));
    let asked = Instant::now();
    assert_eq!(answer(&at, &tls, "bob", "alice-has-this-token").await, refused);
    assert!(asked.elapsed() >= Duration::from_secs(1), "{:?}", asked.elapsed());
    let wrong = ["", "all-have-this-toke", "all-have-this-token ", "*"];
    let answers = wrong.map(|token| {
        let (at, tls) = (at.clone(), tls.clone());
        tokio::spawn(async move { answer(&at, &tls, "carol", token).await })
    });
    for answer in answers {
        assert_eq!(answer.await.unwrap(), refused);
    }
    // Local addresses need no token.
    Peer::connect(&server.addresses()[0], "local").await;
}

#[tokio::test]
async fn certificates_of_the_ca_admit_clients_without_a_token() {
    let files = Files::new();
    let with = |name| files.client("ours-ca.pem", Some(name));
    let without = files.client("ours-ca.pem", None);
    for tokens in [false, true] {
        let server = files.serve("ours-valid.pem", Some("ours-ca.pem"), tokens).await;
        let at = tls_address(&server);
        assert_eq!(answer(&at, &with("ours-valid.pem"), "alice", "").await, Ok(()));
        let any = "all-have-this-token";
        let by_token = if tokens { Ok(()) } else { Err(None) };
        assert_eq!(answer(&at, &without, "bob", any).await, by_token);
        for wrong in ["ours-expired.pem", "foreign-valid.pem"] {
            assert_eq!(answer(&at, &with(wrong), "carol", any).await, Err(None), "{wrong}");
        }
        server.close().await;
    }
}

#[tokio::test]
async fn clients_refuse_daemons_of_another_ca_another_host_or_another_time() {
    let files = Files::new();
    for (certificate, ca, host, problem) in [
        ("ours-valid.pem", "foreign-ca.pem", "127.0.0.1", "UnknownIssuer"),
        ("foreign-valid.pem", "ours-ca.pem", "127.0.0.1", "UnknownIssuer"),
        ("ours-valid.pem", "ours-ca.pem", "127.0.0.2", "not valid for name"),
        ("ours-expired.pem", "ours-ca.pem", "127.0.0.1", "expired"),
        ("ours-valid.pem", "ours-ca.pem", "localhost", ""),
    ] {
        let mut settings = settings("north", Vec::new(), DaemonSettings::default());
        settings.clients = vec!["tls:0.0.0.0:0".parse().unwrap()];
        let key = files.at(&certificate.replace(".pem", "-key.pem"));
        let tokens = files.at("tokens.txt");
        let tls = ServerTls::read((&files.at(certificate), &key), None, Some(&tokens)).unwrap();
        settings.tls = Some(tls);
        let server = Server::start(settings).await.unwrap();
        let at = server.addresses()[0].to_string().replace("0.0.0.0", host);
        let client = files.client(ca, None);
        match greet(&at.parse().unwrap(), &client, ("alice", 1, 0), "all-have-this-token").await {
            Ok(mut peer) => {
                assert_eq!(problem, "");
                peer.welcome().await;
            }
            Err(error) => {
                let error = error.to_string();
                assert!(!problem.is_empty() && error.contains(problem), "{problem}: {error}");
            }
        }
        server.close().await;
    }
}

#[tokio::test]
async fn bytes_without_tls_end_their_connection_alone() {
    let (_files, server, at, tls) = with_tokens().await;
    let mut honest = member(&at, &tls, "honest").await;
    let (name, token) = ("x".into(), "all-have-this-token".into());
    let hello = Frame::Hello { version: 1, incarnation: 1, next: 0, name, token }.encode();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &hello, &[0x17; 100], &[0x16, 3, 3, 0xff, 0xff]] {
        let mut stream = TcpStream::connect(socket_address(&at)).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        timeout(LIMIT, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
        let mut decoder = Decoder::new(EVENT_BYTES_MAX);
        decoder.room().extend_from_slice(&answer);
        let error = decoder.next_frame().unwrap_err().to_string();
        assert!(error.ends_with("expected tls:HOST:PORT as the address"), "{bytes:?}: {error}");
    }
    honest.send(Service::Safe, "g", "still here").await;
    assert_eq!(honest.message().await, "still here");
    let plain = server.addresses()[0].to_string().replace("tcp:", "tls:").parse().unwrap();
    let error = Peer::open_with(&plain, Some(&tls)).await.err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    assert!(error.to_string().ends_with("does not speak TLS, or not at this port"), "{error}");
    let error = Peer::open_with(&at, None).await.err().unwrap().to_string();
    assert_eq!(error, "expected the CA of the daemon's certificate");
}

#[tokio::test]
async fn peers_that_stall_in_the_handshake_hold_nothing_else() {
    let (_files, _server, at, tls) = with_tokens().await;
    let mut stalled = Vec::new();
    for bytes in [&b""[..], &[0x16], &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]] {
        let mut stream = TcpStream::connect(socket_address(&at)).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stalled.push(stream);
    }
    // This client completes the handshake but sends no hello.
    let mut silent = Peer::open_with(&at, Some(&tls)).await.unwrap();
    let mut alice = member(&at, &tls, "alice").await;
    let mut bob = member(&at, &tls, "bob").await;
    let mut count = 0u32;
    let mut ends = tokio::spawn(async move {
        for mut stream in stalled {
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
        }
        silent.error().await.0
    });
    let code = loop {
        count += 1;
        alice.send(Service::Agreed, "g", count.to_be_bytes().to_vec()).await;
        for peer in [&mut alice, &mut bob] {
            assert_eq!(peer.message().await[..], count.to_be_bytes());
        }
        if let Ok(code) = timeout(Duration::from_millis(10), &mut ends).await {
            break code.unwrap();
        }
    };
    assert_eq!(code, ReasonCode::HandshakeTimeout);
    assert!(count > 1);
}

#[tokio::test]
async fn clients_are_served_while_more_peers_are_silent_than_are_allowed() {
    let (_files, server, at, tls) = with_tokens().await;
    let mut silent = Vec::new();
    for _ in 0..1100 {
        silent.push(TcpStream::connect(socket_address(&at)).await.unwrap());
    }
    // This is far less than the timeout of a silent connection.
    let served = answer(&at, &tls, "alice", "alice-has-this-token");
    assert_eq!(timeout(Duration::from_secs(3), served).await.expect("an answer"), Ok(()));
    Peer::connect(&server.addresses()[0], "local").await;
    let mut byte = [0];
    assert!(timeout(LIMIT, silent[0].read(&mut byte)).await.unwrap().is_ok_and(|it| it == 0));
    let last = silent[1099].try_read(&mut byte);
    assert!(last.is_err_and(|it| it.kind() == io::ErrorKind::WouldBlock));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_messages_go_through_tls_both_ways_at_once() {
    let (_files, _server, at, tls) = with_tokens().await;
    let mut alice = member(&at, &tls, "alice").await;
    let mut bob = member(&at, &tls, "bob").await;
    let large = |salt: usize| -> Bytes {
        (0..1 << 20).map(|i| ((i >> 8) + i * salt) as u8).collect::<Vec<u8>>().into()
    };
    for round in 0..4 {
        let (one, other) = (large(2 * round), large(2 * round + 1));
        tokio::join!(
            alice.send(Service::Agreed, "g", one.clone()),
            bob.send(Service::Agreed, "g", other.clone())
        );
        let first = [alice.message().await, alice.message().await];
        assert!(first == [one.clone(), other.clone()] || first == [other, one]);
        assert!(first == [bob.message().await, bob.message().await]);
    }
}

/// Returns an address with one connection to the daemon at `to`, which `pass` forwards.
async fn between<F: Future<Output = ()> + Send>(
    to: SocketAddr,
    pass: impl FnOnce(TcpStream, TcpStream) -> F + Send + 'static,
) -> ClientAddress {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let client = listener.accept().await.unwrap().0;
        pass(client, TcpStream::connect(to).await.unwrap()).await;
    });
    format!("tls:{at}").parse().unwrap()
}

/// Forwards one connection up to `up` or `down` bytes. If `is_damaged`, the last byte is altered.
async fn forward(to: SocketAddr, (up, down): (usize, usize), is_damaged: bool) -> ClientAddress {
    between(to, async move |mut client: TcpStream, mut daemon: TcpStream| {
        let (mut from_client, mut to_client) = client.split();
        let (mut from_daemon, mut to_daemon) = daemon.split();
        let pass = async |from: &mut (dyn tokio::io::AsyncRead + Unpin + Send),
                          to: &mut (dyn tokio::io::AsyncWrite + Unpin + Send),
                          mut left: usize| {
            let mut buffer = vec![0; 1 << 16];
            while left > 0 {
                let most = left.min(buffer.len());
                let count = from.read(&mut buffer[..most]).await.unwrap_or(0);
                left -= count;
                if count > 0 && left == 0 && is_damaged {
                    buffer[count - 1] ^= 1;
                }
                if count == 0 || to.write_all(&buffer[..count]).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = pass(&mut from_client, &mut to_daemon, up) => {}
            () = pass(&mut from_daemon, &mut to_client, down) => {}
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_records_are_cut_or_damaged_resumes_and_gets_every_event_once() {
    let (_files, _server, at, tls) = with_tokens().await;
    drop(member(&at, &tls, "alice").await);
    let mut source = greet(&at, &tls, ("source", 1, 0), "all-have-this-token").await.unwrap();
    source.welcome().await;
    let sent = 200u32;
    for number in 0..sent {
        let payload = [&number.to_be_bytes()[..], &[7; 2000]].concat();
        source.send(Service::Agreed, "g", payload).await;
    }
    // The client already has the view and the group.
    let (mut next, mut got) = (3, 0);
    for round in 0.. {
        let (down, is_damaged) = (10 + round * 1777, round % 2 == 1);
        let to = socket_address(&at);
        let through = forward(to, (usize::MAX, down), is_damaged).await;
        let token = "alice-has-this-token";
        let Ok(mut alice) = greet(&through, &tls, ("alice", 1, next), token).await else {
            continue;
        };
        while got < sent
            && let Some(frame) = alice.frame().await
        {
            match frame {
                Frame::Event(number, event) => {
                    let ClientEvent::Message { parts, .. } = &*event else { panic!("{event:?}") };
                    assert_eq!((number, &parts.concat()[..4]), (next, &got.to_be_bytes()[..]));
                    (next, got) = (next + 1, got + 1);
                }
                Frame::Welcome(_) | Frame::Resumed => {}
                other => panic!("{other:?}"),
            }
        }
        if got == sent {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_records_are_cut_or_damaged_comes_once_after_the_resume() {
    let (_files, server, at, tls) = with_tokens().await;
    let mut bob = member(&at, &tls, "bob").await;
    let (sender, mut messages) = tokio::sync::mpsc::unbounded_channel();
    let reader = tokio::spawn(async move { while sender.send(bob.message().await).is_ok() {} });
    let mut source = greet(&at, &tls, ("source", 1, 0), "all-have-this-token").await.unwrap();
    source.welcome().await;
    source.event().await;
    for round in 0..6u8 {
        let large = Bytes::from(vec![round; 300_000]);
        drop(source);
        let up = 1000 + usize::from(round) * 50_000;
        let through = forward(socket_address(&at), (up, usize::MAX), round % 2 == 0).await;
        let (mut batch, token) = (Batch::default(), "all-have-this-token");
        let send = send(u64::from(round) + 1, Service::Agreed, "g", large.clone());
        batch.push(&send);
        let mut broken = greet(&through, &tls, ("source", 1, 2), token).await.unwrap();
        let written = timeout(LIMIT, batch.write(&broken.socket)).await;
        assert!(written.is_ok(), "round {round}: the connection neither takes bytes nor ends");
        while let Some(frame) = broken.frame().await {
            assert!(!matches!(frame, Frame::Error(..)), "round {round}: {frame:?}");
        }
        source = greet(&at, &tls, ("source", 1, 2), token).await.unwrap();
        assert_eq!(source.welcome().await.taken, u64::from(round));
        timeout(LIMIT, source.put(send)).await.expect("the daemon takes the message");
        let message = timeout(LIMIT, messages.recv()).await;
        let state = server.inquiry().report().await;
        let is_whole = message.as_ref().is_ok_and(|it| it.as_ref() == Some(&large));
        assert!(is_whole, "{round}: {state:#?}");
    }
    let report = server.inquiry().report().await.unwrap();
    assert_eq!(report.counters.messages, 6);
    reader.abort();
}

/// Forwards one connection. After the client's first flight its bytes wait for `release`.
async fn hold(to: SocketAddr, release: oneshot::Receiver<()>) -> ClientAddress {
    between(to, async move |mut client: TcpStream, mut daemon: TcpStream| {
        let mut flight = vec![0; 1 << 16];
        let count = client.read(&mut flight).await.unwrap();
        daemon.write_all(&flight[..count]).await.unwrap();
        let (mut from_client, mut to_client) = client.split();
        let (mut from_daemon, mut to_daemon) = daemon.split();
        let up = async {
            release.await.unwrap();
            tokio::io::copy(&mut from_client, &mut to_daemon).await
        };
        let _ = tokio::join!(up, tokio::io::copy(&mut from_daemon, &mut to_client));
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_byte_stays_behind_a_full_socket_or_the_handshake() {
    let (_files, _server, at, tls) = with_tokens().await;
    let mut bob = member(&at, &tls, "bob").await;
    let (release, released) = oneshot::channel();
    let through = hold(socket_address(&at), released).await;
    let mut quiet = greet(&through, &tls, ("quiet", 1, 0), "all-have-this-token").await.unwrap();
    // The end of the handshake and the hello arrive together.
    release.send(()).unwrap();
    quiet.welcome().await;
    let (release, released) = oneshot::channel();
    let through = hold(socket_address(&at), released).await;
    let source = greet(&through, &tls, ("source", 1, 0), "all-have-this-token").await.unwrap();
    let (mut batch, mut sent) = (Batch::default(), 0u64);
    loop {
        sent += 1;
        let payload = [&sent.to_be_bytes()[..], &[0; 60_000]].concat();
        batch.push(&send(sent, Service::Fifo, "g", payload));
        if !batch.try_write(&source.socket).unwrap() {
            break;
        }
        assert!(source.socket.try_flush().unwrap(), "{sent} are written, and wait");
    }
    release.send(()).unwrap();
    batch.write(&source.socket).await.unwrap();
    for number in 1..=sent {
        assert_eq!(bob.message().await[..8], number.to_be_bytes());
    }
}
