//! Style of pictures for papers: size, colours, axes and legends.

use std::fmt::Write as _;

use super::Unit;
use crate::text::escape;

/// Width of a picture: 3.5 inches, a column of most conferences, in points of 1/72 inch.
pub(crate) const WIDTH: f64 = 252.0;
pub(crate) const FIELD_HEIGHT: f64 = 110.0;
pub(crate) const LEFT: f64 = 42.0;
pub(crate) const RIGHT: f64 = 8.0;
pub(crate) const BOTTOM: f64 = 28.0;
pub(crate) const FONT: f64 = 8.0;
pub(crate) const SAMPLE: f64 = 18.0;
pub(crate) const COLOURS: [&str; 8] =
    ["#0b6bb8", "#c8500a", "#00805c", "#a8478f", "#96700a", "#1f8fb5", "#5b6878", "#7d4b2a"];
pub(crate) const DASHES: [&str; 6] =
    ["", "5 2.5", "1.5 1.5", "7 2 1.5 2", "10 3", "4 1.5 1 1.5 1 1.5"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    Paper,
    /// On a page, in the reader's colours. The page saves it with those of paper.
    Page,
}

impl Paint {
    fn named(self, name: &str, colour: &str) -> String {
        match self {
            Self::Paper => colour.into(),
            Self::Page => format!("var(--{name},{colour})"),
        }
    }

    pub(crate) fn line(self, place: usize) -> String {
        let place = place % COLOURS.len();
        self.named(&format!("c{place}"), COLOURS[place])
    }

    fn ink(self) -> String {
        self.named("ink", "#000")
    }

    pub(crate) fn ground(self) -> String {
        self.named("card", "#fff")
    }
}

pub(crate) fn dashes(place: usize) -> String {
    match DASHES[place % DASHES.len()] {
        "" => String::new(),
        dashes => format!(" stroke-dasharray=\"{dashes}\""),
    }
}

pub(crate) fn begin(paint: Paint, height: f64, title: &str, about: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}pt\" height=\"{height:.1}pt\" \
         viewBox=\"0 0 {WIDTH} {height:.1}\" font-family=\"Helvetica, Arial, 'Liberation Sans', \
         'DejaVu Sans', sans-serif\" font-size=\"{FONT}\" fill=\"{}\">\n<title>{}</title>\n\
         <desc>{}</desc>\n<rect width=\"{WIDTH}\" height=\"{height:.1}\" fill=\"{}\"/>\n",
        paint.ink(),
        escape(title),
        escape(about),
        paint.ground()
    )
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Frame {
    pub(crate) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(crate) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    pub(crate) fn level(&self, out: &mut String, paint: Paint, y: f64, text: &str) {
        let _ = writeln!(
            out,
            "<path d=\"M{:.1} {y:.2}H{:.1}\" stroke=\"{}\" stroke-width=\".4\"/>\
             <text x=\"{:.1}\" y=\"{:.2}\" text-anchor=\"end\">{}</text>",
            self.left,
            self.right(),
            paint.named("line", "#ddd"),
            self.left - 4.0,
            y + 2.8,
            escape(text)
        );
    }

    pub(crate) fn tick(&self, out: &mut String, paint: Paint, x: f64, text: &str) {
        let (bottom, ink) = (self.bottom(), paint.ink());
        let _ =
            write!(out, "<path d=\"M{x:.2} {bottom:.1}v3\" stroke=\"{ink}\" stroke-width=\".6\"/>");
        if !text.is_empty() {
            let (y, text) = (bottom + 11.0, escape(text));
            let _ =
                write!(out, "<text x=\"{x:.2}\" y=\"{y:.1}\" text-anchor=\"middle\">{text}</text>");
        }
        out.push('\n');
    }

    pub(crate) fn axes(&self, out: &mut String, paint: Paint, across: &str, up: &str) {
        let middle = self.top + self.height / 2.0;
        let _ = writeln!(
            out,
            "<path d=\"M{:.1} {:.1}V{bottom:.1}H{:.1}\" fill=\"none\" stroke=\"{}\" \
             stroke-width=\".6\"/>\n<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(9 {middle:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            self.left,
            self.top,
            self.right(),
            paint.ink(),
            self.left + self.width / 2.0,
            self.bottom() + 23.0,
            escape(across),
            escape(up),
            bottom = self.bottom(),
        );
    }
}

impl Unit {
    pub(crate) fn scale(self, top: f64) -> (f64, &'static str) {
        match self {
            Self::Count if top >= 2e6 => (1e6, "millions"),
            Self::Count if top >= 2e4 => (1e3, "thousands"),
            Self::Count | Self::Receivers | Self::Name => (1.0, ""),
            Self::Packets => (1.0, "packets"),
            Self::Rate if top >= 1e9 => (1e9, "Gbit/s"),
            Self::Rate if top >= 1e6 => (1e6, "Mbit/s"),
            Self::Rate if top >= 1e3 => (1e3, "kbit/s"),
            Self::Rate => (1.0, "bit/s"),
            Self::Span if top >= 1.0 => (1.0, "s"),
            Self::Span => (1e-3, "ms"),
        }
    }

    pub(crate) fn levels(self, top: f64) -> (Vec<(f64, String)>, &'static str) {
        let (scale, unit) = self.scale(top);
        let values = ticks(top / scale, 5.0);
        (values.into_iter().map(|value| (value * scale, shown(value))).collect(), unit)
    }
}

pub(crate) fn named(axis: &str, unit: &str) -> String {
    if unit.is_empty() { axis.into() } else { format!("{axis}, {unit}") }
}

pub(crate) fn ticks(top: f64, number: f64) -> Vec<f64> {
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

pub(crate) fn reach(greatest: f64) -> f64 {
    if greatest > 0.0 { greatest * 1.06 } else { 1.0 }
}

pub(crate) fn shown(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

pub(crate) fn legend_places<'a>(labels: impl Iterator<Item = &'a str>) -> Vec<(f64, f64)> {
    let (mut x, mut y) = (4.0, FONT);
    let place = |label: &str| {
        let width = SAMPLE + 3.0 + text_width(label);
        if x + width > WIDTH - 2.0 && x > 4.0 {
            (x, y) = (4.0, y + FONT + 3.0);
        }
        let at = (x, y);
        x += width + 9.0;
        at
    };
    labels.map(place).collect()
}

pub(crate) fn legend_height(places: &[(f64, f64)]) -> f64 {
    places.iter().map(|(_, y)| *y).fold(FONT, f64::max) + 5.0
}

/// Estimates the width of a text: Helvetica's mean letter is about half its size wide.
pub(crate) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * FONT * 0.53
}
