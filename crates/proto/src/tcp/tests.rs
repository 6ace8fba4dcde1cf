//! Tests of the two ends over a network that loses, reorders and duplicates, and against garbage.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::content::{Content, InMemory, Zeros};
use crate::options::{OptionValue, Options};
use crate::{Datagram, Destination, FlowEvent, Machine, StreamEvent};
use faircast_base::{Duration, Event, FlowId, NodeId, Purpose, Rng, Time};
use proptest::prelude::*;

use super::wire::{SackBlocks, Segment};
use super::{Flavour, OPTIONS, TcpReceiver, TcpSender};
use crate::transport::EndSetup;
use crate::world::Host;

const SENDER: NodeId = NodeId(1);
const RECEIVER: NodeId = NodeId(2);

type UnderWay = (Time, u64, NodeId, Vec<u8>, u32);

struct Pair {
    now: Time,
    sender: Host<TcpSender>,
    receiver: Host<TcpReceiver>,
    faults: Rng,
    under_way: Vec<UnderWay>,
    order: u64,
    receiver_done: bool,
    zeros: u64,
    sender_done: bool,
}

#[derive(Clone, Copy, Debug)]
struct Faults {
    loss: f64,
    duplication: f64,
    reordering: f64,
}

const NO_FAULTS: Faults = Faults { loss: 0.0, duplication: 0.0, reordering: 0.0 };

impl Pair {
    fn new(flavour: Flavour, options: &Options, content: Box<dyn Content>, seed: u64) -> Self {
        let setup = |node, peer: &'static NodeId| EndSetup {
            flow: FlowId(7),
            node,
            sources: std::slice::from_ref(peer),
            to: Destination::Node(*peer),
            start: Time::ZERO,
            payload: 100,
            header: None,
            options,
            head: None,
        };
        let sender = TcpSender::new(flavour, setup(SENDER, &RECEIVER), content);
        let receiver = TcpReceiver::new(flavour, setup(RECEIVER, &SENDER));
        Self {
            now: Time::ZERO,
            sender: Host::new(SENDER, sender, seed).keeping(),
            receiver: Host::new(RECEIVER, receiver, seed).keeping(),
            faults: Rng::new(seed, SENDER, Purpose::Fault),
            under_way: Vec::new(),
            order: 0,
            receiver_done: false,
            zeros: 0,
            sender_done: false,
        }
    }

    fn step(&mut self, faults: Faults) -> bool {
        let packet = (0..self.under_way.len()).min_by_key(|i| {
            let (at, order, ..) = self.under_way[*i];
            (at, order)
        });
        let arrival = packet.map(|i| self.under_way[i].0);
        let timers = [self.sender.machine.next_timeout(), self.receiver.machine.next_timeout()];
        let timer = timers.into_iter().flatten().min();
        match (arrival, timer) {
            (None, None) => return false,
            (Some(at), timer) if timer.is_none_or(|timer| at <= timer) => {
                self.now = self.now.max(at);
                let index = packet.expect("a packet arrives");
                let (_, _, to, bytes, zeros) = self.under_way.swap_remove(index);
                self.arrive(to, &bytes, zeros);
            }
            (_, Some(at)) => {
                self.now = self.now.max(at);
                self.sender.act(self.now, |machine, cx| machine.handle_timeout(cx));
                self.receiver.act(self.now, |machine, cx| machine.handle_timeout(cx));
            }
            (Some(_), None) => unreachable!("the second arm takes arrivals without a timer"),
        }
        self.drain(faults);
        true
    }

    fn arrive(&mut self, to: NodeId, bytes: &[u8], zeros: u32) {
        let from = if to == SENDER { RECEIVER } else { SENDER };
        let datagram = Datagram { zeros, ..Datagram::new(from, Destination::Node(to), bytes) };
        if to == SENDER {
            self.sender.act(self.now, |machine, cx| machine.handle_datagram(cx, datagram));
        } else {
            self.receiver.act(self.now, |machine, cx| machine.handle_datagram(cx, datagram));
        }
    }

    fn drain(&mut self, faults: Faults) {
        let sent = (self.sender.drain(self.now), self.receiver.drain(self.now));
        for (to, sent) in [(RECEIVER, sent.0), (SENDER, sent.1)] {
            for (transmit, bytes) in sent {
                assert_eq!(transmit.to, Destination::Node(to));
                assert_eq!(transmit.wire_len, Some(20 + bytes.len() as u32 + transmit.zeros));
                self.send(to, bytes, transmit.zeros, faults);
            }
        }
        let sender = &self.sender.machine;
        assert!(sender.window.cwnd >= 1.0 || sender.next_timeout().is_some());
        for (_, event) in self.receiver.app.drain(..) {
            match event {
                StreamEvent::Flow(FlowEvent::Delivered { zeros, .. }) => {
                    self.zeros += u64::from(zeros)
                }
                StreamEvent::Flow(FlowEvent::Completed) => self.receiver_done = true,
                other => panic!("{other:?}"),
            }
        }
        for (_, event) in self.sender.app.drain(..) {
            assert_eq!(event, FlowEvent::Completed.into());
            assert!(self.receiver_done, "the receiver has it before the sender knows");
            self.sender_done = true;
        }
    }

    fn count(&self, which: impl Fn(&Event) -> bool) -> usize {
        self.sender.log.count(&which) + self.receiver.log.count(&which)
    }

    fn bad_input(&self) -> usize {
        self.count(|event| matches!(event, Event::BadInput { .. }))
    }

    fn send(&mut self, to: NodeId, bytes: Vec<u8>, zeros: u32, faults: Faults) {
        if self.faults.chance(faults.loss) {
            return;
        }
        let copies = 1 + usize::from(self.faults.chance(faults.duplication));
        for _ in 0..copies {
            let late_ms =
                if self.faults.chance(faults.reordering) { self.faults.below(60) } else { 0 };
            let at = self.now + Duration::from_millis(20 + late_ms);
            self.order += 1;
            self.under_way.push((at, self.order, to, bytes.clone(), zeros));
        }
    }

    /// Checks that delivered bytes are a prefix of the object, and finally the whole object.
    fn run(&mut self, faults: Faults, faulty_steps: usize, object: &[u8]) {
        let mut checked = 0;
        for _ in 0..faulty_steps {
            if !self.step(faults) {
                break;
            }
            let news = checked..self.receiver.payload.len();
            assert_eq!(
                object.get(news.clone()),
                self.receiver.payload.get(news),
                "a prefix at all times"
            );
            checked = self.receiver.payload.len();
        }
        let mut steps = 0;
        while self.step(NO_FAULTS) {
            steps += 1;
            assert!(steps < 100_000, "does not come to an end");
        }
        assert_eq!(self.receiver.payload, object);
        assert!(self.receiver_done && self.sender_done);
        assert_eq!(self.sender.machine.next_timeout(), None, "nothing is left to do");
        assert_eq!(self.count(|event| matches!(event, Event::Completed { .. })), 2);
    }
}

fn options(pairs: &[(&str, OptionValue)]) -> Options {
    Options::checked(pairs.iter().map(|(k, v)| (k.to_string(), v.clone())), OPTIONS).unwrap()
}

fn flavours() -> impl Strategy<Value = Flavour> {
    prop_oneof![Just(Flavour::Reno), Just(Flavour::NewReno), Just(Flavour::Sack)]
}

fn some_options() -> impl Strategy<Value = Options> {
    let switches = proptest::collection::vec(any::<bool>(), 3);
    (switches, 1i64..40, 0i64..40, 1i64..5, 0u64..30).prop_map(|(on, window, ssthresh, n, ms)| {
        let overhead = OptionValue::Text(format!("{ms} ms"));
        options(&[
            ("limited_transmit", OptionValue::Bool(on[0])),
            ("precision_reduce", OptionValue::Bool(on[1])),
            ("delayed_ack", OptionValue::Bool(on[2])),
            ("window_max", OptionValue::Integer(window)),
            ("initial_ssthresh", OptionValue::Integer(ssthresh)),
            ("initial_window", OptionValue::Integer(n)),
            ("overhead", overhead),
        ])
    })
}

fn object(len: usize) -> Arc<[u8]> {
    (0..len as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn an_object_arrives_intact_however_bad_the_network_was(
        flavour in flavours(),
        options in some_options(),
        len in 0usize..20_000,
        seed in any::<u64>(),
        (loss, duplication, reordering) in (0.0..0.5, 0.0..0.3, 0.0..0.5),
        faulty_steps in 0usize..2000,
    ) {
        let object = object(len);
        let content = Box::new(InMemory(object.clone()));
        let mut pair = Pair::new(flavour, &options, content, seed);
        pair.run(Faults { loss, duplication, reordering }, faulty_steps, &object);
    }

    #[test]
    fn no_datagrams_break_the_ends(
        flavour in flavours(),
        options in some_options(),
        seed in any::<u64>(),
        garbage in proptest::collection::vec(garbage(), 1..200),
    ) {
        let mut pair = Pair::new(flavour, &options, Box::new(Zeros { len: None }), seed);
        for (bytes, zeros, to_sender) in garbage {
            for _ in 0..3 {
                prop_assert!(pair.step(NO_FAULTS));
            }
            pair.arrive(if to_sender { SENDER } else { RECEIVER }, &bytes, zeros);
            pair.drain(NO_FAULTS);
            // After any input, the sender still has work to do.
            prop_assert!(pair.sender.machine.next_timeout().is_some());
        }
    }
}

fn garbage() -> impl Strategy<Value = (Vec<u8>, u32, bool)> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..80);
    let near = prop_oneof![0u32..60, any::<u32>(), Just(u32::MAX)];
    let block = (near.clone(), near.clone());
    let ack = (near.clone(), proptest::collection::vec(block, 0..5)).prop_map(|(next, blocks)| {
        let mut sack = SackBlocks::default();
        blocks.iter().for_each(|block| sack.push(block.0, block.1));
        let mut bytes = Vec::new();
        Segment::Ack { flow: FlowId(7), next, sack }.encode(&mut bytes);
        bytes
    });
    let data = (near, any::<bool>(), any::<bool>()).prop_map(|(seq, syn, fin)| {
        let mut bytes = Vec::new();
        Segment::Data { flow: FlowId(7), seq, syn, fin, again: false }.encode(&mut bytes);
        bytes
    });
    (prop_oneof![bytes, ack, data], 0u32..150, any::<bool>())
}

#[test]
fn every_flavour_survives_a_fifth_of_all_packets_lost() {
    for flavour in [Flavour::Reno, Flavour::NewReno, Flavour::Sack] {
        let object = object(50_000);
        let content = Box::new(InMemory(object.clone()));
        let mut pair = Pair::new(flavour, &Options::default(), content, 1);
        let faults = Faults { loss: 0.2, ..NO_FAULTS };
        pair.run(faults, usize::MAX, &object);
        let repairs = pair.count(|event| matches!(event, Event::DataSent { repair: true, .. }));
        let timeouts = pair.count(|event| matches!(event, Event::Timeout { .. }));
        assert!(repairs > 100 && timeouts > 10, "{flavour:?}");
    }
}

#[test]
fn an_unlimited_stream_ends_when_it_is_closed_and_never_claims_to_be_complete() {
    let content = Box::new(Zeros { len: None });
    let mut pair = Pair::new(Flavour::Sack, &Options::default(), content, 1);
    while pair.now < Time::from_nanos(1_000_000_000) {
        assert!(pair.step(NO_FAULTS));
    }
    pair.sender.act(pair.now, |machine, cx| machine.handle_close(cx));
    while pair.step(NO_FAULTS) {}
    let zeros = pair.zeros;
    assert!(zeros > 10_000 && zeros.is_multiple_of(100));
    assert_eq!(pair.receiver.payload.len() as u64, zeros);
    assert!(!pair.sender_done && !pair.receiver_done);
}

#[test]
fn a_sender_that_is_closed_before_it_starts_says_nothing() {
    let content = Box::new(Zeros { len: Some(1000) });
    let mut pair = Pair::new(Flavour::Reno, &Options::default(), content, 1);
    pair.sender.act(Time::ZERO, |machine, cx| machine.handle_close(cx));
    assert!(!pair.step(NO_FAULTS));
}

#[test]
fn foreign_segments_are_refused() {
    let content = Box::new(Zeros { len: None });
    let mut pair = Pair::new(Flavour::Reno, &Options::default(), content, 1);
    for _ in 0..10 {
        assert!(pair.step(NO_FAULTS));
    }
    let mut bytes = Vec::new();
    Segment::Ack { flow: FlowId(8), next: 2, sack: SackBlocks::default() }.encode(&mut bytes);
    let refused = pair.bad_input();
    pair.arrive(SENDER, &bytes, 0);
    pair.arrive(RECEIVER, &bytes, 0);
    assert_eq!(pair.bad_input(), refused + 2);
}
