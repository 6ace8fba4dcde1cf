//! Edits of traces, and searches for the places where mutants make them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::facts::{Delivery, Facts, is, text};
use super::model::{Lines, Rng};

pub(super) fn is_ordered(it: &Delivery) -> bool {
    ["agreed", "safe"].contains(&it.service.as_str())
}

pub(super) fn renumber(lines: &mut [Value]) {
    let mut next = 1;
    for line in lines {
        match text(line, "event") {
            "start" => next = 1,
            "cut" => {
                let length = line["to"].as_u64().unwrap() - line["from"].as_u64().unwrap();
                (line["from"], line["to"]) = (json!(next), json!(next + length));
                next += length + 1;
            }
            "resume" => line["next"] = json!(next),
            "deliver" | "group" | "view" | "transitional" | "refused" => {
                line["n"] = json!(next);
                next += 1;
            }
            _ => {}
        }
    }
}

pub(super) fn remove(lines: &mut Lines, it: &Delivery) {
    lines[it.process].1.remove(it.line);
    renumber(&mut lines[it.process].1);
}

pub(super) fn insert(lines: &mut Lines, process: usize, line: usize, mut event: Value) {
    let like = lines[process].1[line - 1].clone();
    (event["process"], event["incarnation"]) =
        (like["process"].clone(), like["incarnation"].clone());
    lines[process].1.insert(line, event);
    renumber(&mut lines[process].1);
}

pub(super) fn swap(lines: &mut Lines, one: &Delivery, other: &Delivery) {
    lines[one.process].1.swap(one.line, other.line);
    renumber(&mut lines[one.process].1);
}

pub(super) fn pick<T>(rng: &mut Rng, candidates: impl Iterator<Item = T>) -> Option<T> {
    let mut candidates: Vec<T> = candidates.collect();
    let at = rng.below(candidates.len());
    (!candidates.is_empty()).then(|| candidates.swap_remove(at))
}

pub(super) fn sites<'a>(
    lines: &'a Lines,
    event: &'a str,
) -> impl Iterator<Item = (usize, usize, &'a Value)> {
    let all = lines.iter().enumerate().flat_map(|(process, (_, of))| {
        of.iter().enumerate().map(move |(line, it)| (process, line, it))
    });
    all.filter(move |(_, _, it)| is(it, event))
}

pub(super) fn change(
    (lines, rng, event): (&mut Lines, &mut Rng, &str),
    counts: impl Fn(&Value) -> bool,
    with: impl FnOnce(&mut Value),
) -> Option<()> {
    let (process, line, _) = pick(rng, sites(lines, event).filter(|it| counts(it.2)))?;
    with(&mut lines[process].1[line]);
    Some(())
}

pub(super) fn remove_one(
    (lines, f, rng): (&mut Lines, &Facts, &mut Rng),
    counts: impl Fn(&Lines, &Delivery) -> bool,
) -> Option<()> {
    let it = pick(rng, f.deliveries.iter().filter(|it| counts(lines, it)))?;
    remove(lines, it);
    Some(())
}

/// Edits two deliveries at one process, by [`remove_first`] or [`swap`].
pub(super) fn edit_two(
    (lines, f, rng): (&mut Lines, &Facts, &mut Rng),
    edit: impl FnOnce(&mut Lines, &Delivery, &Delivery),
    counts: impl Fn(&Lines, &Delivery, &Delivery) -> bool,
) -> Option<()> {
    let (one, other) = pick(rng, f.pairs().filter(|(one, other)| counts(lines, one, other)))?;
    edit(lines, one, other);
    Some(())
}

pub(super) fn remove_first(lines: &mut Lines, one: &Delivery, _: &Delivery) {
    remove(lines, one);
}

pub(super) fn remove_everywhere(lines: &mut Lines, id: &str) -> Option<()> {
    for (_, of) in lines.iter_mut() {
        of.retain(|line| !is(line, "deliver") || text(line, "id") != id);
        renumber(of);
    }
    Some(())
}

pub(super) fn daemon(event: &Value) -> String {
    text(event, "process").split_once('@').unwrap().1.to_string()
}

pub(super) fn add(set: &mut Value, name: &str) {
    set.as_array_mut().unwrap().push(name.into());
}

pub(super) fn take(set: &mut Value, name: &str) {
    set.as_array_mut().unwrap().retain(|it| it != name);
}

pub(super) fn delay(lines: &mut Lines, f: &Facts, it: &Delivery) -> Option<()> {
    text(&lines[it.send.0].1[it.send.1], "view").split_once('.')?;
    let stay = f.stay(it);
    let next = stay.next.clone().filter(|it| it != "quiet")?;
    let mut event = lines[it.process].1[it.line].clone();
    (event["view"], event["transitional"]) = (json!(next), json!(false));
    lines[it.process].1.insert(stay.end + 1, event);
    remove(lines, it);
    Some(())
}

pub(super) fn is_synchronous(lines: &Lines, (process, line): (usize, usize)) -> bool {
    let start = lines[process].1[..line].iter().rfind(|it| is(it, "start")).unwrap();
    start["virtual_synchrony"] == true
}

/// True if a trace without this delivery still shows that the message was not refused.
pub(super) fn is_surely_taken(lines: &Lines, f: &Facts, it: &Delivery) -> bool {
    !is_synchronous(lines, it.send) || f.by_id[&it.id].len() > 1
}

pub(super) fn is_cause(f: &Facts, one: &Delivery, other: &Delivery) -> bool {
    let causal = ["causal", "agreed", "safe"];
    let (sender, line) = other.send;
    causal.contains(&one.service.as_str())
        && causal.contains(&other.service.as_str())
        && one.send.0 != sender
        && f.others(one)
            .any(|it| it.process == sender && it.line < line && f.stays[it.stay].end > line)
}

pub(super) fn is_own_join(line: &Value, groups: &BTreeSet<String>) -> bool {
    line["reason"] == "join"
        && line["subject"] == line["process"]
        && groups.contains(text(line, "group"))
}

/// True for a process that joined the message's only group within the view and stays a member.
pub(super) fn is_joiner(lines: &Lines, f: &Facts, it: &Delivery) -> bool {
    let (stay, of) = (f.stay(it), &lines[it.process].1);
    let joins = of[stay.begin..it.line].iter().rposition(|line| is_own_join(line, &it.groups));
    let mut rest = of[stay.begin..stay.end].iter();
    let leaves = rest.any(|it| it["reason"] == "leave" && it["subject"] == it["process"]);
    let is_sent_later =
        it.send.0 != it.process || joins.is_some_and(|joins| it.send.1 > stay.begin + joins);
    it.groups.len() == 1
        && joins.is_some()
        && !leaves
        && is_sent_later
        && !stay.is_cut
        && stay.next.is_some()
}
