//! Single round: hosts, programs, faults, quiet phase, comparison.

mod arguments;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::net::SocketAddrV4;
use std::path::Path;
use std::time::{Duration as WallDuration, Instant};

use faircast_base::fresh;
use faircast_lab::Field;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::noise::{Flood, Noise};
use super::plan::{Action, FAULT_PERIOD, Plan, Who};
use super::program::Program;
use super::relays::RELAYS;
use super::result::RoundResult;
use super::sequence::Rates;
use super::{Fault, NAMES, Request, make_field, tree, write_names};
use crate::Error;
use crate::files::write;
use crate::host::{Mount, events, make_key, make_relay_key};
use crate::lab::refused;
use crate::monitor::Monitor;

const PORT: u16 = 7500;
const QUIET_MAX: WallDuration = WallDuration::from_secs(180);
pub(super) const FAREWELL_MAX: WallDuration = WallDuration::from_secs(15);
const RESTART_DELAY: WallDuration = WallDuration::from_millis(500);
pub(super) const TICK: WallDuration = WallDuration::from_millis(50);
pub(super) const MEMORY_MAX: u64 = 256 << 20;
/// Free space of a disk beyond the content, before the fault fills it.
const ROOM_BYTES: u64 = 4 << 20;
/// Size of the disk that is always too small, in bytes: less than any round sends.
const FULL_DISK_BYTES: u64 = 2 << 20;

const FILLER: &str = "filler";
/// File with the receivers that the senders wait for.
const RECEIVER_NAMES: &str = "names.txt";
const KEY: &str = "group.key";
const RELAY_KEY: &str = "relay.key";

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
    has_begun: bool,
    rates: Rates,
}

struct Host {
    program: Program,
    restart_at: Option<Instant>,
    is_done: bool,
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
        let round = Self {
            plan,
            seed,
            request,
            monitor,
            folder,
            hosts: hosts(plan, folder, request),
            flood: None,
            field: make_field(folder, &plan.scenario)?,
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
        result.packets = field.finish().map_err(refused)?;
        Ok(result)
    }

    fn run_transfer(&mut self, begin: Instant) -> Result<(), Error> {
        let mut actions = self.plan.actions.iter().peekable();
        let last_action = self.plan.actions.last().map_or(FAULT_PERIOD, |(at, _)| *at);
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
            Action::Move(who) => {
                self.field.switch_address(who.node()).map_err(failed)?;
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
        let arguments = self.arguments(who);
        let host = self.hosts.get_mut(&who).expect("each host that acts has a program");
        host.program.start(&self.field, &arguments, is_ahead)
    }

    fn leave(&mut self, who: Who, counts: u32) {
        let host = self.host(who);
        let runs = host.program.runs() && !host.program.is_stopped();
        host.program.signal(Signal::SIGINT);
        let status = host.program.await_end(FAREWELL_MAX);
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
            let status = self.host(who).program.await_end(FAREWELL_MAX);
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
            let name = who.name();
            let is_further = |event: Value| event["name"] == name && event["state"] != "joined";
            let is_joined = |host: &Host| events(&host.program.said()).any(is_further);
            if self.hosts[&who].program.said().contains(words) {
                self.result.faults.refusals += 1;
            } else if who == Who::FullDisk && !self.hosts.values().any(is_joined) {
                let note = format!("{name} never heard how much there is to receive");
                self.result.notes.push(note);
            } else {
                let problem = format!("{name} did not say what is wrong with its folder");
                self.result.problems.push(problem);
            }
        }
    }

    fn compare(&mut self) -> Result<(), Error> {
        let second = self.plan.faults.contains(&Fault::SecondSender);
        let sent = if second { &["first", "second"][..] } else { &["first"] };
        let receivers = (0..self.request.receivers).map(Who::Receiver);
        for who in receivers.filter(|who| !self.hosts[who].is_lost) {
            let name = who.name();
            for sent in sent {
                let got = self.folder.join(&name).join(sent);
                let differences = tree::differences(&self.folder.join(sent), &got)
                    .map_err(|error| Error::Work(format!("{}: {error}", got.display())))?;
                let problem = |difference| format!("{name}: {sent}/{difference}");
                self.result.problems.extend(differences.into_iter().map(problem));
            }
            let left = tree::names(&self.folder.join(&name)).into_iter();
            let left = left.filter(|left| !sent.contains(&left.as_str()));
            self.result.problems.extend(left.map(|left| format!("{name}: {left} was left there")));
        }
        Ok(())
    }

    fn write_names(&self) -> Result<(), Error> {
        let relays = (0..RELAYS).map(Who::Relay);
        write_names(self.folder, &self.field, relays.map(|who| (who.node(), who.name())))
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
        self.field.on(Who::Outsider.node(), move || Flood::start(noise))?
    }

    fn end_flood(&mut self) {
        match self.flood.take().map(Flood::end) {
            Some(Some(packets)) => self.result.noise_packets = packets,
            Some(None) => self.result.problems.push("the outsider died".into()),
            None => {}
        }
    }
}

fn hosts(plan: &Plan, folder: &Path, request: &Request) -> BTreeMap<Who, Host> {
    let hosts = plan.programs(request.receivers).into_iter().map(|who| {
        let log = folder.join(format!("{}.log", who.name()));
        let trace = request.trace && !matches!(who, Who::Relay(_));
        let names = plan.relays.then(|| folder.join(NAMES));
        let program = Program::new(&request.own, who.node(), log, trace, names);
        (who, fresh! { Host { program, } restart_at, is_done, is_cut_off, is_lost, disk_full })
    });
    hosts.collect()
}

fn small_disks(plan: &Plan, folder: &Path) -> Result<Vec<Mount>, Error> {
    let filled = plan.trials.iter().filter(|trial| trial.fault == Fault::FullDisk);
    let filled = filled.map(|trial| (trial.who, format!("size={}", plan.bytes + ROOM_BYTES)));
    let read_only = (Fault::ReadOnly, Who::ReadOnly, "ro".to_string());
    let full = (Fault::FullDisk, Who::FullDisk, format!("size={FULL_DISK_BYTES}"));
    let is_at_once = plan.trials.is_empty();
    let both = [read_only, full].into_iter();
    let both = both.filter(|it| is_at_once && plan.faults.contains(&it.0));
    let disks = filled.chain(both.map(|(_, who, options)| (who, options)));
    let mounts = disks.map(|(who, options)| {
        let mount = Mount::new(&folder.join(who.name()), &options);
        mount.map_err(|error| Error::doing("mount a small disk", error))
    });
    mounts.collect()
}

fn without(said: &str) -> Vec<String> {
    let Some(summary) = events(said).rfind(|line| line["event"] == "summary") else {
        return Vec::new();
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let all = |key: &str| summary[key].as_array().cloned().unwrap_or_default();
    let receivers = all("receivers");
    let is_done = |name: &Value| {
        receivers.iter().any(|member| member["name"] == *name && member["state"] == "done")
    };
    let waited = receivers.iter().filter(|member| member["waited_for"] == true);
    let lacking = waited.map(|member| &member["name"]).filter(|name| !is_done(name)).map(text);
    let without: BTreeSet<String> = lacking.chain(all("missing").iter().map(text)).collect();
    without.into_iter().collect()
}

fn fill(folder: &Path) -> io::Result<()> {
    let mut file = std::fs::File::create(folder.join(FILLER))?;
    let block = vec![1; 1 << 16];
    match std::iter::repeat_with(|| file.write(&block)).find_map(Result::err) {
        Some(error) if error.kind() != io::ErrorKind::StorageFull => Err(error),
        _ => Ok(()),
    }
}
