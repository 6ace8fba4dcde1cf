//! Flows with several senders, which receive too.

use std::path::Path;

use faircast_proto::transport::EndSetup;
use faircast_scenario::Overrides;

use crate::{Builtin, catalog};

use super::*;

fn talk(flow: &str) -> Scenario {
    let star = |center, leaves| {
        format!(
            "[[link]]\nstar = {{ center = \"{center}\", leaves = {leaves} }}\n\
             rate = \"10 Mbit/s\"\ndelay = \"1 ms\"\n"
        )
    };
    let text = format!(
        "duration = \"5 s\"\n{}{}[[link]]\nbetween = [\"r1\", \"r2\"]\nrate = \"2 Mbit/s\"\n\
         delay = \"20 ms\"\n[[flow]]\nname = \"talk\"\nprotocol = \"cbr\"\n\
         packet = \"1000 B\"\noptions = {{ rate = \"100 kbit/s\" }}\n{flow}",
        star("r1", "[\"a\", \"b\"]"),
        star("r2", "[\"c\", \"d\"]"),
    );
    Scenario::parse(Path::new("t"), &text, &Overrides::default(), &catalog()).unwrap()
}

fn run(scenario: &Scenario) -> (SimOutcome, Log) {
    run_with(scenario, &Builtin, &mut Unobserved)
}

#[test]
fn everybody_hears_everybody_else() {
    let scenario =
        talk("from = [\"a\", \"b\", \"c\"]\nto = [\"c\", \"a\", \"d\"]\ndata = \"30 kB\"");
    let (outcome, log) = run(&scenario);
    // In the order of `to`: c and a have two other senders, d has three; b only sends.
    for ((delivery, intact), bytes) in outcome.deliveries[0].iter().zip([60_000, 60_000, 90_000]) {
        assert_eq!((delivery.bytes, *intact), (bytes, true));
        assert!(delivery.completed.is_some());
    }
    // Each packet crosses the middle link once per direction, and reaches receivers only.
    let arrived = |from: &str, to: &str| {
        let at = |name: &str| scenario.nodes.iter().position(|node| node.name == name).unwrap();
        let is = |link: &LinkSpec| link.from.index() == at(from) && link.to.index() == at(to);
        outcome.balances[scenario.links.iter().position(is).unwrap()].arrived
    };
    assert_eq!([arrived("r1", "r2"), arrived("r2", "r1")], [60, 30]);
    assert_eq!([arrived("r1", "b"), arrived("r2", "d"), arrived("r2", "c")], [0, 90, 60]);
    let senders = log.0.iter().filter_map(|record| match record.subject {
        Subject::Endpoint { node, sender: true, .. } => Some(node),
        _ => None,
    });
    let only: std::collections::BTreeSet<_> = senders.collect();
    assert_eq!(only.into_iter().collect::<Vec<_>>(), [scenario.flows[0].from[1]]);
}

#[test]
fn a_late_peer_sends_from_then_on_and_is_silent_once_it_has_left() {
    let scenario = talk(
        "from = [\"a\", \"d\"]\nto = [\"a\", \"d\"]\n\
         join = [{ node = \"d\", at = \"1 s\", leave = \"3 s\" }]",
    );
    let (outcome, log) = run(&scenario);
    let [(a, _), (d, _)] = &outcome.deliveries[0][..] else { panic!("two receivers") };
    // 12.5 packets of 1000 B per second, for two of five seconds.
    assert!((24_000..=26_000).contains(&a.bytes), "{}", a.bytes);
    assert!((24_000..=26_000).contains(&d.bytes), "{}", d.bytes);
    let heard = log.delivered_at(scenario.flows[0].from[0].0);
    let [first, last] = [heard[0], heard[heard.len() - 1]].map(Time::as_secs_f64);
    assert!((1.0..1.1).contains(&first) && (2.9..3.1).contains(&last), "{first} to {last}");
}

#[test]
fn a_flow_that_stops_silences_all_its_senders() {
    let everybody = "[\"a\", \"b\", \"c\", \"d\"]";
    let scenario = talk(&format!("from = {everybody}\nto = {everybody}\nstop = \"1 s\""));
    let (_, log) = run(&scenario);
    let sent = log.0.iter().filter(|r| matches!(r.event, Event::DataSent { .. }));
    assert_eq!(sent.clone().count(), 4 * 13);
    assert!(sent.map(|record| record.at.as_secs_f64()).all(|at| at <= 1.0));
}

#[test]
fn a_transport_of_one_source_has_no_ends_that_are_both() {
    let options = Default::default();
    let setup = EndSetup::new(FlowId(0), NodeId(0), &[NodeId(1)], &options);
    for (protocol, has) in [("cbr", true), ("pgmcc", false), ("tcp-reno", false)] {
        let role = Role::Both(Box::new(faircast_proto::content::Zeros { len: None }));
        let stack = faircast_proto::catalog::stack(protocol).unwrap();
        let end = stack.end(role, setup);
        assert_eq!(end.is_some(), has, "{protocol}");
    }
}
