//! Receiving end of a transfer over PGM: hands the fields of packets to its parts, and follows the
//! source through restarts to its end. PGM's session numbers packets and reports to the scheme;
//! `assembly` takes the object from its notice to the verified files; `requests` decides what is
//! requested when; `member` is the conversation with the source (join, progress, last message).

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
    earlier_packets: (u64, u64),
    source_end: SourceEnd,
    /// Claims that the source has restarted, believed after [`EPOCH_PACKETS`] SPMs in a row.
    other_epoch: Dissent<u32, EPOCH_PACKETS>,
    /// Claims that the source sends another object.
    other_object: Dissent<()>,
    /// Full-length packet received last; before any arrived, the lead of the first SPM.
    latest_full: Option<Seq>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceEnd {
    Open,
    /// The source counts as gone after [`END_QUIET`] unless it sends more.
    Announced,
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
            earlier_packets: (0, 0),
            source_end: SourceEnd::Open,
            other_epoch: Dissent::default(),
            other_object: Dissent::default(),
            latest_full: None,
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

    /// Moves the transfer on as far as the received content allows: opens the store, requests the
    /// next blocks, verifies.
    fn advance(&mut self, cx: &mut Cx<'_>) {
        let requests = &mut self.requests;
        let mut ask = |cx: &mut Cx<'_>, blocks: &Blocks, want| requests.take(cx, blocks, want);
        if let Err(error) = self.assembly.advance(cx, &mut ask) {
            self.fail(cx, error.reason);
        }
    }

    /// Closes the session, which sends the leave message of the scheme.
    fn leave_session(&mut self) {
        if self.session.is_joined() {
            self.session.close();
        }
    }

    fn watch_source(&mut self, cx: &mut Cx<'_>) {
        // The session leaves by itself once its source has been silent for too long.
        let is_silent = self.config.start <= cx.now && !self.session.is_joined();
        if is_silent && !self.assembly.phase.is_over() {
            self.lose_source(cx, "the source has fallen silent");
        }
        if self.timers.take_due(Timer::SourceEnd, cx.now) {
            self.source_end = SourceEnd::Gone;
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
        (self.earlier_packets.0 + packets, self.earlier_packets.1 + lost)
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
        let is_own_port = packet.header.data_port(packet.kind()) == self.config.data_port;
        if !is_own_port || self.config.tsi.is_some_and(|tsi| tsi != packet.tsi()) {
            return Err(BadInput::Foreign);
        }
        match packet.body {
            Body::Odata(data) => {
                let before = self.session.highest();
                let is_believed = self.session.handle_packet(cx, packet);
                let highest = self.session.highest();
                let newest = highest != before && highest == Some(data.sequence);
                let len = packet.payload.bytes.len() + packet.payload.zeros as usize;
                // Before the first notice any symbol counts as full-length.
                let symbol_bytes =
                    self.assembly.notice.map_or(0, |notice| notice.announcement.symbol_bytes);
                if len >= SYMBOL_HEADER + usize::from(symbol_bytes) {
                    self.assembly.path.on_long();
                    self.latest_full = Some(data.sequence);
                }
                if newest {
                    self.on_source_continues();
                }
                self.watch_scheme(cx);
                // Joins before the first SPM, which may come late: only members' reports count.
                if self.assembly.notice.is_none()
                    && self.assembly.phase == TransferPhase::Listening
                    && is_believed
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
                self.restart_session(cx);
            }
        } else if self.other_epoch.claim(cx.now, epoch, Duration::ZERO, |other| *other == epoch) {
            // The source has restarted: packet numbers are new, received content stays.
            self.restart_session(cx);
            if !self.assembly.phase.is_over() {
                self.requests.restart(cx, &self.assembly.blocks);
                self.assembly.member.join(cx);
            }
        } else {
            return Err(BadInput::Foreign);
        }
        let is_believed = self.session.handle_packet(cx, packet);
        self.watch_scheme(cx);
        if is_believed && self.assembly.wants_packets() {
            // SPMs that run ahead of full-length packets: such packets may not pass the path.
            let latest_full = *self.latest_full.get_or_insert(spm.lead);
            if spm.lead.after(latest_full) {
                self.assembly.path.on_ahead(cx.now);
            }
        }
        let outcome = match self.assembly.notice {
            None if is_believed => self.take_first_notice(cx, notice),
            Some(known) if is_believed => self.take_notice(cx, known.announcement, notice),
            _ => Ok(()),
        };
        if let Some(option) = packet.options.find(OptionType::MEMBER) {
            let answer = Answer::decode(option.value).ok_or(BadInput::Malformed)?;
            self.take_answer(cx, answer);
        }
        let over = packet.options.has(OptionType::FIN) || packet.options.has(OptionType::RST);
        if !over && is_believed {
            self.on_source_continues();
        } else if over && self.source_end == SourceEnd::Open {
            self.source_end = SourceEnd::Announced;
            self.timers.arm(Timer::SourceEnd, cx.now + END_QUIET);
        }
        outcome
    }

    fn on_source_continues(&mut self) {
        self.source_end = SourceEnd::Open;
        self.timers.disarm(Timer::SourceEnd);
    }

    /// Forgets packet numbers, but not the number of losses.
    fn restart_session(&mut self, cx: &mut Cx<'_>) {
        self.earlier_packets = self.extent();
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
            News::Noted => self.leave_session(),
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
            self.leave_session();
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
            self.leave_session();
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
        let alone = self.source_end == SourceEnd::Gone && self.assembly.phase.is_over();
        if self.assembly.member.has_left() || alone {
            self.leave_session();
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
