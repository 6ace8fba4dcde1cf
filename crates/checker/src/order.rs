//! Rules of order: R7 and R8 without gaps, R9 without holes.

use std::collections::{HashMap, HashSet};

use crate::Findings;
use crate::model::{Act, Model, Place};
use crate::trace::Service;

/// Computes vector clocks of the causal, agreed and safe messages: by sending incarnation, the
/// number of its last message that is a cause. Causes are the sender's earlier messages, messages
/// that it delivered before, and the causes of both. R1: a send precedes each delivery, also
/// through other processes. R7: messages of service `fifo` or stronger are delivered in the order
/// of the sending incarnation, over all groups; weaker ones do not overtake them. R8: a cause is
/// delivered before its effect, over all groups and views.
pub(crate) fn clocks(model: &Model<'_>, found: &mut Findings<'_>) -> Vec<Option<Box<[u32]>>> {
    let lives = model.acts.len();
    let mut clocks: Vec<Option<Box<[u32]>>> = vec![None; model.items.len()];
    let mut is_sent: Vec<bool> = model.items.iter().map(|item| item.send.is_none()).collect();
    // By incarnation and sender: known causes, last message in FIFO order.
    let (mut known, mut fifo) = (vec![vec![0; lives]; lives], vec![vec![0; lives]; lives]);
    let (mut cursors, mut waiting) = (vec![0; lives], HashMap::<usize, Vec<usize>>::new());
    let mut ready: Vec<usize> = (0..lives).rev().collect();
    loop {
        while let Some(life) = ready.pop() {
            while let Some(act) = model.acts[life].get(cursors[life]) {
                let item = &model.items[act.item];
                if act.stay.is_none() {
                    is_sent[act.item] = true;
                    if item.service >= Service::Causal {
                        let clock = clocks[act.item].insert(known[life].clone().into());
                        clock[life] = item.number;
                    }
                    ready.extend(waiting.remove(&act.item).unwrap_or_default());
                } else if !is_sent[act.item] {
                    waiting.entry(act.item).or_default().push(life);
                    break;
                } else if let Some(sender) = item.sender(Service::Fifo) {
                    let (places, last) = ([act.place, item.origin()], &mut fifo[life][sender]);
                    if *last > item.number {
                        wrong!(found, R7, places, "delivers {} after one sent later", item.name);
                    }
                    *last = item.number.max(*last);
                    let clock = clocks[act.item].as_deref().unwrap_or_default();
                    if !clock.is_empty() && known[life][sender] >= item.number {
                        wrong!(found, R8, places, "delivers {} after its effect", item.name);
                    }
                    known[life].iter_mut().zip(clock).for_each(|(it, other)| *it = *other.max(it));
                }
                cursors[life] += 1;
            }
        }
        // Each blocked incarnation waits for a send of another one, up to a cycle.
        let blocked = |life: usize| model.acts[life].get(cursors[life]);
        let Some(mut act) = (0..lives).find_map(blocked) else { return clocks };
        for _ in 0..lives {
            act = blocked(model.items[act.item].origin().life).unwrap_or(act);
        }
        let item = &model.items[act.item];
        wrong!(found, R1, [act.place, item.origin()], "delivers {} before its send", item.name);
        is_sent[act.item] = true;
        ready.extend(waiting.remove(&act.item).unwrap_or_default());
    }
}

/// Returns, for each ordered item, the items delivered directly before by some process.
pub(crate) fn order(model: &Model<'_>) -> Vec<Vec<(usize, Place)>> {
    let mut edges: Vec<Vec<(usize, Place)>> = vec![Vec::new(); model.items.len()];
    for acts in &model.acts {
        let is_ordered = |act: &&Act| act.stay.is_some() && model.items[act.item].is_ordered();
        let ordered: Vec<&Act> = acts.iter().filter(is_ordered).collect();
        for pair in ordered.windows(2).filter(|pair| pair[0].item != pair[1].item) {
            let (edges, edge) = (&mut edges[pair[1].item], (pair[0].item, pair[1].place));
            if edges.iter().all(|it| it.0 != edge.0) {
                edges.push(edge);
            }
        }
    }
    edges
}

/// R9: the order has no cycle. A depth-first search reports a cycle for each back edge.
pub(crate) fn cycles(model: &Model<'_>, found: &mut Findings<'_>) {
    let mut is_open = vec![false; model.items.len()];
    let mut is_done = is_open.clone();
    for root in 0..model.items.len() {
        let mut path = vec![(root, 0)];
        while let Some((item, edge)) = path.pop() {
            if edge == 0 && is_open[item] {
                let begin = path.iter().position(|it| it.0 == item).unwrap_or_default();
                let edges = path[begin..].iter().map(|(item, edge)| model.order[*item][edge - 1]);
                let (items, places): (Vec<usize>, Vec<Place>) = edges.unzip();
                let names: Vec<&str> = items.iter().rev().map(|it| model.items[*it].name).collect();
                wrong!(found, R9, places, "delivers in a cycle: {}", names.join(", "));
            } else if !is_done[item] {
                let before = model.order[item].get(edge);
                (is_open[item], is_done[item]) = (before.is_some(), before.is_none());
                path.extend(before.iter().flat_map(|it| [(item, edge + 1), (it.0, 0)]));
            }
        }
    }
}

pub(crate) fn before(model: &Model<'_>, item: usize) -> HashSet<usize> {
    let (mut seen, mut open) = (HashSet::new(), vec![item]);
    while let Some(next) = open.pop() {
        for (before, _) in &model.order[next] {
            if model.items[*before].view == model.items[item].view && seen.insert(*before) {
                open.push(*before);
            }
        }
    }
    seen
}
