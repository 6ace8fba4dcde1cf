//! Relay over UDP.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use faircast_base::{NodeId, Time};
use faircast_hop::{
    CongestionControl, Endpoint, NodeEvent, NodeLimits, NodeStatus, RelayKey, RelayNode,
};
use faircast_proto::relay::Relay;
use faircast_trace::Subject;

use crate::book;
use crate::demux::{Arrival, Demux, Found};
use crate::live::random;
use crate::names::Names;
use crate::{
    AddressBook, App, Counters, Driver, DriverSettings, Live, Multicast, NetError, RelayAbove,
    SessionId, SessionOptions, SocketSettings, Sockets, Waker,
};

/// Settings of a relay.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct RelaySettings {
    /// Display name of the relay: at most 64 bytes, without control characters.
    pub name: String,
    pub listen: SocketAddr,
    /// Relays above, each `HOST:PORT`; the first that answers is used. Empty for the top relay.
    pub parents: Vec<String>,
    /// Multicast group of the relay to its hosts, sent once on each interface.
    pub multicast: Option<Multicast>,
    pub key: RelayKey,
    pub limits: NodeLimits,
    pub sockets: SocketSettings,
}

/// Demultiplexer that passes every datagram to the only machine.
#[derive(Debug, Default)]
pub struct RelayDemux(SessionId);

impl Demux for RelayDemux {
    type Key = ();
    type NewSession<'a> = ();

    fn add(&mut self, _now: Time, id: SessionId, _key: ()) {
        self.0 = id;
    }

    fn remove(&mut self, _id: SessionId) {}

    fn find(&mut self, arrival: Arrival<'_>, _datagram: &[u8]) -> Option<Found<()>> {
        arrival.book.node(arrival.from).map(|node| Found::Session(self.0, node))
    }

    fn key(&self, _new: &()) {}

    fn route(
        &self,
        _id: SessionId,
        to: NodeId,
        sockets: &Sockets,
        book: &AddressBook,
    ) -> Option<SocketAddr> {
        book.address(to).filter(|at| sockets.way_to(*at).is_some())
    }

    fn way(&self, to: SocketAddr, sockets: &Sockets, _book: &AddressBook) -> usize {
        sockets.way_to(to).unwrap_or_default()
    }
}

/// Relay with its sockets.
pub struct RelayDriver {
    driver: Driver<RelayNode, RelayDemux>,
    work: Work,
}

/// State of a relay, with the addresses of its neighbours.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct RelayReport {
    pub node: NodeStatus,
    /// Relay above; `None` for the top relay.
    pub above: Option<RelayAbove>,
    /// Addresses of neighbours, by their nodes in [`node`](Self::node).
    pub addresses: BTreeMap<NodeId, SocketAddr>,
    pub counters: Counters,
}

#[derive(Debug)]
struct Work {
    session: SessionId,
    names: Names,
    first_parent: Option<String>,
}

impl Work {
    fn report(&self, live: &Live<RelayNode, RelayDemux>) -> Option<RelayReport> {
        let machine = live.machine(self.session)?;
        let node = machine.status();
        let at = node.above_at.and_then(|above| live.address(above));
        let above = self.first_parent.as_ref().map(|first| RelayAbove {
            at: at.map_or_else(|| first.clone(), |at| at.to_string()),
            state: machine.above().clone(),
            refused: false,
            multicast: false,
            name_error: self.names.error.clone(),
            connection: node.above_connection,
            slow: None,
        });
        let neighbours = node.neighbours.iter().map(|neighbour| neighbour.at);
        let addresses = neighbours.filter_map(|node| Some((node, live.address(node)?))).collect();
        Some(RelayReport { node, above, addresses, counters: *live.counters() })
    }
}

struct Reporter<'a, F> {
    work: &'a mut Work,
    report: F,
}

impl<F: FnMut(RelayReport)> App<RelayNode, RelayDemux> for Reporter<'_, F> {
    fn event(&mut self, live: &mut Live<RelayNode, RelayDemux>, _: SessionId, event: NodeEvent) {
        match event {
            NodeEvent::Attached { at, name, is_relay } => {
                let address = live.address(at);
                tracing::info!(?address, name, is_relay, "a neighbour is attached");
            }
            NodeEvent::Detached { name, reason } => {
                tracing::info!(name, %reason, "a neighbour is gone");
            }
            NodeEvent::Above(state) => tracing::info!(?state, "the way to the relay above"),
        }
    }

    fn tick(&mut self, live: &mut Live<RelayNode, RelayDemux>) {
        let Work { session, names, .. } = self.work;
        let now = live.now();
        let is_searching = live.machine(*session).is_some_and(RelayNode::is_searching);
        if let Some(found) = names.poll(now, is_searching) {
            let parents = found.into_iter().filter_map(|at| live.book.node(at)).collect();
            live.with(*session, |node, _| node.set_parents(parents));
        }
        if let Some(report) = self.work.report(live) {
            (self.report)(report);
        }
    }
}

impl RelayDriver {
    /// Opens the sockets of the relay `node` with this program.
    ///
    /// # Errors
    /// The address cannot be bound, an interface is missing, or a parent's address family differs.
    pub fn new(
        settings: &RelaySettings,
        node: NodeId,
        program: Box<dyn Relay + Send>,
    ) -> Result<Self, NetError> {
        let RelaySettings { name, listen, parents, multicast, key, limits, sockets } = settings;
        let mut addresses = parents.iter().filter_map(|parent| parent.parse::<SocketAddr>().ok());
        if let Some(other) = addresses.find(|parent| parent.is_ipv4() != listen.is_ipv4()) {
            return Err(NetError::Family(listen.ip(), other.ip()));
        }
        let sockets = Sockets::relay(*listen, multicast.clone(), sockets.clone())?;
        let networks = (sockets.ways.len() - 1) as u16;
        let driver = DriverSettings { ends_when_idle: false, ..DriverSettings::default() };
        let (book, demux) = (AddressBook::of_hosts(), RelayDemux::default());
        let mut driver = Driver::with_demux(sockets, book, demux, driver)?;
        let own = node.0.to_be_bytes();
        let endpoint = Endpoint::new(key, &own, random(), true, CongestionControl::default());
        let mut relay = RelayNode::new(endpoint, (node, name), Vec::new(), *limits, program);
        relay.set_hosts(book::host);
        if let Some(multicast) = multicast {
            relay.set_multicast(multicast.group.to_string().as_bytes(), networks);
        }
        let live = driver.live();
        let subject = Some(Subject::Node(node));
        let session = live.add(relay, SessionOptions { key: (), subject });
        let (names, first_parent) = (Names::new(parents.clone()), parents.first().cloned());
        Ok(Self { driver, work: Work { session, names, first_parent } })
    }

    /// Returns the relay's listening address and port.
    pub fn local_address(&mut self) -> SocketAddr {
        let ways = &self.driver.live().sockets.ways;
        ways[ways.len() - 1].local
    }

    /// Returns the state of the relay.
    pub fn report(&mut self) -> Option<RelayReport> {
        self.work.report(self.driver.live())
    }

    /// Returns a handle by which other threads end the relay.
    pub fn stopper(&self) -> RelayStopper {
        RelayStopper(self.driver.waker())
    }

    /// Runs until the relay is stopped. `report` gets the relay's state several times a second.
    pub fn run(&mut self, report: impl FnMut(RelayReport)) -> Result<(), NetError> {
        let Self { driver, work } = self;
        driver.run(&mut Reporter { work, report }).map(|_| ())
    }
}

/// Handle that ends a relay from other threads.
#[derive(Clone, Debug)]
pub struct RelayStopper(Waker<RelayNode, RelayDemux>);

impl RelayStopper {
    /// Ends the relay. Its neighbours are notified and look for another relay at once.
    pub fn close(&self) {
        self.0.run(|live| {
            live.for_each(Live::close_session);
            live.stop();
        });
    }
}
