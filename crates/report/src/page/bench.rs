//! Page of a suite: published figures and our results.

use faircast_base::Time;

use super::Page;
use super::data::data;
use super::html::{HtmlTable, escape, facts, heading};
use crate::class::Class;
use crate::plots;
use crate::suite::{Plots, Row, Suite, number};

/// Returns a suite's results as one self-contained HTML file: an overview, then each experiment.
pub fn bench_page(suite: &Suite) -> String {
    let groups = groups(suite);
    let mut all = Vec::new();
    let mut main = intro(suite);
    main.push_str(&overview(&groups));
    for group in &groups {
        if !group.name.is_empty() {
            let id = anchor("group", group.name);
            main.push_str(&format!("<h2 id=\"{id}\">{}</h2>\n", escape(group.name)));
        }
        for experiment in &group.experiments {
            main.push_str(&section(experiment, group, &mut all));
        }
    }
    Page {
        title: title(suite),
        kind: "bench report",
        navigation: &navigation(&groups),
        main: &main,
        footer: "",
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
        let place = groups.iter().position(|group| group.name == row.group);
        let place = place.unwrap_or_else(|| {
            groups.push(Group { name: &row.group, experiments: Vec::new() });
            groups.len() - 1
        });
        let experiments = &mut groups[place].experiments;
        let id = if row.experiment.is_empty() { &row.id } else { &row.experiment };
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

fn intro(suite: &Suite) -> String {
    let counts = suite.counts();
    let facts_of = Class::ALL.map(|class| {
        let rows = counts.get(class);
        let tone = match class {
            Class::Holds if rows > 0 => Some("good"),
            Class::NotReproduced if rows > 0 => Some("bad"),
            _ => None,
        };
        let (first, rest) = class.meaning().split_at(1);
        let term = first.to_uppercase() + rest;
        (term, tone, rows.to_string(), class.detail().to_string())
    });
    heading(title(suite), &format!("Suite {}", escape(&suite.name))) + &facts(&facts_of)
}

fn verdict(row: &Row) -> &'static str {
    match Class::of(row) {
        Class::Holds => "<span class=\"verdict\">✓ holds</span>",
        Class::Explained => "<span class=\"verdict known\">✗ explained</span>",
        Class::NotReproduced => "<span class=\"verdict no\">✗ cause unknown</span>",
        Class::Fitted => "<span class=\"verdict none\">fitted</span>",
        Class::Baseline => "<span class=\"verdict none\">✓ baseline</span>",
        Class::Measured => "<span class=\"verdict none\">measured</span>",
    }
}

fn overview(groups: &[Group<'_>]) -> String {
    let rows = || groups.iter().flat_map(|group| &group.experiments).flat_map(|of| &of.rows);
    let [theirs, ours] = rows().next().map_or(["Paper", "Ours"], |row| row.sides());
    let both = format!("{theirs} and {}", ours.to_lowercase());
    let has_optimum = rows().any(|row| row.optimum.is_some());
    let mut head = vec!["Figure", "What", theirs, ours, "Accepted", &both];
    head.extend(has_optimum.then_some("Optimum"));
    head.push("Verdict");
    let mut table = HtmlTable::new(
        &format!(
            "{theirs} against {}: the band is what is accepted, the dot our median, the line our \
             spread over seeds, its thick part where the median lies with 95 %",
            ours.to_lowercase()
        ),
        2,
        &head,
    );
    for group in groups {
        if !group.name.is_empty() {
            let (id, name) = (anchor("group", group.name), escape(group.name));
            table.group(&format!("<a href=\"#{id}\">{name}</a>"), head.len());
        }
        for row in group.experiments.iter().flat_map(|experiment| &experiment.rows) {
            table.row("", &overview_cells(row, has_optimum));
        }
    }
    format!(
        "<section aria-labelledby=\"overview\"><h2 id=\"overview\">Overview</h2><div \
         class=\"card overview\">{}</div></section>\n",
        table.finish()
    )
}

fn overview_cells(row: &Row, has_optimum: bool) -> Vec<String> {
    let mut cells = vec![
        format!("<a href=\"#{}\">{}</a>", anchor("row", &row.id), escape(&row.id)),
        format!("{} <small>{}</small>", escape(&row.title), escape(&row.unit)),
        row.paper.map_or_else(|| "–".into(), number) + &beside(row),
        format!(
            "<strong>{}</strong><small>{}</small>",
            number(row.ours),
            row.spread().unwrap_or_default()
        ),
        escape(&row.accepts()),
        strip(row, false),
    ];
    cells.extend(has_optimum.then(|| optimum(row).unwrap_or_else(|| "–".into())));
    cells.push(verdict(row).into());
    cells
}

fn optimum(row: &Row) -> Option<String> {
    let (optimum, ratio) = row.optimum.as_ref().zip(row.of_optimum())?;
    let (value, ratio) = (number(optimum.value), number(ratio));
    Some(format!(
        "{value}<small class=\"beside\">{}; ours / optimum {ratio}</small>",
        optimum.objective
    ))
}

fn beside(row: &Row) -> String {
    let simulated = |value| format!("<small class=\"beside\">simulator {}</small>", number(value));
    row.beside().map_or_else(String::new, simulated)
}

fn section(experiment: &Experiment<'_>, group: &Group<'_>, all: &mut Vec<String>) -> String {
    let rows = &experiment.rows;
    let level = if group.name.is_empty() { 2 } else { 3 };
    let first = |text: fn(&Row) -> &str| {
        rows.iter().map(|row| text(row)).find(|text| !text.is_empty()).unwrap_or_default()
    };
    let (question, says) = (first(|row| &row.question), first(|row| &row.paper_says));
    let heading = if question.is_empty() { rows[0].title.as_str() } else { question };
    let mut html = format!(
        "<section class=\"card experiment\" id=\"{0}\" aria-labelledby=\"{0}-title\">\
         <h{level} class=\"question\" id=\"{0}-title\"><small>{1}</small>{2}</h{level}>\n",
        anchor("experiment", experiment.id),
        escape(experiment.id),
        escape(heading),
    );
    if !says.is_empty() {
        let says = escape(says);
        html.push_str(&format!("<p class=\"says\"><strong>The paper says:</strong> {says}</p>\n"));
    }
    let series: Vec<_> =
        rows.iter().filter_map(|row| Some((row.series.as_ref()?, row.plots))).collect();
    let class = if series.is_empty() || rows.len() > 1 { "split alone" } else { "split" };
    html.push_str(&format!("<div class=\"{class}\">"));
    for (series, plots_of) in series {
        let (kind, shown) = match plots_of {
            Plots::Sequence => ("sequence", plots::sequence(series)),
            Plots::Rate => ("rate", plots::throughput(series)),
            Plots::Mean => ("mean", plots::mean_throughput(series, Time::ZERO)),
        };
        html.push_str(&format!(
            "<div class=\"plots\" data-plot=\"{}\" data-kind=\"{kind}\"><noscript><p>The plot \
             needs JavaScript.</p></noscript></div>\n",
            all.len()
        ));
        all.push(data(series, &[shown], false, Time::ZERO));
    }
    html.push_str("<div class=\"sides\">");
    rows.iter().for_each(|row| html.push_str(&side(row, level + 1)));
    html.push_str("</div></div>\n");
    for (file, text) in rows.iter().filter_map(|row| row.scenario.as_ref()) {
        html.push_str(&format!(
            "<details><summary>Scenario {}</summary><pre tabindex=\"0\"><code>{}</code></pre>\
             </details>\n",
            escape(file),
            escape(text)
        ));
    }
    html.push_str("</section>\n");
    html
}

fn side(row: &Row, level: usize) -> String {
    let seeds =
        if row.seeds == 1 { "1 seed".into() } else { format!("median of {} seeds", row.seeds) };
    let [theirs, ours] = row.sides();
    let mut html = format!(
        "<div class=\"side\" id=\"{}\"><h{level}>{} {}</h{level}><dl class=\"versus\"><div>\
         <dt>{theirs}</dt><dd>{}<small>{}</small>{}</dd>\
         </div><div><dt>{ours}</dt><dd>{}<small>{seeds}</small></dd></div>{}</dl>\n{}",
        anchor("row", &row.id),
        escape(&row.title),
        verdict(row),
        row.paper.map_or_else(|| "–".into(), number),
        escape(&row.unit),
        beside(row),
        number(row.ours),
        optimum(row).map_or_else(String::new, |optimum| {
            format!("<div><dt>Optimum</dt><dd>{optimum}</dd></div>")
        }),
        strip(row, true),
    );
    let mut paragraph = |label: &str, text: &str| {
        if !text.is_empty() {
            html.push_str(&format!("<p><strong>{label}</strong> {}</p>\n", escape(text)));
        }
    };
    let range = match (row.accept_low, row.accept_high) {
        (Some(low), Some(high)) => format!(" ({} to {})", number(low), number(high)),
        _ => String::new(),
    };
    let reason = if row.tolerance_reason.is_empty() { "" } else { ": " };
    let accepted = format!("{}{range}{reason}{}", row.accepts(), row.tolerance_reason);
    if !row.measured_only {
        paragraph("Accepted:", &accepted);
    }
    let interval = row.interval().map(|interval| {
        let surely = (interval.confidence * 100.0).floor();
        let (low, high) = (number(interval.low), number(interval.high));
        format!(" The median lies between {low} and {high} with {surely:.0} %.")
    });
    let interval = interval.unwrap_or_default();
    paragraph("Spread:", &format!("{} to {}.{interval}", number(row.low), number(row.high)));
    let label = match Class::of(row) {
        Class::Explained => "Why it misses:",
        _ => "Remark:",
    };
    paragraph(label, row.remark().as_deref().unwrap_or_default());
    if !row.per_seed.is_empty() {
        let mut table = HtmlTable::new("Result of each seed", 1, &["Seed", &row.unit]);
        for (seed, value) in &row.per_seed {
            table.row("", &[seed.to_string(), number(*value)]);
        }
        html.push_str(&format!(
            "<details><summary>Each seed</summary>{}</details>",
            table.finish()
        ));
    }
    html.push_str("</div>");
    html
}

fn strip(row: &Row, is_large: bool) -> String {
    const WIDTH: f64 = 300.0;
    let height = if is_large { 62.0 } else { 40.0 };
    let ends =
        [Some(row.low), Some(row.high), Some(row.ours), row.paper, row.accept_low, row.accept_high];
    let ends = || ends.iter().flatten().copied().filter(|end| end.is_finite());
    let (min, max) =
        (ends().fold(f64::INFINITY, f64::min), ends().fold(f64::NEG_INFINITY, f64::max));
    let span = if max > min { max - min } else { 1.0 };
    let x = |value: f64| 12.0 + (WIDTH - 24.0) * ((value - min) / span).clamp(0.0, 1.0);
    let y = if is_large { 24.0 } else { 20.0 };
    let paper = row.paper.map_or_else(|| "no number".into(), number);
    let [theirs, ours] = row.sides().map(str::to_lowercase);
    let mut svg = format!(
        "<svg class=\"strip\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{theirs} \
         {paper}, {ours} {} from {} to {}\"><line class=\"axis\" x1=\"4\" x2=\"{}\" y1=\"{y}\" \
         y2=\"{y}\"/>",
        number(row.ours),
        number(row.low),
        number(row.high),
        WIDTH - 4.0
    );
    let (top, bottom) = (y - 14.0, y + 14.0);
    if row.accept_low.is_some() || row.accept_high.is_some() {
        let (from, to) = (row.accept_low.map_or(4.0, x), row.accept_high.map_or(WIDTH - 4.0, x));
        svg.push_str(&format!(
            "<rect class=\"band\" x=\"{from:.1}\" width=\"{:.1}\" y=\"{top}\" height=\"28\" \
             rx=\"3\"/>",
            (to - from).max(2.0),
        ));
    }
    if let Some(paper) = row.paper {
        svg.push_str(&format!(
            "<line class=\"paper\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>",
            x(paper),
        ));
    }
    svg.push_str(&format!(
        "<line class=\"range\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y}\" y2=\"{y}\"/>",
        x(row.low),
        x(row.high)
    ));
    if let Some(interval) = row.interval() {
        svg.push_str(&format!(
            "<path class=\"interval\" d=\"M{0:.1} {2}v8M{0:.1} {y}H{1:.1}M{1:.1} {2}v8\"/>",
            x(interval.low),
            x(interval.high),
            y - 4.0
        ));
    }
    for (_, value) in &row.per_seed {
        svg.push_str(&format!(
            "<circle class=\"seed\" cx=\"{:.1}\" cy=\"{y}\" r=\"3\"/>",
            x(*value)
        ));
    }
    svg.push_str(&format!("<circle class=\"ours\" cx=\"{:.1}\" cy=\"{y}\" r=\"6\"/>", x(row.ours)));
    if is_large {
        for (value, anchor) in [(min, "start"), (max, "end")] {
            svg.push_str(&format!(
                "<text x=\"{:.1}\" y=\"56\" text-anchor=\"{anchor}\">{}</text>",
                x(value),
                number(value)
            ));
        }
    }
    svg.push_str("</svg>");
    svg
}
