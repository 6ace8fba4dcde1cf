//! Buffers of sessions under credits, by the hops between source, relays and receivers.

use std::collections::{BTreeMap, VecDeque};

use faircast_base::NodeId;
use faircast_proto::credit::RELAYED;
use faircast_proto::options::OptionValue;

use crate::{Flow, LinkSpec, Node, Scenario};

/// Least buffer in packets: the paper's 5 (src: credits s4).
const BUFFER_MIN: u64 = 5;
/// Largest buffer in packets that is chosen.
const BUFFER_MAX: u64 = 4096;
/// Packets per credit, if an option does not say it.
const UNIT_DEFAULT: u64 = 2;
/// Share of its rate below which a session gets a warning about its buffer.
const RATE_SHARE_MIN: f64 = 0.9;
/// Most nodes that send credits to one node without a warning: all send at once.
const ANSWERS_MAX: usize = 100;
/// Bytes of a credit on the wire, with the headers of IP and UDP.
const CREDIT_WIRE_BYTES: f64 = 68.0;

/// Path between two nodes of a session that handle credits: source, relays and receivers.
#[derive(Clone, Copy, Debug)]
struct Hop {
    from: NodeId,
    to: NodeId,
    /// Round trip of a packet and its credit in seconds, without queues.
    round_trip_s: f64,
    /// Packets per second over the hop, limited by the fastest receiver below.
    packets_per_s: f64,
}

impl Hop {
    /// Returns the least buffer over a hop: `B - M + 1` packets per round trip (docs/credits.md).
    fn buffer(&self, unit: u64) -> u64 {
        (self.round_trip_s * self.packets_per_s).ceil() as u64 + unit - 1
    }
}

/// Hops of a session; none if a receiver has no path from the source.
#[derive(Debug, Default)]
struct Tree {
    hops: Vec<Hop>,
    /// Per link below a node: the node, the senders of credits, and the reverse rate in bit/s.
    answers: BTreeMap<usize, (NodeId, usize, f64)>,
}

fn unit(flow: &Flow) -> u64 {
    flow.options.integer("credit_unit").map_or(UNIT_DEFAULT, |unit| unit.max(1) as u64)
}

impl Tree {
    fn new(flow: &Flow, nodes: &[Node], links: &[LinkSpec]) -> Self {
        let source = flow.sender();
        let mut outgoing: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
        for (link, spec) in links.iter().enumerate() {
            outgoing[spec.from.index()].push(link);
        }
        let mut incoming: Vec<Option<usize>> = vec![None; nodes.len()];
        let mut queue = VecDeque::from([source]);
        while let Some(node) = queue.pop_front() {
            for &link in &outgoing[node.index()] {
                let to = links[link].to;
                if to != source && incoming[to.index()].is_none() {
                    incoming[to.index()] = Some(link);
                    queue.push_back(to);
                }
            }
        }
        let is_relay = |node: NodeId| {
            let program = nodes[node.index()].program.as_ref();
            program.is_some_and(|program| program.name == "credit")
        };
        let header = flow.header.map_or(HEADERS_BYTES, faircast_base::Bytes::count);
        let bits = 8.0 * (flow.packet.count() + header) as f64;
        let mut tree = Self::default();
        let mut seen = vec![false; nodes.len()];
        for receiver in &flow.to {
            let mut end = *receiver;
            // Up to the source, or to the path of an earlier receiver.
            while end != source && !std::mem::replace(&mut seen[end.index()], true) {
                let (mut node, mut round_trip_s, mut hop_bps) = (end, 0.0, f64::INFINITY);
                let mut first = (0, f64::INFINITY);
                while node == end || node != source && !is_relay(node) {
                    let Some(link) = incoming[node.index()] else { return Self::default() };
                    let config = &links[link].config;
                    let rate = config.rate.bits_per_s() as f64;
                    round_trip_s += 2.0 * config.delay.as_secs_f64() + bits / rate;
                    hop_bps = hop_bps.min(rate);
                    node = links[link].from;
                    first = (link, rate);
                }
                let (link, rate) = first;
                tree.answers.entry(link).or_insert((node, 0, rate)).1 += 1;
                let packets_per_s = hop_bps / bits;
                tree.hops.push(Hop { from: node, to: end, round_trip_s, packets_per_s });
                end = node;
            }
        }
        tree.limit_rates(flow, source);
        tree
    }

    /// Limits hops to those above and to the fastest receiver below, or the slowest (`worst-path`).
    fn limit_rates(&mut self, flow: &Flow, source: NodeId) {
        let is_worst_path = !flow.options.has("program")
            && flow.options.text("policy").is_none_or(|policy| policy == "worst-path");
        if is_worst_path {
            let least = self.hops.iter().map(|hop| hop.packets_per_s).fold(f64::INFINITY, f64::min);
            self.hops.iter_mut().for_each(|hop| hop.packets_per_s = least);
            return;
        }
        let above: BTreeMap<NodeId, (NodeId, f64)> =
            self.hops.iter().map(|hop| (hop.to, (hop.from, hop.packets_per_s))).collect();
        let way = |end: NodeId| {
            let (mut node, mut nodes, mut least) = (end, Vec::new(), f64::INFINITY);
            while node != source {
                let Some(&(from, rate)) = above.get(&node) else { break };
                nodes.push(node);
                least = least.min(rate);
                node = from;
            }
            (nodes, least)
        };
        let mut fastest: BTreeMap<NodeId, f64> = BTreeMap::new();
        for receiver in &flow.to {
            let (nodes, rate) = way(*receiver);
            for node in nodes {
                let known = fastest.entry(node).or_default();
                *known = known.max(rate);
            }
        }
        for hop in &mut self.hops {
            hop.packets_per_s = fastest.get(&hop.to).copied().unwrap_or(hop.packets_per_s);
        }
    }
}

/// Default bytes of a data packet's headers on the wire: capsule, protocol, UDP and IP.
const HEADERS_BYTES: u64 = 130;

impl Scenario {
    /// Sets a missing `credit_buffer` by the longest hop, or over relay nodes as real hosts do.
    pub(crate) fn size_credit_buffers(&mut self) {
        let Self { flows, nodes, links, .. } = self;
        for flow in flows {
            if !flow.via.is_empty() {
                let usual = RELAYED.map(|(key, value)| (key.into(), OptionValue::Integer(value)));
                flow.options = flow.options.under(&usual, &flow.stack.options());
            }
            if flow.stack.hop.is_none() || flow.options.has("credit_buffer") {
                continue;
            }
            let unit = unit(flow);
            let tree = Tree::new(flow, nodes, links);
            let Some(buffer) = tree.hops.iter().map(|hop| hop.buffer(unit)).max() else { continue };
            let buffer = buffer.clamp(BUFFER_MIN, BUFFER_MAX) as i64;
            let buffer = [("credit_buffer".to_string(), OptionValue::Integer(buffer))];
            flow.options = flow.options.under(&buffer, &flow.stack.options());
        }
    }

    /// Returns warnings about settings that limit the results, as sentences.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let by_routers = |flow: &&Flow| flow.stack.hop.is_some() && flow.via.is_empty();
        for flow in self.flows.iter().filter(by_routers) {
            let (name, unit) = (&flow.name, unit(flow));
            let node = |node: NodeId| &self.nodes[node.index()].name;
            let tree = Tree::new(flow, &self.nodes, &self.links);
            let buffer = flow.options.integer("credit_buffer").map_or(BUFFER_MIN, |it| it as u64);
            if let Some(hop) = tree.hops.iter().max_by_key(|hop| hop.buffer(unit)) {
                let carried = (buffer + 1).saturating_sub(unit.min(buffer)) as f64;
                let share = carried / (hop.round_trip_s * hop.packets_per_s).max(1.0);
                if share < RATE_SHARE_MIN {
                    warnings.push(format!(
                        "flow \"{name}\": credit_buffer = {buffer} gives {:.0} % of the rate: the hop {} to {} \
                         has a round trip of {:.1} ms; use {}",
                        share * 100.0,
                        node(hop.from),
                        node(hop.to),
                        hop.round_trip_s * 1e3,
                        hop.buffer(unit).min(BUFFER_MAX),
                    ));
                }
            }
            for (above, count, bps) in
                tree.answers.values().filter(|(_, count, _)| *count > ANSWERS_MAX)
            {
                // Receivers send one credit per unit: the rate of credits limits the data.
                let packets = bps * unit as f64 / (8.0 * CREDIT_WIRE_BYTES * *count as f64);
                let rate = packets * 8.0 * flow.packet.count() as f64;
                warnings.push(format!(
                    "flow \"{name}\": {count} nodes send their credits to {} in the same moments: their link \
                     leaves room for {:.3} Mbit/s of data, and for far less if its queue holds fewer than \
                     {count} packets; put routers with program = \"credit\" between",
                    node(*above),
                    rate / 1e6,
                ));
            }
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Catalog, Overrides, ProgramEntry};
    use faircast_proto::catalog;

    fn catalog() -> Catalog {
        let protocol = catalog::stack("credit").unwrap();
        let relay = catalog::relay("credit").unwrap();
        let program = ProgramEntry { name: relay.name, about: relay.about, options: relay.options };
        Catalog { protocols: vec![protocol], programs: vec![program], ..Catalog::default() }
    }

    fn scenario(options: &str, more: &str) -> Scenario {
        let link = |ends: &str, rate: &str, delay: &str| {
            format!("[[link]]\nbetween = {ends}\nrate = \"{rate}\"\ndelay = \"{delay}\"\n")
        };
        let (first, far, near) = (
            link("[\"s\", \"r\"]", "100 Mbit/s", "1 ms"),
            link("[\"r\", \"a\"]", "100 Mbit/s", "10 ms"),
            link("[\"r\", \"b\"]", "10 Mbit/s", "1 ms"),
        );
        let text = format!(
            "duration = \"5 s\"\n{first}{far}{near}[[node]]\nname = \"r\"\nprogram = \"credit\"\n\
             [[flow]]\nname = \"f\"\nprotocol = \"credit\"\nfrom = \"s\"\nto = [\"a\"{more}]\n\
             packet = \"1120 B\"\noptions = {{ {options} }}\n"
        );
        let catalog = catalog();
        let path = Path::new("f.toml");
        Scenario::parse(path, &text, &Overrides::default(), &catalog).unwrap()
    }

    fn buffer(scenario: &Scenario) -> Option<i64> {
        scenario.flows[0].options.integer("credit_buffer")
    }

    #[test]
    fn a_buffer_holds_what_its_longest_hop_takes_at_the_rate_of_the_session() {
        // 100 Mbit/s, 10 000 bits a packet, 20.1 ms, and M - 1 more.
        let fast = scenario("", "");
        assert_eq!(buffer(&fast), Some(202));
        assert!(fast.warnings().is_empty(), "{:?}", fast.warnings());
        // The slowest branch, 10 Mbit/s, sets the pace, except under best-path.
        assert_eq!(buffer(&scenario("", ", \"b\"")), Some(22));
        assert_eq!(buffer(&scenario("policy = \"best-path\"", ", \"b\"")), Some(202));
        assert_eq!(buffer(&scenario("credit_unit = 20", "")), Some(220));
    }

    #[test]
    fn no_hop_is_as_fast_as_its_links_where_all_below_are_slower() {
        let text = "duration = \"5 s\"\n[[link]]\nbetween = [\"s\", \"r\"]\nrate = \"100 Mbit/s\"\n\
            delay = \"10 ms\"\n[[link]]\nstar = { center = \"r\", leaves = [\"a\", \"b\"] }\n\
            rate = \"10 Mbit/s\"\ndelay = \"1 ms\"\n[[node]]\nname = \"r\"\nprogram = \"credit\"\n\
            [[flow]]\nname = \"f\"\nprotocol = \"credit\"\nfrom = \"s\"\nto = [\"a\", \"b\"]\n\
            packet = \"1120 B\"\noptions = { policy = \"best-path\"";
        let parsed = |more: &str| {
            let (path, text) = (Path::new("f.toml"), format!("{text}{more} }}\n"));
            Scenario::parse(path, &text, &Overrides::default(), &catalog()).unwrap()
        };
        // 10 Mbit/s, 10 000 bits a packet, 20.1 ms, and M - 1 more.
        assert_eq!(buffer(&parsed("")), Some(22));
        assert_eq!(parsed(", credit_buffer = 22").warnings(), [""; 0]);
    }

    #[test]
    fn a_crowd_without_relays_is_named() {
        let crowd = |program: &str| {
            let text = format!(
                "duration = \"5 s\"\n[[link]]\nbetween = [\"s\", \"r\"]\nrate = \"10 Mbit/s\"\n\
                 delay = \"1 ms\"\n[[link]]\nstar = {{ center = \"r\", leaves = [\"l{{1..300}}\"] }}\nrate = \"10 Mbit/s\"\n\
                 delay = \"5 ms\"\n{program}[[flow]]\nname = \"f\"\nprotocol = \"credit\"\nfrom = \"s\"\n\
                 to = [\"l{{1..300}}\"]\npacket = \"1000 B\"\n"
            );
            let path = Path::new("f.toml");
            Scenario::parse(path, &text, &Overrides::default(), &catalog()).unwrap().warnings()
        };
        // 68 bytes for two packets from each of 300, over 10 Mbit/s.
        let warnings = crowd("");
        assert!(
            warnings.len() == 1 && warnings[0].contains("300 nodes send their credits to s"),
            "{warnings:?}"
        );
        assert!(warnings[0].contains("room for 0.980 Mbit/s"), "{warnings:?}");
        // The relay has as many receivers, but each on a link of its own.
        assert_eq!(crowd("[[node]]\nname = \"r\"\nprogram = \"credit\"\n"), [""; 0]);
    }

    #[test]
    fn a_buffer_that_was_set_stays_and_one_that_is_too_small_is_said() {
        let small = scenario("credit_buffer = 5", "");
        assert_eq!(buffer(&small), Some(5));
        let warnings = small.warnings();
        let want = "flow \"f\": credit_buffer = 5 gives 2 % of the rate: the hop r to a has a round trip of 20.1 ms; \
                    use 202";
        assert_eq!(warnings, [want]);
    }
}
