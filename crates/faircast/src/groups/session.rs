//! Session of a client, shared by its connections and its application.

use faircast_node::{Batch, incarnation};
use faircast_overlay::protocol::{Code, Frame, Welcome};
use faircast_overlay::{GroupEvent, RemoteSession};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::{ClientOptions, GroupError};

#[derive(Debug)]
pub(super) struct Shared {
    session: Mutex<RemoteSession>,
    /// There is an event, or the session is over.
    pub(super) events: Notify,
    /// There is room for requests, or the session is over.
    pub(super) room: Notify,
    /// There is something to write.
    pub(super) work: Notify,
    /// There is room for events.
    pub(super) drained: Notify,
    /// The client is to be closed.
    pub(super) closing: Notify,
}

impl Shared {
    pub(super) fn new(name: &str, options: &ClientOptions) -> Self {
        let [events, room, work, drained, closing] = std::array::from_fn(|_| Notify::new());
        let session =
            Mutex::new(RemoteSession::new(name, incarnation(), options.virtual_synchrony));
        Self { session, events, room, work, drained, closing }
    }

    /// The session. The guard is dropped before anybody is told.
    pub(super) fn session(&self) -> MutexGuard<'_, RemoteSession> {
        self.session.lock()
    }

    /// Queues a request. Returns its number.
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

    /// Ends the session for good.
    pub(super) fn end(&self, refused: Option<(Code, String)>) {
        self.session().end(refused);
        self.tell_all();
    }

    /// Forgets a session that the daemon does not have any more.
    pub(super) fn restart(&self) {
        self.session().restart(incarnation());
        self.tell_all();
    }

    /// The connection is up.
    pub(super) fn begin(&self, welcome: &Welcome) {
        self.session().begin(welcome);
        self.room.notify_waiters();
    }

    /// Reports a lost connection.
    pub(super) fn disconnected(&self, reason: String) {
        self.session().disconnected(reason);
        self.events.notify_waiters();
    }

    fn tell_all(&self) {
        self.events.notify_waiters();
        self.room.notify_waiters();
    }

    /// Moves requests into a batch. Returns false if the session is to be closed and all requests
    /// are handled.
    pub(super) fn fill(&self, batch: &mut Batch) -> bool {
        let mut session = self.session();
        session.fill(|frame| batch.push(frame));
        !session.is_done()
    }

    /// Takes a frame of the daemon.
    ///
    /// # Errors
    /// The daemon closes the connection, or the frame is not allowed.
    pub(super) fn take(&self, frame: Frame) -> Result<(), (Code, String)> {
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

    /// True if events may be read.
    pub(super) fn has_room(&self) -> bool {
        let session = self.session();
        if session.has_events() {
            self.events.notify_waiters();
        }
        session.has_room()
    }
}
