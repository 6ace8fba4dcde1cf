//! A small network under a virtual clock: chains of links that flows may share.
#![allow(dead_code, reason = "each test binary uses its own part of the harness")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

pub(crate) mod oracle;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use faircast_base::{Bitrate, Cx, Duration, Event, FlowId, NodeId, Purpose, Rng, Time, Trace};
use faircast_link::{Faults, Link, LinkConfig, Outcome, QueueConfig, Streams};
use faircast_proto::content::Content;
use faircast_proto::options::{OptionValue, Options};
use faircast_proto::tcp::{self, Flavour};
use faircast_proto::transport::{EndSetup, Role};
use faircast_proto::{AppEvent, Datagram, Destination, Machine};

/// A flow to run: its two paths are lists of link numbers.
pub(crate) struct FlowSpec {
    pub(crate) flavour: Flavour,
    pub(crate) start: Time,
    pub(crate) payload: u32,
    pub(crate) header: Option<u32>,
    pub(crate) content: Box<dyn Content>,
    pub(crate) options: Options,
    pub(crate) path: Vec<usize>,
    pub(crate) back: Vec<usize>,
}

/// What a flow's two machines said, with the moments.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) keep: bool,
    pub(crate) events: Vec<(Time, Event)>,
    pub(crate) sent: u64,
    pub(crate) acked_bytes: u64,
    pub(crate) acked_bytes_at_warmup: u64,
    pub(crate) timeouts: u64,
    pub(crate) cuts: u64,
    pub(crate) warmup: Time,
}

impl Trace for Record {
    fn emit(&mut self, at: Time, event: Event) {
        if self.keep {
            self.events.push((at, event));
        }
        if let Event::AckReceived { bytes, .. } = event {
            self.acked_bytes += u64::from(bytes);
        }
        if at < self.warmup {
            self.acked_bytes_at_warmup = self.acked_bytes;
            return;
        }
        match event {
            Event::DataSent { .. } => self.sent += 1,
            Event::Timeout { .. } => self.timeouts += 1,
            Event::Cut { .. } => self.cuts += 1,
            _ => {}
        }
    }
}

struct End {
    machine: Box<dyn Machine>,
    rng: Rng,
    record: Record,
    /// The earliest timer event of this end in the queue.
    timer: Option<Time>,
    path: Vec<usize>,
    pub(crate) delivered: Vec<AppEvent>,
}

struct Packet {
    bytes: Vec<u8>,
    zeros: u32,
    wire_len: u32,
}

enum ScheduledEvent {
    Timer,
    Arrival { hop: usize, packet: Packet },
}

/// The network. End 2f is flow f's sender, 2f + 1 its receiver.
pub(crate) struct Net {
    pub(crate) now: Time,
    links: Vec<(Link, Rng)>,
    ends: Vec<End>,
    queue: BinaryHeap<Reverse<(Time, u64, usize)>>,
    happenings: Vec<Option<(usize, ScheduledEvent)>>,
    free: Vec<usize>,
    order: u64,
    pub(crate) hops: u64,
}

pub(crate) fn link(bits_per_s: u64, delay: Duration, packets_max: u32) -> LinkConfig {
    LinkConfig {
        rate: Bitrate::from_bits_per_s(bits_per_s),
        delay,
        queue: QueueConfig::DropTail { packets_max },
        loss: 0.0,
        changes: Vec::new(),
        drop_list: Vec::new(),
        faults: Faults::default(),
    }
}

pub(crate) fn options(pairs: &[(&str, OptionValue)]) -> Options {
    let raw = pairs.iter().map(|(key, value)| (key.to_string(), value.clone()));
    Options::checked(raw, tcp::OPTIONS).unwrap()
}

pub(crate) fn text(value: &str) -> OptionValue {
    OptionValue::Text(value.to_string())
}

impl Net {
    pub(crate) fn new(links: &[LinkConfig], flows: Vec<FlowSpec>, seed: u64, warmup: Time) -> Self {
        let links = links.iter().enumerate().map(|(i, config)| {
            (
                Link::new(config, Streams { seed, node: NodeId(0), link: i as u32 }),
                Rng::new(seed, NodeId(0), Purpose::Link(i as u32)),
            )
        });
        let mut net = Self {
            now: Time::ZERO,
            links: links.collect(),
            ends: Vec::new(),
            queue: BinaryHeap::new(),
            happenings: Vec::new(),
            free: Vec::new(),
            order: 0,
            hops: 0,
        };
        for spec in flows {
            net.add(spec, seed, warmup);
        }
        for end in 0..net.ends.len() {
            net.arm(end);
        }
        net
    }

    fn add(&mut self, spec: FlowSpec, seed: u64, warmup: Time) {
        let first = self.ends.len() as u32;
        let nodes = [NodeId(first), NodeId(first + 1)];
        let setup = |own: usize| EndSetup {
            flow: FlowId(first / 2),
            node: nodes[own],
            sources: &nodes[1 - own..][..1],
            to: Destination::Node(nodes[1 - own]),
            start: spec.start,
            payload: spec.payload,
            header: spec.header,
            options: &spec.options,
        };
        let sender = tcp::end(spec.flavour, Role::Source(spec.content), setup(0));
        let receiver = tcp::end(spec.flavour, Role::Receiver, setup(1));
        for (machine, path) in [(sender, spec.path), (receiver, spec.back)] {
            let id = self.ends.len() as u32;
            self.ends.push(End {
                machine,
                rng: Rng::new(seed, NodeId(id), Purpose::Machine(0)),
                record: Record { warmup, ..Record::default() },
                timer: None,
                path,
                delivered: Vec::new(),
            });
        }
    }

    pub(crate) fn record(&mut self, end: usize) -> &mut Record {
        &mut self.ends[end].record
    }

    pub(crate) fn delivered(&self, end: usize) -> &[AppEvent] {
        &self.ends[end].delivered
    }

    pub(crate) fn link(&mut self, link: usize) -> &mut Link {
        &mut self.links[link].0
    }

    /// Runs until `until` or until nothing is left to happen.
    pub(crate) fn run(&mut self, until: Time) {
        while let Some(Reverse((at, _, index))) = self.queue.pop() {
            if at > until {
                self.queue.push(Reverse((at, 0, index)));
                break;
            }
            self.now = at;
            let (end, happening) = self.happenings[index].take().unwrap();
            self.free.push(index);
            match happening {
                ScheduledEvent::Timer => {
                    if self.ends[end].timer == Some(at) {
                        self.ends[end].timer = None;
                        if self.ends[end].machine.next_timeout().is_some_and(|t| t <= at) {
                            self.handle(end, |machine, cx| machine.handle_timeout(cx));
                        }
                        self.arm(end);
                    }
                }
                ScheduledEvent::Arrival { hop, packet } => self.arrive(end, hop, packet),
            }
        }
        self.now = until;
    }

    fn schedule(&mut self, at: Time, end: usize, happening: ScheduledEvent) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.happenings.push(None);
            self.happenings.len() - 1
        });
        self.happenings[index] = Some((end, happening));
        self.order += 1;
        self.queue.push(Reverse((at, self.order, index)));
    }

    fn arm(&mut self, end: usize) {
        let Some(want) = self.ends[end].machine.next_timeout() else { return };
        let want = want.max(self.now);
        if self.ends[end].timer.is_none_or(|at| want < at) {
            self.ends[end].timer = Some(want);
            self.schedule(want, end, ScheduledEvent::Timer);
        }
    }

    /// A packet of `end` has crossed `hop` links of its path.
    fn arrive(&mut self, end: usize, hop: usize, packet: Packet) {
        if let Some(&link) = self.ends[end].path.get(hop) {
            self.hops += 1;
            let (link, rng) = &mut self.links[link];
            // Drop lists count all packets here, as ns-2's do.
            let outcome = link.offer(self.now, packet.wire_len, true, rng);
            if let Outcome::Arrives(at) = outcome {
                self.schedule(at, end, ScheduledEvent::Arrival { hop: hop + 1, packet });
            }
            return;
        }
        let to = end ^ 1;
        let from = NodeId(end as u32);
        self.handle(to, |machine, cx| {
            machine.handle_datagram(
                cx,
                Datagram {
                    from,
                    to: Destination::Node(NodeId(to as u32)),
                    bytes: &packet.bytes,
                    zeros: packet.zeros,
                    congestion_experienced: false,
                },
            );
        });
        self.arm(to);
    }

    fn handle(&mut self, end: usize, act: impl FnOnce(&mut dyn Machine, &mut Cx<'_>)) {
        let now = self.now;
        let this = &mut self.ends[end];
        let mut cx = Cx { now, rng: &mut this.rng, trace: &mut this.record };
        act(&mut *this.machine, &mut cx);
        let mut out = Vec::new();
        loop {
            let mut bytes = Vec::new();
            let Some(transmit) = this.machine.poll_transmit(&mut cx, &mut bytes) else { break };
            out.push(Packet { bytes, zeros: transmit.zeros, wire_len: transmit.wire_len.unwrap() });
        }
        while let Some(event) = this.machine.poll_event() {
            this.delivered.push(event);
        }
        for packet in out {
            self.arrive(end, 0, packet);
        }
    }
}
