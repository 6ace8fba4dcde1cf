//! Round of faults with daemons of the overlay and their clients, judged by the checker.

mod clients;
pub(super) mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use faircast_base::NodeId;
use faircast_checker::{Trace, check};
use faircast_lab::Field;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use self::clients::{GROUPS, Notes, OBSERVERS, Phase, Program as Clients, TALKERS, World};
use self::plan::{DAEMONS, EDGES, PROGRAMS, Plan, name};
use super::program::Program;
use super::result::RoundResult;
use super::round::{FAREWELL_MAX, TICK};
use super::{Fault, NAMES, Request, distinct, make_field, write_names};
use crate::Error;
use crate::files::{make_folder, write};
use crate::host::{http_get, make_key, make_relay_key, text, wait_until};
use crate::lab::refused;
use crate::monitor::Monitor;

pub(super) const HEADING: &str = "5 daemons, 200 clients, 50 groups";
const PORT: u16 = 4804;
const STATUS: &str = "127.0.0.1:9480";
/// Longest time to one view and for each later step, without and with waits for a processor.
const SETTLE_MAX: Duration = Duration::from_secs(60);
const BUSY_SETTLE_MAX: Duration = Duration::from_secs(240);
pub(super) const MEMORY_MAX: u64 = 200 << 20;
/// Limit of queued bytes for a client, low enough that slow clients are cut off.
const CLIENT_BYTES: u32 = 256 << 10;
const SHOWN_MAX: usize = 10;

pub(super) fn run(
    seed: u64,
    folder: &Path,
    request: &Request,
    monitor: &dyn Monitor,
) -> Result<(Vec<Fault>, RoundResult), Error> {
    let plan = Plan::new(seed, request.duration, &request.only);
    let result = Round::new(&plan, seed, folder, request, monitor)?.run()?;
    let faults: Vec<Fault> = plan.trials.iter().map(|trial| trial.fault).collect();
    Ok((distinct(&faults), result))
}

struct Round<'a> {
    plan: &'a Plan,
    monitor: &'a dyn Monitor,
    folder: &'a Path,
    world: Arc<World>,
    clients: BTreeMap<usize, Clients>,
    daemons: Vec<Program>,
    /// Declared after the programs, which must end first.
    field: Field,
    /// Short paths for sockets, independent of the requested folder.
    _sockets: tempfile::TempDir,
    result: RoundResult,
}

impl<'a> Round<'a> {
    fn new(
        plan: &'a Plan,
        seed: u64,
        folder: &'a Path,
        request: &Request,
        monitor: &'a dyn Monitor,
    ) -> Result<Self, Error> {
        let traces = folder.join("traces");
        make_folder(&traces)?;
        let sockets = tempfile::tempdir().map_err(|error| Error::doing("make a folder", error))?;
        make_key(&folder.join("group.key"))?;
        make_relay_key(&folder.join("group.key"), &folder.join("overlay.key"))?;
        let mut daemons = Vec::new();
        for daemon in 0..DAEMONS {
            let own = name(daemon);
            let peers = EDGES.iter().filter(|(from, _)| *from == daemon);
            let peers: Vec<_> = peers.map(|it| format!("\"{}:{PORT}\"", name(it.1))).collect();
            let config = format!(
                "name = \"{own}\"\nlisten = \"0.0.0.0:{PORT}\"\npeers = [{}]\n\
                 key = \"overlay.key\"\nclients = [\"unix:{}\"]\nstatus = \"{STATUS}\"\n\
                 client_bytes = {CLIENT_BYTES}\n",
                peers.join(", "),
                sockets.path().join(&own).display()
            );
            write(&folder.join(format!("{own}.toml")), config)?;
            let (log, names) = (folder.join(format!("{own}.log")), folder.join(NAMES));
            let node = NodeId(daemon as u32);
            daemons.push(Program::new(&request.own, node, log, false, Some(names)));
        }
        let round = Self {
            plan,
            monitor,
            folder,
            world: Arc::new(World {
                seed,
                sockets: sockets.path().to_owned(),
                traces,
                notes: Mutex::default(),
            }),
            clients: BTreeMap::new(),
            daemons,
            field: make_field(folder, &plan.scenario)?,
            _sockets: sockets,
            result: RoundResult::default(),
        };
        round.write_names()?;
        Ok(round)
    }

    fn run(mut self) -> Result<RoundResult, Error> {
        let begin = Instant::now();
        (0..DAEMONS).try_for_each(|daemon| self.start(daemon))?;
        (0..DAEMONS * PROGRAMS).try_for_each(|program| self.start_clients(program))?;
        let begins = self.plan.trials.iter().map(|trial| (trial.from, true, trial));
        let ends = self.plan.trials.iter().map(|trial| (trial.to, false, trial));
        let mut acts: Vec<_> = begins.chain(ends).collect();
        acts.sort_by_key(|(at, ..)| *at);
        let mut acts = acts.into_iter().peekable();
        while acts.peek().is_some() {
            if self.monitor.is_to_stop() {
                return Err(Error::Interrupted("the round is not finished"));
            }
            while let Some((_, begins, trial)) = acts.next_if(|(at, ..)| *at <= begin.elapsed()) {
                self.act(trial.fault, trial.at, begins)?;
            }
            self.look_after()?;
            std::thread::sleep(TICK);
        }
        self.settle()?;
        self.result.seconds = begin.elapsed().as_secs_f64();
        self.end()
    }

    fn act(&mut self, fault: Fault, at: usize, begins: bool) -> Result<(), Error> {
        let (daemon, program) = (at % DAEMONS, at.wrapping_sub(DAEMONS));
        let Self { daemons, clients, result, .. } = self;
        let counts = &mut result.faults;
        match (fault, begins) {
            (Fault::KillDaemon, true) => {
                daemons[daemon].kill();
                counts.kills += 1;
            }
            (Fault::KillDaemon, false) => self.start(daemon)?,
            (Fault::StopDaemon, true) => {
                daemons[daemon].signal(Signal::SIGSTOP);
                counts.stops += 1;
            }
            (Fault::StopDaemon, false) => daemons[daemon].signal(Signal::SIGCONT),
            (Fault::Address, true) => {
                counts.moves += 1;
                let moved = self.field.switch_address(NodeId(daemon as u32));
                moved.map_err(|error| Error::doing("move a daemon", error))?;
                self.write_names()?;
            }
            (Fault::KillClients, true) => {
                clients.remove(&program);
                counts.kills += 1;
            }
            (Fault::KillClients, false) => self.start_clients(program)?,
            (Fault::StopClients, true) => {
                clients[&program].pause(Duration::from_secs(5));
                counts.stops += 1;
            }
            _ => {}
        }
        Ok(())
    }

    fn start_clients(&mut self, program: usize) -> Result<(), Error> {
        let clients = Clients::start(&self.world, program);
        self.clients
            .insert(program, clients.map_err(|error| Error::doing("start clients", error))?);
        Ok(())
    }

    fn start(&mut self, daemon: usize) -> Result<(), Error> {
        let config = text(&self.folder.join(format!("{}.toml", name(daemon))));
        let arguments = ["node".to_string(), "--config".into(), config];
        let started = self.daemons[daemon].start(&self.field, &arguments, false);
        started.map_err(|error| Error::doing("start a daemon", error))
    }

    fn look_after(&mut self) -> Result<(), Error> {
        for daemon in 0..DAEMONS {
            if let Some(status) = self.daemons[daemon].ended() {
                let problem = format!("{} ended by itself with status {status}", name(daemon));
                self.result.problems.push(problem);
                self.start(daemon)?;
            }
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Error> {
        let begin = Instant::now();
        let world = self.world.clone();
        let is_one = |states: &[Value]| {
            let view = &states[0]["view"];
            let whole = |it: &Value| it["members"].as_array().is_some_and(|it| it.len() == DAEMONS);
            let agrees = |it: &Value| it["view"] == *view && it["settled"] == true && whole(it);
            states.iter().all(agrees)
        };
        if !self.wait("one view of all daemons", |round| is_one(&round.states()))? {
            return Ok(());
        }
        let seconds = begin.elapsed().as_secs_f64();
        self.result.notes.push(format!("one view {seconds:.1} s after the last fault"));
        world.notes().phase = Phase::Healed;
        self.wait("a message to each client", |_| world.notes().served.len() == TALKERS)?;
        world.notes().phase = Phase::Quiet;
        self.start_clients(OBSERVERS)?;
        let observers: Vec<_> =
            (TALKERS..TALKERS + DAEMONS).map(|number| format!("c{number}@")).collect();
        let has_observers = |members: &BTreeSet<String>| {
            observers.iter().all(|name| members.iter().any(|it| it.starts_with(name)))
        };
        let has_all = |table: &BTreeMap<String, BTreeSet<String>>| {
            table.len() == GROUPS && table.values().all(has_observers)
        };
        self.wait("tables of all groups", |_| world.notes().tables.iter().all(has_all))?;
        let all = TALKERS + DAEMONS;
        self.wait("answers to all requests", |_| world.notes().flushed == all)?;
        let answered = || world.notes().unanswered.values().all(BTreeSet::is_empty);
        self.wait("receipts of all messages that asked for one", |_| answered())?;
        self.wait("empty queues", |round| {
            let states = round.states();
            is_one(&states) && states.iter().all(|state| queued(state) == 0)
        })?;
        self.write_quiet(&self.states())
    }

    fn wait(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) -> Result<bool, Error> {
        let begin = Instant::now();
        let before: Vec<_> = self.daemons.iter().map(Program::starved).collect();
        let mut came = false;
        wait_until(begin + BUSY_SETTLE_MAX, self.monitor, || {
            let starved = self.daemons.iter().zip(&before);
            let starved = starved.map(|(it, before)| it.starved().saturating_sub(*before)).max();
            came = is_so(self);
            came || begin.elapsed() > SETTLE_MAX + starved.unwrap_or_default()
        })?;
        self.look_after()?;
        if !came {
            let states = self.states();
            let lines: Vec<String> = states.iter().map(Value::to_string).collect();
            write(&self.folder.join("states.jsonl"), lines.join("\n"))?;
            let seconds = begin.elapsed().as_secs();
            let problem = format!("no {what} within {seconds} s; states.jsonl has the states");
            self.result.problems.push(problem);
            let in_short = |(daemon, state): (usize, &Value)| {
                let links = state["neighbors"].as_array().into_iter().flatten();
                let links: Vec<_> = links.filter_map(|it| it["daemon"].as_str()).collect();
                format!(
                    "{}: {}view {}, settled {}, links {links:?}, {} bytes wait",
                    name(daemon),
                    state["error"].as_str().map_or(String::new(), |error| format!("{error}; ")),
                    state["view"],
                    state["settled"],
                    queued(state)
                )
            };
            self.result.problems.extend(states.iter().enumerate().map(in_short));
        }
        Ok(came)
    }

    fn states(&self) -> Vec<Value> {
        let states = (0..DAEMONS).map(|daemon| {
            let answer = self.field.on(NodeId(daemon as u32), status);
            answer.and_then(|it| it).unwrap_or_else(|error| json!({ "error": error.to_string() }))
        });
        states.collect()
    }

    /// Writes a `quiet` line for each client: its daemon's state, and its observer's group tables.
    fn write_quiet(&mut self, states: &[Value]) -> Result<(), Error> {
        let mut starts = Vec::new();
        for number in 0..TALKERS + DAEMONS {
            let path = self.world.traces.join(format!("c{number}.jsonl"));
            let file = File::open(&path).map_err(|error| Error::read(&path, error))?;
            let lines = BufReader::new(file).lines().map_while(Result::ok);
            let last = lines.filter(|line| line.contains("\"event\":\"start\"")).last();
            let start = last.and_then(|line| serde_json::from_str::<Value>(&line).ok());
            starts.extend(start.map(|start| (number, start)));
        }
        let runs: BTreeSet<&str> =
            starts.iter().filter_map(|(_, start)| start["daemon"].as_str()).collect();
        let notes = self.world.notes();
        let mut lines = String::new();
        for (number, start) in &starts {
            let daemon = number.checked_sub(TALKERS).unwrap_or(number * DAEMONS / TALKERS);
            let state = &states[daemon];
            let line = json!({
                "process": start["process"], "incarnation": start["incarnation"], "event": "quiet",
                "view": state["view"], "pending": 0, "queues": queued(state),
                "groups": notes.tables[daemon], "connected": runs,
            });
            let _ = writeln!(lines, "{line}");
        }
        let counts = |state: &Value| -> BTreeMap<String, u64> {
            let groups = state["groups"].as_array().into_iter().flatten();
            let count = |it: &Value| Some((it["name"].as_str()?.into(), it["members"].as_u64()?));
            groups.filter_map(count).collect()
        };
        for (daemon, table) in notes.tables.iter().enumerate() {
            let seen = table.iter().map(|(group, members)| (group.clone(), members.len() as u64));
            if counts(&states[daemon]) != seen.collect() {
                let problem = format!("{} counts other members than its clients", name(daemon));
                self.result.problems.push(problem);
            }
        }
        drop(notes);
        write(&self.world.traces.join("quiet.jsonl"), lines)
    }

    fn end(mut self) -> Result<RoundResult, Error> {
        self.clients.clear();
        self.look_after()?;
        self.daemons.iter().for_each(|it| it.signal(Signal::SIGINT));
        for (daemon, program) in self.daemons.iter_mut().enumerate() {
            let (name, status) = (name(daemon), program.await_end(FAREWELL_MAX));
            let result = &mut self.result;
            if status != Some(0) {
                result.problems.push(format!("{name} ends with {status:?} when asked to end"));
            }
            result.end_program(&name, program, MEMORY_MAX);
        }
        let Self { field, mut result, world, .. } = self;
        result.packets = field.finish().map_err(refused)?;
        let notes = std::mem::take(&mut *world.notes());
        let Notes { messages, bytes, problems, receipts, refusals, .. } = notes;
        (result.messages, result.bytes) = (messages, bytes / TALKERS as u64);
        result.problems.extend(problems);
        let line = format!("{receipts} receipts, {refusals} messages refused as of a view before");
        result.notes.push(line);
        judge(&world.traces, &mut result)?;
        Ok(result)
    }

    fn write_names(&self) -> Result<(), Error> {
        let daemons = (0..DAEMONS).map(|daemon| (NodeId(daemon as u32), name(daemon)));
        write_names(self.folder, &self.field, daemons)
    }
}

fn queued(state: &Value) -> u64 {
    let sum = |list: &str| {
        let all = state[list].as_array().into_iter().flatten();
        all.filter_map(|it| it["queued_bytes"].as_u64()).sum::<u64>()
    };
    sum("neighbors") + sum("clients") + state["unstable_bytes"].as_u64().unwrap_or(0)
}

fn status() -> io::Result<Value> {
    let address = STATUS.parse().map_err(io::Error::other)?;
    let answer = http_get(address, "status", Duration::from_secs(2))?;
    let body = answer.split_once("\r\n\r\n").map_or("", |it| it.1);
    Ok(serde_json::from_str(body)?)
}

fn judge(folder: &Path, result: &mut RoundResult) -> Result<(), Error> {
    let failed = |error: io::Error| Error::read(folder, error);
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)?.flatten() {
        let file = File::open(entry.path()).map_err(failed)?;
        sources.push((entry.path().display().to_string(), BufReader::new(file)));
    }
    sources.sort_by(|a, b| a.0.cmp(&b.0));
    let trace = Trace::read(sources).map_err(failed)?;
    let [lives, deliveries, quiet] = trace.counts();
    let found = check(&trace);
    let count = found.len();
    let summary = format!("{lives} runs of clients, {quiet} quiet, {deliveries} deliveries");
    result.notes.push(format!("{summary}, {count} violations"));
    result.problems.extend(found.iter().take(SHOWN_MAX).map(ToString::to_string));
    Ok(())
}
