//! What a source sends, and in which order: confirmations, SPMs, then data and repairs.

use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Event, GroupId, NodeId, Time};

use super::repair::Confirmation;
use super::{PgmSource, Phase};
use crate::congestion::Permit;
use crate::content::Packets;
use crate::pgm::Reliability;
use crate::pgm::RepairTimers;
use crate::pgm::wire::{
    Body, Data, Encoder, Header, NAK_LIST_MAX, Nak, OptionType, PgmOption, RawOption, Spm,
};
use crate::{Destination, Transmit};

impl<P: Packets> PgmSource<P> {
    pub(super) fn next_packet(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.wake_at = None;
        if matches!(self.phase, Phase::Waiting | Phase::Done) {
            return None;
        }
        if let Some(confirmation) = self.next_confirmation(cx.now) {
            let transmit = self.write_confirmation(&confirmation, buf);
            self.control.on_overhead(cx.now, buf.len() as u32);
            return Some(transmit);
        }
        if self.spm.take() {
            let transmit = self.write_spm(buf);
            self.control.on_overhead(cx.now, buf.len() as u32);
            return Some(transmit);
        }
        self.next_payload(cx, buf)
    }

    /// A confirmation that may leave now.
    fn next_confirmation(&mut self, now: Time) -> Option<Confirmation> {
        if self.confirmations.is_empty() {
            return None;
        }
        match self.control.permit_overhead(now) {
            Permit::Now => self.confirmations.pop(),
            Permit::At(at) => {
                self.wake_at = Some(at);
                None
            }
            Permit::Blocked => None,
        }
    }

    /// Data or a repair. Where both wait they take turns, so that repairs have half of the
    /// opportunities; where one may not leave the other may.
    fn next_payload(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.repairs.advance(self.trail);
        let repair = match self.repairs.first() {
            Some((at, index)) if at <= cx.now => Some(index),
            Some((at, _)) => {
                self.wake_at = Some(self.wake_at.map_or(at, |other| other.min(at)));
                None
            }
            None => None,
        };
        let ready = self.ready(cx.now);
        if ready.is_none()
            && self.phase == Phase::Sending
            && let Some(at) = self.packets.next_timeout().filter(|at| *at > cx.now)
        {
            self.wake_at = Some(self.wake_at.map_or(at, |other| other.min(at)));
        }
        let data = ready.filter(|_| !self.trail_awaits_repair());
        let both = repair.is_some() && data.is_some();
        for turn in [self.repair_turn, !self.repair_turn] {
            if turn {
                let Some(index) = repair else { continue };
                if self.may_send(cx, self.packets.len(index), true) {
                    self.repair_turn = !both;
                    self.repairs.pop();
                    self.repairs.on_sent(index, cx.now);
                    return Some(self.write_repair(cx, index, buf));
                }
            } else if let Some(len) = data
                && self.may_send(cx, len, false)
            {
                self.repair_turn = true;
                return Some(self.write_data(cx, len, buf));
            }
        }
        if repair.is_none() && ready.is_none() && !self.told_idle {
            self.told_idle = true;
            self.control.on_idle(cx);
        }
        self.gauges.observe(cx, &self.control.gauges());
        None
    }

    /// Whether new data would push out of the window what a receiver is waiting for. It waits then:
    /// NAKs for the trail postpone its advance (src: RFC 3208 s16).
    fn trail_awaits_repair(&self) -> bool {
        let full = self.next - self.trail >= u64::from(self.config.window_packets);
        full && self.repairs.has(self.trail)
    }

    fn may_send(&mut self, cx: &mut Cx<'_>, len: u32, repair: bool) -> bool {
        match self.control.permit(cx, len, repair) {
            Permit::Now => true,
            Permit::At(at) => {
                assert!(at > cx.now, "a permit for a moment that has come is Permit::Now");
                self.wake_at = Some(self.wake_at.map_or(at, |other| other.min(at)));
                false
            }
            Permit::Blocked => {
                let armed = self.control.next_timeout().is_some();
                assert!(armed, "a control that blocks has a timer armed: every report may be lost");
                false
            }
        }
    }

    fn write_data(&mut self, cx: &mut Cx<'_>, len: u32, buf: &mut Vec<u8>) -> Transmit {
        let index = self.next;
        self.next += 1;
        self.trail =
            self.trail.max(self.next.saturating_sub(u64::from(self.config.window_packets)));
        let seq = self.seq(index);
        self.announce.clear();
        self.control.on_sent(cx, seq, len, &mut self.announce);
        let data = Data { sequence: seq, trail: self.seq(self.trail) };
        let transmit = self.write_payload(cx.now, Body::Odata(data), (index, len), true, buf);
        let repair = self.packets.repairs();
        cx.emit(Event::DataSent { seq: self.traced(index), bytes: len, repair });
        self.told_idle = false;
        self.spm.on_data(cx.now, self.pause());
        self.gauges.observe(cx, &self.control.gauges());
        self.end_if_all_sent(cx);
        transmit
    }

    fn write_repair(&mut self, cx: &mut Cx<'_>, index: u64, buf: &mut Vec<u8>) -> Transmit {
        let (seq, len) = (self.seq(index), self.packets.len(index));
        self.announce.clear();
        let announces = self.control.on_repair_sent(cx, seq, len, &mut self.announce);
        let data = Data { sequence: seq, trail: self.seq(self.trail) };
        let transmit = self.write_payload(cx.now, Body::Rdata(data), (index, len), announces, buf);
        cx.emit(Event::DataSent { seq: self.traced(index), bytes: len, repair: true });
        self.told_idle = false;
        Transmit { router_alert: true, ..transmit }
    }

    fn write_payload(
        &mut self,
        now: Time,
        body: Body,
        (index, len): (u64, u32),
        announces: bool,
        buf: &mut Vec<u8>,
    ) -> Transmit {
        let header = Header::downstream(self.config.tsi, self.config.data_port);
        let mut encoder = Encoder::new(buf, &header, &body);
        if index == 0 {
            encoder.option(&PgmOption::Syn);
        }
        if self.end() == Some(index + 1) {
            encoder.option(&PgmOption::Fin);
        }
        if let Some(from) = self.late_join() {
            encoder.option(&from);
        }
        if announces {
            let announce = self.control.options().announce;
            encoder.option(&PgmOption::of_scheme(announce, &self.announce));
        }
        encoder.payload(|out| self.packets.read(now, index, out));
        let zeros = encoder.finish();
        Transmit { zeros, payload_len: len, router_alert: false, ..self.to_group() }
    }

    fn write_spm(&mut self, buf: &mut Vec<u8>) -> Transmit {
        self.write_spm_with(buf, |_| {});
        self.to_group()
    }

    /// An SPM for one node alone, with what `fill` adds.
    pub(crate) fn write_spm_to(
        &mut self,
        node: NodeId,
        buf: &mut Vec<u8>,
        fill: impl FnOnce(&mut Encoder<'_>),
    ) -> Transmit {
        self.write_spm_with(buf, fill);
        Transmit { to: Destination::Node(node), router_alert: false, ..self.to_group() }
    }

    fn write_spm_with(&mut self, buf: &mut Vec<u8>, fill: impl FnOnce(&mut Encoder<'_>)) {
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
        if self.is_ending() {
            encoder.option(&PgmOption::Fin);
        }
        self.packets.announce(&mut encoder);
        if let Some(value) = &self.announced {
            encoder.raw_option(OptionType::SCHEME, 0, value);
        }
        fill(&mut encoder);
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
        if self.config.reliability == Reliability::Unrepaired {
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
