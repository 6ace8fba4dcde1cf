//! Streams of cells in one configuration: forwarding along trees, retention, the common order.
//!
//! Each member is the source of one stream, which flows along its shortest-path tree. A daemon
//! forwards a cell to the subtrees with members of the cell's groups. Other subtrees learn later,
//! by a clock in the place of the cells, that nothing before it was for them. The common order is
//! the order of Lamport times: a message is next once the clocks of all sources have passed it.
//! There is no token and no sequencer, and messages outside the order do not wait.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_proto::RangeSet;
use faircast_proto::fields::Encoded;

use crate::cell::{Cell, Kind, Service};
use crate::ids::{Ballot, LinkId, Set};
use crate::topology::Graph;
use crate::wire::{Clock, FRAME_BYTES_MAX, Held, Item};

/// Bytes of a source after which its cells are acknowledged, though nobody waits for that.
const ACK_BYTES: usize = 64 * 1024;

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
    pub(crate) parts: Vec<Bytes>,
}

/// Payloads of a message whose last cell is still to come, and the number of the next cell.
#[derive(Clone, Debug, Default)]
struct Pieces {
    parts: Vec<Bytes>,
    next: u64,
}

impl Pieces {
    /// Adds a cell. Returns the message if the cell is its last.
    fn add(&mut self, source: usize, sequence: u64, cell: Cell) -> Option<Ready> {
        if cell.kind != Kind::More {
            self.parts.clear();
        } else if self.next != sequence {
            // The beginning was for others, or is lost with its source.
            return None;
        }
        self.parts.push(cell.payload.clone());
        self.next = if cell.last { 0 } else { sequence + 1 };
        let (time, is_last) = (cell.time, cell.last);
        let parts = |it: &mut Self| core::mem::take(&mut it.parts);
        is_last.then(|| Ready { source, sequence, time, cell, parts: parts(self) })
    }
}

/// Subtree of a source's tree.
#[derive(Debug)]
struct Child {
    link: LinkId,
    below: Set,
    acked: u64,
}

/// Stream of one source.
#[derive(Debug, Default)]
struct Source {
    /// Links of this daemon in the source's tree.
    parent: Option<LinkId>,
    children: Vec<Child>,
    /// Number up to which no cell is missing that is for this daemon.
    through: u64,
    /// Time after which all further cells are.
    clock: u64,
    /// Number up to which all members have the cells.
    stable: u64,
    /// Cells above `stable`, by number.
    cells: VecDeque<(u64, Bytes)>,
    bytes: usize,
    pieces: Pieces,
    /// Number that was acknowledged last, greatest time behind the children, bytes since.
    acked: u64,
    behind: u64,
    unacked: usize,
    ack_due: bool,
}

impl Source {
    fn keep(&mut self, sequence: u64, bytes: Bytes) {
        self.bytes += bytes.len();
        let at = self.cells.partition_point(|it| it.0 < sequence);
        self.cells.insert(at, (sequence, bytes));
    }

    fn has(&self, sequence: u64) -> bool {
        self.cells.binary_search_by_key(&sequence, |it| it.0).is_ok()
    }

    fn settle(&mut self, stable: u64) {
        self.stable = self.stable.max(stable);
        while self.cells.front().is_some_and(|it| it.0 <= self.stable) {
            self.bytes -= self.cells.pop_front().map_or(0, |(_, cell)| cell.len());
        }
    }
}

/// Items that wait for a link.
#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    /// Number of items that have left.
    left: u64,
    /// For each source the number up to which the link knows its stream, and the place of a clock
    /// behind which nothing of the source waits.
    known: BTreeMap<u8, (u64, Option<u64>)>,
    bytes: usize,
}

impl Queue {
    fn push_cell(&mut self, source: u8, sequence: u64, cell: Bytes) {
        let known = self.known.entry(source).or_default();
        let step = sequence - known.0;
        *known = (sequence, None);
        self.bytes += cell.len();
        self.items.push_back(Item::Cell { source, step, cell });
    }

    fn push_clock(&mut self, source: u8, clock: Clock) {
        let known = self.known.entry(source).or_default();
        known.0 = known.0.max(clock.sequence);
        let waiting = known.1.filter(|at| *at >= self.left).map(|at| (at - self.left) as usize);
        if let Some(Item::Clock(_, before)) = waiting.and_then(|at| self.items.get_mut(at)) {
            let wanted = before.wanted || clock.wanted;
            *before = Clock { wanted, ..clock };
        } else {
            known.1 = Some(self.left + self.items.len() as u64);
            self.items.push_back(Item::Clock(source, clock));
        }
    }
}

/// Messages of one client that wait, in the order in which the client has sent them: FIFO messages
/// wait for ordered ones before them and for nothing else.
#[derive(Debug, Default)]
struct Lane {
    /// Times of ordered messages, each with the FIFO messages behind it.
    waiting: VecDeque<(u64, Vec<Ready>)>,
}

/// All streams of a configuration.
#[derive(Debug)]
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
            is_open: false,
        }
    }

    /// Bytes of own cells that not all members have.
    pub(crate) fn unstable_bytes(&self) -> usize {
        self.sources[self.me].bytes
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
        if sequence > source.through && !source.has(sequence) && Cell::decode(&cell).is_some() {
            source.keep(sequence, cell);
        }
    }

    /// Sends a cell of this daemon to `to`.
    pub(crate) fn send(
        &mut self,
        what: (Kind, Service, bool),
        client: &[u8],
        groups: &[&[u8]],
        payload: &[&[u8]],
        to: impl FnOnce(&Cell) -> Set,
        ready: &mut Vec<Ready>,
    ) {
        self.time += 1;
        let bytes = Cell::encode(self.time, what, client, groups, payload);
        let sequence = self.sources[self.me].through + 1;
        self.take_cell(self.me, sequence, bytes, to, ready);
    }

    /// Takes an item that came over a link. Returns `None` if it breaks the protocol.
    pub(crate) fn take(
        &mut self,
        link: LinkId,
        item: Item,
        to: impl FnOnce(&Cell) -> Set,
        ready: &mut Vec<Ready>,
    ) -> Option<()> {
        match item {
            Item::Cell { source, step, cell } => {
                let from = self.sources.get(usize::from(source))?;
                let sequence = from.through.checked_add(step)?;
                if from.parent != Some(link) || step == 0 || sequence > SEQUENCE_MAX {
                    return None;
                }
                self.take_cell(source.into(), sequence, cell, to, ready)
            }
            Item::Clock(source, clock) => {
                let from = self.sources.get_mut(usize::from(source))?;
                if from.parent != Some(link) || clock.time.max(clock.sequence) > SEQUENCE_MAX {
                    return None;
                }
                from.through = from.through.max(clock.sequence);
                from.clock = from.clock.max(clock.time);
                from.settle(clock.stable.min(from.through));
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
                if through > from.through || time > SEQUENCE_MAX {
                    return None;
                }
                child.acked = child.acked.max(through);
                from.behind = from.behind.max(time);
                let all = from.children.iter().map(|it| it.acked).min().unwrap_or(u64::MAX);
                if usize::from(source) == self.me {
                    self.time = self.time.max(time);
                    self.settle_own(all);
                } else if all > from.acked {
                    from.ack_due = true;
                }
                Some(())
            }
        }
    }

    fn settle_own(&mut self, all: u64) {
        let own = &mut self.sources[self.me];
        let all = all.min(own.through);
        if all > own.stable {
            own.settle(all);
            self.stable_due = true;
        }
    }

    fn take_cell(
        &mut self,
        source: usize,
        sequence: u64,
        bytes: Bytes,
        to: impl FnOnce(&Cell) -> Set,
        ready: &mut Vec<Ready>,
    ) -> Option<()> {
        let cell = Cell::decode(&bytes)?;
        let from = &mut self.sources[source];
        if cell.time <= from.clock || cell.time > SEQUENCE_MAX {
            return None;
        }
        self.time = self.time.max(cell.time);
        (from.through, from.clock) = (sequence, cell.time);
        from.keep(sequence, bytes.clone());
        from.unacked += bytes.len();
        let waits = cell.kind == Kind::Join || cell.service == Service::Safe;
        from.ack_due |= waits || from.unacked > ACK_BYTES;
        let is_ordered = cell.kind.is_ordered(cell.service);
        if is_ordered {
            self.wanted = self.wanted.max(cell.time);
        }
        let to = if cell.kind.is_for_all() || !self.is_open { Set(u128::MAX) } else { to(&cell) };
        let clock = Clock { sequence, time: cell.time, stable: from.stable, wanted: is_ordered };
        let place = source as u8;
        for Child { link, below, .. } in &from.children {
            let Some(queue) = self.queues.get_mut(link) else { continue };
            if to.meets(*below) {
                queue.push_cell(place, sequence, bytes.clone());
            } else if is_ordered {
                queue.push_clock(place, clock);
            }
        }
        if from.children.is_empty() && source == self.me && self.graph.members.len() == 1 {
            self.settle_own(u64::MAX);
        }
        if let Some(message) = self.sources[source].pieces.add(source, sequence, cell) {
            self.sort_in(place, message, ready);
        }
        Some(())
    }

    /// Puts a message where it waits, or with those that wait for nothing.
    fn sort_in(&mut self, place: u8, message: Ready, ready: &mut Vec<Ready>) {
        let cell = &message.cell;
        let is_ordered = cell.kind.is_ordered(cell.service);
        let lane = (place, cell.client.clone());
        if is_ordered && cell.kind.is_message() {
            self.lanes.entry(lane).or_default().waiting.push_back((message.time, Vec::new()));
        } else if cell.service == Service::Fifo
            && let Some(before) = self.lanes.get_mut(&lane).and_then(|it| it.waiting.back_mut())
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
        let passed = |(place, it): (usize, &Source)| place == self.me || it.clock >= *time;
        let is_next = self.is_open && self.sources.iter().enumerate().all(passed);
        let is_safe = first.cell.service != Service::Safe
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
                let cell = Cell::decode(bytes);
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
            all.push(message);
            all.extend(fifo.into_iter().flatten());
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
        self.stable_due |= self.sources[self.me].bytes > 0;
    }

    fn queue(&mut self, link: LinkId) -> &mut Queue {
        self.queues.entry(link).or_default()
    }

    /// The next frame of data for a link.
    pub(crate) fn poll(&mut self, link: LinkId) -> Option<Bytes> {
        let mut out = Vec::new();
        if self.is_open {
            for (place, source) in self.sources.iter_mut().enumerate() {
                let all = source.children.iter().map(|it| it.acked).min();
                let through = all.map_or(source.through, |all| all.min(source.through));
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
        while let Some(item) = queue.items.front() {
            let bytes = match item {
                Item::Cell { cell, .. } => cell.len(),
                _ => 0,
            };
            if !out.is_empty() && out.len() + bytes + Item::HEAD_BYTES_MAX > FRAME_BYTES_MAX {
                break;
            }
            if out.is_empty() {
                self.ballot.put(&mut out);
            }
            item.put(&mut out);
            queue.items.pop_front();
            queue.left += 1;
            queue.bytes -= bytes;
        }
        (!out.is_empty()).then(|| out.into())
    }
}

/// Greatest sequence number and time: the greatest variable-length integer, with room to count on.
const SEQUENCE_MAX: u64 = 1 << 61;
