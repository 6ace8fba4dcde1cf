//! Programs of sessions: fetched from the upstream node, verified by hash, loaded and started.

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

// All bounds are chosen: in the paper, packets may bring any program.

/// Longest program, in bytes. The seven policies have 2 to 3 kB.
pub const PROGRAM_BYTES_MAX: u32 = 64 << 10;
const PARTS_AT_ONCE: u32 = 8;
/// Most fetches at a time; sessions with further programs are forwarded without credits.
const FETCHES_MAX: usize = 8;
const ASK_AGAIN: Duration = Duration::from_millis(200);
const ASK_AGAIN_MAX: Duration = Duration::from_secs(1);
/// Requests without an answer before a fetch ends, after 3.4 s, and longest fetch.
const ASKS_MAX: u32 = 5;
const FETCH_TIME_MAX: Duration = Duration::from_secs(20);
/// Most loads that begin in a second; further programs wait.
const LOADS_PER_S: u32 = 8;
/// Interval of polls of a load, and polls before it is given up, after 2 s: a stopped relay gives
/// up none. Loads run one at a time, as in the compiler's thread.
const LOAD_ASKED: Duration = Duration::from_millis(10);
const LOAD_QUESTIONS_MAX: u32 = 200;
/// Most requests for programs answered in a second; others are dropped.
const ANSWERS_PER_S: u32 = 128;
/// Size of a refused program in the cache, which prevents another fetch.
const REFUSED_BYTES: usize = 64;

pub(super) enum Found {
    Here(AnyPolicy),
    Later,
    Never,
}

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
    asks: u32,
}

struct Load {
    code: Vec<u8>,
    arrived_at: Time,
    pending: Option<PendingLoad>,
    ask_at: Time,
    questions: u32,
}

impl Load {
    fn order(&self) -> (bool, Time) {
        (self.pending.is_none(), self.arrived_at)
    }
}

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

/// Size of the cache: 4 MiB. The least recently used program is evicted first.
const KEPT_BYTES: usize = 4 << 20;

/// Longest time without use before a program is evicted: 600 s.
const KEPT_FOR: Duration = Duration::from_secs(600);

#[derive(Default)]
pub(super) struct Programs {
    pub(super) host: Option<Arc<dyn ProgramHost>>,
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

    pub(super) fn kept(&self) -> usize {
        self.kept.values().filter(|kept| kept.program.is_some()).count()
    }

    pub(super) fn start(&mut self, now: Time, capsule: &Capsule) -> Found {
        let Some(kept) = self.kept.get_mut(&capsule.policy) else { return Found::Later };
        let Some(program) = &kept.program else { return Found::Never };
        kept.used_at = now;
        let started = ProgramPolicy::start(program, capsule.parameter);
        started.map_or(Found::Never, |policy| Found::Here(AnyPolicy::Program(policy)))
    }

    pub(super) fn find(
        &mut self,
        now: Time,
        capsule: &Capsule,
        (flow, port): (FlowId, PortId),
    ) -> Found {
        if self.host.is_none() {
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
        let Capsule { node, session, policy, .. } = *capsule;
        let (code, total, asks, ask_again) = (Vec::new(), None, 0, ASK_AGAIN);
        let (began_at, ask_at) = (now, now);
        let fetch =
            Fetch { node, port, flow, session, code, total, began_at, ask_at, ask_again, asks };
        self.fetches.insert(policy, fetch);
        Found::Later
    }

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
            // A duplicate, or the part before it was lost and will be requested again.
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

    fn load(&mut self, now: Time) -> Vec<PolicyId> {
        let mut over = Vec::new();
        let Some(host) = self.host.clone() else { return over };
        loop {
            let next = self.loading.iter_mut().min_by_key(|(_, load)| load.order());
            let Some((policy, load)) = next.filter(|it| it.1.ask_at <= now) else { break };
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

pub(super) fn parts(code: &[u8], pull: Pull) -> impl Iterator<Item = Part<'_>> {
    let total = code.len() as u32;
    let rest = code.get(pull.offset as usize..).unwrap_or_default();
    let chunks = rest.chunks(PART_BYTES_MAX).take(PARTS_AT_ONCE as usize).enumerate();
    chunks.map(move |(place, bytes)| {
        let offset = pull.offset + (place * PART_BYTES_MAX) as u32;
        Part { session: pull.session, policy: pull.policy, total, offset, bytes }
    })
}
