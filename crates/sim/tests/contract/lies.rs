//! Clause 11: plausible false reports hold no receiver below the operator's floor. The liar changes
//! words of true reports, in formats that it does not know, and keeps the most harmful changes.

use std::cell::RefCell;
use std::rc::Rc;

use faircast_base::{Cx, FlowId, NodeId, Purpose, Rng, Time};
use faircast_proto::catalog::{SCHEMES, SchemeEntry};
use faircast_proto::relay::Relay;
use faircast_proto::stack::Stack;
use faircast_proto::transport::Role;
use faircast_proto::{FlowEvent, FlowMachine, Machine, Transmit, passes_on};
use faircast_scenario::{Flow, Program};
use faircast_sim::{Protocols, Simulation, Unobserved};

use crate::forge::{acknowledges, report_place, seal};
use crate::watch::Watched;
use crate::world::{World, plain, protocols};

const LIAR: &str = "m1";

const FLOOR: u64 = 400_000;

/// Link rates: just above the floor and far above it, since each exposes other weaknesses.
const RATES: [&str; 2] = ["500 kbit/s", "2 Mbit/s"];

const OBJECT: u64 = 1_000_000;

/// Length of a run in seconds. At the floor honest receivers need less than half of it.
const SECONDS: u64 = 60;

/// Largest factor by which a lie may lengthen a session at the floor: a liar also requests repairs.
const MORE: f64 = 1.05;

/// Largest factor over the tree: a liar as ORMCC's representative answers with old timestamps, so
/// cuts are rare, the path stays full, and its drops are repaired.
const MORE_BY_TREE: f64 = 1.15;

/// A protocol that no lie slows down by this factor needs no floor.
const UNHURT: f64 = 1.5;

const STEPS: usize = 3;

pub(crate) struct Mixed<S, R> {
    pub(crate) watched: Watched,
    pub(crate) sender: S,
    pub(crate) receiver: R,
}

pub(crate) type Boxed = FlowMachine;

impl<S: Fn(Boxed) -> Boxed, R: Fn(NodeId, Boxed) -> Boxed> Protocols for Mixed<S, R> {
    fn end(&self, flow: &Flow, id: FlowId, node: NodeId, role: Role, start: Time) -> Boxed {
        let sends = matches!(role, Role::Source(_));
        let end = self.watched.end(flow, id, node, role, start);
        if sends { (self.sender)(end) } else { (self.receiver)(node, end) }
    }

    fn relay(&self, program: &Program, node: NodeId) -> Box<dyn Relay> {
        self.watched.relay(program, node)
    }

    fn sees_corruption(&self, flow: &Flow) -> bool {
        self.watched.sees_corruption(flow)
    }
}

pub(crate) fn schemes() -> Vec<(&'static SchemeEntry, Stack)> {
    let protocols = protocols();
    let of = |name: &str| protocols.iter().find(|protocol| protocol.name() == name).copied();
    let both = |scheme: &'static SchemeEntry| {
        let over_tree = of(&format!("tram-{}", scheme.name));
        [of(scheme.name), over_tree].into_iter().flatten().map(move |protocol| (scheme, protocol))
    };
    SCHEMES.iter().flat_map(both).collect()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bend {
    Half(usize, u16),
    Word(usize, u32),
    /// Subtracts from the number in four bytes at an offset: an old timestamp.
    Less(usize, u32),
}

impl Bend {
    /// Returns half words at even offsets, and words at each fourth, of a value of `len` bytes.
    fn all(len: usize) -> Vec<Self> {
        let least = f32::MIN_POSITIVE.to_bits();
        let halves = |at| [Self::Half(at, 0), Self::Half(at, u16::MAX)];
        let word = |at| {
            let numbers = [0, u32::MAX, least].map(|word| Self::Word(at, word));
            let earlier = [9_000, 9_000_000].map(|less| Self::Less(at, less));
            [&numbers[..], &earlier[..]].concat()
        };
        let places = |size: usize| (0..(len + 1).saturating_sub(size)).step_by(size);
        places(4).flat_map(word).chain(places(2).flat_map(halves)).collect()
    }

    fn apply(self, value: &mut [u8]) {
        let (Self::Half(at, _) | Self::Word(at, _) | Self::Less(at, _)) = self;
        let size = if matches!(self, Self::Half(..)) { 2 } else { 4 };
        if at + size > value.len() {
            return;
        }
        match self {
            Self::Half(at, half) => value[at..at + 2].copy_from_slice(&half.to_be_bytes()),
            Self::Word(at, word) => value[at..at + 4].copy_from_slice(&word.to_be_bytes()),
            Self::Less(at, less) => {
                let old = u32::from_be_bytes(value[at..at + 4].try_into().expect("four bytes"));
                value[at..at + 4].copy_from_slice(&old.wrapping_sub(less).to_be_bytes());
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Lie {
    bends: Vec<Bend>,
    noise: bool,
    mute: bool,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Bend(Bend),
    Mute,
}

impl Lie {
    fn and(&self, step: Step) -> Self {
        let mut lie = self.clone();
        match step {
            Step::Bend(bend) => lie.bends.push(bend),
            Step::Mute => lie.mute = true,
        }
        lie
    }
}

struct Liar {
    inner: Boxed,
    option: u8,
    lie: Lie,
    dice: Rng,
    len: Rc<RefCell<usize>>,
}

impl Liar {
    fn rewrite(&mut self, packet: &mut [u8], zeros: u32) {
        let Some(place) = report_place(packet, zeros, self.option) else { return };
        let value = &mut packet[place];
        let mut len = self.len.borrow_mut();
        *len = (*len).max(value.len());
        self.lie.bends.iter().for_each(|bend| bend.apply(value));
        if self.lie.noise {
            value.fill_with(|| self.dice.below(256) as u8);
        }
        seal(packet);
    }
}

impl Machine for Liar {
    type Event = FlowEvent;

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        loop {
            let transmit = self.inner.poll_transmit(cx, buf)?;
            if !(self.lie.mute && acknowledges(buf, transmit.zeros)) {
                self.rewrite(buf, transmit.zeros);
                return Some(transmit);
            }
            buf.clear();
        }
    }

    passes_on!(inner: handle_datagram, handle_timeout, handle_close, poll_membership, poll_event, next_timeout);
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    None,
    Floor,
    /// Floor and ceiling: the sender sends at exactly the floor.
    AtFloor,
}

struct Fate {
    done_s: Option<f64>,
    len: usize,
}

impl Fate {
    fn of((scheme, protocol): (&SchemeEntry, Stack), rate: &str, lie: &Lie, bound: Bound) -> Self {
        let floor = match bound {
            Bound::None => String::new(),
            Bound::Floor => format!(", rate_min = \"{FLOOR} bit/s\""),
            Bound::AtFloor => {
                format!(", rate_min = \"{FLOOR} bit/s\", rate_max = \"{FLOOR} bit/s\"")
            }
        };
        let flow = format!("data = \"{OBJECT} B\"\noptions = {{ delivery = \"object\"{floor} }}\n");
        let down = plain(rate, 20);
        let scenario = World { flow, down, ..World::new(3, SECONDS) }.scenario(protocol);
        let liar = scenario.nodes.iter().position(|node| node.name == LIAR).expect("it is there");
        let (option, len) = (scheme.view.report_option, Rc::new(RefCell::new(0)));
        let mixed = Mixed {
            watched: Watched::without_notes(),
            sender: |inner: Boxed| inner,
            receiver: |node: NodeId, inner: Boxed| -> Boxed {
                if node.index() != liar {
                    return inner;
                }
                let dice = Rng::new(1, node, Purpose::Machine(9));
                Box::new(Liar { inner, option, lie: lie.clone(), dice, len: len.clone() })
            },
        };
        let outcome = Simulation::new(&scenario, &mixed, &mut ())
            .expect("no file is read")
            .run(&mut Unobserved);
        let others = || outcome.deliveries[0].iter().skip(1);
        assert!(others().all(|(_, intact)| *intact), "{}: {lie:?}", protocol.name());
        let done = others().map(|(delivery, _)| delivery.completed).collect::<Option<Vec<_>>>();
        let done_s = done.map(|done| done.into_iter().max().expect("two others").as_secs_f64());
        let len = *len.borrow();
        Self { done_s, len }
    }

    fn waited(&self) -> f64 {
        self.done_s.unwrap_or(f64::INFINITY)
    }
}

#[test]
fn a_liar_bends_every_byte_of_a_report_that_is_a_whole_number_of_halves() {
    for len in [2, 4, 6, 12, 18] {
        for byte in 0..len {
            let bent = Bend::all(len).into_iter().filter(|bend| {
                let mut value = vec![0x55; len];
                bend.apply(&mut value);
                value[byte] != 0x55
            });
            assert!(bent.count() >= 2, "byte {byte} of {len}");
        }
    }
    assert_eq!(Bend::all(6).len(), 5 + 3 * 2);
    let mut short = [1, 2];
    Bend::Word(0, 0).apply(&mut short);
    assert_eq!(short, [1, 2]);
}

#[test]
fn who_lies_in_its_reports_holds_nobody_below_the_operators_floor() {
    for (scheme, protocol) in schemes() {
        let hurt = RATES.map(|rate| worst_lie(scheme, protocol, rate));
        // Otherwise the test would not notice a floor without effect.
        let is_tried = hurt.iter().any(|hurt| hurt.waited > MORE * hurt.at_floor);
        let is_unhurt = hurt.iter().all(|hurt| hurt.waited < UNHURT * hurt.honest);
        let name = protocol.name();
        assert!(is_tried || is_unhurt, "{name}: no lie costs more than the floor does: {hurt:?}");
    }
}

/// Completion times in seconds: without lies, with the worst lie, and at the floor without lies.
#[derive(Debug)]
struct Hurt {
    honest: f64,
    waited: f64,
    at_floor: f64,
}

fn worst_lie(scheme: &SchemeEntry, protocol: Stack, rate: &str) -> Hurt {
    let fate = |lie: &Lie, bound| Fate::of((scheme, protocol), rate, lie, bound);
    let at_floor = fate(&Lie::default(), Bound::AtFloor).waited();
    assert!(
        at_floor.is_finite(),
        "{}, {rate}: the floor is more than the path has",
        protocol.name()
    );
    let more = if protocol.has_heads() { MORE_BY_TREE } else { MORE };
    let mut longest = 0.0f64;
    let mut holds = |lie: &Lie| {
        let waited = fate(lie, Bound::Floor).waited();
        longest = longest.max(waited);
        let name = protocol.name();
        assert!(waited < more * at_floor, "{name}, {rate}: {waited} s, {at_floor} s: {lie:?}");
    };
    let mut worst = Lie::default();
    let honest = fate(&worst, Bound::None);
    let mut most = honest.waited();
    assert!(honest.len >= 2 && most.is_finite(), "{}, {rate}: {most}", protocol.name());
    holds(&Lie { noise: true, ..Lie::default() });
    let steps: Vec<Step> = Bend::all(honest.len).into_iter().map(Step::Bend).collect();
    for _ in 0..STEPS {
        let before = worst.clone();
        for step in steps.iter().chain(&[Step::Mute]) {
            let lie = before.and(*step);
            holds(&lie);
            let waited = fate(&lie, Bound::None).waited();
            if waited > most {
                (worst, most) = (lie, waited);
            }
        }
    }
    let without = honest.waited();
    println!("{}, {rate}: {without} s without lies, {most} s with {worst:?}", protocol.name());
    println!("at the floor {at_floor} s, {longest} s with lies at most");
    Hurt { honest: without, waited: most, at_floor }
}
