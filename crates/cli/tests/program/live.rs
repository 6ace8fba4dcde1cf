//! `send`, `recv` and `key` over the loopback interface: separate processes, as users have them.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Child;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::*;

/// A running program, killed where a test ends before it does.
pub(super) struct Running {
    child: Option<Child>,
    out: Said,
    err: Said,
}

impl Running {
    pub(super) fn start(arguments: &[&str]) -> Self {
        let child = program(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Self::of(child.unwrap())
    }

    /// A program whose output goes into pipes.
    pub(super) fn of(mut child: Child) -> Self {
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        Self { child: Some(child), out: Said::of(out), err: Said::of(err) }
    }

    /// Waits until a line of its errors has these words.
    pub(super) fn until_complained(&self, words: &str) {
        let is_there = self.err.until(|line| line.contains(words));
        assert!(is_there, "{words}: {}{}", self.out.so_far(), self.err.so_far());
    }

    /// Waits for an event with this name, told with `--json`, that is wanted.
    pub(super) fn until(&self, name: &str, is_wanted: impl Fn(&Value) -> bool) {
        let is_there = self.out.until(|line| {
            let event = serde_json::from_str::<Value>(line).unwrap_or_default();
            event["event"] == name && is_wanted(&event)
        });
        assert!(is_there, "{name}: {}{}", self.out.so_far(), self.err.so_far());
    }

    /// Waits until a receiver has so many bytes of its first object, told with `--json`.
    pub(super) fn until_has(&self, bytes: u64) {
        self.until("progress", |event| event["objects"][0]["bytes_done"].as_u64() >= Some(bytes));
    }

    pub(super) fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.id()).unwrap()), signal).unwrap();
    }

    /// Whether it has not ended yet.
    pub(super) fn runs(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_none()
    }

    pub(super) fn end(self) -> Ended {
        self.end_within(60)
    }

    pub(super) fn end_within(mut self, limit_s: u64) -> Ended {
        let mut child = self.child.take().unwrap();
        let started = Instant::now();
        let code = loop {
            match child.try_wait().unwrap() {
                Some(status) => break Some(status.code()),
                None if started.elapsed() > Duration::from_secs(limit_s) => {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    break None;
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let (out, err) = (self.out.all(), self.err.all());
        let code = code.unwrap_or_else(|| panic!("after {limit_s} s it still ran: {out}{err}"));
        Ended { code, out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A group at a port that was free a moment ago.
pub(super) fn group() -> String {
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    format!("239.192.78.1:{}", free.local_addr().unwrap().port())
}

/// Bytes that are no zeros and do not compress.
pub(super) fn noise(len: usize) -> Vec<u8> {
    let mut x = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    (0..len.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(len).collect()
}

pub(super) fn digest(path: &Path) -> String {
    let said = Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(said.stdout).unwrap()[..64].to_string()
}

/// What `send` or `recv` told with `--json`: each event is in docs/live.md, with the very fields.
pub(super) fn events(verb: &str, out: &str) -> Vec<Value> {
    let documented = documented(verb);
    let parsed = out.lines().map(|line| {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let name = event["event"].as_str().unwrap();
        let fields = documented.get(name).unwrap_or_else(|| panic!("{verb}: {name} is nowhere"));
        let got: BTreeSet<String> = event.as_object().unwrap().keys().cloned().collect();
        assert!(got.iter().all(|field| field == "event" || fields.contains(field)), "{line}");
        event
    });
    parsed.collect()
}

/// The fields of the events of `verb`, by their names, as docs/live.md has them.
fn documented(verb: &str) -> BTreeMap<String, BTreeSet<String>> {
    let page = std::fs::read_to_string(root().join("docs/live.md")).unwrap();
    let words = |text: &str| -> Vec<String> {
        text.split('`').skip(1).step_by(2).map(ToString::to_string).collect()
    };
    let own = |what: &str| {
        let start = page.find(&format!("{what} has `")).unwrap();
        words(page[start..].split("\n\n").next().unwrap())
    };
    let mut all = BTreeMap::new();
    let table = page.split(&format!("| from `{verb}`")).nth(1).unwrap();
    for row in table.lines().skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').collect();
        let mut fields: BTreeSet<String> = words(cells[3]).into_iter().collect();
        for (said, what) in [("of a receiver", "A receiver"), ("of an object", "An object")] {
            if cells[3].contains(said) {
                fields.extend(own(what));
            }
        }
        for name in words(cells[1]) {
            all.insert(name, fields.clone());
        }
    }
    assert!(all.len() > 5, "{all:?}");
    all
}

pub(super) fn event<'a>(events: &'a [Value], name: &str) -> &'a Value {
    let found = events.iter().find(|event| event["event"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {events:?}"))
}

#[test]
fn a_tree_gets_to_two_receivers_with_a_key_and_the_second_time_it_is_there_already() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text_of(&folder.path().join(name));
    let (tree, key) = (folder.path().join("tree"), at("group.key"));
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    std::fs::write(tree.join("large"), noise(2_500_000)).unwrap();
    std::fs::write(tree.join("sub/empty"), b"").unwrap();
    succeed(&["key", "new", &key]);
    let group = group();
    let common = ["--group", &group, "--interface", "lo", "--key", &key];
    for run in 0..2 {
        let receivers: Vec<_> = ["a", "b"]
            .into_iter()
            .map(|name| {
                let into = at(name);
                let own = ["recv", "--into", &into, "--once", "--name", name, "--json"];
                Running::start(&[&own[..], &common].concat())
            })
            .collect();
        let own = ["send", &text_of(&tree), "--wait-for", "2", "--json"];
        let sent = Running::start(&[&own[..], &common].concat()).end();
        assert_eq!((sent.code, sent.err.as_str()), (Some(0), ""), "{}", sent.out);
        let told = events("send", &sent.out);
        let summary = event(&told, "summary");
        assert_eq!(summary["ok"], true);
        assert_eq!(summary["receivers"].as_array().unwrap().len(), 2);
        let bytes_sent = summary["bytes_sent"].as_u64().unwrap();
        assert_eq!(run == 0, bytes_sent > 2_500_000, "{bytes_sent} in run {run}");
        assert!(run == 0 || bytes_sent < 200_000, "{bytes_sent} in run {run}");
        for receiver in receivers {
            let received = receiver.end();
            assert_eq!((received.code, received.err.as_str()), (Some(0), ""), "{}", received.out);
            let told = events("recv", &received.out);
            let large = told.iter().find(|event| {
                event["event"] == "file" && event["path"].as_str().unwrap().ends_with("large")
            });
            let at_sender = summary["files"].as_array().unwrap();
            let of_sender = at_sender.iter().find(|file| file["path"] == "tree/large").unwrap();
            assert_eq!(large.unwrap()["blake3"], of_sender["blake3"]);
        }
    }
    for name in ["a", "b"] {
        let copy = folder.path().join(name).join("tree");
        assert_eq!(digest(&copy.join("large")), digest(&tree.join("large")));
        assert_eq!(std::fs::metadata(copy.join("sub/empty")).unwrap().len(), 0);
    }
}

/// Waits until `ready`, or fails.
pub(super) fn until(what: &str, mut ready: impl FnMut() -> bool) {
    let started = Instant::now();
    while !ready() {
        assert!(started.elapsed() < Duration::from_secs(LIMIT_S), "{what}: not within {LIMIT_S} s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a later run at `into` will find something there.
fn journal_has_something(into: &Path) -> bool {
    let parts = std::fs::read_dir(into.join(".faircast")).into_iter().flatten().flatten();
    let mut journals = parts.filter_map(|found| found.path().join("journal").metadata().ok());
    // Behind its head.
    journals.any(|journal| journal.len() > 36)
}

#[test]
fn a_receiver_that_was_killed_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, noise(8_000_000)).unwrap();
    let into = folder.path().join("in");
    let group = group();
    let common = ["--group", &group, "--interface", "lo"];
    let own = ["recv", "--into", &text_of(&into), "--once", "--json", "--name", "r"];
    let first = Running::start(&[&own[..], &common].concat());
    let slow = ["send", &text_of(&file), "--rate-max", "16Mbit/s", "--give-up", "4s", "--json"];
    let sender = Running::start(&[&slow[..], &common].concat());
    until("something is in the journal", || journal_has_something(&into));
    first.signal(Signal::SIGKILL);
    first.end();
    assert!(!into.join("file").exists(), "it is not there before it is whole");
    let second = Running::start(&[&own[..], &common].concat()).end();
    assert_eq!(second.code, Some(0), "{}{}", second.out, second.err);
    let told = events("recv", &second.out);
    let found = event(&told, "complete")["bytes_found"].as_u64().unwrap();
    assert!(found >= 1 << 20, "{found} bytes were there from the first run");
    assert_eq!(digest(&into.join("file")), digest(&file));
    let sent = sender.end();
    let told = events("send", &sent.out);
    let summary = event(&told, "summary");
    assert_eq!(summary["bytes_total"], 8_000_000, "{summary}");
}

#[test]
fn a_sender_that_was_killed_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, noise(8_000_000)).unwrap();
    let into = folder.path().join("in");
    let group = group();
    let common = ["--group", &group, "--interface", "lo", "--json"];
    let own = ["recv", "--into", &text_of(&into), "--once", "--name", "r"];
    let receiver = Running::start(&[&own[..], &common].concat());
    let send = ["send", &text_of(&file), "--rate-max", "16Mbit/s"];
    let first = Running::start(&[&send[..], &common].concat());
    receiver.until_has(2 << 20);
    first.signal(Signal::SIGKILL);
    first.end();
    // At once, while the receiver takes the first for no more than slow.
    let sent = Running::start(&[&send[..], &common].concat()).end();
    assert_eq!(sent.code, Some(0), "{}{}", sent.out, sent.err);
    let received = receiver.end();
    assert_eq!(received.code, Some(0), "{}{}", received.out, received.err);
    let told = events("recv", &received.out);
    event(&told, "gone");
    let found = event(&told, "complete")["bytes_found"].as_u64().unwrap();
    assert!(found >= 1 << 20, "{found} bytes were there from the first run");
    assert_eq!(digest(&into.join("file")), digest(&file));
    let bytes = event(&events("send", &sent.out), "summary")["bytes_sent"].as_u64().unwrap();
    assert!(bytes < 8_500_000 - found, "{bytes} bytes were sent though {found} were there");
}

/// What a server says to `GET path`, and its head.
fn get(address: &str, method: &str, path: &str) -> (String, String) {
    use std::io::Write as _;
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_string(), body.to_string())
}

/// The values of a text in the format of OpenMetrics 1.0, without labels: every family has one HELP
/// and one TYPE before its value, counters end in `_total`, and the end is said.
fn openmetrics(text: &str) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    let (body, end) = text.split_at(text.len() - "# EOF\n".len());
    assert_eq!(end, "# EOF\n");
    for family in body.lines().collect::<Vec<_>>().chunks(3) {
        let [help, kind, sample] = family else { panic!("{family:?}") };
        let name = help.strip_prefix("# HELP ").unwrap().split(' ').next().unwrap();
        let sort = kind.strip_prefix(&format!("# TYPE {name} ")).unwrap();
        let (full, value) = sample.split_once(' ').unwrap();
        let suffix = match sort {
            "counter" => "_total",
            "gauge" => "",
            other => panic!("{other}"),
        };
        assert_eq!(full, format!("{name}{suffix}"));
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(name.starts_with("faircast_") && name.chars().all(allowed), "{name}");
        let old = values.insert(full.to_string(), value.parse().unwrap());
        assert_eq!(old, None, "{full} comes twice");
    }
    values
}

#[test]
fn metrics_can_be_read_by_prometheus_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, noise(6_000_000)).unwrap();
    let group = group();
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let [at_sender, at_receiver] = [free(), free()].map(|address| address.to_string());
    let common = ["--group", &group, "--interface", "lo", "--json"];
    let own = ["recv", "--into", &text_of(&folder.path().join("in")), "--once", "--metrics"];
    let receiver = Running::start(&[&own[..], &[&at_receiver], &common].concat());
    let own = ["send", &text_of(&file), "--rate-max", "8Mbit/s", "--metrics"];
    let sender = Running::start(&[&own[..], &[&at_sender], &common].concat());
    sender.until("progress", |event| {
        event["bytes_least"].as_u64() > Some(0) && event["rtt_seconds"].as_f64() > Some(0.0)
    });
    receiver.until_has(1);
    let mut all = Vec::new();
    for address in [&at_sender, &at_receiver] {
        let (head, body) = get(address, "GET", "/metrics");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
        all.push(openmetrics(&body));
        assert!(get(address, "GET", "/").0.starts_with("HTTP/1.1 404"));
        assert!(get(address, "POST", "/metrics").0.starts_with("HTTP/1.1 405"));
    }
    let [sent, received] = &all[..] else { panic!() };
    assert_eq!((sent["faircast_receivers"], sent["faircast_content_bytes"]), (1.0, 6e6));
    let (least, done) =
        (sent["faircast_content_least_bytes"], received["faircast_content_done_bytes"]);
    assert!(least > 0.0 && done >= least && done < 6e6, "{least} {done}: it is under way");
    assert!(sent["faircast_sent_bytes_total"] > least && sent["faircast_rtt_seconds"] > 0.0);
    assert!(sent["faircast_rate_bits_per_second"] > 1e5, "what the default scheme allows");
    assert!(received["faircast_received_packets_total"] > 100.0);
    let page = std::fs::read_to_string(root().join("docs/live.md")).unwrap();
    for name in all.iter().flat_map(BTreeMap::keys) {
        assert!(page.contains(&format!("`{name}`")), "{name} is not in docs/live.md");
    }
    let (sent, received) = (sender.end(), receiver.end());
    assert_eq!((sent.code, received.code), (Some(0), Some(0)), "{}{}", sent.err, received.err);
    let told = events("send", &sent.out);
    let rated = told.iter().filter(|event| event["rate_bits_per_s"].as_f64().is_some()).count();
    assert!(rated > 1, "progress has the rate too: {}", sent.out);
    let summary = event(&told, "summary");
    assert_eq!(summary["limits"][0]["cause"], "rate_max", "{summary}");
    assert_eq!(summary["repairs"], 0, "nothing was lost: {summary}");
    // A place that is taken is found before anything is sent.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let own = ["send", &text_of(&file), "--metrics", &taken];
    let ended = Running::start(&[&own[..], &common].concat()).end();
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{}", ended.err);
    assert!(ended.err.contains("a free port"), "{}", ended.err);
}

#[test]
fn ctrl_c_at_the_sender_is_told_to_the_receiver_and_at_the_receiver_to_the_sender() {
    for at_sender in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, noise(20_000_000)).unwrap();
        let into = text_of(&folder.path().join("in"));
        let group = group();
        let common = ["--group", &group, "--interface", "lo", "--json"];
        let receiver = Running::start(&[&["recv", "--into", &into][..], &common].concat());
        let own = ["send", &text_of(&file), "--rate-max", "10Mbit/s"];
        let sender = Running::start(&[&own[..], &common].concat());
        receiver.until_has(1);
        if at_sender { &sender } else { &receiver }.signal(Signal::SIGINT);
        if at_sender {
            let sent = sender.end();
            assert_eq!(sent.code, Some(1), "{}{}", sent.out, sent.err);
            receiver.until("gone", |_| true);
            receiver.signal(Signal::SIGINT);
            events("recv", &receiver.end().out);
        } else {
            let received = receiver.end();
            assert_eq!(received.code, Some(1), "{}{}", received.out, received.err);
            event(&events("recv", &received.out), "closed");
            let sent = sender.end();
            assert_eq!(sent.code, Some(1), "{}{}", sent.out, sent.err);
            event(&events("send", &sent.out), "left");
        }
    }
}

#[test]
fn hashes_of_many_files_are_printed_where_they_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    (0..20).for_each(|i| std::fs::write(tree.join(format!("f{i}")), [i; 10_000]).unwrap());
    let group = group();
    let common = ["--group", &group, "--interface", "lo"];
    for (name, more) in [("a", &[][..]), ("b", &["--list"])] {
        let into = text_of(&folder.path().join(name));
        let own = ["recv", "--into", &into, "--once"];
        let receiver = Running::start(&[&own[..], more, &common].concat());
        let own = ["send", &text_of(&tree), "--rate-max", "1M"];
        let sent = Running::start(&[&own[..], &common].concat()).end();
        let received = receiver.end();
        assert_eq!((sent.code, received.code), (Some(0), Some(0)), "{}{}", sent.err, received.err);
        let lines = received.out.lines().filter(|line| line.contains("/tree/f")).count();
        assert_eq!(lines, if more.is_empty() { 0 } else { 20 }, "{}", received.out);
        assert_eq!(received.out.contains("--list prints"), more.is_empty(), "{}", received.out);
        // 200 kB at 125 kB/s: it was the bound alone, and nothing was sent twice.
        assert!(sent.out.contains("with 0 repair packets and 0 parity packets"), "{}", sent.out);
        assert!(sent.out.contains("No faster because of --rate-max ("), "{}", sent.out);
    }
}

#[test]
fn the_log_tells_what_happens_and_refuses_what_it_does_not_know() {
    let folder = tempfile::tempdir().unwrap();
    let file = put(&folder, "file", "some bytes");
    let group = group();
    let common = ["--group", &group, "--interface", "lo"];
    let logged = |log: &str, arguments: &[&str]| {
        let mut command = program(&[arguments, &common].concat());
        command.env("FAIRCAST_LOG", log).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::of(command.spawn().unwrap())
    };
    let into = text_of(&folder.path().join("in"));
    let own = ["recv", "--into", &into, "--once", "--name", "r", "--log-json"];
    let receiver = logged("debug", &own);
    let sent = logged("info,session=debug,control=trace", &["send", &file]).end();
    let received = receiver.end();
    assert_eq!((sent.code, received.code), (Some(0), Some(0)), "{}{}", sent.err, received.err);
    let port = group.rsplit(':').next().unwrap();
    for want in
        ["sockets are open", &format!("127.0.0.1:{port}"), "receiver=\"r\" address=127.0.0.1:"]
    {
        assert!(sent.err.contains(want), "{want}: {}", sent.err);
    }
    for want in ["now=Done", "the representative changes", "window_milli"] {
        assert!(sent.err.contains(want), "{want}: {}", sent.err);
    }
    for line in received.err.lines() {
        let line: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(line["target"].as_str().unwrap().starts_with("faircast"), "{line}");
    }
    for want in ["a sender is heard", "\"outcome\":\"complete, 1 files\""] {
        assert!(received.err.contains(want), "{want}: {}", received.err);
    }
    for wrong in ["nonsense", "net=debug", "debug,x"] {
        let ended = logged(wrong, &["send", &file]).end();
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{wrong}: {}", ended.err);
        assert!(ended.err.contains("expected one of"), "{}", ended.err);
    }
}

#[test]
fn different_keys_are_told_at_both_ends() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text_of(&folder.path().join(name));
    for name in ["one.key", "two.key"] {
        succeed(&["key", "new", &at(name)]);
    }
    std::fs::write(at("file"), b"x").unwrap();
    let group = group();
    let common = ["--group", &group, "--interface", "lo"];
    let own = ["recv", "--into", &at("in"), "--key", &at("one.key")];
    let receiver = Running::start(&[&own[..], &common].concat());
    let own = ["send", &at("file"), "--key", &at("two.key")];
    let sender = Running::start(&[&own[..], &common].concat());
    let ids =
        ["one.key", "two.key"].map(|name| succeed(&["key", "show", &at(name)])[..6].to_string());
    for end in [sender, receiver] {
        end.until_complained("nothing can pass");
        end.signal(Signal::SIGINT);
        let ended = end.end();
        let said = ended.err.lines().find(|line| line.contains("nothing can pass")).unwrap();
        assert!(ids.iter().all(|id| said.contains(id)), "{said}");
    }
}

#[test]
fn mistakes_are_found_at_once_and_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text_of(&folder.path().join(name));
    std::fs::write(at("file"), b"x").unwrap();
    succeed(&["key", "new", &at("open.key")]);
    std::fs::set_permissions(at("open.key"), std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .unwrap();
    let group = group();
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (arguments, code, want) in [
        (&["send", "absent", "--group", &group][..], 2, "absent"),
        (&["send", &at("file"), "--group", "10.0.0.1:7500"], 2, "not a multicast address"),
        (
            &["send", &at("file"), "--group", "[ff02::9]:7500"],
            2,
            "name the network with --interface",
        ),
        (
            &["recv", "--group", "[ff02::9]:7500", "--into", &at("in"), "--once"],
            2,
            "name the network with --interface",
        ),
        (&["send", &at("file"), "--to", "239.1.2.3:7500"], 2, "use --group"),
        (&["send", &at("file"), "--to", "127.0.0.1:0"], 2, "recv --listen"),
        (&["send", &at("file"), "--to", "127.0.0.1:1,[::1]:1"], 2, "same address family"),
        (&["send", &at("file"), "--group", &group, "--receivers", "absent"], 2, "absent"),
        (
            &["send", &at("file"), "--group", &group, "--receivers", "/dev/null"],
            2,
            "one name a line",
        ),
        (&["send", &at("file"), "--group", &group, "--trace", "/"], 2, "cannot be written"),
        (&["send", &at("file"), "--group", &group, "--metrics", "192.0.2.1:9464"], 2, "this host"),
        (&["send", &at("file"), "--group", &group, "--mtu", "99999"], 2, "expected 136 to 65535"),
        (
            &["send", &at("file"), "--group", &group, "--option", "acker_bias=9"],
            2,
            "from 0.05 to 1",
        ),
        (&["send", &at("file"), "--group", &group, "--key", "absent"], 2, "`faircast key new`"),
        (
            &[
                "send",
                &at("file"),
                "--group",
                &group,
                "--rate-min",
                "2Mbit/s",
                "--rate-max",
                "1Mbit/s",
            ],
            2,
            "--rate-min is more than --rate-max",
        ),
        (
            &["send", &at("file"), "--group", &group, "--interface", "none0"],
            2,
            "interface \"none0\"; there are ",
        ),
        (&["send", &at("file"), "--group", &group, "--scheme", "tcp"], 2, "there are pgmcc"),
        (&["send", &at("file"), "--group", &group, "--option", "x=1"], 2, "\"x\" is unknown"),
        (&["send", &at("file"), "--group", &group, "--mtu", "90"], 2, "packets of 90 bytes"),
        (&["send", &at("file"), "--group", &group, "--key", &at("open.key")], 2, "chmod 600"),
        (&["send", &at("file"), "--to", "nowhere"], 2, "HOST:PORT"),
        // All that are wrong, in one go.
        (&["send", &at("file"), "--to", "nowhere,10.0.0.1:1,no:one"], 2, "; --to no:one: "),
        (&["key", "new", &at("open.key")], 2, "the file exists"),
        (&["key", "show", &at("file")], 2, "no key file"),
        (&["recv", "--listen", &taken, "--into", &at("in")], 1, "choose another"),
        (&["recv", "--listen", "127.0.0.1:7599", "--into", &at("file")], 2, "file"),
        (
            &["recv", "--once", "--group", &group, "--interface", "none0", "--into", &at("in")],
            2,
            "none0",
        ),
        (
            &["recv", "--group", &group, "--interface", "none0", "--into", &at("in")],
            2,
            "lo (127.0.0.1",
        ),
        (
            &["send", &at("file"), "--group", &group, "--option", "fec=2"],
            2,
            "--option fec=2: expected auto, off, or a share",
        ),
        (
            &["send", &at("file"), "--group", &group, "--fec", "off", "--option", "fec=0.2"],
            2,
            "say different things",
        ),
    ] {
        let ended = run_within(20, arguments);
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}{}", ended.out, ended.err);
        assert!(ended.err.contains(want), "{arguments:?}: {}", ended.err);
        assert_eq!(ended.err.lines().count(), 1, "{arguments:?}: {}", ended.err);
    }
}

#[test]
fn a_receiver_that_hears_nobody_gives_up() {
    let folder = tempfile::tempdir().unwrap();
    let (into, group) = (text_of(&folder.path().join("in")), group());
    let own = ["recv", "--group", &group, "--interface", "lo", "--into", &into];
    let ended = run_within(20, &[&own[..], &["--once", "--give-up", "1s"]].concat());
    assert_eq!(ended.code, Some(1), "{}{}", ended.out, ended.err);
    assert!(ended.err.contains("no sender was heard"), "{}", ended.err);
}
