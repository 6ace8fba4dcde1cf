//! The sending end of a session: numbering, SPMs, confirmations, the control and what it is told, the
//! end.

mod input;
mod output;

pub(crate) use self::output::DataPacket;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{Cx, Duration, NodeId, Seq, Time};

use self::input::{Acked, Confirmations, Farthest};
use self::output::SpmSchedule;
use crate::StreamEvent;
use crate::congestion::{BoxControl, GaugeTrace};
use crate::pgm::SourceConfig;
use crate::pgm::config::WINDOW_PACKETS_MAX;
use crate::pgm::negotiation::{PACKET_BYTES, SchemeAnnouncement, bytes_of};
use crate::pgm::wire::{Nak, Nla, Packet};
use crate::timers::{Timers, reasons};

/// The sending end of a session: what every source does, whatever it sends and however it repairs.
///
/// Packets are counted from 0 within the session (`index`); the sequence number on the wire is that
/// of the first plus the index.
pub(crate) struct SourceSession {
    pub(crate) config: SourceConfig,
    pub(crate) control: BoxControl,
    /// Whether packets are repaired by their numbers.
    repairs: bool,
    /// Announcement of the control on the packet that leaves now.
    announce: Vec<u8>,
    phase: SourcePhase,
    pub(crate) next: u64,
    /// The oldest packet of the transmit window.
    pub(crate) trail: u64,
    spm: SpmSchedule,
    spm_sequence: Seq,
    confirmations: Confirmations,
    farthest: Farthest,
    timers: SourceTimers,
    /// Whether the control has been told that there is nothing to send.
    told_idle: bool,
    acked: Acked,
    gauges: GaugeTrace,
    /// The scheme that it speaks; empty where nobody has said so.
    scheme: &'static str,
    /// Announcement of the scheme on SPMs: the option's value.
    announced: Option<Vec<u8>>,
    /// Bytes of the longest data packet, as SPMs say.
    packet_bytes: Option<u32>,
    /// Receivers of another scheme: the first [`MISMATCHED_MAX`].
    mismatched: Vec<NodeId>,
    /// Receivers that have said that no data arrives: the first [`MISMATCHED_MAX`].
    starved: Vec<NodeId>,
    events: VecDeque<StreamEvent>,
}

reasons! {
    enum Timer {
        Start,
        /// An SPM is due however much is sent.
        AmbientSpm,
        /// An SPM is due since no data has been sent for a while.
        Heartbeat,
        SpmAnswer,
        /// There may be something to send again: a later permit, a packet that is held back.
        Send,
        Linger,
    }
}

type SourceTimers = Timers<Timer, 6>;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SourcePhase {
    #[default]
    Waiting,
    Sending,
    /// All data has been sent; repairs go on.
    Lingering {
        since: Time,
        /// When a NAK last came.
        busy: Time,
    },
    Done,
}

impl SourceSession {
    /// A session under `control`; `repairs` says whether the layer above repairs by number, so that who
    /// comes late may ask for what was sent before. Settings out of their range are taken to its nearest
    /// end.
    pub(crate) fn new(mut config: SourceConfig, control: BoxControl, repairs: bool) -> Self {
        config.payload = config.payload.clamp(1, u32::from(u16::MAX));
        let settings = &mut config.settings;
        settings.transmit_window = settings.transmit_window.clamp(1, WINDOW_PACKETS_MAX);
        for interval in [
            &mut settings.spm_interval,
            &mut settings.heartbeat_min,
            &mut settings.heartbeat_max,
            &mut settings.linger,
        ] {
            *interval = (*interval).max(INTERVAL_MIN);
        }
        let mut timers = SourceTimers::default();
        timers.arm(Timer::Start, config.start);
        timers.arm(Timer::AmbientSpm, config.start);
        fresh! {
            Self {
                spm: SpmSchedule::new(&config.settings),
                config,
                control,
                repairs,
                timers,
            }
            announce, phase, next, trail, spm_sequence, confirmations, farthest, told_idle, acked,
            gauges, scheme, announced, packet_bytes, mismatched, starved, events
        }
    }

    pub(crate) fn speak(&mut self, scheme: &'static str, announced: Option<SchemeAnnouncement>) {
        self.scheme = scheme;
        self.packet_bytes =
            announced.as_ref().and_then(|announced| bytes_of(&announced.settings, PACKET_BYTES));
        self.announced = announced.and_then(|announced| announced.encode());
    }

    fn seq(&self, index: u64) -> Seq {
        // Truncation is the wrap of sequence numbers.
        self.config.first + index as u32
    }

    /// The packet of sequence number `seq`: the one of that number nearest to the next new one.
    pub(crate) fn index(&self, seq: Seq) -> Option<u64> {
        self.next.checked_add_signed(i64::from(seq.distance(self.seq(self.next))))
    }

    /// Name of a packet in the trace: its sequence number, without wrap.
    fn traced(&self, index: u64) -> u64 {
        u64::from(self.config.first.value()) + index
    }

    /// Sends an SPM now, since its content has changed.
    pub(crate) fn announce_now(&mut self, now: Time) {
        self.spm.on_change(&mut self.timers, now);
    }

    /// Receivers learn at once what they have missed.
    pub(crate) fn take_new_path(&mut self, cx: &mut Cx<'_>) {
        if self.is_active() {
            self.control.on_new_path(cx);
            self.announce_now(cx.now);
        }
    }

    pub(crate) fn is_ours(&self, packet: &Packet<'_>) -> bool {
        let ports = packet.header.data_port(packet.kind()) == self.config.data_port;
        packet.tsi() == self.config.tsi && ports
    }

    pub(crate) fn is_named_by(&self, nak: &Nak) -> bool {
        nak.source == self.nla() && self.config.group.is_group(nak.group)
    }

    fn nla(&self) -> Nla {
        Nla::from_node(self.config.node)
    }

    /// Whether packets are taken and sent: after its start, and before nothing more happens.
    pub(crate) fn is_active(&self) -> bool {
        !matches!(self.phase, SourcePhase::Waiting | SourcePhase::Done)
    }

    pub(crate) fn is_sending(&self) -> bool {
        self.phase == SourcePhase::Sending
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase == SourcePhase::Done
    }

    /// After the last packet come FIN and the time of repairs. One that has not begun is over.
    pub(crate) fn close(&mut self, now: Time) {
        match self.phase {
            SourcePhase::Waiting => self.finish(),
            SourcePhase::Sending => {
                self.phase = SourcePhase::Lingering { since: now, busy: now };
                self.arm_linger();
                self.spm.on_change(&mut self.timers, now);
            }
            SourcePhase::Lingering { .. } | SourcePhase::Done => {}
        }
    }

    pub(crate) fn has_said_end(&self) -> bool {
        matches!(self.phase, SourcePhase::Lingering { .. }) && !self.spm.due
    }

    pub(crate) fn finish(&mut self) {
        self.phase = SourcePhase::Done;
        self.timers.disarm_all();
    }

    /// Sets the end of lingering, where it has begun.
    fn arm_linger(&mut self) {
        if let SourcePhase::Lingering { since, busy } = self.phase {
            let linger = self.config.settings.linger * if busy > since { LINGER_BUSY } else { 1 };
            self.timers.arm(Timer::Linger, (busy + linger).min(since + self.config.linger_max));
        }
    }

    /// Whether lingering has come to its end; with `owes` something that is owed still, and that the
    /// control has held back for all this time, to its longest.
    pub(crate) fn has_lingered(&mut self, now: Time, owes: bool) -> bool {
        if !self.timers.take_due(Timer::Linger, now) {
            return false;
        }
        match &mut self.phase {
            SourcePhase::Lingering { since, busy }
                if owes && now.since(*since) < self.config.linger_max =>
            {
                *busy = now;
                self.arm_linger();
                false
            }
            _ => true,
        }
    }

    /// Time has passed. Returns whether the session has begun now.
    pub(crate) fn on_timeout(&mut self, cx: &mut Cx<'_>) -> bool {
        let begins = self.timers.take_due(Timer::Start, cx.now);
        if begins {
            self.phase = SourcePhase::Sending;
        }
        if self.is_active() {
            self.spm.on_timeout(&mut self.timers, cx.now);
            if self.control.next_timeout().is_some_and(|at| at <= cx.now) {
                self.control.on_timeout(cx);
                self.observe(cx);
            }
        }
        begins
    }

    pub(crate) fn poll_event(&mut self) -> Option<StreamEvent> {
        self.events.pop_front()
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let control = if self.is_active() { self.control.next_timeout() } else { None };
        [self.timers.next(), control].into_iter().flatten().min()
    }
}

/// Receivers of other schemes, and starved receivers, of which the application is told.
const MISMATCHED_MAX: usize = 64;

/// Factor by which a source lingers longer if NAKs have come since the end of data.
const LINGER_BUSY: u64 = 4;

/// Shortest interval between SPMs: a timer of no length would run out again and again in one
/// moment.
const INTERVAL_MIN: Duration = Duration::from_millis(1);
