//! Tests of the checker: good traces of a reference model, and mutants of them.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod edits;
mod facts;
mod model;
mod mutants;
mod program;

use std::io;
use std::time::Instant;

use facts::Facts;
use faircast_checker::{Rule, Trace, Violation, check};
use model::{Lines, Plan, Rng, generate};
use mutants::MUTANTS;
use serde_json::Value;

fn try_read(lines: &Lines, mixed: Option<u64>) -> io::Result<Trace> {
    let text = |lines: &[Value]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let Some(seed) = mixed else {
        let sources = lines.iter().map(|(name, lines)| (name.clone(), text(lines)));
        let sources: Vec<(String, String)> = sources.collect();
        return Trace::read(sources.iter().map(|(name, text)| (name.clone(), text.as_bytes())));
    };
    let (mut rng, mut all) = (Rng(seed), Vec::new());
    let mut left: Vec<_> = lines.iter().map(|(_, lines)| lines.iter().peekable()).collect();
    left.retain_mut(|it| it.peek().is_some());
    while !left.is_empty() {
        let at = rng.below(left.len());
        all.extend(left[at].next().cloned());
        left.retain_mut(|it| it.peek().is_some());
    }
    Trace::read([("all".to_string(), text(&all).as_bytes())])
}

fn read(lines: &Lines, mixed: Option<u64>) -> Trace {
    try_read(lines, mixed).unwrap()
}

fn rules(violations: &[Violation]) -> Vec<Rule> {
    let mut rules: Vec<Rule> = violations.iter().map(|it| it.rule).collect();
    rules.dedup();
    rules
}

#[test]
fn good_traces_have_no_violation() {
    let mut counts = [0; 3];
    let seeds = std::env::var("FAIRCAST_CHECKER_SEEDS").map(|it| it.parse().unwrap());
    for seed in 0..seeds.unwrap_or(100) {
        let lines = generate(seed, Plan::small(seed));
        let trace = read(&lines, (seed % 2 == 1).then_some(seed));
        let found = check(&trace);
        assert!(found.is_empty(), "seed {seed}: {:?}\n{}", rules(&found), found[0]);
        counts.iter_mut().zip(trace.counts()).for_each(|(sum, it)| *sum += it);
    }
    assert!(counts[1] > 20_000, "few deliveries: {counts:?}");
}

#[test]
fn each_mutant_breaks_its_rule() {
    let mut applied = vec![0; MUTANTS.len()];
    for seed in 0..80 {
        let lines = generate(seed, Plan::small(seed));
        let facts = Facts::new(&lines);
        for (index, (name, rule, mutate)) in MUTANTS.iter().enumerate() {
            let mut mutant = lines.clone();
            if mutate(&mut mutant, &facts, &mut Rng(seed)).is_none() {
                continue;
            }
            assert_ne!(lines, mutant, "seed {seed}: {name}: the trace is as before");
            let found = rules(&check(&read(&mutant, None)));
            assert!(found.contains(rule), "seed {seed}: {name}: {found:?}");
            applied[index] += 1;
        }
    }
    for ((name, _, _), applied) in MUTANTS.iter().zip(applied) {
        println!("{applied:4} {name}");
        assert!(applied >= 4, "{name}: applied to {applied} traces");
    }
}

fn damage(lines: &mut Lines, rng: &mut Rng) {
    for _ in 0..1 + rng.below(8) {
        let (to, from) = (rng.below(lines.len()), rng.below(lines.len()));
        let (at, other) = (rng.below(lines[to].1.len()), rng.below(lines[from].1.len()));
        let line = lines[from].1[other].clone();
        match rng.below(4) {
            0 => _ = lines[to].1.remove(at),
            1 => lines[to].1.insert(at, line),
            2 => {
                let other = rng.below(lines[to].1.len());
                lines[to].1.swap(at, other);
            }
            _ => {
                let line = line.as_object().unwrap();
                let (field, value) = line.iter().nth(rng.below(line.len())).unwrap();
                lines[to].1[at][field] = value.clone();
            }
        }
    }
}

#[test]
fn damaged_traces_are_judged_or_refused() {
    let (mut judged, mut wrong) = (0, 0);
    for seed in 0..60 {
        let lines = generate(seed, Plan::small(seed));
        for round in 0..30 {
            let mut damaged = lines.clone();
            damage(&mut damaged, &mut Rng(seed * 1000 + round));
            if let Ok(trace) = try_read(&damaged, None) {
                judged += 1;
                wrong += usize::from(!check(&trace).is_empty());
            }
        }
    }
    assert!(judged > 500 && wrong * 10 > judged * 8, "{wrong} of {judged} have violations");
}

#[test]
#[ignore = "prints how long long traces take"]
fn speed() {
    for (can_fail, steps) in [(false, 20_000), (true, 150_000)] {
        let lines = generate(1, Plan { daemons: 10, clients: 5, steps, can_fail });
        let text: String = lines.iter().flat_map(|it| &it.1).map(|it| format!("{it}\n")).collect();
        let begin = Instant::now();
        let trace = Trace::read([("all".to_string(), text.as_bytes())]).unwrap();
        let read = begin.elapsed();
        let found = check(&trace);
        assert!(found.is_empty(), "{}", found[0]);
        let [lives, deliveries, _] = trace.counts();
        println!(
            "faults: {can_fail}, {lives} incarnations, {deliveries} deliveries, {} MB: \
             read in {read:.2?}, checked in {:.2?}",
            text.len() / 1_000_000,
            begin.elapsed() - read
        );
    }
}
