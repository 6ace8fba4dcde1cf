//! The numbers of plots as tables of comma-separated values.

use std::fmt::Write as _;

use super::{Plot, Unit};
use crate::text::csv_field;

/// A table as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Csv {
    /// Its name: `throughput.csv`.
    pub name: String,
    /// A head with units, and a row for each point.
    pub text: String,
}

/// One table for the lines of each plot and one for all marks: a row for each value, so that nothing
/// has to be taken apart to be used. Values are SI; nothing is rounded.
pub fn csv(plots: &[Plot]) -> Vec<Csv> {
    let mut tables: Vec<Csv> = plots.iter().map(of_lines).collect();
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

fn of_lines(plot: &Plot) -> Csv {
    let mut text = columns(plot).join(",") + "\n";
    for line in &plot.lines {
        let who = format!("{},{}", csv_field(&line.owner), csv_field(&line.protocol));
        // Lines of many together are three series: mean, and the ends of the range.
        let of = |kind: &str| match line.range {
            Some(_) => format!("{who},{kind} of {}", line.kind),
            None => format!("{who},{}", line.kind),
        };
        let mut push = |series: &str, at: f64, value: Option<f64>| {
            let value = match (plot.names.is_empty(), value) {
                (_, None) => String::new(),
                (true, Some(value)) => value.to_string(),
                (false, Some(place)) => csv_field(&plot.names[place as usize]),
            };
            let _ = writeln!(text, "{at},{series},{value}");
        };
        // The end of the last step is there only to be drawn.
        let end = line.points.len() - usize::from(plot.key == "throughput");
        let mean = of("mean");
        line.points[..end].iter().for_each(|(at, value)| push(&mean, *at, *value));
        for (i, (least, greatest)) in line.range.iter().flatten().take(end).enumerate() {
            let at = line.points[i].0;
            push(&of("least"), at, Some(*least));
            push(&of("greatest"), at, Some(*greatest));
        }
    }
    Csv { name: format!("{}.csv", plot.key), text }
}

/// All marks of all plots, each row of marks once.
fn of_marks(plots: &[Plot]) -> Csv {
    let mut text = String::from("time_s,flow_or_link,protocol,event,events,packets\n");
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for row in plots.iter().flat_map(|plot| &plot.marks) {
        if seen.contains(&(&row.owner, row.kind)) {
            continue;
        }
        seen.push((&row.owner, row.kind));
        let who = format!("{},{},{}", csv_field(&row.owner), csv_field(&row.protocol), row.kind);
        for (at, count, height) in &row.points {
            // An upright line has no height.
            let height = if row.upright { String::new() } else { height.to_string() };
            let _ = writeln!(text, "{at},{who},{count},{height}");
        }
    }
    Csv { name: "events.csv".into(), text }
}
