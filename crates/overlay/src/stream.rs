//! Streams of cells in one configuration: forwarding along trees, retention, the agreed order.
//!
//! Each member is the source of one stream along its shortest-path tree. Each cell names its
//! destination daemons, those with members of its groups. Other subtrees receive a clock later. A
//! message is next in the agreed order, that of Lamport times, once the clocks of all sources have
//! passed its time.
//!
//! If a source is lost, its last cells are those that the other members have. A daemon that
//! delivered a message must be able to supply all earlier cells that others need before it:
//!
//! * Ordered messages go to all daemons. Their causes are earlier in the agreed order.
//! * A client's messages to a group that are FIFO or stronger go to the same daemons until stable.
//!   A daemon added later first receives the earlier messages.
//!
//! Safe messages are acknowledged when the clocks of all sources have passed them. In a
//! transitional view the ordered messages of lost sources end where the messages of all lost
//! sources are known: later ones may depend on a message that no member has.

mod order;
mod source;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::fresh;
use faircast_proto::RangeSet;
use faircast_proto::fields::{Encoded, Fields};

use self::order::AgreedOrder;
use self::source::{Child, Queue, Source};
use crate::cell::{Cell, Kind, Service, payload_bytes_max};
use crate::client::Parts;
use crate::ids::{DaemonSet, LinkId, ViewId};
use crate::mutant::{Mutant, breaks};
use crate::topology::Graph;
use crate::wire::{Clock, Item, NUMBER_MAX, StreamState, put_var, take_var};

/// Bytes of a source after which its cells are acknowledged, even if no member waits: 64 kB.
const ACK_BYTES: usize = 64 * 1024;
/// Maximum number of cells of a message. The longest message with the longest names needs 1841.
const PIECES_MAX: usize = 2048;

#[derive(Clone, Debug)]
pub(crate) struct CompleteMessage {
    /// Rank of the source daemon; number and Lamport time of the message's last cell.
    pub(crate) source: usize,
    pub(crate) sequence: u64,
    pub(crate) time: u64,
    pub(crate) cell: Cell,
    pub(crate) parts: Parts,
}

impl CompleteMessage {
    fn is_ordered(&self) -> bool {
        self.cell.kind.is_ordered(self.cell.service)
    }
}

/// Violation of the protocol by the daemon at the other end of a link.
#[derive(Debug)]
pub(crate) struct Violation;

#[derive(Clone, Debug)]
pub(crate) struct Streams {
    pub(crate) config: ViewId,
    pub(crate) graph: Graph,
    pub(crate) me: usize,
    pub(crate) time: u64,
    sources: Vec<Source>,
    pub(crate) queues: BTreeMap<LinkId, Queue>,
    order: AgreedOrder,
    /// Lamport time that other members wait for this daemon's clock to pass.
    clock_wanted: u64,
    clock_sent: u64,
    /// True if more own cells are stable than the last clock says.
    is_stability_news: bool,
    /// Bytes of own cells that not all members have, by client.
    unstable_by_client: BTreeMap<Bytes, usize>,
    /// By client and group: daemons with all FIFO or stronger messages, and the last one's number.
    fifo_routes: BTreeMap<Bytes, BTreeMap<Bytes, (DaemonSet, u64)>>,
    /// Sources in the transitional set, set by the recovery that ends the configuration.
    pub(crate) remaining: DaemonSet,
    /// Lamport time up to which the messages of all other sources are known.
    pub(crate) order_known_until: u64,
    /// Maximum number of retained bytes per source other than this daemon.
    retained_bytes_max: usize,
    /// True once the view has begun here. Before that, nothing is acknowledged or pruned.
    pub(crate) is_begun: bool,
}

impl Streams {
    pub(crate) fn new(
        config: ViewId,
        graph: Graph,
        me: usize,
        time: u64,
        link_to: &BTreeMap<usize, LinkId>,
        retained_bytes_max: usize,
    ) -> Self {
        let count = graph.members.len();
        let source = |root| {
            let parents = graph.tree(root);
            let mut below: BTreeMap<usize, DaemonSet> = BTreeMap::new();
            for rank in 0..count {
                // Child of this daemon on the path to `rank`, if any.
                let mut at = rank;
                while let Some(parent) = parents[at] {
                    if parent == me {
                        below.entry(at).or_default().set(rank, true);
                    }
                    at = parent;
                }
            }
            let child = |(rank, below): (&usize, &DaemonSet)| {
                Some(Child { link: *link_to.get(rank)?, below: *below, acked: 0 })
            };
            Source {
                parent: parents[me].and_then(|it| link_to.get(&it)).copied(),
                children: below.iter().filter_map(child).collect(),
                ..Source::default()
            }
        };
        let sources = (0..count).map(source).collect();
        let queues = link_to.values().map(|link| (*link, Queue::default())).collect();
        fresh! {
            Self {
                config,
                graph,
                me,
                time,
                sources,
                queues,
                remaining: DaemonSet::ALL,
                order_known_until: u64::MAX,
                retained_bytes_max,
            }
            order, clock_wanted, clock_sent, is_stability_news, unstable_by_client, fifo_routes,
            is_begun
        }
    }

    pub(crate) fn unstable_bytes(&self) -> usize {
        self.sources[self.me].bytes
    }

    #[cfg(test)]
    pub(crate) fn pending(&self) -> usize {
        let of = |it: &Source| it.cells.len() + it.safe.len() + it.pieces.parts.len();
        let sources: usize = self.sources.iter().map(of).sum();
        sources + self.unstable_by_client.len() + self.order.len() + self.fifo_routes.len()
    }

    pub(crate) fn has_room(&self, client: &[u8], retention_bytes: usize) -> bool {
        let share = self.unstable_by_client.get(client).copied().unwrap_or_default();
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

    pub(crate) fn links(&self) -> impl Iterator<Item = LinkId> {
        self.queues.keys().copied()
    }

    pub(crate) fn own_links(&self, to: DaemonSet) -> impl Iterator<Item = LinkId> {
        let children = self.sources[self.me].children.iter();
        children.filter(move |it| it.below.meets(to)).map(|it| it.link)
    }

    pub(crate) fn queue_length(&self, link: LinkId) -> (usize, usize) {
        self.queues.get(&link).map_or((0, 0), |it| (it.cells, it.bytes))
    }

    pub(crate) fn stream_states(&self) -> Vec<StreamState> {
        let state = |source: &Source| {
            let mut cells = RangeSet::default();
            for (sequence, _) in &source.cells {
                cells.insert(*sequence..sequence + 1);
            }
            StreamState { through: source.through, clock: source.clock, cells }
        };
        self.sources.iter().map(state).collect()
    }

    pub(crate) fn cell(&self, source: usize, sequence: u64) -> Option<Bytes> {
        let cells = &self.sources.get(source)?.cells;
        let at = cells.binary_search_by_key(&sequence, |it| it.0).ok()?;
        Some(cells[at].1.clone())
    }

    /// Retains a cell that a member has retransmitted, for [`undelivered`](Self::undelivered).
    pub(crate) fn take_recovered(&mut self, source: usize, sequence: u64, cell: Bytes) {
        let Some(source) = self.sources.get_mut(source) else { return };
        let is_new = sequence > source.through && !source.has(sequence);
        let fits = source.bytes + cell.len() <= self.retained_bytes_max;
        if is_new && fits && Cell::decode(&cell).is_some() {
            source.retain(sequence, cell);
        }
    }

    /// Sends a cell that is no message. Returns the cell if it waits for no other.
    pub(crate) fn send_step(
        &mut self,
        kind: Kind,
        to: DaemonSet,
        (client, groups): (&[u8], &[&[u8]]),
        payload: &[&[u8]],
    ) -> Option<CompleteMessage> {
        self.send((kind, Service::Reliable, true), to, (client, groups), payload)
    }

    fn send(
        &mut self,
        what: (Kind, Service, bool),
        to: DaemonSet,
        (client, groups): (&[u8], &[&[u8]]),
        payload: &[&[u8]],
    ) -> Option<CompleteMessage> {
        self.time += 1;
        let bytes = Cell::encode(self.time, what, to, client, groups, payload);
        let sequence = self.sources[self.me].through + 1;
        self.take_cell(self.me, sequence, bytes).ok()?
    }

    pub(crate) fn send_message(
        &mut self,
        service: Service,
        client: &[u8],
        groups: &[&[u8]],
        payload: &[u8],
        routes: DaemonSet,
    ) -> Option<CompleteMessage> {
        let is_pruned = !service.is_ordered() || breaks(Mutant::PrunedOrder);
        let mut to = if is_pruned { routes } else { DaemonSet::ALL };
        to.set(self.me, true);
        let is_tracked = service >= Service::Fifo && !self.is_alone();
        if is_tracked {
            to = self.extend_routes(client, groups, to);
        }
        let most = payload_bytes_max(groups);
        let count = payload.len().div_ceil(most).max(1);
        let mut complete = None;
        for i in 0..count {
            let from = i * most;
            let part = &payload[from..payload.len().min(from + most)];
            let kind = if i == 0 { Kind::Message } else { Kind::Continuation };
            complete = self.send((kind, service, i + 1 == count), to, (client, groups), &[part]);
        }
        if is_tracked {
            let last = self.sources[self.me].through;
            if !self.fifo_routes.contains_key(client) {
                self.fifo_routes.insert(Bytes::copy_from_slice(client), BTreeMap::new());
            }
            let routes_by_group = self.fifo_routes.get_mut(client)?;
            for group in groups {
                match routes_by_group.get_mut(*group) {
                    Some(it) => *it = (to, last),
                    None => _ = routes_by_group.insert(Bytes::copy_from_slice(group), (to, last)),
                }
            }
        }
        complete
    }

    /// Returns the daemons of a client's next message; sends newly added ones the earlier messages.
    fn extend_routes(&mut self, client: &[u8], groups: &[&[u8]], mut to: DaemonSet) -> DaemonSet {
        let Some(routes_by_group) = self.fifo_routes.get(client) else { return to };
        let own = &self.sources[self.me];
        let known = |group: &&[u8]| {
            routes_by_group.get(*group).filter(|it| it.1 > own.stable).map(|it| it.0)
        };
        to = groups.iter().filter_map(known).fold(to, DaemonSet::or);
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
            (is_earlier && lacking != DaemonSet::default())
                .then(|| (lacking, *sequence, bytes.clone()))
        };
        let earlier = own.cells.iter().filter_map(missing);
        let earlier: Vec<_> = earlier.filter(|_| !breaks(Mutant::NoEarlierCells)).collect();
        for (lacking, sequence, cell) in earlier {
            let mut head = Vec::new();
            put_var(&mut head, sequence);
            self.send_step(Kind::EarlierCell, lacking, (&[], &[]), &[&head, &cell]);
        }
        to
    }

    /// Takes an item from a link. Returns the message that it completes.
    pub(crate) fn take(
        &mut self,
        link: LinkId,
        item: Item,
    ) -> Result<Option<CompleteMessage>, Violation> {
        let (Item::Cell { source, .. } | Item::Clock(source, _) | Item::Ack { source, .. }) = item;
        let from = self.sources.get_mut(usize::from(source)).ok_or(Violation)?;
        match item {
            Item::Cell { step, cell, .. } => {
                let sequence = from.through.checked_add(step).ok_or(Violation)?;
                if from.parent != Some(link) || step == 0 || sequence > NUMBER_MAX {
                    return Err(Violation);
                }
                return self.take_cell(source.into(), sequence, cell);
            }
            Item::Clock(_, clock) => {
                if from.parent != Some(link) || clock.time.max(clock.sequence) > NUMBER_MAX {
                    return Err(Violation);
                }
                from.through = from.through.max(clock.sequence);
                from.clock = from.clock.max(clock.time);
                // A cell is not stable before this daemon has acknowledged it.
                from.prune(clock.stable.min(from.acked));
                self.time = self.time.max(clock.time);
                if clock.wanted {
                    self.clock_wanted = self.clock_wanted.max(clock.time);
                }
                push_clock(&mut self.queues, &from.children, source, clock);
            }
            Item::Ack { through, time, .. } => {
                let child = from.children.iter_mut().find(|it| it.link == link).ok_or(Violation)?;
                if through > from.through || time > NUMBER_MAX {
                    return Err(Violation);
                }
                child.acked = child.acked.max(through);
                from.time_below = from.time_below.max(time);
                if usize::from(source) == self.me {
                    self.time = self.time.max(time);
                    self.update_stability();
                } else {
                    from.ack_due |= from.acked_below() > from.acked;
                }
            }
        }
        Ok(None)
    }

    fn update_stability(&mut self) {
        let own = &mut self.sources[self.me];
        let all = own.acked_below().min(own.acknowledgeable());
        if all > own.stable {
            for (_, bytes) in own.cells.iter().take_while(|it| it.0 <= all) {
                let Some(Cell { client, .. }) = Cell::decode(bytes) else { continue };
                if let Some(share) = self.unstable_by_client.get_mut(&client) {
                    *share -= bytes.len();
                    if *share == 0 {
                        self.unstable_by_client.remove(&client);
                    }
                }
            }
            own.prune(all);
            self.is_stability_news = true;
        }
    }

    fn take_cell(
        &mut self,
        source: usize,
        sequence: u64,
        bytes: Bytes,
    ) -> Result<Option<CompleteMessage>, Violation> {
        let cell = Cell::decode(&bytes).ok_or(Violation)?;
        let is_alone = self.is_alone();
        let from = &mut self.sources[source];
        let is_long = cell.kind == Kind::Continuation && from.pieces.parts.len() >= PIECES_MAX;
        let is_full = source != self.me && from.bytes + bytes.len() > self.retained_bytes_max;
        if cell.time <= from.clock || cell.time > NUMBER_MAX || is_long || is_full {
            return Err(Violation);
        }
        self.time = self.time.max(cell.time);
        (from.through, from.clock) = (sequence, cell.time);
        let is_safe = cell.service == Service::Safe && cell.last && !breaks(Mutant::HastySafe);
        if is_alone && !is_safe && from.safe.is_empty() {
            from.stable = sequence;
        } else if cell.kind != Kind::EarlierCell {
            from.retain(sequence, bytes.clone());
            if source == self.me {
                match self.unstable_by_client.get_mut(&cell.client) {
                    Some(share) => *share += bytes.len(),
                    // A slice would keep the whole cell in memory.
                    None => {
                        let client = Bytes::copy_from_slice(&cell.client);
                        self.unstable_by_client.insert(client, bytes.len());
                    }
                }
            }
        } else if cell.to.has(self.me) && source != self.me {
            let mut fields = Fields(&cell.payload);
            let earlier = take_var(&mut fields).ok_or(Violation)?;
            if earlier > from.stable && earlier < sequence && !from.has(earlier) {
                from.retain(earlier, cell.payload.slice_ref(fields.0));
            }
        }
        from.unacked += bytes.len();
        from.ack_due |= cell.kind == Kind::Join || from.unacked > ACK_BYTES;
        if is_safe {
            from.safe.push_back((sequence, cell.time));
        }
        let is_ordered = cell.kind.is_ordered(cell.service);
        if is_ordered {
            self.clock_wanted = self.clock_wanted.max(cell.time);
        }
        let clock = Clock { sequence, time: cell.time, stable: from.stable, wanted: is_ordered };
        let rank = source as u8;
        for Child { link, below, .. } in &from.children {
            let Some(queue) = self.queues.get_mut(link) else { continue };
            if cell.to.meets(*below) && cell.service == Service::Unreliable {
                queue.push_unreliable(rank, sequence, cell.time, bytes.clone());
            } else if cell.to.meets(*below) {
                queue.push_cell(rank, sequence, bytes.clone());
            } else if is_ordered {
                queue.push_clock(rank, clock);
            }
        }
        if cell.kind == Kind::EarlierCell || !cell.to.has(self.me) {
            return Ok(None);
        }
        let message = from.pieces.add(source, sequence, cell);
        Ok(message.and_then(|message| self.order.add(message)))
    }

    pub(crate) fn release_safe(&mut self) {
        let others = self.sources.iter().enumerate().filter(|(rank, _)| *rank != self.me);
        let passed = others.map(|(_, it)| it.clock).min().unwrap_or(u64::MAX);
        for source in &mut self.sources {
            while source.safe.front().is_some_and(|it| it.1 <= passed) {
                source.safe.pop_front();
                source.ack_due = true;
            }
        }
        self.update_stability();
    }

    /// Takes a released FIFO message, or the next ordered one once no earlier message can arrive.
    pub(crate) fn next_ordered(&mut self) -> Option<CompleteMessage> {
        if let Some(message) = self.order.released.pop_front() {
            return Some(message);
        }
        let (_, first) = self.order.ordered.first_key_value()?;
        let passed = |(rank, it): (usize, &Source)| {
            rank == self.me || it.clock >= first.time || breaks(Mutant::HastyOrder)
        };
        let is_next = self.is_begun && self.sources.iter().enumerate().all(passed);
        let is_safe = first.cell.service != Service::Safe
            || breaks(Mutant::UnsafeSafe)
            || self.sources[first.source].stable >= first.sequence;
        (is_next && is_safe).then(|| self.order.pop_first())?
    }

    /// Returns the undelivered messages of a finished configuration: recovered ones outside the
    /// order, then ordered ones, each with the FIFO messages behind it.
    pub(crate) fn undelivered(&self) -> Vec<CompleteMessage> {
        let recovered = self.sources.iter().enumerate().flat_map(|(source, from)| {
            let mut pieces = from.pieces.clone();
            let cells = from.cells.iter().filter(|it| it.0 > from.through);
            cells.filter_map(move |(sequence, bytes)| {
                let cell = Cell::decode(bytes).filter(|it| it.to.has(self.me))?;
                pieces.add(source, *sequence, cell)
            })
        });
        self.order.undelivered(recovered, |it| {
            it.time <= self.order_known_until
                || self.remaining.has(it.source)
                || breaks(Mutant::NoEnd)
        })
    }

    pub(crate) fn send_clock(&mut self) {
        if !self.is_begun || !(self.clock_wanted > self.clock_sent || self.is_stability_news) {
            return;
        }
        self.is_stability_news = false;
        self.clock_sent = self.time;
        let own = &mut self.sources[self.me];
        own.clock = self.time;
        let clock =
            Clock { sequence: own.through, time: self.time, stable: own.stable, wanted: false };
        push_clock(&mut self.queues, &own.children, self.me as u8, clock);
    }

    /// Schedules all acknowledgements, with clocks for subtrees without members of the groups.
    pub(crate) fn refresh(&mut self) {
        for source in &mut self.sources {
            source.ack_due = true;
        }
        let own = &self.sources[self.me];
        self.is_stability_news |= own.bytes > 0;
        self.fifo_routes.retain(|_, groups| {
            groups.retain(|_, it| it.1 > own.stable);
            !groups.is_empty()
        });
    }

    pub(crate) fn poll(&mut self, link: LinkId) -> Option<Bytes> {
        let mut out = Vec::new();
        if self.is_begun {
            for (rank, source) in self.sources.iter_mut().enumerate() {
                let through = source.acked_below().min(source.acknowledgeable());
                if source.parent == Some(link) && source.ack_due && through > source.acked {
                    (source.acked, source.ack_due, source.unacked) = (through, false, 0);
                    if out.is_empty() {
                        self.config.put(&mut out);
                    }
                    let time = self.time.max(source.time_below);
                    Item::Ack { source: rank as u8, through, time }.put(&mut out);
                }
            }
        }
        let queue = self.queues.get_mut(&link)?;
        queue.fill(self.config, &mut out);
        (!out.is_empty()).then(|| out.into())
    }
}

fn push_clock(queues: &mut BTreeMap<LinkId, Queue>, children: &[Child], source: u8, clock: Clock) {
    for child in children {
        if let Some(queue) = queues.get_mut(&child.link) {
            queue.push_clock(source, clock);
        }
    }
}
