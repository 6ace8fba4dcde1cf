//! `send` and `recv` over every registered scheme, and between two that do not speak the same.

use std::os::unix::process::CommandExt as _;
use std::path::Path;

use faircast::SCHEMES;
use faircast_lab::Field;
use faircast_proto::options::OptionKind;
use faircast_scenario::{Overrides, Scenario};

use super::live::{Running, digest, event, events, group, noise};
use super::soak::is_root;
use super::*;

const HOSTS: [&str; 5] = ["sender", "a", "b", "c", "d"];

/// A sender and four receivers, each of which loses one packet in 20.
fn hosts() -> Scenario {
    let mut text = "title = \"Does everybody get the file?\"\nduration = \"10 min\"\n".to_string();
    for name in HOSTS {
        for (from, to) in [("router", name), (name, "router")] {
            let loss = if to == "router" { 0.0 } else { 0.05 };
            text += &format!(
                "[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"20 Mbit/s\"\n\
                 delay = \"2 ms\"\nloss = {loss}\n\
                 queue = {{ kind = \"droptail\", packets = 50 }}\n"
            );
        }
    }
    for name in HOSTS {
        let others = HOSTS.iter().filter(|other| **other != name);
        let to: Vec<String> = others.map(|other| format!("\"{other}\"")).collect();
        text += &format!(
            "[[flow]]\nname = \"{name}\"\nprotocol = \"cbr\"\nfrom = \"{name}\"\nto = [{}]\n",
            to.join(", ")
        );
    }
    let overrides = Overrides::default();
    Scenario::parse(Path::new("hosts.toml"), &text, &overrides, &faircast_sim::catalog()).unwrap()
}

#[test]
fn a_file_gets_to_four_hosts_over_every_scheme_though_each_loses_one_packet_in_20() {
    if !is_root() {
        return;
    }
    for scheme in SCHEMES {
        let folder = tempfile::tempdir().unwrap();
        let sent = folder.path().join("file");
        std::fs::write(&sent, noise(700_000)).unwrap();
        let scenario = hosts();
        let nodes = HOSTS.map(|name| {
            scenario.flows.iter().find(|flow| flow.name == name).map(|flow| flow.sender()).unwrap()
        });
        let field = Field::new(scenario).unwrap();
        let group = format!("{}:7500", Field::group());
        let start = |node, arguments: &[&str]| {
            let mut command = program(arguments);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
            Running::of(field.spawn(node, command).unwrap())
        };
        let intos = HOSTS.map(|name| text_of(&folder.path().join("in").join(name)));
        let receivers: Vec<Running> = (1..5)
            .map(|i| {
                let own = ["recv", "--into", &intos[i], "--once", "--name", HOSTS[i], "--json"];
                start(nodes[i], &[&own[..], &["--group", &group]].concat())
            })
            .collect();
        let path = text_of(&sent);
        let own = ["send", &path, "--wait-for", "4", "--scheme", scheme.name, "--json"];
        let sender = start(nodes[0], &[&own[..], &["--group", &group]].concat()).end_within(120);
        assert_eq!(sender.code, Some(0), "{}: {}{}", scheme.name, sender.out, sender.err);
        for (receiver, into) in receivers.into_iter().zip(&intos[1..]) {
            let receiver = receiver.end_within(30);
            assert_eq!(receiver.code, Some(0), "{}{}", receiver.out, receiver.err);
            let told = events("recv", &receiver.out);
            assert_eq!(event(&told, "complete")["scheme"], scheme.name, "nobody told it");
            assert_eq!(digest(&Path::new(into).join("file")), digest(&sent), "{into}");
        }
        let lost = field.counts().lost;
        assert!(lost >= 50, "{}: {lost} packets were lost", scheme.name);
    }
}

#[test]
fn a_receiver_that_insists_on_another_scheme_says_what_to_do_and_so_does_the_sender() {
    for (sends, insists) in SCHEMES.iter().zip(SCHEMES.iter().skip(1)) {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| text_of(&folder.path().join(name));
        std::fs::write(at("file"), noise(100_000)).unwrap();
        let (group, path) = (group(), at("file"));
        let over = ["--group", &group, "--interface", "lo", "--json"];
        let recv = |name: &str, more: &[&str]| {
            let into = at(name);
            let own = ["recv", "--into", &into, "--once", "--name", name];
            Running::start(&[&own[..], &over, more].concat())
        };
        let (one, two) = (recv("one", &[]), recv("two", &["--scheme", insists.name]));
        let own = ["send", &path, "--wait-for", "2", "--scheme", sends.name];
        let sender = Running::start(&[&own[..], &over].concat()).end();
        assert_eq!(sender.code, Some(1), "one has not got it: {}{}", sender.out, sender.err);
        let told = events("send", &sender.out);
        let failed = event(&told, "failed");
        assert_eq!(failed["name"], "two");
        let reason = failed["reason"].as_str().unwrap();
        assert!(reason.contains(sends.name) && reason.contains(insists.name), "{reason}");
        assert_eq!(one.end().code, Some(0));
        assert_eq!(digest(&Path::new(&at("one")).join("file")), digest(Path::new(&path)));
        let two = two.end();
        assert_eq!(two.code, Some(1), "{}{}", two.out, two.err);
        let told = events("recv", &two.out);
        let failed = event(&told, "failed");
        assert_eq!(failed["sender_speaks"], sends.name);
        assert_eq!(failed["receiver_speaks"], insists.name);
        let reason = failed["reason"].as_str().unwrap();
        assert!(reason.contains(&format!("name {} or no scheme here", sends.name)), "{reason}");
        assert!(!Path::new(&at("two")).join("file").exists());
    }
}

#[test]
fn settings_of_a_scheme_that_are_wrong_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text_of(&folder.path().join(name));
    std::fs::write(at("file"), b"x").unwrap();
    let (group, path, into) = (group(), at("file"), at("in"));
    for scheme in SCHEMES {
        let known = scheme.own_options.iter().find_map(|spec| match spec.kind {
            OptionKind::Choice(words) => Some((spec.name, words[0])),
            OptionKind::Bool => Some((spec.name, "true or false")),
            OptionKind::Integer { .. } => Some((spec.name, "a whole number from")),
            OptionKind::Float { .. } => Some((spec.name, "a number from")),
            OptionKind::Duration { .. } | OptionKind::Rate { .. } => None,
        });
        let (key, allowed) = known.unwrap_or_else(|| panic!("{} has none", scheme.name));
        let wrong = format!("{key}=nonsense");
        let send = ["send", &path, "--group", &group, "--scheme", scheme.name, "--option", &wrong];
        let recv = ["recv", "--into", &into, "--group", &group, "--option", &wrong];
        let insists = [&recv[..], &["--scheme", scheme.name]].concat();
        for arguments in [&send[..], &recv, &insists] {
            let ended = run_within(20, arguments);
            assert_eq!(ended.code, Some(2), "{arguments:?}: {}{}", ended.out, ended.err);
            assert_eq!(ended.err.lines().count(), 1, "{arguments:?}: {}", ended.err);
            for word in [key, "\"nonsense\"", allowed] {
                assert!(ended.err.contains(word), "{arguments:?}: {}", ended.err);
            }
        }
    }
}
