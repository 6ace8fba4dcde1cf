//! Sending end of a session: sequence numbers, SPMs, confirmations, and inputs of the control.

mod input;
mod output;

pub(crate) use self::output::DataPacket;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Seq, Time};

use self::input::{Acked, Confirmations, Farthest, SourceScheme};
use self::output::SpmSchedule;
use crate::StreamEvent;
use crate::congestion::{BoxControl, GaugeTrace};
use crate::pgm::SourceConfig;
use crate::pgm::config::WINDOW_PACKETS_MAX;
use crate::pgm::wire::{Nak, Nla, Packet};
use crate::timers::{Timers, reasons};

/// Sending end of a session. Packets are counted from 0 (`index`).
pub(crate) struct SourceSession {
    pub(crate) config: SourceConfig,
    pub(crate) control: BoxControl,
    /// True if packets are repaired by their sequence numbers.
    repairs: bool,
    /// Scheme's announcement on the packet that is being written.
    announce: Vec<u8>,
    phase: SourcePhase,
    /// Next new packet: one past the lead of the transmit window.
    pub(crate) next: u64,
    pub(crate) trail: u64,
    spm: SpmSchedule,
    confirmations: Confirmations,
    farthest: Farthest,
    timers: SourceTimers,
    /// True if the control knows that the application has nothing to send.
    is_idle_told: bool,
    acked: Acked,
    gauges: GaugeTrace,
    pub(crate) scheme: SourceScheme,
    events: VecDeque<StreamEvent>,
}

reasons! {
    enum Timer {
        Start,
        AmbientSpm,
        /// An SPM is due, since no data has been sent for a while.
        Heartbeat,
        SpmAnswer,
        /// Sending may be possible again: a later permit, or a packet that is held back.
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
    Lingering {
        since: Time,
        busy: Time,
    },
    Done,
}

impl SourceSession {
    /// Creates a session. `repairs` is true if receivers may request earlier packets by number.
    pub(crate) fn new(mut config: SourceConfig, control: BoxControl, repairs: bool) -> Self {
        config.payload = config.payload.clamp(1, u32::from(u16::MAX));
        config.transmit_window = config.transmit_window.clamp(1, WINDOW_PACKETS_MAX);
        let settings = &mut config.settings;
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
            announce, phase, next, trail, confirmations, farthest, is_idle_told, acked, gauges, scheme,
            events
        }
    }

    fn seq(&self, index: u64) -> Seq {
        self.config.first + index as u32
    }

    pub(crate) fn index(&self, seq: Seq) -> Option<u64> {
        self.next.checked_add_signed(i64::from(seq.distance(self.seq(self.next))))
    }

    /// Returns the number of a packet in the trace: its sequence number without wrap.
    fn traced(&self, index: u64) -> u64 {
        u64::from(self.config.first.value()) + index
    }

    pub(crate) fn announce_now(&mut self, now: Time) {
        self.spm.on_change(&mut self.timers, now);
    }

    /// Informs the control, and sends an SPM so that receivers learn at once what they missed.
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

    pub(crate) fn is_active(&self) -> bool {
        !matches!(self.phase, SourcePhase::Waiting | SourcePhase::Done)
    }

    pub(crate) fn is_sending(&self) -> bool {
        self.phase == SourcePhase::Sending
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase == SourcePhase::Done
    }

    /// Ends the data: FIN and a time for repairs follow. A session that has not started is over.
    pub(crate) fn close(&mut self, now: Time) {
        match self.phase {
            SourcePhase::Waiting => self.finish(),
            SourcePhase::Sending => {
                self.phase = SourcePhase::Lingering { since: now, busy: now };
                self.arm_linger();
                self.announce_now(now);
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

    fn arm_linger(&mut self) {
        if let SourcePhase::Lingering { since, busy } = self.phase {
            let linger = self.config.settings.linger * if busy > since { LINGER_BUSY } else { 1 };
            self.timers.arm(Timer::Linger, (busy + linger).min(since + self.config.linger_max));
        }
    }

    /// Returns true if lingering is over. With `owes`, lingering is extended up to its maximum.
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

/// Factor by which a source lingers longer if NAKs have come since the end of data.
const LINGER_BUSY: u64 = 4;

/// Shortest interval between SPMs: a timer of zero length would expire again at once.
const INTERVAL_MIN: Duration = Duration::from_millis(1);
