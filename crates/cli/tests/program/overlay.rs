//! Daemons of the overlay as programs: `node`, `pub` and `sub`.

use std::io::Write as _;

use super::*;

pub(super) struct Overlay {
    site: site::Site,
    pub(super) status: u16,
}

impl Overlay {
    pub(super) fn new(name: &str, more: &str) -> Self {
        let port = site::free_tcp().port();
        let site = site::Site::with("");
        let socket = site.path("node.sock");
        let text = format!(
            "name = \"{name}\"\nclients = [\"unix:{}\"]\nstatus = \"127.0.0.1:{port}\"\n{more}",
            socket.display()
        );
        std::fs::write(site.path("node.toml"), text).unwrap();
        Self { site, status: port }
    }

    pub(super) fn start(&self) -> Running {
        let config = text_of(&self.site.path("node.toml"));
        let node = Running::start(&format!("node --config '{config}'"));
        node.until_said("daemons reach it at");
        node
    }

    pub(super) fn connect(&self) -> String {
        format!("--connect 'unix:{}'", text_of(&self.site.path("node.sock")))
    }

    fn page(&self, path: &str) -> (String, String) {
        live::get(&format!("127.0.0.1:{}", self.status), "GET", path)
    }
}

fn fed(words: &str, text: &[u8]) -> Running {
    let mut command = program(words);
    command.stdin(Stdio::piped());
    let mut running = Running::spawn(command);
    running.input().write_all(text).unwrap();
    running
}

#[test]
fn lines_go_through_a_group_and_the_daemon_reports_its_state() {
    let overlay = Overlay::new("north", "");
    let node = overlay.start();
    let to = overlay.connect();
    let sub = Running::start(&format!("sub chat --count 1003 {to}"));
    let json = Running::start(&format!("sub chat other --json {to} --name watcher"));
    json.until("group", |event| {
        event["group"] == "chat" && event["members"].as_array().map(Vec::len) == Some(2)
    });
    let (status, page) = overlay.page("/healthz");
    assert!(status.contains("200") && page == "ok\n", "{status}: {page}");
    assert_eq!(fed(&format!("pub chat {to} --name alice"), b"hello\n\nlast").succeed(), "");
    let numbers: String = (0..1000).map(|number| format!("{number}\n")).collect();
    fed(&format!("pub chat {to} --service agreed"), numbers.as_bytes()).succeed();
    assert_eq!(sub.succeed(), format!("hello\n\nlast\n{numbers}"));
    json.until("message", |event| {
        event["text"] == "hello" && event["from"]["name"] == "alice" && event["service"] == "fifo"
    });
    json.until("message", |event| event["text"] == "999" && event["service"] == "agreed");
    let framed = Running::start(&format!("sub other --hold-senders --binary --count 2 {to}"));
    json.until("group", |event| {
        event["group"] == "other" && event["members"].as_array().map(Vec::len) == Some(2)
    });
    let bytes = b"\0\0\0\x03a\nb\0\0\0\0";
    fed(&format!("pub other --binary --rate 1000 {to}"), bytes).succeed();
    assert_eq!(framed.succeed().as_bytes(), bytes);
    let at = format!("127.0.0.1:{}", overlay.status);
    let status = succeed(&format!("node status {at}"));
    assert!(status.contains("north: view ") && status.contains("    watcher: "), "{status}");
    assert!(status.contains("    chat: members: 1, here: 1"), "{status}");
    let status = super::json(&format!("node status {at} --json"));
    assert_eq!((&status["name"], &status["settled"]), (&"north".into(), &true.into()));
    let top = succeed(&format!("node top {at} --interval 100ms --count 2"));
    assert_eq!(top.matches("north: view ").count(), 2, "{top}");
    assert!(top.contains("\nwatcher ") && top.contains("\nchat "), "{top}");
    let receipts = fed(&format!("pub chat {to} --service safe --receipts"), b"one\ntwo\n");
    assert_eq!(receipts.succeed(), "1\n1\n");
    let nobody = fed(&format!("pub nobody {to}"), b"one\ntwo\n").end_with(0);
    assert_eq!(nobody.err.matches("nobody gets the messages: no members in nobody").count(), 1);
    let metrics = overlay.page("/metrics").1;
    for line in ["faircast_node_members 1", "faircast_node_clients 1", "faircast_node_cuts_total 0"]
    {
        assert!(metrics.lines().any(|it| it.starts_with(line)), "{line}: {metrics}");
    }
    json.interrupt();
    let left = succeed(&format!("node status {at}"));
    assert!(left.contains("clients: 0"), "{left}");
    let sub = Running::start(&format!("sub chat --json {to}"));
    sub.until("group", |_| true);
    let first = sub.told().into_iter().find(|event| event["event"] == "group").unwrap();
    node.interrupt();
    let node = overlay.start();
    sub.until("restarted", |event| event["unsure"] == 0);
    sub.until("group", |event| event["view"] != first["view"]);
    fed(&format!("pub chat {to}"), b"again\n").succeed();
    sub.until("message", |event| event["text"] == "again");
    sub.interrupt();
    node.interrupt();
}

#[test]
fn sites_of_one_key_make_one_view() {
    let site = site::Site::with("");
    let out = site.succeed("node init overlay --sites 3");
    assert!(out.contains("overlay/overlay.key: the key of all daemons"), "{out}");
    site.start("node init overlay --sites 3").complain(1, "overlay.key");
    // Free ports of this host replace the addresses of the examples.
    let ports: Vec<u16> = (0..3)
        .map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap())
        .map(|socket| socket.local_addr().unwrap().port())
        .collect();
    let mut nodes = Vec::new();
    for number in 1..=3usize {
        let path = format!("overlay/site{number}.toml");
        let mut text =
            site.read(&path).replace("0.0.0.0:4804", &format!("127.0.0.1:{}", ports[number - 1]));
        for (other, port) in ports.iter().enumerate() {
            text = text
                .replace(&format!("site{}.example:4804", other + 1), &format!("127.0.0.1:{port}"));
        }
        let socket = site.path(&format!("{number}.sock"));
        text = text.replace("/run/faircast/node.sock", &text_of(&socket));
        text = text.replace(", \"tcp:127.0.0.1:4803\"", "");
        text = text.replace("status = ", "# status = ");
        std::fs::write(site.path(&path), text).unwrap();
        let node = site.start(&format!("node --config {path}"));
        node.until_said("daemons reach it at");
        nodes.push(node);
    }
    let to = |number: usize| {
        format!("--connect 'unix:{}'", text_of(&site.path(&format!("{number}.sock"))))
    };
    let sub = Running::start(&format!("sub chat --json {}", to(3)));
    sub.until("view", |event| event["members"].as_array().map(Vec::len) == Some(3));
    sub.until("group", |_| true);
    let other = Running::start(&format!("sub chat --json {}", to(2)));
    sub.until("group", |event| event["members"].as_array().map(Vec::len) == Some(2));
    fed(&format!("pub chat --service safe {}", to(1)), b"to all sites\n").succeed();
    sub.until("message", |event| event["text"] == "to all sites");
    other.until("message", |event| event["text"] == "to all sites");
}

#[test]
fn a_daemon_whose_log_has_no_room_goes_on() {
    let overlay = Overlay::new("north", "");
    let line = "FAIRCAST_LOG=debug exec faircast node --config node.toml 2> /dev/full";
    let node = overlay_page::shell(&overlay.site, line);
    node.until_said("daemons reach it at");
    let to = overlay.connect();
    let sub = Running::start(&format!("sub chat --json {to}"));
    sub.until("group", |_| true);
    fed(&format!("pub chat {to}"), b"hello\n").succeed();
    sub.until("message", |event| event["text"] == "hello");
    node.interrupt();
}

#[test]
fn a_program_rehearses_with_daemons_of_its_own() {
    let words = "node rehearse --daemons 2 --seed 7 --faults 0s -- sh -c";
    let served = "echo $FAIRCAST_SEED; for it in $FAIRCAST_DAEMONS; do test -S ${it#unix:} && echo $it; done";
    let site = site::Site::with("");
    let ended = site.start(&format!("{words} '{served}'")).end_with(0);
    let lines: Vec<&str> = ended.out.lines().collect();
    assert_eq!((lines.len(), lines[0]), (3, "7"), "{}", ended.err);
    site.start(&format!("{words} 'exit 3'")).complain(1, "exit status: 3; again by --seed 7");
}

#[test]
fn wrong_words_and_missing_daemons_are_named() {
    for (words, want) in [
        ("pub chat --service fast", "expected one of unreliable, reliable, fifo"),
        ("pub chat --receipts", "--receipts: expected --service causal, agreed or safe"),
        ("node top --interval 1ms", "--interval 0.001 s: expected 0.1 s or more"),
        ("sub chat --connect udp:1", "expected unix:/PATH, tls:HOST:PORT or tcp:ADDR:PORT"),
        ("node", "--config"),
        ("node --config no.toml", "`faircast node init DIR --sites 2` writes an example"),
        ("node init x --sites 0", "0 is not in 1..=128"),
        ("node init x --sites 1 --host a --host b", "--host: 2 hosts; expected at most --sites 1"),
        ("sub chat --connect tls:127.0.0.1:1", "tls:127.0.0.1:1: expected the file of a CA"),
        ("sub chat --connect tls:127.0.0.1:1 --ca no.pem", "no.pem: "),
        ("sub chat --ca no.pem", "tcp:127.0.0.1:4803: expected tls:HOST:PORT for a token, a CA or"),
        ("sub chat --certificate a.pem", "--certificate-key"),
        ("sub chat --token-file no.txt", "no.txt: "),
        ("sub chat --token-file /dev/null", "/dev/null: no token"),
    ] {
        Running::start(words).refuse_with(want);
    }
    let text = "name = \"a\"\nclients = [\"unix:/no/such/node.sock\"]\n";
    let site = site::Site::of("node.toml", text);
    let ended = site.start("node --config node.toml").end_with(1);
    let want = "unix:/no/such/node.sock: no folder /no/such; make it, or change `clients`";
    assert!(ended.err.contains(want), "{}", ended.err);
    let ended = run_within(HANG_S, "node status 127.0.0.1:1").with(1);
    let want = "; expected the `status` address of a running daemon";
    assert!(ended.err.contains(want), "{}", ended.err);
    let ended = run_within(HANG_S, "sub chat --connect unix:/no/such.sock").with(1);
    assert!(ended.err.contains("unix:/no/such.sock: "), "{}", ended.err);
}
