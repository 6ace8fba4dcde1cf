//! SVG plots of a run for papers, readable without colours; a test compares them with `page.js`.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::paper::{
    BOTTOM, CELL, FIELD_HEIGHT, Frame, LANE, LEFT, NAME_ROW, Paint, RIGHT, SAMPLE, WIDTH, dashes,
    file, legend_height, legend_places, named, picture, reach, shown, text_width, ticks,
};
use super::{Line, MarkRow, Plot, Shape};
use crate::series::Series;

const UPRIGHT_DASHES: &str = "2 1.5";

/// Draws the plot's initially visible lines, up to their maximum in the counted time.
pub fn svg(plot: &Plot, series: &Series) -> String {
    let ended_s = series.ended.as_secs_f64();
    let end = if ended_s > 0.0 { ended_s } else { series.duration_s.max(1e-9) };
    let lines: Vec<&Line> = plot.lines.iter().filter(|line| !line.hidden).collect();
    let marks: Vec<&MarkRow> = plot.marks.iter().filter(|row| !row.hidden).collect();
    let lanes: Vec<&MarkRow> = plot.lanes().collect();
    let entries = legend(&lines, &marks);
    let places = legend_places(entries.iter().map(|(label, _)| label.as_str()));
    let legend_height = legend_height(&places);
    let left = plot.names.iter().map(|name| text_width(name)).fold(LEFT, |a, b| a.max(b + 18.0));
    let frame = Frame {
        left,
        top: legend_height + LANE * lanes.len() as f64 + 4.0,
        width: WIDTH - left - RIGHT,
        height: match plot.names.len() {
            0 => FIELD_HEIGHT,
            names => NAME_ROW * names as f64,
        },
    };
    let field = Field { frame, end, range: plot.range(&lines, series.warmup_s, end) };
    let content = html! {
        "\n" clipPath id="field" {
            rect x=(format_args!("{:.1}", frame.left)) y=(format_args!("{:.1}", frame.top))
                width=(format_args!("{:.1}", frame.width))
                height=(format_args!("{:.1}", frame.height)) {}
        }
        @for ((label, sample), (x, y)) in entries.iter().zip(places) { (entry(label, sample, x, y)) }
        (axes(plot, &field, series.warmup_s))
        @for (lane, row) in lanes.iter().enumerate() {
            (bars(row, &field, legend_height + LANE * (lane + 1) as f64))
        }
        "\n" g clip-path="url(#field)" fill="none" {
            @for row in marks.iter().filter(|row| row.upright) { (upright(row, &field)) }
            @for (place, line) in lines.iter().enumerate() { (curve(line, place, &field)) }
            "\n"
        }
    };
    file(picture(Paint::Paper, frame.bottom() + BOTTOM, plot.title, &plot.about, &content))
}

/// Field between the axes, with the scales of both.
struct Field {
    frame: Frame,
    /// Time in seconds at the right edge.
    end: f64,
    /// Values at the lower and upper edge.
    range: [f64; 2],
}

impl Field {
    fn x(&self, at: f64) -> f64 {
        self.frame.left + self.frame.width * (at / self.end).clamp(0.0, 1.0)
    }

    fn y(&self, value: f64) -> f64 {
        let [low, high] = self.range;
        let share = (value - low) / (high - low);
        // Values far outside are clipped; numbers stay readable for any program.
        self.frame.top + self.frame.height * (1.0 - share.clamp(-1.0, 3.0))
    }
}

impl Plot {
    fn range(&self, lines: &[&Line], warmup_s: f64, end: f64) -> [f64; 2] {
        if !self.names.is_empty() {
            return [-0.5, self.names.len() as f64 - 0.5];
        }
        // If a run ended in its warm-up, all of it counts.
        let from = if warmup_s < end { warmup_s } else { 0.0 };
        let of = |line: &&Line| {
            let points = line.points.iter().enumerate().filter(|(_, (at, _))| *at >= from);
            let top = |i: usize, value: f64| {
                line.range.as_ref().map_or(value, |range| value.max(range[i].1))
            };
            points.filter_map(|(i, (_, value))| Some(top(i, (*value)?))).fold(0.0, f64::max)
        };
        let greatest = lines.iter().map(of).fold(0.0, f64::max);
        [0.0, reach(greatest)]
    }
}

fn axes(plot: &Plot, field: &Field, warmup_s: f64) -> Markup {
    let frame = field.frame;
    let (levels, unit) = match plot.names.is_empty() {
        false => (plot.names.iter().cloned().enumerate().map(|(i, n)| (i as f64, n)).collect(), ""),
        true => plot.unit.levels(field.range[1]),
    };
    html! {
        @if warmup_s > 0.0 {
            "\n" rect x=(format_args!("{:.1}", frame.left)) y=(format_args!("{:.1}", frame.top))
                width=(format_args!("{:.1}", field.x(warmup_s) - frame.left))
                height=(format_args!("{:.1}", frame.height)) fill="#eee" {}
        }
        @for (value, text) in &levels { (frame.level(Paint::Paper, field.y(*value), text)) }
        @for value in ticks(field.end, 6.0) {
            (frame.tick(Paint::Paper, field.x(value), &shown(value)))
        }
        (frame.axes(Paint::Paper, "Time, s", &named(plot.axis, unit)))
    }
}

fn upright(row: &MarkRow, field: &Field) -> Markup {
    let mut path = String::new();
    for (at, _, _) in &row.points {
        let (top, bottom) = (field.frame.top, field.frame.bottom());
        let _ = write!(path, "M{:.2} {top:.1}V{bottom:.1}", field.x(*at));
    }
    html! {
        "\n" path d=(path) stroke=(Paint::Paper.line(row.colour)) stroke-width=".5"
            stroke-dasharray=(UPRIGHT_DASHES) opacity=".6" {}
    }
}

fn curve(line: &Line, place: usize, field: &Field) -> Markup {
    let colour = Paint::Paper.line(line.colour);
    html! {
        @if let Some(range) = &line.range {
            "\n" path d=(band_path(line, range, field)) fill=(colour) opacity=".16" {}
        }
        "\n" path d=(line_path(line, field)) stroke=(colour)
            stroke-width=(line.weight.pixels() / 2.0) stroke-linejoin="round"
            stroke-dasharray=[dashes(place)] {}
    }
}

fn band_path(line: &Line, range: &[(f64, f64)], field: &Field) -> String {
    let mut path = String::new();
    let x = |i: usize| field.x(line.points[i].0);
    for (i, (_, high)) in range.iter().enumerate() {
        let join = if i == 0 { "M" } else { "L" };
        let _ = write!(path, "{join}{:.2} {:.2}", x(i), field.y(*high));
    }
    for (i, (low, _)) in range.iter().enumerate().rev() {
        let _ = write!(path, "L{:.2} {:.2}", x(i), field.y(*low));
    }
    path + "Z"
}

fn line_path(line: &Line, field: &Field) -> String {
    let (mut path, mut is_open) = (String::new(), false);
    for (at, value) in &line.points {
        let Some(value) = value else {
            is_open = false;
            continue;
        };
        let (x, y) = (field.x(*at), field.y(*value));
        let _ = match (is_open, line.shape) {
            (true, Shape::Step) => write!(path, "H{x:.2}V{y:.2}"),
            (true, Shape::Straight) => write!(path, "L{x:.2} {y:.2}"),
            (false, _) => write!(path, "M{x:.2} {y:.2}"),
        };
        is_open = true;
    }
    path
}

fn bars(row: &MarkRow, field: &Field, floor: f64) -> Markup {
    let mut cells: Vec<(i64, u64)> = Vec::new();
    for (at, count, _) in &row.points {
        let cell = ((field.x(*at) - field.frame.left) / CELL) as i64;
        match cells.last_mut() {
            Some((last, sum)) if *last == cell => *sum += count,
            _ => cells.push((cell, *count)),
        }
    }
    let most = cells.iter().map(|(_, sum)| *sum).max().unwrap_or(1) as f64;
    let mut path = String::new();
    for (cell, sum) in cells {
        // Square root, so that a single mark beside a hundred remains visible.
        let height = 2.0 + (LANE - 3.0) * (sum as f64 / most).sqrt();
        let x = field.frame.left + (cell as f64 + 0.5) * CELL;
        let _ = write!(path, "M{x:.1} {floor:.1}v{:.2}", -height);
    }
    html! { "\n" path d=(path) stroke=(Paint::Paper.line(row.colour)) {} }
}

enum Sample<'a> {
    Line(&'a Line, usize),
    Marks(&'a MarkRow),
}

fn legend<'a>(lines: &[&'a Line], marks: &[&'a MarkRow]) -> Vec<(String, Sample<'a>)> {
    let lines =
        lines.iter().enumerate().map(|(i, line)| (line.label.clone(), Sample::Line(line, i)));
    let marks =
        marks.iter().map(|row| (format!("{} ({})", row.label, row.total), Sample::Marks(row)));
    lines.chain(marks).collect()
}

fn entry(label: &str, sample: &Sample<'_>, x: f64, bottom: f64) -> Markup {
    let y = bottom - 2.6;
    html! {
        "\n"
        @match sample {
            Sample::Line(line, place) => {
                path d=(format_args!("M{x:.1} {y:.1}h{SAMPLE}"))
                    stroke=(Paint::Paper.line(line.colour))
                    stroke-width=(line.weight.pixels() / 2.0) stroke-dasharray=[dashes(*place)] {}
            }
            Sample::Marks(row) if row.upright => {
                path d=(format_args!("M{:.1} {:.1}v8", x + SAMPLE / 2.0, y - 4.0))
                    stroke=(Paint::Paper.line(row.colour)) stroke-width=".5"
                    stroke-dasharray=(UPRIGHT_DASHES) {}
            }
            Sample::Marks(row) => {
                path d=(format_args!("M{:.1} {:.1}v-3m3 3v-5m3 5v-3", x + SAMPLE / 2.0 - 3.0, y + 2.5))
                    stroke=(Paint::Paper.line(row.colour)) {}
            }
        }
        text x=(format_args!("{:.1}", x + SAMPLE + 3.0)) y=(format_args!("{bottom:.1}")) { (label) }
    }
}
