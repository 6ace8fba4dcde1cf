//! Awaited and other receivers: listed, slow, vanished, or without room for the object.

use nix::sys::signal::Signal;

use super::*;

const GROUP: &str = "--group 239.192.7.6:7500";

fn send(world: &World, more: &str) -> Running {
    world.send(&format!("{GROUP} {more}"))
}

fn states(summary: &Value) -> Vec<(&str, &str)> {
    let all = summary["receivers"].as_array().unwrap().iter();
    let states = all.map(|one| (one["name"].as_str().unwrap(), one["state"].as_str().unwrap()));
    let mut states: Vec<_> = states.collect();
    states.sort_unstable();
    states
}

#[test]
fn those_who_are_listed_must_have_it_and_others_may() {
    let Some(world) = World::new(4, 100_000) else { return };
    world.site.put("names", "r1\n# not this one\n\nr2\n");
    let [first, second, third] = [1, 2, 3].map(|host| world.recv(host, GROUP));
    send(&world, "--receivers names").end_with(0);
    // The state of other receivers depends on when they joined.
    world.assert_received([first, second]);
    third.signal(Signal::SIGINT);
    third.end();
    let again = world.recv(1, GROUP);
    let sent = send(&world, "--receivers names --start-after 1s").end_with(1);
    again.end_with(0);
    let summary = sent.summary();
    assert_eq!(states(&summary), [("r1", "done")]);
    assert_eq!((&summary["missing"], &summary["ok"]), (&serde_json::json!(["r2"]), &false.into()));
}

#[test]
fn who_falls_silent_is_given_up_and_the_others_have_it_all() {
    let Some(world) = World::new(3, 3_000_000) else { return };
    let [stays, vanishes] = world.two(GROUP);
    let sender = send(&world, "--wait-for 2 --give-up 2s --rate-max 8Mbit/s");
    vanishes.until_has(1);
    vanishes.signal(Signal::SIGKILL);
    let summary = sender.end_with(1).summary();
    world.assert_received([stays]);
    assert_eq!(states(&summary), [("r1", "done"), ("r2", "lost")]);
    let seconds = summary["seconds"].as_f64().unwrap();
    assert!(seconds >= 3.0, "3 MB at 8 Mbit/s in {seconds} s: --rate-max");
}

fn resume(world: &World, host: usize, name: &str, folder: &str) -> Running {
    world.on(host, &format!("recv --into {folder} --name {name} --once {GROUP}"))
}

fn kill(world: &World, receiver: Running, folder: &str) {
    receiver.until_has(1);
    running::until("the folder keeps the receiver's identity", || {
        let kept = std::fs::read_dir(world.site.path(folder).join(".faircast"));
        kept.into_iter().flatten().flatten().any(|object| object.path().join("receiver").exists())
    });
    receiver.kill();
}

#[test]
fn who_is_started_again_at_another_address_is_the_same() {
    let Some(world) = World::new(4, 3_000_000) else { return };
    // The identity in the folder identifies a receiver; with a list of names, the name does.
    for (more, name, folder) in
        [("--wait-for 2", "other", "r1"), ("--receivers names", "r1", "empty")]
    {
        world.site.put("names", "r1\nr2\n");
        let [killed, stays] = world.two(GROUP);
        let sender = send(&world, &format!("{more} --rate-max 8Mbit/s --give-up 4s"));
        kill(&world, killed, "r1");
        assert_received(&world.site, resume(&world, 3, name, folder), folder);
        assert_received(&world.site, stays, "r2");
        let summary = sender.end_with(0).summary();
        let mut want = [(name, "done"), ("r2", "done")];
        want.sort_unstable();
        assert_eq!(states(&summary), want, "{more}");
    }
}

#[test]
fn two_of_one_name_are_two_though_one_of_them_is_started_again() {
    let Some(world) = World::new(4, 3_000_000) else { return };
    let [lost, killed] = [1, 2].map(|host| resume(&world, host, "web", &format!("r{host}")));
    let sender = send(&world, "--wait-for 2 --rate-max 8Mbit/s --give-up 3s");
    // The stopped sender completes no receiver before both are killed, even on a slow host.
    [&lost, &killed].iter().for_each(|it| it.until_has(1));
    sender.signal(Signal::SIGSTOP);
    kill(&world, lost, "r1");
    kill(&world, killed, "r2");
    sender.signal(Signal::SIGCONT);
    assert_received(&world.site, resume(&world, 3, "web", "r2"), "r2");
    let summary = sender.end_with(1).summary();
    assert_eq!(states(&summary), [("web", "done"), ("web", "lost")]);
}

#[test]
fn a_copied_folder_is_called_one() {
    let Some(world) = World::new(3, 3_000_000) else { return };
    let killed = world.recv(1, GROUP);
    let sender = send(&world, "--rate-max 8Mbit/s");
    kill(&world, killed, "r1");
    sender.kill();
    let copy =
        Command::new("cp").arg("-a").args([world.site.path("r1"), world.site.path("r2")]).status();
    assert!(copy.unwrap().success());
    let [one, other] = [1, 2].map(|host| {
        let name = format!("r{host}");
        resume(&world, host, &name, &name)
    });
    let sent = send(&world, "--wait-for 2 --rate-max 4Mbit/s").end_with(0);
    let warned = sent.event("warning")["text"].as_str().unwrap().to_string();
    for words in ["r1 (", "r2 (", "one identity", "Remove .faircast"] {
        assert!(warned.contains(words), "{warned}");
    }
    world.assert_received([one, other]);
    assert_eq!(states(&sent.summary()), [("r1", "done"), ("r2", "done")]);
}

#[test]
fn who_cannot_take_it_keeps_nobody_waiting() {
    let Some(world) = World::new(3, 100_000) else { return };
    let start = |more: &str| {
        let recv = |host| format!("recv --into r{host} --name r{host} --once {GROUP} {more}");
        [1, 2].map(|host| world.on(host, &recv(host)))
    };
    let other = world.site.put("r2/tree/large", "something else");
    let receivers = start("");
    let sent = send(&world, "--wait-for 2").end_with(1);
    let [good, bad] = receivers;
    world.assert_received([good]);
    let reason = sent.event("failed")["reason"].clone();
    let text = reason.as_str().unwrap();
    assert!(text.contains("is there already and differs"), "{text}");
    assert!(text.contains("--overwrite"), "{text}");
    assert!(bad.end_with(1).event("failed")["reason"] == reason);
    assert_eq!(std::fs::read(&other).unwrap(), b"something else");
    let receivers = start("--overwrite");
    let summary = send(&world, "--wait-for 2").end_with(0).summary();
    let all = summary["receivers"].as_array().unwrap().iter();
    let found = all.filter(|receiver| receiver["bytes_found"].as_u64().unwrap() > 0).count();
    assert_eq!(found, 1, "one had it all");
    receivers.into_iter().for_each(|receiver| drop(receiver.end_with(0)));
    world.site.assert_same("r2/tree/large", "tree/large");
}

#[test]
fn who_is_slow_is_named_and_waited_for_or_served_later() {
    let Some(mut world) = World::new(3, 0) else { return };
    let narrow = "qdisc add dev p2 root tbf rate 4mbit burst 10kb latency 50ms";
    if let Err(error) = lan::run("tc", world.lan.bridge(), narrow) {
        return eprintln!("skipped: no tbf here: {error}");
    }
    for (slow, is_deferred, bytes) in
        [("wait", false, 1_500_000), ("drop-below:10Mbit/s", true, 4_500_000)]
    {
        world.site = with_a_tree(bytes);
        let receivers = world.two(GROUP);
        let more = format!("--wait-for 2 --slow {slow} --rate-max 40Mbit/s");
        let sent = send(&world, &more).end_with(0);
        world.assert_received(receivers);
        let (told, summary) = (sent.events(), sent.summary());
        let of = |name: &str| {
            let mut all = summary["receivers"].as_array().unwrap().iter();
            all.find(|receiver| receiver["name"] == name).unwrap()
        };
        if !is_deferred {
            // On a busy machine the sender also waits for receivers that get no processor time.
            let mut limits = summary["limits"].as_array().unwrap().iter();
            let path = limits.find(|limit| limit["cause"] == "path").unwrap();
            assert_eq!(path["id"], of("r2")["id"], "{summary}");
        }
        let limited = told.iter().filter(|event| event["limiting"] == "r2").count();
        assert!(limited > 0, "{slow}: the slow one is named: {}", sent.out);
        let of_slow = told.iter().filter(|event| event["name"] == "r2");
        let of_slow: Vec<&str> = of_slow.map(|event| event["event"].as_str().unwrap()).collect();
        assert_eq!(of_slow.contains(&"deferred"), is_deferred, "{slow}: {of_slow:?}");
        if is_deferred {
            assert_eq!(of_slow, ["joined", "ready", "deferred", "ready", "done"], "{slow}");
            let took = |name: &str| of(name)["took_seconds"].as_f64().unwrap();
            assert!(took("r1") < took("r2"), "{} {}", took("r1"), took("r2"));
        }
    }
}
