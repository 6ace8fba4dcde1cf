//! Streams of cells in one configuration: forwarding along trees, retention, the common order.
//!
//! Each member is the source of one stream along its shortest-path tree. Each cell names its
//! destination daemons, those with members of its groups. Other subtrees receive a clock later. A
//! message is next in the common order, that of Lamport times, once the clocks of all sources have
//! passed its time.
//!
//! If a source is lost, its last cells are those that the other members have. A daemon that
//! delivered a message must be able to supply all earlier cells that others need before it:
//!
//! * Ordered messages go to all daemons. Their causes are earlier in the common order.
//! * A client's messages to a group that are FIFO or stronger go to the same daemons until stable.
//!   A daemon added later first receives the earlier messages.
//!
//! Safe messages are acknowledged when the clocks of all sources have passed them. In a
//! transitional view the ordered messages of lost sources end where the messages of all lost
//! sources are known: later ones may depend on a message that no member has.

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

/// Bytes of a source after which its cells are acknowledged, even if no member waits: 64 kB.
const ACK_BYTES: usize = 64 * 1024;
/// Maximum number of cells of a message. The longest message with the longest names needs 1841.
const PIECES_MAX: usize = 2048;

#[derive(Clone, Debug)]
pub(crate) struct Ready {
    /// Place of the source daemon; number and Lamport time of the message's last cell.
    pub(crate) source: usize,
    pub(crate) sequence: u64,
    pub(crate) time: u64,
    pub(crate) cell: Cell,
    pub(crate) parts: Parts,
}

/// One client's waiting messages in sending order. FIFO ones wait only for ordered ones before.
#[derive(Clone, Debug, Default)]
struct Lane {
    waiting: VecDeque<(u64, Vec<Ready>)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Streams {
    pub(crate) ballot: Ballot,
    pub(crate) graph: Graph,
    pub(crate) me: usize,
    pub(crate) time: u64,
    sources: Vec<Source>,
    queues: BTreeMap<LinkId, Queue>,
    order: BTreeMap<(u64, u8), Ready>,
    /// Lanes of clients with waiting ordered messages, by the place of the daemon and client.
    lanes: BTreeMap<(u8, Bytes), Lane>,
    released: VecDeque<Ready>,
    /// Time that other members wait for this clock to pass, and time of the last clock sent to all.
    wanted: u64,
    sent: u64,
    stable_due: bool,
    /// Bytes of own cells that not all members have, by client.
    shares: BTreeMap<Bytes, usize>,
    /// By client and group: daemons with all FIFO or stronger messages, and the last one's number.
    spread: BTreeMap<Bytes, BTreeMap<Bytes, (Set, u64)>>,
    /// Sources that move on together, and the time up to which all others' messages are known.
    pub(crate) staying: Set,
    pub(crate) known_until: u64,
    /// Maximum number of retained bytes per source other than this daemon.
    kept_max: usize,
    /// True once the view has begun here. Before that, nothing is acknowledged or pruned.
    pub(crate) is_open: bool,
}

impl Streams {
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
                // Child of this daemon on the path to `place`, if any.
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

    pub(crate) fn unstable_bytes(&self) -> usize {
        self.sources[self.me].bytes
    }

    #[cfg(test)]
    pub(crate) fn pending(&self) -> usize {
        let of = |it: &Source| it.cells.len() + it.safe.len() + it.pieces.parts.len();
        let sources: usize = self.sources.iter().map(of).sum();
        let sources = sources + self.shares.len();
        sources + self.order.len() + self.lanes.len() + self.released.len() + self.spread.len()
    }

    pub(crate) fn has_room(&self, client: &[u8], retention_bytes: usize) -> bool {
        let share = self.shares.get(client).copied().unwrap_or_default();
        share < retention_bytes.saturating_sub(self.unstable_bytes())
    }

    fn is_alone(&self) -> bool {
        self.graph.members.len() == 1
    }

    /// Returns the number of the newest own cell, and the number up to which all members have them.
    pub(crate) fn own(&self) -> (u64, u64) {
        let own = &self.sources[self.me];
        (own.through, own.stable)
    }

    pub(crate) fn queued_bytes(&self, link: LinkId) -> usize {
        self.queues.get(&link).map_or(0, |it| it.bytes)
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = LinkId> {
        self.queues.keys().copied()
    }

    pub(crate) fn own_links(&self, to: Set) -> impl Iterator<Item = LinkId> {
        let children = self.sources[self.me].children.iter();
        children.filter(move |it| it.below.meets(to)).map(|it| it.link)
    }

    pub(crate) fn queue_length(&self, link: LinkId) -> (usize, usize) {
        self.queues.get(&link).map_or((0, 0), |it| (it.cells, it.bytes))
    }

    pub(crate) fn left_bytes(&self, link: LinkId) -> u64 {
        self.queues.get(&link).map_or(0, |it| it.left_bytes)
    }

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

    pub(crate) fn cell(&self, source: usize, sequence: u64) -> Option<Bytes> {
        let cells = &self.sources.get(source)?.cells;
        let at = cells.binary_search_by_key(&sequence, |it| it.0).ok()?;
        Some(cells[at].1.clone())
    }

    /// Retains a cell that a member has retransmitted; [`rest`](Self::rest) delivers it.
    pub(crate) fn take_recovered(&mut self, source: usize, sequence: u64, cell: Bytes) {
        let Some(source) = self.sources.get_mut(source) else { return };
        let is_new = sequence > source.through && !source.has(sequence);
        let fits = source.bytes + cell.len() <= self.kept_max;
        if is_new && fits && Cell::decode(&cell).is_some() {
            source.keep(sequence, cell);
        }
    }

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

    /// Returns the daemons of a client's next message; sends newly added ones the earlier messages.
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

    /// Takes an item from a link. Returns `None` if the item violates the protocol.
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
                // A cell is not stable before this daemon has acknowledged it.
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
                    // A slice would keep the whole cell in memory.
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

    /// Takes a released FIFO message, or the next ordered one once no earlier message can arrive.
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

    /// Returns the undelivered messages of a finished configuration: recovered ones outside the
    /// order, then ordered ones, each with the FIFO messages behind it.
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

    /// Schedules all acknowledgements, with clocks for subtrees without members of the groups.
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
