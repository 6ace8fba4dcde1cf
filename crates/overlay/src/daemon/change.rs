//! Change of the view or its routes: proposals, states of the members, repetition.

use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::{Duration, Time};

use super::Daemon;
use super::recovery::Recovery;
use crate::ids::{LinkId, ROUND_MAX, ViewId};
use crate::mutant::{Mutant, breaks};
use crate::topology::Graph;
use crate::wire::{Control, MemberState};

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
    /// State of each member, once it has arrived.
    pub(super) states: Vec<Option<MemberState>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ViewChange {
    /// Configuration that this daemon accepted last. Rounds of accepted configurations grow.
    accepted: ViewId,
    /// Greatest round that is known.
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

    /// Keeps a data frame of the proposed configuration until its recovery begins.
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
    /// Proposes a configuration of the daemons that reach each other, if one is due.
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
