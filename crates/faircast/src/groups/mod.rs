//! Groups: messages to named groups of clients through a daemon of the overlay.
//!
//! A [`Client`] connects to a daemon (`faircast node`), joins groups by name and sends messages to
//! groups. All members get the messages in the order that the [`Service`] guarantees. A lost
//! connection is opened again, and the session goes on: no event comes twice.
//!
//! ```no_run
//! use faircast::groups::{Client, GroupEvent, Service};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect("unix:/run/faircast/node.sock", "alice").await?;
//! client.join("chat").await?;
//! client.send(Service::Agreed, &["chat"], "hello").await?;
//! while let Ok(event) = client.next().await {
//!     if let GroupEvent::Message(message) = event {
//!         println!("{}: {}", message.from, String::from_utf8_lossy(&message.payload));
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod connection;
mod session;

use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use faircast_overlay::protocol::{Frame, check_groups};
use faircast_overlay::{CLIENT_BYTES_MAX, Names, SessionError};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use self::connection::Target;
use self::session::Shared;
pub use faircast_node::{DaemonReport, Rehearsal, RehearsalError};
pub use faircast_overlay::{
    Benefit, GroupEvent, GroupMember, GroupMessage, GroupName, MESSAGE_BYTES_MAX, Reason,
    SendError, Service, ViewId, WaitReason,
};

/// Longest time for requests that wait when a client is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Error of a client of groups.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The address of the daemon, the name of the client, or a request is not allowed.
    #[error("{0}")]
    Usage(String),
    /// No daemon answers at the address.
    #[error("{address}: {error}; expected the address of a daemon, `faircast node` starts one")]
    Connect {
        /// The address.
        address: String,
        /// Answer of the system.
        error: std::io::Error,
    },
    /// The daemon refuses the client.
    #[error("{text}")]
    Refused {
        /// Number of the reason in docs/wire/overlay-clients.md.
        code: u8,
        /// Reason.
        text: String,
    },
    /// The request would have to wait.
    #[error("the request would have to wait: {0}")]
    WouldBlock(WaitReason),
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
}

impl From<SessionError> for GroupError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::WouldBlock(reason) => Self::WouldBlock(reason),
            SessionError::Refused(code, text) => Self::Refused { code: code as u8, text },
            SessionError::Closed => Self::Closed,
        }
    }
}

/// Session of a client at a daemon. Dropped, the session ends as after [`close`](Self::close).
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
    benefit: Option<Benefit>,
}

/// Choices of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientOptions {
    /// Messages are delivered in the view that the application has taken by [`Client::next`] before
    /// it sent them, or refused by a [`GroupEvent::Refused`] (virtual synchrony). Without this a
    /// message may be delivered in a later view.
    pub virtual_synchrony: bool,
    /// Benefit of the client's messages, where the daemon has flow control; `None` for the daemon's
    /// choice.
    pub benefit: Option<Benefit>,
    /// Token at an address `tls:HOST:PORT`, which the daemon has for the name of the client.
    pub token: Option<String>,
    /// File with the CA of the daemon's certificate, in PEM. An address `tls:HOST:PORT` needs a CA:
    /// the CAs of the system are not used.
    pub server_ca: Option<PathBuf>,
    /// Files with the certificate of the client and its key, in PEM.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// File to which the client adds a trace for `faircast-check`: lines of JSON, one for each
    /// request and event. The first 16 bytes of each payload name the message, and must be unique
    /// among all messages of the run.
    pub trace: Option<PathBuf>,
}

impl Client {
    /// Connects to a daemon: `unix:/PATH`, `tcp:ADDR:PORT`, or with [options](ClientOptions)
    /// `tls:HOST:PORT`. `name` has 1 to 56 bytes. An earlier
    /// run of the same client ends.
    ///
    /// # Errors
    /// No daemon answers, or the daemon refuses the name.
    pub async fn connect(address: &str, name: &str) -> Result<Self, GroupError> {
        Self::connect_with(address, name, ClientOptions::default()).await
    }

    /// Connects to a daemon with other choices.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub async fn connect_with(
        address: &str,
        name: &str,
        options: ClientOptions,
    ) -> Result<Self, GroupError> {
        let target = Target::new(address, &options)?;
        if !(1..=CLIENT_BYTES_MAX).contains(&name.len()) {
            let text = format!("name \"{name}\": expected 1 to {CLIENT_BYTES_MAX} bytes");
            return Err(GroupError::Usage(text));
        }
        let shared = Arc::new(Shared::new(name, &options)?);
        let connected = connection::open(&target, &shared).await;
        let open = connected.map_err(|error| error.into_public(address))?;
        let task = tokio::spawn(connection::run(target, shared.clone(), open));
        Ok(Self { shared, task: Mutex::new(Some(task)), benefit: options.benefit })
    }

    /// Name of the client in the overlay: `name@daemon`.
    pub fn full_name(&self) -> String {
        self.shared.session().full_name().to_string()
    }

    /// Requests to join a group. The group's event with this client follows; messages that were
    /// sent before may not come.
    ///
    /// # Errors
    /// The name is not allowed, or the client is closed. Safe to cancel: the request is made or
    /// not.
    pub async fn join(&self, group: &str) -> Result<u64, GroupError> {
        self.join_as(group, false).await
    }

    /// Requests to join a group, and asks that its senders wait while a member is slow, in place of
    /// cutting the member off. Senders wait as long as one member is in the group that has asked. A
    /// member that takes nothing for 10 s is cut off all the same.
    ///
    /// # Errors
    /// As for [`join`](Self::join).
    pub async fn join_and_hold_senders(&self, group: &str) -> Result<u64, GroupError> {
        self.join_as(group, true).await
    }

    async fn join_as(&self, group: &str, holds: bool) -> Result<u64, GroupError> {
        let name = checked(group)?;
        self.request(|number| Frame::Join(number, name.clone(), holds), 0).await
    }

    /// Requests to leave a group. The group's event with this client follows.
    ///
    /// # Errors
    /// As for [`join`](Self::join).
    pub async fn leave(&self, group: &str) -> Result<u64, GroupError> {
        let name = checked(group)?;
        self.request(|number| Frame::Leave(number, name.clone()), 0).await
    }

    /// Sends a message to groups, and waits until there is room. Returns the number of the request.
    /// Clients that only send take their events too: there is no room while 4 MB of them wait.
    ///
    /// # Errors
    /// A name or the length is not allowed, or the client is closed. Safe to cancel: the message is
    /// sent or not.
    pub async fn send(
        &self,
        service: Service,
        groups: &[&str],
        payload: impl Into<Bytes>,
    ) -> Result<u64, GroupError> {
        let (frame, len) = message((service, self.benefit), groups, payload, false)?;
        self.request(frame, len).await
    }

    /// Sends a message to groups as [`send`](Self::send) does. A [`GroupEvent::Receipt`] follows
    /// that tells how many members the message has reached.
    ///
    /// # Errors
    /// As for [`send`](Self::send); besides, the service is none of causal, agreed and safe.
    pub async fn send_for_receipt(
        &self,
        service: Service,
        groups: &[&str],
        payload: impl Into<Bytes>,
    ) -> Result<u64, GroupError> {
        if !service.is_ordered() {
            let text = format!("a {} message has no receipt; use agreed or safe", service.name());
            return Err(GroupError::Usage(text));
        }
        let (frame, len) = message((service, self.benefit), groups, payload, true)?;
        self.request(frame, len).await
    }

    /// Sends a message to groups if there is room. Returns the number of the request.
    ///
    /// # Errors
    /// [`GroupError::WouldBlock`] with the reason if there is no room; otherwise as for
    /// [`send`](Self::send).
    pub fn try_send(
        &self,
        service: Service,
        groups: &[&str],
        payload: impl Into<Bytes>,
    ) -> Result<u64, GroupError> {
        let (frame, len) = message((service, self.benefit), groups, payload, false)?;
        self.shared.request(frame, len)
    }

    /// Queues a request once there is room, which calls `frame` once.
    async fn request(
        &self,
        mut frame: impl FnMut(u64) -> Frame,
        bytes: usize,
    ) -> Result<u64, GroupError> {
        let mut done = self.shared.request(&mut frame, bytes);
        while let Err(GroupError::WouldBlock(_)) = done {
            let mut room = std::pin::pin!(self.shared.room.notified());
            room.as_mut().enable();
            done = self.shared.request(&mut frame, bytes);
            if let Err(GroupError::WouldBlock(_)) = done {
                room.await;
            }
        }
        done
    }

    /// Waits until the daemon has handled all requests so far.
    ///
    /// # Errors
    /// The client is closed.
    pub async fn flush(&self) -> Result<(), GroupError> {
        loop {
            let mut room = std::pin::pin!(self.shared.room.notified());
            room.as_mut().enable();
            if self.shared.session().is_flushed()? {
                return Ok(());
            }
            room.await;
        }
    }

    /// Next event. Safe to cancel: no event is lost.
    ///
    /// # Errors
    /// The session is over: the client is closed, or the daemon refuses to go on.
    pub async fn next(&self) -> Result<GroupEvent, GroupError> {
        loop {
            if let Some(event) = self.shared.next()? {
                return Ok(event);
            }
            let mut events = std::pin::pin!(self.shared.events.notified());
            events.as_mut().enable();
            let has_events = self.shared.session().has_events();
            if !has_events {
                events.await;
            }
        }
    }

    /// Waits up to 5 s until the daemon has handled all requests, and ends the session.
    pub async fn close(&self) {
        self.shared.close();
        let task = self.task.lock().take();
        if let Some(task) = task {
            // A task that panicked has ended too.
            let _ = task.await;
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.close();
    }
}

fn check(groups: &[&str]) -> Result<(), GroupError> {
    check_groups(groups).map_err(|error| GroupError::Usage(error.to_string()))
}

fn checked(group: &str) -> Result<Bytes, GroupError> {
    check(&[group])?;
    Ok(Bytes::copy_from_slice(group.as_bytes()))
}

/// Request to send a message, to be called once, and the length of its payload.
fn message(
    (service, benefit): (Service, Option<Benefit>),
    groups: &[&str],
    payload: impl Into<Bytes>,
    wants_receipt: bool,
) -> Result<(impl FnMut(u64) -> Frame, usize), GroupError> {
    check(groups)?;
    let (mut groups, mut payload): (Names, Bytes) = (groups.iter().collect(), payload.into());
    let len = payload.len();
    if len > MESSAGE_BYTES_MAX {
        return Err(GroupError::Usage(SendError::Length.to_string()));
    }
    let frame = move |request| {
        let (groups, payload) = (mem::take(&mut groups), mem::take(&mut payload));
        Frame::Send { request, service, wants_receipt, view: None, benefit, groups, payload }
    };
    Ok((frame, len))
}
