//! Tests of every stack of the catalog between one lossy leaf and one without loss: the figures of loss against
//! the packets that the links dropped, in the simulator, and lists of drops and header lengths in simulator and lab
//! alike.

use faircast_base::{Event, NodeId};
use faircast_lab::LabError;
use faircast_proto::catalog::{self, Ends, SCHEMES, TRANSPORTS};
use faircast_report::{LinkSummary, Summary};
use faircast_scenario::{Overrides, Scenario};
use faircast_trace::{On, Record, Sink, Subject};

use crate::Error;

/// A protocol with one of its deliveries.
#[derive(Clone, Debug)]
struct Stack {
    protocol: &'static str,
    object: bool,
    /// Whether it may have more receivers than one.
    multicast: bool,
    /// Whether each transmission has a sequence number of its own.
    fresh_numbers: bool,
}

/// All stacks that run in the simulator.
fn stacks() -> Vec<Stack> {
    let mut all = Vec::new();
    for scheme in SCHEMES {
        for object in [false, true] {
            let fresh_numbers = object;
            all.push(Stack { protocol: scheme.name, object, multicast: true, fresh_numbers });
        }
    }
    for transport in TRANSPORTS.iter().filter(|it| matches!(it.ends, Ends::Alone { .. })) {
        let has = |key: &str| transport.options.iter().any(|spec| spec.name == key);
        let protocol = transport.name;
        let multicast = transport.multicast;
        for object in [false, true].into_iter().filter(|object| !object || has("delivery")) {
            // Objects over PGM and frames of hops number each transmission; CBR sends none again.
            let over_pgm = object && !transport.repair_heads;
            let fresh_numbers = over_pgm || ["hop", "cbr"].contains(&protocol);
            all.push(Stack { protocol, object, multicast, fresh_numbers });
        }
    }
    all
}

impl Stack {
    fn flow(&self) -> String {
        let to = if self.multicast { "\"a\", \"b\"" } else { "\"a\"" };
        let mut options = Vec::new();
        if self.object {
            options.push("delivery = \"object\"");
        }
        if self.protocol == "cbr" {
            options.push("rate = \"1 Mbit/s\"");
        }
        format!(
            "[[flow]]\nname = \"f\"\nprotocol = \"{}\"\nfrom = \"s\"\nto = [{to}]\n\
             packet = \"1000 B\"\noptions = {{ {} }}\n",
            self.protocol,
            options.join(", ")
        )
    }

    /// A network of one router, with `leaf` as more settings of the link to `a`, and `more` of the flow.
    fn scenario(&self, seconds: u32, leaf: &str, more: &str) -> Scenario {
        let link = |ends: &str, rate: u32, more: &str| {
            format!(
                "[[link]]\nbetween = {ends}\nrate = \"{rate} Mbit/s\"\ndelay = \"5 ms\"\n\
                 queue = {{ kind = \"droptail\", packets = 200 }}\n{more}\n"
            )
        };
        // What is too much for a leaf is dropped there and not before.
        let first = link("[\"s\", \"r\"]", 100, "");
        let lossy = link("[\"r\", \"a\"]", 2, leaf);
        let clean = link("[\"r\", \"b\"]", 2, "");
        let relay = match faircast_proto::credit::is_under(self.protocol) {
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

/// Data packets that the links to the leaves dropped, and the sizes of those of `a`; what `a` said of losses.
#[derive(Default)]
struct Leaves {
    a: Option<NodeId>,
    links: Vec<u32>,
    dropped: [u64; 2],
    lost: u64,
    withdrawn: u64,
    sizes: std::collections::BTreeSet<u32>,
}

/// Least bytes of a packet with a whole payload; no control packet has as many here.
const WHOLE: u32 = 900;

impl Sink for Leaves {
    fn record(&mut self, record: &Record) {
        match (record.subject, record.event) {
            (Subject::Link(link), Event::PacketDropped { bytes, .. }) => {
                let Some(leaf) = self.links.iter().position(|own| *own == link.0) else { return };
                self.dropped[leaf] += u64::from(bytes >= WHOLE);
                if leaf == 0 {
                    self.sizes.insert(bytes);
                }
            }
            (Subject::Endpoint { node, sender: false, .. }, event) if Some(node) == self.a => {
                match event {
                    Event::LossDetected { count, .. } => self.lost += count,
                    Event::LossWithdrawn { count, .. } => self.withdrawn += count,
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
    match crate::execute(scenario, on, &mut faircast_sim::Unobserved, &mut leaves) {
        Ok(done) => Some((done.summary, leaves)),
        Err(Error::Lab(
            error @ (LabError::NoNamespace(_) | LabError::NoTun | LabError::NoDevice(_)),
        )) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_loss_of_a_leaf_is_what_its_link_dropped() {
    for stack in stacks() {
        for leaf in ["loss = 0.05", "loss = 0.05\nreorder = { share = 0.2, delay = \"8 ms\" }"] {
            let scenario = stack.scenario(40, leaf, "");
            let (summary, seen) = run(&scenario, On::Sim).unwrap();
            let receivers = &summary.flows[0].receivers;
            assert_eq!(receivers[0].lost_packets, seen.lost - seen.withdrawn, "{stack:?}, {leaf}");
            assert!(seen.dropped[0] > 20, "{stack:?}, {leaf}: {:?} dropped", seen.dropped);
            for (receiver, dropped) in receivers.iter().zip(seen.dropped) {
                let (lost, ratio) = (receiver.lost_packets, receiver.loss_ratio);
                let case = format!("{stack:?}, {leaf}, {}: {lost} of {dropped}", receiver.node);
                if stack.fresh_numbers {
                    // What was dropped in the last moment is not known yet.
                    assert!((dropped.saturating_sub(10)..=dropped).contains(&lost), "{case}");
                } else {
                    // Repairs that repeat a number are dropped too: for each lost packet 0.05.
                    let least = (dropped * 85 / 100).saturating_sub(5);
                    assert!((least..=dropped).contains(&lost), "{case}");
                }
                let to = |link: &&LinkSummary| link.from == "r" && link.to == receiver.node;
                let link = summary.links.iter().find(to).unwrap();
                let near = 0.6 * link.drop_ratio..=1.4 * link.drop_ratio;
                assert!(near.contains(&ratio), "{case}: {ratio} for {}", link.drop_ratio);
            }
        }
    }
}

#[test]
fn packets_that_a_relay_gave_up_are_lost() {
    let text = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../scenarios/credit/policies.toml"
    ));
    let set = ["flow.mcast.options.policy=best-path", "duration=30 s"];
    let overrides = Overrides { set: set.map(str::to_string).to_vec(), seed: None };
    let path = std::path::Path::new("policies.toml");
    let scenario =
        Scenario::parse(path, &text.unwrap(), &overrides, &faircast_sim::catalog()).unwrap();
    let done = crate::execute(&scenario, On::Sim, &mut faircast_sim::Unobserved, &mut ()).unwrap();
    let flow = &done.summary.flows[0];
    for receiver in &flow.receivers {
        let missing = flow.sent_packets - receiver.delivered_packets;
        // What is on its way, or waits at a relay for the slow branch.
        let near = missing.saturating_sub(200)..=missing;
        assert!(near.contains(&receiver.lost_packets), "{receiver:?}: {missing}");
        assert!(receiver.lost_packets >= receiver.abandoned_packets, "{receiver:?}");
    }
    assert!(flow.loss_ratio > Some(0.8), "{:?}", flow.loss_ratio);
}

#[test]
fn drop_lists_and_header_lengths_mean_the_same_in_simulator_and_lab() {
    let listed = "drop_list = [2, 4]";
    let mut stacks = stacks();
    for transport in TRANSPORTS.iter().filter(|it| matches!(it.ends, Ends::Kernel { .. })) {
        let (protocol, multicast) = (transport.name, false);
        stacks.push(Stack { protocol, object: false, multicast, fresh_numbers: false });
    }
    std::thread::scope(|scope| {
        // A few at a time: their time passes with the clock.
        for some in stacks.chunks(stacks.len().div_ceil(7)) {
            scope.spawn(move || some.iter().for_each(|stack| one_of_both(stack, listed)));
        }
    });
}

fn one_of_both(stack: &Stack, listed: &str) {
    let of = |on, seconds| {
        let scenario = stack.scenario(seconds, listed, "header = \"100 B\"");
        let (summary, seen) = run(&scenario, on)?;
        let link = summary.links.into_iter().find(|link| link.from == "r" && link.to == "a")?;
        Some((link.drops.listed, seen.sizes.last().copied()))
    };
    let is_kernels = catalog::transport(stack.protocol)
        .is_some_and(|transport| matches!(transport.ends, Ends::Kernel { .. }));
    let all = Some((2, Some(1100)));
    let mut want = all;
    if !is_kernels {
        assert_eq!(of(On::Sim, 60), all, "{stack:?} in the simulator");
        // Some have hardly begun after so few seconds.
        want = of(On::Sim, SECONDS);
    }
    if let Some(got) = of(On::Lab, SECONDS) {
        assert_eq!(Some(got), want, "{stack:?} in the lab");
    }
}

/// Length of a run in the lab, in seconds.
const SECONDS: u32 = 4;
