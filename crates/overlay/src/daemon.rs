//! Daemon of the overlay: composition of links, views, streams and clients.
//!
//! The coordinator, the lowest member of a component, proposes a graph. Members stop, flood their
//! states and retransmit the cells that others lack. The configuration begins once every member has
//! every cell. If its members are exactly those of one old view, only the routes change. Otherwise
//! a transitional view ends the old view (Moser, Amir, Melliar-Smith, Agarwal 1994).

mod market;
mod session;
mod slow;
mod view;

pub use market::{LinkPrice, ViewLink};
pub use session::{CLIENT_BYTES_MAX, MESSAGE_BYTES_MAX, Outgoing};

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::{Cx, Duration, Time};
use faircast_proto::fields::Fields;

use self::market::Market;
use self::slow::Slow;
use self::view::{Entry, Proposal};
use crate::cell::Kind;
use crate::client::Client;
use crate::group::{Groups, Mate};
use crate::ids::{Ballot, ClientId, DaemonId, DaemonRun, LinkId, ViewId};
use crate::neighbor::{Change, Neighbours};
use crate::price::{FlowControl, PriceProfile};
use crate::stream::{Ready, Streams};
use crate::topology::{ADVERT_INTERVAL, Advert, Database, Graph};
use crate::wire::{Control, Item, NUMBER_MAX};

/// Interval of acknowledgements that no member waits for: 50 ms.
const REFRESH: Duration = Duration::from_millis(50);
/// Maximum number of answers to another run with the own name; an earlier run leaves few adverts.
const ANSWERS_MAX: u32 = 8;
/// Maximum number of early data frames, for a configuration that has not begun here.
const EARLY_MAX: usize = 4096;
/// Maximum control queue of a link in bytes, above a whole overlay's database; then it closes.
const CONTROL_BYTES_MAX: usize = 16 << 20;

#[derive(Clone, Debug, Default)]
struct Outbox {
    frames: VecDeque<Bytes>,
    bytes: usize,
}

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

impl DaemonSettings {
    fn flow(&self) -> Option<FlowControl> {
        (self.flow_control.kind != PriceProfile::Off).then_some(self.flow_control)
    }
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
    advert_number: u64,
    advert_at: Time,
    /// Incarnation of a later run with this name, and number of answers to its advertisements.
    outbid: (u64, u32),
    control: BTreeMap<LinkId, Outbox>,
    current: Streams,
    /// Ballot of the configuration, or an earlier ballot after changes of routes.
    view: ViewId,
    proposal: Option<Proposal>,
    entry: Option<Entry>,
    /// Abandoned change of routes with every cell here: others may have completed the change.
    unfinished: Option<Entry>,
    early: Vec<(LinkId, Bytes)>,
    accepted: Ballot,
    round: u64,
    groups: Groups,
    clients: BTreeMap<ClientId, Client>,
    names: BTreeMap<Bytes, ClientId>,
    ready: VecDeque<ClientId>,
    joiners: BTreeSet<ClientId>,
    /// Membership steps that wait for the view: kind, client and groups.
    steps: Vec<(Kind, Bytes, Vec<Bytes>)>,
    /// Slow clients; groups whose senders wait for them; true if either may have changed.
    slow: BTreeMap<ClientId, Slow>,
    held: BTreeSet<Bytes>,
    is_slow_new: bool,
    frees: u64,
    /// Daemons that move on together; empty outside a transitional view.
    moving: Vec<DaemonRun>,
    changed: Option<(Time, Time)>,
    progress_at: Time,
    stuck_after: Duration,
    /// Repeated proposals since the last completed change. Each one doubles `stuck_after`.
    repetitions: u32,
    refresh_at: Time,
    events: VecDeque<DaemonEvent>,
    market: Market,
    scratch: Vec<Ready>,
}

impl Daemon {
    /// Creates a daemon that is alone in its view. `name` has 1 to 64 bytes.
    pub fn new(now: Time, me: DaemonRun, name: &str, settings: DaemonSettings) -> Self {
        let ballot = Ballot { round: 1, coordinator: me };
        let graph = Graph { members: [me].to_vec(), edges: Vec::new() };
        let mut current = Streams::new(ballot, graph, 0, 0, &BTreeMap::new(), 0);
        current.is_open = true;
        let mut daemon = Self {
            me,
            name: name.into(),
            settings,
            neighbours: Neighbours::default(),
            database: Database::default(),
            advert_number: 0,
            advert_at: now,
            outbid: (0, 0),
            control: BTreeMap::new(),
            current,
            view: ballot,
            proposal: None,
            entry: None,
            unfinished: None,
            early: Vec::new(),
            accepted: ballot,
            round: ballot.round,
            groups: Groups::default(),
            clients: BTreeMap::new(),
            names: BTreeMap::new(),
            ready: VecDeque::new(),
            joiners: BTreeSet::new(),
            steps: Vec::new(),
            slow: BTreeMap::new(),
            held: BTreeSet::new(),
            is_slow_new: false,
            frees: 0,
            moving: Vec::new(),
            changed: None,
            progress_at: now,
            stuck_after: Duration::ZERO,
            repetitions: 0,
            refresh_at: now,
            events: VecDeque::new(),
            market: Market::default(),
            scratch: Vec::new(),
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
        !self.is_changing()
    }

    /// Returns all groups with their members.
    pub fn groups(&self) -> impl Iterator<Item = (&Bytes, &[Mate])> {
        self.groups.iter()
    }

    /// Returns the number of bytes that wait for a link.
    pub fn queued_bytes(&self, link: LinkId) -> usize {
        self.current.queued_bytes(link)
    }

    /// Returns the number of bytes of this daemon's clients' messages that not all daemons have.
    pub fn unstable_bytes(&self) -> usize {
        self.current.unstable_bytes()
    }

    #[cfg(test)]
    pub(crate) fn pending(&self) -> usize {
        let joining: usize = self.clients.values().map(|it| it.joining.len()).sum();
        self.current.pending() + self.steps.len() + joining
    }

    /// Adds a connection. `opened`: true if this daemon opened it.
    pub fn link_up(&mut self, cx: &mut Cx<'_>, link: LinkId, opened: bool) {
        self.neighbours.open(cx.now, link, opened);
        self.control.insert(link, Outbox::default());
        self.greet(cx.now);
    }

    /// Removes a connection.
    pub fn link_down(&mut self, cx: &mut Cx<'_>, link: LinkId) {
        self.control.remove(&link);
        if self.neighbours.close(cx.now, link) {
            self.advertise(cx.now);
        }
    }

    /// Returns the next frame of a link's control lane.
    pub fn poll_control(&mut self, link: LinkId) -> Option<Bytes> {
        let outbox = self.control.get_mut(&link)?;
        let frame = outbox.frames.pop_front()?;
        outbox.bytes -= frame.len();
        Some(frame)
    }

    /// Returns the next frame of a link's data lane.
    pub fn poll_data(&mut self, link: LinkId) -> Option<Bytes> {
        if let Some(entry) = &mut self.entry {
            return entry.streams.poll(link);
        }
        if self.proposal.is_some() { None } else { self.current.poll(link) }
    }

    /// Returns the daemon at the other end of a link, once it has greeted.
    pub fn peer(&self, link: LinkId) -> Option<DaemonRun> {
        self.neighbours.get(link)?.peer
    }

    /// True if a daemon has greeted over any connection.
    pub fn has_link_to(&self, id: DaemonId) -> bool {
        self.neighbours.has(id)
    }

    /// Handles a frame of the control lane.
    pub fn handle_control(&mut self, cx: &mut Cx<'_>, link: LinkId, frame: &[u8]) {
        let now = cx.now;
        self.count_queues(now);
        self.neighbours.note_heard(now, link);
        match Control::decode(frame) {
            None => self.refuse(link),
            Some(Control::Hello(hello)) => {
                if self.peer(link).is_none() {
                    self.events.push_back(DaemonEvent::Greeted(link, hello.member));
                }
                for change in self.neighbours.take(now, self.me, link, &hello) {
                    self.apply(now, change);
                }
                self.judge(cx);
            }
            Some(Control::Advert(advert)) => self.take_advert(now, Some(link), advert),
            Some(Control::Propose(ballot, graph)) => self.accept(now, Some(link), ballot, graph),
            Some(Control::State(ballot, place, state)) => {
                self.take_state(now, Some(link), ballot, place.into(), state);
            }
            Some(Control::Prices(prices)) => {
                self.take_prices(now, link, prices);
                self.wake_short(cx);
            }
            Some(Control::Round(round)) => self.take_round(now, Some(link), round),
        }
        self.settle(cx);
    }

    /// Handles a frame of the data lane.
    pub fn handle_data(&mut self, cx: &mut Cx<'_>, link: LinkId, frame: Bytes) {
        self.count_queues(cx.now);
        self.neighbours.note_heard(cx.now, link);
        self.take_data(cx.now, link, frame);
        self.settle(cx);
    }

    fn take_data(&mut self, now: Time, link: LinkId, mut frame: Bytes) {
        let mut fields = Fields(&frame);
        let Some(ballot) = fields.read::<Ballot>() else { return self.refuse(link) };
        let rest = frame.len() - fields.0.len();
        let is_current =
            ballot == self.current.ballot && self.proposal.is_none() && self.entry.is_none();
        let is_entry = self.entry.as_ref().is_some_and(|it| it.streams.ballot == ballot);
        if !is_current && !is_entry {
            let is_next = self.proposal.as_ref().is_some_and(|it| it.ballot == ballot);
            if is_next && self.early.len() < EARLY_MAX {
                self.early.push((link, frame));
            }
            return;
        }
        frame = frame.slice(rest..);
        while !frame.is_empty() {
            let Some(item) = Item::take(&mut frame) else { return self.refuse(link) };
            let mut ready = Vec::new();
            let streams = self.entry.as_mut().map_or(&mut self.current, |it| &mut it.streams);
            if streams.take(link, item, &mut ready).is_none() {
                return self.refuse(link);
            }
            for message in ready {
                self.take_message(now, message);
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
        let Some(outbox) = self.control.get_mut(&link) else { return };
        if outbox.bytes > CONTROL_BYTES_MAX {
            return self.apply(now, Change::Replaced(link));
        }
        outbox.bytes += frame.len();
        outbox.frames.push_back(frame);
    }

    fn flood(&mut self, now: Time, except: Option<LinkId>, control: &Control) {
        let frame = control.encode();
        let links: Vec<LinkId> = self.control.keys().copied().collect();
        for link in links {
            if Some(link) != except && self.neighbours.get(link).is_some_and(|it| it.is_up) {
                self.push_control(now, link, frame.clone());
            }
        }
    }

    fn greet(&mut self, now: Time) {
        for (link, hello) in self.neighbours.greet(now, self.me, &self.name) {
            self.push_control(now, link, Control::Hello(hello).encode());
        }
    }

    fn judge(&mut self, cx: &mut Cx<'_>) {
        for change in self.neighbours.judge(cx.now, cx.late) {
            self.apply(cx.now, change);
        }
    }

    fn apply(&mut self, now: Time, change: Change) {
        match change {
            Change::Up(link) => {
                let known: Vec<Bytes> =
                    self.database.iter().map(|it| Control::Advert(it.clone()).encode()).collect();
                known.into_iter().for_each(|frame| self.push_control(now, link, frame));
                self.advertise(now);
            }
            Change::Replaced(link) => {
                self.refuse(link);
                self.control.remove(&link);
                if self.neighbours.close(now, link) {
                    self.advertise(now);
                }
            }
        }
    }

    fn advertise(&mut self, now: Time) {
        self.advert_number += 1;
        self.advert_at = now + ADVERT_INTERVAL;
        let advert = Advert {
            origin: self.me,
            number: self.advert_number,
            name: self.name.clone(),
            links: self.neighbours.up(),
        };
        self.take_advert(now, None, advert);
    }

    fn take_advert(&mut self, now: Time, from: Option<LinkId>, advert: Advert) {
        if from.is_some() && self.answers(&advert) {
            self.advert_number = advert.number.min(NUMBER_MAX - 1);
            return self.advertise(now);
        }
        if self.database.take(now, advert.clone()) {
            self.flood(now, from, &Control::Advert(advert));
            self.note_change(now);
        }
    }

    /// True if an advertisement of another run with the own name, maybe forged, needs an answer
    /// with a greater number. Of two active daemons with one name the earlier run gives up.
    fn answers(&mut self, advert: &Advert) -> bool {
        let known = self.database.get(self.me.id);
        let is_new = known.is_none_or(|known| advert.age() >= known.age() && advert != known);
        let other = advert.origin.incarnation;
        if advert.origin.id != self.me.id || !is_new {
            return false;
        }
        if other <= self.me.incarnation {
            return true;
        }
        let before = if self.outbid.0 == other { self.outbid.1 } else { 0 };
        self.outbid = (other, before.saturating_add(1));
        self.outbid.1 <= ANSWERS_MAX
    }

    fn note_change(&mut self, now: Time) {
        let first = self.changed.map_or(now, |it| it.1);
        self.changed = Some((now, first));
    }

    /// Handles the passing of time.
    pub fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.greet(cx.now);
        self.judge(cx);
        self.handle_market(cx);
        if cx.now >= self.advert_at {
            self.advertise(cx.now);
            self.database.expire(cx.now, &self.current.graph.members);
        }
        if cx.now >= self.refresh_at {
            self.refresh_at = cx.now + REFRESH;
            self.current.refresh();
            self.expire_clients(cx);
            self.judge_slow(cx.now);
        }
        self.settle(cx);
    }

    fn settle(&mut self, cx: &mut Cx<'_>) {
        self.propose(cx.now);
        self.catch_up(cx.now);
        self.finish_joins(cx.now);
        self.settle_slow(cx.now);
        if !self.is_changing() {
            self.current.note_passed();
            while let Some(message) = self.current.next_ordered() {
                self.deliver(message);
            }
            self.current.speak();
        }
    }

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) is due.
    pub fn next_timeout(&self) -> Option<Time> {
        let own = [self.neighbours.next_timeout(), self.next_proposal(), Some(self.refresh_at)];
        let own = own.into_iter().chain([self.next_market()]);
        own.into_iter().flatten().min()
    }
}
