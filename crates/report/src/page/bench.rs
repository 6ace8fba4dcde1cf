//! The page of a suite: each published figure beside ours.

use faircast_base::Time;

use super::Page;
use super::data::{Wanted, plot};
use super::html::{HtmlTable, escape};
use crate::suite::{Row, Suite, number};

/// The results of a suite as one HTML file that needs no network: an overview, then each
/// experiment with its question, the paper's number, ours, the verdict and the plot.
pub fn bench_page(suite: &Suite) -> String {
    let mut plots = Vec::new();
    let mut main = intro(suite);
    main.push_str(&overview(suite));
    for row in &suite.rows {
        main.push_str(&experiment(row, &mut plots));
    }
    let navigation: Vec<(String, String)> = std::iter::once(("overview".into(), "Overview".into()))
        .chain(suite.rows.iter().map(|row| (anchor(row), row.id.clone())))
        .collect();
    let title = format!("Suite {}", suite.name);
    Page {
        title: &title,
        kind: "bench report",
        navigation: &navigation,
        main: &main,
        footer: "",
        data: &format!("[{}]", plots.join(",")),
    }
    .render()
}

/// An anchor that is the same in every run of the suite, whatever the identifier holds.
fn anchor(row: &Row) -> String {
    let mut anchor = String::from("row-");
    for c in row.id.chars() {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' => anchor.push(c),
            other => anchor.push_str(&format!("_{:x}", u32::from(other))),
        }
    }
    anchor
}

fn intro(suite: &Suite) -> String {
    let (total, held) = (suite.rows.len(), suite.rows.iter().filter(|row| row.holds).count());
    let explained = suite.rows.iter().filter(|row| !row.holds && row.explained.is_some()).count();
    let open = total - held - explained;
    let seeds: u64 = suite.rows.iter().map(|row| u64::from(row.seeds)).sum();
    let class = if held == total { "good" } else { "" };
    format!(
        "<div class=\"intro\"><h1>{}</h1><p class=\"soft\">{}</p></div>\n<dl class=\"facts\">\
         <div><dt>Figures that hold</dt><dd class=\"{class}\">{held} of {total}<small>within their \
         tolerance</small></dd></div>\
         <div><dt>Miss, explained</dt><dd>{explained}<small>the reason is understood</small></dd>\
         </div><div><dt>Miss, open</dt><dd class=\"{}\">{open}<small>no explanation yet</small></dd>\
         </div><div><dt>Runs</dt><dd>{seeds}<small>one per figure and seed</small></dd></div></dl>\n",
        escape(&suite.name),
        escape(&suite.about),
        if open > 0 { "bad" } else { "" },
    )
}

fn verdict(row: &Row) -> &'static str {
    match (row.holds, row.explained.is_some()) {
        (true, _) => "<span class=\"verdict\">✓ holds</span>",
        (false, true) => "<span class=\"verdict known\">✗ misses, explained</span>",
        (false, false) => "<span class=\"verdict no\">✗ misses</span>",
    }
}

fn overview(suite: &Suite) -> String {
    let mut table = HtmlTable::new(
        "Paper against ours: the band is the tolerance around the paper’s number, the dot our \
         median, the line our spread over seeds",
        2,
        &[
            "Figure",
            "What",
            "Unit",
            "Paper",
            "Ours",
            "Spread",
            "Tolerance",
            "Paper and ours",
            "Verdict",
        ],
    );
    for row in &suite.rows {
        table.row(
            "",
            &[
                format!("<a href=\"#{}\">{}</a>", anchor(row), escape(&row.id)),
                escape(&row.title),
                escape(&row.unit),
                row.paper.map_or_else(|| "–".into(), number),
                format!("<strong>{}</strong>", number(row.ours)),
                format!("{} – {}", number(row.low), number(row.high)),
                format!("± {:.0} %", row.tolerance * 100.0),
                strip(row, false),
                verdict(row).into(),
            ],
        );
    }
    format!(
        "<section aria-labelledby=\"overview\"><h2 id=\"overview\">Overview</h2><div \
         class=\"card overview\">{}</div></section>\n",
        table.finish()
    )
}

fn experiment(row: &Row, plots: &mut Vec<String>) -> String {
    let mut html = format!(
        "<section class=\"card experiment\" id=\"{0}\" aria-labelledby=\"{0}-title\"><header><h2 \
         id=\"{0}-title\"><small>{1}</small>{2}</h2>{3}</header>\n",
        anchor(row),
        escape(&row.id),
        escape(&row.title),
        verdict(row),
    );
    if !row.question.is_empty() {
        html.push_str(&format!("<p class=\"question\">{}</p>\n", escape(&row.question)));
    }
    let class = if row.series.is_some() { "split" } else { "split alone" };
    html.push_str(&format!("<div class=\"{class}\">"));
    if let Some(series) = &row.series {
        html.push_str(&format!(
            "<div class=\"plots\" data-plot=\"{}\" data-kind=\"sequence\"><noscript><p>The plot \
             needs JavaScript.</p></noscript></div>\n",
            plots.len()
        ));
        plots.push(plot(series, Wanted::Sequence, false, Time::ZERO));
    }
    html.push_str(&side(row));
    html.push_str("</div>\n");
    if let Some((file, text)) = &row.scenario {
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

/// The numbers beside the plot.
fn side(row: &Row) -> String {
    let seeds =
        if row.seeds == 1 { "1 seed".into() } else { format!("median of {} seeds", row.seeds) };
    let mut html = format!(
        "<div class=\"side\"><dl class=\"versus\"><div><dt>Paper</dt><dd>{}<small>{}</small></dd>\
         </div><div><dt>Ours</dt><dd>{}<small>{seeds}</small></dd></div></dl>\n{}",
        row.paper.map_or_else(|| "–".into(), number),
        escape(&row.unit),
        number(row.ours),
        strip(row, true),
    );
    let mut paragraph = |label: &str, text: &str| {
        if !text.is_empty() {
            html.push_str(&format!("<p><strong>{label}</strong> {}</p>\n", escape(text)));
        }
    };
    paragraph("The paper says:", &row.paper_says);
    let tolerance = format!("± {:.0} %. {}", row.tolerance * 100.0, row.tolerance_reason);
    paragraph("Tolerance:", &tolerance);
    paragraph("Spread:", &format!("{} to {}.", number(row.low), number(row.high)));
    paragraph("Why it misses:", row.explained.as_deref().unwrap_or_default());
    if !row.holds && row.explained.is_none() {
        html.push_str("<p><strong class=\"bad\">Why it misses is not known yet.</strong></p>\n");
    }
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

/// A number line: the tolerance around the paper's number, our spread, seeds and median.
fn strip(row: &Row, is_large: bool) -> String {
    const WIDTH: f64 = 300.0;
    let height = if is_large { 62.0 } else { 40.0 };
    let band = row.paper.map(|paper| {
        let half = paper.abs() * row.tolerance;
        (paper - half, paper + half)
    });
    let ends =
        [Some(row.low), Some(row.high), Some(row.ours), band.map(|b| b.0), band.map(|b| b.1)];
    let ends = || ends.iter().flatten().copied().filter(|end| end.is_finite());
    let (min, max) =
        (ends().fold(f64::INFINITY, f64::min), ends().fold(f64::NEG_INFINITY, f64::max));
    let span = if max > min { max - min } else { 1.0 };
    let x = |value: f64| 12.0 + (WIDTH - 24.0) * ((value - min) / span).clamp(0.0, 1.0);
    let y = if is_large { 24.0 } else { 20.0 };
    let paper = row.paper.map_or_else(|| "no number".into(), number);
    let mut svg = format!(
        "<svg class=\"strip\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Paper \
         {paper}, ours {} from {} to {}\"><line class=\"axis\" x1=\"4\" x2=\"{}\" y1=\"{y}\" \
         y2=\"{y}\"/>",
        number(row.ours),
        number(row.low),
        number(row.high),
        WIDTH - 4.0
    );
    if let (Some(paper), Some((from, to))) = (row.paper, band) {
        svg.push_str(&format!(
            "<rect class=\"band\" x=\"{:.1}\" width=\"{:.1}\" y=\"{top}\" height=\"28\" \
             rx=\"3\"/><line class=\"paper\" x1=\"{2:.1}\" x2=\"{2:.1}\" y1=\"{top}\" \
             y2=\"{bottom}\"/>",
            x(from),
            x(to) - x(from),
            x(paper),
            top = y - 14.0,
            bottom = y + 14.0,
        ));
    }
    svg.push_str(&format!(
        "<line class=\"range\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y}\" y2=\"{y}\"/>",
        x(row.low),
        x(row.high)
    ));
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
