//! Page of a matrix: a heat map for each figure, with links to the worst runs.

use maud::{Markup, Render, html};

use super::Page;
use super::bench::anchor;
use super::html::{Fact, HtmlTable, cell, facts, heading, note, section};
use crate::figure::{Figure, Lean};
use crate::matrix::{Matrix, MatrixCase, MatrixCell, Spread};
use crate::text::DASH;

/// Returns a matrix as one self-contained HTML file: heat maps, and cases with questions.
pub fn matrix_page(matrix: &Matrix) -> String {
    let navigation =
        [("map", "Heat map"), ("cases", "Cases")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    Page {
        title: &matrix.title,
        kind: "matrix report",
        navigation: &navigation,
        main: html! {
            (intro(matrix))
            (maps(matrix))
            (section("cases", "Cases", &html! { @for case in &matrix.cases { (of_case(case)) } }))
        },
        footer: html! { p { "faircast " (matrix.faircast) "." } },
        data: "[]",
    }
    .render()
}

fn intro(matrix: &Matrix) -> Markup {
    let runs: u64 = matrix.cases.iter().map(|case| u64::from(case.seeds)).sum();
    let runs = runs * matrix.schemes.len() as u64;
    let numbers = match matrix.cases.iter().any(|case| case.seeds > 1) {
        true => {
            "Each number is the median over all seeds, the small one the worst seed; it leads to \
             that run."
        }
        false => "Each number is of one run, and leads to it.",
    };
    html! {
        (heading(&matrix.title, &format!("{numbers} {}", matrix.seeds())))
        @if matrix.quick {
            (note(
                "note",
                "Quick.",
                "Cases are left out and shortened: good for a look, not for a judgement.",
            ))
        }
        (facts([
            Fact::new("Schemes", matrix.schemes.len(), matrix.schemes.join(", ")),
            Fact::new("Cases", matrix.cases.len(), "the same for all"),
            Fact::new("Runs", runs, "one for each case, scheme and seed"),
        ]))
    }
}

fn maps(matrix: &Matrix) -> Markup {
    let maps = html! {
        div.maps {
            fieldset.choice {
                legend { "Figure" }
                @for (i, figure) in matrix.figures().enumerate() {
                    label {
                        input type="radio" name="figure" value=(figure.id()) checked[i == 0];
                        " " (figure.title())
                    }
                }
            }
            @for figure in matrix.figures() { (map(matrix, figure)) }
        }
    };
    section("map", "Heat map", &maps)
}

fn map(matrix: &Matrix, figure: Figure) -> Markup {
    let mut head = vec!["Case"];
    head.extend(matrix.schemes.iter().map(String::as_str));
    let mut table = HtmlTable::new(figure.title(), 1, &head);
    let mut group = "";
    for case in matrix.cases.iter().filter(|case| case.has(figure)) {
        if case.group != group {
            group = &case.group;
            table.group(group);
        }
        let name = html! { a href={ "#" (anchor("case", &case.id)) } { (case.id) } };
        let cells = case.cells.iter().map(|cell| heat(cell, figure, false));
        table.row("heat", [name].into_iter().chain(cells));
    }
    html! {
        div.card.map data-figure=(figure.id()) {
            p.soft.small { (figure.about()) }
            (table.finish())
            (legend(figure))
        }
    }
}

/// Legend of a figure. A share can be too small or too large, which one scale does not tell apart.
fn legend(figure: Figure) -> Markup {
    let (first, classes, last) = match figure.lean(1.0) {
        Some(_) => (
            "▲ the session takes too much",
            ["much2", "much1", "fair", "little1", "little2"],
            "gets too little ▼",
        ),
        None => ("worse", ["h0", "h1", "h2", "h3", "h4"], "better"),
    };
    html! {
        p.steps { (first) " " @for class in classes { i class=(class) {} } " " (last) }
    }
}

/// Class and text of a value; an unfair share has a sign too, for colour-blind readers.
fn coloured(figure: Figure, value: f64) -> (String, String) {
    let strength = if figure.step(value) < 2 { 2 } else { 1 };
    let (class, sign) = match figure.lean(value) {
        Some(Lean::TooMuch) => (format!("much{strength}"), "▲ "),
        Some(Lean::Fair) => ("fair".into(), ""),
        Some(Lean::TooLittle) => (format!("little{strength}"), "▼ "),
        None => (format!("h{}", figure.step(value)), ""),
    };
    (class, format!("{sign}{}", figure.shown(value)))
}

fn strong(figure: Figure, value: f64) -> Markup {
    let (class, text) = coloured(figure, value);
    html! { b class=(class) { (text) } }
}

fn interval(spread: &Spread) -> Option<String> {
    let interval = spread.interval()?;
    let (low, high) = (spread.figure.shown(interval.low), spread.figure.shown(interval.high));
    // Rounded down, so that the claim holds.
    Some(format!("{:.0} %: {low} to {high}", (interval.confidence * 100.0).floor()))
}

fn heat(cell: &MatrixCell, figure: Figure, with_interval: bool) -> Markup {
    let Some(spread) = cell.figure(figure) else { return html! { (DASH) } };
    let (median, worst) = (figure.shown(spread.median), figure.shown(spread.worst));
    let is_several = spread.per_seed.len() > 1;
    let seed = spread.worst_seed;
    let mut title = match is_several {
        true => format!("median {median}, worst {worst} of seed {seed}"),
        false => format!("{median} with seed {seed}"),
    };
    let interval = interval(spread);
    if let Some(interval) = &interval {
        title.push_str(&format!("; the median lies with {interval}"));
    }
    let numbers = html! {
        (strong(figure, spread.median))
        @if is_several {
            @let (class, text) = coloured(figure, spread.worst);
            small class=(class) { (text) }
        }
    };
    html! {
        @match cell.runs.iter().find(|run| run.seed == seed) {
            Some(run) => { a href=(run.page) title=(title) { (numbers) } }
            None => { (numbers) }
        }
        @if let Some(text) = interval.filter(|_| with_interval) {
            span.ci { (text) }
        }
    }
}

fn of_case(case: &MatrixCase) -> Markup {
    let mut head = vec!["Scheme"];
    let shown: Vec<Figure> = Figure::ALL.into_iter().filter(|f| case.has(*f)).collect();
    head.extend(shown.iter().map(|figure| figure.title()));
    let caption = match case.seeds {
        1 => "One run".to_owned(),
        seeds => format!(
            "Median of {seeds} seeds, the worst of them{}",
            if seeds >= 5 { ", and between which values the median lies how surely" } else { "" }
        ),
    };
    let mut table = HtmlTable::new(&caption, 1, &head);
    for cell in &case.cells {
        let figures = shown.iter().map(|figure| heat(cell, *figure, true));
        table.row("heat", [cell.scheme.render()].into_iter().chain(figures));
    }
    let id = anchor("case", &case.id);
    html! {
        section.card.experiment id=(id) aria-labelledby={ (id) "-title" } {
            h3.question id={ (id) "-title" } { small { (case.id) } (case.question) }
            @if let Some(note) = &case.note { p.says { (note) } }
            (table.finish())
            (runs(case, &shown))
            details {
                summary { "Scenario" }
                pre tabindex="0" {
                    code { (case.scenario) @for set in &case.set { "\n--set " (set) } }
                }
            }
        }
    }
}

fn runs(case: &MatrixCase, shown: &[Figure]) -> Markup {
    let mut head = vec!["Scheme", "Seed"];
    head.extend(shown.iter().map(|figure| figure.title()));
    let mut table = HtmlTable::new("Every run", 2, &head);
    for of in &case.cells {
        for run in &of.runs {
            let value = |figure: &Figure| {
                let spread = of.figure(*figure)?;
                let (_, value) = spread.per_seed.iter().find(|(seed, _)| *seed == run.seed)?;
                Some(strong(*figure, *value))
            };
            let seed = html! { a href=(run.page) { "seed " (run.seed) } };
            let values = shown.iter().map(|figure| value(figure).unwrap_or_else(|| cell(DASH)));
            table.row("heat", [cell(&of.scheme), seed].into_iter().chain(values));
        }
    }
    html! {
        @if case.cells.iter().any(|cell| !cell.runs.is_empty()) {
            details { summary { "Every run" } (table.finish()) }
        }
    }
}
