//! `[[daemon]]` and `[[client]]`: daemons of the overlay, and their scripted clients.

use std::collections::BTreeSet;

use faircast_base::{Bytes, Duration, NodeId, Time};
use faircast_overlay::{Benefit, FlowControl, Service};

use crate::error::{Problem, quoted};
use crate::limits::{CLIENTS_MAX, RATE_BITS_PER_S_MAX};
use crate::link_config::moment;
use crate::model::{GroupStay, RelaySpec, SendSpec};
use crate::names::name;
use crate::options::{Files, options, registered};
use crate::read::Table;
use crate::topology::Topology;
use crate::value::{Kind, SettingValue};
use crate::{ClientSpec, DaemonSpec};

/// Least bytes of a message, which carries its sender, number and time.
const MESSAGE_BYTES_MIN: u64 = 28;
const MESSAGE_BYTES: u64 = 1000;

fn groups(value: &SettingValue) -> Result<Vec<String>, Problem> {
    let group = |value: &SettingValue| name(value).map(str::to_string);
    match &value.kind {
        Kind::Text(_) => Ok(vec![group(value)?]),
        _ => value.each("a list of groups such as [\"prices\"]", |_, it| group(it)),
    }
}

pub(crate) struct Daemons<'a> {
    topology: &'a Topology,
    relays: &'a [RelaySpec],
    duration: Duration,
    pub(crate) daemons: Vec<DaemonSpec>,
    /// Names of clients.
    names: BTreeSet<String>,
}

impl<'a> Daemons<'a> {
    pub(crate) fn new(topology: &'a Topology, relays: &'a [RelaySpec], duration: Duration) -> Self {
        Self { topology, relays, duration, daemons: Vec::new(), names: BTreeSet::new() }
    }

    pub(crate) fn daemon(
        &mut self,
        entry: &SettingValue,
        files: &Files<'_>,
    ) -> Result<(), Problem> {
        let table = entry.table(&["node", "peers", "options"])?;
        let (chosen, _) = options(&table, ("daemon", FlowControl::OPTIONS), files)?;
        let flow_control = FlowControl::from_options(&chosen);
        flow_control
            .check()
            .map_err(|(option, text)| table.problem("options", format!("{option} {text}")))?;
        let topology = self.topology;
        let daemon = |node: NodeId, name: &str| {
            let is_relay = self.relays.iter().any(|relay| relay.node == node);
            if is_relay || self.daemon_at(node).is_some() {
                let rule = "allowed: one at a node";
                return Err(format!("{} runs a daemon or relay already; {rule}", quoted(name)));
            }
            let (peers, clients) = (Vec::new(), Vec::new());
            self.daemons.push(DaemonSpec { node, peers, clients, flow_control });
            Ok(())
        };
        table.required("node", "\"d1\"", |value| topology.each_node(value, daemon))?;
        Ok(())
    }

    fn daemon_at(&self, node: NodeId) -> Option<usize> {
        self.daemons.iter().position(|it| it.node == node)
    }

    fn found(&self, value: &SettingValue) -> Result<Vec<usize>, Problem> {
        self.topology.each_node(value, |node, name| {
            self.daemon_at(node).ok_or_else(|| {
                format!("{} runs no daemon; allowed: a node of a [[daemon]]", quoted(name))
            })
        })
    }

    pub(crate) fn peers(&mut self, entry: &SettingValue) -> Result<(), Problem> {
        let table = entry.any_table()?;
        let own = table.required("node", "\"d1\"", |value| self.found(value))?;
        let peers = table.optional("peers", |value| self.found(value))?.unwrap_or_default();
        for at in own {
            let others = peers.iter().filter(|it| **it != at);
            self.daemons[at].peers = others.map(|it| self.daemons[*it].node).collect();
        }
        Ok(())
    }

    pub(crate) fn client(&mut self, entry: &SettingValue) -> Result<(), Problem> {
        let table =
            entry.table(&["name", "node", "groups", "join", "send", "start", "stop", "count"])?;
        let of = table.required("name", "\"publisher\"", name)?;
        let at = table.required("node", "\"d1\"", |value| self.found(value))?;
        let start = table.optional("start", |value| self.moment(value))?.unwrap_or(Time::ZERO);
        let stop = table.optional("stop", |value| match self.moment(value)? {
            stop if stop > start => Ok(stop),
            _ => Err(value.wrong("a moment after the start")),
        })?;
        let stay = |group| GroupStay { group, at: start, leave: None };
        let groups = table.optional("groups", groups)?.unwrap_or_default();
        let mut stays: Vec<GroupStay> = groups.into_iter().map(stay).collect();
        let join = table.optional("join", |value| {
            let example = "a list such as [ { group = \"prices\", at = \"5 s\" } ]";
            value.each(example, |_, entry| self.stay(entry))
        })?;
        stays.extend(join.unwrap_or_default());
        let send = table.optional("send", |value| self.send(value, start))?;
        let count = table.optional("count", |value| value.integer(1..=CLIENTS_MAX))?.unwrap_or(1);
        for copy in 1..=count {
            for daemon in &at {
                let node = &self.topology.nodes[self.daemons[*daemon].node.index()].name;
                let name = match (count, at.len()) {
                    (1, 1) => of.to_string(),
                    (1, _) => format!("{of}-{node}"),
                    (_, 1) => format!("{of}-{copy}"),
                    _ => format!("{of}-{node}-{copy}"),
                };
                let (stays, send) = (stays.clone(), send.clone());
                let client = ClientSpec { index: 0, name, start, stop, stays, send };
                self.add(&table, *daemon, client)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, table: &Table<'_>, daemon: usize, client: ClientSpec) -> Result<(), Problem> {
        let shown = quoted(&client.name);
        let problem = if client.name.len() > faircast_overlay::CLIENT_BYTES_MAX {
            let most = faircast_overlay::CLIENT_BYTES_MAX;
            format!("makes the name {shown}; allowed: at most {most} bytes")
        } else if self.names.len() as u64 == CLIENTS_MAX {
            format!("is one client too many; allowed: at most {CLIENTS_MAX}")
        } else if !self.names.insert(client.name.clone()) {
            format!("makes the name {shown} twice; allowed: each client once")
        } else {
            let index = self.names.len() as u32 - 1;
            self.daemons[daemon].clients.push(ClientSpec { index, ..client });
            return Ok(());
        };
        Err(table.problem("name", problem))
    }

    fn moment(&self, value: &SettingValue) -> Result<Time, Problem> {
        moment(value, self.duration.as_nanos())
    }

    fn stay(&self, entry: &SettingValue) -> Result<GroupStay, Problem> {
        let table = entry.table(&["group", "at", "leave"])?;
        let group = table.required("group", "\"prices\"", name)?.to_string();
        let at = table.required("at", "\"5 s\"", |value| self.moment(value))?;
        let leave = table.optional("leave", |value| match self.moment(value)? {
            leave if leave > at => Ok(leave),
            _ => Err(value.wrong("a moment after at")),
        })?;
        Ok(GroupStay { group, at, leave })
    }

    fn send(&self, value: &SettingValue, begins: Time) -> Result<SendSpec, Problem> {
        let keys = ["groups", "service", "benefit", "size", "rate", "start", "stop"];
        let table = value.table(&keys)?;
        let groups = table.required("groups", "[\"prices\"]", groups)?;
        if !(1..=faircast_overlay::GROUPS_MAX).contains(&groups.len()) {
            let most = faircast_overlay::GROUPS_MAX;
            let message = format!("has {} groups; allowed: 1 to {most}", groups.len());
            return Err(table.problem("groups", message));
        }
        let service = table.optional("service", |value| {
            registered(value, "service", Service::ALL.iter().map(|it| (it.name(), *it)))
        })?;
        let benefit = table.optional("benefit", |value| {
            registered(value, "benefit", Benefit::EACH.iter().map(|it| (it.name(), *it)))
        })?;
        let most = faircast_overlay::MESSAGE_BYTES_MAX as u64;
        let size = table.optional("size", |value| value.quantity(MESSAGE_BYTES_MIN..=most))?;
        let rate = table.optional("rate", |value| value.quantity(1..=RATE_BITS_PER_S_MAX))?;
        let start = table.optional("start", |value| self.moment(value))?.unwrap_or(begins);
        let stop = table.optional("stop", |value| self.moment(value))?;
        Ok(SendSpec {
            groups,
            service: service.unwrap_or_default(),
            benefit,
            size: size.unwrap_or(Bytes::new(MESSAGE_BYTES)),
            rate,
            start,
            stop,
        })
    }
}
