//! Sweep over settings of a scenario: medians and spread over the seeds of each combination.

pub(crate) mod picture;
mod table;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::interval::median_interval;
use crate::plots::Unit;
use crate::summary::{FlowSummary, Summary};
use crate::text::{rate, seconds, significant, spread};

/// Most flows with lines of their own; more flows are one line for each protocol.
const FLOWS_MAX: usize = 8;

/// Results of a sweep.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// Path of the scenario's file.
    pub scenario: String,
    /// Question that the scenario answers.
    pub title: String,
    /// Version of faircast.
    pub faircast: String,
    /// Varied settings.
    pub axes: Vec<SweepAxis>,
    /// Seeds of each combination.
    pub seeds: usize,
    /// Number of missing runs.
    pub missing: usize,
    /// Name and protocol of each flow.
    flows: Vec<(String, String)>,
    /// Figures of each run, by combination of settings and index in `flows`.
    values: BTreeMap<(Vec<usize>, usize), Vec<Figures>>,
}

/// Setting of a sweep.
#[derive(Clone, Debug, Default)]
pub struct SweepAxis {
    /// Path of the setting.
    pub key: String,
    /// Values as written.
    pub values: Vec<String>,
    /// Values as numbers, if they are ascending numbers.
    pub numbers: Option<Vec<f64>>,
}

type Figures = [Option<f64>; SWEEP_FIGURES.len()];

/// Figure of a sweep.
#[derive(Clone, Copy)]
pub(crate) struct SweepFigure {
    /// Name in anchors and of the column.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) short: &'static str,
    pub(crate) axis: &'static str,
    pub(crate) unit: Unit,
    /// Format with the unit.
    pub(crate) shown: fn(f64) -> String,
    value: fn(&FlowSummary) -> Option<f64>,
}

/// Figures of a sweep, for flows that have them.
pub(crate) const SWEEP_FIGURES: [SweepFigure; 6] = [
    SweepFigure {
        id: "active_throughput_bps",
        title: "Throughput while on",
        short: "Throughput",
        axis: "Throughput",
        unit: Unit::Rate,
        shown: rate,
        value: |flow| Some(flow.rates.active_throughput_bps),
    },
    SweepFigure {
        id: "goodput_min_bps",
        title: "Goodput of the receiver that got least",
        short: "Slowest gets",
        axis: "Least goodput",
        unit: Unit::Rate,
        shown: rate,
        value: |flow| flow.receivers.iter().map(|r| r.goodput_bps).reduce(f64::min),
    },
    SweepFigure {
        id: "rate_variation",
        title: "Variation of the rate",
        short: "Variation",
        axis: "Variation",
        unit: Unit::Count,
        shown: significant,
        value: |flow| flow.rates.rate_variation,
    },
    SweepFigure {
        id: "rtt_mean_s",
        title: "Mean round trip",
        short: "Round trip",
        axis: "Mean round trip",
        unit: Unit::Span,
        shown: seconds,
        value: |flow| flow.rtt_mean_s,
    },
    SweepFigure {
        id: "loss_ratio",
        title: "Loss ratio",
        short: "Loss ratio",
        axis: "Loss ratio",
        unit: Unit::Count,
        shown: significant,
        value: |flow| flow.loss_ratio,
    },
    SweepFigure {
        id: "completed_s",
        title: "Complete after",
        short: "Done",
        axis: "Complete after",
        unit: Unit::Span,
        shown: seconds,
        value: |flow| flow.completed_s,
    },
];

pub(crate) struct SweepLine {
    pub(crate) name: String,
    pub(crate) values: BTreeMap<Vec<usize>, Vec<f64>>,
}

impl Sweep {
    /// Makes a sweep without runs.
    pub fn new(scenario: &str, title: &str, axes: Vec<SweepAxis>, seeds: usize) -> Self {
        Self {
            scenario: scenario.into(),
            title: title.into(),
            faircast: env!("CARGO_PKG_VERSION").into(),
            axes,
            seeds,
            ..Self::default()
        }
    }

    /// Adds a run. `choice` has the index of each setting's value.
    pub fn add(&mut self, choice: &[usize], summary: &Summary) {
        for flow in &summary.flows {
            let of = (flow.name.clone(), flow.protocol.clone());
            let place = self.flows.iter().position(|known| *known == of).unwrap_or_else(|| {
                self.flows.push(of);
                self.flows.len() - 1
            });
            let figures =
                SWEEP_FIGURES.map(|figure| (figure.value)(flow).filter(|value| value.is_finite()));
            self.values.entry((choice.to_vec(), place)).or_default().push(figures);
        }
    }

    pub(crate) fn lines(&self, figure: usize) -> Vec<SweepLine> {
        let names: BTreeSet<&String> = self.flows.iter().map(|(name, _)| name).collect();
        let mut lines: Vec<SweepLine> = Vec::new();
        for (place, (name, protocol)) in self.flows.iter().enumerate() {
            let name = match names.len() > FLOWS_MAX {
                true => format!("all of {protocol}"),
                false => name.clone(),
            };
            let line = lines.iter().position(|line| line.name == name).unwrap_or_else(|| {
                lines.push(SweepLine { name, values: BTreeMap::new() });
                lines.len() - 1
            });
            for ((choice, _), runs) in self.values.iter().filter(|((_, of), _)| *of == place) {
                let values = runs.iter().filter_map(|figures| figures[figure]);
                lines[line].values.entry(choice.clone()).or_default().extend(values);
            }
        }
        lines.iter_mut().for_each(|line| line.values.retain(|_, values| !values.is_empty()));
        lines.retain(|line| !line.values.is_empty());
        lines
    }

    pub(crate) fn choices(&self) -> Vec<&Vec<usize>> {
        let mut choices: Vec<_> = self.values.keys().map(|(choice, _)| choice).collect();
        choices.dedup();
        choices
    }

    /// Returns the medians of each figure over the seeds, with confidence intervals if possible.
    pub fn medians(&self) -> Value {
        let lines: Vec<Vec<SweepLine>> = (0..SWEEP_FIGURES.len()).map(|f| self.lines(f)).collect();
        let mut rows = Vec::new();
        for choice in self.choices() {
            for name in lines[0].iter().map(|line| &line.name) {
                let figure = |(figure, lines): (&SweepFigure, &Vec<SweepLine>)| {
                    let values =
                        lines.iter().find(|line| line.name == *name)?.values.get(choice)?;
                    let [least, median, most] = spread(values.iter().copied())?;
                    let interval = median_interval(values.iter().copied());
                    let figures = json!({
                        "median": median, "least": least, "most": most, "seeds": values.len(),
                        "interval": interval,
                    });
                    Some((figure.id.to_string(), figures))
                };
                let figures: Map<String, Value> =
                    SWEEP_FIGURES.iter().zip(&lines).filter_map(figure).collect();
                if figures.is_empty() {
                    continue;
                }
                let set = self.axes.iter().zip(choice);
                let set: Map<String, Value> = set
                    .map(|(axis, place)| (axis.key.clone(), axis.values[*place].clone().into()))
                    .collect();
                rows.push(json!({ "set": set, "flow": name, "figures": figures }));
            }
        }
        rows.into()
    }
}

pub(crate) fn short(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::summary::FlowRates;
    use crate::text::COLUMNS_MAX;

    pub(crate) fn summary(flows: &[(&str, &str, f64)]) -> Summary {
        let flow = |(name, protocol, throughput): &(&str, &str, f64)| FlowSummary {
            name: name.to_string(),
            protocol: protocol.to_string(),
            rates: FlowRates { active_throughput_bps: *throughput, ..FlowRates::default() },
            ..FlowSummary::default()
        };
        Summary { flows: flows.iter().map(flow).collect(), ..Summary::default() }
    }

    pub(crate) fn sweep() -> Sweep {
        let axis = |key: &str, values: &[&str]| SweepAxis {
            key: key.into(),
            values: values.iter().map(|value| value.to_string()).collect(),
            numbers: values.iter().map(|value| value.parse().ok()).collect(),
        };
        let axes = vec![axis("flow.mcc.options.acker_bias", &["0.5", "0.9"]), axis("b", &["x"])];
        let mut sweep = Sweep::new("<s>.toml", "Is <it> fair?", axes, 3);
        for (choice, throughputs) in [(0, [100e3, 300e3, 200e3]), (1, [400e3, 500e3, 900e3])] {
            for throughput in throughputs {
                let flows = [("mcc", "pgmcc", throughput), ("tcp", "tcp-reno", 1e6 - throughput)];
                sweep.add(&[choice, 0], &summary(&flows));
            }
        }
        sweep
    }

    #[test]
    fn the_table_has_medians_and_spread_of_each_combination_and_flow() {
        let text = sweep().table();
        let row = |start: &str| {
            let line = text.lines().find(|line| line.starts_with(start));
            line.unwrap_or_else(|| panic!("{start}: {text}"))
                .split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .map(str::to_string)
                .collect::<Vec<_>>()
        };
        let want = ["0.5", "mcc", "200.0 kbit/s", "100.0 kbit/s", "300.0 kbit/s", "–", "–", "–"];
        assert_eq!(row("0.5         mcc"), want);
        assert_eq!(row("0.9         tcp")[2..5], ["500.0 kbit/s", "100.0 kbit/s", "600.0 kbit/s"]);
        assert!(text.contains("acker_bias  Flow"), "what does not vary has no column: {text}");
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS_MAX), "{text}");
        assert!(text.contains("Figures are medians, least and most over 3 seeds; "), "{text}");
    }

    #[test]
    fn of_one_seed_no_number_stands_twice_and_what_ends_says_when() {
        let mut sweep = Sweep::new("s.toml", "?", Vec::new(), 1);
        let mut summary = summary(&[("mcc", "pgmcc", 2e6)]);
        summary.flows[0].rates.throughput_bps = 5e5;
        summary.flows[0].completed_s = Some(12.5);
        sweep.add(&[], &summary);
        let text = sweep.table();
        let words = |line: usize| -> Vec<&str> {
            let cells = text.lines().nth(line).unwrap().split("  ").map(str::trim);
            cells.filter(|cell| !cell.is_empty()).collect()
        };
        assert_eq!(words(2), ["Flow", "Throughput", "Slowest gets", "Done", "Loss ratio"]);
        assert_eq!(words(3), ["mcc", "2.000 Mbit/s", "–", "12.50 s", "–"]);
    }

    #[test]
    fn a_flow_whose_protocol_is_swept_is_one_line() {
        let mut sweep = sweep();
        for (place, protocol) in ["a", "b", "c", "d", "e", "f", "g"].into_iter().enumerate() {
            sweep.add(&[1, place], &summary(&[("mcc", protocol, 1.0), ("tcp", "tcp-reno", 1.0)]));
        }
        let lines = sweep.lines(0);
        let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["mcc", "tcp"]);
    }

    #[test]
    fn many_flows_are_one_line_for_each_protocol() {
        let mut sweep = sweep();
        let names: Vec<String> = (0..20).map(|i| format!("tcp-{i}")).collect();
        let flows: Vec<_> = names.iter().map(|name| (name.as_str(), "tcp-reno", 5.0)).collect();
        sweep.add(&[0, 0], &summary(&flows));
        let lines = sweep.lines(0);
        let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["all of pgmcc", "all of tcp-reno"]);
        assert_eq!(lines[1].values[&vec![0, 0]].len(), 23);
        assert!(sweep.lines(5).is_empty(), "no flow has that figure");
    }
}
