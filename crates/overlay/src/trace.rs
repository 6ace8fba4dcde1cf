//! Traces of clients: lines of JSON for `faircast-check`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write as _;

use bytes::Bytes;

use crate::cell::Service;
use crate::client::ClientEvent;
use crate::group::MemberId;
use crate::ids::{DaemonRun, ViewId};
use crate::session::protocol::Frame;

/// Writer of a client's trace.
#[derive(Debug)]
pub struct ClientTrace {
    process: String,
    incarnation: u64,
    is_transitional: bool,
}

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

pub(crate) fn member(member: &MemberId) -> String {
    let name = [&member.name, &b"@d"[..], member.daemon.0.to_string().as_bytes()].concat();
    quoted(&name)
}

#[expect(missing_docs, reason = "methods without a text return the line of their event")]
impl ClientTrace {
    /// Creates the trace of a client.
    pub fn new(client: &MemberId) -> Self {
        let process = member(client);
        Self { process, incarnation: client.incarnation, is_transitional: false }
    }

    /// Returns the number of the client's run.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    fn line(&self, n: u64, fields: &str) -> String {
        let Self { process, incarnation, .. } = self;
        format!(
            "{{\"process\":{process},\"incarnation\":{incarnation},\"n\":{n},\"event\":{fields}}}"
        )
    }

    /// Returns the line of a client that starts at a daemon, with or without virtual synchrony.
    pub fn start(&self, at: &DaemonRun, is_synchronous: bool) -> String {
        let synchrony = if is_synchronous { ",\"virtual_synchrony\":true" } else { "" };
        self.line(0, &format!("\"start\",\"daemon\":{}{synchrony}", daemon(at)))
    }

    pub fn resume(&self, next: u64) -> String {
        self.line(0, &format!("\"resume\",\"next\":{next}"))
    }

    pub fn stop(&self) -> String {
        self.line(0, "\"stop\"")
    }

    pub fn join(&self, group: &[u8]) -> String {
        self.line(0, &format!("\"join\",\"group\":{}", quoted(group)))
    }

    pub fn leave(&self, group: &[u8]) -> String {
        self.line(0, &format!("\"leave\",\"group\":{}", quoted(group)))
    }

    /// Returns the line of a sent message. `id` is unique in the trace, `request` in the session.
    /// `view`: the view of acceptance or restriction; `None` if unknown.
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

    /// Returns the line of event number `n`. `id` names a message by its content.
    pub fn event(&mut self, n: u64, event: &ClientEvent, id: impl FnOnce() -> String) -> String {
        self.repeat(event);
        self.line(n, &fields(event, self.is_transitional, id))
    }

    /// Takes a repeated state, whose event is among the lost ones and gets no line.
    pub fn repeat(&mut self, event: &ClientEvent) {
        match event {
            ClientEvent::Transitional { .. } => self.is_transitional = true,
            ClientEvent::View { .. } => self.is_transitional = false,
            _ => {}
        }
    }
}

pub(crate) fn fields(
    event: &ClientEvent,
    is_transitional: bool,
    id: impl FnOnce() -> String,
) -> String {
    match event {
        ClientEvent::Message { parts, view, .. } => {
            let bytes: usize = parts.iter().map(Bytes::len).sum();
            format!(
                "\"deliver\",\"view\":\"{view}\",\"transitional\":{is_transitional},\
                 \"id\":\"{}\",\"hash\":\"{bytes}\"",
                id()
            )
        }
        ClientEvent::Group { group, members, reason, subject, position, view } => {
            let (group, members) = (quoted(group), list(members.iter().map(member)));
            let reason = format!("{reason:?}").to_lowercase();
            let subject = subject.as_ref().map_or_else(|| "null".into(), member);
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

/// Length in bytes of the payload prefix that names a message in a trace.
const ID_BYTES: usize = 16;

/// Trace of a session, written at the client.
#[derive(Debug, Default)]
pub(crate) struct SessionTrace {
    writer: Option<ClientTrace>,
    pub(crate) lines: String,
}

fn id(parts: &[Bytes]) -> String {
    let bytes = parts.iter().flatten().take(ID_BYTES);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

impl SessionTrace {
    fn add(&mut self, line: impl FnOnce(&mut ClientTrace) -> String) {
        if let Some(writer) = &mut self.writer {
            self.lines += &line(writer);
            self.lines.push('\n');
        }
    }

    pub(crate) fn start(&mut self, client: &MemberId, at: &DaemonRun, is_synchronous: bool) {
        self.stop();
        self.writer = Some(ClientTrace::new(client));
        self.add(|it| it.start(at, is_synchronous));
    }

    pub(crate) fn stop(&mut self) {
        self.add(|it| it.stop());
        self.writer = None;
    }

    pub(crate) fn request(&mut self, frame: &Frame) {
        match frame {
            Frame::Join { group, .. } => self.add(|it| it.join(group)),
            Frame::Leave { group, .. } => self.add(|it| it.leave(group)),
            Frame::Send { request, service, view, groups, payload, .. } => {
                let id = id(core::slice::from_ref(payload));
                let groups: Vec<&[u8]> = groups.iter().collect();
                let message = (*service, &*groups, payload.len());
                self.add(|it| it.send(*view, (&id, *request), message));
            }
            _ => {}
        }
    }

    /// Records an event with its number. Number 0 marks the repeated state of a lost event.
    pub(crate) fn event(&mut self, number: u64, event: &ClientEvent) {
        if number == 0 {
            return self.writer.iter_mut().for_each(|it| it.repeat(event));
        }
        let name = || match event {
            ClientEvent::Message { parts, .. } => id(parts),
            _ => String::new(),
        };
        self.add(|it| it.event(number, event, name));
    }

    pub(crate) fn resume(&mut self, next: u64) {
        self.add(|it| it.resume(next));
    }
}
