//! Scenarios with extreme values.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::path::Path;

use faircast_base::{Event, Time};
use faircast_scenario::{Overrides, Scenario};
use faircast_sim::{Builtin, SimOutcome, Simulation, Unobserved, catalog};
use faircast_trace::Recording;

fn run(seconds: &str, text: &str) -> (SimOutcome, Recording) {
    simulate(&parse(seconds, text))
}

fn parse(seconds: &str, text: &str) -> Scenario {
    let text = format!("title = \"What happens at the edge?\"\nduration = \"{seconds} s\"\n{text}");
    Scenario::parse(Path::new("edge.toml"), &text, &Overrides::default(), &catalog())
        .unwrap_or_else(|error| panic!("{error}"))
}

fn simulate(scenario: &Scenario) -> (SimOutcome, Recording) {
    let mut heard = Recording::default();
    let simulation = Simulation::new(scenario, &Builtin, &mut heard).unwrap();
    let outcome = simulation.run(&mut Unobserved);
    assert!(heard.records.is_sorted_by_key(|record| record.at));
    (outcome, heard)
}

fn link(from: &str, to: &str, rate: &str, delay: &str) -> String {
    format!("[[link]]\nbetween = [\"{from}\", \"{to}\"]\nrate = \"{rate}\"\ndelay = \"{delay}\"\n")
}

fn flow(name: &str, protocol: &str, from: &str, to: &str, more: &str) -> String {
    format!(
        "[[flow]]\nname = \"{name}\"\nprotocol = \"{protocol}\"\nfrom = \"{from}\"\n\
         to = [\"{to}\"]\n{more}\n"
    )
}

fn count(heard: &Recording, is: impl Fn(&Event) -> bool) -> usize {
    heard.records.iter().filter(|record| is(&record.event)).count()
}

fn delivered(outcome: &SimOutcome, flow: usize) -> u64 {
    outcome.deliveries[flow].iter().map(|(delivery, _)| delivery.bytes).sum()
}

#[test]
fn a_network_without_delay_at_the_highest_rate_neither_hangs_nor_loses() {
    for protocol in ["pgmcc", "tcp-sack", "cbr"] {
        let text = link("a", "b", "1000 Gbit/s", "0 s")
            + &flow("f", protocol, "a", "b", "data = \"1 MB\"");
        let (outcome, _) = run("20", &text);
        assert_eq!(delivered(&outcome, 0), 1_000_000, "{protocol}");
        assert!(outcome.deliveries[0][0].1, "{protocol}: intact");
        assert!(outcome.events < 100_000, "{protocol}: {} events", outcome.events);
    }
}

#[test]
fn the_slowest_link_outlasts_the_run() {
    let text = link("a", "b", "1 bit/s", "1 s") + &flow("f", "pgmcc", "a", "b", "");
    let (outcome, _) = run("100", &text);
    assert_eq!(delivered(&outcome, 0), 0);
    let under_way: u64 = outcome.balances.iter().map(|balance| balance.under_way).sum();
    assert!(under_way > 0, "it is in transmission");
}

#[test]
fn a_flow_that_stops_before_it_starts_says_nothing() {
    for protocol in ["pgmcc", "tcp-reno", "cbr"] {
        let text = link("a", "b", "1 Mbit/s", "1 ms")
            + &flow("f", protocol, "a", "b", "start = \"2 s\"\nstop = \"3 s\"");
        // The parser rejects this; a scenario built in code can have it.
        let mut scenario = parse("5", &text);
        scenario.flows[0].stop = Some(Time::from_nanos(1_000_000_000));
        let (outcome, heard) = simulate(&scenario);
        let sent = count(&heard, |event| matches!(event, Event::DataSent { .. }));
        assert_eq!((sent, outcome.packet_hops), (0, 0), "{protocol}");
    }
}

#[test]
fn a_run_of_a_nanosecond_and_one_without_flows_end() {
    let net = link("a", "b", "1 Mbit/s", "1 ms");
    let (outcome, _) = run("0.000000001", &(net.clone() + &flow("f", "cbr", "a", "b", "")));
    assert_eq!(outcome.at, Time::from_nanos(1));
    let mut scenario = parse("10", &(net + &flow("f", "cbr", "a", "b", "")));
    scenario.flows.clear();
    let (outcome, heard) = simulate(&scenario);
    assert_eq!((outcome.packet_hops, heard.records.len()), (0, 0));
}

#[test]
fn flows_of_all_kinds_share_nodes_without_hearing_each_other() {
    let mut text = link("a", "r", "20 Mbit/s", "1 ms") + &link("r", "b", "20 Mbit/s", "1 ms");
    text += "[[node]]\nname = \"r\"\nprogram = \"pgm-element\"\n";
    // Both directions at once: every node is sender, receiver or both, with two flows of each kind.
    for (i, protocol) in ["pgmcc", "tcp-reno", "tcp-newreno", "tcp-sack", "cbr"].iter().enumerate()
    {
        for (from, to) in [("a", "b"), ("b", "a")] {
            text += &flow(&format!("{from}{i}"), protocol, from, to, "data = \"200 kB\"");
        }
    }
    let (outcome, heard) = run("60", &text);
    for (flow, receivers) in outcome.deliveries.iter().enumerate() {
        let (delivery, intact) = &receivers[0];
        // The last two flows are CBR, which repairs nothing.
        let (least, whole) = if flow < 8 { (200_000, true) } else { (150_000, *intact) };
        assert!(delivery.bytes >= least, "flow {flow}: {delivery:?}");
        assert_eq!(*intact, whole, "flow {flow}");
    }
    let refused = count(&heard, |event| matches!(event, Event::BadInput { .. }));
    assert_eq!(refused, 0, "no machine gets what is another's");
}

#[test]
fn a_shorter_delay_lets_later_packets_overtake_and_nothing_is_lost() {
    let text = "[[link]]\nbetween = [\"a\", \"b\"]\nrate = \"10 Mbit/s\"\ndelay = \"200 ms\"\n\
                changes = [ { at = \"1 s\", delay = \"0 s\" }, { at = \"1.5 s\", delay = \"80 ms\" } ]\n"
        .to_string();
    for protocol in ["pgmcc", "tcp-newreno"] {
        let (outcome, _) =
            run("30", &(text.clone() + &flow("f", protocol, "a", "b", "data = \"2 MB\"")));
        assert_eq!(delivered(&outcome, 0), 2_000_000, "{protocol}");
        assert!(outcome.deliveries[0][0].1, "{protocol}: intact");
    }
}

#[test]
fn a_receiver_that_comes_and_goes_hears_what_is_sent_meanwhile() {
    let stays: Vec<String> = (0..50)
        .map(|i| format!("{{ node = \"b\", at = \"{}.0 s\", leave = \"{}.5 s\" }}", i + 1, i + 1))
        .collect();
    let text = link("a", "b", "1 Mbit/s", "5 ms")
        + &flow("f", "cbr", "a", "b\", \"c", &format!("join = [ {} ]", stays.join(", ")))
        + &link("a", "c", "1 Mbit/s", "5 ms")
        + &flow("g", "pgmcc", "a", "b\", \"c", &format!("join = [ {} ]", stays.join(", ")));
    let (outcome, heard) = run("60", &text);
    let moments = |wanted: Event| {
        let of = heard.records.iter().filter(|record| record.event == wanted);
        let mut moments: Vec<_> =
            of.map(|record| (record.at, format!("{:?}", record.subject))).collect();
        moments.sort();
        moments.dedup();
        moments.len()
    };
    assert_eq!((moments(Event::Joined), moments(Event::Left)), (2 * 51, 2 * 50));
    for flow in 0..2 {
        let [with_breaks, throughout] = &outcome.deliveries[flow][..] else { panic!() };
        let (part, all) = (with_breaks.0.bytes, throughout.0.bytes);
        // A controlled source waits for an acker that has just left.
        let most = if flow == 0 { all * 2 / 3 } else { all * 9 / 10 };
        assert!(part > all / 6 && part < most, "flow {flow}: {part} of {all}");
    }
}
