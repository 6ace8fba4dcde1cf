//! The summary of a run, as `--json` prints it.

use faircast_trace::{Lateness, On};
use serde::{Deserialize, Serialize};

use crate::clients::ClientSummary;

/// What came out of a run. Serialises to the JSON summary of the scenario language; all numbers
/// are SI. Averages are over the counted time, from the end of the warm-up to the end of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Version of faircast that made the trace.
    pub faircast: String,
    /// The scenario's file.
    pub scenario: String,
    /// The question that the scenario answers.
    pub title: String,
    /// Where it ran.
    pub on: On,
    /// Seed of all randomness.
    pub seed: u64,
    /// How long the run was to last, in seconds.
    pub duration_s: f64,
    /// What is left out of every average at the start, in seconds.
    pub warmup_s: f64,
    /// When it ended, in seconds.
    pub ended_s: f64,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// All flows, in the scenario's order.
    pub flows: Vec<FlowSummary>,
    /// All directions of all links, in the scenario's order.
    pub links: Vec<LinkSummary>,
    /// Clients of the overlay, in the scenario's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientSummary>,
    /// What the routers' programs did.
    pub routers: RouterSummary,
    /// Jain's fairness index over the throughputs of all flows, from 1/n (one has all) to 1.
    pub jain_index: f64,
    /// The time in which all flows were on; `None` where there was none, or one flow alone.
    pub common: Option<Common>,
    /// Real seconds that the run took.
    pub wall_s: f64,
    /// Events that the driver handled.
    pub events: u64,
    /// Hash of the trace, where one was made: equal hashes mean equal runs.
    pub trace_hash: Option<String>,
    /// How exact the emulated network was; `None` in the simulator, which is exact.
    pub lateness: Option<Lateness>,
}

/// The counted time in which all flows were on: from the last start to the first stop or completion.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Common {
    /// Where it begins, in seconds.
    pub from_s: f64,
    /// Where it ends, in seconds.
    pub to_s: f64,
    /// Jain's fairness index over the throughputs that all flows had in it.
    pub jain_index: f64,
}

/// What came out of a flow. Counts are of the whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowSummary {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: String,
    /// The sender's node.
    pub from: String,
    /// New payload sent (TCP: acknowledged payload) in the counted time, in bits per second.
    pub throughput_bps: f64,
    /// Throughput over the time in which the flow was on: from its start to its stop or completion.
    pub active_throughput_bps: f64,
    /// Throughput while all flows were on, which alone compares shares; `None` without such a time.
    pub common_throughput_bps: Option<f64>,
    /// All payload that the sender put on the wire over the counted time, new and again, in bits
    /// per second; not what repair heads send.
    #[serde(default)]
    pub sent_bps: f64,
    /// Positive and negative acknowledgements that reached the sender in a second of that part of
    /// the counted time in which the flow was on; 0 where that has no length.
    #[serde(default)]
    pub feedback_per_s: f64,
    /// Standard deviation over mean of its throughput in spans of one second while it was on;
    /// `None` where nothing was sent, or it was on for less than two seconds.
    pub rate_variation: Option<f64>,
    /// Seconds from its start until its rate stayed that of the long run, as
    /// [`Rates`](crate::Rates) defines it; `None` if never, or too late to be seen.
    pub settled_s: Option<f64>,
    /// Packets with new data that the sender sent.
    pub sent_packets: u64,
    /// Repairs (retransmissions and parity) that anyone sent.
    pub repair_packets: u64,
    /// Positive and negative acknowledgements that reached the sender.
    pub feedback_packets: u64,
    /// The positive ones of them.
    pub ack_packets: u64,
    /// The negative ones of them.
    pub nak_packets: u64,
    /// Timers that ran out at the sender.
    pub timeouts: u64,
    /// Times that the sender reduced its window or rate.
    pub cuts: u64,
    /// Times that the sender chose another representative (pgmcc's acker, TFMCC's CLR), the first
    /// choice included.
    pub representative_changes: u64,
    /// The representative at the end.
    pub representative: Option<String>,
    /// Mean of the round trips that the sender measured in the counted time, in seconds.
    pub rtt_mean_s: Option<f64>,
    /// Its packets of all kinds that links dropped.
    pub dropped_packets: u64,
    /// Bad input that its endpoints refused.
    pub bad_input: u64,
    /// Receivers of a stream that told the sender that they speak another scheme.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mismatched_receivers: u64,
    /// Receivers of whom the sender knows at the end only that they may lack something.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unnamed_receivers: u64,
    /// The highest loss ratio of its receivers; `None` where the trace has none.
    pub loss_ratio: Option<f64>,
    /// When the last of its receivers had everything, in seconds; `None` where one of them that
    /// has not left lacks something.
    pub completed_s: Option<f64>,
    /// The tree of its repair heads; `None` where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeSummary>,
    /// Its receivers, in the scenario's order.
    pub receivers: Vec<ReceiverSummary>,
}

/// The repair tree of a flow, as each receiver's head was last. Counts are of the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeSummary {
    /// Receivers that have a head.
    pub members: u64,
    /// Those of them whose head is the sender.
    pub direct_members: u64,
    /// Receivers that are heads of others.
    pub heads: u64,
    /// The deepest level of a receiver; the sender's is 1.
    pub levels: u32,
    /// Times that a receiver got another head after its first.
    pub head_changes: u64,
    /// Repairs that the sender sent; receivers sent the others.
    pub sender_repairs: u64,
}

/// What came out at one receiver of a flow. Counts are of the whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReceiverSummary {
    /// Its node.
    pub node: String,
    /// Payload handed to the application over the counted time, in bits per second.
    pub goodput_bps: f64,
    /// Packets that it handed to the application.
    pub delivered_packets: u64,
    /// Packets that were lost: sent while it was a member, they did not arrive in time or late, whether repaired or
    /// not. A repair counts where it has a sequence number of its own.
    pub lost_packets: u64,
    /// Packets that it gave up.
    pub abandoned_packets: u64,
    /// Lost packets per packet that was sent while it was a member, numbered repairs included.
    pub loss_ratio: f64,
    /// When its last byte was delivered, in seconds, where it got everything.
    pub completed_s: Option<f64>,
    /// Whether it speaks another scheme than the sender, and so got nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other_scheme: bool,
    /// That scheme, where `other_scheme` is set and it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaks: Option<String>,
    /// Why it lacks something, where the sender named it at the end: `silent`, `left`, `pruned` or `gaps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
    /// Bytes of the longest packet that arrives, where it found at last that longer ones get lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<u32>,
    /// Whether it delivered exactly a prefix, or all, of what was sent; `None` if nobody checked.
    pub intact: Option<bool>,
    /// The node that repaired for it last, where the flow has repair heads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair_head: Option<String>,
    /// Its level in the tree of these: one more than its head's, the sender's being 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<u32>,
    /// Repairs that it sent to others, where the flow has repair heads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repairs_sent: Option<u64>,
}

/// What one direction of a link did in the counted time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkSummary {
    /// Where it starts.
    pub from: String,
    /// Where it ends.
    pub to: String,
    /// Share of the time in which it was transmitting, 0 to 1.
    pub utilisation: f64,
    /// Packets dropped by the queue or lost on the wire.
    pub dropped_packets: u64,
    /// The most packets that waited and were in transmission.
    pub queue_max_packets: u32,
    /// Mean of the packets that waited, the one in transmission not counted.
    pub queue_mean_packets: f64,
    /// Packets whose transmission ended.
    pub sent_packets: u64,
    /// Bits per second on the wire, headers counted.
    pub throughput_bps: f64,
    /// Dropped packets per packet that arrived at the queue.
    pub drop_ratio: f64,
    /// The dropped packets by cause.
    pub drops: Drops,
    /// What went wrong with packets that were not dropped.
    #[serde(default)]
    pub faults: FaultCounts,
}

/// Dropped packets by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Drops {
    /// The queue was full.
    pub queue_full: u64,
    /// RED chose it early.
    pub red_early: u64,
    /// RED's average was above its upper threshold.
    pub red_forced: u64,
    /// Lost on the wire.
    pub loss: u64,
    /// Its time to live ran out.
    pub ttl: u64,
    /// No route leads to its destination.
    pub no_route: u64,
    /// Dropped on purpose by the scenario's list.
    pub listed: u64,
    /// Lost on the wire in a burst.
    pub burst: u64,
    /// Lost because the link was down.
    pub outage: u64,
    /// Longer than the MTU of the link.
    pub too_long: u64,
}

/// Packets that a link did not drop, but did not carry as they were either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FaultCounts {
    /// Second packets that it made.
    pub duplicated: u64,
    /// Packets with a bit flipped.
    pub corrupted: u64,
    /// Packets that came later than in their turn.
    pub delayed: u64,
}

/// What the programs in all routers did, in the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterSummary {
    /// NAKs passed on towards the source.
    pub naks_forwarded: u64,
    /// NAKs withheld.
    pub naks_suppressed: u64,
    /// Packets that routers dropped themselves, without a route or time to live.
    pub dropped_packets: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl FlowSummary {
    /// Whether its sender is in the trace, as it is not in that of a receiver on a real network.
    pub fn has_sender(&self, on: On) -> bool {
        on != On::Net || self.sent_packets > 0
    }
}

impl ReceiverSummary {
    /// Whether deliveries are in the trace, as they are not in that of a real network's sender.
    pub fn has_deliveries(&self, on: On) -> bool {
        on != On::Net || self.delivered_packets > 0 || self.lost_packets > 0
    }
}

impl Summary {
    /// The summary as JSON, for people and programs.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a summary has no map with keys that JSON lacks")
    }
}

/// Jain's fairness index, (sum x)^2 / (n sum x^2): 1 where all are equal, 1/n where one has all.
/// Nobody at all, or all with nothing, is equal too.
pub fn jain_index(throughputs: impl Iterator<Item = f64> + Clone) -> f64 {
    let sum: f64 = throughputs.clone().sum();
    let squares: f64 = throughputs.clone().map(|x| x * x).sum();
    if squares > 0.0 { sum * sum / (throughputs.count() as f64 * squares) } else { 1.0 }
}
