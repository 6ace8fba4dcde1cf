//! Recovery: members of one old view exchange missing cells, then all members their groups, in
//! pages with the memberships of their clients.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_proto::fields::Fields;

use crate::cell::{GROUP_BYTES_MAX, Kind, PAYLOAD_BYTES_MAX};
use crate::group::{Groups, MemberId};
use crate::ids::{DaemonId, DaemonRun, DaemonSet, ViewId};
use crate::mutant::{Mutant, breaks};
use crate::stream::{CompleteMessage, Streams};
use crate::topology::Graph;
use crate::wire::{MemberState, put_name, take_name};

/// Recovery of the old view's messages in the streams of the next configuration.
#[derive(Clone, Debug)]
pub(super) struct Recovery {
    pub(super) streams: Streams,
    /// Members of the next configuration that come from this daemon's view, by rank.
    pub(super) transitional_set: DaemonSet,
    /// True if the transitional set is the old view and the new one: only routes change.
    pub(super) is_route_change: bool,
    /// Members of the transitional set that have sent all retransmissions.
    pub(super) ended: DaemonSet,
    /// Members of the transitional set that have reported to have every cell.
    pub(super) has_all: DaemonSet,
    pub(super) has_reported_all: bool,
    pub(super) tables: DaemonSet,
    /// Group, member, and true if the member asks senders to wait for slow members.
    pub(super) groups: Vec<(Bytes, MemberId, bool)>,
    /// Messages of members that are already in the next configuration.
    pub(super) early: Vec<CompleteMessage>,
}

/// Consequences of the states of all members for one of them.
#[derive(Debug)]
pub(super) struct RecoveryPlan {
    pub(super) transitional_set: DaemonSet,
    pub(super) is_route_change: bool,
    /// Members of the old view in the transitional set, by their old rank.
    pub(super) remaining: DaemonSet,
    /// Lamport time up to which the messages of all lost sources are known.
    pub(super) order_known_until: u64,
    pub(super) time: u64,
    /// Source and number of each cell that this daemon retransmits, with the members lacking it.
    pub(super) retransmissions: Vec<(usize, u64, DaemonSet)>,
}

impl RecoveryPlan {
    /// Plans the recovery of the member `me` of `graph`, which comes from the view of `old`.
    pub(super) fn new(old: &[DaemonRun], graph: &Graph, me: usize, states: &[MemberState]) -> Self {
        let own = &states[me];
        let is_together = |rank: &usize| {
            let it = &states[*rank];
            (it.config, it.view) == (own.config, own.view)
                || breaks(Mutant::TogetherByMembers) && old.contains(&graph.members[*rank])
        };
        let transitional_set: DaemonSet = (0..states.len()).filter(is_together).collect();
        let remaining: DaemonSet = (0..old.len())
            .filter(|it| graph.rank(old[*it]).is_some_and(|it| transitional_set.has(it)))
            .collect();
        let clock = |source: usize| {
            let states = transitional_set.iter().filter_map(|it| states[it].streams.get(source));
            states.map(|it| it.clock).max()
        };
        let lost = (0..old.len()).filter(|it| !remaining.has(*it));
        let until = lost.filter_map(clock).min().unwrap_or(u64::MAX);
        // Lost members may have completed the change of routes and delivered all of its messages.
        let is_all_known = transitional_set.iter().any(|it| states[it].next.is_some())
            && !breaks(Mutant::EndOfKnown);
        Self {
            transitional_set,
            is_route_change: old == graph.members && transitional_set.iter().count() == old.len(),
            remaining,
            order_known_until: if is_all_known { u64::MAX } else { until },
            time: states.iter().map(|it| it.time).max().unwrap_or_default(),
            retransmissions: retransmissions(old, graph, me, (states, transitional_set)),
        }
    }
}

/// The source itself retransmits its cells, else the lowest member that has them.
fn retransmissions(
    old: &[DaemonRun],
    graph: &Graph,
    me: usize,
    (states, transitional_set): (&[MemberState], DaemonSet),
) -> Vec<(usize, u64, DaemonSet)> {
    let mut own = Vec::new();
    for (source, member) in old.iter().enumerate() {
        if source == 0 && breaks(Mutant::NoRecovery) {
            continue;
        }
        let holder = graph.rank(*member).filter(|it| transitional_set.has(*it));
        let others = transitional_set.iter().filter(|it| Some(*it) != holder);
        let holders: Vec<usize> = holder.into_iter().chain(others).collect();
        let stream = |rank: usize| states[rank].streams.get(source);
        for sequence in stream(me).into_iter().flat_map(|it| it.cells.iter()).flatten() {
            let has =
                |rank: &usize| stream(*rank).is_some_and(|it| it.cells.around(sequence).is_some());
            let lacks =
                |rank: &usize| stream(*rank).is_some_and(|it| it.through < sequence) && !has(rank);
            let to: DaemonSet = transitional_set.iter().filter(lacks).collect();
            if to != DaemonSet::default() && holders.iter().find(|it| has(it)) == Some(&me) {
                own.push((source, sequence, to));
            }
        }
    }
    own
}

/// Replaces the states of members that have not completed a change of routes by the states after
/// the change, if another member has completed the change: they have every cell, too.
pub(super) fn follow_completed(states: &mut [MemberState]) {
    let entered: BTreeSet<ViewId> = states.iter().map(|it| it.config).collect();
    for state in states {
        if let Some((config, time, streams)) = state.next.take_if(|it| entered.contains(&it.0)) {
            *state = MemberState { config, time, streams, view: state.view, next: None };
        }
    }
}

/// Length in bytes after which a page is full: the longest membership still fits.
const PAGE_BYTES: usize = PAYLOAD_BYTES_MAX - 2 * (GROUP_BYTES_MAX + 1);

/// Returns the memberships of the clients of `daemon` after the messages `rest`, which end the
/// old view.
pub(super) fn table_pages(
    groups: &Groups,
    daemon: DaemonId,
    rest: impl Iterator<Item = CompleteMessage>,
) -> Vec<Vec<u8>> {
    let mut own: BTreeMap<(Bytes, MemberId), bool> = BTreeMap::new();
    for (group, members) in groups.iter() {
        let here = members.iter().filter(|it| it.daemon == daemon);
        own.extend(here.map(|it| ((group.clone(), it.clone()), groups.holds_senders(group, it))));
    }
    for CompleteMessage { cell, .. } in rest {
        let member = MemberId::decode(daemon, &cell.client);
        let names = cell.groups.copies().map(|it| (it, member.clone()));
        match cell.kind {
            Kind::Joined => own.extend(names.map(|it| (it, !cell.payload.is_empty()))),
            Kind::Leave => names.for_each(|it| _ = own.remove(&it)),
            Kind::Disconnect => own.retain(|it, _| it.1 != member),
            _ => {}
        }
    }
    // The first byte of a page is 1 if no page follows.
    let mut pages = alloc::vec![alloc::vec![0]];
    for ((group, member), holds_senders) in own {
        if pages.last().is_some_and(|it| it.len() > 1 + PAGE_BYTES) {
            pages.push(alloc::vec![0]);
        }
        let Some(page) = pages.last_mut() else { continue };
        for name in [group, member.encode()] {
            put_name(page, &name);
        }
        page.push(u8::from(holds_senders));
    }
    if let Some(last) = pages.last_mut() {
        last[0] = 1;
    }
    pages
}

/// Reads a page into `groups`. True if it is the last page of `daemon`.
pub(super) fn read_page(
    page: &Bytes,
    daemon: DaemonId,
    groups: &mut Vec<(Bytes, MemberId, bool)>,
) -> bool {
    let mut fields = Fields(page);
    let is_last = fields.read::<u8>() == Some(1);
    let name = |fields: &mut Fields<'_>| take_name(page, fields);
    while let (Some(group), Some(client), Some(holds_senders)) =
        (name(&mut fields), name(&mut fields), fields.read::<u8>())
    {
        groups.push((group, MemberId::decode(daemon, &client), holds_senders == 1));
    }
    is_last
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;
    use crate::ids::DaemonId;
    use crate::wire::StreamState;

    fn run(id: u64) -> DaemonRun {
        DaemonRun { id: DaemonId(id), incarnation: 1 }
    }

    fn config(round: u64) -> ViewId {
        ViewId { round, coordinator: run(0) }
    }

    /// State of a member of view `round`: cells of each source, and its clock.
    fn state(round: u64, streams: &[(core::ops::Range<u64>, u64)]) -> MemberState {
        let stream = |(cells, clock): &(core::ops::Range<u64>, u64)| {
            let mut state =
                StreamState { through: cells.end - 1, clock: *clock, ..StreamState::default() };
            state.cells.insert(cells.clone());
            state
        };
        let streams = streams.iter().map(stream).collect();
        MemberState { config: config(round), view: config(round), streams, ..Default::default() }
    }

    #[test]
    fn each_missing_cell_is_retransmitted_once_and_lost_sources_end_at_their_least_clock() {
        let old = [0, 1, 2].map(run);
        // Daemon 2 is lost, and daemon 3 comes from another view.
        let graph = Graph { members: [0, 1, 3].map(run).to_vec(), edges: Vec::new() };
        let states = [
            state(7, &[(1..4, 30), (1..3, 20), (1..3, 8)]),
            state(7, &[(1..2, 10), (1..3, 20), (1..5, 9)]),
            state(5, &[(1..9, 90)]),
        ];
        let plans = [0, 1, 2].map(|me| RecoveryPlan::new(&old, &graph, me, &states));
        let to = DaemonSet::of;
        assert_eq!(plans[0].retransmissions, [(0, 2, to(1)), (0, 3, to(1))]);
        assert_eq!(plans[1].retransmissions, [(2, 3, to(0)), (2, 4, to(0))]);
        assert_eq!(plans[0].transitional_set, to(0).or(to(1)));
        assert_eq!(plans[0].order_known_until, 9);
        assert_eq!(plans[2].transitional_set, to(2));
        assert!(plans.iter().all(|it| !it.is_route_change));
    }

    #[test]
    fn a_member_follows_a_change_of_routes_that_another_one_has_completed() {
        let after = state(8, &[(1..2, 5)]);
        let mut before = state(7, &[(1..2, 5)]);
        before.next = Some((config(8), 0, after.streams.clone()));
        let mut states = [before.clone(), MemberState { view: config(7), ..after }];
        follow_completed(&mut states);
        assert_eq!(states[0], states[1]);
        let mut alone = [before.clone()];
        follow_completed(&mut alone);
        assert_eq!(alone, [before]);
    }

    #[test]
    fn memberships_of_many_pages_are_read_back() {
        let (daemon, mut groups) = (DaemonId(1), Groups::default());
        let member = |id, name: &'static str| MemberId {
            daemon: DaemonId(id),
            name: name.into(),
            incarnation: 7,
        };
        for i in 0..500 {
            let group = Bytes::from(format!("{i:0>64}"));
            groups.join(group.clone(), member(1, "a"), i % 2 == 0, (0, 0));
            groups.join(group, member(2, "b"), true, (1, 0));
        }
        let pages = table_pages(&groups, daemon, [].into_iter());
        assert!(pages.len() > 2 && pages.iter().all(|it| it.len() < PAYLOAD_BYTES_MAX));
        let mut got = Vec::new();
        for (i, page) in pages.iter().enumerate() {
            let is_last = i + 1 == pages.len();
            assert_eq!(read_page(&page.clone().into(), daemon, &mut got), is_last);
        }
        assert_eq!(got.len(), 500);
        assert!(got.iter().all(|it| it.1 == member(1, "a")));
        assert_eq!(got.iter().filter(|it| it.2).count(), 250);
    }
}
