//! Relay nodes, flows through them, and faults of nodes.

use std::path::Path;

use faircast_base::{Duration, NodeId, Time};
use faircast_scenario::{Catalog, FaultKind, Overrides, Scenario, ScenarioError};

use crate::catalog;

const TREE: &str = r#"title = "Does it hold?"
duration = "60 s"
[[link]]
star = { center = "r1", leaves = ["s", "r2", "x"] }
rate = "1 Mbit/s"
delay = "1 ms"
[[link]]
star = { center = "r2", leaves = ["m{1..3}"] }
rate = "1 Mbit/s"
delay = "1 ms"
[[link]]
from = "r1"
to = "dead-end"
rate = "1 Mbit/s"
delay = "1 ms"
[[relay]]
node = "r2"
parents = "r1"
options = { suppress = false }
[[relay]]
node = "r1"
[[flow]]
name = "f"
protocol = "credit"
from = "s"
to = ["m{1..3}"]
via = [ { node = "s", relays = "r1" }, { node = "m{1..3}", relays = ["r2", "r1"] } ]
[[flow]]
name = "beside"
protocol = "tcp-reno"
from = "x"
to = "m1"
[[fault]]
node = ["r2", "m1"]
at = "20 s"
stop = "8 s"
[[fault]]
node = "r2"
at = "10 s"
restart = "3 s"
"#;

fn read(text: &str) -> Result<Scenario, ScenarioError> {
    let Catalog { mut protocols, .. } = catalog();
    protocols.push(faircast_proto::catalog::stack("credit").unwrap());
    let catalog = Catalog { protocols, ..catalog() };
    Scenario::parse(Path::new("t.toml"), text, &Overrides::default(), &catalog)
}

#[test]
fn programs_flows_through_them_and_faults_are_read() {
    let scenario = read(TREE).unwrap();
    let node = |name: &str| {
        NodeId(scenario.nodes.iter().position(|node| node.name == name).unwrap() as u32)
    };
    let [r2, r1] = &scenario.relays[..] else { panic!("{:?}", scenario.relays) };
    assert_eq!((r2.node, &r2.parents[..]), (node("r2"), &[node("r1")][..]));
    assert_eq!(r2.options.bool("suppress"), Some(false));
    assert_eq!((r1.node, r1.parents.len()), (node("r1"), 0));
    let flow = &scenario.flows[0];
    assert_eq!(flow.via.len(), 4);
    assert_eq!(flow.via[&node("m3")], [node("r2"), node("r1")]);
    assert_eq!(flow.options.integer("credit_buffer"), Some(96), "as through real relays");
    assert!(scenario.flows[1].via.is_empty());
    let faults: Vec<_> = scenario.faults.iter().map(|it| (it.at, it.node, it.kind)).collect();
    let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
    let stop = FaultKind::Stop(Duration::from_secs(8));
    let restart = FaultKind::Restart(Duration::from_secs(3));
    let want =
        [(at(10), node("r2"), restart), (at(20), node("r2"), stop), (at(20), node("m1"), stop)];
    assert_eq!(faults, want);
}

#[test]
fn mistakes_of_relays_and_faults_are_named() {
    let via = "via = [ { node = \"s\", relays = \"r1\" }, ";
    for (old, new, problem) in [
        (
            "parents = \"r1\"",
            "parents = \"s\"",
            "relay.0.parents: \"s\" is no relay; allowed: a node",
        ),
        ("parents = \"r1\"", "parents = \"r2\"", "\"r2\" would be above itself"),
        ("parents = \"r1\"", "parents = [\"r1\", \"r1\"]", "\"r1\" is named twice"),
        ("node = \"r1\"", "node = \"dead-end\"", "\"r1\" is no relay"),
        (
            "node = \"r1\"\n",
            "node = [\"r1\", \"r2\"]\n",
            "relay.1.node.1: \"r2\" is a relay already",
        ),
        ("suppress", "supress", "did you mean \"suppress\"?"),
        (via, "via = [ ", "names no relays of \"s\"; expected all ends"),
        (via, "via = [ { node = \"x\", relays = \"r1\" }, ", "\"x\" is no end of this flow"),
        ("relays = \"r1\" }", "relays = \"m1\" }", "\"m1\" is no relay"),
        (
            "protocol = \"credit\"",
            "protocol = \"tram\"",
            "relays pass on sessions under credits: credit",
        ),
        (
            "protocol = \"credit\"",
            "protocol = \"credit\"\nheader = \"0 B\"",
            "flow.0.header: is of no use",
        ),
        ("stop = \"8 s\"", "stop = \"8 s\"\nkill = true", "expected exactly one of stop"),
        ("stop = \"8 s\"", "", "expected exactly one of stop"),
        ("stop = \"8 s\"", "kill = false", "fault.0.kill: is false; expected true"),
        ("at = \"20 s\"", "at = \"60 s\"", "a moment before the end of the run"),
        ("node = [\"r2\", \"m1\"]", "node = \"dead-end\"", "\"dead-end\" has no program"),
        (
            "node = \"r2\"\nat = \"10 s\"",
            "node = \"s\"\nat = \"10 s\"",
            "\"s\" is a sender, which cannot",
        ),
        (
            "node = [\"r2\", \"m1\"]\nat = \"20 s\"\nstop = \"8 s\"",
            "node = \"x\"\nat = \"20 s\"\nmove = true",
            "\"x\" is behind no relay",
        ),
    ] {
        assert!(TREE.contains(old), "the tree has no {old}");
        let error = read(&TREE.replacen(old, new, 1)).expect_err(new).to_string();
        assert!(error.contains(problem) && !error.contains('\n'), "{new}: {error}");
    }
    let text = TREE.replacen("node = \"r1\"\n", "node = [\"r1\", \"dead-end\"]\n", 1);
    let text = text.replacen("parents = \"r1\"", "parents = \"dead-end\"", 1);
    let error = read(&text).unwrap_err().to_string();
    assert!(error.contains("no path of links joins \"r2\" and \"dead-end\""), "{error}");
    let second = TREE.split("[[flow]]").nth(1).unwrap().replacen("\"f\"", "\"g\"", 1);
    let error = read(&format!("{TREE}[[flow]]{second}")).unwrap_err().to_string();
    assert!(error.contains("\"s\" is an end of \"f\"; allowed: one flow"), "{error}");
}
