//! The page of a sweep: for each figure a plot over the first setting that varies, with the runs of all
//! seeds, their median and their spread.

use super::Page;
use super::html::{HtmlTable, escape};
use crate::sweep::{SWEEP_FIGURES, Sweep, SweepFigure, SweepLine};
use crate::text::spread;

/// Panels of one figure; settings with more values than that are left to the tables.
const PANELS_MAX: usize = 24;
/// Size of a plot, in units of the picture.
const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 300.0;
/// Room for labels: left, right, above, below.
const LEFT: f64 = 84.0;
const RIGHT: f64 = 14.0;
const ABOVE: f64 = 12.0;
const BELOW: f64 = 46.0;

/// A sweep as one HTML file that needs no network.
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
    let mut facts = String::new();
    for axis in &sweep.axes {
        facts.push_str(&format!(
            "<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>",
            escape(&axis.key),
            axis.values.len(),
            escape(&axis.values.join(", "))
        ));
    }
    let note = match sweep.missing {
        0 => String::new(),
        missing => format!(
            "<p class=\"note\" role=\"note\"><strong>Not complete.</strong> {missing} of {} runs are \
             not there.</p>\n",
            runs * sweep.seeds
        ),
    };
    format!(
        "<div class=\"intro\"><h1>{}</h1><p class=\"soft\">Scenario {}. Each small point is a run, the \
         large one the median over the seeds, the upright line goes from the least to the most.</p>\
         </div>\n{note}<dl class=\"facts\">{facts}<div><dt>Seeds</dt><dd>{}<small>of each combination\
         </small></dd></div></dl>\n",
        escape(&sweep.title),
        escape(&sweep.scenario),
        sweep.seeds
    )
}

/// A figure: a plot for each combination of the settings beside the first, and all medians.
fn section(sweep: &Sweep, figure: &SweepFigure, lines: &[SweepLine]) -> String {
    let axis = sweep.axes.iter().position(|axis| axis.values.len() > 1);
    let panels = panels(sweep, axis, lines);
    let mut html = format!(
        "<section aria-labelledby=\"{0}\"><h2 id=\"{0}\">{1}</h2>\n",
        figure.id, figure.title
    );
    if lines.len() > 1 {
        html.push_str("<p class=\"soft small\">");
        for (place, line) in lines.iter().enumerate() {
            html.push_str(&format!(
                "<span class=\"swatch\" style=\"--swatch:{}\"></span>{} <small>{}</small> &nbsp; ",
                colour(place),
                escape(&line.name),
                escape(&line.protocol)
            ));
        }
        html.push_str("</p>\n");
    }
    // One scale for all, so that panels can be compared.
    let top = lines.iter().flat_map(|line| line.values.values().flatten()).copied();
    let top = ceiling(top.fold(0.0, f64::max));
    html.push_str("<div class=\"plots\">\n");
    for panel in panels.iter().take(PANELS_MAX) {
        html.push_str(&drawn(sweep, axis, figure, lines, panel, top));
    }
    html.push_str("</div>\n");
    if panels.len() > PANELS_MAX {
        html.push_str(&format!(
            "<p class=\"soft\">{} plots more are left out; the table has all.</p>\n",
            panels.len() - PANELS_MAX
        ));
    }
    html + &medians(sweep, figure, lines) + "</section>\n"
}

/// The combinations of all settings but that of the horizontal axis.
fn panels(sweep: &Sweep, axis: Option<usize>, lines: &[SweepLine]) -> Vec<Vec<usize>> {
    let without = |choice: &Vec<usize>| {
        let mut choice = choice.clone();
        if let Some(axis) = axis {
            choice[axis] = 0;
        }
        choice
    };
    let has = |choice: &&Vec<usize>| lines.iter().any(|line| line.values.contains_key(*choice));
    let mut panels: Vec<Vec<usize>> =
        sweep.choices().into_iter().filter(has).map(without).collect();
    panels.sort();
    panels.dedup();
    panels
}

/// The settings of a panel in words; those that do not vary are left out.
fn caption(sweep: &Sweep, axis: Option<usize>, panel: &[usize]) -> String {
    let varied = (0..sweep.axes.len())
        .filter(|place| Some(*place) != axis && sweep.axes[*place].values.len() > 1);
    let named = varied.map(|place| {
        let axis = &sweep.axes[place];
        format!("{} = {}", axis.key, axis.values[panel[place]])
    });
    named.collect::<Vec<_>>().join(", ")
}

/// One plot.
fn drawn(
    sweep: &Sweep,
    axis: Option<usize>,
    figure: &SweepFigure,
    lines: &[SweepLine],
    panel: &[usize],
    top: f64,
) -> String {
    let values = axis.map_or(1, |axis| sweep.axes[axis].values.len());
    let places = Places::new(axis.and_then(|axis| sweep.axes[axis].numbers.as_deref()), values);
    let y = |value: f64| HEIGHT - BELOW - (HEIGHT - ABOVE - BELOW) * (value / top).clamp(0.0, 1.0);
    let caption = caption(sweep, axis, panel);
    let x_name = axis.map_or("", |axis| &sweep.axes[axis].key);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{} over {}{}\" \
         style=\"width:100%;height:auto;font-size:12px\">",
        escape(figure.title),
        escape(x_name),
        if caption.is_empty() { String::new() } else { format!(", {}", escape(&caption)) },
    );
    for step in 0..=4 {
        let value = top * f64::from(step) / 4.0;
        let (right, at, label) = (WIDTH - RIGHT, y(value), escape(&(figure.shown)(value)));
        svg.push_str(&format!(
            "<line x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" \
             style=\"stroke:var(--line)\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" \
             style=\"fill:var(--soft)\">{label}</text>",
            LEFT - 8.0,
            at + 4.0,
        ));
    }
    if let Some(axis) = axis {
        for place in places.labelled() {
            svg.push_str(&format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" style=\"fill:var(--soft)\">{}\
                 </text>",
                places.x(place, 0, 1),
                HEIGHT - BELOW + 18.0,
                escape(&crate::text::shorten(&sweep.axes[axis].values[place], 14)),
            ));
        }
        svg.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" style=\"fill:var(--ink)\">{}</text>",
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 8.0,
            escape(&crate::text::shorten(x_name, 60)),
        ));
    }
    for (place, line) in lines.iter().enumerate() {
        svg.push_str(&curve(line, place, lines.len(), axis, panel, &places, &y));
    }
    svg.push_str("</svg>");
    format!(
        "<figure class=\"card plot\"><figcaption><strong>{}</strong><p>{}</p></figcaption>{svg}</figure>\n",
        escape(figure.title),
        escape(&caption)
    )
}

/// A line's runs, its medians and what connects them.
fn curve(
    line: &SweepLine,
    place: usize,
    lines: usize,
    axis: Option<usize>,
    panel: &[usize],
    places: &Places,
    y: &dyn Fn(f64) -> f64,
) -> String {
    let colour = colour(place);
    let mut points = String::new();
    let mut path = String::new();
    for value in 0..places.count() {
        let mut choice = panel.to_vec();
        if let Some(axis) = axis {
            choice[axis] = value;
        }
        let Some(runs) = line.values.get(&choice) else { continue };
        let Some([low, median, high]) = spread(runs.iter().copied()) else { continue };
        let x = places.x(value, place, lines);
        points.push_str(&format!(
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" \
             style=\"stroke:{colour};stroke-width:2;opacity:.5\"/>",
            y(low),
            y(high)
        ));
        for run in runs {
            points.push_str(&format!(
                "<circle class=\"seed\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"2\" \
                 style=\"fill:{colour};stroke:none;opacity:.6\"/>",
                y(*run)
            ));
        }
        points.push_str(&format!(
            "<circle class=\"median\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"4.5\" style=\"fill:{colour}\"/>",
            y(median)
        ));
        path.push_str(&format!("{x:.1},{:.1} ", y(median)));
    }
    // Between names there is nothing that a line could go through.
    let joined = match places.numbers.is_some() {
        true => format!(
            "<polyline points=\"{}\" style=\"fill:none;stroke:{colour};stroke-width:1.5\"/>",
            path.trim_end()
        ),
        false => String::new(),
    };
    joined + &points
}

/// Where values stand on the horizontal axis.
struct Places {
    /// As shares of the axis, where they are numbers.
    numbers: Option<Vec<f64>>,
    values: usize,
}

impl Places {
    fn new(numbers: Option<&[f64]>, values: usize) -> Self {
        let numbers = numbers.filter(|numbers| numbers.len() > 1).map(|numbers| {
            let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
            // What goes over more than a power of ten is read in powers.
            match first > 0.0 && last / first >= 10.0 {
                true => numbers.iter().map(|n| (n / first).ln() / (last / first).ln()).collect(),
                false => numbers.iter().map(|n| (n - first) / (last - first)).collect(),
            }
        });
        Self { numbers, values }
    }

    fn count(&self) -> usize {
        self.values
    }

    /// Where a value stands; lines stand a little beside each other, so that none hides another.
    fn x(&self, value: usize, line: usize, lines: usize) -> f64 {
        let share = match &self.numbers {
            Some(numbers) => 0.04 + 0.92 * numbers[value],
            None => (value as f64 + 0.5) / self.values as f64,
        };
        let aside = (line as f64 - (lines as f64 - 1.0) / 2.0) * 5.0;
        LEFT + (WIDTH - LEFT - RIGHT) * share + aside
    }

    /// The values that have room for a label.
    fn labelled(&self) -> Vec<usize> {
        let mut labelled: Vec<usize> = Vec::new();
        for value in 0..self.values {
            let far = |last: &usize| self.x(value, 0, 1) - self.x(*last, 0, 1) > 70.0;
            if labelled.last().is_none_or(far) {
                labelled.push(value);
            }
        }
        labelled
    }
}

/// The least round number that is not below.
fn ceiling(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 5.0, 6.0, 8.0, 10.0];
    let step = steps.into_iter().find(|step| step * power >= value);
    step.map_or(value, |step| step * power)
}

/// The colour of a line.
fn colour(place: usize) -> String {
    format!("var(--c{})", place % 8)
}

/// All medians with their spread.
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
    format!("<details class=\"card\"><summary>Numbers</summary>{}</details>\n", table.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::tests::{summary, sweep};

    #[test]
    fn the_page_draws_every_run_and_every_median_and_holds_nothing_unescaped() {
        let page = sweep_page(&sweep());
        // Two values, three seeds, two flows; throughput is the only figure that these flows have.
        assert_eq!(page.matches("class=\"seed\"").count(), 12);
        assert_eq!(page.matches("class=\"median\"").count(), 4);
        assert!(!page.contains("<it>") && page.contains("Is &lt;it&gt; fair?"));
        assert!(!page.contains("NaN") && !page.contains("inf\""), "every number is one");
        assert!(page.contains("<text") && page.contains("1.000 Mbit/s"), "the axis has its unit");
    }

    #[test]
    fn settings_beside_the_first_make_panels() {
        let mut sweep = sweep();
        sweep.axes[1].values.push("y".into());
        sweep.add(&[1, 1], &summary(&[("mcc", "pgmcc", 5.0)]));
        let page = sweep_page(&sweep);
        assert_eq!(page.matches("<figure").count(), 2);
        assert!(page.contains("<p>b = x</p>") && page.contains("<p>b = y</p>"), "{page}");
    }

    #[test]
    fn numbers_stand_where_they_belong() {
        let places = Places::new(Some(&[1.0, 2.0, 4.0]), 3);
        let x = |value| places.x(value, 0, 1);
        assert!(((x(1) - x(0)) * 2.0 - (x(2) - x(1))).abs() < 1e-9, "in proportion");
        let wide = Places::new(Some(&[1.0, 10.0, 100.0]), 3);
        assert!(
            (wide.x(1, 0, 1) * 2.0 - wide.x(0, 0, 1) - wide.x(2, 0, 1)).abs() < 1e-9,
            "in powers"
        );
        for (value, want) in [(0.0, 1.0), (0.93, 1.0), (1.0e6, 1.0e6), (450_000.0, 500_000.0)] {
            assert!((ceiling(value) - want).abs() < 1e-9 * want, "{value}: {}", ceiling(value));
        }
    }
}
