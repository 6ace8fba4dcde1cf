//! A made-up run: windows that grow by one packet per round trip and halve on a drop, through one
//! drop-tail queue. Not a protocol, but its trace has all that a report shows.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use faircast_base::{
    CutReason, Event, FlowId, LinkCounters, LinkId, NodeId, SwitchReason, Time, TimeoutKind,
};
use faircast_report::{Metrics, Series, Summary};
use faircast_trace::{
    FlowHeader, Hasher, Header, LinkHeader, On, Outcome, Record, SCHEMA_VERSION, Sink, Subject, Tee,
};

const MS: u64 = 1_000_000;
const PACKET_NS: u64 = 24 * MS; // 1500 bytes at 500 kbit/s
const QUEUE_MAX: usize = 30;

/// What `multicast` and `tcp` flows did together for so many seconds.
pub(crate) struct Run {
    pub(crate) header: Header,
    pub(crate) summary: Summary,
    pub(crate) series: Series,
}

struct Flow {
    window: f64,
    next: u64,
    flight: u32,
    recover: u64,
    rtt_ns: u64,
}

type Sinks = Tee<Hasher, Tee<Metrics, Series>>;

/// When it comes, which flow, sequence number, when that was sent, whether it tells of a loss.
type Feedback = (u64, usize, u64, u64, bool);

struct Model {
    sinks: Sinks,
    flows: Vec<Flow>,
    acker: u32,
    queue: VecDeque<(usize, u64, u64)>,
    counters: LinkCounters,
    last_change: u64,
    acks: BinaryHeap<Reverse<Feedback>>,
}

pub(crate) fn header(title: &str, tcp: u32, receivers: u32, duration_s: f64) -> Header {
    let mut nodes: Vec<String> = ["ms", "ts", "r1", "r2"].map(String::from).to_vec();
    nodes.extend((1..=receivers).map(|i| format!("mr{i}")));
    let flow = |name: String, protocol: &str, from, to| FlowHeader {
        name,
        protocol: protocol.into(),
        from: NodeId(from),
        to,
        packet_bytes: 1400,
        start_s: 0.0,
        stop_s: None,
        speaks: Vec::new(),
    };
    let all = (4..4 + receivers).map(NodeId).collect();
    let mut flows = vec![flow("mcc".into(), "pgmcc", 0, all)];
    flows.extend((1..=tcp).map(|i| flow(format!("tcp-{i}"), "tcp-reno", 1, vec![NodeId(4)])));
    let link = |from, to| LinkHeader {
        from: NodeId(from),
        to: NodeId(to),
        rate_bps: 500_000,
        delay_s: 0.05,
        queue: "droptail, 30 packets".into(),
    };
    Header {
        schema: SCHEMA_VERSION,
        faircast: "0.1.0".into(),
        scenario: "scenarios/two-flows.toml".into(),
        title: title.into(),
        text: SCENARIO.into(),
        on: On::Sim,
        seed: 1,
        duration_s,
        warmup_s: duration_s / 15.0,
        nodes,
        links: vec![link(2, 3), link(3, 2)],
        flows,
    }
}

const SCENARIO: &str = r#"title    = "Does <pgmcc> share fairly with TCP Reno?"
duration = "300 s"
warmup   = "20 s"
seed     = 1

[[link]]
between = ["r1", "r2"]
rate    = "500 kbit/s"
delay   = "50 ms"
queue   = { kind = "droptail", packets = 30 }   # a comment that is long enough to be wider than a phone's screen

[[flow]]
name     = "mcc"
protocol = "pgmcc"
from     = "ms"
to       = ["mr1", "mr2", "mr3"]
"#;

/// Runs the model to `until_s`, which is less than the header's duration for an interrupted run.
pub(crate) fn run(header: Header, until_s: f64) -> Run {
    let flow = |i: usize| Flow {
        window: 2.0,
        next: 0,
        flight: 0,
        recover: 0,
        rtt_ns: (230 + 25 * i as u64) * MS,
    };
    let mut model = Model {
        sinks: Tee(Hasher::new(), Tee(Metrics::new(&header), Series::new(&header))),
        flows: (0..header.flows.len()).map(flow).collect(),
        acker: 4,
        queue: VecDeque::new(),
        counters: LinkCounters::default(),
        last_change: 0,
        acks: BinaryHeap::new(),
    };
    let receivers = header.flows[0].to.len() as u32;
    let end = (until_s * 1e9) as u64;
    let (mut now, mut link_free, mut next_sample) = (0, 0, 0);
    while now < end {
        now += MS;
        while model.acks.peek().is_some_and(|ack| ack.0.0 <= now) {
            let Reverse((at, flow, seq, sent_at, lost)) = model.acks.pop().expect("peeked");
            model.feedback(at, flow, seq, sent_at, lost, receivers);
        }
        for flow in 0..model.flows.len() {
            // Starts are spread so that flows do not move in step.
            if now >= flow as u64 * 777 * MS {
                model.send(now, flow);
            }
        }
        if link_free <= now
            && let Some((flow, seq, sent_at)) = model.pop(now)
        {
            link_free = now + PACKET_NS;
            model.deliver(link_free, flow, seq, sent_at, receivers);
        }
        if now >= next_sample {
            let mut counters = model.counters;
            counters.busy_ns -= link_free.saturating_sub(now);
            model.say(now, Subject::Link(LinkId(0)), Event::LinkSample(counters));
            model.counters.queue_max_packets = model.queue.len() as u32 + 1;
            next_sample = now + 100 * MS;
        }
    }
    let interrupted = until_s < header.duration_s;
    let outcome = Outcome {
        at: Time::from_nanos(end),
        interrupted,
        wall_s: 0.813,
        events: 1_234_567,
        intact: header.flows.iter().map(|flow| vec![Some(true); flow.to.len()]).collect(),
        trace_hash: Some(model.sinks.0.hex()),
        lateness: None,
    };
    let Tee(_, Tee(metrics, series)) = model.sinks;
    Run { summary: metrics.finish(&outcome), header, series }
}

impl Model {
    fn say(&mut self, at: u64, subject: Subject, event: Event) {
        self.sinks.record(&Record { at: Time::from_nanos(at), subject, event });
    }

    fn sender(&mut self, at: u64, flow: usize, event: Event) {
        let node = NodeId(u32::from(flow > 0));
        let flow = FlowId(flow as u32);
        self.say(at, Subject::Endpoint { flow, node, sender: true }, event);
    }

    fn send(&mut self, now: u64, flow: usize) {
        while f64::from(self.flows[flow].flight) < self.flows[flow].window.floor() {
            let seq = self.flows[flow].next;
            self.flows[flow].next += 1;
            self.flows[flow].flight += 1;
            self.sender(now, flow, Event::DataSent { seq, bytes: 1400, repair: false });
            self.account(now);
            self.counters.offered_packets += 1;
            if self.queue.len() >= QUEUE_MAX {
                self.counters.dropped_packets += 1;
                let (flow_id, reason) = (FlowId(flow as u32), faircast_base::DropReason::QueueFull);
                let dropped = Event::PacketDropped { flow: flow_id, bytes: 1500, reason };
                self.say(now, Subject::Link(LinkId(0)), dropped);
                let delay = self.flows[flow].rtt_ns + 30 * PACKET_NS;
                self.acks.push(Reverse((now + delay, flow, seq, now, true)));
            } else {
                self.queue.push_back((flow, seq, now));
                let waiting = self.queue.len() as u32 + 1;
                self.counters.queue_max_packets = self.counters.queue_max_packets.max(waiting);
            }
        }
    }

    fn account(&mut self, now: u64) {
        self.counters.queue_packet_ns += self.queue.len() as u64 * (now - self.last_change);
        self.last_change = now;
        self.counters.queue_packets = self.queue.len() as u32;
    }

    fn pop(&mut self, now: u64) -> Option<(usize, u64, u64)> {
        self.account(now);
        let packet = self.queue.pop_front()?;
        self.counters.busy_ns += PACKET_NS;
        self.counters.sent_packets += 1;
        self.counters.sent_bytes += 1500;
        Some(packet)
    }

    fn deliver(&mut self, at: u64, flow: usize, seq: u64, sent_at: u64, receivers: u32) {
        let receivers = if flow == 0 { receivers } else { 1 };
        for node in 4..4 + receivers {
            let (flow, node) = (FlowId(flow as u32), NodeId(node));
            let subject = Subject::Endpoint { flow, node, sender: false };
            // Every receiver has a loss ratio of its own.
            let lost = flow.0 == 0
                && (seq * 31 + u64::from(node.0) * 17).is_multiple_of(150 + u64::from(node.0) % 97);
            let event = match lost {
                true => Event::LossDetected { seq },
                false => Event::Delivered { seq, bytes: 1400 },
            };
            self.say(at, subject, event);
        }
        let back = self.flows[flow].rtt_ns;
        self.acks.push(Reverse((at + back, flow, seq, sent_at, false)));
    }

    fn feedback(&mut self, at: u64, flow: usize, seq: u64, sent: u64, lost: bool, receivers: u32) {
        let from = NodeId(4 + (seq as u32 / 3 * 7) % receivers);
        let state = &mut self.flows[flow];
        state.flight -= 1;
        if !lost {
            state.window += 1.0 / state.window;
            let peer = if flow == 0 { NodeId(self.acker) } else { NodeId(4) };
            self.sender(at, flow, Event::AckReceived { seq, bytes: 1400, from: peer });
            self.sender(at, flow, Event::RttSample { node: peer, rtt_ns: at - sent });
        } else if seq >= state.recover {
            state.window = (state.window / 2.0).max(1.0);
            state.recover = state.next;
            let window_milli = (state.window * 1e3) as u64;
            if flow == 0 {
                self.sender(at, flow, Event::NakReceived { seq, count: 1, from });
                if seq.is_multiple_of(2) && from.0 != self.acker {
                    let reason =
                        if self.acker == 4 { SwitchReason::First } else { SwitchReason::Slower };
                    self.acker = from.0;
                    let node = Some(from);
                    self.sender(at, flow, Event::Representative { node, reason });
                }
            } else if seq.is_multiple_of(5) {
                let kind = TimeoutKind::Retransmission;
                self.sender(at, flow, Event::Timeout { kind, after_ns: 1_000 * MS });
            }
            self.sender(at, flow, Event::Cut { reason: CutReason::Loss, window_milli });
            self.sender(at, flow, Event::DataSent { seq, bytes: 1400, repair: true });
        }
        let (window_milli, flight) =
            ((self.flows[flow].window * 1e3) as u64, self.flows[flow].flight);
        self.sender(at, flow, Event::Window { window_milli, flight });
    }
}
