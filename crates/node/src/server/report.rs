//! State of a daemon, for people and for monitoring.

use std::collections::BTreeSet;

use bytes::Bytes;
use faircast_hop::ConnectionStats;
use faircast_overlay::DaemonRun;
use serde::Serialize;

use super::hub::Hub;

/// State of a daemon.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct DaemonReport {
    pub name: String,
    pub id: String,
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
    pub peers: usize,
    /// Error of the last name lookup of a peer.
    pub name_error: Option<String>,
    pub groups: Vec<GroupReport>,
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
    pub id: Option<String>,
    pub rtt_ms: f64,
    pub window_bytes: u64,
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
    pub events: u64,
    pub refused: u64,
    pub waits: u64,
    /// Number of clients that were cut off as too slow.
    pub cuts: u64,
    pub received_packets: u64,
    pub sent_packets: u64,
}

fn text(name: &Bytes) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn id_of(run: DaemonRun) -> String {
    format!("{:016x}", run.id.0)
}

impl Hub {
    pub(super) fn report(&self) -> DaemonReport {
        let daemon = self.node.daemon();
        let (view, members) = daemon.view();
        let links = daemon.view_links().map(|it| LinkReport {
            ends: it.ends.map(id_of),
            cost_us: it.cost_us,
            prices: it.prices,
        });
        let net = self.socket.counters();
        DaemonReport {
            name: self.name.clone(),
            id: id_of(self.me),
            view: view.to_string(),
            members: members.iter().map(|run| self.name_of(*run)).collect(),
            member_ids: members.iter().copied().map(id_of).collect(),
            settled: daemon.is_settled(),
            links: links.collect(),
            neighbors: self.neighbors(),
            peers: self.peers,
            name_error: self.socket.name_error().map(String::from),
            groups: self.groups(),
            clients: self.clients(),
            unstable_bytes: daemon.unstable_bytes(),
            counters: ServerCounters {
                received_packets: net.received.packets,
                sent_packets: net.sent.packets,
                ..self.counters
            },
        }
    }

    fn name_of(&self, run: DaemonRun) -> String {
        let daemon = self.node.daemon();
        let members = daemon.view().1.iter().zip(daemon.member_names());
        let name = members.into_iter().find(|(it, _)| it.id == run.id);
        name.map_or_else(|| id_of(run), |(_, name)| name)
    }

    fn neighbors(&self) -> Vec<NeighborReport> {
        let neighbor = |(at, run, stats): (_, Option<DaemonRun>, ConnectionStats)| {
            let mut prices = self.node.daemon().link_prices().map(|(_, it)| it);
            let price = prices.find(|it| Some(it.to) == run);
            NeighborReport {
                price: price.as_ref().map(|it| it.price),
                queue_packets: price.map(|it| it.packets_mean),
                address: self.socket.address(at).map(|at| at.to_string()),
                daemon: run.map(|run| self.name_of(run)),
                id: run.map(id_of),
                rtt_ms: stats.rtt.as_secs_f64() * 1e3,
                window_bytes: stats.window_bytes,
                queued_bytes: stats.queued_bytes,
                sent_bytes: stats.sent_bytes,
                lost_packets: stats.lost_packets,
            }
        };
        self.node.links().map(neighbor).collect()
    }

    fn groups(&self) -> Vec<GroupReport> {
        let held: BTreeSet<&Bytes> = self.node.daemon().held_groups().collect();
        let groups = self.node.daemon().groups().map(|(name, members)| GroupReport {
            name: text(name),
            members: members.len(),
            here: members.iter().filter(|it| it.daemon == self.me.id).count(),
            held: held.contains(name),
        });
        groups.collect()
    }

    fn clients(&self) -> Vec<ClientReport> {
        let daemon = self.node.daemon();
        let clients = self.sessions.iter().map(|(id, session)| {
            let (event, queued_bytes) = daemon.client_queue(*id).unwrap_or_default();
            let purse = daemon.purse(self.now, *id);
            ClientReport {
                name: text(&session.name),
                connected: session.outbox.is_some(),
                event,
                queued_bytes,
                request: session.taken,
                waiting: session.waiting.map(|reason| reason.to_string()),
                purse: purse.map(|it| it.0),
                waited_ms: purse.map(|it| it.1.as_millis()),
            }
        });
        clients.collect()
    }
}
