//! The daemon: links, views, streams and clients, composed.
//!
//! Configurations follow each other. The coordinator, the least member of the component, proposes a
//! graph; each member stops, and floods what it has; who has the states of all sends again what
//! others lack, and a new configuration begins once everybody has everything. If all members come
//! from one view and none is missing, that was a change of routes, and clients notice nothing.
//! Otherwise the old view ends with a transitional view (Moser, Amir, Melliar-Smith, Agarwal 1994),
//! and a new view begins when the groups of all members are known.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::{Cx, Duration, Time};
use faircast_proto::fields::Fields;

use crate::cell::{GROUP_BYTES_MAX, GROUPS_MAX, Kind, PAYLOAD_BYTES_MAX, Service};
use crate::client::{Client, ClientEvent, Joining, Reason, SendError};
use crate::group::{Groups, Mate};
use crate::ids::{Ballot, ClientId, LinkId, Member, Set, ViewId};
use crate::neighbor::{Change, Neighbours};
use crate::stream::{Ready, Streams};
use crate::topology::{Advert, Database, Graph};
use crate::wire::{Control, Item, State, put_var, take_var};

/// Quiet time of the topology before a configuration is proposed.
const SETTLE: Duration = Duration::from_millis(100);
/// Longest time for which changes of the topology put a proposal off.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// Time after which a proposal without progress is repeated.
const STUCK: Duration = Duration::from_secs(2);
/// Interval at which everything that nobody waits for is acknowledged.
const REFRESH: Duration = Duration::from_millis(50);
/// Most frames of data of a configuration that has not begun here.
const EARLY_MAX: usize = 4096;
/// Most bytes of a message.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Settings of a daemon.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Most bytes of messages of this daemon's clients that not all daemons have. Default 16 MB.
    pub retention_bytes: usize,
    /// Most bytes that wait for one client. Default 64 MB.
    pub client_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { retention_bytes: 16 << 20, client_bytes: 64 << 20 }
    }
}

/// Request of a daemon to its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonEvent {
    /// Close a connection: another one replaces it, or its peer breaks the protocol.
    Close(LinkId),
}

/// A proposed configuration, before the states of all members have come.
#[derive(Debug)]
struct Proposal {
    ballot: Ballot,
    graph: Graph,
    states: Vec<Option<State>>,
}

/// A configuration that is being entered.
#[derive(Debug)]
struct Entry {
    streams: Streams,
    /// Members that come from the same configuration and view as this one.
    together: Set,
    /// True if these are all members of the old view and of the new one.
    is_route_change: bool,
    /// Members of `together` that have sent all they had to, and that have everything.
    sent: Set,
    have: Set,
    said_have: bool,
    /// Messages of members that are further.
    waiting: Vec<Ready>,
}

/// What stands between a configuration and its view.
#[derive(Debug, Default)]
struct Tables {
    /// Members whose groups have come.
    complete: Set,
    members: Vec<(Bytes, Mate)>,
    /// Messages that came before the view.
    waiting: Vec<Ready>,
    /// Daemons that moved together with this one, from this view.
    together: Set,
    previous: Option<ViewId>,
}

/// State machine of a daemon.
#[derive(Debug)]
pub struct Daemon {
    me: Member,
    name: String,
    settings: Settings,
    neighbours: Neighbours,
    database: Database,
    advert_number: u64,
    control: BTreeMap<LinkId, VecDeque<Bytes>>,
    /// Streams of the configuration that was entered last.
    current: Streams,
    /// The view; that of the configuration, or an earlier one after changes of routes.
    view: ViewId,
    /// Groups of the other members that the view waits for; `None` once the view has begun.
    tables: Option<Tables>,
    proposal: Option<Proposal>,
    entry: Option<Entry>,
    /// Frames of a configuration that has not begun here.
    early: Vec<(LinkId, Bytes)>,
    accepted: Ballot,
    groups: Groups,
    clients: BTreeMap<ClientId, Client>,
    names: BTreeMap<Bytes, ClientId>,
    /// When the topology changed last and first since the last proposal.
    changed: Option<(Time, Time)>,
    progress_at: Time,
    refresh_at: Time,
    events: VecDeque<DaemonEvent>,
}

impl Daemon {
    /// A daemon that is alone in its view. `name` has 1 to 64 bytes.
    pub fn new(now: Time, me: Member, name: &str, settings: Settings) -> Self {
        let ballot = Ballot { round: 1, coordinator: me };
        let graph = Graph { members: [me].to_vec(), edges: Vec::new() };
        let mut current = Streams::new(ballot, graph, 0, 0, &BTreeMap::new());
        current.is_open = true;
        let mut daemon = Self {
            me,
            name: name.into(),
            settings,
            neighbours: Neighbours::default(),
            database: Database::default(),
            advert_number: 0,
            control: BTreeMap::new(),
            current,
            view: ballot,
            tables: None,
            proposal: None,
            entry: None,
            early: Vec::new(),
            accepted: ballot,
            groups: Groups::default(),
            clients: BTreeMap::new(),
            names: BTreeMap::new(),
            changed: None,
            progress_at: now,
            refresh_at: now,
            events: VecDeque::new(),
        };
        daemon.advertise(now);
        daemon
    }

    /// Identifier of the view, and its members once the view has begun.
    pub fn view(&self) -> (ViewId, &[Member]) {
        (self.view, &self.current.graph.members)
    }

    /// True if a view has begun and no change is in progress.
    pub fn is_settled(&self) -> bool {
        self.tables.is_none() && self.proposal.is_none() && self.entry.is_none()
    }

    /// Members of all groups.
    pub fn groups(&self) -> impl Iterator<Item = (&Bytes, &[Mate])> {
        self.groups.iter()
    }

    /// Bytes of messages that this daemon keeps for others or for itself.
    pub fn unstable_bytes(&self) -> usize {
        self.current.unstable_bytes()
    }

    // Links.

    /// A connection is up. `opened`: this daemon has opened it.
    pub fn link_up(&mut self, cx: &mut Cx<'_>, link: LinkId, opened: bool) {
        self.neighbours.open(cx.now, link, opened);
        self.control.insert(link, VecDeque::new());
        self.greet(cx.now);
    }

    /// A connection is gone.
    pub fn link_down(&mut self, cx: &mut Cx<'_>, link: LinkId) {
        self.control.remove(&link);
        if self.neighbours.close(cx.now, link) {
            self.advertise(cx.now);
        }
    }

    /// Next frame of the control lane of a link.
    pub fn poll_control(&mut self, link: LinkId) -> Option<Bytes> {
        self.control.get_mut(&link)?.pop_front()
    }

    /// Next frame of the data lane of a link.
    pub fn poll_data(&mut self, link: LinkId) -> Option<Bytes> {
        if let Some(entry) = &mut self.entry {
            return entry.streams.poll(link);
        }
        if self.proposal.is_some() { None } else { self.current.poll(link) }
    }

    /// Takes a frame of the control lane.
    pub fn handle_control(&mut self, cx: &mut Cx<'_>, link: LinkId, frame: &[u8]) {
        let now = cx.now;
        self.neighbours.note_heard(now, link);
        match Control::decode(frame) {
            None => self.refuse(link),
            Some(Control::Hello(hello)) => {
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
            Some(Control::Refuse(ballot, round)) => {
                // Only the one that has proposed can do better; others pass it on by their own view.
                if ballot == self.accepted && ballot.coordinator == self.me {
                    self.accepted.round = self.accepted.round.max(round);
                    self.note_change(now);
                }
            }
        }
        self.settle(cx);
    }

    /// Takes a frame of the data lane.
    pub fn handle_data(&mut self, cx: &mut Cx<'_>, link: LinkId, frame: Bytes) {
        self.neighbours.note_heard(cx.now, link);
        self.take_data(cx.now, link, frame);
        self.settle(cx);
    }

    fn take_data(&mut self, now: Time, link: LinkId, mut frame: Bytes) {
        let mut fields = Fields(&frame);
        let Some(ballot) = fields.read::<Ballot>() else { return self.refuse(link) };
        let rest = frame.len() - fields.0.len();
        let is_current = ballot == self.current.ballot && self.proposal.is_none() && self.entry.is_none();
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
            let groups = &self.groups;
            if streams.take(link, item, |cell| groups.route(cell), &mut ready).is_none() {
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

    /// Next request to the driver.
    pub fn poll_event(&mut self) -> Option<DaemonEvent> {
        self.events.pop_front()
    }

    fn flood(&mut self, except: Option<LinkId>, control: &Control) {
        let frame = control.encode();
        for (link, queue) in &mut self.control {
            if Some(*link) != except && self.neighbours.get(*link).is_some_and(|it| it.is_up) {
                queue.push_back(frame.clone());
            }
        }
    }

    fn greet(&mut self, now: Time) {
        for (link, hello) in self.neighbours.greet(now, self.me, &self.name) {
            if let Some(queue) = self.control.get_mut(&link) {
                queue.push_back(Control::Hello(hello).encode());
            }
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
                if let Some(queue) = self.control.get_mut(&link) {
                    queue.extend(known);
                }
                self.advertise(now);
            }
            Change::Down(_) => self.advertise(now),
            Change::Replaced(link) => {
                self.refuse(link);
                self.control.remove(&link);
                if self.neighbours.close(now, link) {
                    self.advertise(now);
                }
            }
        }
    }

    // Topology and configurations.

    fn advertise(&mut self, now: Time) {
        self.advert_number += 1;
        let advert = Advert {
            origin: self.me,
            number: self.advert_number,
            name: self.name.clone(),
            links: self.neighbours.up(),
        };
        self.take_advert(now, None, advert);
    }

    fn take_advert(&mut self, now: Time, from: Option<LinkId>, advert: Advert) {
        let is_own = advert.origin.id == self.me.id;
        if from.is_some() && is_own {
            // An earlier run of this daemon is still known: the newer number ends that.
            let newer = advert.origin.incarnation == self.me.incarnation
                && advert.number >= self.advert_number;
            if newer {
                self.advert_number = advert.number;
                self.advertise(now);
            }
            return;
        }
        if self.database.take(advert.clone()) {
            self.flood(from, &Control::Advert(advert));
            self.note_change(now);
        }
    }

    fn note_change(&mut self, now: Time) {
        let first = self.changed.map_or(now, |it| it.1);
        self.changed = Some((now, first));
    }

    /// Graph of the configuration that was proposed or entered last.
    fn latest(&self) -> &Graph {
        match (&self.proposal, &self.entry) {
            (Some(proposal), _) => &proposal.graph,
            (_, Some(entry)) => &entry.streams.graph,
            _ => &self.current.graph,
        }
    }

    fn is_changing(&self) -> bool {
        self.proposal.is_some() || self.entry.is_some() || self.tables.is_some()
    }

    /// Proposes a configuration where that is due and this daemon's turn.
    fn propose(&mut self, now: Time) {
        let is_stuck = self.is_changing() && now >= self.progress_at + STUCK;
        let is_quiet = self
            .changed
            .is_some_and(|(last, first)| now >= last + SETTLE || now >= first + SETTLE_MAX);
        if !is_stuck && !is_quiet {
            return;
        }
        self.changed = None;
        let graph = self.database.component(self.me);
        let wanted = !self.latest().stands_in(&graph) || is_stuck || self.is_refused();
        if is_stuck {
            self.progress_at = now;
        }
        if wanted && graph.members[0] == self.me {
            let round = self.accepted.round + 1;
            self.accept(now, None, Ballot { round, coordinator: self.me }, graph);
        }
    }

    /// True if a member has refused the proposal of this daemon, whose round is above it now.
    fn is_refused(&self) -> bool {
        self.proposal.as_ref().is_some_and(|it| it.ballot.round < self.accepted.round)
    }

    fn accept(&mut self, now: Time, from: Option<LinkId>, ballot: Ballot, graph: Graph) {
        let Some(place) = graph.place(self.me) else { return };
        if ballot == self.accepted {
            return;
        }
        if ballot < self.accepted || !graph.is_connected() {
            let refusal = Control::Refuse(ballot, self.accepted.round);
            self.flood(None, &refusal);
            return;
        }
        self.accepted = ballot;
        self.progress_at = now;
        self.flood(from, &Control::Propose(ballot, graph.clone()));
        // An unfinished entry is given up: what was recovered by it stays.
        self.entry = None;
        self.early.clear();
        let states = alloc::vec![None; graph.members.len()];
        self.proposal = Some(Proposal { ballot, graph, states });
        let state = State {
            config: self.current.ballot,
            view: self.view,
            time: self.current.time,
            streams: self.current.held(),
        };
        self.take_state(now, None, ballot, place, state);
    }

    fn take_state(
        &mut self,
        now: Time,
        from: Option<LinkId>,
        ballot: Ballot,
        place: usize,
        state: State,
    ) {
        let Some(proposal) = self.proposal.as_mut().filter(|it| it.ballot == ballot) else { return };
        let Some(slot) = proposal.states.get_mut(place).filter(|it| it.is_none()) else { return };
        *slot = Some(state.clone());
        self.progress_at = now;
        self.flood(from, &Control::State(ballot, place as u8, state));
        self.enter(now);
    }

    /// Enters the configuration once the states of all members are there.
    fn enter(&mut self, now: Time) {
        let Some(proposal) = &self.proposal else { return };
        let states: Option<Vec<&State>> = proposal.states.iter().map(Option::as_ref).collect();
        let Some(states) = states else { return };
        let Some(me) = proposal.graph.place(self.me) else { return };
        let same = |it: &State| (it.config, it.view) == (states[me].config, states[me].view);
        let together: Set =
            (0..states.len()).filter(|place| *place == me || same(states[*place])).collect();
        let old = &self.current.graph.members;
        let is_route_change =
            self.tables.is_none() && *old == proposal.graph.members && together.iter().count() == old.len();
        let time = states.iter().map(|it| it.time).max().unwrap_or_default();
        let link_to = self.links(&proposal.graph);
        let mut streams =
            Streams::new(proposal.ballot, proposal.graph.clone(), me, time, &link_to);
        // What others lack and this daemon is to send: the source itself does, or else the least of
        // those that have it.
        let mut again = Vec::new();
        for (source, member) in old.iter().enumerate() {
            let holders: Vec<usize> = {
                let own = proposal.graph.place(*member).filter(|it| together.has(*it));
                own.into_iter().chain(together.iter().filter(|it| Some(*it) != own)).collect()
            };
            let held = |place: usize| states[place].streams.get(source);
            for range in held(me).into_iter().flat_map(|it| it.cells.iter()) {
                for sequence in range {
                    let has = |place: &usize| {
                        held(*place).is_some_and(|it| it.cells.around(sequence).is_some())
                    };
                    let lacks = |place: usize| {
                        held(place).is_some_and(|it| it.through < sequence) && !has(&place)
                    };
                    if together.iter().any(lacks) && holders.iter().find(|it| has(it)) == Some(&me) {
                        again.push((source, sequence));
                    }
                }
            }
        }
        let mut ready = Vec::new();
        let mut send = |kind, payload: &[&[u8]]| {
            let what = (kind, Service::Reliable, true);
            streams.send(what, &[], &[], payload, |_| Set::default(), &mut ready);
        };
        for (source, sequence) in again {
            if let Some(cell) = self.current.cell(source, sequence) {
                let mut head = alloc::vec![source as u8];
                put_var(&mut head, sequence);
                send(Kind::Recovered, &[&head, &cell]);
            }
        }
        send(Kind::Sent, &[]);
        self.entry = Some(Entry {
            streams,
            together,
            is_route_change,
            sent: Set::default(),
            have: Set::default(),
            said_have: false,
            waiting: Vec::new(),
        });
        self.proposal = None;
        self.progress_at = now;
        self.take_messages(now, ready);
        for (link, frame) in core::mem::take(&mut self.early) {
            self.take_data(now, link, frame);
        }
    }

    fn links(&self, graph: &Graph) -> BTreeMap<usize, LinkId> {
        let link = |(place, member): (usize, &Member)| Some((place, self.neighbours.link_to(*member)?));
        graph.members.iter().enumerate().filter_map(link).collect()
    }

    /// Messages of the recovery.
    fn take_recovery(&mut self, now: Time, message: &Ready) {
        let Some(entry) = &mut self.entry else { return };
        if !entry.together.has(message.source) {
            return;
        }
        self.progress_at = now;
        match message.cell.kind {
            Kind::Recovered => {
                for part in &message.parts {
                    let mut fields = Fields(part);
                    if let (Some(source), Some(sequence)) =
                        (fields.read::<u8>(), take_var(&mut fields))
                    {
                        let cell = part.slice(part.len() - fields.0.len()..);
                        self.current.take_recovered(source.into(), sequence, cell);
                    }
                }
            }
            Kind::Sent => entry.sent = entry.sent.or(Set::of(message.source)),
            _ => entry.have = entry.have.or(Set::of(message.source)),
        }
        if entry.sent == entry.together && !entry.said_have {
            entry.said_have = true;
            let mut ready = Vec::new();
            let what = (Kind::Have, Service::Reliable, true);
            entry.streams.send(what, &[], &[], &[], |_| Set::default(), &mut ready);
            for message in ready {
                self.take_message(now, message);
            }
        } else if entry.have == entry.together {
            self.finish(now);
        }
    }

    /// Ends the old configuration: everybody who moves together has everything.
    fn finish(&mut self, now: Time) {
        let Some(Entry { mut streams, together, is_route_change, waiting, .. }) = self.entry.take() else {
            return;
        };
        self.progress_at = now;
        if is_route_change {
            for message in self.current.rest() {
                self.deliver(message);
            }
            streams.is_open = true;
            self.current = streams;
            self.take_messages(now, waiting);
            self.reroute_joins();
            return;
        }
        let ids: Vec<Member> = together.iter().map(|it| streams.graph.members[it]).collect();
        let previous = self.tables.is_none().then_some(self.view);
        if previous.is_some() {
            let closes = self.view;
            self.tell_all(&ClientEvent::Transitional { closes, members: ids.clone() });
            for message in self.current.rest() {
                self.deliver(message);
            }
        }
        // The places of sources change with the configuration, so the old one ends first.
        self.current = streams;
        let ids = |it| ids.iter().any(|member| member.id == it);
        let members = self.current.graph.members.clone();
        self.groups.restrict(&members, ids);
        self.view = self.current.ballot;
        let before = self.tables.take();
        let previous = previous.or(before.and_then(|it| it.previous));
        self.tables = Some(Tables { together, previous, ..Tables::default() });
        self.send_tables(now);
        self.take_messages(now, waiting);
    }

    /// Sends the groups of own clients to all members.
    fn send_tables(&mut self, now: Time) {
        let mut pages: Vec<Vec<u8>> = alloc::vec![Vec::new()];
        for (group, members) in self.groups.iter() {
            for mate in members.iter().filter(|it| it.daemon == self.me.id) {
                if pages.last().is_some_and(|it| it.len() > PAYLOAD_BYTES_MAX - 2 * GROUP_BYTES_MAX - 2) {
                    pages.push(Vec::new());
                }
                let Some(page) = pages.last_mut() else { continue };
                for name in [group, &mate.name] {
                    page.push(name.len() as u8);
                    page.extend_from_slice(name);
                }
            }
        }
        let count = pages.len();
        let mut ready = Vec::new();
        for (i, page) in pages.into_iter().enumerate() {
            let what = (Kind::Table, Service::Reliable, true);
            let is_last = u8::from(i + 1 == count);
            self.current.send(what, &[], &[], &[&[is_last], &page], |_| Set::default(), &mut ready);
        }
        self.take_messages(now, ready);
    }

    fn take_table(&mut self, now: Time, message: Ready) {
        let members = &self.current.graph.members;
        let Some(daemon) = members.get(message.source).map(|it| it.id) else { return };
        let Some(tables) = &mut self.tables else { return };
        self.progress_at = now;
        let mut is_last = false;
        for part in &message.parts {
            let mut fields = Fields(part);
            is_last = fields.read::<u8>() == Some(1);
            let name = |fields: &mut Fields<'_>| {
                let len = usize::from(fields.read::<u8>()?);
                fields.bytes(len).map(|it| part.slice_ref(it))
            };
            while let (Some(group), Some(client)) = (name(&mut fields), name(&mut fields)) {
                tables.members.push((group, Mate { daemon, name: client }));
            }
        }
        if is_last {
            tables.complete = tables.complete.or(Set::of(message.source));
        }
        if tables.complete.iter().count() == members.len() {
            self.begin(now);
        }
    }

    /// Begins the view: the groups of all members are known.
    fn begin(&mut self, now: Time) {
        let Some(tables) = self.tables.take() else { return };
        self.progress_at = now;
        let members = self.current.graph.members.clone();
        let together: Vec<Member> = tables.together.iter().map(|it| members[it]).collect();
        let before: BTreeMap<Bytes, Vec<Mate>> =
            self.groups.iter().map(|(name, it)| (name.clone(), it.to_vec())).collect();
        // All members put the table together in the same way, whatever they knew before.
        self.groups = Groups::default();
        let mut joined = tables.members;
        joined.sort();
        for (group, mate) in joined {
            if let Some(place) = members.iter().position(|it| it.id == mate.daemon) {
                self.groups.join(group, mate, place);
            }
        }
        let names: Vec<String> = members
            .iter()
            .map(|it| self.database.get(it.id).map_or_else(String::new, |it| it.name.clone()))
            .collect();
        let event = ClientEvent::View {
            id: self.view,
            members: members.clone(),
            names,
            together,
            previous: tables.previous,
        };
        self.tell_all(&event);
        let now_there: Vec<(Bytes, Vec<Mate>)> =
            self.groups.iter().map(|(name, it)| (name.clone(), it.to_vec())).collect();
        for (group, members) in now_there {
            if before.get(&group) != Some(&members) {
                self.tell_group(&group, Reason::Network, None, (self.view.round, 0, 0));
            }
        }
        self.current.is_open = true;
        self.take_messages(now, tables.waiting);
        self.reroute_joins();
    }

    /// Asks again for groups of clients that have not joined yet.
    fn reroute_joins(&mut self) {
        let mut again = Vec::new();
        for client in self.clients.values_mut() {
            for joining in &mut client.joining {
                again.push((client.name.clone(), joining.group.clone()));
            }
        }
        for (name, group) in again {
            self.announce(&name, &group);
        }
    }

    // Messages.

    fn take_message(&mut self, now: Time, message: Ready) {
        let is_recovery = matches!(message.cell.kind, Kind::Recovered | Kind::Sent | Kind::Have);
        match (&mut self.entry, &mut self.tables) {
            (Some(_), _) if is_recovery => self.take_recovery(now, &message),
            (Some(entry), _) => entry.waiting.push(message),
            (None, Some(_)) if message.cell.kind == Kind::Table => self.take_table(now, message),
            (None, Some(tables)) => tables.waiting.push(message),
            (None, None) => self.deliver(message),
        }
    }

    fn take_messages(&mut self, now: Time, messages: Vec<Ready>) {
        messages.into_iter().for_each(|message| self.take_message(now, message));
    }

    /// Delivers a message or a step of membership to the clients of this daemon.
    fn deliver(&mut self, message: Ready) {
        let Ready { source, sequence, time, cell, parts } = message;
        let Some(daemon) = self.current.graph.members.get(source).map(|it| it.id) else { return };
        let mate = Mate { daemon, name: cell.client.clone() };
        let position = (time, source as u64, 0);
        match cell.kind {
            Kind::Message | Kind::More => {
                let mut to: Vec<ClientId> = Vec::new();
                for group in cell.groups() {
                    for member in self.groups.members(&group) {
                        if member.daemon == self.me.id
                            && let Some(id) = self.names.get(&member.name)
                            && !to.contains(id)
                        {
                            to.push(*id);
                        }
                    }
                }
                let event = ClientEvent::Message {
                    from: mate,
                    service: cell.service,
                    groups: cell.groups().collect(),
                    parts,
                    view: self.view,
                    sequence,
                };
                for id in to {
                    self.tell(id, event.clone());
                }
            }
            Kind::Join => {
                for group in cell.groups() {
                    self.groups.announce(group, source);
                }
            }
            Kind::Joined => {
                for group in cell.groups() {
                    if daemon == self.me.id
                        && let Some(id) = self.names.get(&mate.name)
                        && let Some(client) = self.clients.get_mut(id)
                    {
                        client.joining.retain(|it| it.group != group);
                    }
                    if self.groups.join(group.clone(), mate.clone(), source) {
                        self.tell_group(&group, Reason::Join, Some(mate.clone()), position);
                    }
                }
            }
            Kind::Leave => {
                for group in cell.groups() {
                    self.leave(&group, &mate, source, Reason::Leave, position);
                }
            }
            Kind::Gone => {
                for group in self.groups.of(&mate) {
                    self.leave(&group, &mate, source, Reason::Disconnect, position);
                }
            }
            Kind::Table | Kind::Recovered | Kind::Sent | Kind::Have => {}
        }
    }

    fn leave(
        &mut self,
        group: &Bytes,
        mate: &Mate,
        place: usize,
        reason: Reason,
        position: (u64, u64, u64),
    ) {
        let joining = mate.daemon == self.me.id
            && self.clients.values().any(|it| it.joining.iter().any(|it| it.group == *group));
        if self.groups.leave(group, mate, place, joining) {
            self.tell_group(group, reason, Some(mate.clone()), position);
            // The one that leaves learns it too.
            if mate.daemon == self.me.id
                && let Some(id) = self.names.get(&mate.name).copied()
            {
                let members = self.groups.members(group).to_vec();
                let subject = Some(mate.clone());
                let (group, view) = (group.clone(), self.view);
                self.tell(id, ClientEvent::Group { group, members, reason, subject, position, view });
            }
        }
    }

    fn tell_group(
        &mut self,
        group: &Bytes,
        reason: Reason,
        subject: Option<Mate>,
        position: (u64, u64, u64),
    ) {
        let members = self.groups.members(group).to_vec();
        let own: Vec<ClientId> = members
            .iter()
            .filter(|it| it.daemon == self.me.id)
            .filter_map(|it| self.names.get(&it.name).copied())
            .collect();
        let (group, view) = (group.clone(), self.view);
        let event = ClientEvent::Group { group, members, reason, subject, position, view };
        for id in own {
            self.tell(id, event.clone());
        }
    }

    fn tell_all(&mut self, event: &ClientEvent) {
        for client in self.clients.values_mut() {
            client.push(event.clone(), self.settings.client_bytes);
        }
    }

    fn tell(&mut self, id: ClientId, event: ClientEvent) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.push(event, self.settings.client_bytes);
        }
    }

    // Clients.

    /// A client connects with a name of 1 to 64 bytes, which no other client here has.
    ///
    /// # Errors
    /// [`SendError::Name`]: the name is taken, or too short or long.
    pub fn connect(&mut self, id: ClientId, name: Bytes) -> Result<(), SendError> {
        let fits = (1..=GROUP_BYTES_MAX).contains(&name.len()) && !self.names.contains_key(&name);
        if !fits || self.clients.contains_key(&id) {
            return Err(SendError::Name);
        }
        self.names.insert(name.clone(), id);
        let mut client = Client::new(name);
        if self.tables.is_none() {
            let members = self.current.graph.members.clone();
            let names = members
                .iter()
                .map(|it| self.database.get(it.id).map_or_else(String::new, |it| it.name.clone()))
                .collect();
            let (id, together) = (self.view, Vec::new());
            let view = ClientEvent::View { id, members, names, together, previous: None };
            client.push(view, self.settings.client_bytes);
        }
        self.clients.insert(id, client);
        Ok(())
    }

    /// A client is gone.
    pub fn disconnect(&mut self, cx: &mut Cx<'_>, id: ClientId) {
        let Some(client) = self.clients.remove(&id) else { return };
        self.names.remove(&client.name);
        let mate = Mate { daemon: self.me.id, name: client.name.clone() };
        if !self.groups.of(&mate).is_empty() {
            self.step(cx.now, Kind::Gone, &client.name, &[]);
        }
    }

    /// Next event for a client.
    pub fn poll_client(&mut self, id: ClientId) -> Option<ClientEvent> {
        self.clients.get_mut(&id)?.pop()
    }

    /// Client asks to join a group.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn join(&mut self, cx: &mut Cx<'_>, id: ClientId, group: Bytes) -> Result<(), SendError> {
        self.check(&[&group])?;
        let client = self.clients.get_mut(&id).ok_or(SendError::Name)?;
        client.joining.push(Joining { group: group.clone(), announced: None });
        let name = client.name.clone();
        self.announce(&name, &group);
        self.settle(cx);
        Ok(())
    }

    fn announce(&mut self, name: &Bytes, group: &Bytes) {
        if !self.is_open() {
            return;
        }
        self.step(self.progress_at, Kind::Join, name, &[group]);
        let (sequence, _) = self.current.own();
        if let Some(client) = self.names.get(name).and_then(|id| self.clients.get_mut(id)) {
            for joining in client.joining.iter_mut().filter(|it| it.group == *group) {
                joining.announced = Some((self.current.ballot, sequence));
            }
        }
    }

    /// Client asks to leave a group.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn part(&mut self, cx: &mut Cx<'_>, id: ClientId, group: Bytes) -> Result<(), SendError> {
        self.check(&[&group])?;
        let client = self.clients.get_mut(&id).ok_or(SendError::Name)?;
        client.joining.retain(|it| it.group != group);
        let name = client.name.clone();
        if !self.is_open() {
            return Err(SendError::Changing);
        }
        self.step(cx.now, Kind::Leave, &name, &[&group]);
        self.settle(cx);
        Ok(())
    }

    fn check(&self, groups: &[&[u8]]) -> Result<(), SendError> {
        let named = groups.iter().all(|it| (1..=GROUP_BYTES_MAX).contains(&it.len()));
        if named && (1..=GROUPS_MAX).contains(&groups.len()) { Ok(()) } else { Err(SendError::Group) }
    }

    /// True if messages can be sent: a view has begun and no change is in progress.
    fn is_open(&self) -> bool {
        self.current.is_open && !self.is_changing()
    }

    /// Sends a message of a client to groups.
    ///
    /// # Errors
    /// The message is not taken: a name or length is wrong, members change at this moment, or not
    /// all daemons have earlier messages of this one yet.
    pub fn send(
        &mut self,
        cx: &mut Cx<'_>,
        id: ClientId,
        service: Service,
        groups: &[&[u8]],
        payload: &[u8],
    ) -> Result<(), SendError> {
        self.check(groups)?;
        if payload.len() > MESSAGE_BYTES_MAX {
            return Err(SendError::Length);
        }
        let name = self.clients.get(&id).ok_or(SendError::Name)?.name.clone();
        if !self.is_open() {
            return Err(SendError::Changing);
        }
        if self.current.unstable_bytes() >= self.settings.retention_bytes {
            return Err(SendError::Retention);
        }
        let mut ready = Vec::new();
        let count = payload.len().div_ceil(PAYLOAD_BYTES_MAX).max(1);
        for i in 0..count {
            let from = i * PAYLOAD_BYTES_MAX;
            let part = &payload[from..payload.len().min(from + PAYLOAD_BYTES_MAX)];
            let kind = if i == 0 { Kind::Message } else { Kind::More };
            let what = (kind, service, i + 1 == count);
            let table = &self.groups;
            self.current.send(what, &name, groups, &[part], |cell| table.route(cell), &mut ready);
        }
        for message in ready {
            self.take_message(cx.now, message);
        }
        self.settle(cx);
        Ok(())
    }

    /// Sends a step of a client's membership to all daemons.
    fn step(&mut self, now: Time, kind: Kind, client: &[u8], groups: &[&[u8]]) {
        if !self.is_open() {
            return;
        }
        let mut ready = Vec::new();
        let what = (kind, Service::Reliable, true);
        self.current.send(what, client, groups, &[], |_| Set::default(), &mut ready);
        self.take_messages(now, ready);
    }

    // Time.

    /// Takes the passing of time.
    pub fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.greet(cx.now);
        self.judge(cx);
        if cx.now >= self.refresh_at {
            self.refresh_at = cx.now + REFRESH;
            self.current.refresh();
        }
        self.settle(cx);
    }

    /// Does what follows from anything that has happened.
    fn settle(&mut self, cx: &mut Cx<'_>) {
        self.propose(cx.now);
        self.finish_joins(cx.now);
        if !self.is_changing() {
            while let Some(message) = self.current.next_ordered() {
                self.deliver(message);
            }
            self.current.speak();
        }
    }

    /// Makes members of the clients whose groups all daemons route here.
    fn finish_joins(&mut self, now: Time) {
        if !self.is_open() {
            return;
        }
        let (ballot, (_, stable)) = (self.current.ballot, self.current.own());
        let mut done = Vec::new();
        for client in self.clients.values_mut() {
            for joining in &mut client.joining {
                if joining.announced.is_some_and(|(at, number)| at == ballot && number <= stable) {
                    joining.announced = None;
                    done.push((client.name.clone(), joining.group.clone()));
                }
            }
        }
        for (name, group) in done {
            self.step(now, Kind::Joined, &name, &[&group]);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub fn next_timeout(&self) -> Option<Time> {
        let quiet = self.changed.map(|(last, first)| (last + SETTLE).min(first + SETTLE_MAX));
        let stuck = self.is_changing().then_some(self.progress_at + STUCK);
        [self.neighbours.next_timeout(), quiet, stuck, Some(self.refresh_at)].into_iter().flatten().min()
    }
}
