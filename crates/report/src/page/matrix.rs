//! Page of a matrix: a heat map for each figure, with links to the worst runs.

use super::Page;
use super::html::{HtmlTable, escape, facts, heading, note, section};
use crate::figure::{Figure, Lean};
use crate::matrix::{Matrix, MatrixCase, MatrixCell, Spread};

/// Returns a matrix as one self-contained HTML file: heat maps, and cases with questions.
pub fn matrix_page(matrix: &Matrix) -> String {
    let main = intro(matrix) + &maps(matrix) + &cases(matrix);
    let navigation =
        [("map", "Heat map"), ("cases", "Cases")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    Page {
        title: &matrix.title,
        kind: "matrix report",
        navigation: &navigation,
        main: &main,
        footer: &format!("<p>faircast {}.</p>", escape(&matrix.faircast)),
        data: "[]",
    }
    .render()
}

fn intro(matrix: &Matrix) -> String {
    let runs: u64 = matrix.cases.iter().map(|case| u64::from(case.seeds)).sum();
    let runs = runs * matrix.schemes.len() as u64;
    let quick = match matrix.quick {
        true => {
            let text = "Cases are left out and shortened: good for a look, not for a judgement.";
            note("note", "Quick.", text)
        }
        false => String::new(),
    };
    let numbers = match matrix.cases.iter().any(|case| case.seeds > 1) {
        true => {
            "Each number is the median over all seeds, the small one the worst seed; it leads to \
             that run."
        }
        false => "Each number is of one run, and leads to it.",
    };
    let of = |term: &str, number: usize, small: &str| {
        (term.to_string(), None, number.to_string(), small.to_string())
    };
    let facts = facts(&[
        of("Schemes", matrix.schemes.len(), &escape(&matrix.schemes.join(", "))),
        of("Cases", matrix.cases.len(), "the same for all"),
        of("Runs", runs as usize, "one for each case, scheme and seed"),
    ]);
    heading(&matrix.title, &format!("{numbers} {}", escape(&matrix.seeds()))) + &quick + &facts
}

fn maps(matrix: &Matrix) -> String {
    let mut html =
        String::from("<div class=\"maps\"><fieldset class=\"choice\"><legend>Figure</legend>");
    for (i, figure) in matrix.figures().enumerate() {
        let checked = if i == 0 { " checked" } else { "" };
        html.push_str(&format!(
            "<label><input type=\"radio\" name=\"figure\" value=\"{}\"{checked}> {}</label>",
            figure.id(),
            figure.title()
        ));
    }
    html.push_str("</fieldset>\n");
    for figure in matrix.figures() {
        html.push_str(&map(matrix, figure));
    }
    html.push_str("</div>");
    section("map", "Heat map", &html)
}

fn map(matrix: &Matrix, figure: Figure) -> String {
    let mut head = vec!["Case"];
    head.extend(matrix.schemes.iter().map(String::as_str));
    let mut table = HtmlTable::new(figure.title(), 1, &head);
    let mut group = "";
    for case in matrix.cases.iter().filter(|case| case.has(figure)) {
        if case.group != group {
            group = &case.group;
            table.group(&escape(group), head.len());
        }
        let name = format!("<a href=\"#{}\">{}</a>", anchor(&case.id), escape(&case.id));
        let cells = case.cells.iter().map(|cell| heat(cell, figure, Detail::Short));
        table.row("heat", &std::iter::once(name).chain(cells).collect::<Vec<_>>());
    }
    format!(
        "<div class=\"card map\" data-figure=\"{}\"><p class=\"soft small\">{}</p>{}{}</div>\n",
        figure.id(),
        escape(figure.about()),
        table.finish(),
        legend(figure)
    )
}

/// Legend of a figure. A share can be too small or too large, which one scale does not tell apart.
fn legend(figure: Figure) -> &'static str {
    match figure.lean(1.0) {
        Some(_) => {
            "<p class=\"steps\">▲ the session takes too much <i class=\"much2\"></i><i \
             class=\"much1\"></i><i class=\"fair\"></i><i class=\"little1\"></i><i \
             class=\"little2\"></i> gets too little ▼</p>"
        }
        None => {
            "<p class=\"steps\">worse <i class=\"h0\"></i><i class=\"h1\"></i><i class=\"h2\"></i><i \
             class=\"h3\"></i><i class=\"h4\"></i> better</p>"
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    Short,
    Full,
}

/// Value in its colour; an unfair share has a sign too, for colour-blind readers.
fn coloured(element: &str, figure: Figure, value: f64) -> String {
    let strength = if figure.step(value) < 2 { 2 } else { 1 };
    let (class, sign) = match figure.lean(value) {
        Some(Lean::TooMuch) => (format!("much{strength}"), "▲ "),
        Some(Lean::Fair) => ("fair".into(), ""),
        Some(Lean::TooLittle) => (format!("little{strength}"), "▼ "),
        None => (format!("h{}", figure.step(value)), ""),
    };
    format!("<{element} class=\"{class}\">{sign}{}</{element}>", figure.shown(value))
}

fn interval(spread: &Spread) -> Option<String> {
    let interval = spread.interval()?;
    let (low, high) = (spread.figure.shown(interval.low), spread.figure.shown(interval.high));
    // Rounded down, so that the claim holds.
    Some(format!("{:.0} %: {low} to {high}", (interval.confidence * 100.0).floor()))
}

fn heat(cell: &MatrixCell, figure: Figure, detail: Detail) -> String {
    let Some(spread) = cell.figure(figure) else { return "–".into() };
    let (median, worst) = (figure.shown(spread.median), figure.shown(spread.worst));
    let is_several = spread.per_seed.len() > 1;
    let mut numbers = coloured("b", figure, spread.median);
    if is_several {
        numbers.push_str(&coloured("small", figure, spread.worst));
    }
    let seed = spread.worst_seed;
    let mut title = match is_several {
        true => format!("median {median}, worst {worst} of seed {seed}"),
        false => format!("{median} with seed {seed}"),
    };
    let interval = interval(spread);
    if let Some(interval) = &interval {
        title.push_str(&format!("; the median lies with {interval}"));
    }
    let linked = match cell.page(seed) {
        Some(report) => {
            format!("<a href=\"{}\" title=\"{title}\">{numbers}</a>", escape(report))
        }
        None => numbers,
    };
    let shown = interval.filter(|_| detail == Detail::Full);
    linked + &shown.map(|text| format!("<span class=\"ci\">{text}</span>")).unwrap_or_default()
}

fn cases(matrix: &Matrix) -> String {
    section("cases", "Cases", &matrix.cases.iter().map(described).collect::<String>())
}

fn described(case: &MatrixCase) -> String {
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
        let figures = shown.iter().map(|figure| heat(cell, *figure, Detail::Full));
        let cells: Vec<String> = std::iter::once(escape(&cell.scheme)).chain(figures).collect();
        table.row("heat", &cells);
    }
    let note = case.note.as_ref().map(|note| format!("<p class=\"says\">{}</p>", escape(note)));
    let set = case.set.iter().map(|set| format!("\n--set {set}")).collect::<String>();
    format!(
        "<section class=\"card experiment\" id=\"{0}\" aria-labelledby=\"{0}-title\"><h3 \
         class=\"question\" id=\"{0}-title\"><small>{1}</small>{2}</h3>{3}{4}{7}<details><summary>\
         Scenario</summary><pre tabindex=\"0\"><code>{5}{6}</code></pre></details></section>\n",
        anchor(&case.id),
        escape(&case.id),
        escape(&case.question),
        note.unwrap_or_default(),
        table.finish(),
        escape(&case.scenario),
        escape(&set),
        runs(case, &shown),
    )
}

fn runs(case: &MatrixCase, shown: &[Figure]) -> String {
    let mut head = vec!["Scheme", "Seed"];
    head.extend(shown.iter().map(|figure| figure.title()));
    let mut table = HtmlTable::new("Every run", 2, &head);
    for cell in &case.cells {
        for run in &cell.runs {
            let value = |figure: &Figure| {
                let spread = cell.figure(*figure)?;
                let (_, value) = spread.per_seed.iter().find(|(seed, _)| *seed == run.seed)?;
                Some(coloured("b", *figure, *value))
            };
            let seed = format!("<a href=\"{}\">seed {}</a>", escape(&run.page), run.seed);
            let values = shown.iter().map(|figure| value(figure).unwrap_or_else(|| "–".into()));
            let cells = [escape(&cell.scheme), seed].into_iter().chain(values);
            table.row("heat", &cells.collect::<Vec<_>>());
        }
    }
    if case.cells.iter().all(|cell| cell.runs.is_empty()) {
        return String::new();
    }
    format!("<details><summary>Every run</summary>{}</details>", table.finish())
}

fn anchor(id: &str) -> String {
    super::bench::anchor("case", id)
}
