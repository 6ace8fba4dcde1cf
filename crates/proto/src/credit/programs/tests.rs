//! Tests of fetching, loading and caching programs.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, Ordering};

use faircast_base::{Cx, GroupId, NodeId, Purpose, Rng};
use faircast_relay_sdk::View;
use proptest::prelude::*;

use super::*;
use crate::credit::settings::CreditSettings;
use crate::credit::wire::{self, Packet};
use crate::options::{OptionValue, Options};
use crate::relay::Relay;
use crate::world::{at, relayed};
use crate::{Datagram, Destination};

struct Host;
struct Idle;

impl ProgramHost for Host {
    fn load(&self, code: &[u8]) -> PendingLoad {
        let program: Arc<dyn SessionProgram> = Arc::new(Idle);
        let mut loaded = Some(if code[0] == 1 { Ok(program) } else { Err("not this one".into()) });
        Box::new(move |_| loaded.take())
    }
}

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
            if let Some(told) = given_up.take() {
                core::mem::forget(told);
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

const ABOVE: NodeId = NodeId(1);

fn capsule(code: &[u8]) -> Capsule {
    CreditSettings::from_options(&Options::default()).capsule(7, ABOVE, Some(code))
}

fn programs() -> Programs {
    Programs { bytes_max: 10_000, ..Programs::new(Some(Arc::new(Host))) }
}

fn find(programs: &mut Programs, now: Time, code: &[u8]) -> Found {
    programs.find(now, &capsule(code), (FlowId(0), PortId(0)))
}

fn load(programs: &mut Programs, now: Time, code: &[u8]) -> Option<PolicyId> {
    find(programs, now, code);
    fetch(programs, now, code)
}

fn fetch(programs: &mut Programs, now: Time, code: &[u8]) -> Option<PolicyId> {
    let mut done = None;
    while let Some((pull, ..)) = programs.poll(now) {
        for part in parts(code, pull) {
            done = programs.on_part(now, ABOVE, &part).unwrap().pop().or(done);
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
    let mut cx = Cx::untraced(at(1), &mut rng);
    let mut handle = |relay: &mut Box<dyn Relay + Send>, to: Destination, bytes: &[u8]| {
        let packet = relayed(bytes[15].into(), &[PortId(1)], Datagram::new(ABOVE, to, bytes));
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
        let first = Capsule { session, count: 1, ..capsule(&program) };
        let mut bytes = Packet::Capsule(first).encoded();
        bytes.extend_from_slice(b"payload");
        let mut asked = handle(&mut relay, Destination::Group(GroupId::SESSION), &bytes);
        while let Some(pull) = asked.pop() {
            for part in parts(&program, pull) {
                let bytes = Packet::Part(part).encoded();
                asked.extend(handle(&mut relay, Destination::Node(NodeId(2)), &bytes));
            }
        }
    }
    let served = relay.served();
    assert_eq!((served.sessions, served.plain, served.programs), (2, 3, 1));
}

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
    let told: Vec<u8> = programs.answer(at(2), &pull).flat_map(|it| it.bytes.to_vec()).collect();
    assert_eq!(told, code[9_000..]);
    let part = Part { session: 7, policy: name, total: 3, offset: 0, bytes: &[1] };
    assert_eq!(programs.on_part(at(2), ABOVE, &part), Err(BadInput::Foreign));
}

#[test]
fn what_is_wrong_or_refused_or_does_not_come_is_no_program() {
    let asked = code(3000, 5);
    let mut programs = programs();
    find(&mut programs, at(0), &asked);
    assert_eq!(fetch(&mut programs, at(0), &code(3000, 6)), Some(PolicyId::of(&asked)));
    assert_eq!(programs.kept(), 0, "its hash is another");
    let refused = [2; 100];
    assert!(load(&mut programs, at(0), &refused).is_some());
    let again = find(&mut programs, at(1), &refused);
    assert!(matches!(again, Found::Never), "it is not fetched again");
    // No node answers; then one answers with a byte a second.
    find(&mut programs, at(0), &asked);
    for asked_at in [0, 200, 600, 1400, 2400] {
        assert_eq!(programs.next_timeout(), Some(at(asked_at)));
        assert!(programs.on_timeout(at(asked_at)).is_empty());
        assert!(programs.poll(at(asked_at)).is_some() && programs.poll(at(asked_at)).is_none());
    }
    assert!(programs.poll(at(3400)).is_none());
    assert_eq!(programs.on_timeout(at(3400)), [PolicyId::of(&asked)]);
    find(&mut programs, at(0), &asked);
    for second in 1..20 {
        let (offset, bytes) = (second - 1, &asked[..1]);
        let part = Part { session: 7, policy: PolicyId::of(&asked), total: 3000, offset, bytes };
        programs.on_part(at(u64::from(second) * 1000), ABOVE, &part).unwrap();
        assert!(programs.on_timeout(at(u64::from(second) * 1000)).is_empty());
    }
    assert_eq!(programs.on_timeout(at(20_000)), [PolicyId::of(&asked)]);
    assert_eq!(programs.next_timeout(), None);
}

#[test]
fn a_relay_that_was_stopped_while_it_fetched_a_program_asks_again() {
    let (mut programs, code) = (programs(), code(3000, 5));
    find(&mut programs, at(0), &code);
    assert!(programs.poll(at(0)).is_some(), "whose answer comes while nobody reads");
    assert!(programs.on_timeout(at(10_000)).is_empty());
    assert_eq!(fetch(&mut programs, at(10_000), &code), Some(PolicyId::of(&code)));
    assert_eq!(programs.kept(), 1);
}

fn wait(programs: &mut Programs, end: Time) -> Vec<(Time, PolicyId)> {
    let mut done = Vec::new();
    while let Some(now) = programs.next_timeout().filter(|at| *at <= end) {
        done.extend(programs.on_timeout(now).into_iter().map(|it| (now, it)));
    }
    done
}

#[test]
fn sessions_wait_while_a_program_is_loaded() {
    let host = Slow::new(Duration::from_millis(100));
    let (mut programs, code) = (Programs::new(Some(host.clone())), code(3000, 5));
    assert_eq!(load(&mut programs, at(0), &code), None, "its result is not there");
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
    load(&mut programs, at(0), &code);
    // Ten seconds in which the relay was stopped count as one poll.
    assert!(programs.on_timeout(at(10_000)).is_empty());
    assert_eq!(wait(&mut programs, at(20_000)), [(at(10_000 + 198 * 10), name)]);
    assert_eq!(host.given_up.load(Ordering::Relaxed), 1);
    for second in 20..611 {
        let found = find(&mut programs, at(second * 1000), &code);
        assert!(matches!(found, Found::Never), "{second} s");
    }
    assert_eq!(host.begun.load(Ordering::Relaxed), 1);
    assert!(matches!(find(&mut programs, at(612_000), &code), Found::Later));
}

#[test]
fn programs_that_wait_for_the_compiler_are_not_refused_for_it() {
    let host = Slow::new(Duration::from_millis(1500));
    let mut programs = Programs::new(Some(host.clone()));
    let all: Vec<_> = (0..8).map(|number| code(3000, number)).collect();
    for (place, code) in (0..).zip(&all) {
        load(&mut programs, at(place), code);
        assert_eq!(host.begun.load(Ordering::Relaxed), 1, "one at a time");
    }
    let done = wait(&mut programs, at(60_000));
    let names: Vec<PolicyId> = all.iter().map(|code| PolicyId::of(code)).collect();
    assert_eq!(done.iter().map(|(_, name)| *name).collect::<Vec<_>>(), names);
    assert_eq!((host.given_up.load(Ordering::Relaxed), host.begun.load(Ordering::Relaxed)), (0, 8));
    let (last, _) = done[7];
    assert!(matches!(find(&mut programs, last, &all[7]), Found::Here(_)));
}

#[test]
fn loads_beyond_those_of_a_second_wait_for_the_next() {
    let host = Slow::new(Duration::ZERO);
    let mut programs = Programs::new(Some(host.clone()));
    let mut done = Vec::new();
    // Two seconds' worth of programs, eight fetches at a time.
    for number in 0..16 {
        let code = code(100 + number, 8);
        done.extend(load(&mut programs, at(0), &code));
    }
    assert_eq!((done.len(), programs.loading.len()), (8, 8));
    let rest = wait(&mut programs, at(5000));
    assert_eq!(rest.len(), 8);
    assert!(rest.iter().all(|(now, _)| *now >= at(1000)), "{rest:?}");
}

#[test]
fn a_refused_program_takes_the_room_of_no_other() {
    let (mut programs, sound) = (programs(), code(9_900, 1));
    load(&mut programs, at(0), &sound);
    let refused = [2; 9_000];
    load(&mut programs, at(1), &refused);
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
        load(&mut programs, now, code);
        if number == 1 {
            used = Some(find(&mut programs, now, code));
        }
    }
    let kept: Vec<bool> =
        all.iter().map(|code| programs.kept.contains_key(&PolicyId::of(code))).collect();
    assert_eq!(kept, [true, false, true, true], "the first is used, the second the oldest");
    drop(used);
    let at_work: Vec<Found> = all.iter().map(|code| find(&mut programs, at(9000), code)).collect();
    let other = code(3000, 9);
    load(&mut programs, at(9000), &other);
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
        let (mut programs, code) = (Programs::new(Some(Arc::new(Host))), code(len, 3));
        let mut fates = fates.into_iter();
        find(&mut programs, at(0), &code);
        let mut done = false;
        for ms in (0..60_000).step_by(20) {
            if !programs.on_timeout(at(ms)).is_empty() && !done {
                find(&mut programs, at(ms), &code);
            }
            while let Some((pull, ..)) = programs.poll(at(ms)) {
                for part in parts(&code, pull) {
                    for _ in 0..fates.next().unwrap_or(1) {
                        done |= programs.on_part(at(ms), ABOVE, &part).is_ok_and(|it| !it.is_empty());
                    }
                }
            }
        }
        prop_assert!(done);
        prop_assert!(matches!(find(&mut programs, at(60_000), &code), Found::Here(_)));
    }
}
