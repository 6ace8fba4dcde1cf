//! Python client against a daemon.

use std::path::PathBuf;
use std::process::Command;

use super::tls::Files;
use super::*;

/// Two clients that chat and reconnect, a later run of one, and refusals.
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

ways = [{}] if len(sys.argv) == 3 else [
    {"ca": sys.argv[3], "token": "all-have-this-token"},
    {"ca": sys.argv[3], "certificate": (sys.argv[4], sys.argv[5])}]
def connect(name, way=ways[0], **options):
    return Client(sys.argv[2], name, **way, **options)
alice, bob = connect("alice"), connect("bob", ways[-1])
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
later = connect("bob")
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
# Requests of different clients are in no order of their own.
alice.flush()
bob.join("bob's own")
until(bob, "group")
alice.send(["bob's own"], b"seen")
while not (event := bob.next(0)):
    assert select.select([bob], [], [], 60)[0], "no event within 60 s"
assert event["payload"] == b"seen" and bob.next(0) is None, event
# Receipts, groups without members, and messages for a view that is known.
request = alice.send(["chat"], b"counted", "safe", receipt=True, benefit="concave")
receipt = until(alice, "receipt")
assert (receipt["request"], receipt["members"]) == (request, 1), receipt
alice.send(["nobody"], b"lost")
assert until(alice, "no-members", lambda event: event["groups"] == ["nobody"])
carol = connect("carol", virtual_synchrony=True)
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
              lambda: alice.send(["chat"], b"", "fifo", receipt=True),
              lambda: alice.send(["chat"], b"", benefit="wealth")):
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
if ways[0]:
    for wrong, code in (({"token": "another-token-xx"}, "auth"), ({"token": ""}, "auth"),
                        ({"ca": sys.argv[6]}, "connect")):
        try:
            connect("mallory", {**ways[0], **wrong})
            raise AssertionError(f"{wrong} is taken")
        except GroupError as error:
            assert error.code == code, (wrong, error)
# Options of TLS at another address, and TLS without a CA.
for address, options in ((sys.argv[2].replace("tls:", "tcp:"), {"token": "x" * 16}),
                         ("tls:127.0.0.1:1", {})):
    try:
        Client(address, "x", **options)
        raise AssertionError("a wrong call is taken")
    except ValueError:
        pass
alice.close()
later.close()
print("done")
"#;

const SLOW: &str = r#"
import sys
sys.path.insert(0, sys.argv[1])
import faircast_groups
from faircast_groups import Client, GroupError
faircast_groups.EVENTS_BYTES_MAX = 1 << 20
slow, fast = Client(sys.argv[2], "slow"), Client(sys.argv[2], "fast")
for client in (slow, fast):
    client.join("g")
    while client.next(60)["event"] != "group":
        pass
sent = 0
# Far more than the daemon keeps, and the system's buffers hold.
while sent < 1024:
    sent += 1
    fast.send(["g"], sent.to_bytes(8, "big") + bytes(32 << 10))
    while int.from_bytes((fast.next(60).get("payload") or b"")[:8], "big") != sent:
        pass
numbers, lost = [], 0
while not numbers or numbers[-1] < sent:
    event = slow.next(60)
    assert event, (numbers[-1:], lost, sent)
    if event["event"] == "cut":
        lost += event["lost"][1] - event["lost"][0] + 1
        sent += 1
        fast.send(["g"], sent.to_bytes(8, "big"))
    elif event["event"] == "message":
        numbers.append(int.from_bytes(event["payload"][:8], "big"))
assert lost > 0 and len(numbers) + lost == sent, (len(numbers), lost, sent)
assert numbers == sorted(set(numbers)), "twice, or out of order"
# Own messages come back, and are not taken while requests wait.
try:
    while True:
        fast.send(["g"], bytes(64 << 10), "agreed")
        slow.next(0)
except GroupError as error:
    assert error.code == "events" and "next()" in str(error), error
while fast.next(1):
    pass
fast.send(["g"], b"on")
fast.flush()
print("done")
"#;

async fn run(server: Server, program: &str, files: &[PathBuf]) {
    let clients = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/python");
    let mut command = Command::new("python3");
    command.args(["-B", "-W", "error::SyntaxWarning", "-c", program, clients]);
    command.arg(server.addresses().last().unwrap().to_string()).args(files);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let Ok(output) = output else { return eprintln!("skipped: there is no python3") };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&output.stdout), "done\n", "{}", text(&output.stderr));
    server.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_in_python_chats_and_resumes() {
    run(start("north", DaemonSettings::default()).await, CHAT, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_in_python_learns_what_it_lost_and_bounds_what_waits() {
    let limits = DaemonSettings { client_bytes: 1 << 20, ..DaemonSettings::default() };
    run(start("north", limits).await, SLOW, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_in_python_chats_and_resumes_by_tls() {
    let files = Files::new();
    let server = files.serve("ours-valid.pem", Some("ours-ca.pem"), true).await;
    let names = ["ours-ca.pem", "ours-valid.pem", "ours-valid-key.pem", "foreign-ca.pem"];
    run(server, CHAT, &names.map(|name| files.at(name))).await;
}
