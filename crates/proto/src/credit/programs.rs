//! Programs of sessions: a policy that a relay does not know is fetched from the node before it, checked by its hash,
//! kept, and started.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faircast_base::{BadInput, Duration, FlowId, NodeId, Time};
use faircast_relay_sdk::{Policy, View};

use super::settings::{AnyPolicy, PolicyId};
use super::wire::{Capsule, PART_BYTES_MAX, Part, Pull};
use crate::relay::PortId;

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
/// A fetch is given up after so long without a word, and after so long in all.
const SILENCE: Duration = Duration::from_secs(3);
const FETCH_TIME_MAX: Duration = Duration::from_secs(20);
/// Loads that begin in a second; further programs wait.
const LOADS_PER_S: u32 = 8;
/// Interval at which a load is asked for its result, and questions before it is given up: 2 s. The limit counts questions,
/// so that a relay that was stopped for a while gives up nothing.
const LOAD_ASKED: Duration = Duration::from_millis(10);
const LOAD_QUESTIONS_MAX: u32 = 200;
/// Requests for programs that are answered in a second; others are discarded.
const ANSWERS_PER_S: u32 = 128;
/// What a program that was refused counts, which is remembered so that it is not fetched again and again.
const REFUSED_BYTES: usize = 64;

/// Result of loading a program; the error says in words why the host refuses it.
pub type Loaded = Result<Arc<dyn SessionProgram>, String>;

/// A load that was begun. Asked again and again, it gives the result once, when there is one; dropped, it is given up.
pub type PendingLoad = Box<dyn FnMut(Time) -> Option<Loaded> + Send>;

/// Makes programs of their code: of WebAssembly, on hosts that can run it.
pub trait ProgramHost: Send + Sync {
    /// Begins to check and compile a program. Returns without delay, whatever the code is.
    fn load(&self, code: &[u8]) -> PendingLoad;
}

/// A program that was checked.
pub trait SessionProgram: Send + Sync {
    /// Starts it for one session, with what its source gives it.
    ///
    /// # Errors
    /// It has failed.
    fn start(&self, parameter: u32) -> Result<Box<dyn RunningProgram>, ProgramFault>;
}

/// A program at work: a [`Policy`] that can fail.
pub trait RunningProgram: Send {
    /// See [`Policy::credit`].
    ///
    /// # Errors
    /// It has failed.
    fn credit(&mut self, view: &dyn View) -> Result<Option<u32>, ProgramFault>;

    /// See [`Policy::accepts`].
    ///
    /// # Errors
    /// It has failed.
    fn accepts(&mut self, view: &dyn View, branch: u32, layer: u8) -> Result<bool, ProgramFault>;

    /// See [`Policy::discards`].
    ///
    /// # Errors
    /// It has failed.
    fn discards(&mut self, view: &dyn View, branch: u32) -> Result<u32, ProgramFault>;

    /// See [`Policy::interval_ms`]; asked once.
    ///
    /// # Errors
    /// It has failed.
    fn interval_ms(&mut self) -> Result<Option<u32>, ProgramFault>;

    /// See [`Policy::DROPS`]; asked once.
    ///
    /// # Errors
    /// It has failed.
    fn drops(&mut self) -> Result<bool, ProgramFault>;
}

/// Why a program has failed, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramFault(pub String);

/// A program as the policy of one session. Once it has failed it does as little as a policy can.
pub(crate) struct ProgramPolicy {
    running: Box<dyn RunningProgram>,
    interval_ms: Option<u32>,
    pub(crate) drops: bool,
    pub(crate) failed: bool,
    /// It stays as long as somebody uses it.
    _program: Arc<dyn SessionProgram>,
}

impl ProgramPolicy {
    fn start(program: &Arc<dyn SessionProgram>, parameter: u32) -> Result<Self, ProgramFault> {
        let mut running = program.start(parameter)?;
        let interval_ms = running.interval_ms()?;
        let drops = running.drops()?;
        Ok(Self { running, interval_ms, drops, failed: false, _program: program.clone() })
    }

    fn ask<T>(
        &mut self,
        otherwise: T,
        question: impl FnOnce(&mut dyn RunningProgram) -> Result<T, ProgramFault>,
    ) -> T {
        if self.failed {
            return otherwise;
        }
        question(&mut *self.running).unwrap_or_else(|_| {
            self.failed = true;
            otherwise
        })
    }
}

impl Policy for ProgramPolicy {
    fn credit(&mut self, view: &impl View) -> Option<u32> {
        self.ask(None, |running| running.credit(view))
    }

    fn accepts(&mut self, view: &impl View, branch: u32, layer: u8) -> bool {
        self.ask(true, |running| running.accepts(view, branch, layer))
    }

    fn discards(&mut self, view: &impl View, branch: u32) -> u32 {
        self.ask(0, |running| running.discards(view, branch))
    }

    fn interval_ms(&self) -> Option<u32> {
        self.interval_ms
    }
}

impl core::fmt::Debug for ProgramPolicy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ProgramPolicy").field("failed", &self.failed).finish_non_exhaustive()
    }
}

/// What is known of the program that a capsule names.
pub(super) enum Found {
    /// It is here, and has been started.
    Here(AnyPolicy),
    /// It is not here yet.
    Later,
    /// There is none for this relay.
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
    /// Whom it is asked of, and where.
    node: NodeId,
    port: PortId,
    flow: FlowId,
    session: u64,
    code: Vec<u8>,
    total: Option<u32>,
    began_at: Time,
    heard_at: Time,
    ask_at: Time,
    ask_again: Duration,
}

/// A program that has arrived and is not loaded yet.
struct Load {
    code: Vec<u8>,
    /// `None` before it begins.
    pending: Option<PendingLoad>,
    ask_at: Time,
    questions: u32,
}

/// How many things have happened in this second.
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

/// Bounds of what is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeepLimits {
    pub(super) bytes: usize,
    pub(super) age: Duration,
}

/// All programs of a relay.
#[derive(Default)]
pub(super) struct Programs {
    host: Option<Arc<dyn ProgramHost>>,
    kept: BTreeMap<PolicyId, Kept>,
    fetches: BTreeMap<PolicyId, Fetch>,
    loading: BTreeMap<PolicyId, Load>,
    loads: Rate,
    answers: Rate,
}

impl Programs {
    pub(super) fn new(host: Option<Arc<dyn ProgramHost>>) -> Self {
        Self { host, ..Self::default() }
    }

    /// How many can be started at once.
    pub(super) fn kept(&self) -> usize {
        self.kept.values().filter(|kept| kept.program.is_some()).count()
    }

    /// Whether there is something that runs programs.
    pub(super) const fn has_host(&self) -> bool {
        self.host.is_some()
    }

    /// The program that a capsule names, started for its session where it is here.
    pub(super) fn start(&mut self, now: Time, capsule: &Capsule) -> Found {
        let Some(kept) = self.kept.get_mut(&capsule.policy) else { return Found::Later };
        kept.used_at = now;
        let Some(program) = &kept.program else { return Found::Never };
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
            heard_at: now,
            ask_at: now,
            ask_again: ASK_AGAIN,
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
        limits: KeepLimits,
    ) -> Result<Vec<PolicyId>, BadInput> {
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
        (fetch.heard_at, fetch.ask_again) = (now, ASK_AGAIN);
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
        self.loading.insert(policy, Load { code, pending: None, ask_at: now, questions: 0 });
        Ok(self.load(now, limits))
    }

    /// Begins the loads that may begin, and asks the others. Returns the names of the programs that are loaded or refused.
    fn load(&mut self, now: Time, limits: KeepLimits) -> Vec<PolicyId> {
        let Self { host: Some(host), loading, loads, .. } = self else { return Vec::new() };
        let mut done = Vec::new();
        for (policy, load) in loading.iter_mut().filter(|(_, load)| load.ask_at <= now) {
            load.ask_at = now + LOAD_ASKED;
            if load.pending.is_none() && !loads.allows(now, LOADS_PER_S) {
                continue;
            }
            let pending = load.pending.get_or_insert_with(|| host.load(&load.code));
            load.questions += 1;
            if let Some(loaded) = pending(now) {
                done.push((*policy, loaded.ok()));
            } else if load.questions >= LOAD_QUESTIONS_MAX {
                done.push((*policy, None));
            }
        }
        let take = |(policy, program)| {
            let Load { code, .. } = self.loading.remove(&policy)?;
            self.keep(now, policy, code, program, limits);
            Some(policy)
        };
        done.into_iter().filter_map(take).collect()
    }

    /// Keeps a program, or with `None` that it was refused.
    fn keep(
        &mut self,
        now: Time,
        policy: PolicyId,
        code: Vec<u8>,
        program: Option<Arc<dyn SessionProgram>>,
        limits: KeepLimits,
    ) {
        let code = if program.is_some() { code } else { Vec::new() };
        let new = Kept { code, program, used_at: now };
        let kept = &mut self.kept;
        kept.retain(|_, it| it.is_used() || now.since(it.used_at) < limits.age);
        loop {
            let bytes: usize = kept.values().map(Kept::bytes).sum();
            if bytes + new.bytes() <= limits.bytes {
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

    /// What is to be asked for now.
    pub(super) fn poll(&mut self, now: Time) -> Option<(Pull, FlowId, PortId, NodeId)> {
        let (policy, fetch) = self.fetches.iter_mut().find(|(_, fetch)| fetch.ask_at <= now)?;
        fetch.ask_at = now + fetch.ask_again;
        fetch.ask_again = (fetch.ask_again * 2).min(ASK_AGAIN_MAX);
        let offset = fetch.code.len() as u32;
        let pull = Pull { session: fetch.session, policy: *policy, offset };
        Some((pull, fetch.flow, fetch.port, fetch.node))
    }

    /// Gives up fetches that are silent, and asks for the results of loads. Returns the names of the programs that are no
    /// longer waited for.
    pub(super) fn on_timeout(&mut self, now: Time, limits: KeepLimits) -> Vec<PolicyId> {
        let is_over = |fetch: &Fetch| {
            now.since(fetch.heard_at) >= SILENCE || now.since(fetch.began_at) >= FETCH_TIME_MAX
        };
        let mut over: Vec<PolicyId> =
            self.fetches.iter().filter(|(_, it)| is_over(it)).map(|(id, _)| *id).collect();
        over.iter().for_each(|id| _ = self.fetches.remove(id));
        over.extend(self.load(now, limits));
        over
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let end = |fetch: &Fetch| {
            fetch.ask_at.min(fetch.heard_at + SILENCE).min(fetch.began_at + FETCH_TIME_MAX)
        };
        let loads = self.loading.values().map(|load| load.ask_at);
        self.fetches.values().map(end).chain(loads).min()
    }
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

impl core::fmt::Debug for Programs {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (kept, fetches) = (self.kept.len(), self.fetches.len());
        f.debug_struct("Programs").field("kept", &kept).field("fetches", &fetches).finish()
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU32, Ordering};

    use faircast_base::{Cx, GroupId, NodeId, NullTrace, Purpose, Rng};
    use proptest::prelude::*;

    use super::super::settings::CreditSettings;
    use super::super::wire::{self, Packet};
    use super::*;
    use crate::options::{OptionValue, Options};
    use crate::relay::{PacketKey, Relay, RelayPacket};
    use crate::world::at;
    use crate::{Datagram, Destination};

    /// Takes programs that begin with a 1, which do nothing.
    struct Host;
    struct Idle;

    impl ProgramHost for Host {
        fn load(&self, code: &[u8]) -> PendingLoad {
            let program: Arc<dyn SessionProgram> = Arc::new(Idle);
            let mut loaded =
                Some(if code[0] == 1 { Ok(program) } else { Err("not this one".into()) });
            Box::new(move |_| loaded.take())
        }
    }

    /// Takes so long for each program that it begins to load, and counts these and those that were given up.
    struct Slow {
        takes: Duration,
        begun: AtomicU32,
        given_up: Arc<AtomicU32>,
    }

    struct GivenUp(Arc<AtomicU32>);

    impl Drop for GivenUp {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Slow {
        fn new(takes: Duration) -> Arc<Self> {
            Arc::new(Self { takes, begun: AtomicU32::new(0), given_up: Arc::default() })
        }
    }

    impl ProgramHost for Slow {
        fn load(&self, code: &[u8]) -> PendingLoad {
            self.begun.fetch_add(1, Ordering::Relaxed);
            let (mut pending, mut begun) = (Some(Host.load(code)), None);
            let mut given_up = Some(GivenUp(self.given_up.clone()));
            let takes = self.takes;
            Box::new(move |now| {
                let begun = *begun.get_or_insert(now);
                if now.since(begun) < takes {
                    return None;
                }
                if let Some(done) = given_up.take() {
                    core::mem::forget(done);
                }
                pending.take()?(now)
            })
        }
    }

    impl SessionProgram for Idle {
        fn start(&self, _parameter: u32) -> Result<Box<dyn RunningProgram>, ProgramFault> {
            Ok(Box::new(Self))
        }
    }

    impl RunningProgram for Idle {
        fn credit(&mut self, _view: &dyn View) -> Result<Option<u32>, ProgramFault> {
            Ok(None)
        }
        fn accepts(&mut self, _: &dyn View, _: u32, _: u8) -> Result<bool, ProgramFault> {
            Ok(true)
        }
        fn discards(&mut self, _view: &dyn View, _branch: u32) -> Result<u32, ProgramFault> {
            Ok(0)
        }
        fn interval_ms(&mut self) -> Result<Option<u32>, ProgramFault> {
            Ok(None)
        }
        fn drops(&mut self) -> Result<bool, ProgramFault> {
            Ok(true)
        }
    }

    const LIMITS: KeepLimits = KeepLimits { bytes: 10_000, age: Duration::from_secs(600) };
    const ABOVE: NodeId = NodeId(1);

    fn capsule(code: &[u8]) -> Capsule {
        CreditSettings::from_options(&Options::default()).capsule(7, ABOVE, Some(code))
    }

    fn programs() -> Programs {
        Programs::new(Some(Arc::new(Host)))
    }

    fn find(programs: &mut Programs, now: Time, code: &[u8]) -> Found {
        programs.find(now, &capsule(code), (FlowId(0), PortId(0)))
    }

    /// Asks until nothing is asked for, of a node that has this in the place of the program.
    fn fetch(programs: &mut Programs, now: Time, code: &[u8]) -> Option<PolicyId> {
        let mut done = None;
        while let Some((pull, ..)) = programs.poll(now) {
            for part in parts(code, pull) {
                done = programs.on_part(now, ABOVE, &part, LIMITS).unwrap().pop().or(done);
            }
        }
        done
    }

    #[test]
    fn so_many_programs_of_sessions_run_and_more_sessions_pass_as_by_any_router() {
        let most = [("program_sessions_max".into(), OptionValue::Integer(2))];
        let options = Options::checked(most, super::super::RELAY_OPTIONS).unwrap();
        let mut relay = super::super::relay(NodeId(2), &options, Some(Arc::new(Host)));
        let mut rng = Rng::new(1, NodeId(2), Purpose::Relay);
        let program = code(3000, 9);
        let mut cx = Cx { now: at(1), rng: &mut rng, trace: &mut NullTrace };
        let mut handle = |relay: &mut Box<dyn Relay + Send>, to: Destination, bytes: &[u8]| {
            let packet = RelayPacket {
                key: PacketKey(u64::from(bytes[15])),
                flow: FlowId(0),
                port: PortId(0),
                ports_out: &[PortId(1)],
                datagram: Datagram::new(ABOVE, to, bytes),
                time_to_live: 9,
            };
            relay.handle_packet(&mut cx, &packet, &mut Vec::new());
            let (mut buf, mut asked) = (Vec::new(), Vec::new());
            while relay.poll_transmit(&mut cx, &mut buf).is_some() {
                if let Ok(Packet::Pull(pull)) = wire::decode(&buf) {
                    asked.push(pull);
                }
                buf.clear();
            }
            asked
        };
        for session in 0..5 {
            let mut bytes = Vec::new();
            Capsule { session, count: 1, ..capsule(&program) }.encode(&mut bytes);
            bytes.extend_from_slice(b"payload");
            let mut asked = handle(&mut relay, Destination::Group(GroupId::SESSION), &bytes);
            while let Some(pull) = asked.pop() {
                for part in parts(&program, pull) {
                    let mut bytes = Vec::new();
                    part.encode(&mut bytes);
                    asked.extend(handle(&mut relay, Destination::Node(NodeId(2)), &bytes));
                }
            }
        }
        let served = relay.served();
        assert_eq!((served.sessions, served.plain, served.programs), (2, 3, 1));
    }

    /// A program of so many bytes, unlike others of another number.
    fn code(len: usize, number: u8) -> Vec<u8> {
        let mut code = alloc::vec![number; len];
        code[0] = 1;
        code
    }

    #[test]
    fn a_program_is_fetched_once_and_started_for_each_session() {
        let (mut programs, code) = (programs(), code(9_500, 5));
        assert!(matches!(find(&mut programs, at(0), &code), Found::Later));
        assert!(matches!(find(&mut programs, at(0), &code), Found::Later));
        let name = PolicyId::of(&code);
        assert_eq!(fetch(&mut programs, at(1), &code), Some(name));
        assert!(matches!(find(&mut programs, at(2), &code), Found::Here(_)));
        let pull = Pull { session: 7, policy: name, offset: 9_000 };
        let told: Vec<u8> =
            programs.answer(at(2), &pull).flat_map(|it| it.bytes.to_vec()).collect();
        assert_eq!(told, code[9_000..]);
        // (whom the part is of, what is in it)
        let part = Part { session: 7, policy: name, total: 3, offset: 0, bytes: &[1] };
        assert_eq!(programs.on_part(at(2), ABOVE, &part, LIMITS), Err(BadInput::Foreign));
    }

    #[test]
    fn what_is_wrong_or_refused_or_does_not_come_is_no_program() {
        let asked = code(3000, 5);
        let mut programs = programs();
        find(&mut programs, at(0), &asked);
        assert_eq!(fetch(&mut programs, at(0), &code(3000, 6)), Some(PolicyId::of(&asked)));
        assert_eq!(programs.kept(), 0, "its hash is another");
        let refused = [2; 100];
        find(&mut programs, at(0), &refused);
        assert!(fetch(&mut programs, at(0), &refused).is_some());
        assert!(
            matches!(find(&mut programs, at(1), &refused), Found::Never),
            "it is not fetched again"
        );
        // Nobody answers; then somebody does, a byte a second.
        find(&mut programs, at(0), &asked);
        assert!(programs.on_timeout(at(2900), LIMITS).is_empty());
        assert_eq!(programs.on_timeout(at(3000), LIMITS), [PolicyId::of(&asked)]);
        find(&mut programs, at(0), &asked);
        for second in 1..20 {
            let (offset, bytes) = (second - 1, &asked[..1]);
            let part =
                Part { session: 7, policy: PolicyId::of(&asked), total: 3000, offset, bytes };
            programs.on_part(at(u64::from(second) * 1000), ABOVE, &part, LIMITS).unwrap();
            assert!(programs.on_timeout(at(u64::from(second) * 1000), LIMITS).is_empty());
        }
        assert_eq!(programs.on_timeout(at(20_000), LIMITS), [PolicyId::of(&asked)]);
        assert_eq!(programs.next_timeout(), None);
    }

    /// Asks at each moment that the programs name, up to an end. Returns what is no longer waited for, and when.
    fn wait(programs: &mut Programs, end: Time) -> Vec<(Time, PolicyId)> {
        let mut done = Vec::new();
        while let Some(now) = programs.next_timeout().filter(|at| *at <= end) {
            done.extend(programs.on_timeout(now, LIMITS).into_iter().map(|it| (now, it)));
        }
        done
    }

    #[test]
    fn sessions_wait_while_a_program_is_loaded() {
        let host = Slow::new(Duration::from_millis(100));
        let (mut programs, code) = (Programs::new(Some(host.clone())), code(3000, 5));
        find(&mut programs, at(0), &code);
        assert_eq!(fetch(&mut programs, at(0), &code), None, "its result is not there");
        assert!(matches!(find(&mut programs, at(50), &code), Found::Later));
        assert_eq!(wait(&mut programs, at(1000)), [(at(100), PolicyId::of(&code))]);
        assert!(matches!(find(&mut programs, at(1000), &code), Found::Here(_)));
        assert_eq!((host.begun.load(Ordering::Relaxed), programs.next_timeout()), (1, None));
    }

    #[test]
    fn a_load_that_never_ends_is_given_up_and_the_program_not_loaded_again() {
        let host = Slow::new(Duration::from_secs(1000));
        let (mut programs, code) = (Programs::new(Some(host.clone())), code(3000, 5));
        let name = PolicyId::of(&code);
        find(&mut programs, at(0), &code);
        fetch(&mut programs, at(0), &code);
        // Ten seconds in which the relay was stopped count as one question.
        assert!(programs.on_timeout(at(10_000), LIMITS).is_empty());
        assert_eq!(wait(&mut programs, at(20_000)), [(at(10_000 + 198 * 10), name)]);
        assert_eq!(host.given_up.load(Ordering::Relaxed), 1);
        for second in 20..400 {
            assert!(matches!(find(&mut programs, at(second * 1000), &code), Found::Never));
        }
        assert_eq!(host.begun.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn loads_beyond_those_of_a_second_wait_for_the_next() {
        let host = Slow::new(Duration::ZERO);
        let mut programs = Programs::new(Some(host.clone()));
        let mut done = Vec::new();
        // Two seconds' worth of programs, eight on their way at a time.
        for number in 0..16 {
            let code = code(100 + number, 8);
            find(&mut programs, at(0), &code);
            done.extend(fetch(&mut programs, at(0), &code));
        }
        assert_eq!((done.len(), programs.loading.len()), (8, 8));
        let rest = wait(&mut programs, at(5000));
        assert_eq!(rest.len(), 8);
        assert!(rest.iter().all(|(now, _)| *now >= at(1000)), "{rest:?}");
    }

    #[test]
    fn a_refused_program_takes_the_room_of_no_other() {
        let (mut programs, sound) = (programs(), code(9_900, 1));
        find(&mut programs, at(0), &sound);
        fetch(&mut programs, at(0), &sound);
        let refused = [2; 9_000];
        find(&mut programs, at(1), &refused);
        fetch(&mut programs, at(1), &refused);
        assert!(matches!(find(&mut programs, at(2), &sound), Found::Here(_)));
        assert!(matches!(find(&mut programs, at(2), &refused), Found::Never));
    }

    #[test]
    fn those_used_longest_ago_make_room_and_a_flood_of_programs_is_bounded() {
        let mut programs = programs();
        let all: Vec<Vec<u8>> = (0..4).map(|number| code(3000, number)).collect();
        let mut used = None;
        for (number, code) in (1..).zip(&all) {
            let now = at(number * 2000);
            find(&mut programs, now, code);
            fetch(&mut programs, now, code);
            if number == 1 {
                used = Some(find(&mut programs, now, code));
            }
        }
        let kept: Vec<bool> =
            all.iter().map(|code| programs.kept.contains_key(&PolicyId::of(code))).collect();
        assert_eq!(kept, [true, false, true, true], "the first is used, the second the oldest");
        drop(used);
        // Where all rooms are taken by programs at work a new one finds none.
        let at_work: Vec<Found> =
            all.iter().map(|code| find(&mut programs, at(9000), code)).collect();
        let other = code(3000, 9);
        find(&mut programs, at(9000), &other);
        fetch(&mut programs, at(9000), &other);
        assert!(!programs.kept.contains_key(&PolicyId::of(&other)));
        drop(at_work);
        let mut later = 0;
        for number in 0..200 {
            let code = code(100 + number, 8);
            later += usize::from(matches!(find(&mut programs, at(9001), &code), Found::Later));
        }
        assert_eq!((later, programs.fetches.len()), (FETCHES_MAX, FETCHES_MAX));
        let answers = (0..500).map(|_| {
            let pull = Pull { session: 7, policy: PolicyId::of(&all[0]), offset: 0 };
            programs.answer(at(20_000), &pull).count()
        });
        assert_eq!(answers.sum::<usize>(), ANSWERS_PER_S as usize * 3);
    }

    proptest! {
        #[test]
        fn whatever_is_lost_or_comes_twice_a_program_arrives(
            len in 1..20_000usize,
            fates in prop::collection::vec(0..3u8, 1..60),
        ) {
            let (mut programs, code) = (programs(), code(len, 3));
            let limits = KeepLimits { bytes: 1 << 20, ..LIMITS };
            let mut fates = fates.into_iter();
            find(&mut programs, at(0), &code);
            let mut done = false;
            for ms in (0..15_000).step_by(20) {
                while let Some((pull, ..)) = programs.poll(at(ms)) {
                    for part in parts(&code, pull) {
                        for _ in 0..fates.next().unwrap_or(1) {
                            done |= programs.on_part(at(ms), ABOVE, &part, limits).is_ok_and(|it| !it.is_empty());
                        }
                    }
                }
            }
            prop_assert!(done);
            prop_assert!(matches!(find(&mut programs, at(15_000), &code), Found::Here(_)));
        }
    }
}
