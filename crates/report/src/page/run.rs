//! Page of a run.

mod tables;
mod tree;

use faircast_base::Time;
use faircast_trace::Header;

use super::Page;
use super::data::data;
use super::html::{HtmlTable, escape, facts, folded, heading, note, section};
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
        ("plots", "Plots", figures(header)),
        ("flows", "Flows", flows(summary, series)),
        ("receivers", "Receivers", receivers(summary)),
        ("representatives", "Representatives", representatives(series)),
        ("tree", "Repair tree", tree(summary, series, ended)),
        ("links", "Links", links(header, summary)),
        ("scenario", "Scenario", scenario(header)),
    ];
    let mut main = intro(summary);
    let mut navigation = Vec::new();
    for (anchor, label, content) in sections {
        if !content.is_empty() {
            main.push_str(&section(anchor, label, &content));
            navigation.push((anchor.to_owned(), label.to_owned()));
        }
    }
    let shown = plots::plots(series, ended);
    let data = format!("[{}]", data(series, &shown, summary.interrupted, ended));
    Page {
        title: &summary.title,
        kind: "run report",
        navigation: &navigation,
        main: &main,
        footer: &footer(summary),
        data: &data,
    }
    .render()
}

fn intro(summary: &Summary) -> String {
    let mut html = heading(&summary.title, &escape(&summary.circumstances()));
    if summary.interrupted {
        let (after, of) = (seconds(summary.ended_s), seconds(summary.duration_s));
        let text = format!(
            "The run was stopped after {after} of {of}. All averages are over the part that ran; plots \
             are grey where it did not."
        );
        html.push_str(&note("note", "Interrupted.", &text));
    }
    if let Some(lateness) = &summary.lateness
        && let Some(doubts) = lateness.doubts()
    {
        let class = if lateness.is_invalid() { "note bad" } else { "note" };
        html.push_str(&format!("<p class=\"{class}\" role=\"note\">{}.</p>\n", escape(&doubts)));
    }
    let damaged = all_receivers(summary).filter(|(_, r)| r.intact == Some(false)).count();
    if damaged > 0 {
        let who = match damaged {
            1 => "one receiver".into(),
            _ => format!("{} receivers", count(damaged as u64)),
        };
        let text = format!("At {who} what was delivered is not what was sent.");
        html.push_str(&note("note bad", "Damaged data.", &text));
    }
    for mismatch in summary.mismatch_notes() {
        html.push_str(&note("note bad", "Another scheme.", &(escape(&mismatch) + ".")));
    }
    for incomplete in summary.incomplete_notes() {
        html.push_str(&note("note bad", "Not everything.", &(escape(&incomplete) + ".")));
    }
    let figures = first_figures(summary).into_iter();
    let figures =
        figures.map(|(term, value, small)| (term.into(), None, escape(&value), escape(&small)));
    html + &facts(&figures.collect::<Vec<_>>())
}

fn first_figures(summary: &Summary) -> Vec<(&'static str, String, String)> {
    let flows = &summary.flows;
    let mut facts = Vec::new();
    let total: f64 = flows.iter().map(|flow| flow.throughput_bps).sum();
    let flow_word = if flows.len() == 1 { "flow" } else { "flows" };
    facts.push(("Throughput", rate(total), format!("{} {flow_word}", count(flows.len() as u64))));
    if flows.len() > 1 {
        let (index, when) = match summary.shared_time() {
            Some(common) => {
                let span = format!("{} to {}", seconds(common.from_s), seconds(common.to_s));
                (common.jain_index, format!("while all were on, {span}; 1 is equal shares"))
            }
            None => (summary.jain_index, "1 is equal shares".into()),
        };
        facts.push(("Jain’s fairness index", format!("{index:.3}"), when));
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
        facts.push(("Receivers", count(receivers as u64), state));
    }
    let finished: Vec<f64> = flows.iter().filter_map(|flow| flow.completed_s).collect();
    if let Some([_, _, last]) = spread(finished.iter().copied()) {
        let what = format!("{} of {} flows complete", finished.len(), flows.len());
        facts.push(("Completed", seconds(last), what));
    }
    let busiest = summary.links.iter().max_by(|a, b| a.utilisation.total_cmp(&b.utilisation));
    if let Some(link) = busiest {
        let name = format!("{} → {}", link.from, link.to);
        facts.push(("Busiest link", percent(link.utilisation), name));
        let dropped: u64 = summary.links.iter().map(|link| link.dropped_packets).sum();
        facts.push(("Dropped packets", count(dropped), "on all links".into()));
    }
    let speed = format!("{} events", count(summary.events));
    facts.push(("Real time", seconds(summary.wall_s), speed));
    facts
}

fn all_receivers(summary: &Summary) -> impl Iterator<Item = (&FlowSummary, &ReceiverSummary)> {
    summary.flows.iter().flat_map(|flow| flow.receivers.iter().map(move |r| (flow, r)))
}

fn figures(header: &Header) -> String {
    let mut html = String::from(
        "<div class=\"plots\" data-plot=\"0\" data-kind=\"run\"><noscript><p>Plots need \
         JavaScript; the tables below do not.</p></noscript></div>\n",
    );
    if header.flows.len() > FLOWS_MAX {
        html.push_str(&format!(
            "<p class=\"soft small\">{FLOWS_MAX} of {} flows have lines of their own; the others \
             are shown as one mean for each protocol.</p>\n",
            count(header.flows.len() as u64)
        ));
    }
    html
}

fn reason_words(reason: faircast_base::SwitchReason) -> &'static str {
    use faircast_base::SwitchReason as R;
    match reason {
        R::First => "there was none",
        R::Slower => "it is slower than the one before",
        R::Left => "the one before left",
        R::Silent => "the one before fell silent",
        R::Lied => "the reports of the one before contradict its acknowledgements",
        R::Recovered => "the one before is no longer slower than others",
    }
}

fn representatives(series: &Series) -> String {
    let total: u64 = series.flows.iter().map(|flow| flow.switches_total).sum();
    if total == 0 {
        return String::new();
    }
    let mut table = HtmlTable::new(
        "Who set the pace from when on, and why: pgmcc’s acker, TFMCC’s CLR",
        4,
        &["When", "Flow", "Representative", "Why"],
    );
    let mut listed = 0;
    for flow in &series.flows {
        for switch in flow.switches.iter().take(SWITCH_ROWS_MAX - listed) {
            listed += 1;
            table.row(
                "",
                &[
                    format!("{:.3} s", switch.at.as_secs_f64()),
                    escape(&flow.name),
                    switch.name.as_deref().map_or_else(|| "nobody".into(), escape),
                    reason_words(switch.reason).into(),
                ],
            );
        }
    }
    let label = if total > listed as u64 {
        format!("The first {listed} of {} choices", count(total))
    } else {
        format!("{} {}", count(total), if total == 1 { "choice" } else { "choices" })
    };
    folded(&label, &table.finish())
}

fn scenario(header: &Header) -> String {
    if header.text.is_empty() {
        return String::new();
    }
    format!(
        "<div class=\"card\"><pre tabindex=\"0\" aria-label=\"Text of the scenario\"><code>{}</code>\
         </pre></div>\n",
        escape(&header.text)
    )
}

fn footer(summary: &Summary) -> String {
    let mut html = format!("<p>Made by faircast {}.", escape(&summary.faircast));
    if let Some(hash) = &summary.trace_hash {
        html.push_str(&format!(
            " Trace <code>{}</code>: the same scenario, seed and version give the same hash.",
            escape(hash)
        ));
    }
    html.push_str("</p>");
    html
}
