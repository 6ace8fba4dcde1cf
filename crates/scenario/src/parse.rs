//! Check of settings: from a tree of values to a scenario.

use std::path::Path;

use faircast_base::{Duration, fresh};

use crate::catalog::Catalog;
use crate::daemons::Daemons;
use crate::draft::Draft;
use crate::error::Problem;
use crate::flows::Flows;
use crate::limits::{DURATION_NS_MAX, TITLE_CHARS_MAX};
use crate::options::Files;
use crate::overrides::Overrides;
use crate::reach::Reach;
use crate::read::Table;
use crate::relays::{Relays, faults};
use crate::topology::Topology;
use crate::value::{Kind, SettingValue};
use crate::{DaemonSpec, NodeFault, Scenario, ScenarioError};

impl Scenario {
    /// Reads and checks the file `path`, with the changes of the command line.
    ///
    /// # Errors
    /// The file cannot be read, or the first mistake.
    pub fn load(
        path: &Path,
        overrides: &Overrides,
        catalog: &Catalog,
    ) -> Result<Self, ScenarioError> {
        Draft::load(path)?.check_with(overrides, catalog)
    }

    /// Checks `text`, the content of `file`; relative paths start at the folder of `file`.
    ///
    /// # Errors
    /// The first mistake: its place, what is wrong and what is allowed.
    pub fn parse(
        file: &Path,
        text: &str,
        overrides: &Overrides,
        catalog: &Catalog,
    ) -> Result<Self, ScenarioError> {
        Draft::read(file, text)?.check_with(overrides, catalog)
    }
}

fn overlay(
    table: &Table<'_>,
    mut daemons: Daemons<'_>,
    files: &Files<'_>,
) -> Result<Vec<DaemonSpec>, Problem> {
    entries(table, "daemon", |entry| daemons.daemon(entry, files))?;
    entries(table, "daemon", |entry| daemons.peers(entry))?;
    entries(table, "client", |entry| daemons.client(entry))?;
    Ok(daemons.daemons)
}

/// Bytes of a packet between daemons, for queues that count packets.
const DAEMON_PACKET_BYTES: u64 = 1452;

pub(crate) fn scenario(
    root: &SettingValue,
    file: &Path,
    overrides: &Overrides,
    catalog: &Catalog,
) -> Result<Scenario, Problem> {
    let table = root.table(&[
        "title", "duration", "warmup", "seed", "link", "node", "relay", "daemon", "client", "flow",
        "fault",
    ])?;
    let stem =
        || file.file_stem().map_or(String::new(), |stem| stem.to_string_lossy().into_owned());
    let title = table.optional("title", title)?.unwrap_or_else(stem);
    let duration =
        table.required("duration", "\"300 s\"", |value| value.duration(1..=DURATION_NS_MAX))?;
    let warmup = table.optional("warmup", |value| warmup(value, duration))?;
    let seed = table.optional("seed", |value| value.integer(0..=i64::MAX as u64))?;
    let seed = overrides.seed.or(seed).unwrap_or(1);

    let files = Files {
        folder: file.parent().unwrap_or(Path::new("")),
        runs_programs: catalog.runs_sessions_programs,
    };
    let mut topology = Topology::default();
    require(&table, "link")?;
    entries(&table, "link", |entry| topology.link(entry, duration.as_nanos()))?;
    entries(&table, "node", |entry| topology.node(entry, catalog, &files))?;
    let reach = Reach::new(topology.nodes.len(), &topology.links);
    let mut relays = Relays { topology: &topology, reach: &reach, relays: Vec::new() };
    entries(&table, "relay", |entry| relays.relay(entry, catalog, &files))?;
    entries(&table, "relay", |entry| relays.parents(entry))?;
    let relays = relays.relays;
    if table.has("daemon") && catalog.relay_node.is_none() {
        let message = "is of no use: this faircast was built without daemons";
        return Err(table.problem("daemon", message));
    }
    let daemons = Daemons::new(&topology, &relays, duration);
    let daemons = overlay(&table, daemons, &files)?;
    let mut flows = fresh! {
        Flows {
            topology: &topology,
            relays: &relays,
            daemons: &daemons,
            reach,
            catalog,
            duration,
            seed,
            files,
        }
        flows, names, receivers
    };
    if daemons.is_empty() {
        require(&table, "flow")?;
    }
    entries(&table, "flow", |entry| flows.flow(entry))?;
    let mut suffered = Vec::new();
    entries(&table, "fault", |entry| {
        suffered.extend(faults(entry, &flows, duration)?);
        Ok(())
    })?;
    suffered.sort_by_key(|fault: &NodeFault| fault.at);
    let flows = flows.flows;
    let largest = flows.iter().map(|flow| flow.packet.count()).max();
    let largest = largest.unwrap_or(DAEMON_PACKET_BYTES);
    topology.fill_in_packet_size(u32::try_from(largest).expect("PACKET_BYTES_MAX fits"));
    Ok(Scenario {
        file: file.to_owned(),
        text: String::new(),
        title,
        duration,
        warmup: warmup.unwrap_or(Duration::ZERO),
        seed,
        nodes: topology.nodes,
        links: topology.links,
        flows,
        relays,
        daemons,
        faults: suffered,
    })
}

fn title(value: &SettingValue) -> Result<String, Problem> {
    let text = value.text()?.trim();
    match text.chars().count() {
        1..=TITLE_CHARS_MAX if !text.contains(faircast_base::is_format) => Ok(text.to_string()),
        _ => Err(value.wrong(format!("one line of 1 to {TITLE_CHARS_MAX} printed characters"))),
    }
}

fn warmup(value: &SettingValue, duration: Duration) -> Result<Duration, Problem> {
    match value.duration(0..=u64::MAX)? {
        warmup if warmup < duration => Ok(warmup),
        _ => Err(value.wrong(format!("less than the duration of {duration}"))),
    }
}

fn missing(key: &str) -> String {
    format!("is missing; expected one or more entries that begin with [[{key}]]")
}

fn require(table: &Table<'_>, key: &str) -> Result<(), Problem> {
    if table.has(key) { Ok(()) } else { Err(table.problem(key, missing(key))) }
}

fn entries(
    table: &Table<'_>,
    key: &str,
    mut read: impl FnMut(&SettingValue) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let what = format!("entries that each begin with [[{key}]]");
    table.optional(key, |value| match &value.kind {
        Kind::List(items) if items.is_empty() => Err(value.problem(missing(key))),
        _ => value.each(&what, |_, entry| read(entry)),
    })?;
    Ok(())
}
