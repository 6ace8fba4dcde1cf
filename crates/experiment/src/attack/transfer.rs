//! Transfer to two receivers in namespaces, and its progress over time.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use faircast_lab::lan::{INTERFACE, Lan};
use serde_json::Value;

use crate::Error;
use crate::host::{
    Running, hash_of, make_content, make_key, new_lines, sent_bytes, stat, text, wait_until, words,
};
use crate::monitor::Monitor;

pub(super) const SENDER: usize = 0;
pub(super) const RECEIVERS: [usize; 2] = [1, 2];
pub(super) const ATTACKER: usize = 3;
pub(super) const HOSTS: usize = 4;

pub(super) const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
pub(super) const PORT: u16 = 7500;
pub(super) const METRICS: u16 = 9464;

const GIVE_UP: Duration = Duration::from_secs(5);

/// Longest wait for the end of a transfer.
pub(super) const END_MAX: Duration = Duration::from_secs(30);

const CONTENT: &str = "content";
const KEY: &str = "key";

/// Running program, and the events in its log so far with the times of their polls.
struct LoggedProgram {
    running: Running,
    log: PathBuf,
    read_bytes: u64,
    events: Vec<(Instant, Value)>,
}

impl LoggedProgram {
    fn poll(&mut self) {
        let now = Instant::now();
        for line in new_lines(&self.log, &mut self.read_bytes).lines() {
            self.events.extend(serde_json::from_str(line).ok().map(|event| (now, event)));
        }
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

#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) program: PathBuf,
    pub(super) bytes: u64,
    pub(super) rate: String,
    pub(super) key: bool,
    pub(super) from: bool,
    pub(super) scheme: Vec<String>,
}

pub(super) struct Transfer<'a> {
    lan: &'a Lan,
    folder: &'a Path,
    order: Order,
    sender: Option<LoggedProgram>,
    receivers: Vec<LoggedProgram>,
    monitor: &'a dyn Monitor,
}

impl<'a> Transfer<'a> {
    pub(super) fn new(
        lan: &'a Lan,
        folder: &'a Path,
        order: Order,
        monitor: &'a dyn Monitor,
    ) -> Result<Self, Error> {
        let path = folder.join(CONTENT);
        make_content(&path, "faircast bench attack", order.bytes)
            .map_err(|error| Error::write(&path, error))?;
        if order.key {
            make_key(&folder.join(KEY))?;
        }
        Ok(Self { lan, folder, order, sender: None, receivers: Vec::new(), monitor })
    }

    pub(super) fn start_sender(&mut self) -> Result<(), Error> {
        let options = format!(
            "--wait-for {} --rate-max {} --give-up {}s --metrics {}:{METRICS}",
            RECEIVERS.len(),
            self.order.rate,
            GIVE_UP.as_secs(),
            self.lan.address(SENDER)
        );
        let sender = words(&["send", &text(&self.folder.join(CONTENT))], &options);
        self.sender = Some(self.start(SENDER, [sender, self.order.scheme.clone()].concat())?);
        Ok(())
    }

    pub(super) fn start_receivers(&mut self) -> Result<(), Error> {
        for host in RECEIVERS {
            let into = self.folder.join(host.to_string());
            std::fs::create_dir_all(&into).map_err(|error| Error::write(&into, error))?;
            let mut options = format!("--once --name host-{host}");
            if self.order.from {
                options += &format!(" --from {}", self.lan.address(SENDER));
            }
            let words = words(&["recv", "--into", &text(&into)], &options);
            let receiver = self.start(host, words)?;
            self.receivers.push(receiver);
        }
        Ok(())
    }

    fn start(&self, host: usize, more: Vec<String>) -> Result<LoggedProgram, Error> {
        let common = format!("--group {GROUP}:{PORT} --interface {INTERFACE} --json");
        let mut command = [vec![text(&self.order.program)], more, words(&[], &common)].concat();
        if self.order.key {
            command.extend(["--key".to_string(), text(&self.folder.join(KEY))]);
        }
        let log = self.folder.join(format!("{host}.log"));
        let running = Running::start(self.lan, host, &command, log.clone())?;
        Ok(LoggedProgram { running, log, read_bytes: 0, events: Vec::new() })
    }

    fn poll(&mut self) {
        self.sender.iter_mut().chain(&mut self.receivers).for_each(LoggedProgram::poll);
    }

    pub(super) fn wait_until(
        &mut self,
        deadline: Instant,
        mut is_so: impl FnMut(&mut Self) -> bool,
    ) -> Result<bool, Error> {
        wait_until(deadline, self.monitor, || {
            self.poll();
            is_so(self)
        })
    }

    pub(super) fn rest(&mut self, span: Duration) -> Result<(), Error> {
        self.wait_until(Instant::now() + span, |_| false).map(|_| ())
    }

    /// Returns the counts at the begin and the end of a span.
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
            self.wait_until(deadline, Self::sender_has_ended)?;
        }
        Ok(complete.map(|at| at.elapsed()))
    }

    pub(super) fn runs(&self) -> bool {
        self.receivers.len() == RECEIVERS.len()
            && self.receivers.iter().all(|program| points(program).any(|(_, bytes)| bytes > 0))
    }

    fn has_all(program: &LoggedProgram) -> bool {
        program.named("complete").next().is_some()
    }

    fn complete_at(&self) -> Option<Instant> {
        let last = |program: &LoggedProgram| program.named("complete").map(|(at, _)| *at).next();
        self.receivers.iter().map(last).collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    pub(super) fn joined_at(&self, count: usize) -> Option<Instant> {
        let joined = self.sender.as_ref()?.named("joined").nth(count - 1);
        joined.map(|(at, _)| *at)
    }

    pub(super) fn joined(&self) -> usize {
        self.sender.as_ref().map_or(0, |program| program.named("joined").count())
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let warnings = self.receivers.iter().flat_map(|program| program.named("warning"));
        warnings.map(|(_, event)| event["text"].as_str().unwrap_or_default().to_string()).collect()
    }

    fn sender_has_ended(&mut self) -> bool {
        self.sender.as_mut().is_some_and(|program| program.running.ended().is_some())
    }

    pub(super) fn end(&mut self) -> bool {
        for program in self.receivers.drain(..) {
            program.running.end(Instant::now());
        }
        let ended = self.sender.take().and_then(|program| program.running.end(Instant::now()));
        ended.is_some_and(|ended| ended.well)
    }

    pub(super) fn last_words(&self) -> String {
        let open = self.receivers.iter().find(|program| !Self::has_all(program));
        let program = open.or(self.sender.as_ref());
        program.map(|program| program.running.last_words()).unwrap_or_default()
    }

    pub(super) fn copies_are_whole(&self) -> bool {
        let sent = hash_of(&self.folder.join(CONTENT));
        let copy = |host: &usize| self.folder.join(host.to_string()).join(CONTENT);
        RECEIVERS.iter().all(|host| hash_of(&copy(host)) == sent)
    }

    pub(super) fn count(&self) -> Count {
        let process = self.sender.as_ref().map(|program| program.running.id());
        Count {
            at: Instant::now(),
            wire_bytes: process.and_then(sent_bytes).unwrap_or(0),
            cpu_s: process.and_then(cpu_s).unwrap_or(0.0),
        }
    }

    pub(super) fn pace(&self, from: Count, to: Count) -> Pace {
        let span = to.at.saturating_duration_since(from.at).as_secs_f64();
        let got = self.receivers.iter().map(|program| {
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
    match next {
        None => points.last().map_or(0.0, |(_, bytes)| *bytes as f64),
        Some(0) => 0.0,
        Some(next) => {
            let ((before, less), (after, more)) = (points[next - 1], points[next]);
            let span = after.duration_since(before).as_secs_f64().max(1e-9);
            let share = at.duration_since(before).as_secs_f64() / span;
            less as f64 + share * (more as f64 - less as f64)
        }
    }
}

fn cpu_s(process: u32) -> Option<f64> {
    // The times follow the state and ten more numbers.
    let ticks = stat(process)?.into_iter().skip(11).take(2).map(|word| word.parse::<f64>());
    let ticks: f64 = ticks.collect::<Result<Vec<_>, _>>().ok()?.iter().sum();
    Some(ticks / TICKS_PER_S)
}

/// Clock ticks per second in the kernel's interfaces, the same on all architectures.
const TICKS_PER_S: f64 = 100.0;

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

    #[test]
    fn cpu_time_is_known() {
        assert!(cpu_s(std::process::id()).is_some());
        assert_eq!(cpu_s(u32::MAX), None);
    }
}
