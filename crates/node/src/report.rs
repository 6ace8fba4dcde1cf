//! State of a daemon, for people and for monitoring.

use serde::Serialize;

/// State of a daemon.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct DaemonReport {
    pub name: String,
    pub id: String,
    /// Identifier of the view.
    pub view: String,
    /// Names of the daemons of the view, and their identifiers in the same order.
    pub members: Vec<String>,
    pub member_ids: Vec<String>,
    /// True if the view has begun and no change is in progress.
    pub settled: bool,
    /// Links between the daemons of the view.
    pub links: Vec<LinkReport>,
    /// Links to other daemons.
    pub neighbors: Vec<NeighborReport>,
    /// Number of peers in the configuration.
    pub peers: usize,
    /// Error of the last name lookup of a peer.
    pub name_error: Option<String>,
    /// Groups with members.
    pub groups: Vec<GroupReport>,
    /// Clients of this daemon.
    pub clients: Vec<ClientReport>,
    /// Bytes of this daemon's clients' messages that not all daemons have.
    pub unstable_bytes: usize,
    pub counters: ServerCounters,
}

/// Link between two daemons of the view.
#[derive(Clone, Debug, Serialize)]
pub struct LinkReport {
    /// Identifiers of the daemons at both ends.
    pub ends: [String; 2],
    /// One-way cost in microseconds, as of the agreement on the view's routes.
    pub cost_us: u32,
    /// Prices of a packet in dollars from each end; `None` without prices, or until known.
    pub prices: [Option<f64>; 2],
}

/// Link to another daemon.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct NeighborReport {
    pub address: Option<String>,
    /// Name of the daemon once it has greeted; its identifier while the name is unknown.
    pub daemon: Option<String>,
    /// Identifier of the daemon once it has greeted.
    pub id: Option<String>,
    pub rtt_ms: f64,
    /// Congestion window in bytes.
    pub window_bytes: u64,
    /// Bytes that wait for the link.
    pub queued_bytes: u64,
    /// Price of a packet on this link in dollars; `None` if messages have no price.
    pub price: Option<f64>,
    /// Mean queue of the link before the last update of its price, in packets.
    pub queue_packets: Option<f64>,
    pub sent_bytes: u64,
    pub lost_packets: u64,
}

/// Group with members.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct GroupReport {
    pub name: String,
    /// Numbers of members at all daemons, and at this one.
    pub members: usize,
    pub here: usize,
    /// True if senders to the group wait for a slow member at this daemon.
    pub held: bool,
}

/// Client of the daemon.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct ClientReport {
    pub name: String,
    /// True if the client has a connection; false if its session waits for a resume.
    pub connected: bool,
    /// Number of the last sent event.
    pub event: u64,
    /// Bytes of events that wait for the client.
    pub queued_bytes: usize,
    /// Number of the last handled request.
    pub request: u64,
    /// Reason for which requests of the client wait.
    pub waiting: Option<String>,
    /// Money of the client in dollars; `None` if messages have no price.
    pub purse: Option<f64>,
    /// Time in milliseconds for which messages of the client waited for money or lower prices.
    pub waited_ms: Option<u64>,
}

/// Counters of a daemon since its start. Packets are those from and to other daemons.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct ServerCounters {
    /// Numbers of new and of resumed sessions.
    pub sessions: u64,
    pub resumed: u64,
    /// Number of messages accepted from clients, and of bytes in their payloads.
    pub messages: u64,
    pub message_bytes: u64,
    /// Number of events sent to clients.
    pub events: u64,
    /// Number of refused requests.
    pub refused: u64,
    /// Number of requests that had to wait.
    pub waits: u64,
    /// Number of clients that were cut off as too slow.
    pub cuts: u64,
    pub received_packets: u64,
    pub sent_packets: u64,
}
