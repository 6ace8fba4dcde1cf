//! Change of the view or its routes: proposal, states of the members, recovery, repetition.

use alloc::vec::Vec;

use bytes::Bytes;
use faircast_base::{Duration, Time};

use super::recovery::Recovery;
use crate::ids::{DaemonRun, LinkId, ROUND_MAX, ViewId};
use crate::mutant::{Mutant, breaks};
use crate::topology::Graph;
use crate::wire::{MemberState, StreamState};

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
    states: Vec<Option<MemberState>>,
}

impl Proposal {
    /// Returns the states of all members once every state has arrived.
    pub(super) fn states(&self) -> Option<Vec<MemberState>> {
        self.states.iter().cloned().collect()
    }
}

/// Step that a change is due for.
pub(super) enum DueStep {
    Propose(ViewId, Graph),
    /// Flood of a greater round, for a coordinator that has completed what this daemon waits for.
    ReportRound(u64),
}

/// Answer to a proposal.
pub(super) enum Answer {
    Known,
    /// Refusal, with the least round that this daemon accepts.
    Refused(u64),
    Accepted,
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
    abandoned: Option<Recovery>,
    /// Data frames of the proposed configuration, whose recovery has not begun here.
    early: Vec<(LinkId, Bytes)>,
    /// Times of the last and the first change of the topology since the last proposal.
    topology_changed_at: Option<(Time, Time)>,
    progress_at: Time,
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

    pub(super) const fn note_progress(&mut self, now: Time) {
        self.progress_at = now;
    }

    /// Notes the round of another daemon. True if the round is new and must be flooded.
    pub(super) const fn note_round(&mut self, round: u64) -> bool {
        let is_new = round > self.round && round < ROUND_MAX;
        if is_new {
            self.round = round;
        }
        is_new
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

    /// Returns the due step of the daemon `me`, if any. `component`: daemons that reach each other.
    pub(super) fn due_step(
        &mut self,
        now: Time,
        me: DaemonRun,
        current: &Graph,
        component: impl FnOnce() -> Graph,
    ) -> Option<DueStep> {
        let is_stuck = self.stuck_at().is_some_and(|at| now >= at);
        if !is_stuck && self.quiet_at().is_none_or(|at| now < at) {
            return None;
        }
        self.topology_changed_at = None;
        let graph = component();
        let latest = match (&self.proposal, &self.recovery) {
            (Some(proposal), _) => &proposal.graph,
            (_, Some(recovery)) => &recovery.streams.graph,
            _ => current,
        };
        // A member has refused the round, or waits for a change that this daemon has completed.
        let is_refused = self.accepted.round < self.round;
        let is_wanted = !latest.stands_in(&graph) || is_stuck || is_refused;
        if is_stuck {
            self.progress_at = now;
            self.repetitions = (self.repetitions + 1).min(DOUBLINGS_MAX);
        }
        let round = self.round + 1;
        if is_wanted && graph.members[0] == me {
            return Some(DueStep::Propose(ViewId { round, coordinator: me }, graph));
        }
        is_stuck.then_some(DueStep::ReportRound(round))
    }

    /// Handles the proposal of a configuration in which this daemon has `rank`.
    pub(super) fn accept(
        &mut self,
        now: Time,
        config: ViewId,
        graph: &Graph,
        rank: usize,
    ) -> Answer {
        if config == self.accepted {
            return Answer::Known;
        }
        // Round numbers grow at every daemon, so two views here never share a round.
        if config.round <= self.accepted.round || !graph.is_connected() {
            self.round = self.round.max(self.accepted.round + 1);
            return Answer::Refused(self.round);
        }
        self.accepted = config;
        self.round = self.round.max(config.round);
        self.progress_at = now;
        self.stuck_after = STUCK + graph.round_trip(rank).min(ROUND_TRIP_MAX);
        // An unfinished recovery is abandoned; the cells that it recovered remain.
        if let Some(recovery) = self.recovery.take()
            && recovery.is_route_change
            && recovery.has_reported_all
        {
            self.abandoned = Some(recovery);
        }
        self.early.clear();
        let states = alloc::vec![None; graph.members.len()];
        self.proposal = Some(Proposal { config, graph: graph.clone(), states });
        Answer::Accepted
    }

    /// Returns the abandoned change of routes that others may have completed, for the own state.
    pub(super) fn abandoned_state(&self) -> Option<(ViewId, u64, Vec<StreamState>)> {
        let abandoned = self.abandoned.as_ref().filter(|_| !breaks(Mutant::NoFollow));
        let streams = abandoned.map(|it| &it.streams);
        streams.map(|it| (it.config, it.time, it.stream_states()))
    }

    /// Takes a member's state. False if the state is not of the current proposal, or not new.
    pub(super) fn take_state(
        &mut self,
        now: Time,
        (config, rank): (ViewId, usize),
        state: &MemberState,
    ) -> bool {
        let proposal = self.proposal.as_mut().filter(|it| it.config == config);
        let slot = proposal.and_then(|it| it.states.get_mut(rank)).filter(|it| it.is_none());
        let is_new = slot.map(|slot| *slot = Some(state.clone())).is_some();
        if is_new {
            self.progress_at = now;
        }
        is_new
    }

    /// Resumes the abandoned change of routes if another member has completed it.
    pub(super) fn resume_abandoned(&mut self, completed: ViewId) {
        self.recovery = self.abandoned.take_if(|it| it.streams.config == completed);
    }

    /// Replaces the proposal by its recovery.
    pub(super) fn begin_recovery(&mut self, now: Time, recovery: Recovery) {
        (self.recovery, self.proposal, self.progress_at) = (Some(recovery), None, now);
    }

    pub(super) fn take_early(&mut self) -> Vec<(LinkId, Bytes)> {
        core::mem::take(&mut self.early)
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
