//! The tables of a sweep: a row for each combination of values, seed and flow, receiver or link.

use faircast_report::{FlowSummary, LinkSummary, ReceiverSummary, Summary};
use faircast_trace::{Lateness, Validity};

use super::{Job, Sweep};
use crate::table::{Cell, ColumnType, Table};

/// Most rows of the table of receivers; where there are more it is left out.
pub const RECEIVER_ROWS_MAX: usize = 1_000_000;

/// What a sweep gave, each row with the values, the seed and the run's key before it.
#[derive(Clone, Debug)]
pub struct Tables {
    /// A row for each flow.
    pub flows: Table,
    /// A row for each receiver of each flow; `None` beyond [`RECEIVER_ROWS_MAX`].
    pub receivers: Option<Table>,
    /// A row for each direction of each link.
    pub links: Table,
    axes: Vec<Vec<Cell>>,
}

/// A column: its name, what it holds, and its value.
type Column<T> = (&'static str, ColumnType, fn(&Summary, &T) -> Cell);

/// The columns of the table of flows: the keys of the summary.
const FLOW: &[Column<FlowSummary>] = &[
    ("flow", ColumnType::Text, |_, of| text(&of.name)),
    ("protocol", ColumnType::Text, |_, of| text(&of.protocol)),
    ("from", ColumnType::Text, |_, of| text(&of.from)),
    ("throughput_bps", ColumnType::Float, |_, of| Cell::Float(of.throughput_bps)),
    ("active_throughput_bps", ColumnType::Float, |_, of| Cell::Float(of.active_throughput_bps)),
    ("common_throughput_bps", ColumnType::Float, |_, of| Cell::float(of.common_throughput_bps)),
    ("sent_bps", ColumnType::Float, |_, of| Cell::Float(of.sent_bps)),
    ("goodput_min_bps", ColumnType::Float, |_, of| Cell::float(goodput_min_bps(of))),
    ("feedback_per_s", ColumnType::Float, |_, of| Cell::Float(of.feedback_per_s)),
    ("rate_variation", ColumnType::Float, |_, of| Cell::float(of.rate_variation)),
    ("settled_s", ColumnType::Float, |_, of| Cell::float(of.settled_s)),
    ("sent_packets", ColumnType::Whole, |_, of| Cell::count(of.sent_packets)),
    ("repair_packets", ColumnType::Whole, |_, of| Cell::count(of.repair_packets)),
    ("feedback_packets", ColumnType::Whole, |_, of| Cell::count(of.feedback_packets)),
    ("ack_packets", ColumnType::Whole, |_, of| Cell::count(of.ack_packets)),
    ("nak_packets", ColumnType::Whole, |_, of| Cell::count(of.nak_packets)),
    ("timeouts", ColumnType::Whole, |_, of| Cell::count(of.timeouts)),
    ("cuts", ColumnType::Whole, |_, of| Cell::count(of.cuts)),
    ("representative_changes", ColumnType::Whole, |_, of| Cell::count(of.representative_changes)),
    ("representative", ColumnType::Text, |_, of| Cell::text(of.representative.as_deref())),
    ("rtt_mean_s", ColumnType::Float, |_, of| Cell::float(of.rtt_mean_s)),
    ("dropped_packets", ColumnType::Whole, |_, of| Cell::count(of.dropped_packets)),
    ("bad_input", ColumnType::Whole, |_, of| Cell::count(of.bad_input)),
    ("loss_ratio", ColumnType::Float, |_, of| Cell::float(of.loss_ratio)),
    ("completed_s", ColumnType::Float, |_, of| Cell::float(of.completed_s)),
    ("jain_index", ColumnType::Float, |run, _| Cell::Float(run.jain_index)),
    ("ended_s", ColumnType::Float, |run, _| Cell::Float(run.ended_s)),
    ("lateness_verdict", ColumnType::Text, |run, _| Cell::text(run.lateness.and_then(verdict))),
    ("lateness_p99_s", ColumnType::Float, |run, _| {
        Cell::float(run.lateness.map(|late| late.p99_s))
    }),
];

/// The columns of the table of receivers, after flow and protocol.
const RECEIVER: &[Column<ReceiverSummary>] = &[
    ("node", ColumnType::Text, |_, of| text(&of.node)),
    ("goodput_bps", ColumnType::Float, |_, of| Cell::Float(of.goodput_bps)),
    ("delivered_packets", ColumnType::Whole, |_, of| Cell::count(of.delivered_packets)),
    ("lost_packets", ColumnType::Whole, |_, of| Cell::count(of.lost_packets)),
    ("abandoned_packets", ColumnType::Whole, |_, of| Cell::count(of.abandoned_packets)),
    ("loss_ratio", ColumnType::Float, |_, of| Cell::Float(of.loss_ratio)),
    ("completed_s", ColumnType::Float, |_, of| Cell::float(of.completed_s)),
    ("intact", ColumnType::Flag, |_, of| of.intact.map_or(Cell::None, Cell::Flag)),
];

const LINK: &[Column<LinkSummary>] = &[
    ("from", ColumnType::Text, |_, of| text(&of.from)),
    ("to", ColumnType::Text, |_, of| text(&of.to)),
    ("utilisation", ColumnType::Float, |_, of| Cell::Float(of.utilisation)),
    ("throughput_bps", ColumnType::Float, |_, of| Cell::Float(of.throughput_bps)),
    ("sent_packets", ColumnType::Whole, |_, of| Cell::count(of.sent_packets)),
    ("dropped_packets", ColumnType::Whole, |_, of| Cell::count(of.dropped_packets)),
    ("drop_ratio", ColumnType::Float, |_, of| Cell::Float(of.drop_ratio)),
    ("queue_mean_packets", ColumnType::Float, |_, of| Cell::Float(of.queue_mean_packets)),
    ("queue_max_packets", ColumnType::Whole, |_, of| Cell::count(of.queue_max_packets.into())),
];

fn verdict(lateness: Lateness) -> Option<&'static str> {
    Some(match lateness.verdict? {
        Validity::Valid => "valid",
        Validity::Doubtful => "doubtful",
        Validity::Invalid => "invalid",
    })
}

fn text(text: &str) -> Cell {
    Cell::Text(text.to_string())
}

/// What the receiver that got least got; `None` where there is none.
fn goodput_min_bps(flow: &FlowSummary) -> Option<f64> {
    flow.receivers.iter().map(|receiver| receiver.goodput_bps).reduce(f64::min)
}

impl Tables {
    /// Tables without rows.
    pub fn new(sweep: &Sweep) -> Self {
        let axes: Vec<_> = sweep.axes.iter().map(super::Axis::column).collect();
        let lead = axes.iter().map(|(name, kind, _)| (name.clone(), *kind));
        let run = [("seed", ColumnType::Whole), ("run", ColumnType::Text)];
        let run = run.map(|(name, kind)| (name.to_string(), kind));
        let lead: Vec<_> = lead.chain(run).collect();
        let of_flow = ["flow", "protocol"].map(|name| (name.to_string(), ColumnType::Text));
        Self {
            flows: table(&lead, FLOW),
            receivers: Some(table(&[&lead[..], &of_flow].concat(), RECEIVER)),
            links: table(&lead, LINK),
            axes: axes.into_iter().map(|(_, _, cells)| cells).collect(),
        }
    }

    /// Adds the rows of one run.
    pub fn add(&mut self, job: &Job, summary: &Summary) {
        let values = self.axes.iter().zip(&job.choice).map(|(cells, place)| cells[*place].clone());
        let run = [Cell::count(job.seed), Cell::Text(job.key.clone())];
        let lead: Vec<Cell> = values.chain(run).collect();
        for flow in &summary.flows {
            self.flows.push(row(&lead, FLOW, summary, flow));
            let of_flow = [text(&flow.name), text(&flow.protocol)];
            let lead = [&lead[..], &of_flow].concat();
            for receiver in &flow.receivers {
                let Some(receivers) = &mut self.receivers else { break };
                if receivers.rows() == RECEIVER_ROWS_MAX {
                    self.receivers = None;
                    break;
                }
                receivers.push(row(&lead, RECEIVER, summary, receiver));
            }
        }
        for link in &summary.links {
            self.links.push(row(&lead, LINK, summary, link));
        }
    }
}

fn table<T>(lead: &[(String, ColumnType)], columns: &[Column<T>]) -> Table {
    let own = columns.iter().map(|(name, kind, _)| ((*name).to_string(), *kind));
    Table::new(lead.iter().cloned().chain(own).collect())
}

fn row<T>(lead: &[Cell], columns: &[Column<T>], run: &Summary, of: &T) -> Vec<Cell> {
    let own = columns.iter().map(|(_, _, value)| value(run, of));
    lead.iter().cloned().chain(own).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use faircast_trace::On;

    /// The keys of an object that are no lists or objects themselves.
    fn keys(value: &serde_json::Value) -> BTreeSet<String> {
        let object = value.as_object().unwrap().iter();
        let plain = object.filter(|(_, value)| !value.is_array() && !value.is_object());
        plain.map(|(key, _)| key.clone()).collect()
    }

    fn names<T>(columns: &[Column<T>]) -> BTreeSet<String> {
        columns.iter().map(|(name, _, _)| (*name).to_string()).collect()
    }

    #[test]
    fn the_tables_have_every_figure_of_the_summary() {
        let sweep = crate::sweep::tests::sweep(&[], 1);
        let job = &sweep.jobs().unwrap()[0];
        let scenario = sweep.scenario(&job.choice, 1).unwrap();
        let done =
            crate::execute(&scenario, On::Sim, &mut faircast_sim::Unobserved, &mut ()).unwrap();
        let summary = serde_json::to_value(&done.summary).unwrap();
        let flow = &summary["flows"][0];
        let mut own = keys(flow);
        assert!(own.remove("name"));
        // What only some flows have is told by the summary alone.
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
