//! Strip of a row: the expected value, the accepted band and our values on one axis.

use maud::{Markup, html};

use crate::suite::{Row, number};

const WIDTH: f64 = 300.0;
/// Space left and right of the values: half of the largest dot, and its edge.
const MARGIN: f64 = 12.0;
const AXIS_MARGIN: f64 = 4.0;
/// Height of the band and of the line of the expected value.
const BAND_HEIGHT: f64 = 28.0;

/// Draws a strip. A large one has numbers below it.
pub(super) fn strip(row: &Row, is_large: bool) -> Markup {
    let (height, y) = if is_large { (62.0, 24.0) } else { (40.0, 20.0) };
    let scale = Scale::new(row);
    let x = |value: f64| format!("{:.1}", scale.x(value));
    let (top, bottom) = (y - BAND_HEIGHT / 2.0, y + BAND_HEIGHT / 2.0);
    html! {
        svg.strip viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label=(label(row)) {
            line.axis x1=(AXIS_MARGIN) x2=(WIDTH - AXIS_MARGIN) y1=(y) y2=(y) {}
            @if row.accepted.low.is_some() || row.accepted.high.is_some() {
                @let from = row.accepted.low.map_or(AXIS_MARGIN, |low| scale.x(low));
                @let to = row.accepted.high.map_or(WIDTH - AXIS_MARGIN, |high| scale.x(high));
                rect.band x=(format_args!("{from:.1}"))
                    width=(format_args!("{:.1}", (to - from).max(2.0)))
                    y=(top) height=(BAND_HEIGHT) rx="3" {}
            }
            @if let Some(paper) = row.expected.paper {
                line.paper x1=(x(paper)) x2=(x(paper)) y1=(top) y2=(bottom) {}
            }
            line.range x1=(x(row.values.low)) x2=(x(row.values.high)) y1=(y) y2=(y) {}
            @if let Some(interval) = row.interval() {
                @let (low, high, end) = (x(interval.low), x(interval.high), y - 4.0);
                path.interval d={ "M" (low) " " (end) "v8M" (low) " " (y) "H" (high) "M" (high) " "
                    (end) "v8" } {}
            }
            @for (_, value) in &row.per_seed { circle.seed cx=(x(*value)) cy=(y) r="3" {} }
            circle.ours cx=(x(row.values.ours)) cy=(y) r="6" {}
            @if is_large {
                @for (value, anchor) in [(scale.min, "start"), (scale.max, "end")] {
                    text x=(x(value)) y="56" text-anchor=(anchor) { (number(value)) }
                }
            }
        }
    }
}

fn label(row: &Row) -> String {
    let paper = row.expected.paper.map_or_else(|| "no number".into(), number);
    let [theirs, ours] = row.sides().map(str::to_lowercase);
    let [value, low, high] = [row.values.ours, row.values.low, row.values.high].map(number);
    format!("{theirs} {paper}, {ours} {value} from {low} to {high}")
}

struct Scale {
    min: f64,
    max: f64,
}

impl Scale {
    fn new(row: &Row) -> Self {
        let values = [Some(row.values.low), Some(row.values.high), Some(row.values.ours)];
        let bounds = [row.expected.paper, row.accepted.low, row.accepted.high];
        let all = values.into_iter().chain(bounds).flatten().filter(|value| value.is_finite());
        let min = all.clone().fold(f64::INFINITY, f64::min);
        Self { min, max: all.fold(f64::NEG_INFINITY, f64::max) }
    }

    fn x(&self, value: f64) -> f64 {
        let span = if self.max > self.min { self.max - self.min } else { 1.0 };
        let share = ((value - self.min) / span).clamp(0.0, 1.0);
        MARGIN + (WIDTH - 2.0 * MARGIN) * share
    }
}
