//! State of a daemon, for people and for monitoring.

use serde::Serialize;

/// State of a daemon.
#[derive(Clone, Debug, Serialize)]
pub struct DaemonReport {
    /// Name of the daemon.
    pub name: String,
    /// Identifier of the daemon.
    pub id: String,
    /// Identifier of the view.
    pub view: String,
    /// Names of the daemons of the view.
    pub members: Vec<String>,
    /// Identifiers of the daemons of the view, in the order of `members`.
    pub member_ids: Vec<String>,
    /// True if the view has begun and no change is in progress.
    pub settled: bool,
    /// Links between the daemons of the view.
    pub links: Vec<LinkReport>,
    /// Links to other daemons.
    pub neighbors: Vec<NeighborReport>,
    /// Peers of the configuration.
    pub peers: usize,
    /// Error of the last lookup of a peer's name.
    pub name_error: Option<String>,
    /// Groups with members.
    pub groups: Vec<GroupReport>,
    /// Clients of this daemon.
    pub clients: Vec<ClientReport>,
    /// Bytes of messages of this daemon's clients that not all daemons have.
    pub unstable_bytes: usize,
    /// Counters.
    pub counters: ServerCounters,
}

/// Link between two daemons of the view.
#[derive(Clone, Debug, Serialize)]
pub struct LinkReport {
    /// Identifiers of the daemons at both ends.
    pub ends: [String; 2],
    /// Cost of one way in microseconds when the view's routes were agreed.
    pub cost_us: u32,
    /// Price in dollars for each packet from the first end and from the second one; `None` if
    /// messages have no price, or the price is not known yet.
    pub prices: [Option<f64>; 2],
}

/// Link to another daemon.
#[derive(Clone, Debug, Serialize)]
pub struct NeighborReport {
    /// Address of the daemon.
    pub address: Option<String>,
    /// Name of the daemon once it has greeted; its identifier while its name is not known.
    pub daemon: Option<String>,
    /// Identifier of the daemon once it has greeted.
    pub id: Option<String>,
    /// Round trip in milliseconds.
    pub rtt_ms: f64,
    /// Congestion window in bytes.
    pub window_bytes: u64,
    /// Bytes that wait for the link.
    pub queued_bytes: u64,
    /// Price of the link in dollars for each packet; `None` if messages have no price.
    pub price: Option<f64>,
    /// Packets that waited for the link on average before the last update of the price.
    pub queue_packets: Option<f64>,
    /// Bytes that were sent.
    pub sent_bytes: u64,
    /// Packets that were lost.
    pub lost_packets: u64,
}

/// Group with members.
#[derive(Clone, Debug, Serialize)]
pub struct GroupReport {
    /// Name of the group.
    pub name: String,
    /// Number of members at all daemons.
    pub members: usize,
    /// Number of members at this daemon.
    pub here: usize,
    /// True if senders to the group wait for a slow member at this daemon.
    pub held: bool,
}

/// Client of the daemon.
#[derive(Clone, Debug, Serialize)]
pub struct ClientReport {
    /// Name of the client.
    pub name: String,
    /// True if the client has a connection; false if its session waits for the client.
    pub connected: bool,
    /// Number of the event that was sent last.
    pub event: u64,
    /// Bytes of events that wait for the client.
    pub queued_bytes: usize,
    /// Number of the request that was handled last.
    pub request: u64,
    /// Reason for which requests of the client wait.
    pub waiting: Option<String>,
    /// Money of the client in dollars; `None` if messages have no price.
    pub purse: Option<f64>,
    /// Milliseconds for which messages of the client have waited for money or lower prices.
    pub waited_ms: Option<u64>,
}

/// Counters of a daemon since its start.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ServerCounters {
    /// Sessions that have begun.
    pub sessions: u64,
    /// Sessions that were resumed.
    pub resumed: u64,
    /// Messages that were taken from clients of this daemon.
    pub messages: u64,
    /// Bytes of their payloads.
    pub message_bytes: u64,
    /// Events that were sent to clients of this daemon.
    pub events: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Requests that had to wait.
    pub waits: u64,
    /// Clients that were cut since they were too slow.
    pub cuts: u64,
    /// Datagrams from other daemons.
    pub received_packets: u64,
    /// Datagrams to other daemons.
    pub sent_packets: u64,
}
