//! `[[link]]` and `[[node]]`: nodes and the links between them.

use std::collections::BTreeMap;

use faircast_base::NodeId;
use faircast_link::{LinkConfig, QueueConfig};
use faircast_proto::options::did_you_mean;

use crate::catalog::Catalog;
use crate::error::{Place, Problem, quoted};
use crate::limits::{CHANGES_MAX, LINKS_MAX, NAME_CHARS_MAX, NODES_MAX, TREE_LEVELS_MAX};
use crate::link_config::{self, CONFIG_KEYS};
use crate::names::{Named, name, names, range_meant};
use crate::options::{Files, options, registered};
use crate::read::Table;
use crate::value::SettingValue;
use crate::{LinkSpec, Node, Program};

#[derive(Default)]
pub(crate) struct Topology {
    pub(crate) nodes: Vec<Node>,
    pub(crate) links: Vec<LinkSpec>,
    ids: BTreeMap<String, NodeId>,
    /// Directions that have a link, with the place in the text.
    directions: BTreeMap<(NodeId, NodeId), Place>,
    changes: usize,
}

impl Topology {
    pub(crate) fn link(&mut self, entry: &SettingValue, duration_ns: u64) -> Result<(), Problem> {
        let keys: Vec<&str> = FORM_KEYS.iter().chain(CONFIG_KEYS).copied().collect();
        let table = entry.table(&keys)?;
        let config = link_config::read(&table, duration_ns)?;
        let mut forms: Vec<&str> = FORM_KEYS.iter().copied().filter(|key| table.has(key)).collect();
        forms.retain(|form| *form != "to" || !table.has("from"));
        let form = match forms.as_slice() {
            [form] => *form,
            [] => return Err(entry.problem(format!("has no ends; {FORM_RULE}"))),
            [one, another, ..] => {
                let message = format!("stands beside {one}; {FORM_RULE}");
                return Err(table.problem(another, message));
            }
        };
        match form {
            "between" => table.required(form, "", |value| self.between(value, &config))?,
            "star" => table.required(form, "", |value| self.star(value, &config))?,
            "tree" => table.required(form, "", |value| self.tree(value, &config))?,
            _ => self.one_direction(&table, &config)?,
        }
        Ok(())
    }

    pub(crate) fn node(
        &mut self,
        entry: &SettingValue,
        catalog: &Catalog,
        files: &Files<'_>,
    ) -> Result<(), Problem> {
        let table = entry.table(&["name", "program", "options"])?;
        let program = table.required("program", "\"pgm-element\"", |value| {
            let programs = catalog.programs.iter().map(|entry| (entry.name, entry));
            registered(value, "router program", programs)
        })?;
        let (options, _) = options(&table, (program.name, program.options), files)?;
        table.required("name", "\"r1\"", |value| {
            for named in names(value)? {
                let id = self.find_named(&named)?;
                let node = &mut self.nodes[id.index()];
                if node.program.is_some() {
                    let message = format!(
                        "{} is already given by another [[node]]; allowed: one entry for each node",
                        quoted(&node.name)
                    );
                    return Err(named.problem(message));
                }
                let name = program.name.to_string();
                node.program = Some(Program { name, options: options.clone() });
            }
            Ok(())
        })
    }

    fn find(&self, value: &SettingValue, name: &str) -> Result<NodeId, Problem> {
        self.ids.get(name).copied().ok_or_else(|| {
            let known = |name: &str| self.ids.contains_key(name);
            let hint = match range_meant(name) {
                Some((range, [first, last])) if known(&first) && known(&last) => {
                    format!(" (did you mean \"{range}\"?)")
                }
                _ => did_you_mean(name, self.ids.keys().map(String::as_str)),
            };
            let message = format!(
                "there is no node {}{hint}; allowed: a node that a link names",
                quoted(name)
            );
            value.problem(message)
        })
    }

    pub(crate) fn find_named(&self, named: &Named<'_>) -> Result<NodeId, Problem> {
        self.find(named.value, &named.name).map_err(|problem| named.blamed(problem))
    }

    /// Reads names of nodes. `read` returns a value or a mistake for each node and its name.
    pub(crate) fn each_node<T>(
        &self,
        value: &SettingValue,
        mut read: impl FnMut(NodeId, &str) -> Result<T, String>,
    ) -> Result<Vec<T>, Problem> {
        let read = |named: Named<'_>| {
            let node = self.find_named(&named)?;
            read(node, &named.name).map_err(|message| named.problem(message))
        };
        names(value)?.into_iter().map(read).collect()
    }

    fn between(&mut self, value: &SettingValue, config: &LinkConfig) -> Result<(), Problem> {
        let ends = names(value)?;
        let [a, b] = ends.as_slice() else {
            return Err(value.wrong("exactly two nodes such as [\"r1\", \"r2\"]"));
        };
        let (a, b) = (self.named(value, &a.name)?, self.named(value, &b.name)?);
        self.both_directions(value, a, b, config)
    }

    fn one_direction(&mut self, table: &Table<'_>, config: &LinkConfig) -> Result<(), Problem> {
        let from = table.required("from", "\"r1\"", |value| self.named(value, name(value)?))?;
        table.required("to", "\"r2\"", |value| {
            let to = self.named(value, name(value)?)?;
            self.direction(value, from, to, config)
        })
    }

    fn star(&mut self, value: &SettingValue, config: &LinkConfig) -> Result<(), Problem> {
        let table = value.table(&["center", "leaves"])?;
        let center = table.required("center", "\"r1\"", |value| self.named(value, name(value)?))?;
        table.required("leaves", "[\"s1\", \"s2\"]", |value| {
            for leaf in names(value)? {
                self.named(leaf.value, &leaf.name)
                    .and_then(|id| self.both_directions(leaf.value, center, id, config))
                    .map_err(|problem| leaf.blamed(problem))?;
            }
            Ok(())
        })
    }

    /// Creates a tree whose level k has the nodes `PREFIXk-1`, `PREFIXk-2` and so on.
    fn tree(&mut self, value: &SettingValue, config: &LinkConfig) -> Result<(), Problem> {
        let table = value.table(&["root", "fanout", "prefix"])?;
        let root = table.required("root", "\"s\"", |value| self.named(value, name(value)?))?;
        let prefix = table.required("prefix", "\"n\"", |value| match name(value)? {
            text if text.len() + TREE_SUFFIX_CHARS_MAX <= NAME_CHARS_MAX => Ok(text),
            _ => Err(value.wrong("a prefix of at most 48 characters")),
        })?;
        table.required("fanout", "[10, 10, 10]", |value| {
            let fanouts = value
                .each("a list of whole numbers", |_, item| item.integer(1..=NODES_MAX as u64))?;
            if fanouts.is_empty() || fanouts.len() > TREE_LEVELS_MAX {
                return Err(
                    value.wrong(format!("1 to {TREE_LEVELS_MAX} numbers, one for each level"))
                );
            }
            let mut parents = vec![root];
            for (level, fanout) in (1..).zip(fanouts) {
                let mut children = Vec::new();
                for parent in &parents {
                    for _ in 0..fanout {
                        let child = format!("{prefix}{level}-{}", children.len() + 1);
                        if self.ids.contains_key(&child) {
                            let message = format!(
                                "would make a second node {}; allowed: names that no earlier \
                                 link uses",
                                quoted(&child)
                            );
                            return Err(value.problem(message));
                        }
                        let child = self.named(value, &child)?;
                        self.both_directions(value, *parent, child, config)?;
                        children.push(child);
                    }
                }
                parents = children;
            }
            Ok(())
        })
    }

    fn named(&mut self, value: &SettingValue, name: &str) -> Result<NodeId, Problem> {
        if let Some(id) = self.ids.get(name) {
            return Ok(*id);
        }
        if self.nodes.len() == NODES_MAX {
            let message = format!("makes more nodes than allowed; at most {NODES_MAX}");
            return Err(value.problem(message));
        }
        let id = NodeId(u32::try_from(self.nodes.len()).expect("NODES_MAX fits an id"));
        self.nodes.push(Node { name: name.to_string(), program: None });
        self.ids.insert(name.to_string(), id);
        Ok(id)
    }

    fn both_directions(
        &mut self,
        value: &SettingValue,
        a: NodeId,
        b: NodeId,
        config: &LinkConfig,
    ) -> Result<(), Problem> {
        self.direction(value, a, b, config)?;
        self.direction(value, b, a, config)
    }

    fn direction(
        &mut self,
        value: &SettingValue,
        from: NodeId,
        to: NodeId,
        config: &LinkConfig,
    ) -> Result<(), Problem> {
        let [a, b] = [from, to].map(|id| quoted(&self.nodes[id.index()].name));
        if from == to {
            let message = format!("links {a} to itself; a link needs two different nodes");
            return Err(value.problem(message));
        }
        if self.links.len() == LINKS_MAX {
            let message = format!("makes more links than allowed; at most {LINKS_MAX} directions");
            return Err(value.problem(message));
        }
        // Checked before the copy below: many leaves with many changes must not exhaust memory.
        self.changes += config.changes.len() + config.drop_list.len() + config.faults.outages.len();
        if self.changes > CHANGES_MAX {
            let message = format!(
                "makes more changes, outages and listed drops than allowed; at most {CHANGES_MAX} \
                 over all directions of all links"
            );
            return Err(value.problem(message));
        }
        if let Some(earlier) = self.directions.insert((from, to), value.place) {
            let whence = match earlier {
                Place::Line(line) => format!("line {line}"),
                Place::Set(_) => "--set".to_string(),
                Place::Code => "an earlier entry".to_string(),
            };
            let message = format!(
                "is a second link from {a} to {b}, after that of {whence}; allowed: one in each \
                 direction"
            );
            return Err(value.problem(message));
        }
        self.links.push(LinkSpec { from, to, config: config.clone() });
        Ok(())
    }

    pub(crate) fn fill_in_packet_size(&mut self, packet_bytes: u32) {
        for link in &mut self.links {
            if let QueueConfig::Red(red) = &mut link.config.queue
                && red.mean_packet_bytes == 0
            {
                red.mean_packet_bytes = packet_bytes;
            }
        }
    }
}

const FORM_KEYS: &[&str] = &["between", "from", "to", "star", "tree"];
const FORM_RULE: &str = "allowed: exactly one of between = [\"a\", \"b\"], from and to, \
     star = { center = \"a\", leaves = [\"b\"] }, \
     tree = { root = \"a\", fanout = [2, 2], prefix = \"n\" }";
/// Most characters that a tree adds to its prefix: a level, a dash and a number.
const TREE_SUFFIX_CHARS_MAX: usize = 16;
