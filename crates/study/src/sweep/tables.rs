//! Tables of a sweep: a row for each combination of values, seed, and flow, receiver or link.

use faircast_report::Summary;
use serde_json::{Value, json};

use super::{Job, Sweep};
use crate::table::Table;

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

const FLOW: &str = "flow protocol from throughput_bps active_throughput_bps common_throughput_bps sent_bps \
    goodput_min_bps feedback_per_s rate_variation settled_s sent_packets repair_packets feedback_packets \
    ack_packets nak_packets timeouts cuts representative_changes representative rtt_mean_s dropped_packets \
    bad_input loss_ratio completed_s jain_index ended_s lateness_verdict lateness_p99_s";

const RECEIVER: &str = "node goodput_bps delivered_packets lost_packets abandoned_packets loss_ratio \
    completed_s intact";

const LINK: &str = "from to utilisation throughput_bps sent_packets dropped_packets drop_ratio \
    queue_mean_packets queue_max_packets";

impl Tables {
    /// Returns tables without rows.
    pub fn new(sweep: &Sweep<'_>) -> Self {
        let (names, axes): (Vec<_>, Vec<_>) = sweep.axes.iter().map(super::Axis::column).unzip();
        let table = |own: String| {
            let own = own.split_whitespace().map(String::from);
            Table::new(names.iter().cloned().chain(own).collect())
        };
        Self {
            flows: table(format!("seed run {FLOW}")),
            receivers: Some(table(format!("seed run flow protocol {RECEIVER}"))),
            links: table(format!("seed run {LINK}")),
            axes,
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

fn row(lead: &[Value], columns: &str, mut own: Value) -> Vec<Value> {
    lead.iter().cloned().chain(columns.split_whitespace().map(|name| own[name].take())).collect()
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
        table.split_whitespace().map(String::from).collect()
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
