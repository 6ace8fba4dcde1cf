//! Page of a sweep: for each figure a plot over the first varied setting.

use super::Page;
use super::html::{self, HtmlTable, escape, facts, folded, heading, note};
use crate::plots::paper::Paint;
use crate::sweep::picture::{caption, panels, picture};
use crate::sweep::{SWEEP_FIGURES, Sweep, SweepAxis, SweepFigure, SweepLine};
use crate::text::spread;

const PANELS_MAX: usize = 24;

/// Returns a sweep as one self-contained HTML file.
pub fn sweep_page(sweep: &Sweep) -> String {
    let mut main = intro(sweep);
    let mut navigation = Vec::new();
    for (place, figure) in SWEEP_FIGURES.iter().enumerate() {
        let lines = sweep.lines(place);
        if lines.is_empty() {
            continue;
        }
        navigation.push((figure.id.to_string(), figure.title.to_string()));
        main.push_str(&section(sweep, figure, &lines));
    }
    Page {
        title: &sweep.title,
        kind: "sweep report",
        navigation: &navigation,
        main: &main,
        footer: &format!("<p>faircast {}.</p>", escape(&sweep.faircast)),
        data: "[]",
    }
    .render()
}

fn intro(sweep: &Sweep) -> String {
    let runs: usize = sweep.axes.iter().map(|axis| axis.values.len()).product::<usize>();
    let axis = |axis: &SweepAxis| {
        let values = axis.values.join(", ");
        (escape(&axis.key), None, axis.values.len().to_string(), escape(&values))
    };
    let seeds = ("Seeds".into(), None, sweep.seeds.to_string(), "of each combination".into());
    let figures: Vec<_> = sweep.axes.iter().map(axis).chain([seeds]).collect();
    let missing = match sweep.missing {
        0 => String::new(),
        missing => {
            let text = format!("{missing} of {} runs are not there.", runs * sweep.seeds);
            note("note", "Not complete.", &text)
        }
    };
    let sentence = format!(
        "Scenario {}. Each small point is a run, the large one the median over the seeds, the upright \
         line goes from the least to the most.",
        escape(&sweep.scenario)
    );
    heading(&sweep.title, &sentence) + &missing + &facts(&figures)
}

fn section(sweep: &Sweep, figure: &SweepFigure, lines: &[SweepLine]) -> String {
    let panels = panels(sweep, lines);
    let mut html = String::from("<div class=\"plots\">\n");
    for (i, panel) in panels.iter().take(PANELS_MAX).enumerate() {
        let number = if panels.len() > 1 { format!("-{}", i + 1) } else { String::new() };
        let caption = caption(sweep, panel);
        let (shown, what) = match caption.is_empty() {
            true => (figure.title.to_owned(), figure.title.to_owned()),
            false => (escape(&caption), format!("{}, {}", figure.title, escape(&caption))),
        };
        html.push_str(&format!(
            "<figure class=\"card plot drawn\" data-key=\"{}{number}\" data-what=\"{what}\"><figcaption>\
             <strong>{shown}</strong></figcaption>{}</figure>\n",
            figure.id,
            picture(sweep, figure, lines, panel, Paint::Page)
        ));
    }
    html.push_str("</div>\n");
    if panels.len() > PANELS_MAX {
        html.push_str(&format!(
            "<p class=\"soft\">{} plots more are left out; the table has all.</p>\n",
            panels.len() - PANELS_MAX
        ));
    }
    html::section(figure.id, figure.title, &(html + &medians(sweep, figure, lines)))
}

fn medians(sweep: &Sweep, figure: &SweepFigure, lines: &[SweepLine]) -> String {
    let mut head: Vec<&str> =
        sweep.axes.iter().map(|axis| crate::sweep::short(&axis.key)).collect();
    head.extend(["Flow", "Median", "Least", "Most", "Runs"]);
    let mut table = HtmlTable::new(figure.title, sweep.axes.len() + 1, &head);
    for choice in sweep.choices() {
        for line in lines {
            let Some(runs) = line.values.get(choice) else { continue };
            let Some([low, median, high]) = spread(runs.iter().copied()) else { continue };
            let values =
                sweep.axes.iter().zip(choice).map(|(axis, place)| escape(&axis.values[*place]));
            let shown = [median, low, high].map(|value| escape(&(figure.shown)(value)));
            let mut cells: Vec<String> = values.chain([escape(&line.name)]).chain(shown).collect();
            cells.push(runs.len().to_string());
            table.row("", &cells);
        }
    }
    folded("Numbers", &table.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::tests::{summary, sweep};

    #[test]
    fn the_page_draws_every_run_and_every_median_and_holds_nothing_unescaped() {
        let page = sweep_page(&sweep());
        // Two values, three seeds, two flows; throughput is the only figure of these flows.
        assert_eq!(page.matches("class=\"seed\"").count(), 12);
        assert_eq!(page.matches("class=\"median\"").count(), 4 + 2, "and two in the legend");
        assert!(!page.contains("<it>") && page.contains("Is &lt;it&gt; fair?"));
        assert!(!page.contains("NaN") && !page.contains("inf\""), "every number is one");
        assert!(page.contains(">Throughput, kbit/s<"), "the axis has its unit");
    }

    #[test]
    fn settings_beside_the_first_make_panels() {
        let mut sweep = sweep();
        sweep.axes[1].values.push("y".into());
        sweep.add(&[1, 1], &summary(&[("mcc", "pgmcc", 5.0)]));
        let page = sweep_page(&sweep);
        assert_eq!(page.matches("<figure").count(), 2);
        assert!(
            page.contains("<strong>b = x</strong>") && page.contains("<strong>b = y</strong>"),
            "{page}"
        );
    }
}
