//! Forged data with growing numbers: a receiver that believes its limits gives up future packets.

use std::cell::Cell;
use std::rc::Rc;

use faircast_base::{Cx, Duration, NodeId, Time};
use faircast_proto::congestion::{Guarantees, SchemeEntry};
use faircast_proto::forgery::{Change, TRAM, Value};
use faircast_proto::stack::Stack;
use faircast_proto::{Datagram, FlowEvent, Machine, passes_on};
use faircast_sim::{Simulation, Unobserved};

use crate::catalogue::Arrivals;
use crate::lies::{Boxed, Mixed};
use crate::watch::Watched;
use crate::world::{World, plain, protocols};

/// Kind of data, flag of repairs, and offsets of number and limit, as in docs/tram.md.
const DATA: u8 = 2;
const FLAGS: usize = 4;
const REPAIR: u8 = 1;
const SEQUENCE: usize = 24;
const FORGET_BEFORE: usize = 32;

const RATE: &str = "2 Mbit/s";
const SECONDS: u64 = 40;
const START: Duration = Duration::from_secs(5);

/// Longest time without data in seconds, and least share of an undisturbed session's bytes: forged
/// losses cut TRAM's window during half of the session.
const STALL_MAX: f64 = 3.0;
const SHARE: f64 = 0.4;

/// Longest time without data in seconds, with an outage of 10 s: schemes restart within 5 s.
const AWAY_MAX: f64 = 15.0;

fn falls(protocol: Stack) -> bool {
    let slow = |scheme: &SchemeEntry| scheme.guarantees.recovery > Guarantees::RECOVERY;
    protocol.scheme.is_some_and(|scheme| scheme.name == "tfmcc" || slow(scheme))
}

#[derive(Clone, Copy, Debug)]
struct Walk {
    /// Distance in packets between a forged packet and the one before.
    step: u64,
    /// Forged packets after a real one, number of such real packets, and their spacing.
    after_each: u32,
    times: u32,
    every: u32,
    all: bool,
}

struct Walked {
    inner: Boxed,
    walk: Walk,
    ahead: u64,
    seen: u32,
    times: u32,
    forged: Rc<Cell<u64>>,
}

impl Walked {
    fn strike(&mut self, cx: &mut Cx<'_>, datagram: &Datagram<'_>) {
        let is_new = TRAM.kind(datagram.bytes) == DATA && datagram.bytes[FLAGS] & REPAIR == 0;
        if !is_new || cx.now < Time::ZERO + START || self.times == self.walk.times {
            return;
        }
        self.seen += 1;
        if !self.seen.is_multiple_of(self.walk.every) {
            return;
        }
        self.times += 1;
        for _ in 0..self.walk.after_each {
            // A single forged packet ahead looks like a host's burst.
            self.ahead =
                if self.walk.every > 1 { self.walk.step } else { self.ahead + self.walk.step };
            let mut bytes = datagram.bytes.to_vec();
            let ahead = Value::Add(self.ahead as i64);
            TRAM.apply(Change::Number(SEQUENCE, ahead), &mut bytes);
            if bytes[FORGET_BEFORE..FORGET_BEFORE + 8] != [0; 8] {
                TRAM.apply(Change::Number(FORGET_BEFORE, ahead), &mut bytes);
            }
            self.inner.handle_datagram(cx, Datagram { bytes: &bytes, ..*datagram });
            self.forged.set(self.forged.get() + 1);
        }
    }
}

impl Machine for Walked {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        self.inner.handle_datagram(cx, datagram);
        self.strike(cx, &datagram);
    }

    passes_on!(inner: handle_timeout, handle_close, poll_membership, poll_transmit, poll_event, next_timeout);
}

/// Returns the longest stall in seconds, the least bytes of a receiver, and the forged packets.
fn run(protocol: Stack, obsolete: u64, walk: Option<Walk>, leaf: &str) -> (f64, u64, u64) {
    let options = format!("obsolete_after = {obsolete}, late_join = \"none\", wait_for = 3");
    let flow = format!("options = {{ {options} }}\n");
    let leaf = plain("10 Mbit/s", 100) + "loss = 0.002\n" + leaf;
    let world = World { flow, down: plain(RATE, 20), leaf, ..World::new(3, SECONDS) };
    let scenario = world.scenario(protocol);
    let first = scenario.nodes.iter().position(|node| node.name == "m1");
    let first = NodeId(first.expect("it is there") as u32);
    let forged = Rc::default();
    let mixed = Mixed {
        watched: Watched::without_notes(),
        sender: |inner: Boxed| inner,
        receiver: |node: NodeId, inner: Boxed| -> Boxed {
            match walk.filter(|walk| walk.all || node == first) {
                Some(walk) => {
                    let forged = Rc::clone(&forged);
                    Box::new(Walked { inner, walk, ahead: 0, seen: 0, times: 0, forged })
                }
                None => inner,
            }
        },
    };
    let mut arrivals = Arrivals::of(u64::MAX);
    let simulation = Simulation::new(&scenario, &mixed, &mut arrivals).expect("no file is read");
    let outcome = simulation.run(&mut Unobserved);
    let least = outcome.deliveries[0].iter().map(|(delivery, _)| delivery.bytes).min();
    (arrivals.longest_stall(outcome.at), least.expect("there are receivers"), forged.get())
}

#[test]
fn forged_data_that_walks_ahead_of_a_source_that_forgets_costs_a_second() {
    let walk = Walk { step: 15, after_each: 11, times: 100, every: 1, all: true };
    let walks = [
        walk,
        Walk { all: false, ..walk },
        Walk { step: 63, after_each: 1, times: 500, ..walk },
        Walk { step: 1, ..walk },
        Walk { step: 64, after_each: 1, times: 20, every: 250, ..walk },
    ];
    let mut faults = Vec::new();
    for protocol in protocols().into_iter().filter(Stack::has_heads) {
        for obsolete_after in [0, 1, 150] {
            let (_, usual, _) = run(protocol, obsolete_after, None, "");
            for walk in walks {
                let (stall, bytes, forged) = run(protocol, obsolete_after, Some(walk), "");
                let share = bytes as f64 / usual as f64;
                let said = format!(
                    "{}, obsolete after {obsolete_after}, {walk:?}: {forged} forged, stall of \
                     {stall:.2} s, {share:.2} of the data",
                    protocol.name()
                );
                println!("{said}");
                assert!(forged >= 20, "{said}");
                if !falls(protocol) && (stall > STALL_MAX || share < SHARE) {
                    faults.push(said);
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn receivers_that_were_away_give_up_what_was_forgotten_and_go_on() {
    let away = "outages = [ { from = \"8 s\", to = \"18 s\" } ]\n";
    for protocol in protocols().into_iter().filter(Stack::has_heads) {
        for obsolete_after in [1, 150] {
            let (_, usual, _) = run(protocol, obsolete_after, None, "");
            let (stall, bytes, _) = run(protocol, obsolete_after, None, away);
            let share = bytes as f64 / usual as f64;
            let said = format!(
                "{}, obsolete after {obsolete_after}: stall of {stall:.2} s, {share:.2} of the data",
                protocol.name()
            );
            println!("{said}");
            assert!(stall < AWAY_MAX && share > SHARE, "{said}");
        }
    }
}
