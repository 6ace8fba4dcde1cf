//! Session of a client, shared by its connections and its application.

use std::fs::File;
use std::io::Write as _;

use faircast_node::{Batch, incarnation};
use faircast_overlay::protocol::{Frame, ReasonCode, Welcome};
use faircast_overlay::{GroupEvent, RemoteSession};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::{ClientOptions, GroupError};

#[derive(Debug)]
pub(super) struct Shared {
    session: Mutex<RemoteSession>,
    pub(super) events: Notify,
    pub(super) room: Notify,
    pub(super) work: Notify,
    /// Room for events, for the reading side of the connection.
    pub(super) drained: Notify,
    pub(super) closing: Notify,
    /// File of the trace; `None` inside after an error.
    trace: Option<Mutex<Option<File>>>,
}

impl Shared {
    pub(super) fn new(name: &str, options: &ClientOptions) -> Result<Self, GroupError> {
        let [events, room, work, drained, closing] = std::array::from_fn(|_| Notify::new());
        let mut session = RemoteSession::new(name, incarnation(), options.virtual_synchrony);
        let mut trace = None;
        if let Some(path) = &options.trace {
            let file = File::options().create(true).append(true).open(path).map_err(|error| {
                let path = path.display();
                let text = format!("trace {path}: {error}; expected a file that can be written");
                GroupError::Usage(text)
            })?;
            trace = Some(Mutex::new(Some(file)));
            session.begin_trace();
        }
        let session = Mutex::new(session);
        Ok(Self { session, events, room, work, drained, closing, trace })
    }

    fn write_trace(&self) {
        let Some(trace) = &self.trace else { return };
        // The file is locked first, which keeps the order of lines.
        let mut file = trace.lock();
        let lines = self.session().take_trace();
        if let Some(Err(error)) = file.as_mut().map(|file| file.write_all(lines.as_bytes())) {
            tracing::error!(target: "faircast::session", %error, "the trace ends here");
            *file = None;
        }
    }

    pub(super) fn session(&self) -> MutexGuard<'_, RemoteSession> {
        self.session.lock()
    }

    pub(super) fn request(
        &self,
        frame: impl FnOnce(u64) -> Frame,
        bytes: usize,
    ) -> Result<u64, GroupError> {
        let number = self.session().request(frame, bytes)?;
        self.work.notify_one();
        Ok(number)
    }

    pub(super) fn next(&self) -> Result<Option<GroupEvent>, GroupError> {
        let mut session = self.session();
        let event = session.poll_event()?;
        let has_room = session.has_room();
        drop(session);
        if has_room {
            self.drained.notify_one();
        }
        Ok(event)
    }

    pub(super) fn close(&self) {
        self.session().close();
        self.work.notify_one();
        self.drained.notify_one();
        self.closing.notify_one();
    }

    pub(super) fn end(&self, refused: Option<(ReasonCode, String)>) {
        self.session().end(refused);
        self.write_trace();
        self.notify_application();
    }

    pub(super) fn restart(&self) {
        self.session().restart(incarnation());
        self.notify_application();
    }

    pub(super) fn begin(&self, welcome: &Welcome) {
        self.session().begin(welcome);
        self.room.notify_waiters();
    }

    pub(super) fn disconnected(&self, reason: String) {
        self.session().disconnected(reason);
        self.events.notify_waiters();
    }

    fn notify_application(&self) {
        self.events.notify_waiters();
        self.room.notify_waiters();
    }

    pub(super) fn fill(&self, batch: &mut Batch) -> bool {
        let mut session = self.session();
        session.fill(|frame| batch.push(frame));
        let is_done = session.is_done();
        drop(session);
        self.write_trace();
        !is_done
    }

    pub(super) fn take(&self, frame: Frame) -> Result<(), (ReasonCode, String)> {
        let mut session = self.session();
        if session.take(frame)? {
            let has_work = session.has_work();
            drop(session);
            self.room.notify_waiters();
            if has_work {
                self.work.notify_one();
            }
        }
        Ok(())
    }

    /// Announces new events; true if there is room for more.
    pub(super) fn has_room(&self) -> bool {
        self.write_trace();
        let session = self.session();
        if session.has_events() {
            self.events.notify_waiters();
        }
        session.has_room()
    }
}
