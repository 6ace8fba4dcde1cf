//! Single round: hosts, programs, faults, quiet phase, comparison.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration as WallDuration, Instant};

use faircast_lab::Field;
use faircast_scenario::{Overrides, Scenario};
use nix::sys::signal::Signal;
use serde::Serialize;
use serde_json::Value;

use super::noise::Noise;
use super::plan::{Action, FAULTY, Plan, Who};
use super::program::Program;
use super::relays::RELAYS;
use super::sequence::{Rates, Recovery};
use super::{Fault, Request, tree};
use crate::Error;
use crate::files::write;
use crate::host::{Mount, make_key, make_relay_key, text, words};
use crate::lab::refused;
use crate::monitor::Monitor;

const PORT: u16 = 7500;
/// Longest time to converge after the last fault.
const PEACE_MAX: WallDuration = WallDuration::from_secs(180);
pub(super) const FAREWELL_MAX: WallDuration = WallDuration::from_secs(15);
const AGAIN: WallDuration = WallDuration::from_millis(500);
pub(super) const TICK: WallDuration = WallDuration::from_millis(50);
pub(super) const MEMORY_MAX: u64 = 256 << 20;
/// Free space of a disk beyond the content, before the fault fills it.
const ROOM_BYTES: u64 = 4 << 20;
/// Size of the disk that is always too small, in bytes: less than any round sends.
const FULL_DISK_BYTES: u64 = 2 << 20;

const FILLER: &str = "filler";
pub(super) const NAMES: &str = "hosts";
const KEY: &str = "group.key";
const RELAY_KEY: &str = "relay.key";

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct RoundResult {
    pub(super) problems: Vec<String>,
    pub(super) notes: Vec<String>,
    /// Seconds from the start of the programs until all receivers were complete.
    pub(super) seconds: f64,
    pub(super) bytes: u64,
    pub(super) memory_bytes: u64,
    pub(super) starts: u32,
    /// Events before the end of the transfer. Refusals are those of receivers without space.
    pub(super) kills: u32,
    pub(super) stops: u32,
    pub(super) farewells: u32,
    pub(super) interfaces_down: u32,
    pub(super) starts_ahead: u32,
    pub(super) refusals: u32,
    pub(super) joins: u32,
    pub(super) noise_packets: u64,
    pub(super) lost_packets: u64,
    pub(super) duplicated_packets: u64,
    pub(super) corrupted_packets: u64,
    pub(super) delayed_packets: u64,
    pub(super) too_long_packets: u64,
    pub(super) moves: u32,
    pub(super) fills: u32,
    pub(super) remaps: u32,
    pub(super) messages: u64,
    pub(super) recoveries: Vec<Recovery>,
}

pub(super) struct Round<'a> {
    plan: &'a Plan,
    seed: u64,
    request: &'a Request,
    monitor: &'a dyn Monitor,
    folder: &'a Path,
    key: Option<PathBuf>,
    /// Declared before the field, since programs must be dropped first.
    programs: BTreeMap<Who, Program>,
    flood: Option<Flood>,
    field: Field,
    mounts: Vec<Mount>,
    verdict: RoundResult,
    again: Vec<(Instant, Who)>,
    done: Vec<Who>,
    cut_off: Vec<Who>,
    has_begun: bool,
    rates: Rates,
    heard: BTreeMap<Who, u64>,
    /// Receivers with a full disk, which end with status 1, and the count of their faults.
    filled: BTreeMap<Who, u32>,
    lost: Vec<Who>,
}

struct Flood {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl<'a> Round<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        seed: u64,
        folder: &'a Path,
        request: &'a Request,
        monitor: &'a dyn Monitor,
    ) -> Result<Self, Error> {
        let receivers = request.receivers;
        write(&folder.join("links.toml"), &plan.scenario)?;
        let names: Vec<String> =
            (0..receivers).map(|place| Who::Receiver(place).name() + "\n").collect();
        write(&folder.join("names.txt"), names.concat())?;
        let (first, second) = (folder.join("first"), folder.join("second"));
        tree::make(&first, plan.bytes, seed).map_err(|error| Error::doing("make files", error))?;
        if plan.faults.contains(&Fault::SecondSender) {
            tree::make(&second, plan.bytes / 4, !seed)
                .map_err(|error| Error::doing("make files", error))?;
        }
        let key = plan.sealed.then(|| folder.join(KEY));
        key.as_deref().map_or(Ok(()), make_key)?;
        if plan.relay_key {
            make_relay_key(&folder.join(KEY), &folder.join(RELAY_KEY))?;
        }
        let path = folder.join("links.toml");
        let overrides = Overrides::default();
        let scenario =
            Scenario::parse(&path, &plan.scenario, &overrides, &faircast_sim::catalog())?;
        let field = Field::new(scenario).map_err(refused)?;
        let mut round = Self {
            plan,
            seed,
            request,
            monitor,
            folder,
            key,
            programs: BTreeMap::new(),
            flood: None,
            field,
            mounts: Vec::new(),
            verdict: RoundResult { bytes: plan.bytes, ..RoundResult::default() },
            again: Vec::new(),
            done: Vec::new(),
            cut_off: Vec::new(),
            has_begun: false,
            rates: Rates::default(),
            heard: BTreeMap::new(),
            filled: BTreeMap::new(),
            lost: Vec::new(),
        };
        if plan.relays {
            round.write_names()?;
        }
        for who in plan.programs(receivers) {
            let log = folder.join(format!("{}.log", who.name()));
            let trace = request.trace && !matches!(who, Who::Relay(_));
            let names = plan.relays.then(|| folder.join(NAMES));
            let program = Program::new(&request.own, who.node(), log, trace, names);
            round.programs.insert(who, program);
        }
        let room = format!("size={}", plan.bytes + ROOM_BYTES);
        let filled = plan.trials.iter().filter(|trial| trial.fault == Fault::FullDisk);
        let mut small: Vec<_> = filled.map(|trial| (trial.who, room.clone())).collect();
        if plan.trials.is_empty() {
            let read_only = (Fault::ReadOnly, Who::ReadOnly, "ro".to_string());
            let full = (Fault::FullDisk, Who::FullDisk, format!("size={FULL_DISK_BYTES}"));
            let both = [read_only, full].into_iter().filter(|it| plan.faults.contains(&it.0));
            small.extend(both.map(|(_, who, options)| (who, options)));
        }
        for (who, options) in small {
            let mount = Mount::new(&folder.join(who.name()), &options);
            round.mounts.push(mount.map_err(|error| Error::doing("mount a small disk", error))?);
        }
        Ok(round)
    }

    pub(super) fn run(mut self) -> Result<RoundResult, Error> {
        let begin = Instant::now();
        let mut actions = self.plan.actions.iter().peekable();
        let peace = self.plan.actions.last().map_or(FAULTY, |(at, _)| *at);
        // A sequence sends so much that a scheme of half the rate needs as much time again.
        let sequence = if self.plan.trials.is_empty() { WallDuration::ZERO } else { peace };
        let peace_max = PEACE_MAX + sequence;
        let mut woke = WallDuration::ZERO;
        while !self.is_complete() || actions.peek().is_some() {
            if self.monitor.is_to_stop() {
                return Err(Error::Interrupted("the round is not finished"));
            }
            let now = begin.elapsed();
            while let Some((_, action)) = actions.next_if(|(at, _)| *at <= now) {
                self.act(*action)?;
            }
            self.has_begun = true;
            self.look_after()?;
            self.rates.note_late(now, (now - woke).saturating_sub(TICK));
            for (who, program) in &self.programs {
                let news = program.news(self.heard.entry(*who).or_default());
                self.rates.hear(*who, begin.elapsed(), &news);
            }
            if now > peace + peace_max {
                let waited = peace_max.as_secs();
                let ended: Vec<String> = self.done.iter().map(|who| who.name()).collect();
                let waiting = self.programs.iter().filter(|(who, program)| match who {
                    Who::Sender | Who::Second => program.runs(),
                    _ => program.runs() && !program.said().contains("\"event\":\"complete\""),
                });
                let waiting: Vec<String> = waiting.map(|(who, _)| who.name()).collect();
                let problem = format!(
                    "not done after {waited} s in peace; done are: [{}], waiting are: [{}]",
                    ended.join(" "),
                    waiting.join(" ")
                );
                self.verdict.problems.push(problem);
                break;
            }
            // The wait for a program's end is the round's own time, not the machine's lateness.
            woke = begin.elapsed();
            std::thread::sleep(TICK);
        }
        self.verdict.recoveries =
            self.rates.judge(&self.plan.trials, self.request.receivers, self.plan.relays);
        for recovery in &self.verdict.recoveries {
            self.verdict.notes.push(recovery.note());
            self.verdict.problems.extend(recovery.problem());
        }
        self.verdict.seconds = begin.elapsed().as_secs_f64();
        self.say_farewell();
        self.check_refusals();
        self.compare()?;
        let Self { mut programs, field, mut verdict, mounts, .. } = self;
        for (who, program) in &mut programs {
            program.kill();
            verdict.starts += program.starts;
            verdict.memory_bytes = verdict.memory_bytes.max(program.memory);
            let name = who.name();
            verdict.problems.extend(program.panics().iter().map(|line| format!("{name}: {line}")));
            if program.memory > MEMORY_MAX {
                let problem = format!("{name} had {} MiB of memory", program.memory >> 20);
                verdict.problems.push(problem);
            }
        }
        drop(mounts);
        let counts = field.finish().map_err(refused)?;
        verdict.lost_packets = counts.lost + counts.lost_in_bursts + counts.lost_in_outages;
        verdict.duplicated_packets = counts.duplicated;
        verdict.corrupted_packets = counts.corrupted;
        verdict.delayed_packets = counts.delayed;
        verdict.too_long_packets = counts.too_long;
        Ok(verdict)
    }

    fn arguments(&self, who: Who) -> Vec<String> {
        let path = |name: &str| text(&self.folder.join(name));
        let (to, on) = match (self.plan.relays, self.plan.unicast) {
            (true, _) => {
                let above = who.relays_above().into_iter();
                let above: Vec<_> = above.map(|who| format!("{}:{PORT}", who.name())).collect();
                if let Who::Relay(_) = who {
                    let parent = if above.is_empty() { "" } else { " --parent " };
                    let more = format!("{PORT} --name {}{parent}{}", who.name(), above.join(","));
                    let key = if self.plan.relay_key { RELAY_KEY } else { KEY };
                    let key = self.key.as_ref().map(|_| ["--key".to_string(), path(key)]);
                    let mut all = words(&["relay", "--json"], &format!("--listen 0.0.0.0:{more}"));
                    all.extend(key.into_iter().flatten());
                    return all;
                }
                let via = format!("--via {} --meeting soak", above.join(","));
                (via.clone(), via)
            }
            (false, true) => {
                let receivers = (0..self.request.receivers).map(Who::Receiver);
                let address = |who: Who| self.field.current_address(who.node());
                let to = receivers.map(|who| format!("{}:{PORT}", address(who)));
                (
                    format!("--to {}", to.collect::<Vec<_>>().join(",")),
                    format!("--listen 0.0.0.0:{PORT}"),
                )
            }
            (false, false) => {
                let group = format!("--group {}:{PORT}", Field::group());
                (group.clone(), group)
            }
        };
        let mut arguments = match who {
            Who::Sender | Who::Second => {
                let what = path(if who == Who::Sender { "first" } else { "second" });
                let scheme = &self.request.scheme;
                let give_up = self.plan.give_up.as_secs();
                let mut options = format!("{to} --give-up {give_up}s --scheme {scheme}");
                if self.plan.faults.contains(&Fault::JoinEverySecond) {
                    options += " --start-after 1s";
                }
                if let Some(heads) = self.plan.heads {
                    let _ = write!(options, " --option members_max={heads}");
                }
                let files = ["send", "--json", &what, "--receivers", &path("names.txt")];
                words(&files, &options)
            }
            _ => {
                let name = who.name();
                let head = match (self.plan.heads, who) {
                    (Some(heads), Who::Receiver(place)) if place < heads => " --head eager",
                    (Some(_), _) => " --head never",
                    (None, _) => "",
                };
                words(
                    &["recv", "--json", "--into", &path(&name)],
                    &format!("{on} --name {name}{head}"),
                )
            }
        };
        if let Some(key) = &self.key {
            arguments.extend(["--key".to_string(), text(key)]);
        }
        arguments
    }

    fn act(&mut self, action: Action) -> Result<(), Error> {
        let counts = u32::from(!self.done.contains(&Who::Sender));
        let field = &self.field;
        let failed = |error: io::Error| Error::Work(format!("{action:?}: {error}"));
        match action {
            Action::Start(who) if self.done.contains(&who) => {}
            Action::Start(who) => {
                if !self.folder.join(who.name()).join(FILLER).exists() {
                    self.filled.remove(&who);
                }
                let arguments = self.arguments(who);
                let program = program(&mut self.programs, who);
                let joins = self.has_begun && program.starts == 0;
                self.verdict.joins += counts * u32::from(joins);
                program.start(field, &arguments, false).map_err(failed)?
            }
            Action::StartAhead(who) => {
                let arguments = self.arguments(who);
                let program = program(&mut self.programs, who);
                program.start(field, &arguments, true).map_err(failed)?;
                self.verdict.starts_ahead += counts;
            }
            Action::Kill(who) => {
                let program = program(&mut self.programs, who);
                self.verdict.kills += counts * u32::from(program.runs());
                program.kill();
                self.again.retain(|(_, other)| *other != who);
            }
            Action::Lose(who) => {
                self.lost.extend((counts > 0).then_some(who));
                self.act(Action::Kill(who))?;
            }
            Action::Leave(who) => {
                let program = program(&mut self.programs, who);
                let runs = program.runs() && !program.is_stopped();
                program.signal(Signal::SIGINT);
                let status = self.await_end(who, FAREWELL_MAX);
                // Status 1: incomplete or failed transfer. A stopped program was killed instead.
                let failed = self.filled.contains_key(&who);
                if runs && !matches!((status, failed), (Some(0), false) | (Some(1), _)) {
                    let problem = format!("{} leaves with {status:?}", who.name());
                    self.verdict.problems.push(problem);
                }
                self.verdict.farewells += counts * u32::from(runs);
            }
            Action::Stop(who, true) => {
                let program = program(&mut self.programs, who);
                program.signal(Signal::SIGSTOP);
                std::thread::sleep(TICK);
                self.verdict.stops += counts * u32::from(program.is_stopped());
            }
            Action::Stop(who, false) => program(&mut self.programs, who).signal(Signal::SIGCONT),
            Action::Interface(who, up) => {
                field.set_interface(who.node(), up).map_err(failed)?;
                match up {
                    true => self.cut_off.retain(|other| *other != who),
                    false => {
                        self.cut_off.push(who);
                        self.verdict.interfaces_down += counts;
                    }
                }
            }
            Action::Move(who, moved) => {
                field.set_moved(who.node(), moved).map_err(failed)?;
                self.verdict.moves += counts;
                if let Who::Relay(_) = who {
                    self.write_names()?;
                }
            }
            Action::Remap(who) => {
                field.remap_ports(who.node());
                self.verdict.remaps += counts;
            }
            Action::Narrow(who, longest) => field.set_longest(who.node(), longest),
            Action::Fill(who, true) => {
                fill(&self.folder.join(who.name())).map_err(failed)?;
                self.filled.insert(who, counts);
            }
            Action::Fill(who, false) => {
                std::fs::remove_file(self.folder.join(who.name()).join(FILLER)).map_err(failed)?;
                // The receiver asks for space, unless it reserved all its space at the beginning.
                match self.filled.get(&who) {
                    Some(counts) if self.programs[&who].said().contains("make room") => {
                        self.verdict.fills += counts;
                    }
                    _ => {
                        self.filled.remove(&who);
                        let note = format!("{} had its room when its disk was filled", who.name());
                        self.verdict.notes.push(note);
                    }
                }
            }
            Action::Noise(true) => self.flood = Some(self.start_flood().map_err(failed)?),
            Action::Noise(false) => self.end_flood(),
        }
        Ok(())
    }

    fn look_after(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        // Each sender may give up receivers that left or were stopped for too long, and no others.
        let departures = self.plan.departures();
        let excused: Vec<String> = departures.iter().map(|who| who.name()).collect();
        for (who, program) in &mut self.programs {
            let Some(status) = program.ended() else { continue };
            let (who, name) = (*who, who.name());
            match who {
                Who::Sender | Who::Second if status == 0 && self.lost.is_empty() => {
                    self.done.push(who);
                }
                // No program can start without an interface, so a later attempt follows.
                _ if self.cut_off.contains(&who) => self.again.push((now + AGAIN, who)),
                // A sender that waited too long ends with status 1; its owner would start it again.
                Who::Sender | Who::Second => {
                    let without = without(&program.said());
                    let said = format!(
                        "{name} ended with status {status}, without [{}], and was started again",
                        without.join(" ")
                    );
                    let told = &mut self.verdict;
                    let right = !without.is_empty() && without.iter().all(|w| excused.contains(w));
                    let right = right && self.lost.iter().all(|who| without.contains(&who.name()));
                    if status == 1 && self.plan.relays && right {
                        told.notes.push(format!("{name} ended without [{}]", without.join(" ")));
                        self.done.push(who);
                        continue;
                    }
                    if status == 1 && right && told.notes.len() < 2 * departures.len() {
                        told.notes.push(said);
                    } else {
                        told.problems.push(said);
                    }
                    self.again.push((now + AGAIN, who));
                }
                Who::Receiver(_) if status == 1 && self.filled.contains_key(&who) => {}
                Who::ReadOnly | Who::FullDisk => {}
                _ => {
                    let problem = format!("{name} ended by itself with status {status}");
                    self.verdict.problems.push(problem);
                    self.again.push((now + AGAIN, who));
                }
            }
        }
        let due: Vec<Who> =
            self.again.iter().filter(|(at, _)| *at <= now).map(|(_, who)| *who).collect();
        self.again.retain(|(at, _)| *at > now);
        due.into_iter().try_for_each(|who| self.act(Action::Start(who)))
    }

    fn is_complete(&self) -> bool {
        let second = self.plan.faults.contains(&Fault::SecondSender);
        self.done.contains(&Who::Sender) && (!second || self.done.contains(&Who::Second))
    }

    fn say_farewell(&mut self) {
        if let Some(idle) = self.programs.get_mut(&Who::Receiver(self.request.receivers)) {
            idle.kill();
        }
        let is_relay = |who: &Who| matches!(who, Who::Relay(_));
        let runs = |who: &Who| self.programs[who].runs();
        let running: Vec<Who> = self.programs.keys().copied().filter(runs).collect();
        // Hosts end first, since relays forward their departures.
        let (relays, hosts): (Vec<Who>, Vec<Who>) = running.into_iter().partition(is_relay);
        self.ask_to_end(&hosts);
        self.ask_to_end(&relays);
    }

    fn ask_to_end(&mut self, running: &[Who]) {
        for who in running {
            self.programs[who].signal(Signal::SIGINT);
        }
        for &who in running {
            let status = self.await_end(who, FAREWELL_MAX);
            let may_fail = matches!(who, Who::ReadOnly | Who::FullDisk);
            if status != Some(0) && !(may_fail && status == Some(1)) {
                let problem = format!("{} ends with {status:?} when asked to end", who.name());
                self.verdict.problems.push(problem);
            }
        }
    }

    fn check_refusals(&mut self) {
        for (fault, who, words) in [
            (Fault::ReadOnly, Who::ReadOnly, "cannot be written to"),
            (Fault::FullDisk, Who::FullDisk, "make room"),
        ] {
            if !self.plan.trials.is_empty() || !self.plan.faults.contains(&fault) {
                continue;
            }
            if self.programs[&who].said().contains(words) {
                self.verdict.refusals += 1;
            } else if who == Who::FullDisk && !self.is_beyond_joining(who) {
                let note = format!("{} never heard how much there is to receive", who.name());
                self.verdict.notes.push(note);
            } else {
                let problem = format!("{} did not say what is wrong with its folder", who.name());
                self.verdict.problems.push(problem);
            }
        }
    }

    fn is_beyond_joining(&self, who: Who) -> bool {
        let further = |said: &str| {
            let mut events = said.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
            events.any(|event| event["name"] == who.name() && event["state"] != "joined")
        };
        self.programs.values().any(|program| further(&program.said()))
    }

    fn await_end(&mut self, who: Who, longest: WallDuration) -> Option<i32> {
        let program = self.programs.get_mut(&who)?;
        let begin = Instant::now();
        while begin.elapsed() < longest {
            if let Some(status) = program.ended() {
                return Some(status);
            }
            if !program.runs() {
                return None;
            }
            std::thread::sleep(TICK);
        }
        program.kill();
        None
    }

    fn compare(&mut self) -> Result<(), Error> {
        let second = self.plan.faults.contains(&Fault::SecondSender);
        let sent = ["first", "second"];
        let receivers = (0..self.request.receivers).map(Who::Receiver);
        for who in receivers.filter(|who| !self.lost.contains(who)) {
            let name = who.name();
            for sent in &sent[..if second { 2 } else { 1 }] {
                let got = self.folder.join(&name).join(sent);
                let differences = tree::differences(&self.folder.join(sent), &got)
                    .map_err(|error| Error::Work(format!("{}: {error}", got.display())))?;
                let problem = |difference| format!("{name}: {sent}/{difference}");
                self.verdict.problems.extend(differences.into_iter().map(problem));
            }
            let left = tree::names(&self.folder.join(&name)).into_iter();
            let left = left.filter(|left| left != "first" && !(second && left == "second"));
            self.verdict.problems.extend(left.map(|left| format!("{name}: {left} was left there")));
        }
        Ok(())
    }

    fn write_names(&self) -> Result<(), Error> {
        let names = (0..RELAYS)
            .map(Who::Relay)
            .map(|who| format!("{} {}\n", self.field.current_address(who.node()), who.name()));
        write(&self.folder.join(NAMES), names.collect::<String>())
    }

    fn start_flood(&self) -> io::Result<Flood> {
        let noise = Noise {
            seed: self.seed,
            forges: self.key.is_some(),
            own: self.field.current_address(Who::Outsider.node()),
            group: SocketAddrV4::new(Field::group(), PORT),
            sender: SocketAddrV4::new(self.field.current_address(Who::Sender.node()), PORT),
        };
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (noise, socket) = self.field.on(Who::Outsider.node(), move || {
            let socket = noise.socket();
            (noise, socket)
        })?;
        // A socket stays in the namespace in which it was made.
        let socket = socket?;
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&sent));
        let thread = std::thread::Builder::new()
            .name("outsider".into())
            .spawn(move || noise.flood(&socket, &stopped, &count))?;
        Ok(Flood { stop, sent, thread: Some(thread) })
    }

    fn end_flood(&mut self) {
        let Some(mut flood) = self.flood.take() else { return };
        flood.stop.store(true, Ordering::Relaxed);
        if flood.thread.take().is_some_and(|thread| thread.join().is_err()) {
            self.verdict.problems.push("the outsider died".into());
        }
        self.verdict.noise_packets = flood.sent.load(Ordering::Relaxed);
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn without(said: &str) -> Vec<String> {
    let lines = said.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let Some(summary) = lines.into_iter().find(|line| line["event"] == "summary") else {
        return Vec::new();
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let all = |key: &str| summary[key].as_array().cloned().unwrap_or_default();
    let receivers = all("receivers");
    let has = |member: &Value, name: &str| member["name"] == name && member["state"] == "done";
    let lacking = |name: &String| !receivers.iter().any(|member| has(member, name));
    let waited = receivers.iter().filter(|member| member["waited_for"] == true);
    let waited = waited.map(|member| text(&member["name"]));
    let mut without: Vec<String> = waited.filter(lacking).collect();
    without.extend(all("missing").iter().map(text));
    without.sort_unstable();
    without.dedup();
    without
}

fn fill(folder: &Path) -> io::Result<()> {
    let mut file = std::fs::File::create(folder.join(FILLER))?;
    let block = vec![1; 1 << 16];
    loop {
        match file.write(&block) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn program(programs: &mut BTreeMap<Who, Program>, who: Who) -> &mut Program {
    programs.get_mut(&who).expect("everybody that acts has a program")
}
