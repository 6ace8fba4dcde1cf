//! Trace of a session, written at the client.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;

use super::protocol::Frame;
use crate::client::ClientEvent;
use crate::group::MemberId;
use crate::ids::DaemonRun;
use crate::trace::ClientTrace;

/// Length in bytes of the payload prefix that names a message in a trace.
const ID_BYTES: usize = 16;

#[derive(Debug, Default)]
pub(super) struct SessionTrace {
    writer: Option<ClientTrace>,
    pub(super) lines: String,
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

    pub(super) fn start(&mut self, client: &MemberId, at: &DaemonRun, is_synchronous: bool) {
        self.stop();
        self.writer = Some(ClientTrace::new(client));
        self.add(|it| it.start(at, is_synchronous));
    }

    pub(super) fn stop(&mut self) {
        self.add(|it| it.stop());
        self.writer = None;
    }

    pub(super) fn request(&mut self, frame: &Frame) {
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
    pub(super) fn event(&mut self, number: u64, event: &ClientEvent) {
        if number == 0 {
            return self.writer.iter_mut().for_each(|it| it.repeat(event));
        }
        let name = || match event {
            ClientEvent::Message { parts, .. } => id(parts),
            _ => String::new(),
        };
        self.add(|it| it.event(number, event, name));
    }

    pub(super) fn resume(&mut self, next: u64) {
        self.add(|it| it.resume(next));
    }
}
