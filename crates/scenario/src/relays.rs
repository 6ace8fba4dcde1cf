//! `[[relay]]`, `via` of a flow and `[[fault]]`: relay nodes, ends below them, and faults of nodes.

use std::collections::{BTreeMap, BTreeSet};

use faircast_base::{Duration, NodeId};
use faircast_proto::stack::Stack;

use crate::catalog::Catalog;
use crate::error::{Problem, quoted};
use crate::flows::Flows;
use crate::link_config::moment;
use crate::model::RelaySpec;
use crate::options::{Files, options};
use crate::reach::Reach;
use crate::read::Table;
use crate::topology::Topology;
use crate::value::SettingValue;
use crate::{FaultKind, NodeFault};

const ABOVE_MAX: usize = 16;
const RELAY_RULE: &str = "allowed: a node of a [[relay]]";
const PATH_RULE: &str = "expected nodes that links connect both ways";

pub(crate) struct Relays<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) reach: &'a Reach,
    pub(crate) relays: Vec<RelaySpec>,
}

impl Relays<'_> {
    pub(crate) fn relay(
        &mut self,
        entry: &SettingValue,
        catalog: &Catalog,
        files: &Files<'_>,
    ) -> Result<(), Problem> {
        let table = entry.table(&["node", "parents", "options"])?;
        let Some(program) = catalog.relay_node else {
            let message = "is of no use: this faircast was built without relay nodes";
            return Err(entry.problem(message));
        };
        let (options, _) = options(&table, (program.name, program.options), files)?;
        let relay = |node: NodeId, name: &str| {
            if self.relays.iter().any(|relay| relay.node == node) {
                return Err(format!(
                    "{} is a relay already; allowed: each node once",
                    quoted(name)
                ));
            }
            let options = options.clone();
            self.relays.push(RelaySpec { node, parents: Vec::new(), options });
            Ok(())
        };
        table.required("node", "\"r1\"", |value| self.topology.each_node(value, relay))?;
        Ok(())
    }

    pub(crate) fn parents(&mut self, entry: &SettingValue) -> Result<(), Problem> {
        let table = entry.any_table()?;
        let nodes = table.required("node", "\"r1\"", |value| {
            self.topology.each_node(value, |node, _| Ok(node))
        })?;
        let (topology, reach) = (self.topology, self.reach);
        let read = |value| above(value, &nodes, (topology, reach), &self.relays);
        let parents = table.optional("parents", read)?.unwrap_or_default();
        for relay in self.relays.iter_mut().filter(|relay| nodes.contains(&relay.node)) {
            relay.parents.clone_from(&parents);
        }
        Ok(())
    }
}

fn above(
    value: &SettingValue,
    nodes: &[NodeId],
    (topology, reach): (&Topology, &Reach),
    relays: &[RelaySpec],
) -> Result<Vec<NodeId>, Problem> {
    let mut above = Vec::new();
    topology.each_node(value, |relay, name| {
        let shown = quoted(name);
        let apart = nodes.iter().find(|node| !reach.both_ways(**node, relay));
        Err(if !relays.iter().any(|it| it.node == relay) {
            format!("{shown} is no relay; {RELAY_RULE}")
        } else if nodes.contains(&relay) {
            format!("{shown} would be above itself; allowed: other relays")
        } else if above.contains(&relay) {
            format!("{shown} is named twice; allowed: each relay once")
        } else if let Some(node) = apart {
            let node = quoted(&topology.nodes[node.index()].name);
            format!("no path of links joins {node} and {shown}; {PATH_RULE}")
        } else if above.len() == ABOVE_MAX {
            format!("{shown} is one too many; allowed: at most {ABOVE_MAX} relays")
        } else {
            above.push(relay);
            return Ok(relay);
        })
    })
}

impl Flows<'_> {
    pub(crate) fn via(
        &self,
        table: &Table<'_>,
        stack: Stack,
        ends: &[NodeId],
    ) -> Result<BTreeMap<NodeId, Vec<NodeId>>, Problem> {
        let mut via: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
        let example = "a list such as [ { node = \"mr{1..5}\", relays = [\"r2\", \"r1\"] } ]";
        table.optional("via", |value| {
            if stack.hop.is_none() {
                let with = self.catalog.protocols.iter().filter(|stack| stack.hop.is_some());
                let with: Vec<String> = with.map(Stack::name).collect();
                let (name, with) = (stack.name(), with.join(", "));
                let message = format!(
                    "is of no use to {name}; relays pass on sessions under credits: {with}"
                );
                return Err(value.problem(message));
            }
            value.each(example, |_, entry| self.via_entry(entry, ends, &mut via))?;
            match ends.iter().find(|node| !via.contains_key(node)) {
                None => Ok(()),
                Some(node) => {
                    let node = quoted(&self.topology.nodes[node.index()].name);
                    let message =
                        format!("names no relays of {node}; expected all ends of the flow");
                    Err(value.problem(message))
                }
            }
        })?;
        for key in ["header", "speaks", "count"] {
            if !via.is_empty() && table.has(key) {
                let message = "is of no use to a flow through relay nodes";
                return Err(table.problem(key, message));
            }
        }
        Ok(via)
    }

    fn via_entry(
        &self,
        entry: &SettingValue,
        ends: &[NodeId],
        via: &mut BTreeMap<NodeId, Vec<NodeId>>,
    ) -> Result<(), Problem> {
        let table = entry.table(&["node", "relays"])?;
        table.required("node", "\"mr{1..5}\"", |value| {
            let mut seen = BTreeSet::new();
            let nodes = self.topology.each_node(value, |node, name| {
                let shown = quoted(name);
                let taken = self.flows.iter().find(|flow| flow.via.contains_key(&node));
                Err(if !ends.contains(&node) {
                    format!("{shown} is no end of this flow; allowed: nodes of from and to")
                } else if via.contains_key(&node) || !seen.insert(node) {
                    format!("{shown} is named twice; allowed: each end once")
                } else if self.relays.iter().any(|relay| relay.node == node) {
                    format!("{shown} is a relay; allowed: ends at other nodes")
                } else if let Some(flow) = taken {
                    let flow = quoted(&flow.name);
                    format!("{shown} is an end of {flow}; allowed: one flow through relays a node")
                } else {
                    return Ok(node);
                })
            })?;
            let relays = table.required("relays", "[\"r2\", \"r1\"]", |value| {
                above(value, &nodes, (self.topology, &self.reach), self.relays)
            })?;
            via.extend(nodes.into_iter().map(|node| (node, relays.clone())));
            Ok(())
        })
    }
}

pub(crate) fn faults(
    entry: &SettingValue,
    flows: &Flows<'_>,
    duration: Duration,
) -> Result<Vec<NodeFault>, Problem> {
    let table = entry.table(&["node", "at", "stop", "restart", "kill", "move"])?;
    let at = table.required("at", "\"20 s\"", |value| moment(value, duration.as_nanos()))?;
    let span = |value: &SettingValue| value.duration(1..=duration.as_nanos());
    let sure = |value: &SettingValue| match value.flag()? {
        true => Ok(()),
        false => Err(value.wrong("true")),
    };
    let kinds = [
        table.optional("stop", span)?.map(FaultKind::Stop),
        table.optional("restart", span)?.map(FaultKind::Restart),
        table.optional("kill", sure)?.map(|()| FaultKind::Kill),
        table.optional("move", sure)?.map(|()| FaultKind::Move),
    ];
    let mut kinds = kinds.into_iter().flatten();
    let (Some(kind), None) = (kinds.next(), kinds.next()) else {
        let rule =
            "expected exactly one of stop = \"8 s\", restart = \"3 s\", kill = true, move = true";
        return Err(entry.problem(rule));
    };
    table.required("node", "\"r1\"", |value| {
        flows.topology.each_node(value, |node, name| {
            let fault = fault(flows, NodeFault { at, node, kind });
            fault.map_err(|rule| format!("{} {rule}", quoted(name)))
        })
    })
}

fn fault(flows: &Flows<'_>, fault: NodeFault) -> Result<NodeFault, &'static str> {
    let NodeFault { node, kind, .. } = fault;
    let is_relay = flows.relays.iter().any(|relay| relay.node == node)
        || flows.daemons.iter().any(|daemon| daemon.node == node);
    let mut flows = flows.flows.iter();
    let is_behind = flows.clone().any(|flow| flow.via.contains_key(&node));
    let sends = flows.clone().any(|flow| flow.from.contains(&node));
    let is_end = flows.any(|flow| flow.ends().any(|end| end == node));
    match kind {
        _ if !is_relay && !is_end => {
            Err("has no program; allowed: relays, daemons and ends of flows")
        }
        FaultKind::Restart(_) if sends => {
            Err("is a sender, which cannot begin again; allowed: stop, kill, move")
        }
        FaultKind::Move if !is_relay && !is_behind => {
            Err("is behind no relay; allowed to move: relays, daemons and ends of flows with via")
        }
        _ => Ok(fault),
    }
}
