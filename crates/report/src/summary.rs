//! Summary of a run, as printed by `--json`.

use faircast_trace::{Lateness, On};
use serde::{Deserialize, Serialize};

use crate::clients::ClientSummary;

/// Results of a run, as in JSON: SI units, averages from the end of the warm-up to the run's end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Version of faircast that made the trace.
    pub faircast: String,
    /// Path of the scenario's file.
    pub scenario: String,
    /// Question that the scenario answers.
    pub title: String,
    /// Platform of the run.
    pub on: On,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Planned duration in seconds.
    pub duration_s: f64,
    /// Time at the start that averages leave out, in seconds.
    pub warmup_s: f64,
    /// Time at which the run ended, in seconds.
    pub ended_s: f64,
    /// True if the run was stopped before its end.
    pub interrupted: bool,
    /// Flows, in the scenario's order.
    pub flows: Vec<FlowSummary>,
    /// Directions of all links, in the scenario's order.
    pub links: Vec<LinkSummary>,
    /// Overlay clients, in the scenario's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientSummary>,
    /// Counters of the routers' programs.
    pub routers: RouterSummary,
    /// Jain's fairness index over the throughputs of all flows, from 1/n (one flow has all) to 1.
    pub jain_index: f64,
    /// Time in which all flows were active; `None` without such a time, or for one flow.
    pub common: Option<Common>,
    /// Wall-clock seconds of the run.
    pub wall_s: f64,
    /// Events handled by the driver.
    pub events: u64,
    /// Hash of the trace, if one was made: equal hashes mean equal runs.
    pub trace_hash: Option<String>,
    /// Accuracy of the emulated network; `None` in the simulator, which is exact.
    pub lateness: Option<Lateness>,
}

/// Counted time in which all flows were active, from the last start to the first stop or end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Common {
    pub from_s: f64,
    pub to_s: f64,
    /// Jain's fairness index over the throughputs of all flows in this time.
    pub jain_index: f64,
}

/// Results of a flow. Counts are over the whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowSummary {
    /// Name.
    pub name: String,
    /// Protocol.
    pub protocol: String,
    /// Sender's node.
    pub from: String,
    /// Rates of the sender.
    #[serde(flatten)]
    pub rates: FlowRates,
    /// Packets and events of the sender.
    #[serde(flatten)]
    pub counts: FlowCounts,
    /// Representative at the end.
    pub representative: Option<String>,
    /// Mean of the sender's measured round-trip times in the counted time, in seconds.
    pub rtt_mean_s: Option<f64>,
    /// Drops, bad input and receivers in doubt.
    #[serde(flatten)]
    pub faults: FlowFaults,
    /// Highest loss ratio of a receiver; `None` if the trace has none.
    pub loss_ratio: Option<f64>,
    /// Completion time in seconds of the last receiver; `None` if a remaining receiver lacks data.
    pub completed_s: Option<f64>,
    /// Tree of the repair heads; `None` without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeSummary>,
    /// Receivers, in the scenario's order.
    pub receivers: Vec<ReceiverSummary>,
}

/// Rates of a flow's sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowRates {
    /// New payload sent (TCP: acknowledged payload) in the counted time, in bits per second.
    pub throughput_bps: f64,
    /// Throughput while the flow was active: from its start to its stop or completion.
    pub active_throughput_bps: f64,
    /// Throughput while all flows were active, to compare shares; `None` without such a time.
    pub common_throughput_bps: Option<f64>,
    /// Payload sent in the counted time in bits per second, with the sender's own repairs only.
    #[serde(default)]
    pub sent_bps: f64,
    /// ACKs and NAKs at the sender per second, while the flow was active in the counted time.
    #[serde(default)]
    pub feedback_per_s: f64,
    /// Coefficient of variation of the throughput by second; `None` below 2 s or without data.
    pub rate_variation: Option<f64>,
    /// Seconds until the rate settled, see [`Rates`](crate::Rates); `None` if that was not found.
    pub settled_s: Option<f64>,
}

/// Packets and events of a flow's sender over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowCounts {
    /// Packets with new data sent by the sender.
    pub sent_packets: u64,
    /// Repairs (retransmissions and parity) sent by any node.
    pub repair_packets: u64,
    /// ACKs and NAKs that reached the sender.
    pub feedback_packets: u64,
    pub ack_packets: u64,
    pub nak_packets: u64,
    pub timeouts: u64,
    pub cuts: u64,
    /// Choices of a representative by the sender (pgmcc's acker, TFMCC's CLR), including the first.
    pub representative_changes: u64,
}

/// Drops, bad input and receivers in doubt of a flow, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowFaults {
    /// Packets of the flow, of all kinds, that links dropped.
    pub dropped_packets: u64,
    pub bad_input: u64,
    /// Receivers of a stream that reported another scheme to the sender.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mismatched_receivers: u64,
    /// Receivers that may lack data, as far as the sender knows at the end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unnamed_receivers: u64,
}

/// Repair tree of a flow, with each receiver's last head. Counts are over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeSummary {
    /// Receivers with a head.
    pub members: u64,
    /// Receivers whose head is the sender.
    pub direct_members: u64,
    /// Receivers that are heads of others.
    pub heads: u64,
    /// Deepest level of a receiver; the sender's is 1.
    pub levels: u32,
    /// Head changes of receivers, without the first choice.
    pub head_changes: u64,
    /// Repairs sent by the sender; receivers sent the others.
    pub sender_repairs: u64,
}

/// Results at one receiver of a flow. Counts are over the whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReceiverSummary {
    /// Node.
    pub node: String,
    /// Payload delivered to the application over the counted time, in bits per second.
    pub goodput_bps: f64,
    /// Packets delivered to the application.
    pub delivered_packets: u64,
    /// Packets lost while the receiver was a member, later repaired or not; with numbered repairs.
    pub lost_packets: u64,
    /// Packets that the receiver gave up.
    pub abandoned_packets: u64,
    /// Lost packets per packet sent while the receiver was a member, numbered repairs included.
    pub loss_ratio: f64,
    /// Delivery time of the last byte in seconds, if the receiver is complete.
    pub completed_s: Option<f64>,
    /// True if the receiver uses another scheme than the sender, and got no data.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other_scheme: bool,
    /// Receiver's scheme if `other_scheme` is true and the scheme is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaks: Option<String>,
    /// Reason for missing data, as named by the sender: `silent`, `left`, `pruned` or `gaps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
    /// Longest packet in bytes that arrives, if the receiver found that longer ones are lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<u32>,
    /// True if the delivered data is an exact prefix, or all, of the sent; `None` if unchecked.
    pub intact: Option<bool>,
    /// Node of the receiver's last repair head, if the flow has heads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair_head: Option<String>,
    /// Level in the repair tree: one more than the head's; the sender's is 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<u32>,
    /// Repairs sent to other receivers, if the flow has repair heads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repairs_sent: Option<u64>,
}

/// Results of one direction of a link in the counted time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkSummary {
    /// Node at the start.
    pub from: String,
    /// Node at the end.
    pub to: String,
    /// Share of the time spent transmitting, 0 to 1.
    pub utilisation: f64,
    /// Packets dropped by the queue or lost on the wire.
    pub dropped_packets: u64,
    /// Most packets in the queue and in transmission.
    pub queue_max_packets: u32,
    /// Mean number of queued packets, without the one in transmission.
    pub queue_mean_packets: f64,
    /// Packets whose transmission ended.
    pub sent_packets: u64,
    /// Bits per second on the wire, with headers.
    pub throughput_bps: f64,
    /// Dropped packets per packet that arrived at the queue.
    pub drop_ratio: f64,
    /// Dropped packets by cause.
    pub drops: Drops,
    /// Faults of packets that were not dropped.
    #[serde(default)]
    pub faults: FaultCounts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Drops {
    pub queue_full: u64,
    /// Early drop by RED.
    pub red_early: u64,
    /// RED's average above its upper threshold.
    pub red_forced: u64,
    pub loss: u64,
    pub ttl: u64,
    pub no_route: u64,
    pub listed: u64,
    pub burst: u64,
    pub outage: u64,
    pub too_long: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FaultCounts {
    pub duplicated: u64,
    pub corrupted: u64,
    /// Packets delivered out of turn.
    pub delayed: u64,
}

/// Counters of the programs in all routers, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterSummary {
    pub naks_forwarded: u64,
    pub naks_suppressed: u64,
    /// Packets dropped by routers, without a route or time to live.
    pub dropped_packets: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl ReceiverSummary {
    /// True if deliveries are in the trace; false for a sender's trace on a real network.
    pub fn has_deliveries(&self, on: On) -> bool {
        on != On::Net || self.delivered_packets > 0 || self.lost_packets > 0
    }
}

impl Summary {
    /// Returns the summary as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a summary has no map with keys that JSON lacks")
    }
}

/// Returns Jain's fairness index (sum x)^2 / (n sum x^2), 1/n to 1; 1 if all are zero or missing.
pub fn jain_index(throughputs: impl Iterator<Item = f64> + Clone) -> f64 {
    let sum: f64 = throughputs.clone().sum();
    let squares: f64 = throughputs.clone().map(|x| x * x).sum();
    if squares > 0.0 { sum * sum / (throughputs.count() as f64 * squares) } else { 1.0 }
}
