//! Groups: messages to named groups of clients through a daemon of the overlay.
//!
//! A [`Client`] of a daemon (`faircast node`) joins groups by name. All members get messages in the
//! order of the [`Service`]. After a lost connection the session goes on: no event comes twice.
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

use self::connection::{Disconnect, Target};
use self::session::Shared;
pub use faircast_node::{DaemonReport, Rehearsal, RehearsalError};
pub use faircast_overlay::{
    Benefit, GroupEvent, GroupMember, GroupMessage, GroupName, MESSAGE_BYTES_MAX, Reason,
    SendError, Service, ViewId, WaitReason,
};

const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Error of a group client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the text of an error describes the variant")]
pub enum GroupError {
    /// The address of the daemon, the name of the client, or a request is not allowed.
    #[error("{0}")]
    Usage(String),
    #[error("{address}: {error}; expected the address of a daemon, `faircast node` starts one")]
    Connect { address: String, error: std::io::Error },
    /// The daemon refuses the client.
    #[error("{text}")]
    Refused {
        /// Number of the reason in docs/wire/overlay-clients.md.
        code: u8,
        text: String,
    },
    #[error("the request would have to wait: {0}")]
    WouldBlock(WaitReason),
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

/// Options of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientOptions {
    /// True for virtual synchrony: a message is delivered in the view that the application had
    /// taken by [`Client::next`] at the send, or refused by a [`GroupEvent::Refused`].
    pub virtual_synchrony: bool,
    /// Benefit of messages under the daemon's flow control; `None` for the daemon's choice.
    pub benefit: Option<Benefit>,
    /// Token for an address `tls:HOST:PORT`; the daemon assigns it to the client's name.
    pub token: Option<String>,
    /// PEM file with the daemon's CA, required for `tls:HOST:PORT`. System CAs are not used.
    pub server_ca: Option<PathBuf>,
    /// PEM files with the client's certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// File for a trace for `faircast-check`, whose payloads need unique first 16 bytes.
    pub trace: Option<PathBuf>,
}

impl Client {
    /// Connects to a daemon: `unix:/PATH`, `tcp:ADDR:PORT`, or with [options](ClientOptions)
    /// `tls:HOST:PORT`. `name` has 1 to 56 bytes. An earlier session of the same name ends.
    ///
    /// # Errors
    /// No daemon answers, or the daemon refuses the name.
    pub async fn connect(address: &str, name: &str) -> Result<Self, GroupError> {
        Self::connect_with(address, name, ClientOptions::default()).await
    }

    /// Connects to a daemon with options.
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
        let open = connected.map_err(|error| match error {
            Disconnect::Io(error) => GroupError::Connect { address: address.to_string(), error },
            Disconnect::Refused(code, text) => GroupError::Refused { code: code as u8, text },
        })?;
        let task = tokio::spawn(connection::run(target, shared.clone(), open));
        Ok(Self { shared, task: Mutex::new(Some(task)), benefit: options.benefit })
    }

    /// Returns the name of the client in the overlay: `name@daemon`.
    pub fn full_name(&self) -> String {
        self.shared.session().full_name().to_string()
    }

    /// Requests to join a group; returns the number of the request. An event of the group follows.
    ///
    /// # Errors
    /// The name is invalid, or the client is closed. Safe to cancel: the request is made or not.
    pub async fn join(&self, group: &str) -> Result<u64, GroupError> {
        self.join_as(group, false).await
    }

    /// Joins a group whose senders wait for slow members, instead of disconnecting the members. A
    /// member that reads nothing for 10 s is disconnected in any case.
    ///
    /// # Errors
    /// As for [`join`](Self::join).
    pub async fn join_and_hold_senders(&self, group: &str) -> Result<u64, GroupError> {
        self.join_as(group, true).await
    }

    async fn join_as(&self, group: &str, holds: bool) -> Result<u64, GroupError> {
        let name = checked(group)?;
        self.request(
            |request| Frame::Join { request, group: name.clone(), holds_senders: holds },
            0,
        )
        .await
    }

    /// Requests to leave a group. The group's event with this client follows.
    ///
    /// # Errors
    /// As for [`join`](Self::join).
    pub async fn leave(&self, group: &str) -> Result<u64, GroupError> {
        let name = checked(group)?;
        self.request(|request| Frame::Leave { request, group: name.clone() }, 0).await
    }

    /// Sends a message to groups once there is room. Clients that only send must take their events
    /// too: 4 MB of waiting events leave no room.
    ///
    /// # Errors
    /// A name or the length is invalid, or the client is closed. Safe to cancel: it is sent or not.
    pub async fn send(
        &self,
        service: Service,
        groups: &[&str],
        payload: impl Into<Bytes>,
    ) -> Result<u64, GroupError> {
        let (frame, len) = message((service, self.benefit), groups, payload, false)?;
        self.request(frame, len).await
    }

    /// Sends a message; a [`GroupEvent::Receipt`] with the number of reached members follows.
    ///
    /// # Errors
    /// As for [`send`](Self::send); also if the service is none of causal, agreed and safe.
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

    /// Sends a message to groups if there is room, and returns the number of the request.
    ///
    /// # Errors
    /// [`GroupError::WouldBlock`] if there is no room; otherwise as for [`send`](Self::send).
    pub fn try_send(
        &self,
        service: Service,
        groups: &[&str],
        payload: impl Into<Bytes>,
    ) -> Result<u64, GroupError> {
        let (frame, len) = message((service, self.benefit), groups, payload, false)?;
        self.shared.request(frame, len)
    }

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

    /// Returns the next event, after a wait. Safe to cancel: no event is lost.
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
