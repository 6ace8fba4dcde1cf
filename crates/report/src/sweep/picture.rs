//! Plots of a sweep, for its page and for papers: runs, medians and spread.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::{SWEEP_FIGURES, Sweep, SweepFigure, SweepLine};
use crate::plots::paper::{
    self, BOTTOM, FIELD_HEIGHT, FONT, Frame, LEFT, Paint, RIGHT, SAMPLE, WIDTH, dashes,
    legend_height, legend_places, named, reach, text_width,
};
use crate::text::{shorten, spread};

const VALUE_LETTERS: usize = 14;
/// Horizontal offset between lines, so that none hides another.
const ASIDE: f64 = 3.0;

/// Returns a sweep's plots with file names; numbered pictures name their settings in `desc`.
pub fn sweep_pictures(sweep: &Sweep) -> Vec<(String, String)> {
    let mut pictures = Vec::new();
    for (place, figure) in SWEEP_FIGURES.iter().enumerate() {
        let lines = sweep.lines(place);
        let panels = panels(sweep, &lines);
        for (i, panel) in panels.iter().enumerate() {
            let number = if panels.len() > 1 { format!("-{}", i + 1) } else { String::new() };
            let picture = picture(sweep, figure, &lines, panel, Paint::Paper);
            pictures.push((format!("{}{number}.svg", figure.id), paper::file(picture)));
        }
    }
    pictures
}

fn across(sweep: &Sweep) -> Option<usize> {
    sweep.axes.iter().position(|axis| axis.values.len() > 1)
}

pub(crate) fn panels(sweep: &Sweep, lines: &[SweepLine]) -> Vec<Vec<usize>> {
    let across = across(sweep);
    let without = |choice: &Vec<usize>| {
        let mut choice = choice.clone();
        if let Some(axis) = across {
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

pub(crate) fn caption(sweep: &Sweep, panel: &[usize]) -> String {
    let across = across(sweep);
    let varied = (0..sweep.axes.len())
        .filter(|place| Some(*place) != across && sweep.axes[*place].values.len() > 1);
    let named = varied.map(|place| {
        let axis = &sweep.axes[place];
        format!("{} = {}", axis.key, axis.values[panel[place]])
    });
    named.collect::<Vec<_>>().join(", ")
}

pub(crate) fn picture(
    sweep: &Sweep,
    figure: &SweepFigure,
    lines: &[SweepLine],
    panel: &[usize],
    paint: Paint,
) -> Markup {
    let across = across(sweep).map(|axis| (axis, &sweep.axes[axis]));
    let legend = legend_places(lines.iter().map(|line| line.name.as_str()));
    let top = legend_height(&legend);
    let frame = Frame { left: LEFT, top, width: WIDTH - LEFT - RIGHT, height: FIELD_HEIGHT };
    let numbers = across.and_then(|(_, axis)| axis.numbers.as_deref());
    let values = across.map_or(1, |(_, axis)| axis.values.len());
    let places = Places::new(frame, numbers, values, lines.len());
    // One scale for all panels, so that they are comparable.
    let greatest = lines.iter().flat_map(|line| line.values.values().flatten()).copied();
    let greatest = reach(greatest.fold(0.0, f64::max));
    let y = |value: f64| frame.bottom() - frame.height * (value / greatest).clamp(0.0, 1.0);
    let (levels, unit) = figure.unit.levels(greatest);
    let room = (frame.width / text_width("m")) as usize;
    let name = across.map_or_else(String::new, |(_, axis)| shorten(&axis.key, room));
    let runs = |line: &SweepLine, value: usize| {
        let mut choice = panel.to_vec();
        if let Some((axis, _)) = across {
            choice[axis] = value;
        }
        line.values.get(&choice).cloned().unwrap_or_default()
    };
    let content = html! {
        @for (place, (line, (x, y))) in lines.iter().zip(legend).enumerate() {
            (entry(&line.name, place, x, y, paint))
        }
        @for (value, text) in &levels { (frame.level(paint, y(*value), text)) }
        @if let Some((_, axis)) = across {
            @for (value, text) in places.labelled(&axis.values) {
                (frame.tick(paint, places.middle(value), &text))
            }
        }
        (frame.axes(paint, &name, &named(figure.axis, unit)))
        @for (place, line) in lines.iter().enumerate() {
            (curve(|value| runs(line, value), place, &places, &y, paint))
        }
    };
    paper::picture(paint, frame.bottom() + BOTTOM, figure.title, &caption(sweep, panel), &content)
}

fn entry(name: &str, place: usize, x: f64, y: f64, paint: Paint) -> Markup {
    let middle = y - 2.6;
    html! {
        "\n"
        path d=(format_args!("M{x:.1} {middle:.1}h{SAMPLE}")) fill="none" stroke=(paint.line(place))
            stroke-dasharray=[dashes(place)] {}
        (mark(place, x + SAMPLE / 2.0, middle, paint))
        text x=(format_args!("{:.1}", x + SAMPLE + 3.0)) y=(format_args!("{y:.1}")) { (name) }
    }
}

/// Runs, spread and median of a line at each value. `runs` returns the figures at a value.
fn curve(
    runs: impl Fn(usize) -> Vec<f64>,
    place: usize,
    places: &Places,
    y: &dyn Fn(f64) -> f64,
    paint: Paint,
) -> Markup {
    let colour = paint.line(place);
    let points: Vec<(f64, Vec<f64>, [f64; 3])> = (0..places.values)
        .filter_map(|value| {
            let runs = runs(value);
            let spread = spread(runs.iter().copied())?;
            Some((places.x(value, place), runs, spread))
        })
        .collect();
    let mut path = String::new();
    for (x, _, [_, median, _]) in &points {
        let join = if path.is_empty() { "M" } else { "L" };
        let _ = write!(path, "{join}{x:.1} {:.1}", y(*median));
    }
    html! {
        // Names have no values in between for a line.
        @if places.numbers.is_some() {
            "\n" path d=(path) fill="none" stroke=(colour) stroke-dasharray=[dashes(place)] {}
        }
        "\n"
        @for (x, runs, [low, median, high]) in &points {
            path d=(format_args!("M{x:.1} {:.1}V{:.1}", y(*low), y(*high))) stroke=(colour)
                opacity=".6" {}
            @for run in runs {
                circle.seed cx=(format_args!("{x:.1}")) cy=(format_args!("{:.1}", y(*run))) r="1"
                    fill=(colour) {}
            }
            (mark(place, *x, y(*median), paint))
        }
    }
}

fn mark(place: usize, x: f64, y: f64, paint: Paint) -> Markup {
    let r = 2.6;
    let shape = match place % 4 {
        0 => format!("M{:.1} {y:.1}a{r} {r} 0 1 0 {1} 0a{r} {r} 0 1 0 -{1} 0z", x - r, 2.0 * r),
        1 => format!("M{:.1} {:.1}h{2}v{2}h-{2}z", x - 2.3, y - 2.3, 4.6),
        2 => format!("M{x:.1} {:.1}l3 5h-6z", y - 3.0),
        _ => format!("M{x:.1} {:.1}l3 3l-3 3l-3 -3z", y - 3.0),
    };
    let fill = if place % 8 < 4 { paint.line(place) } else { paint.ground() };
    html! { path.median d=(shape) fill=(fill) stroke=(paint.line(place)) {} }
}

struct Places {
    frame: Frame,
    numbers: Option<Vec<f64>>,
    values: usize,
    lines: usize,
}

impl Places {
    fn new(frame: Frame, numbers: Option<&[f64]>, values: usize, lines: usize) -> Self {
        let numbers = numbers.filter(|numbers| numbers.len() > 1).map(|numbers| {
            let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
            // Values over more than a power of ten have a logarithmic axis.
            match first > 0.0 && last / first >= 10.0 {
                true => numbers.iter().map(|n| (n / first).ln() / (last / first).ln()).collect(),
                false => numbers.iter().map(|n| (n - first) / (last - first)).collect(),
            }
        });
        Self { frame, numbers, values, lines }
    }

    fn middle(&self, value: usize) -> f64 {
        let share = match &self.numbers {
            Some(numbers) => 0.06 + 0.88 * numbers[value],
            None => (value as f64 + 0.5) / self.values as f64,
        };
        self.frame.left + self.frame.width * share
    }

    fn x(&self, value: usize, line: usize) -> f64 {
        self.middle(value) + (line as f64 - (self.lines as f64 - 1.0) / 2.0) * ASIDE
    }

    fn labelled(&self, values: &[String]) -> Vec<(usize, String)> {
        let mut free_from = f64::NEG_INFINITY;
        let label = |(value, text): (usize, &String)| {
            let text = shorten(text, VALUE_LETTERS);
            let (middle, half) = (self.middle(value), text_width(&text) / 2.0);
            if middle - half < free_from {
                return (value, String::new());
            }
            free_from = middle + half + FONT / 2.0;
            (value, text)
        };
        values.iter().enumerate().map(label).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::tests::{summary, sweep};

    #[test]
    fn numbers_stand_where_they_belong_and_labels_do_not_touch() {
        let frame = Frame { left: LEFT, top: 0.0, width: 200.0, height: 100.0 };
        let places = |numbers: &[f64]| Places::new(frame, Some(numbers), numbers.len(), 1);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let even = places(&[1.0, 2.0, 4.0]);
        let x = |value| even.x(value, 0);
        assert!(near((x(1) - x(0)) * 2.0, x(2) - x(1)), "in proportion");
        let wide = places(&[1.0, 10.0, 100.0]);
        assert!(near(wide.x(1, 0) * 2.0, wide.x(0, 0) + wide.x(2, 0)), "in powers");
        let crowd: Vec<f64> = (0..100).map(f64::from).collect();
        let texts: Vec<String> = crowd.iter().map(|n| format!("{n} Mbit/s")).collect();
        let labelled = places(&crowd).labelled(&texts);
        assert_eq!(labelled.len(), 100, "each has its place");
        let shown = labelled.iter().filter(|(_, text)| !text.is_empty()).count();
        assert!((4..=5).contains(&shown), "{labelled:?}");
    }

    #[test]
    fn pictures_are_of_each_figure_and_panel_and_need_no_page() {
        let pictures = sweep_pictures(&sweep());
        let [(name, text)] = &pictures[..] else { panic!("{pictures:?}") };
        assert_eq!(name, "active_throughput_bps.svg", "flows here have no other figure");
        assert_eq!(text.matches("class=\"seed\"").count(), 12);
        assert_eq!(text.matches("class=\"median\"").count(), 4 + 2);
        assert!(text.contains(">Throughput, kbit/s<") && text.contains(">800<"), "{text}");
        assert!(text.contains(">flow.mcc.options.acker_bias<") && text.contains(">0.5<"), "{text}");
        assert!(!text.contains("var(") && !text.contains("NaN") && !text.contains("inf"), "{text}");

        let mut sweep = sweep();
        sweep.axes[1].values.push("<y>".into());
        sweep.add(&[1, 1], &summary(&[("mcc", "pgmcc", 5.0)]));
        let pictures = sweep_pictures(&sweep);
        let names: Vec<&str> = pictures.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["active_throughput_bps-1.svg", "active_throughput_bps-2.svg"]);
        assert!(pictures[1].1.contains("<desc>b = &lt;y&gt;</desc>"), "{}", pictures[1].1);
    }
}
