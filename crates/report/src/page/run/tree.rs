//! Repair tree on a run's page: heads over time, their work, and all changes.

use std::collections::{BTreeMap, BTreeSet};

use faircast_base::{NodeId, Time};
use maud::{Markup, html};

use super::super::html::{HtmlTable, cell, folded};
use super::SWITCH_ROWS_MAX;
use crate::plots::natural;
use crate::series::{FlowSeries, HeadChange, Series};
use crate::summary::{FlowSummary, ReceiverSummary, Summary, TreeSummary};
use crate::text::{DASH, count, or_dash, seconds};

/// Most receivers with rows; of more receivers the heads have rows.
const RECEIVERS_SHOWN_MAX: usize = 40;
const HEADS_SHOWN_MAX: usize = 60;
const TREE_ROWS_MAX: usize = 500;
/// Spans of time in which members of a head are counted.
const SPANS: usize = 150;
const COLOURS: usize = 8;

pub(super) fn tree(summary: &Summary, series: &Series, ended: Time) -> Option<Markup> {
    let drawn = series.flows.iter().filter(|flow| flow.tree.total > 0);
    let trees: Vec<_> = summary.flows.iter().filter_map(|flow| Some((flow, flow.tree?))).collect();
    let total: u64 = drawn.clone().map(|flow| flow.tree.total).sum();
    (total > 0 || !trees.is_empty()).then(|| {
        html! {
            @for flow in drawn { div.card { (over_time(flow, series, ended)) } }
            @for (flow, tree) in &trees {
                (folded(&format!("{}: {}", flow.name, tree.in_words()), &heads(flow, tree)))
                (folded(&format!("{}: the last head of each receiver", flow.name), &last(flow)))
            }
            @if total > 0 { (changes(series, total)) }
        }
    })
}

/// Time with one head, or with one number of members.
struct Part {
    from: Time,
    to: Time,
    label: String,
    colour: usize,
    /// Share of the greatest number of members, 0 to 1.
    strength: f64,
}

struct Track {
    name: String,
    depth: usize,
    parts: Vec<Part>,
}

/// Head of each receiver over time. For many receivers, number of members of each head.
fn over_time(flow: &FlowSeries, series: &Series, ended: Time) -> Markup {
    let changes = &flow.tree.changes;
    let lineage = Lineage::new(changes, series);
    let name = &flow.name;
    if lineage.last.len() <= RECEIVERS_SHOWN_MAX {
        let tracks = receivers(changes, &lineage, series, ended);
        return table(&format!("{name}: which head each receiver had"), "Receiver", &tracks, ended);
    }
    let tracks = members(changes, &lineage, series, ended);
    let (shown, heads) = (tracks.len(), lineage.heads.len());
    let of = if shown < heads {
        format!(", the {shown} with the most of {heads}")
    } else {
        String::new()
    };
    let receivers = count(lineage.last.len() as u64);
    let caption = format!("{name}: how many of {receivers} receivers each head had{of}");
    table(&caption, "Head", &tracks, ended)
}

/// Tree at the end of the run.
struct Lineage {
    last: BTreeMap<NodeId, NodeId>,
    heads: BTreeSet<NodeId>,
    /// Nodes with their depths: each below its last head.
    order: Vec<(NodeId, usize)>,
}

impl Lineage {
    fn new(changes: &[HeadChange], series: &Series) -> Self {
        let bound = || changes.iter().filter_map(|it| Some((it.receiver, it.head?)));
        let last: BTreeMap<NodeId, NodeId> = bound().collect();
        let heads: BTreeSet<NodeId> = bound().map(|(_, head)| head).collect();
        let mut below: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
        for (receiver, head) in &last {
            below.entry(*head).or_default().push(*receiver);
        }
        // Taken from the end, so the first name comes last.
        let by_name = |nodes: &mut Vec<NodeId>| {
            nodes.sort_by_cached_key(|node| std::cmp::Reverse(natural(&series.node_name(*node))));
        };
        below.values_mut().for_each(by_name);
        let mut roots: Vec<NodeId> =
            heads.iter().copied().filter(|it| !last.contains_key(it)).collect();
        by_name(&mut roots);
        let mut order = Vec::new();
        let mut waiting: Vec<(NodeId, usize)> = roots.into_iter().map(|root| (root, 0)).collect();
        while let Some((node, depth)) = waiting.pop() {
            order.push((node, depth));
            let below = below.remove(&node).unwrap_or_default();
            waiting.extend(below.into_iter().map(|node| (node, depth + 1)));
        }
        // Last heads of different times may form a cycle.
        order.extend(below.into_values().flatten().map(|node| (node, 1)));
        Self { last, heads, order }
    }
}

fn receivers(changes: &[HeadChange], of: &Lineage, series: &Series, ended: Time) -> Vec<Track> {
    let mut heads_of: BTreeMap<NodeId, Vec<(Time, Option<NodeId>)>> = BTreeMap::new();
    for change in changes {
        heads_of.entry(change.receiver).or_default().push((change.at, change.head));
    }
    let heads = of.order.iter().filter(|(node, _)| of.heads.contains(node));
    let colours: BTreeMap<NodeId, usize> =
        heads.enumerate().map(|(place, (node, _))| (*node, place % COLOURS)).collect();
    let track = |(node, depth): &(NodeId, usize)| {
        let heads = heads_of.get(node)?;
        let until = heads.iter().skip(1).map(|(at, _)| *at).chain([ended]);
        let part = |(&(from, head), to): (&(Time, Option<NodeId>), Time)| {
            let head = head?;
            let (label, colour) =
                (series.node_name(head), colours.get(&head).copied().unwrap_or(0));
            Some(Part { from, to, label, colour, strength: 1.0 })
        };
        let parts = heads.iter().zip(until).filter_map(part).collect();
        Some(Track { name: series.node_name(*node), depth: depth.saturating_sub(1), parts })
    };
    of.order.iter().filter_map(track).collect()
}

fn members(changes: &[HeadChange], of: &Lineage, series: &Series, ended: Time) -> Vec<Track> {
    let span_of = |at: Time| {
        let share = at.as_nanos() as f64 / ended.as_nanos().max(1) as f64;
        ((share * SPANS as f64) as usize).min(SPANS - 1)
    };
    // Change of the number of members in each span of time, by head.
    let mut changes_of: BTreeMap<NodeId, Vec<i64>> = BTreeMap::new();
    let mut head_of: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    let mut add = |head: NodeId, span: usize, by: i64| {
        changes_of.entry(head).or_insert_with(|| vec![0; SPANS])[span] += by;
    };
    for HeadChange { at, receiver, head } in changes {
        let before = match head {
            Some(head) => head_of.insert(*receiver, *head),
            None => head_of.remove(receiver),
        };
        before.into_iter().for_each(|before| add(before, span_of(*at), -1));
        head.iter().for_each(|head| add(*head, span_of(*at), 1));
    }
    let counts: BTreeMap<NodeId, Vec<i64>> = changes_of
        .into_iter()
        .map(|(head, changes)| {
            let mut sum = 0;
            let counts = changes.into_iter().map(|by| {
                sum += by;
                sum
            });
            (head, counts.collect())
        })
        .collect();
    let most_of = |head: &NodeId| counts[head].iter().copied().max().unwrap_or(0);
    let mut biggest: Vec<NodeId> = counts.keys().copied().collect();
    biggest.sort_by_key(|head| std::cmp::Reverse(most_of(head)));
    biggest.truncate(HEADS_SHOWN_MAX);
    let most = biggest.first().map_or(1, most_of).max(1) as f64;
    let moment =
        |span: usize| Time::from_secs_f64(ended.as_secs_f64() * span as f64 / SPANS as f64);
    let track = |(node, depth): &(NodeId, usize)| {
        let counts = counts.get(node).filter(|_| biggest.contains(node))?;
        let mut parts: Vec<Part> = Vec::new();
        let mut before = 0;
        for (span, count) in counts.iter().copied().enumerate().filter(|(_, count)| *count > 0) {
            let (from, to) = (moment(span), moment(span + 1));
            match parts.last_mut().filter(|last| count == before && last.to == from) {
                Some(last) => last.to = to,
                None => parts.push(Part {
                    from,
                    to,
                    label: count.to_string(),
                    colour: 0,
                    strength: count as f64 / most,
                }),
            }
            before = count;
        }
        Some(Track { name: series.node_name(*node), depth: *depth, parts })
    };
    of.order.iter().filter_map(track).collect()
}

fn table(caption: &str, title: &str, tracks: &[Track], ended: Time) -> Markup {
    let head = [title, "Time"];
    let mut table = HtmlTable::new(caption, 2, &head);
    let end_s = ended.as_secs_f64();
    let scale = html! {
        div.scale {
            @for quarter in 0..=4 { span { (seconds(end_s * f64::from(quarter) / 4.0)) } }
        }
    };
    table.row("", [cell(""), scale]);
    for Track { name, depth, parts } in tracks {
        let indent = format!("padding-left:{}em", depth.min(&8));
        let name = html! { span style=(indent) { (name) } };
        table.row("", [name, html! { div.track { @for part in parts { (drawn(part, end_s)) } } }]);
    }
    html! { div.tree { (table.finish()) } }
}

fn drawn(part: &Part, end_s: f64) -> Markup {
    let (from_s, to_s) = (part.from.as_secs_f64(), part.to.as_secs_f64());
    let share = |s: f64| 100.0 * s / end_s.max(1e-9);
    let style = format!(
        "left:{:.2}%;width:{:.2}%;--swatch:var(--c{});--strength:{:.0}%",
        share(from_s),
        share(to_s - from_s),
        part.colour,
        12.0 + 38.0 * part.strength,
    );
    let title = format!("{}, {} to {}", part.label, seconds(from_s), seconds(to_s));
    html! { i style=(style) title=(title) { (part.label) } }
}

fn heads(flow: &FlowSummary, tree: &TreeSummary) -> Markup {
    let head = ["Head", "Its own head", "Level", "Members", "Repairs sent"];
    let mut table = HtmlTable::new("Who repairs for whom, as it was last", 2, &head);
    let mut members: BTreeMap<&str, u64> = BTreeMap::new();
    for head in flow.receivers.iter().filter_map(|receiver| receiver.repair_head.as_deref()) {
        *members.entry(head).or_default() += 1;
    }
    let members = |name: &str| members.get(name).copied().unwrap_or(0);
    let (direct, repairs) = (count(tree.direct_members), count(tree.sender_repairs));
    table.row("", [&*flow.from, DASH, "1", &direct, &repairs]);
    let is_head = |receiver: &&ReceiverSummary| {
        members(&receiver.node) > 0 || receiver.repairs_sent.is_some_and(|sent| sent > 0)
    };
    for receiver in by_level(flow).into_iter().filter(is_head).take(TREE_ROWS_MAX) {
        table.row("", cells(receiver, Some(members(&receiver.node))));
    }
    table.finish()
}

fn last(flow: &FlowSummary) -> Markup {
    let head = ["Receiver", "Head", "Level", "Repairs sent"];
    let mut table = HtmlTable::new("The last head of each receiver", 2, &head);
    for receiver in by_level(flow).into_iter().take(TREE_ROWS_MAX) {
        table.row("", cells(receiver, None));
    }
    table.finish()
}

fn by_level(flow: &FlowSummary) -> Vec<&ReceiverSummary> {
    let mut receivers: Vec<&ReceiverSummary> = flow.receivers.iter().collect();
    receivers.retain(|receiver| receiver.repairs_sent.is_some());
    receivers.sort_by_key(|receiver| receiver.level);
    receivers
}

fn cells(receiver: &ReceiverSummary, members: Option<u64>) -> Vec<String> {
    let mut cells = vec![
        receiver.node.clone(),
        receiver.repair_head.clone().unwrap_or_else(|| "none".into()),
        or_dash(receiver.level.map(|level| level.to_string())),
    ];
    cells.extend(members.map(count));
    cells.push(count(receiver.repairs_sent.unwrap_or_default()));
    cells
}

fn changes(series: &Series, total: u64) -> Markup {
    let head = ["When", "Flow", "Receiver", "Head"];
    let mut table = HtmlTable::new("Which repair head each receiver had from when on", 4, &head);
    let all =
        series.flows.iter().flat_map(|flow| flow.tree.changes.iter().map(move |it| (flow, it)));
    let mut listed = 0;
    for (flow, change) in all.take(SWITCH_ROWS_MAX) {
        listed += 1;
        let when = format!("{:.3} s", change.at.as_secs_f64());
        let head = change.head.map_or_else(|| "none".into(), |head| series.node_name(head));
        table.row("", [when, flow.name.clone(), series.node_name(change.receiver), head]);
    }
    folded(&format!("The first {listed} of {} choices of a head", count(total)), &table.finish())
}

#[cfg(test)]
mod tests {
    use faircast_base::{Event, FlowId};
    use faircast_trace::{FlowHeader, Header, Record, Sink, Subject};

    use super::*;

    /// Flow of receivers below heads of ten; `m1`, `m11`, `m21` ... are the sender's members.
    fn series(receivers: u32) -> Series {
        let mut nodes = vec!["s".to_string()];
        nodes.extend((1..=receivers).map(|i| format!("m{i}")));
        let to = (1..=receivers).map(NodeId).collect();
        let flow = FlowHeader { name: "f".into(), to, ..FlowHeader::default() };
        let mut series = Series::new(&Header { nodes, flows: vec![flow], ..Header::default() });
        for i in 1..=receivers {
            let own = (i - 1) / 10 * 10 + 1;
            let (head, level) = if own == i { (0, 2) } else { (own, 3) };
            change(&mut series, 1.0, i, Some(head), level);
        }
        series
    }

    fn change(series: &mut Series, at_s: f64, receiver: u32, head: Option<u32>, level: u32) {
        let at = Time::from_secs_f64(at_s);
        let subject = Subject::Endpoint { flow: FlowId(0), node: NodeId(receiver), sender: false };
        let event = Event::RepairHead { node: head.map(NodeId), level };
        series.record(&Record { at, subject, event });
    }

    fn page(series: &Series) -> String {
        let ended = Time::from_secs_f64(10.0);
        tree(&Summary::default(), series, ended).expect("there are changes").into_string()
    }

    fn rows(page: &str) -> Vec<(String, Vec<String>)> {
        let rows = page.split("<th scope=\"row\" class=\"l\">").skip(1);
        let text = |of: &str| of.split('>').nth(1).unwrap().split('<').next().unwrap().to_string();
        let parts = |row: &str| row.split("<i ").skip(1).map(text).collect();
        rows.filter(|row| row.contains("class=\"track\""))
            .map(|row| (text(row), parts(row)))
            .collect()
    }

    #[test]
    fn of_few_receivers_each_has_a_row_below_its_head_with_all_heads_that_it_had() {
        let mut series = series(12);
        change(&mut series, 5.0, 3, None, 0);
        change(&mut series, 6.0, 3, Some(11), 3);
        let page = page(&series);
        let rows = rows(&page);
        let names: Vec<&str> = rows.iter().map(|(name, _)| &**name).collect();
        assert_eq!(
            names,
            ["m1", "m2", "m4", "m5", "m6", "m7", "m8", "m9", "m10", "m11", "m3", "m12"],
            "each below its last head, as people count"
        );
        assert_eq!(rows[10].1, ["m1", "m11"]);
        assert!(
            page.contains("title=\"m1, 1 s to 5 s\"")
                && page.contains("title=\"m11, 6 s to 10 s\"")
        );
        assert!(page.contains("left:60.00%;width:40.00%"), "{page}");
    }

    #[test]
    fn of_many_receivers_the_heads_have_rows_with_how_many_members_they_had() {
        let mut series = series(1000);
        for receiver in 2..=10 {
            change(&mut series, 5.0, receiver, Some(11), 3);
        }
        let page = page(&series);
        let rows = rows(&page);
        assert_eq!(rows.len(), HEADS_SHOWN_MAX, "of 101 heads");
        assert!(
            page.contains("how many of 1,000 receivers each head had, the 60 with the most of 101")
        );
        assert_eq!(rows[0], ("s".to_string(), vec!["100".to_string()]));
        let of = |name: &str| rows.iter().find(|(known, _)| known == name).map(|(_, parts)| parts);
        assert_eq!(of("m1").unwrap(), &["9"], "none is not drawn");
        assert_eq!(of("m11").unwrap(), &["9", "18"]);
        assert!(page.len() < 100_000, "{} bytes", page.len());
    }
}
