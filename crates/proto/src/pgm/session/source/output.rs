//! What a source's session sends: confirmations, SPMs and data.

use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Event, GroupId, NodeId, Seq, Time};

use super::confirmations::Confirmation;
use super::{Phase, SourceSession, Timer};
use crate::congestion::Permit;
use crate::pgm::RepairTimers;
use crate::pgm::wire::{Body, Data, Encoder, Header, Nak, OptionType, Spm};
use crate::{Destination, Transmit};

/// A data packet that leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataPacket {
    /// Bytes of payload.
    pub(crate) len: u32,
    /// Whether no other packet will come after it.
    pub(crate) last: bool,
    /// Whether it repeats or repairs what others carried.
    pub(crate) repair: bool,
}

impl SourceSession {
    /// What goes before data: a confirmation, or an SPM with what `announce` adds. To be asked first
    /// whenever something may be sent.
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
        } else if self.spm.take() {
            self.write_spm(buf, announce);
            self.to_group()
        } else {
            return None;
        };
        self.control.on_overhead(now, buf.len() as u32);
        Some(transmit)
    }

    /// A confirmation that may leave now.
    fn next_confirmation(&mut self, now: Time) -> Option<Confirmation> {
        if self.confirmations.is_empty() {
            return None;
        }
        match self.control.permit_overhead(now) {
            Permit::Now => self.confirmations.pop(),
            Permit::At(at) => {
                self.wake_by(at);
                None
            }
            Permit::Blocked => None,
        }
    }

    /// There may be something to send at `at`.
    pub(crate) fn wake_by(&mut self, at: Time) {
        self.timers.arm_by(Timer::Send, at);
    }

    /// Whether a packet with `len` bytes of payload may leave now; else it is known when to ask again.
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

    /// There is no payload to send, or it may not leave: with `idle`, there is none.
    pub(crate) fn rest(&mut self, cx: &mut Cx<'_>, idle: bool) {
        if idle && !self.told_idle {
            self.told_idle = true;
            self.control.on_idle(cx);
        }
        self.observe(cx);
    }

    /// A new data packet; `read` appends its bytes, and returns how many zeros stand for the rest.
    pub(crate) fn write_data(
        &mut self,
        cx: &mut Cx<'_>,
        payload: DataPacket,
        buf: &mut Vec<u8>,
        read: impl FnOnce(&mut Vec<u8>) -> u32,
    ) -> Transmit {
        let index = self.next;
        self.next += 1;
        self.trail =
            self.trail.max(self.next.saturating_sub(u64::from(self.config.window_packets)));
        debug_assert!(self.trail < self.next, "the window has what was just sent");
        let (seq, DataPacket { len, repair, .. }) = (self.seq(index), payload);
        self.announce.clear();
        self.control.on_sent(cx, seq, len, &mut self.announce);
        let data = Data { sequence: seq, trail: self.seq(self.trail) };
        let transmit = self.write_payload(&Body::Odata(data), index, payload, true, buf, read);
        cx.emit(Event::DataSent { seq: self.traced(index), bytes: len, repair });
        self.told_idle = false;
        let pause = self.pause();
        self.spm.on_data(&mut self.timers, cx.now, pause);
        self.observe(cx);
        transmit
    }

    /// Packet `index` again.
    pub(crate) fn write_repair(
        &mut self,
        cx: &mut Cx<'_>,
        index: u64,
        payload: DataPacket,
        buf: &mut Vec<u8>,
        read: impl FnOnce(&mut Vec<u8>) -> u32,
    ) -> Transmit {
        let (seq, len) = (self.seq(index), payload.len);
        self.announce.clear();
        let announces = self.control.on_repair_sent(cx, seq, len, &mut self.announce);
        let data = Data { sequence: seq, trail: self.seq(self.trail) };
        let body = Body::Rdata(data);
        let transmit = self.write_payload(&body, index, payload, announces, buf, read);
        cx.emit(Event::DataSent { seq: self.traced(index), bytes: len, repair: true });
        self.told_idle = false;
        Transmit { router_alert: true, ..transmit }
    }

    fn write_payload(
        &self,
        body: &Body,
        index: u64,
        payload: DataPacket,
        announces: bool,
        buf: &mut Vec<u8>,
        read: impl FnOnce(&mut Vec<u8>) -> u32,
    ) -> Transmit {
        let mut encoder = self.write(buf, body);
        if index == 0 {
            encoder.option(OptionType::SYN, &[]);
        }
        if payload.last {
            encoder.option(OptionType::FIN, &[]);
        }
        self.write_late_join(&mut encoder);
        if announces {
            encoder.option(self.control.options().announce, &self.announce);
        }
        encoder.payload(read);
        let zeros = encoder.finish();
        Transmit { zeros, payload_len: payload.len, router_alert: false, ..self.to_group() }
    }

    /// An SPM for one node alone, with what `announce` adds.
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
            sequence: self.spm_sequence,
            trail: self.seq(self.trail),
            lead: self.seq(self.next) - 1,
            path: self.nla(),
        };
        self.spm_sequence += 1;
        let mut encoder = self.write(buf, &Body::Spm(spm));
        self.write_late_join(&mut encoder);
        if matches!(self.phase, Phase::Lingering { .. }) {
            encoder.option(OptionType::FIN, &[]);
        }
        announce(&mut encoder);
        if let Some(value) = &self.announced {
            encoder.raw_option(OptionType::SCHEME, 0, value);
        }
        encoder.finish();
    }

    /// A confirmation to the group of what `fill` adds, and of no packet.
    pub(crate) fn write_notice(
        &self,
        buf: &mut Vec<u8>,
        fill: impl FnOnce(&mut Encoder<'_>),
    ) -> Transmit {
        let first = self.seq(self.next) - 1;
        let mut encoder = self.write(buf, &self.ncf(first));
        fill(&mut encoder);
        encoder.finish();
        // Elements need not look at it: it ends no state of theirs.
        Transmit { router_alert: false, ..self.to_group() }
    }

    fn write_confirmation(&self, what: &Confirmation, buf: &mut Vec<u8>) -> Transmit {
        // Identical to the NAK, so in its order, which another implementation may not keep.
        let mut encoder = self.write(buf, &self.ncf(what.first));
        encoder.nak_list(&what.list);
        encoder.finish();
        self.to_group()
    }

    fn write<'a>(&self, buf: &'a mut Vec<u8>, body: &Body) -> Encoder<'a> {
        Encoder::new(buf, &Header::downstream(self.config.tsi, self.config.data_port), body)
    }

    fn ncf(&self, first: Seq) -> Body {
        Body::Ncf(Nak { first, source: self.nla(), group: self.config.group })
    }

    /// After how long without data there is a pause.
    fn pause(&self) -> Duration {
        match (self.config.repair_timers, self.control.gauges().rtt) {
            (RepairTimers::Adaptive, Some(rtt)) => rtt + rtt / 2,
            _ => Duration::ZERO,
        }
    }

    /// Says from where on a late joiner may ask for repairs.
    fn write_late_join(&self, encoder: &mut Encoder<'_>) {
        let back = match self.config.late_join {
            _ if !self.repairs => return,
            _ if self.next <= u64::from(self.config.open_start) => self.next,
            Some(back) => u64::from(back),
            None => return,
        };
        let from = self.seq(self.next.saturating_sub(back).max(self.trail));
        encoder.option(OptionType::JOIN, &from.value().to_be_bytes());
    }

    /// A packet without payload for the group, as elements on the way must see it.
    fn to_group(&self) -> Transmit {
        Transmit {
            time_to_live: self.config.time_to_live,
            router_alert: true,
            ..Transmit::control(Destination::Group(GroupId::SESSION))
        }
    }
}
