//! The curves as compact JSON for the page's script.

use std::fmt::Write as _;

use faircast_base::{Time, escaped};

use crate::plots::paper::{COLOURS, DASHES};
use crate::plots::{Line, MarkRow, Plot, Shape, Unit};
use crate::series::Series;

/// One object for plots of one run: see `page.js` for its reader.
pub(super) fn data(series: &Series, plots: &[Plot], interrupted: bool, ended: Time) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "{{\"duration\":{},\"warmup\":{},\"ended\":{},\"interrupted\":{interrupted},\"style\":{},\
         \"plots\":[",
        number(series.duration_s),
        number(series.warmup_s),
        number(ended.max(series.ended).as_secs_f64()),
        style()
    );
    separated(&mut out, plots, push_plot);
    out.push_str("]}");
    out
}

fn style() -> String {
    serde_json::json!({ "colours": COLOURS, "dashes": DASHES }).to_string()
}

fn push_plot(out: &mut String, plot: &Plot) {
    let unit = match plot.unit {
        Unit::Count => "count",
        Unit::Packets => "packets",
        Unit::Rate => "rate",
        Unit::Span => "span",
        Unit::Receivers => "receivers",
        Unit::Name => "name",
    };
    let _ = write!(
        out,
        "{{\"key\":\"{}\",\"title\":\"{}\",\"about\":{},\"axis\":\"{}\",\"unit\":\"{unit}\",\
         \"crowd\":{},\"names\":[",
        plot.key,
        plot.title,
        text(&plot.about),
        plot.axis,
        plot.crowd
    );
    separated(out, &plot.names, |out, name| out.push_str(&text(name)));
    out.push_str("],\"lines\":[");
    separated(out, &plot.lines, push_line);
    out.push_str("],\"marks\":[");
    separated(out, &plot.marks, push_marks);
    out.push_str("]}");
}

fn push_line(out: &mut String, line: &Line) {
    let width = line.weight.pixels();
    let _ = write!(
        out,
        "{{\"label\":{},\"owner\":{},\"kind\":\"{}\",\"step\":{},\"colour\":{},\"dash\":{},\
         \"width\":{width},\"hidden\":{},\"times\":[",
        text(&line.label),
        text(&line.owner),
        line.kind,
        line.shape == Shape::Step,
        line.colour,
        line.dash,
        line.hidden
    );
    separated(out, &line.points, |out, (at, _)| out.push_str(&moment(*at)));
    out.push_str("],\"values\":[");
    separated(out, &line.points, |out, (_, value)| {
        out.push_str(&value.map_or_else(|| "null".into(), number));
    });
    out.push(']');
    if let Some(range) = &line.range {
        out.push_str(",\"low\":[");
        separated(out, range, |out, (low, _)| out.push_str(&number(*low)));
        out.push_str("],\"high\":[");
        separated(out, range, |out, (_, high)| out.push_str(&number(*high)));
        out.push(']');
    }
    out.push('}');
}

fn push_marks(out: &mut String, row: &MarkRow) {
    let _ = write!(
        out,
        "{{\"label\":{},\"owner\":{},\"kind\":\"{}\",\"colour\":{},\"upright\":{},\"hidden\":{},\
         \"total\":{},\"times\":[",
        text(&row.label),
        text(&row.owner),
        row.kind,
        row.colour,
        row.upright,
        row.hidden,
        row.total
    );
    separated(out, &row.points, |out, (at, _, _)| out.push_str(&moment(*at)));
    out.push_str("],\"counts\":[");
    separated(out, &row.points, |out, (_, count, _)| {
        let _ = write!(out, "{count}");
    });
    out.push_str("]}");
}

fn separated<T>(out: &mut String, items: &[T], mut push: impl FnMut(&mut String, &T)) {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        push(out, item);
    }
}

/// A moment in seconds, to the microsecond.
fn moment(at_s: f64) -> String {
    format!("{at_s:.6}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A number with what a plot can show of it: about seven digits.
fn number(value: f64) -> String {
    if !value.is_finite() {
        return "null".into();
    }
    let rounded =
        if value.abs() >= 1.0 { (value * 1e3).round() / 1e3 } else { (value * 1e7).round() / 1e7 };
    format!("{rounded}")
}

fn text(text: &str) -> String {
    serde_json::to_string(&escaped(text)).expect("every text is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_valid_json() {
        for (value, want) in
            [(0.0, "0"), (1.0 / 3.0, "0.3333333"), (1e7 + 0.5, "10000000.5"), (f64::NAN, "null")]
        {
            assert_eq!(number(value), want);
        }
        for (at_s, want) in [(300.0, "300"), (1.25, "1.25"), (0.000_001, "0.000001"), (0.0, "0")] {
            assert_eq!(moment(at_s), want);
        }
    }
}
