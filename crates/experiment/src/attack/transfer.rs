//! Transfer to two receivers in namespaces, and its progress over time.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use faircast_lab::lan::{INTERFACE, Lan};
use serde_json::Value;

use super::{Attack, RATE_MBIT_PER_S};
use crate::Error;
use crate::host::{
    Running, cpu_s_of, events, hash_of, make_content, make_key, new_lines, sent_bytes, text,
    wait_until, words,
};
use crate::monitor::Monitor;
use crate::request::Request;

pub(super) const SENDER: usize = 0;
pub(super) const RECEIVERS: [usize; 2] = [1, 2];
pub(super) const ATTACKER: usize = 3;
pub(super) const HOSTS: usize = 4;

pub(super) const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
pub(super) const PORT: u16 = 7500;
pub(super) const METRICS: u16 = 9464;

const GIVE_UP: Duration = Duration::from_secs(5);

pub(super) const END_MAX: Duration = Duration::from_secs(30);

const CONTENT: &str = "content";
const KEY: &str = "key";

/// Running program, and the events in its log so far with the times of their polls.
struct LoggedProgram {
    running: Running,
    read_bytes: u64,
    events: Vec<(Instant, Value)>,
}

impl LoggedProgram {
    fn poll(&mut self) {
        let now = Instant::now();
        let lines = new_lines(&self.running.log, &mut self.read_bytes);
        self.events.extend(events(&lines).map(|event| (now, event)));
    }

    fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a (Instant, Value)> {
        self.events.iter().filter(move |(_, event)| event["event"] == name)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Count {
    at: Instant,
    wire_bytes: u64,
    cpu_s: f64,
}

#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(super) struct Pace {
    /// Content rate at the receiver that got less.
    pub(super) mbit_per_s: f64,
    pub(super) wire_mbit_per_s: f64,
    pub(super) cpu: f64,
}

pub(super) struct Transfer<'a> {
    lan: &'a Lan,
    folder: &'a Path,
    attack: &'a Attack,
    request: &'a Request,
    monitor: &'a dyn Monitor,
    /// The sender, then the receivers that have started.
    programs: Vec<LoggedProgram>,
}

impl<'a> Transfer<'a> {
    /// Starts the sender of `bytes` bytes.
    pub(super) fn new(
        lan: &'a Lan,
        folder: &'a Path,
        attack: &'a Attack,
        request: &'a Request,
        monitor: &'a dyn Monitor,
        bytes: u64,
    ) -> Result<Self, Error> {
        let content = folder.join(CONTENT);
        make_content(&content, "faircast bench attack", bytes)
            .map_err(|error| Error::write(&content, error))?;
        if attack.key {
            make_key(&folder.join(KEY))?;
        }
        let options = format!(
            "--wait-for {} --rate-max {RATE_MBIT_PER_S}Mbit/s --give-up {}s --metrics {}:{METRICS}",
            RECEIVERS.len(),
            GIVE_UP.as_secs(),
            lan.address(SENDER)
        );
        let sender = words(&["send", &text(&content)], &options);
        let programs = Vec::new();
        let mut transfer = Self { lan, folder, attack, request, monitor, programs };
        transfer.start(SENDER, [sender, request.scheme_words()].concat())?;
        Ok(transfer)
    }

    pub(super) fn start_receivers(&mut self) -> Result<(), Error> {
        for host in RECEIVERS {
            let into = self.folder.join(host.to_string());
            std::fs::create_dir_all(&into).map_err(|error| Error::write(&into, error))?;
            let mut options = format!("--once --name host-{host}");
            if self.attack.from {
                options += &format!(" --from {}", self.lan.address(SENDER));
            }
            self.start(host, words(&["recv", "--into", &text(&into)], &options))?;
        }
        Ok(())
    }

    fn start(&mut self, host: usize, more: Vec<String>) -> Result<(), Error> {
        let program = self.request.program.as_ref().unwrap_or(&self.request.own);
        let common = format!("--group {GROUP}:{PORT} --interface {INTERFACE} --json");
        let mut command = [vec![text(program)], more, words(&[], &common)].concat();
        if self.attack.key {
            command.extend(["--key".to_string(), text(&self.folder.join(KEY))]);
        }
        let log = self.folder.join(format!("{host}.log"));
        let running = Running::on(self.lan, host, &command, log)?;
        self.programs.push(LoggedProgram { running, read_bytes: 0, events: Vec::new() });
        Ok(())
    }

    fn sender(&self) -> &LoggedProgram {
        &self.programs[0]
    }

    fn receivers(&self) -> &[LoggedProgram] {
        &self.programs[1..]
    }

    pub(super) fn wait_until(
        &mut self,
        deadline: Instant,
        mut is_so: impl FnMut(&mut Self) -> bool,
    ) -> Result<bool, Error> {
        wait_until(deadline, self.monitor, || {
            self.programs.iter_mut().for_each(LoggedProgram::poll);
            is_so(self)
        })
    }

    pub(super) fn rest(&mut self, span: Duration) -> Result<(), Error> {
        self.wait_until(Instant::now() + span, |_| false).map(|_| ())
    }

    pub(super) fn measure(&mut self, span: Duration) -> Result<(Count, Count), Error> {
        let from = self.count();
        self.rest(span)?;
        Ok((from, self.count()))
    }

    /// Waits for all copies and then for the sender. Returns the time since the last copy.
    pub(super) fn wait_for_end(&mut self) -> Result<Option<Duration>, Error> {
        let deadline = Instant::now() + END_MAX;
        self.wait_until(deadline, |transfer| transfer.complete_at().is_some())?;
        let deadline = Instant::now() + GIVE_UP + END_MAX / 3;
        let complete = self.complete_at();
        if complete.is_some() {
            let ended = |transfer: &mut Self| transfer.programs[0].running.ended().is_some();
            self.wait_until(deadline, ended)?;
        }
        Ok(complete.map(|at| at.elapsed()))
    }

    pub(super) fn runs(&self) -> bool {
        self.receivers().len() == RECEIVERS.len()
            && self.receivers().iter().all(|program| points(program).any(|(_, bytes)| bytes > 0))
    }

    fn complete_at(&self) -> Option<Instant> {
        let complete = |program: &LoggedProgram| Some(program.named("complete").next()?.0);
        self.receivers().iter().map(complete).collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Returns the times at which receivers, real or invented, joined.
    pub(super) fn joins(&self) -> Vec<Instant> {
        self.sender().named("joined").map(|(at, _)| *at).collect()
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let warnings = self.receivers().iter().flat_map(|program| program.named("warning"));
        warnings.map(|(_, event)| event["text"].as_str().unwrap_or_default().to_string()).collect()
    }

    /// Ends all programs. Returns true if the sender succeeded.
    pub(super) fn end(self) -> bool {
        let mut programs = self.programs.into_iter();
        let sender = programs.next().expect("the sender has started");
        programs.for_each(|program| _ = program.running.end(Instant::now()));
        sender.running.end(Instant::now()).is_some_and(|ended| ended.well)
    }

    pub(super) fn last_words(&self) -> String {
        let is_open = |program: &&LoggedProgram| program.named("complete").next().is_none();
        let program = self.receivers().iter().find(is_open).unwrap_or(self.sender());
        program.running.last_words()
    }

    pub(super) fn copies_are_whole(&self) -> bool {
        let sent = hash_of(&self.folder.join(CONTENT));
        let copy = |host: &usize| self.folder.join(host.to_string()).join(CONTENT);
        RECEIVERS.iter().all(|host| hash_of(&copy(host)) == sent)
    }

    pub(super) fn count(&self) -> Count {
        let process = self.sender().running.id();
        Count {
            at: Instant::now(),
            wire_bytes: sent_bytes(process).unwrap_or(0),
            cpu_s: cpu_s_of(process).unwrap_or(0.0),
        }
    }

    pub(super) fn pace(&self, from: Count, to: Count) -> Pace {
        let span = to.at.saturating_duration_since(from.at).as_secs_f64();
        let got = self.receivers().iter().map(|program| {
            let points: Vec<(Instant, u64)> = points(program).collect();
            bytes_by(&points, to.at) - bytes_by(&points, from.at)
        });
        let least = got.fold(f64::INFINITY, f64::min);
        Pace {
            mbit_per_s: least * 8e-6 / span,
            wire_mbit_per_s: to.wire_bytes.saturating_sub(from.wire_bytes) as f64 * 8e-6 / span,
            cpu: (to.cpu_s - from.cpu_s).max(0.0) / span,
        }
    }
}

fn points(program: &LoggedProgram) -> impl Iterator<Item = (Instant, u64)> {
    program.events.iter().filter_map(|(at, event)| {
        let done = |object: &Value| object["bytes_done"].as_u64();
        let bytes = match event["event"].as_str()? {
            "progress" => event["objects"].as_array()?.iter().filter_map(done).max()?,
            "complete" => done(event)?,
            _ => return None,
        };
        Some((*at, bytes))
    })
}

fn bytes_by(points: &[(Instant, u64)], at: Instant) -> f64 {
    let next = points.iter().position(|(point_at, _)| *point_at >= at);
    let Some(next) = next else { return points.last().map_or(0.0, |(_, bytes)| *bytes as f64) };
    let Some(last) = next.checked_sub(1) else { return 0.0 };
    let ((before, less), (after, more)) = (points[last], points[next]);
    let span = after.duration_since(before).as_secs_f64().max(1e-9);
    let share = at.duration_since(before).as_secs_f64() / span;
    less as f64 + share * (more as f64 - less as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_events_a_receiver_goes_on_evenly() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let points = [(at(1000), 100), (at(2000), 300)];
        for (ms, want) in [(0, 0.0), (1500, 200.0), (2000, 300.0), (5000, 300.0)] {
            assert!((bytes_by(&points, at(ms)) - want).abs() < 1e-6, "{ms}");
        }
        assert!(bytes_by(&[], begun).abs() < 1e-6);
    }
}
