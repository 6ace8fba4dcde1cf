//! Streams of cells in one configuration: forwarding along trees, retention, the common order.
//!
//! Each member is the source of one stream, which flows along its shortest-path tree. The source
//! writes into each cell to which daemons it goes: those with members of its groups. A daemon
//! forwards a cell to the subtrees with such daemons. Other subtrees learn later, by a clock in the
//! place of the cells, that nothing before it was for them. The common order is the order of
//! Lamport times: a message is next once the clocks of all sources have passed it. There is no
//! token and no sequencer, and messages outside the order do not wait.
//!
//! When a source is lost, its last cells are what the others have. A daemon that delivered a
//! message must be able to give the others what they need before that message. Two rules ensure
//! that:
//!
//! * Ordered messages go to all daemons. Their causes are ordered messages, of any sources, and
//!   come before them in the common order.
//! * Messages of a client to a group that are FIFO or stronger go to the same daemons, as long as
//!   one of them is not stable. If another daemon is added, it first gets the earlier ones.
//!
//! A daemon acknowledges a safe message when the clocks of all sources have passed it. In a
//! transitional view the ordered messages of lost sources end at the time up to which the messages
//! of all lost sources are known: later ones may depend on a message that nobody has.

mod queue;
mod source;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_proto::RangeSet;
use faircast_proto::fields::{Encoded, Fields};

use self::queue::Queue;
use self::source::{Child, Source};
use crate::cell::{Cell, Kind, Service, payload_bytes_max};
use crate::client::Parts;
use crate::ids::{Ballot, LinkId, Set};
use crate::mutant::{Mutant, breaks};
use crate::topology::Graph;
use crate::wire::{Clock, Held, Item, NUMBER_MAX, put_var, take_var};

/// Bytes of a source after which its cells are acknowledged, though nobody waits for that.
const ACK_BYTES: usize = 64 * 1024;
/// Most cells of a message: those of the longest one with the most and longest names need 1841.
const PIECES_MAX: usize = 2048;

/// Message that has come, or step of a group's membership.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    /// Place of the daemon, number of the message's last cell, and its time.
    pub(crate) source: usize,
    pub(crate) sequence: u64,
    pub(crate) time: u64,
    /// The last cell.
    pub(crate) cell: Cell,
    /// Payloads of all cells.
    pub(crate) parts: Parts,
}

/// Messages of one client that wait, in the order in which the client has sent them: FIFO messages
/// wait for ordered ones before them and for nothing else.
#[derive(Clone, Debug, Default)]
struct Lane {
    /// Times of ordered messages, each with the FIFO messages behind it.
    waiting: VecDeque<(u64, Vec<Ready>)>,
}

/// All streams of a configuration.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    pub(crate) ballot: Ballot,
    pub(crate) graph: Graph,
    pub(crate) me: usize,
    /// Lamport time.
    pub(crate) time: u64,
    sources: Vec<Source>,
    queues: BTreeMap<LinkId, Queue>,
    order: BTreeMap<(u64, u8), Ready>,
    /// Lanes of the clients whose ordered messages wait, by place of the daemon and client.
    lanes: BTreeMap<(u8, Bytes), Lane>,
    /// FIFO messages that wait no more.
    released: VecDeque<Ready>,
    /// Time that others wait to pass, and the time that was sent to all last.
    wanted: u64,
    sent: u64,
    stable_due: bool,
    /// Bytes of own cells that not all members have, by client.
    shares: BTreeMap<Bytes, usize>,
    /// By own client and group: daemons that have all messages that are FIFO or stronger, and the
    /// number of the last one.
    spread: BTreeMap<Bytes, BTreeMap<Bytes, (Set, u64)>>,
    /// Sources that move on together when the configuration ends, and the time up to which the
    /// messages of all other sources are known.
    pub(crate) staying: Set,
    pub(crate) known_until: u64,
    /// Most bytes of cells that are kept of another source.
    kept_max: usize,
    /// True once the view has begun here: until then nothing is acknowledged, and nothing pruned.
    pub(crate) is_open: bool,
}

impl Streams {
    /// Streams of a configuration. `link_to` has the links to neighbours by their places.
    pub(crate) fn new(
        ballot: Ballot,
        graph: Graph,
        me: usize,
        time: u64,
        link_to: &BTreeMap<usize, LinkId>,
        kept_max: usize,
    ) -> Self {
        let count = graph.members.len();
        let sources = (0..count).map(|root| {
            let parents = graph.tree(root);
            let mut below: BTreeMap<usize, Set> = BTreeMap::new();
            for place in 0..count {
                // The last step from this daemon towards the place, if the way leads through it.
                let mut at = place;
                while let Some(parent) = parents[at] {
                    if parent == me {
                        let set = below.entry(at).or_default();
                        *set = set.or(Set::of(place));
                    }
                    at = parent;
                }
            }
            let child = |(place, below): (&usize, &Set)| {
                Some(Child { link: *link_to.get(place)?, below: *below, acked: 0 })
            };
            Source {
                parent: parents[me].and_then(|it| link_to.get(&it)).copied(),
                children: below.iter().filter_map(child).collect(),
                ..Source::default()
            }
        });
        let sources = sources.collect();
        let queues = link_to.values().map(|link| (*link, Queue::default())).collect();
        Self {
            ballot,
            graph,
            me,
            time,
            sources,
            queues,
            order: BTreeMap::new(),
            lanes: BTreeMap::new(),
            released: VecDeque::new(),
            wanted: 0,
            sent: 0,
            stable_due: false,
            shares: BTreeMap::new(),
            spread: BTreeMap::new(),
            staying: Set::ALL,
            known_until: u64::MAX,
            kept_max,
            is_open: false,
        }
    }

    /// Bytes of own cells that not all members have.
    pub(crate) fn unstable_bytes(&self) -> usize {
        self.sources[self.me].bytes
    }

    /// Messages that wait for their place, cells that are kept, and pieces of messages.
    #[cfg(test)]
    pub(crate) fn pending(&self) -> usize {
        let of = |it: &Source| it.cells.len() + it.safe.len() + it.pieces.parts.len();
        let sources: usize = self.sources.iter().map(of).sum();
        let sources = sources + self.shares.len();
        sources + self.order.len() + self.lanes.len() + self.released.len() + self.spread.len()
    }

    /// True if a client can send: it uses no more of the retention than it leaves free for others.
    pub(crate) fn has_room(&self, client: &[u8], retention_bytes: usize) -> bool {
        let share = self.shares.get(client).copied().unwrap_or_default();
        share < retention_bytes.saturating_sub(self.unstable_bytes())
    }

    /// True if this daemon is the only member: all members have its cells at once.
    fn is_alone(&self) -> bool {
        self.graph.members.len() == 1
    }

    /// Number of the newest own cell, and the number up to which all members have them.
    pub(crate) fn own(&self) -> (u64, u64) {
        let own = &self.sources[self.me];
        (own.through, own.stable)
    }

    /// Bytes that wait for a link.
    pub(crate) fn queued_bytes(&self, link: LinkId) -> usize {
        self.queues.get(&link).map_or(0, |it| it.bytes)
    }

    /// All links of the configuration.
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkId> {
        self.queues.keys().copied()
    }

    /// Links that own cells take to daemons.
    pub(crate) fn own_links(&self, to: Set) -> impl Iterator<Item = LinkId> {
        let children = self.sources[self.me].children.iter();
        children.filter(move |it| it.below.meets(to)).map(|it| it.link)
    }

    /// Cells and bytes that wait for a link.
    pub(crate) fn queue_length(&self, link: LinkId) -> (usize, usize) {
        self.queues.get(&link).map_or((0, 0), |it| (it.cells, it.bytes))
    }

    /// Bytes of cells that have left for a link.
    pub(crate) fn left_bytes(&self, link: LinkId) -> u64 {
        self.queues.get(&link).map_or(0, |it| it.left_bytes)
    }

    /// State of all streams, for the next configuration.
    pub(crate) fn held(&self) -> Vec<Held> {
        let held = |source: &Source| {
            let mut cells = RangeSet::default();
            for (sequence, _) in &source.cells {
                cells.insert(*sequence..sequence + 1);
            }
            Held { through: source.through, clock: source.clock, cells }
        };
        self.sources.iter().map(held).collect()
    }

    /// A cell that is still kept.
    pub(crate) fn cell(&self, source: usize, sequence: u64) -> Option<Bytes> {
        let cells = &self.sources.get(source)?.cells;
        let at = cells.binary_search_by_key(&sequence, |it| it.0).ok()?;
        Some(cells[at].1.clone())
    }

    /// Keeps a cell that another member has sent again for this configuration. Delivery waits for
    /// [`rest`](Self::rest).
    pub(crate) fn take_recovered(&mut self, source: usize, sequence: u64, cell: Bytes) {
        let Some(source) = self.sources.get_mut(source) else { return };
        let is_new = sequence > source.through && !source.has(sequence);
        let fits = source.bytes + cell.len() <= self.kept_max;
        if is_new && fits && Cell::decode(&cell).is_some() {
            source.keep(sequence, cell);
        }
    }

    /// Sends a cell of this daemon to all daemons.
    pub(crate) fn send_to_all(
        &mut self,
        what: (Kind, Service, bool),
        client: &[u8],
        groups: &[&[u8]],
        payload: &[&[u8]],
        ready: &mut Vec<Ready>,
    ) {
        self.send(what, Set::ALL, client, groups, payload, ready);
    }

    /// Sends a cell of this daemon to the daemons `to`.
    pub(crate) fn send(
        &mut self,
        what: (Kind, Service, bool),
        to: Set,
        client: &[u8],
        groups: &[&[u8]],
        payload: &[&[u8]],
        ready: &mut Vec<Ready>,
    ) {
        self.time += 1;
        let bytes = Cell::encode(self.time, what, to, client, groups, payload);
        let sequence = self.sources[self.me].through + 1;
        self.take_cell(self.me, sequence, bytes, ready);
    }

    /// Sends a message of a client. `routes` are the daemons with members of its groups.
    pub(crate) fn send_message(
        &mut self,
        service: Service,
        client: &[u8],
        groups: &[&[u8]],
        payload: &[u8],
        routes: Set,
        ready: &mut Vec<Ready>,
    ) {
        let is_pruned = !service.is_ordered() || breaks(Mutant::PrunedOrder);
        let routes = if is_pruned { routes } else { Set::ALL };
        let mut to = routes.or(Set::of(self.me));
        let is_tracked = service >= Service::Fifo && !self.is_alone();
        if is_tracked {
            to = self.spread(client, groups, to, ready);
        }
        let most = payload_bytes_max(groups);
        let count = payload.len().div_ceil(most).max(1);
        for i in 0..count {
            let from = i * most;
            let part = &payload[from..payload.len().min(from + most)];
            let kind = if i == 0 { Kind::Message } else { Kind::More };
            self.send((kind, service, i + 1 == count), to, client, groups, &[part], ready);
        }
        if is_tracked {
            let last = self.sources[self.me].through;
            if !self.spread.contains_key(client) {
                self.spread.insert(Bytes::copy_from_slice(client), BTreeMap::new());
            }
            let Some(spread) = self.spread.get_mut(client) else { return };
            for group in groups {
                match spread.get_mut(*group) {
                    Some(it) => *it = (to, last),
                    None => _ = spread.insert(Bytes::copy_from_slice(group), (to, last)),
                }
            }
        }
    }

    /// Daemons for the next message of a client to groups, after they have got the earlier ones.
    fn spread(
        &mut self,
        client: &[u8],
        groups: &[&[u8]],
        mut to: Set,
        ready: &mut Vec<Ready>,
    ) -> Set {
        let Some(spread) = self.spread.get(client) else { return to };
        let own = &self.sources[self.me];
        let known =
            |group: &&[u8]| spread.get(*group).filter(|it| it.1 > own.stable).map(|it| it.0);
        to = groups.iter().filter_map(known).fold(to, Set::or);
        let is_short = |group: &&[u8]| known(group).is_some_and(|it| it != to);
        if !groups.iter().any(is_short) {
            return to;
        }
        let missing = |(sequence, bytes): &(u64, Bytes)| {
            let cell = Cell::decode(bytes)?;
            let is_earlier = cell.kind.is_message()
                && cell.service >= Service::Fifo
                && cell.client == client
                && cell.groups.iter().any(|it| groups.contains(&it));
            let lacking = to.without(cell.to);
            (is_earlier && lacking != Set::default()).then(|| (lacking, *sequence, bytes.clone()))
        };
        let earlier: Vec<(Set, u64, Bytes)> = own.cells.iter().filter_map(missing).collect();
        for (lacking, sequence, cell) in earlier.into_iter().filter(|_| !breaks(Mutant::NoKept)) {
            let mut head = Vec::new();
            put_var(&mut head, sequence);
            let what = (Kind::Kept, Service::Reliable, true);
            self.send(what, lacking, &[], &[], &[&head, &cell], ready);
        }
        to
    }

    /// Takes an item that came over a link. Returns `None` if it breaks the protocol.
    pub(crate) fn take(&mut self, link: LinkId, item: Item, ready: &mut Vec<Ready>) -> Option<()> {
        match item {
            Item::Cell { source, step, cell } => {
                let from = self.sources.get(usize::from(source))?;
                let sequence = from.through.checked_add(step)?;
                if from.parent != Some(link) || step == 0 || sequence > NUMBER_MAX {
                    return None;
                }
                self.take_cell(source.into(), sequence, cell, ready)
            }
            Item::Clock(source, clock) => {
                let from = self.sources.get_mut(usize::from(source))?;
                if from.parent != Some(link) || clock.time.max(clock.sequence) > NUMBER_MAX {
                    return None;
                }
                from.through = from.through.max(clock.sequence);
                from.clock = from.clock.max(clock.time);
                // No cell is stable that this daemon has not acknowledged.
                from.settle(clock.stable.min(from.acked));
                self.time = self.time.max(clock.time);
                if clock.wanted {
                    self.wanted = self.wanted.max(clock.time);
                }
                let children: Vec<LinkId> = from.children.iter().map(|it| it.link).collect();
                for child in children {
                    self.queue(child).push_clock(source, clock);
                }
                Some(())
            }
            Item::Ack { source, through, time } => {
                let from = self.sources.get_mut(usize::from(source))?;
                let child = from.children.iter_mut().find(|it| it.link == link)?;
                if through > from.through || time > NUMBER_MAX {
                    return None;
                }
                child.acked = child.acked.max(through);
                from.behind = from.behind.max(time);
                if usize::from(source) == self.me {
                    self.time = self.time.max(time);
                    self.settle_own();
                } else {
                    from.ack_due |= from.acked_below() > from.acked;
                }
                Some(())
            }
        }
    }

    fn settle_own(&mut self) {
        let own = &mut self.sources[self.me];
        let all = own.acked_below().min(own.certain());
        if all > own.stable {
            for (_, bytes) in own.cells.iter().take_while(|it| it.0 <= all) {
                let Some(Cell { client, .. }) = Cell::decode(bytes) else { continue };
                if let Some(share) = self.shares.get_mut(&client) {
                    *share -= bytes.len();
                    if *share == 0 {
                        self.shares.remove(&client);
                    }
                }
            }
            own.settle(all);
            self.stable_due = true;
        }
    }

    fn take_cell(
        &mut self,
        source: usize,
        sequence: u64,
        bytes: Bytes,
        ready: &mut Vec<Ready>,
    ) -> Option<()> {
        let cell = Cell::decode(&bytes)?;
        let is_alone = self.is_alone();
        let from = &mut self.sources[source];
        let is_long = cell.kind == Kind::More && from.pieces.parts.len() >= PIECES_MAX;
        let is_full = source != self.me && from.bytes + bytes.len() > self.kept_max;
        if cell.time <= from.clock || cell.time > NUMBER_MAX || is_long || is_full {
            return None;
        }
        self.time = self.time.max(cell.time);
        (from.through, from.clock) = (sequence, cell.time);
        let is_safe = cell.service == Service::Safe && cell.last && !breaks(Mutant::HastySafe);
        if is_alone && !is_safe && from.safe.is_empty() {
            from.stable = sequence;
        } else if cell.kind != Kind::Kept {
            from.keep(sequence, bytes.clone());
            if source == self.me {
                match self.shares.get_mut(&cell.client) {
                    Some(share) => *share += bytes.len(),
                    // A part of the cell would keep all of it in memory.
                    None => {
                        let client = Bytes::copy_from_slice(&cell.client);
                        self.shares.insert(client, bytes.len());
                    }
                }
            }
        } else if cell.to.has(self.me) && source != self.me {
            let mut fields = Fields(&cell.payload);
            let earlier = take_var(&mut fields)?;
            if earlier > from.stable && earlier < sequence && !from.has(earlier) {
                from.keep(earlier, cell.payload.slice_ref(fields.0));
            }
        }
        from.unacked += bytes.len();
        from.ack_due |= cell.kind == Kind::Join || from.unacked > ACK_BYTES;
        if is_safe {
            from.safe.push_back((sequence, cell.time));
        }
        let is_ordered = cell.kind.is_ordered(cell.service);
        if is_ordered {
            self.wanted = self.wanted.max(cell.time);
        }
        let clock = Clock { sequence, time: cell.time, stable: from.stable, wanted: is_ordered };
        let place = source as u8;
        for Child { link, below, .. } in &from.children {
            let Some(queue) = self.queues.get_mut(link) else { continue };
            if cell.to.meets(*below) && cell.service == Service::Unreliable {
                queue.push_unreliable(place, sequence, cell.time, bytes.clone());
            } else if cell.to.meets(*below) {
                queue.push_cell(place, sequence, bytes.clone());
            } else if is_ordered {
                queue.push_clock(place, clock);
            }
        }
        if cell.kind == Kind::Kept || !cell.to.has(self.me) {
            return Some(());
        }
        if let Some(message) = self.sources[source].pieces.add(source, sequence, cell) {
            self.sort_in(place, message, ready);
        }
        Some(())
    }

    /// Acknowledges safe messages that the clocks of all sources have passed.
    pub(crate) fn note_passed(&mut self) {
        let others = self.sources.iter().enumerate().filter(|(place, _)| *place != self.me);
        let passed = others.map(|(_, it)| it.clock).min().unwrap_or(u64::MAX);
        for source in &mut self.sources {
            while source.safe.front().is_some_and(|it| it.1 <= passed) {
                source.safe.pop_front();
                source.ack_due = true;
            }
        }
        self.settle_own();
    }

    /// Puts a message where it waits, or with those that wait for nothing.
    fn sort_in(&mut self, place: u8, message: Ready, ready: &mut Vec<Ready>) {
        let cell = &message.cell;
        let is_ordered = cell.kind.is_ordered(cell.service);
        let lane = || (place, cell.client.clone());
        if is_ordered && cell.kind.is_message() {
            self.lanes.entry(lane()).or_default().waiting.push_back((message.time, Vec::new()));
        } else if cell.service == Service::Fifo
            && !breaks(Mutant::FifoOvertakes)
            && !self.lanes.is_empty()
            && let Some(before) = self.lanes.get_mut(&lane()).and_then(|it| it.waiting.back_mut())
        {
            return before.1.push(message);
        }
        if is_ordered {
            self.order.insert((message.time, place), message);
        } else {
            ready.push(message);
        }
    }

    /// An ordered message is delivered: FIFO messages behind it wait no more.
    fn release(&mut self, message: &Ready) {
        let lane = (message.source as u8, message.cell.client.clone());
        let Some(waiting) = self.lanes.get_mut(&lane).map(|it| &mut it.waiting) else { return };
        if waiting.front().is_some_and(|it| it.0 == message.time) {
            self.released.extend(waiting.pop_front().into_iter().flat_map(|it| it.1));
        }
        if waiting.is_empty() {
            self.lanes.remove(&lane);
        }
    }

    /// Takes the next message of the common order, if it is certain, or one that has waited for it.
    pub(crate) fn next_ordered(&mut self) -> Option<Ready> {
        if let Some(message) = self.released.pop_front() {
            return Some(message);
        }
        let ((time, _), first) = self.order.first_key_value()?;
        let passed = |(place, it): (usize, &Source)| {
            place == self.me || it.clock >= *time || breaks(Mutant::HastyOrder)
        };
        let is_next = self.is_open && self.sources.iter().enumerate().all(passed);
        let is_safe = first.cell.service != Service::Safe
            || breaks(Mutant::UnsafeSafe)
            || self.sources[first.source].stable >= first.sequence;
        let (_, message) = (is_next && is_safe).then(|| self.order.pop_first())??;
        self.release(&message);
        Some(message)
    }

    /// Messages of a configuration that is over, in the order of their delivery: those outside the
    /// common order that were recovered, and then those that waited for their place in it, each
    /// with the FIFO messages behind it.
    pub(crate) fn rest(&self) -> Vec<Ready> {
        let mut ordered = self.order.clone();
        let waiting = self.lanes.values().flat_map(|it| &it.waiting).flat_map(|it| &it.1);
        let mut messages: Vec<Ready> = self.released.iter().chain(waiting).cloned().collect();
        for (source, from) in self.sources.iter().enumerate() {
            let mut pieces = from.pieces.clone();
            for (sequence, bytes) in from.cells.iter().filter(|it| it.0 > from.through) {
                let cell = Cell::decode(bytes).filter(|it| it.to.has(self.me));
                let Some(message) = cell.and_then(|it| pieces.add(source, *sequence, it)) else {
                    continue;
                };
                if message.cell.kind.is_ordered(message.cell.service) {
                    ordered.insert((message.time, source as u8), message);
                } else {
                    messages.push(message);
                }
            }
        }
        messages.sort_by_key(|it| (it.time, it.source));
        let mut lanes: BTreeMap<(usize, Bytes), Vec<u64>> = BTreeMap::new();
        for it in ordered.values().filter(|it| it.cell.kind.is_message()) {
            lanes.entry((it.source, it.cell.client.clone())).or_default().push(it.time);
        }
        let mut behind: BTreeMap<(u64, usize), Vec<Ready>> = BTreeMap::new();
        let mut all = Vec::new();
        for message in messages {
            let lane = (message.source, message.cell.client.clone());
            let times = lanes.get(&lane).filter(|_| message.cell.service == Service::Fifo);
            let before =
                times.and_then(|it| it[..it.partition_point(|time| *time < message.time)].last());
            match before {
                Some(time) => behind.entry((*time, message.source)).or_default().push(message),
                None => all.push(message),
            }
        }
        for message in ordered.into_values() {
            let fifo = behind.remove(&(message.time, message.source));
            if message.time <= self.known_until
                || self.staying.has(message.source)
                || breaks(Mutant::NoEnd)
            {
                all.push(message);
                all.extend(fifo.into_iter().flatten());
            }
        }
        all
    }

    /// Has all members told of the clock that they wait for, and of stable cells.
    pub(crate) fn speak(&mut self) {
        if !self.is_open || !(self.wanted > self.sent || self.stable_due) {
            return;
        }
        self.stable_due = false;
        self.sent = self.time;
        let own = &mut self.sources[self.me];
        own.clock = self.time;
        let clock =
            Clock { sequence: own.through, time: self.time, stable: own.stable, wanted: false };
        let place = self.me as u8;
        for child in &own.children {
            if let Some(queue) = self.queues.get_mut(&child.link) {
                queue.push_clock(place, clock);
            }
        }
    }

    /// Has everything acknowledged that is not yet. Subtrees without members of a group learn of
    /// own cells that were not for them.
    pub(crate) fn refresh(&mut self) {
        for source in &mut self.sources {
            source.ack_due = true;
        }
        let own = &self.sources[self.me];
        self.stable_due |= own.bytes > 0;
        self.spread.retain(|_, groups| {
            groups.retain(|_, it| it.1 > own.stable);
            !groups.is_empty()
        });
    }

    fn queue(&mut self, link: LinkId) -> &mut Queue {
        self.queues.entry(link).or_default()
    }

    /// The next frame of data for a link.
    pub(crate) fn poll(&mut self, link: LinkId) -> Option<Bytes> {
        let mut out = Vec::new();
        if self.is_open {
            for (place, source) in self.sources.iter_mut().enumerate() {
                let through = source.acked_below().min(source.certain());
                if source.parent == Some(link) && source.ack_due && through > source.acked {
                    (source.acked, source.ack_due, source.unacked) = (through, false, 0);
                    if out.is_empty() {
                        self.ballot.put(&mut out);
                    }
                    let time = self.time.max(source.behind);
                    Item::Ack { source: place as u8, through, time }.put(&mut out);
                }
            }
        }
        let queue = self.queues.get_mut(&link)?;
        queue.fill(self.ballot, &mut out);
        (!out.is_empty()).then(|| out.into())
    }
}
