//! Page of a run.

mod tables;
mod tree;

use faircast_base::{SwitchReason, Time};
use faircast_trace::Header;
use maud::{Markup, html};

use super::Page;
use super::data::data;
use super::html::{Fact, HtmlTable, facts, folded, heading, note, section};
use crate::plots;
use crate::series::{FLOWS_MAX, Series};
use crate::summary::{FlowSummary, ReceiverSummary, Summary};
use crate::text::{count, percent, rate, seconds, spread};
use tables::{flows, links, receivers};
use tree::tree;

const SWITCH_ROWS_MAX: usize = 200;

/// Returns the report of a run as one self-contained HTML file.
pub fn run_page(header: &Header, summary: &Summary, series: &Series) -> String {
    let ended = Time::from_secs_f64(summary.ended_s);
    let sections = [
        ("plots", "Plots", Some(figures(header))),
        ("flows", "Flows", flows(summary, series)),
        ("receivers", "Receivers", receivers(summary)),
        ("representatives", "Representatives", representatives(series)),
        ("tree", "Repair tree", tree(summary, series, ended)),
        ("links", "Links", links(header, summary)),
        ("scenario", "Scenario", scenario(header)),
    ];
    let sections: Vec<_> = sections
        .into_iter()
        .filter_map(|(anchor, label, content)| Some((anchor, label, content?)))
        .collect();
    let navigation: Vec<_> =
        sections.iter().map(|(anchor, label, _)| (anchor.to_string(), label.to_string())).collect();
    let shown = plots::plots(series, ended);
    let data = format!("[{}]", data(series, &shown, summary.interrupted, ended));
    Page {
        title: &summary.title,
        kind: "run report",
        navigation: &navigation,
        main: html! {
            (heading(&summary.title, &summary.circumstances()))
            (notes(summary))
            (facts(first_figures(summary)))
            @for (anchor, label, content) in &sections { (section(anchor, label, content)) }
        },
        footer: footer(summary),
        data: &data,
    }
    .render()
}

/// Reasons to doubt the figures: at the top, since a reader of tables may miss them.
fn notes(summary: &Summary) -> Markup {
    let damaged = all_receivers(summary).filter(|(_, r)| r.intact == Some(false)).count();
    html! {
        @if summary.interrupted {
            @let (after, of) = (seconds(summary.ended_s), seconds(summary.duration_s));
            (note("note", "Interrupted.", &format!(
                "The run was stopped after {after} of {of}. All averages are over the part that \
                 ran; plots are grey where it did not."
            )))
        }
        @if let Some(lateness) = &summary.lateness {
            @if let Some(doubts) = lateness.doubts() {
                @let class = if lateness.is_invalid() { "note bad" } else { "note" };
                p class=(class) role="note" { (doubts) "." }
            }
        }
        @if damaged > 0 {
            @let who = match damaged {
                1 => "one receiver".into(),
                _ => format!("{} receivers", count(damaged as u64)),
            };
            @let text = format!("At {who} what was delivered is not what was sent.");
            (note("note bad", "Damaged data.", &text))
        }
        @for mismatch in summary.mismatch_notes() {
            (note("note bad", "Another scheme.", &(mismatch + ".")))
        }
        @for incomplete in summary.incomplete_notes() {
            (note("note bad", "Not everything.", &(incomplete + ".")))
        }
    }
}

fn first_figures(summary: &Summary) -> Vec<Fact> {
    let flows = &summary.flows;
    let mut facts = Vec::new();
    let total: f64 = flows.iter().map(|flow| flow.rates.throughput_bps).sum();
    let flow_word = if flows.len() == 1 { "flow" } else { "flows" };
    let of = format!("{} {flow_word}", count(flows.len() as u64));
    facts.push(Fact::new("Throughput", rate(total), of));
    if flows.len() > 1 {
        let (index, when) = match summary.shared_time() {
            Some(common) => {
                let span = format!("{} to {}", seconds(common.from_s), seconds(common.to_s));
                (common.jain_index, format!("while all were on, {span}; 1 is equal shares"))
            }
            None => (summary.jain_index, "1 is equal shares".into()),
        };
        facts.push(Fact::new("Jain’s fairness index", format!("{index:.3}"), when));
    }
    let receivers = all_receivers(summary).count();
    if receivers > 0 {
        let checked = all_receivers(summary).filter(|(_, r)| r.intact.is_some()).count();
        let intact = all_receivers(summary).filter(|(_, r)| r.intact == Some(true)).count();
        let state = match (checked, intact) {
            (0, _) => "data not checked".into(),
            (c, i) if c == i && c == receivers => "all data intact".into(),
            (c, i) => format!("data intact at {} of {} checked", count(i as u64), count(c as u64)),
        };
        facts.push(Fact::new("Receivers", count(receivers as u64), state));
    }
    let finished: Vec<f64> = flows.iter().filter_map(|flow| flow.completed_s).collect();
    if let Some([_, _, last]) = spread(finished.iter().copied()) {
        let of = format!("{} of {} flows complete", finished.len(), flows.len());
        facts.push(Fact::new("Completed", seconds(last), of));
    }
    let busiest = summary.links.iter().max_by(|a, b| a.utilisation.total_cmp(&b.utilisation));
    if let Some(link) = busiest {
        let name = format!("{} → {}", link.from, link.to);
        facts.push(Fact::new("Busiest link", percent(link.utilisation), name));
        let dropped: u64 = summary.links.iter().map(|link| link.dropped_packets).sum();
        facts.push(Fact::new("Dropped packets", count(dropped), "on all links"));
    }
    let events = format!("{} events", count(summary.events));
    facts.push(Fact::new("Real time", seconds(summary.wall_s), events));
    facts
}

fn all_receivers(summary: &Summary) -> impl Iterator<Item = (&FlowSummary, &ReceiverSummary)> {
    summary.flows.iter().flat_map(|flow| flow.receivers.iter().map(move |r| (flow, r)))
}

fn figures(header: &Header) -> Markup {
    html! {
        div.plots data-plot="0" data-kind="run" {
            noscript { p { "Plots need JavaScript; the tables below do not." } }
        }
        @if header.flows.len() > FLOWS_MAX {
            p.soft.small {
                (FLOWS_MAX) " of " (count(header.flows.len() as u64))
                " flows have lines of their own; the others are shown as one mean for each protocol."
            }
        }
    }
}

fn reason_words(reason: SwitchReason) -> &'static str {
    match reason {
        SwitchReason::First => "there was none",
        SwitchReason::Slower => "it is slower than the one before",
        SwitchReason::Left => "the one before left",
        SwitchReason::Silent => "the one before fell silent",
        SwitchReason::Lied => "the reports of the one before contradict its acknowledgements",
        SwitchReason::Recovered => "the one before is no longer slower than others",
    }
}

fn representatives(series: &Series) -> Option<Markup> {
    let total: u64 = series.flows.iter().map(|flow| flow.switch_count).sum();
    if total == 0 {
        return None;
    }
    let mut table = HtmlTable::new(
        "Who set the pace from when on, and why: pgmcc’s acker, TFMCC’s CLR",
        4,
        &["When", "Flow", "Representative", "Why"],
    );
    let all = series.flows.iter().flat_map(|flow| flow.switches.iter().map(move |it| (flow, it)));
    let mut listed = 0;
    for (flow, switch) in all.take(SWITCH_ROWS_MAX) {
        listed += 1;
        let when = format!("{:.3} s", switch.at.as_secs_f64());
        let name = switch.name.as_deref().unwrap_or("nobody");
        table.row("", [&when, &*flow.name, name, reason_words(switch.reason)]);
    }
    let label = if total > listed {
        format!("The first {listed} of {} choices", count(total))
    } else {
        format!("{} {}", count(total), if total == 1 { "choice" } else { "choices" })
    };
    Some(folded(&label, &table.finish()))
}

fn scenario(header: &Header) -> Option<Markup> {
    (!header.text.is_empty()).then(|| {
        html! {
            div.card {
                pre tabindex="0" aria-label="Text of the scenario" { code { (header.text) } }
            }
        }
    })
}

fn footer(summary: &Summary) -> Markup {
    html! {
        p {
            "Made by faircast " (summary.faircast) "."
            @if let Some(hash) = &summary.trace_hash {
                " Trace " code { (hash) }
                ": the same scenario, seed and version give the same hash."
            }
        }
    }
}
