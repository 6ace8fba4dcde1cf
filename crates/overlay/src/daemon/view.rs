//! Changes of the view: proposals, states, recovery, and the begin of a configuration or view.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::Time;
use faircast_proto::fields::Fields;

use super::change::{Answer, DueStep};
use super::recovery::{Recovery, RecoveryPlan, RecoveryStep, follow_completed};
use super::{Daemon, MESSAGE_BYTES_MAX, tables};
use crate::cell::{Kind, Service};
use crate::client::{ClientEvent, Reason};
use crate::group::Groups;
use crate::ids::{DaemonRun, DaemonSet, LinkId, ViewId};
use crate::mutant::{Mutant, breaks};
use crate::stream::{CompleteMessage, Streams};
use crate::topology::Graph;
use crate::wire::{Control, MemberState, put_var, take_var};

const fn internal(kind: Kind) -> (Kind, Service, bool) {
    (kind, Service::Reliable, true)
}

impl Daemon {
    pub(super) fn propose(&mut self, now: Time) {
        let component = || self.adverts.database.component(self.me);
        match self.change.due_step(now, self.me, &self.current.graph, component) {
            None => {}
            Some(DueStep::Propose(config, graph)) => self.accept(now, None, config, graph),
            Some(DueStep::ReportRound(round)) => self.take_round(now, None, round),
        }
    }

    /// Takes the greatest round of another daemon. A proposal of a lower round is repeated.
    pub(super) fn take_round(&mut self, now: Time, from: Option<LinkId>, round: u64) {
        if self.change.note_round(round) {
            self.flood(now, from, &Control::Round(round));
            self.change.note_topology(now);
        }
    }

    pub(super) fn accept(&mut self, now: Time, from: Option<LinkId>, config: ViewId, graph: Graph) {
        let Some(rank) = graph.rank(self.me) else { return };
        match self.change.accept(now, config, &graph, rank) {
            Answer::Known => return,
            Answer::Refused(round) => return self.flood(now, None, &Control::Round(round)),
            Answer::Accepted => {}
        }
        self.flood(now, from, &Control::Propose(config, graph));
        let state = MemberState {
            config: self.current.config,
            view: self.view,
            time: self.current.time,
            streams: self.current.stream_states(),
            next: self.change.abandoned_state(),
        };
        self.take_state(now, None, (config, rank), state);
    }

    pub(super) fn take_state(
        &mut self,
        now: Time,
        from: Option<LinkId>,
        (config, rank): (ViewId, usize),
        state: MemberState,
    ) {
        if self.change.take_state(now, (config, rank), &state) {
            self.flood(now, from, &Control::State(config, rank as u8, state));
            self.begin_recovery(now);
        }
    }

    /// Begins the recovery once the states of all members have arrived.
    fn begin_recovery(&mut self, now: Time) {
        let Some(proposal) = &self.change.proposal else { return };
        let Some(mut states) = proposal.states() else { return };
        let Some(me) = proposal.graph.rank(self.me) else { return };
        let (config, graph) = (proposal.config, proposal.graph.clone());
        follow_completed(&mut states);
        // The member that completed the change of routes had every cell, as had this daemon.
        self.change.resume_abandoned(states[me].config);
        self.change_routes(now);
        let old = &self.current.graph.members;
        let plan = RecoveryPlan::new(old, &graph, me, &states);
        // Own cells, and as many again of each old member. Others' limits may be twice this one.
        let each = self.settings.retention_bytes.saturating_add(MESSAGE_BYTES_MAX);
        let retained_max = each.saturating_mul(2 * (1 + old.len()));
        let links = self.links_to(&graph);
        let streams = Streams::new(config, graph, me, plan.time, &links, retained_max);
        (self.current.remaining, self.current.order_known_until) =
            (plan.remaining, plan.order_known_until);
        let mut recovery = Recovery::new(streams, &plan);
        let mut complete = Vec::new();
        let mut send = |kind, to, payload: &[&[u8]]| {
            recovery.streams.send(internal(kind), to, &[], &[], payload, &mut complete);
        };
        for (source, sequence, to) in plan.retransmissions {
            if let Some(cell) = self.current.cell(source, sequence) {
                let mut head = alloc::vec![source as u8];
                put_var(&mut head, sequence);
                send(Kind::Recovered, to, &[&head, &cell]);
            }
        }
        send(Kind::RecoveryEnd, DaemonSet::ALL, &[]);
        self.change.begin_recovery(now, recovery);
        self.take_messages(now, complete);
        for (link, frame) in self.change.take_early() {
            self.take_data(now, link, frame);
        }
    }

    fn links_to(&self, graph: &Graph) -> BTreeMap<usize, LinkId> {
        let neighbours = &self.links.neighbours;
        let link = |(rank, member): (usize, &DaemonRun)| Some((rank, neighbours.link_to(*member)?));
        graph.members.iter().enumerate().filter_map(link).collect()
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
        let step = recovery.note(kind, source);
        let is_route_change = recovery.is_route_change;
        self.change.note_progress(now);
        match step {
            RecoveryStep::Wait => {}
            RecoveryStep::ReportAll => self.send_recovery(now, Kind::HasAllCells, &[[0; 0]]),
            RecoveryStep::Finish if is_route_change => self.change_routes(now),
            RecoveryStep::Finish => self.send_tables(now),
        }
    }

    /// Sends all members of the next configuration a cell for each payload.
    fn send_recovery<P: AsRef<[u8]>>(&mut self, now: Time, kind: Kind, payloads: &[P]) {
        let Some(recovery) = &mut self.change.recovery else { return };
        let mut complete = Vec::new();
        for payload in payloads {
            let payload = [payload.as_ref()];
            recovery.streams.send_to_all(internal(kind), &[], &[], &payload, &mut complete);
        }
        self.take_messages(now, complete);
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
        let pages = tables::pages(&self.groups, self.me.id, rest);
        self.send_recovery(now, Kind::Table, &pages);
    }

    pub(super) fn take_table(&mut self, now: Time, message: &CompleteMessage) {
        let Some(recovery) = &mut self.change.recovery else { return };
        let member = recovery.streams.graph.members.get(message.source);
        let Some(daemon) = member.map(|it| it.id) else { return };
        let mut is_last = false;
        for page in &message.parts {
            is_last = tables::read(page, daemon, &mut recovery.groups);
        }
        let are_all_known = recovery.note_table(message.source, is_last);
        self.change.note_progress(now);
        if are_all_known {
            self.begin_view(now);
        }
    }

    /// Returns the names of the daemons of the view.
    pub fn member_names(&self) -> Vec<String> {
        let name = |it: &DaemonRun| self.adverts.database.get(it.id).map(|it| it.name.clone());
        self.current.graph.members.iter().map(|it| name(it).unwrap_or_default()).collect()
    }

    /// Begins a view after the transitional view, in which the last messages of the old view are
    /// delivered. Members of the transitional set have every cell, and all groups are known.
    fn begin_view(&mut self, now: Time) {
        let Some(recovery) = self.change.recovery.take() else { return };
        let Recovery { mut streams, transitional_set, groups, early, .. } = recovery;
        self.change.note_progress(now);
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
        self.slow.begin_view();
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
