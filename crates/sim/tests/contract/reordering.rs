//! Clause 12: reordering alone costs no protocol half of its rate.

use faircast_base::{Duration, Time};
use faircast_proto::stack::Stack;

use crate::world::{TCP, World, plain, protocols, run};

/// Length of a run, and of its warm-up, in seconds: every control starts with one or two packets.
const SECONDS: u64 = 10;
const WARMUP: u64 = 4;

/// Path of 10 Mbit/s and 40 ms without losses that delays this share of packets by this time.
fn world(reorder: Option<(f64, u64)>, flow: &str) -> World {
    let reorder = reorder.map_or(String::new(), |(share, late)| {
        format!("reorder = {{ share = {share}, delay = \"{late} ms\" }}\n")
    });
    World {
        down: plain("10 Mbit/s", 60) + &reorder,
        leaf: plain("100 Mbit/s", 1000),
        flow: flow.to_string(),
        ..World::new(1, SECONDS)
    }
}

fn rate(protocol: Stack, world: &World) -> usize {
    let (_, heard, _) = run(&world.scenario(protocol));
    let from = Time::ZERO + Duration::from_secs(WARMUP);
    heard.delivered.iter().filter(|at| **at >= from).count()
}

#[test]
fn reordered_packets_alone_cost_nobody_half_of_the_rate() {
    let all = protocols();
    let tcp = all.iter().find(|protocol| protocol.name() == TCP).unwrap();
    for reorder in [(0.25, 5), (0.01, 5), (0.1, 15)] {
        let tcp = rate(*tcp, &world(Some(reorder), "options = { reordering = true }\n"));
        for &protocol in &all {
            let has = |option: &str| protocol.has_option(option);
            let flows = match () {
                () if has("reordering") => vec!["options = { reordering = true }\n"],
                () if has("delivery") => {
                    vec!["", "data = \"1 GB\"\noptions = { delivery = \"object\" }\n"]
                }
                () => vec![""],
            };
            for flow in flows {
                let got = rate(protocol, &world(Some(reorder), flow));
                if 2 * got >= tcp {
                    continue;
                }
                // A scheme that is not limited by the path gets no more without reordering.
                let alone = rate(protocol, &world(None, flow));
                assert!(
                    2 * got >= alone,
                    "{} with {flow:?} and {reorder:?}: {got} packets where TCP has {tcp}, and {alone} \
                     without reordering",
                    protocol.name()
                );
            }
        }
    }
}
