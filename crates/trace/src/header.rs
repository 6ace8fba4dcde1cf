//! Header of a trace, and the outcome at its end.

use std::borrow::Cow;

use faircast_base::{Duration, NodeId, Time, escaped, escaped_lines};
use serde::{Deserialize, Serialize};

use crate::Lateness;

/// Version of the schema that this crate writes. It reads all up to this one; older are subsets:
/// `packets` of `loss` and `abandoned` is 1 where it is missing.
pub const SCHEMA_VERSION: u32 = 3;

/// Facts of a run that are known before its start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the schema: [`SCHEMA_VERSION`].
    pub schema: u32,
    /// Version of faircast that wrote the trace.
    pub faircast: String,
    /// Path of the scenario's file, as the user gave it.
    pub scenario: String,
    /// Question that the scenario answers.
    pub title: String,
    /// Text of the scenario with all settings applied.
    pub text: String,
    /// Environment of the run.
    pub on: On,
    /// Seed of all randomness.
    pub seed: u64,
    /// Planned duration of the run, in seconds.
    pub duration_s: f64,
    /// Warm-up time, excluded from all averages, in seconds.
    pub warmup_s: f64,
    /// Names of all nodes; a [`NodeId`] is an index into this list.
    pub nodes: Vec<String>,
    /// All directions of all links; a [`LinkId`](faircast_base::LinkId) is an index into this list.
    pub links: Vec<LinkHeader>,
    /// All flows; a [`FlowId`](faircast_base::FlowId) is an index into this list.
    pub flows: Vec<FlowHeader>,
    /// All clients of the overlay, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientHeader>,
}

/// Client of the overlay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientHeader {
    /// Name of the client.
    pub name: String,
    /// Node of the client's daemon: an index into the header's nodes.
    #[serde(with = "Number")]
    pub node: NodeId,
}

/// Environment of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// Simulator.
    #[default]
    Sim,
    /// Network namespaces of one machine, in real time.
    Lab,
    /// Real network.
    Net,
}

/// One direction of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkHeader {
    /// Start: an index into the header's nodes.
    #[serde(with = "Number")]
    pub from: NodeId,
    /// End: an index into the header's nodes.
    #[serde(with = "Number")]
    pub to: NodeId,
    /// Initial rate, in bits per second.
    pub rate_bps: u64,
    /// Initial propagation delay, in seconds.
    pub delay_s: f64,
    /// Description of the queue and its limit: `droptail, 30 packets`.
    pub queue: String,
}

/// Flow of the scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowHeader {
    /// Unique name.
    pub name: String,
    /// Protocol, as named in the scenario.
    pub protocol: String,
    /// Source: an index into the header's nodes.
    #[serde(with = "Number")]
    pub from: NodeId,
    /// Further sources, as indexes into the header's nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "node_ids")]
    pub also_from: Vec<NodeId>,
    /// Receivers, including late joiners, as indexes into the header's nodes.
    #[serde(with = "node_ids")]
    pub to: Vec<NodeId>,
    /// Payload of a data packet, in bytes.
    pub packet_bytes: u64,
    /// Start time, in seconds.
    pub start_s: f64,
    /// End of new data, in seconds; `None` for no end.
    pub stop_s: Option<f64>,
    /// Receivers with another scheme.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub speaks: Vec<SpeaksHeader>,
}

/// Receiver with another scheme than its flow's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpeaksHeader {
    /// Node of the receiver: an index into the header's nodes.
    #[serde(with = "Number")]
    pub node: NodeId,
    /// The scheme.
    pub protocol: String,
}

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
    /// Returns the planned duration of the run.
    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.duration_s)
    }

    /// Returns the end of the warm-up time.
    pub fn warmup(&self) -> Time {
        Time::from_secs_f64(self.warmup_s)
    }

    /// Returns the name of a node; `n7` for a node that is not in the header.
    pub fn node_name(&self, node: NodeId) -> String {
        self.nodes.get(node.index()).cloned().unwrap_or_else(|| format!("{node:?}"))
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let is_known = |node: &NodeId| node.index() < self.nodes.len();
        for link in &self.links {
            if ![link.from, link.to].iter().all(is_known) {
                return Err("the header has a link between nodes that it does not name".into());
            }
        }
        for flow in &self.flows {
            let name = &flow.name;
            if !flow.senders().chain(&flow.to).all(is_known) {
                return Err(format!("flow \"{name}\" is between nodes that the header lacks"));
            }
            if !flow.speaks.iter().all(|speaks| flow.to.contains(&speaks.node)) {
                return Err(format!("somebody speaks in flow \"{name}\" who is no receiver of it"));
            }
        }
        Ok(())
    }

    /// Escapes format characters in all texts, as needed to print a trace of unknown origin.
    pub(crate) fn escape(&mut self) {
        let Self { faircast, scenario, title, text, nodes, links, flows, .. } = self;
        for FlowHeader { name, protocol, speaks, .. } in flows.iter_mut() {
            [name, protocol].into_iter().for_each(escape);
            speaks.iter_mut().for_each(|speaks| escape(&mut speaks.protocol));
        }
        links.iter_mut().for_each(|link| escape(&mut link.queue));
        nodes.iter_mut().chain([faircast, scenario, title]).for_each(escape);
        if let Cow::Owned(escaped) = escaped_lines(text) {
            *text = escaped;
        }
    }
}

fn escape(text: &mut String) {
    if let Cow::Owned(escaped) = escaped(text) {
        *text = escaped;
    }
}

impl FlowHeader {
    /// Iterates over all sources.
    pub fn senders(&self) -> impl Iterator<Item = &NodeId> {
        [&self.from].into_iter().chain(&self.also_from)
    }

    /// True if the throughput of the flow is acknowledged (TCP) instead of sent data.
    pub fn counts_acknowledged(&self) -> bool {
        self.protocol == "tcp" || self.protocol.starts_with("tcp-")
    }

    /// Returns the scheme of the receiver at `node`, if it differs from the flow's.
    pub fn spoken_by(&self, node: NodeId) -> Option<&str> {
        let speaks = self.speaks.iter().find(|speaks| speaks.node == node)?;
        (speaks.protocol != self.protocol).then_some(&speaks.protocol)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct End<T> {
    pub(crate) end: T,
}

/// Facts of a run that are known at its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// End time on the clock of the run; nanoseconds in files.
    #[serde(rename = "ended_ns", with = "Nanos")]
    pub at: Time,
    /// True if a person or a signal stopped the run early.
    pub interrupted: bool,
    /// Real duration in seconds.
    pub wall_s: f64,
    /// Events that the driver handled.
    pub events: u64,
    /// By flow and receiver: true if delivered bytes are a prefix of the sent ones, or all if the
    /// data ended. `None` without a check or delivery.
    pub intact: Vec<Vec<Option<bool>>>,
    /// Hexadecimal digest of the [`Hasher`](crate::Hasher), if computed.
    pub trace_hash: Option<String>,
    /// Accuracy of the emulated network, if there was one.
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
