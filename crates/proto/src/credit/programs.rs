//! Programs of sessions: a policy that a relay lacks is fetched from the node above, checked by its hash, loaded, kept and
//! started.

mod running;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Duration, FlowId, NodeId, Time};

use super::settings::{AnyPolicy, PolicyId};
use super::wire::{Capsule, PART_BYTES_MAX, Part, Pull};
use crate::relay::PortId;
pub(crate) use running::ProgramPolicy;
pub use running::{Loaded, PendingLoad, ProgramFault, ProgramHost, RunningProgram, SessionProgram};

// All bounds here are chosen: the paper runs whatever its packets bring.

/// Bytes of a program at most: the seven policies have 2 to 3 kB.
pub const PROGRAM_BYTES_MAX: u32 = 64 << 10;
/// Parts that answer one request.
const PARTS_AT_ONCE: u32 = 8;
/// Programs that are fetched at the same time; sessions with others pass as by any router.
const FETCHES_MAX: usize = 8;
/// When what was asked for is asked for again at first, and at last.
const ASK_AGAIN: Duration = Duration::from_millis(200);
const ASK_AGAIN_MAX: Duration = Duration::from_secs(1);
/// A fetch is given up after so many requests without an answer, 3.4 s, and after so long in all.
/// Requests are counted, so that a relay that was stopped for a while asks again first.
const ASKS_MAX: u32 = 5;
const FETCH_TIME_MAX: Duration = Duration::from_secs(20);
/// Loads that begin in a second; further programs wait.
const LOADS_PER_S: u32 = 8;
/// Interval at which a load is asked for its result, and questions before it is given up: 2 s. The limit counts questions,
/// so that a relay that was stopped for a while gives up nothing. One load runs at a time, as in the compiler's thread, so
/// that the wait for other programs does not count.
const LOAD_ASKED: Duration = Duration::from_millis(10);
const LOAD_QUESTIONS_MAX: u32 = 200;
/// Requests for programs that are answered in a second; others are discarded.
const ANSWERS_PER_S: u32 = 128;
/// What a program that was refused counts, which is remembered so that it is not fetched again and again.
const REFUSED_BYTES: usize = 64;

/// State of the program that a capsule names.
pub(super) enum Found {
    Here(AnyPolicy),
    Later,
    Never,
}

/// A program that is here, or was refused.
struct Kept {
    code: Vec<u8>,
    program: Option<Arc<dyn SessionProgram>>,
    used_at: Time,
}

impl Kept {
    fn bytes(&self) -> usize {
        self.code.len().max(REFUSED_BYTES)
    }

    fn is_used(&self) -> bool {
        self.program.as_ref().is_some_and(|program| Arc::strong_count(program) > 1)
    }
}

/// A program that is on its way.
struct Fetch {
    node: NodeId,
    port: PortId,
    flow: FlowId,
    session: u64,
    code: Vec<u8>,
    total: Option<u32>,
    began_at: Time,
    ask_at: Time,
    ask_again: Duration,
    /// Requests since the last part.
    asks: u32,
}

/// A program that has arrived and is not loaded yet.
struct Load {
    code: Vec<u8>,
    arrived_at: Time,
    /// `None` before it begins.
    pending: Option<PendingLoad>,
    ask_at: Time,
    questions: u32,
}

impl Load {
    /// Order in which loads are asked for: first the one that runs.
    fn order(&self) -> (bool, Time) {
        (self.pending.is_none(), self.arrived_at)
    }
}

/// Number of events in this second.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    since: Time,
    count: u32,
}

impl Rate {
    fn allows(&mut self, now: Time, max: u32) -> bool {
        if now.since(self.since) >= Duration::from_secs(1) {
            *self = Self { since: now, count: 0 };
        }
        self.count += 1;
        self.count <= max
    }
}

/// Bytes of programs that are kept at most; those used longest ago go first.
const KEPT_BYTES: usize = 4 << 20;

/// Time without use after which a program is forgotten.
const KEPT_FOR: Duration = Duration::from_secs(600);

#[derive(Default)]
pub(super) struct Programs {
    host: Option<Arc<dyn ProgramHost>>,
    bytes_max: usize,
    kept: BTreeMap<PolicyId, Kept>,
    fetches: BTreeMap<PolicyId, Fetch>,
    loading: BTreeMap<PolicyId, Load>,
    loads: Rate,
    answers: Rate,
}

impl Programs {
    pub(super) fn new(host: Option<Arc<dyn ProgramHost>>) -> Self {
        Self { host, bytes_max: KEPT_BYTES, ..Self::default() }
    }

    /// Programs that can be started at once.
    pub(super) fn kept(&self) -> usize {
        self.kept.values().filter(|kept| kept.program.is_some()).count()
    }

    pub(super) const fn has_host(&self) -> bool {
        self.host.is_some()
    }

    /// The program that a capsule names, started for its session where it is here.
    pub(super) fn start(&mut self, now: Time, capsule: &Capsule) -> Found {
        let Some(kept) = self.kept.get_mut(&capsule.policy) else { return Found::Later };
        let Some(program) = &kept.program else { return Found::Never };
        kept.used_at = now;
        let started = ProgramPolicy::start(program, capsule.parameter);
        started.map_or(Found::Never, |policy| Found::Here(AnyPolicy::Program(policy)))
    }

    /// The same; where it is not here it is fetched, if that can be.
    pub(super) fn find(
        &mut self,
        now: Time,
        capsule: &Capsule,
        (flow, port): (FlowId, PortId),
    ) -> Found {
        if !self.has_host() {
            return Found::Never;
        }
        let is_over = |kept: &Kept| kept.program.is_none() && now.since(kept.used_at) >= KEPT_FOR;
        if self.kept.get(&capsule.policy).is_some_and(is_over) {
            self.kept.remove(&capsule.policy);
        }
        if self.kept.contains_key(&capsule.policy) {
            return self.start(now, capsule);
        }
        let Self { fetches, loading, .. } = self;
        if fetches.contains_key(&capsule.policy) || loading.contains_key(&capsule.policy) {
            return Found::Later;
        }
        if fetches.len() + loading.len() >= FETCHES_MAX {
            return Found::Never;
        }
        let fetch = Fetch {
            node: capsule.node,
            port,
            flow,
            session: capsule.session,
            code: Vec::new(),
            total: None,
            began_at: now,
            ask_at: now,
            ask_again: ASK_AGAIN,
            asks: 0,
        };
        self.fetches.insert(capsule.policy, fetch);
        Found::Later
    }

    /// Takes a part from a node. Returns the names of the programs that are no longer waited for.
    pub(super) fn on_part(
        &mut self,
        now: Time,
        from: NodeId,
        part: &Part<'_>,
    ) -> Checked<Vec<PolicyId>> {
        let fetch = self.fetches.get_mut(&part.policy).filter(|fetch| fetch.node == from);
        let fetch = fetch.ok_or(BadInput::Foreign)?;
        if part.total > PROGRAM_BYTES_MAX || fetch.total.is_some_and(|total| total != part.total) {
            return Err(BadInput::Absurd);
        }
        fetch.total = Some(part.total);
        if part.offset as usize != fetch.code.len() {
            // It has come before, or one before it was lost, which is asked for again.
            return Ok(Vec::new());
        }
        fetch.code.extend_from_slice(part.bytes);
        (fetch.asks, fetch.ask_again) = (0, ASK_AGAIN);
        let len = fetch.code.len() as u32;
        if len < part.total {
            let is_last = len.is_multiple_of(PARTS_AT_ONCE * PART_BYTES_MAX as u32);
            fetch.ask_at = if is_last { now } else { now + ASK_AGAIN };
            return Ok(Vec::new());
        }
        let policy = part.policy;
        let Some(Fetch { code, .. }) = self.fetches.remove(&policy) else { return Ok(Vec::new()) };
        if PolicyId::of(&code) != policy {
            return Ok(Vec::from([policy]));
        }
        let load = Load { code, arrived_at: now, pending: None, ask_at: now, questions: 0 };
        self.loading.insert(policy, load);
        Ok(self.load(now))
    }

    /// Asks the load that runs, and begins the next one, which arrived first, once it may. Returns the names of the programs
    /// that are loaded or refused.
    fn load(&mut self, now: Time) -> Vec<PolicyId> {
        let mut over = Vec::new();
        let Some(host) = self.host.clone() else { return over };
        while let Some((policy, load)) =
            next_load(&mut self.loading).filter(|it| it.1.ask_at <= now)
        {
            load.ask_at = now + LOAD_ASKED;
            if load.pending.is_none() && !self.loads.allows(now, LOADS_PER_S) {
                break;
            }
            let pending = load.pending.get_or_insert_with(|| host.load(&load.code));
            load.questions += 1;
            let program = match pending(now) {
                Some(loaded) => loaded.ok(),
                None if load.questions >= LOAD_QUESTIONS_MAX => None,
                None => break,
            };
            let policy = *policy;
            let Some(Load { code, .. }) = self.loading.remove(&policy) else { break };
            self.keep(now, policy, code, program);
            over.push(policy);
        }
        over
    }

    /// Keeps a program, or with `None` that it was refused.
    fn keep(
        &mut self,
        now: Time,
        policy: PolicyId,
        code: Vec<u8>,
        program: Option<Arc<dyn SessionProgram>>,
    ) {
        let code = if program.is_some() { code } else { Vec::new() };
        let new = Kept { code, program, used_at: now };
        let kept = &mut self.kept;
        kept.retain(|_, it| it.is_used() || now.since(it.used_at) < KEPT_FOR);
        loop {
            let bytes: usize = kept.values().map(Kept::bytes).sum();
            if bytes + new.bytes() <= self.bytes_max {
                break;
            }
            let unused = kept.iter().filter(|(_, it)| !it.is_used());
            let Some(oldest) = unused.min_by_key(|(_, it)| it.used_at).map(|(id, _)| *id) else {
                return;
            };
            kept.remove(&oldest);
        }
        kept.insert(policy, new);
    }

    /// Where a program that is here is asked for: the parts of the answer.
    pub(super) fn answer<'a>(
        &'a mut self,
        now: Time,
        pull: &Pull,
    ) -> impl Iterator<Item = Part<'a>> + use<'a> {
        let may = self.answers.allows(now, ANSWERS_PER_S);
        let code = self.kept.get(&pull.policy).filter(|_| may).map(|kept| &kept.code[..]);
        parts(code.unwrap_or_default(), *pull)
    }

    pub(super) fn poll(&mut self, now: Time) -> Option<(Pull, FlowId, PortId, NodeId)> {
        let (policy, fetch) =
            self.fetches.iter_mut().find(|(_, it)| it.asks < ASKS_MAX && it.ask_at <= now)?;
        fetch.ask_at = now + fetch.ask_again;
        fetch.asks += 1;
        fetch.ask_again = (fetch.ask_again * 2).min(ASK_AGAIN_MAX);
        let offset = fetch.code.len() as u32;
        let pull = Pull { session: fetch.session, policy: *policy, offset };
        Some((pull, fetch.flow, fetch.port, fetch.node))
    }

    /// Gives up fetches that are silent, and asks for the results of loads. Returns the names of the programs that are no
    /// longer waited for.
    pub(super) fn on_timeout(&mut self, now: Time) -> Vec<PolicyId> {
        let is_over = |fetch: &Fetch| {
            let is_silent = fetch.asks >= ASKS_MAX && fetch.ask_at <= now;
            is_silent || now.since(fetch.began_at) >= FETCH_TIME_MAX
        };
        let mut over: Vec<PolicyId> =
            self.fetches.iter().filter(|(_, it)| is_over(it)).map(|(id, _)| *id).collect();
        over.iter().for_each(|id| _ = self.fetches.remove(id));
        over.extend(self.load(now));
        over
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let end = |fetch: &Fetch| fetch.ask_at.min(fetch.began_at + FETCH_TIME_MAX);
        let next = self.loading.values().min_by_key(|load| load.order());
        let load = next.map(|load| load.ask_at);
        self.fetches.values().map(end).chain(load).min()
    }
}

/// The load that runs, and else the one that arrived first.
fn next_load(loading: &mut BTreeMap<PolicyId, Load>) -> Option<(&PolicyId, &mut Load)> {
    loading.iter_mut().min_by_key(|(_, load)| load.order())
}

/// The parts of a program that answer one request.
pub(super) fn parts(code: &[u8], pull: Pull) -> impl Iterator<Item = Part<'_>> {
    let total = code.len() as u32;
    let rest = code.get(pull.offset as usize..).unwrap_or_default();
    let chunks = rest.chunks(PART_BYTES_MAX).take(PARTS_AT_ONCE as usize).enumerate();
    chunks.map(move |(place, bytes)| {
        let offset = pull.offset + (place * PART_BYTES_MAX) as u32;
        Part { session: pull.session, policy: pull.policy, total, offset, bytes }
    })
}
