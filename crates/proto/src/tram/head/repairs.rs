//! Repairs that members wait for: who has asked for which packet, what was sent not long ago, and what goes next.

use alloc::collections::{BTreeMap, VecDeque};

use faircast_base::{Duration, GroupId, NodeId, Time};

use crate::Destination;
use crate::tram::settings::{RepairCast, TramSettings};

/// A repair that was asked for, or was sent not long ago.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// Who asked, where they are one or two.
    nodes: [Option<NodeId>; 2],
    /// More than these asked.
    many: bool,
    queued: bool,
    /// It is not here yet, and goes on as soon as it is.
    awaited: bool,
    /// When it was sent, and whether to all.
    sent: Option<(Time, bool)>,
}

impl Asked {
    /// Another one asked. Each has its own where `alone`; who is pushed out then asks again.
    fn add(&mut self, from: NodeId, alone: bool) {
        match self.nodes {
            [None, _] => self.nodes[0] = Some(from),
            [Some(first), _] if first == from => {}
            [_, None] => self.nodes[1] = Some(from),
            [_, Some(second)] if second == from => {}
            _ if alone => (self.nodes, self.sent) = ([Some(from), None], None),
            _ => self.many = true,
        }
    }
}

/// A repair that is to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tram) struct Repair {
    pub(in crate::tram) sequence: u64,
    pub(in crate::tram) to: Destination,
    pub(in crate::tram) ttl: u8,
}

/// What was asked for.
#[derive(Debug)]
pub(super) struct Repairs {
    cast: RepairCast,
    interval: Duration,
    queue: VecDeque<u64>,
    /// Those of what is not kept any more, for members that joined late; and whether the last packet was one:
    /// they share the way with others by turns.
    late: VecDeque<u64>,
    late_turn: bool,
    asked: BTreeMap<u64, Asked>,
    /// The second of two copies of a repair, for another member.
    second: Option<Repair>,
}

impl Repairs {
    pub(super) fn new(settings: &TramSettings) -> Self {
        Self {
            cast: settings.repair,
            interval: settings.repair_interval,
            queue: VecDeque::new(),
            late: VecDeque::new(),
            late_turn: false,
            asked: BTreeMap::new(),
            second: None,
        }
    }

    /// A member wants a packet.
    pub(super) fn ask(&mut self, now: Time, sequence: u64, from: NodeId, front: u64) {
        let asked = self.asked.entry(sequence).or_default();
        let lately = asked.sent.filter(|(at, _)| now.since(*at) < self.interval);
        match lately {
            // It is on its way to this one.
            Some((_, to_all)) if to_all || asked.nodes.contains(&Some(from)) => return,
            None if !asked.queued => *asked = Asked::default(),
            _ => {}
        }
        asked.add(from, self.cast == RepairCast::Unicast);
        if !core::mem::replace(&mut asked.queued, true) {
            let late = sequence < front;
            if late { &mut self.late } else { &mut self.queue }.push_back(sequence);
        }
    }

    /// A member wants a packet that is not here: this head asks for it itself.
    pub(super) fn await_for(&mut self, now: Time, sequence: u64, from: NodeId, front: u64) {
        self.forget_sent(now, front);
        let asked = self.asked.entry(sequence).or_default();
        if !asked.queued {
            if !core::mem::replace(&mut asked.awaited, true) {
                *asked = Asked { awaited: true, ..Asked::default() };
            }
            asked.add(from, self.cast == RepairCast::Unicast);
        }
    }

    /// A repair has come. Where it came to this head alone those who asked for it have it next.
    pub(super) fn on_repaired(&mut self, sequence: u64, came_to_all: bool) {
        let Some(asked) = self.asked.get_mut(&sequence).filter(|asked| asked.awaited) else {
            return;
        };
        if came_to_all {
            self.asked.remove(&sequence);
        } else {
            (asked.awaited, asked.queued) = (false, true);
            self.queue.push_back(sequence);
        }
    }

    /// Whether a repair waits that is to be sent before new data.
    pub(super) fn is_waiting(&self) -> bool {
        let late = !self.late.is_empty() && !self.late_turn;
        self.second.is_some() || !self.queue.is_empty() || late
    }

    /// New data was sent: it is the turn of those who came late.
    pub(super) fn on_data_sent(&mut self) {
        self.late_turn = false;
    }

    /// The repair that is to be sent now.
    pub(super) fn next(&mut self, now: Time, front: u64, reach: u8) -> Option<Repair> {
        if let Some(second) = self.second.take() {
            return Some(second);
        }
        let sequence = self.queue.pop_front().or_else(|| {
            self.late_turn = true;
            self.late.pop_front()
        })?;
        self.forget_sent(now, front);
        let asked = self.asked.get_mut(&sequence)?;
        asked.queued = false;
        let to_all = match self.cast {
            RepairCast::Auto => asked.many,
            RepairCast::Unicast => false,
            RepairCast::Scope => true,
        };
        // Those who were sent it alone not long ago remain, so that a third one is not sent it alone too.
        let before = asked.sent.replace((now, to_all)).is_some();
        if to_all {
            let to = Destination::Group(GroupId::SESSION);
            return Some(Repair { sequence, to, ttl: reach });
        }
        let to = |node| Repair { sequence, to: Destination::Node(node), ttl: u8::MAX };
        let [first, second] = asked.nodes.map(|node| node.map(to));
        match (first, second) {
            // Of two the first has had it.
            (_, Some(second)) if before => Some(second),
            (first, second) => {
                self.second = second;
                first
            }
        }
    }

    /// Forgets repairs that were sent long ago, and packets that will not be kept any more, before they become many.
    fn forget_sent(&mut self, now: Time, front: u64) {
        if self.asked.len() > 2 * self.queue.len() + 1024 {
            let interval = self.interval;
            self.asked.retain(|sequence, asked| {
                asked.queued
                    || asked.awaited && *sequence >= front
                    || asked.sent.is_some_and(|(at, _)| now.since(at) < interval)
            });
        }
    }
}
