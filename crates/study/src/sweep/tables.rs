//! Tables of a sweep: a row for each combination of values, seed, and flow, receiver or link.

use faircast_report::Summary;
use serde_json::{Value, json};

use super::{Job, Sweep};
use crate::table::{ColumnType, Table};

/// Most rows of the table of receivers; a longer table is left out.
pub const RECEIVER_ROWS_MAX: usize = 1_000_000;

/// Results of a sweep. Each row begins with the values, the seed and the run's key.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Row for each flow.
    pub flows: Table,
    /// Row for each receiver of each flow; `None` beyond [`RECEIVER_ROWS_MAX`].
    pub receivers: Option<Table>,
    /// Row for each direction of each link.
    pub links: Table,
    axes: Vec<Vec<Value>>,
}

const FLOW: &str = "flow text, protocol text, from text, throughput_bps float, active_throughput_bps float, \
    common_throughput_bps float, sent_bps float, goodput_min_bps float, feedback_per_s float, \
    rate_variation float, settled_s float, sent_packets whole, repair_packets whole, feedback_packets whole, \
    ack_packets whole, nak_packets whole, timeouts whole, cuts whole, representative_changes whole, \
    representative text, rtt_mean_s float, dropped_packets whole, bad_input whole, loss_ratio float, \
    completed_s float, jain_index float, ended_s float, lateness_verdict text, lateness_p99_s float";

const RECEIVER: &str = "node text, goodput_bps float, delivered_packets whole, lost_packets whole, \
    abandoned_packets whole, loss_ratio float, completed_s float, intact flag";

const LINK: &str = "from text, to text, utilisation float, throughput_bps float, sent_packets whole, \
    dropped_packets whole, drop_ratio float, queue_mean_packets float, queue_max_packets whole";

fn columns(table: &str) -> impl Iterator<Item = (String, ColumnType)> {
    table.split(", ").map(|column| {
        let (name, kind) = column.split_once(' ').expect("every column has a type");
        let kind = match kind {
            "text" => ColumnType::Text,
            "float" => ColumnType::Float,
            "whole" => ColumnType::Whole,
            _ => ColumnType::Flag,
        };
        (name.to_string(), kind)
    })
}

impl Tables {
    /// Returns tables without rows.
    pub fn new(sweep: &Sweep<'_>) -> Self {
        let axes: Vec<_> = sweep.axes.iter().map(super::Axis::column).collect();
        let lead = axes.iter().map(|(name, kind, _)| (name.clone(), *kind));
        let run = [("seed", ColumnType::Whole), ("run", ColumnType::Text)];
        let run = run.map(|(name, kind)| (name.to_string(), kind));
        let lead: Vec<_> = lead.chain(run).collect();
        let of_flow = ["flow", "protocol"].map(|name| (name.to_string(), ColumnType::Text));
        let table = |lead: &[(String, ColumnType)], own: &str| {
            Table::new(lead.iter().cloned().chain(columns(own)).collect())
        };
        Self {
            flows: table(&lead, FLOW),
            receivers: Some(table(&[&lead[..], &of_flow].concat(), RECEIVER)),
            links: table(&lead, LINK),
            axes: axes.into_iter().map(|(_, _, cells)| cells).collect(),
        }
    }

    /// Adds the rows of one run.
    pub fn add(&mut self, job: &Job, summary: Summary) {
        let values = self.axes.iter().zip(&job.choice).map(|(cells, index)| cells[*index].clone());
        let lead: Vec<Value> = values.chain([job.seed.into(), job.key.clone().into()]).collect();
        for mut flow in summary.flows {
            let receivers = std::mem::take(&mut flow.receivers);
            let goodputs = receivers.iter().map(|receiver| receiver.goodput_bps);
            let mut own = json!(flow);
            own["flow"] = own["name"].take();
            own["goodput_min_bps"] = goodputs.reduce(f64::min).into();
            own["jain_index"] = summary.jain_index.into();
            own["ended_s"] = summary.ended_s.into();
            own["lateness_verdict"] = json!(summary.lateness.and_then(|late| late.verdict));
            own["lateness_p99_s"] = summary.lateness.map(|late| late.p99_s).into();
            self.flows.push(row(&lead, FLOW, own));
            let lead = [&lead[..], &[flow.name.into(), flow.protocol.into()]].concat();
            for receiver in receivers {
                let Some(table) = &mut self.receivers else { break };
                if table.row_count() == RECEIVER_ROWS_MAX {
                    self.receivers = None;
                    break;
                }
                table.push(row(&lead, RECEIVER, json!(receiver)));
            }
        }
        for link in summary.links {
            self.links.push(row(&lead, LINK, json!(link)));
        }
    }
}

fn row(lead: &[Value], table: &str, mut own: Value) -> Vec<Value> {
    lead.iter().cloned().chain(columns(table).map(|(name, _)| own[&name].take())).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Study;

    fn keys(value: &serde_json::Value) -> BTreeSet<String> {
        let object = value.as_object().unwrap().iter();
        let plain = object.filter(|(_, value)| !value.is_array() && !value.is_object());
        plain.map(|(key, _)| key.clone()).collect()
    }

    fn names(table: &str) -> BTreeSet<String> {
        columns(table).map(|(name, _)| name).collect()
    }

    #[test]
    fn the_tables_have_every_figure_of_the_summary() {
        let sweep = crate::sweep::tests::sweep(&[], 1);
        let job = &sweep.jobs().unwrap()[0];
        let scenario = sweep.scenario(&job.choice, Some(1)).unwrap();
        let run = Study::default().run(&scenario, &mut faircast_sim::Unobserved, &mut ()).unwrap();
        let summary = serde_json::to_value(&run.summary).unwrap();
        let flow = &summary["flows"][0];
        let mut own = keys(flow);
        assert!(own.remove("name"));
        // A key that only some flows have is in the summary alone.
        own.remove("mismatched_receivers");
        let missing: Vec<_> = own.difference(&names(FLOW)).cloned().collect();
        assert!(missing.is_empty(), "flows.csv lacks {missing:?}");
        let receiver: Vec<_> =
            keys(&flow["receivers"][0]).difference(&names(RECEIVER)).cloned().collect();
        assert!(receiver.is_empty(), "receivers.csv lacks {receiver:?}");
        let link: Vec<_> = keys(&summary["links"][0]).difference(&names(LINK)).cloned().collect();
        assert!(link.is_empty(), "links.csv lacks {link:?}");
    }

    #[test]
    fn every_column_is_explained_in_the_documents() {
        let page = include_str!("../../../../docs/research.md");
        let of = |key: &str| page.contains(&format!("| `{key}` |"));
        let own = ["flow", "node", "from", "to"];
        for (name, of_what) in names(FLOW)
            .iter()
            .map(|name| (name, "flows[]."))
            .chain(names(RECEIVER).iter().map(|name| (name, "flows[].receivers[].")))
            .chain(names(LINK).iter().map(|name| (name, "links[].")))
        {
            let known = of(&format!("{of_what}{name}"))
                || of(&format!("flows[].{name}"))
                || of(name)
                || own.contains(&name.as_str());
            assert!(known, "{of_what}{name} is not in docs/research.md");
        }
    }
}
