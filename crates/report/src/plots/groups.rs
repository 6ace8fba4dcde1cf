//! Flows grouped by protocol, with their mean and range.

use faircast_base::Time;

use super::{Line, Points};
use crate::series::{Bins, FlowSeries, Series};

/// Intervals of a mean over lines.
const SPANS: usize = 240;

pub(super) struct Group<'a> {
    pub(super) protocol: &'a str,
    /// Flows with curves of their own.
    pub(super) flows: Vec<&'a FlowSeries>,
    pub(super) total: usize,
    pub(super) colour: usize,
    /// Throughput of the flows without curves.
    rest: Option<&'a Bins>,
}

pub(super) fn groups(series: &Series) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for flow in &series.flows {
        match groups.iter_mut().find(|group| group.protocol == flow.protocol) {
            Some(group) => group.flows.push(flow),
            None => groups.push(Group {
                protocol: &flow.protocol,
                flows: vec![flow],
                total: 0,
                colour: groups.len(),
                rest: None,
            }),
        }
    }
    for group in &mut groups {
        let rest = series.rest.iter().find(|rest| rest.protocol == group.protocol);
        group.total = group.flows.len() + rest.map_or(0, |rest| rest.flows);
        group.rest = rest.map(|rest| &rest.throughput);
    }
    groups
}

pub(crate) fn colour_of(series: &Series, flow: usize) -> Option<usize> {
    let groups = groups(series);
    let has = |group: &&Group<'_>| group.flows.iter().any(|known| known.flow.index() == flow);
    groups.iter().find(has).map(|group| group.colour)
}

impl Group<'_> {
    /// Returns the throughput of all flows, and of each flow in `flows`, in equal bins.
    pub(super) fn bins(&self) -> (Bins, Vec<Bins>) {
        let each = self.flows.iter().map(|flow| &flow.curves.throughput);
        let width = each.clone().chain(self.rest).map(|bins| bins.width).max().unwrap_or_default();
        let mut each: Vec<Bins> = each.map(|bins| bins.at_width(width)).collect();
        let mut rest = self.rest.map(|rest| rest.at_width(width));
        let all = each.iter().chain(&rest);
        let length = all.map(|bins| bins.amounts.len()).max().unwrap_or_default();
        each.iter_mut().chain(&mut rest).for_each(|bins| bins.amounts.resize(length, 0));
        let sum = |i: usize| each.iter().chain(&rest).map(|bins| bins.amounts[i]).sum();
        (Bins { width, amounts: (0..length).map(sum).collect() }, each)
    }
}

/// Returns the mean and range of lines by interval; a line without points keeps its last value.
pub(super) fn mean_and_range(lines: &[Line], ended: Time) -> (Points, Vec<(f64, f64)>) {
    let width = ended.as_secs_f64() / SPANS as f64;
    let spans: Vec<Vec<Option<f64>>> = lines.iter().map(|line| spans(line, width)).collect();
    let (mut mean, mut range) = (Vec::new(), Vec::new());
    for i in 0..SPANS {
        let values = || spans.iter().filter_map(|span| span[i]);
        let number = values().count();
        if number > 0 {
            mean.push(((i as f64 + 0.5) * width, Some(values().sum::<f64>() / number as f64)));
            let least = values().fold(f64::INFINITY, f64::min);
            range.push((least, values().fold(f64::NEG_INFINITY, f64::max)));
        }
    }
    (mean, range)
}

fn spans(line: &Line, width: f64) -> Vec<Option<f64>> {
    let mut sums = vec![(0.0, 0u32); SPANS];
    for (at, value) in line.points.iter().filter_map(|(at, value)| Some((at, (*value)?))) {
        let place = if width > 0.0 { (at / width) as usize } else { 0 };
        let (sum, number) = &mut sums[place.min(SPANS - 1)];
        (*sum, *number) = (*sum + value, *number + 1);
    }
    let mut last = None;
    let mean = sums.into_iter().map(|(sum, number)| {
        if number > 0 {
            last = Some(sum / f64::from(number));
        }
        last
    });
    mean.collect()
}
