//! Page of a suite: published figures and our results.

mod strip;

use faircast_base::Time;
use maud::{Markup, Render, html};

use super::Page;
use super::data::data;
use super::html::{Fact, HtmlTable, cell, facts, heading};
use crate::class::Class;
use crate::plots;
use crate::suite::{Plots, Row, Suite, number};
use crate::text::{DASH, capital, or_dash};
use strip::strip;

/// Returns a suite's results as one self-contained HTML file: an overview, then each experiment.
pub fn bench_page(suite: &Suite) -> String {
    let groups = groups(suite);
    let mut all = Vec::new();
    let main = html! {
        (intro(suite))
        (overview(&groups))
        @for group in &groups {
            @if !group.name.is_empty() { h2 id=(anchor("group", group.name)) { (group.name) } }
            @for experiment in &group.experiments { (section(experiment, group, &mut all)) }
        }
    };
    Page {
        title: title(suite),
        kind: "bench report",
        navigation: &navigation(&groups),
        main,
        footer: html! {},
        data: &format!("[{}]", all.join(",")),
    }
    .render()
}

struct Group<'a> {
    name: &'a str,
    experiments: Vec<Experiment<'a>>,
}

struct Experiment<'a> {
    id: &'a str,
    rows: Vec<&'a Row>,
}

fn groups(suite: &Suite) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for row in &suite.rows {
        let place = groups.iter().position(|group| group.name == row.source.group);
        let place = place.unwrap_or_else(|| {
            groups.push(Group { name: &row.source.group, experiments: Vec::new() });
            groups.len() - 1
        });
        let experiments = &mut groups[place].experiments;
        let id = if row.source.experiment.is_empty() { &row.id } else { &row.source.experiment };
        match experiments.iter_mut().find(|experiment| experiment.id == id) {
            Some(experiment) => experiment.rows.push(row),
            None => experiments.push(Experiment { id, rows: vec![row] }),
        }
    }
    groups
}

/// Links to the groups. Experiments have links only without groups, since all would be too many.
fn navigation(groups: &[Group<'_>]) -> Vec<(String, String)> {
    let mut links = vec![("overview".into(), "Overview".into())];
    for group in groups {
        if group.name.is_empty() {
            let experiments = group.experiments.iter();
            links.extend(experiments.map(|e| (anchor("experiment", e.id), e.id.into())));
        } else {
            let short = group.name.split_once(": ").map_or(group.name, |(short, _)| short);
            links.push((anchor("group", group.name), short.into()));
        }
    }
    links
}

fn title(suite: &Suite) -> &str {
    if suite.about.is_empty() { &suite.name } else { &suite.about }
}

pub(super) fn anchor(kind: &str, name: &str) -> String {
    let mut anchor = format!("{kind}-");
    for c in name.chars() {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' => anchor.push(c),
            other => anchor.push_str(&format!("_{:x}", u32::from(other))),
        }
    }
    anchor
}

fn intro(suite: &Suite) -> Markup {
    let counts = suite.counts();
    let facts_of = Class::ALL.map(|class| {
        let rows = counts.get(class);
        let tone = match class {
            Class::Holds if rows > 0 => Some("good"),
            Class::NotReproduced if rows > 0 => Some("bad"),
            _ => None,
        };
        let [_, meaning, detail] = class.texts();
        Fact { tone, ..Fact::new(capital(meaning), rows, detail) }
    });
    html! { (heading(title(suite), &format!("Suite {}", suite.name))) (facts(facts_of)) }
}

fn verdict(row: &Row) -> Markup {
    let (class, text) = match Class::of(row) {
        Class::Holds => ("verdict", "✓ holds"),
        Class::Explained => ("verdict known", "✗ explained"),
        Class::NotReproduced => ("verdict no", "✗ cause unknown"),
        Class::Fitted => ("verdict none", "fitted"),
        Class::Baseline => ("verdict none", "✓ baseline"),
        Class::Measured => ("verdict none", "measured"),
    };
    html! { span class=(class) { (text) } }
}

fn overview(groups: &[Group<'_>]) -> Markup {
    let rows = || groups.iter().flat_map(|group| &group.experiments).flat_map(|of| &of.rows);
    let [theirs, ours] = rows().next().map_or(["Paper", "Ours"], |row| row.sides());
    let both = format!("{theirs} and {}", ours.to_lowercase());
    let has_optimum = rows().any(|row| row.values.optimum.is_some());
    let mut head = vec!["Figure", "What", theirs, ours, "Accepted", &both];
    head.extend(has_optimum.then_some("Optimum"));
    head.push("Verdict");
    let caption = format!(
        "{theirs} against {}: the band is what is accepted, the dot our median, the line our \
         spread over seeds, its thick part where the median lies with 95 %",
        ours.to_lowercase()
    );
    let mut table = HtmlTable::new(&caption, 2, &head);
    for group in groups {
        if !group.name.is_empty() {
            table.group(html! { a href={ "#" (anchor("group", group.name)) } { (group.name) } });
        }
        for row in group.experiments.iter().flat_map(|experiment| &experiment.rows) {
            table.row("", overview_cells(row, has_optimum));
        }
    }
    html! {
        section aria-labelledby="overview" {
            h2 id="overview" { "Overview" }
            div.card.overview { (table.finish()) }
        }
    }
}

fn overview_cells(row: &Row, has_optimum: bool) -> Vec<Markup> {
    let mut cells = vec![
        html! { a href={ "#" (anchor("row", &row.id)) } { (row.id) } },
        html! { (row.title) " " small { (row.unit) } },
        html! { (paper(row)) (beside(row)) },
        html! { strong { (number(row.values.ours)) } small { (row.spread().unwrap_or_default()) } },
        cell(row.accepts()),
        strip(row, false),
    ];
    cells.extend(has_optimum.then(|| optimum(row).unwrap_or_else(|| cell(DASH))));
    cells.push(verdict(row));
    cells
}

fn paper(row: &Row) -> String {
    or_dash(row.expected.paper.map(number))
}

fn optimum(row: &Row) -> Option<Markup> {
    let (optimum, ratio) = row.values.optimum.as_ref().zip(row.of_optimum())?;
    Some(html! {
        (number(optimum.value))
        small.beside { (optimum.objective) "; ours / optimum " (number(ratio)) }
    })
}

fn beside(row: &Row) -> Markup {
    html! {
        @if let Some(value) = row.beside() { small.beside { "simulator " (number(value)) } }
    }
}

/// Section of an experiment. Its curves are added to `all`, the data of the page's plots.
fn section(experiment: &Experiment<'_>, group: &Group<'_>, all: &mut Vec<String>) -> Markup {
    let rows = &experiment.rows;
    let level = if group.name.is_empty() { 2 } else { 3 };
    let first = |text: fn(&Row) -> &str| {
        rows.iter().map(|row| text(row)).find(|text| !text.is_empty()).unwrap_or_default()
    };
    let (question, says) = (first(|row| &row.source.question), first(|row| &row.source.paper_says));
    let title = if question.is_empty() { rows[0].title.as_str() } else { question };
    let with_series: Vec<&&Row> = rows.iter().filter(|row| row.series.is_some()).collect();
    let is_alone = with_series.is_empty() || rows.len() > 1;
    let id = anchor("experiment", experiment.id);
    let title_id = format!("{id}-title");
    let title = html! { small { (experiment.id) } (title) };
    html! {
        section.card.experiment id=(id) aria-labelledby=(title_id) {
            (titled(level, Some(&title_id), &title))
            @if !says.is_empty() { p.says { strong { "The paper says:" } " " (says) } }
            div.split.alone[is_alone] {
                @for row in with_series { (plot(row, all)) }
                div.sides { @for row in rows { (side(row, level + 1)) } }
            }
            @for (file, text) in rows.iter().filter_map(|row| row.source.scenario.as_ref()) {
                details {
                    summary { "Scenario " (file) }
                    pre tabindex="0" { code { (text) } }
                }
            }
        }
    }
}

/// Heading of a level from 2 to 4; with an identifier it is an experiment's.
fn titled(level: usize, id: Option<&str>, content: &Markup) -> Markup {
    let class = id.map(|_| "question");
    html! {
        @match level {
            2 => h2 class=[class] id=[id] { (content) },
            3 => h3 class=[class] id=[id] { (content) },
            _ => h4 class=[class] id=[id] { (content) },
        }
    }
}

fn plot(row: &Row, all: &mut Vec<String>) -> Markup {
    let Some(series) = &row.series else { return html! {} };
    let (kind, shown) = match row.plots {
        Plots::Sequence => ("sequence", plots::sequence(series)),
        Plots::Rate => ("rate", plots::throughput(series)),
        Plots::Mean => ("mean", plots::mean_throughput(series, Time::ZERO)),
    };
    let place = all.len();
    all.push(data(series, &[shown], false, Time::ZERO));
    html! {
        div.plots data-plot=(place) data-kind=(kind) {
            noscript { p { "The plot needs JavaScript." } }
        }
    }
}

fn side(row: &Row, level: usize) -> Markup {
    let seeds = if row.values.seeds == 1 {
        "1 seed".into()
    } else {
        format!("median of {} seeds", row.values.seeds)
    };
    let [theirs, ours] = row.sides();
    html! {
        div.side id=(anchor("row", &row.id)) {
            (titled(level, None, &html! { (row.title) " " (verdict(row)) }))
            dl.versus {
                div { dt { (theirs) } dd { (paper(row)) small { (row.unit) } (beside(row)) } }
                div { dt { (ours) } dd { (number(row.values.ours)) small { (seeds) } } }
                @if let Some(optimum) = optimum(row) { div { dt { "Optimum" } dd { (optimum) } } }
            }
            (strip(row, true))
            @for (label, text) in paragraphs(row) { p { strong { (label) } " " (text) } }
            @if !row.per_seed.is_empty() {
                details { summary { "Each seed" } (seeds_table(row)) }
            }
        }
    }
}

fn paragraphs(row: &Row) -> Vec<(&'static str, String)> {
    let mut paragraphs = Vec::new();
    if !row.accepted.measured_only {
        let range = match (row.accepted.low, row.accepted.high) {
            (Some(low), Some(high)) => format!(" ({} to {})", number(low), number(high)),
            _ => String::new(),
        };
        let reason = if row.accepted.reason.is_empty() { "" } else { ": " };
        let accepted = format!("{}{range}{reason}{}", row.accepts(), row.accepted.reason);
        paragraphs.push(("Accepted:", accepted));
    }
    let interval = row.interval().map(|interval| {
        let percent = (interval.confidence * 100.0).floor();
        let (low, high) = (number(interval.low), number(interval.high));
        format!(" The median lies between {low} and {high} with {percent:.0} %.")
    });
    let (low, high) = (number(row.values.low), number(row.values.high));
    paragraphs.push(("Spread:", format!("{low} to {high}.{}", interval.unwrap_or_default())));
    let label = match Class::of(row) {
        Class::Explained => "Why it misses:",
        _ => "Remark:",
    };
    paragraphs.extend(row.remark().filter(|text| !text.is_empty()).map(|text| (label, text)));
    paragraphs
}

fn seeds_table(row: &Row) -> Markup {
    let head = ["Seed", &*row.unit];
    let mut table = HtmlTable::new("Result of each seed", 1, &head);
    for (seed, value) in &row.per_seed {
        table.row("", [seed.render(), cell(number(*value))]);
    }
    table.finish()
}
