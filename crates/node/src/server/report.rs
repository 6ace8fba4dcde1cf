//! Report of the daemon's task, for people and for monitoring.

use std::collections::BTreeSet;

use bytes::Bytes;
use faircast_hop::ConnectionStats;
use faircast_overlay::DaemonRun;

use super::hub::Hub;
use crate::report::{
    ClientReport, DaemonReport, GroupReport, LinkReport, NeighborReport, ServerCounters,
};

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

    /// Returns the name of a daemon, or its identifier while the name is unknown.
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
