//! What a receiver does with packets from the source, from elements and from its neighbours.

use alloc::boxed::Box;

use faircast_base::{BadInput, Cx, Duration, NodeId, Seq};

use super::crowd::Backoff;
use super::reach::{Belief, Reach};
use super::window::{Place, Window};
use super::{Phase, ReceiverSession, RepairLayer, Requests, Source, Timer};
use crate::congestion::Arrival;
use crate::pgm::session::Received;
use crate::pgm::wire::{Body, Data, Nak, OptionType, Packet, RawOption, Spm};

impl<R: RepairLayer> ReceiverSession<R> {
    pub(super) fn take_packet(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Received<'_>,
    ) -> Result<(), BadInput> {
        if packet.header.data_port(packet.kind()) != self.config.data_port {
            return Err(BadInput::Foreign);
        }
        let adopted = self.adopt(cx, packet)?;
        if !adopted || self.mismatch.is_some() {
            return Ok(());
        }
        if self.phase != Phase::Joined && !self.goes_on(cx, packet) {
            return Ok(());
        }
        match packet.body {
            Body::Odata(data) => return self.take_data(cx, packet, data, false),
            Body::Rdata(data) => return self.take_data(cx, packet, data, true),
            Body::Spm(spm) => return self.take_spm(cx, packet, spm),
            Body::Ncf(nak) | Body::Nak(nak) | Body::Nnak(nak) => {
                return self.take_others_nak(cx, packet, nak);
            }
            // Its answer will do for us.
            Body::Spmr if packet.is_for_group() && self.timers.is_armed(Timer::SpmRequest) => {
                self.request_later(cx);
            }
            // Polls are for elements and repairers; answers and ACKs are for the source.
            Body::Spmr | Body::Poll(_) | Body::Polr(_) | Body::Ack(_) => {}
        }
        Ok(())
    }

    /// Joins the session of `packet` where there is none yet; only the source's own SPMs and data
    /// can tell of one. Returns whether the packet is of our session.
    fn adopt(&mut self, cx: &mut Cx<'_>, packet: &Received<'_>) -> Result<bool, BadInput> {
        let tsi = packet.tsi();
        if self.config.tsi.is_some_and(|wanted| wanted != tsi) {
            return Err(BadInput::Foreign);
        }
        match &mut self.source {
            Some(source) if source.tsi == tsi => {
                if matches!(packet.body, Body::Odata(_)) {
                    // Elements speak for the source in everything but original data.
                    source.node = packet.from;
                }
                Ok(true)
            }
            Some(_) => Err(BadInput::Foreign),
            None if matches!(packet.body, Body::Odata(_) | Body::Spm(_)) => {
                if matches!(packet.body, Body::Spm(_)) {
                    self.read_announced(packet)?;
                }
                let (heard, advanced) = (cx.now, cx.now);
                self.source = Some(Source { tsi, node: packet.from, path: None, heard, advanced });
                self.note_heard(cx.now);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// After what seemed the end of the session: whether `packet` and others show that it goes on.
    /// Then everything does.
    fn goes_on(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> bool {
        let Some(window) = &self.window else { return false };
        let (ended, said) = (self.end, packet.options.has(OptionType::FIN));
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
        (self.phase, self.end) = (Phase::Joined, None);
        // What was missing is looked for again.
        self.declared = window.next;
        self.note_heard(cx.now);
        true
    }

    /// Begins the window at `start`, or earlier where the source lets late joiners ask.
    fn begin_window(&mut self, packet: &Packet<'_>, start: Seq) -> &mut Window {
        let join = packet.options.find(OptionType::JOIN).as_ref().and_then(RawOption::seq);
        // A request for more than the window could hold is not one.
        let window = self.config.window_packets;
        let earlier = join.filter(|from| from.before(start) && *from + window > start);
        let from = earlier.unwrap_or(start);
        let start = u64::from(from.value());
        (self.begin, self.declared) = (start, start);
        self.window.insert(Window::new(start, self.config.window_packets))
    }

    fn take_data(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Received<'_>,
        data: Data,
        repair: bool,
    ) -> Result<(), BadInput> {
        if data.trail.after(data.sequence) {
            return Err(BadInput::Absurd);
        }
        self.check_data(cx, packet)?;
        if self.window.is_none() {
            // A repair is for those who were here before.
            if repair {
                return Ok(());
            }
            self.begin_window(packet, data.sequence);
            let start = u64::from(data.sequence.value());
            self.reach = Some(Box::new(Reach::new(cx.now, start)));
            self.from_start = data.trail == data.sequence;
        }
        let index = self.believe(cx, packet, data.sequence, repair)?;
        self.want_path(cx);
        self.advance_trail(cx, data.trail);
        let Some(window) = &mut self.window else { return Ok(()) };
        let place = window.place(index);
        if place == Place::Beyond {
            window.learn(index);
            self.find_gaps(cx);
            return Err(BadInput::OutOfWindow);
        }
        let fresh = matches!(place, Place::Next | Place::Ahead);
        if fresh {
            if let Some(source) = &mut self.source {
                source.heard = cx.now;
                self.timers.arm(Timer::Expiry, cx.now + self.config.expiry);
                if window.highest.is_none_or(|highest| index > highest) {
                    source.advanced = cx.now;
                }
            }
            window.note(index);
            let held = self.repair.keep(&packet.payload);
            if let Some(naks) = self.repair.naks_mut().filter(|naks| !naks.is_empty()) {
                if repair { naks.repaired(index, cx.now) } else { naks.end(index) }
            }
            if place == Place::Next {
                self.deliver(cx, held);
                self.advance(cx);
            } else {
                window.hold(index, held);
            }
            self.find_gaps(cx);
        }
        let malformed = self.inform(cx, packet, place, data.sequence, repair);
        if packet.options.has(OptionType::SYN) && index == self.begin {
            self.from_start = true;
        }
        if packet.options.has(OptionType::FIN) {
            self.end = Some(index + 1);
        } else if self.end.is_some_and(|end| index >= end) {
            self.end = None;
        }
        // Repairs reach many who do not need them.
        let repeated = place == Place::Duplicate && !repair;
        if malformed {
            Err(BadInput::Malformed)
        } else if repeated {
            Err(BadInput::Duplicate)
        } else {
            Ok(())
        }
    }

    /// The packet of number `seq`, where the source can have sent it by now.
    fn believe(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        seq: Seq,
        repair: bool,
    ) -> Result<u64, BadInput> {
        let (Some(window), Some(reach)) = (&self.window, &mut self.reach) else {
            return Err(BadInput::OutOfWindow);
        };
        let index = window.index(seq).ok_or(BadInput::OutOfWindow)?;
        if repair {
            let can_be = reach.can_be(cx.now, index);
            return if can_be { Ok(index) } else { Err(BadInput::OutOfWindow) };
        }
        let fresh = if self.repair.naks().is_some() {
            // What was delivered is not delivered again.
            let nothing_yet = window.next == self.begin;
            !window.received(index) || nothing_yet && index < self.begin
        } else {
            !window.received_lately(index)
        };
        let newer = index > reach.newest();
        match reach.take(cx.now, index, fresh) {
            // It was given up because of what somebody had said of packets to come.
            Belief::Believed if newer && index < window.next => {
                self.rewind(cx, packet, index, index);
            }
            Belief::Believed => {}
            Belief::Doubted => return Err(BadInput::OutOfWindow),
            Belief::Rewound(first) => self.rewind(cx, packet, first, index),
        }
        Ok(index)
    }

    /// Packets after `index` were none of the source, which has come from `first` to there.
    fn rewind(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>, first: u64, index: u64) {
        let Some(window) = &mut self.window else { return };
        let ahead = index >= window.next;
        if let Some(naks) = self.repair.naks_mut() {
            naks.end_from(if ahead { index } else { 0 });
        }
        if ahead {
            window.rewind(index);
            self.declared = self.declared.min(index);
        } else {
            let begin = self.begin;
            // Truncation is the wrap of sequence numbers.
            self.begin_window(packet, Seq::new(first as u32));
            self.begin = self.begin.min(begin);
        }
        self.timers.disarm(Timer::Gaps);
        self.end = None;
        // Truncation is the wrap of sequence numbers.
        self.feedback.on_rewind(cx, Seq::new(index as u32) - 1);
    }

    /// Tells the scheme of a data packet. Returns whether its option was malformed.
    fn inform(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Received<'_>,
        place: Place,
        seq: Seq,
        repair: bool,
    ) -> bool {
        let option = packet.options.find(self.scheme_options.announce);
        let arrival = Arrival {
            seq,
            // A payload has at most 65535 bytes.
            len: packet.payload.len() as u32,
            repair,
            duplicate: place == Place::Duplicate,
            congestion_experienced: packet.congestion_experienced,
        };
        !self.feedback.on_data(cx, &arrival, option.map(|option| option.value))
    }

    fn take_spm(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Received<'_>,
        spm: Spm,
    ) -> Result<(), BadInput> {
        let order = &self.doubts.spm_order;
        if order.newest() == Some(spm.sequence) {
            return Err(BadInput::Duplicate);
        }
        if !order.is_newer(cx.now, spm.sequence) {
            self.want_spm(cx);
        }
        if spm.window().is_some_and(|(trail, lead)| trail.after(lead + 1)) {
            return Err(BadInput::Absurd);
        }
        let announced = self.read_announced(packet)?;
        if !self.doubts.spm_order.take(cx.now, spm.sequence) {
            return Err(BadInput::Duplicate);
        }
        self.note_heard(cx.now);
        if let Some(announced) = announced {
            self.take_announced(cx, announced)?;
        }
        self.timers.disarm(Timer::SpmRequest);
        self.requests_due = Requests::default();
        self.take_path(cx, packet.from, spm);
        let fin = packet.options.has(OptionType::FIN);
        let Some((trail, lead)) = spm.window() else { return Ok(()) };
        if self.window.is_none() {
            // What was sent so far is not for us; what comes next is.
            self.begin_window(packet, lead + 1);
            let start = u64::from((lead + 1).value());
            self.reach = Some(Box::new(Reach::new(cx.now, start)));
            self.from_start = trail == lead + 1;
        }
        let lead_index = self.window.as_ref().and_then(|window| window.index(lead));
        if let (Some(lead), Some(reach)) = (lead_index, &mut self.reach)
            && !reach.can_lead(cx.now, lead)
        {
            return Err(BadInput::OutOfWindow);
        }
        self.advance_trail(cx, trail);
        if let (Some(lead), Some(window)) = (lead_index, &mut self.window) {
            window.learn(lead);
            self.find_gaps(cx);
        }
        if fin {
            self.take_fin(lead)?;
        } else if let (Some(end), Some(window)) = (self.end, &self.window)
            && window.index(lead + 1) >= Some(end)
        {
            self.end = None;
        }
        Ok(())
    }

    /// The source says that `lead` is the last packet.
    fn take_fin(&mut self, lead: Seq) -> Result<(), BadInput> {
        let Some(window) = &self.window else { return Ok(()) };
        // Of an empty session the lead lies just before the first packet, perhaps before number 0.
        let end = window.index(lead + 1).ok_or(BadInput::OutOfWindow)?;
        if end < window.next {
            return Err(BadInput::Absurd);
        }
        self.end = Some(end);
        Ok(())
    }

    /// Another last hop than before is believed where others name it too.
    fn take_path(&mut self, cx: &mut Cx<'_>, from: NodeId, spm: Spm) {
        let Some(source) = &mut self.source else { return };
        let path = spm.path.node().unwrap_or(from);
        if source.path.is_some_and(|known| known != path) {
            if !self.doubts.path.claim(cx.now, path, Duration::ZERO, |other| *other == path) {
                self.want_spm(cx);
                return;
            }
        } else {
            self.doubts.path.contradict();
        }
        // Without an element on the way it is the source that speaks. Who was heard first may have
        // been somebody else who repeats what the source has said.
        if path.0 == 0 || path == from {
            source.node = from;
        }
        source.path = Some(path);
    }

    /// Asks for an SPM, which shows whether the one that came now is to be believed.
    pub(super) fn want_spm(&mut self, cx: &mut Cx<'_>) {
        if !self.timers.is_armed(Timer::SpmRequest) {
            let backoff = cx.rng.up_to(self.config.spm_request_backoff);
            self.timers.arm(Timer::SpmRequest, cx.now + backoff);
        }
    }

    /// Asks for one after a while, if none has come by then.
    pub(super) fn request_later(&mut self, cx: &mut Cx<'_>) {
        let least = self.config.spm_request_backoff;
        self.timers.arm(Timer::SpmRequest, cx.now + least + cx.rng.up_to(least));
    }

    /// Packets before `trail` will not be repaired any more.
    fn advance_trail(&mut self, cx: &mut Cx<'_>, trail: Seq) {
        let Some(window) = &self.window else { return };
        let Some(trail) = window.index(trail).filter(|&trail| trail > window.next) else {
            self.doubts.trail.contradict();
            return;
        };
        // What it would give up can never be had back.
        let least = self.doubts.trail.get().map_or(trail, |claimed| trail.min(*claimed));
        if !self.doubts.trail.claim(cx.now, least, Duration::ZERO, |_| true) {
            return;
        }
        let trail = least;
        // What was never found missing is so now, as far as the window reaches.
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
        self.declared = self.declared.max(trail);
        self.advance(cx);
    }

    /// A confirmation, or the NAK of a neighbour, which may have a report and ask for nothing.
    fn take_others_nak(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Received<'_>,
        nak: Nak,
    ) -> Result<(), BadInput> {
        let confirmed = matches!(packet.body, Body::Ncf(_));
        if !self.config.group.is_group(nak.group) || !confirmed && !packet.is_for_group() {
            return Err(BadInput::Foreign);
        }
        if let Some(option) = packet.options.find(self.scheme_options.report).filter(|_| !confirmed)
        {
            self.feedback.on_overheard(cx, packet.from, option.value)?;
        }
        if !matches!(packet.body, Body::Nnak(_)) {
            self.hear_of(cx, packet, confirmed);
        }
        Ok(())
    }

    /// Somebody asked for the packets that `packet` names, or they were `confirmed`: no need to ask
    /// too, and where we did not know that they exist we know it now.
    fn hear_of(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>, confirmed: bool) {
        for seq in packet.nak_sequence() {
            let Some(window) = &mut self.window else { return };
            let Some(index) = window.index(seq) else { continue };
            if index >= window.end() || window.received(index) {
                self.hear(cx, index, confirmed);
                continue;
            }
            let can_be = self.reach.as_ref().is_some_and(|reach| reach.can_be(cx.now, index));
            if index >= window.next && !window.is_given_up(index) && can_be {
                window.learn(index);
                if !self.hear(cx, index, confirmed) {
                    // A single packet is found missing by what others say of it.
                    let mut backoff = Backoff::new(cx.now, self.config.nak_lists);
                    self.declare_run(cx, &mut backoff, index, index);
                    self.hear(cx, index, confirmed);
                }
            }
            self.lone_nak.suppress(cx.now);
            self.timers.disarm(Timer::LoneNak);
        }
        self.advance(cx);
        self.find_gaps(cx);
    }

    /// Somebody asked for packet `index`, or it was `confirmed`. Returns whether it is being asked for
    /// here.
    fn hear(&mut self, cx: &Cx<'_>, index: u64, confirmed: bool) -> bool {
        self.repair.naks_mut().is_some_and(|naks| match confirmed {
            true => naks.confirmed(index, cx.now),
            false => naks.heard(index, cx.now),
        })
    }

    /// Without an SPM no NAK has a way to go, and the next one may be half a minute off: who joins
    /// late asks for it and does not wait for its first loss.
    fn want_path(&mut self, cx: &mut Cx<'_>) {
        if self.path().is_none() {
            self.want_spm(cx);
        }
    }
}
