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
/// Programs that are loaded, and requests that are answered, in a second: others come later, or not.
const LOADS_PER_S: u32 = 8;
const ANSWERS_PER_S: u32 = 128;
/// What a program that was refused counts, which is remembered so that it is not fetched again and again.
const REFUSED_BYTES: usize = 64;

/// Makes programs of their code: of WebAssembly, on hosts that can run it.
pub trait ProgramHost: Send + Sync {
    /// Reads and checks a program.
    ///
    /// # Errors
    /// It is no program for this host, asks for more than its limits, or is of nobody who may have one here; in words.
    fn load(&self, code: &[u8]) -> Result<Arc<dyn SessionProgram>, String>;
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
        if self.fetches.contains_key(&capsule.policy) {
            return Found::Later;
        }
        if self.fetches.len() >= FETCHES_MAX {
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

    /// A part has come from a node. Returns the program's name where it was the last.
    pub(super) fn on_part(
        &mut self,
        now: Time,
        from: NodeId,
        part: &Part<'_>,
        limits: KeepLimits,
    ) -> Result<Option<PolicyId>, BadInput> {
        let fetch = self.fetches.get_mut(&part.policy).filter(|fetch| fetch.node == from);
        let fetch = fetch.ok_or(BadInput::Foreign)?;
        if part.total > PROGRAM_BYTES_MAX || fetch.total.is_some_and(|total| total != part.total) {
            return Err(BadInput::Absurd);
        }
        fetch.total = Some(part.total);
        if part.offset as usize != fetch.code.len() {
            // It has come before, or one before it was lost, which is asked for again.
            return Ok(None);
        }
        fetch.code.extend_from_slice(part.bytes);
        (fetch.heard_at, fetch.ask_again) = (now, ASK_AGAIN);
        let len = fetch.code.len() as u32;
        if len < part.total {
            let is_last = len.is_multiple_of(PARTS_AT_ONCE * PART_BYTES_MAX as u32);
            fetch.ask_at = if is_last { now } else { now + ASK_AGAIN };
            return Ok(None);
        }
        let policy = part.policy;
        let Some(fetch) = self.fetches.remove(&policy) else { return Ok(None) };
        if PolicyId::of(&fetch.code) == policy {
            self.keep(now, policy, fetch.code, limits);
        }
        Ok(Some(policy))
    }

    fn keep(&mut self, now: Time, policy: PolicyId, code: Vec<u8>, limits: KeepLimits) {
        let Self { host, kept, loads, .. } = self;
        let Some(host) = host else { return };
        kept.retain(|_, it| it.is_used() || now.since(it.used_at) < limits.age);
        loop {
            let bytes: usize = kept.values().map(Kept::bytes).sum();
            if bytes + code.len() <= limits.bytes {
                break;
            }
            let unused = kept.iter().filter(|(_, it)| !it.is_used());
            let Some(oldest) = unused.min_by_key(|(_, it)| it.used_at).map(|(id, _)| *id) else {
                return;
            };
            kept.remove(&oldest);
        }
        if loads.allows(now, LOADS_PER_S) {
            let program = host.load(&code).ok();
            let code = if program.is_some() { code } else { Vec::new() };
            kept.insert(policy, Kept { code, program, used_at: now });
        }
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

    /// Gives up what does not come. Returns what that was.
    pub(super) fn on_timeout(&mut self, now: Time) -> Vec<PolicyId> {
        let is_over = |fetch: &Fetch| {
            now.since(fetch.heard_at) >= SILENCE || now.since(fetch.began_at) >= FETCH_TIME_MAX
        };
        let over: Vec<PolicyId> =
            self.fetches.iter().filter(|(_, it)| is_over(it)).map(|(id, _)| *id).collect();
        over.iter().for_each(|id| _ = self.fetches.remove(id));
        over
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let end = |fetch: &Fetch| {
            fetch.ask_at.min(fetch.heard_at + SILENCE).min(fetch.began_at + FETCH_TIME_MAX)
        };
        self.fetches.values().map(end).min()
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
        fn load(&self, code: &[u8]) -> Result<Arc<dyn SessionProgram>, String> {
            if code[0] == 1 { Ok(Arc::new(Idle)) } else { Err("not this one".into()) }
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
                done = programs.on_part(now, ABOVE, &part, LIMITS).unwrap().or(done);
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
        assert!(programs.on_timeout(at(2900)).is_empty());
        assert_eq!(programs.on_timeout(at(3000)), [PolicyId::of(&asked)]);
        find(&mut programs, at(0), &asked);
        for second in 1..20 {
            let (offset, bytes) = (second - 1, &asked[..1]);
            let part =
                Part { session: 7, policy: PolicyId::of(&asked), total: 3000, offset, bytes };
            programs.on_part(at(u64::from(second) * 1000), ABOVE, &part, LIMITS).unwrap();
            assert!(programs.on_timeout(at(u64::from(second) * 1000)).is_empty());
        }
        assert_eq!(programs.on_timeout(at(20_000)), [PolicyId::of(&asked)]);
        assert_eq!(programs.next_timeout(), None);
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
                            done |= matches!(programs.on_part(at(ms), ABOVE, &part, limits), Ok(Some(_)));
                        }
                    }
                }
            }
            prop_assert!(done);
            prop_assert!(matches!(find(&mut programs, at(15_000), &code), Found::Here(_)));
        }
    }
}
