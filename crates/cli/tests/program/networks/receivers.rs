//! Who is waited for and who is not: those of a list, slow ones, those that vanish or cannot take it.

use nix::sys::signal::Signal;
use serde_json::Value;

use super::*;

const GROUP: [&str; 2] = ["--group", "239.192.7.6:7500"];

/// `recv` on a host, under the name `r<host>`, into a folder of that name.
fn recv(lan: &Lan, case: &Case, host: usize, more: &[&str]) -> Running {
    let name = format!("r{host}");
    let own = ["recv", "--into", &case.at(&name), "--name", &name, "--once", "--json"];
    on(lan, host, &[&own[..], &GROUP, more].concat())
}

/// `send` on host 0.
fn send(lan: &Lan, case: &Case, more: &[&str]) -> Running {
    on(lan, 0, &[&["send", &case.at("tree"), "--json"][..], &GROUP, more].concat())
}

fn summary(ended: &Ended) -> Value {
    live::event(&live::events("send", &ended.out), "summary").clone()
}

/// The states of all receivers by name.
fn states(summary: &Value) -> BTreeMap<String, String> {
    let all = summary["receivers"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_string();
    all.map(|receiver| (text(&receiver["name"]), text(&receiver["state"]))).collect()
}

fn state(name: &str, state: &str) -> (String, String) {
    (name.to_string(), state.to_string())
}

#[test]
fn those_who_are_listed_must_have_it_and_others_may() {
    let Some(lan) = Lan::new(4) else { return };
    let case = Case::new(100_000);
    std::fs::write(case.at("names"), "r1\n# not this one\n\nr2\n").unwrap();
    let list = ["--receivers", &case.at("names")];
    let receivers = [1, 2, 3].map(|host| recv(&lan, &case, host, &[]));
    let sent = send(&lan, &case, &list).end();
    assert_eq!(sent.code, Some(0), "{}{}", sent.out, sent.err);
    // Of those who were not waited for it depends on when they came.
    let [first, second, third] = receivers;
    assert_eq!((first.end().code, second.end().code), (Some(0), Some(0)));
    third.signal(Signal::SIGINT);
    third.end();
    ["r1", "r2"].iter().for_each(|name| case.assert_arrived(name));
    // One that never comes makes it fail, after all others were served.
    let again = recv(&lan, &case, 1, &[]);
    let sent = send(&lan, &case, &[&list[..], &["--start-after", "1s"]].concat()).end();
    assert_eq!((sent.code, again.end().code), (Some(1), Some(0)), "{}", sent.out);
    let summary = summary(&sent);
    assert_eq!(states(&summary), BTreeMap::from([state("r1", "done")]));
    assert_eq!((&summary["missing"], &summary["ok"]), (&serde_json::json!(["r2"]), &false.into()));
}

#[test]
fn who_falls_silent_is_given_up_and_the_others_have_it_all() {
    let Some(lan) = Lan::new(3) else { return };
    let case = Case::new(3_000_000);
    let stays = recv(&lan, &case, 1, &[]);
    let vanishes = recv(&lan, &case, 2, &[]);
    let more = ["--wait-for", "2", "--give-up", "2s", "--rate-max", "8Mbit/s"];
    let sender = send(&lan, &case, &more);
    vanishes.until_has(1);
    vanishes.signal(Signal::SIGKILL);
    let sent = sender.end();
    assert_eq!((sent.code, stays.end().code), (Some(1), Some(0)), "{}{}", sent.out, sent.err);
    let summary = summary(&sent);
    let want = BTreeMap::from([state("r1", "done"), state("r2", "lost")]);
    assert_eq!(states(&summary), want);
    let seconds = summary["seconds"].as_f64().unwrap();
    assert!(seconds >= 3.0, "3 MB at 8 Mbit/s in {seconds} s: --rate-max");
    case.assert_arrived("r1");
}

#[test]
fn who_cannot_take_it_keeps_nobody_waiting() {
    let Some(lan) = Lan::new(3) else { return };
    let case = Case::new(100_000);
    std::fs::create_dir_all(case.at("r2/tree")).unwrap();
    std::fs::write(case.at("r2/tree/large"), b"something else").unwrap();
    let receivers = [1, 2].map(|host| recv(&lan, &case, host, &[]));
    let sent = send(&lan, &case, &["--wait-for", "2"]).end();
    let [good, bad] = receivers.map(Running::end);
    assert_eq!((sent.code, good.code, bad.code), (Some(1), Some(0), Some(1)), "{}", sent.out);
    let reason = live::event(&live::events("send", &sent.out), "failed")["reason"].clone();
    let text = reason.as_str().unwrap();
    assert!(
        text.contains("is there already and differs") && text.contains("--overwrite"),
        "{text}"
    );
    assert!(live::event(&live::events("recv", &bad.out), "failed")["reason"] == reason);
    case.assert_arrived("r1");
    assert_eq!(std::fs::read(case.at("r2/tree/large")).unwrap(), b"something else");
    // With the word of its owner it is replaced.
    let receivers = [1, 2].map(|host| recv(&lan, &case, host, &["--overwrite"]));
    let sent = send(&lan, &case, &["--wait-for", "2"]).end();
    assert_eq!(sent.code, Some(0), "{}{}", sent.out, sent.err);
    let found: Vec<_> = summary(&sent)["receivers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|receiver| receiver["bytes_found"].as_u64().unwrap() > 0)
        .collect();
    assert_eq!(found.iter().filter(|found| **found).count(), 1, "one had it all");
    receivers.into_iter().for_each(|receiver| assert_eq!(receiver.end().code, Some(0)));
    // A folder that is there keeps its own time.
    let replaced = [case.at("tree/large"), case.at("r2/tree/large")].map(std::fs::read);
    assert!(replaced[0].as_ref().unwrap() == replaced[1].as_ref().unwrap());
}

#[test]
fn who_is_slow_is_named_and_waited_for_or_served_later() {
    let Some(lan) = Lan::new(3) else { return };
    let narrow = "qdisc add dev p2 root tbf rate 4mbit burst 10kb latency 50ms";
    let command = format!("-n {} {narrow}", lan.bridge());
    let shaped = Command::new("tc").args(command.split(' ')).status();
    if !shaped.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no tbf here");
        return;
    }
    for (slow, want, bytes) in
        [("wait", false, 1_500_000), ("drop-below 10Mbit/s", true, 4_500_000)]
    {
        let case = Case::new(bytes);
        let receivers = [1, 2].map(|host| recv(&lan, &case, host, &[]));
        let more = ["--wait-for", "2", "--slow", slow, "--rate-max", "40Mbit/s"];
        let sent = send(&lan, &case, &more).end();
        assert_eq!(sent.code, Some(0), "{slow}: {}{}", sent.out, sent.err);
        receivers.into_iter().for_each(|receiver| assert_eq!(receiver.end().code, Some(0)));
        ["r1", "r2"].iter().for_each(|name| case.assert_arrived(name));
        let told = live::events("send", &sent.out);
        if !want {
            let summary = live::event(&told, "summary");
            let all = summary["receivers"].as_array().unwrap();
            let slow = all.iter().find(|receiver| receiver["name"] == "r2").unwrap();
            // On a busy machine it also waits for receivers that do not come to speak.
            let mut limits = summary["limits"].as_array().unwrap().iter();
            let path = limits.find(|limit| limit["cause"] == "path").unwrap();
            assert_eq!(path["id"], slow["id"], "{summary}");
        }
        let limited = told.iter().filter(|event| event["limiting"] == "r2").count();
        assert!(limited > 0, "{slow}: the slow one is named: {}", sent.out);
        let of_slow: Vec<&str> = told
            .iter()
            .filter(|event| event["name"] == "r2")
            .map(|event| event["event"].as_str().unwrap())
            .collect();
        assert_eq!(of_slow.contains(&"deferred"), want, "{slow}: {of_slow:?}");
        if want {
            assert_eq!(of_slow, ["joined", "ready", "deferred", "ready", "done"], "{slow}");
            let took = |name: &str| {
                let all = live::event(&told, "summary")["receivers"].as_array().unwrap().clone();
                let one = all.iter().find(|receiver| receiver["name"] == name).unwrap().clone();
                one["took_seconds"].as_f64().unwrap()
            };
            assert!(took("r1") < took("r2"), "{} {}", took("r1"), took("r2"));
        }
    }
}
