//! Path delays of a scenario's flows.

use faircast_base::{Duration, NodeId};
use faircast_scenario::Scenario;

use crate::topology::{NO_LINK, Topology};

/// Returns the shortest round-trip time of any flow with empty queues: all delays, and a data
/// packet's transmission times on the forward links. A missing reverse path counts as the forward
/// path. `None` without a path from a sender to a receiver.
pub fn shortest_round_trip(scenario: &Scenario) -> Option<Duration> {
    let mut topology = Topology::new(scenario.nodes.len(), &scenario.links);
    let mut round_trips = Vec::new();
    for flow in &scenario.flows {
        let pairs = flow.from.iter().flat_map(|from| flow.to.iter().map(move |to| (*from, *to)));
        for (from, to) in pairs.filter(|(from, to)| from != to) {
            let there = path(scenario, &mut topology, from, to, flow.packet.count());
            let Some(there) = there else { continue };
            let back = path(scenario, &mut topology, to, from, 0).unwrap_or(there);
            round_trips.push(there.as_nanos().saturating_add(back.as_nanos()));
        }
    }
    round_trips.into_iter().min().map(Duration::from_nanos)
}

fn path(
    scenario: &Scenario,
    topology: &mut Topology,
    from: NodeId,
    to: NodeId,
    bytes: u64,
) -> Option<Duration> {
    let (mut at, mut ns) = (from, 0u64);
    while at != to {
        let link = topology.next_link(at, to);
        if link == NO_LINK {
            return None;
        }
        let config = &scenario.links[link as usize].config;
        ns = ns.saturating_add(config.delay.as_nanos());
        ns = ns.saturating_add(config.rate.time_for(bytes).as_nanos());
        at = topology.link_end(link);
    }
    Some(Duration::from_nanos(ns))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use faircast_scenario::Overrides;

    use super::*;

    #[test]
    fn the_shortest_of_all_flows_counts_with_its_packet_on_each_link() {
        let text = "duration = \"1 s\"\n\
            [[link]]\nbetween = [\"a\", \"r\"]\nrate = \"1 Mbit/s\"\ndelay = \"10 ms\"\n\
            [[link]]\nbetween = [\"r\", \"b\"]\nrate = \"500 kbit/s\"\ndelay = \"20 ms\"\n\
            [[link]]\nfrom = \"r\"\nto = \"c\"\nrate = \"1 Mbit/s\"\ndelay = \"1 ms\"\n\
            [[flow]]\nname = \"far\"\nprotocol = \"tcp-reno\"\nfrom = \"a\"\nto = [\"b\"]\npacket = \"1000 B\"\n";
        let of = |more: &str| {
            let text = format!("{text}{more}");
            let scenario =
                Scenario::parse(Path::new("t"), &text, &Overrides::default(), &crate::catalog());
            shortest_round_trip(&scenario.unwrap()).unwrap()
        };
        // Packet: 8 ms and 16 ms; forward delay 30 ms; reverse delay 30 ms.
        assert_eq!(of(""), Duration::from_millis(84));
        // No reverse path: 8 ms on each of two links and 11 ms, twice.
        let near = "[[flow]]\nname = \"near\"\nprotocol = \"cbr\"\nfrom = \"a\"\nto = [\"c\"]\n\
            packet = \"1000 B\"\noptions = { rate = \"1 kbit/s\" }\n";
        assert_eq!(of(near), Duration::from_millis(54));
    }
}
