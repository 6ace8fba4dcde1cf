//! Tests of the plans of rounds: valid scenarios, and faults that cover all hosts and end again.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use faircast_base::NodeId;
use faircast_scenario::{Overrides, Scenario};

use super::overlay::plan as daemons;
use super::plan::{Action, FAULT_PERIOD, Plan, Who};
use super::sequence::{BACK_WITHIN, CALM};
use super::{Fault, Request, relays};

fn request(receivers: u32) -> Request {
    Request { receivers, scheme: "tram".into(), ..Request::default() }
}

fn scenario(text: &str) -> Scenario {
    let (path, none, catalog) =
        (Path::new("soak.toml"), Overrides::default(), faircast_sim::catalog());
    let scenario = Scenario::parse(path, text, &none, &catalog);
    scenario.unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Checks that the flows of a plan's scenario are those of its hosts, whose nodes they name.
fn check_hosts(text: &str, hosts: &[Who]) {
    let scenario = scenario(text);
    assert_eq!(scenario.flows.len(), hosts.len());
    for (who, flow) in hosts.iter().zip(&scenario.flows) {
        assert_eq!((flow.sender(), &flow.name), (who.node(), &who.name()));
        assert_eq!(scenario.nodes[who.node().index()].name, who.name());
    }
}

#[test]
fn every_plan_is_a_scenario_whose_nodes_are_the_hosts() {
    for seed in 0..200 {
        let plan = Plan::new(seed, &request(4));
        check_hosts(&plan.scenario, &Who::all(4));
        let last = plan.actions.last().expect("there are actions").0;
        assert!(last >= FAULT_PERIOD && last < Duration::from_secs(60), "{last:?}");
        assert!(plan.actions.is_sorted_by_key(|(at, _)| *at));
    }
}

#[test]
fn a_seed_is_a_plan_and_seeds_cover_every_fault() {
    let text = |seed| format!("{:?}", Plan::new(seed, &request(3)));
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
    let seen = |request: &Request| -> BTreeSet<_> {
        (0..20).flat_map(|seed| Plan::new(seed, request).faults).collect()
    };
    let all = Fault::ALL.iter().map(|(fault, ..)| *fault);
    assert!(seen(&request(3)).into_iter().eq(all.filter(|fault| !fault.is_of_networks())));
    let without = Request { scheme: "pgmcc".into(), ..request(3) };
    let seen = seen(&without);
    assert!(seen.iter().all(|fault| !fault.is_of_heads()) && seen.len() > 16);
    let size = Some(faircast_base::Bytes::new(7));
    let only = Plan::new(1, &Request { only: vec![Fault::Corrupt], size, ..without });
    assert_eq!((only.faults, only.bytes), (vec![Fault::Corrupt], 7));
    assert!(only.scenario.contains("corrupt = ") && !only.scenario.contains("duplicate"));
}

#[test]
fn killed_stopped_and_cut_off_hosts_come_back() {
    for seed in 0..200 {
        let plan = Plan::new(seed, &request(2));
        for who in (0..2).map(Who::Receiver).chain([Who::Sender]) {
            let (mut runs, mut up, mut goes) = (false, true, true);
            for (_, action) in &plan.actions {
                match *action {
                    Action::Start(w) | Action::StartAhead(w) if w == who => runs = true,
                    Action::Kill(w) | Action::Leave(w) if w == who => runs = false,
                    Action::Stop(w, stopped) if w == who => goes = !stopped,
                    Action::Interface(w, is_up) if w == who => up = is_up,
                    _ => {}
                }
            }
            assert!(runs && up && goes, "seed {seed}: {who:?}");
        }
    }
}

#[test]
fn a_sequence_is_a_scenario_and_each_fault_has_its_time() {
    let (mut hosts, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    let request = Request { one_by_one: true, ..request(3) };
    for seed in 0..50 {
        let plan = Plan::new(seed, &request);
        check_hosts(&plan.scenario, &Who::all(3));
        let mut at_both = BTreeSet::new();
        for fault in Fault::of('s') {
            let at = plan.trials.iter().filter(|trial| trial.fault == fault);
            let at: Vec<Who> = at.map(|trial| trial.who).collect();
            if let [_, _] = at[..] {
                at_both.insert(fault.name());
                let is_receiver = |who: &Who| matches!(who, Who::Receiver(_));
                assert!(at.contains(&Who::Sender) && at.iter().any(is_receiver));
            }
            assert!(!at.is_empty(), "{}", fault.name());
        }
        let want = ["address", "black-hole", "corrupt", "duplicate", "interface", "loss"];
        assert!(at_both.into_iter().eq(want.into_iter().chain(["outage", "reorder"])));
        assert!(plan.trials.windows(2).all(|two| two[0].to + BACK_WITHIN + CALM <= two[1].from));
        assert!(plan.actions.is_sorted_by_key(|(at, _)| *at), "{:?}", plan.actions);
        kinds.insert((plan.unicast, plan.sealed));
        let longest = plan.trials.iter().map(|trial| trial.to - trial.from).max().unwrap();
        assert!(longest < plan.give_up);
        hosts.extend(plan.trials.iter().map(|trial| trial.who));
    }
    assert_eq!(kinds.len(), 4, "group and unicast, sealed and not");
    assert!(hosts.len() == 5, "the sender, the outsider and each receiver: {hosts:?}");
    assert!(Plan::new(0, &Request { key: true, ..request.clone() }).sealed);
    let text = |seed| format!("{:?}", Plan::new(seed, &request));
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(3));
    let size = Some(faircast_base::Bytes::new(7));
    let only = Plan::new(1, &Request { only: vec![Fault::Address], size, ..request });
    assert_eq!((only.faults, only.bytes), (vec![Fault::Address], 7));
}

#[test]
fn three_seeds_have_every_fault_at_every_host_and_all_kinds_of_keys() {
    let mut keys = BTreeSet::new();
    let request = Request { relays: true, ..request(12) };
    for first in [0, 3, 30] {
        let mut targets = BTreeSet::new();
        for plan in [0, 1, 2].map(|i| Plan::new(first + i, &request)) {
            check_hosts(&plan.scenario, &relays::everybody(12));
            assert!(plan.trials.len() >= 6, "{:?}", plan.trials);
            let lost = plan.trials.iter().position(|it| it.fault == Fault::LoseReceiver);
            assert!(lost.is_none_or(|lost| lost + 1 == plan.trials.len()));
            targets.extend(plan.trials.iter().map(|trial| (trial.fault, trial.who)));
            keys.insert((plan.sealed, plan.relay_key));
        }
        assert_eq!(targets.len(), 22, "{targets:?}");
        let of_relays = targets.iter().filter(|(fault, _)| *fault == Fault::KillRelay);
        let above = of_relays.map(|(_, who)| who.relays_above().len());
        assert!(above.eq([0, 1, 2]), "a relay of each level");
    }
    assert_eq!(keys.len(), 3);
    let (only, size) = (vec![Fault::Rename], Some(faircast_base::Bytes::new(7)));
    let only = Plan::new(1, &Request { receivers: 2, key: true, only, size, ..request });
    assert_eq!((only.trials.len(), only.bytes, only.sealed), (3, 7, true));
}

#[test]
fn plans_of_daemons_are_scenarios_follow_from_their_seeds_and_have_every_fault() {
    let mut seen = BTreeSet::new();
    let plan = |seed, s, only: &[Fault]| daemons::Plan::new(seed, Duration::from_secs(s), only);
    for seed in 0..50 {
        let (plan, again) = (plan(seed, 100, &[]), plan(seed, 100, &[]));
        for (daemon, flow) in scenario(&plan.scenario).flows.iter().enumerate() {
            let want = (NodeId(daemon as u32), &daemons::name(daemon));
            assert_eq!((flow.sender(), &flow.name), want);
        }
        assert!(plan.trials.iter().all(|it| it.from < it.to));
        assert_eq!(plan.scenario, again.scenario);
        seen.extend(plan.trials.iter().map(|it| it.fault));
    }
    assert!(seen.into_iter().eq(Fault::of('o')));
    let only = plan(1, 20, &[Fault::OneWay]);
    assert!(only.trials.iter().all(|it| it.fault == Fault::OneWay && !it.links.is_empty()));
}
