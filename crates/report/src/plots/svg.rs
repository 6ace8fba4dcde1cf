//! SVG plots of a run for papers, readable without colours; a test compares them with `page.js`.

use std::fmt::Write as _;

use super::paper::{
    BOTTOM, FIELD_HEIGHT, Frame, LEFT, Paint, RIGHT, SAMPLE, WIDTH, begin, dashes, legend_height,
    legend_places, named, reach, shown, text_width, ticks,
};
use super::{Line, MarkRow, Plot, Shape, Weight};
use crate::series::Series;
use crate::text::escape;

const LANE: f64 = 8.0;
const CELL: f64 = 2.0;

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
    let names_height = 14.0 * plot.names.len() as f64;
    let left = plot.names.iter().map(|name| text_width(name)).fold(LEFT, |a, b| a.max(b + 18.0));
    let frame = Frame {
        left,
        top: legend_height + LANE * lanes.len() as f64 + 4.0,
        width: WIDTH - left - RIGHT,
        height: if plot.names.is_empty() { FIELD_HEIGHT } else { names_height },
    };
    let field = Field { frame, end, range: plot.range(&lines, series.warmup_s, end) };
    let mut out = begin(Paint::Paper, frame.bottom() + BOTTOM, plot.title, &plot.about);
    let _ = writeln!(
        out,
        "<clipPath id=\"field\"><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\
         </clipPath>",
        frame.left, frame.top, frame.width, frame.height,
    );
    for ((label, what), (x, y)) in entries.iter().zip(places) {
        entry(&mut out, label, what, x, y);
    }
    axes(&mut out, plot, &field, series.warmup_s);
    for (lane, row) in lanes.iter().enumerate() {
        let floor = legend_height + LANE * (lane + 1) as f64;
        bars(&mut out, row, &field, floor);
    }
    out.push_str("<g clip-path=\"url(#field)\" fill=\"none\">\n");
    for row in marks.iter().filter(|row| row.upright) {
        let mut path = String::new();
        for (at, _, _) in &row.points {
            let _ = write!(path, "M{:.2} {:.1}V{:.1}", field.x(*at), frame.top, frame.bottom());
        }
        let _ = writeln!(
            out,
            "<path d=\"{path}\" stroke=\"{}\" stroke-width=\".5\" stroke-dasharray=\"2 1.5\" \
             opacity=\".6\"/>",
            colour(row.colour),
        );
    }
    for (i, line) in lines.iter().enumerate() {
        curve(&mut out, line, i, &field);
    }
    out.push_str("</g>\n</svg>\n");
    out
}

struct Field {
    frame: Frame,
    end: f64,
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

fn axes(out: &mut String, plot: &Plot, field: &Field, warmup_s: f64) {
    let frame = field.frame;
    if warmup_s > 0.0 {
        let _ = writeln!(
            out,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#eee\"/>",
            frame.left,
            frame.top,
            field.x(warmup_s) - frame.left,
            frame.height
        );
    }
    let (levels, unit) = match plot.names.is_empty() {
        false => (plot.names.iter().cloned().enumerate().map(|(i, n)| (i as f64, n)).collect(), ""),
        true => plot.unit.levels(field.range[1]),
    };
    for (value, text) in levels {
        frame.level(out, Paint::Paper, field.y(value), &text);
    }
    for value in ticks(field.end, 6.0) {
        frame.tick(out, Paint::Paper, field.x(value), &shown(value));
    }
    frame.axes(out, Paint::Paper, "Time, s", &named(plot.axis, unit));
}

fn colour(place: usize) -> String {
    Paint::Paper.line(place)
}

fn curve(out: &mut String, line: &Line, place: usize, field: &Field) {
    let paint = colour(line.colour);
    if let Some(range) = &line.range {
        let mut path = String::new();
        let at = |i: usize| field.x(line.points[i].0);
        for (i, (_, high)) in range.iter().enumerate() {
            let _ = write!(path, "{}{:.2} {:.2}", join(i), at(i), field.y(*high));
        }
        for (i, (low, _)) in range.iter().enumerate().rev() {
            let _ = write!(path, "L{:.2} {:.2}", at(i), field.y(*low));
        }
        let _ = writeln!(out, "<path d=\"{path}Z\" fill=\"{paint}\" opacity=\".16\"/>");
    }
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
    let _ = writeln!(
        out,
        "<path d=\"{path}\" stroke=\"{paint}\" stroke-width=\"{}\" stroke-linejoin=\"round\"{}/>",
        stroke(line.weight),
        dashes(place)
    );
}

fn join(place: usize) -> &'static str {
    if place == 0 { "M" } else { "L" }
}

fn stroke(weight: Weight) -> f64 {
    weight.pixels() / 2.0
}

fn bars(out: &mut String, row: &MarkRow, field: &Field, floor: f64) {
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
    let _ = writeln!(out, "<path d=\"{path}\" stroke=\"{}\"/>", colour(row.colour));
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

fn entry(out: &mut String, label: &str, what: &Sample<'_>, x: f64, bottom: f64) {
    let y = bottom - 2.6;
    let _ = match what {
        Sample::Line(line, place) => write!(
            out,
            "<path d=\"M{x:.1} {y:.1}h{SAMPLE}\" stroke=\"{}\" stroke-width=\"{}\"{}/>",
            colour(line.colour),
            stroke(line.weight),
            dashes(*place)
        ),
        Sample::Marks(row) if row.upright => write!(
            out,
            "<path d=\"M{:.1} {:.1}v8\" stroke=\"{}\" stroke-width=\".5\" \
             stroke-dasharray=\"2 1.5\"/>",
            x + SAMPLE / 2.0,
            y - 4.0,
            colour(row.colour)
        ),
        Sample::Marks(row) => write!(
            out,
            "<path d=\"M{:.1} {2:.1}v-3m3 3v-5m3 5v-3\" stroke=\"{1}\"/>",
            x + SAMPLE / 2.0 - 3.0,
            colour(row.colour),
            y + 2.5
        ),
    };
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{bottom:.1}\">{}</text>",
        x + SAMPLE + 3.0,
        escape(label)
    );
}
