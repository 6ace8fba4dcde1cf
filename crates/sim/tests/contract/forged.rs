//! Packets forged in the sender's or a receiver's name. Sessions recover and deliver everything.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use faircast_base::{Cx, Duration, NodeId, Purpose, Rng, Time};
use faircast_proto::catalog::scheme;
use faircast_proto::pgm::wire::{Body, Encoder, OptionType, Packet};
use faircast_proto::stack::Stack;
use faircast_proto::{Datagram, Destination, FlowEvent, Machine, Transmit, passes_on};
use faircast_sim::{Simulation, Unobserved};

use crate::catalogue::Arrivals;
use crate::forge::{Forger, seal};
use crate::lies::{Boxed, Mixed};
use crate::watch::{Captured, Watched};
use crate::world::{World, plain, protocols};

const OBJECT: u64 = 2_500_000;
const RATE: &str = "2 Mbit/s";

/// Tolerance: the rate of a session varies, and a different loss changes the session.
const CHANCE: f64 = 1.2;

/// Runs of each case without a flood; `FAIRCAST_FORGED_SEEDS` gives another number or a range.
const SEEDS: u64 = 6;

/// Returns the first `default` seeds, or those in the variable: a number, or such as `100..300`.
#[expect(clippy::disallowed_methods, reason = "how long it searches, and nothing else")]
pub(crate) fn seeds(variable: &str, default: u64) -> Range<u64> {
    let Ok(asked) = std::env::var(variable) else { return 0..default };
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{variable} has numbers"));
    match asked.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => 0..number(&asked),
    }
}

#[expect(clippy::disallowed_methods, reason = "how long it searches, and nothing else")]
fn is_asked_for(case: &Case) -> bool {
    let asked = std::env::var("FAIRCAST_FORGED_CASE");
    asked.map_or(true, |asked| case.to_string().contains(&asked))
}

const NODES: u32 = 5;

const KEPT: usize = 16;

struct Attacked {
    inner: Boxed,
    attack: Attack,
    dice: Rng,
    real: Vec<Captured>,
    spm: Option<Captured>,
    data: Option<Captured>,
    moments: Vec<Time>,
    forged: Rc<Cell<u64>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Attack {
    Nothing,
    Some(u64),
    /// Damaged packets by seed: 6000 per second for this duration.
    Flood(Duration, u64),
}

impl Attack {
    fn moments(self, place: u32) -> (Vec<Time>, Rng) {
        let seed = if let Self::Some(seed) | Self::Flood(_, seed) = self { seed } else { 0 };
        let mut dice = Rng::new(seed, NodeId(place), Purpose::Machine(7));
        let start = Time::ZERO + Duration::from_millis(1500);
        let mut moments: Vec<Time> = match self {
            Self::Nothing => Vec::new(),
            Self::Some(_) => {
                let first = start + dice.up_to(Duration::from_secs(4));
                let spread = [1, 300, 2000][dice.below(3) as usize];
                let count = 1 + dice.below(10);
                (0..count).map(|_| first + dice.up_to(Duration::from_millis(spread))).collect()
            }
            Self::Flood(span, _) => {
                // TFMCC has reached its rate by then.
                let (start, gap) = (start + Duration::from_secs(5), Duration::from_secs(1) / 6000);
                (0..span.as_nanos() / gap.as_nanos()).map(|i| start + gap * i).collect()
            }
        };
        moments.sort_unstable();
        moments.reverse();
        (moments, dice)
    }
}

impl Attacked {
    fn around(inner: Boxed, attack: Attack, place: u32, forged: &Rc<Cell<u64>>) -> Boxed {
        let (moments, dice) = attack.moments(place);
        let forged = forged.clone();
        let (spm, data, real) = (None, None, Vec::new());
        Box::new(Self { inner, attack, dice, real, spm, data, moments, forged })
    }

    fn keep(&mut self, datagram: &Datagram<'_>) {
        let Datagram { from, to, bytes, zeros, .. } = *datagram;
        let captured = Captured { from, to, bytes: bytes.to_vec(), zeros };
        match Packet::decode(bytes, zeros).map(|packet| packet.body) {
            Ok(Body::Spm(_)) => self.spm = Some(captured.clone()),
            Ok(Body::Odata(_)) => self.data = Some(captured.clone()),
            _ => {}
        }
        if self.real.len() == KEPT {
            self.real.remove(0);
        }
        self.real.push(captured);
    }

    fn forge(&mut self) -> Captured {
        let plain = matches!(self.attack, Attack::Some(_));
        match (self.dice.below(4), self.data.clone(), self.spm.clone()) {
            (0, Some(data), _) if plain => self.forge_data(data),
            (1 | 2, _, Some(spm)) if plain => self.forge_spm(&spm),
            _ => {
                let seed = self.dice.bits();
                Forger::new(seed, &self.real).packet()
            }
        }
    }

    fn ahead(&mut self) -> u32 {
        let far = self.dice.bits() as u32;
        [1 + far % 64, 100 + far % 1000, 100_000, 100_000_000, far][self.dice.below(5) as usize]
    }

    fn forge_data(&mut self, mut data: Captured) -> Captured {
        let ahead = self.ahead();
        add(&mut data.bytes, 16, ahead);
        if self.dice.chance(0.5) {
            add(&mut data.bytes, 20, ahead);
        }
        seal(&mut data.bytes);
        data
    }

    fn forge_spm(&mut self, real: &Captured) -> Captured {
        let packet = Packet::decode(&real.bytes, real.zeros).expect("it was decoded before");
        let Body::Spm(mut spm) = packet.body else { return real.clone() };
        let far = self.ahead();
        spm.sequence += 1;
        let way = self.dice.below(7);
        match way {
            0 => spm.lead += far,
            1 => spm.sequence += far,
            2 => (spm.trail, spm.lead) = (spm.trail + far, spm.lead + far),
            3 => spm.path = faircast_proto::pgm::wire::Nla::V4([10, 9, 8, 7]),
            _ => {}
        }
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, &packet.header, &Body::Spm(spm));
        for option in packet.options.iter() {
            if option.kind != OptionType::SCHEME || way != 4 {
                encoder.raw_option(option.kind, option.specific, option.value);
            }
        }
        match way {
            4 => {
                encoder.raw_option(OptionType::SCHEME, 0, b"\x01\x07another");
            }
            5 => {
                encoder.option(OptionType::FIN, &[]);
            }
            6 => {
                encoder.option(OptionType::RST, &[]);
            }
            _ => {}
        }
        encoder.finish();
        Captured { bytes, zeros: 0, ..*real }
    }
}

fn add(bytes: &mut [u8], place: usize, more: u32) {
    if let Some(word) = bytes.get_mut(place..place + 4) {
        let old = u32::from_be_bytes(word.try_into().expect("four bytes"));
        word.copy_from_slice(&old.wrapping_add(more).to_be_bytes());
    }
}

impl Machine for Attacked {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if self.attack != Attack::Nothing {
            self.keep(&datagram);
        }
        self.inner.handle_datagram(cx, datagram);
        while self.moments.last().is_some_and(|at| *at <= cx.now) {
            self.moments.pop();
            let Captured { from, to, bytes, zeros } = self.forge();
            let forged = Datagram { zeros, ..Datagram::new(from, to, &bytes) };
            self.inner.handle_datagram(cx, forged);
            self.forged.set(self.forged.get() + 1);
        }
    }

    passes_on!(inner: handle_timeout, handle_close, poll_membership, poll_event, next_timeout);

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        loop {
            let transmit = self.inner.poll_transmit(cx, buf)?;
            if !matches!(transmit.to, Destination::Node(node) if node.0 >= NODES) {
                return Some(transmit);
            }
            buf.clear();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Victims {
    Receivers,
    /// Sender as the victim; as reports may be false, the operator sets a floor (see `lies`).
    Sender,
}

const FLOOR: &str = "1600 kbit/s";

#[derive(Clone, Copy)]
struct Case {
    protocol: Stack,
    delivery: &'static str,
    victims: Victims,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}, {:?}", self.protocol.name(), self.delivery, self.victims)
    }
}

fn run(case: Case, attack: Attack) -> (Option<f64>, u64) {
    let Case { protocol, delivery, victims } = case;
    let tells = protocol.has_option("delivery");
    let delivery_key = if tells { format!("delivery = \"{delivery}\"") } else { "ttl = 32".into() };
    // Other protocols announce the scheme in any case, or have a control without reported rates.
    let announces =
        if scheme(&protocol.name()).is_some() { ", announce_scheme = true" } else { "" };
    let floor = match victims {
        Victims::Sender if protocol.name() != "tram" => format!(", rate_min = \"{FLOOR}\""),
        _ => String::new(),
    };
    let flow = format!("data = \"{OBJECT} B\"\noptions = {{ {delivery_key}{announces}{floor} }}\n");
    let against = |victim| if victim == victims { attack } else { Attack::Nothing };
    let leaf = plain("10 Mbit/s", 100) + "loss = 0.002\n";
    let world = World { flow, down: plain(RATE, 20), leaf, ..World::new(3, 60) };
    let scenario = world.scenario(protocol);
    let forged = Rc::default();
    let mixed = Mixed {
        watched: Watched::without_notes(),
        sender: |inner: Boxed| Attacked::around(inner, against(Victims::Sender), 0, &forged),
        receiver: |node: NodeId, inner: Boxed| {
            Attacked::around(inner, against(Victims::Receivers), node.0, &forged)
        },
    };
    // Forged packets may replace a few real ones.
    let mut arrivals = Arrivals::of(OBJECT);
    let simulation = Simulation::new(&scenario, &mixed, &mut arrivals).expect("no file is read");
    let outcome = simulation.run(&mut Unobserved);
    for (delivered, intact) in &outcome.deliveries[0] {
        let whole = *intact || delivery == "stream" && delivered.lost_packets == 0;
        assert!(whole, "{case}, {attack:?}: {delivered:?}");
    }
    (arrivals.done_s(outcome.deliveries[0].len()), forged.get())
}

fn each(mut check: impl FnMut(Case, f64)) {
    let mut protocols = protocols();
    protocols.retain(Stack::is_reliable_multicast);
    for protocol in protocols {
        let tells = protocol.has_option("delivery");
        for delivery in ["stream", "object"].into_iter().filter(|it| tells || *it == "stream") {
            for victims in [Victims::Receivers, Victims::Sender] {
                let case = Case { protocol, delivery, victims };
                if !is_asked_for(&case) {
                    continue;
                }
                let (quiet, none) = run(case, Attack::Nothing);
                assert_eq!(none, 0);
                check(case, quiet.expect("nothing is in its way"));
            }
        }
    }
}

fn assert_recovers(seeds: Range<u64>, forged_min: u64, span: Duration, attack: fn(u64) -> Attack) {
    let (mut failed, mut worst) = (Vec::new(), 0.0f64);
    each(|case, quiet| {
        for seed in seeds.clone() {
            let (done, forged) = run(case, attack(seed));
            assert!(forged >= forged_min, "{case}: {forged}");
            let lost = done.unwrap_or(f64::INFINITY) - CHANCE * quiet - span.as_secs_f64();
            worst = worst.max(lost);
            if lost > case.protocol.recovery().as_secs_f64() {
                failed.push(format!("{case}, seed {seed}: {done:?} s for {quiet:.1} s"));
            }
        }
    });
    println!("{worst:.1} s lost at most");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn after_some_forged_packets_a_session_is_soon_what_it_was() {
    let seeds = seeds("FAIRCAST_FORGED_SEEDS", SEEDS);
    assert_recovers(seeds, 1, Duration::ZERO, |seed| Attack::Some(seed + 1));
}

#[test]
fn a_flood_of_damaged_packets_ends_and_a_session_goes_on() {
    const SPAN: Duration = Duration::from_secs(2);
    let seeds = seeds("FAIRCAST_FORGED_SEEDS", 1);
    assert_recovers(seeds, 5_001, SPAN, |seed| Attack::Flood(SPAN, seed));
}
