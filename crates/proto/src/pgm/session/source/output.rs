//! What a source's session sends: confirmations, SPMs and data.

use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Event, GroupId, NodeId, Time};

use super::confirmations::Confirmation;
use super::{Phase, SourceSession};
use crate::congestion::Permit;
use crate::pgm::RepairTimers;
use crate::pgm::wire::{
    Body, Data, Encoder, Header, NAK_LIST_MAX, Nak, OptionType, PgmOption, RawOption, Spm,
};
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
        self.wake_at = None;
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
        self.wake_at = Some(self.wake_at.map_or(at, |other| other.min(at)));
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
        let (seq, DataPacket { len, repair, .. }) = (self.seq(index), payload);
        self.announce.clear();
        self.control.on_sent(cx, seq, len, &mut self.announce);
        let data = Data { sequence: seq, trail: self.seq(self.trail) };
        let transmit = self.write_payload(&Body::Odata(data), index, payload, true, buf, read);
        cx.emit(Event::DataSent { seq: self.traced(index), bytes: len, repair });
        self.told_idle = false;
        self.spm.on_data(cx.now, self.pause());
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
        let header = Header::downstream(self.config.tsi, self.config.data_port);
        let mut encoder = Encoder::new(buf, &header, body);
        if index == 0 {
            encoder.option(&PgmOption::Syn);
        }
        if payload.last {
            encoder.option(&PgmOption::Fin);
        }
        if let Some(from) = self.late_join() {
            encoder.option(&from);
        }
        if announces {
            let announce = self.control.options().announce;
            encoder.option(&PgmOption::of_scheme(announce, &self.announce));
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
        let header = Header::downstream(self.config.tsi, self.config.data_port);
        let mut encoder = Encoder::new(buf, &header, &Body::Spm(spm));
        if let Some(from) = self.late_join() {
            encoder.option(&from);
        }
        if matches!(self.phase, Phase::Lingering { .. }) {
            encoder.option(&PgmOption::Fin);
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
        let nak = Nak { first, source: self.nla(), group: self.config.group };
        let header = Header::downstream(self.config.tsi, self.config.data_port);
        let mut encoder = Encoder::new(buf, &header, &Body::Ncf(nak));
        fill(&mut encoder);
        encoder.finish();
        // Elements need not look at it: it ends no state of theirs.
        Transmit { router_alert: false, ..self.to_group() }
    }

    fn write_confirmation(&self, what: &Confirmation, buf: &mut Vec<u8>) -> Transmit {
        let nak = Nak { first: what.first, source: self.nla(), group: self.config.group };
        let header = Header::downstream(self.config.tsi, self.config.data_port);
        let mut encoder = Encoder::new(buf, &header, &Body::Ncf(nak));
        if !what.list.is_empty() {
            // Identical to the NAK, so in its order, which another implementation may not keep.
            let mut value = [0; 4 * NAK_LIST_MAX];
            let slots = value.chunks_exact_mut(4).zip(&what.list);
            slots.for_each(|(slot, seq)| slot.copy_from_slice(&seq.value().to_be_bytes()));
            let value = &value[..4 * what.list.len()];
            let kind = OptionType::NAK_LIST;
            encoder.option(&PgmOption::Other(RawOption { kind, specific: 0, value }));
        }
        encoder.finish();
        self.to_group()
    }

    /// After how long without data there is a pause.
    fn pause(&self) -> Duration {
        match (self.config.repair_timers, self.control.gauges().rtt) {
            (RepairTimers::Adaptive, Some(rtt)) => rtt + rtt / 2,
            _ => Duration::ZERO,
        }
    }

    /// From where on a late joiner may ask for repairs.
    fn late_join(&self) -> Option<PgmOption<'static>> {
        let starting = self.next <= u64::from(self.config.open_start);
        if !self.repairs {
            return None;
        }
        let from = match self.config.late_join {
            _ if starting => 0,
            Some(back) => self.next.saturating_sub(u64::from(back)),
            None => return None,
        };
        let from = from.max(self.trail);
        Some(PgmOption::Join { from: self.seq(from) })
    }

    /// A packet without payload for the group, as elements on the way must see it.
    fn to_group(&self) -> Transmit {
        Transmit {
            to: Destination::Group(GroupId::SESSION),
            zeros: 0,
            payload_len: 0,
            time_to_live: self.config.time_to_live,
            router_alert: true,
            wire_len: None,
        }
    }
}
