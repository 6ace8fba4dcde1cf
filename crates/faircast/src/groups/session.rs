//! State of a client that its connections share: requests and events.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use faircast_node::protocol::{Code, Frame, Welcome};
use faircast_node::{Batch, incarnation};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::event::GroupEvent;
use super::{GroupError, WaitReason};

/// Most bytes of requests that the daemon has not handled.
const WINDOW_BYTES: usize = 1 << 20;
/// Most bytes of events that wait for the application.
const EVENT_BYTES: usize = 4 << 20;
/// Bytes of requests that are written together.
const BATCH_BYTES: usize = 256 << 10;
/// Bytes of a request or an event beside its payload.
const HEAD_BYTES: usize = 128;
/// Number of the first request. Joins of a new session have smaller ones.
const FIRST_REQUEST: u64 = 1 << 32;

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
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

#[derive(Debug)]
struct State {
    name: Bytes,
    full_name: String,
    incarnation: u64,
    /// Number of the next event; 0 before the first session.
    next: u64,
    last_request: u64,
    /// Requests that the daemon has not handled.
    queue: VecDeque<(u64, Frame, usize)>,
    queue_bytes: usize,
    /// Requests at the front of the queue that are written.
    written: usize,
    /// Requests at the front of the queue that any connection may have brought to the daemon.
    tried: usize,
    groups: BTreeSet<Bytes>,
    waiting: Option<WaitReason>,
    pong: Option<u64>,
    events: VecDeque<(GroupEvent, usize)>,
    event_bytes: usize,
    is_closing: bool,
    /// Error that has ended the session.
    over: Option<(Code, String)>,
    is_over: bool,
}

impl Shared {
    pub(super) fn new(name: &str) -> Self {
        let state = State {
            name: Bytes::copy_from_slice(name.as_bytes()),
            full_name: String::new(),
            incarnation: incarnation(),
            next: 0,
            last_request: FIRST_REQUEST,
            queue: VecDeque::new(),
            queue_bytes: 0,
            written: 0,
            tried: 0,
            groups: BTreeSet::new(),
            waiting: None,
            pong: None,
            events: VecDeque::new(),
            event_bytes: 0,
            is_closing: false,
            over: None,
            is_over: false,
        };
        let [events, room, work, drained, closing] = std::array::from_fn(|_| Notify::new());
        Self { state: Mutex::new(state), events, room, work, drained, closing }
    }

    pub(super) fn full_name(&self) -> String {
        self.state.lock().full_name.clone()
    }

    /// Queues a request. Returns its number.
    pub(super) fn request(
        &self,
        frame: impl FnOnce(u64) -> Frame,
        bytes: usize,
    ) -> Result<u64, GroupError> {
        let mut state = self.state.lock();
        state.check()?;
        if state.is_closing {
            return Err(GroupError::Closed);
        }
        let bytes = bytes + HEAD_BYTES;
        if state.queue_bytes > 0 && state.queue_bytes + bytes > WINDOW_BYTES {
            let is_full = state.event_bytes >= EVENT_BYTES;
            let own = if is_full { WaitReason::Events } else { WaitReason::Window };
            return Err(GroupError::WouldBlock(state.waiting.unwrap_or(own)));
        }
        state.last_request += 1;
        let number = state.last_request;
        let frame = frame(number);
        match &frame {
            Frame::Join(_, group) => _ = state.groups.insert(group.clone()),
            Frame::Leave(_, group) => _ = state.groups.remove(group),
            _ => {}
        }
        state.queue_bytes += bytes;
        state.queue.push_back((number, frame, bytes));
        drop(state);
        self.work.notify_one();
        Ok(number)
    }

    pub(super) fn is_flushed(&self) -> Result<bool, GroupError> {
        let state = self.state.lock();
        state.check().map(|()| state.queue.is_empty())
    }

    pub(super) fn next(&self) -> Result<Option<GroupEvent>, GroupError> {
        let mut state = self.state.lock();
        let Some((event, bytes)) = state.events.pop_front() else {
            return state.check().map(|()| None);
        };
        state.event_bytes -= bytes;
        if state.event_bytes < EVENT_BYTES {
            self.drained.notify_one();
        }
        Ok(Some(event))
    }

    pub(super) fn close(&self) {
        self.state.lock().is_closing = true;
        self.work.notify_one();
        self.drained.notify_one();
        self.closing.notify_one();
    }

    /// Ends the session for good.
    pub(super) fn end(&self, over: Option<(Code, String)>) {
        let mut state = self.state.lock();
        (state.is_over, state.over) = (true, over);
        drop(state);
        self.events.notify_waiters();
        self.room.notify_waiters();
    }

    pub(super) fn is_closing(&self) -> bool {
        self.state.lock().is_closing
    }

    /// First frame of a connection, with the number of the next event if a session exists.
    pub(super) fn hello(&self) -> (Frame, bool) {
        let state = self.state.lock();
        let (version, next) = (faircast_node::protocol::VERSION, state.next);
        let (incarnation, name) = (state.incarnation, state.name.clone());
        (Frame::Hello { version, incarnation, next, name }, next > 0)
    }

    /// Forgets a session that the daemon does not have any more. The next one joins all groups.
    pub(super) fn restart(&self) {
        let mut state = self.state.lock();
        state.incarnation = incarnation().max(state.incarnation + 1);
        state.next = 0;
        let tried = std::mem::take(&mut state.tried);
        let is_send = |frame: &Frame| matches!(frame, Frame::Send { .. });
        let unsure = state.queue.iter().take(tried).filter(|it| is_send(&it.1)).count();
        let joins = (1..).zip(&state.groups);
        let joins = joins.map(|(number, group)| (number, Frame::Join(number, group.clone()), 0));
        let mut queue: VecDeque<_> = joins.collect();
        let rest = std::mem::take(&mut state.queue);
        queue.extend(rest.into_iter().skip(tried).filter(|it| is_send(&it.1)));
        state.queue_bytes = queue.iter().map(|it| it.2).sum();
        state.queue = queue;
        state.push(GroupEvent::Restarted { unsure }, 0);
        drop(state);
        self.events.notify_waiters();
        self.room.notify_waiters();
    }

    /// The connection is up: requests that the daemon has not handled are written again.
    pub(super) fn begin(&self, welcome: &Welcome) {
        let mut state = self.state.lock();
        state.full_name = String::from_utf8_lossy(&welcome.full_name).into_owned();
        state.next = state.next.max(1);
        (state.written, state.waiting) = (0, None);
        state.handled(welcome.taken);
        drop(state);
        self.room.notify_waiters();
    }

    /// Reports a lost connection, once until another one is up.
    pub(super) fn disconnected(&self, reason: String) {
        let mut state = self.state.lock();
        if state.waiting.replace(WaitReason::Disconnected) != Some(WaitReason::Disconnected) {
            state.push(GroupEvent::Disconnected { reason }, 0);
            drop(state);
            self.events.notify_waiters();
        }
    }

    /// Moves requests into a batch. Returns false if the session is to be closed and all requests
    /// are handled.
    pub(super) fn fill(&self, batch: &mut Batch) -> bool {
        let mut state = self.state.lock();
        if let Some(number) = state.pong.take() {
            batch.push(&Frame::Pong(number));
        }
        let State { queue, written, tried, is_closing, .. } = &mut *state;
        let mut bytes = 0;
        while let Some((_, frame, len)) = queue.get(*written).filter(|_| bytes < BATCH_BYTES) {
            batch.push(frame);
            bytes += len;
            *written += 1;
        }
        *tried = (*tried).max(*written);
        !(*is_closing && queue.is_empty())
    }

    /// Takes a frame of the daemon.
    ///
    /// # Errors
    /// The daemon closes the connection, or the frame is not allowed.
    pub(super) fn take(&self, frame: Frame) -> Result<(), (Code, String)> {
        let mut state = self.state.lock();
        match frame {
            Frame::Event(number, event) => {
                state.next = number + 1;
                let bytes = match &event {
                    faircast_overlay::ClientEvent::Message { parts, .. } => {
                        parts.iter().map(Bytes::len).sum()
                    }
                    _ => 0,
                };
                state.push(event.into(), bytes);
            }
            Frame::Resumed(lost) => state.push(GroupEvent::Resumed { lost }, 0),
            Frame::Refused(request, _, text) => {
                state.push(GroupEvent::Refused { request, text }, 0);
            }
            Frame::Sent(request) => {
                state.handled(request);
                self.room.notify_waiters();
                if state.is_closing && state.queue.is_empty() {
                    self.work.notify_one();
                }
            }
            Frame::Waiting(code) => state.waiting = code.map(WaitReason::from),
            Frame::Ping(number) => {
                state.pong = Some(number);
                self.work.notify_one();
            }
            Frame::Pong(_) => {}
            Frame::Error(code, text) => return Err((code, text)),
            _ => return Err((Code::Malformed, "a frame that clients send".to_string())),
        }
        Ok(())
    }

    /// True if events may be read: not too many wait for the application, or nobody takes them.
    pub(super) fn has_room(&self) -> bool {
        let state = self.state.lock();
        if state.event_bytes > 0 {
            self.events.notify_waiters();
        }
        state.event_bytes < EVENT_BYTES || state.is_closing
    }
}

impl State {
    fn push(&mut self, event: GroupEvent, bytes: usize) {
        if self.is_closing {
            return;
        }
        let bytes = bytes + HEAD_BYTES;
        self.event_bytes += bytes;
        self.events.push_back((event, bytes));
    }

    /// Forgets requests up to a number.
    fn handled(&mut self, request: u64) {
        while let Some((_, _, bytes)) = self.queue.front().filter(|it| it.0 <= request) {
            self.queue_bytes -= bytes;
            self.queue.pop_front();
            self.written = self.written.saturating_sub(1);
            self.tried = self.tried.saturating_sub(1);
        }
    }

    fn check(&self) -> Result<(), GroupError> {
        match &self.over {
            _ if !self.is_over => Ok(()),
            Some((code, text)) => {
                Err(GroupError::Refused { code: *code as u8, text: text.clone() })
            }
            None => Err(GroupError::Closed),
        }
    }
}
