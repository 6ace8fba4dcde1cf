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
mod event;
mod session;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use faircast_node::ClientAddress;
use faircast_node::protocol::{Code, Frame, check_groups};
use faircast_overlay::{CLIENT_BYTES_MAX, SendError};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

pub use self::event::{GroupEvent, GroupMember, GroupMessage, GroupName};
use self::session::Shared;
pub use faircast_overlay::{MESSAGE_BYTES_MAX, Reason, Service};

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
        /// Number of the reason in docs/overlay-protocol.md.
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

/// Reason for which a request would have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitReason {
    /// The daemon has not handled 1 MB of earlier requests yet.
    #[error("the daemon has not handled 1 MB of earlier requests yet")]
    Window,
    /// 4 MB of events wait for [`Client::next`]: until then the client reads nothing more.
    #[error("4 MB of events wait to be taken")]
    Events,
    /// The connection to the daemon is lost.
    #[error("the connection to the daemon is lost")]
    Disconnected,
    /// Not all daemons have the earlier messages of this daemon's clients.
    #[error("not all daemons have the earlier messages yet")]
    Retention,
    /// The members of the view change.
    #[error("the members of the view change")]
    Changing,
}

/// Session of a client at a daemon. Dropped, the session ends as after [`close`](Self::close).
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Client {
    /// Connects to a daemon: `unix:/PATH` or `tcp:ADDR:PORT`. `name` has 1 to 56 bytes. An earlier
    /// run of the same client ends.
    ///
    /// # Errors
    /// No daemon answers, or the daemon refuses the name.
    pub async fn connect(address: &str, name: &str) -> Result<Self, GroupError> {
        let address: ClientAddress = address.parse().map_err(GroupError::Usage)?;
        if !(1..=CLIENT_BYTES_MAX).contains(&name.len()) {
            let text = format!("name \"{name}\": expected 1 to {CLIENT_BYTES_MAX} bytes");
            return Err(GroupError::Usage(text));
        }
        let shared = Arc::new(Shared::new(name));
        let connected = connection::open(&address, &shared).await;
        let open = connected.map_err(|error| error.into_public(&address))?;
        let task = tokio::spawn(connection::run(address, shared.clone(), open));
        Ok(Self { shared, task: Mutex::new(Some(task)) })
    }

    /// Name of the client in the overlay: `name@daemon`.
    pub fn full_name(&self) -> String {
        self.shared.full_name()
    }

    /// Requests to join a group. The group's event with this client follows; messages that were
    /// sent before may not come.
    ///
    /// # Errors
    /// The name is not allowed, or the client is closed. Safe to cancel: the request is made or
    /// not.
    pub async fn join(&self, group: &str) -> Result<u64, GroupError> {
        let name = checked(&[group])?.remove(0);
        self.request(|number| Frame::Join(number, name.clone()), 0).await
    }

    /// Requests to leave a group. The group's event with this client follows.
    ///
    /// # Errors
    /// As for [`join`](Self::join).
    pub async fn leave(&self, group: &str) -> Result<u64, GroupError> {
        let name = checked(&[group])?.remove(0);
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
        let (groups, payload) = (checked(groups)?, payload_of(payload)?);
        let len = payload.len();
        let frame = |request| {
            let (groups, payload) = (groups.clone(), payload.clone());
            Frame::Send { request, service, groups, payload }
        };
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
        let (groups, payload) = (checked(groups)?, payload_of(payload)?);
        let len = payload.len();
        self.shared.request(|request| Frame::Send { request, service, groups, payload }, len)
    }

    async fn request(&self, frame: impl Fn(u64) -> Frame, bytes: usize) -> Result<u64, GroupError> {
        loop {
            let mut room = std::pin::pin!(self.shared.room.notified());
            room.as_mut().enable();
            match self.shared.request(&frame, bytes) {
                Err(GroupError::WouldBlock(_)) => room.await,
                done => return done,
            }
        }
    }

    /// Waits until the daemon has handled all requests so far.
    ///
    /// # Errors
    /// The client is closed.
    pub async fn flush(&self) -> Result<(), GroupError> {
        loop {
            let mut room = std::pin::pin!(self.shared.room.notified());
            room.as_mut().enable();
            if self.shared.is_flushed()? {
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
            let mut events = std::pin::pin!(self.shared.events.notified());
            events.as_mut().enable();
            if let Some(event) = self.shared.next()? {
                return Ok(event);
            }
            events.await;
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

fn checked(groups: &[&str]) -> Result<Vec<Bytes>, GroupError> {
    check_groups(groups).map_err(|error| GroupError::Usage(error.to_string()))?;
    Ok(groups.iter().map(|name| Bytes::copy_from_slice(name.as_bytes())).collect())
}

fn payload_of(payload: impl Into<Bytes>) -> Result<Bytes, GroupError> {
    let payload = payload.into();
    if payload.len() > MESSAGE_BYTES_MAX {
        return Err(GroupError::Usage(SendError::Length.to_string()));
    }
    Ok(payload)
}

impl From<Code> for WaitReason {
    fn from(code: Code) -> Self {
        match code {
            Code::Changing => Self::Changing,
            _ => Self::Retention,
        }
    }
}
