//! `[[flow]]`: senders, receivers, data and times.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use faircast_base::{
    Bytes, Duration, FlowId, NodeId, Purpose, Rng, TREE_LEVELS_MAX, Time, TreeFault, check_heads,
};

use faircast_proto::stack::Stack;

use crate::catalog::Catalog;
use crate::error::{Problem, quoted};
use crate::limits::{
    DATA_BYTES_MAX, FLOWS_MAX, HEADER_BYTES_MAX, NAME_CHARS_MAX, PACKET_BYTES_MAX, RECEIVERS_MAX,
    SENDERS_MAX,
};
use crate::link_config::{moment, size};
use crate::model::RelaySpec;
use crate::names::{name, names};
use crate::options::{Files, options, registered};
use crate::reach::Reach;
use crate::read::Table;
use crate::topology::Topology;
use crate::value::{Kind, SettingValue};
use crate::{DaemonSpec, Data, Flow, Join, Speaks};

pub(crate) struct Flows<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) relays: &'a [RelaySpec],
    pub(crate) daemons: &'a [DaemonSpec],
    pub(crate) reach: Reach,
    pub(crate) catalog: &'a Catalog,
    pub(crate) duration: Duration,
    pub(crate) seed: u64,
    pub(crate) files: Files<'a>,
    pub(crate) flows: Vec<Flow>,
    pub(crate) names: BTreeSet<String>,
    /// Receivers of all flows so far, for the limit.
    pub(crate) receivers: usize,
}

fn stack(
    value: &SettingValue,
    what: &str,
    all: impl Iterator<Item = Stack>,
) -> Result<Stack, Problem> {
    let all: Vec<(String, Stack)> = all.map(|stack| (stack.name(), stack)).collect();
    registered(value, what, all.iter().map(|(name, stack)| (name.as_str(), *stack)))
}

impl Flows<'_> {
    pub(crate) fn flow(&mut self, entry: &SettingValue) -> Result<(), Problem> {
        let table =
            entry.table(FLOW_KEYS).map_err(|problem| self.explain_option(entry, problem))?;
        let flow_name = table.required("name", "\"mcc\"", name)?;
        let stack = table.required("protocol", "\"pgmcc\"", |value| {
            stack(value, "protocol", self.catalog.protocols.iter().copied())
        })?;
        let (options, raw_options) =
            options(&table, (&stack.name(), &stack.options()), &self.files)?;
        let from = table.required("from", "\"ms\"", |value| self.senders(value, stack))?;
        let to = table.required("to", "[\"mr1\"]", |value| self.receivers(value, &from, stack))?;
        let start = table.optional("start", |value| self.moment(value))?.unwrap_or_default();
        let stop = table.optional("stop", |value| self.stop(value, start))?;
        let joins = self.joins(&table, stack, &from, &to)?;
        let speaks = self.speaks(&table, stack, &to)?;
        let heads = self.heads(&table, stack, &from, &to)?;
        let ends: Vec<NodeId> = from.iter().chain(&to).copied().collect();
        let via = self.via(&table, stack, &ends)?;
        let count = table.optional("count", |value| value.integer(1..=FLOWS_MAX as u64))?;
        let receivers = from.len() * to.len() + joins.len();
        let copies = self.copies(&table, flow_name, count.unwrap_or(1), receivers)?;
        let several = from.len() > 1;
        let flow = Flow {
            name: String::new(),
            stack,
            from,
            to,
            packet: table
                .optional("packet", |value| size(value, PACKET_BYTES_MAX))?
                .unwrap_or(Bytes::new(PACKET_BYTES)),
            header: table.optional("header", |value| value.quantity(0..=HEADER_BYTES_MAX))?,
            start: Time::ZERO,
            stop,
            data: table
                .optional("data", |value| match data(value, self.files.folder)? {
                    Data::File(_) if several => Err(value.wrong(
                        "\"unlimited\" or a size: nobody could compare what several senders sent",
                    )),
                    data => Ok(data),
                })?
                .unwrap_or(Data::Unlimited),
            join: Vec::new(),
            speaks,
            via,
            heads,
            options,
            raw_options,
        };
        for name in copies {
            let id = FlowId(u32::try_from(self.flows.len()).expect("FLOWS_MAX fits an id"));
            // A random stream per flow: another flow does not change the times of this one.
            let mut rng = Rng::new(self.seed, NodeId(id.0), Purpose::Scenario);
            let start = start.draw(&mut rng);
            let join = joins.iter().map(|&JoinRange { node, at, leave }| {
                let at = at.draw(&mut rng);
                Join { node, at, leave }
            });
            let join = join.collect();
            self.flows.push(Flow { name, start, join, ..flow.clone() });
        }
        Ok(())
    }

    /// Explains an unknown key that is an option of the protocol, which has a table of its own.
    fn explain_option(&self, entry: &SettingValue, problem: Problem) -> Problem {
        let misplaced = || {
            let table = entry.any_table().ok()?;
            let entries = table.entries();
            let (key, value) =
                entries.iter().find(|(key, _)| !FLOW_KEYS.contains(&key.as_str()))?;
            let named =
                table.optional("protocol", |value| value.text().map(str::to_owned)).ok()??;
            let stack = self.catalog.protocols.iter().find(|stack| stack.name() == named)?;
            stack.options().iter().find(|option| option.name == key.as_str())?;
            let (name, protocol) = (quoted(key), quoted(&named));
            let message = format!(
                "{name} is an option of {protocol}; expected it among them: options = {{ {key} = … }}"
            );
            Some(value.problem(message).within(key))
        };
        misplaced().unwrap_or(problem)
    }

    fn senders(&self, value: &SettingValue, stack: Stack) -> Result<Vec<NodeId>, Problem> {
        let mut seen = BTreeSet::new();
        let from = self.topology.each_node(value, |node, name| match seen.insert(node) {
            true => Ok(node),
            false => Err(format!("{} is named twice; allowed: each sender once", quoted(name))),
        })?;
        if from.len() > SENDERS_MAX {
            return Err(value.wrong(format!("at most {SENDERS_MAX} senders")));
        }
        if !stack.transport.many_to_many && from.len() > 1 {
            let message =
                format!("names {} senders; {} takes exactly one", from.len(), stack.name());
            return Err(value.problem(message));
        }
        Ok(from)
    }

    fn receivers(
        &mut self,
        value: &SettingValue,
        from: &[NodeId],
        stack: Stack,
    ) -> Result<Vec<NodeId>, Problem> {
        let (mut to, mut seen) = (Vec::new(), BTreeSet::new());
        let names = names(value)?;
        if from.len() * names.len() > RECEIVERS_MAX {
            let most = RECEIVERS_MAX / from.len();
            return Err(value.wrong(format!("at most {most} receivers of {} senders", from.len())));
        }
        for named in &names {
            let node = self.topology.find_named(named)?;
            let problem = if from == [node] {
                "is the sender too; allowed: other nodes than from"
            } else if !seen.insert(node) {
                "is named twice; allowed: each receiver once"
            } else {
                to.push(node);
                continue;
            };
            return Err(named.problem(format!("{} {problem}", quoted(&named.name))));
        }
        for from in from {
            let sender = || quoted(&self.topology.nodes[from.index()].name);
            for (node, named) in to.iter().zip(&names) {
                let receiver = || quoted(&named.name);
                let answered = self.reach.both_ways(*from, *node);
                let problem = if !answered && !self.reach.one_way(*from, *node) {
                    format!("no path of links leads from {} to {}", sender(), receiver())
                } else if !answered && stack.transport.answers {
                    format!("no path of links leads back from {} to {}", receiver(), sender())
                } else {
                    continue;
                };
                return Err(named.problem(format!("{problem}; {PATH_RULE}")));
            }
        }
        if !stack.transport.multicast && to.len() > 1 {
            let message =
                format!("names {} receivers; {} takes exactly one", to.len(), stack.name());
            return Err(value.problem(message));
        }
        Ok(to)
    }

    fn moment(&self, value: &SettingValue) -> Result<Moment, Problem> {
        let end_ns = self.duration.as_nanos();
        if !matches!(value.kind, Kind::Table(_)) {
            return moment(value, end_ns).map(|at| Moment { first: at, last: at });
        }
        let table = value.table(&["uniform"])?;
        table.required("uniform", "[\"0 s\", \"5 s\"]", |value| {
            let ends = value.each("two moments", |_, item| moment(item, end_ns))?;
            match ends.as_slice() {
                [first, last] if first < last => Ok(Moment { first: *first, last: *last }),
                _ => Err(value.wrong("two moments, the earlier one first")),
            }
        })
    }

    fn stop(&self, value: &SettingValue, start: Moment) -> Result<Time, Problem> {
        let stop = Time::ZERO + value.duration(0..=u64::MAX)?;
        match stop > start.last {
            true => Ok(stop),
            false => Err(value.wrong(format!("a moment after the start at {}", start.last))),
        }
    }

    fn joins(
        &self,
        table: &Table<'_>,
        stack: Stack,
        from: &[NodeId],
        to: &[NodeId],
    ) -> Result<Vec<JoinRange>, Problem> {
        let members: BTreeSet<NodeId> = to.iter().copied().collect();
        let mut left: BTreeMap<NodeId, Option<Time>> = BTreeMap::new();
        let mut joins = Vec::new();
        let example = "a list such as [ { node = \"mr3\", at = \"20 s\", leave = \"40 s\" } ]";
        table.optional("join", |value| {
            if !stack.transport.multicast {
                let message = format!("is of no use to {}; allowed: multicast", stack.name());
                return Err(value.problem(message));
            }
            value.each(example, |_, entry| {
                let read = self.join(entry, from, &members, &mut left)?;
                if joins.len() + read.len() > RECEIVERS_MAX {
                    return Err(entry.wrong(format!("at most {RECEIVERS_MAX} memberships")));
                }
                joins.extend(read);
                Ok(())
            })
        })?;
        Ok(joins)
    }

    fn join(
        &self,
        entry: &SettingValue,
        from: &[NodeId],
        members: &BTreeSet<NodeId>,
        left: &mut BTreeMap<NodeId, Option<Time>>,
    ) -> Result<Vec<JoinRange>, Problem> {
        let table = entry.table(&["node", "at", "leave"])?;
        let at = table.required("at", "\"20 s\"", |value| self.moment(value))?;
        let leave = table.optional("leave", |value| {
            let leave = Time::ZERO + value.duration(0..=u64::MAX)?;
            match leave > at.last {
                true => Ok(leave),
                false => Err(value.wrong(format!("a moment after joining at {}", at.last))),
            }
        })?;
        let join = |node: NodeId, name: &str| {
            let shown = quoted(name);
            if !members.contains(&node) {
                return Err(format!("{shown} is no receiver of this flow; {MEMBER_RULE}"));
            }
            if left.get(&node).is_some_and(|end| end.is_none_or(|end| end > at.first)) {
                let rule = "allowed: to join after leaving";
                return Err(format!("{shown} is still a member then; {rule}"));
            }
            if left.contains_key(&node) && from.contains(&node) {
                // A second join would restart its sequence numbers, which look old.
                return Err(format!("{shown} is a sender of this flow; allowed: to join once"));
            }
            left.insert(node, leave);
            Ok(JoinRange { node, at, leave })
        };
        table.required("node", "\"mr3\"", |value| self.topology.each_node(value, join))
    }

    fn heads(
        &self,
        table: &Table<'_>,
        stack: Stack,
        from: &[NodeId],
        to: &[NodeId],
    ) -> Result<BTreeMap<NodeId, NodeId>, Problem> {
        let members: BTreeSet<NodeId> = to.iter().copied().collect();
        let mut heads = BTreeMap::new();
        let example = "a list such as [ { node = \"mr{1..5}\", head = \"mr6\" } ]";
        table.optional("heads", |value| {
            if !stack.has_heads() {
                let with = self.catalog.protocols.iter().filter(|stack| stack.has_heads());
                let with: Vec<String> = with.map(Stack::name).collect();
                let (name, with) = (stack.name(), with.join(", "));
                let message =
                    format!("is of no use to {name}, which has no repair heads; {with} has");
                return Err(value.problem(message));
            }
            value.each(example, |_, entry| {
                let table = entry.table(&["node", "head"])?;
                let is_head = |node: NodeId, name: &str| match members.contains(&node) {
                    false if !from.contains(&node) => {
                        let rule = "allowed: a receiver of this flow or its sender";
                        Err(format!("{} cannot be a head; {rule}", quoted(name)))
                    }
                    _ => Ok(node),
                };
                let head = table.required("head", "\"mr6\"", |value| {
                    match self.topology.each_node(value, is_head)?[..] {
                        [head] => Ok(head),
                        _ => Err(value.wrong("one node")),
                    }
                })?;
                let member = |node: NodeId, name: &str| {
                    let shown = quoted(name);
                    if !members.contains(&node) {
                        return Err(format!("{shown} is no receiver of this flow; {MEMBER_RULE}"));
                    }
                    if heads.insert(node, head).is_some() {
                        return Err(format!("{shown} has two heads; allowed: one"));
                    }
                    check_heads(&heads, &node).map_err(|fault| match fault {
                        TreeFault::Cycle(_) => format!(
                            "{shown} is its own head, itself or through others; expected a tree \
                             with the sender at its top"
                        ),
                        TreeFault::Deep => {
                            format!("{shown} has {TREE_LEVELS_MAX} heads above it; allowed: fewer")
                        }
                    })
                };
                table.required("node", "\"mr{1..5}\"", |value| {
                    self.topology.each_node(value, member)
                })
            })
        })?;
        Ok(heads)
    }

    fn speaks(
        &self,
        table: &Table<'_>,
        stack: Stack,
        to: &[NodeId],
    ) -> Result<Vec<Speaks>, Problem> {
        let all = || self.catalog.protocols.iter().filter(|it| it.is_reliable_multicast());
        let mut speaks: Vec<Speaks> = Vec::new();
        let example = "a list such as [ { node = \"mr3\", protocol = \"NAME\" } ]";
        table.optional("speaks", |value| {
            if !stack.is_reliable_multicast() {
                let message = format!("is of no use to {}; allowed: schemes", stack.name());
                return Err(value.problem(message));
            }
            value.each(example, |_, entry| {
                let table = entry.table(&["node", "protocol"])?;
                let spoken = table.required("protocol", "\"NAME\"", |value| {
                    self::stack(value, "scheme", all().copied())
                })?;
                let speaker = |node: NodeId, name: &str| {
                    let shown = quoted(name);
                    if !to.contains(&node) {
                        return Err(format!("{shown} is no receiver of this flow; {MEMBER_RULE}"));
                    }
                    if speaks.iter().any(|speaks| speaks.node == node) {
                        return Err(format!("{shown} is named twice; allowed: each receiver once"));
                    }
                    speaks.push(Speaks { node, stack: spoken });
                    Ok(())
                };
                table.required("node", "\"mr3\"", |value| self.topology.each_node(value, speaker))
            })
        })?;
        Ok(speaks)
    }

    fn copies(
        &mut self,
        table: &Table<'_>,
        name: &str,
        count: u64,
        receivers: usize,
    ) -> Result<Vec<String>, Problem> {
        let count = usize::try_from(count).expect("FLOWS_MAX fits");
        if self.flows.len() + count > FLOWS_MAX {
            let message = format!("makes more flows than allowed; at most {FLOWS_MAX} in all");
            return Err(table.problem("count", message));
        }
        self.receivers = self.receivers.saturating_add(count.saturating_mul(receivers));
        if self.receivers > RECEIVERS_MAX {
            let message = format!(
                "brings the receivers of all flows to {}; allowed: at most {RECEIVERS_MAX}",
                self.receivers
            );
            return Err(table.problem("count", message));
        }
        let copies: Vec<String> = match count {
            1 => vec![name.to_string()],
            _ => (1..=count).map(|i| format!("{name}-{i}")).collect(),
        };
        for copy in &copies {
            let problem = if copy.len() > NAME_CHARS_MAX {
                format!("{} is too long; at most {NAME_CHARS_MAX} characters", quoted(copy))
            } else if !self.names.insert(copy.clone()) {
                format!("{} is the name of an earlier flow; allowed: one of its own", quoted(copy))
            } else {
                continue;
            };
            return Err(table.problem("name", problem));
        }
        Ok(copies)
    }
}

#[derive(Clone, Copy, Default)]
struct Moment {
    first: Time,
    last: Time,
}

impl Moment {
    fn draw(self, rng: &mut Rng) -> Time {
        match self.last.since(self.first).as_nanos() {
            0 => self.first,
            width => self.first + Duration::from_nanos(rng.below(width)),
        }
    }
}

#[derive(Clone, Copy)]
struct JoinRange {
    node: NodeId,
    at: Moment,
    leave: Option<Time>,
}

fn data(value: &SettingValue, folder: &Path) -> Result<Data, Problem> {
    match &value.kind {
        Kind::Text(text) if text == "unlimited" => Ok(Data::Unlimited),
        Kind::Table(_) => {
            let table = value.table(&["file"])?;
            table.required("file", "\"data.bin\"", |value| file(value, folder)).map(Data::File)
        }
        Kind::Text(text) if !text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            Err(value.wrong("\"unlimited\", a size such as \"30 MB\", or { file = \"PATH\" }"))
        }
        _ => size(value, DATA_BYTES_MAX).map(Data::Size),
    }
}

fn file(value: &SettingValue, folder: &Path) -> Result<std::path::PathBuf, Problem> {
    let path = folder.join(value.text()?);
    let found = std::fs::metadata(&path);
    let problem = match &found {
        Err(error) => format!("cannot be read: {error}"),
        Ok(found) if !found.is_file() => "is not a file".to_string(),
        Ok(found) if found.len() == 0 => "is an empty file".to_string(),
        Ok(_) => return Ok(path),
    };
    let message = format!(
        "is {}, which {problem}; expected a file with data, its path relative to the scenario",
        value.shown()
    );
    Err(value.problem(message))
}

const FLOW_KEYS: &[&str] = &[
    "name", "protocol", "from", "to", "packet", "header", "start", "stop", "data", "count", "join",
    "speaks", "via", "heads", "options",
];
const MEMBER_RULE: &str = "allowed: nodes listed in to";
const PATH_RULE: &str = "expected nodes that links connect";
/// Default payload of a packet, as in the papers' simulations.
const PACKET_BYTES: u64 = 1400;
