//! Plots of a run, defined once for pages, CSV files and pictures.

mod csv;
mod groups;
pub(crate) mod paper;
mod plot;
mod svg;
mod tree;

pub use csv::csv;
pub(crate) use plot::{Line, MarkRow, Plot, Shape, Unit, Weight};
pub use svg::svg;

use faircast_base::Time;

use crate::series::{Bins, Curve, FlowSeries, LinkSeries, Marks, Series};
use crate::text::capital;
pub(crate) use groups::colour_of;
use groups::{Group, groups};
use plot::Points;

/// Most flows or links with visible lines; more are hidden behind their protocol's mean.
const CROWD: usize = 3;
/// Most changes of representative that are visible initially.
const SWITCHES_SHOWN_MAX: u64 = 60;
/// Most representatives with rows: those that were it longest.
const REPRESENTATIVES_MAX: usize = 11;
/// Idle link: mean queue below this share of the busiest link's.
const IDLE_SHARE: f64 = 0.01;
/// Idle link: fewer packets than this in the queue, on average.
const IDLE_PACKETS: f64 = 0.05;

/// Returns all plots of a run that have lines.
pub fn plots(series: &Series, ended: Time) -> Vec<Plot> {
    let ended = ended.max(series.ended);
    let all = [
        sequence(series),
        representative(series, ended),
        tree::tree(series, ended),
        throughput(series),
        mean_throughput(series, ended),
        queues(series),
    ];
    all.into_iter().chain(of_flows(series)).filter(|plot| !plot.lines.is_empty()).collect()
}

pub(crate) fn sequence(series: &Series) -> Plot {
    let mut plot = Plot::new("sequence", "Sequence numbers", "Packets in all", Unit::Count);
    let received = series.flows.iter().any(|flow| flow.received);
    plot.about = match received {
        true => "New data packets received, in all".into(),
        false => "New data packets sent and acknowledged, in all".into(),
    };
    let sent = |flow: &FlowSeries| if flow.received { "received" } else { "sent" };
    add_flows(&mut plot, series, sent, |flow| &flow.curves.sent, Shape::Straight);
    let crowd = plot.crowd;
    for group in groups(series) {
        for (dash, flow) in
            group.flows.iter().enumerate().filter(|(_, f)| !f.curves.acked.is_empty())
        {
            plot.lines.push(Line {
                label: labelled(series, &flow.name, "acknowledged"),
                kind: "acknowledged",
                weight: Weight::Light,
                hidden: crowd,
                ..line(flow, group.colour, dash, curve(&flow.curves.acked))
            });
        }
    }
    type MarksOf = fn(&FlowSeries) -> &Marks;
    let kinds: [(&str, MarksOf); 4] = [
        ("NAK", |flow| &flow.marks.naks),
        ("loss found", |flow| &flow.marks.losses),
        ("cut", |flow| &flow.marks.cuts),
        ("timeout", |flow| &flow.marks.timeouts),
    ];
    for (kind, marks) in kinds {
        for group in groups(series) {
            // A loss causes a NAK, and a NAK a cut: one kind of mark is visible initially.
            let hidden = |flow: &FlowSeries| {
                crowd || matches!(kind, "cut" | "loss found") && flow.marks.naks.total > 0
            };
            if crowd {
                let all: Vec<&Marks> = group.flows.iter().map(|flow| marks(flow)).collect();
                let row = MarkRow { owner: group.protocol.into(), hidden: true, ..row(kind, &all) };
                plot.add_marks(row, group.protocol, group.colour, series);
                continue;
            }
            for flow in &group.flows {
                let (owner, hidden) = (flow.name.clone(), hidden(flow));
                let row = MarkRow { owner, hidden, ..row(kind, &[marks(flow)]) };
                plot.add_marks(row, group.protocol, group.colour, series);
            }
        }
    }
    add_switches(&mut plot, series);
    plot
}

pub(crate) fn throughput(series: &Series) -> Plot {
    let mut plot = Plot::new("throughput", "Throughput", "Throughput", Unit::Rate);
    plot.about = format!("New payload (TCP: acknowledged payload) per {}", width(series));
    add_bins(&mut plot, series, steps);
    add_switches(&mut plot, series);
    plot
}

/// Running mean of the throughput: papers use it to show that a share settles.
pub(crate) fn mean_throughput(series: &Series, ended: Time) -> Plot {
    let ended_s = ended.max(series.ended).as_secs_f64();
    let mut plot = Plot::new("mean", "Mean throughput", "Mean throughput", Unit::Rate);
    let width = width(series);
    plot.about = format!("Throughput from the start of the run to each moment, every {width}");
    add_bins(&mut plot, series, |bins| running_mean(bins, ended_s));
    add_switches(&mut plot, series);
    plot
}

fn queues(series: &Series) -> Plot {
    let mut plot = Plot::new("queue", "Queues", "Waiting", Unit::Packets);
    let links = series.links.worst();
    let most = links.iter().map(|link| link.mean_packets()).fold(0.0, f64::max);
    let is_busy = |link: &&&LinkSeries| {
        let mean = link.mean_packets();
        mean >= IDLE_PACKETS && mean >= IDLE_SHARE * most
    };
    let busy: Vec<&&LinkSeries> = links.iter().filter(is_busy).collect();
    plot.about = match busy[..] {
        [link] => format!("Link {}", link.name),
        _ => "Links whose queues fill".into(),
    };
    plot.crowd = busy.len() > CROWD;
    let named = |link: &LinkSeries, kind: &str| match busy.len() {
        1 => capital(kind),
        _ => format!("{}, {kind}", link.name),
    };
    for (colour, link) in busy.iter().enumerate() {
        for (kind, points, weight) in
            [("mean", &link.mean, Weight::Normal), ("greatest", &link.max, Weight::Light)]
        {
            plot.lines.push(Line {
                label: named(link, kind),
                owner: link.name.clone(),
                kind,
                points: curve(points),
                colour,
                dash: colour,
                weight,
                hidden: plot.crowd && kind == "greatest",
                ..Line::default()
            });
        }
        if !plot.crowd {
            let row = MarkRow { owner: link.name.clone(), colour, ..row("drop", &[&link.drops]) };
            let label = named(link, "drop");
            plot.marks.extend((row.total > 0).then_some(MarkRow { label, ..row }));
        }
    }
    if plot.crowd {
        let drops: Vec<&Marks> = links.iter().map(|link| &link.drops).collect();
        let (label, owner) = ("Drop, on all links".into(), "all links".into());
        let row = row("drop", &drops);
        plot.marks.extend((row.total > 0).then_some(MarkRow { label, owner, ..row }));
    }
    plot
}

type OfFlows = (Plot, &'static str, &'static str, fn(&FlowSeries) -> &Curve, Shape);

fn of_flows(series: &Series) -> [Plot; 3] {
    let window = Plot::new("window", "Window", "Window", Unit::Packets);
    let rate = Plot::new("rate", "Sending rate", "Rate", Unit::Rate);
    let rtt = Plot::new("rtt", "Round trip", "Round trip", Unit::Span);
    let all: [OfFlows; 3] = [
        (
            window,
            "Congestion window of the sender",
            "window",
            |flow| &flow.curves.window,
            Shape::Step,
        ),
        (rate, "Rate that the sender allows itself", "rate", |flow| &flow.curves.rate, Shape::Step),
        (rtt, "As the sender measures it", "round trip", |flow| &flow.curves.rtt, Shape::Straight),
    ];
    all.map(|(mut plot, about, kind, of, shape)| {
        plot.about = about.into();
        add_flows(&mut plot, series, |_| kind, of, shape);
        plot
    })
}

fn representative(series: &Series, ended: Time) -> Plot {
    let mut plot = Plot::new("representative", "Representative", "Representative", Unit::Name);
    plot.about = "Whose feedback sets the pace: pgmcc’s acker, TFMCC’s CLR".into();
    let ended_s = ended.max(series.ended).as_secs_f64();
    // Time as representative, by node.
    let mut span_s_of: Vec<(&str, f64)> = Vec::new();
    for flow in &series.flows {
        for (i, switch) in flow.switches.iter().enumerate() {
            let Some(name) = switch.name.as_deref() else { continue };
            let until = flow.switches.get(i + 1).map_or(ended_s, |next| next.at.as_secs_f64());
            let span = until - switch.at.as_secs_f64();
            match span_s_of.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += span,
                None => span_s_of.push((name, span)),
            }
        }
    }
    span_s_of.sort_by(|a, b| b.1.total_cmp(&a.1));
    let is_many = span_s_of.len() > REPRESENTATIVES_MAX;
    span_s_of.truncate(REPRESENTATIVES_MAX);
    plot.names = span_s_of.iter().map(|(name, _)| (*name).to_owned()).collect();
    if is_many {
        plot.names.push("others".into());
    } else {
        plot.names.sort_by_key(|name| natural(name));
    }
    for group in groups(series) {
        for (dash, flow) in group.flows.iter().enumerate() {
            if flow.switches.iter().all(|switch| switch.name.is_none()) {
                continue;
            }
            let mut points: Points = Vec::new();
            for switch in &flow.switches {
                let at = switch.at.as_secs_f64();
                let place = switch.name.as_ref().map(|name| {
                    let place = plot.names.iter().position(|known| known == name);
                    place.unwrap_or(plot.names.len() - 1) as f64
                });
                // A line needs a last point to be drawn to its end.
                if let (None, Some((_, Some(last)))) = (place, points.last().copied()) {
                    points.push((at, Some(last)));
                }
                points.push((if place.is_none() { at + 1e-6 } else { at }, place));
            }
            to_the_end(&mut points, ended);
            plot.lines.push(Line {
                label: flow.name.clone(),
                kind: "representative",
                shape: Shape::Step,
                weight: Weight::Bold,
                ..line(flow, group.colour, dash, points)
            });
        }
    }
    plot
}

impl Plot {
    fn add_marks(&mut self, row: MarkRow, protocol: &str, colour: usize, series: &Series) {
        if row.total > 0 {
            let label = labelled(series, &row.owner, row.kind);
            self.marks.push(MarkRow { label, protocol: protocol.into(), colour, ..row });
        }
    }
}

fn add_flows(
    plot: &mut Plot,
    series: &Series,
    kind: impl Fn(&FlowSeries) -> &'static str,
    of: impl Fn(&FlowSeries) -> &Curve,
    shape: Shape,
) {
    let mean = |_: &Group<'_>, lines: &[Line]| groups::mean_and_range(lines, series.ended);
    add_lines(plot, series, kind, |flow| curve(of(flow)), shape, mean);
}

fn add_bins(plot: &mut Plot, series: &Series, points: impl Fn(&Bins) -> Points) {
    let (kind, shape) = match plot.key {
        "throughput" => ("throughput", Shape::Step),
        _ => ("mean throughput", Shape::Straight),
    };
    let mean = |group: &Group<'_>, _: &[Line]| {
        let (sum, each) = group.bins();
        let count = group.total as f64;
        let mean: Vec<_> =
            points(&sum).into_iter().map(|(t, v)| (t, v.map(|v| v / count))).collect();
        let each: Vec<_> = each.iter().map(&points).collect();
        let values = |i: usize| each.iter().filter_map(move |points| points.get(i)?.1);
        let range = (0..mean.len())
            .map(|i| (values(i).fold(f64::INFINITY, f64::min), values(i).fold(0.0, f64::max)));
        let range = range.collect();
        (mean, range)
    };
    add_lines(plot, series, |_| kind, |flow| points(&flow.curves.throughput), shape, mean);
}

fn add_lines(
    plot: &mut Plot,
    series: &Series,
    kind: impl Fn(&FlowSeries) -> &'static str,
    points: impl Fn(&FlowSeries) -> Points,
    shape: Shape,
    mean: impl Fn(&Group<'_>, &[Line]) -> (Points, Vec<(f64, f64)>),
) {
    plot.crowd = series.flows.len() > CROWD;
    for group in groups(series) {
        let mut lines = Vec::new();
        for (dash, flow) in group.flows.iter().enumerate() {
            let points = points(flow);
            if !points.is_empty() {
                let label = match plot.unit {
                    Unit::Count => labelled(series, &flow.name, kind(flow)),
                    _ => flow.name.clone(),
                };
                let line = line(flow, group.colour, dash, points);
                lines.push(Line { label, kind: kind(flow), shape, ..line });
            }
        }
        push_group(plot, &group, lines, |lines| mean(&group, lines));
    }
    // Lines drawn last are on top, and means are the most important.
    plot.lines.sort_by_key(|line| line.range.is_some());
}

fn push_group(
    plot: &mut Plot,
    group: &Group<'_>,
    mut lines: Vec<Line>,
    mean: impl Fn(&[Line]) -> (Points, Vec<(f64, f64)>),
) {
    if lines.len() <= CROWD {
        return plot.lines.extend(lines);
    }
    let (points, range) = mean(&lines);
    // Of flows without lines only the sum is known: the mean may cover more than the range.
    let of = match (plot.unit, plot.key) {
        (Unit::Rate, "throughput" | "mean") => group.total,
        _ => lines.len(),
    };
    let range_of = lines.len();
    let label = match of == range_of {
        true => format!("{}: mean and range of {of} flows", group.protocol),
        false => format!("{}: mean of {of} flows, range of {range_of}", group.protocol),
    };
    let (kind, shape) = (lines[0].kind, lines[0].shape);
    lines.iter_mut().for_each(|line| {
        line.hidden = true;
        line.weight = Weight::Light;
    });
    plot.lines.extend(lines);
    plot.lines.push(Line {
        label,
        owner: format!("{} flows", group.protocol),
        protocol: group.protocol.into(),
        kind,
        points,
        range: Some(range),
        shape,
        colour: group.colour,
        weight: Weight::Bold,
        ..Line::default()
    });
}

fn add_switches(plot: &mut Plot, series: &Series) {
    const KIND: &str = "new representative";
    for group in groups(series) {
        for flow in &group.flows {
            let at = flow.switches.iter().filter(|switch| switch.name.is_some());
            let points: Vec<_> = at.map(|switch| (switch.at.as_secs_f64(), 1, 0.0)).collect();
            let total = points.len() as u64;
            // The first choice is no change.
            if total > 1 {
                plot.marks.push(MarkRow {
                    label: labelled(series, &flow.name, KIND),
                    owner: flow.name.clone(),
                    protocol: flow.protocol.clone(),
                    kind: KIND,
                    points,
                    total,
                    colour: group.colour,
                    upright: true,
                    hidden: plot.crowd || total > SWITCHES_SHOWN_MAX,
                });
            }
        }
    }
}

fn line(flow: &FlowSeries, colour: usize, dash: usize, points: Points) -> Line {
    let (owner, protocol) = (flow.name.clone(), flow.protocol.clone());
    Line { owner, protocol, points, colour, dash, ..Line::default() }
}

fn row(kind: &'static str, marks: &[&Marks]) -> MarkRow {
    let all = marks.iter().flat_map(|marks| &marks.points);
    let mut points: Vec<_> =
        all.map(|mark| (mark.at.as_secs_f64(), mark.count, mark.height)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total = marks.iter().map(|marks| marks.total).sum();
    MarkRow { kind, points, total, ..MarkRow::default() }
}

fn labelled(series: &Series, name: &str, kind: &str) -> String {
    if series.flows.len() > 1 { format!("{name}, {kind}") } else { capital(kind) }
}

/// Sort key that places `r10` after `r2`: digits count as numbers.
pub(crate) fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = vec![(String::new(), 0u64)];
    for c in name.chars() {
        let last = parts.last_mut().expect("there is one");
        match c.to_digit(10) {
            Some(digit) => last.1 = last.1.saturating_mul(10).saturating_add(u64::from(digit)),
            None if last.1 > 0 => parts.push((c.to_string(), 0)),
            None => last.0.push(c),
        }
    }
    parts
}

fn curve(curve: &Curve) -> Points {
    // The plots need one value at each time: several become a steep line.
    let mut last_us = None;
    let points = curve.points().into_iter().map(|(at, value)| {
        let us = at.as_nanos() / 1_000;
        let us = last_us.map_or(us, |last: u64| us.max(last + 1));
        last_us = Some(us);
        (us as f64 / 1e6, Some(value))
    });
    points.collect()
}

/// Rates of bins as steps. A step ends at the next one; the last step needs an end of its own.
fn steps(bins: &Bins) -> Points {
    let width = bins.width.as_secs_f64();
    let rates = bins.amounts.iter().map(|bytes| *bytes as f64 * 8.0 / width);
    let mut points: Vec<_> =
        rates.enumerate().map(|(i, rate)| (i as f64 * width, Some(rate))).collect();
    let last = points.last().map(|(_, rate)| (points.len() as f64 * width, *rate));
    points.extend(last);
    points
}

/// Extends steps to the end if the last one is clearly before it: plots have microseconds.
fn to_the_end(points: &mut Points, ended: Time) {
    let ended_s = ended.as_secs_f64();
    if let Some((at, value)) = points.last().copied()
        && ended_s > at + 1e-6
    {
        points.push((ended_s, value));
    }
}

fn running_mean(bins: &Bins, ended_s: f64) -> Points {
    let width = bins.width.as_secs_f64();
    let mut sum = 0.0;
    let points = bins.amounts.iter().enumerate().map(|(i, bytes)| {
        let at = ((i + 1) as f64 * width).min(ended_s);
        sum += *bytes as f64 * 8.0;
        (at, Some(sum / at))
    });
    points.filter(|(at, _)| *at > 0.0).collect()
}

fn width(series: &Series) -> String {
    let width = series.flows.first().map(|flow| flow.curves.throughput.width);
    crate::text::seconds(width.unwrap_or_default().as_secs_f64())
}

#[cfg(test)]
mod tests;
