//! Networks in which every registered protocol can run, and the records of the runs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use faircast_base::{DropReason, Duration, Event, LinkCounters, NodeId, Time};
use faircast_proto::stack::Stack;
use faircast_scenario::{Catalog, Overrides, Scenario};
use faircast_sim::{SimOutcome, Simulation, Unobserved, catalog};
use faircast_trace::{Hasher, Record, Sink, Subject};

use crate::watch::{Notes, Watched};

/// Network of a sender `s`, a router `r` and receivers `m1`, `m2` ... around it.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
    pub(crate) receivers: u32,
    pub(crate) down: String,
    pub(crate) up: String,
    pub(crate) leaf: String,
    pub(crate) program: Option<&'static str>,
    pub(crate) flow: String,
}

impl World {
    /// Makes a world with 500 kbit/s at the sender and 1 % loss on the link to each receiver.
    pub(crate) fn new(receivers: u32, seconds: u64) -> Self {
        Self {
            seconds,
            seed: 1,
            receivers,
            down: plain("500 kbit/s", 20),
            up: plain("50 Mbit/s", 100_000),
            leaf: plain("10 Mbit/s", 100) + "loss = 0.01\n",
            program: None,
            flow: String::new(),
        }
    }

    pub(crate) fn scenario(&self, protocol: Stack) -> Scenario {
        let receivers = if protocol.transport.multicast { self.receivers } else { 1 };
        let mut text = format!(
            "title = \"Does {} keep the contract?\"\nduration = \"{} s\"\nseed = {}\n",
            protocol.name(),
            self.seconds,
            self.seed
        );
        let mut link = |from: &str, to: &str, keys: &str| {
            write!(text, "[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\n{keys}")
                .expect("a string takes everything");
        };
        link("s", "r", &self.down);
        link("r", "s", &self.up);
        for i in 1..=receivers {
            link("r", &format!("m{i}"), &self.leaf);
            link(&format!("m{i}"), "r", &plain("10 Mbit/s", 1000));
        }
        if let Some(program) = self.program {
            text += &format!("[[node]]\nname = \"r\"\nprogram = \"{program}\"\n");
        }
        let to = if receivers == 1 { "m1".into() } else { format!("m{{1..{receivers}}}") };
        text += &format!(
            "[[flow]]\nname = \"f\"\nprotocol = \"{}\"\nfrom = \"s\"\nto = [\"{to}\"]\n\
             packet = \"1000 B\"\n{}",
            protocol.name(),
            self.flow
        );
        let parsed =
            Scenario::parse(Path::new("world.toml"), &text, &Overrides::default(), &catalog());
        parsed.unwrap_or_else(|error| panic!("{error}\n{text}"))
    }
}

/// Returns the keys of a link with this rate, a delay of 10 ms and a queue of `packets` packets.
pub(crate) fn plain(rate: &str, packets: u32) -> String {
    format!(
        "rate = \"{rate}\"\ndelay = \"10 ms\"\n\
         queue = {{ kind = \"droptail\", packets = {packets} }}\n"
    )
}

pub(crate) const TCP: &str = "tcp-sack";

/// Returns the protocols that the simulator runs; `FAIRCAST_SCHEME` selects a scheme, and TCP.
#[expect(clippy::disallowed_methods, reason = "what is tested, and nothing else")]
pub(crate) fn protocols() -> Vec<Stack> {
    let Catalog { mut protocols, .. } = catalog();
    protocols.retain(|protocol| protocol.is_simulated());
    assert!(protocols.len() >= 5, "pgmcc, three kinds of TCP and CBR at least");
    if let Ok(asked) = std::env::var("FAIRCAST_SCHEME") {
        let is_asked_for = |it: &Stack| it.scheme.is_some_and(|scheme| scheme.name == asked);
        assert!(protocols.iter().any(is_asked_for), "FAIRCAST_SCHEME: no scheme is named {asked}");
        protocols.retain(|it| is_asked_for(it) || it.name() == TCP);
    }
    protocols
}

#[derive(Default)]
pub(crate) struct Heard {
    last: Time,
    pub(crate) hasher: Hasher,
    pub(crate) sent: Vec<Time>,
    pub(crate) delivered: Vec<Time>,
    pub(crate) losses: u64,
    open: BTreeMap<(NodeId, u64), Time>,
    missing: Duration,
    pub(crate) drops: BTreeMap<usize, u64>,
    pub(crate) drop_reasons: Vec<DropReason>,
    pub(crate) duplicated: BTreeMap<usize, u64>,
    pub(crate) counters: BTreeMap<usize, LinkCounters>,
    pub(crate) bad_input: u64,
}

impl Sink for Heard {
    fn record(&mut self, record: &Record) {
        assert!(record.at >= self.last, "a trace goes back from {} to {}", self.last, record.at);
        self.last = record.at;
        self.hasher.record(record);
        match (record.event, record.subject) {
            (Event::DataSent { .. }, _) => self.sent.push(record.at),
            (Event::Delivered { seq, .. }, Subject::Endpoint { node, .. }) => {
                self.delivered.push(record.at);
                self.close((node, seq), record.at);
            }
            (Event::Abandoned { seq, count }, Subject::Endpoint { node, .. }) => {
                for seq in seq..seq + count {
                    self.close((node, seq), record.at);
                }
            }
            (Event::LossDetected { seq, count }, Subject::Endpoint { node, .. }) => {
                self.losses += count;
                self.open.extend((seq..seq + count).map(|seq| ((node, seq), record.at)));
            }
            (Event::BadInput { .. }, _) => self.bad_input += 1,
            (Event::PacketDropped { reason, .. }, subject) => {
                self.drop_reasons.push(reason);
                if let Subject::Link(link) = subject {
                    *self.drops.entry(link.index()).or_default() += 1;
                }
            }
            (Event::PacketDuplicated { .. }, Subject::Link(link)) => {
                *self.duplicated.entry(link.index()).or_default() += 1;
            }
            (Event::LinkSample(counters), Subject::Link(link)) => {
                self.counters.insert(link.index(), counters);
            }
            _ => {}
        }
    }
}

impl Heard {
    fn close(&mut self, what: (NodeId, u64), at: Time) {
        if let Some(since) = self.open.remove(&what) {
            self.missing += at.since(since);
        }
    }

    pub(crate) fn missing(&self, end: Time) -> Duration {
        self.open.values().fold(self.missing, |sum, since| sum + end.since(*since))
    }
}

pub(crate) fn run(scenario: &Scenario) -> (SimOutcome, Heard, Watched) {
    let (mut heard, watched) = (Heard::default(), Watched::default());
    let outcome = Simulation::new(scenario, &watched, &mut heard)
        .expect("no file is read")
        .run(&mut Unobserved);
    assert!(watched.notes.borrow().calls > 0, "somebody was watched");
    (outcome, heard, watched)
}

pub(crate) fn reports(watched: &Watched) -> u64 {
    let Notes { reports, .. } = &*watched.notes.borrow();
    *reports
}
