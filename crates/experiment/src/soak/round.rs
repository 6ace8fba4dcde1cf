//! Single round: hosts, programs, faults, quiet phase, comparison.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::SocketAddrV4;
use std::path::Path;
use std::time::{Duration as WallDuration, Instant};

use faircast_lab::Field;
use faircast_scenario::{Overrides, Scenario};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::arguments::Arguments;
use super::noise::{Flood, Noise};
use super::plan::{Action, FAULTY, Plan, Who};
use super::program::Program;
use super::relays::RELAYS;
use super::result::RoundResult;
use super::sequence::Rates;
use super::{Fault, Request, tree};
use crate::Error;
use crate::files::write;
use crate::host::{Mount, make_key, make_relay_key};
use crate::lab::refused;
use crate::monitor::Monitor;

pub(super) const PORT: u16 = 7500;
/// Longest time to converge after the last fault.
const QUIET_MAX: WallDuration = WallDuration::from_secs(180);
pub(super) const FAREWELL_MAX: WallDuration = WallDuration::from_secs(15);
/// Pause before a program that has ended is started again.
const RESTART_DELAY: WallDuration = WallDuration::from_millis(500);
pub(super) const TICK: WallDuration = WallDuration::from_millis(50);
pub(super) const MEMORY_MAX: u64 = 256 << 20;
/// Free space of a disk beyond the content, before the fault fills it.
const ROOM_BYTES: u64 = 4 << 20;
/// Size of the disk that is always too small, in bytes: less than any round sends.
const FULL_DISK_BYTES: u64 = 2 << 20;

/// Name of the file that fills a disk.
const FILLER: &str = "filler";
/// Name of the file of host names, which programs find at /etc/hosts.
pub(super) const NAMES: &str = "hosts";
/// Name of the file with the receivers that the senders wait for.
pub(super) const RECEIVER_NAMES: &str = "names.txt";
pub(super) const KEY: &str = "group.key";
pub(super) const RELAY_KEY: &str = "relay.key";

pub(super) struct Round<'a> {
    plan: &'a Plan,
    seed: u64,
    request: &'a Request,
    monitor: &'a dyn Monitor,
    folder: &'a Path,
    /// Declared before the field, since programs must be dropped first.
    hosts: BTreeMap<Who, Host>,
    flood: Option<Flood>,
    field: Field,
    mounts: Vec<Mount>,
    result: RoundResult,
    /// True after the actions of the begin.
    has_begun: bool,
    rates: Rates,
}

/// Host with a program.
struct Host {
    program: Program,
    /// Time at which the program, which has ended, is started again.
    restart_at: Option<Instant>,
    /// True for a sender that has ended its transfer.
    is_done: bool,
    /// True while the interface is down.
    is_cut_off: bool,
    /// True for a receiver that was killed during the transfer and stays away.
    is_lost: bool,
    /// Set while a disk is full, which ends a receiver with status 1: the count of the fault.
    disk_full: Option<u32>,
}

impl<'a> Round<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        seed: u64,
        folder: &'a Path,
        request: &'a Request,
        monitor: &'a dyn Monitor,
    ) -> Result<Self, Error> {
        let links = folder.join("links.toml");
        write(&links, &plan.scenario)?;
        let receivers = (0..request.receivers).map(Who::Receiver);
        let names: String = receivers.map(|who| who.name() + "\n").collect();
        write(&folder.join(RECEIVER_NAMES), names)?;
        let make = |name, bytes, seed| {
            let made = tree::make(&folder.join(name), bytes, seed);
            made.map_err(|error| Error::doing("make files", error))
        };
        make("first", plan.bytes, seed)?;
        if plan.faults.contains(&Fault::SecondSender) {
            make("second", plan.bytes / 4, !seed)?;
        }
        if plan.sealed {
            make_key(&folder.join(KEY))?;
        }
        if plan.relay_key {
            make_relay_key(&folder.join(KEY), &folder.join(RELAY_KEY))?;
        }
        let (none, catalog) = (Overrides::default(), faircast_sim::catalog());
        let scenario = Scenario::parse(&links, &plan.scenario, &none, &catalog)?;
        let round = Self {
            plan,
            seed,
            request,
            monitor,
            folder,
            hosts: hosts(plan, folder, request),
            flood: None,
            field: Field::new(scenario).map_err(refused)?,
            mounts: small_disks(plan, folder)?,
            result: RoundResult { bytes: plan.bytes, ..RoundResult::default() },
            has_begun: false,
            rates: Rates::default(),
        };
        if plan.relays {
            round.write_names()?;
        }
        Ok(round)
    }

    pub(super) fn run(mut self) -> Result<RoundResult, Error> {
        let begin = Instant::now();
        self.run_transfer(begin)?;
        let (trials, receivers) = (&self.plan.trials, self.request.receivers);
        self.result.recoveries = self.rates.judge(trials, receivers, self.plan.relays);
        for recovery in &self.result.recoveries {
            self.result.notes.push(recovery.note());
            self.result.problems.extend(recovery.problem());
        }
        self.result.seconds = begin.elapsed().as_secs_f64();
        self.end_programs();
        self.check_refusals();
        self.compare()?;
        let Self { mut hosts, field, mut result, mounts, .. } = self;
        for (who, host) in &mut hosts {
            result.end_program(&who.name(), &mut host.program, MEMORY_MAX);
        }
        drop(mounts);
        result.add_packets(&field.finish().map_err(refused)?);
        Ok(result)
    }

    /// Runs the programs and the plan's actions until all transfers are done.
    fn run_transfer(&mut self, begin: Instant) -> Result<(), Error> {
        let mut actions = self.plan.actions.iter().peekable();
        let last_action = self.plan.actions.last().map_or(FAULTY, |(at, _)| *at);
        // A sequence sends so much that a scheme of half the rate needs as much time again.
        let sequence = if self.plan.trials.is_empty() { WallDuration::ZERO } else { last_action };
        let quiet_max = QUIET_MAX + sequence;
        let mut slept_at = WallDuration::ZERO;
        while !self.is_complete() || actions.peek().is_some() {
            if self.monitor.is_to_stop() {
                return Err(Error::Interrupted("the round is not finished"));
            }
            let now = begin.elapsed();
            while let Some((_, action)) = actions.next_if(|(at, _)| *at <= now) {
                self.act(*action)?;
            }
            self.has_begun = true;
            self.restart_ended()?;
            self.rates.note_late(now, (now - slept_at).saturating_sub(TICK));
            for (who, host) in &mut self.hosts {
                self.rates.read(*who, begin.elapsed(), &host.program.new_output());
            }
            if now > last_action + quiet_max {
                self.report_incomplete(quiet_max);
                break;
            }
            // The wait for a program's end is the round's own time, not the machine's lateness.
            slept_at = begin.elapsed();
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn report_incomplete(&mut self, waited: WallDuration) {
        let ended: Vec<String> = self.names(|_, host| host.is_done);
        let waiting = self.names(|who, host| match who {
            Who::Sender | Who::Second => host.program.runs(),
            _ => host.program.runs() && !host.program.said().contains("\"event\":\"complete\""),
        });
        self.result.problems.push(format!(
            "not done after {} s in peace; done are: [{}], waiting are: [{}]",
            waited.as_secs(),
            ended.join(" "),
            waiting.join(" ")
        ));
    }

    fn names(&self, is_wanted: impl Fn(Who, &Host) -> bool) -> Vec<String> {
        let hosts = self.hosts.iter().filter(|(who, host)| is_wanted(**who, host));
        hosts.map(|(who, _)| who.name()).collect()
    }

    fn host(&mut self, who: Who) -> &mut Host {
        self.hosts.get_mut(&who).expect("each host that acts has a program")
    }

    fn act(&mut self, action: Action) -> Result<(), Error> {
        let counts = u32::from(!self.hosts[&Who::Sender].is_done);
        let failed = |error: io::Error| Error::Work(format!("{action:?}: {error}"));
        match action {
            Action::Start(who) => self.start(who, counts).map_err(failed)?,
            Action::StartAhead(who) => {
                self.start_program(who, true).map_err(failed)?;
                self.result.faults.starts_ahead += counts;
            }
            Action::Kill(who) => {
                let host = self.host(who);
                let runs = host.program.runs();
                host.program.kill();
                host.restart_at = None;
                self.result.faults.kills += counts * u32::from(runs);
            }
            Action::Lose(who) => {
                self.host(who).is_lost |= counts > 0;
                self.act(Action::Kill(who))?;
            }
            Action::Leave(who) => self.leave(who, counts),
            Action::Stop(who, true) => {
                let program = &self.host(who).program;
                program.signal(Signal::SIGSTOP);
                std::thread::sleep(TICK);
                let is_stopped = program.is_stopped();
                self.result.faults.stops += counts * u32::from(is_stopped);
            }
            Action::Stop(who, false) => self.host(who).program.signal(Signal::SIGCONT),
            Action::Interface(who, up) => {
                self.field.set_interface(who.node(), up).map_err(failed)?;
                self.host(who).is_cut_off = !up;
                self.result.faults.interfaces_down += if up { 0 } else { counts };
            }
            Action::Move(who, moved) => {
                self.field.set_moved(who.node(), moved).map_err(failed)?;
                self.result.faults.moves += counts;
                if let Who::Relay(_) = who {
                    self.write_names()?;
                }
            }
            Action::Remap(who) => {
                self.field.remap_ports(who.node());
                self.result.faults.remaps += counts;
            }
            Action::Narrow(who, longest) => self.field.set_longest(who.node(), longest),
            Action::Fill(who, true) => {
                fill(&self.folder.join(who.name())).map_err(failed)?;
                self.host(who).disk_full = Some(counts);
            }
            Action::Fill(who, false) => self.free_disk(who).map_err(failed)?,
            Action::Noise(true) => self.flood = Some(self.start_flood().map_err(failed)?),
            Action::Noise(false) => self.end_flood(),
        }
        Ok(())
    }

    fn start(&mut self, who: Who, counts: u32) -> io::Result<()> {
        if self.host(who).is_done {
            return Ok(());
        }
        if !self.folder.join(who.name()).join(FILLER).exists() {
            self.host(who).disk_full = None;
        }
        let joins = self.has_begun && self.host(who).program.starts == 0;
        self.result.faults.joins += counts * u32::from(joins);
        self.start_program(who, false)
    }

    fn start_program(&mut self, who: Who, is_ahead: bool) -> io::Result<()> {
        let Self { plan, folder, request, field, .. } = self;
        let Request { scheme, receivers, .. } = request;
        let arguments = Arguments { plan, folder, field, scheme, receivers: *receivers }.of(who);
        let host = self.hosts.get_mut(&who).expect("each host that acts has a program");
        host.program.start(&self.field, &arguments, is_ahead)
    }

    fn leave(&mut self, who: Who, counts: u32) {
        let host = self.host(who);
        let runs = host.program.runs() && !host.program.is_stopped();
        host.program.signal(Signal::SIGINT);
        let status = await_end(&mut host.program, FAREWELL_MAX);
        // Status 1: incomplete or failed transfer. A stopped program was killed instead.
        let may_succeed = host.disk_full.is_none();
        if runs && !matches!((status, may_succeed), (Some(0), true) | (Some(1), _)) {
            let problem = format!("{} leaves with {status:?}", who.name());
            self.result.problems.push(problem);
        }
        self.result.faults.farewells += counts * u32::from(runs);
    }

    fn free_disk(&mut self, who: Who) -> io::Result<()> {
        std::fs::remove_file(self.folder.join(who.name()).join(FILLER))?;
        let host = self.host(who);
        // The receiver asks for space, unless it reserved all its space at the beginning.
        let asked = host.program.said().contains("make room");
        match host.disk_full.filter(|_| asked) {
            Some(counts) => self.result.faults.fills += counts,
            None => {
                host.disk_full = None;
                let note = format!("{} had its room when its disk was filled", who.name());
                self.result.notes.push(note);
            }
        }
        Ok(())
    }

    /// Judges programs that have ended, and starts them again after a pause.
    fn restart_ended(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        let departures = self.plan.departures();
        let excused: Vec<String> = departures.iter().map(|who| who.name()).collect();
        let lost = self.names(|_, host| host.is_lost);
        for (who, host) in &mut self.hosts {
            let Some(status) = host.program.ended() else { continue };
            let (name, result) = (who.name(), &mut self.result);
            match who {
                Who::Sender | Who::Second if status == 0 && lost.is_empty() => {
                    host.is_done = true;
                    continue;
                }
                // No program can start without an interface, so a later attempt follows.
                _ if host.is_cut_off => {}
                // A sender that waited too long ends with status 1; its owner would start it again.
                Who::Sender | Who::Second => {
                    let without = without(&host.program.said());
                    let listed = without.join(" ");
                    // A sender may give up receivers that left or were stopped, and no others.
                    let may_end = status == 1
                        && !without.is_empty()
                        && without.iter().all(|name| excused.contains(name))
                        && lost.iter().all(|name| without.contains(name));
                    if may_end && self.plan.relays {
                        result.notes.push(format!("{name} ended without [{listed}]"));
                        host.is_done = true;
                        continue;
                    }
                    let line = format!(
                        "{name} ended with status {status}, without [{listed}], and was started again"
                    );
                    match may_end && result.notes.len() < 2 * departures.len() {
                        true => result.notes.push(line),
                        false => result.problems.push(line),
                    }
                }
                Who::Receiver(_) if status == 1 && host.disk_full.is_some() => continue,
                Who::ReadOnly | Who::FullDisk => continue,
                _ => result.problems.push(format!("{name} ended by itself with status {status}")),
            }
            host.restart_at = Some(now + RESTART_DELAY);
        }
        let mut due = Vec::new();
        for (who, host) in &mut self.hosts {
            due.extend(host.restart_at.take_if(|at| *at <= now).map(|_| *who));
        }
        due.into_iter().try_for_each(|who| self.act(Action::Start(who)))
    }

    fn is_complete(&self) -> bool {
        let second = self.plan.faults.contains(&Fault::SecondSender);
        self.hosts[&Who::Sender].is_done && (!second || self.hosts[&Who::Second].is_done)
    }

    fn end_programs(&mut self) {
        if let Some(idle) = self.hosts.get_mut(&Who::Receiver(self.request.receivers)) {
            idle.program.kill();
        }
        let is_relay = |who: &Who| matches!(who, Who::Relay(_));
        let running = self.hosts.iter().filter(|(_, host)| host.program.runs());
        // Hosts end first, since relays forward their departures.
        let (relays, hosts): (Vec<Who>, Vec<Who>) =
            running.map(|(who, _)| *who).partition(is_relay);
        self.interrupt(&hosts);
        self.interrupt(&relays);
    }

    fn interrupt(&mut self, running: &[Who]) {
        for who in running {
            self.hosts[who].program.signal(Signal::SIGINT);
        }
        for &who in running {
            let status = await_end(&mut self.host(who).program, FAREWELL_MAX);
            let may_fail = matches!(who, Who::ReadOnly | Who::FullDisk);
            if status != Some(0) && !(may_fail && status == Some(1)) {
                let problem = format!("{} ends with {status:?} when asked to end", who.name());
                self.result.problems.push(problem);
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
            if self.hosts[&who].program.said().contains(words) {
                self.result.faults.refusals += 1;
            } else if who == Who::FullDisk && !self.is_beyond_joining(who) {
                let note = format!("{} never heard how much there is to receive", who.name());
                self.result.notes.push(note);
            } else {
                let problem = format!("{} did not say what is wrong with its folder", who.name());
                self.result.problems.push(problem);
            }
        }
    }

    fn is_beyond_joining(&self, who: Who) -> bool {
        let further = |said: &str| {
            let mut events = said.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
            events.any(|event| event["name"] == who.name() && event["state"] != "joined")
        };
        self.hosts.values().any(|host| further(&host.program.said()))
    }

    fn compare(&mut self) -> Result<(), Error> {
        let second = self.plan.faults.contains(&Fault::SecondSender);
        let sent = ["first", "second"];
        let receivers = (0..self.request.receivers).map(Who::Receiver);
        for who in receivers.filter(|who| !self.hosts[who].is_lost) {
            let name = who.name();
            for sent in &sent[..if second { 2 } else { 1 }] {
                let got = self.folder.join(&name).join(sent);
                let differences = tree::differences(&self.folder.join(sent), &got)
                    .map_err(|error| Error::Work(format!("{}: {error}", got.display())))?;
                let problem = |difference| format!("{name}: {sent}/{difference}");
                self.result.problems.extend(differences.into_iter().map(problem));
            }
            let left = tree::names(&self.folder.join(&name)).into_iter();
            let left = left.filter(|left| left != "first" && !(second && left == "second"));
            self.result.problems.extend(left.map(|left| format!("{name}: {left} was left there")));
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
        let address = |who: Who| self.field.current_address(who.node());
        let noise = Noise {
            seed: self.seed,
            forges: self.plan.sealed,
            own: address(Who::Outsider),
            group: SocketAddrV4::new(Field::group(), PORT),
            sender: SocketAddrV4::new(address(Who::Sender), PORT),
        };
        // A socket stays in the namespace in which it was made.
        let (noise, socket) = self.field.on(Who::Outsider.node(), move || {
            let socket = noise.socket();
            (noise, socket)
        })?;
        Flood::start(noise, socket?)
    }

    fn end_flood(&mut self) {
        let Some(flood) = self.flood.take() else { return };
        match flood.end() {
            Some(packets) => self.result.packets.noise = packets,
            None => self.result.problems.push("the outsider died".into()),
        }
    }
}

fn hosts(plan: &Plan, folder: &Path, request: &Request) -> BTreeMap<Who, Host> {
    let hosts = plan.programs(request.receivers).into_iter().map(|who| {
        let log = folder.join(format!("{}.log", who.name()));
        let trace = request.trace && !matches!(who, Who::Relay(_));
        let names = plan.relays.then(|| folder.join(NAMES));
        let program = Program::new(&request.own, who.node(), log, trace, names);
        let host = Host {
            program,
            restart_at: None,
            is_done: false,
            is_cut_off: false,
            is_lost: false,
            disk_full: None,
        };
        (who, host)
    });
    hosts.collect()
}

/// Mounts the disks that become full, are always too small, or are read-only.
fn small_disks(plan: &Plan, folder: &Path) -> Result<Vec<Mount>, Error> {
    let disks: Vec<(Who, String)> = match plan.trials.is_empty() {
        false => {
            let filled = plan.trials.iter().filter(|trial| trial.fault == Fault::FullDisk);
            filled.map(|trial| (trial.who, format!("size={}", plan.bytes + ROOM_BYTES))).collect()
        }
        true => {
            let read_only = (Fault::ReadOnly, Who::ReadOnly, "ro".to_string());
            let full = (Fault::FullDisk, Who::FullDisk, format!("size={FULL_DISK_BYTES}"));
            let both = [read_only, full].into_iter().filter(|it| plan.faults.contains(&it.0));
            both.map(|(_, who, options)| (who, options)).collect()
        }
    };
    let mounts = disks.into_iter().map(|(who, options)| {
        let mount = Mount::new(&folder.join(who.name()), &options);
        mount.map_err(|error| Error::doing("mount a small disk", error))
    });
    mounts.collect()
}

fn await_end(program: &mut Program, longest: WallDuration) -> Option<i32> {
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
