//! Page of a sweep: for each figure a plot over the first varied setting.

use maud::{Markup, html};

use super::Page;
use super::html::{Fact, HtmlTable, facts, folded, heading, note, section};
use crate::plots::paper::Paint;
use crate::sweep::picture::{caption, panels, picture};
use crate::sweep::{SWEEP_FIGURES, Sweep, SweepFigure, SweepLine};
use crate::text::spread;

const PANELS_MAX: usize = 24;

/// Returns a sweep as one self-contained HTML file.
pub fn sweep_page(sweep: &Sweep) -> String {
    let lines = (0..SWEEP_FIGURES.len()).map(|figure| sweep.lines(figure));
    let shown: Vec<(&SweepFigure, Vec<SweepLine>)> =
        SWEEP_FIGURES.iter().zip(lines).filter(|(_, lines)| !lines.is_empty()).collect();
    let navigation: Vec<_> =
        shown.iter().map(|(figure, _)| (figure.id.to_string(), figure.title.to_string())).collect();
    Page {
        title: &sweep.title,
        kind: "sweep report",
        navigation: &navigation,
        main: html! {
            (intro(sweep))
            @for (figure, lines) in &shown { (of_figure(sweep, figure, lines)) }
        },
        footer: html! { p { "faircast " (sweep.faircast) "." } },
        data: "[]",
    }
    .render()
}

fn intro(sweep: &Sweep) -> Markup {
    let runs: usize = sweep.axes.iter().map(|axis| axis.values.len()).product::<usize>();
    let sentence = format!(
        "Scenario {}. Each small point is a run, the large one the median over the seeds, the upright \
         line goes from the least to the most.",
        sweep.scenario
    );
    let axes = sweep.axes.iter();
    let axes = axes.map(|axis| Fact::new(&axis.key, axis.values.len(), axis.values.join(", ")));
    let seeds = Fact::new("Seeds", sweep.seeds, "of each combination");
    html! {
        (heading(&sweep.title, &sentence))
        @if sweep.missing > 0 {
            @let text = format!("{} of {} runs are not there.", sweep.missing, runs * sweep.seeds);
            (note("note", "Not complete.", &text))
        }
        (facts(axes.chain([seeds])))
    }
}

fn of_figure(sweep: &Sweep, figure: &SweepFigure, lines: &[SweepLine]) -> Markup {
    let panels = panels(sweep, lines);
    let content = html! {
        div.plots {
            @for (i, panel) in panels.iter().take(PANELS_MAX).enumerate() {
                @let key = match panels.len() {
                    1 => figure.id.to_string(),
                    _ => format!("{}-{}", figure.id, i + 1),
                };
                @let caption = caption(sweep, panel);
                @let (shown, what) = match caption.is_empty() {
                    true => (figure.title, figure.title.to_owned()),
                    false => (&*caption, format!("{}, {caption}", figure.title)),
                };
                figure.card.plot.drawn data-key=(key) data-what=(what) {
                    figcaption { strong { (shown) } }
                    (picture(sweep, figure, lines, panel, Paint::Page))
                }
            }
        }
        @if panels.len() > PANELS_MAX {
            p.soft { (panels.len() - PANELS_MAX) " plots more are left out; the table has all." }
        }
        (medians(sweep, figure, lines))
    };
    section(figure.id, figure.title, &content)
}

fn medians(sweep: &Sweep, figure: &SweepFigure, lines: &[SweepLine]) -> Markup {
    let mut head: Vec<&str> =
        sweep.axes.iter().map(|axis| crate::sweep::short(&axis.key)).collect();
    head.extend(["Flow", "Median", "Least", "Most", "Runs"]);
    let mut table = HtmlTable::new(figure.title, sweep.axes.len() + 1, &head);
    for choice in sweep.choices() {
        for line in lines {
            let Some(runs) = line.values.get(choice) else { continue };
            let Some([low, median, high]) = spread(runs.iter().copied()) else { continue };
            let settings = sweep.axes.iter().zip(choice);
            let settings = settings.map(|(axis, place)| axis.values[*place].clone());
            let figures = [median, low, high].map(figure.shown);
            let cells = settings.chain([line.name.clone()]).chain(figures);
            table.row("", cells.chain([runs.len().to_string()]));
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
