//! The header of a trace, and the outcome that the driver knows only at its end.

use std::borrow::Cow;

use faircast_base::{Duration, FlowId, LinkId, NodeId, Time, escaped, escaped_lines};
use serde::{Deserialize, Serialize};

use crate::Lateness;

/// Version of the schema that this crate writes, and the newest that it reads. Older versions are subsets.
///
/// Version 2 added the kinds `duplicated`, `corrupted` and `delayed`, the causes `burst` and `outage`, and a flow's
/// `speaks`. Version 3 added `packets` to `loss` and `abandoned` (1 in older files), the kinds `loss_withdrawn`,
/// `session_extent` and `path_limit`, and the cause `too_long`.
pub const SCHEMA_VERSION: u32 = 3;

/// Everything about a run that is known before it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the schema: [`SCHEMA_VERSION`].
    pub schema: u32,
    /// Version of faircast that made the trace.
    pub faircast: String,
    /// The scenario's file, as the user named it.
    pub scenario: String,
    /// The question that the scenario answers.
    pub title: String,
    /// The scenario's text with all settings applied.
    pub text: String,
    /// Where it ran.
    pub on: On,
    /// Seed of all randomness.
    pub seed: u64,
    /// How long the run is to last, in seconds.
    pub duration_s: f64,
    /// What is left out of every average at the start, in seconds.
    pub warmup_s: f64,
    /// Names of all nodes; a [`NodeId`] is an index into this.
    pub nodes: Vec<String>,
    /// All directions of all links; a [`LinkId`] is an index into this.
    pub links: Vec<LinkHeader>,
    /// All flows; a [`FlowId`] is an index into this.
    pub flows: Vec<FlowHeader>,
    /// All clients of the overlay, by their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientHeader>,
}

/// A client of the overlay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientHeader {
    /// Name of the client.
    pub name: String,
    /// Node of the client's daemon: an index into the header's nodes.
    #[serde(with = "Number")]
    pub node: NodeId,
}

/// Where a run took place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// In the simulator.
    #[default]
    Sim,
    /// Between network namespaces of one machine, in real time.
    Lab,
    /// On a real network.
    Net,
}

/// One direction of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkHeader {
    /// Where it starts: an index into the header's nodes.
    #[serde(with = "Number")]
    pub from: NodeId,
    /// Where it ends: an index into the header's nodes.
    #[serde(with = "Number")]
    pub to: NodeId,
    /// Rate at the start, in bits per second.
    pub rate_bps: u64,
    /// Propagation delay at the start, in seconds.
    pub delay_s: f64,
    /// Queue and its limit, for people: `droptail, 30 packets`.
    pub queue: String,
}

/// One flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowHeader {
    /// Its name, unique.
    pub name: String,
    /// Its protocol, as the scenario names it.
    pub protocol: String,
    /// Where it starts: an index into the header's nodes.
    #[serde(with = "Number")]
    pub from: NodeId,
    /// Where it starts too, if it has many senders.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "node_ids")]
    pub also_from: Vec<NodeId>,
    /// Its receivers, also those that join later: indices into the header's nodes.
    #[serde(with = "node_ids")]
    pub to: Vec<NodeId>,
    /// Payload bytes of one data packet.
    pub packet_bytes: u64,
    /// When it starts, in seconds.
    pub start_s: f64,
    /// When it stops offering new data, in seconds, where it does.
    pub stop_s: Option<f64>,
    /// Its receivers that speak another scheme.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub speaks: Vec<SpeaksHeader>,
}

/// A receiver that speaks another scheme than its flow's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpeaksHeader {
    /// The receiver: an index into the header's nodes.
    #[serde(with = "Number")]
    pub node: NodeId,
    /// The scheme.
    pub protocol: String,
}

/// Of a run of which nothing is known.
impl Default for Header {
    fn default() -> Self {
        Self {
            schema: SCHEMA_VERSION,
            faircast: env!("CARGO_PKG_VERSION").into(),
            scenario: String::new(),
            title: String::new(),
            text: String::new(),
            on: On::default(),
            seed: 1,
            duration_s: 0.0,
            warmup_s: 0.0,
            nodes: Vec::new(),
            links: Vec::new(),
            flows: Vec::new(),
            clients: Vec::new(),
        }
    }
}

impl Header {
    /// How long the run is to last.
    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.duration_s)
    }

    /// The moment from which on averages count.
    pub fn warmup(&self) -> Time {
        Time::from_secs_f64(self.warmup_s)
    }

    /// The name of a node; `n7` where the header does not know it.
    pub fn node_name(&self, node: NodeId) -> String {
        self.nodes.get(node.index()).cloned().unwrap_or_else(|| format!("{node:?}"))
    }

    /// Whether all indices in the header itself point at something.
    pub(crate) fn check(&self) -> Result<(), String> {
        let is_known = |node: &NodeId| node.index() < self.nodes.len();
        for link in &self.links {
            if ![link.from, link.to].iter().all(is_known) {
                return Err("the header has a link between nodes that it does not name".into());
            }
        }
        for flow in &self.flows {
            if !flow.senders().chain(&flow.to).all(is_known) {
                let name = &flow.name;
                return Err(format!("flow \"{name}\" is between nodes that the header lacks"));
            }
            if !flow.speaks.iter().all(|speaks| flow.to.contains(&speaks.node)) {
                let name = &flow.name;
                return Err(format!("somebody speaks in flow \"{name}\" who is no receiver of it"));
            }
        }
        Ok(())
    }

    /// Escapes characters of format in all texts, as a trace of unknown origin needs before anything of it is shown.
    pub(crate) fn escape(&mut self) {
        let Self { faircast, scenario, title, text, nodes, links, flows, .. } = self;
        for it in flows.iter_mut() {
            let FlowHeader { name, protocol, speaks, .. } = it;
            [name, protocol].into_iter().for_each(escape);
            speaks.iter_mut().for_each(|speaks| escape(&mut speaks.protocol));
        }
        links.iter_mut().for_each(|link| escape(&mut link.queue));
        nodes.iter_mut().chain([faircast, scenario, title]).for_each(escape);
        if let Cow::Owned(escaped) = escaped_lines(text) {
            *text = escaped;
        }
    }

    pub(crate) fn has_flow(&self, flow: FlowId) -> bool {
        flow.index() < self.flows.len()
    }

    pub(crate) fn has_link(&self, link: LinkId) -> bool {
        link.index() < self.links.len()
    }

    pub(crate) fn has_node(&self, node: NodeId) -> bool {
        node.index() < self.nodes.len()
    }
}

fn escape(text: &mut String) {
    if let Cow::Owned(escaped) = escaped(text) {
        *text = escaped;
    }
}

impl FlowHeader {
    /// All its senders.
    pub fn senders(&self) -> impl Iterator<Item = &NodeId> {
        [&self.from].into_iter().chain(&self.also_from)
    }

    /// Whether the flow's throughput is what was acknowledged (TCP), not what was sent.
    pub fn counts_acknowledged(&self) -> bool {
        self.protocol == "tcp" || self.protocol.starts_with("tcp-")
    }

    /// What the receiver at `node` speaks, where that is another scheme.
    pub fn spoken_by(&self, node: NodeId) -> Option<&str> {
        let speaks = self.speaks.iter().find(|speaks| speaks.node == node)?;
        (speaks.protocol != self.protocol).then_some(&speaks.protocol)
    }
}

/// What the driver knows only when a run has ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// When it ended, on the run's own clock; nanoseconds in files.
    #[serde(rename = "ended_ns", with = "Nanos")]
    pub at: Time,
    /// Whether it was stopped before its end, by a person or a signal.
    pub interrupted: bool,
    /// Real seconds that it took.
    pub wall_s: f64,
    /// Events that the driver handled.
    pub events: u64,
    /// For each flow and each of its receivers in the header's order: whether the bytes delivered
    /// are exactly a prefix (for finished data: all) of those sent; `None` where nobody checked,
    /// or nothing came.
    pub intact: Vec<Vec<Option<bool>>>,
    /// The [`Hasher`](crate::Hasher)'s hexadecimal digest, where one was made.
    pub trace_hash: Option<String>,
    /// How exact the emulated network was, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Lateness>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "NodeId")]
struct Number(u32);

mod node_ids {
    use super::NodeId;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(nodes: &[NodeId], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(nodes.iter().map(|node| node.0))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<NodeId>, D::Error> {
        Ok(Vec::<u32>::deserialize(from)?.into_iter().map(NodeId).collect())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Time")]
struct Nanos(#[serde(getter = "nanos")] u64);

fn nanos(at: &Time) -> u64 {
    at.as_nanos()
}

impl From<Nanos> for Time {
    fn from(Nanos(nanos): Nanos) -> Self {
        Self::from_nanos(nanos)
    }
}
