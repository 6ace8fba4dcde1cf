//! Repairs that members wait for: requests, repairs sent lately, and the next repair to send.

use alloc::collections::{BTreeMap, VecDeque};

use faircast_base::{Duration, GroupId, NodeId, Time};

use crate::Destination;
use crate::tram::settings::{RepairCast, TramSettings};

/// Shortest time between two repairs of a packet: 100 ms.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);

/// Most requested packets; others must be requested again. An honest member requests one window.
const ASKED_MAX: usize = 1 << 16;

const FORGET_AT: usize = 1024;

/// Most repairs for late members between new packets; chosen. With one they never catch up.
const LATE_TURNS: u32 = 2;

#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    nodes: [Option<NodeId>; 2],
    many: bool,
    /// True if repairs to all did not reach one of the members.
    alone: bool,
    queued: bool,
    /// True if this head itself lacks the packet, and passes it on when it arrives.
    awaited: bool,
    /// Time of the last repair, and true if it went to all.
    sent: Option<(Time, bool)>,
}

impl Asked {
    /// Adds a requesting member. With `alone` each gets a copy, and a displaced one must ask again.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tram) struct Repair {
    pub(in crate::tram) sequence: u64,
    pub(in crate::tram) to: Destination,
    pub(in crate::tram) ttl: u8,
}

#[derive(Debug, Default)]
pub(in crate::tram) struct Repairs {
    cast: RepairCast,
    queue: VecDeque<u64>,
    /// Repairs for late members, and the number sent since the last new data: both alternate.
    late: VecDeque<u64>,
    late_sent: u32,
    asked: BTreeMap<u64, Asked>,
    repeated: u32,
    forget_at: usize,
    forget_next: Time,
    second: Option<Repair>,
}

impl Repairs {
    pub(super) fn new(settings: &TramSettings) -> Self {
        Self { cast: settings.repair, forget_at: FORGET_AT, ..Self::default() }
    }

    /// Records a request. Packets before `front`, and those of a `stuck` member, alternate with new
    /// data. Of one or two members, an `unreached` one gets its own copy.
    pub(super) fn ask(
        &mut self,
        now: Time,
        sequence: u64,
        from: NodeId,
        (front, stuck, unreached): (u64, bool, bool),
    ) {
        if !self.has_room(now, sequence, front) {
            return;
        }
        let asked = self.asked.entry(sequence).or_default();
        let lately = asked.sent.filter(|(at, _)| now.since(*at) < INTERVAL);
        match lately {
            Some((_, to_all)) if to_all || asked.nodes.contains(&Some(from)) => return,
            None if !asked.queued => {
                let had = asked.sent.is_some() && asked.nodes.contains(&Some(from));
                self.repeated = self.repeated.saturating_add(u32::from(had));
                *asked = Asked::default();
            }
            _ => {}
        }
        asked.alone |= unreached;
        asked.add(from, self.cast == RepairCast::Unicast);
        if !core::mem::replace(&mut asked.queued, true) {
            let late = sequence < front || stuck;
            if late { &mut self.late } else { &mut self.queue }.push_back(sequence);
        }
    }

    pub(in crate::tram) fn take_repeated(&mut self) -> u32 {
        core::mem::take(&mut self.repeated)
    }

    pub(super) fn is_queued(&self, sequence: u64, node: NodeId) -> bool {
        let asked = self.asked.get(&sequence).filter(|asked| asked.queued);
        asked.is_some_and(|asked| asked.many || asked.nodes.contains(&Some(node)))
    }

    pub(super) fn await_for(&mut self, now: Time, sequence: u64, from: NodeId, front: u64) {
        if !self.has_room(now, sequence, front) {
            return;
        }
        let asked = self.asked.entry(sequence).or_default();
        if !asked.queued {
            if !core::mem::replace(&mut asked.awaited, true) {
                *asked = Asked { awaited: true, ..Asked::default() };
            }
            asked.add(from, self.cast == RepairCast::Unicast);
        }
    }

    pub(in crate::tram) fn on_repaired(&mut self, sequence: u64, came_to_all: bool) {
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

    pub(in crate::tram) fn is_waiting(&self) -> bool {
        let late = !self.late.is_empty() && self.late_sent < LATE_TURNS;
        self.second.is_some() || !self.queue.is_empty() || late
    }

    pub(in crate::tram) fn on_data_sent(&mut self) {
        self.late_sent = 0;
    }

    pub(super) fn next(&mut self, now: Time, reach: u8) -> Option<Repair> {
        if let Some(second) = self.second.take() {
            return Some(second);
        }
        let sequence = self.queue.pop_front().or_else(|| {
            self.late_sent = self.late_sent.saturating_add(1);
            self.late.pop_front()
        })?;
        let asked = self.asked.get_mut(&sequence)?;
        asked.queued = false;
        let to_all = match self.cast {
            _ if asked.alone && !asked.many => false,
            RepairCast::Auto => asked.many,
            RepairCast::Unicast => false,
            RepairCast::Scope => true,
        };
        // Members with a recent copy remain, so that a third request makes the repair go to all.
        let before = asked.sent.replace((now, to_all)).is_some();
        if to_all {
            let to = Destination::Group(GroupId::SESSION);
            return Some(Repair { sequence, to, ttl: reach });
        }
        let to = |node| Repair { sequence, to: Destination::Node(node), ttl: u8::MAX };
        let [first, second] = asked.nodes.map(|node| node.map(to));
        match (first, second) {
            (_, Some(second)) if before => Some(second),
            (first, second) => {
                self.second = second;
                first
            }
        }
    }

    fn has_room(&mut self, now: Time, sequence: u64, front: u64) -> bool {
        self.forget_sent(now, front);
        self.asked.len() < ASKED_MAX || self.asked.contains_key(&sequence)
    }

    /// Drops old repairs, and requests for packets that will not be kept, before they become many.
    fn forget_sent(&mut self, now: Time, front: u64) {
        if self.asked.len() >= self.forget_at && now >= self.forget_next {
            self.asked.retain(|sequence, asked| {
                asked.queued
                    || asked.awaited && *sequence >= front
                    || asked.sent.is_some_and(|(at, _)| now.since(at) < INTERVAL)
            });
            self.forget_at = (2 * self.asked.len()).clamp(FORGET_AT, ASKED_MAX);
            // If the table stays full, the next attempt waits for an interval.
            self.forget_next = if self.asked.len() < ASKED_MAX { now } else { now + INTERVAL };
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::world::at;

    const MS: u64 = 100;
    const REACH: u8 = 7;

    fn repairs(cast: RepairCast) -> Repairs {
        Repairs::new(&TramSettings { repair: cast, ..TramSettings::default() })
    }

    fn sent(repairs: &mut Repairs, now: u64) -> Vec<(u64, Option<u32>)> {
        let all = core::iter::from_fn(|| repairs.next(at(now), REACH));
        all.map(|Repair { sequence, to, ttl }| match to {
            Destination::Node(node) => (sequence, Some(node.0)),
            Destination::Group(group) => {
                assert_eq!((group, ttl), (GroupId::SESSION, REACH));
                (sequence, None)
            }
        })
        .collect()
    }

    #[test]
    fn one_or_two_have_a_repair_alone_and_more_have_it_together() {
        use RepairCast::{Auto, Scope, Unicast};
        for (cast, nodes, want) in [
            (Auto, &[1][..], &[Some(1)][..]),
            (Auto, &[1, 1], &[Some(1)]),
            (Auto, &[1, 2], &[Some(1), Some(2)]),
            (Auto, &[1, 2, 3], &[None]),
            (Scope, &[1], &[None]),
            (Unicast, &[1, 2], &[Some(1), Some(2)]),
            (Unicast, &[1, 2, 3], &[Some(3)]),
        ] {
            let mut repairs = repairs(cast);
            nodes.iter().for_each(|node| repairs.ask(at(0), 5, NodeId(*node), (1, false, false)));
            let want: Vec<_> = want.iter().map(|to| (5, *to)).collect();
            assert_eq!(sent(&mut repairs, 0), want, "{cast:?}, {nodes:?}");
        }
    }

    #[test]
    fn whom_repairs_to_all_do_not_reach_has_them_alone() {
        for cast in [RepairCast::Scope, RepairCast::Auto] {
            let mut repairs = repairs(cast);
            let mut asks = |now, nodes: &[(u32, bool)]| {
                for (node, unreached) in nodes {
                    repairs.ask(at(now), 5, NodeId(*node), (1, false, *unreached));
                }
                sent(&mut repairs, now)
            };
            assert_eq!(asks(0, &[(1, false), (2, false), (3, false)]), [(5, None)]);
            assert_eq!(asks(MS - 1, &[(1, true)]), [], "it may be on its way");
            assert_eq!(asks(MS, &[(2, false), (1, true)]), [(5, Some(2)), (5, Some(1))]);
            let all = [(2, false), (3, false), (4, false), (1, true)];
            assert_eq!(asks(3 * MS, &all), [(5, None)], "many ask");
        }
    }

    #[test]
    fn a_repair_that_is_on_its_way_is_not_sent_again() {
        let mut repairs = repairs(RepairCast::Auto);
        repairs.ask(at(0), 5, NodeId(1), (1, false, false));
        assert_eq!(sent(&mut repairs, 0), [(5, Some(1))]);
        repairs.ask(at(MS - 1), 5, NodeId(1), (1, false, false));
        assert_eq!(sent(&mut repairs, MS - 1), []);
        repairs.ask(at(MS - 1), 5, NodeId(2), (1, false, false));
        assert_eq!(sent(&mut repairs, MS - 1), [(5, Some(2))], "this one has not had it");
        repairs.ask(at(MS), 5, NodeId(3), (1, false, false));
        assert_eq!(sent(&mut repairs, MS), [(5, None)], "a third within the interval");
        repairs.ask(at(MS + 50), 5, NodeId(4), (1, false, false));
        assert_eq!(sent(&mut repairs, MS + 50), [], "it went to all");
        repairs.ask(at(3 * MS), 5, NodeId(1), (1, false, false));
        assert_eq!(sent(&mut repairs, 3 * MS), [(5, Some(1))], "that is long ago");
    }

    #[test]
    fn what_a_head_lacks_itself_goes_on_when_it_comes_unless_all_have_it_then() {
        for (to_all, want) in [(false, &[(5, Some(1)), (5, Some(2))][..]), (true, &[])] {
            let mut repairs = repairs(RepairCast::Auto);
            for node in [1, 2, 1] {
                repairs.await_for(at(0), 5, NodeId(node), 1);
            }
            assert!(!repairs.is_waiting());
            repairs.on_repaired(6, to_all);
            assert_eq!(sent(&mut repairs, 1), []);
            repairs.on_repaired(5, to_all);
            assert_eq!(sent(&mut repairs, 1), want);
            repairs.on_repaired(5, to_all);
            assert_eq!(sent(&mut repairs, 1), [], "once");
        }
    }

    #[test]
    fn what_is_no_longer_kept_takes_turns_with_new_data() {
        let mut repairs = repairs(RepairCast::Auto);
        for sequence in [3, 4, 5, 200] {
            repairs.ask(at(0), sequence, NodeId(1), (100, false, false));
        }
        let mut next = |wants: Option<u64>| {
            assert_eq!(repairs.is_waiting(), wants.is_some());
            if let Some(sequence) = wants {
                assert_eq!(repairs.next(at(0), REACH).map(|it| it.sequence), Some(sequence));
            }
            if wants.is_none() {
                repairs.on_data_sent();
            }
        };
        for wants in [Some(200), Some(3), Some(4), None, Some(5), None] {
            next(wants);
        }
        assert!(!repairs.is_waiting());
    }

    #[test]
    fn a_member_that_gets_no_further_takes_turns_with_new_data() {
        let mut repairs = repairs(RepairCast::Auto);
        for (sequence, stuck) in [(200, true), (201, true), (203, true), (202, false)] {
            repairs.ask(at(0), sequence, NodeId(1), (100, stuck, false));
        }
        let next = |repairs: &mut Repairs| repairs.next(at(0), REACH).map(|it| it.sequence);
        assert_eq!([(); 3].map(|()| next(&mut repairs)), [202, 200, 201].map(Some));
        assert!(!repairs.is_waiting());
        repairs.on_data_sent();
        assert!(repairs.is_waiting());
    }

    #[test]
    fn whoever_asks_for_everything_fills_no_memory() {
        let mut repairs = repairs(RepairCast::Auto);
        for sequence in 1..2 * ASKED_MAX as u64 {
            repairs.ask(at(0), sequence, NodeId(1), (100, false, false));
        }
        assert_eq!(repairs.asked.len(), ASKED_MAX);
        assert_eq!(repairs.queue.len() + repairs.late.len(), ASKED_MAX);
        while repairs.next(at(0), REACH).is_some() {}
        repairs.ask(at(MS), 1, NodeId(1), (100, false, false));
        assert!(repairs.asked.len() < 10, "{} are remembered", repairs.asked.len());
    }

    proptest! {
        /// Packets are queued once, and go to requesting members, or to all once per interval.
        #[test]
        fn who_asks_is_repaired_and_nobody_else(
            steps in proptest::collection::vec((0u64..60, 1u64..8, 1u32..5, 0u8..4), 1..150),
        ) {
            let mut repairs = repairs(RepairCast::Auto);
            let (mut now, mut asked, mut here) = (0, BTreeSet::new(), BTreeSet::from([1, 2, 3]));
            let mut last: BTreeMap<(u64, Option<u32>), u64> = BTreeMap::new();
            for (later, sequence, node, what) in steps {
                now += later;
                match what {
                    0 => {
                        repairs.on_repaired(sequence, false);
                        here.insert(sequence);
                    }
                    _ if !here.contains(&sequence) => {
                        repairs.await_for(at(now), sequence, NodeId(node), 1);
                        asked.insert((sequence, node));
                    }
                    _ => {
                        repairs.ask(at(now), sequence, NodeId(node), (1, false, false));
                        asked.insert((sequence, node));
                    }
                }
                let mut queued: Vec<u64> = repairs.queue.iter().copied().collect();
                queued.sort_unstable();
                prop_assert!(queued.windows(2).all(|two| two[0] < two[1]), "{queued:?}");
                if what == 3 {
                    for (sequence, to) in sent(&mut repairs, now) {
                        if let Some(node) = to {
                            prop_assert!(asked.contains(&(sequence, node)));
                        }
                        let before = last.insert((sequence, to), now);
                        prop_assert!(before.is_none_or(|at| now - at >= MS || to.is_some()));
                    }
                    prop_assert!(!repairs.is_waiting());
                }
            }
        }
    }
}
