//! Server: one task owns the daemon and its links, and each client connection has a task.

mod connection;
mod hub;
mod outbox;
mod report;
mod socket;
mod tls;

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use faircast_base::Time;
use faircast_hop::{CongestionControl, DaemonNode, Endpoint, RelayKey};
use faircast_net::{Datagrams, NetError, SocketSettings};
use faircast_overlay::{ClientId, Daemon, DaemonId, DaemonRun, DaemonSettings};
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use self::connection::{Hello, Requests};
use self::hub::Hub;
use self::outbox::Outbox;
pub use self::report::{
    ClientReport, DaemonReport, GroupReport, LinkReport, NeighborReport, ServerCounters,
};
use self::socket::Listener;
pub use self::socket::{ClientAddress, ClientSocket};
pub use self::tls::{ClientTls, ServerTls, TlsSocket};
use faircast_overlay::protocol::ReasonCode;

/// Most unadmitted connections of an address. A further one ends the oldest, as peers may stall.
const UNADMITTED_MAX: usize = 1024;
const QUEUE_MAX: usize = 1024;
/// Pause after a connection could not be accepted, for example without free descriptors: 100 ms.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Settings of a daemon with its sockets.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct ServerSettings {
    /// Name of the daemon, unique in the overlay: 1 to 64 bytes.
    pub name: String,
    /// UDP address at which other daemons reach this one.
    pub listen: SocketAddr,
    /// Daemons to which this one opens links, each `HOST:PORT`.
    pub peers: Vec<String>,
    pub key: RelayKey,
    pub clients: Vec<ClientAddress>,
    pub tls: Option<ServerTls>,
    pub limits: DaemonSettings,
}

/// Error at the start of a daemon.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the text of an error describes the variant")]
pub enum StartError {
    #[error(transparent)]
    Net(#[from] NetError),
    #[error("{address}: {error}")]
    Clients { address: ClientAddress, error: std::io::Error },
    #[error("listen {0}: without a key any host could join the overlay; give a key file")]
    NoKey(SocketAddr),
    #[error("the daemon's sockets: {0}")]
    Sockets(std::io::Error),
}

#[derive(Debug)]
enum ToHub {
    Open {
        hello: Hello,
        outbox: Arc<Outbox>,
        reply: oneshot::Sender<Result<ClientId, (ReasonCode, String)>>,
    },
    Requests(ClientId, Requests),
    Lost(ClientId),
    Gone(ClientId),
    Report(oneshot::Sender<DaemonReport>),
    Stop,
}

/// Channels to the daemon's task: messages, and clients whose outboxes have room again.
type ToTask = (mpsc::Sender<ToHub>, mpsc::UnboundedSender<ClientId>);

/// Running daemon. A drop ends it without last frames to its clients.
#[derive(Debug)]
pub struct Server {
    hub: mpsc::Sender<ToHub>,
    addresses: Vec<ClientAddress>,
    local: SocketAddr,
    listeners: Vec<JoinHandle<()>>,
    work: JoinHandle<()>,
    /// Channel that closes when the last connection has ended.
    connections: mpsc::Receiver<()>,
}

/// Handle for queries of a running daemon's state.
#[derive(Clone, Debug)]
pub struct Inquiry(mpsc::Sender<ToHub>);

impl Inquiry {
    /// Returns the state of the daemon; `None` if it has ended.
    pub async fn report(&self) -> Option<DaemonReport> {
        let (reply, answer) = oneshot::channel();
        self.0.send(ToHub::Report(reply)).await.ok()?;
        answer.await.ok()
    }
}

impl Server {
    /// Opens all sockets and starts the daemon; fails on an address that it cannot bind.
    pub async fn start(settings: ServerSettings) -> Result<Self, StartError> {
        let ServerSettings { name, listen, peers, key, clients, tls, limits } = settings;
        if !key.authenticates() && !listen.ip().is_loopback() {
            return Err(StartError::NoKey(listen));
        }
        let expected = peers.len();
        let socket = Datagrams::bind(listen, peers, SocketSettings::default())?;
        let local = socket.local_address();
        let mut bound = Vec::new();
        for address in clients {
            match Listener::bind(&address, tls.as_ref()).await {
                Ok(listener) => bound.push(listener),
                Err(error) => return Err(StartError::Clients { address, error }),
            }
        }
        let addresses = bound.iter().map(Listener::address).collect::<Result<_, _>>();
        let addresses = addresses.map_err(StartError::Sockets)?;
        let run = DaemonRun { id: daemon_id(&name), incarnation: incarnation() };
        let daemon = Daemon::new(Time::ZERO, run, &name, limits);
        let control = CongestionControl::default();
        let endpoint = Endpoint::new(&key, name.as_bytes(), random(), true, control);
        let node = DaemonNode::new(endpoint, daemon, Vec::new());
        let arrivals =
            socket.handle().and_then(UdpSocket::from_std).map_err(StartError::Sockets)?;
        let (hub, requests) = mpsc::channel(QUEUE_MAX);
        let work = Hub::new(node, (socket, arrivals), (run, name, expected), random());
        let (rooms, filled) = mpsc::unbounded_channel();
        let work = tokio::spawn(work.run(requests, filled));
        let (alive, connections) = mpsc::channel(1);
        let accept =
            |listener| tokio::spawn(accept(listener, (hub.clone(), rooms.clone()), alive.clone()));
        let listeners = bound.into_iter().map(accept).collect();
        Ok(Self { hub, addresses, local, listeners, work, connections })
    }

    /// Returns the addresses at which clients are served, with their actual ports.
    pub fn addresses(&self) -> &[ClientAddress] {
        &self.addresses
    }

    /// Returns the UDP address at which other daemons reach this one.
    pub const fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Returns a handle for queries of the daemon's state.
    pub fn inquiry(&self) -> Inquiry {
        Inquiry(self.hub.clone())
    }

    /// True if the daemon's task has ended without a stop, which only a bug can cause.
    pub fn has_ended(&self) -> bool {
        self.work.is_finished()
    }

    /// Stops the daemon: sends clients a last frame, and closes the links to other daemons.
    pub async fn close(mut self) {
        self.listeners.iter().for_each(JoinHandle::abort);
        let _ = self.hub.send(ToHub::Stop).await;
        let ended = async {
            let _ = (&mut self.work).await;
            let _ = self.connections.recv().await;
        };
        let _ = tokio::time::timeout(STOP_TIMEOUT, ended).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.listeners.iter().for_each(JoinHandle::abort);
        self.work.abort();
    }
}

async fn accept(listener: Listener, to: ToTask, alive: mpsc::Sender<()>) {
    // Oldest first; a sender is closed once its client is admitted.
    let mut unadmitted: VecDeque<oneshot::Sender<()>> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok(socket) => {
                if unadmitted.len() >= UNADMITTED_MAX {
                    unadmitted.retain(|it| !it.is_closed());
                }
                if unadmitted.len() >= UNADMITTED_MAX {
                    unadmitted.pop_front();
                }
                let (place, displaced) = oneshot::channel();
                unadmitted.push_back(place);
                let (to, alive) = (to.clone(), alive.clone());
                tokio::spawn(async move {
                    connection::serve(socket, to, displaced).await;
                    drop(alive);
                });
            }
            Err(error) => {
                tracing::warn!(target: "faircast::session", %error, "no connection accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Returns the identifier of the daemon with a name: 64 bits of the name's BLAKE3 hash.
pub fn daemon_id(name: &str) -> DaemonId {
    let digest = blake3::hash(name.as_bytes());
    DaemonId(u64::from_be_bytes(*digest.as_bytes().first_chunk().expect("a digest has 32 bytes")))
}

/// Returns the number of a run that begins now: microseconds since 1970.
pub fn incarnation() -> u64 {
    let passed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(passed.as_micros()).unwrap_or(u64::MAX)
}

/// Returns 64 random bits: the standard library seeds its hashers from the system.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use faircast_overlay::protocol::{Frame, VERSION};

    use super::*;
    use crate::batch::Batch;

    #[tokio::test]
    async fn clients_learn_at_once_that_the_daemons_task_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let address = ClientAddress::Unix(folder.path().join("node.sock"));
        let server = Server::start(ServerSettings {
            name: "north".into(),
            listen: "127.0.0.1:0".parse().unwrap(),
            peers: Vec::new(),
            key: RelayKey::none(),
            clients: vec![address.clone()],
            tls: None,
            limits: DaemonSettings::default(),
        });
        let server = server.await.unwrap();
        let socket = address.connect(None).await.unwrap();
        let (mut batch, mut answer) = (Batch::default(), bytes::BytesMut::new());
        let (name, token) = ("alice".into(), Bytes::new());
        batch.push(&Frame::Hello { version: VERSION, incarnation: 1, next: 0, name, token });
        batch.write(&socket).await.unwrap();
        socket.readable().await.unwrap();
        assert!(socket.try_read(&mut answer).unwrap().is_some(), "a welcome");
        assert!(!server.has_ended());
        server.work.abort();
        let end = async {
            loop {
                socket.readable().await.unwrap();
                if socket.try_read(&mut answer).is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(5), end).await.expect("an end of the stream");
        assert!(server.has_ended());
        assert!(server.inquiry().report().await.is_none());
    }
}
