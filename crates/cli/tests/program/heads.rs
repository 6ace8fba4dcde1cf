//! Kills of repair heads in real programs: their members find other heads, and no data is lost.

use super::hosts::{Hosts, link};
use super::site::noise;
use super::*;

struct Members<'a> {
    hosts: &'a Hosts,
    all: Vec<(String, Running)>,
}

impl<'a> Members<'a> {
    fn start(hosts: &'a Hosts, names: &[String]) -> Self {
        let mut members = Self { hosts, all: Vec::new() };
        for name in names {
            let started = members.recv(name);
            members.all.push((name.clone(), started));
        }
        members
    }

    fn recv(&self, name: &str) -> Running {
        let words = format!("recv --into {name} --once --name {name} --log-json");
        let mut command = self.hosts.site.command(&words);
        command.env("FAIRCAST_LOG", "session=debug");
        self.hosts.run(name, command)
    }

    fn until_have(&self, bytes: u64) {
        self.all.iter().for_each(|(_, receiver)| receiver.until_has(bytes));
    }

    fn heads(&self, count: usize) -> Vec<(usize, Vec<usize>)> {
        let nodes: Vec<u64> = self.all.iter().map(|(name, _)| self.hosts.number(name)).collect();
        let heads: Vec<Option<u64>> = self.all.iter().map(|(_, it)| head(it)).collect();
        let below = |node: u64| (0..heads.len()).filter(|&it| heads[it] == Some(node)).collect();
        let mut all: Vec<(usize, Vec<usize>)> =
            nodes.iter().enumerate().map(|(place, node)| (place, below(*node))).collect();
        all.sort_by_key(|(_, below)| std::cmp::Reverse(below.len()));
        all.truncate(count);
        assert!(all.iter().all(|(_, below)| !below.is_empty()), "nobody repairs: {heads:?}");
        all
    }

    /// Kills `count` heads, and starts them again once their members have others.
    fn kill_heads(&mut self, count: usize) -> usize {
        let heads = self.heads(count);
        let number = |(place, _): &(usize, Vec<usize>)| self.hosts.number(&self.all[*place].0);
        let killed: Vec<u64> = heads.iter().map(number).collect();
        assert!(self.all.iter_mut().all(|(_, it)| it.runs()), "all are in mid-transfer");
        for (place, _) in &heads {
            self.all[*place].1.signal(nix::sys::signal::Signal::SIGKILL);
        }
        let places: Vec<usize> = heads.iter().map(|(place, _)| *place).collect();
        let orphans = heads.into_iter().flat_map(|(_, below)| below);
        let orphans: Vec<usize> = orphans.filter(|it| !places.contains(it)).collect();
        for &orphan in &orphans {
            let receiver = &mut self.all[orphan].1;
            let is_moved = |it: &Running| head(it).is_some_and(|head| !killed.contains(&head));
            running::until("another head", || is_moved(receiver) || !receiver.runs());
        }
        for place in places {
            let again = self.recv(&self.all[place].0);
            drop(std::mem::replace(&mut self.all[place].1, again));
        }
        orphans.len()
    }

    fn assert_received(self, limit_s: u64) {
        for (name, receiver) in self.all {
            receiver.end_within(limit_s).with(0);
            self.hosts.site.assert_same(&format!("{name}/file"), "file");
        }
    }
}

fn head(receiver: &Running) -> Option<u64> {
    let logged = receiver.logged();
    logged.iter().rev().find(|line| line["message"] == "another repair head")?["head"].as_u64()
}

fn names(count: usize) -> Vec<String> {
    (1..=count).map(|place| format!("r{place}")).collect()
}

fn hosts(names: &[String], loss: f64, file_bytes: usize) -> Hosts {
    let all: Vec<&str> = ["sender"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let hosts = Hosts::new(&all, |to| {
        let loss = if to.is_some_and(|to| to != "sender") { loss } else { 0.0 };
        link(200, 1, loss, 500)
    });
    hosts.site.put("file", noise(file_bytes));
    hosts
}

#[test]
fn a_head_that_is_killed_is_replaced_and_nothing_is_lost() {
    need_root!();
    let names = names(5);
    let hosts = hosts(&names, 0.01, 4_000_000);
    let mut members = Members::start(&hosts, &names);
    // At most two receivers have the source as their head; the others have a receiver.
    let limits = "--option members_max=2 --rate-max 2Mbit/s --give-up 60s";
    let send = format!("send file --scheme tram --wait-for 5 {limits}");
    let sender = hosts.start("sender", &send);
    members.until_have(1);
    assert!(members.kill_heads(1) > 0);
    members.assert_received(LIMIT_S);
    sender.end_with(0);
}

#[test]
fn a_head_and_its_member_that_are_killed_together_are_named_and_others_have_it_all() {
    need_root!();
    let names = names(5);
    let hosts = hosts(&names, 0.01, 4_000_000);
    hosts.site.put("tree", "r1 sender\nr2 r1\nr3 r1\nr4 sender\nr5 r4\n");
    let recv = |name: &String| {
        hosts.start(name, &format!("recv --into {name} --once --name {name} --tree tree"))
    };
    let mut receivers: Vec<Running> = names.iter().map(recv).collect();
    let limits = "--rate-max 2Mbit/s --give-up 4s";
    let sender = hosts.start("sender", &format!("send file --scheme tram --wait-for 5 {limits}"));
    receivers.iter().for_each(|receiver| receiver.until_has(1));
    for killed in [1, 0] {
        receivers.remove(killed).kill();
    }
    for (receiver, name) in receivers.into_iter().zip(&names[2..]) {
        hosts.site.assert_received(name, receiver);
    }
    let ended = sender.end_with(1);
    let summary = ended.event("summary");
    let all = summary["receivers"].as_array().unwrap();
    for name in &names {
        let state = &all.iter().find(|it| it["name"] == **name).unwrap()["state"];
        let killed = ["r1", "r2"].contains(&&**name);
        assert_eq!(state, if killed { "lost" } else { "done" }, "{name}: {summary}");
    }
}

#[test]
fn a_static_tree_is_followed_by_hosts_that_start_in_any_order() {
    need_root!();
    let names = names(4);
    let hosts = hosts(&names, 0.01, 2_000_000);
    hosts.site.put("tree", "r1 sender\nr2 r1\nr3 r2\nr4 r2\n");
    let started = names.iter().rev().map(|name| {
        let recv = format!("recv --into {name} --once --name {name} --tree tree");
        hosts.start(name, &recv)
    });
    let receivers: Vec<Running> = started.collect();
    let sender = hosts.start("sender", "send file --scheme tram --wait-for 4");
    let ended = sender.end_with(0);
    for receiver in receivers {
        receiver.end_within(LIMIT_S).with(0);
    }
    let summary = ended.event("summary");
    for (name, head, level) in
        [("r1", "the sender", 2), ("r2", "r1", 3), ("r3", "r2", 4), ("r4", "r2", 4)]
    {
        let all = summary["receivers"].as_array().unwrap();
        let tree = &all.iter().find(|it| it["name"] == name).unwrap()["tree"];
        assert_eq!(tree["head"], head, "{name}: {summary}");
        assert_eq!(tree["level"], level, "{name}: {summary}");
        hosts.site.assert_same(&format!("{name}/file"), "file");
    }
}

const FIFTY_LIMIT_S: u64 = 3600;

pub(super) fn fifty_receivers(kills: usize) {
    let (names, started) = (names(50), std::time::Instant::now());
    let hosts = hosts(&names, 0.03, 200_000_000);
    let mut members = Members::start(&hosts, &names);
    let send = "send file --scheme tram --option members_max=8 --wait-for 50 --give-up 120s";
    let sender = hosts.start("sender", send);
    members.until_have(if kills > 0 { 40_000_000 } else { 1 });
    let below = members.heads(2).iter().map(|(_, below)| below.len()).sum::<usize>();
    let moved = if kills > 0 { members.kill_heads(kills) } else { 0 };
    members.assert_received(FIFTY_LIMIT_S);
    sender.end_with(0);
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "50 receivers, {below} below two of them, {kills} killed with {moved} members: intact after {seconds:.0} s"
    );
}
