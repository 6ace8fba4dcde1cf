//! Trace of a run: lines of JSON, sorted into one list of events for each incarnation of a process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io::{BufRead, Error, Result};

use serde::Deserialize;

pub(crate) type Set = BTreeSet<String>;

/// Delivery service of a message, weakest first.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Service {
    #[default]
    Unreliable,
    Reliable,
    Fifo,
    Causal,
    Agreed,
    Safe,
}

#[derive(Debug, Deserialize, PartialEq)]
pub(crate) struct Change {
    pub(crate) group: String,
    pub(crate) members: Set,
    pub(crate) change: String,
    pub(crate) reason: String,
    pub(crate) subject: Option<String>,
    pub(crate) view: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Quiet {
    pub(crate) view: String,
    pub(crate) pending: u64,
    pub(crate) queues: u64,
    pub(crate) groups: BTreeMap<String, Set>,
    pub(crate) connected: Set,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SentMessage {
    pub(crate) view: Option<String>,
    pub(crate) id: String,
    pub(crate) service: Service,
    pub(crate) groups: Set,
    pub(crate) hash: String,
    #[serde(default)]
    pub(crate) request: u64,
}

/// Event of a client. A cut without `closes: false` ends the connection.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event {
    Start { daemon: String, virtual_synchrony: Option<bool> },
    Send(SentMessage),
    Deliver { view: String, transitional: bool, id: String, hash: String },
    Join { group: String },
    Leave { group: String },
    Group(Change),
    View { id: String, members: Set, transitional_set: Set, previous: Option<String> },
    Transitional { closes: String, members: Set },
    Crash,
    Stop,
    Cut { from: u64, to: u64, closes: Option<bool> },
    Resume { next: u64 },
    Receipt,
    Refused { request: u64 },
    NoMembers,
    Quiet(Quiet),
}

#[derive(Debug, Deserialize)]
pub(crate) struct Line {
    process: String,
    incarnation: u64,
    #[serde(default)]
    pub(crate) n: u64,
    #[serde(flatten)]
    pub(crate) event: Event,
    #[serde(skip)]
    pub(crate) at: String,
}

#[derive(Debug, Default)]
pub(crate) struct Life {
    pub(crate) process: String,
    pub(crate) name: String,
    pub(crate) daemon: String,
    pub(crate) virtual_synchrony: bool,
    /// Events after the start. The `quiet` line is the last one.
    pub(crate) lines: Vec<Line>,
    end: Option<usize>,
}

impl Life {
    pub(crate) fn is_quiet(&self) -> bool {
        self.lines.last().is_some_and(|line| matches!(line.event, Event::Quiet(_)))
    }

    fn take(&mut self, source: usize, line: Line) -> std::result::Result<(), &'static str> {
        self.name = format!("{}/{}", line.process, line.incarnation);
        let ends = matches!(line.event, Event::Crash | Event::Stop | Event::Quiet(_));
        match line.event {
            _ if self.end == Some(source) && !ends => return Err("has ended before"),
            Event::Start { daemon, virtual_synchrony } if self.daemon.is_empty() => {
                (self.process, self.daemon) = (line.process, daemon);
                self.virtual_synchrony = virtual_synchrony == Some(true);
            }
            Event::Start { .. } => return Err("has started before"),
            Event::Crash | Event::Stop => {}
            _ if self.daemon.is_empty() && !ends => return Err("has not started"),
            _ => self.lines.push(line),
        }
        self.end = self.end.or(ends.then_some(source));
        Ok(())
    }
}

/// Trace of a run, as written by the clients.
#[derive(Debug)]
pub struct Trace {
    /// Incarnations, sorted by the name of the process and the number of the incarnation.
    pub(crate) lives: Vec<Life>,
}

impl Trace {
    /// Reads sources of JSON lines, each with its name. `crash`, `stop` and `quiet` end an
    /// incarnation from any source: a test may write them into a separate file. Fails on a line
    /// that is no event of the format, precedes `start`, or follows the end in its file.
    pub fn read<R: BufRead>(sources: impl IntoIterator<Item = (String, R)>) -> Result<Self> {
        let mut lives: BTreeMap<(String, u64), Life> = BTreeMap::new();
        for (source, (name, reader)) in sources.into_iter().enumerate() {
            for (index, text) in reader.lines().enumerate() {
                let at = format!("{name}:{}", index + 1);
                let error = |it: &dyn Display| Error::other(format!("{at}: {it}"));
                let text = text.map_err(|it| error(&it))?;
                if text.trim().is_empty() {
                    continue;
                }
                let mut line: Line = serde_json::from_str(&text).map_err(|it| error(&it))?;
                line.at.clone_from(&at);
                let life = lives.entry((line.process.clone(), line.incarnation)).or_default();
                life.take(source, line).map_err(|it| error(&format!("{} {it}", life.name)))?;
            }
        }
        let mut lives: Vec<Life> = lives.into_values().collect();
        for life in &mut lives {
            life.lines.sort_by_key(|line| matches!(line.event, Event::Quiet(_)));
        }
        Ok(Self { lives })
    }

    /// Returns the numbers of incarnations, of deliveries of messages, and of `quiet` lines.
    pub fn counts(&self) -> [usize; 3] {
        let lines = self.lives.iter().flat_map(|life| &life.lines);
        let deliveries = lines.filter(|line| matches!(line.event, Event::Deliver { .. })).count();
        [self.lives.len(), deliveries, self.lives.iter().filter(|it| it.is_quiet()).count()]
    }
}
