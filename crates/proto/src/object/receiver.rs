//! Receiving end of a transfer over PGM.

pub(super) mod assembly;
pub(super) mod blocks;
mod load;
pub(super) mod member;
mod requests;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Cx, Duration, Event, Seq, Time};

use self::assembly::{Assembly, TransferPhase};
use self::blocks::{Blocks, Taken};
use self::member::News;
use self::requests::Requests;
use super::layout::{Layout, part_of};
use super::source::write_entries;
use super::wire::{
    Answer, Entry, Notice, Probe, SYMBOL_HEADER, SymbolName, encode_limit, encode_load,
};
use super::{
    Announcement, ObjectReceiverInput, ObjectReceiverSetup, ObjectStatus, ObjectTaker,
    PacketCounts, Part, ReceiverFailure,
};
use crate::pgm::ReceiverConfig;
use crate::pgm::negotiation::Negotiation;
use crate::pgm::session::ReceiverSession;
use crate::pgm::session::dissent::Dissent;
use crate::pgm::wire::{Body, OptionType, Packet, Received, Spm};
use crate::timers::{Timers, reasons};
use crate::{Datagram, FlowEvent, Interactive, Machine, Transmit};

/// Receiver of an object: requests missing symbols, restores blocks, and reports the end.
pub struct ObjectReceiver {
    session: ReceiverSession<()>,
    config: ReceiverConfig,
    assembly: Assembly,
    requests: Requests,
    timers: Timers<Timer, 1>,
    /// Packets before the last restart of the source's numbers: number sent, and number lost.
    earlier: (u64, u64),
    ending: Ending,
    /// Claims of another start of the source, and of another object.
    other_epoch: Dissent<u32, EPOCH_PACKETS>,
    other_object: Dissent<()>,
    /// Newest full-length packet received; before any arrived, the lead of the first SPM.
    long: Option<Seq>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Open,
    /// The source has announced its end, and counts as gone soon unless it sends more.
    Said,
    Gone,
}

reasons! {
    enum Timer {
        SourceEnd,
    }
}

impl ObjectReceiver {
    /// Creates a receiver for `setup`, of the scheme that `negotiation` selects.
    pub fn new(setup: ObjectReceiverSetup<'_>, negotiation: Negotiation) -> Self {
        let mut config = ReceiverConfig::from_options(setup.group, setup.options);
        config.tsi = Some(setup.tsi);
        config.data_port = setup.data_port;
        config.start = setup.start;
        Self {
            session: ReceiverSession::speaking(config.clone(), negotiation, ()),
            requests: Requests::new(&config.settings),
            assembly: Assembly::new(setup),
            timers: Timers::default(),
            earlier: (0, 0),
            ending: Ending::Open,
            other_epoch: Dissent::default(),
            other_object: Dissent::default(),
            long: None,
            config,
        }
    }

    fn fail(&mut self, cx: &mut Cx<'_>, reason: String) {
        if self.assembly.fail(cx, reason) {
            self.requests.clear();
        }
    }

    fn lose_source(&mut self, cx: &mut Cx<'_>, reason: &str) {
        let heard = self.session.heard_at();
        if self.assembly.lose_source(cx, reason, heard) {
            self.requests.clear();
        }
    }

    fn advance(&mut self, cx: &mut Cx<'_>) {
        let requests = &mut self.requests;
        let mut ask = |cx: &mut Cx<'_>, blocks: &Blocks, want| requests.take(cx, blocks, want);
        if let Err(error) = self.assembly.advance(cx, &mut ask) {
            self.fail(cx, error.reason);
        }
    }

    /// Closes the session, which sends the scheme's leave message.
    fn rest(&mut self) {
        if self.session.is_joined() {
            self.session.close();
        }
    }

    fn watch_source(&mut self, cx: &mut Cx<'_>) {
        let gone = self.config.start <= cx.now && !self.session.is_joined();
        if gone && !self.assembly.phase.is_over() {
            self.lose_source(cx, "the source has fallen silent");
        }
        if self.timers.take_due(Timer::SourceEnd, cx.now) {
            self.ending = Ending::Gone;
            if self.assembly.phase.is_over() {
                self.assembly.member.end();
            } else if !self.assembly.has_all() {
                self.lose_source(cx, "the source ended before everything was here");
            }
        }
    }

    /// Returns the number of packets sent since this receiver joined, and of those lost.
    fn extent(&self) -> (u64, u64) {
        let (packets, lost) = self.session.extent();
        (self.earlier.0 + packets, self.earlier.1 + lost)
    }

    fn write_message(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        let (bytes, (packets, lost)) = (self.assembly.reported_bytes(), self.extent());
        let message = self.assembly.member.take_due(bytes, (packets, lost))?;
        cx.emit(Event::SessionExtent { packets });
        let mut value = Vec::new();
        message.encode(&mut value);
        let load = self.assembly.load.load(cx.now, lost).map(|load| encode_load(&load));
        let limit = self.assembly.limit.map(encode_limit);
        let path = self.assembly.take_path_messages();
        self.session.write_request(buf, |encoder| {
            encoder.raw_option(OptionType::MEMBER, 0, &value);
            for (kind, value) in [(OptionType::LOAD, load), (OptionType::LIMIT, limit)] {
                if let Some(value) = value {
                    encoder.raw_option(kind, 0, &value);
                }
            }
            for message in path.into_iter().flatten() {
                encoder.raw_option(OptionType::PATH, 0, &message.encode());
            }
        })
    }

    fn write_want(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if !self.requests.has_due() || !self.may_ask() {
            return None;
        }
        let entries = self.requests.take_due(&self.assembly.blocks);
        if entries.is_empty() {
            return None;
        }
        self.session.write_null_nak(cx, buf, |encoder| {
            write_entries(encoder, OptionType::WANT, &entries);
        })
    }

    fn may_ask(&self) -> bool {
        self.assembly.member.welcome
            && !self.assembly.member.deferred
            && self.session.source.is_some()
    }

    fn take_packet(&mut self, cx: &mut Cx<'_>, packet: &Received<'_>) -> Checked {
        let port = packet.header.data_port(packet.kind()) == self.config.data_port;
        if !port || self.config.tsi.is_some_and(|tsi| tsi != packet.tsi()) {
            return Err(BadInput::Foreign);
        }
        match packet.body {
            Body::Odata(data) => {
                let before = self.session.highest();
                let believed = self.session.handle_packet(cx, packet);
                let highest = self.session.highest();
                let newest = highest != before && highest == Some(data.sequence);
                let len = packet.payload.bytes.len() + packet.payload.zeros as usize;
                let full =
                    self.assembly.notice.map_or(0, |notice| notice.announcement.symbol_bytes);
                if len >= SYMBOL_HEADER + usize::from(full) {
                    self.assembly.path.on_long();
                    self.long = Some(data.sequence);
                }
                if newest {
                    self.go_on();
                }
                self.watch_scheme(cx);
                // Joins before the first SPM, which may come late: only members' reports count.
                if self.assembly.notice.is_none()
                    && self.assembly.phase == TransferPhase::Listening
                    && believed
                {
                    self.assembly.member.join_once(cx);
                }
                self.take_symbol(cx, packet, newest)
            }
            Body::Spm(spm) => self.take_spm(cx, packet, spm),
            Body::Ncf(_) if packet.options.has(OptionType::PROBE) => {
                let probe = packet.options.find(OptionType::PROBE);
                let probe = probe.and_then(|option| Probe::decode(option.value));
                self.assembly.path.on_probe(cx.now, probe.ok_or(BadInput::Malformed)?);
                Ok(())
            }
            Body::Ncf(nak) if packet.options.has(OptionType::CONFIRM) => {
                if !self.config.group.is_group(nak.group) {
                    return Err(BadInput::Foreign);
                }
                self.take_confirmation(cx, packet)
            }
            _ => {
                self.session.handle_packet(cx, packet);
                Ok(())
            }
        }
    }

    fn watch_scheme(&mut self, cx: &mut Cx<'_>) {
        if let Some(mismatch) = self.session.mismatch()
            && self.assembly.fail_mismatched(cx, mismatch)
        {
            self.requests.clear();
        }
    }

    fn take_spm(&mut self, cx: &mut Cx<'_>, packet: &Received<'_>, spm: Spm) -> Checked {
        self.session.read_announced(packet)?;
        let notice = match packet.options.find(OptionType::OBJECT) {
            Some(option) => Notice::decode(option.value).ok_or(BadInput::Malformed)?,
            None => {
                self.session.handle_packet(cx, packet);
                self.watch_scheme(cx);
                return Ok(());
            }
        };
        let epoch = notice.epoch;
        if self.assembly.notice.is_none_or(|known| known.epoch == epoch) {
            self.other_epoch.contradict();
            if self.session.is_contradicted_by(cx.now, &spm) {
                // A packet of an earlier start came after the restart was believed.
                self.listen_anew(cx);
            }
        } else if self.other_epoch.claim(cx.now, epoch, Duration::ZERO, |other| *other == epoch) {
            // The source has restarted: packet numbers are new, received content stays.
            self.listen_anew(cx);
            if !self.assembly.phase.is_over() {
                self.requests.restart(cx, &self.assembly.blocks);
                self.assembly.member.join(cx);
            }
        } else {
            return Err(BadInput::Foreign);
        }
        let fresh = self.session.handle_packet(cx, packet);
        self.watch_scheme(cx);
        if fresh && self.assembly.wants_packets() {
            let long = *self.long.get_or_insert(spm.lead);
            if spm.lead.after(long) {
                self.assembly.path.on_ahead(cx.now);
            }
        }
        let outcome = match self.assembly.notice {
            None if fresh => self.take_first_notice(cx, notice),
            Some(known) if fresh => self.take_notice(cx, known.announcement, notice),
            _ => Ok(()),
        };
        if let Some(option) = packet.options.find(OptionType::MEMBER) {
            let answer = Answer::decode(option.value).ok_or(BadInput::Malformed)?;
            self.take_answer(cx, answer);
        }
        let over = packet.options.has(OptionType::FIN) || packet.options.has(OptionType::RST);
        if !over && fresh {
            self.go_on();
        } else if over && self.ending == Ending::Open {
            self.ending = Ending::Said;
            self.timers.arm(Timer::SourceEnd, cx.now + END_QUIET);
        }
        outcome
    }

    fn go_on(&mut self) {
        self.ending = Ending::Open;
        self.timers.disarm(Timer::SourceEnd);
    }

    /// Forgets packet numbers, but not the number of losses.
    fn listen_anew(&mut self, cx: &mut Cx<'_>) {
        self.earlier = self.extent();
        self.session.restart(cx);
    }

    fn take_first_notice(&mut self, cx: &mut Cx<'_>, notice: Notice) -> Checked {
        if self.assembly.phase != TransferPhase::Listening {
            return Ok(());
        }
        self.assembly.blocks.layout = Layout::new(&notice.announcement).ok_or(BadInput::Absurd)?;
        self.assembly.notice = Some(notice);
        self.assembly.member.set_interval(notice.status_interval);
        self.assembly.member.join_once(cx);
        if let Err(error) = self.assembly.begin() {
            self.fail(cx, error.reason);
            return Ok(());
        }
        self.requests.want(cx, self.assembly.blocks.layout.block_ids(Part::Manifest), false);
        self.advance(cx);
        Ok(())
    }

    fn take_notice(&mut self, cx: &mut Cx<'_>, old: Announcement, notice: Notice) -> Checked {
        let new = notice.announcement;
        if !continues(&old, &new) {
            if self.other_object.claim(cx.now, (), Duration::ZERO, |()| true) {
                self.fail(cx, "the source now sends something else".to_string());
            }
            return Err(BadInput::Foreign);
        }
        let layout = Layout::new(&new).ok_or(BadInput::Absurd)?;
        self.other_object.contradict();
        self.assembly.blocks.layout = layout;
        self.assembly.notice = Some(notice);
        self.assembly.member.shorten_interval(cx, notice.status_interval);
        if self.assembly.phase.is_over() {
            return Ok(());
        }
        let requests = &mut self.requests;
        let mut ask = |cx: &mut Cx<'_>, blocks: &Blocks, want| requests.take(cx, blocks, want);
        if let Err(error) = self.assembly.grow(cx, (&old, &new), &mut ask) {
            self.fail(cx, error.reason);
            return Ok(());
        }
        if notice.exhausted && !self.assembly.member.deferred {
            let sent = [true, notice.begun, notice.begun && new.digests.is_some()];
            let reordering = self.session.reordering_tolerance();
            self.requests.on_exhausted(cx, &mut self.assembly.blocks, sent, reordering);
        }
        if new.digests.is_some() && old.digests.is_none() {
            self.advance(cx);
        }
        Ok(())
    }

    fn take_answer(&mut self, cx: &mut Cx<'_>, answer: Answer) {
        let before = self.may_ask();
        let (news, failed) = self.assembly.take_answer(cx, answer);
        if self.may_ask() && !before {
            self.requests.on_welcome(cx.now);
        }
        match news {
            // Everything may be here already, with only the welcome missing.
            News::Nothing => self.advance(cx),
            News::Recalled => {
                if self.assembly.notice.is_some() {
                    self.requests.restart(cx, &self.assembly.blocks);
                }
            }
            News::Refused | News::Stalled if failed => self.requests.clear(),
            News::Refused | News::Stalled | News::GivenUp => {}
            News::Noted => self.rest(),
        }
    }

    fn take_confirmation(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Checked {
        let Some(notice) = self.assembly.notice else { return Ok(()) };
        let options = packet.options.iter().filter(|option| option.kind == OptionType::CONFIRM);
        for option in options {
            for entry in Entry::decode_all(option.value).ok_or(BadInput::Malformed)? {
                let (Entry::Run { first: block_id, .. } | Entry::Block { block_id, .. }) = entry;
                if !self.assembly.blocks.layout.has(block_id) {
                    if notice.announcement.growing {
                        continue;
                    }
                    return Err(BadInput::Absurd);
                }
                self.requests.on_confirmed(cx.now, &self.assembly.blocks, entry);
            }
        }
        Ok(())
    }

    fn take_symbol(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>, newest: bool) -> Checked {
        let Some(_) = self.assembly.notice.filter(|_| !self.assembly.phase.is_over()) else {
            return Ok(());
        };
        let (name, bytes) = SymbolName::decode(packet.payload.bytes).ok_or(BadInput::Malformed)?;
        let zeros = packet.payload.zeros;
        if !self.assembly.accepts(name, bytes.len() as u64 + u64::from(zeros))? {
            return Ok(());
        }
        if newest && !name.repair {
            let reordering = self.session.reordering_tolerance();
            self.requests.on_swept(cx, &mut self.assembly.blocks, name.block_id, reordering);
        }
        if part_of(name.block_id) == Part::Content && name.block_id >= self.assembly.content_end {
            // The store cannot take it yet; the symbol is for other receivers.
            return Ok(());
        }
        let taken = match self.assembly.take_symbol(cx, name, (bytes, zeros)) {
            Ok(taken) => taken,
            Err(error) => {
                self.fail(cx, error.reason);
                return Ok(());
            }
        };
        match taken {
            Taken::Completed => {
                self.requests.on_complete(cx.now, name.block_id, name.repair);
                self.advance(cx);
            }
            Taken::Fresh if name.repair => self.requests.on_progress(cx.now, name.block_id),
            Taken::Fresh | Taken::Useless => {}
            Taken::NoRoom => return Err(BadInput::TableFull),
        }
        Ok(())
    }
}

impl ObjectTaker for ObjectReceiver {
    fn status(&self) -> ObjectStatus {
        let status = self.assembly.status();
        let mismatch = self.session.mismatch().cloned();
        ObjectStatus {
            packets: PacketCounts { requests: self.requests.sent, ..status.packets },
            failure: ReceiverFailure { mismatch, ..status.failure },
            rtt: self.requests.run_retry.rtt.srtt(),
            heard: self.session.heard_at(),
            ..status
        }
    }

    fn awaits_note(&self) -> bool {
        self.assembly.member.awaits_note()
    }
}

impl Interactive for ObjectReceiver {
    type Input = ObjectReceiverInput;

    fn handle_input(&mut self, _cx: &mut Cx<'_>, input: ObjectReceiverInput) {
        self.assembly.handle_input(input);
    }
}

impl Machine for ObjectReceiver {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        if !self.session.is_joined() {
            return;
        }
        let outcome = Received::decode(&datagram).and_then(|packet| self.take_packet(cx, &packet));
        cx.check(outcome);
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.session.on_timeout(cx);
        self.watch_source(cx);
        if self.assembly.take_due(cx.now) {
            self.advance(cx);
        }
        if self.assembly.member.on_timeout(cx) {
            self.rest();
        }
        self.assembly.look_at_path(cx);
        if self.requests.next_timeout().is_some_and(|at| at <= cx.now) {
            let can_ask = self.may_ask();
            self.requests.on_timeout(cx, &mut self.assembly.blocks, can_ask);
        }
    }

    fn handle_close(&mut self, cx: &mut Cx<'_>) {
        if self.assembly.close(cx) {
            self.requests.clear();
        }
        // Due messages go first, and a last message until confirmed: the source waits for it.
        if !self.assembly.member.schedule.is_due && !self.assembly.member.awaits_note() {
            self.rest();
        }
    }

    fn handle_new_path(&mut self, cx: &mut Cx<'_>) {
        if self.session.is_joined() {
            self.session.want_spm(cx);
        }
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        if let Some(message) = self.write_message(cx, buf) {
            return Some(message);
        }
        let alone = self.ending == Ending::Gone && self.assembly.phase.is_over();
        if self.assembly.member.has_left() || alone {
            self.rest();
        }
        if let Some(want) = self.write_want(cx, buf) {
            return Some(want);
        }
        self.session.next_packet(cx, buf)
    }

    fn poll_event(&mut self) -> Option<FlowEvent> {
        self.assembly.poll_event()
    }

    fn next_timeout(&self) -> Option<Time> {
        let session = self.session.next_timeout()?;
        let (member, requests) =
            (self.assembly.member.schedule.next_at, self.requests.next_timeout());
        let path = self.assembly.path.next_timeout();
        let others = [self.timers.next(), self.assembly.store_poll.at, member, requests, path];
        Some(others.into_iter().flatten().fold(session, Time::min))
    }
}

/// Silence before a source's announced end is believed; an active source sends within 1 s.
const END_QUIET: Duration = Duration::from_secs(3);

/// Consecutive SPMs that must announce a restart of the source.
const EPOCH_PACKETS: u32 = 2;

/// Returns true if `new` announces the same object as `old`, or the object to which it has grown.
pub(super) fn continues(old: &Announcement, new: &Announcement) -> bool {
    let [manifest, content, _] = old.lens;
    let same = (old.symbol_bytes, old.object) == (new.symbol_bytes, new.object);
    let grown = old.growing && manifest == new.lens[0] && content <= new.lens[1];
    same && (grown || (old.lens, old.growing) == (new.lens, new.growing))
}
