//! Recovery, and the begin of a configuration or view.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::{Time, fresh};
use faircast_proto::fields::Fields;

use super::recovery::{Recovery, RecoveryPlan, follow_completed};
use super::{Daemon, MESSAGE_BYTES_MAX, tables};
use crate::cell::Kind;
use crate::client::{ClientEvent, Reason};
use crate::group::Groups;
use crate::ids::{DaemonRun, DaemonSet};
use crate::mutant::{Mutant, breaks};
use crate::stream::{CompleteMessage, Streams};
use crate::wire::{put_var, take_var};

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

    /// Sends all members of the next configuration a cell for each payload.
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
