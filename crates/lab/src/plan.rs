//! Kernel settings of a scenario's flows, and the limits of the lab.

use faircast_base::{Duration, NodeId, Time};
use faircast_proto::tcp::KernelSettings;
use faircast_proto::transport::{KernelTcp, PacketFormat};
use faircast_scenario::{Data, FaultKind, Flow, Scenario};

use crate::address;
use crate::error::LabError;

/// Most ends of flows: each has a namespace, an interface and a thread.
pub(crate) const ENDS_MAX: usize = 512;
/// Largest payload of a packet in bytes, so that an IP packet holds all headers.
const PACKET_BYTES_MAX: u64 = 60_000;
/// Smallest TCP payload in bytes that Linux accepts. src: linux, include/net/tcp.h, TCP_MIN_MSS
const TCP_PACKET_BYTES_MIN: u64 = 88;
const HEADERS_MAX: u64 = 300;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TcpPlan {
    pub(crate) congestion_control: &'static str,
    pub(crate) sack: bool,
    pub(crate) packet: u32,
    pub(crate) window_max: Option<u32>,
    pub(crate) initial_window: u32,
    /// Slow start threshold in packets; 0 for none.
    pub(crate) threshold: u32,
    pub(crate) min_rto: Duration,
    pub(crate) delayed_ack: bool,
    /// Longest random delay of a packet before it leaves its host; delays are uniform from 0.
    pub(crate) overhead: Duration,
}

const APPLIED: &[&str] =
    &["window_max", "initial_window", "initial_ssthresh", "min_rto", "delayed_ack", "overhead"];

impl TcpPlan {
    pub(crate) fn of(flow: &Flow) -> Option<Self> {
        let PacketFormat::Kernel(tcp) = flow.stack.transport.packets else { return None };
        let KernelTcp { congestion_control, sack, .. } = tcp;
        let kernel = !flow.stack.is_simulated();
        let settings = KernelSettings::from_options(&flow.options);
        let is_told = |key| kernel || flow.options.has(key);
        Some(Self {
            congestion_control,
            sack,
            packet: flow.packet.count() as u32,
            window_max: flow.options.has("window_max").then_some(settings.window_max),
            initial_window: if is_told("initial_window") { settings.initial_window } else { 2 },
            threshold: settings.initial_ssthresh,
            min_rto: settings.min_rto,
            delayed_ack: is_told("delayed_ack") && settings.delayed_ack,
            overhead: settings.overhead,
        })
    }

    pub(crate) fn window_bytes(&self) -> Option<u32> {
        Some(self.window_max?.saturating_mul(self.packet))
    }
}

/// Returns the scenario's settings that the lab does not apply, as sentences.
pub fn warnings(scenario: &Scenario) -> Vec<String> {
    let mut warnings = Vec::new();
    for flow in &scenario.flows {
        let PacketFormat::Kernel(tcp) = flow.stack.transport.packets else { continue };
        let (name, keys) = (&flow.name, flow.raw_options.iter().map(|(key, _)| key.as_str()));
        let ignored: Vec<&str> = keys.filter(|key| !APPLIED.contains(key)).collect();
        if !ignored.is_empty() {
            let (ignored, applied) = (ignored.join(", "), APPLIED.join(", "));
            warnings.push(format!(
                "flow \"{name}\": the kernel's TCP has no {ignored}; applied are {applied}"
            ));
        }
        if !tcp.alike {
            warnings.push(format!(
                "flow \"{name}\": without SACK the kernel's Reno repairs as NewReno does"
            ));
        }
    }
    warnings
}

pub(crate) fn check(scenario: &Scenario) -> Result<(), LabError> {
    let ends: usize = scenario.flows.iter().map(|flow| flow.ends().count()).sum();
    let ends = ends + scenario.programs().count();
    let wrong = |problem: String| Err(LabError::Unsuited(format!("--on lab: {problem}")));
    if ends > ENDS_MAX {
        let allowed = format!("at most {ENDS_MAX}, or --on sim");
        return wrong(format!("the flows have {ends} ends; allowed: {allowed}"));
    }
    if scenario.nodes.len() > address::NODES_MAX as usize {
        return wrong("there are more nodes than addresses".to_string());
    }
    for fault in &scenario.faults {
        let name = &scenario.nodes[fault.node.index()].name;
        let is_tcp =
            |flow: &Flow| TcpPlan::of(flow).is_some() && flow.ends().any(|node| node == fault.node);
        if fault.kind == FaultKind::Move {
            return wrong(format!(
                "a fault moves \"{name}\"; allowed: stop, restart, kill, or --on sim"
            ));
        }
        if scenario.flows.iter().any(is_tcp) {
            return wrong(format!(
                "a fault is of \"{name}\", where the kernel's TCP is; allowed: other nodes, or --on sim"
            ));
        }
    }
    for flow in &scenario.flows {
        let (name, packet) = (&flow.name, flow.packet.count());
        if packet > PACKET_BYTES_MAX {
            return wrong(format!(
                "flow \"{name}\": packet = \"{packet} B\"; allowed: at most {PACKET_BYTES_MAX} B"
            ));
        }
        if TcpPlan::of(flow).is_some() && packet < TCP_PACKET_BYTES_MIN {
            return wrong(format!(
                "flow \"{name}\": packet = \"{packet} B\"; allowed for the kernel's TCP: at least \
                 {TCP_PACKET_BYTES_MIN} B"
            ));
        }
    }
    Ok(())
}

/// Returns the times at which a receiver joins and leaves, in order.
pub(crate) fn memberships(flow: &Flow, node: NodeId) -> Vec<(Time, Option<Time>)> {
    let joins = flow.join.iter().filter(|join| join.node == node);
    let mut memberships: Vec<_> = joins.map(|join| (join.at, join.leave)).collect();
    if memberships.is_empty() {
        memberships.push((Time::ZERO, None));
    }
    memberships.sort_unstable();
    memberships
}

pub(crate) fn data_len(flow: &Flow) -> Option<u64> {
    match &flow.data {
        Data::Unlimited => None,
        Data::Size(bytes) => Some(bytes.count()),
        Data::File(path) => path.metadata().ok().map(|data| data.len()),
    }
}

pub(crate) const RELAY_MTU: u16 = 1500;

pub(crate) fn mtu(flow: &Flow) -> u16 {
    if !flow.via.is_empty() {
        return RELAY_MTU;
    }
    u16::try_from(flow.packet.count() + HEADERS_MAX).unwrap_or(u16::MAX).max(1500)
}
