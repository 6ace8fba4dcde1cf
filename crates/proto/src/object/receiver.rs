//! Receiving end of a transfer over PGM.

pub(super) mod assembly;
pub(super) mod blocks;
mod input;
mod load;
pub(super) mod member;
pub(super) mod path_reports;
mod requests;

use alloc::string::String;
use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Event, Seq, Time};

use self::assembly::Assembly;
use self::blocks::Blocks;
pub(super) use self::input::continues;
use self::requests::Requests;
use super::source::write_entries;
use super::wire::{encode_limit, encode_load};
use super::{
    ObjectReceiverInput, ObjectReceiverSetup, ObjectStatus, ObjectTaker, PacketCounts,
    ReceiverFailure,
};
use crate::pgm::ReceiverConfig;
use crate::pgm::negotiation::Negotiation;
use crate::pgm::session::ReceiverSession;
use crate::pgm::session::dissent::Dissent;
use crate::pgm::wire::{OptionType, Received};
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
    doubts: Doubts,
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

#[derive(Debug, Default)]
struct Doubts {
    epoch: Dissent<u32, EPOCH_PACKETS>,
    object: Dissent<()>,
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
            doubts: Doubts::default(),
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
        let path = self.assembly.path.take_messages();
        self.session.write_request(buf, |encoder| {
            encoder.raw_option(OptionType::MEMBER, 0, &value);
            if let Some(load) = load {
                encoder.raw_option(OptionType::LOAD, 0, &load);
            }
            if let Some(limit) = limit {
                encoder.raw_option(OptionType::LIMIT, 0, &limit);
            }
            for word in path.into_iter().flatten() {
                encoder.raw_option(OptionType::PATH, 0, &word.encode());
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
        if self.assembly.member.next_timeout().is_some_and(|at| at <= cx.now)
            && self.assembly.member.on_timeout(cx)
        {
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
        if !self.assembly.member.has_due() && !self.assembly.member.awaits_note() {
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
            (self.assembly.member.next_timeout(), self.requests.next_timeout());
        let path = self.assembly.path.next_timeout();
        let others = [self.timers.next(), self.assembly.next_timeout(), member, requests, path];
        Some(others.into_iter().flatten().fold(session, Time::min))
    }
}

/// Silence before a source's announced end is believed; an active source sends within 1 s.
const END_QUIET: Duration = Duration::from_secs(3);

/// Consecutive SPMs that must announce a restart of the source.
const EPOCH_PACKETS: u32 = 2;
