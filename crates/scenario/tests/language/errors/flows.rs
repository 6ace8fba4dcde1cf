//! Mistakes in flows: senders, receivers, times and protocols.

use super::*;

#[test]
fn an_option_that_stands_beside_the_options_is_told_where_it_belongs() {
    let set = parse_with(GOOD, &["flow.mcc.acker_bias=0.5"]).unwrap_err().to_string();
    assert!(set.contains("is an option of \"pgmcc\""), "{set}");
    let other = parse_with(GOOD, &["flow.mcc.aker_bias=0.5"]).unwrap_err().to_string();
    assert!(other.contains("unknown key \"aker_bias\""), "{other}");
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
