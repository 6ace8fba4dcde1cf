//! Plots as pictures for papers: one column wide, in SVG, readable without colours.

use std::fmt::Write as _;

use super::{Line, MarkRow, Plot, Shape, Unit, Weight};
use crate::series::Series;
use crate::text::escape;

/// Width of a picture: 3.5 inches, a column of most conferences, in points of 1/72 inch.
const WIDTH: f64 = 252.0;
/// Height of the field of the lines.
const FIELD_HEIGHT: f64 = 110.0;
/// Room to the left of the field, for the numbers and the name of the axis.
const LEFT: f64 = 42.0;
const RIGHT: f64 = 8.0;
const BOTTOM: f64 = 28.0;
/// Size of all text.
const FONT: f64 = 8.0;
/// Height of a lane of marks.
const LANE: f64 = 8.0;
/// Marks closer than this are one bar, as high as they are many.
const CELL: f64 = 2.0;
/// The page's colours on white: see `page.css`.
pub(crate) const COLOURS: [&str; 8] =
    ["#0b6bb8", "#c8500a", "#00805c", "#a8478f", "#96700a", "#1f8fb5", "#5b6878", "#7d4b2a"];
/// Each line of a picture has dashes of its own, so that it is told from others in black and white.
pub(crate) const DASHES: [&str; 6] =
    ["", "5 2.5", "1.5 1.5", "7 2 1.5 2", "10 3", "4 1.5 1 1.5 1 1.5"];

/// A plot as a picture: the lines and marks that are shown to begin with, over the whole run. The
/// vertical axis reaches what lines have in the counted time.
pub fn svg(plot: &Plot, series: &Series) -> String {
    let ended_s = series.ended.as_secs_f64();
    let end = if ended_s > 0.0 { ended_s } else { series.duration_s.max(1e-9) };
    let lines: Vec<&Line> = plot.lines.iter().filter(|line| !line.hidden).collect();
    let marks: Vec<&MarkRow> = plot.marks.iter().filter(|row| !row.hidden).collect();
    let lanes: Vec<&MarkRow> = plot.lanes().collect();
    let entries = legend(&lines, &marks);
    let legend_height = entries.iter().map(|entry| entry.y).fold(0.0, f64::max) + FONT + 5.0;
    let names_height = 14.0 * plot.names.len() as f64;
    let left = plot.names.iter().map(|name| text_width(name)).fold(LEFT, |a, b| a.max(b + 18.0));
    let field = Field {
        left,
        top: legend_height + LANE * lanes.len() as f64 + 4.0,
        width: WIDTH - left - RIGHT,
        height: if plot.names.is_empty() { FIELD_HEIGHT } else { names_height },
        end,
        range: plot.range(&lines, series.warmup_s, end),
    };
    let height = field.top + field.height + BOTTOM;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}pt\" height=\"{height:.1}pt\" \
         viewBox=\"0 0 {WIDTH} {height:.1}\" font-family=\"Helvetica, Arial, 'Liberation Sans', \
         'DejaVu Sans', sans-serif\" font-size=\"{FONT}\" fill=\"#000\">\n<title>{}</title>\n\
         <desc>{}</desc>\n<rect width=\"{WIDTH}\" height=\"{height:.1}\" fill=\"#fff\"/>\n\
         <clipPath id=\"field\"><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\
         </clipPath>\n",
        escape(plot.title),
        escape(&plot.about),
        field.left,
        field.top,
        field.width,
        field.height,
    );
    for entry in &entries {
        entry.write(&mut out);
    }
    axes(&mut out, plot, &field, series.warmup_s);
    for (lane, row) in lanes.iter().enumerate() {
        let floor = legend_height + LANE * (lane + 1) as f64;
        bars(&mut out, row, &field, floor);
    }
    out.push_str("<g clip-path=\"url(#field)\" fill=\"none\">\n");
    for row in marks.iter().filter(|row| row.upright) {
        for (at, _, _) in &row.points {
            let _ = writeln!(
                out,
                "<path d=\"M{0:.2} {1:.1}V{2:.1}\" stroke=\"{3}\" stroke-width=\".5\" \
                 stroke-dasharray=\"2 1.5\" opacity=\".6\"/>",
                field.x(*at),
                field.top,
                field.top + field.height,
                colour(row.colour),
            );
        }
    }
    for (i, line) in lines.iter().enumerate() {
        curve(&mut out, line, i, &field);
    }
    out.push_str("</g>\n</svg>\n");
    out
}

/// Where lines are drawn, and what of the run is there.
struct Field {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    /// The run's end in seconds.
    end: f64,
    /// What is at the lower and at the upper edge.
    range: [f64; 2],
}

impl Field {
    fn x(&self, at: f64) -> f64 {
        self.left + self.width * (at / self.end).clamp(0.0, 1.0)
    }

    fn y(&self, value: f64) -> f64 {
        let [low, high] = self.range;
        let share = (value - low) / (high - low);
        // What is far outside is cut off; numbers stay such as any program reads.
        self.top + self.height * (1.0 - share.clamp(-1.0, 3.0))
    }
}

impl Plot {
    /// What the vertical axis reaches: what the lines have in the counted time.
    fn range(&self, lines: &[&Line], warmup_s: f64, end: f64) -> [f64; 2] {
        if !self.names.is_empty() {
            return [-0.5, self.names.len() as f64 - 0.5];
        }
        // Of a run that ended in its warm-up everything counts.
        let from = if warmup_s < end { warmup_s } else { 0.0 };
        let of = |line: &&Line| {
            let points = line.points.iter().enumerate().filter(|(_, (at, _))| *at >= from);
            let top = |i: usize, value: f64| {
                line.range.as_ref().map_or(value, |range| value.max(range[i].1))
            };
            points.filter_map(|(i, (_, value))| Some(top(i, (*value)?))).fold(0.0, f64::max)
        };
        let greatest = lines.iter().map(of).fold(0.0, f64::max);
        [0.0, if greatest > 0.0 { greatest * 1.06 } else { 1.0 }]
    }
}

fn axes(out: &mut String, plot: &Plot, field: &Field, warmup_s: f64) {
    let (right, bottom) = (field.left + field.width, field.top + field.height);
    if warmup_s > 0.0 {
        let _ = writeln!(
            out,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#eee\"/>",
            field.left,
            field.top,
            field.x(warmup_s) - field.left,
            field.height
        );
    }
    let top = field.range[1];
    let (scale, unit) = plot.unit.scale(top);
    let rows: Vec<(f64, String)> = match plot.names.is_empty() {
        false => plot.names.iter().enumerate().map(|(i, n)| (i as f64, n.clone())).collect(),
        true => ticks(top / scale, 5.0).into_iter().map(|v| (v * scale, shown(v))).collect(),
    };
    for (value, text) in rows {
        let y = field.y(value);
        let _ = writeln!(
            out,
            "<path d=\"M{:.1} {y:.2}H{right:.1}\" stroke=\"#ddd\" stroke-width=\".4\"/>\
             <text x=\"{:.1}\" y=\"{:.2}\" text-anchor=\"end\">{}</text>",
            field.left,
            field.left - 4.0,
            y + 2.8,
            escape(&text)
        );
    }
    for value in ticks(field.end, 6.0) {
        let x = field.x(value);
        let _ = writeln!(
            out,
            "<path d=\"M{x:.2} {bottom:.1}v3\" stroke=\"#000\" stroke-width=\".6\"/>\
             <text x=\"{x:.2}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 11.0,
            shown(value)
        );
    }
    let name = if unit.is_empty() { plot.axis.into() } else { format!("{}, {unit}", plot.axis) };
    let middle = field.top + field.height / 2.0;
    let _ = writeln!(
        out,
        "<path d=\"M{:.1} {:.1}V{bottom:.1}H{right:.1}\" fill=\"none\" stroke=\"#000\" \
         stroke-width=\".6\"/>\n<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">Time, s</text>\n\
         <text transform=\"translate(9 {middle:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        field.left,
        field.top,
        field.left + field.width / 2.0,
        bottom + 23.0,
        escape(&name)
    );
}

impl Unit {
    /// By what values are divided, and the unit that they are then in.
    fn scale(self, top: f64) -> (f64, &'static str) {
        match self {
            Self::Count if top >= 2e6 => (1e6, "millions"),
            Self::Count if top >= 2e4 => (1e3, "thousands"),
            Self::Count => (1.0, ""),
            Self::Packets => (1.0, "packets"),
            Self::Rate if top >= 1e9 => (1e9, "Gbit/s"),
            Self::Rate if top >= 1e6 => (1e6, "Mbit/s"),
            Self::Rate if top >= 1e3 => (1e3, "kbit/s"),
            Self::Rate => (1.0, "bit/s"),
            Self::Span if top >= 1.0 => (1.0, "s"),
            Self::Span => (1e-3, "ms"),
            Self::Name => (1.0, ""),
        }
    }
}

/// Round numbers from zero to `top`, about so many.
fn ticks(top: f64, number: f64) -> Vec<f64> {
    let least = top / number;
    let power = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|s| *s >= least);
    let step = step.unwrap_or(10.0 * power);
    (0..)
        .map(|i| f64::from(i) * step)
        .take_while(|value| *value <= top * 1.000_001)
        .take(50)
        .collect()
}

/// A number without the digits that only rounding brought.
fn shown(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

fn colour(place: usize) -> &'static str {
    COLOURS[place % COLOURS.len()]
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
    match weight {
        Weight::Bold => 1.4,
        Weight::Normal => 1.0,
        Weight::Light => 0.7,
    }
}

fn dashes(place: usize) -> String {
    match DASHES[place % DASHES.len()] {
        "" => String::new(),
        dashes => format!(" stroke-dasharray=\"{dashes}\""),
    }
}

/// Marks as bars that stand on the floor of their lane: where many fall together, one that is as high
/// as they are many.
fn bars(out: &mut String, row: &MarkRow, field: &Field, floor: f64) {
    let mut cells: Vec<(i64, u64)> = Vec::new();
    for (at, count, _) in &row.points {
        let cell = (field.x(*at) / CELL) as i64;
        match cells.last_mut() {
            Some((last, sum)) if *last == cell => *sum += count,
            _ => cells.push((cell, *count)),
        }
    }
    let most = cells.iter().map(|(_, sum)| *sum).max().unwrap_or(1) as f64;
    let mut path = String::new();
    for (cell, sum) in cells {
        // By the square root, so that one beside a hundred is still seen.
        let height = 2.0 + (LANE - 3.0) * (sum as f64 / most).sqrt();
        let _ = write!(path, "M{:.1} {floor:.1}v{:.2}", cell as f64 * CELL + CELL / 2.0, -height);
    }
    let _ =
        writeln!(out, "<path d=\"{path}\" stroke=\"{}\" stroke-width=\"1\"/>", colour(row.colour));
}

/// A line's or a row's name beside a piece of it.
struct Entry<'a> {
    x: f64,
    y: f64,
    label: String,
    what: Sample<'a>,
}

enum Sample<'a> {
    Line(&'a Line, usize),
    Marks(&'a MarkRow),
}

/// Legend entries from the left to the right, in as many rows as it takes.
fn legend<'a>(lines: &[&'a Line], marks: &[&'a MarkRow]) -> Vec<Entry<'a>> {
    let lines =
        lines.iter().enumerate().map(|(i, line)| (line.label.clone(), Sample::Line(line, i)));
    let marks =
        marks.iter().map(|row| (format!("{} ({})", row.label, row.total), Sample::Marks(row)));
    let (mut x, mut y) = (4.0, FONT);
    let mut entries = Vec::new();
    for (label, what) in lines.chain(marks) {
        let width = SAMPLE + 3.0 + text_width(&label);
        if x + width > WIDTH - 2.0 && x > 4.0 {
            (x, y) = (4.0, y + FONT + 3.0);
        }
        entries.push(Entry { x, y, label, what });
        x += width + 9.0;
    }
    entries
}

/// Length of the piece of a line in a legend.
const SAMPLE: f64 = 18.0;

impl Entry<'_> {
    fn write(&self, out: &mut String) {
        let (x, y) = (self.x, self.y - 2.6);
        let _ = match &self.what {
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
                "<path d=\"M{:.1} {2:.1}v-3m3 3v-5m3 5v-3\" stroke=\"{1}\" stroke-width=\"1\"/>",
                x + SAMPLE / 2.0 - 3.0,
                colour(row.colour),
                y + 2.5
            ),
        };
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x + SAMPLE + 3.0,
            self.y,
            escape(&self.label)
        );
    }
}

/// About how wide a text is: the mean of Helvetica's letters is a little more than half their size.
fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * FONT * 0.53
}
