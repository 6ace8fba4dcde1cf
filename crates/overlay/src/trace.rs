//! Traces of clients: lines of JSON, which `faircast-check` reads.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write as _;

use crate::cell::Service;
use crate::client::ClientEvent;
use crate::group::Mate;
use crate::ids::{DaemonRun, ViewId};

/// Writer of the trace of a client.
#[derive(Debug)]
pub struct ClientTrace {
    /// Name of the client, quoted.
    process: String,
    incarnation: u64,
    is_transitional: bool,
}

/// A text in quotes.
fn quoted(text: &[u8]) -> String {
    let mut out = String::from("\"");
    for c in String::from_utf8_lossy(text).chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => _ = write!(out, "\\u{:04x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

pub(crate) fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

pub(crate) fn daemon(run: &DaemonRun) -> String {
    format!("\"d{}#{}\"", run.id.0, run.incarnation)
}

pub(crate) fn daemons(runs: &[DaemonRun]) -> String {
    list(runs.iter().map(daemon))
}

pub(crate) fn mate(mate: &Mate) -> String {
    let name = [&mate.name, &b"@d"[..], mate.daemon.0.to_string().as_bytes()].concat();
    quoted(&name)
}

impl ClientTrace {
    /// The trace of a client of a daemon.
    pub fn new(client: &Mate) -> Self {
        let process = mate(client);
        Self { process, incarnation: client.incarnation, is_transitional: false }
    }

    /// Number of the client's run.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    fn line(&self, n: u64, fields: &str) -> String {
        let Self { process, incarnation, .. } = self;
        format!(
            "{{\"process\":{process},\"incarnation\":{incarnation},\"n\":{n},\"event\":{fields}}}"
        )
    }

    /// Line of a client that begins at a daemon, with or without virtual synchrony.
    pub fn start(&self, at: &DaemonRun, is_synchronous: bool) -> String {
        let synchrony = if is_synchronous { ",\"virtual_synchrony\":true" } else { "" };
        self.line(0, &format!("\"start\",\"daemon\":{}{synchrony}", daemon(at)))
    }

    /// Line of a session that goes on with event number `next`.
    pub fn resume(&self, next: u64) -> String {
        self.line(0, &format!("\"resume\",\"next\":{next}"))
    }

    /// Line of a client that ends.
    pub fn stop(&self) -> String {
        self.line(0, "\"stop\"")
    }

    /// Line of a request to join a group.
    pub fn join(&self, group: &[u8]) -> String {
        self.line(0, &format!("\"join\",\"group\":{}", quoted(group)))
    }

    /// Line of a request to leave a group.
    pub fn leave(&self, group: &[u8]) -> String {
        self.line(0, &format!("\"leave\",\"group\":{}", quoted(group)))
    }

    /// Line of a message. `view` is the view in which the daemon has taken the message, or in which
    /// alone it may be delivered; `None` if unknown. `id` is unique in the trace, and `request` in
    /// the session. A message has a service, groups and a length in bytes.
    pub fn send(
        &self,
        view: Option<ViewId>,
        (id, request): (&str, u64),
        (service, groups, bytes): (Service, &[&[u8]], usize),
    ) -> String {
        let groups = list(groups.iter().map(|it| quoted(it)));
        let view = view.map_or_else(|| "null".into(), |it| format!("\"{it}\""));
        let fields = format!(
            "\"send\",\"view\":{view},\"id\":\"{id}\",\"service\":\"{}\",\"groups\":{groups},\
             \"hash\":\"{bytes}\",\"request\":{request}",
            service.name()
        );
        self.line(0, &fields)
    }

    /// Line of event number `n`. `id` names a message by its content.
    pub fn event(&mut self, n: u64, event: &ClientEvent, id: impl FnOnce() -> String) -> String {
        self.repeat(event);
        self.line(n, &fields(event, self.is_transitional, id))
    }

    /// Takes the repeated state of an event that is among lost ones, which has no line.
    pub fn repeat(&mut self, event: &ClientEvent) {
        match event {
            ClientEvent::Transitional { .. } => self.is_transitional = true,
            ClientEvent::View { .. } => self.is_transitional = false,
            _ => {}
        }
    }
}

/// Name of an event and its fields.
pub(crate) fn fields(
    event: &ClientEvent,
    is_transitional: bool,
    id: impl FnOnce() -> String,
) -> String {
    match event {
        ClientEvent::Message { parts, view, .. } => {
            let bytes: usize = parts.iter().map(bytes::Bytes::len).sum();
            let id = id();
            format!(
                "\"deliver\",\"view\":\"{view}\",\"transitional\":{is_transitional},\
                 \"id\":\"{id}\",\"hash\":\"{bytes}\""
            )
        }
        ClientEvent::Group { group, members, reason, subject, position, view } => {
            let (group, members) = (quoted(group), list(members.iter().map(mate)));
            let reason = format!("{reason:?}").to_lowercase();
            let subject = subject.as_ref().map_or_else(|| "null".into(), mate);
            format!(
                "\"group\",\"group\":{group},\"members\":{members},\"reason\":\"{reason}\",\
                 \"subject\":{subject},\"change\":\"{view} {position:?}\",\"view\":\"{view}\""
            )
        }
        ClientEvent::Transitional { closes, members } => {
            let members = daemons(members);
            format!("\"transitional\",\"closes\":\"{closes}\",\"members\":{members}")
        }
        ClientEvent::View { id, members, together, previous, .. } => {
            let (members, together) = (daemons(members), daemons(together));
            let previous = previous.map_or_else(|| "null".into(), |it| format!("\"{it}\""));
            format!(
                "\"view\",\"id\":\"{id}\",\"members\":{members},\
                 \"transitional_set\":{together},\"previous\":{previous},\
                 \"reason\":\"network\""
            )
        }
        ClientEvent::Receipt { request, members, view } => {
            format!("\"receipt\",\"request\":{request},\"members\":{members},\"view\":\"{view}\"")
        }
        ClientEvent::NoMembers { request, groups } => {
            let groups = list(groups.iter().map(quoted));
            format!("\"no-members\",\"request\":{request},\"groups\":{groups}")
        }
        ClientEvent::Refused { request, reason } => {
            let reason = format!("{reason:?}").to_lowercase();
            format!("\"refused\",\"request\":{request},\"reason\":\"{reason}\"")
        }
        ClientEvent::Cut { lost: (from, to), closes } => {
            format!("\"cut\",\"from\":{from},\"to\":{to},\"closes\":{closes}")
        }
    }
}
