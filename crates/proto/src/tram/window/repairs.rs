//! Repairs of a head: requests of members, repairs sent lately, and the next repair to send.

use alloc::collections::{BTreeMap, VecDeque};

use faircast_base::{Duration, GroupId, NodeId, Time};

use super::cache::Cache;
use crate::Destination;
use crate::congestion::Pace;
use crate::tram::settings::{RepairCast, TramSettings};

/// Shortest time between two repairs of a packet: 100 ms.
pub(crate) const REPAIR_INTERVAL: Duration = Duration::from_millis(100);

/// Most requested packets; others must be requested again. An honest member requests one window.
const REQUESTS_MAX: usize = 1 << 16;

const EXPIRE_AT: usize = 1024;

/// Most repairs for late members between new packets; chosen. With one they never catch up.
const ALTERNATING_TURNS: u32 = 2;

#[derive(Clone, Copy, Debug, Default)]
struct Requested {
    requesters: [Option<NodeId>; 2],
    many: bool,
    /// True if repairs to all did not reach one of the members.
    unicast_only: bool,
    queued: bool,
    /// True if this head itself lacks the packet, and passes it on when it arrives.
    awaited: bool,
    /// Time of the last repair, and true if it went to all.
    sent: Option<(Time, bool)>,
}

impl Requested {
    /// Adds a requesting member. With `alone` each gets a copy, and a displaced one must ask again.
    fn add(&mut self, from: NodeId, alone: bool) {
        match self.requesters {
            [None, _] => self.requesters[0] = Some(from),
            [Some(first), _] if first == from => {}
            [_, None] => self.requesters[1] = Some(from),
            [_, Some(second)] if second == from => {}
            _ if alone => (self.requesters, self.sent) = ([Some(from), None], None),
            _ => self.many = true,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RepairRequest {
    pub(crate) from: NodeId,
    /// True if repairs for the member may alternate with new data.
    pub(crate) may_alternate: bool,
    pub(crate) unreached: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repair {
    pub(crate) sequence: u64,
    pub(crate) to: Destination,
    pub(crate) ttl: u8,
}

/// Repair service of a head: packets kept for repair, requests for them, and the pace of repairs.
#[derive(Debug, Default)]
pub(crate) struct Repairer {
    pub(crate) cache: Cache,
    cast: RepairCast,
    queue: VecDeque<u64>,
    /// Repairs for late members, and the number sent since the last new data: both alternate.
    alternating: VecDeque<u64>,
    pub(crate) alternating_sent: u32,
    requested: BTreeMap<u64, Requested>,
    /// Requests of members for packets that they were sent before.
    pub(crate) repeated: u32,
    /// Entries at which old ones are dropped, and the earliest time of that.
    expire_at_len: usize,
    expire_next_at: Time,
    second_copy: Option<Repair>,
    /// True if a head passes a repair on as soon as the head itself gets the packet.
    pub(crate) passes_on: bool,
    /// True at the source: repairs for members without progress alternate with new data.
    pub(crate) alternates: bool,
    pub(crate) pace: Pace,
    pub(crate) sent: u64,
}

impl Repairer {
    pub(crate) fn new(settings: &TramSettings, start: u64) -> Self {
        let packets_max = settings.cache_packets as usize;
        Self {
            cache: Cache::new(start, packets_max, settings.cache_floor()),
            cast: settings.repair,
            expire_at_len: EXPIRE_AT,
            passes_on: settings.pass_on,
            ..Self::default()
        }
    }

    pub(crate) fn restart(&mut self, settings: &TramSettings, start: u64) {
        let Self { pace, sent, .. } = core::mem::take(self);
        *self = Self { pace, sent, ..Self::new(settings, start) };
    }

    pub(crate) fn on_request(
        &mut self,
        now: Time,
        missing: impl Iterator<Item = u64>,
        request: RepairRequest,
        can_repair: impl Fn(&Cache, u64) -> bool,
    ) {
        let may_alternate = self.alternates && request.may_alternate;
        let request = RepairRequest { may_alternate, ..request };
        for sequence in missing {
            if can_repair(&self.cache, sequence) {
                self.request(now, sequence, request);
            } else if self.passes_on && sequence >= self.cache.first {
                self.await_packet(now, sequence, request.from);
            }
        }
    }

    /// Records a request. Packets before the cache, and those of a member that may alternate,
    /// alternate with new data. Of one or two members, an unreached one gets its own copy.
    fn request(&mut self, now: Time, sequence: u64, request: RepairRequest) {
        let RepairRequest { from, may_alternate, unreached } = request;
        if !self.has_room(now, sequence) {
            return;
        }
        let entry = self.requested.entry(sequence).or_default();
        let lately = entry.sent.filter(|(at, _)| now.since(*at) < REPAIR_INTERVAL);
        match lately {
            Some((_, to_all)) if to_all || entry.requesters.contains(&Some(from)) => return,
            None if !entry.queued => {
                let had = entry.sent.is_some() && entry.requesters.contains(&Some(from));
                self.repeated = self.repeated.saturating_add(u32::from(had));
                *entry = Requested::default();
            }
            _ => {}
        }
        entry.unicast_only |= unreached;
        entry.add(from, self.cast == RepairCast::Unicast);
        if !core::mem::replace(&mut entry.queued, true) {
            let alternates = sequence < self.cache.first || may_alternate;
            if alternates { &mut self.alternating } else { &mut self.queue }.push_back(sequence);
        }
    }

    pub(crate) fn is_queued(&self, sequence: u64, node: NodeId) -> bool {
        let entry = self.requested.get(&sequence).filter(|entry| entry.queued);
        entry.is_some_and(|entry| entry.many || entry.requesters.contains(&Some(node)))
    }

    fn await_packet(&mut self, now: Time, sequence: u64, from: NodeId) {
        if !self.has_room(now, sequence) {
            return;
        }
        let entry = self.requested.entry(sequence).or_default();
        if !entry.queued {
            if !core::mem::replace(&mut entry.awaited, true) {
                *entry = Requested { awaited: true, ..Requested::default() };
            }
            entry.add(from, self.cast == RepairCast::Unicast);
        }
    }

    pub(crate) fn on_packet(&mut self, sequence: u64, was_sent_to_all: bool) {
        let Some(entry) = self.requested.get_mut(&sequence).filter(|entry| entry.awaited) else {
            return;
        };
        if was_sent_to_all {
            self.requested.remove(&sequence);
        } else {
            (entry.awaited, entry.queued) = (false, true);
            self.queue.push_back(sequence);
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        let late = !self.alternating.is_empty() && self.alternating_sent < ALTERNATING_TURNS;
        self.second_copy.is_some() || !self.queue.is_empty() || late
    }

    /// Returns the next repair. Repairs to all have the time to live `reach`.
    pub(crate) fn next(&mut self, now: Time, reach: u8) -> Option<Repair> {
        if let Some(second) = self.second_copy.take() {
            return Some(second);
        }
        let sequence = self.queue.pop_front().or_else(|| {
            self.alternating_sent = self.alternating_sent.saturating_add(1);
            self.alternating.pop_front()
        })?;
        let entry = self.requested.get_mut(&sequence)?;
        entry.queued = false;
        let to_all = match self.cast {
            _ if entry.unicast_only && !entry.many => false,
            RepairCast::Auto => entry.many,
            RepairCast::Unicast => false,
            RepairCast::Scope => true,
        };
        // Members with a recent copy remain, so that a third request makes the repair go to all.
        let before = entry.sent.replace((now, to_all)).is_some();
        if to_all {
            let to = Destination::Group(GroupId::SESSION);
            return Some(Repair { sequence, to, ttl: reach });
        }
        let to = |node| Repair { sequence, to: Destination::Node(node), ttl: u8::MAX };
        let [first, second] = entry.requesters.map(|node| node.map(to));
        match (first, second) {
            (_, Some(second)) if before => Some(second),
            (first, second) => {
                self.second_copy = second;
                first
            }
        }
    }

    /// Returns true if a request has room. Of many entries, the useless ones are dropped.
    fn has_room(&mut self, now: Time, sequence: u64) -> bool {
        if self.requested.len() >= self.expire_at_len && now >= self.expire_next_at {
            let first_kept = self.cache.first;
            self.requested.retain(|sequence, entry| {
                entry.queued
                    || entry.awaited && *sequence >= first_kept
                    || entry.sent.is_some_and(|(at, _)| now.since(at) < REPAIR_INTERVAL)
            });
            self.expire_at_len = (2 * self.requested.len()).clamp(EXPIRE_AT, REQUESTS_MAX);
            // If the table stays full, the next attempt waits for an interval.
            self.expire_next_at =
                if self.requested.len() < REQUESTS_MAX { now } else { now + REPAIR_INTERVAL };
        }
        self.requested.len() < REQUESTS_MAX || self.requested.contains_key(&sequence)
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

    fn repairs(cast: RepairCast) -> Repairer {
        Repairer::new(&TramSettings { repair: cast, ..TramSettings::default() }, 1)
    }

    /// Requests a packet; the flags say that the member may alternate, and that it is unreached.
    fn ask(
        repairs: &mut Repairer,
        now: u64,
        sequence: u64,
        node: u32,
        (first_kept, may_alternate, unreached): (u64, bool, bool),
    ) {
        let request = RepairRequest { from: NodeId(node), may_alternate, unreached };
        repairs.cache.first = first_kept;
        repairs.request(at(now), sequence, request);
    }

    fn sent(repairs: &mut Repairer, now: u64) -> Vec<(u64, Option<u32>)> {
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
            nodes.iter().for_each(|node| ask(&mut repairs, 0, 5, *node, (1, false, false)));
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
                    ask(&mut repairs, now, 5, *node, (1, false, *unreached));
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
        ask(&mut repairs, 0, 5, 1, (1, false, false));
        assert_eq!(sent(&mut repairs, 0), [(5, Some(1))]);
        ask(&mut repairs, MS - 1, 5, 1, (1, false, false));
        assert_eq!(sent(&mut repairs, MS - 1), []);
        ask(&mut repairs, MS - 1, 5, 2, (1, false, false));
        assert_eq!(sent(&mut repairs, MS - 1), [(5, Some(2))], "this one has not had it");
        ask(&mut repairs, MS, 5, 3, (1, false, false));
        assert_eq!(sent(&mut repairs, MS), [(5, None)], "a third within the interval");
        ask(&mut repairs, MS + 50, 5, 4, (1, false, false));
        assert_eq!(sent(&mut repairs, MS + 50), [], "it went to all");
        ask(&mut repairs, 3 * MS, 5, 1, (1, false, false));
        assert_eq!(sent(&mut repairs, 3 * MS), [(5, Some(1))], "that is long ago");
    }

    #[test]
    fn what_a_head_lacks_itself_goes_on_when_it_comes_unless_all_have_it_then() {
        for (to_all, want) in [(false, &[(5, Some(1)), (5, Some(2))][..]), (true, &[])] {
            let mut repairs = repairs(RepairCast::Auto);
            for node in [1, 2, 1] {
                repairs.await_packet(at(0), 5, NodeId(node));
            }
            assert!(!repairs.is_waiting());
            repairs.on_packet(6, to_all);
            assert_eq!(sent(&mut repairs, 1), []);
            repairs.on_packet(5, to_all);
            assert_eq!(sent(&mut repairs, 1), want);
            repairs.on_packet(5, to_all);
            assert_eq!(sent(&mut repairs, 1), [], "once");
        }
    }

    #[test]
    fn what_is_no_longer_kept_takes_turns_with_new_data() {
        let mut repairs = repairs(RepairCast::Auto);
        for sequence in [3, 4, 5, 200] {
            ask(&mut repairs, 0, sequence, 1, (100, false, false));
        }
        for wants in [Some(200), Some(3), Some(4), None, Some(5), None] {
            assert_eq!(repairs.is_waiting(), wants.is_some());
            match wants {
                Some(_) => assert_eq!(repairs.next(at(0), REACH).map(|it| it.sequence), wants),
                None => repairs.alternating_sent = 0,
            }
        }
        assert!(!repairs.is_waiting());
    }

    #[test]
    fn a_member_that_gets_no_further_takes_turns_with_new_data() {
        let mut repairs = repairs(RepairCast::Auto);
        for (sequence, stuck) in [(200, true), (201, true), (203, true), (202, false)] {
            ask(&mut repairs, 0, sequence, 1, (100, stuck, false));
        }
        let next = |repairs: &mut Repairer| repairs.next(at(0), REACH).map(|it| it.sequence);
        assert_eq!([(); 3].map(|()| next(&mut repairs)), [202, 200, 201].map(Some));
        assert!(!repairs.is_waiting());
        repairs.alternating_sent = 0;
        assert!(repairs.is_waiting());
    }

    #[test]
    fn a_member_that_requests_everything_fills_no_memory() {
        let mut repairs = repairs(RepairCast::Auto);
        for sequence in 1..2 * REQUESTS_MAX as u64 {
            ask(&mut repairs, 0, sequence, 1, (100, false, false));
        }
        assert_eq!(repairs.requested.len(), REQUESTS_MAX);
        assert_eq!(repairs.queue.len() + repairs.alternating.len(), REQUESTS_MAX);
        while repairs.next(at(0), REACH).is_some() {}
        ask(&mut repairs, MS, 1, 1, (100, false, false));
        assert!(repairs.requested.len() < 10, "{} are remembered", repairs.requested.len());
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
                        repairs.on_packet(sequence, false);
                        here.insert(sequence);
                    }
                    _ if !here.contains(&sequence) => {
                        repairs.await_packet(at(now), sequence, NodeId(node));
                        asked.insert((sequence, node));
                    }
                    _ => {
                        ask(&mut repairs, now, sequence, node, (1, false, false));
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
