//! Tests of every stack of the catalog between a lossy leaf and a lossless leaf: loss figures
//! against the links' drops, lists of drops and header lengths in simulator and lab.

use std::collections::{BTreeMap, BTreeSet};

use faircast_base::{Event, NodeId};
use faircast_lab::LabError;
use faircast_proto::stack::Stack;
use faircast_report::{LinkSummary, Summary};
use faircast_scenario::{Overrides, Scenario};
use faircast_trace::{On, Record, Sink, Subject};

use faircast_study::{Error, Study};

use crate::backend;

#[derive(Clone, Debug)]
struct Case {
    stack: Stack,
    object: bool,
    /// True if each transmission has a sequence number of its own.
    fresh_numbers: bool,
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for stack in faircast_sim::catalog().protocols {
        let both = stack.is_simulated() && stack.has_option("delivery");
        for object in [false, true].into_iter().filter(|object| !object || both) {
            // Objects over PGM and QUIC number each transmission; CBR has no retransmissions.
            let over_pgm = object && !stack.transport.repair_heads;
            let fresh_numbers = over_pgm || ["quic", "cbr"].contains(&stack.transport.name);
            all.push(Case { stack, object, fresh_numbers });
        }
    }
    all
}

fn simulated() -> impl Iterator<Item = Case> {
    let known = |case: &Case| case.stack.is_simulated() && case.stack.transport.name != "quic";
    cases().into_iter().filter(known)
}

impl Case {
    fn flow(&self) -> String {
        let to = if self.stack.transport.multicast { "\"a\", \"b\"" } else { "\"a\"" };
        let mut options = Vec::new();
        if self.object {
            options.push("delivery = \"object\"");
        }
        if self.stack.has_heads() {
            // Repairs of a backlog would be dropped as well, and no summary counts these drops.
            options.push("wait_for = 2");
        }
        if self.stack.transport.name == "cbr" {
            options.push("rate = \"1 Mbit/s\"");
        }
        format!(
            "[[flow]]\nname = \"f\"\nprotocol = \"{}\"\nfrom = \"s\"\nto = [{to}]\n\
             packet = \"1000 B\"\noptions = {{ {} }}\n",
            self.stack,
            options.join(", ")
        )
    }

    fn scenario(&self, seconds: u32, leaf: &str, more: &str) -> Scenario {
        let link = |ends: &str, rate: u32, more: &str| {
            format!(
                "[[link]]\nbetween = {ends}\nrate = \"{rate} Mbit/s\"\ndelay = \"5 ms\"\n\
                 queue = {{ kind = \"droptail\", packets = 200 }}\n{more}\n"
            )
        };
        // Packets beyond the rate of a leaf are dropped there and not before.
        let first = link("[\"s\", \"r\"]", 100, "");
        let lossy = link("[\"r\", \"a\"]", 2, leaf);
        let clean = link("[\"r\", \"b\"]", 2, "");
        let relay = match self.stack.hop.is_some() {
            true => "[[node]]\nname = \"r\"\nprogram = \"credit\"\n",
            false => "",
        };
        let text = format!(
            "duration = \"{seconds} s\"\nseed = 3\n{first}{lossy}{clean}{relay}{}{more}\n",
            self.flow()
        );
        let path = std::path::Path::new("stacks.toml");
        Scenario::parse(path, &text, &Overrides::default(), &faircast_sim::catalog())
            .unwrap_or_else(|error| panic!("{self:?}: {error}\n{text}"))
    }
}

/// Drops of the leaves' links (data packets, bytes, packet sizes for `a`), and losses of `a`.
#[derive(Default)]
struct Leaves {
    a: Option<NodeId>,
    links: Vec<u32>,
    dropped: [u64; 2],
    dropped_bytes: [u64; 2],
    lost: u64,
    withdrawn: u64,
    sizes: BTreeSet<u32>,
}

const SIM_SECONDS: u32 = 40;
/// Least bytes of a packet with a whole payload; control packets here are shorter.
const WHOLE: u32 = 900;

impl Sink for Leaves {
    fn record(&mut self, record: &Record) {
        match (record.subject, record.event) {
            (Subject::Link(link), Event::PacketDropped { bytes, .. }) => {
                let Some(leaf) = self.links.iter().position(|own| *own == link.0) else { return };
                self.dropped[leaf] += u64::from(bytes >= WHOLE);
                self.dropped_bytes[leaf] += u64::from(bytes);
                if leaf == 0 {
                    self.sizes.insert(bytes);
                }
            }
            (Subject::Endpoint { node, sender: false, .. }, event) if Some(node) == self.a => {
                match event {
                    Event::LossDetected { count, .. } => self.lost += count,
                    Event::LossWithdrawn { count, .. } => self.withdrawn += count,
                    Event::RepairHead { .. } if self.lost == 0 => self.dropped[0] = 0,
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

fn leaves(scenario: &Scenario) -> Leaves {
    let node = |name: &str| scenario.nodes.iter().position(|node| node.name == name).unwrap();
    let [router, a, b] = ["r", "a", "b"].map(|name| NodeId(node(name) as u32));
    let link = |to: NodeId| scenario.links.iter().position(|it| (it.from, it.to) == (router, to));
    let links = [a, b].iter().map(|to| link(*to).unwrap() as u32).collect();
    Leaves { a: Some(a), links, ..Leaves::default() }
}

fn run(scenario: &Scenario, on: On) -> Option<(Summary, Leaves)> {
    let mut leaves = leaves(scenario);
    let study = Study { backend: backend(on), ..Study::default() };
    let lacks = |error: &LabError| matches!(error, LabError::Machine(_));
    match study.run(scenario, &mut faircast_sim::Unobserved, &mut leaves) {
        Ok(run) => Some((run.summary, leaves)),
        Err(Error::Backend { error, .. }) if error.downcast_ref().is_some_and(lacks) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_loss_of_a_leaf_is_what_its_link_dropped() {
    for stack in simulated() {
        for leaf in ["loss = 0.05", "loss = 0.05\nreorder = { share = 0.2, delay = \"8 ms\" }"] {
            let scenario = stack.scenario(SIM_SECONDS, leaf, "");
            let (summary, seen) = run(&scenario, On::Sim).unwrap();
            let receivers = &summary.flows[0].receivers;
            assert_eq!(receivers[0].lost_packets, seen.lost - seen.withdrawn, "{stack:?}, {leaf}");
            assert!(seen.dropped[0] > 20, "{stack:?}, {leaf}: {:?} dropped", seen.dropped);
            let drops = seen.dropped.into_iter().zip(seen.dropped_bytes);
            for (receiver, (dropped, dropped_bytes)) in receivers.iter().zip(drops) {
                let (lost, ratio) = (receiver.lost_packets, receiver.loss_ratio);
                let to = |link: &&LinkSummary| link.from == "r" && link.to == receiver.node;
                let link = summary.links.iter().find(to).unwrap();
                let case = format!("{stack:?}, {leaf}, {}: {lost} of {dropped}", receiver.node);
                if stack.fresh_numbers {
                    // Drops at the end are not detected yet.
                    assert!((dropped.saturating_sub(10)..=dropped).contains(&lost), "{case}");
                } else {
                    // Repairs of one number are dropped too, and a tree repeats several for a
                    // packet.
                    let repairs = summary.flows[0].counts.repair_packets as f64;
                    let lost_repairs = (repairs * 1.4 * link.drop_ratio) as u64;
                    let least = dropped.saturating_sub(lost_repairs.max(dropped * 15 / 100) + 5);
                    assert!((least..=dropped).contains(&lost), "{case}");
                }
                // The share of bytes refers to data: a full queue drops more of the small packets.
                let sent_bytes = link.throughput_bps * f64::from(SIM_SECONDS) / 8.0;
                let share = dropped_bytes as f64 / (dropped_bytes as f64 + sent_bytes);
                let near = 0.8 * share..=1.2 * share;
                assert!(near.contains(&ratio), "{case}: {ratio} for {share}");
            }
        }
    }
}

#[test]
fn packets_that_a_relay_gave_up_are_lost() {
    let text = include_str!("../../../scenarios/credit/policies.toml");
    let set = ["flow.mcast.options.policy=best-path", "duration=30 s"];
    let overrides = Overrides { set: set.map(str::to_string).to_vec(), seed: None };
    let path = std::path::Path::new("policies.toml");
    let scenario = Scenario::parse(path, text, &overrides, &faircast_sim::catalog()).unwrap();
    let mut fates = Fates::default();
    let done = Study::default().run(&scenario, &mut faircast_sim::Unobserved, &mut fates).unwrap();
    let flow = &done.summary.flows[0];
    for (receiver, node) in flow.receivers.iter().zip(&scenario.flows[0].to) {
        let Fate { delivered, lost, abandoned } = &fates.0[node];
        assert_eq!(receiver.delivered_packets, delivered.len() as u64, "{receiver:?}");
        assert_eq!(receiver.lost_packets, lost.len() as u64, "{receiver:?}");
        assert!(abandoned.is_subset(lost) && abandoned.is_disjoint(delivered), "{receiver:?}");
        // A repaired packet is both lost and delivered.
        let known = lost.union(delivered).count() as u64;
        let near = flow.counts.sent_packets - 200..=flow.counts.sent_packets;
        assert!(near.contains(&known), "{receiver:?}: {known} of {}", flow.counts.sent_packets);
    }
    assert!(flow.loss_ratio > Some(0.8), "{:?}", flow.loss_ratio);
}

#[derive(Default)]
struct Fates(BTreeMap<NodeId, Fate>);

#[derive(Default)]
struct Fate {
    delivered: BTreeSet<u64>,
    lost: BTreeSet<u64>,
    abandoned: BTreeSet<u64>,
}

impl Sink for Fates {
    fn record(&mut self, record: &Record) {
        let Subject::Endpoint { node, sender: false, .. } = record.subject else { return };
        let Fate { delivered, lost, abandoned } = self.0.entry(node).or_default();
        match record.event {
            Event::Delivered { seq, .. } => _ = delivered.insert(seq),
            Event::LossDetected { seq, count } => lost.extend(seq..seq + count),
            Event::LossWithdrawn { seq, count } => {
                lost.retain(|it| !(seq..seq + count).contains(it))
            }
            Event::Abandoned { seq, count } => abandoned.extend(seq..seq + count),
            _ => {}
        }
    }
}

#[test]
fn drop_lists_and_header_lengths_mean_the_same_in_simulator_and_lab() {
    let listed = "drop_list = [2, 4]";
    let stacks = cases();
    std::thread::scope(|scope| {
        // A few at a time, since runs in the lab take real time.
        for some in stacks.chunks(stacks.len().div_ceil(7)) {
            scope.spawn(move || some.iter().for_each(|stack| one_of_both(stack, listed)));
        }
    });
}

fn one_of_both(stack: &Case, listed: &str) {
    let of = |on, seconds| {
        let scenario = stack.scenario(seconds, listed, "header = \"100 B\"");
        let (summary, seen) = run(&scenario, on)?;
        let link = summary.links.into_iter().find(|link| link.from == "r" && link.to == "a")?;
        Some((link.drops.listed, seen.sizes.last().copied()))
    };
    // QUIC at first cuts a stream into packets of 1200 bytes, 40 of them headers.
    let payload = if stack.stack.transport.name == "quic" { 1200 - 40 } else { 1000 };
    let all = Some((2, Some(payload + 100)));
    let mut want = all;
    if stack.stack.is_simulated() {
        assert_eq!(of(On::Sim, 60), all, "{stack:?} in the simulator");
        // Some stacks have hardly begun after 4 s.
        want = of(On::Sim, SECONDS);
    }
    if let Some(got) = of(On::Lab, SECONDS) {
        assert_eq!(Some(got), want, "{stack:?} in the lab");
    }
}

const SECONDS: u32 = 4;
