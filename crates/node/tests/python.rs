//! The client in Python against a daemon.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::process::Command;

use faircast_hop::RelayKey;
use faircast_node::{Server, ServerSettings};
use faircast_overlay::DaemonSettings;

/// Two clients chat, lose their connections, and meet a later run and a daemon that refuses.
const CHAT: &str = r#"
import select, sys
sys.path.insert(0, sys.argv[1])
from faircast_groups import Client, GroupError, SERVICES

def until(client, kind, is_wanted=lambda event: True):
    while True:
        event = client.next(60)
        assert event is not None, f"{client.name}: no {kind}"
        if event["event"] == kind and is_wanted(event):
            return event

alice, bob = Client(sys.argv[2], "alice"), Client(sys.argv[2], "bob")
assert alice.full_name == "alice@north", alice.full_name
assert until(alice, "view")["names"] == ["north"]
alice.join("chat")
until(alice, "group")
bob.join("chat")
members = until(bob, "group")["members"]
assert [it["name"] for it in members] == ["alice", "bob"], members
for service in SERVICES:
    bob.send(["chat", "other"], service.encode(), service)
    message = until(alice, "message")
    assert message["payload"] == service.encode() and message["service"] == service, message
    assert message["from"]["name"] == "bob" and message["groups"] == ["chat", "other"], message
large = bytes(range(256)) * 4096
bob.send(["chat"], large)
assert until(alice, "message")["payload"] == large
# Messages wait while the connection is gone, and come once.
numbers = []
for number in range(100):
    if number % 20 == 7:
        bob._socket.close()
    if number % 20 == 13:
        alice._socket.close()
    bob.send(["chat"], b"%d" % number, "agreed")
    if number % 3 == 0:
        numbers.append(int(until(alice, "message")["payload"]))
while len(numbers) < 100:
    numbers.append(int(until(alice, "message")["payload"]))
assert numbers == list(range(100)), numbers
bob.flush()
later = Client(sys.argv[2], "bob")
try:
    until(bob, "never")
    raise AssertionError("two runs of one client")
except GroupError as error:
    assert error.code == "replaced", error
# Events that have come are taken without waiting, and `select` reports further ones.
bob = later
while bob.next(0):
    pass
alice.send(["bob's own"], b"unseen")
bob.join("bob's own")
until(bob, "group")
alice.send(["bob's own"], b"seen")
while not (event := bob.next(0)):
    assert select.select([bob], [], [], 60)[0], "no event within 60 s"
assert event["payload"] == b"seen" and bob.next(0) is None, event
# Receipts, groups without members, and messages for a view that is known.
request = alice.send(["chat"], b"counted", "safe", receipt=True)
receipt = until(alice, "receipt")
assert (receipt["request"], receipt["members"]) == (request, 1), receipt
alice.send(["nobody"], b"lost")
assert until(alice, "no-members", lambda event: event["groups"] == ["nobody"])
carol = Client(sys.argv[2], "carol", virtual_synchrony=True)
until(carol, "view")
carol.join("carol's own", hold_senders=True)
until(carol, "group")
carol.send(["carol's own"], b"in view")
assert until(carol, "message")["view"] == carol._view
carol._view = "1" + carol._view
request = carol.send(["carol's own"], b"too late")
refused = until(carol, "refused")
assert (refused["request"], refused["code"]) == (request, "view"), refused
carol.close()
alice.leave("chat")
until(alice, "group", lambda event: event["reason"] == "leave")
for wrong in (lambda: alice.join("x" * 65), lambda: alice.send([], b""), lambda: Client("x", "y"),
              lambda: alice.send(["chat"], b"", "fifo", receipt=True)):
    try:
        wrong()
        raise AssertionError("a wrong call is taken")
    except ValueError:
        pass
try:
    Client("unix:/no/such.sock", "carol")
    raise AssertionError("a daemon that is not there")
except GroupError as error:
    assert error.code == "connect" and "/no/such.sock: " in str(error), error
alice.close()
later.close()
print("done")
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_in_python_chats_and_resumes() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: there is no python3");
        return;
    }
    let settings = ServerSettings {
        name: "north".into(),
        listen: "127.0.0.1:0".parse().unwrap(),
        peers: Vec::new(),
        key: RelayKey::none(),
        clients: vec!["tcp:127.0.0.1:0".parse().unwrap()],
        limits: DaemonSettings::default(),
    };
    let server = Server::start(settings).await.unwrap();
    let clients = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/python");
    let address = server.addresses()[0].to_string();
    let run = move || {
        let mut command = Command::new("python3");
        command.args(["-B", "-W", "error::SyntaxWarning", "-c", CHAT, clients, &address]).output()
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&output.stdout), "done\n", "{}", text(&output.stderr));
    server.close().await;
}
