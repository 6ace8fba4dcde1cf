//! The sending end.

mod acked;
mod gauge;
mod input;
mod output;
mod repair;
mod spm;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use faircast_base::{Cx, Duration, Event, Seq, Time};

use self::acked::Acked;
use self::gauge::GaugeTrace;
use self::repair::{Confirmations, Farthest, Repairs};
use self::spm::SpmSchedule;
use super::SourceConfig;
use super::config::WINDOW_PACKETS_MAX;
use crate::content::Content;
use crate::control::SenderControl;
use crate::wire::pgm::{Nla, Packet};
use crate::{AppEvent, Datagram, Machine, Transmit};

/// A PGM source: sends its content as fast as its control permits, confirms NAKs at once, repairs
/// what is in its transmit window, and says by FIN where the end is.
///
/// Packets are counted from 0 within the session (`index`); the sequence number on the wire is that
/// of the first plus the index.
pub struct PgmSource<C> {
    config: SourceConfig,
    content: Box<dyn Content>,
    control: C,
    phase: Phase,
    /// The next new packet.
    next: u64,
    /// The oldest packet that is repaired.
    trail: u64,
    /// How many packets there will be in all, where that is known.
    end: Option<u64>,
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

impl<C: SenderControl> PgmSource<C> {
    /// A source of `content` under `control`. Settings out of their range are taken to its nearest
    /// end.
    pub fn new(mut config: SourceConfig, content: Box<dyn Content>, control: C) -> Self {
        config.payload = config.payload.clamp(1, u32::from(u16::MAX));
        config.window_packets = config.window_packets.clamp(1, WINDOW_PACKETS_MAX);
        for interval in
            [&mut config.ambient_interval, &mut config.heartbeat_min, &mut config.heartbeat_max]
        {
            *interval = (*interval).max(INTERVAL_MIN);
        }
        let end = content.len().map(|len| len.div_ceil(u64::from(config.payload)));
        let spm = SpmSchedule::new(
            config.start,
            config.ambient_interval,
            config.heartbeat_min,
            config.heartbeat_max,
        );
        Self {
            config,
            content,
            control,
            phase: Phase::Waiting,
            next: 0,
            trail: 0,
            end,
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
            events: VecDeque::new(),
        }
    }

    /// The control, for tests and statistics.
    pub fn control(&self) -> &C {
        &self.control
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

    /// Bytes of payload of packet `index`, and where they begin.
    fn extent(&self, index: u64) -> (u64, u32) {
        let offset = index * u64::from(self.config.payload);
        let left = self.content.len().map_or(u64::MAX, |len| len.saturating_sub(offset));
        // Not above the payload, which is below 2^32.
        (offset, left.min(u64::from(self.config.payload)) as u32)
    }

    fn nla(&self) -> Nla {
        Nla::from_node(self.config.node)
    }

    /// Whether there is a new packet to send.
    fn has_data(&self) -> bool {
        self.phase == Phase::Sending && self.end.is_none_or(|end| self.next < end)
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
        if self.phase == Phase::Sending && self.end == Some(self.next) {
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
        let bytes = self.content.len().unwrap_or(u64::MAX);
        let bytes = bytes.min(self.next * u64::from(self.config.payload));
        cx.emit(Event::Completed { bytes });
        self.events.push_back(AppEvent::Completed);
    }
}

impl<C: SenderControl> Machine for PgmSource<C> {
    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if matches!(self.phase, Phase::Waiting | Phase::Done) {
            return;
        }
        let outcome = Packet::decode(datagram.bytes, datagram.zeros)
            .map_err(Into::into)
            .and_then(|packet| self.take_packet(cx, &datagram, &packet));
        if let Err(reason) = outcome {
            cx.emit(Event::BadInput { reason });
        }
        self.gauges.observe(cx, &self.control.gauges());
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
                self.end = Some(self.next);
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

/// How many times as long a source lingers where NAKs have come since the end of data.
const LINGER_BUSY: u64 = 4;

/// Shortest interval between SPMs: a timer of no length would run out again and again in one
/// moment.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

impl<C> fmt::Debug for PgmSource<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgmSource")
            .field("tsi", &self.config.tsi)
            .field("phase", &self.phase)
            .field("next", &self.next)
            .field("trail", &self.trail)
            .finish_non_exhaustive()
    }
}
