//! Packet output of a source: confirmations, SPMs and data, and the trace of the control.

use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Event, GroupId, NodeId, Seq, Time};

use super::input::Confirmation;
use super::{SourcePhase, SourceSession, SourceTimers, Timer};
use crate::congestion::Permit;
use crate::pgm::PgmFlowSettings;
use crate::pgm::wire::{Body, Data, Encoder, Header, Nak, OptionType, Spm};
use crate::{Destination, Transmit};

#[derive(Clone, Copy, Debug)]
pub(crate) struct DataPacket {
    /// Index of the packet to send again; `None` for a new one.
    pub(crate) again: Option<u64>,
    pub(crate) len: u32,
    pub(crate) last: bool,
    /// True if a new packet is parity or was requested; repeated packets always repair.
    pub(crate) repair: bool,
}

impl SourceSession {
    /// Writes a confirmation, or an SPM with the additions of `announce`. Called before data.
    pub(crate) fn poll_control(
        &mut self,
        now: Time,
        buf: &mut Vec<u8>,
        announce: impl FnOnce(&mut Encoder<'_>),
    ) -> Option<Transmit> {
        self.timers.disarm(Timer::Send);
        if !self.is_active() {
            return None;
        }
        let transmit = if let Some(confirmation) = self.next_confirmation(now) {
            self.write_confirmation(&confirmation, buf)
        } else if core::mem::take(&mut self.spm.due) {
            self.write_spm(buf, announce);
            self.to_group()
        } else {
            return None;
        };
        self.control.on_overhead(now, buf.len() as u32);
        Some(transmit)
    }

    fn next_confirmation(&mut self, now: Time) -> Option<Confirmation> {
        self.confirmations.queue.front()?;
        match self.control.permit_overhead(now) {
            Permit::Now => return self.confirmations.queue.pop_front(),
            Permit::At(at) => self.wake_by(at),
            Permit::Blocked => {}
        }
        None
    }

    pub(crate) fn wake_by(&mut self, at: Time) {
        self.timers.arm_by(Timer::Send, at);
    }

    /// Returns true if a packet with `len` payload bytes may be sent now; otherwise arms a timer.
    pub(crate) fn may_send(&mut self, cx: &mut Cx<'_>, len: u32, repair: bool) -> bool {
        match self.control.permit(cx, len, repair) {
            Permit::Now => true,
            Permit::At(at) => {
                assert!(at > cx.now, "a permit for a moment that has come is Permit::Now");
                self.wake_by(at);
                false
            }
            Permit::Blocked => {
                let armed = self.control.next_timeout().is_some();
                assert!(armed, "a control that blocks has a timer armed: every report may be lost");
                false
            }
        }
    }

    pub(crate) fn rest(&mut self, cx: &mut Cx<'_>, idle: bool) {
        if idle && !self.is_idle_told {
            self.is_idle_told = true;
            self.control.on_idle(cx);
        }
        self.observe(cx);
    }

    /// Records a changed state of the control in the trace. Called after every possible change.
    pub(crate) fn observe(&mut self, cx: &mut Cx<'_>) {
        self.gauges.observe(cx, &self.control.gauges());
    }

    /// Writes a data packet. `read` appends its bytes, and returns the number of zeros after them.
    pub(crate) fn write_data(
        &mut self,
        cx: &mut Cx<'_>,
        packet: DataPacket,
        buf: &mut Vec<u8>,
        read: impl FnOnce(&mut Vec<u8>) -> u32,
    ) -> Transmit {
        let DataPacket { again, len, last, repair } = packet;
        let index = again.unwrap_or(self.next);
        let seq = self.seq(index);
        self.announce.clear();
        let announces = if again.is_some() {
            self.control.on_repair_sent(cx, seq, len, &mut self.announce)
        } else {
            self.next += 1;
            let oldest = self.next.saturating_sub(u64::from(self.config.transmit_window));
            self.trail = self.trail.max(oldest);
            debug_assert!(self.trail < self.next, "the window has what was just sent");
            self.control.on_sent(cx, seq, len, &mut self.announce);
            true
        };
        let data = Data { sequence: seq, trail: self.seq(self.trail) };
        let body = if again.is_some() { Body::Rdata(data) } else { Body::Odata(data) };
        let mut encoder = self.write(buf, &body);
        if index == 0 {
            encoder.option(OptionType::SYN, &[]);
        }
        if last {
            encoder.option(OptionType::FIN, &[]);
        }
        self.write_late_join(&mut encoder);
        if announces {
            encoder.option(self.control.options().announce, &self.announce);
        }
        encoder.payload(read);
        let zeros = encoder.finish();
        let repair = repair || again.is_some();
        cx.emit(Event::DataSent { seq: self.traced(index), bytes: len, repair });
        self.is_idle_told = false;
        if again.is_none() {
            let pause = self.control.gauges().rtt.map_or(Duration::ZERO, |rtt| rtt + rtt / 2);
            self.spm.on_data(&mut self.timers, cx.now, pause);
            self.observe(cx);
        }
        Transmit { zeros, payload_len: len, router_alert: again.is_some(), ..self.to_group() }
    }

    pub(crate) fn write_spm_to(
        &mut self,
        node: NodeId,
        buf: &mut Vec<u8>,
        announce: impl FnOnce(&mut Encoder<'_>),
    ) -> Transmit {
        self.write_spm(buf, announce);
        Transmit { to: Destination::Node(node), router_alert: false, ..self.to_group() }
    }

    fn write_spm(&mut self, buf: &mut Vec<u8>, announce: impl FnOnce(&mut Encoder<'_>)) {
        let spm = Spm {
            sequence: self.spm.next_sequence,
            trail: self.seq(self.trail),
            lead: self.seq(self.next) - 1,
            path: self.nla(),
        };
        self.spm.next_sequence += 1;
        let mut encoder = self.write(buf, &Body::Spm(spm));
        self.write_late_join(&mut encoder);
        if matches!(self.phase, SourcePhase::Lingering { .. }) {
            encoder.option(OptionType::FIN, &[]);
        }
        announce(&mut encoder);
        if let Some(value) = &self.scheme.announced {
            encoder.raw_option(OptionType::SCHEME, 0, value);
        }
        encoder.finish();
    }

    /// Writes a confirmation to the group with the additions of `fill`, which confirms no packet.
    pub(crate) fn write_notice(
        &self,
        buf: &mut Vec<u8>,
        fill: impl FnOnce(&mut Encoder<'_>),
    ) -> Transmit {
        let first = self.seq(self.next) - 1;
        let mut encoder = self.write(buf, &self.ncf(first));
        fill(&mut encoder);
        encoder.finish();
        // Elements need not read it: it ends no state of theirs.
        Transmit { router_alert: false, ..self.to_group() }
    }

    fn write_confirmation(&self, what: &Confirmation, buf: &mut Vec<u8>) -> Transmit {
        // Identical to the NAK, including its order, which other implementations may not sort.
        let mut encoder = self.write(buf, &self.ncf(what.first));
        encoder.nak_list(what.list.iter().copied());
        encoder.finish();
        self.to_group()
    }

    fn write<'a>(&self, buf: &'a mut Vec<u8>, body: &Body) -> Encoder<'a> {
        Encoder::new(buf, &Header::downstream(self.config.tsi, self.config.data_port), body)
    }

    fn ncf(&self, first: Seq) -> Body {
        Body::Ncf(Nak { first, source: self.nla(), group: self.config.group })
    }

    /// Writes OPT_JOIN, the oldest packet that late receivers may request (src: RFC 3208 s9.6).
    fn write_late_join(&self, encoder: &mut Encoder<'_>) {
        if self.repairs && self.next <= OPEN_START {
            let from = self.seq(self.trail);
            encoder.option(OptionType::JOIN, &from.value().to_be_bytes());
        }
    }

    /// Addresses a packet without payload to the group, visible to elements on the path.
    fn to_group(&self) -> Transmit {
        Transmit {
            time_to_live: self.config.time_to_live,
            router_alert: true,
            ..Transmit::control(Destination::Group(GroupId::SESSION))
        }
    }
}

/// First packets of a session: a receiver of any of them may request all earlier ones.
const OPEN_START: u64 = 64;

/// Independent schedules of ambient, heartbeat and requested SPMs (src: RFC 3208 s5.1.6).
#[derive(Debug)]
pub(super) struct SpmSchedule {
    ambient_interval: Duration,
    heartbeat_min: Duration,
    heartbeat_max: Duration,
    /// Interval to the next heartbeat, which doubles while no data is sent.
    heartbeat: Duration,
    answered_at: Option<Time>,
    pub(super) due: bool,
    next_sequence: Seq,
}

impl SpmSchedule {
    pub(super) fn new(settings: &PgmFlowSettings) -> Self {
        Self {
            ambient_interval: settings.spm_interval,
            heartbeat_min: settings.heartbeat_min,
            heartbeat_max: settings.heartbeat_max,
            heartbeat: settings.heartbeat_min,
            answered_at: None,
            due: false,
            next_sequence: Seq::new(0),
        }
    }

    /// Restarts heartbeats after new data. The first is due once `pause` shows that no data
    /// follows; a window that waits for acknowledgements is no such pause. deviates: repairs do not
    /// restart heartbeats (RFC 3208 s5.1.5), which show the lead to receivers without the last
    /// packet.
    pub(super) fn on_data(&mut self, timers: &mut SourceTimers, now: Time, pause: Duration) {
        self.heartbeat = self.heartbeat_min.max(pause);
        timers.arm(Timer::Heartbeat, now + self.heartbeat);
    }

    /// Sends an SPM after an urgent change, such as the end of data, and heartbeats at once.
    pub(super) fn on_change(&mut self, timers: &mut SourceTimers, now: Time) {
        self.due = true;
        self.on_data(timers, now, Duration::ZERO);
    }

    /// Answers a request at once, or after the shortest heartbeat interval since the last answer.
    pub(super) fn on_request(&mut self, timers: &mut SourceTimers, now: Time) {
        if !timers.is_armed(Timer::SpmAnswer) {
            let free_at = self.answered_at.map_or(now, |at| at + self.heartbeat_min);
            timers.arm(Timer::SpmAnswer, free_at.max(now));
        }
        self.answer(timers, now);
    }

    fn answer(&mut self, timers: &mut SourceTimers, now: Time) {
        if timers.take_due(Timer::SpmAnswer, now) {
            self.answered_at = Some(now);
            self.due = true;
        }
    }

    pub(super) fn on_timeout(&mut self, timers: &mut SourceTimers, now: Time) {
        self.answer(timers, now);
        if timers.take_due(Timer::AmbientSpm, now) {
            self.due = true;
            timers.arm(Timer::AmbientSpm, now + self.ambient_interval);
        }
        if timers.take_due(Timer::Heartbeat, now) {
            self.due = true;
            self.heartbeat = (self.heartbeat * 2).min(self.heartbeat_max);
            timers.arm(Timer::Heartbeat, now + self.heartbeat);
        }
    }
}
