//! Sessions of clients over a byte stream: the client's side, with requests that the daemon has not
//! handled, events for the application, and repetition after a reconnect.

mod event;
pub mod protocol;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::{String, ToString};
use alloc::sync::Arc;

use bytes::Bytes;
use faircast_base::fresh;

pub use self::event::{GroupEvent, GroupMember, GroupMessage, GroupName};
use self::protocol::{Frame, ReasonCode, VERSION, Welcome};
use crate::client::ClientEvent;
use crate::group::MemberId;
use crate::ids::ViewId;
use crate::trace::SessionTrace;

/// Maximum number of bytes in requests that the daemon has not handled: 1 MB.
const WINDOW_BYTES: usize = 1 << 20;
/// Bytes of requests below which a full window takes new ones. If it took a message for each one
/// that is handled, messages would be written one by one, for a multiple of the processor time.
const REOPENED_BYTES: usize = WINDOW_BYTES / 2;
/// Maximum number of bytes in events that wait for the application: 4 MB.
const EVENT_BYTES: usize = 4 << 20;
/// Bytes of requests in one write.
const BATCH_BYTES: usize = 256 << 10;
/// Fixed cost in bytes of a request or an event, in addition to its payload.
const HEAD_BYTES: usize = 128;
/// Number of the first request. Joins that open a new session have lower numbers.
const FIRST_REQUEST: u64 = 1 << 32;

/// Reason for which a request must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the text of a reason describes the variant")]
pub enum WaitReason {
    #[error("the daemon has not handled 1 MB of earlier requests yet")]
    Window,
    /// The client reads nothing until some events are taken.
    #[error("4 MB of events wait to be taken")]
    Events,
    #[error("the connection to the daemon is lost")]
    Disconnected,
    #[error("not all daemons have the earlier messages yet")]
    Retention,
    #[error("the members of the view change")]
    Changing,
    #[error("a member of the group is slow, and the group asks senders to wait")]
    Held,
    /// Price of a packet, and the client's money: a debt is negative.
    #[error(
        "too expensive now: price {:.1}, purse {:.1}",
        f64::from(*price_cents) / 100.0,
        f64::from(*purse_cents) / 100.0
    )]
    Price { price_cents: u32, purse_cents: i32 },
}

impl From<WaitReason> for ReasonCode {
    fn from(reason: WaitReason) -> Self {
        match reason {
            WaitReason::Changing => Self::ViewChanging,
            WaitReason::Held => Self::MemberSlow,
            WaitReason::Price { .. } => Self::TooExpensive,
            _ => Self::EarlierMissing,
        }
    }
}

impl From<ReasonCode> for WaitReason {
    fn from(code: ReasonCode) -> Self {
        match code {
            ReasonCode::ViewChanging => Self::Changing,
            ReasonCode::MemberSlow => Self::Held,
            _ => Self::Retention,
        }
    }
}

/// Refusal of a request of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionError {
    /// The request must wait.
    WouldBlock(WaitReason),
    /// The daemon refused the session.
    Refused(ReasonCode, String),
    /// The client was closed.
    Closed,
}

#[derive(Debug, Default)]
struct Requests {
    /// Number, frame and cost in bytes of each request.
    queue: VecDeque<(u64, Frame, usize)>,
    bytes: usize,
    last: u64,
    /// True from a full window until half of it is handled.
    is_full: bool,
    /// Number of requests at the front of the queue that are written to this connection.
    written: usize,
    /// Number of requests at the front of the queue that any connection may have delivered.
    maybe_delivered: usize,
}

impl Requests {
    fn has_room(&mut self, bytes: usize) -> bool {
        self.is_full &= self.bytes > REOPENED_BYTES;
        self.is_full |= self.bytes > 0 && self.bytes + bytes > WINDOW_BYTES;
        !self.is_full
    }

    fn push(&mut self, frame: Frame, bytes: usize) {
        self.bytes += bytes;
        self.queue.push_back((self.last, frame, bytes));
    }

    /// Returns the next request to write, its cost, and true if no connection may have it.
    fn next(&mut self) -> Option<(&Frame, usize, bool)> {
        let (_, frame, bytes) = self.queue.get(self.written)?;
        self.written += 1;
        let is_new = self.written > self.maybe_delivered;
        self.maybe_delivered = self.maybe_delivered.max(self.written);
        Some((frame, *bytes, is_new))
    }

    fn handled(&mut self, request: u64) {
        while let Some((_, _, bytes)) = self.queue.front().filter(|it| it.0 <= request) {
            self.bytes -= bytes;
            self.queue.pop_front();
            self.written = self.written.saturating_sub(1);
            self.maybe_delivered = self.maybe_delivered.saturating_sub(1);
        }
    }

    /// Begins a new session with `joins`. Returns the number of messages that may have been sent.
    fn restart(&mut self, joins: impl Iterator<Item = (u64, Frame, usize)>) -> usize {
        let is_send = |it: &(u64, Frame, usize)| matches!(it.1, Frame::Send { .. });
        let maybe_delivered = core::mem::take(&mut self.maybe_delivered);
        let mut rest = core::mem::take(&mut self.queue).into_iter();
        let unsure = rest.by_ref().take(maybe_delivered).filter(is_send).count();
        self.queue = joins.chain(rest.filter(is_send)).collect();
        self.bytes = self.queue.iter().map(|it| it.2).sum();
        unsure
    }
}

/// Client's side of a session, over successive connections.
#[derive(Debug)]
pub struct RemoteSession {
    name: Bytes,
    full_name: String,
    incarnation: u64,
    /// Number of the next event; 0 before the first session.
    next: u64,
    requests: Requests,
    /// Groups that the application has joined; true if the client asks senders to wait.
    groups: BTreeMap<Bytes, bool>,
    waiting: Option<WaitReason>,
    ping: Option<u64>,
    /// True if messages are delivered in the view that the application knows, or refused.
    is_synchronous: bool,
    view: Option<ViewId>,
    /// Events that wait for the application, with their cost in bytes, and the sum of the costs.
    events: VecDeque<(GroupEvent, usize)>,
    event_bytes: usize,
    is_closing: bool,
    end: Option<SessionError>,
    trace: Option<Box<SessionTrace>>,
}

impl RemoteSession {
    /// Creates the session of a client. `incarnation` grows with each start. With `is_synchronous`,
    /// messages are delivered in the view that the application knew at the send, or refused.
    pub fn new(name: &str, incarnation: u64, is_synchronous: bool) -> Self {
        let name = Bytes::copy_from_slice(name.as_bytes());
        let requests = Requests { last: FIRST_REQUEST, ..Requests::default() };
        fresh! {
            Self { name, incarnation, is_synchronous, requests, }
            full_name, next, groups, waiting, ping, view, events, event_bytes, is_closing, end, trace
        }
    }

    /// Begins a trace for `faircast-check`. The first 16 bytes of a payload name its message.
    pub fn begin_trace(&mut self) {
        self.trace = Some(Box::default());
    }

    /// Returns the trace lines written since the last call.
    pub fn take_trace(&mut self) -> String {
        self.trace.as_mut().map(|trace| core::mem::take(&mut trace.lines)).unwrap_or_default()
    }

    /// Returns the name of the client in the overlay: `name@daemon`.
    pub fn full_name(&self) -> &str {
        &self.full_name
    }

    /// Queues a request with `bytes` of payload, and returns its number; fails on a full queue.
    pub fn request(
        &mut self,
        frame: impl FnOnce(u64) -> Frame,
        bytes: usize,
    ) -> Result<u64, SessionError> {
        self.check()?;
        if self.is_closing {
            return Err(SessionError::Closed);
        }
        let bytes = bytes + HEAD_BYTES;
        if !self.requests.has_room(bytes) {
            let has_events = self.event_bytes >= EVENT_BYTES;
            let own = if has_events { WaitReason::Events } else { WaitReason::Window };
            return Err(SessionError::WouldBlock(self.waiting.unwrap_or(own)));
        }
        self.requests.last += 1;
        let number = self.requests.last;
        let mut frame = frame(number);
        match &mut frame {
            Frame::Send { view, .. } => *view = self.view.filter(|_| self.is_synchronous),
            Frame::Join { group, holds_senders, .. } => {
                _ = self.groups.insert(group.clone(), *holds_senders)
            }
            Frame::Leave { group, .. } => _ = self.groups.remove(group),
            _ => {}
        }
        self.requests.push(frame, bytes);
        Ok(number)
    }

    /// True if the daemon has handled all requests; fails if the session has ended.
    pub fn is_flushed(&self) -> Result<bool, SessionError> {
        self.check().map(|()| self.requests.queue.is_empty())
    }

    /// Returns the next event, if any; fails if all are taken and the session has ended.
    pub fn poll_event(&mut self) -> Result<Option<GroupEvent>, SessionError> {
        let Some((event, bytes)) = self.events.pop_front() else {
            return self.check().map(|()| None);
        };
        self.event_bytes -= bytes;
        if let GroupEvent::View { id, .. } = event {
            self.view = Some(id);
        }
        Ok(Some(event))
    }

    /// True if events wait for the application, or the session has ended.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty() || self.end.is_some()
    }

    /// Closes the session once all requests are handled.
    pub fn close(&mut self) {
        self.is_closing = true;
    }

    /// True after [`close`](Self::close).
    pub fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// True after [`close`](Self::close), once all requests are handled.
    pub fn is_done(&self) -> bool {
        self.is_closing && self.requests.queue.is_empty()
    }

    /// Ends the session permanently, with the daemon's refusal if any.
    pub fn end(&mut self, refused: Option<(ReasonCode, String)>) {
        if let Some(trace) = &mut self.trace {
            trace.stop();
        }
        let end = refused.map(|(code, text)| SessionError::Refused(code, text));
        self.end = Some(end.unwrap_or(SessionError::Closed));
    }

    /// Returns the first frame of a connection, and true if it resumes a session.
    pub fn hello(&self, token: Bytes) -> (Frame, bool) {
        let Self { incarnation, next, .. } = *self;
        let name = self.name.clone();
        (Frame::Hello { version: VERSION, incarnation, next, name, token }, next > 0)
    }

    /// Drops a lost session. The next one, of run `incarnation`, joins all groups again.
    pub fn restart(&mut self, incarnation: u64) {
        self.incarnation = incarnation.max(self.incarnation + 1);
        self.next = 0;
        let join = |(request, (group, holds_senders)): (u64, (&Bytes, &bool))| {
            let (group, holds_senders) = (group.clone(), *holds_senders);
            (request, Frame::Join { request, group, holds_senders }, 0)
        };
        let unsure = self.requests.restart((1..).zip(&self.groups).map(join));
        self.push(GroupEvent::Restarted { unsure }, 0);
    }

    /// Begins a connection: requests that the daemon has not handled are written again.
    pub fn begin(&mut self, welcome: &Welcome) {
        self.full_name = String::from_utf8_lossy(&welcome.full_name).into_owned();
        if let Some(trace) = self.trace.as_mut().filter(|_| self.next == 0) {
            let Self { name, incarnation, .. } = self;
            let (name, incarnation) = (name.clone(), *incarnation);
            let client = MemberId { daemon: welcome.daemon.id, name, incarnation };
            trace.start(&client, &welcome.daemon, self.is_synchronous);
        }
        self.next = self.next.max(1);
        (self.requests.written, self.waiting) = (0, None);
        self.requests.handled(welcome.taken);
    }

    /// Notes the loss of the connection. The application gets one event until the next connection.
    pub fn disconnected(&mut self, reason: String) {
        let lost = Some(WaitReason::Disconnected);
        if core::mem::replace(&mut self.waiting, lost) != lost {
            self.push(GroupEvent::Disconnected { reason }, 0);
        }
    }

    /// Passes the frames to write now to `put`.
    pub fn fill(&mut self, mut put: impl FnMut(&Frame)) {
        if let Some(number) = self.ping.take() {
            put(&Frame::Pong(number));
        }
        let mut bytes = 0;
        while bytes < BATCH_BYTES
            && let Some((frame, cost, is_new)) = self.requests.next()
        {
            if let Some(trace) = self.trace.as_mut().filter(|_| is_new) {
                trace.request(frame);
            }
            put(frame);
            bytes += cost;
        }
    }

    /// Handles a frame. True if the queue may have room or there is [work](Self::has_work). Fails
    /// if the daemon closes the connection, or on a frame that is not allowed.
    pub fn take(&mut self, frame: Frame) -> Result<bool, (ReasonCode, String)> {
        match frame {
            Frame::Event(number, event) => {
                // Number 0 repeats a state; the next cut counts the original event.
                if number > 0 {
                    self.next = number + 1;
                }
                if let Some(trace) = &mut self.trace {
                    trace.event(number, &event);
                }
                let bytes = match &*event {
                    ClientEvent::Message { parts, .. } => parts.iter().map(Bytes::len).sum(),
                    _ => 0,
                };
                self.push(Arc::unwrap_or_clone(event).into(), bytes);
            }
            Frame::Resumed => {
                if let Some(trace) = &mut self.trace {
                    trace.resume(self.next);
                }
                self.push(GroupEvent::Resumed, 0);
            }
            Frame::Sent(request) => {
                self.requests.handled(request);
                return Ok(true);
            }
            Frame::Waiting(reason) => self.waiting = reason,
            Frame::Ping(number) => {
                self.ping = Some(number);
                return Ok(true);
            }
            Frame::Pong(_) => {}
            Frame::Error(code, text) => return Err((code, text)),
            _ => return Err((ReasonCode::Malformed, "a frame that clients send".to_string())),
        }
        Ok(false)
    }

    /// True if there is a frame to write other than requests: a pong or the goodbye.
    pub fn has_work(&self) -> bool {
        self.ping.is_some() || self.is_done()
    }

    /// True if the client may read events: the queue has room, or the application is closing.
    pub fn has_room(&self) -> bool {
        self.event_bytes < EVENT_BYTES || self.is_closing
    }

    fn push(&mut self, event: GroupEvent, bytes: usize) {
        if self.is_closing {
            return;
        }
        let bytes = bytes + HEAD_BYTES;
        self.event_bytes += bytes;
        self.events.push_back((event, bytes));
    }

    fn check(&self) -> Result<(), SessionError> {
        self.end.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_window_takes_requests_again_once_half_of_it_is_handled() {
        let mut session = RemoteSession::new("a", 1, false);
        let send = |session: &mut RemoteSession| {
            session.request(
                |number| Frame::Join { request: number, group: "g".into(), holds_senders: false },
                1024 - HEAD_BYTES,
            )
        };
        let first = send(&mut session).unwrap();
        let fitting = (WINDOW_BYTES / 1024) as u64;
        assert!((1..fitting).all(|_| send(&mut session).is_ok()));
        let full = Err(SessionError::WouldBlock(WaitReason::Window));
        assert_eq!(send(&mut session), full);
        for (handled, is_open) in [(1, false), (fitting / 2 - 1, false), (fitting / 2, true)] {
            session.take(Frame::Sent(first + handled - 1)).unwrap();
            assert_eq!(send(&mut session).is_ok(), is_open, "{handled} of {fitting} handled");
        }
    }
}
