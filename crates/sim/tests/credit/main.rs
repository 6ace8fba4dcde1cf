//! Sessions under credits: no queue overflows, no loss stops them, and a policy sets the pace.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use faircast_base::{Cx, DropReason, Duration, Event, FlowId, NodeId, Time};
use faircast_proto::relay::{Egress, Handling, Interest, PortId, Relay, RelayPacket};
use faircast_proto::transport::Role;
use faircast_proto::{FlowEvent, FlowMachine, Machine, Transmit, passes, passes_on};
use faircast_scenario::{Flow, Overrides, Program, Scenario};
use faircast_sim::{Builtin, Protocols, SimOutcome, Simulation, Unobserved, catalog};
use faircast_trace::{Record, Sink};

/// Network of a source above two chained relays with one and two receivers; the slowest: 1 Mbit/s.
struct World {
    protocol: &'static str,
    seconds: u32,
    data: &'static str,
    options: &'static str,
    down: String,
    up: String,
    slowest: String,
    to: &'static str,
    more: &'static str,
}

impl World {
    fn new() -> Self {
        let (down, up, slowest) = (String::new(), String::new(), String::new());
        let (protocol, options) = ("credit", "");
        let to = "m{1..3}";
        Self { protocol, seconds: 60, data: "1 MB", options, down, up, slowest, to, more: "" }
    }

    fn text(&self) -> String {
        let mut text =
            format!("title = \"Does everything find room?\"\nduration = \"{} s\"\n", self.seconds);
        for (from, to, rate) in
            [("s", "a", 10), ("a", "b", 10), ("a", "m1", 10), ("b", "m2", 10), ("b", "m3", 1)]
        {
            let slowest = if to == "m3" { &self.slowest } else { "" };
            let keys = |keys: &str| format!("{keys}\n{slowest}");
            for (from, to, keys) in [(from, to, keys(&self.down)), (to, from, keys(&self.up))] {
                text += &format!(
                    "[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"{rate} Mbit/s\"\n\
                     delay = \"5 ms\"\nqueue = {{ kind = \"droptail\", packets = 20 }}\n{keys}\n"
                );
            }
        }
        for relay in ["a", "b"] {
            text += &format!("[[node]]\nname = \"{relay}\"\nprogram = \"credit\"\n");
        }
        text + &format!(
            "[[flow]]\nname = \"f\"\nprotocol = \"{}\"\nfrom = \"s\"\nto = [\"{}\"]\n\
             packet = \"512 B\"\ndata = \"{}\"\noptions = {{ {} }}\n{}",
            self.protocol, self.to, self.data, self.options, self.more
        )
    }

    #[track_caller]
    fn run(&self) -> Run {
        self.run_with(&Builtin)
    }

    #[track_caller]
    fn run_with(&self, protocols: &dyn Protocols) -> Run {
        let text = self.text();
        let scenario =
            Scenario::parse(Path::new("test.toml"), &text, &Overrides::default(), &catalog())
                .unwrap_or_else(|error| panic!("{error}\n{text}"));
        let mut heard = Heard::default();
        let simulation = Simulation::new(&scenario, protocols, &mut heard).unwrap();
        let outcome = simulation.run(&mut Unobserved);
        Run { outcome, full: heard.full }
    }
}

#[derive(Default)]
struct Heard {
    full: u64,
}

impl Sink for Heard {
    fn record(&mut self, record: &Record) {
        if let Event::PacketDropped { reason: DropReason::QueueFull, .. } = record.event {
            self.full += 1;
        }
    }
}

struct Run {
    outcome: SimOutcome,
    full: u64,
}

impl Run {
    #[track_caller]
    fn completed(&self, case: &str) -> Time {
        for (delivery, intact) in &self.outcome.deliveries[0] {
            assert!(*intact && delivery.completed.is_some(), "{case}: {delivery:?}");
        }
        self.outcome.deliveries[0].iter().filter_map(|(it, _)| it.completed).max().unwrap()
    }
}

struct Losing {
    nth: u64,
    seen: Rc<Cell<u64>>,
}

impl Losing {
    fn of<T>(&self, inner: T) -> Lossy<T> {
        Lossy { inner, nth: self.nth, seen: self.seen.clone() }
    }
}

impl Protocols for Losing {
    fn end(&self, flow: &Flow, id: FlowId, node: NodeId, role: Role, start: Time) -> FlowMachine {
        Box::new(self.of(Builtin.end(flow, id, node, role, start)))
    }

    fn relay(&self, program: &Program, node: NodeId) -> Box<dyn Relay> {
        Box::new(self.of(Builtin.relay(program, node)))
    }
}

struct Lossy<T> {
    inner: T,
    nth: u64,
    seen: Rc<Cell<u64>>,
}

impl<T> Lossy<T> {
    /// True for the credit packet to drop. Its first bytes are as in docs/credits.md.
    fn loses(&self, bytes: &[u8]) -> bool {
        let is_credit = bytes.starts_with(b"fr\x01\x03");
        self.seen.set(self.seen.get() + u64::from(is_credit));
        is_credit && self.seen.get() == self.nth
    }
}

impl Machine for Lossy<FlowMachine> {
    type Event = FlowEvent;

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        loop {
            let transmit = self.inner.poll_transmit(cx, buf)?;
            if !self.loses(buf) {
                return Some(transmit);
            }
            buf.clear();
        }
    }

    passes_on!(inner: handle_datagram, handle_timeout, handle_close, poll_membership, poll_event, next_timeout);
}

impl Relay for Lossy<Box<dyn Relay>> {
    passes! { inner:
        fn interest(&self) -> Interest;
        fn handle_writable(&mut self, cx: &mut Cx<'_>, port: PortId);
        fn handle_packet(
            &mut self, cx: &mut Cx<'_>, packet: &RelayPacket<'_>, buf: &mut Vec<u8>
        ) -> Handling;
    }
    passes_on!(inner: handle_timeout, next_timeout);

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Egress> {
        loop {
            let egress = self.inner.poll_transmit(cx, buf)?;
            if !self.loses(buf) {
                return Some(egress);
            }
            buf.clear();
        }
    }
}

const ROWS: [&str; 4] = ["credit", "credit-pgmcc", "credit-tfmcc", "credit-ormcc"];

#[test]
fn nothing_is_lost_for_want_of_room() {
    for protocol in ROWS {
        let run = World { protocol, ..World::new() }.run();
        let done = run.completed(protocol);
        assert_eq!(run.full, 0, "{protocol}");
        // 1 MB in packets of 512 bytes takes 10 s over 1 Mbit/s, with all headers.
        assert!(done < Time::ZERO + Duration::from_secs(25), "{protocol}: {done}");
    }
}

#[test]
fn any_credit_may_be_lost() {
    let world = World { data: "40 kB", ..World::new() };
    let usual = world.run().completed("nothing lost");
    let mut nth = 0;
    loop {
        nth += 1;
        let losing = Losing { nth, seen: Rc::default() };
        let run = world.run_with(&losing);
        if losing.seen.get() < nth {
            break;
        }
        let case = format!("credit {nth}");
        assert!(run.completed(&case) < usual + Duration::from_secs(3), "{case}");
    }
    assert!(nth > 100, "{nth} credits were lost, one in each run");
}

#[test]
fn everything_arrives_whatever_is_lost() {
    for protocol in ROWS {
        for (case, down, up) in [
            ("10 % of all that goes upward", "", "loss = 0.1"),
            ("5 % of all that goes downward", "loss = 0.05", ""),
            ("both", "loss = 0.05", "loss = 0.1"),
            ("nothing goes for 5 s", "outages = [ { from = \"3 s\", to = \"8 s\" } ]", ""),
            ("no credit comes for 5 s", "", "outages = [ { from = \"3 s\", to = \"8 s\" } ]"),
        ] {
            let (down, up) = (down.into(), up.into());
            let run = World { protocol, seconds: 600, down, up, ..World::new() }.run();
            run.completed(&format!("{protocol}, {case}"));
        }
    }
}

#[test]
fn a_receiver_that_is_cut_off_holds_others_up_for_no_longer_than_its_tag() {
    let slowest = "outages = [ { from = \"3 s\", to = \"1000 s\" } ]";
    let cut = World { seconds: 60, slowest: slowest.into(), ..World::new() }.run();
    let others = &cut.outcome.deliveries[0][..2];
    // A silent receiver is dropped after 3 s, and from the tree after some hellos.
    for (delivery, intact) in others {
        let done = delivery.completed.unwrap_or_else(|| panic!("{delivery:?}"));
        assert!(*intact && done < Time::ZERO + Duration::from_secs(30), "{done}");
    }
}

#[test]
fn a_session_under_credits_shares_a_link_with_tcp() {
    let more = "[[link]]\nbetween = [\"t\", \"a\"]\nrate = \"10 Mbit/s\"\ndelay = \"5 ms\"\n\
                [[link]]\nbetween = [\"b\", \"c\"]\nrate = \"10 Mbit/s\"\ndelay = \"5 ms\"\n\
                [[flow]]\nname = \"t\"\nprotocol = \"tcp-sack\"\nfrom = \"t\"\nto = [\"m3\"]\n\
                packet = \"512 B\"\n";
    for protocol in ["credit", "credit-pgmcc"] {
        let world = World { protocol, seconds: 40, data: "unlimited", more, ..World::new() };
        let outcome = world.run().outcome;
        let bytes = |flow: usize| outcome.deliveries[flow].last().unwrap().0.bytes as f64;
        let ratio = bytes(0) / bytes(1);
        // Deficit round robin shares bytes with headers; a session under credits has more headers.
        assert!((0.65..1.2).contains(&ratio), "{protocol}: {ratio}");
    }
}

#[test]
fn one_receiver_alone_is_under_credits_too() {
    let world = World { data: "300 kB", options: "wait_for = 1", to: "m3", ..World::new() };
    let run = world.run();
    assert_eq!(run.full, 0, "nothing is sent for which there is no room");
    run.completed("one receiver");
}
