//! Data of plots as comma-separated values.

use std::fmt::Write as _;

use super::{Plot, Unit};
use crate::text::csv_field;

/// Returns tables of each plot's lines and of all marks, with file names; values are unrounded SI.
pub fn csv(plots: &[Plot]) -> Vec<(String, String)> {
    let mut tables: Vec<_> = plots.iter().map(of_lines).collect();
    if plots.iter().any(|plot| !plot.marks.is_empty()) {
        tables.push(of_marks(plots));
    }
    tables
}

fn columns(plot: &Plot) -> [&'static str; 5] {
    let owner = if plot.key == "queue" { "link" } else { "flow" };
    let value = match (plot.key, plot.unit) {
        ("throughput", _) => "throughput_bps",
        ("mean", _) => "mean_throughput_bps",
        ("queue", _) => "queue_packets",
        ("window", _) => "window_packets",
        (_, Unit::Count | Unit::Packets) => "packets",
        (_, Unit::Rate) => "rate_bps",
        (_, Unit::Span) => "round_trip_s",
        (_, Unit::Receivers) => "receivers",
        (_, Unit::Name) => "representative",
    };
    ["time_s", owner, "protocol", "series", value]
}

fn of_lines(plot: &Plot) -> (String, String) {
    let mut text = columns(plot).join(",") + "\n";
    for line in &plot.lines {
        let owner = format!("{},{}", csv_field(&line.owner), csv_field(&line.protocol));
        // A mean line has three series: the mean, and the ends of the range.
        let of = |kind: &str| match line.range {
            Some(_) => format!("{owner},{kind} of {}", line.kind),
            None => format!("{owner},{}", line.kind),
        };
        let mut push = |series: &str, at: f64, value: Option<f64>| {
            let value = match (plot.names.is_empty(), value) {
                (_, None) => String::new(),
                (true, Some(value)) => value.to_string(),
                (false, Some(place)) => csv_field(&plot.names[place as usize]),
            };
            let _ = writeln!(text, "{at},{series},{value}");
        };
        // The end of the last step exists only for drawing.
        let end = line.points.len() - usize::from(plot.key == "throughput");
        let mean = of("mean");
        line.points[..end].iter().for_each(|(at, value)| push(&mean, *at, *value));
        for (i, (least, greatest)) in line.range.iter().flatten().take(end).enumerate() {
            let at = line.points[i].0;
            push(&of("least"), at, Some(*least));
            push(&of("greatest"), at, Some(*greatest));
        }
    }
    (format!("{}.csv", plot.key), text)
}

fn of_marks(plots: &[Plot]) -> (String, String) {
    let mut text = String::from("time_s,flow_or_link,protocol,event,events,packets\n");
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for row in plots.iter().flat_map(|plot| &plot.marks) {
        if seen.contains(&(&row.owner, row.kind)) {
            continue;
        }
        seen.push((&row.owner, row.kind));
        let owner = format!("{},{},{}", csv_field(&row.owner), csv_field(&row.protocol), row.kind);
        for (at, count, height) in &row.points {
            let height = if row.upright { String::new() } else { height.to_string() };
            let _ = writeln!(text, "{at},{owner},{count},{height}");
        }
    }
    ("events.csv".into(), text)
}
