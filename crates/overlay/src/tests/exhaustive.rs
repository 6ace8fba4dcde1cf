//! All interleavings of two messages and the loss of a link, among three daemons.
//!
//! Lanes of a link have no mutual order. Greetings arrive at once. Time passes only without frames
//! in transit. One order of independent steps is run (sleep sets; Godefroid, Partial-Order Methods
//! for the Verification of Concurrent Systems, 1996).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use faircast_checker::Rule;

use super::{Event, World, full, secs};
use crate::mutant::{Mutant, set};
use crate::{LinkId, Service};

const STEPS: usize = 5;
const STRIDE: usize = 3;
/// Environment variable with the name of a run to replay.
const VARIABLE: &str = "FAIRCAST_OVERLAY_INTERLEAVING";
const RUN_MAX: usize = 2000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Send(usize),
    Cut,
    Down(usize),
    Frame { from: usize, to: usize, control: bool },
    Time,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(message) => write!(f, "send{message}"),
            Self::Cut => f.write_str("cut"),
            Self::Down(at) => write!(f, "down{at}"),
            Self::Frame { from, to, control: true } => write!(f, "{from}>{to}c"),
            Self::Frame { from, to, control: false } => write!(f, "{from}>{to}d"),
            Self::Time => f.write_str("time"),
        }
    }
}

#[derive(Clone, Copy)]
struct Case {
    is_line: bool,
    /// True if the link is lost right after the first message, else at the default run's end.
    is_early: bool,
    lost: (usize, usize),
    sends: [(usize, Service); 2],
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = if self.is_line { "line" } else { "triangle" };
        let [(_, first), (_, second)] = self.sends;
        let moment = if self.is_early { "early" } else { "late" };
        write!(f, "{shape} {:?} {moment} {first:?} {second:?}", self.lost)
    }
}

fn cases(is_line: bool) -> impl Iterator<Item = Case> {
    const SERVICES: [Service; 3] = [Service::Fifo, Service::Agreed, Service::Safe];
    (0..18).map(move |i| {
        let (first, second) = (SERVICES[i / 3 % 3], SERVICES[i % 3]);
        let lost = if i % 2 == 0 { (0, 1) } else { (1, 2) };
        Case { is_line, is_early: i < 9, lost, sends: [(0, first), (2, second)] }
    })
}

impl Case {
    /// Starts daemons with one client each, a group member from the start of the view.
    fn begin(self) -> Run {
        let edges = if self.is_line { [(0, 1), (1, 2)].to_vec() } else { full(3) };
        let mut world = World::new(3, &edges, 1);
        world.settle(secs(10));
        (0..3).for_each(|at| world.join(at, 0, "g"));
        world.run(secs(1));
        world.renew();
        let link = world.connections.iter().find(|(_, it)| it.ends == self.lost && !it.is_dead);
        let lost = *link.expect("the link is up").0;
        let (unsent, unaware) = ([0, 1].to_vec(), Vec::new());
        let mut run = Run { case: self, world, lost, lanes: BTreeMap::new(), unsent, unaware };
        run.collect();
        run
    }

    fn is_on_lost(self, from: usize, to: usize) -> bool {
        (from.min(to), from.max(to)) == self.lost
    }

    fn daemon(self, step: Step) -> Option<usize> {
        match step {
            Step::Send(message) => Some(self.sends[message].0),
            Step::Down(at) => Some(at),
            Step::Frame { to, .. } => Some(to),
            Step::Cut | Step::Time => None,
        }
    }

    fn is_independent(self, a: Step, b: Step) -> bool {
        match (a, b) {
            (Step::Time, _) | (_, Step::Time) => false,
            (Step::Cut, Step::Frame { from, to, .. })
            | (Step::Frame { from, to, .. }, Step::Cut) => !self.is_on_lost(from, to),
            _ => self.daemon(a) != self.daemon(b),
        }
    }
}

#[derive(Clone)]
struct Run {
    case: Case,
    world: World,
    lost: LinkId,
    /// Frames in transit, by sender, receiver, and true for the control lane.
    lanes: BTreeMap<(usize, usize, bool), VecDeque<Event>>,
    unsent: Vec<usize>,
    unaware: Vec<usize>,
}

impl Run {
    fn is_cut(&self) -> bool {
        self.world.connections[&self.lost].is_dead
    }

    /// Returns the possible steps. A run that always takes the first one terminates.
    fn possible(&self) -> Vec<Step> {
        let sends =
            self.unsent.iter().filter(|it| self.world.daemon(self.case.sends[**it].0).is_settled());
        let mut steps: Vec<Step> = sends.map(|it| Step::Send(*it)).collect();
        let is_early = self.case.is_early;
        let last = if is_early { steps.pop_if(|it| *it == Step::Send(1)) } else { None };
        let cut = (!self.is_cut()).then_some(Step::Cut);
        steps.extend(cut.filter(|_| is_early));
        steps.extend(self.unaware.iter().map(|it| Step::Down(*it)));
        let frames = self.lanes.keys();
        steps.extend(frames.map(|&(from, to, control)| Step::Frame { from, to, control }));
        let has_time = self.lanes.is_empty() && self.world.problem().is_some();
        steps.extend(has_time.then_some(Step::Time));
        steps.extend(cut.filter(|_| !is_early).into_iter().chain(last));
        steps
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Send(message) => {
                self.unsent.retain(|it| *it != message);
                let (at, service) = self.case.sends[message];
                self.world.send(at, 0, service, &["g"], 0).unwrap();
            }
            Step::Cut => {
                let (a, b) = self.case.lost;
                self.world.cut(a, b);
                self.world.connections.get_mut(&self.lost).unwrap().is_dead = true;
                self.lanes.retain(|&(from, to, _), _| !self.case.is_on_lost(from, to));
                self.unaware = [a, b].to_vec();
            }
            Step::Down(at) => {
                self.unaware.retain(|it| *it != at);
                self.world.handle(Event::Down { to: at, link: self.lost });
            }
            Step::Frame { from, to, control } => {
                let key = (from, to, control);
                let lane = self.lanes.get_mut(&key).unwrap();
                let event = lane.pop_front().unwrap();
                if lane.is_empty() {
                    self.lanes.remove(&key);
                }
                self.world.handle(event);
            }
            Step::Time => self.pass(),
        }
        self.collect();
    }

    /// Lets time pass until a daemon sends a frame, or all daemons are settled.
    fn pass(&mut self) {
        let start = self.world.now;
        while self.lanes.is_empty()
            && let Some(problem) = self.world.problem()
        {
            let due = (0..3).filter_map(|at| self.world.daemon(at).next_timeout());
            self.world.now = due.min().expect("a timer runs").max(self.world.now);
            let passed = self.world.now.since(start);
            assert!(passed < secs(20), "no frame within {passed}: {problem}");
            for at in 0..3 {
                if self.world.daemon(at).next_timeout() <= Some(self.world.now) {
                    self.world.call(at, |daemon, cx| daemon.handle_timeout(cx));
                }
            }
            self.collect();
        }
    }

    fn collect(&mut self) {
        while let Some((_, event)) = self.world.queue.pop_first() {
            match &event {
                Event::Frame { to, link, control, bytes } => {
                    let (to, control) = (*to, *control);
                    let from = self.world.connections[link].other(to);
                    if control && bytes[0] == 1 {
                        self.world.handle(event);
                    } else {
                        self.lanes.entry((from, to, control)).or_default().push_back(event);
                    }
                }
                Event::Down { link, .. } => {
                    assert!(*link == self.lost && self.is_cut(), "a daemon refuses a frame");
                }
                Event::Up { .. } | Event::Dial { .. } | Event::Room { .. } => {}
            }
        }
    }

    fn finish(mut self) -> Vec<(Rule, String)> {
        let mut count = 0;
        while let Some(step) = self.possible().first() {
            self.take(*step);
            count += 1;
            assert!(count < RUN_MAX, "daemons go on for ever");
        }
        self.world.judge().0
    }
}

struct Search {
    case: Case,
    path: Vec<Step>,
    /// Length of the explored part, including the prefix.
    end: usize,
    runs: usize,
    found: Vec<(Rule, String)>,
}

impl Search {
    fn explore(&mut self, run: &Run, asleep: &[Step]) {
        let possible = run.possible();
        if self.path.len() == self.end || possible.is_empty() {
            self.runs += 1;
            self.found = run.clone().finish();
            return;
        }
        let mut asleep = asleep.to_vec();
        for step in possible {
            if asleep.contains(&step) {
                continue;
            }
            let mut next = run.clone();
            self.path.push(step);
            next.take(step);
            let independent = |it: &&Step| self.case.is_independent(**it, step);
            let still: Vec<Step> = asleep.iter().filter(independent).copied().collect();
            self.explore(&next, &still);
            if !self.found.is_empty() {
                return;
            }
            self.path.pop();
            asleep.push(step);
        }
    }

    fn name(&self) -> String {
        let steps: Vec<String> = self.path.iter().map(ToString::to_string).collect();
        format!("{}: {}", self.case, steps.join(" "))
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::println!("{VARIABLE}='{}'", self.name());
        }
    }
}

type Found = (Vec<(Rule, String)>, String);

/// Explores `steps` steps after several prefixes of the default run. Returns the number of runs.
fn search(case: Case, steps: usize, mutant: Option<Mutant>) -> (usize, Option<Found>) {
    let mut run = case.begin();
    set(mutant);
    let (mut path, mut runs, mut found) = (Vec::new(), 0, None);
    for begin in (0..).step_by(STRIDE) {
        if found.is_some() {
            break;
        }
        while path.len() < begin
            && let Some(step) = run.possible().first()
        {
            run.take(*step);
            path.push(*step);
        }
        if path.len() < begin {
            break;
        }
        let (path, end) = (path.clone(), begin + steps);
        let mut search = Search { case, path, end, runs: 0, found: Vec::new() };
        search.explore(&run, &[]);
        runs += search.runs;
        let wrong = core::mem::take(&mut search.found);
        found = (!wrong.is_empty()).then(|| (wrong, search.name()));
    }
    set(None);
    (runs, found)
}

fn replay(name: &str, mutant: Option<Mutant>) -> Vec<(Rule, String)> {
    let mut all = [true, false].into_iter().flat_map(cases);
    let of = |case: Case| Some((case, name.strip_prefix(&format!("{case}: "))?));
    let (case, steps) = all.find_map(of).expect("the name of a case");
    let mut run = case.begin();
    set(mutant);
    for step in steps.split_whitespace() {
        let known = run.possible().into_iter().find(|it| it.to_string() == step);
        run.take(known.unwrap_or_else(|| panic!("{step} is not possible")));
    }
    let found = run.finish();
    set(None);
    found
}

/// Replays the run of [`VARIABLE`], then explores all cases. Returns the number of runs.
fn explore(is_line: bool) -> usize {
    if let Ok(name) = std::env::var(VARIABLE) {
        assert_eq!(replay(&name, None), [], "{name}");
    }
    let asked = std::env::var("FAIRCAST_OVERLAY_EVENTS");
    let steps = asked.map_or(STEPS, |it| it.parse().expect("a number of steps"));
    let mut runs = 0;
    for case in cases(is_line) {
        let (count, found) = search(case, steps, None);
        if let Some((found, name)) = found {
            panic!("{VARIABLE}='{name}'\n{found:#?}");
        }
        runs += count;
    }
    std::println!("{runs} interleavings");
    runs
}

#[test]
fn rules_hold_in_all_interleavings_in_a_line() {
    let runs = explore(true);
    assert!(runs > 3000, "{runs} interleavings");
}

#[test]
fn rules_hold_in_all_interleavings_in_a_triangle() {
    let runs = explore(false);
    assert!(runs > 10_000, "{runs} interleavings");
}

#[test]
fn the_search_finds_daemons_that_break_a_rule() {
    let mutants = [
        (Mutant::UnsafeSafe, Rule::R10, true, 7),
        (Mutant::HastyOrder, Rule::R9, true, STEPS),
        (Mutant::NoRecovery, Rule::R5, false, STEPS),
        (Mutant::TwiceOnReroute, Rule::R1, false, STEPS),
        (Mutant::OldTable, Rule::R11, true, STEPS),
        (Mutant::OneNumber, Rule::R3, true, STEPS),
    ];
    for (mutant, rule, is_line, steps) in mutants {
        let found = cases(is_line).find_map(|it| search(it, steps, Some(mutant)).1);
        let (found, name) = found.unwrap_or_else(|| panic!("{mutant:?} is not found"));
        assert!(found.iter().any(|it| it.0 == rule), "{mutant:?}: {name}\n{found:#?}");
        assert_eq!(replay(&name, Some(mutant)), found, "{name}");
        assert_eq!(replay(&name, None), [], "{name}");
    }
}
