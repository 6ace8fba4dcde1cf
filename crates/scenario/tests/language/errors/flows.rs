//! Mistakes in flows: senders, receivers, times and protocols.

use super::*;

#[test]
fn an_option_that_stands_beside_the_options_is_told_where_it_belongs() {
    check(&[(
        "from = \"ms\"",
        "acker_bias = 0.5\nfrom = \"ms\"",
        "t.toml:33: flow.0.acker_bias: \"acker_bias\" is an option of \"pgmcc\"",
        "options = { acker_bias = ",
    )]);
    let set = parse_with(GOOD, &["flow.mcc.acker_bias=0.5"]).unwrap_err().to_string();
    assert!(set.contains("is an option of \"pgmcc\""), "{set}");
    let other = parse_with(GOOD, &["flow.mcc.aker_bias=0.5"]).unwrap_err().to_string();
    assert!(other.contains("unknown key \"aker_bias\""), "{other}");
}

#[test]
fn flows_are_checked() {
    check(&[
        (
            "\"pgmcc\"",
            "\"pgmc\"",
            "t.toml:32: flow.0.protocol: unknown protocol \"pgmc\"",
            "(did you mean \"pgmcc\"?); allowed: pgmcc, tcp-reno",
        ),
        (
            "from = \"ms\"",
            "from = \"mss\"",
            "t.toml:33: flow.0.from: there is no node \"mss\"",
            "did you mean \"ms\"?",
        ),
        (
            "\"mr1\", \"mr2\", \"mr3\"]",
            "\"mr1\", \"mr4\"]",
            "t.toml:34: flow.0.to.1: ",
            "there is no node \"mr4\"",
        ),
        (
            "\"mr1\", \"mr2\", \"mr3\"]",
            "\"mr{1..4}\"]",
            "t.toml:34: flow.0.to.0: ",
            "there is no node \"mr4\"",
        ),
        (
            "\"mr1\", \"mr2\", \"mr3\"]",
            "\"mr1\", \"ms\"]",
            "t.toml:34: flow.0.to.1: \"ms\" is the sender too",
            "allowed",
        ),
        (
            "\"mr1\", \"mr2\", \"mr3\"]",
            "\"mr1\", \"mr1\"]",
            "t.toml:34: flow.0.to.1: \"mr1\" is named twice",
            "once",
        ),
        ("[\"mr1\", \"mr2\", \"mr3\"]", "[]", "t.toml:34: flow.0.to: ", "at least one name"),
        (
            "[\"mr1\", \"mr2\", \"mr3\"]",
            "{}",
            "t.toml:34: flow.0.to: is a table",
            "a list of names",
        ),
        (
            "to = [\"tr\"]",
            "to = [\"tr\", \"mr1\"]",
            "t.toml:47: flow.1.to: names 2 receivers",
            "exactly one",
        ),
        (
            "from = \"ms\"",
            "from = [\"ms\", \"ts\"]",
            "t.toml:33: flow.0.from: names 2 senders",
            "exactly one",
        ),
        (
            "from = \"ms\"",
            "from = [\"ms\", \"ms\"]",
            "t.toml:33: flow.0.from.1: \"ms\" is named twice",
            "each sender once",
        ),
        ("from = \"ms\"", "from = []", "t.toml:33: flow.0.from: ", "at least one name"),
        (
            "name = \"mcc\"",
            "name = \"tcp-2\"",
            "t.toml:44: flow.1.name: \"tcp-2\" is the name",
            "allowed",
        ),
        ("name = \"mcc\"\n", "", "t.toml:30: flow.0.name: is missing", "mcc"),
        ("count = 2", "count = 0", "t.toml:50: flow.1.count: is 0", "from 1 to 100000"),
        ("count = 2", "count = 100001", "t.toml:50: flow.1.count: is 100001", "from 1 to 100000"),
        (
            "count = 2",
            "count = 100000",
            "t.toml:50: flow.1.count: makes more flows",
            "at most 100000",
        ),
        (
            "stop = \"200 s\"",
            "stop = \"5 s\"",
            "t.toml:38: flow.0.stop: is \"5 s\"",
            "after the start at 5 s",
        ),
        (
            "start = \"1 s\"",
            "start = \"300 s\"",
            "t.toml:48: flow.1.start: is \"300 s\"",
            "before the end of the run at 300 s",
        ),
        (
            "[\"0 s\", \"5 s\"]",
            "[\"5 s\", \"0 s\"]",
            "t.toml:37: flow.0.start.uniform: ",
            "the earlier one first",
        ),
        (
            "[\"0 s\", \"5 s\"]",
            "[\"0 s\", \"500 s\"]",
            "t.toml:37: flow.0.start.uniform.1: ",
            "before the end",
        ),
        (
            "\"unlimited\"",
            "{ file = \"no/such/file\" }",
            "t.toml:39: flow.0.data.file: is \"no/such/file\", which cannot be read",
            "relative to the scenario",
        ),
        (
            "\"unlimited\"",
            "{ file = \"/\" }",
            "t.toml:39: flow.0.data.file: is \"/\", which is not a file",
            "relative",
        ),
        (
            "acker_bias = 0.6666",
            "acker_bias = 7",
            "t.toml:41: flow.0.options.acker_bias: is 7",
            "a number from 0 to 1",
        ),
        (
            "acker_bias = 0.6666",
            "profile = \"drft\"",
            "t.toml:41: flow.0.options.profile: ",
            "one of paper, draft",
        ),
        (
            "timeout = \"4 s\"",
            "timeout = \"4\"",
            "t.toml:41: flow.0.options.timeout: ",
            "has no unit",
        ),
        (
            "timeout = \"4 s\"",
            "timeout = \"4000 s\"",
            "t.toml:41: flow.0.options.timeout: ",
            "from 0.001 s to 60 s",
        ),
        (
            "timeout = \"4 s\"",
            "timeout = [4]",
            "t.toml:41: flow.0.options.timeout: is a list",
            "number",
        ),
        (
            "count = 2",
            "options = { cwnd = 3 }",
            "t.toml:50: flow.1.options.cwnd: unknown key",
            "allowed: none",
        ),
    ]);
}

#[test]
fn memberships_are_checked() {
    check(&[
        (
            "node = \"mr3\"",
            "node = \"tr\"",
            "t.toml:40: flow.0.join.0.node: \"tr\" is no receiver",
            "listed in to",
        ),
        (
            "node = \"mr3\"",
            "node = \"mr33\"",
            "t.toml:40: flow.0.join.0.node: there is no node",
            "\"mr3\"?",
        ),
        ("at = \"20 s\", leave", "leave", "t.toml:40: flow.0.join.0.at: is missing", "20 s"),
        (
            "leave = \"40 s\"",
            "leave = \"20 s\"",
            "t.toml:40: flow.0.join.0.leave: is \"20 s\"",
            "after joining at 20 s",
        ),
        (
            "at = \"20 s\"",
            "at = \"300 s\"",
            "t.toml:40: flow.0.join.0.at: is \"300 s\"",
            "before the end",
        ),
        (
            "leave = \"40 s\" }",
            "leave = \"40 s\" }, { node = \"mr3\", at = \"30 s\" }",
            "t.toml:40: flow.0.join.1.node: \"mr3\" is still a member then",
            "after leaving",
        ),
        (
            ", leave = \"40 s\" }",
            " }, { node = \"mr3\", at = \"30 s\" }",
            "t.toml:40: flow.0.join.1.node: \"mr3\" is still a member",
            "after leaving",
        ),
        (
            "count = 2",
            "join = [ { node = \"tr\", at = \"1 s\" } ]",
            "t.toml:50: flow.1.join: is of no use to tcp-reno",
            "multicast",
        ),
    ]);
}

#[test]
fn who_speaks_another_scheme_is_a_receiver_and_it_is_a_scheme() {
    let speaks = "join = [ { node = \"mr3\", at = \"20 s\", leave = \"40 s\" } ]";
    check(&[
        (
            speaks,
            "speaks = [ { node = \"tr\", protocol = \"pgmcc\" } ]",
            "t.toml:40: flow.0.speaks.0.node: \"tr\" is no receiver",
            "listed in to",
        ),
        (
            speaks,
            "speaks = [ { node = \"mr{1..2}\", protocol = \"pgmcc\" }, { node = \"mr2\", protocol = \"pgmcc\" } ]",
            "t.toml:40: flow.0.speaks.1.node: \"mr2\" is named twice",
            "once",
        ),
        (
            speaks,
            "speaks = [ { node = \"mr1\", protocol = \"tcp-reno\" } ]",
            "t.toml:40: flow.0.speaks.0.protocol: unknown scheme \"tcp-reno\"",
            "allowed: pgmcc",
        ),
        (
            speaks,
            "speaks = [ { node = \"mr1\" } ]",
            "t.toml:40: flow.0.speaks.0.protocol: is missing",
            "NAME",
        ),
        (
            "count = 2",
            "speaks = [ { node = \"tr\", protocol = \"pgmcc\" } ]",
            "t.toml:50: flow.1.speaks: is of no use to tcp-reno",
            "schemes",
        ),
    ]);
}

#[test]
fn receivers_must_be_reachable_and_able_to_answer() {
    let far =
        "[[link]]\nfrom = \"far\"\nto = \"r2\"\nrate = \"1 Mbit/s\"\ndelay = \"1 ms\"\n\n[[node]]";
    let text = GOOD.replacen("[[node]]", far, 1);
    let text = text.replacen("to = [\"mr1\",", "to = [\"far\",", 1);
    let line = parse(&text).unwrap_err().to_string();
    let want = "t.toml:40: flow.0.to.0: no path of links leads from \"ms\" to \"far\"; ";
    assert!(line.starts_with(want), "{line}");

    let text = text.replacen("from = \"far\"\nto = \"r2\"", "from = \"r2\"\nto = \"far\"", 1);
    let line = parse(&text).unwrap_err().to_string();
    let want = "t.toml:40: flow.0.to.0: no path of links leads back from \"far\" to \"ms\"; ";
    assert!(line.starts_with(want), "{line}");

    // A protocol without answers needs no return path.
    let text = text.replacen("protocol = \"pgmcc\"", "protocol = \"cbr\"", 1);
    let text = text.replacen("options = { acker_bias = 0.6666, timeout = \"4 s\" }", "", 1);
    parse(&text).unwrap();
}

#[test]
fn many_senders_are_checked() {
    let talk = |from: &str, to: &str, more: &str| {
        let flow = format!(
            "[[flow]]\nname = \"talk\"\nprotocol = \"cbr\"\nfrom = {from}\nto = {to}\n{more}"
        );
        parse(&format!("{GOOD}\n{flow}")).map(|scenario| scenario.flows[3].clone())
    };
    let all = "[\"mr{1..3}\", \"tr\"]";
    let flow = talk("[\"mr1\", \"ms\", \"mr2\"]", all, "data = \"1 kB\"").unwrap();
    let name = |node: faircast_base::NodeId| parse(GOOD).unwrap().nodes[node.index()].name.clone();
    let ends: Vec<_> = flow.ends().map(name).collect();
    assert_eq!(ends, ["mr1", "ms", "mr2", "mr3", "tr"]);
    assert_eq!(flow.to.iter().map(|to| flow.heard_at(*to)).collect::<Vec<_>>(), [2, 2, 3, 3]);
    let again = |node: &str| {
        let first = format!("{{ node = \"{node}\", at = \"1 s\", leave = \"3 s\" }}");
        format!("join = [{first}, {{ node = \"{node}\", at = \"4 s\" }}]")
    };
    talk("[\"mr1\", \"mr2\"]", all, &again("mr3")).unwrap();
    let sender = "flow.2.join.1.node: \"mr2\" is a sender of this flow; allowed: to join once";
    for (from, to, more, complaint) in [
        ("\"mr1\"", "[\"mr1\", \"mr2\"]", "", "\"mr1\" is the sender too"),
        ("[\"mr1\", \"nobody\"]", all, "", "there is no node \"nobody\""),
        ("[\"mr1\", \"mr2\"]", all, "data = { file = \"Cargo.toml\" }", "several senders"),
        ("[\"mr1\", \"mr2\"]", all, &again("mr2"), sender),
    ] {
        let error = talk(from, to, more).unwrap_err().to_string();
        assert!(error.contains(complaint), "{error}");
    }
    let one_way = "[[link]]\nfrom = \"tr\"\nto = \"deaf\"\nrate = \"1 Mbit/s\"\ndelay = \"1 ms\"\n\
        [[flow]]\nname = \"talk\"\nprotocol = \"cbr\"\nfrom = [\"mr1\", \"deaf\"]\nto = [\"mr1\", \"mr2\"]";
    let error = parse(&format!("{GOOD}\n{one_way}")).unwrap_err().to_string();
    assert!(error.contains("no path of links leads from \"deaf\" to \"mr1\""), "{error}");
}
