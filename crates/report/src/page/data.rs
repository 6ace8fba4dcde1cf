//! Curves as compact JSON for the page's script.

use faircast_base::{Time, escaped};
use serde_json::{Value, json};

use crate::plots::{Line, MarkRow, Plot, Shape, paper};
use crate::series::Series;

pub(super) fn data(series: &Series, plots: &[Plot], interrupted: bool, ended: Time) -> String {
    json!({
        "duration": number(series.duration_s),
        "warmup": number(series.warmup_s),
        "ended": number(ended.max(series.ended).as_secs_f64()),
        "interrupted": interrupted,
        "style": style(),
        "plots": list(plots, plot),
    })
    .to_string()
}

/// Colours and sizes of pictures for papers, which the page saves.
fn style() -> Value {
    json!({
        "colours": paper::COLOURS, "dashes": paper::DASHES, "width": paper::WIDTH,
        "left": paper::LEFT, "right": paper::RIGHT, "bottom": paper::BOTTOM,
        "field": paper::FIELD_HEIGHT, "row": paper::NAME_ROW, "lane": paper::LANE,
        "cell": paper::CELL, "font": paper::FONT, "sample": paper::SAMPLE,
    })
}

fn list<T>(all: &[T], of: impl Fn(&T) -> Value) -> Value {
    all.iter().map(of).collect()
}

fn plot(plot: &Plot) -> Value {
    json!({
        "key": plot.key,
        "title": plot.title,
        "about": escaped(&plot.about),
        "axis": plot.axis,
        "unit": plot.unit,
        "crowd": plot.crowd,
        "names": list(&plot.names, |name| json!(escaped(name))),
        "lines": list(&plot.lines, line),
        "marks": list(&plot.marks, marks),
    })
}

fn line(line: &Line) -> Value {
    let mut value = json!({
        "label": escaped(&line.label),
        "owner": escaped(&line.owner),
        "kind": line.kind,
        "step": line.shape == Shape::Step,
        "colour": line.colour,
        "dash": line.dash,
        "width": line.weight.pixels(),
        "hidden": line.hidden,
        "times": list(&line.points, |(at, _)| rounded(*at, 1e6)),
        "values": list(&line.points, |(_, value)| value.map_or(Value::Null, number)),
    });
    if let Some(range) = &line.range {
        value["low"] = list(range, |(low, _)| number(*low));
        value["high"] = list(range, |(_, high)| number(*high));
    }
    value
}

fn marks(row: &MarkRow) -> Value {
    json!({
        "label": escaped(&row.label),
        "owner": escaped(&row.owner),
        "kind": row.kind,
        "colour": row.colour,
        "upright": row.upright,
        "hidden": row.hidden,
        "total": row.total,
        "times": list(&row.points, |(at, _, _)| rounded(*at, 1e6)),
        "counts": list(&row.points, |(_, count, _)| json!(count)),
    })
}

fn number(value: f64) -> Value {
    rounded(value, if value.abs() >= 1.0 { 1e3 } else { 1e7 })
}

/// Number in units of `1 / scale`, without a decimal point if whole; null if not finite.
fn rounded(value: f64, scale: f64) -> Value {
    let rounded = (value * scale).round() / scale;
    match rounded.fract() == 0.0 && rounded.abs() < 1e15 {
        true => json!(rounded as i64),
        false => json!(rounded),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_valid_json() {
        for (value, want) in
            [(0.0, "0"), (1.0 / 3.0, "0.3333333"), (1e7 + 0.5, "10000000.5"), (f64::NAN, "null")]
        {
            assert_eq!(number(value).to_string(), want);
        }
        for (at_s, want) in [(300.0, "300"), (1.25, "1.25"), (0.000_001, "1e-6"), (0.0, "0")] {
            assert_eq!(rounded(at_s, 1e6).to_string(), want);
        }
    }
}
