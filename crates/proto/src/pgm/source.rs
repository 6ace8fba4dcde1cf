//! The sending end.

mod acked;
mod gauge;
pub(crate) mod input;
mod output;
mod repair;
mod spm;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use faircast_base::{Cx, Duration, Event, NodeId, Seq, Time};

use self::acked::Acked;
use self::gauge::GaugeTrace;
use self::repair::{Confirmations, Farthest, Repairs};
use self::spm::SpmSchedule;
use super::SourceConfig;
use super::config::WINDOW_PACKETS_MAX;
use crate::congestion::Control;
use crate::content::{ByOffset, Content, Packets};
use crate::pgm::negotiation::SchemeAnnouncement;
use crate::pgm::wire::{Nak, Nla, Packet};
use crate::{AppEvent, Datagram, Machine, Transmit};

/// A PGM source: sends its content as fast as its control permits, confirms NAKs at once, repairs
/// what is in its transmit window, and says by FIN where the end is.
///
/// Packets are counted from 0 within the session (`index`); the sequence number on the wire is that
/// of the first plus the index.
pub struct PgmSource<P = Box<dyn Packets + Send>> {
    config: SourceConfig,
    packets: P,
    control: Box<dyn Control + Send>,
    /// What the control announces on the packet that leaves now.
    announce: Vec<u8>,
    phase: Phase,
    /// The next new packet.
    next: u64,
    /// The oldest packet that is repaired.
    trail: u64,
    /// How many packets there will be in all, where its application has closed it.
    closed: Option<u64>,
    spm: SpmSchedule,
    spm_sequence: Seq,
    confirmations: Confirmations,
    repairs: Repairs,
    farthest: Farthest,
    /// Whether the next opportunity is a repair's, where both wait.
    repair_turn: bool,
    /// When there may be something to send again: a later permit, a repair that is held back.
    wake_at: Option<Time>,
    /// Whether the control has been told that there is nothing to send.
    told_idle: bool,
    acked: Acked,
    gauges: GaugeTrace,
    /// The scheme that it speaks; empty where nobody has said so.
    scheme: &'static str,
    /// What SPMs say of the scheme: the option's value.
    announced: Option<Vec<u8>>,
    /// Who has said that it speaks another scheme: the first [`STRANGERS_MAX`].
    strangers: Vec<NodeId>,
    events: VecDeque<AppEvent>,
}

/// Where a source is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before its start.
    Waiting,
    /// New data may be sent.
    Sending,
    /// All data has been sent; repairs go on.
    Lingering {
        /// Since when.
        since: Time,
        /// When a NAK last came.
        busy: Time,
    },
    /// Nothing more will happen.
    Done,
}

impl PgmSource {
    /// A source of `content` under `control`. Settings out of their range are taken to its nearest
    /// end.
    pub fn new(
        mut config: SourceConfig,
        content: Box<dyn Content>,
        control: Box<dyn Control + Send>,
    ) -> Self {
        config.payload = config.payload.clamp(1, u32::from(u16::MAX));
        let packets = Box::new(ByOffset::new(content, config.payload));
        Self::of_packets(config, packets, control)
    }
}

impl<P: Packets> PgmSource<P> {
    /// A source of `packets` under `control`; how long they are is theirs to say. Settings out of
    /// their range are taken to its nearest end.
    pub fn of_packets(
        mut config: SourceConfig,
        packets: P,
        control: Box<dyn Control + Send>,
    ) -> Self {
        config.window_packets = config.window_packets.clamp(1, WINDOW_PACKETS_MAX);
        for interval in
            [&mut config.ambient_interval, &mut config.heartbeat_min, &mut config.heartbeat_max]
        {
            *interval = (*interval).max(INTERVAL_MIN);
        }
        let spm = SpmSchedule::new(
            config.start,
            config.ambient_interval,
            config.heartbeat_min,
            config.heartbeat_max,
        );
        Self {
            config,
            packets,
            control,
            announce: Vec::new(),
            phase: Phase::Waiting,
            next: 0,
            trail: 0,
            closed: None,
            spm,
            spm_sequence: Seq::new(0),
            confirmations: Confirmations::default(),
            repairs: Repairs::default(),
            farthest: Farthest::default(),
            repair_turn: true,
            wake_at: None,
            told_idle: false,
            acked: Acked::default(),
            gauges: GaugeTrace::default(),
            scheme: "",
            announced: None,
            strangers: Vec::new(),
            events: VecDeque::new(),
        }
    }

    /// The same, which speaks `scheme`; its SPMs say what is `announced`.
    #[must_use]
    pub fn speaking(mut self, scheme: &'static str, announced: Option<SchemeAnnouncement>) -> Self {
        self.scheme = scheme;
        self.announced = announced.and_then(|announced| announced.encode());
        self
    }

    /// The control, for tests and statistics.
    pub fn control(&self) -> &dyn Control {
        self.control.as_ref()
    }

    /// The sequence number of packet `index` on the wire.
    fn seq(&self, index: u64) -> Seq {
        // Truncation is the wrap of sequence numbers.
        self.config.first + index as u32
    }

    /// The packet of sequence number `seq`: the one of that number nearest to the next new one.
    fn index(&self, seq: Seq) -> Option<u64> {
        self.next.checked_add_signed(i64::from(seq.distance(self.seq(self.next))))
    }

    /// How a packet is named in the trace: by its sequence number, without wrap.
    fn traced(&self, index: u64) -> u64 {
        u64::from(self.config.first.value()) + index
    }

    /// Takes a packet that its caller has decoded.
    pub(crate) fn handle_packet(
        &mut self,
        cx: &mut Cx<'_>,
        datagram: &Datagram<'_>,
        packet: &Packet<'_>,
    ) {
        if matches!(self.phase, Phase::Waiting | Phase::Done) {
            return;
        }
        if let Err(reason) = self.take_packet(cx, datagram, packet) {
            cx.emit(Event::BadInput { reason });
        }
        self.gauges.observe(cx, &self.control.gauges());
    }

    /// What it sends.
    pub(crate) fn packets(&self) -> &P {
        &self.packets
    }

    /// What it sends. What is ready must stay so.
    pub(crate) fn packets_mut(&mut self) -> &mut P {
        &mut self.packets
    }

    /// The control, to tell it of receivers.
    pub(crate) fn control_mut(&mut self) -> &mut (dyn Control + Send) {
        self.control.as_mut()
    }

    /// What SPMs say has changed: one is sent now.
    pub(crate) fn announce_now(&mut self, now: Time) {
        self.spm.on_change(now);
    }

    /// Whether `packet` belongs to this session.
    pub(crate) fn is_ours(&self, packet: &Packet<'_>) -> bool {
        let ports = packet.header.data_port(packet.kind()) == self.config.data_port;
        packet.tsi() == self.config.tsi && ports
    }

    /// Whether a NAK names this source and group.
    pub(crate) fn is_named_by(&self, nak: &Nak) -> bool {
        nak.source == self.nla() && nak.group == self.config.group
    }

    /// All that listen know that this is the end: where it has been said, it is over.
    pub(crate) fn end_now(&mut self, cx: &mut Cx<'_>) {
        if matches!(self.phase, Phase::Lingering { .. }) && !self.spm.is_due() {
            self.finish(cx);
        }
    }

    /// Whether nothing more will happen.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Done
    }

    fn nla(&self) -> Nla {
        Nla::from_node(self.config.node)
    }

    /// How many packets there will be in all, where that is known.
    fn end(&self) -> Option<u64> {
        self.closed.or_else(|| self.packets.end())
    }

    /// Bytes of payload of the next new packet, where there is one to send.
    fn ready(&mut self, now: Time) -> Option<u32> {
        let open = self.phase == Phase::Sending && self.end().is_none_or(|end| self.next < end);
        if open { self.packets.ready(now, self.next) } else { None }
    }

    /// Whether receivers are told that nothing comes after the lead.
    fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Lingering { .. })
    }

    fn begin(&mut self, cx: &mut Cx<'_>) {
        if self.phase == Phase::Waiting && self.config.start <= cx.now {
            self.phase = Phase::Sending;
            self.end_if_all_sent(cx);
        }
    }

    /// After the last packet come FIN and the time of repairs.
    fn end_if_all_sent(&mut self, cx: &mut Cx<'_>) {
        if self.phase == Phase::Sending && self.end() == Some(self.next) {
            self.phase = Phase::Lingering { since: cx.now, busy: cx.now };
            self.spm.on_change(cx.now);
        }
    }

    /// When lingering ends, where it has begun.
    fn linger_end(&self) -> Option<Time> {
        match self.phase {
            Phase::Lingering { since, busy } => {
                let linger = self.config.linger * if busy > since { LINGER_BUSY } else { 1 };
                Some((busy + linger).min(since + self.config.linger_max))
            }
            _ => None,
        }
    }

    fn expire_linger(&mut self, cx: &mut Cx<'_>) {
        if self.linger_end().is_none_or(|at| at > cx.now) {
            return;
        }
        if let Phase::Lingering { since, busy } = &mut self.phase
            && self.repairs.first().is_some()
            && cx.now.since(*since) < self.config.linger_max
        {
            // The control has held back repairs for all this time; they are owed still.
            *busy = cx.now;
            return;
        }
        self.finish(cx);
    }

    fn finish(&mut self, cx: &mut Cx<'_>) {
        self.phase = Phase::Done;
        self.repairs.clear();
        if let Some(bytes) = self.packets.completed(self.next) {
            cx.emit(Event::Completed { bytes });
            self.events.push_back(AppEvent::Completed);
        }
    }
}

impl<P: Packets> Machine for PgmSource<P> {
    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if matches!(self.phase, Phase::Waiting | Phase::Done) {
            return;
        }
        match Packet::decode(datagram.bytes, datagram.zeros) {
            Ok(packet) => self.handle_packet(cx, &datagram, &packet),
            Err(error) => cx.emit(Event::BadInput { reason: error.into() }),
        }
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.begin(cx);
        if matches!(self.phase, Phase::Waiting | Phase::Done) {
            return;
        }
        self.spm.on_timeout(cx.now);
        if self.control.next_timeout().is_some_and(|at| at <= cx.now) {
            self.control.on_timeout(cx);
            self.gauges.observe(cx, &self.control.gauges());
        }
        self.expire_linger(cx);
    }

    fn handle_close(&mut self, cx: &mut Cx<'_>) {
        match self.phase {
            Phase::Waiting => self.phase = Phase::Done,
            Phase::Sending => {
                self.closed = Some(self.next);
                self.end_if_all_sent(cx);
            }
            Phase::Lingering { .. } | Phase::Done => {}
        }
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.next_packet(cx, buf)
    }

    fn poll_event(&mut self) -> Option<AppEvent> {
        self.events.pop_front()
    }

    fn next_timeout(&self) -> Option<Time> {
        match self.phase {
            Phase::Waiting => return Some(self.config.start),
            Phase::Done => return None,
            Phase::Sending | Phase::Lingering { .. } => {}
        }
        let others = [self.control.next_timeout(), self.wake_at, self.linger_end()];
        Some(others.into_iter().flatten().fold(self.spm.next_timeout(), Time::min))
    }
}

/// Receivers of other schemes that are told to the application; of more it is not.
const STRANGERS_MAX: usize = 64;

/// How many times as long a source lingers where NAKs have come since the end of data.
const LINGER_BUSY: u64 = 4;

/// Shortest interval between SPMs: a timer of no length would run out again and again in one
/// moment.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

impl<P> fmt::Debug for PgmSource<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgmSource")
            .field("tsi", &self.config.tsi)
            .field("phase", &self.phase)
            .field("next", &self.next)
            .field("trail", &self.trail)
            .finish_non_exhaustive()
    }
}
