//! Packet input of a receiver: data from arrival to the layer above, and detection of gaps.

use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Cx, Duration, Seq, Time};

use super::naks::Naks;
use super::reach::{Belief, Reach};
use super::window::{Window, WindowPosition};
use super::{ReceiverPhase, ReceiverSession, Source, Timer};
use crate::LossRecord;
use crate::congestion::{AckVector, Arrival};
use crate::content::Held;
use crate::pgm::wire::{Body, Data, OptionType, Packet, Payload, RawOption, Received};

/// Layer above a receiver's session. The layer `()` gives up missing packets.
pub(crate) trait RepairLayer {
    /// Returns the requests for missing packets; `None` if lost packets are not repaired.
    fn naks(&self) -> Option<&Naks> {
        None
    }

    fn naks_mut(&mut self) -> Option<&mut Naks> {
        None
    }

    /// Returns the part of a payload to keep until its delivery.
    fn keep(&self, payload: &Payload<'_>) -> Held {
        // A payload has at most 65535 bytes.
        Held { bytes: Vec::new(), zeros: payload.len() as u32 }
    }

    fn deliver(&mut self, _cx: &mut Cx<'_>, _index: u64, _held: Held) {}

    fn lose(&mut self, _cx: &mut Cx<'_>, _from: u64, _to: u64) {}
}

impl RepairLayer for () {}

impl<R: RepairLayer> ReceiverSession<R> {
    /// Takes a decoded packet. Returns true if the packet is accepted.
    pub(crate) fn handle_packet(&mut self, cx: &mut Cx<'_>, packet: &Received<'_>) -> bool {
        if !self.takes_packets() {
            return false;
        }
        let outcome = self.take_packet(cx, packet);
        cx.check(outcome);
        outcome.is_ok()
    }

    fn take_packet(&mut self, cx: &mut Cx<'_>, packet: &Received<'_>) -> Checked {
        if packet.header.data_port(packet.kind()) != self.data_port {
            return Err(BadInput::Foreign);
        }
        let adopted = self.adopt(cx, packet)?;
        if !adopted || self.scheme.mismatch.is_some() {
            return Ok(());
        }
        if self.phase != ReceiverPhase::Joined && !self.resumes(cx, packet) {
            return Ok(());
        }
        match packet.body {
            Body::Odata(data) => return self.take_data(cx, packet, data, false),
            Body::Rdata(data) => return self.take_data(cx, packet, data, true),
            Body::Spm(spm) => return self.take_spm(cx, packet, spm),
            Body::Ncf(nak) | Body::Nak(nak) | Body::Nnak(nak) => {
                return self.take_others_nak(cx, packet, nak);
            }
            // The answer to that request also serves this receiver.
            Body::Spmr if packet.is_for_group() && self.timers.is_armed(Timer::SpmRequest) => {
                self.request_later(cx);
            }
            Body::Spmr | Body::Ack(_) => {}
        }
        Ok(())
    }

    /// Joins the session of an SPM or original, if none yet. Returns true for the joined session.
    fn adopt(&mut self, cx: &mut Cx<'_>, packet: &Received<'_>) -> Checked<bool> {
        let tsi = packet.tsi();
        match &mut self.source {
            Some(source) if source.tsi == tsi => {
                if matches!(packet.body, Body::Odata(_)) {
                    // Elements send for the source in everything but original data.
                    source.node = packet.from;
                }
                Ok(true)
            }
            Some(_) => Err(BadInput::Foreign),
            None if self.config.tsi.is_some_and(|wanted| wanted != tsi) => Err(BadInput::Foreign),
            None if matches!(packet.body, Body::Odata(_) | Body::Spm(_)) => {
                if matches!(packet.body, Body::Spm(_)) {
                    self.read_announced(packet)?;
                }
                self.source = Some(Source {
                    tsi,
                    node: packet.from,
                    last_hop: None,
                    last_hop_changed_at: None,
                    heard_at: cx.now,
                    advanced_at: cx.now,
                });
                self.note_new_packet(cx.now);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Resumes after a seeming end if several packets show that the session continues.
    fn resumes(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> bool {
        let Some(window) = &self.window else { return false };
        let (ended, said) = (self.extent.end, packet.options.has(OptionType::FIN));
        let shows = match packet.body {
            Body::Odata(data) => {
                let beyond = ended.or(window.highest.map(|highest| highest + 1));
                window.index(data.sequence) >= beyond
            }
            Body::Spm(spm) => {
                let over = said || packet.options.has(OptionType::RST);
                let sound = self.read_announced(packet).is_ok();
                !over && sound && self.doubts.spm_order.is_newer(cx.now, spm.sequence)
            }
            _ => false,
        };
        if !shows || !self.doubts.end.claim(cx.now, (), Duration::ZERO, |()| true) {
            return false;
        }
        (self.phase, self.extent.end) = (ReceiverPhase::Joined, None);
        self.gaps.declared_end = window.next;
        self.note_new_packet(cx.now);
        true
    }

    /// Begins at `start`, the first known packet; `trail` is the oldest repairable packet.
    pub(super) fn begin(&mut self, now: Time, packet: &Packet<'_>, start: Seq, trail: Seq) {
        self.begin_window(packet, start);
        self.extent.losses = LossRecord::starting_at(start.value().into());
        self.reach = Some(Reach::new(now, u64::from(start.value())));
        self.extent.is_from_start = trail == start;
    }

    fn begin_window(&mut self, packet: &Packet<'_>, start: Seq) -> &mut Window {
        let join = packet.options.find(OptionType::JOIN).as_ref().and_then(RawOption::seq);
        // An offer of more packets than the window holds is ignored.
        let window = self.config.receive_window;
        let earlier = join.filter(|from| from.before(start) && *from + window > start);
        let from = earlier.unwrap_or(start);
        let start = u64::from(from.value());
        (self.extent.begin, self.gaps.declared_end) = (start, start);
        self.window.insert(Window::new(start, self.config.receive_window))
    }

    fn take_data(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Received<'_>,
        data: Data,
        repair: bool,
    ) -> Checked {
        if data.trail.after(data.sequence) {
            return Err(BadInput::Absurd);
        }
        match self.scheme.judge_data(packet) {
            Ok(checked) => checked?,
            Err(mismatch) => return self.doubt_scheme(cx, mismatch),
        }
        if self.window.is_none() {
            // A repair is for receivers that were present before.
            if repair {
                return Ok(());
            }
            self.begin(cx.now, packet, data.sequence, data.trail);
        }
        let index = self.believe(cx, packet, data.sequence, repair)?;
        // NAKs need the path from an SPM, and the next SPM may be 30 s away.
        if self.last_hop().is_none() {
            self.want_spm(cx);
        }
        self.advance_trail(cx, data.trail);
        let Some(window) = &mut self.window else { return Ok(()) };
        let position = window.position(index);
        if position == WindowPosition::Beyond {
            window.learn(index);
            self.find_gaps(cx);
            return Err(BadInput::OutOfWindow);
        }
        let fresh = matches!(position, WindowPosition::Next | WindowPosition::Ahead);
        let highest = window.highest;
        let newest = highest.is_none_or(|highest| index > highest);
        let was_lost = !repair && self.extent.losses.arrived(index, |event| cx.emit(event));
        if fresh && repair {
            self.extent.losses.missing(index..index + 1, |event| cx.emit(event));
        }
        self.note_order(cx.now, index, newest, repair);
        let Some(window) = &mut self.window else { return Ok(()) };
        if position == WindowPosition::TooLate && self.repair.naks().is_none() {
            window.note_late(index);
        }
        if fresh {
            self.take_fresh(cx, &packet.payload, index, repair);
            if let Some(source) = self.source.as_mut().filter(|_| newest) {
                source.advanced_at = cx.now;
            }
        }
        let malformed = self.inform_scheme(cx, packet, position, data.sequence, repair);
        let (syn, fin) = (OptionType::SYN, OptionType::FIN);
        self.extent.note_data(index, packet.options.has(syn), packet.options.has(fin));
        // Repairs reach many receivers that do not need them.
        let repeated = position == WindowPosition::Duplicate && !repair && !was_lost;
        if malformed {
            Err(BadInput::Malformed)
        } else if repeated {
            Err(BadInput::Duplicate)
        } else {
            Ok(())
        }
    }

    fn take_fresh(&mut self, cx: &mut Cx<'_>, payload: &Payload<'_>, index: u64, repair: bool) {
        let Some(window) = &mut self.window else { return };
        let is_next = index == window.next;
        window.note(index);
        let held = self.repair.keep(payload);
        if let Some(naks) = self.repair.naks_mut().filter(|naks| !naks.is_empty()) {
            if repair { naks.repaired(index, cx.now) } else { naks.end(index) }
        }
        if is_next {
            self.deliver(cx, held);
            self.advance(cx);
        } else {
            window.hold(index, held);
        }
        self.find_gaps(cx);
        self.note_new_packet(cx.now);
    }

    fn note_order(&mut self, now: Time, index: u64, newest: bool, repair: bool) {
        let Some(window) = &self.window else { return };
        let next = window.highest.map_or(self.extent.begin, |highest| highest + 1);
        if index == next && self.scheme.late_acks.is_none() {
            return;
        }
        if newest && index > next {
            let round_trip = self.repair.naks().and_then(|naks| naks.confirmation.expected());
            self.gaps.disorder.notice(now, (next, index), round_trip);
        } else if !newest && !repair {
            self.gaps.disorder.came(now, index);
        }
        let behind = window.highest.map_or(0, |highest| highest.saturating_sub(index));
        let behind = if repair { 0 } else { behind };
        if behind >= AckVector::PACKETS || self.scheme.late_acks.is_some() {
            self.scheme.late_acks.get_or_insert_default().note(Seq::new(index as u32), behind);
        }
    }

    /// Returns the index of packet `seq`, if the source can have sent it by now.
    fn believe(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        seq: Seq,
        repair: bool,
    ) -> Checked<u64> {
        let (Some(window), Some(reach)) = (&self.window, &mut self.reach) else {
            return Err(BadInput::OutOfWindow);
        };
        let index = window.index(seq).ok_or(BadInput::OutOfWindow)?;
        if repair {
            // A repair of an unknown packet is forged: it would be taken for the next original.
            let can_be = index < window.known && reach.can_be(cx.now, index);
            return if can_be { Ok(index) } else { Err(BadInput::OutOfWindow) };
        }
        let fresh = if self.repair.naks().is_some() {
            let nothing_yet = window.next == self.extent.begin;
            !window.received(index) || nothing_yet && index < self.extent.begin
        } else {
            !window.received_lately(index)
        };
        let newer = index > reach.newest;
        // Packets that waited while this host was stalled count from their arrival.
        let belief = reach.take(cx.now - cx.late, index, fresh);
        if newer && belief == Belief::Believed {
            self.doubts.beyond.contradict();
        }
        match belief {
            // The packet was given up because of forged claims about later packets.
            Belief::Believed if newer && index < window.next => {
                self.rewind(cx, packet, index, index);
            }
            Belief::Believed => {}
            Belief::Doubted => return Err(BadInput::OutOfWindow),
            Belief::Rewound(first) => self.rewind(cx, packet, first, index),
        }
        Ok(index)
    }

    /// Discards packets after `index`: the source continued from `first` to `index`.
    pub(super) fn rewind(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>, first: u64, index: u64) {
        let Some(window) = &mut self.window else { return };
        let ahead = index >= window.next;
        if let Some(naks) = self.repair.naks_mut() {
            naks.end_from(if ahead { index } else { 0 });
        }
        if ahead {
            window.rewind(index);
            self.gaps.declared_end = self.gaps.declared_end.min(index);
        } else {
            let begin = self.extent.begin;
            self.begin_window(packet, Seq::new(first as u32));
            self.extent.begin = self.extent.begin.min(begin);
        }
        self.extent.losses.rewind(if ahead { index } else { first }, |event| cx.emit(event));
        self.timers.disarm(Timer::Gaps);
        self.gaps.rewind(index);
        self.scheme.late_acks = None;
        self.extent.end = None;
        self.scheme.feedback.on_rewind(cx, Seq::new(index as u32) - 1);
    }

    fn inform_scheme(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Received<'_>,
        position: WindowPosition,
        seq: Seq,
        repair: bool,
    ) -> bool {
        let option = packet.options.find(self.scheme.options.announce);
        let arrival = Arrival {
            seq,
            // A payload has at most 65535 bytes.
            len: packet.payload.len() as u32,
            repair,
            duplicate: position == WindowPosition::Duplicate,
            congestion_experienced: packet.congestion_experienced,
            reordering: self.gaps.disorder.tolerance(),
        };
        !self.scheme.feedback.on_data(cx, &arrival, option.map(|option| option.value))
    }

    fn deliver(&mut self, cx: &mut Cx<'_>, held: Held) {
        let Some(window) = &mut self.window else { return };
        let index = window.next;
        window.pass_delivered();
        self.repair.deliver(cx, index, held);
    }

    pub(super) fn advance(&mut self, cx: &mut Cx<'_>) {
        while let Some(window) = &mut self.window
            && !window.is_tidy()
        {
            if let Some(held) = window.take_next() {
                self.deliver(cx, held);
            } else if window.given_up.remove(&window.next) {
                let next = window.next;
                self.lose_up_to(cx, next + 1);
            } else {
                break;
            }
        }
    }

    fn lose_up_to(&mut self, cx: &mut Cx<'_>, to: u64) {
        let Some(window) = &mut self.window else { return };
        let from = window.next;
        window.pass_lost(to);
        self.extent.given_up += to - from;
        self.extent
            .losses
            .missing(from.max(self.gaps.declared_end).min(to)..to, |event| cx.emit(event));
        self.repair.lose(cx, from, to);
    }

    pub(super) fn advance_trail(&mut self, cx: &mut Cx<'_>, trail: Seq) {
        let Some(window) = &self.window else { return };
        let Some(trail) = window.index(trail).filter(|&trail| trail > window.next) else {
            self.doubts.trail.contradict();
            return;
        };
        // Packets that a trail gives up can never be recovered.
        let least = self.doubts.trail.get().map_or(trail, |claimed| trail.min(*claimed));
        if !self.doubts.trail.claim(cx.now, least, Duration::ZERO, |_| true) {
            return;
        }
        let trail = least;
        // Undetected losses count as missing now, as far as the window reaches.
        self.declare(cx, trail.min(window.end()));
        if let Some(naks) = self.repair.naks_mut() {
            naks.end_before(trail);
        }
        while let Some(window) = &self.window
            && window.next < trail
        {
            let held = window.first_held().filter(|&index| index < trail);
            let to = held.unwrap_or(trail);
            if to > window.next {
                self.lose_up_to(cx, to);
            }
            self.advance(cx);
        }
        self.gaps.declared_end = self.gaps.declared_end.max(trail);
        self.advance(cx);
    }
}
