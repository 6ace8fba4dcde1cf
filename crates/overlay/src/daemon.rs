//! Daemon of the overlay: composition of links, views, streams and clients.
//!
//! The coordinator, the lowest member of a component, proposes a graph. Members stop, flood their
//! states and retransmit the cells that others lack. The configuration begins once every member has
//! every cell. If its members are exactly those of one old view, only the routes change. Otherwise
//! a transitional view ends the old view (Moser, Amir, Melliar-Smith, Agarwal 1994).

mod change;
mod clients;
mod delivery;
mod market;
mod recovery;
mod requests;

pub use market::{LinkPrice, ViewLink};
pub use requests::{CLIENT_BYTES_MAX, MESSAGE_BYTES_MAX, Outgoing};

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::{Cx, Duration, Time};
use faircast_proto::fields::Fields;

use self::change::ViewChange;
use self::clients::{Clients, SlowClients};
use self::market::Market;
use crate::cell::Kind;
use crate::client::Room;
use crate::group::{Groups, MemberId};
use crate::ids::{ClientId, DaemonId, DaemonRun, LinkId, ViewId};
use crate::neighbor::{LinkChange, Neighbours};
use crate::price::FlowControl;
use crate::stream::{Streams, Violation};
use crate::topology::{Advert, Database, Graph};
use crate::wire::{Control, Item};

/// Interval of acknowledgements that no member waits for: 50 ms.
const REFRESH: Duration = Duration::from_millis(50);

/// Settings of a daemon.
#[derive(Clone, Copy, Debug)]
pub struct DaemonSettings {
    /// Maximum bytes of own clients' messages that not all daemons have. Default 16 MB. One client
    /// uses at most half. A link closes at four times the other daemon's limit plus 64 MB.
    pub retention_bytes: usize,
    /// Maximum number of bytes that wait for one client. Default 64 MB.
    pub client_bytes: usize,
    /// Maximum history of a client that resumes, in bytes of events. Default 1 MB.
    pub history_bytes: usize,
    /// Cost-benefit flow control. Default: messages have no price.
    pub flow_control: FlowControl,
}

impl Default for DaemonSettings {
    fn default() -> Self {
        Self {
            retention_bytes: 16 << 20,
            client_bytes: 64 << 20,
            history_bytes: 1 << 20,
            flow_control: FlowControl::default(),
        }
    }
}

/// Event or request of a daemon for its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonEvent {
    /// The daemon at the other end of a connection has greeted.
    Greeted(LinkId, DaemonRun),
    /// Request to close a connection: another one replaces it, or its peer violates the protocol.
    Close(LinkId),
    /// Request to close a client's connection: the session has ended or moved to another one.
    End(ClientId),
}

/// State machine of a daemon.
#[derive(Clone, Debug)]
pub struct Daemon {
    me: DaemonRun,
    name: String,
    settings: DaemonSettings,
    neighbours: Neighbours,
    database: Database,
    change: ViewChange,
    current: Streams,
    /// Configuration with which the view began; later ones changed only its routes.
    view: ViewId,
    /// Daemons that move on together; empty outside a transitional view.
    transitional_set: Vec<DaemonRun>,
    groups: Groups,
    clients: Clients,
    /// Membership steps that wait for the view: kind, client and groups.
    waiting_steps: Vec<(Kind, Bytes, Vec<Bytes>)>,
    slow: SlowClients,
    market: Market,
    refresh_at: Time,
    events: VecDeque<DaemonEvent>,
}

impl Daemon {
    /// Creates a daemon that is alone in its view. `name` has 1 to 64 bytes.
    pub fn new(now: Time, me: DaemonRun, name: &str, settings: DaemonSettings) -> Self {
        let config = ViewId { round: 1, coordinator: me };
        let graph = Graph { members: [me].to_vec(), edges: Vec::new() };
        let mut current = Streams::new(config, graph, 0, 0, &BTreeMap::new(), 0);
        current.is_begun = true;
        let room = Room { waiting: settings.client_bytes, history: settings.history_bytes };
        let mut daemon = Self {
            me,
            name: name.into(),
            settings,
            neighbours: Neighbours::default(),
            database: Database::new(now),
            change: ViewChange::new(now, config),
            current,
            view: config,
            transitional_set: Vec::new(),
            groups: Groups::default(),
            clients: Clients::new(me.id, room),
            waiting_steps: Vec::new(),
            slow: SlowClients::default(),
            market: Market::new(me, settings.flow_control),
            refresh_at: now,
            events: VecDeque::new(),
        };
        daemon.advertise(now);
        daemon
    }

    /// Returns the identifier and the members of the view.
    pub fn view(&self) -> (ViewId, &[DaemonRun]) {
        (self.view, &self.current.graph.members)
    }

    /// True if a view has begun and no change is in progress.
    pub fn is_settled(&self) -> bool {
        !self.change.is_in_progress()
    }

    /// Returns all groups with their members.
    pub fn groups(&self) -> impl Iterator<Item = (&Bytes, &[MemberId])> {
        self.groups.iter()
    }

    /// Returns the number of bytes that wait for a link.
    pub fn queued_bytes(&self, link: LinkId) -> usize {
        self.current.queues.get(&link).map_or(0, |it| it.bytes)
    }

    /// Returns the number of bytes of this daemon's clients' messages that not all daemons have.
    pub fn unstable_bytes(&self) -> usize {
        self.current.unstable_bytes()
    }

    #[cfg(test)]
    pub(crate) fn pending(&self) -> usize {
        let joins: usize = self.clients.by_id.values().map(|it| it.joining.len()).sum();
        self.current.pending() + self.waiting_steps.len() + joins
    }

    /// Adds a connection. `opened`: true if this daemon opened it.
    pub fn link_up(&mut self, cx: &mut Cx<'_>, link: LinkId, opened: bool) {
        self.neighbours.open(cx.now, link, opened);
        self.greet(cx.now);
    }

    /// Removes a connection.
    pub fn link_down(&mut self, cx: &mut Cx<'_>, link: LinkId) {
        if self.neighbours.close(cx.now, link) {
            self.advertise(cx.now);
        }
    }

    /// Returns the next frame of a link's control lane.
    pub fn poll_control(&mut self, link: LinkId) -> Option<Bytes> {
        self.neighbours.poll(link)
    }

    /// Returns the next frame of a link's data lane.
    pub fn poll_data(&mut self, link: LinkId) -> Option<Bytes> {
        self.streams()?.poll(link)
    }

    /// Returns the daemon at the other end of a link, once it has greeted.
    pub fn peer(&self, link: LinkId) -> Option<DaemonRun> {
        self.neighbours.peer(link)
    }

    /// True if a daemon has greeted over any connection.
    pub fn has_link_to(&self, id: DaemonId) -> bool {
        self.neighbours.has(id)
    }

    /// Handles a frame of the control lane.
    pub fn handle_control(&mut self, cx: &mut Cx<'_>, link: LinkId, frame: &[u8]) {
        let now = cx.now;
        self.market.count_queues(now, &self.current);
        self.neighbours.note_received(now, link);
        match Control::decode(frame) {
            None => self.refuse(link),
            Some(Control::Hello(hello)) => {
                if self.peer(link).is_none() {
                    self.events.push_back(DaemonEvent::Greeted(link, hello.member));
                }
                for change in self.neighbours.take_hello(now, self.me, link, &hello) {
                    self.apply(now, change);
                }
                self.check_links(cx);
            }
            Some(Control::Advert(advert)) => self.take_advert(now, Some(link), advert),
            Some(Control::Propose(config, graph)) => self.accept(now, Some(link), config, graph),
            Some(Control::State(config, rank, state)) => {
                self.take_state(now, Some(link), (config, rank.into()), state);
            }
            Some(Control::Prices(prices)) => self.take_prices(cx, link, prices),
            Some(Control::Round(round)) => self.take_round(now, Some(link), round),
        }
        self.settle(cx);
    }

    /// Handles a frame of the data lane.
    pub fn handle_data(&mut self, cx: &mut Cx<'_>, link: LinkId, frame: Bytes) {
        self.market.count_queues(cx.now, &self.current);
        self.neighbours.note_received(cx.now, link);
        self.take_data(cx.now, link, frame);
        self.settle(cx);
    }

    /// Returns the streams of data frames; `None` from a proposal to its recovery.
    fn streams(&mut self) -> Option<&mut Streams> {
        match &mut self.change {
            ViewChange { recovery: Some(recovery), .. } => Some(&mut recovery.streams),
            ViewChange { proposal: Some(_), .. } => None,
            _ => Some(&mut self.current),
        }
    }

    fn take_data(&mut self, now: Time, link: LinkId, mut frame: Bytes) {
        let mut fields = Fields(&frame);
        let Some(config) = fields.read::<ViewId>() else { return self.refuse(link) };
        let rest = frame.len() - fields.0.len();
        if self.streams().is_none_or(|it| it.config != config) {
            return self.change.keep_early(config, link, frame);
        }
        frame = frame.slice(rest..);
        while !frame.is_empty() {
            let Some(item) = Item::take(&mut frame) else { return self.refuse(link) };
            let Some(streams) = self.streams() else { return };
            match streams.take(link, item) {
                Ok(complete) => self.take_messages(now, complete),
                Err(Violation) => return self.refuse(link),
            }
        }
    }

    fn refuse(&mut self, link: LinkId) {
        self.events.push_back(DaemonEvent::Close(link));
    }

    /// Returns the next event or request for the driver.
    pub fn poll_event(&mut self) -> Option<DaemonEvent> {
        self.events.pop_front()
    }

    fn push_control(&mut self, now: Time, link: LinkId, frame: Bytes) {
        if !self.neighbours.push(link, frame) {
            self.apply(now, LinkChange::Close(link));
        }
    }

    fn flood(&mut self, now: Time, except: Option<LinkId>, control: &Control) {
        let frame = control.encode();
        let links =
            self.neighbours.links.iter().filter(|(id, it)| it.is_up && Some(**id) != except);
        for link in links.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.push_control(now, link, frame.clone());
        }
    }

    fn greet(&mut self, now: Time) {
        for (link, hello) in self.neighbours.greet(now, self.me, &self.name) {
            self.push_control(now, link, Control::Hello(hello).encode());
        }
    }

    fn check_links(&mut self, cx: &mut Cx<'_>) {
        for change in self.neighbours.check(cx.now, cx.late) {
            self.apply(cx.now, change);
        }
    }

    fn apply(&mut self, now: Time, change: LinkChange) {
        match change {
            LinkChange::Up(link) => {
                for advert in self.database.iter().cloned().collect::<Vec<_>>() {
                    self.push_control(now, link, Control::Advert(advert).encode());
                }
                self.advertise(now);
            }
            LinkChange::Close(link) => {
                self.refuse(link);
                if self.neighbours.close(now, link) {
                    self.advertise(now);
                }
            }
        }
    }

    fn advertise(&mut self, now: Time) {
        let own = (self.me, self.name.clone());
        let advert = self.database.renew(now, own, self.neighbours.up());
        self.take_advert(now, None, advert);
    }

    fn take_advert(&mut self, now: Time, from: Option<LinkId>, advert: Advert) {
        if from.is_some() && self.database.must_answer(self.me, &advert) {
            return self.advertise(now);
        }
        if self.database.take(now, advert.clone()) {
            self.flood(now, from, &Control::Advert(advert));
            self.change.note_topology(now);
        }
    }

    /// Handles the passing of time.
    pub fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.greet(cx.now);
        self.check_links(cx);
        self.handle_market(cx);
        if cx.now >= self.database.renew_at {
            self.advertise(cx.now);
            self.database.expire(cx.now, &self.current.graph.members);
        }
        if cx.now >= self.refresh_at {
            self.refresh_at = cx.now + REFRESH;
            self.current.refresh();
            self.expire_clients(cx);
            self.cut_still_clients(cx.now);
        }
        self.settle(cx);
    }

    fn settle(&mut self, cx: &mut Cx<'_>) {
        self.propose(cx.now);
        self.send_waiting_steps(cx.now);
        self.finish_joins(cx.now);
        self.announce_slow(cx.now);
        if !self.change.is_in_progress() {
            self.current.release_safe();
            while let Some(message) = self.current.next_ordered() {
                self.deliver(message);
            }
            self.current.send_clock();
        }
    }

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) is due.
    pub fn next_timeout(&self) -> Option<Time> {
        let neighbours = self.neighbours.next_timeout();
        let own = [neighbours, self.change.next_timeout(), self.market.next_timeout()];
        own.into_iter().flatten().chain([self.refresh_at]).min()
    }
}
