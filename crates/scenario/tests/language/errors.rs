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

#[test]
fn mistakes_get_one_line_with_what_is_allowed() {
    let mut lines = include_str!("errors/mistakes.txt").lines().filter(|line| !line.is_empty());
    lines.find(|line| line.starts_with("## ")).expect("a first section");
    let mut cases = 0;
    while let Some(change) = lines.find(|line| !line.starts_with("## ")) {
        let (old, new) = change.split_once(" ==>").expect("a replacement");
        let new = unescaped(new.strip_prefix(' ').unwrap_or(new));
        let (start, more) =
            lines.next().and_then(|line| line.split_once(" ... ")).expect("a message");
        let (start, more) = (unescaped(&format!("t.toml:{}", start.trim_start())), unescaped(more));
        let line = message(&unescaped(old), &new);
        assert!(line.starts_with(&start), "{new:?}\n  want {start}\n  got  {line}");
        assert!(line.contains(&more), "{new:?}\n  want {more}\n  got  {line}");
        cases += 1;
    }
    assert_eq!(cases, 172);
}

fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c == '\\').then(|| chars.next()).flatten() {
            None => out.push(c),
            Some('n') => out.push('\n'),
            Some('s') => out.push(' '),
            Some('u') => {
                let digits: String = chars.by_ref().skip(1).take_while(|c| *c != '}').collect();
                out.extend(char::from_u32(u32::from_str_radix(&digits, 16).unwrap()));
            }
            Some(other) => out.push(other),
        }
    }
    out
}

#[test]
fn the_good_scenario_is_good() {
    let scenario = parse(GOOD).unwrap();
    assert_eq!((scenario.nodes.len(), scenario.links.len(), scenario.flows.len()), (8, 14, 3));
}

#[test]
fn what_is_spelled_as_elsewhere_gets_the_right_spelling() {
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
