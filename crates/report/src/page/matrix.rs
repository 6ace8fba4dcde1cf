//! The page of a matrix: a heat map for each figure, every cell a link to its worst run, and for each
//! case all of its runs.

use super::Page;
use super::html::{HtmlTable, escape};
use crate::matrix::{Figure, Matrix, MatrixCase, MatrixCell};

/// A matrix as one HTML file that needs no network: one heat map a figure, of which one is shown at
/// a time, and the cases with their questions.
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
            "<p class=\"note\" role=\"note\"><strong>Quick.</strong> Cases are left out and \
             shortened: good for a look, not for a judgement.</p>\n"
        }
        false => "",
    };
    format!(
        "<div class=\"intro\"><h1>{}</h1><p class=\"soft\">Each number is the median over all \
         seeds, the small one the worst seed; it leads to that run. {}</p></div>\n{quick}\
         <dl class=\"facts\"><div><dt>Schemes</dt><dd>{}<small>{}</small></dd></div><div><dt>Cases\
         </dt><dd>{}<small>the same for all</small></dd></div><div><dt>Runs</dt><dd>{runs}<small>\
         one for each case, scheme and seed</small></dd></div></dl>\n",
        escape(&matrix.title),
        escape(&matrix.seeds()),
        matrix.schemes.len(),
        escape(&matrix.schemes.join(", ")),
        matrix.cases.len(),
    )
}

/// The maps, with a choice that needs no script: of radio buttons one is on, and shows its map.
fn maps(matrix: &Matrix) -> String {
    let mut html = String::from(
        "<section aria-labelledby=\"map\"><h2 id=\"map\">Heat map</h2>\n<div class=\"maps\">\
         <fieldset class=\"choice\"><legend>Figure</legend>",
    );
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
    html.push_str(
        "<p class=\"steps\" aria-hidden=\"true\">worse <i class=\"h0\"></i><i class=\"h1\"></i><i \
         class=\"h2\"></i><i class=\"h3\"></i><i class=\"h4\"></i> better</p>\n</div></section>\n",
    );
    html
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
        let cells = case.cells.iter().map(|cell| heat(cell, figure));
        table.row("heat", &std::iter::once(name).chain(cells).collect::<Vec<_>>());
    }
    format!(
        "<div class=\"card map\" data-figure=\"{}\"><p class=\"soft small\">{}</p>{}</div>\n",
        figure.id(),
        escape(figure.about()),
        table.finish()
    )
}

/// One cell: the median in its colour, the worst seed beside it in its own, both leading to the
/// worst run.
fn heat(cell: &MatrixCell, figure: Figure) -> String {
    let Some(spread) = cell.figure(figure) else { return "–".into() };
    let (median, worst) = (figure.shown(spread.median), figure.shown(spread.worst));
    let numbers = format!(
        "<b class=\"h{}\">{median}</b><small class=\"h{}\">{worst}</small>",
        figure.step(spread.median),
        figure.step(spread.worst)
    );
    match cell.page(spread.worst_seed) {
        Some(report) => format!(
            "<a href=\"{}\" title=\"median {median}, worst {worst} of seed {1}\">{numbers}</a>",
            escape(report),
            spread.worst_seed
        ),
        None => numbers,
    }
}

fn cases(matrix: &Matrix) -> String {
    let mut html = String::from("<section aria-labelledby=\"cases\"><h2 id=\"cases\">Cases</h2>\n");
    for case in &matrix.cases {
        html.push_str(&described(case));
    }
    html.push_str("</section>\n");
    html
}

fn described(case: &MatrixCase) -> String {
    let mut head = vec!["Scheme"];
    let shown: Vec<Figure> = Figure::ALL.into_iter().filter(|f| case.has(*f)).collect();
    head.extend(shown.iter().map(|figure| figure.title()));
    let mut table = HtmlTable::new("Median of all seeds, the worst of them", 1, &head);
    for cell in &case.cells {
        let figures = shown.iter().map(|figure| heat(cell, *figure));
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

/// Every run of a case with a link to its page, folded away.
fn runs(case: &MatrixCase, shown: &[Figure]) -> String {
    let mut head = vec!["Scheme", "Seed"];
    head.extend(shown.iter().map(|figure| figure.title()));
    let mut table = HtmlTable::new("Every run", 2, &head);
    for cell in &case.cells {
        for run in &cell.runs {
            let value = |figure: &Figure| {
                let spread = cell.figure(*figure)?;
                let (_, value) = spread.per_seed.iter().find(|(seed, _)| *seed == run.seed)?;
                Some(format!("<b class=\"h{}\">{}</b>", figure.step(*value), figure.shown(*value)))
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

/// An anchor that is the same in every matrix.
fn anchor(id: &str) -> String {
    super::bench::anchor("case", id)
}
