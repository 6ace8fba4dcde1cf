//! World of the tests of streams: all hosts are in one subnet, and the simplest control that
//! exercises every path: a fixed window, driven by acknowledgements.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use faircast_base::{Cx, Duration, NodeId, Seq, Time};

use crate::congestion::{
    Arrival, Audience, Carrier, Gauges, Permit, ReceiverFeedback, SenderControl, Wire,
    boxed_control, boxed_feedback,
};
use crate::content::{Content, InMemory, Zeros};
use crate::pgm::wire::Body;
use crate::pgm::{PgmReceiver, PgmSource, ReceiverConfig, SourceConfig};
use crate::world::FIRST_RECEIVER;
pub(super) use crate::world::{
    DELAY, Fate, GROUP, Hop, Host, Network, SOURCE, SentPacket, TSI, at,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word<const OPTION: u8>(pub(super) u32);

/// Receiver that is to acknowledge; 0 for any.
pub(super) type Named = Word<0x12>;

pub(super) type From = Word<0x13>;

impl<const OPTION: u8> Wire for Word<OPTION> {
    const OPTION: u8 = OPTION;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self(u32::from_be_bytes(bytes.try_into().ok()?)))
    }
}

const STALL: Duration = Duration::from_millis(200);

#[derive(Default)]
pub(super) struct Window {
    pub(super) size: u32,
    /// Least interval between two packets, including repairs.
    pub(super) pace: Duration,
    free_at: Time,
    pub(super) named: u32,
    next: Option<Seq>,
    acked: Option<Seq>,
    stall_at: Option<Time>,
    pub(super) acks: u32,
    pub(super) naks: u32,
    pub(super) left: Vec<NodeId>,
    pub(super) repairs: u32,
    pub(super) idle: u32,
}

impl Window {
    pub(super) fn new(size: u32) -> Self {
        Self { size, ..Self::default() }
    }

    fn flight(&self) -> u32 {
        match (self.next, self.acked) {
            (Some(next), Some(acked)) => next.distance(acked).max(0) as u32 - 1,
            (Some(next), None) => next.value(),
            _ => 0,
        }
    }
}

impl SenderControl for Window {
    type Announce = Named;
    type Report = From;

    fn permit(&mut self, cx: &mut Cx<'_>, _len: u32, repair: bool) -> Permit {
        if cx.now < self.free_at {
            return Permit::At(self.free_at);
        }
        if repair || self.flight() < self.size { Permit::Now } else { Permit::Blocked }
    }

    fn on_sent(&mut self, cx: &mut Cx<'_>, seq: Seq, _len: u32) -> Named {
        self.next = Some(seq.next());
        self.acked.get_or_insert(seq - 1);
        self.stall_at = Some(cx.now + STALL);
        self.free_at = cx.now + self.pace;
        Word(self.named)
    }

    fn on_repair_sent(&mut self, cx: &mut Cx<'_>, _seq: Seq, _len: u32) -> Option<Named> {
        self.free_at = cx.now + self.pace;
        self.repairs += 1;
        None
    }

    fn on_report(&mut self, cx: &mut Cx<'_>, _from: NodeId, carrier: Carrier, report: &From) {
        if self.named == 0 {
            self.named = report.0;
        }
        match carrier {
            Carrier::Ack(vector) => {
                self.acks += 1;
                self.acked = self.acked.map(|acked| acked.max(vector.highest));
                self.stall_at = Some(cx.now + STALL);
            }
            Carrier::Nak { .. } | Carrier::NullNak { .. } => self.naks += 1,
        }
    }

    fn on_leave(&mut self, _cx: &mut Cx<'_>, from: NodeId) {
        self.left.push(from);
        self.named = 0;
    }

    fn on_idle(&mut self, _cx: &mut Cx<'_>) {
        self.idle += 1;
    }

    /// Handles lost feedback: packets in flight count as arrived, and any receiver may answer.
    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.stall_at.is_some_and(|at| at <= cx.now) {
            self.acked = self.next.map(|next| next - 1);
            self.stall_at = None;
            self.named = 0;
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.stall_at
    }

    fn reporter(report: &From) -> Option<NodeId> {
        Some(NodeId(report.0))
    }

    fn gauges(&self) -> Gauges {
        let (window, flight) = (Some(f64::from(self.size)), Some(self.flight()));
        Gauges { window, flight, ..Gauges::default() }
    }
}

pub(super) struct WindowFeedback {
    node: NodeId,
    due: Option<Audience>,
    pub(super) election: Audience,
    pub(super) missing: Vec<(u32, u32)>,
    pub(super) arrivals: Vec<(u32, bool, bool)>,
    pub(super) overheard: u32,
}

impl WindowFeedback {
    pub(super) fn new(node: NodeId) -> Self {
        let (missing, arrivals) = (Vec::new(), Vec::new());
        Self { node, due: None, election: Audience::SenderAck, missing, arrivals, overheard: 0 }
    }
}

impl ReceiverFeedback for WindowFeedback {
    type Announce = Named;
    type Report = From;

    fn on_data(&mut self, _cx: &mut Cx<'_>, arrival: &Arrival, announce: Option<&Named>) {
        self.arrivals.push((arrival.seq.value(), arrival.repair, arrival.duplicate));
        match announce {
            Some(Word(0)) => self.due = Some(self.election),
            Some(Word(named)) if *named == self.node.0 => self.due = Some(Audience::SenderAck),
            _ => {}
        }
    }

    fn on_missing(&mut self, _cx: &mut Cx<'_>, first: Seq, last: Seq) {
        self.missing.push((first.value(), last.value()));
    }

    fn on_overheard(&mut self, _cx: &mut Cx<'_>, _from: NodeId, _report: &From) {
        self.overheard += 1;
    }

    fn poll_report(&mut self, _cx: &mut Cx<'_>) -> Option<(Audience, From)> {
        Some((self.due.take()?, Word(self.node.0)))
    }

    fn report_for_nak(&mut self, _cx: &mut Cx<'_>) -> Option<From> {
        Some(Word(self.node.0))
    }
}

pub(super) type World = crate::world::World<PgmSource, PgmReceiver>;

pub(super) fn losing(mut lose: impl FnMut(&Hop<'_>) -> bool + 'static) -> Network {
    Box::new(move |hop, _| if lose(hop) { Fate::drop() } else { Fate::pass() })
}

pub(super) fn losing_data(lose: impl Fn(u32) -> bool + 'static) -> Network {
    losing(move |hop| hop.is_data() && hop.seq().is_some_and(&lose))
}

pub(super) fn in_memory(len: usize) -> Box<InMemory> {
    Box::new(InMemory(Arc::from(object(len))))
}

pub(super) fn endless() -> Box<Zeros> {
    Box::new(Zeros { len: None })
}

impl PgmSource {
    pub(super) fn window(&self) -> &Window {
        self.control().inner().downcast_ref().expect("sources of these tests have a window")
    }
}

impl PgmReceiver {
    pub(super) fn window_feedback(&self) -> &WindowFeedback {
        self.feedback().inner().downcast_ref().expect("receivers of these tests speak of a window")
    }
}

pub(super) fn source_config() -> SourceConfig {
    let mut config = SourceConfig::new(SOURCE, GROUP, TSI);
    config.payload = 100;
    config
}

pub(super) fn object(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

impl World {
    pub(super) fn new(
        config: SourceConfig,
        content: Box<dyn Content>,
        receivers: impl IntoIterator<Item = ReceiverConfig>,
        seed: u64,
    ) -> Self {
        let source = PgmSource::new(config, content, boxed_control(Window::new(16)));
        let mut world = Self::of(Host::new(SOURCE, source, seed).keeping(), true, seed);
        for (config, node) in receivers.into_iter().zip(FIRST_RECEIVER..) {
            let node = NodeId(node);
            let machine = PgmReceiver::new(config, boxed_feedback(WindowFeedback::new(node)));
            world.receivers.push(Host::new(node, machine, seed).keeping());
        }
        world
    }

    pub(super) fn simple(receivers: usize, len: usize) -> Self {
        let configs = vec![ReceiverConfig::new(GROUP); receivers];
        Self::new(source_config(), in_memory(len), configs, 1)
    }

    pub(super) fn with_network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    pub(super) fn repaired(&self) -> Vec<u32> {
        let rdata = |sent: &SentPacket| match sent.packet().body {
            Body::Rdata(data) => Some(data.sequence.value()),
            _ => None,
        };
        self.sent.iter().filter_map(rdata).collect()
    }

    pub(super) fn deliver_by(&mut self, end: Time, len: usize) {
        self.run_until(end);
        self.assert_all_delivered(&object(len));
    }

    pub(super) fn assert_all_delivered(&self, object: &[u8]) {
        for host in &self.receivers {
            assert!(host.completed(), "{:?}: {:?}", host.node, host.last_word());
            assert!(host.payload == object, "{:?} got other bytes", host.node);
        }
    }
}

pub(super) fn seq(value: u32) -> Seq {
    Seq::new(value)
}
