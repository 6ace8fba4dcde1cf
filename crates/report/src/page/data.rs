//! The curves as compact JSON for the page's script.

use std::fmt::Write as _;

use faircast_base::Time;

use crate::series::{Bins, Curve, FlowSeries, Marks, Series};

/// Which curves a page needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    All,
    Sequence,
    /// Throughput over time, and changes of the representative.
    Throughput,
}

/// One object for `series`: see `page.js` for its reader.
pub(super) fn plot(series: &Series, wanted: Wanted, interrupted: bool, ended: Time) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "{{\"duration\":{},\"warmup\":{},\"ended\":{},\"interrupted\":{interrupted},\"flows\":[",
        number(series.duration_s),
        number(series.warmup_s),
        number(ended.max(series.ended).as_secs_f64())
    );
    separated(&mut out, &series.flows, |out, flow| push_flow(out, flow, wanted));
    out.push_str("],\"rest\":[");
    if wanted != Wanted::Sequence {
        separated(&mut out, &series.rest, |out, rest| {
            let protocol = text(&rest.protocol);
            let _ = write!(out, "{{\"protocol\":{protocol},\"flows\":{},\"bins\":", rest.flows);
            push_bins(out, &rest.throughput);
            out.push('}');
        });
    }
    out.push_str("],\"links\":[");
    if wanted == Wanted::All {
        separated(&mut out, &series.links(), |out, link| {
            let _ = write!(out, "{{\"name\":{},\"mean\":", text(&link.name));
            push_curve(out, &link.mean);
            out.push_str(",\"max\":");
            push_curve(out, &link.max);
            out.push_str(",\"drops\":");
            push_marks(out, &link.drops);
            out.push('}');
        });
    }
    out.push_str("]}");
    out
}

fn push_flow(out: &mut String, flow: &FlowSeries, wanted: Wanted) {
    let _ = write!(out, "{{\"name\":{},\"protocol\":{}", text(&flow.name), text(&flow.protocol));
    if flow.received {
        out.push_str(",\"received\":true");
    }
    if wanted != Wanted::Throughput {
        push_sequence(out, flow);
    }
    out.push_str(",\"switches\":[");
    separated(out, &flow.switches, |out, switch| {
        let name = switch.name.as_deref().map_or_else(|| "null".into(), text);
        let _ = write!(out, "[{},{name}]", moment(switch.at));
    });
    out.push(']');
    if wanted == Wanted::All {
        for (key, curve) in [("window", &flow.window), ("rate", &flow.rate), ("rtt", &flow.rtt)] {
            let _ = write!(out, ",\"{key}\":");
            push_curve(out, curve);
        }
    }
    if wanted != Wanted::Sequence {
        out.push_str(",\"bins\":");
        push_bins(out, &flow.throughput);
    }
    out.push('}');
}

/// What was sent and acknowledged, and what happened on the way.
fn push_sequence(out: &mut String, flow: &FlowSeries) {
    for (key, curve) in [("sent", &flow.sent), ("acked", &flow.acked)] {
        let _ = write!(out, ",\"{key}\":");
        push_curve(out, curve);
    }
    for (key, marks) in [
        ("naks", &flow.naks),
        ("losses", &flow.losses),
        ("cuts", &flow.cuts),
        ("timeouts", &flow.timeouts),
    ] {
        let _ = write!(out, ",\"{key}\":");
        push_marks(out, marks);
    }
}

fn push_curve(out: &mut String, curve: &Curve) {
    push_points(out, &curve.points());
    out.push(']');
}

fn push_marks(out: &mut String, marks: &Marks) {
    push_points(out, marks.points());
    let _ = write!(out, ",{}]", marks.total());
}

/// Times and values as two arrays, the outer bracket left open.
fn push_points(out: &mut String, points: &[(Time, f64)]) {
    out.push_str("[[");
    // The plots need one value per moment: several at one moment become a steep line.
    let mut last_us = None;
    separated(out, points, |out, (at, _)| {
        let us = at.as_nanos() / 1_000;
        let us = last_us.map_or(us, |last: u64| us.max(last + 1));
        last_us = Some(us);
        out.push_str(&moment(Time::from_nanos(us.saturating_mul(1_000))));
    });
    out.push_str("],[");
    separated(out, points, |out, (_, value)| out.push_str(&number(*value)));
    out.push(']');
}

fn push_bins(out: &mut String, bins: &Bins) {
    let _ = write!(out, "{{\"w\":{},\"v\":[", number(bins.width().as_secs_f64()));
    separated(out, bins.amounts(), |out, amount| {
        let _ = write!(out, "{amount}");
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
fn moment(at: Time) -> String {
    let us = at.as_nanos() / 1_000;
    let (whole, part) = (us / 1_000_000, us % 1_000_000);
    if part == 0 {
        return whole.to_string();
    }
    format!("{whole}.{part:06}").trim_end_matches('0').to_owned()
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
    serde_json::to_string(text).expect("every text is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_at_one_moment_are_spread_by_microseconds() {
        let mut out = String::new();
        let at = Time::from_nanos;
        push_points(&mut out, &[(at(1_500), 1.0), (at(1_900), 2.5), (at(2_000), 0.123_456_789)]);
        assert_eq!(out, "[[0.000001,0.000002,0.000003],[1,2.5,0.1234568]");
    }

    #[test]
    fn numbers_are_short_and_valid_json() {
        for (value, want) in
            [(0.0, "0"), (1.0 / 3.0, "0.3333333"), (1e7 + 0.5, "10000000.5"), (f64::NAN, "null")]
        {
            assert_eq!(number(value), want);
        }
        assert_eq!(moment(Time::from_nanos(300_000_000_000)), "300");
        assert_eq!(moment(Time::from_nanos(1_250_000_999)), "1.25");
    }
}
