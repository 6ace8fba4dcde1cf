//! Daemons of the overlay and their clients.

use std::path::Path;

use faircast_base::{Bitrate, Duration, Time};
use faircast_overlay::Service;
use faircast_scenario::{Overrides, Scenario, ScenarioError};

use crate::catalog;

const SITES: &str = r#"title = "Does it hold?"
duration = "60 s"
[[link]]
star = { center = "net", leaves = ["d{1..3}"] }
rate = "1 Mbit/s"
delay = "1 ms"
[[daemon]]
node = "d{1..3}"
peers = "d1"
[[client]]
name = "reader"
node = ["d1", "d3"]
groups = ["a", "b"]
join = [ { group = "c", at = "5 s", leave = "9 s" } ]
[[client]]
name = "writer"
node = "d2"
count = 2
start = "2 s"
send = { groups = "a", service = "safe", size = "100 B", rate = "8 kbit/s", stop = "50 s" }
[[fault]]
node = "d2"
at = "20 s"
restart = "3 s"
"#;

fn read(text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse(Path::new("t.toml"), text, &Overrides::default(), &catalog())
}

#[test]
fn daemons_and_clients_are_read() {
    let scenario = read(SITES).unwrap();
    let [first, second, third] = &scenario.daemons[..] else { panic!("{:?}", scenario.daemons) };
    assert_eq!((first.peers.len(), &second.peers[..]), (0, &[first.node][..]));
    let clients = scenario.clients();
    let named = |it: &(_, &faircast_scenario::ClientSpec)| (it.0, it.1.name.clone());
    let names: Vec<_> = clients.iter().map(named).collect();
    let expected = [
        (first.node, "reader-d1"),
        (third.node, "reader-d3"),
        (second.node, "writer-1"),
        (second.node, "writer-2"),
    ];
    assert_eq!(names, expected.map(|(node, name)| (node, name.to_string())));
    let at = |s| Time::ZERO + Duration::from_secs(s);
    let stays: Vec<_> = clients[0].1.stays.iter().map(|it| (&*it.group, it.at, it.leave)).collect();
    let expected = [("a", at(0), None), ("b", at(0), None), ("c", at(5), Some(at(9)))];
    assert_eq!(stays, expected);
    let send = clients[2].1.send.as_ref().unwrap();
    assert_eq!((send.service, send.size.count()), (Service::Safe, 100));
    assert_eq!((send.rate, send.start), (Some(Bitrate::from_bits_per_s(8000)), at(2)));
    assert_eq!(send.stop, Some(at(50)));
}

#[test]
fn mistakes_are_named() {
    let cases = [
        ("peers = \"d1\"", "peers = \"net\"", "runs no daemon; allowed: a node of a [[daemon]]"),
        ("node = \"d2\"\ncount", "node = \"d9\"\ncount", "d9"),
        ("name = \"writer\"", "name = \"reader-d\"\nstop = \"1 s\"", "a moment after the start"),
        ("count = 2", "count = 0", "a whole number from 1"),
        ("service = \"safe\"", "service = \"sage\"", "unknown service"),
        ("size = \"100 B\"", "size = \"20 B\"", "28 B"),
        ("groups = \"a\"", "groups = []", "has 0 groups; allowed: 1 to 100"),
        ("at = \"5 s\"", "at = \"9 s\"", "a moment after at"),
        ("node = \"d2\"\nat", "node = \"net\"\nat", "has no program"),
        ("node = \"d{1..3}\"", "node = [\"d{1..3}\", \"d2\"]", "runs a daemon or relay already"),
        ("groups = [\"a\", \"b\"]", "group = \"a\"", "unknown key"),
        (
            "name = \"writer\"\nnode = \"d2\"\ncount = 2",
            "name = \"reader-d1\"\nnode = \"d2\"",
            "twice",
        ),
    ];
    for (from, to, expected) in cases {
        assert!(SITES.contains(from), "{from}");
        let error = read(&SITES.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(expected), "{to}: {error}");
    }
}
