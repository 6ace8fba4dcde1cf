//! Mistakes: each is one line with the file, the line, the key, the value and what is allowed.

mod flows;

use std::path::Path;
use std::time::Instant;

use faircast_proto::options::{OptionKind, OptionSpec};
use faircast_proto::stack::{Alone, TransportEntry};
use faircast_scenario::{Overrides, Scenario};

use crate::{GOOD, catalog, parse, parse_with, stack};

fn message(old: &str, new: &str) -> String {
    assert!(GOOD.contains(old), "the good scenario has no {old}");
    let text = GOOD.replacen(old, new, 1);
    let error = parse(&text).err().unwrap_or_else(|| panic!("{new:?} was accepted"));
    let line = error.to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

type Case = (&'static str, &'static str, &'static str, &'static str);

fn check(cases: &[Case]) {
    for (old, new, start, more) in cases {
        let line = message(old, new);
        assert!(line.starts_with(start), "{new:?}\n  want {start}\n  got  {line}");
        assert!(line.contains(more), "{new:?}\n  want {more}\n  got  {line}");
    }
}

#[test]
fn the_good_scenario_is_good() {
    let scenario = parse(GOOD).unwrap();
    assert_eq!((scenario.nodes.len(), scenario.links.len(), scenario.flows.len()), (8, 14, 3));
}

#[test]
fn broken_toml_is_refused_at_its_line() {
    check(&[
        ("seed = 7", "seed = ", "t.toml:4: not valid TOML: ", "allowed"),
        ("seed = 7", "seed = 7\nseed = 8", "t.toml:5: not valid TOML: duplicate key", "\"seed\""),
        ("[[node]]", "[[node]", "t.toml:25: not valid TOML: ", "allowed"),
        ("\"300 s\"", "\"300 s", "t.toml:2: not valid TOML: ", "allowed"),
        ("delay = \"50 ms\"", "delay = \"50 ms\"\ndelay = \"1 s\"", "t.toml:10: ", "duplicate"),
        ("seed = 7", "seed = 99999999999999999999", "t.toml:4: seed: ", "from 0 to"),
        ("seed = 7", "seed = 2026-01-01", "t.toml:4: seed: is the date", "a whole number"),
    ]);
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_valid_one() {
    check(&[
        ("warmup", "warm_up", "t.toml:3: warm_up: unknown key", "did you mean \"warmup\"?"),
        ("rate =", "rat =", "t.toml:8: link.0.rat: unknown key", "did you mean \"rate\"?"),
        ("packets =", "pakets =", "t.toml:10: link.0.queue.pakets: unknown key", "\"packets\"?"),
        ("weight =", "weigth =", "t.toml:23: link.2.queue.weigth: unknown", "\"weight\"?"),
        (
            "{ at = \"50 s\", rate",
            "{ at = \"50 s\", rte",
            "t.toml:12: link.0.changes.0.rte: ",
            "\"rate\"?",
        ),
        ("center", "centre", "t.toml:15: link.1.star.centre: ", "did you mean \"center\"?"),
        ("name = \"r2\"", "nam = \"r2\"", "t.toml:26: node.0.nam: ", "did you mean \"name\"?"),
        ("suppress", "supress", "t.toml:28: node.0.options.supress: ", "\"suppress\"?"),
        ("protocol =", "protocoll =", "t.toml:32: flow.0.protocoll: ", "\"protocol\"?"),
        ("uniform", "unifrom", "t.toml:37: flow.0.start.unifrom: ", "\"uniform\"?"),
        ("leave =", "leaves =", "t.toml:40: flow.0.join.0.leaves: ", "\"leave\"?"),
        ("acker_bias", "acker_bais", "t.toml:41: flow.0.options.acker_bais: ", "\"acker_bias\"?"),
        ("[[node]]", "[[nodes]]", "t.toml:25: nodes: unknown key", "did you mean \"node\"?"),
    ]);
}

#[test]
fn quantities_need_a_unit_and_a_sensible_value() {
    check(&[
        ("\"300 s\"", "\"300\"", "t.toml:2: duration: \"300\" has no unit", "\"50 ms\""),
        ("\"300 s\"", "300", "t.toml:2: duration: \"300\" has no unit", "\"50 ms\""),
        ("\"300 s\"", "\"0 s\"", "t.toml:2: duration: is \"0 s\"", "864000 s"),
        ("\"300 s\"", "\"8766000 h\"", "t.toml:2: duration: is \"8766000 h\"", "864000 s"),
        ("\"300 s\"", "\"1000 years\"", "t.toml:2: duration: ", "has an unknown unit"),
        (
            "\"300 s\"",
            "\"99999999999999999 h\"",
            "t.toml:2: duration: is \"99999999999999999 h\"",
            "to 864000 s",
        ),
        ("\"300 s\"", "true", "t.toml:2: duration: is true", "a duration such as"),
        (
            "\"10 s\"",
            "\"300 s\"",
            "t.toml:3: warmup: is \"300 s\"",
            "less than the duration of 300 s",
        ),
        ("\"500 kbit/s\"", "\"-5 kbit/s\"", "t.toml:8: link.0.rate: ", "must not be negative"),
        ("\"500 kbit/s\"", "\"0 bit/s\"", "t.toml:8: link.0.rate: is \"0 bit/s\"", "from 1 bit/s"),
        ("\"500 kbit/s\"", "\"500 kbps\"", "t.toml:8: link.0.rate: ", "Mbit/s"),
        ("\"500 kbit/s\"", "\"9999 Gbit/s\"", "t.toml:8: link.0.rate: ", "to 1000 Gbit/s"),
        (
            "\"500 kbit/s\"",
            "\"99999999999999 Gbit/s\"",
            "t.toml:8: link.0.rate: is \"99999999999999 Gbit/s\"",
            "to 1000 Gbit/s",
        ),
        ("\"50 ms\"", "\"2000 s\"", "t.toml:9: link.0.delay: is \"2000 s\"", "to 1000 s"),
        ("\"50 ms\"", "[\"50 ms\"]", "t.toml:9: link.0.delay: is a list", "a duration such as"),
        ("\"1400 B\"", "\"0 B\"", "t.toml:35: flow.0.packet: is \"0 B\"", "from 1 B to 65 kB"),
        ("\"1400 B\"", "\"65001 B\"", "t.toml:35: flow.0.packet: is \"65001 B\"", "to 65 kB"),
        ("\"1400 B\"", "1400", "t.toml:35: flow.0.packet: \"1400\" has no unit", "\"1400 B\""),
        ("\"0 B\"", "\"2 kB\"", "t.toml:36: flow.0.header: is \"2 kB\"", "from 0 B to 1 kB"),
        ("\"30 MB\"", "\"0 MB\"", "t.toml:49: flow.1.data: is \"0 MB\"", "from 1 B"),
        ("\"30 MB\"", "\"30\"", "t.toml:49: flow.1.data: \"30\" has no unit", "units"),
        ("\"30 MB\"", "\"endless\"", "t.toml:49: flow.1.data: is \"endless\"", "\"unlimited\""),
        ("seed = 7", "seed = -7", "t.toml:4: seed: is -7", "a whole number from 0"),
        ("title = \"", "title = \"\"#", "t.toml:1: title: is \"\"", "one line"),
        ("\"Do", "\"D\u{202e}o", "t.toml:1: title: is \"D\\u202eo", "printed characters"),
        ("\"Do", "\"D\u{2028}o", "t.toml:1: title: is \"D\\u2028o", "printed characters"),
        ("\"r1\"", "\"r\u{2066}1\"", "t.toml:7: link.0.between.0: is \"r\\u20661", "\"r\\u20661\""),
    ]);
}

#[test]
fn what_is_spelled_as_elsewhere_gets_the_right_spelling() {
    check(&[
        (
            "\"500 kbit/s\"",
            "\"500 Kbps\"",
            "t.toml:8: link.0.rate: \"500 Kbps\" has an unknown unit (did you mean \"500 kbit/s\"?)",
            "expected a rate such as",
        ),
        (
            "\"300 s\"",
            "\"5 minutes\"",
            "t.toml:2: duration: \"5 minutes\" has an unknown unit (did you mean \"5 min\"?)",
            "expected a duration such as",
        ),
        (
            "timeout = \"4 s\"",
            "timeout = \"4 seconds\"",
            "t.toml:41: flow.0.options.timeout: \"4 seconds\" has an unknown unit",
            "(did you mean \"4 s\"?)",
        ),
        (
            "[\"mr{1..3}\", \"tr\"]",
            "[\"mr[1-3]\", \"tr\"]",
            "t.toml:20: link.2.star.leaves.0: is \"mr[1-3]\" (did you mean \"mr{1..3}\"?)",
            "expected a name of",
        ),
        (
            "\"mr1\", \"mr2\", \"mr3\"]",
            "\"mr{1-3}\"]",
            "t.toml:34: flow.0.to.0: is \"mr{1-3}\" (did you mean \"mr{1..3}\"?)",
            "expected one range",
        ),
        (
            "\"mr1\", \"mr2\", \"mr3\"]",
            "\"mr1-3\"]",
            "t.toml:34: flow.0.to.0: there is no node \"mr1-3\" (did you mean \"mr{1..3}\"?)",
            "allowed",
        ),
        (
            "\"mr1\", \"mr2\", \"mr3\"]",
            "\"mr1..mr9\"]",
            "t.toml:34: flow.0.to.0: there is no node \"mr1..mr9\"",
            "allowed",
        ),
    ]);
    let set = |set: &str| parse_with(GOOD, &[set]).unwrap_err().to_string();
    let line = set("link.0.rate=1 Mbps");
    assert!(line.contains("link.0.rate: \"1 Mbps\" has an unknown unit"), "{line}");
    assert!(line.contains("(did you mean \"1 Mbit/s\"?)"), "{line}");
}

#[test]
fn an_unknown_option_of_many_gets_the_nearest_name_and_not_all_of_them() {
    let (mut many, names) =
        (catalog(), ["acker_bias", "rate_max", "rate_min", "window_max", "a", "b"]);
    let of = |name| OptionSpec { name, kind: OptionKind::Bool, default: "true", doc: "" };
    let mut options: Vec<OptionSpec> = names.map(of).to_vec();
    options.extend(["c", "d", "e"].map(of));
    let before = many.protocols[0].transport;
    let alone = before.alone.map(|alone| Alone { options: Vec::leak(options), ..alone });
    many.protocols[0] = stack(TransportEntry { alone, ..*before });
    let line = |key: &str| {
        let text =
            GOOD.replacen("acker_bias = 0.6666, timeout = \"4 s\"", &format!("{key} = 1"), 1);
        let error = Scenario::parse(Path::new("t.toml"), &text, &Overrides::default(), &many);
        error.unwrap_err().to_string()
    };
    let start = "t.toml:41: flow.0.options";
    for (key, want) in [
        ("aker_bias", "aker_bias: unknown key \"aker_bias\" (did you mean \"acker_bias\"?)"),
        ("window", "window: unknown key \"window\" (did you mean \"window_max\"?)"),
        ("colouring", "colouring: unknown key \"colouring\""),
    ] {
        let want = format!("{start}.{want}; \"faircast schemes pgmcc\" lists all 9");
        assert_eq!(line(key), want);
    }
}

#[test]
fn links_are_checked() {
    check(&[
        ("loss = 0.0", "loss = 1.5", "t.toml:11: link.0.loss: is 1.5", "from 0 to 1"),
        ("loss = 0.0", "loss = -0.1", "t.toml:11: link.0.loss: is -0.1", "from 0 to 1"),
        ("loss = 0.0", "loss = nan", "t.toml:11: link.0.loss: is NaN", "from 0 to 1"),
        ("loss = 0.0", "loss = \"1 %\"", "t.toml:11: link.0.loss: is \"1 %\"", "from 0 to 1"),
        ("rate = \"500 kbit/s\"", "", "t.toml:6: link.0.rate: is missing", "10 Mbit/s"),
        ("between = [\"r1\", \"r2\"]", "", "t.toml:6: link.0: has no ends", "between"),
        (
            "between = [\"r1\", \"r2\"]",
            "to = \"r1\"",
            "t.toml:6: link.0.from: is missing",
            "\"r1\"",
        ),
        (
            "between = [\"r1\", \"r2\"]",
            "between = [\"r1\", \"r1\"]",
            "t.toml:7: link.0.between: links \"r1\" to itself",
            "different",
        ),
        (
            "between = [\"r1\", \"r2\"]",
            "between = [\"r1\"]",
            "t.toml:7: link.0.between: ",
            "exactly two",
        ),
        (
            "between = [\"r1\", \"r2\"]",
            "between = [\"r{1..3}\"]",
            "t.toml:7: link.0.between: ",
            "exactly two",
        ),
        (
            "between = [\"r1\", \"r2\"]",
            "between = [\"r1\", 2]",
            "t.toml:7: link.0.between.1: is 2",
            "text",
        ),
        (
            "between = [\"r1\", \"r2\"]",
            "between = [\"r1\", \"r 2\"]",
            "t.toml:7: link.0.between.1: is \"r 2\"",
            "letters",
        ),
        (
            "star = { center = \"r1\", leaves = [\"ms\", \"ts\"] }",
            "between = [\"r2\", \"r1\"]",
            "t.toml:15: link.1.between: is a second link from \"r2\" to \"r1\", after that of line 7",
            "one in each",
        ),
        (
            "[\"ms\", \"ts\"]",
            "[\"ms\", \"ms\"]",
            "t.toml:15: link.1.star.leaves.1: is a second link from \"r1\" to \"ms\"",
            "line 15",
        ),
        (
            "[\"ms\", \"ts\"]",
            "[\"ms\", \"r1\"]",
            "t.toml:15: link.1.star.leaves.1: links \"r1\" to itself",
            "different",
        ),
        ("[\"ms\", \"ts\"]", "[]", "t.toml:15: link.1.star.leaves: is a list", "at least one name"),
        (
            "[\"ms\", \"ts\"]",
            "[\"x{1..200000}\"]",
            "t.toml:15: link.1.star.leaves.0: makes more",
            "at most 200000",
        ),
        (
            "[\"ms\", \"ts\"]",
            "[\"x{1..200001}\"]",
            "t.toml:15: link.1.star.leaves.0: is \"x{1..200001}\"",
            "200000 names",
        ),
        (
            "[\"ms\", \"ts\"]",
            "[\"x{1..200000}\", \"y\"]",
            "t.toml:15: link.1.star.leaves.1: ",
            "at most 200000",
        ),
        (
            "star = { center = \"r1\", leaves = [\"ms\", \"ts\"] }",
            "tree = { root = \"r1\", fanout = [1000, 1000], prefix = \"n\" }",
            "t.toml:15: link.1.tree.fanout: makes more",
            "at most 200000",
        ),
        (
            "star = { center = \"r1\", leaves = [\"ms\", \"ts\"] }",
            "tree = { root = \"r1\", fanout = [0], prefix = \"n\" }",
            "t.toml:15: link.1.tree.fanout.0: is 0",
            "from 1",
        ),
        (
            "star = { center = \"r1\", leaves = [\"ms\", \"ts\"] }",
            "tree = { root = \"n1-1\", fanout = [2], prefix = \"n\" }",
            "t.toml:15: link.1.tree.fanout: would make a second node \"n1-1\"",
            "allowed",
        ),
        (
            "star = { center = \"r1\", leaves = [\"ms\", \"ts\"] }",
            "star = { center = \"r1\", leaves = \"ms\" }\nfrom = \"a\"",
            "t.toml:15: link.1.star: stands beside",
            "exactly one of",
        ),
    ]);
}

#[test]
fn queues_are_checked() {
    check(&[
        ("packets = 30", "packets = 0", "t.toml:10: link.0.queue.packets: is 0", "from 1"),
        (
            "packets = 30",
            "packets = 30, bytes = 1",
            "t.toml:10: link.0.queue.bytes: stands beside",
            "one of",
        ),
        (", packets = 30", "", "t.toml:10: link.0.queue.packets: is missing", "bytes"),
        ("packets = 30", "bytes = 0", "t.toml:10: link.0.queue.bytes: is 0", "from 1"),
        (
            "packets = 30",
            "bytes = \"50\"",
            "t.toml:10: link.0.queue.bytes: \"50\" has no unit",
            "kB",
        ),
        (
            "\"droptail\"",
            "\"drptail\"",
            "t.toml:10: link.0.queue.kind: unknown queue \"drptail\"",
            "did you mean \"droptail\"?",
        ),
        ("kind = \"droptail\", ", "", "t.toml:10: link.0.queue.kind: is missing", "droptail"),
        (
            "{ kind = \"droptail\", packets = 30 }",
            "30",
            "t.toml:10: link.0.queue: is 30",
            "a table",
        ),
        ("max = 15", "max = 5", "t.toml:23: link.2.queue.max: is 5", "more than min"),
        ("min = 5", "min = 0", "t.toml:23: link.2.queue.min: is 0", "above 0"),
        ("min = 5, ", "", "t.toml:23: link.2.queue.min: is missing", "min = 5"),
        ("weight = 0.002", "weight = 0", "t.toml:23: link.2.queue.weight: is 0", "at most 1"),
        ("weight = 0.002", "max_p = 1.5", "t.toml:23: link.2.queue.max_p: is 1.5", "at most 1"),
        ("weight = 0.002", "gentle = 1", "t.toml:23: link.2.queue.gentle: is 1", "true or false"),
        (
            "weight = 0.002",
            "mean_packet = \"0 B\"",
            "t.toml:23: link.2.queue.mean_packet: ",
            "from 1 B",
        ),
        (
            "packets = 50",
            "packets = 10",
            "t.toml:23: link.2.queue.packets: is 10",
            "at least max, which is 15",
        ),
    ]);
}

#[test]
fn changes_are_checked() {
    check(&[
        (
            "at = \"60 s\"",
            "at = \"50 s\"",
            "t.toml:12: link.0.changes.1.at: is 50 s, not after the change at 50 s",
            "rising",
        ),
        (
            "at = \"60 s\"",
            "at = \"300 s\"",
            "t.toml:12: link.0.changes.1.at: is \"300 s\"",
            "before the end of the run at 300 s",
        ),
        (
            "at = \"60 s\", loss = 0.01",
            "at = \"60 s\"",
            "t.toml:12: link.0.changes.1: changes nothing",
            "rate, delay, loss",
        ),
        ("at = \"60 s\", loss", "loss", "t.toml:12: link.0.changes.1.at: is missing", "50 s"),
        (
            "rate = \"3 Mbit/s\"",
            "rate = \"0 bit/s\"",
            "t.toml:12: link.0.changes.0.rate: ",
            "from 1 bit/s",
        ),
        ("loss = 0.01", "loss = 2", "t.toml:12: link.0.changes.1.loss: is 2", "from 0 to 1"),
        ("loss = 0.0\n", "drop_list = [0]\n", "t.toml:11: link.0.drop_list.0: is 0", "from 1"),
        ("loss = 0.0\n", "drop_list = [5, 5]\n", "t.toml:11: link.0.drop_list.1: is 5", "rising"),
        ("loss = 0.0\n", "drop_list = 5\n", "t.toml:11: link.0.drop_list: is 5", "a list"),
    ]);
}

#[test]
fn faults_are_checked() {
    for (keys, message, allowed) in [
        ("duplicate = 1.5", "link.0.duplicate: is 1.5", "from 0 to 1"),
        ("corrupt = -0.1", "link.0.corrupt: is -0.1", "from 0 to 1"),
        ("corrupt = \"1 %\"", "link.0.corrupt: is \"1 %\"", "a number from 0 to 1"),
        ("burst_loss = 0.1", "link.0.burst_loss: is 0.1", "a table"),
        ("burst_loss = { loss = 0.1 }", "link.0.burst_loss.packets: is missing", "packets = 5"),
        ("burst_loss = { packets = 3 }", "link.0.burst_loss.loss: is missing", "loss = 0.02"),
        (
            "burst_loss = { loss = 0.1, packets = 0.5 }",
            "link.0.burst_loss.packets: is 0.5",
            "of packets from 1 to 1000000",
        ),
        (
            "burst_loss = { loss = 0.8, packets = 3 }",
            "link.0.burst_loss.loss: is 0.8; with bursts of 3 packets",
            "at most 0.7500",
        ),
        (
            "burst_loss = { loss = 0.1, length = 3 }",
            "link.0.burst_loss.length: unknown key",
            "allowed: loss, packets",
        ),
        ("tick = \"2 s\"", "link.0.tick: is \"2 s\"", "from 0 s to 1 s"),
        ("jitter = 3", "link.0.jitter: \"3\" has no unit", "expected a duration"),
        ("reorder = { share = 0.1 }", "link.0.reorder.delay: is missing", "\"5 ms\""),
        ("reorder = { delay = \"5 ms\" }", "link.0.reorder.share: is missing", "share = 0.02"),
        ("reorder = { share = 2, delay = \"5 ms\" }", "link.0.reorder.share: is 2", "from 0 to 1"),
        (
            "reorder = { share = 0.1, delay = \"0 s\" }",
            "link.0.reorder.delay: is \"0 s\"",
            "from 0.000000001 s to 1000 s",
        ),
        ("outages = { from = \"1 s\" }", "link.0.outages: is a table", "a list such as"),
        ("outages = [ { from = \"1 s\" } ]", "link.0.outages.0.to: is missing", "\"25 s\""),
        (
            "outages = [ { from = \"5 s\", to = \"5 s\" } ]",
            "link.0.outages.0.to: is \"5 s\"",
            "after from, which is 5 s",
        ),
        (
            "outages = [ { from = \"300 s\", to = \"301 s\" } ]",
            "link.0.outages.0.from: is \"300 s\"",
            "before the end of the run at 300 s",
        ),
        (
            "outages = [ { from = \"1 s\", to = \"5 s\" }, { from = \"4 s\", to = \"9 s\" } ]",
            "link.0.outages.1.from: is 4 s, before the end of the outage before it at 5 s",
            "rising",
        ),
        ("bust_loss = 0.1", "link.0.bust_loss: unknown key", "did you mean \"burst_loss\"?"),
    ] {
        let line = self::message("loss = 0.0\n", &format!("{keys}\n"));
        assert!(line.starts_with(&format!("t.toml:11: {message}")), "{keys}: {line}");
        assert!(line.contains(allowed), "{keys}: {line}");
    }
    check(&[(
        "at = \"60 s\", loss = 0.01",
        "at = \"60 s\", corrupt = 7",
        "t.toml:12: link.0.changes.1.corrupt: is 7",
        "from 0 to 1",
    )]);
}

#[test]
fn nodes_are_checked() {
    check(&[
        (
            "name = \"r2\"",
            "name = \"r9\"",
            "t.toml:26: node.0.name: there is no node \"r9\"",
            "a node that a link names",
        ),
        (
            "[[node]]",
            "[[node]]\nname = \"r2\"\nprogram = \"pgm-element\"\n[[node]]",
            "t.toml:29: node.1.name: \"r2\" is already given",
            "one entry for each node",
        ),
        (
            "\"pgm-element\"",
            "\"pgm-elment\"",
            "t.toml:27: node.0.program: unknown router program \"pgm-elment\"",
            "did you mean \"pgm-element\"?",
        ),
        ("program = \"pgm-element\"\n", "", "t.toml:25: node.0.program: is missing", "pgm-element"),
        ("[[node]]", "[node]", "t.toml:25: node: is a table", "[[node]]"),
    ]);
}

#[test]
fn what_is_missing_altogether_is_named() {
    for (text, want) in [
        ("", "t.toml:1: duration: is missing; expected for example duration = \"300 s\""),
        ("\n# only a comment\n", "t.toml:1: duration: is missing"),
        ("duration = \"1 s\"", "t.toml:1: link: is missing; expected one or more entries"),
        ("duration = \"1 s\"\nlink = []", "t.toml:2: link: is missing; expected one or more"),
        ("duration = \"1 s\"\nlink = 5", "t.toml:2: link: is 5; expected entries that each"),
        ("duration = \"1 s\"\nlink = [5]", "t.toml:2: link.0: is 5; expected a table"),
        (
            "duration = \"1 s\"\n[[link]]\nbetween = [\"a\", \"b\"]\nrate = \"1 kB/s\"\ndelay = \"0 s\"",
            "t.toml:1: flow: is missing",
        ),
    ] {
        let line = parse(text).unwrap_err().to_string();
        assert!(line.starts_with(want), "want {want}\n got {line}");
    }
}

#[test]
fn set_arguments_are_named_in_their_errors() {
    for (set, want) in [
        ("link.0.rate=fast", "t.toml: --set link.0.rate=fast: link.0.rate: \"fast\" is not"),
        ("link.0.rat=\"1 Mbit/s\"", "t.toml: --set link.0.rat=\"1 Mbit/s\": link.0.rat: unknown"),
        (
            "link.9.rate=\"1 Mbit/s\"",
            "t.toml: --set link.9.rate=\"1 Mbit/s\": link.9: is no entry of the list; allowed: a position from 0 to 2",
        ),
        (
            "flow.mc.start=\"1 s\"",
            "t.toml: --set flow.mc.start=\"1 s\": flow.mc: is no entry of the list (did you mean \"mcc\"?); allowed",
        ),
        ("duration", "t.toml: --set duration: has no \"=\"; expected KEY=VALUE"),
        ("=5", "t.toml: --set =5: is an empty key"),
        ("duration.x=5", "t.toml: --set duration.x=5: duration.x: is within \"300 s\""),
        ("duration=5", "t.toml: --set duration=5: duration: \"5\" has no unit"),
        ("durtion=5 s", "t.toml: --set durtion=5 s: durtion: unknown key"),
        ("flow=5", "t.toml: --set flow=5: flow: is 5"),
    ] {
        let line = parse_with(GOOD, &[set]).unwrap_err().to_string();
        assert!(line.starts_with(want), "{set}\nwant {want}\n got {line}");
    }
}

#[test]
fn files_that_are_no_scenarios_are_refused() {
    let folder = std::env::temp_dir().join(format!("faircast-scenario-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let refused = |name: &str, bytes: Option<&[u8]>| {
        let path = folder.join(name);
        if let Some(bytes) = bytes {
            std::fs::write(&path, bytes).unwrap();
        }
        let error = Scenario::load(&path, &Overrides::default(), &catalog()).unwrap_err();
        error.to_string().replace(&format!("{}/", folder.display()), "")
    };
    let cases = [
        (refused("none.toml", None), "none.toml: cannot be read: No such file"),
        (refused("latin.toml", Some(b"a\n\ntitle = \"caf\xe9\"")), "latin.toml:3: is not UTF-8"),
        (refused("huge.toml", Some(&vec![b'#'; 10_000_001])), "huge.toml: is larger than"),
        (refused("", None), ": cannot be read"),
        (refused("empty.toml", Some(b"")), "empty.toml:1: duration: is missing"),
    ];
    let good = GOOD.replacen("\"unlimited\"", "{ file = \"payload\" }", 1);
    std::fs::write(folder.join("payload"), b"").unwrap();
    let empty_data = refused("good.toml", Some(good.as_bytes()));
    std::fs::write(folder.join("payload"), b"abc").unwrap();
    let loaded = Scenario::load(&folder.join("good.toml"), &Overrides::default(), &catalog());
    std::fs::remove_dir_all(&folder).unwrap();
    for (line, want) in cases {
        assert!(line.starts_with(want) || line.contains(want), "want {want}\n got {line}");
    }
    assert!(empty_data.contains("which is an empty file"), "{empty_data}");
    let data = &loaded.unwrap().flows[0].data;
    assert_eq!(*data, faircast_scenario::Data::File(folder.join("payload")));
}

#[test]
fn the_largest_files_are_judged_without_hanging() {
    let mut lists = format!("{GOOD}x = [");
    lists.push_str(&"1,".repeat((9_900_000 - lists.len()) / 2));
    lists.push(']');
    let comments = "# no\n".repeat(1_990_000);
    let tables: String = (0..500_000).map(|i| format!("[[t]]\na={i}\n")).collect();
    let names = GOOD.replacen("\"mr1\", \"mr2\"", &"\"mr{1..200000}\", ".repeat(40), 1);
    let changes = "{at=\"1 s\",loss=0},".repeat(500_000);
    let changes = GOOD.replacen("{ at = \"50 s\"", &format!("{changes}{{ at = \"50 s\""), 1);
    let deep = format!("x = {}", "[".repeat(9_000_000));
    let dotted = format!("{}x = 1", "a.".repeat(4_000_000));
    let keys: String = (0..700_000).map(|i| format!("k{i} = {{}}\n")).collect();
    for text in [lists, comments, tables, names, changes, deep, dotted, keys] {
        let start = Instant::now();
        assert!(parse(&text).is_err());
        let spent = start.elapsed().as_secs_f64();
        // About 1 s on a quiet machine; quadratic work would take hours.
        assert!(spent < 30.0, "{spent} s for {:?}", Path::new(&text[..20]));
        eprintln!("{spent:.3} s for {} bytes", text.len());
    }
}
