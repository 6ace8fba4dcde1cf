//! Configurations and views: proposal, states, recovery, groups of all members.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::{Duration, Time};
use faircast_proto::fields::Fields;

use super::{Daemon, MESSAGE_BYTES_MAX};
use crate::cell::{GROUP_BYTES_MAX, Kind, PAYLOAD_BYTES_MAX, Service};
use crate::client::{ClientEvent, Reason};
use crate::group::{Groups, Mate};
use crate::ids::{Ballot, DaemonRun, LinkId, ROUND_MAX, Set};
use crate::mutant::{Mutant, breaks};
use crate::stream::{Ready, Streams};
use crate::topology::Graph;
use crate::wire::{Control, State, put_var, take_var};

/// Quiet time of the topology before a proposal: 100 ms.
const SETTLE: Duration = Duration::from_millis(100);
/// Longest time by which topology changes delay a proposal: 1 s.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// Length in bytes after which a page of the group table is full.
const PAGE_BYTES: usize = PAYLOAD_BYTES_MAX - 2 * (GROUP_BYTES_MAX + 1);
/// Time without progress, beyond the round trip to the furthest member, before a proposal is
/// repeated. A lost member is silent for 3 s before a proposal without it.
const STUCK: Duration = Duration::from_secs(5);
/// Maximum doublings of [`STUCK`]: busy hosts need longer, and each repetition restarts a change.
const DOUBLINGS_MAX: u32 = 3;
/// Longest round trip that counts, whatever other daemons advertise: 60 s.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(super) struct Proposal {
    pub(super) ballot: Ballot,
    pub(super) graph: Graph,
    pub(super) states: Vec<Option<State>>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) streams: Streams,
    pub(super) together: Set,
    /// True if these are all members of the old view and of the new one.
    pub(super) is_route_change: bool,
    /// Members of `together` that have sent all retransmissions, and those that have every cell.
    pub(super) sent: Set,
    pub(super) have: Set,
    pub(super) said_have: bool,
    pub(super) complete: Set,
    pub(super) groups: Vec<(Bytes, Mate, bool)>,
    /// Messages of members that are already in the new configuration.
    pub(super) waiting: Vec<Ready>,
}

impl Daemon {
    pub(super) fn latest(&self) -> &Graph {
        match (&self.proposal, &self.entry) {
            (Some(proposal), _) => &proposal.graph,
            (_, Some(entry)) => &entry.streams.graph,
            _ => &self.current.graph,
        }
    }

    pub(super) fn is_changing(&self) -> bool {
        self.proposal.is_some() || self.entry.is_some()
    }

    pub(super) fn propose(&mut self, now: Time) {
        let is_stuck = self.is_changing() && now >= self.stuck_at();
        let is_quiet = self
            .changed
            .is_some_and(|(last, first)| now >= last + SETTLE || now >= first + SETTLE_MAX);
        if !is_stuck && !is_quiet {
            return;
        }
        self.changed = None;
        let graph = self.database.component(self.me);
        // A member has refused the round, or waits for a change that this daemon has completed.
        let is_refused = self.accepted.round < self.round;
        let wanted = !self.latest().stands_in(&graph) || is_stuck || is_refused;
        if is_stuck {
            self.progress_at = now;
            self.repetitions = (self.repetitions + 1).min(DOUBLINGS_MAX);
        }
        let is_coordinator = graph.members[0] == self.me;
        if wanted && is_coordinator {
            let round = self.round + 1;
            self.accept(now, None, Ballot { round, coordinator: self.me }, graph);
        } else if is_stuck {
            // The coordinator may have completed the change that this daemon waits for.
            self.take_round(now, None, self.round + 1);
        }
    }

    /// Takes the greatest round of another daemon. A proposal of a lower round is repeated.
    pub(super) fn take_round(&mut self, now: Time, from: Option<LinkId>, round: u64) {
        if round > self.round && round < ROUND_MAX {
            self.round = round;
            self.flood(now, from, &Control::Round(round));
            self.note_change(now);
        }
    }

    pub(super) fn next_proposal(&self) -> Option<Time> {
        let quiet = self.changed.map(|(last, first)| (last + SETTLE).min(first + SETTLE_MAX));
        let stuck = self.is_changing().then(|| self.stuck_at());
        quiet.into_iter().chain(stuck).min()
    }

    fn stuck_at(&self) -> Time {
        self.progress_at + self.stuck_after * (1 << self.repetitions)
    }

    pub(super) fn accept(&mut self, now: Time, from: Option<LinkId>, ballot: Ballot, graph: Graph) {
        let Some(place) = graph.place(self.me) else { return };
        if ballot == self.accepted {
            return;
        }
        // Round numbers grow at every daemon, so two views here never share a round.
        if ballot.round <= self.accepted.round || !graph.is_connected() {
            self.round = self.round.max(self.accepted.round + 1);
            return self.flood(now, None, &Control::Round(self.round));
        }
        self.accepted = ballot;
        self.round = self.round.max(ballot.round);
        self.progress_at = now;
        let round_trip = graph.round_trip(place).min(ROUND_TRIP_MAX);
        self.stuck_after = STUCK + round_trip;
        self.flood(now, from, &Control::Propose(ballot, graph.clone()));
        // An unfinished entry is abandoned; the cells that it recovered remain.
        if let Some(entry) = self.entry.take() {
            let is_unfinished = entry.is_route_change && entry.said_have;
            self.unfinished = Some(entry).filter(|_| is_unfinished).or(self.unfinished.take());
        }
        let next = self.unfinished.as_ref().filter(|_| !breaks(Mutant::NoFollow));
        let next = next.map(|it| &it.streams);
        let next = next.map(|it| (it.ballot, it.time, it.held()));
        self.early.clear();
        let states = alloc::vec![None; graph.members.len()];
        self.proposal = Some(Proposal { ballot, graph, states });
        let state = State {
            config: self.current.ballot,
            view: self.view,
            time: self.current.time,
            streams: self.current.held(),
            next,
        };
        self.take_state(now, None, ballot, place, state);
    }

    pub(super) fn take_state(
        &mut self,
        now: Time,
        from: Option<LinkId>,
        ballot: Ballot,
        place: usize,
        state: State,
    ) {
        let Some(proposal) = self.proposal.as_mut().filter(|it| it.ballot == ballot) else {
            return;
        };
        let Some(slot) = proposal.states.get_mut(place).filter(|it| it.is_none()) else { return };
        *slot = Some(state.clone());
        self.progress_at = now;
        self.flood(now, from, &Control::State(ballot, place as u8, state));
        self.enter(now);
    }

    pub(super) fn enter(&mut self, now: Time) {
        let Some(proposal) = &self.proposal else { return };
        if proposal.states.contains(&None) {
            return;
        }
        let mut states: Vec<State> = proposal.states.iter().flatten().cloned().collect();
        let Some(me) = proposal.graph.place(self.me) else { return };
        let entered: BTreeSet<Ballot> = states.iter().map(|it| it.config).collect();
        for state in &mut states {
            if let Some((config, time, streams)) = state.next.take_if(|it| entered.contains(&it.0))
            {
                *state = State { config, time, streams, view: state.view, next: None };
            }
        }
        // The member that completed the change of routes had every cell, as had this daemon.
        self.entry = self.unfinished.take_if(|it| it.streams.ballot == states[me].config);
        self.reroute(now);
        let Some(proposal) = &self.proposal else { return };
        let same = |it: &State| (it.config, it.view) == (states[me].config, states[me].view);
        let old = &self.current.graph.members;
        let is_old = |place: usize| {
            breaks(Mutant::TogetherByMembers) && old.contains(&proposal.graph.members[place])
        };
        let together: Set = (0..states.len())
            .filter(|place| *place == me || same(&states[*place]) || is_old(*place))
            .collect();
        let is_route_change =
            *old == proposal.graph.members && together.iter().count() == old.len();
        let staying: Set = (0..old.len())
            .filter(|source| proposal.graph.place(old[*source]).is_some_and(|it| together.has(it)))
            .collect();
        let clock = |source: usize| {
            let clocks = together.iter().filter_map(|it| states[it].streams.get(source));
            clocks.map(|it| it.clock).max()
        };
        let lost = (0..old.len()).filter(|it| !staying.has(*it));
        // Lost members may have completed the change of routes and delivered all of its messages.
        let is_all_known =
            together.iter().any(|it| states[it].next.is_some()) && !breaks(Mutant::EndOfKnown);
        let until = lost.filter_map(clock).min().unwrap_or(u64::MAX);
        let known_until = if is_all_known { u64::MAX } else { until };
        let time = states.iter().map(|it| it.time).max().unwrap_or_default();
        let link_to = self.links(&proposal.graph);
        // Own cells, and as many again of each old member. Others' limits may be twice this one.
        let each = self.settings.retention_bytes.saturating_add(MESSAGE_BYTES_MAX);
        let kept_max = each.saturating_mul(2 * (1 + old.len()));
        let (ballot, graph) = (proposal.ballot, proposal.graph.clone());
        let mut streams = Streams::new(ballot, graph, me, time, &link_to, kept_max);
        // The source itself retransmits its cells, else the lowest member that has them.
        let mut again = Vec::new();
        for (source, member) in old.iter().enumerate() {
            if source == 0 && breaks(Mutant::NoRecovery) {
                continue;
            }
            let holders: Vec<usize> = {
                let own = proposal.graph.place(*member).filter(|it| together.has(*it));
                own.into_iter().chain(together.iter().filter(|it| Some(*it) != own)).collect()
            };
            let held = |place: usize| states[place].streams.get(source);
            for range in held(me).into_iter().flat_map(|it| it.cells.iter()) {
                for sequence in range {
                    let has = |place: &usize| {
                        held(*place).is_some_and(|it| it.cells.around(sequence).is_some())
                    };
                    let lacks = |place: &usize| {
                        held(*place).is_some_and(|it| it.through < sequence) && !has(place)
                    };
                    let to: Set = together.iter().filter(lacks).collect();
                    if to != Set::default() && holders.iter().find(|it| has(it)) == Some(&me) {
                        again.push((source, sequence, to));
                    }
                }
            }
        }
        (self.current.staying, self.current.known_until) = (staying, known_until);
        let mut ready = Vec::new();
        let mut send = |kind, to, payload: &[&[u8]]| {
            let what = (kind, Service::Reliable, true);
            streams.send(what, to, &[], &[], payload, &mut ready);
        };
        for (source, sequence, to) in again {
            if let Some(cell) = self.current.cell(source, sequence) {
                let mut head = alloc::vec![source as u8];
                put_var(&mut head, sequence);
                send(Kind::Recovered, to, &[&head, &cell]);
            }
        }
        send(Kind::Sent, Set::ALL, &[]);
        self.entry = Some(Entry {
            streams,
            together,
            is_route_change,
            sent: Set::default(),
            have: Set::default(),
            said_have: false,
            complete: Set::default(),
            groups: Vec::new(),
            waiting: Vec::new(),
        });
        self.proposal = None;
        self.progress_at = now;
        self.take_messages(now, ready);
        for (link, frame) in core::mem::take(&mut self.early) {
            self.take_data(now, link, frame);
        }
    }

    pub(super) fn links(&self, graph: &Graph) -> BTreeMap<usize, LinkId> {
        let link =
            |(place, member): (usize, &DaemonRun)| Some((place, self.neighbours.link_to(*member)?));
        graph.members.iter().enumerate().filter_map(link).collect()
    }

    pub(super) fn take_recovery(&mut self, now: Time, message: &Ready) {
        let Some(entry) = &mut self.entry else { return };
        if !entry.together.has(message.source) {
            return;
        }
        self.progress_at = now;
        match message.cell.kind {
            Kind::Recovered => {
                for part in &message.parts {
                    let mut fields = Fields(part);
                    if let (Some(source), Some(sequence)) =
                        (fields.read::<u8>(), take_var(&mut fields))
                    {
                        let cell = part.slice(part.len() - fields.0.len()..);
                        self.current.take_recovered(source.into(), sequence, cell);
                    }
                }
            }
            Kind::Sent => entry.sent = entry.sent.or(Set::of(message.source)),
            _ => entry.have = entry.have.or(Set::of(message.source)),
        }
        if entry.sent == entry.together && !entry.said_have {
            entry.said_have = true;
            let mut ready = Vec::new();
            let what = (Kind::Have, Service::Reliable, true);
            entry.streams.send_to_all(what, &[], &[], &[], &mut ready);
            for message in ready {
                self.take_message(now, message);
            }
        } else if entry.have == entry.together {
            if entry.is_route_change { self.reroute(now) } else { self.send_tables(now) }
        }
    }

    fn reroute(&mut self, now: Time) {
        let Some(Entry { mut streams, waiting, .. }) = self.entry.take() else { return };
        for message in self.current.rest() {
            if breaks(Mutant::TwiceOnReroute) {
                self.deliver(message.clone());
            }
            self.deliver(message);
        }
        streams.is_open = true;
        (self.current, self.unfinished, self.repetitions) = (streams, None, 0);
        self.groups.renumber();
        self.take_messages(now, waiting);
        // A client that left a group and rejoined asked for the leave first.
        self.catch_up(now);
        self.reroute_joins();
    }

    /// Sends the groups of own clients to all members, as of the end of the old view.
    fn send_tables(&mut self, now: Time) {
        let mut groups: BTreeMap<(Bytes, Mate), bool> = BTreeMap::new();
        for (group, members) in self.groups.iter() {
            let own = members.iter().filter(|it| it.daemon == self.me.id);
            let asks = |it: &Mate| self.groups.asks(group, it);
            groups.extend(own.map(|it| ((group.clone(), it.clone()), asks(it))));
        }
        for Ready { cell, .. } in
            self.current.rest().iter().filter(|it| it.source == self.current.me)
        {
            let mate = Mate::decode(self.me.id, &cell.client);
            match cell.kind {
                Kind::Joined => {
                    let asks = !cell.payload.is_empty();
                    groups.extend(cell.groups.copies().map(|it| ((it, mate.clone()), asks)));
                }
                Kind::Leave => {
                    cell.groups.copies().for_each(|it| _ = groups.remove(&(it, mate.clone())))
                }
                Kind::Gone => groups.retain(|it, _| it.1 != mate),
                _ => {}
            }
        }
        let mut pages: Vec<Vec<u8>> = alloc::vec![Vec::new()];
        for ((group, mate), asks) in groups {
            if pages.last().is_some_and(|it| it.len() > PAGE_BYTES) {
                pages.push(Vec::new());
            }
            let Some(page) = pages.last_mut() else { continue };
            for name in [group, mate.encode()] {
                page.push(name.len() as u8);
                page.extend_from_slice(&name);
            }
            page.push(u8::from(asks));
        }
        let Some(entry) = &mut self.entry else { return };
        let count = pages.len();
        let mut ready = Vec::new();
        for (i, page) in pages.into_iter().enumerate() {
            let what = (Kind::Table, Service::Reliable, true);
            let is_last = u8::from(i + 1 == count);
            let payload: [&[u8]; 2] = [&[is_last], &page];
            entry.streams.send_to_all(what, &[], &[], &payload, &mut ready);
        }
        self.take_messages(now, ready);
    }

    pub(super) fn take_table(&mut self, now: Time, message: Ready) {
        let Some(entry) = &mut self.entry else { return };
        let members = &entry.streams.graph.members;
        let Some(daemon) = members.get(message.source).map(|it| it.id) else { return };
        self.progress_at = now;
        let mut is_last = false;
        for part in &message.parts {
            let mut fields = Fields(part);
            is_last = fields.read::<u8>() == Some(1);
            let name = |fields: &mut Fields<'_>| {
                let len = usize::from(fields.read::<u8>()?);
                fields.bytes(len).map(|it| part.slice_ref(it))
            };
            while let (Some(group), Some(client), Some(asks)) =
                (name(&mut fields), name(&mut fields), fields.read::<u8>())
            {
                entry.groups.push((group, Mate::decode(daemon, &client), asks == 1));
            }
        }
        if is_last {
            entry.complete = entry.complete.or(Set::of(message.source));
        }
        if entry.complete.iter().count() == members.len() {
            self.begin(now);
        }
    }

    /// Returns the names of the daemons of the view.
    pub fn member_names(&self) -> Vec<String> {
        let name = |it: &DaemonRun| self.database.get(it.id).map(|it| it.name.clone());
        self.current.graph.members.iter().map(|it| name(it).unwrap_or_default()).collect()
    }

    /// Begins the view. Members that move together have every cell, and all groups are known.
    fn begin(&mut self, now: Time) {
        let Some(Entry { streams, together, groups, waiting, .. }) = self.entry.take() else {
            return;
        };
        (self.progress_at, self.repetitions) = (now, 0);
        let members = streams.graph.members.clone();
        let together: Vec<DaemonRun> = together.iter().map(|it| members[it]).collect();
        let closes = self.view;
        self.tell_all(ClientEvent::Transitional { closes, members: together.clone() });
        self.moving = together;
        for message in self.current.rest() {
            self.deliver(message);
        }
        let together = core::mem::take(&mut self.moving);
        (self.held, self.is_slow_new) = (BTreeSet::new(), true);
        self.frees += 1;
        let mut table = Groups::default();
        let mut joined = groups;
        joined.sort();
        for (group, mate, asks) in joined {
            if let Some(place) = members.iter().position(|it| it.id == mate.daemon) {
                table.join(group, mate, asks, (place, 0));
            }
        }
        if !breaks(Mutant::OldTable) {
            self.groups = table;
        }
        (self.view, self.current, self.unfinished) = (streams.ballot, streams, None);
        if breaks(Mutant::OneNumber) {
            self.view.round = 1;
        }
        let (names, id) = (self.member_names(), self.view);
        let previous = Some(closes);
        self.tell_all(ClientEvent::View { id, members, names, together, previous });
        // Changed or not: daemons from different views do not know each other's changes.
        let groups: Vec<Bytes> = self.groups.iter().map(|(group, _)| group.clone()).collect();
        for group in groups {
            self.tell_group(&group, Reason::Network, None, (0, 0, 0));
        }
        self.current.is_open = true;
        self.take_messages(now, waiting);
        self.catch_up(now);
        self.reroute_joins();
    }
}
