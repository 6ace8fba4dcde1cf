//! Style of pictures for papers: size, colours, axes and legends.

use faircast_base::escaped_lines;
use maud::{Markup, html};

use super::Unit;

/// Width of a picture: 3.5 inches, a column of most conferences, in points of 1/72 inch.
pub(crate) const WIDTH: f64 = 252.0;
pub(crate) const FIELD_HEIGHT: f64 = 110.0;
/// Space around the field.
pub(crate) const LEFT: f64 = 42.0;
pub(crate) const RIGHT: f64 = 8.0;
pub(crate) const BOTTOM: f64 = 28.0;
/// Height of a row of a plot of names.
pub(crate) const NAME_ROW: f64 = 14.0;
/// Height of a lane of marks above the field.
pub(crate) const LANE: f64 = 8.0;
/// Width in which marks are counted as one bar.
pub(crate) const CELL: f64 = 2.0;
pub(crate) const FONT: f64 = 8.0;
/// Length of a line in the legend.
pub(crate) const SAMPLE: f64 = 18.0;
pub(crate) const COLOURS: [&str; 8] =
    ["#0b6bb8", "#c8500a", "#00805c", "#a8478f", "#96700a", "#1f8fb5", "#5b6878", "#7d4b2a"];
pub(crate) const DASHES: [&str; 6] =
    ["", "5 2.5", "1.5 1.5", "7 2 1.5 2", "10 3", "4 1.5 1 1.5 1 1.5"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    /// Black on white, with the palette of light pages.
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

/// Pattern of a line's dashes; `None` for a solid line.
pub(crate) fn dashes(place: usize) -> Option<&'static str> {
    Some(DASHES[place % DASHES.len()]).filter(|dashes| !dashes.is_empty())
}

pub(crate) fn picture(
    paint: Paint,
    height: f64,
    title: &str,
    about: &str,
    content: &Markup,
) -> Markup {
    let height = format!("{height:.1}");
    html! {
        svg xmlns="http://www.w3.org/2000/svg" width={ (WIDTH) "pt" } height={ (height) "pt" }
            viewBox={ "0 0 " (WIDTH) " " (height) }
            font-family="Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
            font-size=(FONT) fill=(paint.ink()) {
            "\n" title { (title) }
            "\n" desc { (about) }
            "\n" rect width=(WIDTH) height=(height) fill=(paint.ground()) {}
            (content)
            "\n"
        }
    }
}

/// Returns a picture as a file. A name must not hide or turn text by format characters.
pub(crate) fn file(picture: Markup) -> String {
    escaped_lines(&picture.into_string()).into_owned() + "\n"
}

/// Field between the axes.
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

    /// Horizontal line of the grid, with its value.
    pub(crate) fn level(&self, paint: Paint, y: f64, text: &str) -> Markup {
        html! {
            "\n"
            path d=(format_args!("M{:.1} {y:.2}H{:.1}", self.left, self.right()))
                stroke=(paint.named("line", "#ddd")) stroke-width=".4" {}
            text x=(format_args!("{:.1}", self.left - 4.0)) y=(format_args!("{:.2}", y + 2.8))
                text-anchor="end" { (text) }
        }
    }

    /// Mark on the horizontal axis, with its value if that has a place.
    pub(crate) fn tick(&self, paint: Paint, x: f64, text: &str) -> Markup {
        html! {
            "\n"
            path d=(format_args!("M{x:.2} {:.1}v3", self.bottom())) stroke=(paint.ink())
                stroke-width=".6" {}
            @if !text.is_empty() {
                text x=(format_args!("{x:.2}")) y=(format_args!("{:.1}", self.bottom() + 11.0))
                    text-anchor="middle" { (text) }
            }
        }
    }

    pub(crate) fn axes(&self, paint: Paint, across: &str, up: &str) -> Markup {
        let (left, top, right, bottom) = (self.left, self.top, self.right(), self.bottom());
        let (centre, middle) = (left + self.width / 2.0, top + self.height / 2.0);
        html! {
            "\n"
            path d=(format_args!("M{left:.1} {top:.1}V{bottom:.1}H{right:.1}")) fill="none"
                stroke=(paint.ink()) stroke-width=".6" {}
            "\n"
            text x=(format_args!("{centre:.1}")) y=(format_args!("{:.1}", bottom + 23.0))
                text-anchor="middle" { (across) }
            "\n"
            text transform=(format_args!("translate(9 {middle:.1}) rotate(-90)"))
                text-anchor="middle" { (up) }
        }
    }
}

impl Unit {
    /// Divisor of values up to `top`, and their unit after the division.
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

    /// Round values from 0 to `top` with their texts, and the unit of the texts.
    pub(crate) fn levels(self, top: f64) -> (Vec<(f64, String)>, &'static str) {
        let (scale, unit) = self.scale(top);
        let values = ticks(top / scale, 5.0);
        (values.into_iter().map(|value| (value * scale, shown(value))).collect(), unit)
    }
}

pub(crate) fn named(axis: &str, unit: &str) -> String {
    if unit.is_empty() { axis.into() } else { format!("{axis}, {unit}") }
}

/// Round values from 0 to `top`: about `number` of them.
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

/// Value at the upper end of an axis.
pub(crate) fn reach(greatest: f64) -> f64 {
    if greatest > 0.0 { greatest * 1.06 } else { 1.0 }
}

pub(crate) fn shown(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// Places of a legend's entries in rows: left edge and baseline.
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
