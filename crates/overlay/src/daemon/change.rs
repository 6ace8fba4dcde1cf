//! Change of the view or its routes: proposals, states of the members, repetition, recovery, and
//! the begin of a configuration or view.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::{Duration, Time, fresh};
use faircast_proto::fields::Fields;

use super::recovery::{Recovery, RecoveryPlan, follow_completed, read_page, table_pages};
use super::{Daemon, MESSAGE_BYTES_MAX};
use crate::cell::Kind;
use crate::client::{ClientEvent, Reason};
use crate::group::Groups;
use crate::ids::{DaemonRun, DaemonSet, LinkId, ROUND_MAX, ViewId};
use crate::mutant::{Mutant, breaks};
use crate::stream::{CompleteMessage, Streams};
use crate::topology::Graph;
use crate::wire::{Control, MemberState, put_var, take_var};

/// Quiet time of the topology before a proposal: 100 ms.
const SETTLE: Duration = Duration::from_millis(100);
/// Longest time by which topology changes delay a proposal: 1 s.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// Time without progress, beyond the round trip to the furthest member, before a proposal is
/// repeated. A lost member is silent for 3 s before a proposal without it.
const STUCK: Duration = Duration::from_secs(5);
/// Maximum doublings of [`STUCK`]: busy hosts need longer, and each repetition restarts a change.
const DOUBLINGS_MAX: u32 = 3;
/// Longest round trip that counts, whatever other daemons advertise: 60 s.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(60);
/// Maximum number of early data frames, for a configuration that has not begun here.
const EARLY_MAX: usize = 4096;

#[derive(Clone, Debug)]
pub(super) struct Proposal {
    pub(super) config: ViewId,
    pub(super) graph: Graph,
    pub(super) states: Vec<Option<MemberState>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ViewChange {
    /// Configuration that this daemon accepted last. Rounds of accepted configurations grow.
    accepted: ViewId,
    round: u64,
    pub(super) proposal: Option<Proposal>,
    pub(super) recovery: Option<Recovery>,
    /// Abandoned change of routes with every cell here: others may have completed the change.
    pub(super) abandoned: Option<Recovery>,
    /// Data frames of the proposed configuration, whose recovery has not begun here.
    pub(super) early: Vec<(LinkId, Bytes)>,
    /// Times of the last and the first change of the topology since the last proposal.
    topology_changed_at: Option<(Time, Time)>,
    pub(super) progress_at: Time,
    /// Time without progress after which the first proposal is repeated.
    stuck_after: Duration,
    /// Repeated proposals since the last completed change. Each one doubles `stuck_after`.
    repetitions: u32,
}

impl ViewChange {
    pub(super) fn new(now: Time, config: ViewId) -> Self {
        Self { accepted: config, round: config.round, progress_at: now, ..Self::default() }
    }

    pub(super) const fn is_in_progress(&self) -> bool {
        self.proposal.is_some() || self.recovery.is_some()
    }

    pub(super) fn note_topology(&mut self, now: Time) {
        let first = self.topology_changed_at.map_or(now, |it| it.1);
        self.topology_changed_at = Some((now, first));
    }

    fn quiet_at(&self) -> Option<Time> {
        self.topology_changed_at.map(|(last, first)| (last + SETTLE).min(first + SETTLE_MAX))
    }

    fn stuck_at(&self) -> Option<Time> {
        let after = self.stuck_after * (1 << self.repetitions);
        self.is_in_progress().then(|| self.progress_at + after)
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.quiet_at().into_iter().chain(self.stuck_at()).min()
    }

    pub(super) fn keep_early(&mut self, config: ViewId, link: LinkId, frame: Bytes) {
        let is_next = self.proposal.as_ref().is_some_and(|it| it.config == config);
        if is_next && self.early.len() < EARLY_MAX {
            self.early.push((link, frame));
        }
    }

    pub(super) fn complete(&mut self) {
        (self.abandoned, self.repetitions) = (None, 0);
    }
}

impl Daemon {
    pub(super) fn propose(&mut self, now: Time) {
        let change = &mut self.change;
        let is_stuck = change.stuck_at().is_some_and(|at| now >= at);
        if !is_stuck && change.quiet_at().is_none_or(|at| now < at) {
            return;
        }
        change.topology_changed_at = None;
        let graph = self.database.component(self.me);
        let latest = match (&change.proposal, &change.recovery) {
            (Some(proposal), _) => &proposal.graph,
            (_, Some(recovery)) => &recovery.streams.graph,
            _ => &self.current.graph,
        };
        // A member has refused the round, or waits for a change that this daemon has completed.
        let is_refused = change.accepted.round < change.round;
        let is_wanted = !latest.stands_in(&graph) || is_stuck || is_refused;
        if is_stuck {
            change.progress_at = now;
            change.repetitions = (change.repetitions + 1).min(DOUBLINGS_MAX);
        }
        let (round, coordinator) = (change.round + 1, self.me);
        if is_wanted && graph.members[0] == coordinator {
            self.accept(now, None, ViewId { round, coordinator }, graph);
        } else if is_stuck {
            // The coordinator may have completed the change that this daemon waits for.
            self.take_round(now, None, round);
        }
    }

    /// Takes the greatest round of another daemon. A proposal of a lower round is repeated.
    pub(super) fn take_round(&mut self, now: Time, from: Option<LinkId>, round: u64) {
        if round > self.change.round && round < ROUND_MAX {
            self.change.round = round;
            self.flood(now, from, &Control::Round(round));
            self.change.note_topology(now);
        }
    }

    pub(super) fn accept(&mut self, now: Time, from: Option<LinkId>, config: ViewId, graph: Graph) {
        let change = &mut self.change;
        let Some(rank) = graph.rank(self.me).filter(|_| config != change.accepted) else { return };
        // Round numbers grow at every daemon, so two views here never share a round.
        if config.round <= change.accepted.round || !graph.is_connected() {
            change.round = change.round.max(change.accepted.round + 1);
            let refusal = Control::Round(change.round);
            return self.flood(now, None, &refusal);
        }
        change.accepted = config;
        change.round = change.round.max(config.round);
        change.progress_at = now;
        change.stuck_after = STUCK + graph.round_trip(rank).min(ROUND_TRIP_MAX);
        // An unfinished recovery is abandoned; the cells that it recovered remain.
        let recovery = change.recovery.take();
        if recovery.as_ref().is_some_and(|it| it.is_route_change && it.has_reported_all) {
            change.abandoned = recovery;
        }
        change.early.clear();
        let states = alloc::vec![None; graph.members.len()];
        change.proposal = Some(Proposal { config, graph: graph.clone(), states });
        let next = change.abandoned.as_ref().filter(|_| !breaks(Mutant::NoFollow));
        let state = MemberState {
            config: self.current.config,
            view: self.view,
            time: self.current.time,
            streams: self.current.stream_states(),
            next: next.map(|Recovery { streams: it, .. }| (it.config, it.time, it.stream_states())),
        };
        self.flood(now, from, &Control::Propose(config, graph));
        self.take_state(now, None, (config, rank), state);
    }

    /// Takes a member's state in the current proposal, and floods it if it is new.
    pub(super) fn take_state(
        &mut self,
        now: Time,
        from: Option<LinkId>,
        (config, rank): (ViewId, usize),
        state: MemberState,
    ) {
        let proposal = self.change.proposal.as_mut().filter(|it| it.config == config);
        let slot = proposal.and_then(|it| it.states.get_mut(rank)).filter(|it| it.is_none());
        let Some(slot) = slot else { return };
        *slot = Some(state.clone());
        self.change.progress_at = now;
        self.flood(now, from, &Control::State(config, rank as u8, state));
        self.begin_recovery(now);
    }
}

impl Daemon {
    /// Begins the recovery once the states of all members have arrived.
    pub(super) fn begin_recovery(&mut self, now: Time) {
        let Some(proposal) = &self.change.proposal else { return };
        let states: Option<Vec<_>> = proposal.states.iter().cloned().collect();
        let Some(mut states) = states else { return };
        let Some(me) = proposal.graph.rank(self.me) else { return };
        let (config, graph) = (proposal.config, proposal.graph.clone());
        follow_completed(&mut states);
        // The member that completed the change of routes had every cell, as had this daemon.
        let completed = states[me].config;
        self.change.recovery = self.change.abandoned.take_if(|it| it.streams.config == completed);
        self.change_routes(now);
        let old = &self.current.graph.members;
        let plan = RecoveryPlan::new(old, &graph, me, &states);
        // Own cells, and as many again of each old member. Others' limits may be twice this one.
        let each = self.settings.retention_bytes.saturating_add(MESSAGE_BYTES_MAX);
        let retained_max = each.saturating_mul(2 * (1 + old.len()));
        let link =
            |(rank, member): (usize, &DaemonRun)| Some((rank, self.neighbours.link_to(*member)?));
        let links = graph.members.iter().enumerate().filter_map(link).collect();
        let streams = Streams::new(config, graph, me, plan.time, &links, retained_max);
        (self.current.remaining, self.current.order_known_until) =
            (plan.remaining, plan.order_known_until);
        let RecoveryPlan { transitional_set, is_route_change, .. } = plan;
        let mut recovery = fresh! {
            Recovery { streams, transitional_set, is_route_change, }
            ended, has_all, has_reported_all, tables, groups, early
        };
        let mut send =
            |kind, to, payload: &[&[u8]]| recovery.streams.send_step(kind, to, (&[], &[]), payload);
        for (source, sequence, to) in plan.retransmissions {
            if let Some(cell) = self.current.cell(source, sequence) {
                let mut head = alloc::vec![source as u8];
                put_var(&mut head, sequence);
                send(Kind::Recovered, to, &[&head, &cell]);
            }
        }
        let end = send(Kind::RecoveryEnd, DaemonSet::ALL, &[]);
        (self.change.recovery, self.change.proposal) = (Some(recovery), None);
        self.change.progress_at = now;
        self.take_messages(now, end);
        for (link, frame) in core::mem::take(&mut self.change.early) {
            self.take_data(now, link, frame);
        }
    }

    pub(super) fn take_recovery(&mut self, now: Time, message: &CompleteMessage) {
        let Some(recovery) = &mut self.change.recovery else { return };
        let (kind, source) = (message.cell.kind, message.source);
        if !recovery.transitional_set.has(source) {
            return;
        }
        if kind == Kind::Recovered {
            for part in &message.parts {
                let mut fields = Fields(part);
                if let (Some(source), Some(sequence)) = (fields.read::<u8>(), take_var(&mut fields))
                {
                    let cell = part.slice(part.len() - fields.0.len()..);
                    self.current.take_recovered(source.into(), sequence, cell);
                }
            }
        }
        match kind {
            Kind::RecoveryEnd => recovery.ended.set(source, true),
            Kind::HasAllCells => recovery.has_all.set(source, true),
            _ => {}
        }
        self.change.progress_at = now;
        let all = recovery.transitional_set;
        if recovery.ended == all && !recovery.has_reported_all {
            recovery.has_reported_all = true;
            self.send_recovery(now, Kind::HasAllCells, &[[0; 0]]);
        } else if recovery.has_all == all && recovery.is_route_change {
            self.change_routes(now);
        } else if recovery.has_all == all {
            self.send_tables(now);
        }
    }

    fn send_recovery<P: AsRef<[u8]>>(&mut self, now: Time, kind: Kind, payloads: &[P]) {
        for payload in payloads {
            let Some(recovery) = &mut self.change.recovery else { return };
            let payload = [payload.as_ref()];
            let cell = recovery.streams.send_step(kind, DaemonSet::ALL, (&[], &[]), &payload);
            self.take_messages(now, cell);
        }
    }

    /// Begins a configuration of the same view with other routes.
    fn change_routes(&mut self, now: Time) {
        let Some(Recovery { mut streams, early, .. }) = self.change.recovery.take() else { return };
        for message in self.current.undelivered() {
            if breaks(Mutant::TwiceOnReroute) {
                self.deliver(message.clone());
            }
            self.deliver(message);
        }
        streams.is_begun = true;
        self.current = streams;
        self.change.complete();
        self.groups.renumber();
        self.take_messages(now, early);
        // A client that left a group and rejoined asked for the leave first.
        self.send_waiting_steps(now);
        self.announce_joins(now);
    }

    /// Sends the groups of own clients to all members, as of the end of the old view.
    fn send_tables(&mut self, now: Time) {
        let me = self.current.me;
        let rest = self.current.undelivered().into_iter().filter(|it| it.source == me);
        let pages = table_pages(&self.groups, self.me.id, rest);
        self.send_recovery(now, Kind::Table, &pages);
    }

    pub(super) fn take_table(&mut self, now: Time, message: &CompleteMessage) {
        let Some(recovery) = &mut self.change.recovery else { return };
        let member = recovery.streams.graph.members.get(message.source);
        let Some(daemon) = member.map(|it| it.id) else { return };
        let mut is_last = false;
        for page in &message.parts {
            is_last = read_page(page, daemon, &mut recovery.groups);
        }
        if is_last {
            recovery.tables.set(message.source, true);
        }
        self.change.progress_at = now;
        if recovery.tables.iter().count() == recovery.streams.graph.members.len() {
            self.begin_view(now);
        }
    }

    /// Returns the names of the daemons of the view.
    pub fn member_names(&self) -> Vec<String> {
        let name = |it: &DaemonRun| self.database.get(it.id).map(|it| it.name.clone());
        self.current.graph.members.iter().map(|it| name(it).unwrap_or_default()).collect()
    }

    /// Begins a view after the transitional view, in which the last messages of the old view are
    /// delivered. Members of the transitional set have every cell, and all groups are known.
    fn begin_view(&mut self, now: Time) {
        let Some(recovery) = self.change.recovery.take() else { return };
        let Recovery { mut streams, transitional_set, groups, early, .. } = recovery;
        self.change.progress_at = now;
        self.change.complete();
        let members = streams.graph.members.clone();
        let together: Vec<DaemonRun> = transitional_set.iter().map(|it| members[it]).collect();
        let closes = self.view;
        self.notify_all(ClientEvent::Transitional { closes, members: together.clone() });
        self.transitional_set = together;
        for message in self.current.undelivered() {
            self.deliver(message);
        }
        let together = core::mem::take(&mut self.transitional_set);
        // No daemon knows the slow members of others yet.
        (self.slow.held, self.slow.is_news) = (BTreeSet::new(), true);
        self.slow.releases += 1;
        if !breaks(Mutant::OldTable) {
            self.groups = Groups::of_tables(groups, &members);
        }
        self.view = streams.config;
        if breaks(Mutant::OneNumber) {
            self.view.round = 1;
        }
        streams.is_begun = true;
        self.current = streams;
        let (names, id) = (self.member_names(), self.view);
        let previous = Some(closes);
        self.notify_all(ClientEvent::View { id, members, names, together, previous });
        // Changed or not: daemons from different views do not know each other's changes.
        let groups: Vec<Bytes> = self.groups.iter().map(|(group, _)| group.clone()).collect();
        for group in groups {
            self.notify_group(&group, Reason::Network, None, (0, 0, 0));
        }
        self.take_messages(now, early);
        self.send_waiting_steps(now);
        self.announce_joins(now);
    }
}
