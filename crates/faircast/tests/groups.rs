//! Group clients against a daemon over real sockets.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use faircast::groups::{
    Client, ClientOptions, GroupError, GroupEvent, Reason, SendError, Service, WaitReason,
};
use faircast_checker::{Rule, Trace, check};
use faircast_node::{NodeConfig, Server};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);

/// Daemon with a socket in a folder of its own.
struct Node {
    folder: TempDir,
    server: Server,
}

impl Node {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { server: Self::serve(&folder).await, folder }
    }

    async fn serve(folder: &TempDir) -> Server {
        let (file, socket) = (folder.path().join("node.toml"), folder.path().join("node.sock"));
        let text = format!("name = \"north\"\nclients = [\"unix:{}\"]\n", socket.display());
        std::fs::write(&file, text).unwrap();
        Server::start(NodeConfig::read(&file).unwrap().server).await.unwrap()
    }

    async fn restart(self) -> Self {
        self.server.close().await;
        Self { server: Self::serve(&self.folder).await, folder: self.folder }
    }

    fn address(&self) -> String {
        format!("unix:{}", self.folder.path().join("node.sock").display())
    }

    async fn connect(&self, name: &str) -> Client {
        Client::connect(&self.address(), name).await.unwrap()
    }

    /// Returns a client that is the only member of a group.
    async fn member(&self, name: &str, group: &str) -> Client {
        let client = self.connect(name).await;
        client.join(group).await.unwrap();
        assert_eq!(members(&client, 1).await, [name]);
        client
    }
}

/// Waits for an event of a pattern. Returns a value made of its parts.
macro_rules! until {
    ($client:expr, $event:pat => $value:expr) => {
        until(&$client, |event| match event {
            $event => Some($value),
            _ => None,
        })
        .await
    };
}

async fn until<T>(client: &Client, mut wanted: impl FnMut(GroupEvent) -> Option<T>) -> T {
    let wait = async {
        loop {
            if let Some(found) = wanted(client.next().await.unwrap()) {
                return found;
            }
        }
    };
    tokio::time::timeout(LIMIT, wait).await.expect("the event comes")
}

async fn message(client: &Client) -> Vec<u8> {
    until!(*client, GroupEvent::Message(message) => message.payload.to_vec())
}

async fn members(client: &Client, count: usize) -> Vec<String> {
    let wanted = |event| match event {
        GroupEvent::Group { members, .. } if members.len() == count => {
            Some(members.iter().map(|it| it.name.to_string()).collect())
        }
        _ => None,
    };
    until(client, wanted).await
}

#[tokio::test]
async fn clients_join_send_receive_and_leave() {
    let node = Node::start().await;
    let alice = node.connect("alice").await;
    let bob = node.connect("bob").await;
    assert_eq!(alice.full_name(), "alice@north");
    let view =
        until!(alice, GroupEvent::View { members, previous: None, .. } => members[0].1.clone());
    assert_eq!(view, "north");
    alice.join("chat").await.unwrap();
    assert_eq!(members(&alice, 1).await, ["alice"]);
    bob.join("chat").await.unwrap();
    assert_eq!(members(&alice, 2).await, ["alice", "bob"]);
    assert_eq!(members(&bob, 2).await, ["alice", "bob"]);
    for service in Service::ALL {
        bob.send(service, &["chat", "elsewhere"], "hello").await.unwrap();
        let got = until!(alice, GroupEvent::Message(message) => message);
        let message = (&*got.from.name, got.service, &got.payload[..]);
        assert_eq!(message, ("bob", service, &b"hello"[..]));
        assert_eq!([&*got.groups[0], &*got.groups[1]], ["chat", "elsewhere"]);
    }
    alice.leave("chat").await.unwrap();
    let left = until!(bob, GroupEvent::Group { reason: Reason::Leave, subject, .. } => subject);
    assert_eq!(&*left.unwrap().name, "alice");
    for wrong in [&[][..], &[""], &["x"; 101]] {
        let error = bob.send(Service::Fifo, wrong, "").await.unwrap_err();
        assert!(matches!(error, GroupError::Usage(_)), "{error}");
    }
    let error = Client::connect("unix:/no/such/path", "x").await.unwrap_err().to_string();
    assert!(error.starts_with("unix:/no/such/path: "), "{error}");
    alice.close().await;
    assert!(matches!(alice.join("chat").await, Err(GroupError::Closed)));
    node.server.close().await;
}

#[tokio::test]
async fn senders_get_receipts_learn_of_empty_groups_and_choose_their_view() {
    let node = Node::start().await;
    let mut options = ClientOptions::default();
    options.virtual_synchrony = true;
    let alice = Client::connect_with(&node.address(), "alice", options).await.unwrap();
    let bob = node.connect("bob").await;
    for client in [&alice, &bob] {
        client.join_and_hold_senders("chat").await.unwrap();
    }
    members(&alice, 2).await;
    for service in [Service::Causal, Service::Agreed, Service::Safe] {
        let request = alice.send_for_receipt(service, &["chat"], "hello").await.unwrap();
        let receipt =
            until!(alice, GroupEvent::Receipt { request, members, .. } => (request, members));
        assert_eq!(receipt, (request, 2));
        assert_eq!(message(&bob).await, b"hello");
    }
    let error = alice.send_for_receipt(Service::Fifo, &["chat"], "").await.unwrap_err();
    assert!(error.to_string().contains("a fifo message has no receipt"), "{error}");
    let request = bob.send(Service::Fifo, &["nobody"], "lost").await.unwrap();
    let empty =
        until!(bob, GroupEvent::NoMembers { request, groups } => (request, groups[0].to_string()));
    assert_eq!(empty, (request, "nobody".to_string()));
    // The daemon restarts. Alice sends for the old view before she takes the new one.
    let node = node.restart().await;
    until!(alice, GroupEvent::Restarted { .. } => ());
    let request = alice.send(Service::Agreed, &["chat"], "too late").await.unwrap();
    let refused = until!(alice, GroupEvent::Refused { request, reason } => (request, reason));
    assert_eq!(refused, (request, SendError::View));
    node.server.close().await;
}

#[tokio::test]
async fn traces_of_clients_keep_the_rules_over_a_restart_of_the_daemon_and_show_a_lost_event() {
    let node = Node::start().await;
    let address = node.address();
    let traces =
        ["alice", "bob", "carol"].map(|name| node.folder.path().join(format!("{name}.jsonl")));
    let mut clients = Vec::new();
    for (name, trace) in ["alice", "bob", "carol"].iter().zip(&traces) {
        let mut options = ClientOptions::default();
        (options.trace, options.virtual_synchrony) = (Some(trace.clone()), *name == "carol");
        clients.push(Client::connect_with(&address, name, options).await.unwrap());
    }
    for client in &clients {
        client.join("chat").await.unwrap();
    }
    members(&clients[0], 3).await;
    let send = |from: usize, service| {
        let (client, payload) = (&clients[from], format!("message {from} {service:?}, unique"));
        async move { client.send(service, &["chat"], payload).await.unwrap() }
    };
    for service in Service::ALL {
        for from in 0..3 {
            send(from, service).await;
        }
        for client in &clients {
            for _ in 0..3 {
                message(client).await;
            }
        }
    }
    clients[0].leave("chat").await.unwrap();
    clients[0].flush().await.unwrap();
    let node = node.restart().await;
    for client in &clients[1..] {
        until!(*client, GroupEvent::Restarted { .. } => ());
        members(client, 2).await;
    }
    clients[1].send(Service::Safe, &["chat"], "message after the restart").await.unwrap();
    assert_eq!(message(&clients[2]).await, b"message after the restart");
    for client in &clients {
        client.close().await;
    }
    node.server.close().await;
    let judge = |texts: &[String]| {
        let sources = texts.iter().map(|text| ("trace".to_string(), text.as_bytes()));
        let trace = Trace::read(sources).unwrap();
        let rules: Vec<Rule> = check(&trace).iter().map(|violation| violation.rule).collect();
        (trace.counts(), rules)
    };
    let mut texts = traces.map(|path| std::fs::read_to_string(path).unwrap());
    let deliveries = 3 * 3 * Service::ALL.len() + 2;
    assert_eq!(judge(&texts), ([6, deliveries, 0], vec![]));
    let mut lines: Vec<&str> = texts[1].lines().collect();
    // The message is unreliable: only the event numbers reveal the gap.
    let first = lines.iter().position(|line| line.contains("\"event\":\"deliver\"")).unwrap();
    lines.remove(first);
    texts[1] = lines.join("\n");
    assert_eq!(judge(&texts).1, [Rule::R13]);
    let mut options = ClientOptions::default();
    options.trace = Some(node.folder.path().join("none/x.jsonl"));
    let error = Client::connect_with(&address, "x", options).await.unwrap_err().to_string();
    assert!(error.contains("expected a file that can be written"), "{error}");
}

#[tokio::test]
async fn a_daemon_that_starts_again_gets_the_groups_and_the_messages_that_waited() {
    let node = Node::start().await;
    let client = node.member("client", "g").await;
    client.send(Service::Agreed, &["g"], "before").await.unwrap();
    assert_eq!(message(&client).await, b"before");
    client.flush().await.unwrap();
    node.server.close().await;
    let lost = until!(client, GroupEvent::Disconnected { reason } => reason);
    assert!(lost.contains("the daemon stops"));
    let mut sent = 0u32;
    let refused = loop {
        match client.try_send(Service::Agreed, &["g"], vec![0; 64 << 10]) {
            Ok(_) => sent += 1,
            Err(error) => break error,
        }
        tokio::task::yield_now().await;
    };
    assert!(matches!(refused, GroupError::WouldBlock(_)), "{refused}");
    assert!(sent > 4);
    let node = Node { server: Node::serve(&node.folder).await, ..node };
    let unsure = until!(client, GroupEvent::Restarted { unsure } => unsure) as u32;
    assert_eq!(members(&client, 1).await, ["client"]);
    client.send(Service::Agreed, &["g"], "after").await.unwrap();
    while message(&client).await != b"after" {}
    client.flush().await.unwrap();
    let report = node.server.inquiry().report().await.unwrap();
    assert_eq!(report.counters.messages, u64::from(sent - unsure + 1));
    node.server.close().await;
}

fn put(file: &Path, text: &str) {
    std::fs::write(file, text).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[tokio::test]
async fn a_client_by_tls_outlives_its_daemon_until_its_token_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_string()]).unwrap();
    put(&at("node.pem"), &pair.cert.pem());
    put(&at("node-key.pem"), &pair.signing_key.serialize_pem());
    let start = async |address: &str, token: &str| {
        put(&at("tokens.txt"), &format!("client {token}\n"));
        let text = format!(
            "name = \"north\"\nclients = [\"{address}\"]\ncertificate = \"node.pem\"\n\
             certificate_key = \"node-key.pem\"\ntokens = \"tokens.txt\"\n"
        );
        put(&at("node.toml"), &text);
        let settings = NodeConfig::read(&at("node.toml")).unwrap().server;
        Server::start(settings).await.unwrap()
    };
    let server = start("tls:127.0.0.1:0", "correct-battery-horse").await;
    let address = server.addresses()[0].to_string();
    let mut options = ClientOptions::default();
    let error = Client::connect(&address, "client").await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("{address}: expected the file of a CA")), "{error}");
    options.server_ca = Some(at("none.pem"));
    let error = Client::connect_with(&address, "client", options.clone()).await.unwrap_err();
    assert!(error.to_string().contains("none.pem: "), "{error}");
    options.server_ca = Some(at("node.pem"));
    let error = Client::connect_with("unix:/x", "client", options.clone()).await.unwrap_err();
    assert!(error.to_string().starts_with("unix:/x: expected tls:HOST:PORT for"), "{error}");
    let error = Client::connect_with(&address, "client", options.clone()).await.unwrap_err();
    assert!(matches!(error, GroupError::Refused { code: 17, .. }), "{error}");
    options.token = Some("correct-battery-horse".into());
    let client = Client::connect_with(&address, "client", options).await.unwrap();
    client.join("g").await.unwrap();
    members(&client, 1).await;
    let large: Vec<u8> = (0..1 << 20).map(|i| (i >> 8) as u8).collect();
    client.send(Service::Agreed, &["g"], large.clone()).await.unwrap();
    assert!(message(&client).await == large);
    server.close().await;
    let server = start(&address, "correct-battery-horse").await;
    until!(client, GroupEvent::Restarted { .. } => ());
    members(&client, 1).await;
    server.close().await;
    let server = start(&address, "another-battery-horse").await;
    let end = async {
        loop {
            if let Err(error) = client.next().await {
                return error;
            }
        }
    };
    let error = tokio::time::timeout(LIMIT, end).await.expect("the client ends");
    assert_eq!(error.to_string(), "the token is missing or wrong");
    server.close().await;
}

#[tokio::test]
async fn a_client_that_takes_no_events_learns_why_it_waits() {
    let node = Node::start().await;
    let client = node.member("client", "g").await;
    let mut sent = 0;
    let full = async {
        loop {
            match client.try_send(Service::Fifo, &["g"], vec![0; 64 << 10]) {
                Ok(_) => sent += 1,
                Err(GroupError::WouldBlock(WaitReason::Events)) => return,
                Err(GroupError::WouldBlock(_)) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(LIMIT, full).await.expect("4 MB of events wait at last");
    for _ in 0..sent {
        assert_eq!(message(&client).await.len(), 64 << 10);
    }
    client.send(Service::Fifo, &["g"], "last").await.unwrap();
    assert_eq!(message(&client).await, b"last");
    node.server.close().await;
}

#[tokio::test]
async fn a_later_run_ends_the_earlier_one_and_says_why() {
    let node = Node::start().await;
    let first = node.connect("client").await;
    let second = node.connect("client").await;
    let error = loop {
        if let Err(error) = first.next().await {
            break error.to_string();
        }
    };
    assert!(error.contains("a later run of the client took over"), "{error}");
    second.join("g").await.unwrap();
    assert_eq!(members(&second, 1).await, ["client"]);
    drop(second);
    let left = async {
        while !node.server.inquiry().report().await.unwrap().clients.is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LIMIT, left).await.expect("a dropped client says goodbye");
    node.server.close().await;
}

#[tokio::test]
async fn cancelled_calls_lose_nothing() {
    let node = Node::start().await;
    let client = node.member("client", "g").await;
    let (mut sent, mut got, mut turns) = (0u32, 0u32, 0u32);
    while got < 200 {
        turns += 1;
        let text = sent.to_be_bytes().to_vec();
        tokio::select! {
            biased;
            () = yield_times(turns % 5) => {}
            event = client.next() => {
                if let GroupEvent::Message(message) = event.unwrap() {
                    assert_eq!(message.payload[..], got.to_be_bytes());
                    got += 1;
                }
            }
            done = client.send(Service::Fifo, &["g"], text), if sent < 200 => {
                done.unwrap();
                sent += 1;
            }
        }
    }
    node.server.close().await;
}

async fn yield_times(count: u32) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}
